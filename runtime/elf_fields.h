// Fields of an ELF-64 file (System V ABI, little-endian): offsets in its header, in a section's and in a segment's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera::elf {

inline constexpr unsigned char kMagic[6] = {0x7f, 'E', 'L', 'F', 2, 1};  // 64-bit, little-endian
inline constexpr std::size_t kHeaderBytes = 64, kMachine = 18, kProgramHeaderOffset = 32, kSectionHeaderOffset = 40,
                             kFlags = 48, kProgramHeaderSize = 54, kProgramHeaderCount = 56, kSectionHeaderCount = 60,
                             kSectionNamesIndex = 62;
inline constexpr std::size_t kSectionBytes = 64, kSectionType = 4, kSectionFlags = 8, kSectionOffset = 24,
                             kSectionSize = 32, kSectionAlignment = 48;
inline constexpr std::size_t kSegmentBytes = 56, kSegmentOffset = 8, kSegmentFileSize = 32, kSegmentMemorySize = 40;
inline constexpr std::size_t kSymbolBytes = 24, kSymbolSize = 16;
inline constexpr std::uint32_t kSectionNull = 0, kSectionNoBits = 8, kSegmentNote = 4;

/// Zero where it does not lie within the bytes.
template <class T>
T field(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  if (offset <= bytes.size() && sizeof value <= bytes.size() - offset)
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
template <class T>
void put_field(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

}  // namespace tessera::elf

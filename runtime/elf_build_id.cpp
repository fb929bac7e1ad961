#include "runtime/elf_build_id.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>
#include <vector>

#include "runtime/elf_fields.h"

namespace tessera {

namespace {

constexpr std::uint32_t kNoteBuildId = 3;
constexpr std::size_t kNoteHeaderBytes = 12;
constexpr std::uint64_t kMaxNoteSegment = 1 << 20;

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

std::string build_id_of_notes(std::span<const std::byte> notes) {
  while (notes.size() >= kNoteHeaderBytes) {
    const std::size_t name_bytes = elf::field<std::uint32_t>(notes, 0);
    const std::size_t data_bytes = elf::field<std::uint32_t>(notes, 4);
    const auto type = elf::field<std::uint32_t>(notes, 8);
    const std::size_t data_at = kNoteHeaderBytes + padded(name_bytes);
    if (data_at > notes.size() || data_bytes > notes.size() - data_at) return {};
    const bool is_gnu = name_bytes == 4 && std::memcmp(notes.data() + kNoteHeaderBytes, "GNU", 4) == 0;
    if (is_gnu && type == kNoteBuildId) {
      std::string hex;
      for (const std::byte b : notes.subspan(data_at, data_bytes))
        hex += fmt::format("{:02x}", static_cast<unsigned>(b));
      return hex;
    }
    notes = notes.subspan(std::min(notes.size(), data_at + padded(data_bytes)));
  }
  return {};
}

}  // namespace

std::string elf_build_id(std::uint64_t file_bytes, const ReadAt& read) {
  const auto read_range = [&](std::uint64_t offset, std::span<std::byte> out) {
    return offset <= file_bytes && out.size() <= file_bytes - offset && read(offset, out);
  };
  std::array<std::byte, elf::kHeaderBytes> header{};
  if (!read_range(0, header)) return {};
  if (std::memcmp(header.data(), elf::kMagic, sizeof elf::kMagic) != 0) return {};
  const auto table = elf::field<std::uint64_t>(header, elf::kProgramHeaderOffset);
  const std::uint64_t entry_bytes = elf::field<std::uint16_t>(header, elf::kProgramHeaderSize);
  const std::uint64_t count = elf::field<std::uint16_t>(header, elf::kProgramHeaderCount);
  if (entry_bytes < elf::kSegmentBytes || table > file_bytes) return {};
  for (std::uint64_t i = 0; i < count; ++i) {
    std::array<std::byte, elf::kSegmentBytes> segment{};
    if (!read_range(table + i * entry_bytes, segment)) return {};
    if (elf::field<std::uint32_t>(segment, 0) != elf::kSegmentNote) continue;
    const auto bytes = elf::field<std::uint64_t>(segment, elf::kSegmentFileSize);
    if (bytes > kMaxNoteSegment) continue;
    std::vector<std::byte> notes(static_cast<std::size_t>(bytes));
    if (!read_range(elf::field<std::uint64_t>(segment, elf::kSegmentOffset), notes)) continue;
    if (std::string id = build_id_of_notes(notes); !id.empty()) return id;
  }
  return {};
}

std::string elf_build_id(const std::filesystem::path& file) {
  std::error_code code;
  const std::uintmax_t bytes = std::filesystem::file_size(file, code);
  std::ifstream in(file, std::ios::binary);
  if (code || !in) return {};
  return elf_build_id(bytes, [&](std::uint64_t offset, std::span<std::byte> out) {
    in.clear();
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
    return in.gcount() == static_cast<std::streamsize>(out.size());
  });
}

}  // namespace tessera

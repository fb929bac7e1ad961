// A cubin (ELF-64, little-endian, "NVIDIA CUDA architecture") as sections that may be changed and written again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Elf64_Shdr, without its offset.
struct CubinSection {
  std::string name;
  std::uint32_t type = 0;
  std::uint64_t flags = 0;
  std::uint64_t alignment = 1;
  std::uint64_t size = 0;  ///< of a section without bytes (NOBITS); else what data has
  std::vector<std::byte> data;
  bool has_data() const noexcept;
};

class CubinFile {
 public:
  /// Nothing where the bytes are no cubin, or one whose parts do not lie within them.
  static std::optional<CubinFile> read(std::span<const std::byte> bytes);

  /// Null: there is none of that name.
  CubinSection* find(std::string_view name);
  const CubinSection* find(std::string_view name) const;
  const std::vector<CubinSection>& sections() const noexcept { return sections_; }
  /// e_flags: the architecture.
  std::uint32_t flags() const;

  /// The file with the sections as they are now, in their order: offsets, sizes and segments follow them.
  /// Nothing where a segment does not begin and end where sections do.
  std::optional<std::vector<std::byte>> write() const;

 private:
  struct Extent {
    std::uint64_t offset = 0, bytes = 0;
  };
  /// Where a segment's sections lie by other section headers. More in memory: sections without bytes follow its end.
  std::optional<Extent> placed(const Extent& old, bool has_more_in_memory, std::span<const std::byte> headers) const;

  std::vector<std::byte> header_;
  std::vector<std::byte> section_headers_, segments_;  ///< as read
  std::vector<CubinSection> sections_;
};

}  // namespace tessera

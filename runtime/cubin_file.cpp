#include "runtime/cubin_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/elf_fields.h"

namespace tessera {

namespace {

constexpr std::uint16_t kCudaMachine = 190;

bool lies_within(std::uint64_t offset, std::uint64_t bytes, std::size_t all) {
  return offset <= all && bytes <= all - offset;
}

std::vector<std::byte> part(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t count) {
  const auto piece = bytes.subspan(offset, count);
  return {piece.begin(), piece.end()};
}

std::string name_at(std::span<const std::byte> names, std::size_t offset) {
  std::string name;
  for (; offset < names.size() && names[offset] != std::byte{}; ++offset) name += static_cast<char>(names[offset]);
  return name;
}

void pad_to(std::vector<std::byte>& bytes, std::uint64_t alignment) {
  if (alignment > 1) bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
}

}  // namespace

bool CubinSection::has_data() const noexcept { return type != elf::kSectionNoBits && type != elf::kSectionNull; }

std::optional<CubinFile> CubinFile::read(std::span<const std::byte> bytes) {
  if (bytes.size() < elf::kHeaderBytes || std::memcmp(bytes.data(), elf::kMagic, sizeof elf::kMagic) != 0)
    return std::nullopt;
  if (elf::field<std::uint16_t>(bytes, elf::kMachine) != kCudaMachine) return std::nullopt;
  const auto segments_at = elf::field<std::uint64_t>(bytes, elf::kProgramHeaderOffset);
  const auto sections_at = elf::field<std::uint64_t>(bytes, elf::kSectionHeaderOffset);
  const std::size_t segments = elf::field<std::uint16_t>(bytes, elf::kProgramHeaderCount);
  const std::size_t sections = elf::field<std::uint16_t>(bytes, elf::kSectionHeaderCount);
  const std::size_t names_index = elf::field<std::uint16_t>(bytes, elf::kSectionNamesIndex);
  if (!lies_within(segments_at, segments * elf::kSegmentBytes, bytes.size()) ||
      !lies_within(sections_at, sections * elf::kSectionBytes, bytes.size()) || names_index >= sections)
    return std::nullopt;

  CubinFile file;
  file.header_ = part(bytes, 0, elf::kHeaderBytes);
  file.segments_ = part(bytes, segments_at, segments * elf::kSegmentBytes);
  file.section_headers_ = part(bytes, sections_at, sections * elf::kSectionBytes);
  std::size_t left = bytes.size();  // sections do not overlap, so that they are no more than the file
  for (std::size_t i = 0; i < sections; ++i) {
    const auto header =
        std::span<const std::byte>(file.section_headers_).subspan(i * elf::kSectionBytes, elf::kSectionBytes);
    CubinSection section;
    section.type = elf::field<std::uint32_t>(header, elf::kSectionType);
    section.flags = elf::field<std::uint64_t>(header, elf::kSectionFlags);
    section.alignment = elf::field<std::uint64_t>(header, elf::kSectionAlignment);
    section.size = elf::field<std::uint64_t>(header, elf::kSectionSize);
    constexpr std::uint64_t kMostAlignment = 1 << 20;
    if (section.alignment > kMostAlignment) return std::nullopt;
    if (section.has_data()) {
      const auto offset = elf::field<std::uint64_t>(header, elf::kSectionOffset);
      if (!lies_within(offset, section.size, bytes.size()) || section.size > left) return std::nullopt;
      left -= section.size;
      section.data = part(bytes, offset, section.size);
    }
    file.sections_.push_back(std::move(section));
  }
  const std::vector<std::byte>& names = file.sections_[names_index].data;
  for (std::size_t i = 0; i < sections; ++i)
    file.sections_[i].name = name_at(names, elf::field<std::uint32_t>(file.section_headers_, i * elf::kSectionBytes));
  return file;
}

const CubinSection* CubinFile::find(std::string_view name) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(),
                                  [name](const CubinSection& section) { return section.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}
CubinSection* CubinFile::find(std::string_view name) {
  return const_cast<CubinSection*>(std::as_const(*this).find(name));
}

std::uint32_t CubinFile::flags() const { return elf::field<std::uint32_t>(header_, elf::kFlags); }

std::optional<CubinFile::Extent> CubinFile::placed(const Extent& old, bool has_more_in_memory,
                                                   std::span<const std::byte> headers) const {
  const auto offset_in = [](std::span<const std::byte> of, std::size_t i) {
    return elf::field<std::uint64_t>(of, i * elf::kSectionBytes + elf::kSectionOffset);
  };
  const auto size_in = [](std::span<const std::byte> of, std::size_t i) {
    return elf::field<std::uint64_t>(of, i * elf::kSectionBytes + elf::kSectionSize);
  };
  const auto is_at = [&](std::size_t i, std::uint64_t offset, bool has_data) {
    const CubinSection& section = sections_[i];
    return section.type != elf::kSectionNull && section.has_data() == has_data && size_in(section_headers_, i) > 0 &&
           offset_in(section_headers_, i) == offset;
  };
  std::size_t first = 0;
  while (first < sections_.size() && !is_at(first, old.offset, old.bytes > 0)) ++first;
  if (first == sections_.size()) return std::nullopt;
  const std::uint64_t start = offset_in(headers, first);
  if (old.bytes == 0) return Extent{start, 0};
  const std::uint64_t old_end = old.offset + old.bytes;
  for (std::size_t i = first; i < sections_.size(); ++i) {
    if (has_more_in_memory && is_at(i, old_end, false)) return Extent{start, offset_in(headers, i) - start};
    const std::uint64_t offset = offset_in(section_headers_, i), size = size_in(section_headers_, i);
    if (!has_more_in_memory && sections_[i].has_data() && size > 0 && offset + size == old_end)
      return Extent{start, offset_in(headers, i) + size_in(headers, i) - start};
  }
  return std::nullopt;
}

std::optional<std::vector<std::byte>> CubinFile::write() const {
  std::vector<std::byte> bytes = header_;
  std::vector<std::byte> headers = section_headers_;
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    const CubinSection& section = sections_[i];
    if (section.type == elf::kSectionNull) continue;
    pad_to(bytes, section.alignment);
    elf::put_field<std::uint64_t>(headers, i * elf::kSectionBytes + elf::kSectionOffset, bytes.size());
    elf::put_field<std::uint64_t>(headers, i * elf::kSectionBytes + elf::kSectionSize,
                                  section.has_data() ? section.data.size() : section.size);
    if (section.has_data()) bytes.insert(bytes.end(), section.data.begin(), section.data.end());
  }
  constexpr std::uint64_t kTableAlignment = 8;
  pad_to(bytes, kTableAlignment);
  const std::uint64_t sections_at = bytes.size();
  const std::uint64_t segments_at = sections_at + headers.size();

  std::vector<std::byte> segments = segments_;
  for (std::size_t at = 0; at < segments.size(); at += elf::kSegmentBytes) {
    const auto old_offset = elf::field<std::uint64_t>(segments, at + elf::kSegmentOffset);
    const auto file_bytes = elf::field<std::uint64_t>(segments, at + elf::kSegmentFileSize);
    const auto memory_bytes = elf::field<std::uint64_t>(segments, at + elf::kSegmentMemorySize);
    if (old_offset == elf::field<std::uint64_t>(header_, elf::kProgramHeaderOffset)) {
      elf::put_field<std::uint64_t>(segments, at + elf::kSegmentOffset, segments_at);
      continue;
    }
    const std::optional<Extent> extent = placed({old_offset, file_bytes}, memory_bytes > file_bytes, headers);
    if (!extent) return std::nullopt;
    elf::put_field<std::uint64_t>(segments, at + elf::kSegmentOffset, extent->offset);
    elf::put_field<std::uint64_t>(segments, at + elf::kSegmentFileSize, extent->bytes);
    elf::put_field<std::uint64_t>(segments, at + elf::kSegmentMemorySize, extent->bytes + (memory_bytes - file_bytes));
  }
  bytes.insert(bytes.end(), headers.begin(), headers.end());
  bytes.insert(bytes.end(), segments.begin(), segments.end());
  elf::put_field<std::uint64_t>(bytes, elf::kProgramHeaderOffset, segments_at);
  elf::put_field<std::uint64_t>(bytes, elf::kSectionHeaderOffset, sections_at);
  return bytes;
}

}  // namespace tessera

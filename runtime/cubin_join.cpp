// Attributes of .nv.info by number, as CUDA's own tools name them (EIATTR_...), and encodings of NANOSLEEP and BRA as
// nvdisasm shows them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/cubin_file.h"
#include "runtime/elf_fields.h"
#include "runtime/kernel_pieces.h"
#include "runtime/pieces_refused.h"

namespace tessera {

namespace {

using Bytes = std::vector<std::byte>;  // of a cubin or of a part of it

template <class T>
void append(Bytes& bytes, T value) {
  bytes.resize(bytes.size() + sizeof value);
  elf::put_field<T>(bytes, bytes.size() - sizeof value, value);
}

// ---- .nv.info: what the driver and tools are told of a kernel

enum class Format : std::uint8_t { none = 1, byte = 2, half = 3, sized = 4 };

struct Attribute {
  Format format{};
  std::uint8_t number = 0;
  std::uint16_t value = 0;  ///< of a byte or a half
  Bytes data{};             ///< of a sized one
};

std::vector<Attribute> attributes_of(const CubinSection& section) {
  constexpr std::size_t kHeadBytes = 4;
  std::vector<Attribute> attributes;
  for (std::size_t at = 0; at < section.data.size();) {
    if (section.data.size() - at < kHeadBytes) refuse_to_join("{} ends within an attribute", section.name);
    Attribute attribute;
    attribute.format = static_cast<Format>(section.data[at]);
    attribute.number = static_cast<std::uint8_t>(section.data[at + 1]);
    attribute.value = elf::field<std::uint16_t>(section.data, at + 2);
    at += kHeadBytes;
    if (attribute.format < Format::none || attribute.format > Format::sized)
      refuse_to_join("{} has an attribute of format {}", section.name, static_cast<int>(attribute.format));
    if (attribute.format == Format::sized) {
      if (section.data.size() - at < attribute.value) refuse_to_join("{} ends within an attribute", section.name);
      const auto data = std::span<const std::byte>(section.data).subspan(at, attribute.value);
      attribute.data.assign(data.begin(), data.end());
      at += attribute.value;
    }
    attributes.push_back(std::move(attribute));
  }
  return attributes;
}

Bytes bytes_of(const std::vector<Attribute>& attributes) {
  Bytes bytes;
  for (const Attribute& attribute : attributes) {
    constexpr std::size_t kMost = 0xffff;
    if (attribute.data.size() > kMost) refuse_to_join("attribute {:#x} is too long", attribute.number);
    append(bytes, static_cast<std::uint8_t>(attribute.format));
    append(bytes, attribute.number);
    append(bytes,
           attribute.format == Format::sized ? static_cast<std::uint16_t>(attribute.data.size()) : attribute.value);
    bytes.insert(bytes.end(), attribute.data.begin(), attribute.data.end());
  }
  return bytes;
}

constexpr std::uint8_t kParamCbank = 0x0a, kFrameSize = 0x11, kMinStackSize = 0x12, kMaxRegCount = 0x1b,
                       kExitOffsets = 0x1c, kCrsStackSize = 0x1e, kCoopGroupOffsets = 0x28, kCoopGroupMasks = 0x29,
                       kWarpWideOffsets = 0x31, kIndirectBranchTargets = 0x34, kNumMbarriers = 0x38,
                       kUnusedLoadByteOffsets = 0x44, kMbarrierOffsets = 0x39, kNumBarriers = 0x4c, kRegReconfig = 0x54,
                       kRegCount = 0x2f;

/// Bytes of an entry whose first four are an instruction's place; 0: the attribute has no places.
std::size_t entry_with_place(std::uint8_t number) {
  switch (number) {
    case kExitOffsets:
    case kCoopGroupOffsets:
    case kWarpWideOffsets:
      return 4;
    case kUnusedLoadByteOffsets:
      return 8;
    case kMbarrierOffsets:
      return 16;
    default:
      return 0;
  }
}
bool is_list(std::uint8_t number) { return entry_with_place(number) != 0 || number == kCoopGroupMasks; }
/// Counts and sizes, of which the kernel has the largest; none where a piece says nothing.
bool is_maximum(std::uint8_t number) {
  return number == kNumBarriers || number == kNumMbarriers || number == kCrsStackSize;
}
/// What holds of the kernel if it holds of one piece: that its registers are dealt anew; and tables of branches, which
/// the first piece alone may have.
bool may_be_one_pieces(std::uint8_t number) { return number == kRegReconfig || number == kIndirectBranchTargets; }
void take_larger(Attribute& one, const Attribute& other) {
  if (one.format != Format::sized) {
    one.value = std::max(one.value, other.value);
  } else if (elf::field<std::uint32_t>(other.data, 0) > elf::field<std::uint32_t>(one.data, 0)) {
    one.data = other.data;
  }
}

/// What a piece says of the kernel, added to what those before it said; its code begins at `shift`.
void add_attributes(std::vector<Attribute>& all, const std::vector<Attribute>& more, std::uint32_t shift) {
  std::map<std::uint8_t, int> seen;
  for (Attribute attribute : more) {
    const int nth = seen[attribute.number]++;
    if (const std::size_t entry = entry_with_place(attribute.number)) {
      if (attribute.data.size() % entry != 0)
        refuse_to_join("attribute {:#x} has a part of an entry", attribute.number);
      for (std::size_t at = 0; at < attribute.data.size(); at += entry)
        elf::put_field(std::span(attribute.data), at, elf::field<std::uint32_t>(attribute.data, at) + shift);
    }
    int left = nth;
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const Attribute& one) { return one.number == attribute.number && left-- == 0; });
    if (is_list(attribute.number) || is_maximum(attribute.number)) {
      if (same == all.end()) {
        all.push_back(attribute);
      } else if (is_maximum(attribute.number)) {
        take_larger(*same, attribute);
      } else {
        same->data.insert(same->data.end(), attribute.data.begin(), attribute.data.end());
      }
      continue;
    }
    if (same == all.end() && attribute.number == kRegReconfig) {
      all.push_back(attribute);
      continue;
    }
    if (same == all.end()) refuse_to_join("one piece alone has attribute {:#x}", attribute.number);
    if (attribute.number == kParamCbank) {  // a symbol of its own piece, and then the parameters' place
      if (elf::field<std::uint32_t>(same->data, 4) != elf::field<std::uint32_t>(attribute.data, 4))
        refuse_to_join("parameters lie at different places");
    } else if (same->format != attribute.format || same->value != attribute.value || same->data != attribute.data) {
      refuse_to_join("attribute {:#x} differs", attribute.number);
    }
  }
  for (const Attribute& one : all)
    if (!is_list(one.number) && !is_maximum(one.number) && !may_be_one_pieces(one.number) && !seen.contains(one.number))
      refuse_to_join("one piece alone has attribute {:#x}", one.number);
}

/// .nv.compat: of each attribute the larger value.
void add_compat(std::vector<Attribute>& all, const std::vector<Attribute>& more) {
  if (all.size() != more.size()) refuse_to_join(".nv.compat differs");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].number != more[i].number || all[i].format != more[i].format || all[i].data != more[i].data)
      refuse_to_join(".nv.compat differs");
    all[i].value = std::max(all[i].value, more[i].value);
  }
}

// ---- Symbols

/// The index of the kernel's symbol.
std::uint32_t symbol_of(const CubinFile& file, std::string_view entry) {
  const CubinSection *symbols = file.find(".symtab"), *names = file.find(".strtab");
  if (symbols == nullptr || names == nullptr) refuse_to_join("there are no symbols");
  for (std::size_t at = 0; at + elf::kSymbolBytes <= symbols->data.size(); at += elf::kSymbolBytes) {
    const std::size_t name = elf::field<std::uint32_t>(symbols->data, at);
    if (name + entry.size() < names->data.size() &&
        std::memcmp(names->data.data() + name, entry.data(), entry.size()) == 0 &&
        names->data[name + entry.size()] == std::byte{})
      return static_cast<std::uint32_t>(at / elf::kSymbolBytes);
  }
  refuse_to_join("there is no symbol {}", entry);
}

/// .nv.info of the whole file: registers, frame and stack of the kernel, the larger of two pieces'.
void add_sizes(std::vector<Attribute>& all, std::uint32_t symbol, const std::vector<Attribute>& more,
               std::uint32_t symbol_of_more) {
  for (const Attribute& attribute : more) {
    if (attribute.number != kRegCount && attribute.number != kFrameSize && attribute.number != kMinStackSize)
      refuse_to_join(".nv.info has attribute {:#x}", attribute.number);
    const auto size = elf::field<std::uint32_t>(attribute.data, 4);
    if (elf::field<std::uint32_t>(attribute.data, 0) != symbol_of_more) {  // a function that the compiler made
      if (size != 0) refuse_to_join("a function has a frame of {} bytes", size);
      continue;
    }
    const auto same = std::find_if(all.begin(), all.end(), [&](const Attribute& one) {
      return one.number == attribute.number && elf::field<std::uint32_t>(one.data, 0) == symbol;
    });
    if (same == all.end()) refuse_to_join("one piece alone has attribute {:#x}", attribute.number);
    elf::put_field(std::span(same->data), 4, std::max(size, elf::field<std::uint32_t>(same->data, 4)));
  }
}

// ---- Machine code: 16 bytes an instruction

constexpr std::size_t kInstructionBytes = 16;
constexpr std::uint64_t kOpcodeMask = 0xfff, kNanosleep = 0x95d, kPredicateMask = 0xf000;
constexpr std::uint64_t kBranchToItself = 0xfffffffc00fc7947, kControlOfIt = 0x000fc0000383ffff;

/// An unconditional BRA (or one with the predicate of `instead`) that waits for all six scoreboards. The distance, from
/// the instruction behind it, is counted in units of four bytes: its low eight bits stand at bit 16, the others at 34.
void put_branch(std::span<std::byte> code, std::size_t at, std::size_t target, std::uint64_t instead) {
  constexpr std::uint64_t kBranch = 0x0947, kControl = 0x03ffea0003800000;
  const std::uint64_t distance = (target - (at + kInstructionBytes)) / 4;
  elf::put_field<std::uint64_t>(code, at,
                                kBranch | (instead & kPredicateMask) | (distance & 0xff) << 16 | (distance >> 8) << 34);
  elf::put_field<std::uint64_t>(code, at + 8, kControl | ((distance >> 8) >> 30));
}

/// What tells that code is of the encoding that is known here: it ends in a branch to itself, and nothing behind it.
void require_known_encoding(std::span<const std::byte> code) {
  constexpr std::uint64_t kNop = 0x0000000000007918;
  std::size_t at = code.size();
  if (at % kInstructionBytes != 0) refuse_to_join("code of {} bytes", at);
  while (at >= kInstructionBytes && elf::field<std::uint64_t>(code, at - kInstructionBytes) == kNop)
    at -= kInstructionBytes;
  if (at < kInstructionBytes || elf::field<std::uint64_t>(code, at - kInstructionBytes) != kBranchToItself ||
      elf::field<std::uint64_t>(code, at - kInstructionBytes + 8) != kControlOfIt)
    refuse_to_join("code of an encoding that is not known");
}

/// Where the first piece leaves for piece `number`: one place.
std::size_t mark_of(std::span<const std::byte> code, std::size_t number) {
  std::optional<std::size_t> found;
  for (std::size_t at = 0; at + kInstructionBytes <= code.size(); at += kInstructionBytes) {
    const auto low = elf::field<std::uint64_t>(code, at);
    if ((low & kOpcodeMask) != kNanosleep || low >> 32 != mark_of_piece(number)) continue;
    if (found) refuse_to_join("the first piece leaves for piece {} at two places", number);
    found = at;
  }
  if (!found) refuse_to_join("the first piece does not leave for piece {}", number);
  return *found;
}

// ---- Files

bool is_debug(std::string_view name) {
  return name.starts_with(".debug") || name.starts_with(".nv_debug") || name.starts_with(".rela.debug") ||
         name.starts_with(".rela.nv_debug") || name.starts_with(".rel.debug");
}

/// Sections that are known, of a kernel whose code has nothing to relocate. Tables of branches lie at places that the
/// first piece alone keeps.
void require_known_sections(const CubinFile& file, std::string_view entry, bool is_first) {
  const std::set<std::string, std::less<>> known{"",
                                                 ".shstrtab",
                                                 ".strtab",
                                                 ".symtab",
                                                 ".note.nv.tkinfo",
                                                 ".note.nv.cuinfo",
                                                 ".nv.info",
                                                 ".nv.compat",
                                                 ".nv.callgraph",
                                                 ".nv.rel.action",
                                                 ".nv.shared.reserved.0",
                                                 ".nv.constant4",
                                                 ".rela.nv.constant4",
                                                 ".nv.global",
                                                 ".nv.global.init",
                                                 ".rela.nv.global.init",
                                                 fmt::format(".nv.info.{}", entry),
                                                 fmt::format(".text.{}", entry),
                                                 fmt::format(".nv.shared.{}", entry),
                                                 fmt::format(".nv.constant0.{}", entry)};
  const std::string relocations = fmt::format(".rela.text.{}", entry), table = fmt::format(".nv.constant2.{}", entry);
  for (const CubinSection& section : file.sections()) {
    const bool is_empty_list = section.name == relocations && section.data.empty();
    const bool is_table = is_first && (section.name == table || section.name == ".rela" + table);
    if (!known.contains(section.name) && !is_debug(section.name) && !is_empty_list && !is_table)
      refuse_to_join("there is a section {}", section.name);
  }
}

CubinSection& required(CubinFile& file, const std::string& name) {
  CubinSection* section = file.find(name);
  if (section == nullptr) refuse_to_join("there is no section {}", name);
  return *section;
}

Bytes joined(const std::vector<Bytes>& pieces, std::string_view entry) {
  std::vector<CubinFile> files;
  for (const Bytes& piece : pieces) {
    std::optional<CubinFile> file = CubinFile::read(piece);
    if (!file) refuse_to_join("a piece is no cubin");
    require_known_sections(*file, entry, files.empty());
    files.push_back(std::move(*file));
  }
  CubinFile& whole = files.front();
  const std::string text_name = fmt::format(".text.{}", entry), info_name = fmt::format(".nv.info.{}", entry);
  const std::string constants_name = fmt::format(".nv.constant0.{}", entry);
  CubinSection& text = required(whole, text_name);
  require_known_encoding(text.data);
  std::vector<Attribute> info = attributes_of(required(whole, info_name));
  std::vector<Attribute> sizes = attributes_of(required(whole, ".nv.info"));
  std::vector<Attribute> compat = attributes_of(required(whole, ".nv.compat"));
  const std::uint32_t symbol = symbol_of(whole, entry);

  for (std::size_t i = 1; i < files.size(); ++i) {
    CubinFile& file = files[i];
    if (file.flags() != whole.flags()) refuse_to_join("pieces are of different architectures");
    const CubinSection& code = required(file, text_name);
    require_known_encoding(code.data);
    const std::size_t mark = mark_of(text.data, i + 1);
    text.data.resize((text.data.size() + text.alignment - 1) / text.alignment * text.alignment);
    const std::size_t start = text.data.size();
    put_branch(text.data, mark, start, elf::field<std::uint64_t>(text.data, mark));
    text.data.insert(text.data.end(), code.data.begin(), code.data.end());
    add_attributes(info, attributes_of(required(file, info_name)), static_cast<std::uint32_t>(start));
    add_sizes(sizes, symbol, attributes_of(required(file, ".nv.info")), symbol_of(file, entry));
    add_compat(compat, attributes_of(required(file, ".nv.compat")));
    if (required(file, constants_name).data.size() != required(whole, constants_name).data.size())
      refuse_to_join("parameters are of different sizes");
    const std::string shared_name = fmt::format(".nv.shared.{}", entry);
    const CubinSection *shared = file.find(shared_name), *shared_of_whole = whole.find(shared_name);
    if ((shared == nullptr ? 0 : shared->size) != (shared_of_whole == nullptr ? 0 : shared_of_whole->size))
      refuse_to_join("shared memory is of different sizes");
  }
  required(whole, info_name).data = bytes_of(info);
  required(whole, ".nv.info").data = bytes_of(sizes);
  required(whole, ".nv.compat").data = bytes_of(compat);
  elf::put_field<std::uint64_t>(required(whole, ".symtab").data, symbol * elf::kSymbolBytes + elf::kSymbolSize,
                                text.data.size());
  for (const CubinSection& section : whole.sections())
    if (is_debug(section.name)) required(whole, section.name).data.clear();
  std::optional<Bytes> bytes = whole.write();
  if (!bytes) refuse_to_join("a segment is not a section's");
  return std::move(*bytes);
}

}  // namespace

Joined<std::vector<std::byte>> join_cubins(const std::vector<std::vector<std::byte>>& pieces, std::string_view entry) {
  return joined_or_refused<Joined<std::vector<std::byte>>>([&] { return joined(pieces, entry); });
}

}  // namespace tessera

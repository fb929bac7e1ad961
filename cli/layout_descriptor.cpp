// Shared-memory matrix descriptors: encoded from fields or decoded from bits,
// each field named, what they address drawn, and what is wrong said.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/layout_command.h"
#include "spec/limits.h"
#include "spec/smem_descriptor.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr auto kSmemEnd = static_cast<unsigned>(kMaxSmemBytes);

using layout::DescriptorKind;
using layout::Major;
using layout::SmemDescriptor;
using layout::SmemDescriptorRule;
using layout::SmemLayout;

const std::vector<std::string_view> kLayouts = {"none", "32B", "64B", "128B", "128B_atom_32B"};

std::string rule_text(DescriptorKind kind, const Verdict<SmemDescriptorRule>& verdict) {
  using Rule = SmemDescriptorRule;
  const auto multiple = [&](const char* name) {
    return fmt::format("{} = {}: must be a multiple of 16", name, verdict.found);
  };
  const auto range = [&](const char* name) {
    return fmt::format("{} = {}: must be from 0 to {}, what 14 bits of 16 bytes hold", name, verdict.found,
                       verdict.bound);
  };
  switch (verdict.rule) {
    case Rule::ok:
      return {};
    case Rule::start_alignment:
      return multiple("start");
    case Rule::start_range:
      return range("start");
    case Rule::leading_alignment:
      return multiple("leading_bytes");
    case Rule::leading_range:
      return range("leading_bytes");
    case Rule::stride_alignment:
      return multiple("stride_bytes");
    case Rule::stride_range:
      return range("stride_bytes");
    case Rule::base_offset:
      return fmt::format("base_offset = {}: must be from 0 to 7", verdict.found);
    case Rule::layout:
      return "128B_atom_32B exists for tcgen05 only: wgmma has none, 32B, 64B "
             "and 128B";
    case Rule::leading_mode:
      return kind == DescriptorKind::wgmma ? "leading_is_address exists for tcgen05 only (sm_103a)"
                                           : "leading_is_address needs swizzle 128B and base_offset 0";
  }
  return {};
}

/// What is drawn: rows of M or N with K (K-major), or k with M or N.
struct Picture {
  Major major = Major::k;
  int bits = 16, rows = 16, chunks = 2;
};

Picture picture_of(const LayoutArguments& arguments, Major major, SmemLayout swizzle) {
  Picture picture;
  picture.major = major;
  picture.bits = static_cast<int>(arguments.number("bits", swizzle == SmemLayout::b128_atom_32b ? 32 : 16, 4, 32));
  if (picture.bits != 4 && picture.bits != 8 && picture.bits != 16 && picture.bits != 32)
    throw Error(ErrorKind::usage, fmt::format("--bits = {}: must be one of 4, 8, 16, 32", picture.bits));
  // K of one instruction is 32 bytes.
  const int usual_rows = major == Major::k ? 16 : 256 / picture.bits;
  picture.rows = static_cast<int>(arguments.number("rows", usual_rows, 1, 256));
  if (major == Major::mn) picture.chunks = std::max(2 * layout::smem_layout_span(swizzle) / 16, 4);
  return picture;
}

/// k that lie together before a stride, MN-major.
int group_of(SmemLayout swizzle) { return swizzle == SmemLayout::b128_atom_32b ? 4 : 8; }

/// Fields that were not given are those of a dense picture.
SmemDescriptor fields_of(const LayoutArguments& arguments, SmemLayout swizzle, const Picture& picture) {
  constexpr std::int64_t kEnd = (1 << 18) - 1;
  const int span = layout::smem_layout_span(swizzle);
  const bool is_k = picture.major == Major::k;
  int leading = 16, stride = 8 * span;
  if (swizzle == SmemLayout::none) {
    leading = is_k ? 128 : 128 * picture.chunks;
    stride = is_k ? 128 * picture.chunks : 128;
  } else if (!is_k) {
    const int group = group_of(swizzle);
    leading = (picture.rows + group - 1) / group * group * span;
    stride = group * span;
  }
  SmemDescriptor d;
  d.layout = swizzle;
  d.start = static_cast<unsigned>(arguments.number("start", 0, 0, kEnd));
  d.leading_bytes = static_cast<int>(arguments.number("leading-bytes", leading, 0, kEnd));
  d.stride_bytes = static_cast<int>(arguments.number("stride-bytes", stride, 0, kEnd));
  d.base_offset = static_cast<int>(arguments.number("base-offset", 0, 0, 7));
  d.leading_is_address = arguments.has("leading-is-address");
  return d;
}

void add_fields(LayoutPage& page, DescriptorKind kind, const SmemDescriptor& d, unsigned long long bits) {
  const auto field = [&](const char* range, const char* name, const std::string& value) {
    page.facts.emplace_back(fmt::format("[{}] {}", range, name), value);
  };
  const auto sixteen = [](auto bytes) { return fmt::format("{} x 16 = {} ({:#x}) bytes", bytes / 16, bytes, bytes); };
  page.facts.emplace_back("bits", fmt::format("{:#018x}", bits));
  field("13:0", "start", sixteen(d.start));
  field("29:16", "leading (LBO)", sixteen(d.leading_bytes));
  field("45:32", "stride (SBO)", sixteen(d.stride_bytes));
  if (kind == DescriptorKind::tcgen05) field("48:46", "version", fmt::format("{}", bits >> 46 & 7));
  field("51:49", "base offset", fmt::format("{}", d.base_offset));
  if (kind == DescriptorKind::tcgen05) field("52", "leading is an address", d.leading_is_address ? "yes" : "no");
  field(kind == DescriptorKind::wgmma ? "63:62" : "63:61", "swizzle",
        fmt::format("{} (code {})", kLayouts[static_cast<std::size_t>(d.layout)],
                    kind == DescriptorKind::wgmma ? bits >> 62 : bits >> 61));
}

void add_decoding_mistakes(LayoutPage& page, DescriptorKind kind, const layout::DecodedSmemDescriptor& decoded,
                           unsigned long long bits) {
  if (decoded.is_version_wrong)
    page.mistakes.push_back((bits >> 46 & 7) == 0 ? "bits 48:46 are 0 and must be 1: a descriptor made for wgmma has "
                                                    "them so"
                                                  : fmt::format("bits 48:46 are {} and must be 1", bits >> 46 & 7));
  if (decoded.is_layout_wrong)
    page.mistakes.push_back(fmt::format("bits 63:61 are {}: 0, 1, 2, 4 and 6 exist", bits >> 61));
  if (decoded.reserved == 0) return;
  const bool is_blackwell = kind == DescriptorKind::wgmma && decoded.reserved == 1ull << 46;
  page.mistakes.push_back(is_blackwell ? "bit 46 is set and must be 0: a descriptor made for tcgen05 has it "
                                         "so"
                                       : fmt::format("bits {:#x} are set and must be 0", decoded.reserved));
}

/// Elements that no instruction reads in this way.
void find_type_mistakes(LayoutPage& page, DescriptorKind kind, const SmemDescriptor& d, const Picture& picture) {
  const bool is_mn = picture.major == Major::mn;
  if (d.layout == SmemLayout::b128_atom_32b && (!is_mn || picture.bits != 32))
    page.mistakes.push_back(
        "128B_atom_32B is for MN-major 32-bit elements "
        "(tf32) alone: --major mn --bits 32");
  if (kind == DescriptorKind::wgmma && is_mn && picture.bits != 16)
    page.mistakes.push_back(
        fmt::format("wgmma reads elements of {} bits K-major only: MN-major is "
                    "for f16 and bf16",
                    picture.bits));
  if (kind == DescriptorKind::tcgen05 && is_mn && picture.bits == 4)
    page.mistakes.push_back("tcgen05.mma reads 4- and 6-bit elements K-major only");
  if (kind == DescriptorKind::tcgen05 && is_mn && picture.bits == 32 && d.layout != SmemLayout::b128_atom_32b)
    page.mistakes.push_back("tcgen05.mma reads MN-major tf32 with swizzle 128B_atom_32B only");
}

/// Which stride makes two chunks meet.
std::string overlap_text(const SmemDescriptor& d, const Picture& picture) {
  const int span = layout::smem_layout_span(d.layout), group = group_of(d.layout);
  if (d.layout == SmemLayout::none)
    return fmt::format(
        "without swizzle both strides count: leading_bytes = "
        "{}, stride_bytes = {}",
        d.leading_bytes, d.stride_bytes);
  if (picture.major == Major::k)
    return fmt::format("8 rows of a {}-byte span take {} bytes, stride_bytes = {}", span, 8 * span, d.stride_bytes);
  return fmt::format(
      "{} k of a {}-byte span take {} bytes, stride_bytes = {}; "
      "all {} k of a span, leading_bytes = {}",
      group, span, group * span, d.stride_bytes, picture.rows, d.leading_bytes);
}

/// What one instruction reads: rows of M or N by 32 bytes of K (K-major), or
/// two spans of M or N by the k of one.
void draw(LayoutPage& page, const SmemDescriptor& d, const Picture& picture) {
  const bool is_k = picture.major == Major::k;
  LayoutGrid grid = make_grid(is_k ? "K-major, one instruction: chunks of 16 bytes of each "
                                     "row's 32 bytes of K, with address and bank"
                                   : "MN-major: 16-byte chunks of M or N of each k, with "
                                     "address and bank",
                              is_k ? "m/n" : "k", numbers(picture.rows), is_k ? "k" : "m/n",
                              numbers(picture.chunks, 0, 128 / picture.bits));
  std::map<unsigned, std::string> taken;
  bool has_overlap = false, has_end = false;
  for (int r = 0; r < picture.rows; ++r)
    for (int c = 0; c < picture.chunks; ++c) {
      const unsigned address = layout::smem_operand_address(d, picture.major, r, c * 16);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(c));
      cell.text = fmt::format("{:#07x} b{}", address, address / 4 % 32);
      cell.link = fmt::format("{},{}", r, c);
      cell.group = static_cast<int>(address / 16 % 8);
      cell.values = {{is_k ? "row" : "k", r}, {"chunk", c}, {"address", address}, {"bank", address / 4 % 32}};
      const std::string name = fmt::format("{} {}, chunk {}", is_k ? "row" : "k", r, c);
      const auto [other, is_new] = taken.try_emplace(address, name);
      if (!is_new && !has_overlap)
        page.mistakes.push_back(fmt::format("{} and {} lie at the same address {:#x}: {}", name, other->second, address,
                                            overlap_text(d, picture)));
      has_overlap = has_overlap || !is_new;
      if (address >= kSmemEnd && !has_end)
        page.mistakes.push_back(
            fmt::format("{} lies at {:#x}: shared memory of a CTA ends at {:#x} (227 KiB)", name, address, kSmemEnd));
      has_end = has_end || address >= kSmemEnd;
    }
  LayoutGrid back =
      memory_grid(grid, "address",
                  is_k ? "128 bytes of shared memory: row (r) and chunk (c) that lie there"
                       : "128 bytes of shared memory: k and chunk (c) that lie there",
                  [&](const LayoutCell& cell) {
                    return fmt::format("{}{} c{}", is_k ? "r" : "k", cell.values[0].second, cell.values[1].second);
                  });
  page.grids.push_back(std::move(grid));
  page.grids.push_back(std::move(back));
}

void add_notes(LayoutPage& page, const SmemDescriptor& d, Major major) {
  const int repeat = layout::smem_layout_repeat(d.layout);
  if (d.layout != SmemLayout::none && major == Major::k)
    page.notes.push_back(
        "K-major with a swizzle: LBO has no effect; the next "
        "32 bytes of K are at start + 32");
  if (d.layout == SmemLayout::none)
    page.notes.push_back(major == Major::k ? "K-major without swizzle: LBO lies between 16-byte "
                                             "chunks of K, SBO between groups of 8 rows"
                                           : "MN-major without swizzle: LBO lies between groups "
                                             "of 8 k, SBO between 16-byte chunks");
  if (d.layout != SmemLayout::none && major == Major::mn)
    page.notes.push_back(
        "MN-major with a swizzle: LBO lies between spans of M "
        "or N, SBO between groups of 8 k");
  if (d.base_offset != 0)
    page.notes.push_back(d.layout == SmemLayout::none ? "base_offset has no effect without a swizzle"
                                                      : fmt::format("base_offset {}: the pattern begins at an address "
                                                                    "whose bits 9..7 are {}; it is "
                                                                    "0 wherever a tile begins at a multiple of {}",
                                                                    d.base_offset, d.base_offset, repeat));
  if (d.start % static_cast<unsigned>(repeat) != 0 && d.layout != SmemLayout::none)
    page.notes.push_back(
        fmt::format("start is {} past a multiple of {}: right for a step inside a tile "
                    "that a tensor copy wrote "
                    "(base_offset {}); base_offset "
                    "{} would make the pattern begin here",
                    d.start % static_cast<unsigned>(repeat), repeat, 0, d.start >> 7 & 7));
}

}  // namespace

LayoutPage layout_smem_descriptor(const LayoutArguments& arguments) {
  const auto kind = static_cast<DescriptorKind>(arguments.subject_word({"wgmma", "tcgen05"}));
  const auto major = static_cast<Major>(arguments.word("major", {"k", "mn"}, 0));
  LayoutPage page;
  page.title =
      fmt::format("shared-memory descriptor of {}, {}-major", arguments.subject, major == Major::k ? "K" : "MN");
  SmemDescriptor d;
  unsigned long long bits = 0;
  if (!arguments.argument.empty()) {
    for (const char* flag : {"start", "leading-bytes", "stride-bytes", "base-offset", "leading-is-address", "swizzle"})
      if (arguments.has(flag))
        throw Error(ErrorKind::usage,
                    fmt::format("--{}: the value {} says it; give fields or bits, not both", flag, arguments.argument));
    bits = parse_layout_bits(arguments.argument, 64);
    const layout::DecodedSmemDescriptor decoded = layout::decode_smem_descriptor(kind, bits);
    d = decoded.fields;
    add_decoding_mistakes(page, kind, decoded, bits);
  } else {
    const auto swizzle = static_cast<SmemLayout>(arguments.word("swizzle", kLayouts, 3));
    d = fields_of(arguments, swizzle, picture_of(arguments, major, swizzle));
    const auto verdict = why_invalid(kind, d);
    if (!verdict.ok()) throw Error(ErrorKind::usage, rule_text(kind, verdict));
    bits = layout::encode_smem_descriptor(kind, d);
  }
  if (const auto verdict = why_invalid(kind, d); !verdict.ok()) page.mistakes.push_back(rule_text(kind, verdict));
  add_fields(page, kind, d, bits);
  add_notes(page, d, major);
  const Picture picture = picture_of(arguments, major, d.layout);
  find_type_mistakes(page, kind, d, picture);
  draw(page, d, picture);
  if (kind == DescriptorKind::tcgen05) page.notes.push_back("tcgen05: from the manual; no Blackwell device was asked");
  return page;
}

}  // namespace tessera::cli

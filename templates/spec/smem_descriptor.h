// Shared-memory matrix descriptors with every field, of wgmma and tcgen05: the 64 bits and back, and the address of
// every element. What spec/matrix_descriptor.h builds for the kernels here is one case of it.
//
// PTX ISA, "Matrix descriptor" (wgmma) and "Shared memory descriptor" (tcgen05):
//
//   bits     field                 unit       wgmma            tcgen05
//   13..0    start address         16 bytes
//   29..16   leading (LBO)         16 bytes
//   45..32   stride (SBO)          16 bytes
//   48..46   version               -          0                1
//   51..49   base offset           128 bytes
//   52       leading is address    -          0                sm_103a only
//   63..61   layout                -          [63:62] 128B 1,  128B_atom_32B 1, 128B 2,
//                                             64B 2, 32B 3     64B 4, 32B 6
//
// The rest is zero. wgmma's is measured on an H200; tcgen05's follows the manual and public libraries.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::layout {

enum class DescriptorKind { wgmma, tcgen05 };
enum class Major { k, mn };
// How rows are permuted: the swizzles of tensor maps and, for tcgen05 with tf32, 128B in units of 32 bytes.
enum class SmemLayout { none, b32, b64, b128, b128_atom_32b };

TESSERA_HD constexpr SmemLayout smem_layout(Swizzle swizzle) {
  return swizzle == Swizzle::b128  ? SmemLayout::b128
         : swizzle == Swizzle::b64 ? SmemLayout::b64
         : swizzle == Swizzle::b32 ? SmemLayout::b32
                                   : SmemLayout::none;
}
TESSERA_HD constexpr int smem_layout_span(SmemLayout layout) {
  return layout == SmemLayout::none ? 16 : layout == SmemLayout::b32 ? 32 : layout == SmemLayout::b64 ? 64 : 128;
}
// Rows after which the pattern repeats, and so the bytes: 1 x 16, 8 x 32, 8 x 64, 8 x 128, 4 x 128.
TESSERA_HD constexpr int smem_layout_repeat(SmemLayout layout) {
  return layout == SmemLayout::none ? 16 : layout == SmemLayout::b128_atom_32b ? 512 : 8 * smem_layout_span(layout);
}

// `row` is (address >> 7): the base offset is taken from it.
TESSERA_HD constexpr unsigned smem_layout_xor(SmemLayout layout, unsigned row) {
  if (layout == SmemLayout::b128_atom_32b) return (row & 3) << 5;
  const unsigned chunks = static_cast<unsigned>(smem_layout_span(layout)) / 16;
  return (row & (chunks - 1)) << 4;
}

struct SmemDescriptor {
  unsigned start = 0;  // bytes
  int leading_bytes = 0;
  int stride_bytes = 0;
  int base_offset = 0;
  SmemLayout layout = SmemLayout::none;
  bool leading_is_address = false;
};

enum class SmemDescriptorRule {
  ok,
  start_alignment,    // start address: a multiple of 16
  start_range,        // below 2^18
  leading_alignment,  // a multiple of 16
  leading_range,      // below 2^18
  stride_alignment,
  stride_range,
  base_offset,  // 0 to 7
  layout,       // 128B in units of 32 bytes exists for tcgen05 only
  leading_mode  // an address as LBO exists for tcgen05 only, with 128B and base offset 0
};

TESSERA_HD constexpr Verdict<SmemDescriptorRule> why_invalid(DescriptorKind kind, const SmemDescriptor& d) {
  using Rule = SmemDescriptorRule;
  constexpr int kEnd = 1 << 18;
  if (d.start % 16 != 0) return {Rule::start_alignment, d.start, 16};
  if (d.start >= static_cast<unsigned>(kEnd)) return {Rule::start_range, d.start, kEnd - 16};
  if (d.leading_bytes % 16 != 0) return {Rule::leading_alignment, d.leading_bytes, 16};
  if (d.leading_bytes < 0 || d.leading_bytes >= kEnd) return {Rule::leading_range, d.leading_bytes, kEnd - 16};
  if (d.stride_bytes % 16 != 0) return {Rule::stride_alignment, d.stride_bytes, 16};
  if (d.stride_bytes < 0 || d.stride_bytes >= kEnd) return {Rule::stride_range, d.stride_bytes, kEnd - 16};
  if (d.base_offset < 0 || d.base_offset > 7) return {Rule::base_offset, d.base_offset, 7};
  if (d.layout == SmemLayout::b128_atom_32b && kind != DescriptorKind::tcgen05)
    return {Rule::layout, static_cast<int>(d.layout), static_cast<int>(SmemLayout::b128)};
  if (d.leading_is_address && (kind != DescriptorKind::tcgen05 || d.layout != SmemLayout::b128 || d.base_offset != 0))
    return {Rule::leading_mode, 1, 0};
  return {};
}

TESSERA_HD constexpr unsigned smem_layout_code(DescriptorKind kind, SmemLayout layout) {
  const unsigned code = layout == SmemLayout::none   ? 0u
                        : layout == SmemLayout::b128 ? 2u
                        : layout == SmemLayout::b64  ? 4u
                        : layout == SmemLayout::b32  ? 6u
                                                     : 1u;
  return kind == DescriptorKind::wgmma ? code & 6u : code;  // the two generations' codes are the same three bits
}

// Precondition: why_invalid says nothing.
TESSERA_HD constexpr unsigned long long encode_smem_descriptor(DescriptorKind kind, const SmemDescriptor& d) {
  const unsigned long long version = kind == DescriptorKind::tcgen05 ? 1 : 0;
  return static_cast<unsigned long long>(d.start / 16) | static_cast<unsigned long long>(d.leading_bytes / 16) << 16 |
         static_cast<unsigned long long>(d.stride_bytes / 16) << 32 | version << 46 |
         static_cast<unsigned long long>(d.base_offset) << 49 |
         static_cast<unsigned long long>(d.leading_is_address ? 1 : 0) << 52 |
         static_cast<unsigned long long>(smem_layout_code(kind, d.layout)) << 61;
}

// What the bits say, and which of them cannot be.
struct DecodedSmemDescriptor {
  SmemDescriptor fields;
  unsigned long long reserved = 0;  // bits that are set and must not be
  bool is_version_wrong = false;
  bool is_layout_wrong = false;
};
TESSERA_HD constexpr DecodedSmemDescriptor decode_smem_descriptor(DescriptorKind kind, unsigned long long bits) {
  const bool is_wgmma = kind == DescriptorKind::wgmma;
  DecodedSmemDescriptor out;
  out.fields.start = static_cast<unsigned>(bits & 0x3fff) * 16;
  out.fields.leading_bytes = static_cast<int>(bits >> 16 & 0x3fff) * 16;
  out.fields.stride_bytes = static_cast<int>(bits >> 32 & 0x3fff) * 16;
  out.fields.base_offset = static_cast<int>(bits >> 49 & 7);
  out.fields.leading_is_address = !is_wgmma && (bits >> 52 & 1) != 0;
  const unsigned long long zero =
      3ull << 14 | 3ull << 30 | 0xffull << 53 | (is_wgmma ? 7ull << 46 | 3ull << 52 | 1ull << 61 : 0);
  out.reserved = bits & zero;
  out.is_version_wrong = !is_wgmma && (bits >> 46 & 7) != 1;
  const unsigned code = static_cast<unsigned>(bits >> 61) & (is_wgmma ? 6u : 7u);
  out.fields.layout = code == 1   ? SmemLayout::b128_atom_32b
                      : code == 2 ? SmemLayout::b128
                      : code == 4 ? SmemLayout::b64
                      : code == 6 ? SmemLayout::b32
                                  : SmemLayout::none;
  out.is_layout_wrong = code == 3 || code == 5 || code == 7;
  return out;
}

// Where the byte `byte` of row `index` (K-major: bytes along K; MN-major: of k = index, bytes along M or N) is found.
TESSERA_HD constexpr unsigned smem_operand_address(const SmemDescriptor& d, Major major, int index, int byte) {
  const int span = smem_layout_span(d.layout);
  const int group = d.layout == SmemLayout::b128_atom_32b && major == Major::mn ? 4 : 8;
  int offset = 0;
  if (d.layout == SmemLayout::none) {
    const int rows = index / 8, chunk = byte / 16;
    offset = index % 8 * 16 + byte % 16 +
             (major == Major::k ? rows * d.stride_bytes + chunk * d.leading_bytes
                                : rows * d.leading_bytes + chunk * d.stride_bytes);
  } else {
    offset = index / group * d.stride_bytes + index % group * span +
             (major == Major::k ? byte : byte / span * d.leading_bytes + byte % span);
  }
  const unsigned address = d.start + static_cast<unsigned>(offset);
  return address ^ smem_layout_xor(d.layout, (address >> 7) - static_cast<unsigned>(d.base_offset));
}

}  // namespace tessera::layout

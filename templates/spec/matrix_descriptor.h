// Shared-memory matrix descriptors of wgmma for tiles that TMA fills as panels of one swizzle span:
// [columns / span][rows][span], the pattern starting at a multiple of swizzle_repeat_bytes().
//
// A descriptor names a start address and two strides, all in units of 16 bytes (PTX ISA, "Asynchronous warpgroup level
// matrix multiply", matrix descriptor). What the strides mean depends on which dimension is contiguous:
//
//   contiguous  swizzle   leading (LBO)                   stride (SBO)
//   K           none      between 16-byte chunks of K     between groups of 8 rows
//   K           32..128B  unused                          between groups of 8 rows
//   M or N      none      between groups of 8 k           between 16-byte chunks of M or N
//   M or N      32..128B  between spans of M or N         between groups of 8 k
//
// The hardware adds the strides, then applies the swizzle to the absolute address, so an instruction may start inside a
// span: stepping along K within a span is an addition to the start address.
#pragma once

#include "tessera/spec/types.h"

namespace tessera {

TESSERA_HD constexpr unsigned long long matrix_descriptor(unsigned start, int leading_bytes, int stride_bytes,
                                                          Swizzle swizzle) {
  unsigned long long mode = 0;
  if (swizzle == Swizzle::b128) mode = 1;
  if (swizzle == Swizzle::b64) mode = 2;
  if (swizzle == Swizzle::b32) mode = 3;
  return static_cast<unsigned long long>((start & 0x3ffff) >> 4) |
         static_cast<unsigned long long>(leading_bytes >> 4) << 16 |
         static_cast<unsigned long long>(stride_bytes >> 4) << 32 | mode << 62;
}

// The descriptor of what lies `bytes` further. The start address sits in the low word and never carries out of its
// field: spelt as a 32-bit addition, the high word stays a constant for the compiler.
TESSERA_HD constexpr unsigned long long advance_descriptor(unsigned long long descriptor, int bytes) {
  const unsigned low = static_cast<unsigned>(descriptor) + static_cast<unsigned>(bytes >> 4);
  return (descriptor >> 32 << 32) | low;
}

// Rows are M or N, columns are K: Q and K of S = Q K^T.
TESSERA_HD constexpr unsigned long long k_major_descriptor(unsigned start, int rows, Swizzle swizzle) {
  const int span = swizzle_span_bytes(swizzle);
  return matrix_descriptor(start, rows * span, 8 * span, swizzle);
}

// Bytes from the tile's start to that of step `step` of 32 bytes (16 elements of 16 bits) along K.
TESSERA_HD constexpr int k_major_step_bytes(int step, int rows, Swizzle swizzle) {
  const int span = swizzle_span_bytes(swizzle);
  return step * 32 / span * rows * span + step * 32 % span;
}

// Rows are K, columns are N: V of O = P V.
TESSERA_HD constexpr unsigned long long mn_major_descriptor(unsigned start, int rows, Swizzle swizzle) {
  const int span = swizzle_span_bytes(swizzle);
  const int panel_bytes = rows * span;
  return swizzle == Swizzle::none ? matrix_descriptor(start, 8 * span, panel_bytes, swizzle)
                                  : matrix_descriptor(start, panel_bytes, 8 * span, swizzle);
}

// Bytes from the tile's start to that of step `step` of 16 rows.
TESSERA_HD constexpr int mn_major_step_bytes(int step, Swizzle swizzle) {
  return step * 16 * swizzle_span_bytes(swizzle);
}

}  // namespace tessera

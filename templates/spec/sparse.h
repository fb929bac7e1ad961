// Sparse A of mma.sp and wgmma.sp: half of its elements are zero and not stored. A group of `sparse_group` neighbours
// along K keeps two of its four places (one of two for 32-bit elements; for 4-bit elements a place is a pair), and four
// bits of metadata say which: two indices of two bits, the first place's in the low ones, rising. 32-bit elements take
// 0b0100 for the first of two and 0b1110 for the second.
//
// The kept elements are a fragment like a dense A of K / 2 columns. Metadata is one 32-bit register of each thread, and
// where K needs fewer than all of them, the sparsity selector says whose. Which thread and which bits: measured on an
// H200 for all shapes that sm_90 has. Shapes that only sm_120 has are taken to be alike; that was never run.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::layout {

struct SparseShape {
  int bits = 16;  // of an element in its register
  int k = 0;      // of the product: A stores k / 2
  bool is_wgmma = false;
};

TESSERA_HD constexpr int sparse_group(int bits) { return bits == 32 ? 2 : bits == 4 ? 8 : 4; }
TESSERA_HD constexpr int sparse_groups(const SparseShape& s) { return s.k / sparse_group(s.bits); }
// Selectors that name different threads.
TESSERA_HD constexpr int sparse_selectors(const SparseShape& s) { return 16 / sparse_groups(s); }

// Where the four bits of a row's group lie.
struct MetadataSlot {
  int lane = 0;
  int first_bit = 0;
};

struct MetadataPlace {
  int row = 0;
  int group = 0;
};

// The four bits of a row's group. Rows g and g + 8 share a thread where its register holds four groups of each; else
// they have a thread each.
TESSERA_HD constexpr MetadataSlot sparse_metadata_slot(const SparseShape& s, int selector, const MetadataPlace& at) {
  const int groups = sparse_groups(s), row = at.row % 16, half = row / 8;
  const int first_lane = at.row / 16 * 32 + row % 8 * 4;
  if (groups == 4) return {first_lane + selector, 16 * half + 4 * at.group};
  if (groups == 8 && s.bits >= 16) return {first_lane + 2 * selector + at.group / 4, 16 * half + 4 * (at.group % 4)};
  if (groups == 8) return {first_lane + 2 * selector + half, 4 * at.group};
  return {first_lane + 2 * (at.group / 8) + half, 4 * (at.group % 8)};
}

}  // namespace tessera::layout

// What every family's kernels are described by, for planner and device code alike: regions of shared memory, rows of
// barriers, warps with one job, TMA boxes. How warps wait at a row of barriers: templates/common/ring.cuh.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::common {

// One named piece of dynamic shared memory.
struct SmemRegion {
  const char* name = nullptr;
  int offset = 0;
  int bytes = 0;
};
TESSERA_HD constexpr int end_of(const SmemRegion& region) { return region.offset + region.bytes; }

// mbarriers side by side, 8 bytes each: `row[i]` is the address of one, or its offset where `smem` is 0. The parts of
// the sum stay apart until a thread needs it: of finished addresses the compiler keeps each in a register.
struct BarrierRow {
  unsigned smem = 0;  // address of the CTA's shared memory
  int offset = 0;     // of a row's first barrier in it: of this one's, or
  int index = 0;      // of one that has this one so many barriers behind it

  TESSERA_HD constexpr unsigned operator[](int i) const {
    return smem + static_cast<unsigned>(offset) + static_cast<unsigned>(8 * (index + i));
  }
};

// Of a row that is a constant, with the CTA's shared memory at `smem`: a barrier's address, and the row from its i-th
// barrier on. `kFirst` is a number before any optimisation. Read from the row later it gives the same instructions in
// other registers, and rows that are laid out anew in every role take twice the time to compile.
template <BarrierRow kRow>
TESSERA_HD constexpr unsigned barrier_at(unsigned smem, int i = 0) {
  constexpr unsigned kFirst = kRow[0];
  return smem + kFirst + static_cast<unsigned>(8 * i);
}
template <BarrierRow kRow>
TESSERA_HD constexpr BarrierRow row_at(unsigned smem, int i = 0) {
  return {barrier_at<kRow>(smem, i), 0, 0};
}

// Takes rows of barriers one behind the other.
struct BarrierCursor {
  BarrierRow next;

  TESSERA_HD constexpr BarrierRow take(int count) {
    const BarrierRow row = next;
    next.index += count;
    return row;
  }
};

// Warps with one job.
struct Role {
  const char* name = nullptr;
  int first_warp = 0;
  int warps = 0;
  int registers = 0;  // for each thread; 0: as launched
};

// A TMA box, innermost first.
template <unsigned kRank>
struct TmaBox {
  int extents[kRank] = {};
};

}  // namespace tessera::common

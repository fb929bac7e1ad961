// The rows of a group, as the device's memory has them.
#pragma once

#include "tessera/spec/operand_type.h"

namespace tessera::gemm {

struct GroupRows {
  int first;  // in A and D
  int count;
};

// Of `m` rows, those of group `group`. Groups hold what the caller wrote: a length below 0 counts as none, one past the
// end as what is there.
template <Grouping kGrouping>
__device__ __forceinline__ GroupRows group_rows(const int* groups, int group, int m) {
  if constexpr (kGrouping == Grouping::contiguous) {
    const int first = min(max(groups[group], 0), m);
    return {first, min(max(groups[group + 1] - first, 0), m - first)};
  } else {
    return {0, min(max(groups[group], 0), m)};
  }
}

}  // namespace tessera::gemm

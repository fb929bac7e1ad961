// Parts of a walk along K, for CTAs that share it.
#pragma once

namespace tessera::common {

// Where part i of so many steps begins: the first ones have a step more where they do not divide.
template <int kParts>
__device__ __forceinline__ int begin_of_part(int steps, int i) {
  if constexpr (kParts == 1) return i * steps;
  return steps / kParts * i + min(steps % kParts, i);
}

}  // namespace tessera::common

// Four neighbouring threads exchange words: a fragment's rows then leave in 16 bytes a thread.
#pragma once

namespace tessera::common {

// Thread q of a quad has word i of each group q afterwards, and had word q of each group i. By whole warps.
__device__ __forceinline__ void transpose_quad(unsigned (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool is_upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      unsigned &low = words[i], &high = words[i + distance];
      const unsigned received = __shfl_xor_sync(0xffffffff, is_upper ? low : high, distance);
      if (is_upper) {
        low = received;
      } else {
        high = received;
      }
    }
  }
}

}  // namespace tessera::common

// Fragments of one operand from a ring slot: ldmatrix, four matrices of 8 x 8 at a time, 16 rows by 16 along K.
//
// A lane names one row of 16 bytes of a matrix. K-major rows are those of the operand, and its 16-byte chunks lie along
// K; MN-major rows lie along K, chunks along the operand's, and matrices come transposed. Which matrices are first says
// in which registers they come: A's four as the instruction takes them, of B pairs along K, each of eight columns. (Any
// other order costs a move for every register.)
// Either way the eight rows of a matrix are eight rows of a swizzle pattern, in the same chunk: they lie in different
// banks, and all of a lane's addresses differ from its first one in a sum and in bits 5 and 6, which are
// exclusive-ored:
//   K-major    block i, step s of K: (first ^ 32 s) + 2,048 i
//   MN-major   block i, step s of K: (first ^ 32 (i % 4)) + panel_bytes (i / 4) + 2,048 s
#pragma once

#include "ptx/matrix.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

inline constexpr int kBlockBytes = kBlock * kStepBytes;

template <Config C, bool kIsA>
struct Operand {
  static constexpr bool kIsMnMajor = (kIsA ? a_layout(C) : b_layout(C)) == Layout::mn_major;
  static constexpr bool kIsPadded = is_padded(C, kIsA ? a_type(C) : b_type(C));
  static constexpr int kRows = kIsA ? warp_m(C) : warp_n(C);
  static constexpr bool kIsHalf = kRows < kBlock;  // B of eight columns: two of the four matrices
  static constexpr int kBlocks = kIsHalf ? 1 : kRows / kBlock;
  // Blocks of one product, behind which those of B2 come.
  static constexpr int kOfProduct = kIsA ? kBlocks : kBlocks / products(C);
  static constexpr int kBlocksOfPanel = panel_rows(C) / kBlock;
  static constexpr int kSlotBytes = kIsA ? a_slot_bytes(C) : b_slot_bytes(C);

  // Of each block: A rows 0 to 7, 8 to 15, and both again 8 further along K; B columns 0 to 7, the same 8 further along
  // K, columns 8 to 15, and these.
  using Fragments = unsigned[kBlocks][4];

  const unsigned first;  // of this lane in the first slot: of the warp's first block, at the slot's first K

  // `warp`: along the operand's rows.
  __device__ __forceinline__ Operand(unsigned region, int warp) : first(first_address(region, warp * kOfProduct)) {}

  static __device__ __forceinline__ unsigned first_address(unsigned region, int block) {
    const unsigned lane = threadIdx.x % 32;
    // Whether the second matrix is the second chunk of the same rows, or has the rows behind.
    constexpr bool kHasChunkSecond = kIsA == kIsMnMajor;
    const unsigned row = kHasChunkSecond ? lane / 16 * 8 + lane % 8 : lane % 16;
    const unsigned chunk = kHasChunkSecond ? lane / 8 % 2 : lane / 16;
    const unsigned of_lane = row * kStepBytes + (chunk ^ lane % 8) * 16;
    if constexpr (kIsMnMajor) {
      return (region + block / kBlocksOfPanel * panel_bytes(C) + of_lane) ^ (block % kBlocksOfPanel * 32);
    } else {
      return region + block * kBlockBytes + of_lane;
    }
  }

  __device__ __forceinline__ void load(Fragments& fragments, int slot, int step) const {
    const unsigned at = first + slot * kSlotBytes;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int i = j % kOfProduct;
      const unsigned of_product = kIsA ? 0 : j / kOfProduct * b_bytes(C);
      if constexpr (kIsMnMajor) {
        const unsigned address =
            (at ^ (i % kBlocksOfPanel * 32)) + of_product + i / kBlocksOfPanel * panel_bytes(C) + step * kBlockBytes;
        ptx::ldmatrix_x4_trans(address, fragments[j]);
      } else if constexpr (kIsPadded) {
        const unsigned address = (at ^ (step * 32)) + of_product + i * kBlockBytes;
        if constexpr (kIsHalf) {
          ptx::ldmatrix_x2_b4(address, fragments[j][0], fragments[j][1]);
        } else {
          ptx::ldmatrix_x4_b4(address, fragments[j]);
        }
        // The instruction takes e2m1 from bits 2 to 5 of a byte.
#pragma unroll
        for (int v = 0; v < (kIsHalf ? 2 : 4); ++v) fragments[j][v] <<= 2;
      } else if constexpr (kIsHalf) {
        ptx::ldmatrix_x2(at ^ (step * 32), fragments[j][0], fragments[j][1]);
      } else {
        ptx::ldmatrix_x4((at ^ (step * 32)) + of_product + i * kBlockBytes, fragments[j]);
      }
    }
  }
};

}  // namespace tessera::gemm_mma

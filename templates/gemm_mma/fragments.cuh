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
// and with panels of 64 or 32 bytes fewer blocks each, and as many bytes fewer a step.
//
// MN-major bytes come by two matrices of 16 x 16, 32 rows along K of one chunk of 16 rows of the operand:
//   MN-major   block i, step s of K: (first ^ 16 (i % 8)) + panel_bytes (i / 8) + 4,096 s
// A's registers are those of the instruction. B's second and third are the other way round, and change places: no
// choice of addresses avoids that, as both halves of a matrix's row come in neighbouring registers.
#pragma once

#include "ptx/matrix.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

inline constexpr int kBlockBytes = kBlock * kStepBytes;

template <Config C, bool kIsA>
struct Operand {
  static constexpr bool kIsMnMajor = (kIsA ? a_layout(C) : b_layout(C)) == Layout::mn_major;
  static constexpr bool kIsPadded = is_padded(C, kIsA ? a_type(C) : b_type(C));
  static constexpr bool kIsOfSixBits = is_mxfp6(kIsA ? a_type(C) : b_type(C));
  static constexpr int kRows = kIsA ? warp_m(C) : warp_n(C);
  static constexpr bool kIsHalf = kRows < kBlock;  // B of eight columns: two of the four matrices
  static constexpr int kBlocks = kIsHalf ? 1 : kRows / kBlock;
  // Blocks of one product, behind which those of B2 come.
  static constexpr int kOfProduct = kIsA ? kBlocks : kBlocks / products(C);
  // Of an MN-major operand: bytes and blocks of a panel's rows, bytes of a block's, and rows along K of a step.
  static constexpr int kTile = kIsA ? C.tile_m : C.tile_n;
  static constexpr int kPanel = panel_bytes(C, kTile), kSpan = panel_span(C, kTile);
  static constexpr int kBlocksOfPanel = panel_rows(C, kTile) < kBlock ? 1 : panel_rows(C, kTile) / kBlock;
  static constexpr int kBlockSpan = kBlock * element_bits(C) / 8, kStepRows = tile_k(C) / kChunks;
  static constexpr bool kIsOfBytes = kIsMnMajor && element_bits(C) == 8;
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
    if constexpr (kIsMnMajor) {
      const unsigned of_step = kIsOfBytes ? lane : row, swizzled = of_step * kSpan / kStepBytes % (kSpan / 16);
      const unsigned of_lane = of_step * kSpan + ((kIsOfBytes ? 0 : chunk) ^ swizzled) * 16;
      return (region + block / kBlocksOfPanel * kPanel + of_lane) ^ (block % kBlocksOfPanel * kBlockSpan);
    } else {
      return region + block * kBlockBytes + row * kStepBytes + (chunk ^ lane % 8) * 16;
    }
  }

  __device__ __forceinline__ void load(Fragments& fragments, int slot, int step) const {
    const unsigned at = first + slot * kSlotBytes;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int i = j % kOfProduct;
      const unsigned of_product = kIsA ? 0 : j / kOfProduct * b_bytes(C);
      if constexpr (kIsMnMajor) {
        const unsigned address = (at ^ (i % kBlocksOfPanel * kBlockSpan)) + of_product + i / kBlocksOfPanel * kPanel +
                                 step * (kStepRows * kSpan);
        if constexpr (kIsOfBytes) {
          ptx::ldmatrix_x2_trans_b8(address, fragments[j]);
          if constexpr (!kIsA) {
            const unsigned second = fragments[j][1];
            fragments[j][1] = fragments[j][2];
            fragments[j][2] = second;
          }
        } else {
          ptx::ldmatrix_x4_trans(address, fragments[j]);
        }
      } else if constexpr (kIsPadded) {
        const unsigned address = (at ^ (step * 32)) + of_product + i * kBlockBytes;
        if constexpr (kIsOfSixBits && kIsHalf) {
          ptx::ldmatrix_x2_b6(address, fragments[j][0], fragments[j][1]);
        } else if constexpr (kIsOfSixBits) {
          ptx::ldmatrix_x4_b6(address, fragments[j]);
        } else if constexpr (kIsHalf) {
          ptx::ldmatrix_x2_b4(address, fragments[j][0], fragments[j][1]);
        } else {
          ptx::ldmatrix_x4_b4(address, fragments[j]);
        }
        // The instruction takes six bits from the lowest ones of a byte, e2m1 from bits 2 to 5.
        if constexpr (kIsOfSixBits) continue;
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

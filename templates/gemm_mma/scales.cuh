// Scales of one operand from a ring slot to the registers that the instruction reads.
//
// A tile of 128 rows by 4 blocks has a cell of 4 bytes for each row, whose 4 blocks they are: a register of a thread.
// The instruction takes A's rows from two threads of each quad and B's columns from one, and an id says which; so a
// quad's threads hold the cells of two blocks of A, or of four groups of eight columns of B, in one register.
//
// Scales behind K may be anything, NaN codes too, and its values are zeros: such bytes are cleared.
#pragma once

#include "ptx/shared_words.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

template <Config C, bool kIsA>
struct Scales {
  static constexpr int kRows = kIsA ? warp_m(C) : warp_n(C);
  static constexpr int kTile = kIsA ? C.tile_m : C.tile_n;
  static constexpr int kCells = (kRows + 31) / 32;  // of a thread: 32 rows have a register each
  static constexpr int kSlotBytes = kIsA ? sfa_slot_bytes(C) : sfb_slot_bytes(C);
  static constexpr int kOfProduct = kIsA ? kRows : warp_rows_of_b(C);

  const unsigned region;
  const int warp;

  // Of this thread's cell i, among the warp's rows.
  static __device__ __forceinline__ int row_of_cell(int i) {
    const int group = static_cast<int>(threadIdx.x) % 32 / 4, thread = static_cast<int>(threadIdx.x) % 4;
    return (kIsA ? thread / 2 * 16 + thread % 2 * 8 + group : thread * 8 + group) + 32 * i;
  }

  // `within`: where the tile begins in its tile of scales. `left`: blocks of the slot before the end of K.
  __device__ __forceinline__ void load(unsigned (&cells)[kCells], int slot, int chunk, int within, int left) const {
    const int of_tile = left - scale_tile(C, chunk) * kTileBlocks;
    const unsigned mask = of_tile >= kTileBlocks ? 0xffffffffu : of_tile <= 0 ? 0u : (1u << 8 * of_tile) - 1;
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      // A warp of few rows has fewer than its threads could take: the others' cells are not looked at.
      // Cells that threads copy end with the tile's last row.
      constexpr bool kIsCopied = kIsA ? copies_sfa(C) : copies_sfb(C);
      const int of_warp = kIsCopied ? row_of_cell(i) % kRows : row_of_cell(i),
                product = kRows == kOfProduct ? 0 : of_warp / kOfProduct;
      const int row = within + warp * kOfProduct + of_warp - product * kOfProduct;
      const unsigned tile = region + slot * kSlotBytes + product * scale_slot_bytes(C, kTile) +
                            (row / kTileRows % row_tiles(kTile) * scale_tiles(C) + scale_tile(C, chunk)) * kTileBytes;
      cells[i] = ptx::ld_shared_u32(tile + scale_offset_in_tile(row % kTileRows, 0)) & mask;
    }
  }
};

}  // namespace tessera::gemm_mma

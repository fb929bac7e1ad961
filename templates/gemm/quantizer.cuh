// A row's sums to values and scales of a block-scaled format: what quantize makes of the same numbers, to the bit.
//
// A thread has whole blocks of its row of D, so a block's largest magnitude is found in registers, and neither D nor a
// second pass exists. Blocks are stored as they are; scales go into tiles, where the thread of a row's last block also
// clears the bytes behind it, and threads of rows past the matrix's or group's end write zeros, so that no padding is
// left as it was. Tiles of scales of D stand where those of A do. Of a matrix's last rows, where the CTA's are fewer
// than those of a tile of scales, its threads clear the others' scales too.
#pragma once

#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
#include "ptx/global.cuh"
#include "quantize/kernel.cuh"
#include "spec/quantize.h"
#include "tessera/spec/operand_type.h"

namespace tessera::gemm {

// kRows: of a CTA's tile. kColumns: of D that a thread hands over at a time.
template <OutputFormat kDFormat, int kRows, int kColumns>
struct Quantizer {
  static constexpr BlockFormat kFormat = block_format(kDFormat);
  static constexpr int kBlock = block_elements(kFormat);
  static constexpr quantize::Config kQuantize{
      .dtype = DType::f32,
      .format = kFormat,
      .scale_form = ScaleForm::tile,
      .scale_rounding = ScaleRounding::up,
      .global_scale = kFormat == BlockFormat::nvfp4 ? GlobalScale::given : GlobalScale::none,
      .conversion = Conversion::hardware};

  const ProductParams& p;
  const int blocks;  // of a row
  quantize::Unit unit;

  __device__ __forceinline__ Quantizer(const ProductParams& params, int columns_d)
      : p(params),
        blocks(columns_d / kBlock),
        unit(quantize::unit_of_scale(params.scale_d == nullptr ? 1.0f : *params.scale_d)) {}

  // 16 or 32 numbers to a scale's code and values at `element`.
  __device__ __forceinline__ unsigned store_block(const float* v, long long element, bool is_live) const {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) amax = fmaxf(amax, fabsf(v[i]));
    unsigned code = 0;
#pragma unroll
    for (int half = 0; half < kBlock; half += 16) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = v[half + i];
      bool is_zero = false;
      if constexpr (kFormat == BlockFormat::nvfp4) {
        is_zero = !quantize::scale_nvfp4<kQuantize>(x, amax, unit, code);
      } else {
        quantize::scale_mx<kQuantize>(x, amax, code);
      }
      if (is_live) quantize::store_values<kQuantize>(p.d_pointer, element + half, x, is_zero);
    }
    return code;
  }

  // `row`: from the first tile of scales of this CTA's rows on.
  __device__ __forceinline__ void store_scale(unsigned code, const WalkedTile& tile, int row, int block) const {
    const long long k_tiles = (blocks + kTileBlocks - 1) / kTileBlocks;
    char* const scale = static_cast<char*>(p.sfd) +
                        ((tile.a_scales + row / kTileRows) * k_tiles + block / kTileBlocks) * kTileBytes +
                        scale_offset_in_tile(row % kTileRows, block % kTileBlocks);
    ptx::st_global_u8(scale, code);
    if (block + 1 == blocks) {
      const int padding = (kTileBlocks - blocks % kTileBlocks) % kTileBlocks;
      for (int j = 1; j <= padding; ++j) ptx::st_global_u8(scale + j, 0);
    }
  }

  // Some columns of row `row` of the tile, which may lie past its rows' end or past n.
  __device__ __forceinline__ void store(const float (&v)[kColumns], const WalkedTile& tile, int row, int column) const {
    if (tile.a_row >= tile.row_end) return;
    const bool is_live = tile.a_row + row < tile.row_end;
    const int in_scales = tile.a_in_scales + row;
    const int scale_rows = (tile.a_in_scales + tile.row_end - tile.a_row + kTileRows - 1) / kTileRows * kTileRows;
    const long long first = tile.a_matrix * p.d_stride_l + static_cast<long long>(tile.a_row + row) * p.ldd + column;
#pragma unroll
    for (int i = 0; i < kColumns; i += kBlock) {
      const int block = column / kBlock + i / kBlock;
      if (block >= blocks) continue;
      const unsigned code = store_block(v + i, first + i, is_live);
      if (in_scales < scale_rows) store_scale(is_live ? code : 0, tile, in_scales, block);
      if constexpr (kRows < kTileRows) {
        if (tile.a_row + kRows >= tile.row_end)
          for (int other = in_scales + kRows; other < scale_rows; other += kRows) store_scale(0, tile, other, block);
      }
    }
  }
};

}  // namespace tessera::gemm

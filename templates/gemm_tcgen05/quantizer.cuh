// A row's sums to values and scales of a block-scaled format: what quantize makes of the same numbers, to the bit.
//
// A thread has whole blocks of its row of D, so a block's largest magnitude is found in registers, and neither D nor a
// second pass exists. Blocks are stored as they are; scales go into tiles, where the thread of a row's last block also
// clears the bytes behind it, and threads of rows past the matrix's or group's end write zeros, so that no padding is
// left as it was. Tiles of scales of D stand where those of A do: a CTA's rows are one of them.
#pragma once

#include "gemm_tcgen05/params.cuh"
#include "gemm_tcgen05/schedule.cuh"
#include "ptx/global.cuh"
#include "quantize/kernel.cuh"
#include "spec/gemm_tcgen05.h"
#include "spec/quantize.h"

namespace tessera::gemm_tcgen05 {

template <Config C>
struct Quantizer {
  static constexpr BlockFormat kFormat = block_format(C.facts.d_format);
  static constexpr int kBlock = block_elements(kFormat);
  static constexpr int kPanel = panel_columns(C);
  static constexpr quantize::Config kQuantize{
      .dtype = DType::f32,
      .format = kFormat,
      .scale_form = ScaleForm::tile,
      .scale_rounding = ScaleRounding::up,
      .global_scale = kFormat == BlockFormat::nvfp4 ? GlobalScale::given : GlobalScale::none,
      .conversion = Conversion::hardware};

  const Params& p;
  const int blocks;  // of a row
  quantize::Unit unit;

  __device__ __forceinline__ explicit Quantizer(const Params& params)
      : p(params),
        blocks(columns_of_d(C, params.n) / kBlock),
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

  // A panel of row `row` of the tile, which may lie past its rows' end or past n.
  __device__ __forceinline__ void store(const float (&v)[kPanel], const Tile& tile, int row, int column) const {
    if (tile.a_row >= tile.row_end) return;
    const bool is_live = tile.a_row + row < tile.row_end;
    const long long first = tile.a_matrix * p.d_stride_l + static_cast<long long>(tile.a_row + row) * p.ldd + column;
#pragma unroll
    for (int i = 0; i < kPanel; i += kBlock) {
      const int block = column / kBlock + i / kBlock;
      if (block >= blocks) continue;
      const unsigned code = store_block(v + i, first + i, is_live);
      const long long k_tiles = (blocks + kTileBlocks - 1) / kTileBlocks;
      char* const scale = static_cast<char*>(p.sfd) + (tile.a_scales * k_tiles + block / kTileBlocks) * kTileBytes +
                          scale_offset_in_tile(row, block % kTileBlocks);
      ptx::st_global_u8(scale, is_live ? code : 0);
      if (block + 1 == blocks) {
        const int padding = (kTileBlocks - blocks % kTileBlocks) % kTileBlocks;
        for (int j = 1; j <= padding; ++j) ptx::st_global_u8(scale + j, 0);
      }
    }
  }
};

// A D of plain elements has none.
struct NoQuantizer {
  __device__ __forceinline__ explicit NoQuantizer(const Params&) {}
};
template <Config C, bool kIsQuantized = is_quantized(C)>
struct QuantizerOf {
  using type = Quantizer<C>;
};
template <Config C>
struct QuantizerOf<C, false> {
  using type = NoQuantizer;
};

}  // namespace tessera::gemm_tcgen05

// The body of convert_scales: one word of a tile a thread, the rows of a tile's words fastest. Plain scales are moved
// byte by byte: their rows start anywhere.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/global.cuh"
#include "spec/convert_scales.h"

namespace tessera::convert_scales {

template <Config C>
__device__ __forceinline__ void kernel(const void* from, void* to, int rows, int blocks) {
  common::require_legal<why_invalid(C)>();
  const int word = static_cast<int>(threadIdx.x) % kTileRows;
  const int k_tile = static_cast<int>(blockIdx.x) * kTilesOfCta + static_cast<int>(threadIdx.x) / kTileRows;
  const int k_tiles = (blocks + kTileBlocks - 1) / kTileBlocks;
  if (k_tile >= k_tiles) return;
  // Word w of a tile is row w / 4 of the rows that lie 32 apart.
  const int row = static_cast<int>(blockIdx.y) * kTileRows + word % 4 * 32 + word / 4;
  const int first = k_tile * kTileBlocks;
  const int batch = static_cast<int>(blockIdx.z);
  const long long plain = (static_cast<long long>(batch) * rows + row) * blocks + first;
  const long long tile = scale_offset(ScaleForm::tile, rows, blocks, batch, row, first);
  if constexpr (C.to == ScaleForm::tile) {
    unsigned codes = 0;
#pragma unroll
    for (int i = 0; i < kTileBlocks; ++i)
      if (row < rows && first + i < blocks)
        codes |= ptx::ld_global_u8(static_cast<const char*>(from) + plain + i) << (8 * i);
    *reinterpret_cast<unsigned*>(static_cast<char*>(to) + tile) = codes;
  } else {
    if (row >= rows) return;
    const unsigned codes = *reinterpret_cast<const unsigned*>(static_cast<const char*>(from) + tile);
#pragma unroll
    for (int i = 0; i < kTileBlocks; ++i)
      if (first + i < blocks) ptx::st_global_u8(static_cast<char*>(to) + plain + i, (codes >> (8 * i)) & 0xffu);
  }
}

}  // namespace tessera::convert_scales

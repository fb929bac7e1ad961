// Which 16 elements a thread of quantize and dequantize has, and where their scale lies.
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera {

// Rows of a tile that one warp visits at a time lie 32 apart in groups; a tile of 128 rows takes so many visits.
TESSERA_HD constexpr int row_units(BlockFormat format) { return format == BlockFormat::nvfp4 ? 16 : 32; }

struct BlockPlace {
  bool is_live = false;    // the elements exist
  bool has_scale = false;  // the scale's byte exists, be it padding; of two threads of a block the first one has it
  long long element = 0;   // of the first element
  long long scale = 0;     // byte of the scale
};

// Plain scales: group 0 to l * rows * k / 16 - 1.
TESSERA_HD constexpr BlockPlace plain_place(BlockFormat format, long long group, long long groups) {
  const bool is_split = block_elements(format) == 32;
  BlockPlace place;
  place.is_live = group < groups;
  place.has_scale = place.is_live && (!is_split || group % 2 == 0);
  place.element = group * 16;
  place.scale = is_split ? group / 2 : group;
  return place;
}

// Tile form: lane of a warp that has tile `k_tile` along k of row tile `row_tile`, visit `unit` of its rows.
TESSERA_HD constexpr BlockPlace tile_place(BlockFormat format, int lane, int unit, int k_tile, int row_tile, int batch,
                                           int rows, int k) {
  const bool is_split = block_elements(format) == 32;
  const int half = is_split ? lane % 2 : 0;
  const int block_in_tile = is_split ? lane / 2 % 4 : lane % 4;
  const int row_group = is_split ? lane / 8 : lane / 4 % 4;
  const int row_low = is_split ? unit : unit * 2 + lane / 16;
  const int row_in_tile = row_group * 32 + row_low;
  const long long row = static_cast<long long>(row_tile) * kTileRows + row_in_tile;
  const int blocks = k / block_elements(format);
  const int k_tiles = (blocks + kTileBlocks - 1) / kTileBlocks;
  const int row_tiles = (rows + kTileRows - 1) / kTileRows;
  const int block = k_tile * kTileBlocks + block_in_tile;
  BlockPlace place;
  place.is_live = row < rows && block < blocks;
  place.has_scale = k_tile < k_tiles && row_tile < row_tiles && half == 0;
  place.element = (static_cast<long long>(batch) * rows + row) * k +
                  static_cast<long long>(block) * block_elements(format) + half * 16;
  place.scale = ((static_cast<long long>(batch) * row_tiles + row_tile) * k_tiles + k_tile) * kTileBytes +
                scale_offset_in_tile(row_in_tile, block_in_tile);
  return place;
}

}  // namespace tessera

// Tensor copies: which bytes of global memory a tile of a tensor map is made of, and where in shared memory they go.
//
// PTX ISA, "Tensors" and cp.async.bulk.tensor; rules measured on H200:
//  - dimension 0 is innermost and dense; dimension d >= 1 is `stride_bytes[d - 1]` apart; coordinates are signed;
//  - index j of dimension d >= 1 stands for coordinate + j * element_stride, j < ceil(box / element_stride); dimension
//    0's element stride is ignored;
//  - an element outside the tensor in any dimension is filled (load) or dropped (store); the mbarrier is always
//  credited
//    the whole box;
//  - rows of the tile are box[0] elements long and lie one after the other, but with a swizzle the pitch is its span,
//    also when the box is narrower; then the XOR on the absolute shared address;
//  - a store writes whole 16-byte units: where a row of the tensor ends inside one, the rest of it becomes zero;
//  - NaN fill is 0x7FF7 in every 16 bits, for all float types.
// Not here: interleaved layouts, im2col (semantics not settled).
//
// A tile is walked in chunks of 16 bytes of shared memory, the unit that no swizzle breaks up (flipped halves excepted,
// which are not settled anyway). Chunks start at 16-byte boundaries on both sides, because the inner coordinate times
// the element size must be a multiple of 16 bytes.
#pragma once

#include <array>
#include <cstdint>

#include "emulator/math/swizzle.h"

namespace tessera::emulator::math {

/// The driver's numbers (CUtensorMapDataType).
enum class TileType : std::uint8_t {
  u8 = 0,
  u16 = 1,
  u32 = 2,
  s32 = 3,
  u64 = 4,
  s64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9,
  f32_ftz = 10,  ///< does not flush: an identity copy (measured)
  tf32 = 11,     ///< loads round to nearest even, stores copy
  tf32_ftz = 12,
  u4x16_align8b = 13,   ///< two per byte on both sides
  u4x16_align16b = 14,  ///< 16 elements: 8 bytes in global memory, 8 data and 8 pad bytes in shared memory
  u6x16_align16b = 15   ///< 16 elements: 12 bytes, and 12 + 4
};

struct TensorTile {
  TileType type = TileType::u8;
  int rank = 1;
  std::uint64_t address = 0;
  std::array<std::uint64_t, 5> dims{};          ///< elements
  std::array<std::uint64_t, 4> stride_bytes{};  ///< [d] is the stride of dimension d + 1
  std::array<std::uint32_t, 5> box{};           ///< elements
  std::array<std::uint32_t, 5> element_strides{1, 1, 1, 1, 1};
  Swizzle swizzle = Swizzle::none;
  bool nan_fill = false;
};

using TileCoordinates = std::array<std::int32_t, 5>;  ///< innermost first; entries past the rank are not read

/// Sixteen bytes of shared memory.
struct TileChunk {
  std::uint32_t shared = 0;  ///< absolute shared address, XOR applied
  std::uint64_t global = 0;  ///< address of its first data byte; not meaningful when valid_bytes is 0
  int data_bytes = 16;       ///< bytes that carry elements: 16, or 8 or 12 for the padded 4- and 6-bit types
  int valid_bytes = 16;      ///< of these, bytes inside the tensor, from the first on; the rest is fill or dropped
};

constexpr bool is_padded(TileType type) { return type == TileType::u4x16_align16b || type == TileType::u6x16_align16b; }
/// Bits of one element in global memory.
int tile_element_bits(TileType type);
/// Bytes of one row of the tile in shared memory, pads included.
std::uint32_t tile_row_bytes(const TensorTile& tile);
/// Distance of two rows of the tile in shared memory.
std::uint32_t tile_pitch_bytes(const TensorTile& tile);
/// Rows of the tile: the product over dimensions from 1 on of ceil(box / element stride).
std::uint32_t tile_rows(const TensorTile& tile);
/// Bytes that the mbarrier is credited for one copy (each destination CTA of a multicast): packed bytes for the padded
/// types.
std::uint32_t tile_credit_bytes(const TensorTile& tile);
/// Shared memory that one copy may touch, from its address on: rows * pitch.
std::uint32_t tile_footprint_bytes(const TensorTile& tile);

/// What the hardware refuses, as measured on H200; the instruction traps.
enum class TileFault : std::uint8_t {
  none,
  shared_alignment,  ///< the shared address is not a multiple of 128: "misaligned address"
  inner_coordinate,  ///< inner coordinate times element size is not a multiple of 16 bytes: "illegal instruction"
  negative_store     ///< a store with a negative coordinate: "illegal instruction"
};
TileFault check_tile(const TensorTile& tile, const TileCoordinates& at, std::uint32_t shared, bool is_store);

/// Bytes of global memory that a store of the chunk writes, from chunk.global on: those inside the tensor, then zeros
/// to the end of the unit. (The padded types and reductions: only those inside; not measured.)
constexpr int stored_bytes(const TensorTile& tile, const TileChunk& chunk) {
  return chunk.valid_bytes == 0 || is_padded(tile.type) ? chunk.valid_bytes : 16;
}

/// The bits that fill elements outside the tensor, for any aligned 8 bytes.
constexpr std::uint64_t tile_fill_pattern(const TensorTile& tile) { return tile.nan_fill ? 0x7FF77FF77FF77FF7 : 0; }

/// tf32 loads: sixteen bytes as the copy engine rounds them (nearest even at bit 13, NaN 0x7FFFE000). Other types: no
/// change.
void convert_loaded_chunk(TileType type, std::uint8_t (&bytes)[16]);

/// One row of the tile: where it starts on both sides, and whether its outer indices are inside the tensor.
struct TileRow {
  std::uint32_t shared = 0;  ///< before the XOR
  std::uint64_t global = 0;  ///< address of inner coordinate 0 of this row
  bool inside = true;
};

/// Calls visit(TileChunk) for every chunk of one row, whose inner coordinate is `inner`.
template <class Visit>
void for_each_chunk_of_row(const TensorTile& tile, const TileRow& row, std::int32_t inner, Visit&& visit) {
  const int data_bytes = tile.type == TileType::u4x16_align16b ? 8 : tile.type == TileType::u6x16_align16b ? 12 : 16;
  const std::int64_t bits = tile_element_bits(tile.type);
  const std::int64_t tensor_bytes = static_cast<std::int64_t>(tile.dims[0]) * bits / 8;
  std::int64_t position = std::int64_t{inner} * bits / 8;  // of the chunk, in bytes along the tensor's dimension 0
  const std::uint32_t row_bytes = tile_row_bytes(tile);
  for (std::uint32_t offset = 0; offset < row_bytes; offset += 16, position += data_bytes) {
    TileChunk chunk;
    chunk.shared = apply_swizzle(tile.swizzle, row.shared + offset);
    chunk.global = row.global + static_cast<std::uint64_t>(position);
    chunk.data_bytes = data_bytes;
    const std::int64_t left = row.inside && position >= 0 ? tensor_bytes - position : 0;
    chunk.valid_bytes = left <= 0 ? 0 : left < data_bytes ? static_cast<int>(left) : data_bytes;
    visit(chunk);
  }
}

/// The row-th row of the tile (dimension 1 fastest) of a copy to or from `shared`.
TileRow tile_row(const TensorTile& tile, const TileCoordinates& at, std::uint32_t shared, std::uint32_t row);

/// Of a row that lies inside the tensor as a whole, where it begins in global memory; 0: some of it is outside, or its
/// elements are padded or rounded on their way.
inline std::uint64_t plain_row(const TensorTile& tile, const TileRow& row, std::int32_t inner) {
  if (is_padded(tile.type) || tile.type == TileType::tf32 || tile.type == TileType::tf32_ftz) return 0;
  const std::int64_t bits = tile_element_bits(tile.type);
  const std::int64_t position = std::int64_t{inner} * bits / 8;
  const std::int64_t left = static_cast<std::int64_t>(tile.dims[0]) * bits / 8 - position;
  if (!row.inside || position < 0 || left < static_cast<std::int64_t>(tile_row_bytes(tile))) return 0;
  return row.global + static_cast<std::uint64_t>(position);
}

/// Calls visit(TileRow) for every row of a tiled copy, in the order of shared memory.
template <class Visit>
void for_each_row(const TensorTile& tile, const TileCoordinates& at, std::uint32_t shared, Visit&& visit) {
  const std::uint32_t rows = tile_rows(tile);
  for (std::uint32_t row = 0; row < rows; ++row) visit(tile_row(tile, at, shared, row));
}

/// Calls visit(TileChunk) for every chunk of a tiled copy, in the order of shared memory before the XOR.
template <class Visit>
void for_each_chunk(const TensorTile& tile, const TileCoordinates& at, std::uint32_t shared, Visit&& visit) {
  for_each_row(tile, at, shared, [&](const TileRow& row) { for_each_chunk_of_row(tile, row, at[0], visit); });
}

/// tile::gather4 and scatter4: a 2-D map whose box has one row; the four rows of the tensor land one after the other.
/// Document only.
template <class Visit>
void for_each_row_of_four(const TensorTile& tile, std::int32_t inner, const std::array<std::int32_t, 4>& rows,
                          std::uint32_t shared, Visit&& visit) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    TileRow row = tile_row(tile, {inner, rows[i], 0, 0, 0}, shared, 0);
    row.shared += i * tile_pitch_bytes(tile);
    visit(row);
  }
}
template <class Visit>
void for_each_chunk_of_four(const TensorTile& tile, std::int32_t inner, const std::array<std::int32_t, 4>& rows,
                            std::uint32_t shared, Visit&& visit) {
  for_each_row_of_four(tile, inner, rows, shared,
                       [&](const TileRow& row) { for_each_chunk_of_row(tile, row, inner, visit); });
}

}  // namespace tessera::emulator::math

#include "emulator/math/tile_copy.h"

#include <cstring>

#include "emulator/math/convert.h"

namespace tessera::emulator::math {
namespace {

std::uint32_t extent(const TensorTile& tile, std::size_t d) {
  return (tile.box[d] + tile.element_strides[d] - 1) / tile.element_strides[d];
}

}  // namespace

int tile_element_bits(TileType type) {
  switch (type) {
    case TileType::u8:
      return 8;
    case TileType::u16:
    case TileType::f16:
    case TileType::bf16:
      return 16;
    case TileType::u64:
    case TileType::s64:
    case TileType::f64:
      return 64;
    case TileType::u4x16_align8b:
    case TileType::u4x16_align16b:
      return 4;
    case TileType::u6x16_align16b:
      return 6;
    case TileType::u32:
    case TileType::s32:
    case TileType::f32:
    case TileType::f32_ftz:
    case TileType::tf32:
    case TileType::tf32_ftz:
      return 32;
  }
  return 0;
}

std::uint32_t tile_row_bytes(const TensorTile& tile) {
  if (is_padded(tile.type)) return tile.box[0];  // 16 elements in 16 bytes
  return tile.box[0] * static_cast<std::uint32_t>(tile_element_bits(tile.type)) / 8;
}

std::uint32_t tile_pitch_bytes(const TensorTile& tile) {
  return tile.swizzle == Swizzle::none ? tile_row_bytes(tile) : swizzle_span_bytes(tile.swizzle);
}

std::uint32_t tile_rows(const TensorTile& tile) {
  std::uint32_t rows = 1;
  for (std::size_t d = 1; d < static_cast<std::size_t>(tile.rank); ++d) rows *= extent(tile, d);
  return rows;
}

std::uint32_t tile_credit_bytes(const TensorTile& tile) {
  return tile_rows(tile) * (tile.box[0] * static_cast<std::uint32_t>(tile_element_bits(tile.type)) / 8);
}

std::uint32_t tile_footprint_bytes(const TensorTile& tile) { return tile_rows(tile) * tile_pitch_bytes(tile); }

TileFault check_tile(const TensorTile& tile, const TileCoordinates& at, std::uint32_t shared, bool is_store) {
  if (shared % 128 != 0) return TileFault::shared_alignment;
  const std::int64_t inner_bits = std::int64_t{at[0]} * tile_element_bits(tile.type);
  // The padded types ask for whole groups of 128 elements (PTX ISA; document only).
  const bool aligned = is_padded(tile.type) ? at[0] % 128 == 0 : inner_bits % 128 == 0;
  if (!aligned) return TileFault::inner_coordinate;
  if (is_store)
    for (std::size_t d = 0; d < static_cast<std::size_t>(tile.rank); ++d)
      if (at[d] < 0) return TileFault::negative_store;
  return TileFault::none;
}

void convert_loaded_chunk(TileType type, std::uint8_t (&bytes)[16]) {
  if (type != TileType::tf32 && type != TileType::tf32_ftz) return;
  std::uint32_t words[4];
  std::memcpy(words, bytes, sizeof(words));
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(convert<Format::tf32, Format::f32>(word));
  std::memcpy(bytes, words, sizeof(words));
}

TileRow tile_row(const TensorTile& tile, const TileCoordinates& at, std::uint32_t shared, std::uint32_t row) {
  TileRow out;
  out.shared = shared + row * tile_pitch_bytes(tile);
  out.global = tile.address;
  for (std::size_t d = 1; d < static_cast<std::size_t>(tile.rank); ++d) {
    const std::uint32_t j = row % extent(tile, d);
    row /= extent(tile, d);
    const std::int64_t index = std::int64_t{at[d]} + std::int64_t{j} * tile.element_strides[d];
    if (index < 0 || static_cast<std::uint64_t>(index) >= tile.dims[d])
      out.inside = false;
    else
      out.global += static_cast<std::uint64_t>(index) * tile.stride_bytes[d - 1];
  }
  return out;
}

}  // namespace tessera::emulator::math

// Texture and surface objects: how memory of the device is read by tex and tld4, read and written by suld and sust.
// CUDA programming guide, "Texture and Surface Memory", "Texture Fetching"; PTX ISA, "Texture Instructions".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device.h"

namespace tessera::emulator {

/// linear: memory without rows, which is read by whole numbers alone. layered_*: depth counts layers; cube,
/// layered_cube: faces.
enum class TextureGeometry : std::uint8_t { linear, one, two, three, layered_one, layered_two, cube, layered_cube };
enum class TextureAddress : std::uint8_t { wrap, clamp, mirror, border };
enum class ChannelKind : std::uint8_t { signed_integer, unsigned_integer, floating };

/// Texels of one mipmap level; 1 where there is no such dimension.
struct TextureLevel {
  DevicePointer address = 0;
  std::uint32_t width = 1, height = 1, depth = 1;
  std::uint64_t pitch_bytes = 0, slice_bytes = 0;  ///< from row to row, from slice (layer, face) to slice
};

struct TextureDescription {
  TextureGeometry geometry = TextureGeometry::two;
  ChannelKind kind = ChannelKind::floating;
  std::uint32_t channel_bytes = 4;  ///< 1, 2 or 4; of floating ones 2 or 4
  std::uint32_t channels = 1;       ///< 1, 2 or 4
  std::vector<TextureLevel> levels{};
  // What follows, of textures alone.
  std::array<TextureAddress, 3> address{TextureAddress::clamp, TextureAddress::clamp, TextureAddress::clamp};
  bool filters_linearly = false;        ///< of channels that are read as f32
  bool normalizes_coordinates = false;  ///< 0 to 1 is the texture; without it wrap and mirror are clamp
  bool normalizes_values = false;       ///< integers of 8 or 16 bits are read as f32 in 0 to 1 or -1 to 1
  bool filters_levels = false;          ///< between two mipmap levels
  float level_bias = 0, least_level = 0, greatest_level = 0;
  std::array<float, 4> border{};

  std::uint32_t texel_bytes() const { return channel_bytes * channels; }
  bool reads_floats() const { return kind == ChannelKind::floating || normalizes_values; }
};

/// 2d, layered 2d, ...: as PTX calls it.
const char* to_string(TextureGeometry geometry) noexcept;

}  // namespace tessera::emulator

// The objects that handles of kernels name, and where a fetch lands: texels and weights of a filter. CUDA programming
// guide, "Texture Fetching": T has N texels, x is a coordinate in texels.
//
//   nearest  T[floor(x)]
//   linear   (1 - a) T[i] + a T[i + 1]; i = floor(x - 0.5), a = frac(x - 0.5) in 9 bits with 8 of fraction
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "tessera/emulator/texture.h"

namespace tessera::emulator {

struct TextureObject {
  TextureDescription description;
  bool is_surface = false;
  bool is_destroyed = false;
};

class TextureTable {
 public:
  /// Handles are no addresses, and none comes twice. Throws Error{usage} where the description is none.
  std::uint64_t add(TextureDescription description, bool is_surface);
  /// False: there is no such object.
  bool destroy(std::uint64_t handle) noexcept;
  /// Destroyed ones too; null: the handle never was one.
  const TextureObject* find(std::uint64_t handle) const noexcept;

 private:
  std::unordered_map<std::uint64_t, TextureObject> objects_;
  std::uint64_t next_ = 0x0400'0000'0001;
};

/// One dimension of a fetch: two texels, of which the second has weight / 256. -1: the border.
struct Taps {
  std::int64_t index[2] = {0, 0};
  std::uint32_t weight = 0;
};

/// The texel that the coordinate lies in (in both places of the result).
Taps nearest_tap(float x, std::uint32_t size, TextureAddress address, bool is_normalized);
/// The two texels whose centres it lies between.
Taps linear_taps(float x, std::uint32_t size, TextureAddress address, bool is_normalized);
/// A whole coordinate.
Taps whole_tap(std::int32_t x, std::uint32_t size, TextureAddress address);

/// The face of a cube map that a direction points to, and the place on it, each from 0 to 1.
struct CubePlace {
  std::uint32_t face = 0;
  float s = 0, t = 0;
};
CubePlace cube_place(float x, float y, float z);

/// The bits that tex gives for a texel: four words; channels that it has not are 0, 0, 1.
std::array<std::uint32_t, 4> decode_texel(const TextureDescription& texture, const std::byte* texel);
std::array<std::uint32_t, 4> border_texel(const TextureDescription& texture);

/// Mipmap levels of a fetch; the second one has weight / 256.
struct Levels {
  std::uint32_t index[2] = {0, 0};
  std::uint32_t weight = 0;
};
Levels levels_of(const TextureDescription& texture, float level);

}  // namespace tessera::emulator

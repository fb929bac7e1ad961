#include "emulator/memory/texture.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "emulator/math/convert.h"
#include "tessera/error.h"

namespace tessera::emulator {

const char* to_string(TextureGeometry geometry) noexcept {
  constexpr const char* kNames[] = {"linear memory", "1d", "2d", "3d", "a1d", "a2d", "cube", "acube"};
  return kNames[static_cast<std::size_t>(geometry)];
}

namespace {

void check(const TextureDescription& texture) {
  const auto is_power = [](std::uint32_t n) { return n == 1 || n == 2 || n == 4; };
  const bool is_cube = texture.geometry == TextureGeometry::cube || texture.geometry == TextureGeometry::layered_cube;
  bool is_good = is_power(texture.channels) && is_power(texture.channel_bytes) && !texture.levels.empty() &&
                 (texture.kind != ChannelKind::floating || texture.channel_bytes > 1) &&
                 (!texture.filters_linearly || texture.reads_floats());
  for (const TextureLevel& level : texture.levels)
    is_good =
        is_good && level.width != 0 && level.height != 0 && level.depth != 0 && (!is_cube || level.depth % 6 == 0);
  if (is_good) return;
  throw Error(ErrorKind::usage, fmt::format("emulator: {} channels of {} bytes, {} levels: no texture is like that",
                                            texture.channels, texture.channel_bytes, texture.levels.size()));
}

}  // namespace

std::uint64_t TextureTable::add(TextureDescription description, bool is_surface) {
  check(description);
  objects_.emplace(next_, TextureObject{std::move(description), is_surface, false});
  return next_++;
}

bool TextureTable::destroy(std::uint64_t handle) noexcept {
  const auto it = objects_.find(handle);
  if (it == objects_.end() || it->second.is_destroyed) return false;
  it->second.is_destroyed = true;
  it->second.description.levels.clear();
  return true;
}

const TextureObject* TextureTable::find(std::uint64_t handle) const noexcept {
  const auto it = objects_.find(handle);
  return it == objects_.end() ? nullptr : &it->second;
}

namespace {

std::int64_t modulo(std::int64_t i, std::int64_t size) { return (i % size + size) % size; }

// A whole texel coordinate into the texture.
std::int64_t place(std::int64_t i, std::int64_t size, TextureAddress address) {
  switch (address) {
    case TextureAddress::wrap:
      return modulo(i, size);
    case TextureAddress::border:
      return i < 0 || i >= size ? -1 : i;
    case TextureAddress::mirror:  // folded before: half a texel outside lies the last one's image
    case TextureAddress::clamp:
      break;
  }
  return std::clamp<std::int64_t>(i, 0, size - 1);
}

// In texels. Far outside it does not matter where, but for wrap and mirror, which fold first.
double in_texels(float x, std::uint32_t size, TextureAddress& address, bool is_normalized) {
  double u = static_cast<double>(x);
  if (std::isnan(u)) u = 0;
  if (!is_normalized) {
    if (address != TextureAddress::border) address = TextureAddress::clamp;
  } else {
    if (address == TextureAddress::wrap) u -= std::floor(u);
    if (address == TextureAddress::mirror) {
      const double whole = std::floor(u);
      u = whole == 2 * std::floor(whole / 2) ? u - whole : 1 - (u - whole);
    }
    if (std::isnan(u)) u = 0;  // of an infinity
    u *= size;
  }
  return std::clamp(u, -0x1p40, 0x1p40);
}

float unit_of(std::int64_t value, double most) {
  return static_cast<float>(std::max(static_cast<double>(value) / most, -1.0));
}

}  // namespace

Taps nearest_tap(float x, std::uint32_t size, TextureAddress address, bool is_normalized) {
  const double u = in_texels(x, size, address, is_normalized);
  const std::int64_t i = place(static_cast<std::int64_t>(std::floor(u)), size, address);
  return {{i, i}, 0};
}

Taps linear_taps(float x, std::uint32_t size, TextureAddress address, bool is_normalized) {
  const double u = in_texels(x, size, address, is_normalized);
  const auto fixed = static_cast<std::int64_t>(std::floor((u - 0.5) * 256 + 0.5));
  const std::int64_t i = fixed >> 8;
  return {{place(i, size, address), place(i + 1, size, address)}, static_cast<std::uint32_t>(fixed & 255)};
}

Taps whole_tap(std::int32_t x, std::uint32_t size, TextureAddress address) {
  const std::int64_t i = place(x, size, address == TextureAddress::border ? address : TextureAddress::clamp);
  return {{i, i}, 0};
}

CubePlace cube_place(float x, float y, float z) {
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  const auto at = [](std::uint32_t face, float m, float s, float t) -> CubePlace {
    return {face, (s / m + 1) / 2, (t / m + 1) / 2};
  };
  if (az >= ax && az >= ay) return z < 0 ? at(5, az, -x, -y) : at(4, az, x, -y);
  if (ay >= ax) return y < 0 ? at(3, ay, x, -z) : at(2, ay, x, z);
  return x < 0 ? at(1, ax, z, -y) : at(0, ax, -z, -y);
}

std::array<std::uint32_t, 4> decode_texel(const TextureDescription& texture, const std::byte* texel) {
  std::array<std::uint32_t, 4> out{0, 0, 0, texture.reads_floats() ? std::bit_cast<std::uint32_t>(1.0f) : 1};
  for (std::uint32_t c = 0; c < texture.channels; ++c) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, texel + c * texture.channel_bytes, texture.channel_bytes);
    if (texture.kind == ChannelKind::floating) {
      if (texture.channel_bytes == 2)
        bits = std::bit_cast<std::uint32_t>(static_cast<float>(math::decode_value(math::Format::f16, bits)));
      out[c] = bits;
      continue;
    }
    const std::uint32_t width = 8 * texture.channel_bytes;
    const bool is_signed = texture.kind == ChannelKind::signed_integer;
    const std::int64_t value =
        is_signed ? static_cast<std::int64_t>(static_cast<std::uint64_t>(bits) << (64 - width)) >> (64 - width)
                  : static_cast<std::int64_t>(bits);
    out[c] = texture.normalizes_values
                 ? std::bit_cast<std::uint32_t>(
                       unit_of(value, static_cast<double>((std::uint64_t{1} << (width - (is_signed ? 1 : 0))) - 1)))
                 : static_cast<std::uint32_t>(value);
  }
  return out;
}

std::array<std::uint32_t, 4> border_texel(const TextureDescription& texture) {
  std::array<std::uint32_t, 4> out{0, 0, 0, texture.reads_floats() ? std::bit_cast<std::uint32_t>(1.0f) : 1};
  for (std::uint32_t c = 0; c < texture.channels; ++c) {
    const float color = std::isnan(texture.border[c]) && !texture.reads_floats() ? 0 : texture.border[c];
    out[c] = texture.reads_floats()
                 ? std::bit_cast<std::uint32_t>(color)
                 : static_cast<std::uint32_t>(static_cast<std::int64_t>(std::clamp(color, -0x1p31f, 0x1p32f)));
  }
  return out;
}

Levels levels_of(const TextureDescription& texture, float level) {
  const auto last = static_cast<float>(texture.levels.size() - 1);
  if (std::isnan(level)) level = 0;
  const float least = std::clamp(texture.least_level, 0.0f, last);
  const float at = std::clamp(level + texture.level_bias, least, std::clamp(texture.greatest_level, least, last));
  if (!texture.filters_levels) {
    const auto nearest = static_cast<std::uint32_t>(std::floor(at + 0.5f));
    return {{nearest, nearest}, 0};
  }
  const auto fixed = static_cast<std::uint32_t>(std::floor(at * 256 + 0.5f));
  const std::uint32_t first = fixed >> 8;
  return {{first, std::min(first + 1, static_cast<std::uint32_t>(last))}, fixed & 255};
}

}  // namespace tessera::emulator

#include "guest/texture.h"

#include <cstring>
#include <map>

#include "guest/device_facts.h"

namespace tessera::guest {
namespace {

using emulator::TextureDescription;
using emulator::TextureGeometry;
using emulator::TextureLevel;

std::map<unsigned long long, TextureObject>& objects() {
  static auto* const made = new std::map<unsigned long long, TextureObject>;
  return *made;
}

cudaError_t refuse(const char* what) {
  Session::instance().add_problem(std::string(what) + " are not provided");
  return cudaErrorNotSupported;
}

void set(TextureDescription& to, const Channels& channels) {
  to.kind = static_cast<emulator::ChannelKind>(channels.kind);
  to.channel_bytes = static_cast<std::uint32_t>(channels.bytes);
  to.channels = static_cast<std::uint32_t>(channels.count);
  to.normalizes_values = channels.is_normalized;
}

TextureGeometry geometry_of(const Array& array) {
  const bool is_layered = (array.flags & cudaArrayLayered) != 0;
  if ((array.flags & cudaArrayCubemap) != 0) return is_layered ? TextureGeometry::layered_cube : TextureGeometry::cube;
  if (is_layered) return array.extent.height == 0 ? TextureGeometry::layered_one : TextureGeometry::layered_two;
  if (array.extent.depth != 0) return TextureGeometry::three;
  return array.extent.height == 0 ? TextureGeometry::one : TextureGeometry::two;
}

TextureLevel level_of(const Array& array) {
  return {address_of(array.data),
          static_cast<std::uint32_t>(array.extent.width),
          static_cast<std::uint32_t>(array.rows()),
          static_cast<std::uint32_t>(array.slices()),
          array.pitch,
          array.pitch * array.rows()};
}

cudaError_t describe_array(const Array* array, TextureDescription& to) {
  if (array == nullptr) return cudaErrorInvalidValue;
  Channels channels;
  const cudaError_t error = channels_of(array->format, channels);
  set(to, channels);
  to.geometry = geometry_of(*array);
  to.levels.push_back(level_of(*array));
  return error;
}

std::size_t limit(int attribute) { return static_cast<std::size_t>(device_attribute(attribute)); }

cudaError_t describe_linear(const void* data, const cudaChannelFormatDesc& format, TextureDescription& to) {
  Channels channels;
  if (data == nullptr || address_of(data) % limit(cudaDevAttrTextureAlignment) != 0) return cudaErrorInvalidValue;
  const cudaError_t error = channels_of(format, channels);
  set(to, channels);
  const Block* const block = Blocks::instance().find(data);
  if (block == nullptr && !is_on_device(data)) return cudaErrorInvalidValue;
  to.levels.push_back({});
  to.levels.front().address =
      block == nullptr ? address_of(data) : block->on_device + (address_of(data) - block->address);
  return error;
}

cudaError_t describe_resource(const cudaResourceDesc& resource, TextureDescription& to) {
  switch (resource.resType) {
    case cudaResourceTypeArray:
      return describe_array(array_of(resource.res.array.array), to);
    case cudaResourceTypeMipmappedArray: {
      const MipmappedArray* const of = array_of(resource.res.mipmap.mipmap);
      if (of == nullptr) return cudaErrorInvalidValue;
      const cudaError_t error = describe_array(of->levels.front(), to);
      for (std::size_t i = 1; i < of->levels.size(); ++i) to.levels.push_back(level_of(*of->levels[i]));
      return error;
    }
    case cudaResourceTypeLinear: {
      const auto& linear = resource.res.linear;
      if (const cudaError_t error = describe_linear(linear.devPtr, linear.desc, to); error != cudaSuccess) return error;
      const std::size_t texels = linear.sizeInBytes / to.texel_bytes();
      if (texels == 0 || texels > limit(cudaDevAttrMaxTexture1DLinearWidth)) return cudaErrorInvalidValue;
      to.geometry = TextureGeometry::linear;
      to.levels.front().width = static_cast<std::uint32_t>(texels);
      return cudaSuccess;
    }
    case cudaResourceTypePitch2D: {
      const auto& rows = resource.res.pitch2D;
      if (const cudaError_t error = describe_linear(rows.devPtr, rows.desc, to); error != cudaSuccess) return error;
      if (rows.width == 0 || rows.width > limit(cudaDevAttrMaxTexture2DLinearWidth) || rows.height == 0 ||
          rows.height > limit(cudaDevAttrMaxTexture2DLinearHeight) ||
          rows.pitchInBytes > limit(cudaDevAttrMaxTexture2DLinearPitch) ||
          rows.pitchInBytes % limit(cudaDevAttrTexturePitchAlignment) != 0 ||
          rows.pitchInBytes < rows.width * to.texel_bytes())
        return cudaErrorInvalidValue;
      to.geometry = TextureGeometry::two;
      TextureLevel& level = to.levels.front();
      level.width = static_cast<std::uint32_t>(rows.width);
      level.height = static_cast<std::uint32_t>(rows.height);
      level.pitch_bytes = rows.pitchInBytes;
      level.slice_bytes = rows.pitchInBytes * rows.height;
      return cudaSuccess;
    }
    default:
      return cudaErrorInvalidValue;
  }
}

// Other channels of as many bytes, some of the levels, some of the layers.
cudaError_t apply(const cudaResourceViewDesc& view, TextureDescription& to) {
  if (view.format != cudaResViewFormatNone) {
    // Three of each kind, of 1, 2 and 4 channels: u8 s8 u16 s16 u32 s32 f16 f32.
    constexpr struct {
      emulator::ChannelKind kind;
      std::uint32_t bytes;
    } kKinds[] = {{emulator::ChannelKind::unsigned_integer, 1}, {emulator::ChannelKind::signed_integer, 1},
                  {emulator::ChannelKind::unsigned_integer, 2}, {emulator::ChannelKind::signed_integer, 2},
                  {emulator::ChannelKind::unsigned_integer, 4}, {emulator::ChannelKind::signed_integer, 4},
                  {emulator::ChannelKind::floating, 2},         {emulator::ChannelKind::floating, 4}};
    const auto number = static_cast<unsigned>(view.format) - 1;
    if (number >= 24) return refuse("views of compressed formats");
    if (kKinds[number / 3].bytes << number % 3 != to.texel_bytes()) return cudaErrorInvalidValue;
    to.kind = kKinds[number / 3].kind;
    to.channel_bytes = kKinds[number / 3].bytes;
    to.channels = 1u << number % 3;
    to.normalizes_values = false;
  }
  if (view.lastMipmapLevel < view.firstMipmapLevel || view.lastMipmapLevel >= to.levels.size())
    return cudaErrorInvalidValue;
  to.levels = {to.levels.begin() + view.firstMipmapLevel, to.levels.begin() + view.lastMipmapLevel + 1};
  const TextureLevel& first = to.levels.front();
  const bool is_cube = to.geometry == TextureGeometry::cube || to.geometry == TextureGeometry::layered_cube;
  const bool is_layered =
      is_cube || to.geometry == TextureGeometry::layered_one || to.geometry == TextureGeometry::layered_two;
  const auto agrees = [](std::size_t asked, std::size_t has) { return asked == has || (asked == 0 && has == 1); };
  if (!agrees(view.width, first.width) || !agrees(view.height, first.height)) return cudaErrorInvalidValue;
  if (!is_layered) return agrees(view.depth, first.depth) ? cudaSuccess : cudaErrorInvalidValue;
  const unsigned layers = view.lastLayer - view.firstLayer + 1;
  if (view.lastLayer < view.firstLayer || view.lastLayer >= first.depth || (is_cube && layers % 6 != 0))
    return cudaErrorInvalidValue;
  for (TextureLevel& level : to.levels) {
    level.address += view.firstLayer * level.slice_bytes;
    level.depth = layers;
  }
  return cudaSuccess;
}

cudaError_t apply(const cudaTextureDesc& given, TextureDescription& to) {
  if (given.sRGB != 0) return refuse("textures of sRGB values");
  const bool is_cube = to.geometry == TextureGeometry::cube || to.geometry == TextureGeometry::layered_cube;
  if (given.seamlessCubemap != 0 && is_cube && given.filterMode == cudaFilterModeLinear)
    return refuse("seamless cube maps");
  // Integers of 32 bits are never promoted.
  if (given.readMode == cudaReadModeNormalizedFloat && to.kind != emulator::ChannelKind::floating &&
      to.channel_bytes < 4)
    to.normalizes_values = true;
  const bool is_linear = to.geometry == TextureGeometry::linear;
  to.normalizes_coordinates = given.normalizedCoords != 0;
  to.filters_linearly = given.filterMode == cudaFilterModeLinear && !is_linear;
  to.filters_levels = given.mipmapFilterMode == cudaFilterModeLinear;
  to.level_bias = given.mipmapLevelBias;
  to.least_level = given.minMipmapLevelClamp;
  to.greatest_level = given.maxMipmapLevelClamp;
  for (std::size_t i = 0; i < 3; ++i) {
    if (given.addressMode[i] < cudaAddressModeWrap || given.addressMode[i] > cudaAddressModeBorder)
      return cudaErrorInvalidValue;
    to.address[i] = static_cast<emulator::TextureAddress>(given.addressMode[i]);
  }
  std::memcpy(to.border.data(), given.borderColor, sizeof(given.borderColor));
  if (to.levels.size() > 1 && !to.normalizes_coordinates) return cudaErrorInvalidValue;
  return to.filters_linearly && !to.reads_floats() ? cudaErrorInvalidFilterSetting : cudaSuccess;
}

}  // namespace

void give(const cudaResourceDesc& resource, cudaResourceDesc* to) {
  std::memcpy(to, &resource, offsetof(cudaResourceDesc, res) + sizeof(resource.res.pitch2D));
}
void give(const cudaResourceViewDesc& view, cudaResourceViewDesc* to) {
  std::memcpy(to, &view, offsetof(cudaResourceViewDesc, reserved));
}

cudaError_t make_texture(unsigned long long* handle, const cudaResourceDesc& resource, const cudaTextureDesc& texture,
                         const cudaResourceViewDesc* view) {
  TextureDescription description;
  cudaError_t error = describe_resource(resource, description);
  const bool is_array = resource.resType == cudaResourceTypeArray || resource.resType == cudaResourceTypeMipmappedArray;
  if (error == cudaSuccess && view != nullptr) error = is_array ? apply(*view, description) : cudaErrorInvalidValue;
  if (error == cudaSuccess) error = apply(texture, description);
  if (error != cudaSuccess) return error;
  *handle = Session::instance().device().create_texture(description);
  TextureObject& kept = objects()[*handle];
  give(resource, &kept.resource);
  kept.texture = texture;
  kept.has_view = view != nullptr;
  if (view != nullptr) give(*view, &kept.view);
  return cudaSuccess;
}

cudaError_t make_surface(unsigned long long* handle, const cudaResourceDesc& resource) {
  TextureDescription description;
  if (resource.resType != cudaResourceTypeArray) return cudaErrorInvalidValue;
  const Array* const array = array_of(resource.res.array.array);
  if (array == nullptr || (array->flags & cudaArraySurfaceLoadStore) == 0) return cudaErrorInvalidValue;
  if (const cudaError_t error = describe_array(array, description); error != cudaSuccess) return error;
  *handle = Session::instance().device().create_surface(description);
  TextureObject& kept = objects()[*handle];
  give(resource, &kept.resource);
  kept.is_surface = true;
  return cudaSuccess;
}

cudaError_t destroy_texture(unsigned long long handle) {
  if (handle == 0) return cudaSuccess;
  objects().erase(handle);
  return Session::instance().device().destroy_texture(handle) ? cudaSuccess : cudaErrorInvalidValue;
}

const TextureObject* find_texture(unsigned long long handle, bool is_surface) {
  const auto it = objects().find(handle);
  return it == objects().end() || it->second.is_surface != is_surface ? nullptr : &it->second;
}

}  // namespace tessera::guest

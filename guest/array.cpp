#include "guest/array.h"

#include <algorithm>

#include "guest/device_facts.h"
#include "guest/turns.h"

namespace tessera::guest {
namespace {

constexpr unsigned kKnownFlags =
    cudaArrayLayered | cudaArraySurfaceLoadStore | cudaArrayCubemap | cudaArrayTextureGather | cudaArrayColorAttachment;

struct Limits {
  int width, height, depth;  // attributes of the device; 0: there is no such dimension
};

// CUDA programming guide, "Technical Specifications per Compute Capability".
bool is_within(const cudaExtent& extent, const Limits& limits) {
  const auto fits = [](std::size_t size, int attribute) {
    return attribute == 0 || size <= static_cast<std::size_t>(device_attribute(attribute));
  };
  return fits(extent.width, limits.width) && fits(extent.height, limits.height) && fits(extent.depth, limits.depth);
}

bool is_allowed(const cudaExtent& extent, unsigned flags) {
  const bool is_layered = (flags & cudaArrayLayered) != 0, is_cube = (flags & cudaArrayCubemap) != 0;
  const bool is_surface = (flags & cudaArraySurfaceLoadStore) != 0;
  if (extent.width == 0 || (flags & ~kKnownFlags) != 0) return false;
  if (is_cube) {
    if (extent.width != extent.height || extent.depth == 0 || extent.depth % 6 != 0) return false;
    if (!is_layered && extent.depth != 6) return false;
    if (is_layered)
      return is_within(extent, {cudaDevAttrMaxTextureCubemapLayeredWidth, 0, 0}) &&
             extent.depth / 6 <=
                 static_cast<std::size_t>(device_attribute(cudaDevAttrMaxTextureCubemapLayeredLayers)) / 6;
    return is_within(extent, {cudaDevAttrMaxTextureCubemapWidth, 0, 0});
  }
  if (is_layered) {
    if (extent.depth == 0) return false;
    return extent.height == 0
               ? is_within(extent, {cudaDevAttrMaxTexture1DLayeredWidth, 0, cudaDevAttrMaxTexture1DLayeredLayers})
               : is_within(extent, {cudaDevAttrMaxTexture2DLayeredWidth, cudaDevAttrMaxTexture2DLayeredHeight,
                                    cudaDevAttrMaxTexture2DLayeredLayers});
  }
  if (extent.depth != 0) {
    if (extent.height == 0) return false;
    return is_within(extent,
                     {cudaDevAttrMaxTexture3DWidth, cudaDevAttrMaxTexture3DHeight, cudaDevAttrMaxTexture3DDepth});
  }
  if ((flags & cudaArrayTextureGather) != 0)
    return extent.height != 0 &&
           is_within(extent, {cudaDevAttrMaxTexture2DGatherWidth, cudaDevAttrMaxTexture2DGatherHeight, 0});
  if (extent.height == 0)
    return is_within(extent, {is_surface ? cudaDevAttrMaxSurface1DWidth : cudaDevAttrMaxTexture1DWidth, 0, 0});
  return is_within(extent, {cudaDevAttrMaxTexture2DWidth, cudaDevAttrMaxTexture2DHeight, 0});
}

}  // namespace

bool Array::holds(std::size_t x, std::size_t y, std::size_t z, std::size_t width, std::size_t height,
                  std::size_t depth) const {
  const auto lies = [](std::size_t first, std::size_t count, std::size_t size) {
    return first <= size && count <= size - first;
  };
  return lies(x, width, row_bytes()) && lies(y, height, rows()) && lies(z, depth, slices());
}

cudaError_t channels_of(const cudaChannelFormatDesc& format, Channels& out) {
  const int bits[4] = {format.x, format.y, format.z, format.w};
  out = {};
  out.count = static_cast<std::size_t>(std::find(bits, bits + 4, 0) - bits);
  if (format.f >= cudaChannelFormatKindNV12 &&
      (format.f < cudaChannelFormatKindUnsignedNormalized8X1 || format.f > cudaChannelFormatKindSignedNormalized16X4)) {
    Session::instance().add_problem("arrays of compressed, planar and 10-bit formats are not provided");
    return cudaErrorNotSupported;
  }
  bool is_good = out.count == 1 || out.count == 2 || out.count == 4;
  for (std::size_t i = 0; i < 4; ++i) is_good = is_good && bits[i] == (i < out.count ? bits[0] : 0);
  is_good = is_good && (bits[0] == 8 || bits[0] == 16 || bits[0] == 32);
  out.bytes = static_cast<std::size_t>(bits[0]) / 8;
  switch (format.f) {
    case cudaChannelFormatKindSigned:
      out.kind = Channels::Kind::signed_integer;
      break;
    case cudaChannelFormatKindUnsigned:
      out.kind = Channels::Kind::unsigned_integer;
      break;
    case cudaChannelFormatKindFloat:
      is_good = is_good && bits[0] != 8;
      break;
    default: {
      // X1, X2, X4 of unsigned 8 and 16, then of signed 8 and 16 bits.
      const int number = format.f - cudaChannelFormatKindUnsignedNormalized8X1;
      out.is_normalized = true;
      out.kind = number < 6 ? Channels::Kind::unsigned_integer : Channels::Kind::signed_integer;
      is_good = is_good && number >= 0 && out.count == std::size_t{1} << number % 3 &&
                out.bytes == (number / 3 % 2 == 0 ? 1u : 2u);
    }
  }
  return is_good ? cudaSuccess : cudaErrorInvalidChannelDescriptor;
}

cudaError_t make_array(cudaArray_t* array, const cudaChannelFormatDesc& format, cudaExtent extent, unsigned flags) {
  Channels channels;
  if (array == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t error = channels_of(format, channels); error != cudaSuccess) return error;
  if ((flags & (cudaArraySparse | cudaArrayDeferredMapping)) != 0) {
    Session::instance().add_problem("sparse arrays are not provided");
    return cudaErrorNotSupported;
  }
  if (!is_allowed(extent, flags)) return cudaErrorInvalidValue;
  auto* const made = new Array;
  made->format = format;
  made->extent = extent;
  made->flags = flags;
  made->element_bytes = channels.bytes * channels.count;
  made->pitch = made->row_bytes();
  const cudaError_t error =
      Blocks::instance().allocate(&made->data, made->pitch * made->rows() * made->slices(), BlockKind::device);
  if (error != cudaSuccess) {
    delete made;
    return error;
  }
  *array = reinterpret_cast<cudaArray_t>(made);
  return cudaSuccess;
}

cudaError_t free_array(cudaArray_t array) {
  Array* const of = array_of(array);
  if (of == nullptr) return cudaSuccess;
  if (of->is_level) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = finish_all(); error != cudaSuccess) return error;  // as cudaFree
  const cudaError_t error = Blocks::instance().free(of->data);
  delete of;
  return error;
}

cudaError_t make_mipmapped_array(cudaMipmappedArray_t* array, const cudaChannelFormatDesc& format, cudaExtent extent,
                                 unsigned num_levels, unsigned flags) {
  if (array == nullptr) return cudaErrorInvalidValue;
  const bool has_slices = (flags & (cudaArrayLayered | cudaArrayCubemap)) != 0;
  const std::size_t longest = std::max({extent.width, extent.height, has_slices ? 0 : extent.depth});
  unsigned most = 1;
  while (longest >> most != 0) ++most;
  auto* const made = new MipmappedArray;
  cudaError_t error = cudaSuccess;
  for (unsigned i = 0; i < std::clamp(num_levels, 1u, most) && error == cudaSuccess; ++i) {
    const auto halved = [&](std::size_t size) { return size == 0 ? size : std::max<std::size_t>(size >> i, 1); };
    cudaArray_t level = nullptr;
    error = make_array(&level, format,
                       {halved(extent.width), halved(extent.height), has_slices ? extent.depth : halved(extent.depth)},
                       flags);
    if (error != cudaSuccess) break;
    array_of(level)->is_level = true;
    made->levels.push_back(array_of(level));
  }
  *array = reinterpret_cast<cudaMipmappedArray_t>(made);
  if (error != cudaSuccess) free_mipmapped_array(*array);
  return error;
}

cudaError_t free_mipmapped_array(cudaMipmappedArray_t array) {
  MipmappedArray* const of = array_of(array);
  if (of == nullptr) return cudaSuccess;
  for (Array* const level : of->levels) {
    level->is_level = false;
    free_array(reinterpret_cast<cudaArray_t>(level));
  }
  delete of;
  return cudaSuccess;
}

cudaError_t level_of(cudaArray_t* array, cudaMipmappedArray_const_t mipmapped, unsigned level) {
  const MipmappedArray* const of = array_of(mipmapped);
  if (of == nullptr || array == nullptr || level >= of->levels.size()) return cudaErrorInvalidValue;
  *array = reinterpret_cast<cudaArray_t>(of->levels[level]);
  return cudaSuccess;
}

cudaError_t box_of(const cudaMemcpy3DParms& given, Box& box) {
  const Array* const to = array_of(given.dstArray);
  const Array* const from = array_of(given.srcArray);
  const std::size_t element = to != nullptr ? to->element_bytes : from != nullptr ? from->element_bytes : 1;
  box.width = given.extent.width * element;
  box.height = given.extent.height == 0 ? 1 : given.extent.height;
  box.depth = given.extent.depth == 0 ? 1 : given.extent.depth;
  bool is_inside = true;
  const auto place = [&](const Array* array, const cudaPitchedPtr& pointer, const cudaPos& at, std::size_t& pitch,
                         std::size_t& slice) -> std::byte* {
    if (array != nullptr) {
      pitch = array->pitch;
      slice = pitch * array->rows();
      is_inside = is_inside && array->holds(at.x * element, at.y, at.z, box.width, box.height, box.depth);
      return array->at(at.x * element, at.y, at.z);
    }
    pitch = pointer.pitch;
    slice = pitch * pointer.ysize;
    return static_cast<std::byte*>(pointer.ptr) + at.z * slice + at.y * pitch + at.x;
  };
  box.to = place(to, given.dstPtr, given.dstPos, box.to_pitch, box.to_slice);
  box.from = place(from, given.srcPtr, given.srcPos, box.from_pitch, box.from_slice);
  return is_inside ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace tessera::guest

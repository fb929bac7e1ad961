// The CUDA runtime's arrays, mipmapped arrays, copies to and from them, texture and surface objects.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "guest/array.h"
#include "guest/device_facts.h"
#include "guest/runtime_copy.h"
#include "guest/texture.h"

using namespace tessera::guest;

namespace {

// A side of a copy of rows: memory, or an array from a place on; x in bytes.
struct RowsOf {
  const Array* array = nullptr;
  void* data = nullptr;
  std::size_t pitch = 0, x = 0, y = 0;

  bool holds(std::size_t width, std::size_t height) const {
    return array == nullptr || array->holds(x, y, 0, width, height, 1);
  }
  void* first() const { return array == nullptr ? data : array->at(x, y); }
  std::size_t step() const { return array == nullptr ? pitch : array->pitch; }
};
RowsOf in_array(cudaArray_const_t array, std::size_t x, std::size_t y) { return {array_of(array), nullptr, 0, x, y}; }
RowsOf in_memory(const void* data, std::size_t pitch) { return {nullptr, const_cast<void*>(data), pitch, 0, 0}; }

cudaError_t copy_rows(const char* function, const RowsOf& to, const RowsOf& from, std::size_t width, std::size_t height,
                      cudaMemcpyKind kind, cudaStream_t stream) {
  if (!to.holds(width, height) || !from.holds(width, height))
    return called(function, [] { return cudaErrorInvalidValue; });
  Box box;
  box.to = to.first();
  box.from = from.first();
  box.to_pitch = to.step();
  box.from_pitch = from.step();
  box.width = width;
  box.height = height;
  return copy_rows(function, box, kind, stream);
}

// So many bytes one after the other: the rest of a row, whole rows, the beginning of one. Both sides are asked row by
// row.
cudaError_t copy_bytes(const char* function, RowsOf to, RowsOf from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  while (bytes > 0) {
    std::size_t width = bytes;
    for (const RowsOf* const side : {&to, &from})
      if (side->array != nullptr)
        width = std::min(width, side->array->row_bytes() - std::min(side->x, side->array->row_bytes()));
    if (width == 0) return called(function, [] { return cudaErrorInvalidValue; });
    const cudaError_t error = copy_rows(function, to, from, width, 1, kind, stream);
    if (error != cudaSuccess) return error;
    for (RowsOf* const side : {&to, &from}) {
      if (side->array == nullptr) {
        side->data = static_cast<std::byte*>(side->data) + width;
      } else if ((side->x += width) == side->array->row_bytes()) {
        side->x = 0;
        ++side->y;
      }
    }
    bytes -= width;
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format, cudaExtent extent,
                              unsigned flags) {
  return called(__func__, [&] { return make_array(array, *format, extent, flags); });
}
cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, std::size_t width,
                            std::size_t height, unsigned flags) {
  return called(__func__, [&] { return make_array(array, *format, {width, height, 0}, flags); });
}
cudaError_t cudaFreeArray(cudaArray_t array) {
  return called(__func__, [&] { return free_array(array); });
}
cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* array, const cudaChannelFormatDesc* format,
                                     cudaExtent extent, unsigned num_levels, unsigned flags) {
  return called(__func__, [&] { return make_mipmapped_array(array, *format, extent, num_levels, flags); });
}
cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t* array, cudaMipmappedArray_const_t mipmapped, unsigned level) {
  return called(__func__, [&] { return level_of(array, mipmapped, level); });
}
cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  return called(__func__, [&] { return free_mipmapped_array(array); });
}
cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags, cudaArray_t array) {
  return called(__func__, [&]() -> cudaError_t {
    const Array* const of = array_of(array);
    if (of == nullptr) return cudaErrorInvalidResourceHandle;
    if (format != nullptr) *format = of->format;
    if (extent != nullptr) *extent = of->extent;
    if (flags != nullptr) *flags = of->flags;
    return cudaSuccess;
  });
}
cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
  return cudaArrayGetInfo(format, nullptr, nullptr, const_cast<cudaArray_t>(array));
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* given, cudaStream_t stream) {
  Box box;
  const cudaError_t error = box_of(*given, box);
  if (error != cudaSuccess) return called(__func__, [&] { return error; });
  return copy_rows(__func__, box, given->kind, stream);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* given) { return cudaMemcpy3DAsync(given, and_wait()); }

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, std::size_t x, std::size_t y, const void* from, std::size_t pitch,
                                     std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(__func__, in_array(to, x, y), in_memory(from, pitch), width, height, kind, stream);
}
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, std::size_t x, std::size_t y, const void* from, std::size_t pitch,
                                std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return copy_rows(__func__, in_array(to, x, y), in_memory(from, pitch), width, height, kind, and_wait());
}
cudaError_t cudaMemcpy2DFromArrayAsync(void* to, std::size_t pitch, cudaArray_const_t from, std::size_t x,
                                       std::size_t y, std::size_t width, std::size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  return copy_rows(__func__, in_memory(to, pitch), in_array(from, x, y), width, height, kind, stream);
}
cudaError_t cudaMemcpy2DFromArray(void* to, std::size_t pitch, cudaArray_const_t from, std::size_t x, std::size_t y,
                                  std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return copy_rows(__func__, in_memory(to, pitch), in_array(from, x, y), width, height, kind, and_wait());
}
cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, std::size_t to_x, std::size_t to_y, cudaArray_const_t from,
                                     std::size_t x, std::size_t y, std::size_t width, std::size_t height,
                                     cudaMemcpyKind kind) {
  return copy_rows(__func__, in_array(to, to_x, to_y), in_array(from, x, y), width, height, kind, and_wait());
}
cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, std::size_t x, std::size_t y, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_bytes(__func__, in_array(to, x, y), in_memory(from, 0), bytes, kind, stream);
}
cudaError_t cudaMemcpyToArray(cudaArray_t to, std::size_t x, std::size_t y, const void* from, std::size_t bytes,
                              cudaMemcpyKind kind) {
  return copy_bytes(__func__, in_array(to, x, y), in_memory(from, 0), bytes, kind, and_wait());
}
cudaError_t cudaMemcpyFromArrayAsync(void* to, cudaArray_const_t from, std::size_t x, std::size_t y, std::size_t bytes,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_bytes(__func__, in_memory(to, 0), in_array(from, x, y), bytes, kind, stream);
}
cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, std::size_t x, std::size_t y, std::size_t bytes,
                                cudaMemcpyKind kind) {
  return copy_bytes(__func__, in_memory(to, 0), in_array(from, x, y), bytes, kind, and_wait());
}
cudaError_t cudaMemcpyArrayToArray(cudaArray_t to, std::size_t to_x, std::size_t to_y, cudaArray_const_t from,
                                   std::size_t x, std::size_t y, std::size_t bytes, cudaMemcpyKind kind) {
  return copy_bytes(__func__, in_array(to, to_x, to_y), in_array(from, x, y), bytes, kind, and_wait());
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* texture, const cudaResourceViewDesc* view) {
  return called(__func__, [&]() -> cudaError_t {
    if (object == nullptr || resource == nullptr || texture == nullptr) return cudaErrorInvalidValue;
    return make_texture(object, *resource, *texture, view);
  });
}
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
  return called(__func__, [&] { return destroy_texture(object); });
}
cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* out, cudaTextureObject_t object) {
  return called(__func__, [&]() -> cudaError_t {
    const TextureObject* const found = find_texture(object, false);
    if (found == nullptr) return cudaErrorInvalidValue;
    give(found->resource, out);
    return cudaSuccess;
  });
}
cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* out, cudaTextureObject_t object) {
  return called(__func__, [&]() -> cudaError_t {
    const TextureObject* const found = find_texture(object, false);
    if (found == nullptr) return cudaErrorInvalidValue;
    *out = found->texture;
    return cudaSuccess;
  });
}
cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* out, cudaTextureObject_t object) {
  return called(__func__, [&]() -> cudaError_t {
    const TextureObject* const found = find_texture(object, false);
    if (found == nullptr || !found->has_view) return cudaErrorInvalidValue;
    give(found->view, out);
    return cudaSuccess;
  });
}
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
  return called(__func__, [&]() -> cudaError_t {
    if (object == nullptr || resource == nullptr) return cudaErrorInvalidValue;
    return make_surface(object, *resource);
  });
}
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
  return called(__func__, [&] { return destroy_texture(object); });
}
cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* out, cudaSurfaceObject_t object) {
  return called(__func__, [&]() -> cudaError_t {
    const TextureObject* const found = find_texture(object, true);
    if (found == nullptr) return cudaErrorInvalidValue;
    give(found->resource, out);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(std::size_t* width, const cudaChannelFormatDesc* format, int device) {
  return called(__func__, [&]() -> cudaError_t {
    Channels channels;
    if (width == nullptr || format == nullptr || device != 0) return cudaErrorInvalidValue;
    *width = static_cast<std::size_t>(device_attribute(cudaDevAttrMaxTexture1DLinearWidth));
    return channels_of(*format, channels);
  });
}

}  // extern "C"

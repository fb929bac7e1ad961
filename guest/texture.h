// Texture and surface objects, of both APIs: what a program describes, and the emulator's object for it.
#pragma once

#include <cuda_runtime_api.h>

#include "guest/array.h"

namespace tessera::guest {

struct TextureObject {
  cudaResourceDesc resource{};
  cudaTextureDesc texture{};
  cudaResourceViewDesc view{};
  bool has_view = false, is_surface = false;
};

/// Errors: cudaErrorInvalidValue for a resource, an alignment, a pitch or an extent that the API does not take;
/// cudaErrorInvalidFilterSetting for a linear filter of integers; cudaErrorNotSupported, said on stderr, for what is
/// not provided: sRGB, seamless cube maps, views of compressed formats.
cudaError_t make_texture(unsigned long long* handle, const cudaResourceDesc& resource, const cudaTextureDesc& texture,
                         const cudaResourceViewDesc* view);
/// Of an array that was made with cudaArraySurfaceLoadStore.
cudaError_t make_surface(unsigned long long* handle, const cudaResourceDesc& resource);
/// 0 is nothing, and destroyed without an error.
cudaError_t destroy_texture(unsigned long long handle);
/// Null: there is no such object.
const TextureObject* find_texture(unsigned long long handle, bool is_surface);

/// Copies of what programs of CUDA 12 have of the structures, which have grown.
void give(const cudaResourceDesc& resource, cudaResourceDesc* to);
void give(const cudaResourceViewDesc& view, cudaResourceViewDesc* to);

}  // namespace tessera::guest

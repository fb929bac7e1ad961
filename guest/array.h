// cudaArray and CUarray: elements of one to four channels in rows of the device's memory, a pitch apart; layers, faces
// and slices follow each other. How hardware lays them out nobody sees.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "guest/memory.h"

namespace tessera::guest {

struct Array {
  void* data = nullptr;
  cudaChannelFormatDesc format{};
  cudaExtent extent{};  ///< in elements; 0 where there is no such dimension; depth also counts layers and faces
  unsigned flags = 0;
  std::size_t element_bytes = 0, pitch = 0;
  bool is_level = false;  ///< of a mipmapped array, which frees it

  std::size_t rows() const { return extent.height == 0 ? 1 : extent.height; }
  std::size_t slices() const { return extent.depth == 0 ? 1 : extent.depth; }
  std::size_t row_bytes() const { return extent.width * element_bytes; }
  /// x in bytes.
  std::byte* at(std::size_t x, std::size_t y, std::size_t z = 0) const {
    return static_cast<std::byte*>(data) + (z * rows() + y) * pitch + x;
  }
  /// The box lies inside; x and width in bytes.
  bool holds(std::size_t x, std::size_t y, std::size_t z, std::size_t width, std::size_t height,
             std::size_t depth) const;
};
inline Array* array_of(cudaArray_const_t array) { return reinterpret_cast<Array*>(const_cast<cudaArray_t>(array)); }

struct MipmappedArray {
  std::vector<Array*> levels;
};
inline MipmappedArray* array_of(cudaMipmappedArray_const_t array) {
  return reinterpret_cast<MipmappedArray*>(const_cast<cudaMipmappedArray_t>(array));
}

/// What the channels of a format are.
struct Channels {
  enum class Kind { signed_integer, unsigned_integer, floating } kind = Kind::floating;
  std::size_t bytes = 0, count = 0;
  bool is_normalized = false;  ///< the format's own: read as numbers from 0 or -1 to 1
};
/// cudaErrorInvalidChannelDescriptor where no array has such elements; cudaErrorNotSupported, said on stderr:
/// compressed and planar formats.
cudaError_t channels_of(const cudaChannelFormatDesc& format, Channels& out);

/// Errors: as channels_of; cudaErrorInvalidValue for extents that the flags or the device's limits do not allow.
cudaError_t make_array(cudaArray_t* array, const cudaChannelFormatDesc& format, cudaExtent extent, unsigned flags);
cudaError_t free_array(cudaArray_t array);
/// At most as many levels as halving the extents gives.
cudaError_t make_mipmapped_array(cudaMipmappedArray_t* array, const cudaChannelFormatDesc& format, cudaExtent extent,
                                 unsigned num_levels, unsigned flags);
cudaError_t free_mipmapped_array(cudaMipmappedArray_t array);
cudaError_t level_of(cudaArray_t* array, cudaMipmappedArray_const_t mipmapped, unsigned level);

/// The bytes that a copy in three dimensions means; positions and extent in elements where an array takes part.
/// cudaErrorInvalidValue: it leaves an array.
cudaError_t box_of(const cudaMemcpy3DParms& given, Box& box);

}  // namespace tessera::guest

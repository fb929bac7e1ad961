// cudaArray and CUarray: elements of one to four channels in rows of the device's memory, a pitch apart. How hardware
// lays them out nobody sees.
#pragma once

#include <cuda_runtime_api.h>

#include "guest/memory.h"

namespace tessera::guest {

struct Array {
  void* data = nullptr;
  cudaChannelFormatDesc format{};
  cudaExtent extent{};  ///< in elements; 0 where there is no such dimension
  unsigned flags = 0;
  std::size_t element_bytes = 0, pitch = 0;

  std::size_t rows() const { return extent.height == 0 ? 1 : extent.height; }
  std::size_t row_bytes() const { return extent.width * element_bytes; }
  /// x in bytes.
  std::byte* at(std::size_t x, std::size_t y, std::size_t z = 0) const {
    return static_cast<std::byte*>(data) + (z * rows() + y) * pitch + x;
  }
};

cudaError_t make_array(cudaArray_t* array, const cudaChannelFormatDesc& format, cudaExtent extent, unsigned flags);
cudaError_t free_array(cudaArray_t array);
/// The bytes that a copy in three dimensions means; positions and extent in elements where an array takes part.
Box box_of(const cudaMemcpy3DParms& given);

}  // namespace tessera::guest

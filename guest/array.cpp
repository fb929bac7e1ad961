#include "guest/array.h"

namespace tessera::guest {

cudaError_t make_array(cudaArray_t* array, const cudaChannelFormatDesc& format, cudaExtent extent, unsigned flags) {
  auto* const made = new Array;
  made->format = format;
  made->extent = extent;
  made->flags = flags;
  made->element_bytes = static_cast<std::size_t>(format.x + format.y + format.z + format.w) / 8;
  made->pitch = made->row_bytes();
  const std::size_t slices = extent.depth == 0 ? 1 : extent.depth;
  const cudaError_t error =
      made->element_bytes == 0 || extent.width == 0
          ? cudaErrorInvalidValue
          : Blocks::instance().allocate(&made->data, made->pitch * made->rows() * slices, BlockKind::device);
  if (error != cudaSuccess) {
    delete made;
    return error;
  }
  *array = reinterpret_cast<cudaArray_t>(made);
  return cudaSuccess;
}

cudaError_t free_array(cudaArray_t array) {
  auto* const of = reinterpret_cast<Array*>(array);
  if (of == nullptr) return cudaSuccess;
  const cudaError_t error = Blocks::instance().free(of->data);
  delete of;
  return error;
}

Box box_of(const cudaMemcpy3DParms& given) {
  const auto* const to = reinterpret_cast<const Array*>(given.dstArray);
  const auto* const from = reinterpret_cast<const Array*>(given.srcArray);
  const std::size_t element = to != nullptr ? to->element_bytes : from != nullptr ? from->element_bytes : 1;
  Box box;
  box.width = given.extent.width * element;
  box.height = given.extent.height == 0 ? 1 : given.extent.height;
  box.depth = given.extent.depth == 0 ? 1 : given.extent.depth;
  const auto place = [&](const Array* array, const cudaPitchedPtr& pointer, const cudaPos& at, std::size_t& pitch,
                         std::size_t& slice) -> std::byte* {
    if (array != nullptr) {
      pitch = array->pitch;
      slice = pitch * array->rows();
      return array->at(at.x * element, at.y, at.z);
    }
    pitch = pointer.pitch;
    slice = pitch * pointer.ysize;
    return static_cast<std::byte*>(pointer.ptr) + at.z * slice + at.y * pitch + at.x;
  };
  box.to = place(to, given.dstPtr, given.dstPos, box.to_pitch, box.to_slice);
  box.from = place(from, given.srcPtr, given.srcPos, box.from_pitch, box.from_slice);
  return box;
}

}  // namespace tessera::guest

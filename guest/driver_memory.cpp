// The CUDA driver's memory: allocations, copies, fills, facts about pointers, tensor maps.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>

#include "emulator/memory/tensor_map.h"
#include "guest/array.h"
#include "guest/driver.h"
#include "guest/driver_work.h"
#include "tessera/tensor_map.h"

using namespace tessera::guest;

namespace {

CUresult copy_row(const char* function, std::uint64_t to, std::uint64_t from, std::size_t bytes, CUstream stream) {
  return drive(function, [&] {
    Box box;
    box.to = pointer_of(to);
    box.from = pointer_of(from);
    box.width = bytes;
    return submit(stream, box);
  });
}

CUresult fill_rows(const char* function, CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t element,
                   std::size_t width, std::size_t height, CUstream stream) {
  return drive(function, [&] {
    Fill fill;
    fill.to = pointer_of(to);
    fill.pitch = pitch;
    fill.value = value;
    fill.element_bytes = element;
    fill.width = width;
    fill.height = height;
    return submit(stream, fill);
  });
}

// A side of a copy in two or three dimensions.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t x, y, z, pitch, height;
  const Array* of() const { return type == CU_MEMORYTYPE_ARRAY ? reinterpret_cast<const Array*>(array) : nullptr; }
  const std::byte* first() const {
    if (of() != nullptr) return of()->at(x, y, z);
    const auto* const base = static_cast<const std::byte*>(type == CU_MEMORYTYPE_HOST ? host : pointer_of(device));
    return base + (z * height + y) * pitch + x;
  }
  std::size_t row_step() const { return of() != nullptr ? of()->pitch : pitch; }
  std::size_t slice_step() const { return of() != nullptr ? of()->pitch * of()->rows() : pitch * height; }
  bool holds(std::size_t width, std::size_t rows, std::size_t slices) const {
    return type != CU_MEMORYTYPE_ARRAY || (array != nullptr && of()->holds(x, y, z, width, rows, slices));
  }
};

cudaError_t box_between(const Side& to, const Side& from, std::size_t width, std::size_t height, std::size_t depth,
                        Box& box) {
  if (!to.holds(width, height, depth) || !from.holds(width, height, depth)) return cudaErrorInvalidValue;
  box.to = const_cast<std::byte*>(to.first());
  box.from = from.first();
  box.to_pitch = to.row_step();
  box.from_pitch = from.row_step();
  box.to_slice = to.slice_step();
  box.from_slice = from.slice_step();
  box.width = width;
  box.height = height;
  box.depth = depth;
  return cudaSuccess;
}
CUresult copy_2d(const char* function, const CUDA_MEMCPY2D& c, CUstream stream) {
  return drive(function, [&] {
    Box box;
    const cudaError_t error =
        box_between({c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY, 0, c.dstPitch, 0},
                    {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY, 0, c.srcPitch, 0},
                    c.WidthInBytes, c.Height, 1, box);
    return error != cudaSuccess ? error : submit(stream, box);
  });
}
CUresult copy_3d(const char* function, const CUDA_MEMCPY3D& c, CUstream stream) {
  return drive(function, [&] {
    Box box;
    const cudaError_t error = box_of(c, box);
    return error != cudaSuccess ? error : submit(stream, box);
  });
}

cudaError_t pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Block* const block = Blocks::instance().find(pointer_of(pointer));
  if (block == nullptr) return cudaErrorInvalidValue;
  const bool is_host = block->kind == BlockKind::pinned || block->kind == BlockKind::registered;
  const std::uint64_t offset = pointer - block->address;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<void**>(data) = only_context();
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = block->on_device + offset;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (block->kind == BlockKind::device) return cudaErrorInvalidValue;
      *static_cast<void**>(data) = pointer_of(pointer);
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(data) = block->kind == BlockKind::managed ? 1 : 0;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = block->on_device;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = block->bytes;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(data) = 1;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = block->address;
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t tessera::guest::box_of(const CUDA_MEMCPY3D& c, Box& box) {
  return box_between(
      Side{c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch, c.dstHeight},
      Side{c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch, c.srcHeight},
      c.WidthInBytes, c.Height, c.Depth, box);
}

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  return drive(__func__, [&]() -> cudaError_t {
    if (bytes == 0) return cudaErrorInvalidValue;
    return Blocks::instance().allocate(reinterpret_cast<void**>(pointer), bytes, BlockKind::device);
  });
}
CUresult cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned flags) {
  return static_cast<CUresult>(cudaMallocManaged(reinterpret_cast<void**>(pointer), bytes, flags));
}
// A captured stream allocates when its graph is launched.
CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream stream) {
  return static_cast<CUresult>(cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream));
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width, std::size_t height, unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(pointer, *pitch * height);
}
CUresult cuMemFree_v2(CUdeviceptr pointer) { return static_cast<CUresult>(cudaFree(pointer_of(pointer))); }
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return static_cast<CUresult>(cudaFreeAsync(pointer_of(pointer), stream));
}
CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return static_cast<CUresult>(cudaHostAlloc(pointer, bytes, flags));
}
CUresult cuMemHostGetFlags(unsigned* flags, void* host) { return static_cast<CUresult>(cudaHostGetFlags(flags, host)); }
CUresult cuMemAllocHost_v2(void** pointer, std::size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
CUresult cuMemFreeHost(void* pointer) { return static_cast<CUresult>(cudaFreeHost(pointer)); }
CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  return drive(__func__, [&] { return Blocks::instance().register_host(pointer, bytes, flags); });
}
CUresult cuMemHostUnregister(void* pointer) { return static_cast<CUresult>(cudaHostUnregister(pointer)); }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pointer, void* host, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return drive(__func__,
               [&] { return pointer_attribute(pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address_of(host)); });
}
CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *total = static_cast<std::size_t>(Session::instance().gpu().memory_bytes);
  *free = *total - Blocks::instance().used_bytes();
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
  return drive(__func__, [&]() -> cudaError_t {
    const Block* const block = Blocks::instance().find(pointer_of(pointer));
    if (block == nullptr) return cudaErrorInvalidValue;
    if (base != nullptr) *base = block->on_device;
    if (bytes != nullptr) *bytes = block->bytes;
    return cudaSuccess;
  });
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return drive(__func__, [&] { return pointer_attribute(data, attribute, pointer); });
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  return drive(__func__, [&] {
    for (unsigned i = 0; i < count; ++i)
      if (pointer_attribute(data[i], attributes[i], pointer) != cudaSuccess) std::memset(data[i], 0, 4);
    return cudaSuccess;
  });
}
CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) { return CUDA_SUCCESS; }
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy_row(__func__, to, from, bytes, and_wait());
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_row(__func__, to, from, bytes, stream);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  return copy_row(__func__, to, address_of(from), bytes, and_wait());
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return copy_row(__func__, to, address_of(from), bytes, stream);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  return copy_row(__func__, address_of(to), from, bytes, and_wait());
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_row(__func__, address_of(to), from, bytes, stream);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy_row(__func__, to, from, bytes, and_wait());
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_row(__func__, to, from, bytes, stream);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* given) { return copy_2d(__func__, *given, and_wait()); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* given) { return copy_2d(__func__, *given, and_wait()); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* given, CUstream stream) { return copy_2d(__func__, *given, stream); }
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* given) { return copy_3d(__func__, *given, and_wait()); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* given, CUstream stream) { return copy_3d(__func__, *given, stream); }

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count) {
  return fill_rows(__func__, to, 0, value, 1, count, 1, and_wait());
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count) {
  return fill_rows(__func__, to, 0, value, 2, count, 1, and_wait());
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t count) {
  return fill_rows(__func__, to, 0, value, 4, count, 1, and_wait());
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return fill_rows(__func__, to, 0, value, 1, count, 1, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  return fill_rows(__func__, to, 0, value, 2, count, 1, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return fill_rows(__func__, to, 0, value, 4, count, 1, stream);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                         std::size_t height) {
  return fill_rows(__func__, to, pitch, value, 1, width, height, and_wait());
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                          std::size_t height) {
  return fill_rows(__func__, to, pitch, value, 2, width, height, and_wait());
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height) {
  return fill_rows(__func__, to, pitch, value, 4, width, height, and_wait());
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                           std::size_t height, CUstream stream) {
  return fill_rows(__func__, to, pitch, value, 1, width, height, stream);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                            std::size_t height, CUstream stream) {
  return fill_rows(__func__, to, pitch, value, 2, width, height, stream);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
                            CUstream stream) {
  return fill_rows(__func__, to, pitch, value, 4, width, height, stream);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* global,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return drive(__func__, [&]() -> cudaError_t {
    if (out == nullptr || rank < 1 || rank > 5) return cudaErrorInvalidValue;
    tessera::ResolvedTensorMap map;
    map.type = static_cast<tessera::TensorMapType>(type);
    map.rank = rank;
    map.address = address_of(global);
    for (cuuint32_t i = 0; i < rank; ++i) {
      map.dims[i] = dims[i];
      if (i + 1 < rank) map.strides_bytes[i] = strides[i];
      map.box[i] = box[i];
      map.element_strides[i] = element_strides != nullptr ? element_strides[i] : 1;
    }
    map.interleave = static_cast<tessera::TensorMapInterleave>(interleave);
    map.swizzle = static_cast<tessera::TensorMapSwizzle>(swizzle);
    map.l2_promotion = static_cast<tessera::TensorMapL2Promotion>(promotion);
    map.fill = static_cast<tessera::TensorMapFill>(fill);
    tessera::TensorMapObject object;
    Session::instance().device().encode(map, object);
    std::memcpy(out, object.bytes.data(), sizeof(CUtensorMap));
    return cudaSuccess;
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* global) {
  if (map == nullptr || address_of(global) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  std::array<std::byte, sizeof(CUtensorMap)> bytes{};
  std::memcpy(bytes.data(), map, sizeof(*map));
  if (tessera::emulator::replace_field(bytes, tessera::emulator::MapField::global_address, 0, address_of(global)))
    return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(map, bytes.data(), sizeof(*map));
  return CUDA_SUCCESS;
}

}  // extern "C"

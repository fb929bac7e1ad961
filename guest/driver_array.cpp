// The CUDA driver's arrays, mipmapped arrays, copies between arrays and memory, texture and surface objects.
#include <cuda.h>

#include <cstring>
#include <map>
#include <optional>

#include "guest/array.h"
#include "guest/device_facts.h"
#include "guest/driver.h"
#include "guest/texture.h"
#include "guest/work.h"

using namespace tessera::guest;

namespace {

cudaArray_t runtime_array(CUarray array) { return reinterpret_cast<cudaArray_t>(array); }
Array* array_of(CUarray array) { return reinterpret_cast<Array*>(array); }
cudaMipmappedArray_t runtime_array(CUmipmappedArray array) { return reinterpret_cast<cudaMipmappedArray_t>(array); }

struct Format {
  CUarray_format number;
  cudaChannelFormatKind kind;
  int bits;
};
constexpr Format kFormats[] = {{CU_AD_FORMAT_UNSIGNED_INT8, cudaChannelFormatKindUnsigned, 8},
                               {CU_AD_FORMAT_UNSIGNED_INT16, cudaChannelFormatKindUnsigned, 16},
                               {CU_AD_FORMAT_UNSIGNED_INT32, cudaChannelFormatKindUnsigned, 32},
                               {CU_AD_FORMAT_SIGNED_INT8, cudaChannelFormatKindSigned, 8},
                               {CU_AD_FORMAT_SIGNED_INT16, cudaChannelFormatKindSigned, 16},
                               {CU_AD_FORMAT_SIGNED_INT32, cudaChannelFormatKindSigned, 32},
                               {CU_AD_FORMAT_HALF, cudaChannelFormatKindFloat, 16},
                               {CU_AD_FORMAT_FLOAT, cudaChannelFormatKindFloat, 32}};

cudaError_t format_of(CUarray_format number, unsigned channels, cudaChannelFormatDesc& out) {
  if (channels != 1 && channels != 2 && channels != 4) return cudaErrorInvalidValue;
  const auto set = [&](cudaChannelFormatKind kind, int bits) {
    out = {bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 2 ? bits : 0, kind};
    return cudaSuccess;
  };
  for (const Format& format : kFormats)
    if (format.number == number) return set(format.kind, format.bits);
  if (number >= CU_AD_FORMAT_UNORM_INT8X1 && number <= CU_AD_FORMAT_SNORM_INT16X4) {
    const int which = number - CU_AD_FORMAT_UNORM_INT8X1;
    if (channels != 1u << which % 3) return cudaErrorInvalidValue;
    return set(static_cast<cudaChannelFormatKind>(static_cast<int>(cudaChannelFormatKindUnsignedNormalized8X1) + which),
               which / 3 % 2 == 0 ? 8 : 16);
  }
  Session::instance().add_problem("arrays of compressed, planar and 10-bit formats are not provided");
  return cudaErrorNotSupported;
}
CUarray_format number_of(const cudaChannelFormatDesc& format) {
  for (const Format& known : kFormats)
    if (known.kind == format.f && known.bits == format.x) return known.number;
  return static_cast<CUarray_format>(static_cast<int>(CU_AD_FORMAT_UNORM_INT8X1) + static_cast<int>(format.f) -
                                     static_cast<int>(cudaChannelFormatKindUnsignedNormalized8X1));
}

// The driver has no error of its own for a format.
cudaError_t as_driver(cudaError_t error) {
  const bool is_runtimes = error == cudaErrorInvalidChannelDescriptor || error == cudaErrorInvalidFilterSetting;
  return is_runtimes ? cudaErrorInvalidValue : error;
}

cudaError_t create(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& given) {
  cudaChannelFormatDesc format{};
  if (const cudaError_t error = format_of(given.Format, given.NumChannels, format); error != cudaSuccess) return error;
  return as_driver(
      make_array(reinterpret_cast<cudaArray_t*>(array), format, {given.Width, given.Height, given.Depth}, given.Flags));
}
CUDA_ARRAY3D_DESCRIPTOR descriptor_of(const Array& array) {
  CUDA_ARRAY3D_DESCRIPTOR made{};
  made.Width = array.extent.width;
  made.Height = array.extent.height;
  made.Depth = array.extent.depth;
  made.Format = number_of(array.format);
  made.NumChannels = static_cast<unsigned>(array.element_bytes * 8 / static_cast<std::size_t>(array.format.x));
  made.Flags = array.flags;
  return made;
}

// Bytes of an array of one dimension from an offset on, or of memory.
struct LineSide {
  const Array* array = nullptr;
  std::size_t offset = 0;
  const void* memory = nullptr;
  bool holds(std::size_t bytes) const { return array == nullptr || array->holds(offset, 0, 0, bytes, 1, 1); }
  void* first() const { return array == nullptr ? const_cast<void*>(memory) : array->at(offset, 0); }
};
CUresult copy_bytes(const char* function, const LineSide& to, const LineSide& from, std::size_t bytes,
                    CUstream stream) {
  return drive(function, [&]() -> cudaError_t {
    if (!to.holds(bytes) || !from.holds(bytes)) return cudaErrorInvalidValue;
    Box box;
    box.to = to.first();
    box.from = from.first();
    box.width = bytes;
    return submit(stream, box);
  });
}

// What the driver's functions were given, for those who ask.
struct Given {
  CUDA_RESOURCE_DESC resource{};
  std::optional<CUDA_TEXTURE_DESC> texture;
};
std::map<unsigned long long, Given>& given() {
  static auto* const made = new std::map<unsigned long long, Given>;
  return *made;
}
const Given* find_given(const char* function, unsigned long long object, bool is_surface, cudaError_t& error) {
  const auto it = given().find(object);
  if (it != given().end() && find_texture(object, is_surface) != nullptr) return &it->second;
  error = find_texture(object, is_surface) == nullptr ? cudaErrorInvalidValue : missing(function);
  return nullptr;
}

cudaError_t convert(const CUDA_RESOURCE_DESC& from, cudaResourceDesc& to) {
  to.resType = static_cast<cudaResourceType>(from.resType);
  switch (from.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      to.res.array.array = runtime_array(from.res.array.hArray);
      return cudaSuccess;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      to.res.mipmap.mipmap = runtime_array(from.res.mipmap.hMipmappedArray);
      return cudaSuccess;
    case CU_RESOURCE_TYPE_LINEAR:
      to.res.linear.devPtr = pointer_of(from.res.linear.devPtr);
      to.res.linear.sizeInBytes = from.res.linear.sizeInBytes;
      return format_of(from.res.linear.format, from.res.linear.numChannels, to.res.linear.desc);
    case CU_RESOURCE_TYPE_PITCH2D:
      to.res.pitch2D.devPtr = pointer_of(from.res.pitch2D.devPtr);
      to.res.pitch2D.width = from.res.pitch2D.width;
      to.res.pitch2D.height = from.res.pitch2D.height;
      to.res.pitch2D.pitchInBytes = from.res.pitch2D.pitchInBytes;
      return format_of(from.res.pitch2D.format, from.res.pitch2D.numChannels, to.res.pitch2D.desc);
    default:
      return cudaErrorInvalidValue;
  }
}
cudaTextureDesc convert(const CUDA_TEXTURE_DESC& from) {
  cudaTextureDesc to{};
  for (int i = 0; i < 3; ++i) to.addressMode[i] = static_cast<cudaTextureAddressMode>(from.addressMode[i]);
  to.filterMode = static_cast<cudaTextureFilterMode>(from.filterMode);
  to.readMode = (from.flags & CU_TRSF_READ_AS_INTEGER) != 0 ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
  to.normalizedCoords = (from.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0 ? 1 : 0;
  to.sRGB = (from.flags & CU_TRSF_SRGB) != 0 ? 1 : 0;
  to.seamlessCubemap = (from.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0 ? 1 : 0;
  to.maxAnisotropy = from.maxAnisotropy;
  to.mipmapFilterMode = static_cast<cudaTextureFilterMode>(from.mipmapFilterMode);
  to.mipmapLevelBias = from.mipmapLevelBias;
  to.minMipmapLevelClamp = from.minMipmapLevelClamp;
  to.maxMipmapLevelClamp = from.maxMipmapLevelClamp;
  std::memcpy(to.borderColor, from.borderColor, sizeof(to.borderColor));
  return to;
}

}  // namespace

extern "C" {

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  return drive(__func__, [&] {
    return create(array, {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0});
  });
}
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  return drive(__func__, [&] { return create(array, *wanted); });
}
CUresult cuArrayDestroy(CUarray array) {
  return drive(__func__, [&]() -> cudaError_t {
    return array == nullptr ? cudaErrorInvalidResourceHandle : free_array(runtime_array(array));
  });
}
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray array) {
  return drive(__func__, [&]() -> cudaError_t {
    if (array == nullptr) return cudaErrorInvalidResourceHandle;
    const CUDA_ARRAY3D_DESCRIPTOR found = descriptor_of(*array_of(array));
    *out = {found.Width, found.Height, found.Format, found.NumChannels};
    return cudaSuccess;
  });
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray array) {
  return drive(__func__, [&]() -> cudaError_t {
    if (array == nullptr) return cudaErrorInvalidResourceHandle;
    *out = descriptor_of(*array_of(array));
    return cudaSuccess;
  });
}
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted, unsigned num_levels) {
  return drive(__func__, [&]() -> cudaError_t {
    cudaChannelFormatDesc format{};
    const cudaError_t error = format_of(wanted->Format, wanted->NumChannels, format);
    if (error != cudaSuccess) return error;
    return as_driver(make_mipmapped_array(reinterpret_cast<cudaMipmappedArray_t*>(array), format,
                                          {wanted->Width, wanted->Height, wanted->Depth}, num_levels, wanted->Flags));
  });
}
CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray array, unsigned number) {
  return drive(__func__, [&] { return level_of(reinterpret_cast<cudaArray_t*>(level), runtime_array(array), number); });
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return drive(__func__, [&] { return free_mipmapped_array(runtime_array(array)); });
}

CUresult cuMemcpyHtoA_v2(CUarray to, std::size_t offset, const void* from, std::size_t bytes) {
  return copy_bytes(__func__, {array_of(to), offset}, {nullptr, 0, from}, bytes, and_wait());
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, std::size_t offset, const void* from, std::size_t bytes, CUstream stream) {
  return copy_bytes(__func__, {array_of(to), offset}, {nullptr, 0, from}, bytes, stream);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, std::size_t offset, std::size_t bytes) {
  return copy_bytes(__func__, {nullptr, 0, to}, {array_of(from), offset}, bytes, and_wait());
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, std::size_t offset, std::size_t bytes, CUstream stream) {
  return copy_bytes(__func__, {nullptr, 0, to}, {array_of(from), offset}, bytes, stream);
}
CUresult cuMemcpyDtoA_v2(CUarray to, std::size_t offset, CUdeviceptr from, std::size_t bytes) {
  return copy_bytes(__func__, {array_of(to), offset}, {nullptr, 0, pointer_of(from)}, bytes, and_wait());
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, std::size_t offset, std::size_t bytes) {
  return copy_bytes(__func__, {nullptr, 0, pointer_of(to)}, {array_of(from), offset}, bytes, and_wait());
}
CUresult cuMemcpyAtoA_v2(CUarray to, std::size_t to_offset, CUarray from, std::size_t offset, std::size_t bytes) {
  return copy_bytes(__func__, {array_of(to), to_offset}, {array_of(from), offset}, bytes, and_wait());
}

CUresult cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* texture,
                           const CUDA_RESOURCE_VIEW_DESC* view) {
  return drive(__func__, [&]() -> cudaError_t {
    if (object == nullptr || resource == nullptr || texture == nullptr) return cudaErrorInvalidValue;
    cudaResourceDesc converted{};
    cudaResourceViewDesc same{};
    if (view != nullptr) std::memcpy(&same, view, sizeof(same));  // the same fields, and numbers of formats
    cudaError_t error = convert(*resource, converted);
    if (error == cudaSuccess)
      error = make_texture(object, converted, convert(*texture), view == nullptr ? nullptr : &same);
    if (error == cudaSuccess) given()[*object] = {*resource, *texture};
    return as_driver(error);
  });
}
CUresult cuTexObjectDestroy(CUtexObject object) {
  return drive(__func__, [&] {
    given().erase(object);
    return destroy_texture(object);
  });
}
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject object) {
  return drive(__func__, [&] {
    cudaError_t error = cudaSuccess;
    if (const Given* const found = find_given("cuTexObjectGetResourceDesc", object, false, error))
      *out = found->resource;
    return error;
  });
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject object) {
  return drive(__func__, [&] {
    cudaError_t error = cudaSuccess;
    if (const Given* const found = find_given("cuTexObjectGetTextureDesc", object, false, error))
      *out = *found->texture;
    return error;
  });
}
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject object) {
  return drive(__func__, [&]() -> cudaError_t {
    const TextureObject* const found = find_texture(object, false);
    if (found == nullptr || !found->has_view) return cudaErrorInvalidValue;
    std::memcpy(out, &found->view, sizeof(*out));
    return cudaSuccess;
  });
}
CUresult cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource) {
  return drive(__func__, [&]() -> cudaError_t {
    if (object == nullptr || resource == nullptr) return cudaErrorInvalidValue;
    cudaResourceDesc converted{};
    cudaError_t error = convert(*resource, converted);
    if (error == cudaSuccess) error = make_surface(object, converted);
    if (error == cudaSuccess) given()[*object] = {*resource, std::nullopt};
    return as_driver(error);
  });
}
CUresult cuSurfObjectDestroy(CUsurfObject object) { return cuTexObjectDestroy(object); }
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject object) {
  return drive(__func__, [&] {
    cudaError_t error = cudaSuccess;
    if (const Given* const found = find_given("cuSurfObjectGetResourceDesc", object, true, error))
      *out = found->resource;
    return error;
  });
}
CUresult cuDeviceGetTexture1DLinearMaxWidth(std::size_t* width, CUarray_format format, unsigned channels, CUdevice) {
  return drive(__func__, [&]() -> cudaError_t {
    cudaChannelFormatDesc converted{};
    *width = static_cast<std::size_t>(device_attribute(cudaDevAttrMaxTexture1DLinearWidth));
    return format_of(format, channels, converted);
  });
}

}  // extern "C"

// The CUDA driver API as far as it is used: own declarations of types and functions (no CUDA header is needed to
// build), symbols by dlopen and cuGetProcAddress (no driver is needed to start). CUDA Driver API reference, 12.4.
//
// Oldest driver: CUDA 12.4. cuGetProcAddress in its present form and context ids came with 12.0, cuFuncGetParamInfo
// (a plan's parameters are compared with the code's) and cuFuncLoad (nothing is left to load at the first launch, which
// may be inside a capture) with 12.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/cuda_device.h"

namespace tessera {

using CuResult = int;  // 0 is success
using CuDevice = int;
using CuContext = struct CuContextTag*;
using CuModule = struct CuModuleTag*;
using CuFunction = struct CuFunctionTag*;
using CuStream = struct CuStreamTag*;
using CuEvent = struct CuEventTag*;
using CuPointer = std::uint64_t;

inline constexpr CuResult kCuErrorInvalidContext = 201;
inline constexpr CuResult kCuErrorStreamCaptureImplicit = 906;

/// CUdevice_attribute
inline constexpr int kCuNumSms = 16, kCuL2Bytes = 38, kCuComputeMajor = 75, kCuComputeMinor = 76,
                     kCuPageableMemoryAccess = 88, kCuMaxSmemBytesOptIn = 97;
/// CUfunction_attribute
inline constexpr int kCuMaxDynamicSmemBytes = 8, kCuNonPortableClusterAllowed = 14;
/// CUlaunchAttributeID
inline constexpr int kCuLaunchClusterDimension = 4, kCuLaunchProgrammaticStreamSerialization = 6;

/// CUlaunchAttribute
struct CuLaunchAttribute {
  int id;
  int padding;
  union alignas(8) {
    unsigned char bytes[64];
    std::uint32_t cluster[3];
    int is_allowed;
  } value;
};
static_assert(sizeof(CuLaunchAttribute) == 72);

/// CUlaunchConfig
struct CuLaunchConfig {
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t dynamic_smem_bytes;
  CuStream stream;
  const CuLaunchAttribute* attributes;
  std::uint32_t num_attributes;
};
static_assert(offsetof(CuLaunchConfig, stream) == 32 && sizeof(CuLaunchConfig) == 56);

struct CudaApi {
  CuResult (*init)(unsigned flags);
  CuResult (*driver_version)(int* version);
  CuResult (*error_name)(CuResult result, const char** text);
  CuResult (*error_string)(CuResult result, const char** text);
  CuResult (*device_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*device_name)(char* name, int bytes, CuDevice device);
  CuResult (*device_attribute)(int* value, int attribute, CuDevice device);
  CuResult (*device_memory)(std::size_t* bytes, CuDevice device);
  CuResult (*primary_retain)(CuContext* context, CuDevice device);
  CuResult (*primary_release)(CuDevice device);
  CuResult (*context_current)(CuContext* context);
  CuResult (*context_set_current)(CuContext context);
  CuResult (*context_push)(CuContext context);
  CuResult (*context_pop)(CuContext* context);
  CuResult (*context_id)(CuContext context, unsigned long long* id);
  CuResult (*context_device)(CuDevice* device);
  CuResult (*memory_allocate)(CuPointer* pointer, std::size_t bytes);
  CuResult (*memory_free)(CuPointer pointer);
  CuResult (*pointer_attribute)(void* data, int attribute, CuPointer pointer);
  CuResult (*copy_to_device)(CuPointer to, const void* from, std::size_t bytes, CuStream stream);
  CuResult (*copy_to_host)(void* to, CuPointer from, std::size_t bytes, CuStream stream);
  CuResult (*set_bytes)(CuPointer to, unsigned char value, std::size_t count, CuStream stream);
  CuResult (*stream_create)(CuStream* stream, unsigned flags);
  CuResult (*stream_destroy)(CuStream stream);
  CuResult (*stream_synchronize)(CuStream stream);
  CuResult (*stream_is_capturing)(CuStream stream, int* status);
  CuResult (*event_create)(CuEvent* event, unsigned flags);
  CuResult (*event_destroy)(CuEvent event);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_synchronize)(CuEvent event);
  CuResult (*event_elapsed)(float* milliseconds, CuEvent from, CuEvent to);
  CuResult (*module_load)(CuModule* module, const void* image, unsigned num_options, int* options, void** values);
  CuResult (*module_unload)(CuModule module);
  CuResult (*module_function)(CuFunction* function, CuModule module, const char* name);
  CuResult (*function_load)(CuFunction function);
  CuResult (*function_set)(CuFunction function, int attribute, int value);
  CuResult (*function_parameter)(CuFunction function, std::size_t index, std::size_t* offset, std::size_t* bytes);
  CuResult (*launch)(const CuLaunchConfig* config, CuFunction function, void** parameters, void** extra);
  CuResult (*encode_tiled)(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* dims,
                           const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* element_strides,
                           int interleave, int swizzle, int l2_promotion, int fill);
};

/// The driver of this process, opened and initialised at the first call.
struct CudaDriver {
  CudaApi api{};
  int version = 0;          ///< 13000 for 13.0
  int num_devices = 0;      ///< 0 whenever unavailable
  std::string unavailable;  ///< why no GPU can be used; empty when one can
};
const CudaDriver& cuda_driver();
/// The same, for callers that cannot go on without: throws Error{device} with the reason.
const CudaApi& require_cuda();

/// "CUDA_ERROR_INVALID_VALUE (1: invalid argument)".
std::string cuda_error_text(const CudaApi& api, CuResult result);

[[noreturn]] void throw_cuda_error(const CudaApi& api, CuResult result, const char* call, std::string_view context);
/// The one exit for failing driver calls: Error{device} "CALL failed: NAME (CODE: text): context".
inline void check(const CudaApi& api, CuResult result, const char* call, std::string_view context) {
  if (result != 0) throw_cuda_error(api, result, call, context);
}

}  // namespace tessera

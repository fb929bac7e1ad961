// The rest of the CUDA runtime's surface (see cuda_runtime.cpp): streams and events, which are trivial because work
// runs inside the call that asks for it, and facts about the device.
#include <cuda_runtime_api.h>

#include <cstring>

#include "tests/external/cuda_runtime.h"

using tessera::external::device;
using tessera::external::is_kernel;

extern "C" {

// Everything runs inside the call that asks for it.
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(std::uintptr_t{1});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1.0f;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

// Facts about the device.
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const tessera::DeviceInfo& info = device().info();
  std::memset(properties, 0, sizeof(*properties));
  std::strncpy(properties->name, info.name.c_str(), sizeof(properties->name) - 1);
  properties->major = info.compute_major;
  properties->minor = info.compute_minor;
  properties->multiProcessorCount = info.num_sms;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = static_cast<std::size_t>(info.max_dynamic_smem_bytes);
  properties->sharedMemPerMultiprocessor = properties->sharedMemPerBlockOptin + 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->cooperativeLaunch = 1;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->totalGlobalMem = std::size_t{64} << 30;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->l2CacheSize = static_cast<int>(info.l2_bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const tessera::DeviceInfo& info = device().info();
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = info.num_sms;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = info.compute_major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = info.compute_minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(info.max_dynamic_smem_bytes);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(info.max_dynamic_smem_bytes) + 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 49152;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = 0x7FFFFFFF;
      break;
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13020;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->maxThreadsPerBlock = 1024;
  // CUB takes its parameters of this target: another one than the program was compiled for is no kernel of it.
  attributes->ptxVersion = attributes->binaryVersion =
      10 * device().info().compute_major + device().info().compute_minor;
  attributes->numRegs = 64;
  return is_kernel(host) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) {
  *clusters = device().info().num_sms / 2;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "error"; }
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
}  // extern "C"

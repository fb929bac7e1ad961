// What programs ask the CUDA driver besides: the device and its context by other names, streams' attributes, peers of
// one device, occupancy by a configuration, copies between contexts.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "guest/capture.h"
#include "guest/device_facts.h"
#include "guest/driver.h"

using namespace tessera::guest;

namespace {

CUresult same(cudaError_t error) { return static_cast<CUresult>(error); }
CUresult is_only(CUdevice device) { return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
const void* host_of(CUfunction function) { return function; }

// Both structures have the same fields; attributes are one structure in both APIs.
cudaLaunchConfig_t same_config(const CUlaunchConfig& given) {
  cudaLaunchConfig_t same{};
  same.gridDim = {given.gridDimX, given.gridDimY, given.gridDimZ};
  same.blockDim = {given.blockDimX, given.blockDimY, given.blockDimZ};
  same.dynamicSmemBytes = given.sharedMemBytes;
  same.stream = given.hStream;
  same.attrs = reinterpret_cast<cudaLaunchAttribute*>(given.attrs);
  same.numAttrs = given.numAttrs;
  return same;
}

}  // namespace

// Older forms, which the header has renamed.
#undef cuDeviceGetUuid
#undef cuDeviceTotalMem
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
#undef cuCtxDestroy
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuStreamDestroy
#undef cuEventDestroy
#undef cuStreamBeginCapture

extern "C" {

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char*) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
CUresult cuDeviceGetLuid(char* luid, unsigned* mask, CUdevice device) {
  std::memset(luid, 0, 8);  // Windows has one
  *mask = 0;
  return is_only(device);
}
CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) {  // what fits into 32 bits
  std::size_t all = 0;
  const CUresult error = cuDeviceTotalMem_v2(&all, device);
  *bytes = static_cast<unsigned>(std::min<std::size_t>(all, ~0u));
  return error;
}
CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto of = [](int attribute) { return device_attribute(attribute); };
  *properties = {};
  properties->maxThreadsPerBlock = of(cudaDevAttrMaxThreadsPerBlock);
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7FFFFFFF;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->sharedMemPerBlock = of(cudaDevAttrMaxSharedMemoryPerBlock);
  properties->totalConstantMemory = of(cudaDevAttrTotalConstantMemory);
  properties->SIMDWidth = of(cudaDevAttrWarpSize);
  properties->memPitch = of(cudaDevAttrMaxPitch);
  properties->regsPerBlock = of(cudaDevAttrMaxRegistersPerBlock);
  properties->clockRate = of(cudaDevAttrClockRate);
  properties->textureAlign = of(cudaDevAttrTextureAlignment);
  return is_only(device);
}
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  return same(cudaDeviceGetP2PAttribute(value, static_cast<cudaDeviceP2PAttr>(attribute), from, to));
}
CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice device) {
  *supported = 0;
  return is_only(device);
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return same(cudaDeviceGetGraphMemAttribute(device, static_cast<cudaGraphMemAttributeType>(attribute), value));
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute, void*) { return is_only(device); }
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return is_only(device); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }
CUresult cuCtxPopCurrent(CUcontext* context) { return cuCtxPopCurrent_v2(context); }
CUresult cuCtxAttach(CUcontext* context, unsigned) { return cuCtxGetCurrent(context); }
CUresult cuCtxDetach(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult cuCtxSetFlags(unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxGetId(CUcontext, unsigned long long* id) {
  *id = 1;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}
CUresult cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }
CUresult cuCtxRecordEvent(CUcontext, CUevent event) { return cuEventRecord(event, nullptr); }
CUresult cuCtxWaitEvent(CUcontext, CUevent event) { return cuStreamWaitEvent(nullptr, event, 0); }
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_ERROR_INVALID_DEVICE; }
CUresult cuCtxDisablePeerAccess(CUcontext) { return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED; }
CUresult cuProfilerInitialize(const char*, const char*, int) { return CUDA_SUCCESS; }
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope) {
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }
CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }
CUresult cuStreamBeginCapture(CUstream stream) {
  return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) { return same(cudaStreamGetId(stream, id)); }
CUresult cuStreamGetDevice(CUstream, CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  return same(cudaStreamSetAttribute(stream, static_cast<cudaLaunchAttributeID>(attribute),
                                     reinterpret_cast<const cudaLaunchAttributeValue*>(value)));
}
CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  return same(cudaStreamGetAttribute(stream, static_cast<cudaLaunchAttributeID>(attribute),
                                     reinterpret_cast<cudaLaunchAttributeValue*>(value)));
}
CUresult cuStreamCopyAttributes(CUstream to, CUstream from) { return same(cudaStreamCopyAttributes(to, from)); }

CUresult cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, CUfunction function, int blocks, int threads) {
  return same(cudaOccupancyAvailableDynamicSMemPerBlock(bytes, host_of(function), blocks, threads));
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
  const cudaLaunchConfig_t config_of = same_config(*config);
  return same(cudaOccupancyMaxActiveClusters(clusters, host_of(function), &config_of));
}
CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function, const CUlaunchConfig* config) {
  const cudaLaunchConfig_t config_of = same_config(*config);
  return same(cudaOccupancyMaxPotentialClusterSize(size, host_of(function), &config_of));
}
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize smem_of, std::size_t smem, int limit, unsigned) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, function, smem_of, smem, limit);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes) {
  return cuMemcpy(to, from, bytes);
}
// Contexts stand where the other structure has nothing.
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* given, CUstream stream) {
  static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D));
  return cuMemcpy3DAsync_v2(reinterpret_cast<const CUDA_MEMCPY3D*>(given), stream);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* given) { return cuMemcpy3DPeerAsync(given, and_wait()); }

#if CUDA_VERSION >= 13000
CUresult cuMemPrefetchBatchAsync(CUdeviceptr* pointers, std::size_t* bytes, std::size_t count, CUmemLocation* places,
                                 std::size_t* firsts, std::size_t kinds, unsigned long long flags, CUstream stream) {
  return same(cudaMemPrefetchBatchAsync(reinterpret_cast<void**>(pointers), bytes, count,
                                        reinterpret_cast<cudaMemLocation*>(places), firsts, kinds, flags, stream));
}
CUresult cuMemDiscardBatchAsync(CUdeviceptr* pointers, std::size_t* bytes, std::size_t count, unsigned long long flags,
                                CUstream stream) {
  return same(cudaMemDiscardBatchAsync(reinterpret_cast<void**>(pointers), bytes, count, flags, stream));
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* pointers, std::size_t* bytes, std::size_t count,
                                           CUmemLocation* places, std::size_t* firsts, std::size_t kinds,
                                           unsigned long long flags, CUstream stream) {
  return same(cudaMemDiscardAndPrefetchBatchAsync(reinterpret_cast<void**>(pointers), bytes, count,
                                                  reinterpret_cast<cudaMemLocation*>(places), firsts, kinds, flags,
                                                  stream));
}
CUresult cuLogsCurrent(CUlogIterator* iterator, unsigned) {
  if (iterator != nullptr) *iterator = 0;
  return CUDA_SUCCESS;
}
CUresult cuLogsDumpToMemory(CUlogIterator*, char* buffer, std::size_t* bytes, unsigned) {
  if (buffer == nullptr || bytes == nullptr || *bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *buffer = '\0';
  *bytes = 0;
  return CUDA_SUCCESS;
}
#endif

}  // extern "C"

// The CUDA runtime's facts about the device and the process: one device, properties, limits, errors, versions.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "guest/device_facts.h"
#include "guest/driver.h"
#include "guest/session.h"
#include "guest/turns.h"

using namespace tessera::guest;

namespace {

thread_local unsigned device_flags = 0;

cudaError_t only_device(int device) {
  if (!Session::instance().begin_use()) return cudaErrorInitializationError;
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

// Fields that cudaDeviceProp has in every version, under the same names.
template <class Properties>
void fill_properties(Properties& p) {
  const Gpu& gpu = Session::instance().gpu();
  const auto of = [](int attribute) { return device_attribute(attribute); };
  const auto bytes_of = [](int attribute) { return static_cast<std::size_t>(device_attribute(attribute)); };
  std::memset(&p, 0, sizeof(p));
  std::memcpy(p.name, gpu.name.data(), std::min(gpu.name.size(), sizeof(p.name) - 1));
  std::memcpy(&p.uuid, "tessera emulator", 16);
  p.totalGlobalMem = static_cast<std::size_t>(gpu.memory_bytes);
  p.sharedMemPerBlock = bytes_of(cudaDevAttrMaxSharedMemoryPerBlock);
  p.regsPerBlock = of(cudaDevAttrMaxRegistersPerBlock);
  p.warpSize = of(cudaDevAttrWarpSize);
  p.memPitch = bytes_of(cudaDevAttrMaxPitch);
  p.maxThreadsPerBlock = of(cudaDevAttrMaxThreadsPerBlock);
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7FFFFFFF;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = bytes_of(cudaDevAttrTotalConstantMemory);
  p.major = of(cudaDevAttrComputeCapabilityMajor);
  p.minor = of(cudaDevAttrComputeCapabilityMinor);
  p.textureAlignment = bytes_of(cudaDevAttrTextureAlignment);
  p.texturePitchAlignment = bytes_of(cudaDevAttrTexturePitchAlignment);
  p.surfaceAlignment = bytes_of(cudaDevAttrSurfaceAlignment);
  p.multiProcessorCount = of(cudaDevAttrMultiProcessorCount);
  p.integrated = of(cudaDevAttrIntegrated);
  p.maxTexture1D = p.maxTexture2D[0] = p.maxSurface2D[0] = of(cudaDevAttrMaxTexture2DWidth);
  p.maxTexture2D[1] = p.maxSurface2D[1] = of(cudaDevAttrMaxTexture2DHeight);
  p.maxTexture2DLinear[0] = of(cudaDevAttrMaxTexture2DLinearWidth);
  p.maxTexture2DLinear[1] = of(cudaDevAttrMaxTexture2DLinearHeight);
  p.maxTexture2DLinear[2] = of(cudaDevAttrMaxTexture2DLinearPitch);
  const int layered = of(cudaDevAttrMaxTexture2DLayeredWidth), layers = of(cudaDevAttrMaxTexture2DLayeredLayers);
  const int cube_layers = of(cudaDevAttrMaxTextureCubemapLayeredLayers);
  p.maxTexture1DMipmap = p.maxTexture2DMipmap[0] = p.maxTexture2DMipmap[1] = layered;
  p.maxTexture2DGather[0] = p.maxTexture2DGather[1] = p.maxTextureCubemap = p.maxSurfaceCubemap = layered;
  p.maxTexture1DLayered[0] = p.maxTexture2DLayered[0] = p.maxTexture2DLayered[1] = layered;
  p.maxSurface1DLayered[0] = p.maxSurface2DLayered[0] = p.maxSurface2DLayered[1] = p.maxSurface1D = layered;
  p.maxTexture1DLayered[1] = p.maxTexture2DLayered[2] = layers;
  p.maxSurface1DLayered[1] = p.maxSurface2DLayered[2] = layers;
  p.maxTextureCubemapLayered[0] = p.maxSurfaceCubemapLayered[0] = layered;
  p.maxTextureCubemapLayered[1] = p.maxSurfaceCubemapLayered[1] = cube_layers;
  for (std::size_t i = 0; i < 3; ++i)
    p.maxTexture3D[i] = p.maxTexture3DAlt[i] = p.maxSurface3D[i] = of(cudaDevAttrMaxTexture3DWidth);
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.streamPrioritiesSupported = 1;
  p.globalL1CacheSupported = p.localL1CacheSupported = p.managedMemory = p.concurrentManagedAccess = 1;
  p.computePreemptionSupported = p.cooperativeLaunch = p.hostRegisterSupported = p.memoryPoolsSupported = 1;
  p.clusterLaunch = p.hostRegisterReadOnlySupported = 1;
  p.pciBusID = of(cudaDevAttrPciBusId);
  p.asyncEngineCount = of(cudaDevAttrAsyncEngineCount);
  p.memoryBusWidth = gpu.memory_bus_bits;
  p.l2CacheSize = of(cudaDevAttrL2CacheSize);
  p.persistingL2CacheMaxSize = of(cudaDevAttrMaxPersistingL2CacheSize);
  p.accessPolicyMaxWindowSize = of(cudaDevAttrMaxAccessPolicyWindowSize);
  p.maxThreadsPerMultiProcessor = gpu.threads_per_sm;
  p.maxBlocksPerMultiProcessor = gpu.blocks_per_sm;
  p.sharedMemPerMultiprocessor = static_cast<std::size_t>(gpu.smem_per_sm);
  p.regsPerMultiprocessor = of(cudaDevAttrMaxRegistersPerMultiprocessor);
  p.sharedMemPerBlockOptin = static_cast<std::size_t>(gpu.smem_optin);
  p.reservedSharedMemPerBlock = bytes_of(cudaDevAttrReservedSharedMemoryPerBlock);
}

// cudaDeviceProp as CUDA 12 has it, whose programs call cudaGetDeviceProperties_v2.
struct Properties12 {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  std::size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  std::size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  std::size_t totalConstMem;
  int major, minor;
  std::size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2], maxTexture2DMipmap[2],
      maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap,
      maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap,
      maxSurfaceCubemapLayered[2];
  std::size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing,
      memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor,
      streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported,
      singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported,
      canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
  std::size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor,
      accessPolicyMaxWindowSize;
  std::size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported,
      memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
  int reserved[63];
};
static_assert(sizeof(Properties12) == 1032, "as CUDA 12's headers have it");

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return told(only_device(device)); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return told(only_device(device)); }
cudaError_t cudaSetValidDevices(int*, int) { return cudaSuccess; }
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return told(only_device(0));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device == 0) fill_properties(*properties);
  return told(only_device(device));
}
cudaError_t cudaGetDeviceProperties_v2(Properties12* properties, int device) {
  if (device != 0) return told(cudaErrorInvalidDevice);
  fill_properties(*properties);
  const Gpu& gpu = Session::instance().gpu();
  properties->clockRate = gpu.clock_khz;
  properties->memoryClockRate = gpu.memory_clock_khz;
  properties->deviceOverlap = 1;
  properties->singleToDoublePrecisionPerfRatio = device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (value == nullptr || attribute < 1 || attribute >= cudaDevAttrMax) return told(cudaErrorInvalidValue);
  *value = device_attribute(attribute);
  return told(only_device(device));
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int) {
  std::strncpy(text, "0000:01:00.0", static_cast<std::size_t>(std::max(size, 0)));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char*) { return cudaGetDevice(device); }
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  if (!has_device_limit(limit)) return told(cudaErrorUnsupportedLimit);
  *value = device_limit(limit);
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  if (!has_device_limit(limit)) return told(cudaErrorUnsupportedLimit);
  set_device_limit(limit, value);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  constexpr unsigned kKnown =
      cudaDeviceScheduleMask | cudaDeviceMapHost | cudaDeviceLmemResizeToMax | cudaDeviceSyncMemops;
  const unsigned schedule = flags & cudaDeviceScheduleMask;  // one of its bits
  if ((flags & ~kKnown) != 0 || (schedule & (schedule - 1)) != 0) return told(cudaErrorInvalidValue);
  device_flags = flags;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = device_flags;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return called(__func__, [] { return wait_for_all(); });
}
cudaError_t cudaDeviceReset() {
  called(__func__, [] { return finish_all(); });
  Session::instance().reset();
  take_last_error();
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) {
  *can = 0;
  return told(from != 0 ? only_device(from) : only_device(to));
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return told(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return told(cudaErrorInvalidDevice); }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return take_last_error(); }
cudaError_t cudaPeekAtLastError() { return last_error(); }
const char* cudaGetErrorString(cudaError_t error) {
  const char* const text = error_name(error) == nullptr ? nullptr : error_text(error);
  return text == nullptr ? "unrecognized error code" : text;
}
const char* cudaGetErrorName(cudaError_t error) {
  const char* const name = error_name(error);
  return name == nullptr ? "unrecognized error code" : name;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = driver_function(name, static_cast<int>(version));
  if (result != nullptr)
    *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

}  // extern "C"

#include "guest/device_facts.h"

#include <cuda_runtime_api.h>

#include <map>

#include "guest/session.h"

namespace tessera::guest {
namespace {

std::map<int, std::size_t>& limits() {
  static auto* const made = new std::map<int, std::size_t>{{cudaLimitStackSize, 1024},
                                                           {cudaLimitPrintfFifoSize, std::size_t{1} << 20},
                                                           {cudaLimitMallocHeapSize, std::size_t{8} << 20},
                                                           {cudaLimitDevRuntimeSyncDepth, 2},
                                                           {cudaLimitDevRuntimePendingLaunchCount, 2048},
                                                           {cudaLimitMaxL2FetchGranularity, 64},
                                                           {cudaLimitPersistingL2CacheSize, 0}};
  return *made;
}

}  // namespace

bool has_device_limit(int limit) { return limits().contains(limit); }
std::size_t device_limit(int limit) {
  const auto it = limits().find(limit);
  return it == limits().end() ? 0 : it->second;
}
void set_device_limit(int limit, std::size_t value) { limits()[limit] = value; }

int device_attribute(int attribute) {
  const Session& session = Session::instance();
  const Gpu& gpu = session.gpu();
  const int number = std::stoi(session.arch().substr(3));
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxPitch:
      return 0x7FFFFFFF;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 49152;
    case cudaDevAttrTotalConstantMemory:
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrClockRate:
      return gpu.clock_khz;
    case cudaDevAttrTextureAlignment:
    case cudaDevAttrSurfaceAlignment:
      return 512;
    case cudaDevAttrTexturePitchAlignment:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return session.num_sms();
    case cudaDevAttrIntegrated:
      return gpu.is_integrated ? 1 : 0;
    case cudaDevAttrMemoryClockRate:
      return gpu.memory_clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth:
      return gpu.memory_bus_bits;
    case cudaDevAttrL2CacheSize:
      return static_cast<int>(gpu.l2_bytes);
    case cudaDevAttrMaxPersistingL2CacheSize:
      return static_cast<int>(gpu.l2_bytes / 8 * 5);
    case cudaDevAttrMaxAccessPolicyWindowSize:
      return 128 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return gpu.threads_per_sm;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return gpu.blocks_per_sm;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return gpu.smem_per_sm;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return gpu.smem_optin;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrAsyncEngineCount:
      return 3;
    case cudaDevAttrPciBusId:
      return 1;
    case cudaDevAttrComputeCapabilityMajor:
      return number / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return number % 10;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
      return gpu.smem_per_sm > 200 * 1024 ? 2 : 64;
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrClusterLaunch:
    case 92:   // CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1
    case 93:   // CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    case 94:   // CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1
    case 113:  // CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
    case 122:  // CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
    case 123:  // CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
    case 102:  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    case 128:  // CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED
      return 1;
    // CUDA programming guide, "Technical Specifications per Compute Capability", 7.5 and later.
    case cudaDevAttrMaxTexture1DWidth:
    case cudaDevAttrMaxTexture2DWidth:
    case cudaDevAttrMaxTexture2DLinearWidth:
    case cudaDevAttrMaxSurface2DWidth:
      return 131072;
    case cudaDevAttrMaxTexture2DHeight:
    case cudaDevAttrMaxSurface2DHeight:
      return 65536;
    case cudaDevAttrMaxTexture2DLinearHeight:
      return 65000;
    case cudaDevAttrMaxTexture2DLinearPitch:
      return 2097120;
    case cudaDevAttrMaxTexture1DLinearWidth:
      return 1 << 28;
    case cudaDevAttrMaxTexture1DMipmappedWidth:
    case cudaDevAttrMaxTexture2DMipmappedWidth:
    case cudaDevAttrMaxTexture2DMipmappedHeight:
    case cudaDevAttrMaxTexture1DLayeredWidth:
    case cudaDevAttrMaxTexture2DLayeredWidth:
    case cudaDevAttrMaxTexture2DLayeredHeight:
    case cudaDevAttrMaxTexture2DGatherWidth:
    case cudaDevAttrMaxTexture2DGatherHeight:
    case cudaDevAttrMaxTextureCubemapWidth:
    case cudaDevAttrMaxTextureCubemapLayeredWidth:
    case cudaDevAttrMaxSurface1DWidth:
    case cudaDevAttrMaxSurface1DLayeredWidth:
    case cudaDevAttrMaxSurface2DLayeredWidth:
    case cudaDevAttrMaxSurface2DLayeredHeight:
    case cudaDevAttrMaxSurfaceCubemapWidth:
    case cudaDevAttrMaxSurfaceCubemapLayeredWidth:
      return 32768;
    case cudaDevAttrMaxTexture1DLayeredLayers:
    case cudaDevAttrMaxTexture2DLayeredLayers:
    case cudaDevAttrMaxSurface1DLayeredLayers:
    case cudaDevAttrMaxSurface2DLayeredLayers:
      return 2048;
    case cudaDevAttrMaxTextureCubemapLayeredLayers:
    case cudaDevAttrMaxSurfaceCubemapLayeredLayers:
      return 2046;
    case cudaDevAttrMaxTexture3DWidth:
    case cudaDevAttrMaxTexture3DHeight:
    case cudaDevAttrMaxTexture3DDepth:
    case cudaDevAttrMaxTexture3DWidthAlt:
    case cudaDevAttrMaxTexture3DHeightAlt:
    case cudaDevAttrMaxTexture3DDepthAlt:
    case cudaDevAttrMaxSurface3DWidth:
    case cudaDevAttrMaxSurface3DHeight:
    case cudaDevAttrMaxSurface3DDepth:
      return 16384;
    default:
      return 0;
  }
}

}  // namespace tessera::guest

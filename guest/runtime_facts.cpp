// What programs ask the CUDA runtime besides: peers of one device, the runtime's older names, logs, forms of functions
// that have edges' data.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "guest/capture.h"
#include "guest/work.h"

using namespace tessera::guest;

namespace {

cudaError_t only_device(int device) { return device == 0 ? cudaSuccess : told(cudaErrorInvalidDevice); }

}  // namespace

extern "C" {

// One device has no peer.
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  if (value == nullptr || attribute < cudaDevP2PAttrPerformanceRank) return told(cudaErrorInvalidValue);
  *value = 0;
  return from != 0 || to != 0 || from == to ? told(cudaErrorInvalidDevice) : cudaSuccess;
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* given, cudaStream_t stream) {
  if (given == nullptr) return told(cudaErrorInvalidValue);
  if (given->srcDevice != 0 || given->dstDevice != 0) return told(cudaErrorInvalidDevice);
  cudaMemcpy3DParms same{};
  same.srcArray = given->srcArray;
  same.srcPos = given->srcPos;
  same.srcPtr = given->srcPtr;
  same.dstArray = given->dstArray;
  same.dstPos = given->dstPos;
  same.dstPtr = given->dstPtr;
  same.extent = given->extent;
  same.kind = cudaMemcpyDefault;
  return cudaMemcpy3DAsync(&same, stream);
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* given) { return cudaMemcpy3DPeerAsync(given, and_wait()); }

// Graphs' memory is not counted: it stays while the program runs.
cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType, void* value) {
  const std::uint64_t none = 0;
  std::memcpy(value, &none, sizeof(none));
  return only_device(device);
}
cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType, void*) { return only_device(device); }
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget, cudaFlushGPUDirectRDMAWritesScope) {
  return cudaSuccess;  // nothing writes from outside
}

// Names of before CUDA 10, which are in the library still.
cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
cudaError_t cudaThreadGetLimit(std::size_t* value, cudaLimit limit) { return cudaDeviceGetLimit(value, limit); }
cudaError_t cudaThreadSetLimit(cudaLimit limit, std::size_t value) { return cudaDeviceSetLimit(limit, value); }
cudaError_t cudaThreadGetCacheConfig(cudaFuncCache* config) { return cudaDeviceGetCacheConfig(config); }
cudaError_t cudaThreadSetCacheConfig(cudaFuncCache config) { return cudaDeviceSetCacheConfig(config); }
cudaError_t cudaSetDoubleForDevice(double*) { return cudaSuccess; }
cudaError_t cudaSetDoubleForHost(double*) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return cudaEventElapsedTime(milliseconds, from, to);
}

#if CUDART_VERSION >= 13000
// Names that programs of CUDA 12 have for what takes edges' data: those of CUDA 13 have the same parameters.
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph, const cudaGraphNode_t** after,
                                        const cudaGraphEdgeData** edges, std::size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, after, edges, count);
}
cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData*,
                                 std::size_t* count) {
  return told(static_cast<cudaError_t>(cuGraphGetEdges_v2(graph, from, to, nullptr, count)));
}
cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData*,
                                            std::size_t* count) {
  return told(static_cast<cudaError_t>(cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count)));
}
cudaError_t cudaGraphNodeGetDependentNodes_v2(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData*,
                                              std::size_t* count) {
  return told(static_cast<cudaError_t>(cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count)));
}
// Errors are told on stderr and by the functions: the log is empty.
cudaError_t cudaLogsRegisterCallback(cudaLogsCallback_t, void*, cudaLogsCallbackHandle* handle) {
  if (handle != nullptr) *handle = nullptr;
  return cudaSuccess;
}
cudaError_t cudaLogsUnregisterCallback(cudaLogsCallbackHandle) { return cudaSuccess; }
cudaError_t cudaLogsCurrent(cudaLogIterator* iterator, unsigned) {
  if (iterator != nullptr) *iterator = 0;
  return cudaSuccess;
}
cudaError_t cudaLogsDumpToMemory(cudaLogIterator*, char* buffer, std::size_t* bytes, unsigned) {
  if (buffer == nullptr || bytes == nullptr || *bytes == 0) return told(cudaErrorInvalidValue);
  *buffer = '\0';
  *bytes = 0;
  return cudaSuccess;
}
#endif

}  // extern "C"

// Pools of memory, advice for managed memory, objects that graphs hold, a capture that a wait breaks: what the API
// answers, by the runtime and by the driver. Prints how many answers are wrong.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "checks.h"

__global__ void add(int* data, int value) { data[threadIdx.x] += value; }

static std::uint64_t of(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  std::uint64_t value = ~std::uint64_t{0};
  OK(cudaMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

static void pools() {
  cudaMemPool_t standard = nullptr, own = nullptr, now = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&standard, 0));
  GIVES(cudaDeviceGetDefaultMemPool(&own, 1), cudaErrorInvalidDevice);
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.maxSize = 1 << 20;
  OK(cudaMemPoolCreate(&own, &props));
  CHECK(own != standard);
  std::uint64_t threshold = 300000, zero = 0;
  OK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(of(own, cudaMemPoolAttrReleaseThreshold) == 300000 && of(standard, cudaMemPoolAttrReleaseThreshold) == 0);
  int reuse = 0;
  OK(cudaMemPoolSetAttribute(own, cudaMemPoolReuseAllowOpportunistic, &reuse));
  reuse = 7;
  OK(cudaMemPoolGetAttribute(own, cudaMemPoolReuseAllowOpportunistic, &reuse));
  CHECK(reuse == 0);

  int *a = nullptr, *b = nullptr, *c = nullptr;
  OK(cudaMallocFromPoolAsync(&a, 400000, own, nullptr));
  OK(cudaMallocFromPoolAsync(&b, 200000, own, nullptr));
  CHECK(of(own, cudaMemPoolAttrUsedMemCurrent) == 600000 && of(standard, cudaMemPoolAttrUsedMemCurrent) == 0);
  GIVES(cudaMallocFromPoolAsync(&c, 600000, own, nullptr), cudaErrorMemoryAllocation);  // beyond maxSize
  OK(cudaFreeAsync(a, nullptr));
  CHECK(of(own, cudaMemPoolAttrUsedMemCurrent) == 200000 && of(own, cudaMemPoolAttrUsedMemHigh) == 600000);
  CHECK(of(own, cudaMemPoolAttrReservedMemCurrent) >= 300000);  // as much as the threshold says is kept
  OK(cudaMemPoolTrimTo(own, 0));
  CHECK(of(own, cudaMemPoolAttrReservedMemCurrent) >= 200000);
  OK(cudaFree(b));  // cudaFree takes it, too
  CHECK(of(own, cudaMemPoolAttrUsedMemCurrent) == 0);
  GIVES(cudaMemPoolSetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &zero), cudaErrorInvalidValue);
  OK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrUsedMemHigh, &zero));
  CHECK(of(own, cudaMemPoolAttrUsedMemHigh) == 0);

  OK(cudaDeviceSetMemPool(0, own));
  OK(cudaDeviceGetMemPool(&now, 0));
  CHECK(now == own);
  OK(cudaMallocAsync(&c, 4096, cudaStreamPerThread));
  CHECK(of(own, cudaMemPoolAttrUsedMemCurrent) == 4096);
  cudaMemAccessFlags flags{};
  OK(cudaMemPoolGetAccess(&flags, own, &props.location));
  CHECK(flags == cudaMemAccessFlagsProtReadWrite);
  OK(cudaMemPoolDestroy(own));  // what was allocated of it stays, and the default pool is used again
  OK(cudaDeviceGetMemPool(&now, 0));
  CHECK(now == standard);
  OK(cudaMemset(c, 0, 4096));
  add<<<1, 32>>>(c, 3);
  int first = 0;
  OK(cudaMemcpy(&first, c, 4, cudaMemcpyDeviceToHost));
  CHECK(first == 3);
  OK(cudaFree(c));
  GIVES(cudaMemPoolDestroy(own), cudaErrorInvalidValue);
  GIVES(cudaMemPoolDestroy(standard), cudaErrorInvalidValue);

  CUmemoryPool driver = nullptr;
  CHECK(cuDeviceGetDefaultMemPool(&driver, 0) == CUDA_SUCCESS && driver == standard);
  CUdeviceptr p = 0;
  CHECK(cuMemAllocFromPoolAsync(&p, 1000, driver, nullptr) == CUDA_SUCCESS);
  cuuint64_t used = 0;
  CHECK(cuMemPoolGetAttribute(driver, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS && used == 1000);
  CHECK(cuMemFreeAsync(p, nullptr) == CUDA_SUCCESS);
}

static int told(cudaMemRangeAttribute attribute, const void* pointer, std::size_t bytes) {
  int value = 77;
  OK(cudaMemRangeGetAttribute(&value, sizeof(value), attribute, pointer, bytes));
  return value;
}

static void hints() {
  char *managed = nullptr, *device = nullptr;
  OK(cudaMallocManaged(&managed, 1 << 16));
  OK(cudaMalloc(&device, 1 << 16));
  cudaMemLocation gpu{}, cpu{}, second{};
  gpu.type = second.type = cudaMemLocationTypeDevice;
  second.id = 1;
  cpu.type = cudaMemLocationTypeHost;
  CHECK(told(cudaMemRangeAttributeReadMostly, managed, 1 << 16) == 0);
  CHECK(told(cudaMemRangeAttributePreferredLocation, managed, 1 << 16) == cudaInvalidDeviceId);
  OK(cudaMemAdvise(managed, 1 << 15, cudaMemAdviseSetReadMostly, gpu));
  CHECK(told(cudaMemRangeAttributeReadMostly, managed, 1 << 15) == 1);
  CHECK(told(cudaMemRangeAttributeReadMostly, managed, 1 << 16) == 0);  // not all of it
  OK(cudaMemAdvise(managed + 4096, 4096, cudaMemAdviseUnsetReadMostly, gpu));
  CHECK(told(cudaMemRangeAttributeReadMostly, managed, 1 << 15) == 0);
  CHECK(told(cudaMemRangeAttributeReadMostly, managed, 4096) == 1);
  OK(cudaMemAdvise(managed, 1 << 16, cudaMemAdviseSetPreferredLocation, cpu));
  CHECK(told(cudaMemRangeAttributePreferredLocation, managed, 1 << 16) == cudaCpuDeviceId);
  OK(cudaMemPrefetchAsync(managed, 1 << 15, gpu, 0, nullptr));
  CHECK(told(cudaMemRangeAttributeLastPrefetchLocation, managed, 1 << 15) == 0);
  CHECK(told(cudaMemRangeAttributeLastPrefetchLocation, managed, 1 << 16) == cudaInvalidDeviceId);
  OK(cudaMemAdvise(managed, 1 << 16, cudaMemAdviseSetAccessedBy, gpu));
  int by[3] = {5, 5, 5};
  OK(cudaMemRangeGetAttribute(by, sizeof(by), cudaMemRangeAttributeAccessedBy, managed, 1 << 16));
  CHECK(by[0] == 0 && by[1] == cudaInvalidDeviceId && by[2] == cudaInvalidDeviceId);
  GIVES(cudaMemAdvise(managed, 1 << 16, cudaMemAdviseSetAccessedBy, second), cudaErrorInvalidDevice);
  GIVES(cudaMemAdvise(device, 1 << 16, cudaMemAdviseSetReadMostly, gpu), cudaErrorInvalidValue);
  GIVES(cudaMemPrefetchAsync(device, 1 << 16, gpu, 0, nullptr), cudaErrorInvalidValue);
  OK(cudaFree(managed));
  char* again = nullptr;
  OK(cudaMallocManaged(&again, 1 << 16));  // wherever it is, nothing has been said about it
  CHECK(told(cudaMemRangeAttributeReadMostly, again, 4096) == 0);
  OK(cudaFree(again));
  OK(cudaFree(device));
}

static void rows_of_halves() {
  unsigned short host[3][8] = {};
  CUdeviceptr p = 0;
  CHECK(cuMemAlloc(&p, sizeof(host)) == CUDA_SUCCESS);
  CHECK(cuMemsetD8(p, 0, sizeof(host)) == CUDA_SUCCESS);
  CHECK(cuMemsetD2D16(p + 4, 16, 0xABCD, 5, 2) == CUDA_SUCCESS);
  CHECK(cuMemsetD2D16Async(p + 32, 16, 0x1234, 8, 1, nullptr) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH(host, p, sizeof(host)) == CUDA_SUCCESS);
  CHECK(host[0][1] == 0 && host[0][2] == 0xABCD && host[1][6] == 0xABCD && host[1][7] == 0 && host[2][7] == 0x1234);
  CHECK(cuMemFree(p) == CUDA_SUCCESS);
}

static void broken_capture() {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  GIVES(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  cudaStreamCaptureStatus status{};
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  GIVES(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamDestroy(stream));
}

static int destroyed = 0;

static void objects_of_graphs() {
  const auto destroy = [](void* count) { ++*static_cast<int*>(count); };
  cudaUserObject_t object = nullptr;
  OK(cudaUserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync));
  cudaGraph_t graph = nullptr, clone = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  cudaGraphNode_t first = nullptr, second = nullptr;
  OK(cudaGraphAddEmptyNode(&first, graph, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&second, graph, &first, 1));
  std::size_t edges = 0;
  OK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(edges == 1);
  OK(cudaGraphDebugDotPrint(graph, "graph.dot", 0));
  std::FILE* const file = std::fopen("graph.dot", "r");
  char text[1000] = {};
  CHECK(file != nullptr && std::fread(text, 1, sizeof(text) - 1, file) > 0);
  CHECK(std::strstr(text, "digraph") != nullptr && std::strstr(text, "node_0 -> node_1") != nullptr);
  if (file != nullptr) std::fclose(file);
  OK(cudaGraphRemoveDependencies(graph, &first, &second, nullptr, 1));
  OK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(edges == 0);
  GIVES(cudaGraphRemoveDependencies(graph, &first, &second, nullptr, 1), cudaErrorInvalidValue);
  OK(cudaGraphClone(&clone, graph));
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(clone));
  CHECK(destroyed == 0);  // what was made of the graph holds it
  OK(cudaGraphExecDestroy(exec));
  CHECK(destroyed == 1);
  GIVES(cudaUserObjectRelease(object, 1), cudaErrorInvalidValue);
}

int main() {
  OK(cudaFree(nullptr));
  objects_of_graphs();
  pools();
  hints();
  rows_of_halves();
  broken_capture();
  std::printf("%d answers are wrong\n", failures);
  return failures != 0;
}

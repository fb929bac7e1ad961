// Graphs: recorded from streams that fork and join, built node by node, changed, launched again; by a float-free kernel
// whose result depends on the order in which the nodes run.
#include <cuda_runtime.h>

#include <cstdio>
#include <random>

int failures = 0;
void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("wrong: %s (%s)\n", what, cudaGetErrorName(cudaPeekAtLastError()));
  ++failures;
}

__global__ void step(unsigned* value, unsigned factor, unsigned summand) { *value = *value * factor + summand; }
__global__ void join(unsigned* value, const unsigned* other) { *value = *value * 31 + *other; }

unsigned *a = nullptr, *b = nullptr;
unsigned result() {
  unsigned value = 0;
  cudaMemcpy(&value, a, sizeof(value), cudaMemcpyDeviceToHost);
  return value;
}

void recorded(unsigned seed) {
  cudaStream_t stream{}, other{};
  cudaEvent_t forked{}, joined{};
  cudaStreamCreate(&stream);
  cudaStreamCreate(&other);
  cudaEventCreate(&forked);
  cudaEventCreate(&joined);
  cudaMemcpy(a, &seed, sizeof(seed), cudaMemcpyHostToDevice);
  int called = 0;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "begin");
  cudaStreamCaptureStatus status{};
  cudaStreamIsCapturing(stream, &status);
  check(status == cudaStreamCaptureStatusActive, "is captured");
  cudaMemsetAsync(b, 0, sizeof(unsigned), stream);
  cudaEventRecord(forked, stream);
  cudaStreamWaitEvent(other, forked, 0);
  step<<<1, 1, 0, other>>>(b, 3, 5);
  step<<<1, 1, 0, stream>>>(a, 7, 1);
  cudaEventRecord(joined, other);
  cudaStreamWaitEvent(stream, joined, 0);
  join<<<1, 1, 0, stream>>>(a, b);
  cudaLaunchHostFunc(
      stream, [](void* data) { ++*static_cast<int*>(data); }, &called);
  cudaGraph_t graph{};
  check(cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph != nullptr, "end");
  check(result() == seed && called == 0, "nothing ran");
  std::size_t nodes = 0, edges = 0;
  cudaGraphGetNodes(graph, nullptr, &nodes);
  cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges);
  check(nodes == 5 && edges == 5, "five nodes and five edges");
  cudaGraphExec_t exec{};
  check(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "instantiate");
  unsigned expected = seed;
  for (int i = 0; i < 3; ++i) {
    check(cudaGraphLaunch(exec, stream) == cudaSuccess, "launch");
    expected = (expected * 7 + 1) * 31 + 5;
  }
  check(cudaStreamSynchronize(stream) == cudaSuccess && result() == expected && called == 3, "launched three times");

  // The same shape with other numbers takes its place; another shape does not.
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaMemsetAsync(b, 0, sizeof(unsigned), stream);
  cudaEventRecord(forked, stream);
  cudaStreamWaitEvent(other, forked, 0);
  step<<<1, 1, 0, other>>>(b, 3, 6);
  step<<<1, 1, 0, stream>>>(a, 9, 2);
  cudaEventRecord(joined, other);
  cudaStreamWaitEvent(stream, joined, 0);
  join<<<1, 1, 0, stream>>>(a, b);
  cudaLaunchHostFunc(
      stream, [](void* data) { ++*static_cast<int*>(data); }, &called);
  cudaGraph_t second{};
  cudaStreamEndCapture(stream, &second);
  cudaGraphExecUpdateResultInfo info{};
  check(cudaGraphExecUpdate(exec, second, &info) == cudaSuccess && info.result == cudaGraphExecUpdateSuccess, "update");
  cudaGraphLaunch(exec, stream);
  expected = (expected * 9 + 2) * 31 + 6;
  check(result() == expected, "updated");
  cudaGraph_t empty{};
  cudaGraphCreate(&empty, 0);
  check(cudaGraphExecUpdate(exec, empty, &info) == cudaErrorGraphExecUpdateFailure, "another shape");
  cudaGetLastError();

  // A stream that does not come back.
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaEventRecord(forked, stream);
  cudaStreamWaitEvent(other, forked, 0);
  step<<<1, 1, 0, other>>>(b, 3, 6);
  check(cudaStreamEndCapture(stream, &empty) == cudaErrorStreamCaptureUnjoined && empty == nullptr, "not joined");
  cudaGetLastError();
  check(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess, "destroy");
}

void built(unsigned seed) {
  cudaGraph_t graph{}, child{};
  cudaGraphCreate(&graph, 0);
  cudaGraphCreate(&child, 0);
  unsigned three = 3, four = 4, five = 5, seven = 7, back = 0;
  void* first_arguments[] = {&a, &three, &four};
  void* last_arguments[] = {&a, &five, &seven};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(step);
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = last_arguments;
  cudaGraphNode_t first{}, last{}, copy{}, inner{}, from_host{};
  check(cudaGraphAddKernelNode(&last, graph, nullptr, 0, &params) == cudaSuccess, "a node before its time");
  params.kernelParams = first_arguments;
  check(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &params) == cudaSuccess, "a kernel's node");
  cudaGraphAddMemcpyNode1D(&from_host, graph, nullptr, 0, a, &seed, sizeof(seed), cudaMemcpyHostToDevice);
  cudaGraphAddKernelNode(&inner, child, nullptr, 0, &params);
  cudaGraphNode_t nested{};
  cudaGraphAddChildGraphNode(&nested, graph, &first, 1, child);
  cudaGraphAddMemcpyNode1D(&copy, graph, &last, 1, &back, a, sizeof(back), cudaMemcpyDeviceToHost);
  check(cudaGraphAddDependencies(graph, &from_host, &first, nullptr, 1) == cudaSuccess, "a dependency");
  cudaGraphAddDependencies(graph, &nested, &last, nullptr, 1);
  cudaGraphExec_t exec{};
  check(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "instantiate");
  cudaGraphLaunch(exec, nullptr);
  check(back == ((seed * 3 + 4) * 3 + 4) * 5 + 7, "in the order of dependencies");
  unsigned eleven = 11;
  last_arguments[1] = &eleven;
  params.kernelParams = last_arguments;
  check(cudaGraphExecKernelNodeSetParams(exec, last, &params) == cudaSuccess, "other arguments");
  cudaGraphNodeSetEnabled(exec, nested, 0);
  cudaGraphLaunch(exec, nullptr);
  check(back == (seed * 3 + 4) * 11 + 7, "changed");
  cudaGraphNodeType type{};
  cudaGraphNodeGetType(nested, &type);
  check(type == cudaGraphNodeTypeGraph, "its type");
  cudaGraphAddDependencies(graph, &last, &first, nullptr, 1);
  check(cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess, "a cycle");
  cudaGetLastError();
}

// Memory that a graph allocates has its address in every launch, freed by the graph or behind it.
void with_memory(unsigned seed, bool frees_inside) {
  cudaStream_t stream{};
  cudaStreamCreate(&stream);
  cudaMemcpy(b, &seed, sizeof(seed), cudaMemcpyHostToDevice);
  unsigned* own = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  check(cudaMallocAsync(&own, sizeof(unsigned), stream) == cudaSuccess, "memory of a graph");
  cudaMemcpyAsync(own, b, sizeof(unsigned), cudaMemcpyDeviceToDevice, stream);
  step<<<1, 1, 0, stream>>>(own, 5, 6);
  cudaMemcpyAsync(a, own, sizeof(unsigned), cudaMemcpyDeviceToDevice, stream);
  if (frees_inside) cudaFreeAsync(own, stream);
  cudaGraph_t graph{};
  cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t exec{};
  cudaGraphInstantiate(&exec, graph, 0);
  for (int i = 0; i < 3; ++i) {
    cudaMemset(a, 0, sizeof(unsigned));
    check(cudaGraphLaunch(exec, stream) == cudaSuccess, "launch");
    if (!frees_inside) check(cudaFreeAsync(own, stream) == cudaSuccess, "freed behind it");
    check(result() == seed * 5 + 6, "memory of a graph, again");
  }
}

int main() {
  std::mt19937 random(std::random_device{}());
  cudaMalloc(&a, sizeof(unsigned));
  cudaMalloc(&b, sizeof(unsigned));
  recorded(random());
  built(random());
  with_memory(random(), true);
  with_memory(random(), false);
  std::printf("%d failures\n", failures);
  return failures != 0;
}

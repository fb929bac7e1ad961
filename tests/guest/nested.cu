// Kernels that launch kernels, and graphs whose kernels say what runs: compiled with -rdc=true. Prints how many results
// are wrong.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <vector>

static int failures = 0;
static void check(bool is_right, int line) {
  if (is_right) return;
  std::printf("line %d is wrong\n", line);
  ++failures;
}
#define CHECK(condition) check(condition, __LINE__)
#define OK(call) check((call) == cudaSuccess, __LINE__)

__device__ int order;

__global__ void note(int* where, int offset) {
  extern __shared__ int numbers[];
  if (threadIdx.x + threadIdx.y + blockIdx.x == 0) where[offset] = ++order;
  if (threadIdx.y == 0) numbers[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x + threadIdx.y == 0) atomicAdd(&where[32 + offset], numbers[blockDim.x - 1] + gridDim.x);
}

// The one launched last runs last: into the stream of tails. What a child launches belongs to the child.
__global__ void middle(int* where) {
  note<<<2, 16, 64>>>(where, 2);
  where[1] = ++order;
}
__global__ void parent(int* where) {
  note<<<1, 32, 128, cudaStreamTailLaunch>>>(where, 5);
  middle<<<1, 1, 0, cudaStreamFireAndForget>>>(where);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  note<<<3, dim3(8, 2), 64, stream>>>(where, 3);
  cudaStreamDestroy(stream);
  cudaMemsetAsync(where + 64, 7, 4, nullptr);
  cudaMemcpyAsync(where + 65, where + 64, 4, cudaMemcpyDeviceToDevice, nullptr);
  note<<<1, 4, 16>>>(where, 4);
  where[0] = ++order;
  where[66] = cudaGetLastError();
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  where[67] = sms;
}

// A sum by halves, each of which is a grid.
__global__ void sum(const int* values, int count, unsigned* total) {
  if (count <= 8) {
    for (int i = 0; i < count; ++i) atomicAdd(total, static_cast<unsigned>(values[i]));
    return;
  }
  sum<<<1, 1, 0, cudaStreamFireAndForget>>>(values, count / 2, total);
  sum<<<1, 1, 0, cudaStreamFireAndForget>>>(values + count / 2, count - count / 2, total);
}
__global__ void many(unsigned* total, const int* one) { sum<<<1, 1>>>(one, 1, total); }

__global__ void count_down(cudaGraphConditionalHandle handle, int* value) {
  if (--*value == 0) cudaGraphSetConditional(handle, 0);
}
__global__ void choose(cudaGraphConditionalHandle handle, unsigned value) { cudaGraphSetConditional(handle, value); }
__global__ void add(int* value, int what) { *value += what; }

static cudaGraphNode_t add_conditional(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
                                       cudaGraphConditionalNodeType type, unsigned size, cudaGraph_t* bodies) {
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  cudaGraphNode_t node = nullptr;
  OK(cudaGraphAddNode(&node, graph, after == nullptr ? nullptr : &after, nullptr, after == nullptr ? 0 : 1, &params));
  for (unsigned i = 0; i < size; ++i) bodies[i] = params.conditional.phGraph_out[i];
  cudaGraphNodeType found{};
  OK(cudaGraphNodeGetType(node, &found));
  CHECK(found == cudaGraphNodeTypeConditional);
  return node;
}
template <class... Arguments>
static cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t after, void* kernel, Arguments... arguments) {
  void* list[] = {&arguments...};
  cudaKernelNodeParams params{kernel, dim3(1), dim3(1), 0, list, nullptr};
  cudaGraphNode_t node = nullptr;
  OK(cudaGraphAddKernelNode(&node, graph, after == nullptr ? nullptr : &after, after == nullptr ? 0 : 1, &params));
  return node;
}

static void conditional_nodes(int* value) {
  cudaGraph_t graph = nullptr, loop = nullptr, branches[2], cases[3];
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle again = 0, which = 0, chosen = 0;
  OK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  OK(cudaGraphConditionalHandleCreate(&which, graph, 0, cudaGraphCondAssignDefault));
  OK(cudaGraphConditionalHandleCreate(&chosen, graph, 0, 0));
  const cudaGraphNode_t first = add_conditional(graph, nullptr, again, cudaGraphCondTypeWhile, 1, &loop);
  const cudaGraphNode_t down = add_kernel(loop, nullptr, reinterpret_cast<void*>(count_down), again, value);
  const cudaGraphNode_t added = add_kernel(loop, down, reinterpret_cast<void*>(add), value + 1, 1);
  static std::atomic<int> turns{0};  // of a host function in the loop
  const cudaHostNodeParams counts{[](void*) { ++turns; }, nullptr};
  cudaGraphNode_t counted = nullptr;
  OK(cudaGraphAddHostNode(&counted, loop, &added, 1, &counts));
  const cudaGraphNode_t second = add_conditional(graph, first, which, cudaGraphCondTypeIf, 2, branches);
  add_kernel(branches[0], nullptr, reinterpret_cast<void*>(add), value + 2, 1);
  add_kernel(branches[1], nullptr, reinterpret_cast<void*>(add), value + 2, 100);
  const cudaGraphNode_t said = add_kernel(graph, second, reinterpret_cast<void*>(choose), chosen, 2u);
  add_conditional(graph, said, chosen, cudaGraphCondTypeSwitch, 3, cases);
  for (int i = 0; i < 3; ++i) add_kernel(cases[i], nullptr, reinterpret_cast<void*>(add), value + 3, i + 10);
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int launch = 1; launch <= 2; ++launch) {
    const int start = 5;
    OK(cudaMemcpy(value, &start, sizeof(int), cudaMemcpyHostToDevice));
    OK(cudaGraphLaunch(exec, nullptr));
    int found[4];
    OK(cudaMemcpy(found, value, sizeof(found), cudaMemcpyDeviceToHost));
    CHECK(turns == 5 * launch);
    CHECK(found[0] == 0 && found[1] == 5 * launch && found[2] == 100 * launch && found[3] == 12 * launch);
  }
}

int main() {
  int* data = nullptr;
  OK(cudaMalloc(&data, 100 * sizeof(int)));
  OK(cudaMemset(data, 0, 100 * sizeof(int)));
  parent<<<1, 1>>>(data);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  std::vector<int> found(100);
  OK(cudaMemcpy(found.data(), data, 100 * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(found[0] == 1);                        // the grid itself
  CHECK(found[1] > 1 && found[2] > found[1]);  // a child, and what it launches
  CHECK(found[3] > 1 && found[4] > found[3]);
  CHECK(found[5] == 6);  // the tail
  CHECK(found[34] == 2 * (15 + 2) && found[35] == 3 * (7 + 3) && found[36] == 3 + 1 && found[37] == 31 + 1);
  CHECK(found[64] == 0x07070707 && found[65] == found[64] && found[66] == 0);
  int sms = 0;
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(found[67] == sms);

  std::vector<int> values(500);
  unsigned expected = 0, total = 0, *sum_of = nullptr;
  for (std::size_t i = 0; i < values.size(); ++i)
    expected += static_cast<unsigned>(values[i] = static_cast<int>(i * i));
  int* list = nullptr;
  OK(cudaMalloc(&list, values.size() * sizeof(int)));
  OK(cudaMalloc(&sum_of, sizeof(unsigned)));
  OK(cudaMemset(sum_of, 0, sizeof(unsigned)));
  OK(cudaMemcpy(list, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice));
  sum<<<1, 1>>>(list, static_cast<int>(values.size()), sum_of);
  OK(cudaMemcpy(&total, sum_of, sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(total == expected);
  many<<<4, 50>>>(sum_of, list + 1);  // each thread one
  OK(cudaMemcpy(&total, sum_of, sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(total == expected + 200);
  OK(cudaMemset(data, 0, 16 * sizeof(int)));
  conditional_nodes(data);
  std::printf("%d results are wrong\n", failures);
  return failures == 0 ? 0 : 1;
}

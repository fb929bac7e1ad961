// What waits for others and must not keep them from coming: host functions that wait for their caller, a thread of the
// host that waits while another one asks for what it waits for, streams that wait for words, copies that are asked for
// early. An argument names one mistake, which ends the context; without one, prints how many answers are wrong.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "checks.h"

#define GOOD(call) check((call) == CUDA_SUCCESS, __LINE__)

__global__ void add(int* to, int value) { *to += value; }
__global__ void wait_for(volatile int* word) {
  while (*word == 0) {
  }
}
__global__ void set(volatile int* word, int value) { *word = value; }

static cudaStream_t a, b;
static int *data, *mail;  // of the device; of both sides

static void clear() {
  OK(cudaMemset(data, 0, 64 * sizeof(int)));
  *static_cast<volatile int*>(mail) = 0;
  OK(cudaDeviceSynchronize());
}
static int at(int index) {
  int value = -1;
  OK(cudaMemcpy(&value, data + index, sizeof(int), cudaMemcpyDefault));
  return value;
}
static void nap(int milliseconds = 30) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Of host functions: goes on when the host says so, which it does after the call that asks for it has returned.
struct Gate {
  std::atomic<bool> is_open{false};
  std::atomic<int> passed{0};
  std::atomic<std::thread::id> thread{};
  std::atomic<cudaError_t> status{cudaErrorUnknown}, of_call{cudaErrorUnknown};
};
static void pass(void* data) {
  auto* const gate = static_cast<Gate*>(data);
  while (!gate->is_open) std::this_thread::yield();
  gate->thread = std::this_thread::get_id();
  ++gate->passed;
}
static void pass_callback(cudaStream_t stream, cudaError_t status, void* data) {
  if (stream != a) return;
  static_cast<Gate*>(data)->status = status;
  pass(data);
}
static void call_cuda(void* data) {
  void* memory = nullptr;
  static_cast<Gate*>(data)->of_call = cudaMalloc(&memory, 4);
}

template <class Ask>
static std::thread::id host_function(Ask ask) {
  clear();
  Gate gate;
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  add<<<1, 1, 0, a>>>(data, 5);
  ask(gate);
  add<<<1, 1, 0, a>>>(data, 100);
  OK(cudaEventRecord(event, a));
  OK(cudaStreamWaitEvent(b, event));
  add<<<1, 1, 0, b>>>(data, 1000);
  add<<<1, 1, 0, b>>>(data + 1, 1);
  nap();
  GIVES(cudaStreamQuery(a), cudaErrorNotReady);
  GIVES(cudaEventQuery(event), cudaErrorNotReady);
  CHECK(gate.passed == 0);
  gate.is_open = true;
  OK(cudaStreamSynchronize(b));
  CHECK(gate.passed == 1 && gate.thread.load() != std::this_thread::get_id());
  OK(cudaStreamSynchronize(a));
  CHECK(at(0) == 1105 && at(1) == 1);
  OK(cudaEventDestroy(event));
  return gate.thread;
}

static void host_functions() {
  const std::thread::id first = host_function([](Gate& gate) { OK(cudaLaunchHostFunc(a, pass, &gate)); });
  const auto by_driver = [](Gate& gate) { GOOD(cuLaunchHostFunc(a, pass, &gate)); };
  CHECK(host_function(by_driver) == first);
  host_function([](Gate& gate) { OK(cudaStreamAddCallback(a, pass_callback, &gate, 0)); });
  GIVES(cudaStreamAddCallback(a, pass_callback, nullptr, 1), cudaErrorInvalidValue);
  GIVES(cudaLaunchHostFunc(a, nullptr, nullptr), cudaErrorInvalidValue);
  const auto as_node = [](Gate& gate) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    add<<<1, 1, 0, a>>>(data + 2, 1);
    OK(cudaLaunchHostFunc(a, pass, &gate));
    add<<<1, 1, 0, a>>>(data + 2, 1);
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, a));
    OK(cudaGraphExecDestroy(exec));  // what is launched goes on
    OK(cudaGraphDestroy(graph));
  };
  host_function(as_node);
  CHECK(at(2) == 2);
  Gate gate;
  OK(cudaStreamAddCallback(a, pass_callback, &gate, 0));
  gate.is_open = true;
  while (gate.passed == 0) std::this_thread::yield();  // nobody calls CUDA
  CHECK(gate.status == cudaSuccess);
  OK(cudaLaunchHostFunc(a, call_cuda, &gate));
  OK(cudaDeviceSynchronize());
  CHECK(gate.of_call == cudaErrorNotPermitted);
}

// A launch of an executable graph comes after the one before it, whatever stream it is in.
static void graphs_in_two_streams() {
  clear();
  Gate gate;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  add<<<1, 1, 0, a>>>(data, 1);
  OK(cudaLaunchHostFunc(a, pass, &gate));
  add<<<1, 1, 0, a>>>(data, 1);
  OK(cudaStreamEndCapture(a, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, a));
  OK(cudaGraphLaunch(exec, b));
  CHECK(at(0) == 1);
  gate.is_open = true;
  OK(cudaStreamSynchronize(b));
  CHECK(at(0) == 4 && gate.passed == 2);
  OK(cudaStreamSynchronize(a));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

// Into a graph that the program has: the end of the capture gives no other one.
static void capture_to_a_graph() {
  clear();
  Gate gate;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaStreamBeginCaptureToGraph(a, graph, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
  OK(cudaLaunchHostFunc(a, pass, &gate));
  add<<<1, 1, 0, a>>>(data, 1);
  OK(cudaStreamEndCapture(a, nullptr));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, a));
  CHECK(at(0) == 0);
  gate.is_open = true;
  OK(cudaStreamSynchronize(a));
  CHECK(at(0) == 1);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

// While one thread waits, another one asks for what it waits for.
static void threads() {
  clear();
  wait_for<<<1, 1, 0, a>>>(data);
  add<<<1, 1, 0, a>>>(data + 1, 1);
  std::thread waiter([] { OK(cudaStreamSynchronize(a)); });
  nap(60);
  set<<<1, 1, 0, b>>>(data, 1);
  OK(cudaStreamSynchronize(b));
  waiter.join();
  CHECK(at(1) == 1);
  // Each waits for what the next one launches.
  clear();
  constexpr int kThreads = 4;
  std::vector<std::thread> all;
  std::atomic<int> wrong{0};
  for (int i = kThreads - 1; i >= 0; --i) {
    all.emplace_back([i, &wrong] {
      cudaStream_t own;
      wrong += cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess;
      if (i > 0) wait_for<<<1, 1, 0, own>>>(data + i);
      set<<<1, 1, 0, own>>>(data + i + 1, 1);
      wrong += cudaStreamSynchronize(own) != cudaSuccess;
      wrong += cudaStreamDestroy(own) != cudaSuccess;
    });
    nap(10);
  }
  for (std::thread& thread : all) thread.join();
  CHECK(wrong == 0 && at(kThreads) == 1);
}

static void copies() {
  // The original may change when the call has returned; the copy comes in its place.
  clear();
  std::vector<int> values(16, 7);
  wait_for<<<1, 1, 0, a>>>(mail);
  set<<<1, 1, 0, a>>>(data + 3, 1);
  OK(cudaMemcpyAsync(data, values.data(), 16 * sizeof(int), cudaMemcpyHostToDevice, a));
  OK(cudaMemcpy2DAsync(data + 16, 16, values.data(), 8, 8, 4, cudaMemcpyHostToDevice, a));
  add<<<1, 1, 0, a>>>(data + 3, 1);
  std::fill(values.begin(), values.end(), 9);
  GIVES(cudaStreamQuery(a), cudaErrorNotReady);
  *static_cast<volatile int*>(mail) = 1;
  // To pageable memory, and by calls without "Async", it is done when the call returns.
  OK(cudaMemcpyAsync(values.data(), data, 16 * sizeof(int), cudaMemcpyDeviceToHost, a));
  CHECK(values[0] == 7 && values[3] == 8 && values[15] == 7);
  CHECK(at(16) == 7 && at(17) == 7 && at(18) == 0 && at(29) == 7 && at(30) == 0);
  clear();
  int* pinned = nullptr;
  OK(cudaMallocHost(&pinned, 4));
  *pinned = 0;
  wait_for<<<1, 1>>>(mail);
  set<<<1, 1>>>(data, 5);
  std::thread writer([] {
    nap();
    *static_cast<volatile int*>(mail) = 1;
  });
  OK(cudaMemcpy(pinned, data, 4, cudaMemcpyDeviceToHost));
  CHECK(*pinned == 5);
  writer.join();
  OK(cudaFreeHost(pinned));
}

// What is wrong with work that has to wait is said by its call, and spoils nothing.
static void errors_ahead() {
  clear();
  int *small = nullptr, *pinned = nullptr;
  OK(cudaMalloc(&small, 256));
  OK(cudaMallocHost(&pinned, 256));
  wait_for<<<1, 1, 0, a>>>(mail);
  GIVES(cudaMemcpyAsync(small, pinned, 257, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue);
  GIVES(cudaMemcpyAsync(pinned, small + 1000, 4, cudaMemcpyDeviceToHost, a), cudaErrorInvalidValue);
  GIVES(cudaMemcpyAsync(small, data, 1024, cudaMemcpyDefault, a), cudaErrorInvalidValue);
  GIVES(cudaMemcpy2DAsync(small, 128, data, 64, 64, 3, cudaMemcpyDefault, a), cudaErrorInvalidValue);
  GIVES(cudaMemsetAsync(small, 1, 300, a), cudaErrorInvalidValue);
  GIVES(cudaMemset2DAsync(small, 128, 1, 64, 3, a), cudaErrorInvalidValue);
  GIVES(cudaMemset2DAsync(small, 32, 1, 64, 2, a), cudaErrorInvalidPitchValue);
  check(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(small), 1, 65, a) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  OK(cudaMemset2DAsync(small, 128, 1, 128, 2, a));
  OK(cudaMemcpy2DAsync(data + 1, 32, small, 128, 4, 2, cudaMemcpyDefault, a));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t node = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, small, pinned, 300, cudaMemcpyDefault));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  GIVES(cudaGraphLaunch(exec, a), cudaErrorInvalidValue);
  // Freed twice, whether the first has come or not; memory of the other side.
  OK(cudaFreeAsync(small, a));
  GIVES(cudaFreeAsync(small, b), cudaErrorInvalidValue);
  GIVES(cudaFree(small), cudaErrorInvalidValue);
  GIVES(cudaFreeAsync(pinned, a), cudaErrorInvalidValue);
  *static_cast<volatile int*>(mail) = 1;
  OK(cudaStreamSynchronize(a));
  CHECK(at(1) == 0x01010101 && at(9) == 0x01010101 && at(2) == 0);
  OK(cudaFreeHost(pinned));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

static void words() {
  clear();
  const auto word = reinterpret_cast<CUdeviceptr>(data);
  GOOD(cuStreamWaitValue32(a, word, 3, CU_STREAM_WAIT_VALUE_EQ));
  add<<<1, 1, 0, a>>>(data + 1, 1);
  GIVES(cudaStreamQuery(a), cudaErrorNotReady);
  GOOD(cuStreamWriteValue32(b, word, 2, 0));
  GIVES(cudaStreamQuery(a), cudaErrorNotReady);
  GOOD(cuStreamWriteValue32(b, word, 3, 0));
  OK(cudaStreamSynchronize(a));
  CHECK(at(1) == 1);
  // There and back, in graphs, each of which waits twice.
  clear();
  cudaGraph_t graphs[2] = {};
  cudaGraphExec_t execs[2] = {};
  for (int i = 0; i < 2; ++i) {
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    for (unsigned turn = 1; turn <= 2; ++turn) {
      if (i == 0) GOOD(cuStreamWriteValue32(a, word, turn, 0));
      GOOD(cuStreamWaitValue32(a, word + 4u * (i == 0), turn, CU_STREAM_WAIT_VALUE_EQ));
      if (i == 1) GOOD(cuStreamWriteValue32(a, word + 4, turn, 0));
      add<<<1, 1, 0, a>>>(data + 2 + i, 1);
    }
    OK(cudaStreamEndCapture(a, &graphs[i]));
    OK(cudaGraphInstantiate(&execs[i], graphs[i], 0));
  }
  OK(cudaGraphLaunch(execs[0], a));
  OK(cudaGraphLaunch(execs[1], b));
  OK(cudaDeviceSynchronize());
  CHECK(at(0) == 2 && at(1) == 2 && at(2) == 2 && at(3) == 2);
}

// One mistake, and what the next wait says about it.
static cudaError_t spoil(const char* which) {
  static Gate gate;
  if (std::strcmp(which, "function") == 0) {  // it never returns
    OK(cudaLaunchHostFunc(a, pass, &gate));
  } else if (std::strcmp(which, "word") == 0) {  // nobody writes it
    GOOD(cuStreamWaitValue32(a, reinterpret_cast<CUdeviceptr>(data), 3, CU_STREAM_WAIT_VALUE_EQ));
  } else if (std::strcmp(which, "freed") == 0) {  // a copy to memory that another stream gives back before
    int* memory = nullptr;
    OK(cudaMallocAsync(&memory, 256, b));
    OK(cudaLaunchHostFunc(a, pass, &gate));
    OK(cudaMemcpyAsync(memory, data, 128, cudaMemcpyDefault, a));
    OK(cudaFreeAsync(memory, b));
    gate.is_open = true;
  } else {  // a kernel fails before a callback, which is told
    OK(cudaLaunchHostFunc(b, pass, &gate));
    cudaEvent_t event;
    OK(cudaEventCreate(&event));
    OK(cudaEventRecord(event, b));
    OK(cudaStreamWaitEvent(a, event));
    add<<<1, 1, 0, a>>>(data + (1 << 30), 1);
    static Gate told;
    told.is_open = true;
    OK(cudaStreamAddCallback(a, pass_callback, &told, 0));
    gate.is_open = true;
    while (told.passed == 0) std::this_thread::yield();
    std::printf("the callback is told %s\n", cudaGetErrorName(told.status));
  }
  return cudaStreamSynchronize(a);
}

int main(int argc, char** argv) {
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  OK(cudaMalloc(&data, 64 * sizeof(int)));
  OK(cudaMallocHost(&mail, 64));
  clear();
  if (argc > 1) {
    std::printf("%s\n", cudaGetErrorName(spoil(argv[1])));
    std::fflush(stdout);
    return 0;
  }
  host_functions();
  graphs_in_two_streams();
  capture_to_a_graph();
  threads();
  copies();
  errors_ahead();
  words();
  std::printf("%d answers are wrong\n", failures);
  return failures == 0 ? 0 : 1;
}

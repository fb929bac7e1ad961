// Compiled with --default-stream per-thread: stream 0 is the thread's own, which a capture elsewhere does not concern.
#include <cuda_runtime.h>

#include <cstdio>

static int failures = 0;
static void check(bool is_right, int line) {
  if (is_right) return;
  std::printf("line %d is wrong\n", line);
  ++failures;
}
#define OK(call) check((call) == cudaSuccess, __LINE__)
#define GIVES(call, error) (check((call) == (error), __LINE__), cudaGetLastError())

__global__ void add(int* data, int value) { *data += value; }

int main() {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  int *data = nullptr, value = 0;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&data, sizeof(int)));
  OK(cudaMemset(data, 0, sizeof(int)));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  add<<<1, 1, 0, stream>>>(data, 100);
  add<<<1, 1>>>(data, 1);
  OK(cudaGetLastError());
  OK(cudaMemcpy(&value, data, sizeof(int), cudaMemcpyDeviceToHost));
  check(value == 1, __LINE__);
  GIVES(cudaMemcpyAsync(&value, data, sizeof(int), cudaMemcpyDeviceToHost, cudaStreamLegacy),
        cudaErrorStreamCaptureImplicit);
  GIVES(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));
  add<<<1, 1>>>(data, 10);
  OK(cudaStreamEndCapture(0, &graph));
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, 0));
  OK(cudaMemcpy(&value, data, sizeof(int), cudaMemcpyDeviceToHost));
  check(value == 11, __LINE__);
  std::printf("%d answers are wrong\n", failures);
  return failures == 0 ? 0 : 1;
}

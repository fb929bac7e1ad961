// What a capture refuses, by the runtime and by the driver: calls that it does not see, the legacy stream, waits, work
// that is not joined, another thread's end. Prints how many answers are wrong.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <thread>

#include "checks.h"

__global__ void add(int* data, int value) { *data += value; }

static cudaStream_t blocking, apart, other;
static int* data;
static cudaGraph_t graph;

static void begin(cudaStream_t stream, cudaStreamCaptureMode mode) {
  OK(cudaStreamBeginCapture(stream, mode));
  add<<<1, 1, 0, stream>>>(data, 1);
  OK(cudaGetLastError());
}
static void ends(cudaStream_t stream, cudaError_t error) {
  graph = reinterpret_cast<cudaGraph_t>(&failures);
  GIVES(cudaStreamEndCapture(stream, &graph), error);
  CHECK((graph == nullptr) == (error != cudaSuccess));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
}

// Calls that a capture does not see, in each mode.
static void unsafe_calls() {
  void* memory = nullptr;
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(apart, mode);
    GIVES(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureStatus status{};
    OK(cudaStreamIsCapturing(apart, &status));
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    add<<<1, 1, 0, apart>>>(data, 1);
    GIVES(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
    ends(apart, cudaErrorStreamCaptureInvalidated);
    begin(apart, mode);
    CHECK(cuMemFree(reinterpret_cast<CUdeviceptr>(data)) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ends(apart, cudaErrorStreamCaptureInvalidated);
  }
  begin(apart, cudaStreamCaptureModeRelaxed);
  OK(cudaMalloc(&memory, 16));
  ends(apart, cudaSuccess);
  begin(apart, cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  OK(cudaFree(memory));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeRelaxed);
  ends(apart, cudaSuccess);
}

static void other_threads() {
  cudaEvent_t before = nullptr;
  OK(cudaEventCreate(&before));
  OK(cudaEventRecord(before, other));
  const auto query = [&](bool is_relaxed, cudaError_t error) {
    std::thread([&] {
      cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
      if (is_relaxed) OK(cudaThreadExchangeStreamCaptureMode(&mode));
      GIVES(cudaEventQuery(before), error);
    }).join();
  };
  begin(apart, cudaStreamCaptureModeGlobal);
  query(true, cudaSuccess);
  query(false, cudaErrorStreamCaptureUnsupported);
  ends(apart, cudaErrorStreamCaptureInvalidated);
  begin(apart, cudaStreamCaptureModeThreadLocal);
  query(false, cudaSuccess);
  std::thread([&] {
    cudaGraph_t none = nullptr;
    GIVES(cudaStreamEndCapture(apart, &none), cudaErrorStreamCaptureWrongThread);
  }).join();
  ends(apart, cudaSuccess);
  begin(apart, cudaStreamCaptureModeRelaxed);
  std::thread([&] { ends(apart, cudaSuccess); }).join();
}

static void legacy_stream() {
  int value = 0;
  begin(blocking, cudaStreamCaptureModeRelaxed);
  GIVES(cudaMemcpy(&value, data, 4, cudaMemcpyDefault), cudaErrorStreamCaptureImplicit);
  ends(blocking, cudaErrorStreamCaptureInvalidated);
  begin(blocking, cudaStreamCaptureModeRelaxed);
  add<<<1, 1>>>(data, 1);
  GIVES(cudaGetLastError(), cudaErrorStreamCaptureImplicit);
  ends(blocking, cudaErrorStreamCaptureInvalidated);
  begin(blocking, cudaStreamCaptureModeRelaxed);
  cudaStreamCaptureStatus status{};
  GIVES(cudaStreamIsCapturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);  // and breaks nothing
  add<<<1, 1, 0, cudaStreamPerThread>>>(data, 1);
  OK(cudaGetLastError());
  ends(blocking, cudaSuccess);
  begin(apart, cudaStreamCaptureModeGlobal);  // of a stream that does not wait for the legacy one
  OK(cudaMemcpy(&value, data, 4, cudaMemcpyDefault));
  ends(apart, cudaSuccess);
  GIVES(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  begin(cudaStreamPerThread, cudaStreamCaptureModeGlobal);
  ends(cudaStreamPerThread, cudaSuccess);
}

static void waits() {
  for (const auto& wait :
       {+[] { return cudaStreamSynchronize(blocking); }, +[] { return cudaStreamQuery(blocking); },
        +[] { return cudaDeviceSynchronize(); }, +[] { return static_cast<cudaError_t>(cuCtxSynchronize()); },
        +[] {
          return cudaStreamAddCallback(
              blocking, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);
        }}) {
    begin(blocking, cudaStreamCaptureModeRelaxed);
    GIVES(wait(), cudaErrorStreamCaptureUnsupported);
    ends(blocking, cudaErrorStreamCaptureInvalidated);
  }
  cudaEvent_t event = nullptr, plain = nullptr;
  OK(cudaEventCreate(&event));
  OK(cudaEventCreate(&plain));
  for (const auto wait : {cudaEventQuery, cudaEventSynchronize}) {
    begin(blocking, cudaStreamCaptureModeRelaxed);
    OK(cudaEventRecord(event, blocking));
    GIVES(wait(event), cudaErrorCapturedEvent);
    ends(blocking, cudaErrorStreamCaptureInvalidated);
    GIVES(wait(event), cudaErrorCapturedEvent);  // still the last place where it was recorded
  }
  float time = 0;
  GIVES(cudaEventElapsedTime(&time, event, event), cudaErrorCapturedEvent);
  // An event of work that is not captured, and one that the graph records when it is launched.
  OK(cudaEventRecord(plain, other));
  begin(blocking, cudaStreamCaptureModeGlobal);
  GIVES(cudaStreamWaitEvent(blocking, plain, 0), cudaErrorStreamCaptureIsolation);
  ends(blocking, cudaErrorStreamCaptureInvalidated);
  begin(blocking, cudaStreamCaptureModeGlobal);
  OK(cudaStreamWaitEvent(blocking, plain, cudaEventWaitExternal));
  OK(cudaEventRecordWithFlags(event, blocking, cudaEventRecordExternal));
  ends(blocking, cudaSuccess);
  std::size_t count = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  CHECK(count == 3);
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaEventRecord(event, other));
  OK(cudaGraphLaunch(exec, other));
  OK(cudaEventQuery(event));
}

static void forks() {
  cudaEvent_t event = nullptr, joined = nullptr;
  OK(cudaEventCreate(&event));
  OK(cudaEventCreate(&joined));
  begin(blocking, cudaStreamCaptureModeGlobal);
  OK(cudaEventRecord(event, blocking));
  OK(cudaStreamWaitEvent(other, event, 0));
  add<<<1, 1, 0, other>>>(data, 1);
  ends(blocking, cudaErrorStreamCaptureUnjoined);
  begin(blocking, cudaStreamCaptureModeGlobal);
  OK(cudaEventRecord(event, blocking));
  OK(cudaStreamWaitEvent(other, event, 0));
  add<<<1, 1, 0, other>>>(data, 1);
  GIVES(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
  OK(cudaEventRecord(joined, other));
  OK(cudaStreamWaitEvent(blocking, joined, 0));
  ends(blocking, cudaSuccess);
  begin(blocking, cudaStreamCaptureModeGlobal);
  begin(apart, cudaStreamCaptureModeGlobal);
  OK(cudaEventRecord(event, blocking));
  GIVES(cudaStreamWaitEvent(apart, event, 0), cudaErrorStreamCaptureMerge);
  ends(apart, cudaErrorStreamCaptureInvalidated);
  ends(blocking, cudaErrorStreamCaptureInvalidated);
  begin(blocking, cudaStreamCaptureModeGlobal);
  GIVES(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  ends(blocking, cudaSuccess);
  GIVES(cudaStreamEndCapture(blocking, &graph), cudaErrorIllegalState);
}

int main() {
  OK(cudaStreamCreate(&blocking));
  OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaMalloc(&data, sizeof(int)));
  OK(cudaMemset(data, 0, sizeof(int)));
  unsafe_calls();
  other_threads();
  legacy_stream();
  waits();
  forks();
  // What was captured has not run, but for one graph and the launches into streams that were not captured.
  int value = 0;
  OK(cudaMemcpy(&value, data, sizeof(int), cudaMemcpyDefault));
  CHECK(value == 2);
  std::printf("%d answers are wrong\n", failures);
  return failures == 0 ? 0 : 1;
}

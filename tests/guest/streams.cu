// Launches that wait for others, which is legal where both are resident: for a launch of another stream that is asked
// for later, there and back; for the host, by mapped memory; and what comes behind such a launch in its stream, by
// events and by the default stream.
#include <cuda_runtime.h>

#include <cstdio>

static int failures = 0;
static void expect(const char* what, bool holds) {
  if (!holds) std::printf("FAIL %s: %s\n", what, cudaGetErrorName(cudaGetLastError()));
  failures += !holds;
}

__device__ volatile int flags[4];

__global__ void wait_then_set(int waits, int sets) {
  while (flags[waits] == 0) {
  }
  __threadfence();
  flags[sets] = flags[waits] + 1;
}
__global__ void set(int which, int value) { flags[which] = value; }
__global__ void ping(int turns, int own, int other) {
  for (int turn = 1; turn <= turns; ++turn) {
    if (own == 2) {
      flags[2] = turn;
      while (flags[other] != turn) {
      }
    } else {
      while (flags[other] != turn) {
      }
      flags[3] = turn;
    }
  }
}
__global__ void wait_for_host(volatile int* mail) {
  while (mail[0] == 0) {
  }
  mail[1] = mail[0] * 2;
}
__global__ void wait_long(volatile int* word, int times) {
  int sum = 0;
  for (int i = 0; i < times; ++i) sum += word[0];
  word[0] = sum;
}
__global__ void add(int* to, int value) { *to += value; }

static int flag(int which) {
  int value = -1;
  cudaMemcpyFromSymbol(&value, flags, sizeof(int), sizeof(int) * static_cast<unsigned>(which));
  return value;
}
static void clear() {
  const int zeros[4] = {};
  cudaMemcpyToSymbol(flags, zeros, sizeof(zeros));
}

int main() {
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaEvent_t done;
  cudaEventCreate(&done);

  clear();
  wait_then_set<<<1, 1, 0, a>>>(0, 1);
  expect("a stream with a launch that waits is not ready", cudaStreamQuery(a) == cudaErrorNotReady);
  cudaEventRecord(done, a);
  expect("nor is an event behind it", cudaEventQuery(done) == cudaErrorNotReady);
  set<<<1, 1, 0, b>>>(0, 7);
  expect("the other stream", cudaStreamSynchronize(b) == cudaSuccess);
  expect("the first one", cudaStreamSynchronize(a) == cudaSuccess);
  expect("its event", cudaEventQuery(done) == cudaSuccess && flag(1) == 8);

  clear();
  ping<<<1, 1, 0, a>>>(20, 2, 3);
  ping<<<1, 1, 0, b>>>(20, 3, 2);
  expect("there and back", cudaDeviceSynchronize() == cudaSuccess && flag(2) == 20 && flag(3) == 20);

  int *mail = nullptr, *sum = nullptr;
  cudaMallocHost(&mail, 2 * sizeof(int));
  cudaMalloc(&sum, sizeof(int));
  cudaMemset(sum, 0, sizeof(int));
  volatile int* const box = mail;
  box[0] = box[1] = 0;
  wait_for_host<<<1, 1, 0, a>>>(mail);
  add<<<1, 1, 0, a>>>(sum, 5);  // in order behind it
  cudaEventRecord(done, a);
  cudaStreamWaitEvent(b, done);
  add<<<1, 1, 0, b>>>(sum, 6);  // and in another stream behind the event
  box[0] = 21;
  while (box[1] == 0) {  // without a call
  }
  expect("the host's answer", box[1] == 42);
  int found = -1;
  expect("what stands behind", cudaStreamSynchronize(b) == cudaSuccess);
  cudaMemcpy(&found, sum, sizeof(int), cudaMemcpyDeviceToHost);
  expect("has run in order", found == 11);

  cudaStream_t blocking;
  cudaStreamCreate(&blocking);
  box[0] = box[1] = 0;
  wait_for_host<<<1, 1, 0, blocking>>>(mail);
  add<<<1, 1>>>(sum, 100);  // the default stream waits for blocking ones
  box[0] = 1;
  cudaMemcpy(&found, sum, sizeof(int), cudaMemcpyDeviceToHost);
  expect("the default stream", found == 111 && box[1] == 2);

  // A wait for an event is work of its stream, which the default stream waits for.
  box[0] = box[1] = 0;
  wait_for_host<<<1, 1, 0, a>>>(mail);
  add<<<1, 1, 0, a>>>(sum, 1000);
  cudaEventRecord(done, a);
  cudaStreamWaitEvent(blocking, done);
  expect("a fill of the device's memory comes behind it, and its call returns",
         cudaMemset(sum, 0, sizeof(int)) == cudaSuccess && box[1] == 0);
  box[0] = 1;
  cudaMemcpy(&found, sum, sizeof(int), cudaMemcpyDeviceToHost);
  expect("the default stream behind a wait", found == 0 && box[1] == 2);

  // So is one in a graph.
  cudaGraph_t graph;
  cudaGraphExec_t instance;
  cudaGraphNode_t node;
  cudaGraphCreate(&graph, 0);
  cudaGraphAddEventWaitNode(&node, graph, nullptr, 0, done);
  cudaGraphInstantiate(&instance, graph, 0);
  clear();
  wait_then_set<<<1, 1, 0, a>>>(0, 1);
  cudaEventRecord(done, a);
  set<<<1, 1, 0, b>>>(0, 7);
  cudaGraphLaunch(instance, b);
  expect("a graph that waits for an event",
         cudaStreamSynchronize(b) == cudaSuccess && cudaEventQuery(done) == cudaSuccess);
  expect("no error is left", cudaGetLastError() == cudaSuccess && cudaFree(sum) == cudaSuccess);

  // Nobody waits for the last one; the end of the program does, and its summary counts it.
  int* last = nullptr;
  cudaMalloc(&last, sizeof(int));
  cudaMemset(last, 0, sizeof(int));
  wait_long<<<1, 1>>>(last, 3000000);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

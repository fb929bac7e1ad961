// Streams that touch the same memory, with and without what orders them: `missing-stream-order` of the race detector.
// Without a word all of them are ordered, by every means that there is; a word names what is left out.
#include <cstring>

#include "checks.h"

namespace {

constexpr int kCount = 4096;

__global__ void produce(int* a) { a[blockIdx.x * blockDim.x + threadIdx.x] = 3; }
__global__ void consume(const int* a, int* o) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = a[i] + 1;  // the reader
}
__global__ void count(int* sum) { atomicAdd(sum, 1); }

struct Streams {
  cudaStream_t a, b;
  cudaEvent_t event;
  int *data, *other, *pinned;
  Streams() {
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaMalloc(&data, kCount * 4), cudaMalloc(&other, kCount * 4), cudaMallocHost(&pinned, kCount * 4);
    cudaMemset(data, 0, kCount * 4);
    cudaDeviceSynchronize();
  }
  void order() { cudaEventRecord(event, a), cudaStreamWaitEvent(b, event, 0); }
  void make() { produce<<<16, 256, 0, a>>>(data); }
  void use() { consume<<<16, 256, 0, b>>>(data, other); }
};

// Each leaves everything done behind it.
void ordered(Streams& s) {
  s.make(), s.order(), s.use();
  cudaDeviceSynchronize();
  s.make(), cudaStreamSynchronize(s.a), s.use();
  cudaDeviceSynchronize();
  s.make(), cudaEventRecord(s.event, s.a), cudaEventSynchronize(s.event), s.use();
  cudaDeviceSynchronize();
  s.make();
  while (cudaStreamQuery(s.a) != cudaSuccess) {
  }
  s.use();
  cudaDeviceSynchronize();
  // Through a third stream, and by a copy in between.
  cudaStream_t third;
  cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking);
  s.make(), cudaEventRecord(s.event, s.a), cudaStreamWaitEvent(third, s.event, 0), cudaEventRecord(s.event, third);
  cudaStreamWaitEvent(s.b, s.event, 0), s.use();
  cudaDeviceSynchronize();
  cudaMemcpyAsync(s.pinned, s.data, kCount * 4, cudaMemcpyDeviceToHost, s.a), s.order();
  cudaMemsetAsync(s.data, 0, kCount * 4, s.b);
  cudaDeviceSynchronize();
  // The legacy stream and one that it waits for.
  cudaStream_t blocking;
  cudaStreamCreate(&blocking);
  produce<<<16, 256, 0, blocking>>>(s.data);
  consume<<<16, 256>>>(s.data, s.other);
  produce<<<16, 256, 0, blocking>>>(s.data);
  cudaDeviceSynchronize();
  produce<<<16, 256, 0, blocking>>>(s.data);
  cudaStreamDestroy(blocking);
  consume<<<16, 256>>>(s.data, s.other);
  cudaDeviceSynchronize();
  // Both read; both add by atomics; each its own half.
  consume<<<16, 256, 0, s.a>>>(s.data, s.other), consume<<<16, 256, 0, s.b>>>(s.data, s.pinned);
  cudaDeviceSynchronize();
  count<<<4, 32, 0, s.a>>>(s.data), count<<<4, 32, 0, s.b>>>(s.data);
  cudaDeviceSynchronize();
  produce<<<8, 256, 0, s.a>>>(s.data), produce<<<8, 256, 0, s.b>>>(s.data + kCount / 2);
  cudaDeviceSynchronize();
  // A graph that forks and joins inside, launched in two streams: one after the other.
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
  s.make(), s.order(), s.use(), cudaEventRecord(s.event, s.b), cudaStreamWaitEvent(s.a, s.event, 0);
  cudaStreamEndCapture(s.a, &graph), cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, s.a), cudaGraphLaunch(executable, s.b);
  cudaDeviceSynchronize();
  // Memory that comes back at the address of what another stream has used.
  int *first, *second;
  cudaMallocAsync(&first, kCount * 4, s.a), produce<<<16, 256, 0, s.a>>>(first), cudaFreeAsync(first, s.a);
  cudaMallocAsync(&second, kCount * 4, s.b), produce<<<16, 256, 0, s.b>>>(second), cudaFreeAsync(second, s.b);
  cudaDeviceSynchronize();
}

bool leave_out(Streams& s, const char* what) {
  const auto is = [&](const char* word) { return std::strcmp(what, word) == 0; };
  if (is("event")) {
    s.make(), s.use();
  } else if (is("late")) {  // the event comes before what it should be behind
    cudaEventRecord(s.event, s.a), s.make(), cudaStreamWaitEvent(s.b, s.event, 0), s.use();
  } else if (is("overwrite")) {
    s.use(), s.make();
  } else if (is("copy")) {
    s.make(), cudaMemcpyAsync(s.pinned, s.data, kCount * 4, cudaMemcpyDeviceToHost, s.b);
  } else if (is("fill")) {
    cudaMemset(s.data, 0, kCount * 4), s.use();  // the legacy stream's, which a non-blocking one does not wait for
  } else if (is("copies")) {
    cudaMemcpyAsync(s.data, s.other, kCount * 4, cudaMemcpyDeviceToDevice, s.a);
    cudaMemcpyAsync(s.other, s.data, 4, cudaMemcpyDeviceToDevice, s.b);
  } else if (is("free")) {
    int* memory;
    cudaMallocAsync(&memory, kCount * 4, s.a), produce<<<16, 256, 0, s.a>>>(memory), s.order();
    consume<<<16, 256, 0, s.b>>>(memory, s.other), cudaFreeAsync(memory, s.a);
  } else if (is("graph")) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal), s.make(), cudaStreamEndCapture(s.a, &graph);
    cudaGraphInstantiate(&executable, graph, 0), cudaGraphLaunch(executable, s.a), s.use();
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Streams streams;
  if (argc > 1 && !leave_out(streams, argv[1])) return 2;
  if (argc == 1) ordered(streams);
  OK(cudaDeviceSynchronize());
  std::printf("%d failures\n", failures);
  return failures != 0;
}

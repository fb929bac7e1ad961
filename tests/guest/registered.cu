// Memory of the host's that is registered: stacks, globals, the heap, unaligned, read only, shared by processes; what
// the host and kernels write is seen by the other, a child of fork has its own. Prints how many answers are wrong.
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "checks.h"

__global__ void add(int* data, int count, int value) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) data[i] += value;
}
__global__ void read(const char* from, char* to) { *to = *from; }

static int global[5000];
static const char constant[8192] = "constant";

static int* on_device(void* host) {
  int* found = nullptr;
  OK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&found), host, 0));
  return found;
}

// The host writes before and after, a kernel between; contents and neighbours stay.
static void both_write(int* data, int count, int line) {
  for (int i = 0; i < count; ++i) data[i] = i;
  check(cudaHostRegister(data, sizeof(int) * count, cudaHostRegisterMapped) == cudaSuccess, line);
  int* const device = on_device(data);
  for (int round = 1; round <= 2; ++round) {
    add<<<1, 64>>>(device, count, 10);
    OK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += data[i] != i + 11 * round - 1;
    check(wrong == 0, line);
    for (int i = 0; i < count; ++i) data[i] += 1;
  }
  int last = 0;
  OK(cudaMemcpy(&last, device + count - 1, sizeof(int), cudaMemcpyDefault));
  check(last == count - 1 + 22, line);
  check(cudaHostUnregister(data) == cudaSuccess, line);
  check(data[0] == 22 && data[count - 1] == count - 1 + 22, line);
}

static int deep(int depth) {  // frames above and below on pages that are replaced
  int values[40];
  if (depth > 0) {
    const int below = deep(depth - 1);
    for (int& value : values) value = below;
    return values[depth] + 1;
  }
  both_write(values + 1, 37, __LINE__);
  return values[1];
}

static void flags_and_errors() {
  std::vector<int> values(3000);
  unsigned flags = 0;
  GIVES(cudaHostRegister(values.data(), 0, 0), cudaErrorInvalidValue);
  GIVES(cudaHostRegister(values.data(), 400, 64), cudaErrorInvalidValue);
  GIVES(cudaHostRegister(nullptr, 400, 0), cudaErrorInvalidValue);
  OK(cudaHostRegister(values.data() + 100, 4000, cudaHostRegisterPortable | cudaHostRegisterMapped));
  OK(cudaHostGetFlags(&flags, values.data() + 150));
  CHECK(flags == (cudaHostRegisterPortable | cudaHostRegisterMapped));
  GIVES(cudaHostRegister(values.data() + 100, 4000, 0), cudaErrorHostMemoryAlreadyRegistered);
  GIVES(cudaHostRegister(values.data() + 50, 400, 0), cudaErrorHostMemoryAlreadyRegistered);
  GIVES(cudaHostUnregister(values.data() + 101), cudaErrorHostMemoryNotRegistered);
  GIVES(cudaHostUnregister(values.data()), cudaErrorHostMemoryNotRegistered);
  CHECK(cuMemHostRegister(values.data() + 100, 4, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  // The same page again, of another block: both stay one memory with the host.
  OK(cudaHostRegister(values.data() + 1100, 800, cudaHostRegisterIoMemory));
  add<<<1, 32>>>(on_device(values.data() + 100), 1000, 3);
  add<<<1, 32>>>(on_device(values.data() + 1100), 200, 4);
  OK(cudaDeviceSynchronize());
  CHECK(values[99] == 0 && values[100] == 3 && values[1099] == 3 && values[1100] == 4 && values[1299] == 4);
  OK(cudaHostUnregister(values.data() + 100));
  values[1100] = 7;
  int seen = 0;
  OK(cudaMemcpy(&seen, on_device(values.data() + 1100), 4, cudaMemcpyDefault));
  CHECK(seen == 7);
  OK(cudaHostUnregister(values.data() + 1100));
  GIVES(cudaHostUnregister(values.data() + 100), cudaErrorHostMemoryNotRegistered);
  void *managed = nullptr, *device = nullptr, *pinned = nullptr;
  OK(cudaMallocManaged(&managed, 64));
  OK(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable));
  OK(cudaMalloc(&device, 64));
  GIVES(cudaHostRegister(managed, 64, 0), cudaErrorHostMemoryAlreadyRegistered);
  GIVES(cudaHostRegister(pinned, 64, 0), cudaErrorHostMemoryAlreadyRegistered);
  GIVES(cudaHostRegister(device, 64, 0), cudaErrorInvalidValue);
  char* const none = static_cast<char*>(mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  GIVES(cudaHostRegister(none, 4096, 0), cudaErrorInvalidValue);
}

struct Two {
  int count;
  int* data;
};
__global__ void add_two(Two two, int value) {
  for (int i = 0; i < two.count; ++i) two.data[i] += value;
}

// Kernels get the host's own address.
static void by_the_hosts_address() {
  std::vector<int> values(100, 1);
  OK(cudaHostRegister(values.data(), 400, 0));
  add<<<1, 32>>>(values.data() + 1, 99, 4);
  add_two<<<1, 1>>>(Two{50, values.data()}, 10);
  OK(cudaDeviceSynchronize());
  CHECK(values[0] == 11 && values[1] == 15 && values[49] == 15 && values[50] == 5);
  OK(cudaHostUnregister(values.data()));
}

static void read_only() {
  void* const place = const_cast<char*>(constant);
  OK(cudaHostRegister(place, sizeof(constant), cudaHostRegisterReadOnly));
  char* to = nullptr;
  OK(cudaMalloc(&to, 1));
  read<<<1, 1>>>(reinterpret_cast<const char*>(on_device(place)) + 3, to);
  char found = 0;
  OK(cudaMemcpy(&found, to, 1, cudaMemcpyDefault));
  CHECK(found == 's' && std::strcmp(constant, "constant") == 0);
  OK(cudaHostUnregister(place));
}

// Pages that a child has in common with its parent stay in common.
static void shared_by_processes() {
  int* const shared = static_cast<int*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  OK(cudaHostRegister(shared + 3, 400, 0));
  add<<<1, 32>>>(on_device(shared + 3), 100, 5);
  OK(cudaDeviceSynchronize());
  const pid_t child = fork();
  if (child == 0) {
    shared[4] += 100;
    _exit(shared[3] == 5 ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  add<<<1, 32>>>(on_device(shared + 3), 100, 1);
  OK(cudaDeviceSynchronize());
  CHECK(shared[4] == 106);
  OK(cudaHostUnregister(shared + 3));
}

static void fork_on_a_registered_stack() {
  int values[3000];
  for (int& value : values) value = 1;
  OK(cudaHostRegister(values, sizeof(values), 0));
  const pid_t child = fork();
  if (child == 0) {
    int sum = 0;
    for (int& value : values) sum += value++;
    _exit(sum == 3000 ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  add<<<1, 32>>>(on_device(values), 3000, 2);
  OK(cudaDeviceSynchronize());
  CHECK(values[0] == 3 && values[2999] == 3);
  OK(cudaHostUnregister(values));
}

int main() {
  int values[3000];
  both_write(values, 3000, __LINE__);
  both_write(values + 5, 16, __LINE__);
  both_write(global, 5000, __LINE__);
  both_write(global + 7, 1, __LINE__);
  CHECK(deep(6) == 22 + 6);
  std::thread([] {
    int own[5000];
    both_write(own, 5000, __LINE__);
    fork_on_a_registered_stack();
  }).join();
  std::vector<int> small(100), large(1000000);
  both_write(small.data() + 1, 99, __LINE__);
  both_write(large.data(), 1000000, __LINE__);
  by_the_hosts_address();
  flags_and_errors();
  read_only();
  shared_by_processes();
  fork_on_a_registered_stack();
  std::printf("%d answers are wrong\n", failures);
  return failures == 0 ? 0 : 1;
}

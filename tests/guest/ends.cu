// Ends in the way that its argument names, after two launches; its counts are told all the same. "fork" and
// "fork_first" ask what CUDA answers in a child.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

__device__ int sum;
__global__ void count(int n) { atomicAdd(&sum, n); }

static void launch_twice() {
  count<<<1, 32>>>(1);
  count<<<1, 32>>>(2);
  cudaDeviceSynchronize();
}

// What a child's first calls answer; its exit code.
static int child_of(void (*end)(int)) {
  const pid_t child = fork();
  if (child == 0) {
    int* memory = nullptr;
    const cudaError_t allocated = cudaMalloc(&memory, 4), kept = cudaGetLastError();
    count<<<1, 1>>>(1);
    const cudaError_t launched = cudaGetLastError();
    int devices = 0;
    std::printf("in the child: %s %s %s %s\n", cudaGetErrorName(allocated), cudaGetErrorName(kept),
                cudaGetErrorName(launched), cudaGetErrorName(cudaGetDeviceCount(&devices)));
    std::fflush(stdout);
    end(allocated == cudaSuccess ? 0 : static_cast<int>(allocated));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

int main(int, char** arguments) {
  const char* const how = arguments[1];
  const auto is = [&](const char* name) { return std::strcmp(how, name) == 0; };
  if (is("fork_first")) {
    const int code = child_of(_exit);
    launch_twice();
    return code;
  }
  launch_twice();
  if (is("quick_exit")) std::quick_exit(5);
  if (is("_exit")) _exit(6);
  if (is("abort")) std::abort();
  if (is("segv")) *reinterpret_cast<volatile int*>(0x10) = 1;
  if (is("term")) std::raise(SIGTERM);
  if (is("kill")) std::raise(SIGKILL);
  if (is("own")) {
    std::signal(SIGTERM, [](int) { _exit(8); });
    std::raise(SIGTERM);
  }
  if (is("fork")) return child_of(std::exit);
  return 0;
}

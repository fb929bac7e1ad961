// The CUDA runtime's registration and launches: what nvcc's host code calls before main and for <<<>>>.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "guest/capture.h"
#include "guest/turns.h"
#include "tessera/error.h"

using namespace tessera::guest;

namespace {

struct Configuration {
  dim3 grid, block;
  std::size_t smem = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

// What __cudaRegisterFatBinary is given: nvcc's wrapper around a fat binary. In version 2, of device code that was
// linked
// (-rdc=true), that is machine code, and behind it stand the fat binaries of the objects, with PTX, and a null.
struct Wrapper {
  int magic, version;
  const void* data;
  const void* const* objects;
};

cudaError_t launch(const char* function, const void* host, LaunchWork work, void* const* arguments,
                   cudaStream_t stream) {
  return called(function, [&]() -> cudaError_t {
    work.kernel = Registry::instance().kernel(host);
    if (work.kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    work.host = host;
    if (const cudaError_t error = check(work); error != cudaSuccess) return error;
    work.arguments = pack(*work.kernel, arguments);
    return submit(stream, std::move(work));
  });
}

LaunchWork work_of(dim3 grid, dim3 block, std::size_t smem) {
  LaunchWork work;
  work.grid = grid;
  work.block = block;
  work.smem = smem;
  return work;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  const auto* const given = static_cast<const Wrapper*>(wrapper);
  try {
    std::vector<const void*> objects;
    if (given->version == 2)
      for (const void* const* object = given->objects; object != nullptr && *object != nullptr; ++object)
        objects.push_back(*object);
    return reinterpret_cast<void**>(Registry::instance().add(given->data, objects));
  } catch (const tessera::Error& error) {
    Session::instance().add_problem(error.what());
    return nullptr;
  }
}
void __cudaRegisterFatBinaryEnd(void**) {}
// At exit, or when a library is closed, whose variables are gone then. What the host has of the module stays valid.
void __cudaUnregisterFatBinary(void** module) { Registry::instance().remove(reinterpret_cast<Module*>(module)); }
void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  if (module != nullptr) Registry::instance().add_kernel(host, reinterpret_cast<Module*>(module), name);
}
void __cudaRegisterVar(void** module, char* host, char*, const char* name, int, std::size_t, int, int) {
  if (module != nullptr) Registry::instance().add_variable(host, reinterpret_cast<Module*>(module), name);
}
void __cudaRegisterHostVar(void** module, const char* name, char* host, std::size_t) {
  if (module != nullptr) Registry::instance().add_variable(host, reinterpret_cast<Module*>(module), name);
}
void __cudaRegisterManagedVar(void** module, void** pointer, char*, const char* name, int, std::size_t, int, int) {
  if (module != nullptr) Registry::instance().add_managed(pointer, reinterpret_cast<Module*>(module), name);
}
void __cudaRegisterUnifiedTable(void**, void*) {}
char __cudaInitModule(void**) {
  guarded(__func__, [] {
    Registry::instance().place_managed();
    return cudaSuccess;
  });
  return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t smem, cudaStream_t stream) {
  configurations.push_back({grid, block, smem, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* smem, void* stream) {
  if (configurations.empty()) return told(cudaErrorMissingConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *smem = last.smem;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return Registry::instance().has_kernel(host) ? cudaSuccess : told(cudaErrorInvalidDeviceFunction);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t smem,
                               cudaStream_t stream) {
  return cudaLaunchKernel(static_cast<const void*>(kernel), grid, block, arguments, smem, stream);
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t smem,
                             cudaStream_t stream) {
  return launch(__func__, host, work_of(grid, block, smem), arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t smem,
                                        cudaStream_t stream) {
  LaunchWork work = work_of(grid, block, smem);
  work.is_cooperative = true;
  return launch(__func__, host, std::move(work), arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
  LaunchWork work = work_of(config->gridDim, config->blockDim, config->dynamicSmemBytes);
  for (unsigned i = 0; i < config->numAttrs; ++i) set_attribute(work, config->attrs[i].id, config->attrs[i].val);
  return launch(__func__, host, std::move(work), arguments, config->stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return called(__func__, [&]() -> cudaError_t {
    return function == nullptr ? cudaErrorInvalidValue : submit(stream, HostWork{function, data});
  });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    if (function == nullptr || flags != 0) return cudaErrorInvalidValue;
    const cudaError_t error = awaitable(stream);
    return error != cudaSuccess ? error : submit(stream, HostWork{nullptr, data, function, stream});
  });
}

// Facts about kernels.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    const Gpu& gpu = Session::instance().gpu();
    std::memset(attributes, 0, sizeof(*attributes));
    attributes->sharedSizeBytes = kernel->facts.static_smem_bytes;
    attributes->localSizeBytes = kernel->facts.local_bytes;
    attributes->maxThreadsPerBlock =
        kernel->facts.max_threads == 0 ? 1024 : static_cast<int>(kernel->facts.max_threads);
    // CUB takes its parameters of this target: another one than the program was compiled for is no kernel of it.
    const std::string target = target_of(kernel->module->ptx());
    attributes->ptxVersion = std::atoi(target.c_str() + std::min<std::size_t>(3, target.size()));
    attributes->binaryVersion = std::atoi(std::string(gpu.arch).c_str() + 3);
    attributes->numRegs = kernel->facts.max_registers == 0 ? 32 : static_cast<int>(kernel->facts.max_registers);
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(
        std::max<std::size_t>(kernel->max_dynamic_smem, 49152 - std::min(49152u, kernel->facts.static_smem_bytes)));
    attributes->requiredClusterWidth = static_cast<int>(kernel->facts.required_cluster[0]);
    attributes->requiredClusterHeight = static_cast<int>(kernel->facts.required_cluster[1]);
    attributes->requiredClusterDepth = static_cast<int>(kernel->facts.required_cluster[2]);
    return cudaSuccess;
  });
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  return called(__func__, [&]() -> cudaError_t {
    Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute < cudaFuncAttributeMaxDynamicSharedMemorySize || attribute >= cudaFuncAttributeMax)
      return cudaErrorInvalidValue;
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) kernel->has_large_clusters = value != 0;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    const std::size_t most = static_cast<std::size_t>(Session::instance().gpu().smem_optin);
    if (value < 0 || static_cast<std::size_t>(value) + kernel->facts.static_smem_bytes > most)
      return cudaErrorInvalidValue;
    kernel->max_dynamic_smem = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaFuncGetName(const char** name, const void* host) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name.c_str();
    return cudaSuccess;
  });
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* host) {
  return called(__func__, [&]() -> cudaError_t {
    Kernel* const kernel = Registry::instance().kernel(host);
    *function = reinterpret_cast<cudaFunction_t>(kernel);
    return kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   std::size_t smem, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (threads <= 0 || flags > cudaOccupancyDisableCachingOverride) return cudaErrorInvalidValue;
    *blocks = resident_ctas(*kernel, static_cast<std::size_t>(threads), smem);
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads,
                                                          std::size_t smem) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, smem, 0);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void* host, int blocks, int threads) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (blocks <= 0 || threads <= 0) return cudaErrorInvalidValue;
    const Gpu& gpu = Session::instance().gpu();
    const int room = std::min(gpu.smem_per_sm / blocks - 1024, gpu.smem_optin) / 128 * 128;
    *bytes = static_cast<std::size_t>(std::max(0, room - static_cast<int>(kernel->facts.static_smem_bytes)));
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* host, const cudaLaunchConfig_t* config) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    unsigned size = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i)
      if (const auto& of = config->attrs[i]; of.id == cudaLaunchAttributeClusterDimension)
        size = of.val.clusterDim.x * of.val.clusterDim.y * of.val.clusterDim.z;
    const std::size_t threads = std::size_t{config->blockDim.x} * config->blockDim.y * config->blockDim.z;
    *clusters = resident_ctas(*kernel, threads, config->dynamicSmemBytes) * Session::instance().num_sms() /
                static_cast<int>(std::max(1u, size));
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* host, const cudaLaunchConfig_t*) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *size = kernel->has_large_clusters ? 16 : 8;
    return cudaSuccess;
  });
}

}  // extern "C"

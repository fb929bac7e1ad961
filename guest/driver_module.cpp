// The CUDA driver's modules, libraries, kernels and launches.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "base/file.h"
#include "guest/capture.h"
#include "guest/driver.h"
#include "guest/driver_work.h"
#include "guest/jit_log.h"
#include "guest/turns.h"
#include "tessera/error.h"

using namespace tessera::guest;

namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243B1;  // of __cudaRegisterFatBinary's argument

std::map<const void*, std::unique_ptr<Module>>& modules() {
  static auto* const made = new std::map<const void*, std::unique_ptr<Module>>;
  return *made;
}

std::unique_ptr<Module> module_of(const void* data) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, data, sizeof(magic));
  if (magic == kWrapperMagic) std::memcpy(&data, static_cast<const char*>(data) + 8, sizeof(data));
  if (is_fat_binary(data)) {
    auto module = std::make_unique<Module>(read_fat_binary(data));
    module->set_code(data);
    module->learn_registers();  // the caller may free it
    return module;
  }
  FatBinary binary;
  if (std::memcmp(data, "\177ELF", 4) == 0)
    binary.machine_code.push_back("one GPU, a cubin");
  else
    binary.ptx.emplace_back(static_cast<const char*>(data));
  return std::make_unique<Module>(std::move(binary));
}

/// By how it begins; PTX says its version first.
bool is_code(const void* data) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, data, sizeof(magic));
  if (magic == kWrapperMagic || is_fat_binary(data) || std::memcmp(data, "\177ELF", 4) == 0) return true;
  return std::strstr(static_cast<const char*>(data), ".version") != nullptr;
}

// The driver reads the whole module when it is loaded, so that what is wrong is said here.
CUresult load(const char* function, const void* data, CUmodule* module, JitLog log = {}) {
  return drive(function, [&]() -> cudaError_t {
    if (data == nullptr || module == nullptr) return cudaErrorInvalidValue;
    return with_log(log, function, [&] {
      if (!is_code(data)) {
        log.error(tessera::Error(tessera::ErrorKind::usage, "neither PTX, nor a fat binary, nor machine code"));
        return cudaErrorInvalidKernelImage;
      }
      std::unique_ptr<Module> made = module_of(data);
      made->image();
      *module = reinterpret_cast<CUmodule>(made.get());
      modules()[made.get()] = std::move(made);
      return cudaSuccess;
    });
  });
}

CUresult load_file(const char* function, const char* path, CUmodule* module, JitLog log = {}) {
  std::string text;
  try {
    text = tessera::read_text(path);
  } catch (const tessera::Error&) {
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  return load(function, text.c_str(), module, std::move(log));
}

cudaError_t find_kernel(Module& module, const char* name, Kernel** kernel) {
  const std::vector<std::string> names = module.kernel_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return cudaErrorSymbolNotFound;
  *kernel = &module.kernel(name);
  return cudaSuccess;
}

cudaError_t find_variable(Module& module, const char* name, CUdeviceptr* pointer, std::size_t* bytes) {
  const tessera::emulator::DeviceVariable found = module.variable(name);
  if (found.address == 0) return cudaErrorSymbolNotFound;
  if (pointer != nullptr) *pointer = found.address;
  if (bytes != nullptr) *bytes = found.bytes;
  return cudaSuccess;
}

/// A handle of the driver, or one that the runtime's __cudaGetKernel gave.
Kernel* kernel_of(CUfunction function) { return Registry::instance().kernel(function); }

CUresult with_kernel(const char* function, CUfunction handle, const std::function<cudaError_t(Kernel&)>& work) {
  return drive(function, [&]() -> cudaError_t {
    Kernel* const kernel = kernel_of(handle);
    return kernel == nullptr ? cudaErrorInvalidResourceHandle : work(*kernel);
  });
}

CUresult launch(const char* function, CUfunction handle, LaunchWork work, CUstream stream, void** arguments,
                void** extra) {
  return drive(function, [&]() -> cudaError_t {
    const cudaError_t error = complete(work, handle, arguments, extra);
    return error != cudaSuccess ? error : submit(stream, std::move(work));
  });
}

LaunchWork work_of(dim3 grid, dim3 block, unsigned smem) {
  LaunchWork work;
  work.grid = grid;
  work.block = block;
  work.smem = smem;
  return work;
}

cudaError_t function_attribute(const Kernel& kernel, CUfunction_attribute attribute, int* value) {
  const int fixed = static_cast<int>(kernel.facts.static_smem_bytes);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kernel.facts.max_threads == 0 ? 1024 : static_cast<int>(kernel.facts.max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = fixed;
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(kernel.facts.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = kernel.facts.max_registers == 0 ? 32 : static_cast<int>(kernel.facts.max_registers);
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = std::atoi(Session::instance().arch().c_str() + 3);
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = std::max(static_cast<int>(kernel.max_dynamic_smem), 49152 - std::min(49152, fixed));
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      *value = static_cast<int>(kernel.facts.required_cluster[0]);
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      *value = static_cast<int>(kernel.facts.required_cluster[1]);
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = static_cast<int>(kernel.facts.required_cluster[2]);
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = kernel.has_large_clusters ? 1 : 0;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t set_function_attribute(Kernel& kernel, CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) kernel.has_large_clusters = value != 0;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return cudaSuccess;
  const int most = Session::instance().gpu().smem_optin - static_cast<int>(kernel.facts.static_smem_bytes);
  if (value < 0 || value > most) return cudaErrorInvalidValue;
  kernel.max_dynamic_smem = static_cast<std::size_t>(value);
  return cudaSuccess;
}

}  // namespace

cudaError_t tessera::guest::complete(LaunchWork& work, CUfunction function, void** arguments, void** extra) {
  work.kernel = kernel_of(function);
  if (work.kernel == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = check(work); error != cudaSuccess)
    return error == cudaErrorInvalidConfiguration ? cudaErrorInvalidValue : error;
  work.arguments.resize(work.kernel->parameter_bytes());
  if (arguments != nullptr) {
    work.arguments = pack(*work.kernel, arguments);
  } else if (extra != nullptr) {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<std::size_t*>(extra[1]);
    }
    if (buffer == nullptr || bytes < work.arguments.size()) return cudaErrorInvalidValue;
    std::memcpy(work.arguments.data(), buffer, work.arguments.size());
  } else if (!work.arguments.empty()) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return load(__func__, image, module); }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
  return load(__func__, image, module, JitLog(count, options, values));
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) { return load(__func__, image, module); }
CUresult cuModuleLoad(CUmodule* module, const char* path) { return load_file(__func__, path, module); }
CUresult cuModuleUnload(CUmodule module) {
  return drive(__func__, [&] {
    const cudaError_t error = finish_all();
    return modules().erase(module) == 0 ? cudaErrorInvalidResourceHandle : error;
  });
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return drive(__func__, [&] {
    return find_kernel(*reinterpret_cast<Module*>(module), name, reinterpret_cast<Kernel**>(function));
  });
}
CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return drive(__func__, [&] {
    *count = static_cast<unsigned>(reinterpret_cast<Module*>(module)->kernel_names().size());
    return cudaSuccess;
  });
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, std::size_t* bytes, CUmodule module, const char* name) {
  return drive(__func__, [&] { return find_variable(*reinterpret_cast<Module*>(module), name, pointer, bytes); });
}

// A library is a module here: there is one context.
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options, void** values, unsigned count,
                           CUlibraryOption*, void**, unsigned) {
  return load(__func__, code, reinterpret_cast<CUmodule*>(library), JitLog(count, options, values));
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* options, void** values,
                               unsigned count, CUlibraryOption*, void**, unsigned) {
  return load_file(__func__, path, reinterpret_cast<CUmodule*>(library), JitLog(count, options, values));
}
CUresult cuLibraryUnload(CUlibrary library) { return cuModuleUnload(reinterpret_cast<CUmodule>(library)); }
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return cuModuleGetFunction(reinterpret_cast<CUfunction*>(kernel), reinterpret_cast<CUmodule>(library), name);
}
CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, std::size_t* bytes, CUlibrary library, const char* name) {
  return cuModuleGetGlobal_v2(pointer, bytes, reinterpret_cast<CUmodule>(library), name);
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return with_kernel(__func__, reinterpret_cast<CUfunction>(kernel), [&](Kernel& of) {
    *function = reinterpret_cast<CUfunction>(&of);
    return cudaSuccess;
  });
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(value, attribute, reinterpret_cast<CUfunction>(kernel));
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attribute, value);
}
CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return cuFuncGetName(name, reinterpret_cast<CUfunction>(kernel));
}
CUresult cuFuncGetName(const char** name, CUfunction function) {
  return with_kernel(__func__, function, [&](Kernel& kernel) {
    *name = kernel.name.c_str();
    return cudaSuccess;
  });
}
CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  return with_kernel(__func__, function, [&](Kernel& kernel) {
    *module = reinterpret_cast<CUmodule>(kernel.module);
    return cudaSuccess;
  });
}
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return with_kernel(__func__, function, [&](Kernel& kernel) -> cudaError_t {
    if (index >= kernel.parameters.size()) return cudaErrorInvalidValue;
    *offset = kernel.parameters[index].offset;
    if (bytes != nullptr) *bytes = kernel.parameters[index].bytes;
    return cudaSuccess;
  });
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return with_kernel(__func__, function, [&](Kernel& kernel) { return function_attribute(kernel, attribute, value); });
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return with_kernel(__func__, function,
                     [&](Kernel& kernel) { return set_function_attribute(kernel, attribute, value); });
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuFuncSetSharedMemConfig(CUfunction, CUsharedconfig) { return CUDA_SUCCESS; }
CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned smem, CUstream stream, void** arguments,
                        void** extra) {
  return launch(__func__, function, work_of({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, smem), stream,
                arguments, extra);
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem, CUstream stream,
                                   void** arguments) {
  LaunchWork work = work_of({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, smem);
  work.is_cooperative = true;
  return launch(__func__, function, std::move(work), stream, arguments, nullptr);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  LaunchWork work = work_of({config->gridDimX, config->gridDimY, config->gridDimZ},
                            {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes);
  for (unsigned i = 0; i < config->numAttrs; ++i)  // one structure in both APIs
    set_attribute(work, static_cast<cudaLaunchAttributeID>(config->attrs[i].id),
                  reinterpret_cast<const cudaLaunchAttributeValue&>(config->attrs[i].value));
  return launch(__func__, function, std::move(work), config->hStream, arguments, extra);
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return static_cast<CUresult>(cudaLaunchHostFunc(stream, function, data));
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned flags) {
  const auto same = reinterpret_cast<cudaStreamCallback_t>(function);  // errors have the same numbers
  return static_cast<CUresult>(cudaStreamAddCallback(stream, same, data, flags));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              std::size_t smem, unsigned) {
  return with_kernel(__func__, function, [&](Kernel& kernel) -> cudaError_t {
    if (threads <= 0) return cudaErrorInvalidValue;
    *blocks = resident_ctas(kernel, static_cast<std::size_t>(threads), smem);
    return cudaSuccess;
  });
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, std::size_t smem) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, smem, 0);
}
CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function, CUoccupancyB2DSize smem_of,
                                          std::size_t smem, int limit) {
  return with_kernel(__func__, function, [&](Kernel& kernel) {
    int best = 0;
    for (int threads = limit > 0 ? std::min(limit, 1024) : 1024; threads >= 32; threads -= 32) {
      const std::size_t bytes = smem_of != nullptr ? smem_of(threads) : smem;
      const int resident = resident_ctas(kernel, static_cast<std::size_t>(threads), bytes);
      if (resident * threads <= best) continue;
      best = resident * threads;
      *block = threads;
      *grid = resident * Session::instance().num_sms();
    }
    return best == 0 ? cudaErrorInvalidValue : cudaSuccess;
  });
}

}  // extern "C"

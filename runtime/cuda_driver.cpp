// Symbols come from cuGetProcAddress at the oldest supported version, so that a newer driver gives the same form of
// each function. What is missing makes the driver unavailable, with the names.
#include "runtime/cuda_driver.h"

#include <fmt/format.h>

#include "runtime/dynamic_library.h"
#include "tessera/error.h"

namespace tessera {

namespace {

using GetProcAddress = CuResult(const char* name, void** function, int version, std::uint64_t flags, int* status);

/// Names without suffix: the driver gives the form that CUDA 12.4 has. Returns the names that it lacks.
std::string bind_all(GetProcAddress* get, CudaApi& api) {
  std::string missing;
  const auto bind = [&](auto& function, const char* name) {
    void* address = nullptr;
    if (get(name, &address, kMinDriverVersion, 0, nullptr) != 0 || address == nullptr)
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  bind(api.init, "cuInit");
  bind(api.driver_version, "cuDriverGetVersion");
  bind(api.error_name, "cuGetErrorName");
  bind(api.error_string, "cuGetErrorString");
  bind(api.device_count, "cuDeviceGetCount");
  bind(api.device_get, "cuDeviceGet");
  bind(api.device_name, "cuDeviceGetName");
  bind(api.device_attribute, "cuDeviceGetAttribute");
  bind(api.device_memory, "cuDeviceTotalMem");
  bind(api.primary_retain, "cuDevicePrimaryCtxRetain");
  bind(api.primary_release, "cuDevicePrimaryCtxRelease");
  bind(api.context_current, "cuCtxGetCurrent");
  bind(api.context_set_current, "cuCtxSetCurrent");
  bind(api.context_push, "cuCtxPushCurrent");
  bind(api.context_pop, "cuCtxPopCurrent");
  bind(api.context_id, "cuCtxGetId");
  bind(api.context_device, "cuCtxGetDevice");
  bind(api.memory_allocate, "cuMemAlloc");
  bind(api.memory_free, "cuMemFree");
  bind(api.pointer_attribute, "cuPointerGetAttribute");
  bind(api.copy_to_device, "cuMemcpyHtoDAsync");
  bind(api.copy_to_host, "cuMemcpyDtoHAsync");
  bind(api.set_bytes, "cuMemsetD8Async");
  bind(api.stream_create, "cuStreamCreate");
  bind(api.stream_destroy, "cuStreamDestroy");
  bind(api.stream_synchronize, "cuStreamSynchronize");
  bind(api.stream_is_capturing, "cuStreamIsCapturing");
  bind(api.event_create, "cuEventCreate");
  bind(api.event_destroy, "cuEventDestroy");
  bind(api.event_record, "cuEventRecord");
  bind(api.event_synchronize, "cuEventSynchronize");
  bind(api.event_elapsed, "cuEventElapsedTime");
  bind(api.module_load, "cuModuleLoadDataEx");
  bind(api.module_unload, "cuModuleUnload");
  bind(api.module_function, "cuModuleGetFunction");
  bind(api.function_load, "cuFuncLoad");
  bind(api.function_set, "cuFuncSetAttribute");
  bind(api.function_parameter, "cuFuncGetParamInfo");
  bind(api.launch, "cuLaunchKernelEx");
  bind(api.encode_tiled, "cuTensorMapEncodeTiled");
  return missing;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Fills the driver; returns why it cannot be used.
std::string open_driver(CudaDriver& driver) {
  const DynamicLibrary library = DynamicLibrary::open("libcuda.so.1");
  if (!library) return "no driver: libcuda.so.1 was not found";
  CuResult (*driver_version)(int*) = nullptr;
  GetProcAddress* get = nullptr;
  if (!library.bind(driver_version, "cuDriverGetVersion") || driver_version(&driver.version) != 0)
    return "libcuda.so.1 tells no version";
  if (driver.version < kMinDriverVersion || !library.bind(get, "cuGetProcAddress_v2"))
    return fmt::format("the driver supports CUDA {}: CUDA {} or later is needed", version_text(driver.version),
                       version_text(kMinDriverVersion));
  if (const std::string missing = bind_all(get, driver.api); !missing.empty())
    return fmt::format("libcuda.so.1 lacks {}", missing);
  if (const CuResult result = driver.api.init(0); result != 0)
    return fmt::format("cuInit failed: {}", cuda_error_text(driver.api, result));
  if (const CuResult result = driver.api.device_count(&driver.num_devices); result != 0)
    return fmt::format("cuDeviceGetCount failed: {}", cuda_error_text(driver.api, result));
  return driver.num_devices > 0 ? "" : "no CUDA device is visible";
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = [] {
    CudaDriver result;
    result.unavailable = open_driver(result);
    if (!result.unavailable.empty()) result.num_devices = 0;
    return result;
  }();
  return driver;
}

const CudaApi& require_cuda() {
  const CudaDriver& driver = cuda_driver();
  if (!driver.unavailable.empty()) throw Error(ErrorKind::device, fmt::format("no GPU: {}", driver.unavailable));
  return driver.api;
}

std::string cuda_error_text(const CudaApi& api, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.error_name(result, &name) != 0 || name == nullptr) name = "unknown error";
  if (api.error_string(result, &text) != 0 || text == nullptr) text = "no description";
  return fmt::format("{} ({}: {})", name, result, text);
}

void throw_cuda_error(const CudaApi& api, CuResult result, const char* call, std::string_view context) {
  throw Error(ErrorKind::device, fmt::format("{} failed: {}{}{}", call, cuda_error_text(api, result),
                                             context.empty() ? "" : ": ", context));
}

}  // namespace tessera

// The CUDA runtime's libraries: device code that a program loads itself. A library is a module of the driver's, and its
// kernels are launched as any other.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "guest/driver.h"
#include "guest/work.h"

using namespace tessera::guest;

#if CUDART_VERSION >= 12080
namespace {

CUlibrary library_of(cudaLibrary_t library) { return reinterpret_cast<CUlibrary>(library); }
cudaError_t answer(CUresult error) { return told(static_cast<cudaError_t>(error)); }

}  // namespace

extern "C" {

// Options of the just-in-time compiler have the same numbers in both APIs.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption* options, void** values,
                                unsigned count, cudaLibraryOption*, void**, unsigned) {
  return answer(cuLibraryLoadData(reinterpret_cast<CUlibrary*>(library), code, reinterpret_cast<CUjit_option*>(options),
                                  values, count, nullptr, nullptr, 0));
}
cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* path, cudaJitOption* options, void** values,
                                    unsigned count, cudaLibraryOption*, void**, unsigned) {
  return answer(cuLibraryLoadFromFile(reinterpret_cast<CUlibrary*>(library), path,
                                      reinterpret_cast<CUjit_option*>(options), values, count, nullptr, nullptr, 0));
}
cudaError_t cudaLibraryUnload(cudaLibrary_t library) { return answer(cuLibraryUnload(library_of(library))); }
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return answer(cuLibraryGetKernel(reinterpret_cast<CUkernel*>(kernel), library_of(library), name));
}
cudaError_t cudaLibraryGetKernelCount(unsigned* count, cudaLibrary_t library) {
  return answer(cuLibraryGetKernelCount(count, library_of(library)));
}
cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned count, cudaLibrary_t library) {
  return answer(cuLibraryEnumerateKernels(reinterpret_cast<CUkernel*>(kernels), count, library_of(library)));
}
cudaError_t cudaLibraryGetGlobal(void** pointer, std::size_t* bytes, cudaLibrary_t library, const char* name) {
  return answer(cuLibraryGetGlobal(reinterpret_cast<CUdeviceptr*>(pointer), bytes, library_of(library), name));
}
cudaError_t cudaLibraryGetManaged(void** pointer, std::size_t* bytes, cudaLibrary_t library, const char* name) {
  return answer(cuLibraryGetManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, library_of(library), name));
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device) {
  return device == 0 ? cudaFuncSetAttribute(kernel, attribute, value) : told(cudaErrorInvalidDevice);
}

}  // extern "C"
#endif

extern "C" {

cudaError_t cudaFuncGetParamInfo(const void* host, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return called(__func__, [&]() -> cudaError_t {
    const Kernel* const kernel = Registry::instance().kernel(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (offset == nullptr || index >= kernel->parameters.size()) return cudaErrorInvalidValue;
    *offset = kernel->parameters[index].offset;
    if (bytes != nullptr) *bytes = kernel->parameters[index].bytes;
    return cudaSuccess;
  });
}
// Handles of kernels that the runtime knows are those of the driver.
cudaError_t cudaGetKernel(cudaKernel_t* handle, const void* host) {
  return called(__func__, [&]() -> cudaError_t {
    Kernel* const kernel = Registry::instance().kernel(host);
    if (handle == nullptr || kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *handle = reinterpret_cast<cudaKernel_t>(kernel);
    return cudaSuccess;
  });
}

// The driver's counterparts.
CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return cuModuleGetFunctionCount(count, reinterpret_cast<CUmodule>(library));
}
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule module) {
  return drive(__func__, [&]() -> cudaError_t {
    if (functions == nullptr || module == nullptr) return cudaErrorInvalidValue;
    Module& of = *reinterpret_cast<Module*>(module);
    const std::vector<std::string> names = of.kernel_names();
    for (std::size_t i = 0; i < std::min<std::size_t>(count, names.size()); ++i)
      functions[i] = reinterpret_cast<CUfunction>(&of.kernel(names[i]));
    return cudaSuccess;
  });
}
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return cuModuleEnumerateFunctions(reinterpret_cast<CUfunction*>(kernels), count, reinterpret_cast<CUmodule>(library));
}
// Managed variables of a module: memory that the host sees from now on.
CUresult cuLibraryGetManaged(CUdeviceptr* pointer, std::size_t* bytes, CUlibrary library, const char* name) {
  return drive(__func__, [&]() -> cudaError_t {
    const tessera::emulator::DeviceVariable found = reinterpret_cast<Module*>(library)->variable(name);
    if (found.address == 0) return cudaErrorSymbolNotFound;
    Session::instance().device().share_with_host(found.address, found.bytes);
    if (pointer != nullptr) *pointer = found.address;
    if (bytes != nullptr) *bytes = found.bytes;
    return cudaSuccess;
  });
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  return cuFuncGetModule(reinterpret_cast<CUmodule*>(library), reinterpret_cast<CUfunction>(kernel));
}
CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), index, offset, bytes);
}
CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) { return CUDA_SUCCESS; }

}  // extern "C"

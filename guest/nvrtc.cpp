// NVRTC stays NVIDIA's own; but a program that asks it for machine code gets the PTX of the same compile, which NVRTC
// keeps beside it for every target, and hands it to the driver, which is ours. It works where the program's calls are
// bound by the linker, not where it looks them up in libnvrtc itself.
#include <dlfcn.h>

#include <cstddef>

namespace {

constexpr int kInternalError = 11;  // NVRTC_ERROR_INTERNAL_ERROR

template <class T>
int next(const char* function, void* program, T* result) {
  const auto of_nvrtc = reinterpret_cast<int (*)(void*, T*)>(dlsym(RTLD_NEXT, function));
  return of_nvrtc == nullptr ? kInternalError : of_nvrtc(program, result);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  return next("nvrtcGetPTXSize", program, bytes);
}
__attribute__((visibility("default"))) int nvrtcGetCUBIN(void* program, char* code) {
  return next("nvrtcGetPTX", program, code);
}

}  // extern "C"

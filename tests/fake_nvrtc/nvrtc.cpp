// A libnvrtc.so of version 99.7 that compiles nothing. Like the real one it opens its builtins by bare name at the
// first compile, and like the one in the wheel of 13.0 it has no RUNPATH that would find them beside it: the compile
// works only where they are in the process already.
#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace {
constexpr const char* kPtx = "// no code\n";
std::string g_log;

int copy(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
  return 0;
}
}  // namespace

extern "C" {
int nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 7;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
int nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 90;
  return 0;
}
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  *program = &g_log;
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  *program = nullptr;
  return 0;
}
int nvrtcCompileProgram(void*, int count, const char* const* options) {
  for (int i = 0; i < count; ++i)
    if (std::strcmp(options[i], "--fake-starvation") == 0) {
      g_log = "kernel.cu(1): catastrophic error: out of memory\n\n1 catastrophic error detected\n";
      return 6;
    }
  const bool is_found = dlopen("libnvrtc-builtins.so.99.7", RTLD_NOW | RTLD_LOCAL) != nullptr;
  g_log = is_found ? "" : "nvrtc: error: failed to open libnvrtc-builtins.so.99.7.";
  return is_found ? 0 : 7;
}
int nvrtcGetPTXSize(void*, std::size_t* bytes) {
  *bytes = std::strlen(kPtx) + 1;
  return 0;
}
int nvrtcGetPTX(void*, char* out) { return copy(kPtx, out); }
int nvrtcGetCUBINSize(void*, std::size_t* bytes) {
  *bytes = 4;
  return 0;
}
int nvrtcGetCUBIN(void*, char* out) {
  std::memcpy(out, "\177ELF", 4);
  return 0;
}
int nvrtcGetProgramLogSize(void*, std::size_t* bytes) {
  *bytes = g_log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void*, char* out) { return copy(g_log, out); }
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"; }
}

// A libnvrtc.so of version 99.7 that compiles nothing. Like the real one it opens its builtins by bare name at the
// first compile, and like the one in the wheel of 13.0 it has no RUNPATH that would find them beside it: the compile
// works only where they are in the process already.
//
// It takes signals from the process as the real one does, and in more ways: when it is opened, and through a pointer
// to sigaction in data that the loader makes read-only. With FAKE_NVRTC_BY_SYSCALL it asks the kernel itself.
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#ifndef FAKE_NVRTC_MINOR
#define FAKE_NVRTC_MINOR 7
#endif

namespace {
constexpr const char* kPtx = "// no code\n";
std::string g_log;

void on_signal(int) {}

#ifdef FAKE_NVRTC_BY_SYSCALL
void take(int signal, void (*handler)(int)) {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } action{handler, 0, nullptr, 0};
  syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask);
}
#else
using Set = int(int, const struct sigaction*, struct sigaction*);
extern "C" {
extern Set* const volatile kSet;
Set* const volatile kSet = sigaction;
}

void take(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  kSet(number, &action, nullptr);
  signal(SIGTERM, handler);
}
#endif

#ifndef FAKE_NVRTC_BY_SYSCALL
/// What a compile by the real one takes and gives back, in its order (strace of 13.0).
struct Use {
  sighandler_t interrupt, terminate, file_size;
  rlimit stack;
};

Use begin_use() {
  Use use{};
  use.interrupt = signal(SIGINT, SIG_IGN);
  if (use.interrupt != SIG_IGN) signal(SIGINT, on_signal);
  use.terminate = signal(SIGTERM, on_signal);
  use.file_size = signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_STACK, &use.stack);
  const rlimit raised{use.stack.rlim_max, use.stack.rlim_max};
  setrlimit(RLIMIT_STACK, &raised);
  return use;
}

void end_use(const Use& use) {
  setrlimit(RLIMIT_STACK, &use.stack);
  signal(SIGINT, use.interrupt);
  signal(SIGTERM, use.terminate);
  signal(SIGXFSZ, use.file_size);
}
#endif

__attribute__((constructor)) void on_open() { take(SIGUSR1, on_signal); }

int copy(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
  return 0;
}
}  // namespace

extern "C" {
#ifndef FAKE_NVRTC_BY_SYSCALL
void* fake_begin() { return new Use(begin_use()); }
void fake_end(void* use) {
  end_use(*static_cast<Use*>(use));
  delete static_cast<Use*>(use);
}
#endif
int nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = FAKE_NVRTC_MINOR;
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
  take(SIGINT, on_signal);
  take(SIGHUP, SIG_IGN);
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

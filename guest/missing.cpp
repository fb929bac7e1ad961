// The functions of both APIs that nobody has written: each answers cudaErrorNotSupported, and stderr names it. Every
// name is here as a weak symbol, so that a function becomes provided by being written; lists of names are all there is
// to keep. The functions of the per-thread default stream say that the program has one and jump to those without it.
extern "C" int tessera_missing_call(const char* name);

#if defined(__x86_64__)
#define TESSERA_PER_THREAD "movb $1, tessera_per_thread(%rip)\n"
#define TESSERA_JUMP "jmp "
#define TESSERA_PLT "@PLT"
#else
#define TESSERA_PER_THREAD "adrp x16, tessera_per_thread\nmov w17, #1\nstrb w17, [x16, :lo12:tessera_per_thread]\n"
#define TESSERA_JUMP "b "
#define TESSERA_PLT ""
#endif

// NOLINTBEGIN: a C++ declaration of each would need its parameters
#define TESSERA_CALL(name) \
  extern "C" __attribute__((weak, visibility("default"))) int name() { return tessera_missing_call(#name); }
#define TESSERA_SAME(name, other)                                  \
  asm(".text\n.weak " #name "\n.type " #name ", %function\n" #name \
      ":\n" TESSERA_PER_THREAD TESSERA_JUMP #other TESSERA_PLT "\n");
#include "guest/driver_calls.inc"
#include "guest/runtime_calls.inc"
// NOLINTEND

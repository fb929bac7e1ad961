// A compile asks nothing of the stack that its caller has.
#include "runtime/own_stack.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "runtime/nvrtc.h"

namespace tessera {
namespace {

constexpr std::size_t kSmall = std::size_t{64} << 10;

/// Runs the body on a thread with a small stack.
void on_small_stack(void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, kSmall) == 0);
  pthread_t thread{};
  REQUIRE(pthread_create(&thread, &attributes, body, argument) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

/// A frame of so many bytes, each page of it written to.
template <std::size_t N>
int fill_frame() {
  volatile char frame[N];
  for (std::size_t i = 0; i < N; i += 512) frame[i] = static_cast<char>(i);
  int sum = 0;
  for (std::size_t i = 0; i < N; i += 512) sum += frame[i];
  return sum;
}

}  // namespace

TEST_CASE("own stack: deep frames, no signals, and the caller waits") {
  struct Seen {
    int sum = 1;
    bool is_other_thread = false, is_quiet = false;
  } seen;
  on_small_stack(
      [](void* to) -> void* {
        const pthread_t caller = pthread_self();
        with_own_stack([&] {
          Seen& out = *static_cast<Seen*>(to);
          out.sum = fill_frame<kCompileStackBytes / 2>();
          out.is_other_thread = pthread_equal(pthread_self(), caller) == 0;
          sigset_t mask;
          pthread_sigmask(SIG_SETMASK, nullptr, &mask);
          out.is_quiet = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGSEGV) == 0;
        });
        return nullptr;
      },
      &seen);
  CHECK(seen.sum == fill_frame<kCompileStackBytes / 2>());
  CHECK(seen.is_other_thread);
  CHECK(seen.is_quiet);
}

TEST_CASE("own stack: NVRTC compiles for a thread with a stack of 64 KiB") {
  if (!find_nvrtc()) {
    MESSAGE("not run: no NVRTC here");
    return;
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto compiler = make_nvrtc_compiler();
    on_small_stack(
        [](void* with) -> void* {
          SourceBundle bundle;
          bundle.program = "/tessera/test/entry.cu";
          bundle.text = "extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n";
          bundle.arch = "sm_90a";
          bundle.entries = {"scale"};
          ::_exit(static_cast<Compiler*>(with)->compile(bundle).cubin.empty() ? 1 : 0);
        },
        compiler.get());
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace tessera

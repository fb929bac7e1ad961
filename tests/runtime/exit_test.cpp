// A process that ends while a kernel compiles: exit() runs the compiler library's exit handlers, which take away what
// a compile works with.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "runtime/nvrtc.h"
#include "runtime/underway.h"
#include "tessera/error.h"
#include "tests/support/sample.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

SourceBundle bundle_of(int number) {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text = "extern \"C\" __global__ void scale(float* x) {\n";
  for (int i = 0; i < 200; ++i)
    bundle.text += fmt::format("  x[threadIdx.x + {0}] = x[threadIdx.x + {1}] * {0}.1f;\n", i, i + number);
  bundle.text += "}\n";
  bundle.arch = "sm_90a";
  bundle.entries = {"scale"};
  return bundle;
}

/// How a child ended that calls exit(0) after the body.
std::string end_of_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("{}", WEXITSTATUS(status));
}

bool has_nvrtc() {
  if (find_nvrtc()) return true;
  MESSAGE("not run: no NVRTC here");
  return false;
}

}  // namespace

TEST_CASE("exit: a process that ends while kernels compile ends with its own code") {
  if (!has_nvrtc()) return;
  testing::Sample sample(40);
  for (int i = 0; i < 30; ++i) {
    if (!sample.takes()) continue;
    CAPTURE(i);
    CHECK(end_of_child([i] {
            Compiler* const compiler = make_nvrtc_compiler().release();
            for (int t = 0; t < 2; ++t)
              std::thread([compiler, t] {
                try {
                  for (int number = t;; ++number) compiler->compile(bundle_of(number));
                } catch (const Error&) {  // the process ends
                }
              }).detach();
            std::this_thread::sleep_for(100ms + i * 7ms);
          }) == "0");
  }
}

TEST_CASE("exit: the wait is bounded, and is for the threads of this process alone") {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto stay_underway = [] {
    std::atomic<bool> is_in{false};
    std::thread([&is_in] {
      const Underway underway;
      is_in = true;
      while (true) ::pause();
    }).detach();
    while (!is_in) std::this_thread::yield();
  };
  CHECK(end_of_child([&] {
          set_longest_wait_at_exit(300ms);
          for (int i = 0; i < 5; ++i) wait_at_exit();  // one bound for all
          stay_underway();
        }) == "0");
  CHECK(seconds() > 0.25);
  CHECK(seconds() < 10);
  // The child of a process whose thread is under way has no such thread.
  CHECK(end_of_child([&] {
          stay_underway();
          const std::string ended = end_of_child([] {});
          const std::string compiled = end_of_child([] { const Underway underway; });
          ::_exit(ended == "0" && compiled == "0" ? 0 : 1);
        }) == "0");
  // Who calls exit() within a scope does not wait for itself.
  CHECK(end_of_child([] {
          static const Underway underway;
          const Underway inner;
          std::exit(0);
        }) == "0");
  CHECK(seconds() < 20);
}

TEST_CASE("exit: once it has begun, only the thread that ends the process begins more") {
  static std::atomic<int> outcome{0};
  CHECK(end_of_child([] {
          const Underway first;
          // Handlers run in reverse order: this one after the wait.
          std::atexit([] {
            { const Underway own; }
            std::thread([] {
              try {
                const Underway underway;
              } catch (const Error& error) {
                outcome = error.what() == std::string("the process is ending: nothing is compiled any more") ? 7 : 1;
              }
            }).join();
            ::_exit(outcome);
          });
          wait_at_exit();
        }) == "7");
}

}  // namespace tessera

// A compiler in a host's process: signals reach the host as if it were not there, and nothing of the process is
// changed. Each case runs in a child process of its own, where NVRTC has not been opened yet.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fenv.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <locale.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/quiet_thread.h"
#include "runtime/guest_library.h"
#include "runtime/nvrtc.h"
#include "runtime/worker_pool.h"
#include "tessera/error.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

extern char** environ;

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::in_child;

SourceBundle bundle_of(int number) {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text = fmt::format(
      "extern \"C\" __global__ void scale(float* x) {{\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 64; ++i) x[threadIdx.x + i] = x[threadIdx.x + i + {}] * (0.1f + 1.0f / 3.0f);\n}}\n",
      number);
  bundle.arch = "sm_90a";
  bundle.entries = {"scale"};
  return bundle;
}

/// TESSERA_NVRTC names another than the one found first.
NvrtcOptions options() {
  const char* const named = std::getenv("TESSERA_NVRTC");
  return {.library = named == nullptr ? "" : named, .repro_folder = {}};
}

bool has_nvrtc() {
  if (find_nvrtc(options())) return true;
  MESSAGE("not run: no NVRTC here");
  return false;
}

std::unique_ptr<Compiler> make_compiler() { return make_nvrtc_compiler(options()); }

/// Keeps `threads` threads compiling until `end`.
template <class End>
void compile_until(Compiler& compiler, int threads, const End& end) {
  std::vector<std::jthread> compilers;
  for (int i = 0; i < threads; ++i)
    compilers.push_back(quiet_thread([&compiler, &end, i] {
      for (int number = i; !end(); number += 8) compiler.compile(bundle_of(number));
    }));
}

/// TESSERA_TEST_INTERRUPTS asks for a longer run.
int interrupts() {
  const char* const asked = std::getenv("TESSERA_TEST_INTERRUPTS");
  return asked == nullptr ? 60 : std::atoi(asked);
}

std::atomic<int> g_taken{0};
extern "C" void count_signal(int) { ++g_taken; }
extern "C" void count_informed(int, siginfo_t* info, void*) { g_taken += info->si_pid == getpid() ? 1 : 1000000; }

/// Sends one signal at a time to this process at random moments of compiles; tells how many were taken.
std::string send_all(Compiler& compiler, const std::vector<int>& signals, const std::function<int()>& taken) {
  std::atomic<bool> is_over{false};
  std::string said;
  std::jthread sender = quiet_thread([&] {
    std::mt19937 random(20);
    for (int i = 1; i <= interrupts(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      kill(getpid(), signals[random() % signals.size()]);
      for (int wait = 0; taken() < i && wait < 2000; ++wait) std::this_thread::sleep_for(1ms);
      if (taken() == i) continue;
      said = fmt::format("of {} signals {} were taken\n", i, taken());
      break;
    }
    is_over = true;
  });
  compile_until(compiler, 2, [&] { return is_over.load(); });
  sender.join();
  return said;
}

/// What a process has beside its memory, in words.
std::map<std::string, std::string> snapshot() {
  std::map<std::string, std::string> all;
  for (int i = 1; i < NSIG; ++i) {
    struct sigaction action {};
    if (sigaction(i, nullptr, &action) != 0) continue;
    std::string mask;
    for (int other = 1; other < NSIG; ++other) mask += sigismember(&action.sa_mask, other) == 1 ? '1' : '0';
    all[fmt::format("signal {}", i)] =
        fmt::format("{} {:x} {}", reinterpret_cast<void*>(action.sa_handler), action.sa_flags, mask);
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int i = 1; i < NSIG; ++i) all["mask"] += sigismember(&mask, i) == 1 ? '1' : '0';
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  all["signal stack"] = fmt::format("{} {}", stack.ss_sp, stack.ss_flags);
  for (char** variable = environ; *variable != nullptr; ++variable) all["environment"] += *variable + std::string("\n");
  all["locale"] = setlocale(LC_ALL, nullptr);
  all["thread's locale"] = fmt::format("{}", static_cast<void*>(uselocale(nullptr)));
  all["folder"] = fs::current_path().string();
  const mode_t creation = umask(0);
  umask(creation);
  all["umask"] = fmt::format("{:o}", creation);
  for (const auto& [name, which] : {std::pair("stack", RLIMIT_STACK),
                                    {"core", RLIMIT_CORE},
                                    {"files", RLIMIT_NOFILE},
                                    {"cpu", RLIMIT_CPU},
                                    {"data", RLIMIT_DATA},
                                    {"file size", RLIMIT_FSIZE}}) {
    rlimit limit{};
    getrlimit(which, &limit);
    all[fmt::format("limit of {}", name)] = fmt::format("{} {}", limit.rlim_cur, limit.rlim_max);
  }
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code code;
    const fs::path target = fs::read_symlink(entry.path(), code);
    if (target.string().find("/proc/") == std::string::npos) all["files"] += entry.path().filename().string() + " ";
  }
  for (const auto& entry : fs::directory_iterator("/proc/self/task"))
    all["threads"] += entry.path().filename().string() + " ";
  all["rounding"] = fmt::format("{}", fegetround());
  all["arithmetic flags"] = fmt::format("{}", fetestexcept(FE_ALL_EXCEPT));
  all["timer"] = fmt::format("{}", alarm(0));
  return all;
}

std::string difference(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& after) {
  std::string said;
  for (const auto& [name, value] : after)
    if (before.at(name) != value) said += fmt::format("{}: {} became {}\n", name, before.at(name), value);
  return said;
}

}  // namespace

TEST_CASE("a host's own handlers take every signal that is sent while kernels compile") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          struct sigaction plain {
          }, informed{};
          plain.sa_handler = count_signal;
          informed.sa_sigaction = count_informed;
          informed.sa_flags = SA_SIGINFO | SA_RESTART;
          sigaction(SIGINT, &plain, nullptr);
          sigaction(SIGTERM, &informed, nullptr);
          std::signal(SIGXFSZ, count_signal);
          std::signal(SIGHUP, count_signal);
          const auto compiler = make_compiler();
          return send_all(*compiler, {SIGINT, SIGTERM, SIGXFSZ, SIGHUP}, [] { return g_taken.load(); });
        }) == "");
}

TEST_CASE("a host that waits for blocked signals gets every one") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          sigset_t set;
          sigemptyset(&set);
          for (const int one : {SIGINT, SIGTERM}) sigaddset(&set, one);
          pthread_sigmask(SIG_BLOCK, &set, nullptr);
          std::atomic<int> taken{0};
          std::thread([&] {
            for (int one = 0; sigwait(&set, &one) == 0;) ++taken;
          }).detach();
          const auto compiler = make_compiler();
          const std::string said = send_all(*compiler, {SIGINT, SIGTERM}, [&] { return taken.load(); });
          if (!said.empty()) return said;
          _exit(0);  // the waiting thread uses what this function owns
        }) == "");
}

TEST_CASE("what a host ignores stays ignored, and what is left to the default ends the process") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          for (const int one : {SIGINT, SIGTERM}) std::signal(one, SIG_IGN);
          const auto compiler = make_compiler();
          std::atomic<int> sent{0};
          std::jthread sender = quiet_thread([&] {
            for (; sent < interrupts(); ++sent) {
              std::this_thread::sleep_for(5ms);
              kill(getpid(), sent % 2 == 0 ? SIGINT : SIGTERM);
            }
          });
          compile_until(*compiler, 2, [&] { return sent >= interrupts(); });
          return std::string();
        }) == "");
  for (const int one : {SIGINT, SIGTERM}) {
    CHECK(in_child([one] {
            std::signal(one, SIG_DFL);
            const auto compiler = make_compiler();
            std::jthread sender = quiet_thread([one] {
              std::this_thread::sleep_for(70ms);
              kill(getpid(), one);
            });
            compile_until(*compiler, 1, [started = std::chrono::steady_clock::now()] {
              return std::chrono::steady_clock::now() - started > 10s;
            });
            return std::string("was not ended\n");
          }) == fmt::format("killed by signal {}\n", one));
  }
}

TEST_CASE("handlers that a host installs during compiles stay") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          const auto compiler = make_compiler();
          std::atomic<bool> is_over{false};
          std::string said;
          std::jthread host = quiet_thread([&] {
            for (int i = 0; i < 200 && said.empty(); ++i) {
              struct sigaction mine {
              }, found{};
              mine.sa_handler = i % 3 == 0 ? count_signal : i % 3 == 1 ? SIG_IGN : SIG_DFL;
              mine.sa_flags = i % 2 == 0 ? SA_RESTART : 0;
              sigaddset(&mine.sa_mask, SIGUSR1);
              sigaction(SIGINT, &mine, nullptr);
              std::this_thread::sleep_for(3ms);
              sigaction(SIGINT, nullptr, &found);
              if (found.sa_handler != mine.sa_handler || (found.sa_flags & SA_RESTART) != mine.sa_flags ||
                  sigismember(&found.sa_mask, SIGUSR1) != 1)
                said = fmt::format("the handler of round {} was replaced\n", i);
            }
            is_over = true;
          });
          compile_until(*compiler, 2, [&] { return is_over.load(); });
          host.join();
          return said;
        }) == "");
}

TEST_CASE("a compile leaves the process as it was") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          struct sigaction mine {};
          mine.sa_handler = count_signal;
          sigaddset(&mine.sa_mask, SIGUSR2);
          sigaction(SIGINT, &mine, nullptr);
          fesetround(FE_UPWARD);
          feraiseexcept(FE_UNDERFLOW);
          umask(027);
          static_cast<void>(snapshot());  // what the first use of the functions in it opens
          const auto before = snapshot();
          const auto compiler = make_compiler();
          std::string said = difference(before, snapshot());
          compiler->architectures();
          compiler->compile(bundle_of(1));
          SourceBundle wrong = bundle_of(1);
          wrong.text += "oops";
          try {
            compiler->compile(wrong);
            said += "compiled\n";
          } catch (const Error&) {
          }
          said += difference(before, snapshot());
          for_each_index(8, 4, [&](std::size_t i) { compiler->compile(bundle_of(static_cast<int>(i))); });
          return said + difference(before, snapshot());
        }) == "");
}

TEST_CASE("a library that sets handlers when it is opened or by pointers in data is held back") {
  CHECK(in_child([] {
          struct sigaction mine {};
          mine.sa_handler = count_signal;
          for (const int one : {SIGUSR1, SIGINT, SIGHUP, SIGTERM}) sigaction(one, &mine, nullptr);
          const auto before = snapshot();
          const GuestLibrary guest = open_guest_library(TESSERA_FAKE_NVRTC);
          std::string said = guest.is_contained ? "" : "not contained\n";
          said += difference(before, snapshot());
          int (*compile)(void*, int, const char* const*) = nullptr;
          if (!guest.library.bind(compile, "nvrtcCompileProgram")) return std::string("no fake\n");
          {
            const GuestScope scope(guest);
            compile(nullptr, 0, nullptr);
          }
          return said + difference(before, snapshot());
        }) == "");
}

TEST_CASE("what a library does to signals by the kernel's own calls is undone") {
  CHECK(in_child([] {
          struct sigaction mine {};
          mine.sa_handler = count_signal;
          for (const int one : {SIGUSR1, SIGINT, SIGHUP, SIGTERM}) sigaction(one, &mine, nullptr);
          const auto before = snapshot();
          const GuestLibrary guest = open_guest_library(TESSERA_FAKE_NVRTC_BY_SYSCALL);
          std::string said = guest.is_contained ? "contained\n" : "";
          said += difference(before, snapshot());
          int (*compile)(void*, int, const char* const*) = nullptr;
          if (!guest.library.bind(compile, "nvrtcCompileProgram")) return std::string("no fake\n");
          {
            const GuestScope outer(guest);
            {
              const GuestScope inner(guest);
              compile(nullptr, 0, nullptr);
            }
            if (difference(before, snapshot()).find("signal 2:") == std::string::npos) said += "took nothing\n";
            std::signal(SIGUSR2, count_signal);  // the host's, meanwhile
          }
          auto after = snapshot();
          if (after["signal 12"] == before.at("signal 12")) said += "the host's handler was taken away\n";
          after["signal 12"] = before.at("signal 12");
          return said + difference(before, after);
        }) == "");
}

TEST_CASE("limits of the process hold while kernels compile") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          const auto compiler = make_compiler();
          const auto stack = snapshot()["limit of stack"];
          std::atomic<bool> is_over{false};
          std::string said;
          std::jthread host = quiet_thread([&] {
            for (int i = 0; i < 300 && said.empty(); ++i) {
              std::this_thread::sleep_for(1ms);
              rlimit limit{};
              getrlimit(RLIMIT_STACK, &limit);
              if (const auto now = fmt::format("{} {}", limit.rlim_cur, limit.rlim_max); now != stack)
                said = fmt::format("the stack's limit {} became {}\n", stack, now);
            }
            is_over = true;
          });
          compile_until(*compiler, 2, [&] { return is_over.load(); });
          host.join();
          return said;
        }) == "");
}

TEST_CASE("a host that unloads the library goes on with the guest") {
  CHECK(in_child([]() -> std::string {
          void* const guest = dlopen(TESSERA_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
          void* const plugin = dlopen(TESSERA_UNLOADED_HOST, RTLD_NOW | RTLD_LOCAL);
          if (guest == nullptr || plugin == nullptr) return std::string(dlerror()) + "\n";
          const auto use = reinterpret_cast<bool (*)(const char*)>(dlsym(plugin, "use_guest"));
          if (!use(TESSERA_FAKE_NVRTC)) return "not contained\n";
          dlclose(plugin);
          if (dlopen(TESSERA_UNLOADED_HOST, RTLD_NOW | RTLD_NOLOAD) != nullptr) return "still loaded\n";
          const auto compile =
              reinterpret_cast<int (*)(void*, int, const char* const*)>(dlsym(guest, "nvrtcCompileProgram"));
          struct sigaction mine {
          }, now{};
          mine.sa_handler = count_signal;
          sigaction(SIGINT, &mine, nullptr);
          compile(nullptr, 0, nullptr);  // sets handlers, as NVRTC does: by functions that are still there
          sigaction(SIGINT, nullptr, &now);
          return "";
        }) == "");
}

TEST_CASE("a host that unloads two copies of the library, the first one first, goes on with the guest") {
  const testing::TemporaryFolder folder;
  const std::string copy = (folder.path / "copy.so").string();
  std::filesystem::copy_file(TESSERA_UNLOADED_HOST, copy);
  CHECK(in_child([&]() -> std::string {
          void* const guest = dlopen(TESSERA_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
          void* const plugins[] = {dlopen(TESSERA_UNLOADED_HOST, RTLD_NOW | RTLD_LOCAL),
                                   dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL)};
          for (void* const plugin : plugins) {
            if (guest == nullptr || plugin == nullptr) return std::string(dlerror()) + "\n";
            if (!reinterpret_cast<bool (*)(const char*)>(dlsym(plugin, "use_guest"))(TESSERA_FAKE_NVRTC))
              return "not contained\n";
          }
          for (void* const plugin : plugins) dlclose(plugin);
          if (dlopen(copy.c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr) return "still loaded\n";
          reinterpret_cast<int (*)(void*, int, const char* const*)>(dlsym(guest, "nvrtcCompileProgram"))(nullptr, 0,
                                                                                                         nullptr);
          return "";
        }) == "");
}

TEST_CASE("the host's rounding mode and locale change no byte of a kernel") {
  if (!has_nvrtc()) return;
  CHECK(in_child([] {
          const auto compiler = make_compiler();
          const Image plain = compiler->compile(bundle_of(1));
          fesetround(FE_UPWARD);
          const Image rounded = compiler->compile(bundle_of(1));
          fesetround(FE_TOWARDZERO);
          const Image cut = compiler->compile(bundle_of(1));
          return std::string(plain.cubin == rounded.cubin && plain.cubin == cut.cubin ? "" : "differ\n");
        }) == "");
}

TEST_CASE("workers leave the host's signals to the host's threads") {
  CHECK(in_child([] {
          const pthread_t host = pthread_self();
          std::string said;
          std::atomic<int> workers{0};
          for_each_index(64, 4, [&](std::size_t) {
            sigset_t mask;
            pthread_sigmask(SIG_SETMASK, nullptr, &mask);
            std::this_thread::sleep_for(1ms);
            const bool is_worker = pthread_equal(pthread_self(), host) == 0;
            workers += is_worker ? 1 : 0;
            for (const int one : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM})
              if ((sigismember(&mask, one) == 1) != is_worker) said = "wrong mask\n";
            if (sigismember(&mask, SIGSEGV) == 1) said = "faults are blocked\n";
          });
          return said + (workers > 0 ? "" : "no worker worked\n");
        }) == "");
}

}  // namespace tessera

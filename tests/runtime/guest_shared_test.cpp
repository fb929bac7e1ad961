// A host that uses the guest library itself: a use of its own that began before the library's calls were replaced gives
// back what it took, whatever begins and ends meanwhile. Each case runs in a child process.
#include <dlfcn.h>
#include <sys/resource.h>

#include <csignal>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "runtime/guest_library.h"
#include "tests/support/child_process.h"

namespace tessera {
namespace {

using testing::in_child;

extern "C" void hosts_handler(int) {}
extern "C" void hosts_other_handler(int) {}

/// The dispositions of all signals, and the limit of the stack.
std::string held() {
  std::string all;
  for (int i = 1; i < NSIG; ++i) {
    struct sigaction action {};
    if (sigaction(i, nullptr, &action) == 0)
      all += fmt::format("signal {}: {} {:x}\n", i, reinterpret_cast<void*>(action.sa_handler), action.sa_flags);
  }
  rlimit limit{};
  getrlimit(RLIMIT_STACK, &limit);
  return all + fmt::format("stack: {}\n", limit.rlim_cur);
}

std::string compared(const std::string& what, const std::string& before) {
  const std::string now = held();
  return now == before ? "" : fmt::format("{}: was\n{}is\n{}", what, before, now);
}

/// The fake library, loaded by the host.
class Fake {
 public:
  Fake() : library_(dlopen(TESSERA_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL)) {
    begin = reinterpret_cast<void* (*)()>(dlsym(library_, "fake_begin"));
    end = reinterpret_cast<void (*)(void*)>(dlsym(library_, "fake_end"));
  }
  void* (*begin)() = nullptr;
  void (*end)(void*) = nullptr;

 private:
  void* library_;
};

/// A compile by the host, on a thread of its own, from its construction to finish().
class HostsCompile {
 public:
  explicit HostsCompile(const Fake& fake)
      : thread_([this, &fake] {
          void* const use = fake.begin();
          has_begun_.release();
          may_end_.acquire();
          fake.end(use);
        }) {
    has_begun_.acquire();
  }
  void finish() {
    may_end_.release();
    thread_.join();
  }

 private:
  std::binary_semaphore has_begun_{0}, may_end_{0};
  std::thread thread_;
};

void install(sighandler_t handler) {
  for (const int one : {SIGINT, SIGTERM, SIGXFSZ}) std::signal(one, handler);
  rlimit limit{};
  getrlimit(RLIMIT_STACK, &limit);
  limit.rlim_cur = rlim_t{1} << 20;  // below the hard limit, whatever that is
  setrlimit(RLIMIT_STACK, &limit);
}

void compile_ourselves(const Fake& fake, const GuestLibrary& guest) {
  const GuestScope scope(guest);
  fake.end(fake.begin());
}

}  // namespace

TEST_CASE("a host's compile that is under way when the library is opened gives back what it took") {
  for (const sighandler_t handler : {hosts_handler, SIG_DFL, SIG_IGN}) {
    CHECK(in_child([handler]() -> std::string {
            install(handler);
            const Fake fake;
            const std::string before = held();
            HostsCompile hosts(fake);
            const std::string during = held();
            if (during == before) return "took nothing\n";
            const GuestLibrary guest = open_guest_library(TESSERA_FAKE_NVRTC);
            std::string said = guest.is_contained ? "" : "not contained\n";
            said += compared("opened", during);
            compile_ourselves(fake, guest);
            static_cast<void>(open_guest_library(TESSERA_FAKE_NVRTC));
            said += compared("compiled", during);
            hosts.finish();
            said += compared("the host's ended", before);
            HostsCompile later(fake);
            said += compared("a later one", before);
            later.finish();
            return said + compared("and its end", before);
          }) == "");
  }
}

TEST_CASE("of two compiles by the host, before and after the opening, the first gives back in any order") {
  for (const bool is_second_early : {false, true}) {
    for (const bool ends_first : {false, true}) {
      CHECK(in_child([=]() -> std::string {
              install(hosts_handler);
              const Fake fake;
              const std::string before = held();
              HostsCompile first(fake);
              std::unique_ptr<HostsCompile> second;
              if (is_second_early) second = std::make_unique<HostsCompile>(fake);
              static_cast<void>(open_guest_library(TESSERA_FAKE_NVRTC));
              if (!is_second_early) second = std::make_unique<HostsCompile>(fake);
              if (ends_first) {
                first.finish();
                second->finish();
              } else {
                second->finish();
                first.finish();
              }
              return compared("in the end", before);
            }) == "");
    }
  }
}

TEST_CASE("what the host installs while its compile runs stays once the calls are replaced") {
  CHECK(in_child([]() -> std::string {
          install(hosts_handler);
          const Fake fake;
          static_cast<void>(open_guest_library(TESSERA_FAKE_NVRTC));
          std::string said;
          for (const sighandler_t other : {hosts_other_handler, SIG_IGN, SIG_DFL}) {
            HostsCompile hosts(fake);
            for (const int one : {SIGINT, SIGTERM, SIGXFSZ}) std::signal(one, other);
            const std::string meanwhile = held();
            hosts.finish();
            said += compared("in the end", meanwhile);
          }
          return said;
        }) == "");
}

TEST_CASE(
    "a host's compile that begins while the library is in use and ends after it is unloaded leaves all as it was") {
  CHECK(in_child([]() -> std::string {
          install(hosts_handler);
          const Fake fake;
          const std::string before = held();
          HostsCompile early(fake);
          void* const plugin = dlopen(TESSERA_UNLOADED_HOST, RTLD_NOW | RTLD_LOCAL);
          if (plugin == nullptr) return std::string(dlerror()) + "\n";
          reinterpret_cast<bool (*)(const char*)>(dlsym(plugin, "use_guest"))(TESSERA_FAKE_NVRTC);
          early.finish();
          HostsCompile late(fake);
          dlclose(plugin);
          if (dlopen(TESSERA_UNLOADED_HOST, RTLD_NOW | RTLD_NOLOAD) != nullptr) return "still loaded\n";
          late.finish();
          HostsCompile alone(fake);
          alone.finish();
          return compared("in the end", before);
        }) == "");
}

}  // namespace tessera

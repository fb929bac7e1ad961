// What the remote tier does to the process that it is a guest in: signals, threads, a resolver that never answers,
// children.
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <condition_variable>
#include <thread>

#include "runtime/remote/quiet_pipe.h"
#include "runtime/remote/store.h"
#include "tests/remote/machine.h"
#include "tests/support/tls_server.h"

namespace {

/// Look-ups of this name wait until the test lets them go.
constexpr std::string_view kSilentName = "silent.test";
std::mutex resolver_mutex;
std::condition_variable resolver_changed;
bool is_resolver_released = false;
int look_ups = 0, look_ups_with_signals = 0, look_ups_under_way = 0;

}  // namespace

/// In place of the C library's, for libcurl too.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** result) {
  const bool is_numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (name != nullptr && name == kSilentName && !is_numeric) {
    std::unique_lock lock(resolver_mutex);
    ++look_ups;
    ++look_ups_under_way;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    look_ups_with_signals += sigismember(&mask, SIGUSR1) == 0 || sigismember(&mask, SIGTERM) == 0;
    resolver_changed.wait(lock, [] { return is_resolver_released; });
    --look_ups_under_way;
    resolver_changed.notify_all();
    return EAI_AGAIN;
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(name, service, hints, result);
}

namespace tessera::testing {

namespace {

std::atomic<int> pipe_signals{0};

/// SIGPIPE is counted while it lives.
class CountedPipeSignals {
 public:
  CountedPipeSignals() {
    pipe_signals = 0;
    struct sigaction counting = {};
    counting.sa_handler = [](int) { ++pipe_signals; };
    ::sigaction(SIGPIPE, &counting, &before_);
  }
  ~CountedPipeSignals() { ::sigaction(SIGPIPE, &before_, nullptr); }
  CountedPipeSignals(const CountedPipeSignals&) = delete;
  CountedPipeSignals& operator=(const CountedPipeSignals&) = delete;

 private:
  struct sigaction before_ = {};
};

bool is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

bool is_blocked() {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, SIGPIPE) == 1;
}

}  // namespace

TEST_CASE("remote: a name that is never resolved costs the limit, and its thread takes no signal of the host's") {
  StoreServer server;
  server.stop();
  Machine machine(server, true);
  RemoteOptions& remote = machine.options.remote;
  const std::string silent(kSilentName);
  if (server.dialect() == Dialect::http) remote.url = "http://" + silent + "/cache";
  if (server.dialect() == Dialect::s3) remote.endpoint = "http://" + silent;
  if (server.dialect() == Dialect::redis) remote.url = "redis://" + silent;
  const int before = look_ups;
  const auto start = Clock::now();
  {
    const auto cache = machine.open();
    CHECK(machine.get(*cache, 1)->tier == CacheTier::compiled);
    CHECK(machine.get(*cache, 2)->tier == CacheTier::compiled);
  }
  CHECK(Clock::now() - start < kLimit + milliseconds{400});
  CHECK(machine.has_warned_of("it is not asked any more"));
  std::unique_lock lock(resolver_mutex);
  CHECK(look_ups > before);
  CHECK(look_ups_with_signals == 0);
  is_resolver_released = true;
  resolver_changed.notify_all();
  resolver_changed.wait(lock, [] { return look_ups_under_way == 0; });
  is_resolver_released = false;
}

TEST_CASE("remote: a closed pipe raises no signal, and one of the host's own stays") {
  const CountedPipeSignals counted;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  CHECK(::write(ends[1], "x", 1) < 0);
  CHECK(pipe_signals == 1);
  {
    const remote::QuietPipe quiet;
    for (int i = 0; i < 3; ++i) CHECK(::write(ends[1], "x", 1) < 0);
  }
  CHECK(pipe_signals == 1);
  CHECK(!is_pending());
  CHECK(!is_blocked());
  // The host has blocked it, and one waits: both are as they were.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  ::pthread_kill(::pthread_self(), SIGPIPE);
  {
    const remote::QuietPipe quiet;
    CHECK(::write(ends[1], "x", 1) < 0);
  }
  CHECK(is_blocked());
  CHECK(is_pending());
  ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
  CHECK(pipe_signals == 2);
  ::close(ends[1]);
}

TEST_CASE("remote: a server that ends TLS while it is written to raises no SIGPIPE") {
  if (test_dialect() == Dialect::s3) return;
  const CountedPipeSignals counted;
  const TemporaryFolder folder;
  // It says that it will send no more, reads a little, and resets: the writer meets EPIPE.
  TlsServer server(folder / "certificate", [](SSL* tls, int connection) {
    char bytes[1024];
    SSL_read(tls, bytes, sizeof bytes);
    ::shutdown(connection, SHUT_WR);
    std::this_thread::sleep_for(milliseconds{50});
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  });
  const std::string scheme = test_dialect() == Dialect::redis ? "rediss://" : "https://";
  const auto store = remote::open_store({.url = scheme + server.authority(), .ca_file = folder / "certificate"});
  const std::string much(std::size_t{32} << 20, 'x');
  const auto answer = store->put("cas/x", much, {.until = Clock::now() + milliseconds{5'000}});
  CHECK(answer.verdict == remote::Verdict::silent);
  CHECK(server.greeted() == 3);  // each attempt
  CHECK(pipe_signals == 0);
  CHECK(!is_pending());
  CHECK(!is_blocked());
}

TEST_CASE("remote: a child after fork has connections of its own") {
  FullStore server;
  Machine machine(server);
  machine.options.remote.time_limit = milliseconds{5'000};
  const auto cache = machine.open();
  const CacheRequest there = request_for(sample_bundle(1), &machine.mine),
                     not_there = request_for(sample_bundle(3), &machine.mine);
  CHECK(cache->remote_contains(there) == true);
  const auto answers_so = [&](const CacheRequest& request, bool expected) {
    for (int i = 0; i < 100; ++i)
      if (cache->remote_contains(request) != expected) return false;
    return true;
  };
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(answers_so(not_there, false) ? 0 : 1);
  CHECK(answers_so(there, true));
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(machine.warnings.empty());
}

}  // namespace tessera::testing

#include "runtime/guest_calls.h"

#include <cxxabi.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "base/quiet_thread.h"
#include "runtime/underway.h"

namespace tessera {

namespace {

/// What a replaced call last answered this thread when it asked for a signal; empty after it gave back.
struct Told {
  bool is_set = false;
  sighandler_t handler = nullptr;
};

std::array<std::atomic<const link_map*>, 64> g_guests;
thread_local int t_own_uses = 0;
thread_local std::array<Told, NSIG> t_told;
thread_local bool t_has_raised_stack = false;  // so the thread believes

bool is_guests(sighandler_t handler) {
  if (handler == SIG_DFL || handler == SIG_IGN || handler == SIG_ERR) return false;
  for (const auto& slot : g_guests) {
    const link_map* const guest = slot.load(std::memory_order_acquire);
    if (guest == nullptr) return false;
    if (contains_address(*guest, reinterpret_cast<const void*>(handler))) return true;
  }
  return false;
}

/// Whether the calling thread ends what it began before the calls were replaced.
bool gives_back(int number, sighandler_t found, sighandler_t wanted) {
  if (t_own_uses > 0 || number < 1 || number >= NSIG) return false;
  Told& told = t_told[static_cast<std::size_t>(number)];
  const bool is_taken = is_guests(found);
  if (is_guests(wanted) || (wanted == SIG_IGN && !is_taken)) {
    told = {true, found};
    return false;
  }
  const bool was_told = told.is_set && told.handler == wanted;
  told = {};
  return !was_told && (is_taken || found == SIG_IGN);
}

sighandler_t unchanged_signal(int number, sighandler_t wanted) {
  struct sigaction found {};
  if (sigaction(number, nullptr, &found) != 0) return SIG_ERR;
  return gives_back(number, found.sa_handler, wanted) ? signal(number, wanted) : found.sa_handler;
}

int unchanged_sigaction(int number, const struct sigaction* wanted, struct sigaction* found) {
  struct sigaction now {};
  if (const int failure = sigaction(number, nullptr, &now); failure != 0) return failure;
  const bool goes_through = wanted != nullptr && gives_back(number, now.sa_handler, wanted->sa_handler);
  return sigaction(number, goes_through ? wanted : nullptr, found);
}

int unchanged_limit(__rlimit_resource_t which, const rlimit* wanted) {
  rlimit now{};
  if (which != RLIMIT_STACK || t_own_uses > 0 || wanted == nullptr || getrlimit(which, &now) != 0) return 0;
  const bool has_raised = t_has_raised_stack;
  t_has_raised_stack = !has_raised && wanted->rlim_cur > now.rlim_cur;
  return !has_raised && wanted->rlim_cur < now.rlim_cur ? setrlimit(which, wanted) : 0;
}

int unchanged_variable(const char*, const char*, int) { return 0; }
int refused_folder(const char*) {
  errno = EPERM;  // who opens a relative path next must not think that it moved
  return -1;
}
unsigned no_alarm(unsigned) { return 0; }

/// Threads of the library's leave the host's signals to the host's threads.
int quiet_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  const SignalsBlocked blocked;
  return pthread_create(thread, attributes, body, argument);
}

/// A handler of the library's that is registered late runs early.
int late_atexit(void (*handler)(void*), void* argument, void* library) {
  const int result = abi::__cxa_atexit(handler, argument, library);
  wait_at_exit();
  return result;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

std::span<const ReplacedImport> replaced_imports_of_guests() {
  static const std::array<ReplacedImport, 15> table{{{"signal", address_of(unchanged_signal)},
                                                     {"bsd_signal", address_of(unchanged_signal)},
                                                     {"ssignal", address_of(unchanged_signal)},
                                                     {"__sysv_signal", address_of(unchanged_signal)},
                                                     {"sysv_signal", address_of(unchanged_signal)},
                                                     {"sigset", address_of(unchanged_signal)},
                                                     {"sigaction", address_of(unchanged_sigaction)},
                                                     {"__sigaction", address_of(unchanged_sigaction)},
                                                     {"setrlimit", address_of(unchanged_limit)},
                                                     {"setrlimit64", address_of(unchanged_limit)},
                                                     {"setenv", address_of(unchanged_variable)},
                                                     {"chdir", address_of(refused_folder)},
                                                     {"alarm", address_of(no_alarm)},
                                                     {"pthread_create", address_of(quiet_create)},
                                                     {"__cxa_atexit", address_of(late_atexit)}}};
  return table;
}

bool sets_signals(std::string_view name) {
  return name.find("signal") != std::string_view::npos || name.find("sig") == 0 || name == "__sigaction";
}

void add_guest(const link_map& guest) {
  for (auto& slot : g_guests) {
    const link_map* there = nullptr;
    if (slot.compare_exchange_strong(there, &guest) || there == &guest) return;
  }
}

void enter_own_use() { ++t_own_uses; }
void leave_own_use() { --t_own_uses; }

}  // namespace tessera

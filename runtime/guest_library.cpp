#include "runtime/guest_library.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "base/quiet_thread.h"
#include "runtime/replaced_imports.h"
#include "runtime/underway.h"

namespace tessera {

namespace {

// What the library calls instead. Each answers as the function would that found things so, and changes nothing.

sighandler_t unchanged_signal(int signal, sighandler_t) {
  struct sigaction found {};
  if (sigaction(signal, nullptr, &found) != 0) return SIG_ERR;
  return found.sa_handler;
}

int unchanged_sigaction(int signal, const struct sigaction*, struct sigaction* found) {
  return sigaction(signal, nullptr, found);
}

int unchanged_limit(int, const void*) { return 0; }
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

const std::array<ReplacedImport, 15>& replaced_imports_of_guests() {
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

/// The dispositions of all signals at one moment.
class Dispositions {
 public:
  Dispositions() {
    for (int i = 1; i < kSignals; ++i)
      if (sigaction(i, nullptr, &actions_[static_cast<std::size_t>(i)]) != 0)
        actions_[static_cast<std::size_t>(i)].sa_handler = SIG_DFL;  // one of the C library's own
  }

  /// Puts back what has changed in the library's hands: handlers that are its code; with `all` also what is ignored or
  /// default now, or has lost its flags. New handlers of others stay: the host installed them meanwhile.
  void put_back(const link_map& library, bool all) const {
    for (int i = 1; i < kSignals; ++i) {
      struct sigaction now {};
      if (sigaction(i, nullptr, &now) != 0) continue;
      struct sigaction before = actions_[static_cast<std::size_t>(i)];
      const auto is_its = [&](const struct sigaction& action) {
        return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
               contains_address(library, reinterpret_cast<const void*>(action.sa_handler));
      };
      const bool is_plain = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
      const bool is_same = now.sa_handler == before.sa_handler;
      const bool is_changed = all && (is_same ? now.sa_flags != before.sa_flags : is_plain);
      if (!is_its(now) && !is_changed) continue;
      // A compile by somebody else was under way when this was looked at: the end of that is the default.
      if (is_its(before)) before = {};
      sigaction(i, &before, nullptr);
    }
  }

 private:
  static constexpr int kSignals = NSIG;
  std::array<struct sigaction, NSIG> actions_{};
};

// A host may unload the library that this code is linked into while its own use of the guest goes on: what the guest
// calls must not be gone then. Put back when this code ends, at the latest with the process.
class ReplacedGuests {
 public:
  void add(const link_map& guest, std::vector<FilledSlot> filled) {
    if (!filled.empty()) guests_.push_back({guest.l_name, std::move(filled)});
  }
  ~ReplacedGuests() {
    for (const Guest& guest : guests_) {
      void* const handle = dlopen(guest.name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) continue;  // unloaded
      link_map* map = nullptr;
      if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) put_imports_back(*map, guest.filled);
      dlclose(handle);
    }
  }

 private:
  struct Guest {
    std::string name;
    std::vector<FilledSlot> filled;
  };
  std::vector<Guest> guests_;
};

ReplacedGuests& replaced_guests() {
  static ReplacedGuests guests;
  return guests;
}

std::mutex g_mutex;
int g_uncontained = 0;  // scopes of libraries that are not contained, alive now
Dispositions* g_saved = nullptr;

locale_t c_locale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

}  // namespace

GuestLibrary open_guest_library(const std::string& name, std::string* why) {
  const Dispositions before;
  GuestLibrary guest{DynamicLibrary::open(name, why), false};
  const link_map* const map = guest.library.loaded();
  if (map == nullptr) return guest;
  const std::lock_guard lock(g_mutex);
  std::vector<FilledSlot> filled;
  const auto replaced = replace_imports(*map, replaced_imports_of_guests(), &filled);
  replaced_guests().add(*map, std::move(filled));
  guest.is_contained = std::any_of(replaced.begin(), replaced.end(), sets_signals);
  before.put_back(*map, false);
  wait_at_exit();
  return guest;
}

GuestScope::GuestScope(const GuestLibrary& guest) : guest_(guest) {
  feholdexcept(&arithmetic_);
  fesetenv(FE_DFL_ENV);
  locale_ = c_locale() == nullptr ? nullptr : uselocale(c_locale());
  if (guest.is_contained) return;
  const std::lock_guard lock(g_mutex);
  if (g_uncontained++ == 0) g_saved = new Dispositions;
}

GuestScope::~GuestScope() {
  if (locale_ != nullptr) uselocale(locale_);
  fesetenv(&arithmetic_);
  if (guest_.is_contained) return;
  const std::lock_guard lock(g_mutex);
  if (--g_uncontained > 0) return;
  if (const link_map* const map = guest_.library.loaded()) g_saved->put_back(*map, true);
  delete g_saved;
  g_saved = nullptr;
}

}  // namespace tessera

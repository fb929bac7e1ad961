#include "runtime/guest_library.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "runtime/guest_calls.h"
#include "runtime/underway.h"

namespace tessera {

namespace {

/// The dispositions of all signals at one moment.
class Dispositions {
 public:
  Dispositions() {
    for (int i = 1; i < kSignals; ++i)
      if (sigaction(i, nullptr, &actions_[static_cast<std::size_t>(i)]) != 0)
        actions_[static_cast<std::size_t>(i)].sa_handler = SIG_DFL;  // one of the C library's own
  }

  /// Puts back what has changed in the library's hands: handlers that are its code; with `all` also what is ignored or
  /// default now, or has lost its flags. New handlers of others stay: the host installed them meanwhile. So does what
  /// was the library's before: a compile of somebody else holds it, and gives it back.
  void put_back(const link_map& library, bool all) const {
    for (int i = 1; i < kSignals; ++i) {
      struct sigaction now {};
      if (sigaction(i, nullptr, &now) != 0) continue;
      const struct sigaction& before = actions_[static_cast<std::size_t>(i)];
      const auto is_its = [&](const struct sigaction& action) {
        return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
               contains_address(library, reinterpret_cast<const void*>(action.sa_handler));
      };
      const bool is_plain = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
      const bool is_same = now.sa_handler == before.sa_handler;
      const bool is_changed = all && (is_same ? now.sa_flags != before.sa_flags : is_plain);
      if ((is_its(now) || is_changed) && !is_its(before)) sigaction(i, &before, nullptr);
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
  // What is loaded already has no initialisers that run now; what it holds belongs to the host's use of it.
  void* const host_has = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  const Dispositions before;
  GuestLibrary guest{DynamicLibrary::open(name, why), false};
  if (host_has != nullptr) dlclose(host_has);
  const link_map* const map = guest.library.loaded();
  if (map == nullptr) return guest;
  const std::lock_guard lock(g_mutex);
  add_guest(*map);
  std::vector<FilledSlot> filled;
  const auto replaced = replace_imports(*map, replaced_imports_of_guests(), &filled);
  replaced_guests().add(*map, std::move(filled));
  guest.is_contained = std::any_of(replaced.begin(), replaced.end(), sets_signals);
  if (host_has == nullptr) before.put_back(*map, false);
  wait_at_exit();
  return guest;
}

GuestScope::GuestScope(const GuestLibrary& guest) : guest_(guest) {
  enter_own_use();
  feholdexcept(&arithmetic_);
  fesetenv(FE_DFL_ENV);
  locale_ = c_locale() == nullptr ? nullptr : uselocale(c_locale());
  if (guest.is_contained) return;
  const std::lock_guard lock(g_mutex);
  if (g_uncontained++ == 0) g_saved = new Dispositions;
}

GuestScope::~GuestScope() {
  leave_own_use();
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

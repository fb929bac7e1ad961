#include "tessera/internal/compiling.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/error.h"

namespace tessera {

namespace {

/// Two caches may compile one key at once, on two threads.
struct Registry {
  std::mutex mutex;
  std::multimap<std::string, std::thread::id> compiled_by;
  std::map<std::thread::id, std::vector<std::string>> awaited_by;  ///< the innermost last

  /// Does the thread's own compile have to be over before this key's is?
  bool leads_back(const std::string& key, std::thread::id to) const {
    const auto [begin, end] = compiled_by.equal_range(key);
    for (auto at = begin; at != end; ++at) {
      if (at->second == to) return true;
      const auto next = awaited_by.find(at->second);
      if (next != awaited_by.end() && leads_back(next->second.back(), to)) return true;
    }
    return false;
  }
};

Registry& registry() {
  static auto* const all = new Registry();  // compiles may outlive the statics
  return *all;
}

thread_local int t_compiles = 0;

}  // namespace

Compiling::Compiling(const std::string& key) : key_(key) {
  const std::lock_guard lock(registry().mutex);
  registry().compiled_by.emplace(key_, std::this_thread::get_id());
  ++t_compiles;
}

Compiling::~Compiling() {
  const std::lock_guard lock(registry().mutex);
  --t_compiles;
  const auto [begin, end] = registry().compiled_by.equal_range(key_);
  for (auto at = begin; at != end; ++at)
    if (at->second == std::this_thread::get_id()) {
      registry().compiled_by.erase(at);
      return;
    }
}

Awaiting::Awaiting(const std::string& key, const std::string& kernel) {
  if (t_compiles == 0) return;  // nobody waits for this thread
  const std::lock_guard lock(registry().mutex);
  if (registry().leads_back(key, std::this_thread::get_id()))
    throw Error(ErrorKind::usage,
                fmt::format("{}: an event function asks for it in the midst of its compile, which would "
                            "wait for itself: ask when the compile has finished",
                            kernel));
  registry().awaited_by[std::this_thread::get_id()].push_back(key);
  is_noted_ = true;
}

Awaiting::~Awaiting() {
  if (!is_noted_) return;
  const std::lock_guard lock(registry().mutex);
  const auto at = registry().awaited_by.find(std::this_thread::get_id());
  at->second.pop_back();
  if (at->second.empty()) registry().awaited_by.erase(at);
}

}  // namespace tessera

// Machines, each with a folder and a cache of its own, over one store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/cache_fixture.h"
#include "tests/support/store_server.h"

namespace tessera::testing {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

inline constexpr milliseconds kLimit{400};

/// One machine: a folder and a cache of its own over a common store.
struct Machine : Bench {
  explicit Machine(const StoreServer& server, bool is_written = false, int compiler_version = 13)
      : mine(compiler_version) {
    server.add_to(options.remote);
    options.remote.is_written = is_written;
    options.remote.time_limit = kLimit;
  }
  CountingCompiler mine;
  std::shared_ptr<const CacheEntry> get(Cache& cache, int number) {
    const SourceBundle bundle = sample_bundle(number);
    return cache.find_or_build(request_for(bundle, &mine), [&] { return mine.compile(bundle); });
  }
  std::shared_ptr<const CacheEntry> get(int number) { return get(*open(), number); }
  bool has_warned_of(const std::string& text) {
    const std::lock_guard lock(warnings_mutex);
    for (const std::string& warning : warnings)
      if (warning.find(text) != std::string::npos) return true;
    return false;
  }
};

/// A store that holds kernel 1 and 2, as one machine left them.
struct FullStore : StoreServer {
  FullStore() {
    Machine writer(*this, true);
    writer.options.remote.time_limit = milliseconds{20'000};
    const auto cache = writer.open();
    for (const int number : {1, 2}) entries.push_back(writer.get(*cache, number));
    forget_asked();
  }
  std::vector<std::shared_ptr<const CacheEntry>> entries;
};

inline bool is_blob(const StoreRequest& request) { return request.method == "GET" && request.path.starts_with("cas/"); }
inline bool is_action(const StoreRequest& request) {
  return request.method == "GET" && request.path.starts_with("ac/");
}

}  // namespace tessera::testing

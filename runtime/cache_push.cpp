// What the folders of a cache hold, into its remote tier.
#include <atomic>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/worker_pool.h"
#include "tessera/cache_admin.h"

namespace tessera {

PushResult push_cache(Cache& cache, const CacheFilter& filter, int jobs) {
  PushResult result;
  std::vector<CacheListing> chosen;
  std::set<std::string> seen;  // an entry that several folders hold is listed for each
  for (CacheListing& entry : list_cache(cache.options(), filter, &result.faults)) {
    if (!entry.damage.empty()) {
      ++result.damaged;
    } else if (seen.insert(entry.keys.entry).second) {
      chosen.push_back(std::move(entry));
    }
  }
  result.entries = static_cast<std::int64_t>(chosen.size()) + result.damaged;
  const CacheStats before = cache.stats();
  std::atomic<std::int64_t> pushed{0};
  for_each_index(chosen.size(), jobs > 0 ? jobs : default_num_workers(), [&](std::size_t i) {
    CacheRequest request;
    request.keys = chosen[i].keys;
    request.op = chosen[i].op;
    request.arch = chosen[i].arch;
    request.kernel = chosen[i].kernel;
    request.require_compiler = true;  // this entry, and no other compiler's
    if (cache.push(request)) ++pushed;
  });
  const CacheStats after = cache.stats();
  result.stored = after.remote_stored - before.remote_stored;
  result.failed = after.remote_failures - before.remote_failures;
  result.present = pushed - result.stored;
  result.damaged += static_cast<std::int64_t>(chosen.size()) - pushed - result.failed;
  return result;
}

}  // namespace tessera

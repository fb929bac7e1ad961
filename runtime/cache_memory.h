// The memory tier: entries by key, bounded by bytes, oldest unused out first (second chance: a hit marks its slot, and
// a marked slot survives one round). A hit takes a shared lock and writes one flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "tessera/cache.h"

namespace tessera {

class MemoryTier {
 public:
  explicit MemoryTier(std::int64_t max_bytes) : max_bytes_(max_bytes) {}

  std::shared_ptr<const CacheEntry> find(const CacheRequest& request) const;
  /// Under its entry key; under the request's source key too when that was the answer to it. An entry that is there
  /// already, and has as much, stays and is returned.
  std::shared_ptr<const CacheEntry> insert(const CacheRequest& request, std::shared_ptr<const CacheEntry> entry);

 private:
  using Pointer = std::shared_ptr<const CacheEntry>;
  struct Slot {
    Pointer entry;
    mutable std::atomic<bool> is_used{false};
  };
  Pointer find_key(const std::string& key, bool need_ptx) const;
  void put(const std::string& key, const Pointer& entry);
  void shrink();

  std::int64_t max_bytes_, bytes_ = 0;
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, Slot> slots_;  // entry keys and source keys: both are digests, they never meet
  std::deque<std::string> order_;                // of insertion; every key of slots_ once
};

}  // namespace tessera

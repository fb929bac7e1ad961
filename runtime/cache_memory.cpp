#include "runtime/cache_memory.h"

#include <mutex>

namespace tessera {

namespace {
std::int64_t bytes_of(const CacheEntry& entry) {
  return static_cast<std::int64_t>(entry.image.cubin.size() + entry.image.ptx.size() + entry.image.merge.cubin.size() +
                                   entry.image.merge.ptx.size() + entry.plan_json.size() +
                                   entry.image.report.log.size() + sizeof(CacheEntry));
}
}  // namespace

MemoryTier::Pointer MemoryTier::find_key(const std::string& key, bool need_ptx) const {
  const auto found = slots_.find(key);
  if (found == slots_.end() || (need_ptx && !found->second.entry->has_ptx)) return nullptr;
  found->second.is_used.store(true, std::memory_order_relaxed);
  return found->second.entry;
}

MemoryTier::Pointer MemoryTier::find(const CacheRequest& request) const {
  const std::shared_lock lock(mutex_);
  if (!request.keys.entry.empty()) {
    if (Pointer found = find_key(request.keys.entry, request.need_ptx)) return found;
  }
  return request.require_compiler ? nullptr : find_key(request.keys.source, request.need_ptx);
}

MemoryTier::Pointer MemoryTier::insert(const CacheRequest& request, Pointer entry) {
  const std::unique_lock lock(mutex_);
  const bool is_exact = !request.keys.entry.empty() && entry->keys.entry == request.keys.entry;
  const std::string& key = is_exact ? request.keys.entry : request.keys.source;
  if (Pointer found = find_key(key, entry->has_ptx)) return found;
  put(key, entry);
  shrink();
  return entry;
}

void MemoryTier::put(const std::string& key, const Pointer& entry) {
  const auto [slot, is_new] = slots_.try_emplace(key);
  if (is_new) {
    order_.push_back(key);
  } else {
    bytes_ -= bytes_of(*slot->second.entry);
  }
  slot->second.entry = entry;
  bytes_ += bytes_of(*entry);
}

void MemoryTier::shrink() {
  // The newest is never the victim, so a single entry above the limit still serves.
  while (max_bytes_ != 0 && bytes_ > max_bytes_ && order_.size() > 1) {
    std::string key = std::move(order_.front());
    order_.pop_front();
    const auto slot = slots_.find(key);
    const bool is_newest = order_.empty();
    if (slot->second.is_used.exchange(false, std::memory_order_relaxed) || is_newest) {
      order_.push_back(std::move(key));
      continue;
    }
    bytes_ -= bytes_of(*slot->second.entry);
    slots_.erase(slot);
  }
}

}  // namespace tessera

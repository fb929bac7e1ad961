// The cubin cache: one folder per entry (kernel.cubin, kernel.ptx, plan.json, compile.json and, with --keep-source, the
// sources), published by rename, digests checked on load, single flight within and across processes, tiers from memory
// to read-only system folders. See docs/cache.md for the layout on disk, the guarantees and how each fault degrades.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/compiler.h"
#include "base/image.h"
#include "base/source_bundle.h"

namespace tessera {

inline constexpr int kCacheSchema = 1;

/// What an entry is looked up by. Content only: no path, no time.
struct EntryKeys {
  std::string source;  ///< SHA-256(schema, arch, options, bundle, plan.json)
  std::string entry;   ///< SHA-256(source key, compiler identity); empty where no compiler is present
};

EntryKeys make_keys(const SourceBundle& bundle, const std::string& plan_json, const CompilerIdentity* compiler);

enum class CacheTier : std::uint8_t { memory, user, system, compiled };
std::string_view to_string(CacheTier tier) noexcept;

/// One kernel, compiled. Immutable and shared.
struct CacheEntry {
  EntryKeys keys;
  std::string op, arch, kernel;  ///< for listings
  std::string plan_json;
  Image image;
  std::filesystem::path folder;  ///< empty when it lives in memory only
  CacheTier tier = CacheTier::memory;
};

struct CacheRequest {
  EntryKeys keys;
  std::string op, arch, kernel;
  std::string plan_json;
  bool require_compiler = false;  ///< never serve an entry made by another compiler
};

struct CacheOptions {
  std::filesystem::path user_folder;                  ///< empty: no user tier
  std::vector<std::filesystem::path> system_folders;  ///< read-only, searched in order
  std::int64_t max_bytes = std::int64_t{8} << 30;     ///< of the user folder; 0: no limit
  bool trust_folder = false;                          ///< accept a world-writable or foreign-owned folder
  std::function<void(const std::string&)> warn;       ///< each distinct warning once; may be empty
};

struct CacheStats {
  std::int64_t memory_hits = 0, user_hits = 0, system_hits = 0, compiles = 0, failures = 0, quarantined = 0;
  double compile_ms = 0;
};

/// Thread-safe. Several processes may share a folder.
class Cache {
 public:
  explicit Cache(CacheOptions options);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// The entry, if a tier has it; heals (quarantines) what does not verify.
  std::shared_ptr<const CacheEntry> find(const CacheRequest& request);
  /// The entry; on a miss calls build exactly once per key among all threads, and among all processes that share the
  /// folder as far as its file system has locks. build's exceptions reach every waiter; nothing is published then.
  std::shared_ptr<const CacheEntry> find_or_build(const CacheRequest& request, const std::function<Image()>& build);
  /// Would find() answer? Reads no payload. The tier, or nothing.
  std::optional<CacheTier> contains(const CacheRequest& request);
  CacheStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera

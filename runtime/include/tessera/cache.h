// The cubin cache: one folder per entry (kernel.cubin, kernel.ptx, plan.json, compile.json, of split keys merge.cubin
// and merge.ptx, and, where kept, source.cu),
// published by rename, digests checked on load, single flight within and across processes, tiers from memory to
// read-only system folders. See docs/cache.md for the layout on disk, the guarantees and how each fault degrades;
// cache_admin.h lists, verifies, prunes, exports and imports.
//
// No fault of the file system makes find or find_or_build throw: a folder that cannot be read is a miss, one that
// cannot be written keeps kernels in memory, and each says so once through CacheOptions::warn.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/image.h"
#include "tessera/remote.h"
#include "tessera/source_bundle.h"

namespace tessera {

struct FileHooks;  // cache_files.h

inline constexpr int kCacheSchema = 1;

/// What an entry is looked up by. Content only: no path, no time.
struct EntryKeys {
  std::string source{};  ///< SHA-256(schema, arch, options, bundle, plan.json)
  std::string entry{};   ///< SHA-256(source key, compiler identity); empty where no compiler is present
  friend bool operator==(const EntryKeys&, const EntryKeys&) = default;
};

EntryKeys make_keys(const SourceBundle& bundle, const std::string& plan_json, const CompilerIdentity* compiler);

enum class CacheTier : std::uint8_t { memory, user, system, compiled, remote };
std::string_view to_string(CacheTier tier) noexcept;

/// One kernel, compiled. Immutable and shared.
struct CacheEntry {
  EntryKeys keys{};                    ///< of what was served: keys.entry names the compiler that made it
  std::string op{}, arch{}, kernel{};  ///< for listings
  std::string plan_json{};
  Image image{};                       ///< image.ptx is empty when has_ptx is false
  bool has_ptx = true;                 ///< false: loaded from disk for a request without need_ptx
  std::filesystem::path folder{};      ///< empty when it lives in memory only
  CacheTier tier = CacheTier::memory;  ///< where this process got it from: user, system, remote or compiled

  /// The PTX: image.ptx, or read from the folder and verified. Throws Error{io} when the entry left the disk meanwhile
  /// (evicted, pruned) or is damaged; then a request with need_ptx gets it, by a compile if need be.
  std::string read_ptx() const;
  /// The image with its PTX, likewise.
  Image whole_image() const;
};

/// A stop request ended the wait for another process's compile.
struct WaitInterrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CacheRequest {
  EntryKeys keys{};
  std::string op{}, arch{}, kernel{};
  std::string plan_json{};
  std::string source{};           ///< the self-contained source, stored as source.cu when not empty
  bool require_compiler = false;  ///< never serve an entry made by another compiler
  /// Ends a wait for another process that compiles the same kernel with WaitInterrupted.
  std::stop_token stop{};
  bool need_ptx = true;  ///< false: a load from disk reads no PTX, which is most of the bytes
};

struct CacheOptions {
  std::filesystem::path user_folder{};                    ///< empty: no user tier
  std::vector<std::filesystem::path> system_folders{};    ///< read-only, searched in order
  std::int64_t max_bytes = std::int64_t{8} << 30;         ///< of the user folder; 0: no limit
  std::int64_t max_memory_bytes = std::int64_t{1} << 30;  ///< of the memory tier; 0: no limit
  bool trust_folder = false;                              ///< accept a world-writable or foreign-owned folder
  RemoteOptions remote{};                                 ///< asked after the folders, by find_or_build alone
  /// Longest wait for a process that compiles the same kernel; then this one compiles too.
  std::chrono::milliseconds lock_wait{120'000};
  std::function<void(const std::string&)> warn{};  ///< each distinct fault once, from any thread; may be empty
  std::shared_ptr<const FileHooks> hooks{};        ///< tests inject faults and clocks here; null otherwise
};

struct CacheStats {
  std::int64_t memory_hits = 0, user_hits = 0, system_hits = 0, compiles = 0, failures = 0, quarantined = 0;
  double compile_ms = 0;
  std::int64_t published = 0, publish_failures = 0, evicted = 0, lock_waits = 0;
  std::int64_t remote_hits = 0, remote_stored = 0;
  std::int64_t remote_failures = 0;  ///< entries that should have been stored there and were not
  std::int64_t remote_misses = 0;    ///< look-ups that it answered: it has no such entry, or none that may be loaded
  std::int64_t remote_errors = 0;    ///< look-ups that it did not answer, or with what is no entry
  double remote_ms = 0;              ///< in which callers waited for it, storing included
};

/// Thread-safe. Several processes may share a folder.
class Cache {
 public:
  /// Touches no file but those that CacheOptions::remote names, whose faults it throws (Error), and asks no store.
  explicit Cache(CacheOptions options);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// The entry, if a tier has it; heals (quarantines) what does not verify. In order: the entry of keys.entry in
  /// memory, user, system; then, unless require_compiler, the newest entry of keys.source in the same order.
  std::shared_ptr<const CacheEntry> find(const CacheRequest& request);
  /// The entry; on a miss calls build exactly once per key among all threads, and among all processes that share the
  /// folder as far as its file system has locks. build's exceptions reach every waiter; nothing is published then, and
  /// the next caller tries again. build must not ask this cache for the same key. Without a compiler (keys.entry
  /// empty) build is called all the same, to throw what the caller wants to say; what it returns stays in memory.
  std::shared_ptr<const CacheEntry> find_or_build(const CacheRequest& request, const std::function<Image()>& build);
  /// Would find() answer? Reads and verifies all that it would, but counts as no use. The tier, or nothing.
  std::optional<CacheTier> contains(const CacheRequest& request);
  /// Whether the remote tier has the entry. Nothing: there is none, or it could not say.
  std::optional<bool> remote_contains(const CacheRequest& request);
  /// The same of many, with few requests or many at a time.
  std::vector<std::optional<bool>> remote_contains(std::span<const CacheRequest> requests);
  /// The entry of a folder or of the remote tier, and then in the user folder; null: neither has it. Compiles nothing.
  std::shared_ptr<const CacheEntry> pull(const CacheRequest& request);
  /// Stores an entry of a folder in the remote tier, unless it is there. False: no folder has it, or it was not stored.
  bool push(const CacheRequest& request);
  CacheStats stats() const;
  const CacheOptions& options() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera

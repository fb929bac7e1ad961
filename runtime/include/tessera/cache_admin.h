// What `tessera cache` does: look at the tiers, verify, prune, export and import. Everything here works beside running
// processes: what it removes it removes as an eviction does, what it imports it publishes as a compile does.
//
// A folder that is refused (CacheOptions::trust_folder), or that cannot be read as a whole or in part, is a CacheFault
// of the result: what the result says holds for the rest only. A request that cannot be met is an Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cache.h"
#include "tessera/cache_fault.h"

namespace tessera {

/// Empty lists match everything.
struct CacheFilter {
  std::vector<std::string> ops, archs;
  bool matches(const std::string& op, const std::string& arch) const;
  bool is_empty() const { return ops.empty() && archs.empty(); }
};

struct CacheListing {
  EntryKeys keys;
  std::string op, arch, kernel;
  CompilerIdentity compiler;
  CacheTier tier = CacheTier::user;  ///< user or system
  std::filesystem::path folder;
  std::int64_t bytes = 0;
  std::chrono::system_clock::time_point last_use;
  std::string damage;  ///< why its compile.json cannot be read or the sizes are wrong
  /// Whether op, arch, kernel and compiler are known: damage of compile.json leaves them empty.
  bool is_known() const { return damage.empty() || !op.empty(); }
};

/// User folder first, in each tier by source key; an entry that several tiers hold is listed for each. Entries that are
/// not known match every filter. faults: where there may be more, folders that do not exist among them; null: those
/// that exist are warned of.
std::vector<CacheListing> list_cache(const CacheOptions& options, const CacheFilter& filter = {},
                                     std::vector<CacheFault>* faults = nullptr);

struct CacheDetails {
  CacheListing listing;
  CompileReport report;
  std::string plan_json, ptx;
  std::string source;  ///< empty unless it was kept
  std::vector<std::byte> cubin;
  Code merge;
};

/// The entry whose entry key or source key begins so, verified. Throws Error{usage} for fewer than 6 characters, for no
/// such entry, and for more than one (notes list them); Error{io} for a damaged one, and where none was found but a
/// folder cannot be read.
CacheDetails show_cache_entry(const CacheOptions& options, const std::string& key_prefix);

struct CacheUsage {
  struct Folder {
    std::filesystem::path path;
    CacheTier tier = CacheTier::user;
    std::string refused;  ///< why it is not used; empty when it is
    bool exists = false;
    std::int64_t entries = 0, bytes = 0, damaged = 0, quarantined = 0;
    std::int64_t max_bytes = 0;  ///< 0: no limit
  };
  struct Group {
    std::string op, arch;
    std::int64_t entries = 0, bytes = 0;
  };
  std::vector<Folder> folders;  ///< in the order of the search
  std::vector<Group> groups;    ///< by op and arch, over all folders
  std::int64_t entries = 0, bytes = 0;
  std::vector<CacheFault> faults;  ///< of folders that exist
};
CacheUsage cache_usage(const CacheOptions& options);

/// The cache folders where they lie now. Whoever looks many kernels up asks afterwards whether they stayed there: what
/// was not found in a folder that was moved away says nothing about it. So does whoever stores many: they may lie in
/// two places. For them makes_folder makes the user's folder, where it can be made.
class CacheWatch {
 public:
  explicit CacheWatch(const CacheOptions& options, bool makes_folder = false);
  ~CacheWatch();
  CacheWatch(const CacheWatch&) = delete;
  CacheWatch& operator=(const CacheWatch&) = delete;
  /// Folders that were moved, removed or replaced since, or that can no longer be looked at.
  std::vector<CacheFault> lost() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct CacheVerification {
  std::int64_t checked = 0;
  std::vector<CacheListing> damaged;  ///< damage says what is wrong
  std::int64_t healed = 0;            ///< of these: moved aside
  std::vector<CacheFault> faults;     ///< what was not checked, or not moved aside; folders that do not exist too
};
/// Reads every byte of every entry. heal: moves what is damaged in the user folder aside.
CacheVerification verify_cache(const CacheOptions& options, bool heal = false);

struct PruneRequest {
  std::optional<std::int64_t> max_bytes;           ///< down to so many bytes, least recently used first
  std::optional<std::chrono::seconds> older_than;  ///< what was not loaded for so long
  bool all = false;                                ///< everything that the filter matches, and the quarantine
  bool dry_run = false;
  CacheFilter filter;  ///< what may go; max_bytes counts only that
};
struct PruneResult {
  std::vector<CacheListing> removed;  ///< or would be
  std::int64_t removed_bytes = 0, kept_entries = 0, kept_bytes = 0;
  std::int64_t stuck_entries = 0;     ///< of those kept: should have gone, but the folder cannot be changed
  std::vector<CacheListing> damaged;  ///< of those kept: whether the filter matches them is not known
  std::vector<std::string> foreign;   ///< what lies in the folder and the cache did not make: left alone, said once
  std::vector<CacheFault> faults;     ///< what could not be looked into or removed; also that there is no folder
};
/// Of the user folder. Throws Error{usage} when the request says nothing.
PruneResult prune_cache(const CacheOptions& options, const PruneRequest& request);

struct ExportResult {
  std::int64_t entries = 0, bytes = 0;  ///< bytes before compression
  std::vector<CacheListing> damaged;    ///< left out: all that match, or may match
};
/// Every entry of every tier that matches, each once, into one file that appears when it is complete. Nothing is
/// written where there is none, or all of them are damaged. Throws Error{io}, and leaves no file, where a folder does
/// not exist, is moved away meanwhile, or something cannot be read: the archive would miss it.
ExportResult export_cache(const CacheOptions& options, const std::filesystem::path& archive,
                          const CacheFilter& filter = {});

/// What an archive may hold at most.
struct ArchiveLimits {
  std::int64_t max_entries = 1'000'000;
  std::int64_t max_entry_bytes = std::int64_t{256} << 20;  ///< of one entry's files together; also of the manifest
  std::int64_t max_total_bytes = std::int64_t{64} << 30;   ///< after decompression
};

struct ImportResult {
  std::int64_t imported = 0, present = 0, bytes = 0;
};
/// Into the user folder. The whole archive is verified before the first entry is published; each entry appears by one
/// rename. Throws Error{io} for a bad archive (nothing was imported) and for a folder that cannot be written (what was
/// imported before stays, and is whole). An archive is code: import only what you would run.
ImportResult import_cache(const CacheOptions& options, const std::filesystem::path& archive,
                          const ArchiveLimits& limits = {});

struct PushResult {
  std::int64_t entries = 0, stored = 0, present = 0;
  std::int64_t damaged = 0;        ///< not pushed: a folder's entry does not verify
  std::int64_t failed = 0;         ///< not pushed: the store did not take it
  std::vector<CacheFault> faults;  ///< folders that are not there, or whose entries were not pushed for what it says
};
/// Every entry of every folder that matches, verified, into the cache's remote tier, unless it is there. jobs: so many
/// at a time; 0: one per core.
PushResult push_cache(Cache& cache, const CacheFilter& filter = {}, int jobs = 0);

}  // namespace tessera

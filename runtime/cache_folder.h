// One cache folder on disk: the user's, written to, or a system's, only read.
//
//   <root>/v1/<aa>/<source key>/<entry key>/   an entry; its folder's modification time is its last use
//   <root>/v1/staging/                         entries being written, entries being removed
//   <root>/v1/quarantine/                      the last kQuarantineLimit damaged entries
//   <root>/v1/lock                             one byte of it for each lock, see cache_lock.h
//   <root>/v1/clock                            its modification time is the newest last use of all
//
// aa is the first byte of the source key. An entry appears and leaves by one rename, so whoever finds one finds it
// whole; what happens to it after is found by its digests.
//
// The root may be a link; below it none is followed: each operation opens the root and walks from there by descriptors
// (cache_files.h). What is removed has a name of the cache's own pattern, in a folder of the cache; whatever else lies
// there is left alone and reported.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/cache_entry.h"
#include "runtime/cache_files.h"
#include "runtime/cache_lock.h"
#include "tessera/cache_fault.h"

namespace tessera {

inline constexpr const char* kStagingFolder = "staging";
inline constexpr const char* kQuarantineFolder = "quarantine";
inline constexpr std::size_t kQuarantineLimit = 16;
inline constexpr std::int64_t kStagingAgeNs = std::int64_t{600} * 1'000'000'000;                 // with locks
inline constexpr std::int64_t kStagingAgeWithoutLocksNs = std::int64_t{86'400} * 1'000'000'000;  // without
inline constexpr std::int64_t kDiskFullPauseNs = std::int64_t{60} * 1'000'000'000;

/// Hands each fault to the caller's function once.
class Warnings {
 public:
  explicit Warnings(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}
  /// Later messages of the same subject are dropped.
  void once(const std::string& subject, const std::string& message);

 private:
  std::function<void(const std::string&)> sink_;
  std::mutex mutex_;
  std::set<std::string> said_;
};

/// What the folders of one cache share.
struct CacheShared {
  explicit CacheShared(const CacheOptions& options)
      : files(options.hooks), warnings(options.warn), trust_folder(options.trust_folder) {}
  Files files;
  Warnings warnings;
  bool trust_folder;
  std::atomic<std::int64_t> quarantined{0}, published{0}, publish_failures{0}, evicted{0};
};

/// An entry as a scan finds it, not verified.
struct EntryPlace {
  EntryKeys keys;
  std::string path;  ///< for messages
  std::int64_t bytes = 0;
  std::int64_t used_ns = 0;
};

inline constexpr const char* kMovedMeanwhile = "was moved, removed or replaced meanwhile";

/// What a walk could not do.
struct WalkReport {
  std::vector<CacheFault> faults;    ///< could not be read or removed
  std::vector<std::string> foreign;  ///< not made by the cache: left alone
};

std::string cannot_be_read(int negative_errno);

class CacheFolder {
 public:
  CacheFolder(CacheShared& shared, const std::filesystem::path& root, bool is_writable);

  const std::string& root() const noexcept { return root_; }
  bool is_writable() const noexcept { return is_writable_; }
  std::string entry_path(const EntryKeys& keys) const;

  /// The entry, verified; its last use is noted if this is one. A damaged one is quarantined.
  std::optional<ReadEntry> read(const EntryKeys& keys, EntryParts parts, bool is_use = true);
  /// The entry of this source key by the newest compiler; among equals the one written last.
  std::optional<ReadEntry> read_newest(const std::string& source_key, EntryParts parts, bool is_use = true);

  /// Makes what is missing of the folders. False, after a warning, when nothing can be written here.
  bool prepare();
  /// Writes aside and publishes by one rename. The folder of the entry, also when another process was faster; empty,
  /// after a warning, when it could not be written.
  std::string publish(const EncodedEntry& encoded);
  ProcessLock lock(const std::string& name, const LockWait& wait = {}) const;
  /// Moves the entry aside; reports it. 0, also where another process has healed it, or -errno.
  int quarantine(const EntryKeys& keys, const ReadEntry& found);
  /// What sweep_staging() could not read and, if wanted, what empty_quarantine() could not remove.
  void look_aside(bool with_quarantine, WalkReport& report) const;
  /// Removes what was moved aside.
  void empty_quarantine(WalkReport& report);
  std::int64_t quarantined(WalkReport& report) const;

  /// As read, with the verdict; nothing is noted, moved or said.
  ReadEntry look(const EntryKeys& keys, EntryParts parts) const;
  /// Every entry, in the order of its keys.
  std::vector<EntryPlace> scan(WalkReport* report = nullptr) const;
  /// After a publication: now and then removes what is oldest until the folder is within 9/10 of max_bytes, and stale
  /// staging. keep stays.
  void keep_within(std::int64_t max_bytes, const std::string& keep, std::int64_t published_bytes);
  /// Removes one entry: first out of sight by a rename, then its files; true when it is gone.
  bool remove(const EntryPlace& place, WalkReport* report = nullptr);
  /// Whether remove() would be allowed to; reports why not.
  bool can_remove(const EntryPlace& place, WalkReport& report) const;
  /// Removes what dead writers left; returns how many.
  int sweep_staging(WalkReport* report = nullptr);
  /// False where it is gone; true where that cannot be told.
  bool has(const EntryKeys& keys) const;
  /// Warns of what was left alone, once.
  void say_foreign(const WalkReport& report);

  /// Whether the folder may be used: exists, is a folder, belongs to the right user. Warns and answers false otherwise;
  /// a missing one is no fault.
  bool is_usable();
  /// Why it may not; nothing when it may or when it does not exist.
  std::optional<CacheFault> refusal() const;
  /// refusal() as a sentence, or nothing.
  std::string why_refused() const;

  /// For whoever must see all of the folder: opens v1 for good, so that all that follows works in this one folder
  /// wherever it is moved to, and an entry that is not found in it was removed. Why there is nothing to look into,
  /// otherwise. For one thread.
  std::optional<CacheFault> hold();
  /// Of a folder that is held: that it lies there no more, or that this cannot be told.
  std::optional<CacheFault> lost() const;

 private:
  /// v1: what is held, else opened anew, so that a folder that was moved away or made again meanwhile is no obstacle.
  Descriptor open_base() const;
  std::string version_name() const { return base_.substr(root_.size() + 1); }
  std::optional<CacheFault> judge(const std::string& path, const FileStatus& found) const;
  CacheFault why_not_open(int negative_errno) const;
  std::vector<std::string> newest_first(int base, const std::string& source_key);
  int write_staged(int base, const std::string& staged, const EncodedEntry& encoded);
  int publish_staged(int base, const std::string& staged, const std::string& to);
  void remove_aside(int base, const std::string& path, WalkReport& report) const;
  void fail(int negative_errno, const std::string& what);
  std::string first_obstacle(int base, const std::string& path) const;
  std::int64_t next_stamp(int base) const;
  void note_use(int base, const std::string& path);
  std::uint32_t folder_mode() const;
  std::string unique_name(const std::string& prefix) const;

  CacheShared& shared_;
  std::string root_, base_;
  bool is_writable_;
  std::unique_ptr<const Descriptor> held_;  // null: nothing is
  std::atomic<bool> is_accepted_{false};
  std::atomic<std::int64_t> blocked_until_ns_{0};  // steady clock: no writing before
  std::mutex size_mutex_;
  bool is_size_known_ = false;
  std::int64_t scanned_bytes_ = 0, bytes_since_scan_ = 0;
};

}  // namespace tessera

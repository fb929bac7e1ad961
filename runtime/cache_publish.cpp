// How an entry gets onto the disk, and how it leaves.
//
// Publishing: a folder under staging/ (its name locked, so that a sweep sees a live owner), every file written and
// fsynced, the folder fsynced, one rename to its place, the parents fsynced. A crash at any point leaves either no
// entry or the whole one, and at worst a staging folder, which a later sweep removes.
// Removing goes the same way back: one rename to staging/, then the files. A reader that has the folder open goes on
// reading until the files go; then it sees a miss, never a part.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "runtime/cache_folder.h"

namespace tessera {

namespace {
std::string parent_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }
}  // namespace

int CacheFolder::write_staged(const std::string& staged, const EncodedEntry& encoded) {
  const Files& files = shared_.files;
  std::vector<int> open;
  int fault = 0;
  // First all writes, then all fsyncs: the journal commits once.
  for (const auto& [name, bytes] : encoded.files()) {
    const int descriptor = files.create_file(Files::kWorkingFolder, staged + "/" + name, true);
    fault = descriptor < 0 ? descriptor : 0;
    if (fault != 0) break;
    open.push_back(descriptor);
    fault = files.write_all(descriptor, bytes);
    if (fault != 0) break;
  }
  for (const int descriptor : open) {
    if (fault == 0) fault = files.sync(descriptor);
    const int closed = files.close(descriptor);
    if (fault == 0) fault = closed;
  }
  return fault != 0 ? fault : files.sync_folder(staged);
}

int CacheFolder::publish_staged(const std::string& staged, const std::string& to) {
  const Files& files = shared_.files;
  const std::string source = parent_of(to);
  int fault = files.rename(staged, to);
  // An eviction may remove the empty parents between our making them and the rename.
  for (int attempt = 0; fault == -ENOENT && attempt < 3; ++attempt) {
    fault = files.make_folders(source, folder_mode());
    if (fault != 0) return fault;
    fault = files.rename(staged, to);
  }
  if (fault != 0) return fault;
  for (const std::string& folder : {source, parent_of(source), base_}) {
    const int synced = files.sync_folder(folder);
    if (synced != 0 && synced != -ENOENT) return synced;
  }
  return 0;
}

std::string CacheFolder::publish(const EncodedEntry& encoded) {
  if (!prepare()) return {};
  const Files& files = shared_.files;
  const std::string name = unique_name("new"), staged = base_ + "/staging/" + name;
  const std::string to = entry_path(encoded.record.keys);
  const ProcessLock alive = lock("staging " + name);

  int fault = files.make_folder(staged, folder_mode());
  if (fault == 0) fault = write_staged(staged, encoded);
  if (fault == 0) {
    const int clock = files.create_file(Files::kWorkingFolder, base_ + "/clock", false);
    if (clock >= 0) files.close(clock);
    note_use(staged);
    fault = publish_staged(staged, to);
  }
  if (fault == 0) {
    shared_.published.fetch_add(1, std::memory_order_relaxed);
    return to;
  }
  files.remove_tree(staged);
  if (fault == -ENOTEMPTY || fault == -EEXIST) return to;  // another process was faster: the caller has its own bytes
  fail(fault, "cannot be written");
  return {};
}

std::vector<EntryPlace> CacheFolder::scan() const {
  const Files& files = shared_.files;
  std::vector<EntryPlace> places;
  std::vector<std::string> shards, sources, entries;
  files.list(base_, shards);
  for (const std::string& shard : shards) {
    if (shard.size() != 2) continue;
    files.list(base_ + "/" + shard, sources);
    for (const std::string& source : sources) {
      if (!is_key(source)) continue;
      files.list(base_ + "/" + shard + "/" + source, entries);
      for (const std::string& entry : entries) {
        EntryPlace place{{source, entry}, entry_path({source, entry}), 0, 0};
        FileStatus found;
        if (!is_key(entry) || files.status(Files::kWorkingFolder, place.path, found) != 0) continue;
        place.used_ns = found.modified_ns;
        for (const char* name : {kCompileFile, kCubinFile, kPtxFile, kPlanFile, kSourceFile}) {
          if (files.status(Files::kWorkingFolder, place.path + "/" + name, found) == 0) place.bytes += found.bytes;
        }
        places.push_back(std::move(place));
      }
    }
  }
  return places;
}

bool CacheFolder::remove(const EntryPlace& place) {
  const Files& files = shared_.files;
  const std::string aside = base_ + "/staging/" + unique_name("old");
  if (files.rename(place.path, aside) != 0) return false;
  files.remove_tree(aside);
  // Only empty folders go.
  if (files.remove_folder(parent_of(place.path)) == 0) files.remove_folder(parent_of(parent_of(place.path)));
  return true;
}

int CacheFolder::sweep_staging() {
  const Files& files = shared_.files;
  const std::string folder = base_ + "/staging";
  std::vector<std::string> names;
  files.list(folder, names);
  int swept = 0;
  for (const std::string& name : names) {
    FileStatus found;
    if (files.status(Files::kWorkingFolder, folder + "/" + name, found) != 0) continue;
    // A time in the future is as old: the clock has jumped back since.
    const std::int64_t age = std::abs(files.now_ns() - found.modified_ns);
    if (age < kStagingAgeNs) continue;
    const ProcessLock owner = lock("staging " + name);
    if (owner.outcome() == LockOutcome::timed_out) continue;
    if (owner.outcome() == LockOutcome::unsupported && age < kStagingAgeWithoutLocksNs) continue;
    if (files.remove_tree(folder + "/" + name) == 0) ++swept;
  }
  return swept;
}

void CacheFolder::keep_within(std::int64_t max_bytes, const std::string& keep, std::int64_t published_bytes) {
  const std::lock_guard guard(size_mutex_);
  bytes_since_scan_ += published_bytes;
  // A scan costs some microseconds an entry, so not every publication makes one. Several processes can overshoot the
  // limit by a sixteenth each until one of them scans again.
  const bool is_within = scanned_bytes_ + bytes_since_scan_ <= max_bytes && bytes_since_scan_ <= max_bytes / 16;
  if (is_size_known_ && (max_bytes == 0 || is_within)) return;
  is_size_known_ = true;
  bytes_since_scan_ = 0;
  sweep_staging();
  if (max_bytes == 0) return;

  std::vector<EntryPlace> places = scan();
  std::int64_t total = 0;
  for (const EntryPlace& place : places) total += place.bytes;
  scanned_bytes_ = total;
  if (total <= max_bytes) return;
  const ProcessLock evicting = lock("evict");
  if (evicting.outcome() == LockOutcome::timed_out) return;
  std::stable_sort(places.begin(), places.end(),
                   [](const EntryPlace& a, const EntryPlace& b) { return a.used_ns < b.used_ns; });
  for (const EntryPlace& place : places) {
    if (total <= max_bytes - max_bytes / 10) break;
    if (place.path == keep || !remove(place)) continue;
    total -= place.bytes;
    scanned_bytes_ = total;
    shared_.evicted.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace tessera

// How entries leave the disk: eviction, quarantine, what dead writers left.
//
// Removing goes the way of publishing back: one rename to staging/, then the files. A reader that has the folder open
// goes on reading until the files go; then it sees a miss, never a part.
//
// What goes must look like the cache's own work: a folder with a name as unique_name() makes it, in it the files
// of an entry. A link, a file or a folder of another name stays and is reported.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "runtime/cache_folder.h"

namespace tessera {

namespace {

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// PREFIX-PID-16 hexadecimal digits.
bool is_unique_name(std::string_view name, std::string_view& prefix) {
  const std::size_t first = name.find('-'), last = name.rfind('-');
  if (first == std::string_view::npos || first == last) return false;
  const std::string_view pid = name.substr(first + 1, last - first - 1), random = name.substr(last + 1);
  prefix = name.substr(0, first);
  return !pid.empty() && pid.find_first_not_of("0123456789") == std::string_view::npos && random.size() == 16 &&
         is_hexadecimal(random);
}

bool is_staging_name(std::string_view name) {
  std::string_view prefix;
  return is_unique_name(name, prefix) && (prefix == "new" || prefix == "old");
}

bool is_quarantine_name(std::string_view name) {
  std::string_view prefix;
  return is_unique_name(name, prefix) && prefix.size() == 16 && is_hexadecimal(prefix);
}

std::string cannot_be_removed(int fault) { return fmt::format("cannot be removed ({})", describe_errno(fault)); }

/// Adds what the files of an entry's folder take. 0, also where something is missing or no folder or file: the entry is
/// damaged then; or -errno of what cannot be looked at.
int add_sizes(const Files& files, int in, const std::string& entry, std::int64_t& bytes) {
  const Descriptor folder(files, files.open_folder(in, entry));
  if (folder.get() == -ENOENT || folder.get() == -ENOTDIR || folder.get() == -ELOOP) return 0;
  if (!folder) return folder.get();
  int first = 0;
  for (const char* name : kEntryFiles) {
    FileStatus found;
    const int fault = files.status(folder.get(), name, found);
    if (fault == 0) bytes += found.bytes;
    if (fault != 0 && fault != -ENOENT && first == 0) first = fault;
  }
  return first;
}

std::string in_quarantine(const std::string& name) { return fmt::format("{}/{}", kQuarantineFolder, name); }

}  // namespace

int CacheFolder::quarantine(const EntryKeys& keys, const ReadEntry& found) {
  const std::string path = entry_path(keys);
  if (!is_writable_) {
    shared_.warnings.once(path, fmt::format("cache entry {} is damaged ({}) and not used", path, found.reason));
    return -EROFS;
  }
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  FileStatus now;
  const bool is_replaced = files.status(base.get(), entry_path_below(keys), now) == 0 && found.folder_inode != 0 &&
                           now.inode != found.folder_inode;
  if (is_replaced) return 0;  // another process has healed it meanwhile
  const std::string aside = in_quarantine(unique_name(keys.entry.substr(0, 16)));
  int fault = files.rename(base.get(), entry_path_below(keys), aside);
  if (fault == -ENOENT) {
    files.make_folder(base.get(), kQuarantineFolder, 0700);
    fault = files.rename(base.get(), entry_path_below(keys), aside);
  }
  if (fault == -ENOENT) return 0;
  shared_.quarantined.fetch_add(1, std::memory_order_relaxed);
  if (fault != 0) {
    // The folder's fault more than the entry's: it counts as the one warning of the folder.
    shared_.warnings.once(root_,
                          fmt::format("cache folder {}: entry {} is damaged ({}) and cannot be moved aside ({}); "
                                      "kernels are kept in memory only",
                                      root_, path, found.reason, describe_errno(fault)));
    return fault;
  }
  shared_.warnings.once(path, fmt::format("cache entry {} is damaged ({}): moved to {}/{}", path, found.reason, base_,
                                          kQuarantineFolder));
  files.set_modified(base.get(), aside, next_stamp(base.get()));

  std::vector<std::string> names;
  files.list(base.get(), kQuarantineFolder, names);
  std::erase_if(names, [](const std::string& name) { return !is_quarantine_name(name); });
  if (names.size() <= kQuarantineLimit) return 0;
  std::vector<std::pair<std::int64_t, std::string>> by_age;
  for (const std::string& name : names) {
    if (files.status(base.get(), in_quarantine(name), now) == 0) by_age.emplace_back(now.modified_ns, name);
  }
  std::sort(by_age.begin(), by_age.end());
  WalkReport report;
  for (std::size_t i = 0; i + kQuarantineLimit < by_age.size(); ++i) {
    remove_aside(base.get(), in_quarantine(by_age[i].second), report);
  }
  say_foreign(report);
  return 0;
}

std::int64_t CacheFolder::quarantined(WalkReport& report) const {
  std::vector<std::string> names;
  const int fault = shared_.files.list(open_base().get(), kQuarantineFolder, names);
  if (fault != 0 && fault != -ENOENT)
    report.faults.push_back({fmt::format("{}/{}", base_, kQuarantineFolder), cannot_be_read(fault)});
  return std::count_if(names.begin(), names.end(), is_quarantine_name);
}

void CacheFolder::look_aside(bool with_quarantine, WalkReport& report) const {
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  for (const char* name : {kStagingFolder, kQuarantineFolder}) {
    const bool is_quarantine = name == kQuarantineFolder;
    if (is_quarantine && !with_quarantine) break;
    std::vector<std::string> names;
    int fault = files.list(base.get(), name, names);
    if (fault != 0 && fault != -ENOENT)
      report.faults.push_back({fmt::format("{}/{}", base_, name), cannot_be_read(fault)});
    for (const std::string& each : names) {
      FileStatus found;
      if (!is_quarantine) {
        fault = files.status(base.get(), fmt::format("{}/{}", name, each), found);
        if (fault != 0 && fault != -ENOENT)
          report.faults.push_back({fmt::format("{}/{}/{}", base_, name, each), cannot_be_read(fault)});
        continue;
      }
      if (!is_quarantine_name(each)) continue;
      fault = files.status(base.get(), in_quarantine(each), found);
      if (fault == 0) fault = files.may_change_folder(base.get(), kQuarantineFolder);
      if (fault == 0 && found.is_folder) fault = files.may_change_folder(base.get(), in_quarantine(each));
      if (fault == 0 || fault == -ENOENT) continue;
      report.faults.push_back({fmt::format("{}/{}", base_, in_quarantine(each)), cannot_be_removed(fault)});
    }
  }
}

void CacheFolder::empty_quarantine(WalkReport& report) {
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  std::vector<std::string> names;
  const int fault = files.list(base.get(), kQuarantineFolder, names);
  const std::string folder = fmt::format("{}/{}", base_, kQuarantineFolder);
  if (fault != 0 && fault != -ENOENT) report.faults.push_back({folder, cannot_be_read(fault)});
  for (const std::string& name : names) {
    if (is_quarantine_name(name)) {
      remove_aside(base.get(), in_quarantine(name), report);
    } else {
      report.foreign.push_back(fmt::format("{}/{}", folder, name));
    }
  }
  if (fault == 0) files.remove_folder(base.get(), kQuarantineFolder);  // goes when it is empty
}

/// What the cache has moved to this path below the base.
void CacheFolder::remove_aside(int base, const std::string& path, WalkReport& report) const {
  int fault = remove_entry_folder(shared_.files, base, path);
  // A link or a file in an entry's place was moved here as it was: its name goes, nothing else.
  FileStatus found;
  if ((fault == -ELOOP || fault == -ENOTDIR) && shared_.files.status(base, path, found) == 0 &&
      (found.is_file || found.is_link)) {
    fault = shared_.files.remove_file(base, path);
  }
  if (fault == 0 || fault == -ENOENT) return;
  const std::string named = fmt::format("{}/{}", base_, path);
  const bool is_foreign =
      fault == -ENOTEMPTY || fault == -EEXIST || fault == -EISDIR || fault == -ELOOP || fault == -ENOTDIR;
  if (is_foreign) {
    report.foreign.push_back(named);
  } else {
    report.faults.push_back({named, cannot_be_removed(fault)});
  }
}

void CacheFolder::say_foreign(const WalkReport& report) {
  if (report.foreign.empty()) return;
  shared_.warnings.once(
      root_ + " foreign",
      fmt::format("cache folder {}: left alone because tessera did not make it: {}{}", root_, report.foreign.front(),
                  report.foreign.size() == 1 ? std::string() : fmt::format(" and {} more", report.foreign.size() - 1)));
}

bool CacheFolder::has(const EntryKeys& keys) const {
  FileStatus found;
  return shared_.files.status(open_base().get(), entry_path_below(keys), found) != -ENOENT;
}

std::vector<EntryPlace> CacheFolder::scan(WalkReport* report) const {
  const Files& files = shared_.files;
  std::vector<EntryPlace> places;
  const Descriptor base = open_base();
  WalkReport ignored;
  WalkReport& to = report != nullptr ? *report : ignored;
  // The names of a folder that are such as the cache makes; the others are foreign.
  const auto list = [&](int in, const std::string& name, const std::string& path, const auto& is_ours) {
    std::vector<std::string> names;
    const int fault = files.list(in, name, names);
    const bool is_gone = fault == -ENOENT && name != ".";  // v1 itself is no entry that is evicted
    if (fault != 0 && !is_gone) to.faults.push_back({path, cannot_be_read(fault)});
    std::erase_if(names, [&](const std::string& each) {
      if (is_ours(each)) return false;
      to.foreign.push_back(path + "/" + each);
      return true;
    });
    return names;
  };
  const auto is_shard = [](const std::string& name) { return name.size() == 2 && is_hexadecimal(name); };
  const auto is_known = [&](const std::string& name) {
    return is_shard(name) || name == kStagingFolder || name == kQuarantineFolder || name == "lock" || name == "clock";
  };
  for (const std::string& shard : list(base.get(), ".", base_, is_known)) {
    if (!is_shard(shard)) continue;
    const std::string shard_path = base_ + "/" + shard;
    const std::vector<std::string> sources = list(base.get(), shard, shard_path, is_key);
    const Descriptor in_shard(files, files.open_folder(base.get(), shard));
    for (const std::string& source : sources) {
      const std::string source_path = shard_path + "/" + source;
      const std::vector<std::string> entries = list(in_shard.get(), source, source_path, is_key);
      const Descriptor in_source(files, files.open_folder(in_shard.get(), source));
      for (const std::string& entry : entries) {
        EntryPlace place{{source, entry}, source_path + "/" + entry, 0, 0};
        FileStatus found;
        if (const int fault = files.status(in_source.get(), entry, found)) {
          if (fault != -ENOENT) to.faults.push_back({place.path, cannot_be_read(fault)});
          continue;
        }
        place.used_ns = found.modified_ns;
        if (const int fault = add_sizes(files, in_source.get(), entry, place.bytes))
          to.faults.push_back({place.path, cannot_be_read(fault)});
        places.push_back(std::move(place));
      }
    }
  }
  return places;
}

bool CacheFolder::can_remove(const EntryPlace& place, WalkReport& report) const {
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  const std::string path = entry_path_below(place.keys);
  FileStatus found;
  int fault = files.status(base.get(), path, found);
  // What is renamed is taken out of one folder and put into another; a folder's own ".." changes with it.
  if (fault == 0) fault = files.may_change_folder(base.get(), path.substr(0, path.find_last_of('/')));
  if (fault == 0) fault = files.may_change_folder(base.get(), kStagingFolder);
  if (fault == 0 && found.is_folder) fault = files.may_change_folder(base.get(), path);
  if (fault == 0) return true;
  if (fault != -ENOENT || has(place.keys)) {
    report.faults.push_back({place.path, cannot_be_removed(fault)});
  }
  return false;
}

bool CacheFolder::remove(const EntryPlace& place, WalkReport* report) {
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  const std::string aside = fmt::format("{}/{}", kStagingFolder, unique_name("old"));
  const std::string path = entry_path_below(place.keys);
  const int fault = files.rename(base.get(), path, aside);
  if (fault != 0) {
    const bool is_gone = fault == -ENOENT && !has(place.keys);
    if (report != nullptr && !is_gone) {
      report->faults.push_back({place.path, cannot_be_removed(fault)});
    }
    return false;
  }
  WalkReport own;
  remove_aside(base.get(), aside, report != nullptr ? *report : own);
  say_foreign(own);
  // Only empty folders go.
  const std::string source = path.substr(0, path.find_last_of('/'));
  if (files.remove_folder(base.get(), source) == 0) files.remove_folder(base.get(), place.keys.source.substr(0, 2));
  return true;
}

int CacheFolder::sweep_staging(WalkReport* report) {
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  std::vector<std::string> names;
  WalkReport own;
  WalkReport& to = report != nullptr ? *report : own;
  const std::string folder = fmt::format("{}/{}", base_, kStagingFolder);
  const int fault = files.list(base.get(), kStagingFolder, names);
  if (fault != 0 && fault != -ENOENT) to.faults.push_back({folder, cannot_be_read(fault)});
  int swept = 0;
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", kStagingFolder, name);
    FileStatus found;
    if (const int lost = files.status(base.get(), path, found)) {
      if (lost != -ENOENT) to.faults.push_back({fmt::format("{}/{}", folder, name), cannot_be_read(lost)});
      continue;
    }
    if (!is_staging_name(name) || !found.is_folder) {
      to.foreign.push_back(fmt::format("{}/{}", folder, name));
      continue;
    }
    // A time in the future is as old: the clock has jumped back since.
    const std::int64_t age = std::abs(files.now_ns() - found.modified_ns);
    if (age < kStagingAgeNs) continue;
    const ProcessLock owner = lock("staging " + name);
    if (owner.outcome() == LockOutcome::timed_out) continue;
    if (owner.outcome() == LockOutcome::unsupported && age < kStagingAgeWithoutLocksNs) continue;
    const std::size_t before = to.faults.size() + to.foreign.size();
    remove_aside(base.get(), path, to);
    if (to.faults.size() + to.foreign.size() == before) ++swept;
  }
  say_foreign(own);
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

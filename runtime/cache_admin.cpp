// Listing reads compile.json only; verify and show read everything. An entry that vanishes in between is listed as
// removed or left out, never an error.
#include "runtime/cache_admin.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "runtime/cache_listing.h"

namespace tessera {

namespace {

CacheListing listing_of(const CacheFolder& folder, const EntryPlace& place) {
  CacheListing listing;
  listing.keys = place.keys;
  listing.folder = place.path;
  listing.bytes = place.bytes;
  listing.tier = folder.is_writable() ? CacheTier::user : CacheTier::system;
  listing.last_use = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(place.used_ns)));
  ReadEntry read = folder.look(place.keys, EntryParts::record);
  if (read.verdict != ReadVerdict::ok) {
    listing.damage = read.verdict == ReadVerdict::absent ? "it was removed" : read.reason;
    return listing;
  }
  listing.op = std::move(read.record.op);
  listing.arch = std::move(read.record.arch);
  listing.kernel = std::move(read.record.kernel);
  listing.compiler = std::move(read.record.report.compiler);
  return listing;
}

std::vector<CacheListing> list_folder(CacheFolder& folder, const CacheFilter& filter) {
  std::vector<CacheListing> listings;
  if (!folder.is_usable()) return listings;
  for (const EntryPlace& place : folder.scan()) {
    CacheListing listing = listing_of(folder, place);
    if (!listing.damage.empty() || filter.matches(listing.op, listing.arch)) listings.push_back(std::move(listing));
  }
  return listings;
}

bool has_prefix(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

std::vector<std::unique_ptr<CacheFolder>> open_folders(CacheShared& shared, const CacheOptions& options) {
  std::vector<std::unique_ptr<CacheFolder>> folders;
  if (!options.user_folder.empty()) {
    folders.push_back(std::make_unique<CacheFolder>(shared, options.user_folder, true));
  }
  for (const auto& path : options.system_folders) folders.push_back(std::make_unique<CacheFolder>(shared, path, false));
  return folders;
}

bool CacheFilter::matches(const std::string& op, const std::string& arch) const {
  const auto has = [](const std::vector<std::string>& list, const std::string& item) {
    return list.empty() || std::find(list.begin(), list.end(), item) != list.end();
  };
  return has(ops, op) && has(archs, arch);
}

ListedCache list_folders(CacheShared& shared, const CacheOptions& options, const CacheFilter& filter) {
  ListedCache cache{open_folders(shared, options), {}};
  for (const auto& folder : cache.folders) {
    for (CacheListing& listing : list_folder(*folder, filter)) {
      cache.entries.push_back({std::move(listing), folder.get()});
    }
  }
  return cache;
}

std::vector<CacheListing> list_cache(const CacheOptions& options, const CacheFilter& filter) {
  CacheShared shared(options);
  std::vector<CacheListing> all;
  ListedCache cache = list_folders(shared, options, filter);
  for (ListedEntry& entry : cache.entries) all.push_back(std::move(entry.listing));
  return all;
}

CacheDetails show_cache_entry(const CacheOptions& options, const std::string& key_prefix) {
  if (key_prefix.size() < 6) {
    throw Error(ErrorKind::usage, fmt::format("cache entry {}: give at least 6 characters of its key", key_prefix));
  }
  CacheShared shared(options);
  std::map<std::string, CacheListing> found;  // by entry key: the first tier that has it
  ReadEntry read;                             // of the first
  for (const auto& folder : open_folders(shared, options)) {
    if (!folder->is_usable()) continue;
    for (const EntryPlace& place : folder->scan()) {
      if (!has_prefix(place.keys.entry, key_prefix) && !has_prefix(place.keys.source, key_prefix)) continue;
      if (!found.try_emplace(place.keys.entry, listing_of(*folder, place)).second) continue;
      if (found.size() == 1) read = folder->look(place.keys, EntryParts::all);
    }
  }
  if (found.empty()) throw Error(ErrorKind::usage, fmt::format("cache entry {}: there is none", key_prefix));
  if (found.size() > 1) {
    std::vector<std::string> notes;
    for (const auto& [key, listing] : found) {
      notes.push_back(fmt::format("{}  {}  {}", key, listing.kernel, listing.compiler.to_string()));
    }
    throw Error(ErrorKind::usage,
                fmt::format("cache entry {}: {} entries begin so: give more characters", key_prefix, found.size()),
                notes);
  }
  CacheDetails details;
  details.listing = found.begin()->second;
  if (read.verdict != ReadVerdict::ok) {
    throw Error(ErrorKind::io, fmt::format("cache entry {}: {}", details.listing.folder.string(),
                                           read.verdict == ReadVerdict::absent ? "it was removed" : read.reason));
  }
  details.report = std::move(read.record.report);
  details.plan_json = std::move(read.plan_json);
  details.ptx = std::move(read.ptx);
  details.source = std::move(read.source);
  details.cubin = std::move(read.cubin);
  return details;
}

CacheUsage cache_usage(const CacheOptions& options) {
  CacheShared shared(options);
  CacheUsage usage;
  std::map<std::pair<std::string, std::string>, CacheUsage::Group> groups;
  for (const auto& folder : open_folders(shared, options)) {
    CacheUsage::Folder& of = usage.folders.emplace_back();
    of.path = folder->root();
    of.tier = folder->is_writable() ? CacheTier::user : CacheTier::system;
    of.refused = folder->why_refused();
    FileStatus found;
    of.exists = shared.files.status_of_root(folder->root(), found) == 0;
    of.max_bytes = folder->is_writable() ? options.max_bytes : 0;
    of.quarantined = folder->quarantined();
    for (const CacheListing& listing : list_folder(*folder, {})) {
      ++of.entries;
      of.bytes += listing.bytes;
      if (!listing.damage.empty()) {
        ++of.damaged;
        continue;
      }
      CacheUsage::Group& group = groups[{listing.op, listing.arch}];
      group.op = listing.op;
      group.arch = listing.arch;
      ++group.entries;
      group.bytes += listing.bytes;
    }
    usage.entries += of.entries;
    usage.bytes += of.bytes;
  }
  for (auto& [name, group] : groups) usage.groups.push_back(std::move(group));
  return usage;
}

CacheVerification verify_cache(const CacheOptions& options, bool heal) {
  CacheShared shared(options);
  CacheVerification result;
  for (const auto& folder : open_folders(shared, options)) {
    if (!folder->is_usable()) continue;
    for (const EntryPlace& place : folder->scan()) {
      const ReadEntry read = folder->look(place.keys, EntryParts::all);
      if (read.verdict == ReadVerdict::absent) continue;  // evicted since the scan
      ++result.checked;
      if (read.verdict == ReadVerdict::ok) continue;
      CacheListing listing = listing_of(*folder, place);
      listing.damage = read.reason;
      if (heal && folder->is_writable() && read.verdict == ReadVerdict::damaged) folder->quarantine(place.keys, read);
      result.damaged.push_back(std::move(listing));
    }
  }
  return result;
}

PruneResult prune_cache(const CacheOptions& options, const PruneRequest& request) {
  if (!request.all && !request.max_bytes && !request.older_than) {
    throw Error(ErrorKind::usage, "cache prune: say what may go: a size to come down to, an age, or all");
  }
  CacheShared shared(options);
  CacheFolder folder(shared, options.user_folder, true);
  PruneResult result;
  WalkReport report;
  std::vector<CacheListing> listings = list_folder(folder, request.filter);
  if (!request.filter.is_empty()) {
    std::erase_if(listings, [](const CacheListing& listing) { return !listing.damage.empty(); });
  }
  std::stable_sort(listings.begin(), listings.end(),
                   [](const CacheListing& a, const CacheListing& b) { return a.last_use < b.last_use; });
  for (const CacheListing& listing : listings) result.kept_bytes += listing.bytes;
  const auto now = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(shared.files.now_ns())));
  for (CacheListing& listing : listings) {
    const bool is_too_much = request.max_bytes && result.kept_bytes > *request.max_bytes;
    const bool is_too_old = request.older_than && now - listing.last_use > *request.older_than;
    const EntryPlace place{listing.keys, listing.folder.string(), listing.bytes, 0};
    const bool goes = request.all || is_too_much || is_too_old;
    if (!goes || (!request.dry_run && !folder.remove(place, &report))) {
      ++result.kept_entries;
      if (goes && folder.has(listing.keys)) ++result.stuck_entries;
      continue;
    }
    result.kept_bytes -= listing.bytes;
    result.removed_bytes += listing.bytes;
    result.removed.push_back(std::move(listing));
  }
  if (!request.dry_run && folder.is_usable()) {
    folder.sweep_staging(&report);
    if (request.all && request.filter.is_empty()) folder.empty_quarantine(report);
    folder.scan(&report);
  }
  folder.say_foreign(report);
  result.foreign = std::move(report.foreign);
  return result;
}

}  // namespace tessera

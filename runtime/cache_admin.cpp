// Listing reads compile.json only; verify and show read everything. An entry that vanishes in between is listed as
// removed or left out, never an error.
#include "runtime/cache_admin.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "runtime/cache_folder.h"

namespace tessera {

namespace {

std::vector<std::unique_ptr<CacheFolder>> open_folders(CacheShared& shared, const CacheOptions& options) {
  std::vector<std::unique_ptr<CacheFolder>> folders;
  if (!options.user_folder.empty()) {
    folders.push_back(std::make_unique<CacheFolder>(shared, options.user_folder, true));
  }
  for (const auto& path : options.system_folders) folders.push_back(std::make_unique<CacheFolder>(shared, path, false));
  return folders;
}

CacheListing listing_of(const CacheShared& shared, const CacheFolder& folder, const EntryPlace& place) {
  CacheListing listing;
  listing.keys = place.keys;
  listing.folder = place.path;
  listing.bytes = place.bytes;
  listing.tier = folder.is_writable() ? CacheTier::user : CacheTier::system;
  listing.last_use = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(place.used_ns)));
  ReadEntry read = read_entry(shared.files, place.path, place.keys, EntryParts::record);
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

std::vector<CacheListing> list_folder(const CacheShared& shared, CacheFolder& folder, const CacheFilter& filter) {
  std::vector<CacheListing> listings;
  if (!folder.is_usable()) return listings;
  for (const EntryPlace& place : folder.scan()) {
    CacheListing listing = listing_of(shared, folder, place);
    if (!listing.damage.empty() || filter.matches(listing.op, listing.arch)) listings.push_back(std::move(listing));
  }
  return listings;
}

bool has_prefix(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

bool CacheFilter::matches(const std::string& op, const std::string& arch) const {
  const auto has = [](const std::vector<std::string>& list, const std::string& item) {
    return list.empty() || std::find(list.begin(), list.end(), item) != list.end();
  };
  return has(ops, op) && has(archs, arch);
}

std::vector<CacheListing> list_cache(const CacheOptions& options, const CacheFilter& filter) {
  CacheShared shared(options);
  std::vector<CacheListing> all;
  for (const auto& folder : open_folders(shared, options)) {
    std::vector<CacheListing> listings = list_folder(shared, *folder, filter);
    all.insert(all.end(), std::make_move_iterator(listings.begin()), std::make_move_iterator(listings.end()));
  }
  return all;
}

CacheDetails show_cache_entry(const CacheOptions& options, const std::string& key_prefix) {
  if (key_prefix.size() < 6) {
    throw Error(ErrorKind::usage, fmt::format("cache entry {}: give at least 6 characters of its key", key_prefix));
  }
  CacheShared shared(options);
  std::map<std::string, CacheListing> found;  // by entry key: the first tier that has it
  for (const auto& folder : open_folders(shared, options)) {
    if (!folder->is_usable()) continue;
    for (const EntryPlace& place : folder->scan()) {
      if (!has_prefix(place.keys.entry, key_prefix) && !has_prefix(place.keys.source, key_prefix)) continue;
      found.try_emplace(place.keys.entry, listing_of(shared, *folder, place));
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
  ReadEntry read = read_entry(shared.files, details.listing.folder.string(), details.listing.keys, EntryParts::all);
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
    of.exists = shared.files.status(Files::kWorkingFolder, folder->root(), found, true) == 0;
    of.max_bytes = folder->is_writable() ? options.max_bytes : 0;
    std::vector<std::string> aside;
    shared.files.list(fmt::format("{}/v{}/quarantine", folder->root(), kCacheSchema), aside);
    of.quarantined = static_cast<std::int64_t>(aside.size());
    for (const CacheListing& listing : list_folder(shared, *folder, {})) {
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
      const ReadEntry read = read_entry(shared.files, place.path, place.keys, EntryParts::all);
      if (read.verdict == ReadVerdict::absent) continue;  // evicted since the scan
      ++result.checked;
      if (read.verdict == ReadVerdict::ok) continue;
      CacheListing listing = listing_of(shared, *folder, place);
      listing.damage = read.reason;
      if (heal && folder->is_writable() && read.verdict == ReadVerdict::damaged) folder->quarantine(place.path, read);
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
  std::vector<CacheListing> listings = list_folder(shared, folder, request.filter);
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
    if (!goes || (!request.dry_run && !folder.remove(place))) {
      ++result.kept_entries;
      std::error_code ignored;
      if (goes && std::filesystem::exists(listing.folder, ignored)) ++result.stuck_entries;
      continue;
    }
    result.kept_bytes -= listing.bytes;
    result.removed_bytes += listing.bytes;
    result.removed.push_back(std::move(listing));
  }
  if (!request.dry_run && folder.is_usable()) {
    folder.sweep_staging();
    if (request.all && request.filter.is_empty()) {
      shared.files.remove_tree(fmt::format("{}/v{}/quarantine", folder.root(), kCacheSchema));
    }
  }
  return result;
}

}  // namespace tessera

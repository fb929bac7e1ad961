// Listing reads compile.json only; verify and show read everything. An entry that vanishes in between is listed as
// removed or left out, never an error.
#include "tessera/cache_admin.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "runtime/cache_listing.h"
#include "tessera/error.h"

namespace tessera {

namespace {

CacheFault no_folder() {
  return {"(none)", "no absolute XDG_CACHE_HOME and no HOME is set; name one with --cache-dir", true};
}

bool add(const std::optional<CacheFault>& fault, WalkReport& report) {
  if (fault) report.faults.push_back(*fault);
  return fault.has_value();
}

/// Whether there is anything to walk, which is held then; a fault where not.
bool can_walk(CacheFolder& folder, WalkReport& report) { return !add(folder.hold(), report); }

CacheListing listing_of(const CacheFolder& folder, const EntryPlace& place, WalkReport& report) {
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
    if (read.verdict == ReadVerdict::unreadable) report.faults.push_back({place.path, read.reason});
    // A record that is whole names its entry, whatever is wrong with the other files.
    if (read.record.keys.source != place.keys.source || read.record.keys.entry != place.keys.entry) return listing;
  }
  listing.op = std::move(read.record.op);
  listing.arch = std::move(read.record.arch);
  listing.kernel = std::move(read.record.kernel);
  listing.compiler = std::move(read.record.report.compiler);
  return listing;
}

std::vector<CacheListing> list_held(const CacheFolder& folder, const CacheFilter& filter, WalkReport& report) {
  std::vector<CacheListing> listings;
  for (const EntryPlace& place : folder.scan(&report)) {
    CacheListing listing = listing_of(folder, place, report);
    if (!listing.is_known() || filter.matches(listing.op, listing.arch)) listings.push_back(std::move(listing));
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
  ListedCache cache{open_folders(shared, options), {}, {}};
  if (cache.folders.empty()) cache.report.faults.push_back(no_folder());
  for (const auto& folder : cache.folders) {
    if (!can_walk(*folder, cache.report)) continue;
    for (CacheListing& listing : list_held(*folder, filter, cache.report)) {
      cache.entries.push_back({std::move(listing), folder.get()});
    }
  }
  return cache;
}

void ListedCache::add_lost() {
  for (const auto& folder : folders) add(folder->lost(), report);
}

std::vector<CacheListing> list_cache(const CacheOptions& options, const CacheFilter& filter,
                                     std::vector<CacheFault>* faults) {
  CacheShared shared(options);
  ListedCache cache = list_folders(shared, options, filter);
  cache.add_lost();
  std::vector<CacheListing> all;
  for (ListedEntry& entry : cache.entries) all.push_back(std::move(entry.listing));
  if (faults != nullptr) {
    *faults = std::move(cache.report.faults);
    return all;
  }
  for (const CacheFault& fault : cache.report.faults) {
    if (!fault.is_missing) shared.warnings.once(fault.path, fault.to_string());
  }
  return all;
}

CacheDetails show_cache_entry(const CacheOptions& options, const std::string& key_prefix) {
  if (key_prefix.size() < 6) {
    throw Error(ErrorKind::usage, fmt::format("cache entry {}: give at least 6 characters of its key", key_prefix));
  }
  CacheShared shared(options);
  std::map<std::string, CacheListing> found;  // by entry key: the first tier that has it
  ReadEntry read;                             // of the first
  WalkReport report, ignored;
  for (const auto& folder : open_folders(shared, options)) {
    if (!can_walk(*folder, report)) continue;
    for (const EntryPlace& place : folder->scan(&report)) {
      if (!has_prefix(place.keys.entry, key_prefix) && !has_prefix(place.keys.source, key_prefix)) continue;
      if (!found.try_emplace(place.keys.entry, listing_of(*folder, place, ignored)).second) continue;
      if (found.size() == 1) read = folder->look(place.keys, EntryParts::all);
    }
    add(folder->lost(), report);
  }
  if (found.empty()) {
    std::erase_if(report.faults, [](const CacheFault& fault) { return fault.is_missing; });
    if (report.faults.empty()) throw Error(ErrorKind::usage, fmt::format("cache entry {}: there is none", key_prefix));
    std::vector<std::string> notes;
    for (const CacheFault& fault : report.faults) notes.push_back(fault.to_string());
    throw Error(ErrorKind::io, fmt::format("cache entry {}: not found, but not everything can be read", key_prefix),
                notes);
  }
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
  details.merge = {std::move(read.merge_ptx), std::move(read.merge_cubin)};
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
    of.max_bytes = folder->is_writable() ? options.max_bytes : 0;
    const std::optional<CacheFault> fault = folder->hold();
    FileStatus found;
    of.exists = !fault || shared.files.status_of_root(folder->root(), found) == 0;
    if (fault && !fault->is_missing) {
      of.refused = fault->to_string();
      usage.faults.push_back(*fault);
    }
    if (fault) continue;
    WalkReport report;
    const std::vector<CacheListing> listings = list_held(*folder, {}, report);
    of.quarantined = folder->quarantined(report);
    add(folder->lost(), report);
    std::move(report.faults.begin(), report.faults.end(), std::back_inserter(usage.faults));
    for (const CacheListing& listing : listings) {
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

struct CacheWatch::State {
  State(const CacheOptions& options, bool makes_folder) : shared(silent(options)) {
    folders = open_folders(shared, options);
    for (const auto& folder : folders) {
      if (makes_folder) folder->prepare();  // of system folders nothing is made
      const std::optional<CacheFault> fault = folder->hold();
      // Of folders that are not there, or are refused, the cache itself warns.
      if (fault && fault->reason == kMovedMeanwhile) report.faults.push_back(*fault);
    }
  }
  static CacheOptions silent(CacheOptions options) {
    options.warn = nullptr;
    return options;
  }
  CacheShared shared;
  std::vector<std::unique_ptr<CacheFolder>> folders;
  WalkReport report;
};

CacheWatch::CacheWatch(const CacheOptions& options, bool makes_folder)
    : state_(std::make_unique<State>(options, makes_folder)) {}
CacheWatch::~CacheWatch() = default;

std::vector<CacheFault> CacheWatch::lost() const {
  WalkReport report = state_->report;
  for (const auto& folder : state_->folders) add(folder->lost(), report);
  return report.faults;
}

CacheVerification verify_cache(const CacheOptions& options, bool heal) {
  CacheShared shared(options);
  CacheVerification result;
  WalkReport report, ignored;
  const auto folders = open_folders(shared, options);
  if (folders.empty()) report.faults.push_back(no_folder());
  for (const auto& folder : folders) {
    if (!can_walk(*folder, report)) continue;
    for (const EntryPlace& place : folder->scan(&report)) {
      const ReadEntry read = folder->look(place.keys, EntryParts::all);
      if (read.verdict == ReadVerdict::absent) continue;  // evicted since the scan
      if (read.verdict == ReadVerdict::unreadable) {
        report.faults.push_back({place.path, read.reason});
        continue;
      }
      ++result.checked;
      if (read.verdict == ReadVerdict::ok) continue;
      CacheListing listing = listing_of(*folder, place, ignored);
      listing.damage = read.reason;
      if (heal && folder->is_writable()) {
        const int fault = folder->quarantine(place.keys, read);
        if (fault == 0) ++result.healed;
        if (fault != 0)
          report.faults.push_back({place.path, fmt::format("cannot be moved aside ({})", describe_errno(fault))});
      }
      result.damaged.push_back(std::move(listing));
    }
    add(folder->lost(), report);
  }
  result.faults = std::move(report.faults);
  return result;
}

PruneResult prune_cache(const CacheOptions& options, const PruneRequest& request) {
  if (!request.all && !request.max_bytes && !request.older_than) {
    throw Error(ErrorKind::usage, "cache prune: say what may go: a size to come down to, an age, or all");
  }
  CacheShared shared(options);
  PruneResult result;
  if (options.user_folder.empty()) {
    result.faults.push_back(no_folder());
    return result;
  }
  CacheFolder folder(shared, options.user_folder, true);
  WalkReport report;
  const bool is_there = can_walk(folder, report);
  std::vector<CacheListing> listings;
  if (is_there) listings = list_held(folder, request.filter, report);
  if (!request.filter.is_empty()) {
    const auto unknown = std::stable_partition(listings.begin(), listings.end(),
                                               [](const CacheListing& listing) { return listing.is_known(); });
    result.damaged.assign(std::make_move_iterator(unknown), std::make_move_iterator(listings.end()));
    listings.erase(unknown, listings.end());
  }
  std::stable_sort(listings.begin(), listings.end(),
                   [](const CacheListing& a, const CacheListing& b) { return a.last_use < b.last_use; });
  for (const CacheListing& listing : listings) result.kept_bytes += listing.bytes;
  const auto now = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(shared.files.now_ns())));
  // What was moved away is no longer the folder that the caller named: nothing more is removed there.
  std::optional<CacheFault> lost;
  for (CacheListing& listing : listings) {
    const bool is_too_much = request.max_bytes && result.kept_bytes > *request.max_bytes;
    const bool is_too_old = request.older_than && now - listing.last_use > *request.older_than;
    const EntryPlace place{listing.keys, listing.folder.string(), listing.bytes, 0};
    const bool goes = request.all || is_too_much || is_too_old;
    const auto leaves = [&] {
      return request.dry_run ? folder.can_remove(place, report) : folder.remove(place, &report);
    };
    if (goes && !lost) lost = folder.lost();
    if (!goes || lost || !leaves()) {
      ++result.kept_entries;
      if (goes && !lost && folder.has(listing.keys)) ++result.stuck_entries;
      continue;
    }
    result.kept_bytes -= listing.bytes;
    result.removed_bytes += listing.bytes;
    result.removed.push_back(std::move(listing));
  }
  std::erase_if(result.damaged, [&](const CacheListing& listing) { return !folder.has(listing.keys); });
  for (const CacheListing& listing : result.damaged) {
    ++result.kept_entries;
    result.kept_bytes += listing.bytes;
  }
  const bool takes_quarantine = request.all && request.filter.is_empty();
  if (!lost) lost = folder.lost();
  if (is_there && !lost && request.dry_run) folder.look_aside(takes_quarantine, report);
  if (is_there && !lost && !request.dry_run) {
    folder.sweep_staging(&report);
    if (takes_quarantine) folder.empty_quarantine(report);
  }
  add(lost ? lost : folder.lost(), report);
  folder.say_foreign(report);
  result.foreign = std::move(report.foreign);
  // What could not be read does not matter where it is gone.
  std::erase_if(report.faults, [&result](const CacheFault& fault) {
    return std::any_of(result.removed.begin(), result.removed.end(),
                       [&fault](const CacheListing& listing) { return listing.folder == fault.path; });
  });
  result.faults = std::move(report.faults);
  return result;
}

}  // namespace tessera

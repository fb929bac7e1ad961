// Export and import: entries between a cache and an archive.
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "runtime/cache_archive.h"
#include "runtime/cache_listing.h"
#include "runtime/input_file.h"
#include "runtime/output_file.h"
#include "tessera/error.h"

namespace tessera {

namespace {

/// The folder could not be written: no fault of the archive.
struct PublishFailed {};

ArchiveSummary read_file(InputFile& file, const ArchiveLimits& limits,
                         const std::function<void(ArchivedEntry&&)>& take) {
  const ByteSource source = [&file](std::span<std::byte> to) { return file.read(to); };
  try {
    return read_archive(source, limits, take);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io || file.has_failed()) throw;
    throw Error(ErrorKind::io, fmt::format("{}: {}", file.path().string(), error.what()), error.notes());
  }
}

[[noreturn]] void refuse_export(const std::filesystem::path& archive, const std::vector<CacheFault>& faults) {
  std::vector<std::string> notes;
  for (std::size_t i = 1; i < faults.size(); ++i) notes.push_back(faults[i].to_string());
  throw Error(ErrorKind::io,
              fmt::format("cache export: {}; {} is not written, for it would not be complete",
                          faults.front().to_string(), archive.string()),
              notes);
}

}  // namespace

ExportResult export_cache(const CacheOptions& options, const std::filesystem::path& archive,
                          const CacheFilter& filter) {
  CacheShared shared(options);
  ListedCache cache = list_folders(shared, options, filter);
  std::map<std::pair<std::string, std::string>, ListedEntry> chosen;  // sorted as the archive is; the first tier wins
  for (ListedEntry& entry : cache.entries) {
    const auto key = std::make_pair(entry.listing.keys.source, entry.listing.keys.entry);
    const auto [place, is_new] = chosen.try_emplace(key, entry);
    if (!is_new && !place->second.listing.damage.empty()) place->second = std::move(entry);
  }
  cache.add_lost();
  if (!cache.report.faults.empty()) refuse_export(archive, cache.report.faults);
  ExportResult result;
  if (chosen.empty()) return result;
  OutputFile out(archive);
  ArchiveWriter writer([&out](std::string_view bytes) { out.write(bytes); });
  for (auto& [key, entry] : chosen) {
    CacheListing& listing = entry.listing;
    const ReadEntry read = entry.folder->look(listing.keys, EntryParts::all);
    if (read.verdict == ReadVerdict::absent) continue;  // evicted meanwhile
    if (read.verdict == ReadVerdict::unreadable) refuse_export(archive, {{listing.folder.string(), read.reason}});
    if (read.verdict != ReadVerdict::ok) {
      listing.damage = read.reason;
      result.damaged.push_back(std::move(listing));
      continue;
    }
    writer.add(read);
    ++result.entries;
    result.bytes += read.record.payload_bytes();
  }
  cache.add_lost();
  if (!cache.report.faults.empty()) refuse_export(archive, cache.report.faults);
  if (result.entries == 0) return result;
  writer.finish();
  out.finish();
  return result;
}

ImportResult import_cache(const CacheOptions& options, const std::filesystem::path& archive,
                          const ArchiveLimits& limits) {
  if (options.user_folder.empty())
    throw Error(ErrorKind::usage, "cache import: there is no user folder to import into");
  InputFile file(archive, limits.max_total_bytes);
  read_file(file, limits, [](ArchivedEntry&&) {});
  file.rewind();

  // Faults of the folder are errors here, not warnings: the caller asked for the entries to be on disk.
  std::string fault;
  CacheOptions strict = options;
  strict.warn = [&](const std::string& text) {
    fault = text;
    if (options.warn) options.warn(text);
  };
  CacheShared shared(strict);
  CacheFolder folder(shared, strict.user_folder, true);
  CacheFolder held(shared, strict.user_folder, true);  // once it is there: where the entries went
  bool is_held = false;
  ImportResult result;
  const auto import_one = [&](ArchivedEntry&& entry) {
    const EncodedEntry encoded = entry.encoded();
    if (!is_held) is_held = !held.hold();
    if (folder.read(encoded.record.keys, EntryParts::all)) {
      ++result.present;
      return;
    }
    if (!is_held && folder.prepare()) is_held = !held.hold();
    const std::string path = folder.publish(encoded);
    if (path.empty()) throw PublishFailed{};
    ++result.imported;
    const std::int64_t bytes = entry.record.payload_bytes() + static_cast<std::int64_t>(entry.compile_json.size());
    result.bytes += bytes;
    folder.keep_within(options.max_bytes, path, bytes);
  };
  const auto fail = [&result](const std::string& why) {
    throw Error(ErrorKind::io, fmt::format("cache import: {} {} imported, then: {}", result.imported,
                                           result.imported == 1 ? "entry" : "entries", why));
  };
  try {
    read_file(file, limits, import_one);
  } catch (const PublishFailed&) {
    // Somebody removes the folder as it is made: no operation failed, and no warning was given.
    fail(fault.empty() ? fmt::format("cache folder {}: cannot be written", folder.root()) : fault);
  }
  if (const std::optional<CacheFault> lost = held.lost()) fail(lost->to_string());
  return result;
}

}  // namespace tessera

// Export and import: entries between a cache and an archive.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <tuple>

#include "base/error.h"
#include "runtime/cache_admin.h"
#include "runtime/cache_folder.h"

namespace tessera {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorKind::io, fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

/// The folder could not be written: no fault of the archive.
struct PublishFailed {};

/// A file that appears under its name when it is complete, and not at all otherwise. Links are followed. What is not a
/// file (a pipe, a device) is written in place: a rename would replace it.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path) : path_(path) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(path, ignored);
    const bool is_in_place = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
    if (std::filesystem::is_regular_file(status)) path_ = std::filesystem::canonical(path);
    if (!is_in_place) partial_ = fmt::format("{}.partial-{}", path_.string(), ::getpid());
    errno = 0;
    out_.open(is_in_place ? path : partial_, std::ios::binary | std::ios::trunc);
    if (!out_) fail(path, "cannot be opened for writing");
  }
  ~OutputFile() {
    std::error_code ignored;
    if (!partial_.empty()) std::filesystem::remove(partial_, ignored);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(std::string_view bytes) {
    if (!out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) fail(path_, "cannot be written");
  }
  void finish() {
    out_.close();
    if (!out_ || (!partial_.empty() && std::rename(partial_.c_str(), path_.c_str()) != 0))
      fail(path_, "cannot be written");
    partial_.clear();
  }

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty: written in place, or done
  std::ofstream out_;
};

ArchiveSummary read_file(const std::filesystem::path& path, const ArchiveLimits& limits,
                         const std::function<void(ArchivedEntry&&)>& take) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) {
    if (errno == 0) errno = EISDIR;
    fail(path, "cannot be opened for reading");
  }
  const ByteSource source = [&](std::span<std::byte> to) {
    in.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
    if (in.bad()) fail(path, "cannot be read");
    return static_cast<std::size_t>(in.gcount());
  };
  try {
    return read_archive(source, limits, take);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    throw Error(ErrorKind::io, fmt::format("{}: {}", path.string(), error.what()), error.notes());
  }
}

}  // namespace

ExportResult export_cache(const CacheOptions& options, const std::filesystem::path& archive,
                          const CacheFilter& filter) {
  std::map<std::pair<std::string, std::string>, CacheListing> chosen;  // sorted as the archive is; the first tier wins
  for (CacheListing& listing : list_cache(options, filter)) {
    const auto key = std::make_pair(listing.keys.source, listing.keys.entry);
    const auto [place, is_new] = chosen.try_emplace(key, listing);
    if (!is_new && !place->second.damage.empty()) place->second = std::move(listing);
  }
  const Files files(options.hooks);
  ExportResult result;
  OutputFile out(archive);
  ArchiveWriter writer([&out](std::string_view bytes) { out.write(bytes); });
  for (auto& [key, listing] : chosen) {
    const ReadEntry read = read_entry(files, listing.folder.string(), listing.keys, EntryParts::all);
    if (read.verdict == ReadVerdict::absent) continue;  // evicted meanwhile
    if (read.verdict != ReadVerdict::ok) {
      listing.damage = read.reason;
      if (filter.is_empty() || !listing.op.empty()) result.damaged.push_back(std::move(listing));
      continue;
    }
    writer.add(read);
    ++result.entries;
    result.bytes += read.record.payload_bytes();
  }
  writer.finish();
  out.finish();
  return result;
}

ImportResult import_cache(const CacheOptions& options, const std::filesystem::path& archive,
                          const ArchiveLimits& limits) {
  if (options.user_folder.empty())
    throw Error(ErrorKind::usage, "cache import: there is no user folder to import into");
  read_file(archive, limits, [](ArchivedEntry&&) {});

  // Faults of the folder are errors here, not warnings: the caller asked for the entries to be on disk.
  std::string fault;
  CacheOptions strict = options;
  strict.warn = [&](const std::string& text) {
    fault = text;
    if (options.warn) options.warn(text);
  };
  CacheShared shared(strict);
  CacheFolder folder(shared, strict.user_folder, true);
  ImportResult result;
  const auto import_one = [&](ArchivedEntry&& entry) {
    const EncodedEntry encoded = entry.encoded();
    if (folder.read(encoded.record.keys, EntryParts::all)) {
      ++result.present;
      return;
    }
    const std::string path = folder.publish(encoded);
    if (path.empty()) throw PublishFailed{};
    ++result.imported;
    const std::int64_t bytes = entry.record.payload_bytes() + static_cast<std::int64_t>(entry.compile_json.size());
    result.bytes += bytes;
    folder.keep_within(options.max_bytes, path, bytes);
  };
  try {
    read_file(archive, limits, import_one);
  } catch (const PublishFailed&) {
    throw Error(ErrorKind::io, fmt::format("cache import: {} {} imported, then: {}", result.imported,
                                           result.imported == 1 ? "entry" : "entries", fault));
  }
  return result;
}

}  // namespace tessera

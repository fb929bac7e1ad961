// Entries in one file: a tar (ustar) compressed with zstd, so that `tar --zstd -tf` lists it and `-x` unpacks a folder
// that serves as a cache.
//
//   v1/<aa>/<source key>/<entry
//   key>/{compile.json,kernel.cubin,kernel.ptx[,merge.cubin,merge.ptx],plan.json[,source.cu]} manifest.json
//
// Entries are sorted, the manifest is last.
//
// The same entries give the same bytes (with the same libzstd): no time, no owner, no order of writing; of compile.json
// the time that the compile took is left out. The reader is strict: it takes what the writer writes and nothing else,
// so no path, link, type, size or order that an attacker could choose has a meaning. Memory stays within one entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache_entry.h"
#include "tessera/cache_admin.h"

namespace tessera {

/// Fills the buffer as far as it can; 0 at the end. May throw Error{io}.
using ByteSource = std::function<std::size_t(std::span<std::byte>)>;
using ByteSink = std::function<void(std::string_view)>;

class ArchiveWriter {
 public:
  explicit ArchiveWriter(ByteSink sink);
  ~ArchiveWriter();
  ArchiveWriter(const ArchiveWriter&) = delete;
  ArchiveWriter& operator=(const ArchiveWriter&) = delete;
  /// In ascending order of (source key, entry key). The entry's compile.json is written again, without its times.
  void add(const ReadEntry& entry);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One entry of an archive, verified like one on disk.
struct ArchivedEntry {
  EntryRecord record;
  std::string compile_json, cubin, ptx, merge_cubin, merge_ptx, plan_json, source;
  EncodedEntry encoded() const;  ///< views into this
};

struct ArchiveSummary {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;  ///< after decompression
};

/// Hands each entry over once it is verified. Throws Error{io} that says what is wrong and where; an archive that ends
/// too early, or has anything after its end, is refused as well, but the entries before were handed over: to take all
/// or nothing, read it twice.
ArchiveSummary read_archive(const ByteSource& source, const ArchiveLimits& limits,
                            const std::function<void(ArchivedEntry&&)>& take);

namespace archive {
inline constexpr std::size_t kBlock = 512;
inline constexpr const char* kManifestName = "manifest.json";
/// The header of a member; the path has at most 100 characters after its last cut and 155 before it.
std::string header(const std::string& path, std::int64_t bytes);
std::string entry_path(const EntryKeys& keys, const std::string& file);
/// One line of the manifest for each entry.
std::string manifest_line(const EntryRecord& record, std::string_view compile_json);
std::string manifest(const std::vector<std::string>& lines);
}  // namespace archive

}  // namespace tessera

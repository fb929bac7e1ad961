// One entry as files in a folder. compile.json describes it: keys, names, compiler, the assembler's report, and size
// and SHA-256 of every other file; its first field is the digest of all bytes after that field, so a changed bit
// anywhere in the folder is found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/cache_files.h"
#include "tessera/cache.h"

namespace tessera {

inline constexpr const char* kCompileFile = "compile.json";
inline constexpr const char* kCubinFile = "kernel.cubin";
inline constexpr const char* kPtxFile = "kernel.ptx";
inline constexpr const char* kMergeCubinFile = "merge.cubin";  ///< both absent where no kernel merges
inline constexpr const char* kMergePtxFile = "merge.ptx";
inline constexpr const char* kPlanFile = "plan.json";
inline constexpr const char* kSourceFile = "source.cu";  ///< absent where no sources are kept
inline constexpr std::array<const char*, 7> kEntryFiles{kCompileFile,  kCubinFile, kPtxFile,   kMergeCubinFile,
                                                        kMergePtxFile, kPlanFile,  kSourceFile};
inline constexpr std::int64_t kMaxEntryFileBytes = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxCompileJsonBytes = std::int64_t{16} << 20;

struct EntryFileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;
};

/// What compile.json holds.
struct EntryRecord {
  EntryKeys keys;
  std::string op, arch, kernel;
  CompileReport report;
  std::vector<EntryFileRecord> files;  ///< sorted by name

  const EntryFileRecord* file(std::string_view name) const;
  bool has_merge() const { return file(kMergeCubinFile) != nullptr; }
  std::int64_t payload_bytes() const;
};

/// Stable text: the same record gives the same bytes.
std::string to_compile_json(const EntryRecord& record);
/// Throws Error{io} that says what is wrong; checks digest, schema, and that the files are the known ones.
EntryRecord parse_compile_json(std::string_view text);

/// The files of an entry in memory, compile.json included, sorted by name.
using EntryFiles = std::vector<std::pair<std::string, std::string_view>>;

/// A record and the files that belong to it. The views point into request and image, and into compile_json.
struct EncodedEntry {
  EntryRecord record;
  std::string compile_json;
  EntryFiles files() const;
  std::string_view cubin, ptx, merge_cubin, merge_ptx, plan, source;
};
EncodedEntry encode_entry(const CacheRequest& request, const Image& image);
std::string_view view_of(const std::vector<std::byte>& bytes);

/// How much of an entry to read. Whatever is read is verified; of the rest the size only.
enum class EntryParts : std::uint8_t { record, code, code_and_ptx, all };

enum class ReadVerdict : std::uint8_t {
  ok,
  absent,     ///< no such entry, or it left while it was read
  damaged,    ///< does not verify: to be quarantined
  unreadable  ///< the system refused (permission, descriptors): nothing is known about the entry
};

struct ReadEntry {
  ReadVerdict verdict = ReadVerdict::absent;
  std::string reason;  ///< for damaged and unreadable
  EntryRecord record;
  std::int64_t made_ns = 0;        ///< when compile.json was written into this cache (EntryParts::record only)
  std::uint64_t folder_inode = 0;  ///< of the folder that was read
  std::string compile_json, plan_json, ptx, merge_ptx, source;
  std::vector<std::byte> cubin, merge_cubin;
};

/// Where an entry lies below the version's folder: aa/source key/entry key.
std::string entry_path_below(const EntryKeys& keys);
/// Below the open folder of the version; the record's keys must equal those given. Unless the folder is trusted, what
/// everybody may write is not read: a file or the entry's folder is damaged then, a folder above it unreadable.
ReadEntry read_entry(const Files& files, int base, const EntryKeys& keys, EntryParts parts, bool is_trusted);
/// Removes an entry's folder, wherever below `in` it lies: the files that have the names of an entry's, then the
/// folder. Whatever else somebody put there stays, and with it the folder: -ENOTEMPTY.
int remove_entry_folder(const Files& files, int in, const std::string& path);

bool is_key(std::string_view text) noexcept;  ///< 64 lower-case hexadecimal digits

}  // namespace tessera

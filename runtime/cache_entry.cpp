#include "runtime/cache_entry.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/hash.h"
#include "tessera/error.h"

namespace tessera {

bool is_key(std::string_view text) noexcept {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const EntryFileRecord* EntryRecord::file(std::string_view name) const {
  for (const EntryFileRecord& each : files) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

std::int64_t EntryRecord::payload_bytes() const {
  std::int64_t sum = 0;
  for (const EntryFileRecord& each : files) sum += each.bytes;
  return sum;
}

std::string_view view_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

EntryFiles EncodedEntry::files() const {
  EntryFiles list{{kCompileFile, compile_json}, {kCubinFile, cubin}, {kPtxFile, ptx}};
  if (record.has_merge()) {
    list.emplace_back(kMergeCubinFile, merge_cubin);
    list.emplace_back(kMergePtxFile, merge_ptx);
  }
  list.emplace_back(kPlanFile, plan);
  if (record.file(kSourceFile) != nullptr) list.emplace_back(kSourceFile, source);
  return list;
}

EncodedEntry encode_entry(const CacheRequest& request, const Image& image) {
  EncodedEntry encoded;
  encoded.cubin = view_of(image.cubin);
  encoded.ptx = image.ptx;
  encoded.merge_cubin = view_of(image.merge.cubin);
  encoded.merge_ptx = image.merge.ptx;
  encoded.plan = request.plan_json;
  encoded.source = request.source;
  EntryRecord& record = encoded.record;
  record.keys = request.keys;
  record.op = request.op;
  record.arch = request.arch;
  record.kernel = request.kernel;
  record.report = image.report;
  const auto add = [&record](const char* name, std::string_view bytes) {
    record.files.push_back({name, static_cast<std::int64_t>(bytes.size()), sha256_hex(bytes)});
  };
  add(kCubinFile, encoded.cubin);
  add(kPtxFile, encoded.ptx);
  if (!encoded.merge_cubin.empty()) {
    add(kMergeCubinFile, encoded.merge_cubin);
    add(kMergePtxFile, encoded.merge_ptx);
  }
  add(kPlanFile, encoded.plan);
  if (!request.source.empty()) add(kSourceFile, encoded.source);
  encoded.compile_json = to_compile_json(record);
  return encoded;
}

namespace {

bool is_open_to_all(const FileStatus& found) { return (found.mode & 0002U) != 0; }

std::string open_to_all(const char* what, const FileStatus& found) {
  return fmt::format("everybody may write {} (mode {:04o})", what, found.mode);
}

/// Carries the verdict out of the nested reading.
struct Reader {
  const Files& files;
  int folder;
  ReadEntry& out;
  bool is_trusted;

  bool stop(ReadVerdict verdict, std::string reason) {
    out.verdict = verdict;
    out.reason = std::move(reason);
    return false;
  }

  bool stop_at(const char* name, int negative_errno) {
    switch (-negative_errno) {
      case ENOENT:
        return stop(ReadVerdict::damaged, fmt::format("{} is missing", name));
      case EINVAL:
      case ELOOP:
        return stop(ReadVerdict::damaged, fmt::format("{} is not a regular file", name));
      case EFBIG:
        return stop(ReadVerdict::damaged, fmt::format("{} is larger than its record", name));
      case EIO:
        return stop(ReadVerdict::damaged, fmt::format("{} cannot be read: {}", name, describe_errno(negative_errno)));
      default:
        return stop(ReadVerdict::unreadable,
                    fmt::format("{} cannot be read: {}", name, describe_errno(negative_errno)));
    }
  }

  bool is_private(const FileStatus& found, const char* name) {
    if (is_trusted || !is_open_to_all(found)) return true;
    return stop(ReadVerdict::damaged, open_to_all(name, found));
  }

  template <class Container>
  bool payload(const char* name, Container& bytes) {
    const EntryFileRecord* expected = out.record.file(name);
    if (expected == nullptr) return true;  // may be absent: the record was checked
    FileStatus found;
    if (const int fault = files.read_file(folder, name, expected->bytes, bytes, &found)) return stop_at(name, fault);
    if (!is_private(found, name)) return false;
    if (static_cast<std::int64_t>(bytes.size()) != expected->bytes) {
      return stop(ReadVerdict::damaged,
                  fmt::format("{} has {} bytes: its record says {}", name, bytes.size(), expected->bytes));
    }
    const std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (sha256_hex(view) != expected->sha256) {
      return stop(ReadVerdict::damaged, fmt::format("{} does not have the digest of its record", name));
    }
    return true;
  }

  bool size_only(const char* name) {
    const EntryFileRecord* expected = out.record.file(name);
    if (expected == nullptr) return true;
    FileStatus found;
    if (const int fault = files.status(folder, name, found)) return stop_at(name, fault);
    if (!found.is_file) return stop_at(name, -EINVAL);
    if (found.bytes == expected->bytes) return true;
    return stop(ReadVerdict::damaged,
                fmt::format("{} has {} bytes: its record says {}", name, found.bytes, expected->bytes));
  }

  bool record(const EntryKeys& keys) {
    FileStatus found;
    if (const int fault = files.read_file(folder, kCompileFile, kMaxCompileJsonBytes, out.compile_json, &found)) {
      return stop_at(kCompileFile, fault);
    }
    if (!is_private(found, kCompileFile)) return false;
    try {
      out.record = parse_compile_json(out.compile_json);
    } catch (const Error& error) {
      return stop(ReadVerdict::damaged, error.what());
    }
    if ((!keys.source.empty() && keys.source != out.record.keys.source) ||
        (!keys.entry.empty() && keys.entry != out.record.keys.entry)) {
      return stop(ReadVerdict::damaged, "compile.json belongs to another entry");
    }
    return true;
  }

  bool read(const EntryKeys& keys, EntryParts parts) {
    if (!record(keys)) return false;
    if (parts == EntryParts::record) {
      FileStatus found;
      if (files.status(folder, kCompileFile, found) == 0) out.made_ns = found.modified_ns;
      return size_only(kCubinFile) && size_only(kPtxFile) && size_only(kMergeCubinFile) && size_only(kMergePtxFile) &&
             size_only(kPlanFile) && size_only(kSourceFile);
    }
    const bool with_ptx = parts != EntryParts::code, with_source = parts == EntryParts::all;
    return payload(kPlanFile, out.plan_json) && payload(kCubinFile, out.cubin) &&
           payload(kMergeCubinFile, out.merge_cubin) &&
           (with_ptx ? payload(kPtxFile, out.ptx) && payload(kMergePtxFile, out.merge_ptx)
                     : size_only(kPtxFile) && size_only(kMergePtxFile)) &&
           (!with_source || payload(kSourceFile, out.source));
  }

  /// What a damaged entry turns out to be: absent where the path no longer leads to the folder that is open, since
  /// whoever evicted it took the missing file away; unreadable where that cannot be told.
  void look_again(int base, const std::string& path) {
    FileStatus at_path, opened;
    int fault = files.status(base, path, at_path);
    const bool is_gone = fault == -ENOENT;
    if (fault == 0) fault = files.status(folder, opened);
    if (fault != 0 && !is_gone) {
      out.verdict = ReadVerdict::unreadable;
      out.reason += fmt::format(", and its folder cannot be looked at: {}", describe_errno(fault));
      return;
    }
    if (!is_gone) out.folder_inode = opened.inode;
    if (is_gone || at_path.inode != opened.inode || at_path.device != opened.device) out.verdict = ReadVerdict::absent;
  }
};

ReadEntry read_once(const Files& files, int base, const EntryKeys& keys, EntryParts parts, bool is_trusted) {
  ReadEntry out;
  const Descriptor shard(files, files.open_folder(base, keys.source.substr(0, 2)));
  const Descriptor parent(files, files.open_folder(shard.get(), keys.source));
  const Descriptor folder(files, files.open_folder(parent.get(), keys.entry));
  if (!folder) {
    const int fault = folder.get();
    if (fault == -ENOENT) return out;
    // A link or a file in the entry's own place can be moved aside; one on the way there cannot.
    const bool is_damaged = parent && (fault == -ENOTDIR || fault == -ELOOP || fault == -EIO);
    out.verdict = is_damaged ? ReadVerdict::damaged : ReadVerdict::unreadable;
    out.reason =
        fmt::format("{} cannot be opened: {}", parent ? "the folder" : "a folder above it", describe_errno(fault));
    return out;
  }
  for (const Descriptor* each : {&shard, &parent, &folder}) {
    if (is_trusted) break;
    FileStatus found;
    const int fault = files.status(each->get(), found);
    if (fault == 0 && !is_open_to_all(found)) continue;
    out.verdict = fault == 0 && each == &folder ? ReadVerdict::damaged : ReadVerdict::unreadable;
    out.reason = fault != 0 ? fmt::format("a folder cannot be looked at: {}", describe_errno(fault))
                            : open_to_all(each == &folder ? "its folder" : "a folder above it", found);
    out.folder_inode = each == &folder ? found.inode : 0;
    return out;
  }
  Reader reader{files, folder.get(), out, is_trusted};
  if (reader.read(keys, parts)) {
    out.verdict = ReadVerdict::ok;
  } else if (out.verdict == ReadVerdict::damaged) {
    reader.look_again(parent.get(), keys.entry);
  }
  return out;
}

}  // namespace

std::string entry_path_below(const EntryKeys& keys) {
  return fmt::format("{}/{}/{}", keys.source.substr(0, 2), keys.source, keys.entry);
}

ReadEntry read_entry(const Files& files, int base, const EntryKeys& keys, EntryParts parts, bool is_trusted) {
  ReadEntry out = read_once(files, base, keys, parts, is_trusted);
  // An entry that was evicted while we read it may have been built again meanwhile: look once more.
  if (out.verdict == ReadVerdict::absent && !out.compile_json.empty()) {
    out = read_once(files, base, keys, parts, is_trusted);
  }
  return out;
}

int remove_entry_folder(const Files& files, int in, const std::string& path) {
  int first = 0;
  {
    const Descriptor folder(files, files.open_folder(in, path));
    if (!folder) return folder.get();
    for (const char* name : kEntryFiles) {
      const int fault = files.remove_file(folder.get(), name);
      if (fault < 0 && fault != -ENOENT && first == 0) first = fault;
    }
  }
  const int removed = files.remove_folder(in, path);
  return removed == 0 || first == 0 ? removed : first;
}

}  // namespace tessera

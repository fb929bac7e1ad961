#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <tuple>

#include "base/hash.h"
#include "runtime/cache_archive.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr int kMaxWindowLog = 24;  // the writer's is 22; a hostile frame could ask for gigabytes

class Decompressor {
 public:
  Decompressor(const ByteSource& source, std::int64_t max_bytes) : source_(source), max_bytes_(max_bytes) {
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxWindowLog);
  }
  ~Decompressor() { ZSTD_freeDCtx(stream_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  std::int64_t position() const noexcept { return position_; }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorKind::io, fmt::format("archive, byte {} of its content: {}", position_, reason));
  }

  /// Appends so many bytes, growing as they come: a size that is only claimed costs nothing.
  void read(std::string& to, std::int64_t bytes) {
    if (bytes > max_bytes_ - position_) {
      refuse(fmt::format("{} more bytes: at most {} are allowed in all", bytes, max_bytes_));
    }
    while (bytes > 0) {
      if (at_ == decoded_.size() && !decode()) refuse("ends too early");
      const std::size_t take = std::min(decoded_.size() - at_, static_cast<std::size_t>(bytes));
      to.append(decoded_, at_, take);
      at_ += take;
      bytes -= static_cast<std::int64_t>(take);
      position_ += static_cast<std::int64_t>(take);
    }
  }

  void expect_end() {
    if (at_ != decoded_.size() || decode()) refuse("has more content after its end");
    if (in_.pos != in_.size || fill()) refuse("has more bytes after its end");
  }

 private:
  bool fill() {
    const std::size_t got = source_(encoded_);
    in_ = {encoded_.data(), got, 0};
    return got > 0;
  }

  /// Decodes some more; false at the end of the frame.
  bool decode() {
    decoded_.resize(ZSTD_DStreamOutSize());
    at_ = 0;
    ZSTD_outBuffer out{decoded_.data(), decoded_.size(), 0};
    while (out.pos == 0 && !is_over_) {
      const bool has_input = in_.pos < in_.size || fill();
      const std::size_t left = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(left) != 0) refuse(fmt::format("zstd: {}", ZSTD_getErrorName(left)));
      is_over_ = left == 0;
      if (!has_input && out.pos == 0 && !is_over_) refuse("ends too early");
    }
    decoded_.resize(out.pos);
    return out.pos > 0;
  }

  const ByteSource& source_;
  std::int64_t max_bytes_, position_ = 0;
  ZSTD_DCtx* stream_ = ZSTD_createDCtx();
  std::vector<std::byte> encoded_ = std::vector<std::byte>(ZSTD_DStreamInSize());
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::string decoded_;
  std::size_t at_ = 0;
  bool is_over_ = false;
};

struct Member {
  std::string path;
  std::int64_t bytes = 0;
};

class ArchiveReader {
 public:
  ArchiveReader(const ByteSource& source, const ArchiveLimits& limits)
      : in_(source, limits.max_total_bytes), limits_(limits) {}

  ArchiveSummary run(const std::function<void(ArchivedEntry&&)>& take) {
    ArchiveSummary summary;
    Member member = next();
    while (member.path != archive::kManifestName) {
      if (++summary.entries > limits_.max_entries) in_.refuse(fmt::format("more than {} entries", limits_.max_entries));
      ArchivedEntry entry = read_entry_from(member);
      member = next();
      if (entry.record.file(kSourceFile) != nullptr) {
        entry.source = payload(entry.record, kSourceFile, member);
        member = next();
      }
      take(std::move(entry));
    }
    if (content(member) != archive::manifest(lines_)) in_.refuse("manifest.json does not match the entries");
    std::string end;
    in_.read(end, 2 * archive::kBlock);
    if (end.find_first_not_of('\0') != std::string::npos) in_.refuse("no end after manifest.json");
    in_.expect_end();
    summary.bytes = in_.position();
    return summary;
  }

 private:
  /// Reads path and size out of a header and compares it with the one that the writer makes of them: whatever else a
  /// header can say (types, links, owners, times, other spellings) is refused with that.
  Member next() {
    std::string block;
    in_.read(block, archive::kBlock);
    const auto text = [&block](std::size_t at, std::size_t size) {
      const std::string field = block.substr(at, size);
      return field.substr(0, field.find('\0'));
    };
    Member member;
    const std::string prefix = text(345, 155);
    member.path = (prefix.empty() ? "" : prefix + "/") + text(0, 100);
    const std::string size = text(124, 11);
    const bool is_number = size.size() == 11 && size.find_first_not_of("01234567") == std::string::npos;
    member.bytes = is_number ? std::stoll(size, nullptr, 8) : -1;
    if (!is_number || member.path.empty() || archive::header(member.path, member.bytes) != block) {
      in_.refuse(fmt::format("a member that tessera has not written ({})", printable(member.path)));
    }
    if (member.bytes > limits_.max_entry_bytes) {
      in_.refuse(fmt::format("{} has {} bytes: at most {} are allowed", printable(member.path), member.bytes,
                             limits_.max_entry_bytes));
    }
    return member;
  }

  static std::string printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < 32 || c > 126; }, '?');
    return text;
  }

  std::string content(const Member& member) {
    std::string bytes, padding;
    in_.read(bytes, member.bytes);
    const std::int64_t rest = member.bytes % static_cast<std::int64_t>(archive::kBlock);
    if (rest != 0) in_.read(padding, static_cast<std::int64_t>(archive::kBlock) - rest);
    if (padding.find_first_not_of('\0') != std::string::npos) in_.refuse("padding that is not zero");
    return bytes;
  }

  /// The member must be this file of the entry, and have the size and digest of its record.
  std::string payload(const EntryRecord& record, const char* name, const Member& member) {
    const EntryFileRecord* expected = record.file(name);
    if (member.path != archive::entry_path(record.keys, name)) {
      in_.refuse(fmt::format("{} where {} of entry {} belongs", printable(member.path), name, record.keys.entry));
    }
    if (member.bytes != expected->bytes) {
      in_.refuse(fmt::format("{} of entry {} has {} bytes: its record says {}", name, record.keys.entry, member.bytes,
                             expected->bytes));
    }
    std::string bytes = content(member);
    if (sha256_hex(bytes) != expected->sha256) {
      in_.refuse(fmt::format("{} of entry {} does not have the digest of its record", name, record.keys.entry));
    }
    return bytes;
  }

  ArchivedEntry read_entry_from(const Member& first) {
    ArchivedEntry entry;
    if (first.path.size() < 12 || first.path.substr(first.path.size() - 12) != kCompileFile) {
      in_.refuse(fmt::format("{} where the compile.json of an entry belongs", printable(first.path)));
    }
    if (first.bytes > kMaxCompileJsonBytes) in_.refuse("a compile.json that is too large");
    entry.compile_json = content(first);
    try {
      entry.record = parse_compile_json(entry.compile_json);
    } catch (const Error& error) {
      in_.refuse(error.what());
    }
    const EntryKeys& keys = entry.record.keys;
    if (first.path != archive::entry_path(keys, kCompileFile)) {
      in_.refuse(fmt::format("{} belongs to another entry", printable(first.path)));
    }
    if (std::tie(last_.source, last_.entry) >= std::tie(keys.source, keys.entry)) {
      in_.refuse(fmt::format("entry {} is there twice or out of order", keys.entry));
    }
    last_ = keys;
    if (entry.record.payload_bytes() > limits_.max_entry_bytes) {
      in_.refuse(fmt::format("entry {} has {} bytes: at most {} are allowed", keys.entry, entry.record.payload_bytes(),
                             limits_.max_entry_bytes));
    }
    lines_.push_back(archive::manifest_line(entry.record, entry.compile_json));
    entry.cubin = payload(entry.record, kCubinFile, next());
    entry.ptx = payload(entry.record, kPtxFile, next());
    if (entry.record.has_merge()) {
      entry.merge_cubin = payload(entry.record, kMergeCubinFile, next());
      entry.merge_ptx = payload(entry.record, kMergePtxFile, next());
    }
    entry.plan_json = payload(entry.record, kPlanFile, next());
    return entry;
  }

  Decompressor in_;
  ArchiveLimits limits_;
  EntryKeys last_;
  std::vector<std::string> lines_;
};

}  // namespace

EncodedEntry ArchivedEntry::encoded() const {
  EncodedEntry encoded;
  encoded.record = record;
  encoded.compile_json = compile_json;
  encoded.cubin = cubin;
  encoded.ptx = ptx;
  encoded.merge_cubin = merge_cubin;
  encoded.merge_ptx = merge_ptx;
  encoded.plan = plan_json;
  encoded.source = source;
  return encoded;
}

ArchiveSummary read_archive(const ByteSource& source, const ArchiveLimits& limits,
                            const std::function<void(ArchivedEntry&&)>& take) {
  return ArchiveReader(source, limits).run(take);
}

}  // namespace tessera

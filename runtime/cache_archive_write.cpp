#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/assert.h"
#include "base/hash.h"
#include "runtime/cache_archive.h"
#include "tessera/error.h"

namespace tessera {

namespace archive {

std::string entry_path(const EntryKeys& keys, const std::string& file) {
  return fmt::format("v{}/{}/{}/{}/{}", kCacheSchema, keys.source.substr(0, 2), keys.source, keys.entry, file);
}

// POSIX.1-1988 ustar: name[100] mode[8] uid[8] gid[8] size[12] mtime[12] checksum[8] type[1] link[100] magic[6]
// version[2] user[32] group[32] device[16] prefix[155]; numbers in octal.
std::string header(const std::string& path, std::int64_t bytes) {
  std::string block(kBlock, '\0');
  const auto put = [&block](std::size_t at, std::string_view text) {
    std::memcpy(&block[at], text.data(), text.size());
  };
  std::size_t cut = 0;  // where the name begins
  if (path.size() > 100) cut = path.find('/', path.size() - 101) + 1;
  const std::string_view view = path;
  TESSERA_ASSERT(cut <= 156 && path.size() - cut <= 100 && bytes >= 0 && bytes < (std::int64_t{1} << 33), path);
  put(0, view.substr(cut));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes));
  put(136, "00000000000");
  put(156, "0");
  put(257, "ustar");
  put(263, "00");
  if (cut > 0) put(345, view.substr(0, cut - 1));
  // The checksum is taken with its own field as blanks.
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  return block;
}

std::string manifest_line(const EntryRecord& record, std::string_view compile_json) {
  const nlohmann::ordered_json line = {{"source_key", record.keys.source},
                                       {"entry_key", record.keys.entry},
                                       {"op", record.op},
                                       {"arch", record.arch},
                                       {"kernel", record.kernel},
                                       {"bytes", record.payload_bytes()},
                                       {"compile_sha256", sha256_hex(compile_json)}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string manifest(const std::vector<std::string>& lines) {
  std::string text =
      fmt::format("{{\n\"format\": \"tessera cache archive\",\n\"schema\": {},\n\"entries\": [", kCacheSchema);
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "\n" : ",\n") + lines[i];
  return text + "\n]\n}\n";
}

}  // namespace archive

namespace {

/// What two machines that compile the same agree on.
EntryRecord without_times(EntryRecord record) {
  record.report.compile_ms = 0;
  std::string log;
  std::string_view rest = record.report.log;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    if (line.find("Compile time =") == std::string_view::npos) log += line;
    rest.remove_prefix(end);
  }
  record.report.log = std::move(log);
  return record;
}

}  // namespace

struct ArchiveWriter::State {
  ByteSink sink;
  ZSTD_CCtx* stream = ZSTD_createCCtx();
  std::string buffer = std::string(ZSTD_CStreamOutSize(), '\0');
  std::vector<std::string> lines;
  EntryKeys last;
  ~State() { ZSTD_freeCCtx(stream); }

  void write(std::string_view bytes, ZSTD_EndDirective directive = ZSTD_e_continue) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (true) {
      ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
      const std::size_t left = ZSTD_compressStream2(stream, &out, &in, directive);
      if (ZSTD_isError(left) != 0) throw Error(ErrorKind::io, fmt::format("zstd: {}", ZSTD_getErrorName(left)));
      if (out.pos > 0) sink(std::string_view(buffer).substr(0, out.pos));
      if (directive == ZSTD_e_end ? left == 0 : in.pos == in.size) return;
    }
  }

  void member(const std::string& path, std::string_view bytes) {
    write(archive::header(path, static_cast<std::int64_t>(bytes.size())));
    write(bytes);
    const std::size_t rest = bytes.size() % archive::kBlock;
    if (rest != 0) write(std::string(archive::kBlock - rest, '\0'));
  }
};

ArchiveWriter::ArchiveWriter(ByteSink sink) : state_(std::make_unique<State>()) {
  state_->sink = std::move(sink);
  ZSTD_CCtx_setParameter(state_->stream, ZSTD_c_compressionLevel, 9);
  ZSTD_CCtx_setParameter(state_->stream, ZSTD_c_checksumFlag, 1);
}

ArchiveWriter::~ArchiveWriter() = default;

void ArchiveWriter::add(const ReadEntry& entry) {
  const EntryKeys& keys = entry.record.keys;
  TESSERA_ASSERT(std::tie(state_->last.source, state_->last.entry) < std::tie(keys.source, keys.entry), keys.entry);
  state_->last = keys;
  const EntryRecord record = without_times(entry.record);
  const std::string compile_json = to_compile_json(record);
  state_->lines.push_back(archive::manifest_line(record, compile_json));
  state_->member(archive::entry_path(keys, kCompileFile), compile_json);
  state_->member(archive::entry_path(keys, kCubinFile), view_of(entry.cubin));
  state_->member(archive::entry_path(keys, kPtxFile), entry.ptx);
  if (record.has_merge()) {
    state_->member(archive::entry_path(keys, kMergeCubinFile), view_of(entry.merge_cubin));
    state_->member(archive::entry_path(keys, kMergePtxFile), entry.merge_ptx);
  }
  state_->member(archive::entry_path(keys, kPlanFile), entry.plan_json);
  if (record.file(kSourceFile) != nullptr) state_->member(archive::entry_path(keys, kSourceFile), entry.source);
}

void ArchiveWriter::finish() {
  state_->member(archive::kManifestName, archive::manifest(state_->lines));
  state_->write(std::string(2 * archive::kBlock, '\0'));
  state_->write({}, ZSTD_e_end);
}

}  // namespace tessera

// libFuzzer: any bytes as a cache archive. The first byte, modulo 3, says what the rest is: the file; its content
// before compression, which reaches what lies behind zstd; a compile.json that gets its right digest, which reaches
// what lies behind that. Either it is refused with Error{io}, or what it holds can be written and read again.
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/hash.h"
#include "runtime/cache_archive.h"
#include "tessera/error.h"
#include "tests/fuzz/target.h"

namespace {

constexpr tessera::ArchiveLimits kLimits{100, 1 << 20, 4 << 20};

tessera::ByteSource source_of(const std::string& bytes) {
  return [&bytes, at = std::size_t{0}](std::span<std::byte> to) mutable {
    const std::size_t take = std::min(to.size(), bytes.size() - at);
    std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()) + at, take, to.data());
    at += take;
    return take;
  };
}

std::string compress(const std::string& content) {
  std::string bytes(ZSTD_compressBound(content.size()), '\0');
  bytes.resize(ZSTD_compress(bytes.data(), bytes.size(), content.data(), content.size(), 1));
  return bytes;
}

tessera::ReadEntry as_read(const tessera::ArchivedEntry& from) {
  tessera::ReadEntry to;
  to.record = from.record;
  to.plan_json = from.plan_json;
  to.ptx = from.ptx;
  to.source = from.source;
  const auto* first = reinterpret_cast<const std::byte*>(from.cubin.data());
  to.cubin.assign(first, first + from.cubin.size());
  return to;
}

int check_record(const std::string& rest) {
  try {
    const tessera::EntryRecord record =
        tessera::parse_compile_json("{\n  \"digest\": \"" + tessera::sha256_hex(rest) + rest);
    const std::string text = tessera::to_compile_json(record);
    if (tessera::to_compile_json(tessera::parse_compile_json(text)) != text) std::abort();
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::io) std::abort();
  }
  return 0;
}

}  // namespace

TESSERA_FUZZ_TARGET(archive)(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string archive(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 2) return check_record(archive);
  if (data[0] % 3 == 1) archive = compress(archive);
  std::vector<tessera::ReadEntry> entries;
  tessera::ArchiveSummary summary;
  try {
    summary = tessera::read_archive(source_of(archive), kLimits,
                                    [&](tessera::ArchivedEntry&& entry) { entries.push_back(as_read(entry)); });
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::io) std::abort();
    return 0;
  }
  std::string again;
  tessera::ArchiveWriter writer([&again](std::string_view bytes) { again += bytes; });
  for (const tessera::ReadEntry& entry : entries) writer.add(entry);
  writer.finish();
  const auto ignore = [](tessera::ArchivedEntry&&) {};
  if (tessera::read_archive(source_of(again), kLimits, ignore).entries != summary.entries) std::abort();
  return 0;
}

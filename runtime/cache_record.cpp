// compile.json <-> EntryRecord.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "runtime/cache_entry.h"
#include "tessera/error.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

// The text begins with the digest of everything that follows its closing quote.
constexpr std::string_view kHead = "{\n  \"digest\": \"";
constexpr std::size_t kDigestEnd = kHead.size() + 64;

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorKind::io, "compile.json " + reason); }

Json to_json(const EntryReport& report) {
  return {{"name", report.name},
          {"registers", report.registers},
          {"spill_store_bytes", report.spill_store_bytes},
          {"spill_load_bytes", report.spill_load_bytes},
          {"stack_bytes", report.stack_bytes},
          {"static_smem_bytes", report.static_smem_bytes},
          {"barriers", report.barriers}};
}

/// A whole number that fits: no fraction is rounded, nothing wraps around.
template <class T>
T whole(const Json& json, const char* key) {
  const Json& value = json.at(key);
  const bool is_large = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  const bool is_small = value.is_number_integer() && !value.is_number_unsigned() &&
                        value.get<std::int64_t>() < static_cast<std::int64_t>(std::numeric_limits<T>::min());
  if (!value.is_number_integer() || is_large || is_small) refuse(fmt::format("gives no fitting number for {}", key));
  return value.get<T>();
}

EntryReport report_from(const Json& json) {
  EntryReport report;
  report.name = json.at("name").get<std::string>();
  report.registers = whole<int>(json, "registers");
  report.spill_store_bytes = whole<int>(json, "spill_store_bytes");
  report.spill_load_bytes = whole<int>(json, "spill_load_bytes");
  report.stack_bytes = whole<int>(json, "stack_bytes");
  report.static_smem_bytes = whole<int>(json, "static_smem_bytes");
  report.barriers = whole<int>(json, "barriers");
  return report;
}

/// Of an entry with the files of a merge: who knows none refuses it, whatever its digests are.
constexpr int kMergeSchema = kCacheSchema + 1;
int schema_of(const EntryRecord& record) { return record.has_merge() ? kMergeSchema : kCacheSchema; }

void check_files(const EntryRecord& record) {
  std::vector<std::string_view> names{kCubinFile, kPtxFile};
  if (record.has_merge()) names.insert(names.end(), {kMergeCubinFile, kMergePtxFile});
  names.push_back(kPlanFile);
  if (record.file(kSourceFile) != nullptr) names.push_back(kSourceFile);
  if (record.files.size() != names.size()) refuse("does not list the files of an entry");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const EntryFileRecord& file = record.files[i];
    if (file.name != names[i]) refuse("does not list the files of an entry");
    if (file.bytes < 0 || file.bytes > kMaxEntryFileBytes) {
      refuse(fmt::format("gives {} {} bytes: at most {} are allowed", file.name, file.bytes, kMaxEntryFileBytes));
    }
    if (!is_key(file.sha256)) refuse(fmt::format("gives {} no digest", file.name));
  }
}

EntryRecord record_from(const Json& json) {
  EntryRecord record;
  const int schema = whole<int>(json, "schema");
  if (schema < kCacheSchema || schema > kMergeSchema)
    refuse(fmt::format("has schema {}: this version reads {} and {}", schema, kCacheSchema, kMergeSchema));
  record.keys.source = json.at("source_key").get<std::string>();
  record.keys.entry = json.at("entry_key").get<std::string>();
  if (!is_key(record.keys.source) || !is_key(record.keys.entry)) refuse("has no keys");
  record.op = json.at("op").get<std::string>();
  record.arch = json.at("arch").get<std::string>();
  record.kernel = json.at("kernel").get<std::string>();
  const Json& compiler = json.at("compiler");
  CompileReport& report = record.report;
  report.compiler.name = compiler.at("name").get<std::string>();
  report.compiler.major_version = whole<int>(compiler, "major_version");
  report.compiler.minor_version = whole<int>(compiler, "minor_version");
  report.compiler.build_id = compiler.at("build_id").get<std::string>();
  report.compile_ms = json.at("compile_ms").get<double>();
  for (const Json& each : json.at("entries")) report.entries.push_back(report_from(each));
  for (const Json& each : json.at("notes")) report.notes.push_back(each.get<std::string>());
  report.log = json.at("log").get<std::string>();
  for (const Json& each : json.at("files")) {
    record.files.push_back(
        {each.at("name").get<std::string>(), whole<std::int64_t>(each, "bytes"), each.at("sha256").get<std::string>()});
  }
  check_files(record);
  if (schema != schema_of(record)) refuse("does not list the files of its schema");
  return record;
}

}  // namespace

std::string to_compile_json(const EntryRecord& record) {
  const CompileReport& report = record.report;
  Json json = {{"schema", schema_of(record)},
               {"source_key", record.keys.source},
               {"entry_key", record.keys.entry},
               {"op", record.op},
               {"arch", record.arch},
               {"kernel", record.kernel},
               {"compiler",
                {{"name", report.compiler.name},
                 {"major_version", report.compiler.major_version},
                 {"minor_version", report.compiler.minor_version},
                 {"build_id", report.compiler.build_id}}},
               {"compile_ms", report.compile_ms},
               {"entries", Json::array()},
               {"notes", report.notes},
               {"log", report.log},
               {"files", Json::array()}};
  for (const EntryReport& each : report.entries) json["entries"].push_back(to_json(each));
  for (const EntryFileRecord& each : record.files) {
    json["files"].push_back({{"name", each.name}, {"bytes", each.bytes}, {"sha256", each.sha256}});
  }
  // A compiler's log may hold bytes that are no UTF-8: they are replaced, not refused.
  std::string rest = json.dump(2, ' ', false, Json::error_handler_t::replace);
  rest[0] = ',';  // the brace that kHead has already
  rest = "\"" + rest + "\n";
  return std::string(kHead) + sha256_hex(rest) + rest;
}

EntryRecord parse_compile_json(std::string_view text) {
  if (text.empty()) refuse("is empty");
  if (text.size() <= kDigestEnd || text.substr(0, kHead.size()) != kHead) refuse("does not begin with its digest");
  if (sha256_hex(text.substr(kDigestEnd)) != text.substr(kHead.size(), 64)) {
    refuse("does not have the digest that it states");
  }
  try {
    return record_from(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("is not a record: {}", error.what()));
  }
}

}  // namespace tessera

#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;

namespace {
EntryKeys keys_of(const SourceBundle& bundle) {
  const CountingCompiler compiler;
  return make_keys(bundle, "{}", &compiler.identity());
}
}  // namespace

TEST_CASE("cache keys: every part of the content changes the source key") {
  const std::string before = keys_of(sample_bundle(1)).source;
  CHECK(before.size() == 64);
  const std::vector<std::function<void(SourceBundle&)>> changes = {
      [](SourceBundle& b) { b.program += "x"; },
      [](SourceBundle& b) { b.text += "x"; },
      [](SourceBundle& b) { b.arch = "sm_100a"; },
      [](SourceBundle& b) { b.options.pop_back(); },
      [](SourceBundle& b) { std::swap(b.options[0], b.options[1]); },
      [](SourceBundle& b) { b.options = {"--std=c++20-lineinfo"}; },
      [](SourceBundle& b) { b.headers[0].path = "other.cuh"; },
      [](SourceBundle& b) { b.headers[0].text += " "; },
      [](SourceBundle& b) { b.headers.pop_back(); },
      [](SourceBundle& b) { b.entries[0] += "_"; },
      [](SourceBundle& b) { b.merge = std::make_shared<const SourceBundle>(); },
      [](SourceBundle& b) { b.merge = std::make_shared<const SourceBundle>(b); },
      [](SourceBundle& b) {
        b.pieces = {{{"piece.cuh", "1"}}};
      },
      [](SourceBundle& b) {  // the same bytes, cut elsewhere
        b.headers[0].path += b.headers[0].text[0];
        b.headers[0].text.erase(0, 1);
      }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    SourceBundle bundle = sample_bundle(1);
    changes[i](bundle);
    CHECK(keys_of(bundle).source != before);
  }
  CHECK(make_keys(sample_bundle(1), "{ }", nullptr).source != before);
  SourceBundle in_pieces = sample_bundle(1);
  in_pieces.pieces = {{{"piece.cuh", "1"}}};
  const std::string plain = keys_of(in_pieces).source;
  in_pieces.pieces[0].keeps_values = true;
  CHECK(keys_of(in_pieces).source != plain);
}

TEST_CASE("cache keys: content only, the order of headers is none") {
  SourceBundle bundle = sample_bundle(1);
  const EntryKeys before = keys_of(bundle);
  std::swap(bundle.headers[0], bundle.headers[1]);
  CHECK(keys_of(bundle) == before);
}

TEST_CASE("cache keys: the compiler's identity changes the entry key only") {
  const SourceBundle bundle = sample_bundle(1);
  const EntryKeys without = make_keys(bundle, "{}", nullptr);
  CHECK(without.entry.empty());
  const CompilerIdentity one{"nvrtc", 13, 0, "ab"};
  std::vector<CompilerIdentity> others(4, one);
  others[0].name = "other";
  others[1].major_version = 12;
  others[2].minor_version = 1;
  others[3].build_id = "ac";
  for (const CompilerIdentity& other : others) {
    const EntryKeys a = make_keys(bundle, "{}", &one), b = make_keys(bundle, "{}", &other);
    CHECK(a.source == without.source);
    CHECK(a.source == b.source);
    CHECK(a.entry != b.entry);
  }
}

TEST_CASE("cache keys: the present schema gives these digests") {
  // A change here orphans every cache in the field: raise kCacheSchema with it.
  SourceBundle bundle;
  bundle.program = "/tessera/p.cu";
  bundle.text = "t";
  bundle.arch = "sm_90a";
  const CompilerIdentity compiler{"nvrtc", 13, 0, "ab"};
  const EntryKeys keys = make_keys(bundle, "{}", &compiler);
  CHECK(keys.source == "3bdda9004cd73aed1e933faf47fc069237d4a04d131a5b970505c9a6bc99a382");
  CHECK(keys.entry == "b0b46ac61a00b1cdeaae5b53c2e1e63031748ed196adae09049be3769a063340");
}

TEST_CASE("compile.json: what is written is read back") {
  EntryRecord record;
  record.keys = keys_of(sample_bundle(1));
  record.op = "fmha";
  record.arch = "sm_90a";
  record.kernel = "a \"kernel\"\n";
  record.report.compiler = {"nvrtc", 13, 1, "ab"};
  record.report.log = "line\nline \xff\n";  // no UTF-8: replaced, not refused
  record.report.entries = {{"k", 1, 2, 3, 4, 5, 6}};
  record.report.notes = {"note"};
  record.report.compile_ms = 0.1;
  for (const char* name : {kCubinFile, kPtxFile, kPlanFile}) record.files.push_back({name, 7, record.keys.source});
  const std::string text = to_compile_json(record);
  CHECK(to_compile_json(record) == text);
  const EntryRecord back = parse_compile_json(text);
  CHECK(to_compile_json(back) == text);
  CHECK(back.keys == record.keys);
  CHECK(back.kernel == record.kernel);
  CHECK(back.report.compile_ms == record.report.compile_ms);
  CHECK(back.report.entries[0].barriers == 6);
  CHECK(back.payload_bytes() == 21);

  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    CHECK_THROWS_AS(parse_compile_json(flipped), Error);
    CHECK_THROWS_AS(parse_compile_json(std::string_view(text).substr(0, i)), Error);
  }
  record.files.push_back({"../../etc/passwd", 1, record.keys.source});
  CHECK_THROWS_WITH(parse_compile_json(to_compile_json(record)), "compile.json does not list the files of an entry");

  // Numbers that do not fit, behind a digest that is right.
  record.files.pop_back();
  const auto refusal_with = [&](const std::string& from, const std::string& to) {
    const std::string whole_text = to_compile_json(record);
    std::string rest = whole_text.substr(whole_text.find("\",\n  \"schema"));
    rest.replace(rest.find(from), from.size(), to);
    try {
      parse_compile_json("{\n  \"digest\": \"" + sha256_hex(rest) + rest);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal_with("\"bytes\": 7", "\"bytes\": 7").empty());
  CHECK(refusal_with("\"bytes\": 7", "\"bytes\": -1") ==
        "compile.json gives kernel.cubin -1 bytes: at most 1073741824 are allowed");
  CHECK(refusal_with("\"bytes\": 7", "\"bytes\": 18446744073709551615") ==
        "compile.json gives no fitting number for bytes");
  CHECK(refusal_with("\"registers\": 1", "\"registers\": 1e300") ==
        "compile.json gives no fitting number for registers");
  CHECK(refusal_with("\"registers\": 1", "\"registers\": -2147483649") ==
        "compile.json gives no fitting number for registers");
  CHECK(refusal_with("\"schema\": 1", "\"schema\": 3") == "compile.json has schema 3: this version reads 1 and 2");
  CHECK(refusal_with("\"schema\": 1", "\"schema\": 2") == "compile.json does not list the files of its schema");
  CHECK(refusal_with("\"log\"", "\"lag\"").find("compile.json is not a record") == 0);
}

// `run --lengths`: what a file may say, what is drawn where there is none, and what both are refused for. Beside them
// the cap of scores.
#include "cli/run_lengths.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "reference/key_places.h"
#include "reference/poison.h"
#include "tests/cli/machine.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_lengths(text, "lengths.txt");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return {};
}

/// `run fmha` of 64 columns in the emulator.
Outcome run_fmha(Machine& machine, const std::vector<std::string>& flags, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"run",      "fmha", "--device",  "emulator", "--head-dim", "64",
                                 "--tile-m", "64",   "--heads-q", "2",        "--heads-kv", "1"};
  for (const auto* const list : {&flags, &more}) words.insert(words.end(), list->begin(), list->end());
  return machine.terminal.run(words);
}

std::string file_of(const Machine& machine, const std::string& text) {
  static int count = 0;
  const std::string file = (machine.terminal.folder.path / fmt::format("lengths{}", ++count)).string();
  write_file(file, text);
  return file;
}

}  // namespace

TEST_CASE("lengths: a line is a sequence, and one that is none is named") {
  const auto lengths = parse_lengths("# step 7\n\n1 300\r\n\t4  0 # a prefill\n0 2147418112", "lengths.txt");
  REQUIRE(lengths.size() == 3);
  const std::int64_t expected[3][3] = {{1, 300, 3}, {4, 0, 4}, {0, 2147418112, 5}};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(lengths[i].queries == expected[i][0]);
    CHECK(lengths[i].keys == expected[i][1]);
    CHECK(lengths[i].line == expected[i][2]);
  }
  const std::string rule = ": must be \"queries keys\", two whole numbers of at most 2147418112";
  CHECK(refusal_of("1 2\n3\n") == "lengths.txt:2: 3" + rule);
  CHECK(refusal_of("1 2 3") == "lengths.txt:1: 1 2 3" + rule);
  CHECK(refusal_of("1 -2") == "lengths.txt:1: 1 -2" + rule);
  CHECK(refusal_of("\n1 2.5") == "lengths.txt:2: 1 2.5" + rule);
  CHECK(refusal_of("1 2147418113") == "lengths.txt:1: 1 2147418113" + rule);
  CHECK(refusal_of("1,2") == "lengths.txt:1: 1,2" + rule);
  CHECK(refusal_of("# none\n") == "lengths.txt: has no line \"queries keys\"");
  CHECK(refusal_of("") == "lengths.txt: has no line \"queries keys\"");
}

TEST_CASE("lengths: drawn ones include all, none and some between, by the seed") {
  RunFlags flags;
  const reference::Tensor keys = key_lengths(flags, 8, 1000), queries = used_queries(flags, 8, 1000);
  CHECK(keys.at(0) == 1000);
  CHECK(keys.at(2) == 0);
  CHECK(keys.at(6) == 0);
  CHECK(queries.at(2) == 0);
  CHECK(keys.bytes != queries.bytes);
  CHECK(keys.bytes == key_lengths(flags, 8, 1000).bytes);
  flags.seed = 2;
  CHECK(keys.bytes != key_lengths(flags, 8, 1000).bytes);
}

TEST_CASE("lengths: a table leads to pages of nobody behind a sequence's last one, and to no page at all") {
  reference::Tensor lengths(DType::s32, {3});
  lengths.set(0, 33);
  lengths.set(2, 16);
  const reference::Tensor table = reference::draw_block_table(lengths, 16, 40, 20, 1);
  const std::set<double> used{table.at(0), table.at(1), table.at(2), table.at(40)};
  CHECK(used.size() == 4);
  std::int64_t of_nobody = 0, outside = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    if (i < 3 || i == 40) continue;
    CHECK(used.count(table.at(i)) == 0);
    (table.at(i) >= 0 && table.at(i) < 40 ? of_nobody : outside) += 1;
  }
  CHECK(of_nobody > 10);
  CHECK(outside > 10);
}

TEST_CASE("lengths: rows that belong to no sequence must keep their poison") {
  reference::Tensor o(DType::bf16, {6, 2, 8}), lse(DType::f32, {2, 6});
  for (reference::Tensor* const tensor : {&o, &lse})
    std::fill(tensor->bytes.begin(), tensor->bytes.end(), std::byte{reference::kPoisonByte});
  for (std::int64_t i = 0; i < 4 * 16; ++i) o.set(i, 1);
  const std::vector<reference::QueryRange> ranges{{0, 3}, {3, 3}, {3, 4}};
  CHECK(writes_beyond(ranges, {{"o", o}, {"lse", lse}}).empty());
  o.set(5 * 16 + 9, 0);
  lse.set(6 + 4, 0);
  const auto problems = writes_beyond(ranges, {{"o", o}, {"lse", lse}});
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == "lse: row 4 belongs to no sequence, and was written");
  CHECK(problems[1] == "o: row 5 belongs to no sequence, and was written");
}

TEST_CASE("run: lengths of a file, in pages, packed and of parts that are used") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string mixed = file_of(machine, "1 130\n40 40\n0 9\n1 0\n7 65\n");
  const std::vector<std::string> ragged{"--q-layout", "ragged", "--kv-layout", "paged",    "--page-size",
                                        "16",         "--mask", "causal",      "--lengths"};
  const Outcome step = run_fmha(machine, ragged, {mixed, "--json"});
  CHECK(step.code == 0);
  CHECK(Json::parse(step.out)["rows_total"] == 5 * 40 * 2);
  CHECK(run_fmha(machine, ragged, {mixed, "--json"}).out.substr(0, 100) == step.out.substr(0, 100));
  // Places behind the last sequence's queries, and pages that nobody uses.
  CHECK(run_fmha(machine, ragged, {mixed, "--seqlen-q", "60", "--seqlen-k", "500", "--pages", "100"}).code == 0);
  CHECK(run_fmha(machine, {"--q-layout", "ragged", "--kv-layout", "ragged", "--lengths", mixed}).code == 0);
  CHECK(run_fmha(machine, {"--seqused", "qk", "--lengths", mixed, "--seqlen-q", "70"}).code == 0);
  CHECK(run_fmha(machine, {"--seqused", "k", "--lengths", file_of(machine, "5 130\n5 0\n")}).code == 0);
  CHECK(run_fmha(machine, {"--seqused", "k", "--lengths", "random", "--batch", "3", "--seqlen-q", "5"}).code == 0);
}

TEST_CASE("run: lengths that a launch does not take are refused, with the line") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string mixed = file_of(machine, "1 130\n# two\n40 40\n");
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& why) {
    const Outcome outcome = run_fmha(machine, flags, {"--lengths", mixed});
    CHECK(outcome.code == 2);
    CHECK(outcome.err == "tessera: " + why + "\n");
  };
  refused({}, "--lengths: this kernel reads no lengths: give --seqused, --kv-layout or --q-layout");
  refused({"--seqused", "qk", "--batch", "3"}, mixed + ": 2 sequences, batch = 3");
  refused({"--seqused", "k"},
          mixed + ":1: 1 queries: must be seqlen_q = 40 (or give --seqused qk or --q-layout ragged)");
  refused({"--q-layout", "ragged"},
          mixed + ":3: 40 keys: must be seqlen_k = 130 (or give --seqused k, --kv-layout paged or ragged)");
  refused({"--seqused", "qk", "--seqlen-q", "39"}, mixed + ":3: 40 queries: must be at most seqlen_q = 39");
  refused({"--seqused", "qk", "--seqlen-k", "129"}, mixed + ":1: 130 keys: must be at most seqlen_k = 129");
  refused({"--q-layout", "ragged", "--kv-layout", "ragged", "--seqlen-q", "40"},
          mixed + ": 41 queries in all: must be at most seqlen_q = 40");
  refused({"--kv-layout", "ragged", "--seqused", "qk", "--tokens-k", "169"},
          mixed + ": 170 keys in all: must be at most tokens_k = 169");
  CHECK(run_fmha(machine, {"--lengths", "/nonexistent/lengths"}).code == 5);
  CHECK(machine.terminal.run({"run", "gemm", "--lengths", "random"}).err == "tessera: --lengths: is for fmha\n");
}

TEST_CASE("run: the cap of scores is what is given, and no other than a positive number") {
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> capped{"--softcap", "tanh", "--seqlen-q", "20", "--seqlen-k", "70", "--json"};
  const auto error_of = [&](const Outcome& outcome) {
    CHECK(outcome.code == 0);
    return Json::parse(outcome.out)["max_abs_error"].get<double>();
  };
  const double of_default = error_of(run_fmha(machine, capped));
  CHECK(error_of(run_fmha(machine, capped, {"--softcap-value", "30"})) == of_default);
  CHECK(error_of(run_fmha(machine, capped, {"--softcap-value", "0.5"})) != of_default);
  CHECK(run_fmha(machine, capped, {"--softcap-value", "0"}).err == "tessera: --softcap-value = 0: must be positive\n");
  CHECK(run_fmha(machine, capped, {"--softcap-value=-3"}).code == 2);
  CHECK(run_fmha(machine, capped, {"--softcap-value", "nan"}).err ==
        "tessera: --softcap-value = nan: must be a number that fp32 holds\n");
  CHECK(run_fmha(machine, {"--softcap-value", "5"}).err ==
        "tessera: --softcap-value: this kernel caps no scores: give --softcap tanh too\n");
}

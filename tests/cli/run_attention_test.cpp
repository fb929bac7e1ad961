// `run` of attention on tcgen05, and of keys in two pools on sm_90a: that what it feeds and what it poisons shows the
// faults that only such inputs show.
#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "base/npy.h"
#include "tests/cli/machine.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {

Outcome run(Machine& machine, std::vector<std::string> flags, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"run", "fmha", "--device", "emulator", "--head-dim", "64"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), more.begin(), more.end());
  if (std::find(words.begin(), words.end(), "--arch") == words.end()) words.insert(words.end(), {"--arch", "sm_100a"});
  return machine.terminal.run(words);
}

}  // namespace

TEST_CASE("run: scores that rise from block to block show a fault of the rescaling, ordinary ones do not") {
  Machine machine;
  if (!machine.compiler) return;
  const auto fault = templates_with_fault(machine, "fmha_tcgen05/softmax.cuh", "    sum *= factor;\n", "");
  const std::vector<std::string> sizes{"--seqlen-q", "100", "--seqlen-k", "600", "--heads-q", "1"};
  CHECK(run(machine, sizes, {"--inputs", "rising", "--schedule", "all"}).code == 0);
  std::vector<std::string> faulty = fault;
  faulty.insert(faulty.end(), sizes.begin(), sizes.end());
  CHECK(run(machine, faulty, {"--inputs", "normal"}).code == 0);
  CHECK(run(machine, faulty).code == 1);
  CHECK(run(machine, faulty, {"--inputs", "rising"}).code == 1);
  const std::vector<std::string> pools{"--kv-pools", "sparse_window", "--heads-q", "16", "--inputs", "rising"};
  CHECK(run(machine, pools).code == 0);
  CHECK(run(machine, fault, pools).code == 1);
  CHECK(machine.terminal.run({"run", "gemm", "--inputs", "rising"}).err == "tessera: --inputs rising: is for fmha\n");
}

TEST_CASE("run: behind valid lengths lie NaNs, so that a kernel which reads them is wrong") {
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> used{"--seqused", "qk", "--batch", "3", "--seqlen-q", "90", "--seqlen-k", "300"};
  CHECK(run(machine, used).code == 0);
  const auto fault = templates_with_fault(machine, "fmha_tcgen05/key_blocks.cuh",
                                          "origin(!ends_with_last_key(C.facts) ? 0", "origin(true ? 0");
  CHECK(run(machine, fault, used).code == 1);
  const std::vector<std::string> pools{"--kv-pools", "sparse_window", "--heads-q", "16", "--batch", "3"};
  CHECK(run(machine, pools).code == 0);
  const auto of_pools = templates_with_fault(
      machine, "fmha_tcgen05/pools.cuh", "-length : end - (end + C.tile_n - 1) / C.tile_n * C.tile_n)", "-length : 0)");
  CHECK(run(machine, of_pools, pools).code == 1);
}

TEST_CASE("run: on sm_90a keys that a query does not list, or that lie behind its window, are wrong") {
  Machine machine;
  if (!machine.compiler) return;
  const auto code_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags{"--arch",    "sm_90a", "--mask",  "causal", "--kv-pools", "sparse_window",
                                   "--heads-q", "16",     "--batch", "2",      "--topk",     "70"};
    flags.insert(flags.end(), more.begin(), more.end());
    return run(machine, flags).code;
  };
  CHECK(code_of({}) == 0);
  const auto missing = templates_with_fault(machine, "fmha/pools.cuh", "bits[i] = words[i] >>", "bits[i] = ~0u >>");
  CHECK(code_of(missing) == 1);
  const auto of_last_word =
      templates_with_fault(machine, "fmha/pools.cuh", "is_missing = is_missing || words[i]", "is_missing = words[i]");
  CHECK(code_of(of_last_word) == 1);
  const auto window = templates_with_fault(machine, "attention/pools.cuh", "C.facts.mask == Mask::causal ?", "false ?");
  CHECK(code_of(window) == 1);
  const auto row_beyond =
      templates_with_fault(machine, "attention/pools.cuh", "row < static_cast<unsigned>(p.seqlen_k) ?", "true ?");
  CHECK(code_of(row_beyond) == 1);
}

TEST_CASE("run: a sink that is forgotten, another head's, or in lse, is wrong") {
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> whole{"--sink", "per_head", "--heads-q", "4", "--seqlen-q", "9", "--seqlen-k", "300"};
  std::vector<std::string> split = whole;
  split.insert(split.end(), {"--split-kv", "on", "--num-splits", "3"});
  CHECK(run(machine, whole).code == 0);
  CHECK(run(machine, split).code == 0);
  const auto fails = [&](const std::string& file, std::string_view from, std::string_view to,
                         const std::vector<std::string>& flags) {
    if (testing::takes_next_case(6))
      CHECK(run(machine, templates_with_fault(machine, file, from, to), flags).code == 1);
  };
  fails("attention/sink.cuh", "return ptx::ex2(", "return 0 * ptx::ex2(", whole);
  fails("attention/sink.cuh", "return ptx::ex2(", "return 0 * ptx::ex2(", split);
  fails("attention/merge.cuh", "ptx::lg2(sum)", "ptx::lg2(whole)", split);
  fails("attention/merge.cuh", "static_cast<int>(head)}", "0}", split);
  fails("fmha_tcgen05/softmax.cuh", "ptx::lg2(sum)", "ptx::lg2(whole)", whole);
}

TEST_CASE("run: sinks of any size from a file") {
  Machine machine;
  if (!machine.compiler) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> sinks{kInfinity, -kInfinity, 3e38F, -3e38F};
  const std::string path = (machine.terminal.folder.path / "sink.npy").string();
  const auto bytes = std::as_bytes(std::span(sinks));
  write_npy(path, {"<f4", {4}, {bytes.begin(), bytes.end()}});
  for (const char* const split : {"off", "on"})
    CHECK(run(machine,
              {"--sink", "per_head", "--heads-q", "4", "--seqlen-q", "3", "--seqlen-k", "300", "--split-kv", split},
              {"--input", "sink=" + path})
              .code == 0);
}

TEST_CASE("run: no sequence at all, beside lengths and lists") {
  Machine machine;
  if (!machine.compiler) return;
  CHECK(run(machine, {"--seqused", "k", "--batch", "0"}).code == 0);
  CHECK(run(machine, {"--seqused", "qk", "--batch", "0"}).code == 0);
  CHECK(run(machine, {"--kv-pools", "sparse_window", "--heads-q", "16", "--batch", "0"}).code == 0);
}

TEST_CASE("run: a part of split keys that nobody wrote is no zero, and all steps' instructions count") {
  Machine machine;
  if (!machine.compiler) return;
  const std::vector<std::string> split{"--split-kv", "on",         "--num-splits", "4",      "--seqlen-q",
                                       "5",          "--seqlen-k", "700",          "--mask", "causal"};
  machine.terminal.refuses_hazards = false;
  const auto fault = templates_with_fault(machine, "fmha_tcgen05/softmax.cuh", "      sums[0] = reference;\n",
                                          "      if (tile.split == 3) return;\n      sums[0] = reference;\n");
  const Outcome unwritten = run(machine, fault, split);
  CHECK(unwritten.code == 1);
  CHECK(unwritten.out.find("hazard: global-uninitialised in ") != std::string::npos);
  // One that sees no key, of many: zeros for its sums would do no harm.
  const auto of_empty = templates_with_fault(machine, "fmha_tcgen05/softmax.cuh", "      sums[0] = reference;\n",
                                             "      if (sum == 0.0f) return;\n      sums[0] = reference;\n");
  CHECK(run(machine, of_empty, {"--split-kv", "on", "--num-splits", "9", "--seqlen-k", "300"}).code == 1);

  machine.terminal.refuses_hazards = true;
  const Outcome outcome = run(machine, split, {"--stats", "--json"});
  REQUIRE(outcome.code == 0);
  const Json json = Json::parse(outcome.out);
  // Retries of waits count in the first.
  CHECK(json["schedules"][0]["warp_instructions"] >= json["statistics"]["warp_instructions"]);
}

TEST_CASE("run: fp32 files are rounded to the 16-bit types of attention, other types are refused") {
  Machine machine;
  if (!machine.compiler) return;
  const auto path = [&](const char* name) { return (machine.terminal.folder.path / name).string(); };
  constexpr std::size_t kCount = 3 * 64;
  std::vector<float> reals(kCount);
  std::vector<std::uint16_t> bits(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    reals[i] = i % 2 == 0 ? 1.001F : -2.99F;  // the nearest of bf16: 1 and -2.984375
    bits[i] = i % 2 == 0 ? 0x3F80 : 0xC03F;
  }
  const auto write = [&](const char* name, const char* descr, const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    write_npy(path(name), {descr, {1, 3, 1, 64}, {bytes.begin(), bytes.end()}});
    return "q=" + path(name);
  };
  const std::vector<std::string> sizes{"--heads-q", "1", "--seqlen-q", "3", "--seqlen-k", "40"};
  const auto saved = [&](const std::string& q, const char* name) {
    CHECK(run(machine, sizes, {"--input", q, "--save", "o=" + path(name)}).code == 0);
    return read_text(path(name));
  };
  CHECK(saved(write("f4.npy", "<f4", reals), "a.npy") == saved(write("u2.npy", "<u2", bits), "b.npy"));
  const std::string wide = write("f8.npy", "<f8", std::vector<double>(kCount, 1));
  CHECK(run(machine, sizes, {"--input", wide}).err.find("holds <f8, q is bf16: <u2 expected") != std::string::npos);
}

/// "map {coordinates}" of each CTA's instructions whose names begin so, in a trace; of several lanes the first.
std::multimap<std::string, std::string> boxes_of(const std::string& trace, const std::string& instruction) {
  std::multimap<std::string, std::string> found;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(" " + instruction), end = line.find('}');
    if (at == std::string::npos || end == std::string::npos) continue;
    std::string box = line.substr(line.rfind("[0x300", end), end - line.rfind("[0x300", end));
    box.erase(std::remove(box.begin(), box.end(), '*'), box.end());
    found.emplace(line.substr(0, line.find(' ')), box);
  }
  return found;
}

TEST_CASE("run: decode asks the L2 ahead for boxes that the same CTA loads, whatever the lengths are") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string file = (machine.terminal.folder.path / "trace").string();
  for (const char* const split : {"dealt", "on"}) {
    CAPTURE(split);
    CHECK(run(machine, {"--arch",     "sm_90a",  "--kv-layout", "paged",     "--page-size", "64",         "--mask",
                        "causal",     "--batch", "5",           "--heads-q", "8",           "--heads-kv", "2",
                        "--seqlen-q", "1",       "--seqlen-k",  "1200",      "--split-kv",  split,        "--lengths",
                        "random",     "--sms",   "24",          "--trace",   file})
              .code == 0);
    const std::string trace = read_text(file);
    const auto asked = boxes_of(trace, "cp.async.bulk.prefetch.tensor"),
               loaded = boxes_of(trace, "cp.async.bulk.tensor");
    std::size_t ctas = 0;
    for (auto of_cta = asked.begin(); of_cta != asked.end(); of_cta = asked.upper_bound(of_cta->first)) ++ctas;
    CHECK(ctas >= 24);
    for (const auto& [cta, box] : asked) {
      const auto [first, last] = loaded.equal_range(cta);
      const bool is_loaded = std::any_of(first, last, [&](const auto& load) { return load.second == box; });
      CHECK_MESSAGE(is_loaded, cta, " ", box);
    }
  }
}

TEST_CASE("run: CTAs side by side have the same pages' keys, each those of its head") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string file = (machine.terminal.folder.path / "trace").string();
  constexpr std::size_t kOfHead = 4;  // CTAs
  CHECK(run(machine, {"--arch",     "sm_90a",  "--kv-layout", "paged",     "--page-size", "64",         "--mask",
                      "causal",     "--batch", "5",           "--heads-q", "8",           "--heads-kv", "2",
                      "--seqlen-q", "1",       "--seqlen-k",  "1200",      "--split-kv",  "dealt",      "--lengths",
                      "random",     "--sms",   "4",           "--trace",   file})
            .code == 0);
  std::map<std::string, std::map<std::string, std::vector<std::string>>> pages;  // of each head and CTA, in their order
  for (const auto& [cta, box] : boxes_of(read_text(file), "cp.async.bulk.tensor.5d")) {
    std::istringstream words(box.substr(box.find('{') + 1));
    std::vector<std::string> coordinates;
    for (std::string word; std::getline(words, word, ',');) coordinates.push_back(word);
    if (coordinates.size() != 5 || box.find("[0x30000000080]") == std::string::npos) continue;  // the map of K
    pages[coordinates[3]][cta].push_back(coordinates[4]);
  }
  REQUIRE(pages.size() == 2);
  const auto& first = pages.begin()->second;
  const auto& second = pages.rbegin()->second;
  REQUIRE(first.size() == kOfHead);
  REQUIRE(second.size() == kOfHead);
  for (std::size_t i = 0; i < kOfHead; ++i) {
    const auto of = [i](std::size_t before) { return "cta=" + std::to_string(before + i) + ",0,0"; };
    CHECK(first.at(of(0)) == second.at(of(kOfHead)));
  }
}

// The emulator runs launches one after the other: what is in memory before the wait is what will be there. So what was
// found is spoilt.
TEST_CASE("run: decode looks again at what it found while the launch in front still ran") {
  Machine machine;
  if (!machine.compiler) return;
  const auto run_split = [&](std::vector<std::string> fault, const std::string& split, const std::string& kv_dtype) {
    return run(machine, std::move(fault),
               {"--arch",     "sm_90a", "--strict",   "--races",    "--kv-layout", "paged",      "--page-size",
                "16",         "--mask", "causal",     "--batch",    "5",           "--heads-q",  "8",
                "--heads-kv", "2",      "--seqlen-q", "1",          "--lengths",   "random",     "--seqlen-k",
                "700",        "--sms",  "8",          "--split-kv", split,         "--kv-dtype", kv_dtype})
        .code;
  };
  const std::string page = "known.guess = page_of(key);", other_page = "known.guess = page_of(key) ^ 1;";
  const std::string length = "p.seqused_k + sequence), 0), p.seqlen_k);";
  for (const std::string split : {"dealt", "on"}) {
    CAPTURE(split);
    CHECK(run_split(templates_with_fault(machine, "fmha/keys_ahead.cuh", page, other_page), split, "bf16") == 0);
    CHECK(run_split(templates_with_fault(machine, "fmha/keys_ahead.cuh", length,
                                         "p.seqused_k + sequence) - 70, 0), p.seqlen_k);"),
                    split, "e4m3") == 0);
    CHECK(run_split(templates_with_fault(machine, "fmha/keys_ahead.cuh", length,
                                         "p.seqused_k + sequence) * 2, 0), p.seqlen_k);"),
                    split, "bf16") == 0);
    const auto unseen = templates_with_fault(machine, "fmha/keys_ahead.cuh", page, other_page);
    add_fault(unseen.back(), "fmha/paged_load.cuh", "is_block && page == known.guess", "is_block");
    CHECK(run_split(unseen, split, "bf16") == 1);
  }
}

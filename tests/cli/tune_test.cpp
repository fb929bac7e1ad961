// tessera tune on a device that records: its kernels copy, and take the time that the test says.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "generator/selectors.h"
#include "generator/tuning.h"
#include "tessera/error.h"
#include "tessera/internal/tuning.h"
#include "tessera/plan.h"
#include "tests/cli/command.h"
#include "tests/support/fake_device.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

/// A terminal with a GPU for copy2d of a 96 x 64 matrix of f32.
struct Bench {
  Terminal terminal;
  std::vector<std::string> kernels;  ///< of all candidates, the planner's first
  std::string fastest;
  bool is_right = true;
  std::string output = (terminal.folder.path / "tuned.json").string();

  Bench() {
    for (const Problem& problem : pinned_candidates(Problem(Copy2d{}))) kernels.push_back(make_plan(problem).kernel);
    fastest = kernels.back();
    terminal.host.open_gpu = [this](std::string&) {
      auto device = std::make_unique<FakeDevice>();
      FakeDevice* const fake = device.get();
      for (const std::string& kernel : kernels) fake->entries[kernel] = {128, 128, 4, 4, 4, 4};
      fake->elapsed_time = [this, fake] { return fake->launches.back().entry == fastest ? 0.25 : 0.5; };
      fake->on_launch = [this, fake] {
        const auto map = [&](std::size_t back) { return fake->encoded[fake->encoded.size() - back]; };
        const ResolvedTensorMap from = map(2), to = map(1);
        std::vector<std::byte> bytes(static_cast<std::size_t>(from.dims[0] * from.dims[1] * 4));
        fake->copy_to_host(bytes.data(), from.address, bytes.size(), {});
        if (!is_right && fake->launches.back().entry == fastest) bytes[5] ^= std::byte{1};
        fake->copy_to_device(to.address, bytes.data(), bytes.size(), {});
      };
      return device;
    };
  }
  Outcome tune(std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"tune", "copy2d", "-o", output, "--repeat", "3", "--jobs", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return terminal.run(all);
  }
};

TEST_CASE("tuning: every legal candidate is a Problem that pins it, the planner's first") {
  for (const Problem& problem :
       {Problem(Copy2d{}), Problem(Fmha{.head_dim = 64}), Problem(Gemm{.m = 128, .n = 4096, .k = 7168}),
        Problem(Fmha{.kv_layout = KvLayout::paged, .page_size = 64, .kv_format = KvFormat::nvfp4}),
        Problem(Fmha{.arch = Arch::parse("sm_100a"),
        .kv_layout = KvLayout::paged,
        .page_size = 64,
        .kv_format = KvFormat::mxfp8})}) {
    const Plan plan = make_plan(problem);
    const std::vector<Problem> pinned = pinned_candidates(problem);
    const auto legal =
        std::count_if(plan.rejected.begin(), plan.rejected.end(), [](const Rejection& r) { return r.is_legal; });
    CHECK(pinned.size() == static_cast<std::size_t>(legal) + 1);
    CHECK(make_plan(pinned.front()).kernel == plan.kernel);
    std::vector<std::string> names;
    for (const Problem& one : pinned) names.push_back(make_plan(one).kernel);
    std::sort(names.begin(), names.end());
    CHECK(std::unique(names.begin(), names.end()) == names.end());
  }
}

TEST_CASE("tuning: candidates come as the model has them") {
  std::vector<double> modelled;
  for (const Problem& one : pinned_candidates(Problem(Gemm{.m = 128, .n = 4096, .k = 7168}))) {
    const std::string reason = make_plan(one).reason, words = "modelled at ";
    const std::size_t begin = reason.find(words);
    REQUIRE(begin != std::string::npos);
    modelled.push_back(std::stod(reason.substr(begin + words.size())));
  }
  REQUIRE(modelled.size() > 2);
  CHECK(modelled.front() < modelled.back());
  CHECK(std::is_sorted(modelled.begin(), modelled.end()));
}

TEST_CASE("tune: the fastest candidate with a right result is written, and taken by --tuning") {
  Bench bench;
  REQUIRE(bench.kernels.size() >= 3);
  const Outcome outcome = bench.tune({"--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json report = Json::parse(outcome.out);
  CHECK(report["device"] == "Fake GPU");
  REQUIRE(report["choices"].size() == 1);
  CHECK(report["choices"][0]["kernel"] == bench.fastest);
  CHECK(report["choices"][0]["time_us"] == 250);
  CHECK(report["choices"][0]["default_us"] == 500);
  CHECK(report["choices"][0]["candidates"] == bench.kernels.size());
  CHECK(report["choices"][0]["times_us"][bench.fastest] == 250);
  CHECK(report["choices"][0]["times_us"][bench.kernels.front()] == 500);  // far from the best, but the planner's

  const Json plain = Json::parse(bench.terminal.run({"plan", "copy2d", "--json"}).out);
  const Json tuned = Json::parse(bench.terminal.run({"plan", "copy2d", "--json", "--tuning", bench.output}).out);
  CHECK(plain["kernel"] == bench.kernels.front());
  CHECK(tuned["kernel"] == bench.fastest);
  // What the file does not know stays the planner's, and check says how many it answered for.
  const Outcome check = bench.terminal.run({"check", "copy2d", "--dtype", "f32,u8", "--tuning", bench.output});
  CHECK(check.out.find("1 answered for the choices of " + bench.output +
                       " (measured on Fake GPU), 1 for the planner's") != std::string::npos);
  const Json counted =
      Json::parse(bench.terminal.run({"check", "copy2d", "--dtype", "f32,u8", "--tuning", bench.output, "--json"}).out);
  CHECK(counted["tuning"]["problems"] == 1);
  const Json rejected =
      Json::parse(bench.terminal.run({"check", "copy2d", "--rank", "9,2", "--tuning", bench.output, "--json"}).out);
  CHECK(rejected["rejected"] == 1);
  CHECK(rejected["tuning"]["problems"] == 1);
  // The file is read as it was written.
  const Tuning read = Tuning::read(bench.output);
  CHECK(read.device == "Fake GPU");
  Problem problem{Copy2d{}};
  CHECK(read.apply(problem));
  CHECK(make_plan(problem).kernel == bench.fastest);
  Problem other{Copy2d{.dtype = DType::u8}};
  CHECK_FALSE(read.apply(other));
  CHECK(other == Problem(Copy2d{.dtype = DType::u8}));
}

TEST_CASE("tune --dry-run: the candidates and their pins, without a GPU, a compiler or a file") {
  Bench bench;
  bench.terminal.host.open_gpu = nullptr;
  const Outcome outcome = bench.tune({"--dry-run", "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json candidates = Json::parse(outcome.out)["problems"][0]["candidates"];
  REQUIRE(candidates.size() == bench.kernels.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    CHECK(candidates[i]["kernel"] == bench.kernels[i]);
    std::vector<std::string> plan = {"plan", "copy2d", "--json"};
    std::string line = "  " + bench.kernels[i] + " ";
    for (const auto& [key, text] : candidates[i]["pins"].items()) {
      std::string flag = "--" + key;
      std::replace(flag.begin(), flag.end(), '_', '-');
      plan.insert(plan.end(), {flag, text.get<std::string>()});
      line += " " + flag + " " + text.get<std::string>();
    }
    CHECK(Json::parse(bench.terminal.run(plan).out)["kernel"] == bench.kernels[i]);
    CHECK(bench.tune({"--dry-run"}).out.find(line + "\n") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(bench.output));
  CHECK(bench.terminal.run({"tune", "fmha", "--head-dim", "100,104", "--dry-run", "--quiet"}).code == 3);
}

TEST_CASE("tune: a candidate with a wrong result is not taken, however fast") {
  Bench bench;
  bench.is_right = false;
  const Outcome outcome = bench.tune({"--json"});
  CHECK(outcome.code == 1);
  CHECK(outcome.err.find(bench.fastest + " is wrong and not taken") != std::string::npos);
  CHECK(Json::parse(outcome.out)["choices"][0]["kernel"] != bench.fastest);
}

TEST_CASE("tune: refuses what cannot be measured, and files of others") {
  Bench bench;
  CHECK(bench.tune({"--device", "emulator"}).err ==
        "tessera: --device emulator: how long that takes here means nothing; --time GPU predicts for a GPU\n");
  CHECK(bench.tune({"--device", "cpu"}).err == "tessera: --device = cpu: must be gpu or emulator\n");
  CHECK(bench.tune({"--time", "b200"}).err == "tessera: --time: is for --device emulator\n");
  CHECK(bench.tune({"--device", "emulator", "--time", "b200"}).err.find("B200 runs sm_100a, and the problem is for ") !=
        std::string::npos);
  CHECK(bench.terminal.run({"tune"}).code == 2);
  const Outcome none =
      bench.terminal.run({"tune", "fmha", "--head-dim", "100,104", "-o", bench.output, "--jobs", "1", "--quiet"});
  CHECK(none.code == 3);
  CHECK_MESSAGE(none.err.find("2 problems are rejected, the first: fmha has no kernel for head_dim 100") == 0,
                none.err);
  const std::string old = bench.terminal.write("old.json", R"({"version": 1, "device": "Another GPU", "choices": []})");
  bench.output = old;
  CHECK(bench.tune().err ==
        "tessera: " + old + ": holds choices of Another GPU, this is Fake GPU: take another file\n");
  for (const char* text :
       {R"({"version": 2, "device": "x", "choices": []})", R"({"version": 1, "choices": []})", "[]",
        R"({"version": 1, "device": "x", "choices": [{"problem": {"op": "copy2d"}, "pins": {"tile": "1"},
                               "kernel": "k", "time_us": 1, "default_us": 1, "candidates": 1}]})"})
    CHECK(bench.terminal.run({"plan", "copy2d", "--tuning", bench.terminal.write("bad.json", text)}).code == 2);
  CHECK(bench.terminal.run({"plan", "copy2d", "--tuning", "/nowhere.json"}).code == 5);
  bench.terminal.host.open_gpu = [](std::string&) {
    auto device = std::make_unique<FakeDevice>();
    device->info_.name = "Paper GPU";
    device->info_.is_emulated = true;
    return device;
  };
  bench.output = (bench.terminal.folder.path / "new.json").string();
  const Outcome emulated = bench.tune();
  CHECK(emulated.code == 5);
  CHECK(emulated.err == "tessera: Paper GPU is emulated: its times mean nothing\n");
  bench.terminal.host.open_gpu = nullptr;
  CHECK(bench.tune().code == 5);
}

}  // namespace
}  // namespace tessera::cli

// `run` in the emulator: the default where there is no GPU, every schedule, findings with their places, exit codes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "base/npy.h"
#include "cli/run_operator.h"
#include "generator/selectors.h"
#include "tessera/error.h"
#include "tests/cli/machine.h"
#include "tests/support/fake_device.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

TEST_CASE("run has a reference for every operator of the library") {
  for (const std::string_view op : operator_names()) CHECK(make_run_operator(op) != nullptr);
  CHECK_THROWS_WITH_AS(make_run_operator("toy"), "run has no reference for toy", Error);
}

TEST_CASE("run: without a GPU the emulator runs the kernel, and says so") {
  Machine machine;
  if (!machine.compiler) return;
  const Outcome text = machine.terminal.run({"run", "fmha", "--head-dim", "64", "--seqlen-q", "70", "--heads-q", "1"});
  CAPTURE(text.out);
  CHECK(text.code == 0);
  CHECK(text.out.starts_with("tessera_fmha_sm90a_d64_"));
  CHECK(text.out.find(" on tessera emulator (sm_90a)\n  pass: relative error ") != std::string::npos);
  CHECK(text.out.find("70 of 70 rows") != std::string::npos);
  CHECK(text.out.find("  schedule fair, seed 1: ") != std::string::npos);
  CHECK(text.err.find("no GPU here (a test without a GPU): in the emulator") != std::string::npos);
}

TEST_CASE("run: a softmax scale of 0 weighs all keys that a query sees alike") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string saved = (machine.terminal.folder.path / "lse.npy").string();
  const Outcome outcome =
      machine.terminal.run({"run", "fmha", "--head-dim", "64", "--mask", "causal", "--heads-q", "1", "--seqlen-q", "70",
                            "--softmax-scale", "0", "--save", "lse=" + saved, "--json"});
  CAPTURE(outcome.out);
  CHECK(outcome.code == 0);
  CHECK(Json::parse(outcome.out)["pass"] == true);
  const NpyArray lse = read_npy(saved);
  REQUIRE(lse.data.size() == 70 * sizeof(float));
  for (std::size_t row = 0; row < 70; ++row) {
    float found = 0;
    std::memcpy(&found, lse.data.data() + row * sizeof found, sizeof found);
    CHECK(found == doctest::Approx(std::log(static_cast<double>(row + 1))).epsilon(1e-5));
  }
}

TEST_CASE("run: every schedule gives the same bits, and JSON says how it ran") {
  Machine machine;
  if (!machine.compiler) return;
  const Outcome outcome = machine.terminal.run(
      {"run", "copy2d", "--shape", "70,100", "--device", "emulator", "--schedule", "all", "--seed", "3", "--json"});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  const Json json = Json::parse(outcome.out);
  CHECK(json["pass"] == true);
  CHECK(json["device"] == "tessera emulator (sm_90a)");
  CHECK(json["time_us"].is_null());
  CHECK(json["rows_checked"] == 70);
  CHECK(json["findings"].empty());
  REQUIRE(json["schedules"].size() == 6);
  CHECK(json["schedules"][3]["schedule"] == "adversarial");
  CHECK(json["schedules"][3]["seed"] == 3);
  CHECK(json["schedules"][3]["warp_instructions"] > 100);
}

TEST_CASE("run: each problem of a product has an emulator of its own, also where they share a kernel") {
  Machine machine;
  if (!machine.compiler) return;
  const Outcome outcome = machine.terminal.run({"run", "fmha", "--head-dim", "64", "--tile-m", "64", "--tile-n", "64",
                                                "--heads-q", "1", "--seqlen-q", "70,90,40", "--json"});
  CHECK(outcome.code == 0);
  const Json json = Json::parse(outcome.out);
  REQUIRE(json["runs"].size() == 3);
  CHECK(json["runs"][0]["kernel"] == json["runs"][2]["kernel"]);
  CHECK(json["runs"][2]["rows_checked"] == 40);
}

TEST_CASE("run: a failure finding fails the call, with its place") {
  // The copy waits for its barrier forever when fewer bytes arrive than were announced.
  Machine machine("cp.async.bulk.tensor.2d.shared", "// cp.async.bulk.tensor.2d.shared");
  if (!machine.compiler) return;
  const std::vector<std::string> arguments = {"run", "copy2d", "--shape", "70,100", "--device", "emulator"};
  Outcome outcome = machine.terminal.run(arguments);
  CAPTURE(outcome.out);
  CHECK(machine.compiler->edits == 1);
  CHECK(outcome.code == 1);
  CHECK(outcome.out.find("FAIL: the launch was stopped") != std::string::npos);
  CHECK(outcome.out.find("failure: expect-tx-mismatch in tessera_copy2d_sm90a_r2_f32_32x128_sw128, PTX line ") !=
        std::string::npos);
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  outcome = machine.terminal.run(with_json);
  CHECK(outcome.code == 1);
  const Json json = Json::parse(outcome.out);
  CHECK(json["pass"] == false);
  CHECK(json["rel_error"].is_null());
  REQUIRE(json["findings"].size() == 1);
  CHECK(json["findings"][0]["name"] == "expect-tx-mismatch");
  CHECK(json["findings"][0]["is_failure"] == true);
  CHECK(json["findings"][0]["ptx_line"] > 0);
}

TEST_CASE("run: a hazard is counted in the first line, and fails the call with --strict") {
  // The CTA exits before its store has read the tile.
  Machine machine("cp.async.bulk.wait_group.read 0;", "// cp.async.bulk.wait_group.read 0;");
  if (!machine.compiler) return;
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"run", "copy2d", "--shape", "70,100", "--device", "emulator"});
    return machine.terminal.run(flags);
  };
  const Outcome passed = run({}), failed = run({"--strict"});
  CAPTURE(passed.out);
  CHECK(machine.compiler->edits == 1);
  CHECK(passed.code == 0);
  CHECK(passed.out.find("\n  pass, 1 hazard: relative error 0 ") != std::string::npos);
  CHECK(passed.out.find("hazard: copy-outlives-cta in ") != std::string::npos);
  CHECK(failed.code == 1);
  CHECK(failed.out.find("\n  FAIL, 1 hazard: relative error 0 ") != std::string::npos);
  const Outcome as_json = run({"--strict", "--json"});
  CHECK(as_json.code == 1);
  const Json json = Json::parse(as_json.out);
  CHECK(json["pass"] == false);
  CHECK(json["hazards"] == 1);
  CHECK(Json::parse(run({"--json"}).out)["pass"] == true);
}

TEST_CASE("run: an access one byte beyond a buffer's extent is a failure with its place") {
  for (const std::string form : {"tile", "plain"}) {
    Machine machine;
    if (!machine.compiler) return;
    // Bytes of plain scales are read towards tiles, and written from them: each one byte too far.
    const std::string file = "convert_scales/kernel.cuh", right = "+ plain + i";
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / file);
    for (std::size_t at = text.find(right); at != std::string::npos; at = text.find(right, at + right.size()))
      text.replace(at, right.size(), "+ plain + 1 + i");
    std::filesystem::create_directories(machine.terminal.folder.path / "templates" / "convert_scales");
    machine.terminal.write("templates/" + file, text);
    const Outcome outcome = machine.terminal.run({"run", "convert_scales", "--to", form, "--l", "1", "--rows", "128",
                                                  "--blocks", "4", "--device", "emulator", "--templates",
                                                  (machine.terminal.folder.path / "templates").string()});
    CAPTURE(outcome.out);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(outcome.out.find("FAIL: the launch was stopped\n  failure: global-out-of-bounds in ") != std::string::npos);
    CHECK(outcome.out.find((form == "tile" ? "read" : "write") +
                           std::string(" of 1 bytes: 0 bytes past the end of an allocation of 512 bytes at ")) !=
          std::string::npos);
  }
}

TEST_CASE("run: budgets end a launch, and bad emulator flags are refused") {
  Machine machine;
  if (!machine.compiler) return;
  const Outcome outcome =
      machine.terminal.run({"run", "copy2d", "--shape", "700,1000", "--max-instructions", "1000", "--json"});
  CHECK(outcome.code == 1);
  CHECK(Json::parse(outcome.out)["findings"][0]["name"] == "instruction-budget");
  CHECK(outcome.err.find("failed: tessera_copy2d_sm90a_r2_f32_32x128_sw128: failure: instruction-budget") !=
        std::string::npos);
  CHECK(machine.terminal.run({"run", "copy2d", "--schedule", "nice"}).err ==
        "tessera: --schedule = nice: must be one of fair, eager, lazy, adversarial, split, weak, all\n");
  CHECK(machine.terminal.run({"run", "copy2d", "--max-instructions", "0"}).code == 2);
}

TEST_CASE("run: a GPU that does not run the target's code leaves it to the emulator") {
  Machine machine;
  if (!machine.compiler) return;
  machine.terminal.host.open_gpu = [](std::string&) {
    auto device = std::make_unique<FakeDevice>();
    device->info_.compute_major = 8;
    return device;
  };
  const Outcome outcome = machine.terminal.run({"run", "copy2d", "--shape", "70,100"});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find("Fake GPU does not run sm_90a code: in the emulator") != std::string::npos);
  CHECK(machine.terminal.run({"run", "copy2d", "--shape", "70,100", "--device", "gpu"}).code == 5);
  CHECK(machine.terminal.run({"run", "copy2d", "--shape", "70,100", "--device", "gpu", "--stats"}).err ==
        "tessera: --stats, --trace, --timeline and --time watch the emulator: give --device emulator too\n");
}

TEST_CASE("run: the likely cause of a planted fault is named") {
  Machine machine;
  if (!machine.compiler) return;
  // The scale id of the instruction descriptor stays that of the first block.
  std::vector<std::string> words{"run", "gemm", "--arch", "sm_100a", "--dtype", "mxfp8_e4m3", "--m",
                                 "70",  "--n",  "64",     "--k",     "256",     "--device",   "emulator"};
  const auto fault =
      templates_with_fault(machine, "spec/gemm_tcgen05.h", "chunk % 2 * 2 : chunk;", "chunk % 2 * 2 : 0;");
  words.insert(words.end(), fault.begin(), fault.end());
  const Outcome outcome = machine.terminal.run(words);
  CHECK(outcome.code == 1);
  CAPTURE(outcome.out);
  CHECK(outcome.out.find(
            "likely cause: every block of a and b takes the scale of the first of its four: the scale id of "
            "the instruction descriptor is 0 (of mma.sync: the byte id) (gives 32 of 32") != std::string::npos);
}

TEST_CASE("run: groups that overlap are refused, those out of range are cut to it") {
  Machine machine;
  if (!machine.compiler) return;
  const auto run = [&](const std::array<std::int32_t, 4>& offsets) {
    const std::string file = (machine.terminal.folder.path / "groups.npy").string();
    const std::span<const std::byte> bytes = std::as_bytes(std::span(offsets));
    write_npy(file, {"<i4", {4}, {bytes.begin(), bytes.end()}});
    return machine.terminal.run({"run",        "gemm", "--arch",   "sm_100a",  "--dtype", "nvfp4",         "--grouping",
                                 "contiguous", "--m",  "70",       "--n",      "64",      "--k",           "64",
                                 "--l",        "3",    "--device", "emulator", "--input", "groups=" + file});
  };
  const Outcome overlapping = run({0, 40, 20, 60});
  CHECK(overlapping.code == 2);
  CHECK(overlapping.err.find("--input groups: groups[2] = 20 behind groups[1] = 40: offsets of contiguous groups must "
                             "ascend (an empty group ends where it begins)") != std::string::npos);
  CHECK(run({-4, 40, 40, 500}).code == 0);
}

TEST_CASE("run: --pad-rows makes the padding copy that a refusal names") {
  Machine machine;
  if (!machine.compiler) return;
  const auto product = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"run", "gemm", "--arch", "sm_100a", "--m", "40", "--device", "emulator"};
    words.insert(words.end(), more.begin(), more.end());
    return machine.terminal.run(words);
  };
  // 104 bytes a row of a and b.
  const Outcome refused = product({"--dtype", "nvfp4", "--n", "72", "--k", "208"});
  CHECK(refused.code == 2);
  CHECK(refused.err.find(
            "lda must be a multiple of 32 (16 bytes, tensor map): copy a into rows that are padded to that "
            "(cudaMemcpy2DAsync, pad_on_host; --pad-rows); they need not be dense: lda = 208") != std::string::npos);
  const Outcome padded = product({"--dtype", "nvfp4", "--n", "72", "--k", "208", "--pad-rows"});
  CAPTURE(padded.out);
  CHECK(padded.code == 0);
  CHECK(padded.out.find("  pass: ") != std::string::npos);
  // Rows of d lie apart too: 24 bytes of values, then 8 that stay as they were.
  const Outcome result = product({"--dtype", "nvfp4", "--n", "48", "--k", "64", "--d-dtype", "nvfp4", "--pad-rows"});
  CAPTURE(result.out);
  CHECK(result.code == 0);
  const Outcome mixed = product({"--n", "72", "--k", "160", "--dtype", "mxfp8_e4m3", "--b-dtype", "mxfp4"});
  CHECK(mixed.err.find("ldb must be at least k, rounded up to 128") != std::string::npos);
}

TEST_CASE("plan, warm and check judge rows that lie apart as run does") {
  Machine machine;
  if (!machine.compiler) return;
  const auto said = [&](const char* verb, std::vector<std::string> more) {
    std::vector<std::string> words{verb,  "gemm", "--arch", "sm_100a", "--dtype", "nvfp4",
                                   "--m", "40",   "--n",    "72",      "--k",     "208"};
    if (std::string(verb) == "warm") words.emplace_back("--dry-run");
    words.insert(words.end(), more.begin(), more.end());
    return machine.terminal.run(words);
  };
  for (const char* const verb : {"plan", "warm", "check"}) {
    CAPTURE(verb);
    const int found = std::string(verb) == "check" ? 1 : 0;  // judged right, and not in the cache
    CHECK(said(verb, {}).code == 3);
    CHECK(said(verb, {"--pad-rows"}).code == found);
    CHECK(said(verb, {"--size", "lda=224", "--size", "ldb=256"}).code == found);
    CHECK(said(verb, {"--size", "lda=224"}).code == 3);
    CHECK(said(verb, {"--size", "lda"}).err == "tessera: --size lda: must be NAME=N, like --size lda=136\n");
    CHECK(said(verb, {"--size", "lda"}).code == 2);
    const Outcome unknown = said(verb, {"--size", "ldq=224"});
    CHECK(unknown.code == 2);
    CHECK(unknown.out.empty());
    CHECK(unknown.err.starts_with("tessera: gemm has no size ldq: its sizes are m, n, k, l, lda, "));
  }
  CHECK(said("check", {"--pad-rows"}).out.find(" --pad-rows)\n") != std::string::npos);
  CHECK(said("check", {"--size", "lda=224", "--size", "ldb=256"}).out.find(" --size lda=224 --size ldb=256)\n") !=
        std::string::npos);

  // Of several operators one may lack what another has; a name that all of them lack is a slip.
  const std::string list = machine.terminal.write("two.json", R"({"kernels": [{"op": "copy2d"},
    {"op": "gemm", "arch": "sm_100a", "dtype": "nvfp4", "m": 40, "n": 72, "k": 208}]})");
  const auto listed = [&](std::string size) {
    return machine.terminal.run({"warm", list, "--dry-run", "--size", "lda=224", "--size", std::move(size)});
  };
  const Outcome mixed = listed("ldb=256");
  CAPTURE(mixed.out + mixed.err);
  CHECK(mixed.code == 3);
  CHECK((mixed.out + mixed.err).find("1 rejected") != std::string::npos);
  CHECK(listed("lbd=256").code == 2);
}

TEST_CASE("run: a given global scale must be finite and not negative") {
  Machine machine;
  if (!machine.compiler) return;
  const std::string file = (machine.terminal.folder.path / "g.npy").string();
  const auto run = [&](float g, std::vector<std::string> flags) {
    const auto bytes = std::as_bytes(std::span(&g, 1));
    write_npy(file, {"<f4", {1}, {bytes.begin(), bytes.end()}});
    std::vector<std::string> all{"run", "--device", "emulator", "--input", flags.back() + "=" + file};
    all.insert(all.begin() + 1, flags.begin(), flags.end() - 1);
    return machine.terminal.run(all);
  };
  const std::vector<std::string> quantize{"quantize", "--global-scale", "given", "global_scale"};
  CHECK(run(0.7F, quantize).code == 0);
  CHECK(run(0, quantize).code == 0);
  const Outcome outcome = run(-0.7F, quantize);
  CHECK(outcome.code == 2);
  CHECK(outcome.err.ends_with(
      "tessera: global_scale = -0.7: must be finite and not negative, being part of every block's scale: give the "
      "largest magnitude of the tensor / 2,688, or any positive number\n"));
  CHECK(run(std::numeric_limits<float>::infinity(), {"gemv", "b_global_scale"})
            .err.find("tessera: b_global_scale = inf: must be") != std::string::npos);
}

TEST_CASE("run: strides, alpha and beta reach the kernel, and gaps between rows stay as they were") {
  Machine machine;
  if (!machine.compiler) return;
  const auto run = [&](std::vector<std::string> flags) {
    std::vector<std::string> all{"run", flags.front(), "--device", "emulator", "--json"};
    all.insert(all.end(), flags.begin() + 1, flags.end());
    const Outcome outcome = machine.terminal.run(all);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json json = Json::parse(outcome.out);
    CHECK(json["findings"].empty());
    return json["pass"] == true;
  };
  const std::vector<std::string> product{"gemm",    "--m",    "70",     "--n",    "50",     "--k",    "72",
                                         "--l",     "2",      "--c",    "matrix", "--size", "lda=88", "--size",
                                         "ldb=80",  "--size", "ldd=53", "--size", "ldc=60", "--size", "a_stride_l=6200",
                                         "--alpha", "-0.5",   "--beta", "3",      "--races"};
  CHECK(run(product));
  // One b for both matrices.
  CHECK(run({"gemm", "--m", "64", "--n", "64", "--k", "64", "--l", "2", "--size", "b_stride_l=0"}));
  // Heads before tokens, as [batch, heads, seqlen, head_dim], and rows of v that lie further apart.
  CHECK(run({"fmha",
             "--head-dim",
             "64",
             "--heads-q",
             "2",
             "--heads-kv",
             "1",
             "--seqlen-q",
             "70",
             "--seqlen-k",
             "90",
             "--size",
             "q_stride_head=4480",
             "--size",
             "q_stride_seqlen=64",
             "--size",
             "q_stride_batch=8960",
             "--size",
             "o_stride_head=4600",
             "--size",
             "o_stride_seqlen=64",
             "--size",
             "v_stride_seqlen=72"}));
  // Parts of attention with heads before tokens, further apart than they are long.
  CHECK(run({"merge", "--head-dim-v", "64", "--heads-q", "3", "--seqlen-q", "11", "--size", "o_parts_stride_head=72",
             "--size", "lse_parts_stride_head=13", "--size", "o_stride_head=704", "--size", "o_stride_seqlen=64",
             "--size", "o_stride_batch=2120"}));
}

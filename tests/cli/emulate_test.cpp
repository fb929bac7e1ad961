// `emulate`: the example of the documentation, bindings of every kind, verdicts, and what a hostile file gets.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/launch_json.h"
#include "base/npy.h"
#include "cli/element_type.h"
#include "cli/launch_file.h"
#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {

const std::filesystem::path kExample = std::filesystem::path(TESSERA_SOURCE_DIR) / "examples/emulate";
const std::string kPtx = (kExample / "scale.ptx").string();

Json example() { return Json::parse(read_text(kExample / "scale.json")); }

/// The example's launch file, changed, and the call's outcome.
Outcome emulate(Terminal& terminal, const Json& launch, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"emulate", kPtx, "--launch", terminal.write("launch.json", launch.dump())};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return terminal.run(arguments);
}

std::vector<float> floats(const NpyArray& array) {
  std::vector<float> values(array.data.size() / sizeof(float));
  std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

}  // namespace

TEST_CASE("emulate: the example runs under every schedule") {
  Terminal terminal;
  const std::string launch = (kExample / "scale.json").string();
  const Outcome text = terminal.run({"emulate", kPtx, "--launch", launch});
  CAPTURE(text.out);
  CAPTURE(text.err);
  CHECK(text.code == 0);
  CHECK(
      text.out.find("on tessera emulator (sm_90a): pass\n  out: 2,000 elements as expected, largest difference 0\n") !=
      std::string::npos);
  const Outcome outcome =
      terminal.run({"emulate", kPtx, "--launch", launch, "--schedule", "all", "--strict", "--json"});
  CHECK(outcome.code == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["pass"] == true);
  CHECK(json["schedules"].size() == 6);
  CHECK(json["findings"].empty());
  CHECK(json["outputs"][0]["checked"] == 2000);
  CHECK(json["outputs"][0]["bytes_never_written"] == 0);
}

TEST_CASE("emulate: schedules that disagree, and the flags that show it again") {
  Terminal terminal;
  // A lane's store and its neighbour's load, with nothing that makes the two meet.
  const std::string ptx = terminal.write(
      "lanes.ptx",
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry lanes(.param .u64 out)\n{\n"
      ".reg .b32 r<8>;\n.reg .b64 d<4>;\n.shared .align 4 .b8 smem[128];\nld.param.u64 d0, [out];\nmov.u32 r0, "
      "%tid.x;\n"
      "shl.b32 r1, r0, 2;\nmov.u32 r2, smem;\nadd.u32 r3, r2, r1;\nst.shared.b32 [r3], r0;\nxor.b32 r4, r1, 4;\n"
      "add.u32 r4, r4, r2;\nld.shared.b32 r5, [r4];\ncvt.u64.u32 d1, r1;\nadd.u64 d2, d0, d1;\n"
      "st.global.b32 [d2], r5;\nret;\n}\n");
  const std::string launch =
      terminal.write("lanes.json", R"({"launch": {"buffers": {"out": {"dtype": "s32", "shape": [32], "role": "output"}},
                        "steps": [{"grid": 1, "block": 32, "parameters": [{"kind": "pointer", "source": "out"}]}]}})");
  const std::string right = (terminal.folder.path / "right.npy").string();
  REQUIRE(terminal.run({"emulate", ptx, "--launch", launch, "--save", "out=" + right}).code == 0);
  std::map<std::string, int> disagree;
  for (const char* const seed : {"1", "2", "3", "4", "5", "6", "7", "8"}) {
    CAPTURE(std::string(seed));
    const Outcome all = terminal.run({"emulate", ptx, "--launch", launch, "--schedule", "all", "--seed", seed});
    std::string first;  // of those that disagree: it is told
    for (const std::string schedule : {"split", "weak"}) {
      const Outcome again = terminal.run(
          {"emulate", ptx, "--launch", launch, "--schedule", schedule, "--seed", seed, "--expect", "out=" + right});
      if (again.code == 0) continue;
      if (first.empty()) first = schedule;
      ++disagree[schedule];
    }
    CHECK(all.code == (first.empty() ? 0 : 1));
    const std::string told =
        "out: schedule " + first + " gave other bits than fair (again: --schedule " + first + " --seed " + seed + ")";
    if (!first.empty()) CHECK(all.out.find(told) != std::string::npos);
  }
  CHECK(disagree["split"] > 0);
  CHECK(disagree["weak"] > 0);
}

TEST_CASE("emulate: arrays go in and out, sizes and scalars come from flags") {
  Terminal terminal;
  const std::string in = (terminal.folder.path / "in.npy").string(), out = (terminal.folder.path / "out.npy").string();
  std::vector<float> values(33 * 36);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 500.5F;
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  write_npy(in, {"<f4", {33, 36}, {bytes, bytes + values.size() * 4}});
  Json launch = example();
  launch["bindings"].erase("expect");
  const std::vector<std::string> flags = {"--size",      "rows=33", "--size",   "columns=36", "--scalar",
                                          "factor=-0.5", "--bind",  "in=" + in, "--save",     "out=" + out};
  CHECK(emulate(terminal, launch, flags).code == 0);
  const std::vector<float> scaled = floats(read_npy(out));
  REQUIRE(scaled.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(scaled[i] == -0.5F * values[i]);
  std::vector<std::string> with_expectation = flags;
  with_expectation.insert(with_expectation.end(),
                          {"--expect", "out=" + out, "--schedule", "adversarial", "--seed", "5"});
  CHECK(emulate(terminal, launch, with_expectation).code == 0);
  with_expectation[5] = "factor=-2";
  const Outcome wrong = emulate(terminal, launch, with_expectation);
  CHECK(wrong.code == 1);
  CHECK(wrong.out.find("out: 1188 of 1188 checked elements wrong; row all, column all") != std::string::npos);
  CHECK(wrong.out.find("found is 4 times what is expected") != std::string::npos);
  with_expectation.insert(with_expectation.end(), {"--rtol", "3.01"});
  CHECK(emulate(terminal, launch, with_expectation).code == 0);
}

TEST_CASE("emulate: random inputs repeat with their seed, and buffers are compared with each other") {
  Terminal terminal;
  Json launch = example();
  launch["bindings"]["buffers"]["in"] = {{"random", "normal"}};
  launch["bindings"]["expect"] = {{"out", {{"buffer", "in"}}}};
  launch["bindings"]["save"] = {{"out", "out.npy"}};
  CHECK(emulate(terminal, launch, {"--scalar", "factor=1"}).code == 0);
  const std::vector<std::byte> first = read_npy(terminal.folder.path / "out.npy").data;
  CHECK(emulate(terminal, launch, {"--scalar", "factor=1", "--seed", "2"}).code == 0);
  CHECK(read_npy(terminal.folder.path / "out.npy").data != first);
  CHECK(emulate(terminal, launch, {"--scalar", "factor=1", "--seed", "1"}).code == 0);
  CHECK(read_npy(terminal.folder.path / "out.npy").data == first);
  CHECK(emulate(terminal, launch).code == 1);
}

TEST_CASE("emulate: a box that brings too few bytes ends with a finding that has its place") {
  Terminal terminal;
  Json launch = example();
  launch["launch"]["tensor_maps"]["in_map"]["box"] = {32, 4};
  const Outcome outcome = emulate(terminal, launch, {"--json"});
  CHECK(outcome.code == 1);
  const Json json = Json::parse(outcome.out);
  CHECK(json["pass"] == false);
  REQUIRE(!json["findings"].empty());
  CHECK(json["findings"][0]["name"] == "expect-tx-mismatch");
  CHECK(json["findings"][0]["message"].get<std::string>().find("tx-count 512") != std::string::npos);
}

TEST_CASE("emulate: the page shows the example's launch file") {
  const std::string page = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "docs/emulator.md");
  const std::size_t start = page.find("```json\n");
  REQUIRE(start != std::string::npos);
  CHECK(Json::parse(page.substr(start + 8, page.find("```", start + 8) - start - 8)) == example());
}

TEST_CASE("emulate: what is never written is said, hazards fail with --strict only") {
  Terminal terminal;
  Json launch = example();
  launch["launch"]["buffers"]["out"]["shape"] = {"rows + 1", "columns"};
  launch["bindings"].erase("expect");
  Outcome outcome = emulate(terminal, launch);
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("note: out: 400 of 8400 bytes were never written") != std::string::npos);
  launch = example();
  launch["bindings"]["buffers"]["in"] = {{"poison", true}};
  launch["bindings"].erase("expect");
  outcome = emulate(terminal, launch);
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("hazard: global-uninitialised") != std::string::npos);
  CHECK(outcome.out.find("on tessera emulator (sm_90a): pass, 1 hazard\n") != std::string::npos);
  CHECK(Json::parse(emulate(terminal, launch, {"--json"}).out)["hazards"] == 1);
  outcome = emulate(terminal, launch, {"--strict"});
  CHECK(outcome.code == 1);
  CHECK(outcome.out.find("on tessera emulator (sm_90a): FAIL, 1 hazard\n") != std::string::npos);
}

TEST_CASE("emulate: why a call fails is one line of stderr, whatever stdout holds") {
  Terminal terminal;
  Json few_bytes = example(), poisoned = example();
  few_bytes["launch"]["tensor_maps"]["in_map"]["box"] = {32, 4};
  poisoned["bindings"]["buffers"]["in"] = {{"poison", true}};
  poisoned["bindings"].erase("expect");
  Json wrong = example();
  wrong["launch"]["scalars"]["factor"] = 3.0;
  struct {
    Json launch;
    std::vector<std::string> flags;
    std::string reason;
  } const cases[] = {{few_bytes, {}, "failure: expect-tx-mismatch in "},
                     {wrong, {}, "out: "},
                     {example(), {"--max-instructions", "50"}, "failure: instruction-budget in "},
                     {poisoned, {"--strict"}, "hazard: global-uninitialised in "}};
  for (const auto& one : cases) {
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{}, {"--quiet"}, {"--json"}, {"--json", "--quiet"}}) {
      std::vector<std::string> flags = one.flags;
      flags.insert(flags.end(), more.begin(), more.end());
      const Outcome outcome = emulate(terminal, one.launch, flags);
      CAPTURE(outcome.err);
      CHECK(outcome.code == 1);
      CHECK(outcome.err.find("failed: " + kPtx + ": " + one.reason) == 0);
      CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    }
  }
  CHECK(emulate(terminal, poisoned).err.empty());
}

TEST_CASE("emulate: --sms is the size num_sms, for persistent kernels") {
  Terminal terminal;
  Json launch = example();
  launch["launch"]["sizes"]["num_sms"] = Json::object();
  launch["launch"]["steps"][0]["grid"] = {"num_sms", 1};
  const Outcome four = emulate(terminal, launch), one = emulate(terminal, launch, {"--sms", "1"});
  CHECK(four.out.find("out: 1200 of 2000 checked elements wrong; row 8..19, column all") != std::string::npos);
  CHECK(one.out.find("out: 1744 of 2000 checked elements wrong") != std::string::npos);
}

TEST_CASE("emulate: whatever is wrong with a launch file is named by its path") {
  Terminal terminal;
  const auto fails = [&](const char* pointer, Json value, const std::string& message, int code = 2) {
    Json launch = example();
    launch[Json::json_pointer(pointer)] = std::move(value);
    const Outcome outcome = emulate(terminal, launch);
    CAPTURE(outcome.err);
    CAPTURE(outcome.out);
    CHECK(outcome.code == code);
    CHECK(outcome.err.find(message) != std::string::npos);
    CHECK(outcome.out.empty());
  };
  fails("/launch", 3, "launch file.launch: must be an object");
  fails("/launch/steps", Json::array(), "launch.steps: must not be empty");
  fails("/launch/steps/0/grid", Json{1, 2, 3, 4}, "launch.steps[0].grid");
  fails("/launch/steps/0/grid/0", "columns *", "launch.steps[0].grid[0]");
  fails("/launch/steps/0/grid/0", "rows - 21",
        "launch.steps[0].grid[0] = 'rows - 21' is -1: must lie in 0..2147483647");
  fails("/launch/steps/0/grid/1", 100000, "launch.steps[0].grid[1] = '100000' is 100000: must lie in 0..65535");
  fails("/launch/steps/0/grid/0", "lines", "launch.steps[0].grid[0]: 'lines' uses 'lines', which is not a size");
  fails("/launch/steps/0/block", Json{1024, 2}, "launch.steps[0].block: has 2048 threads");
  fails("/launch/steps/0/entry", "scale2", "the image has no kernel 'scale2'; it has: scale", 5);
  fails("/launch/steps/0/dynamic_smem_bytes", 300000, "300000 bytes of dynamic shared memory", 5);
  fails("/launch/steps/0/cluster", 32, "launch.steps[0].cluster[0]: 32: must lie in 1..16");
  fails("/launch/steps/0/parameters/1/kind", "ptr",
        "launch.steps[0].parameters[1].kind: \"ptr\" is not one of tensor_map");
  fails("/launch/steps/0/parameters/1/source", "o", "launch.steps[0].parameters[1].source: \"o\" is no buffer");
  fails("/launch/steps/0/parameters/3", {{"kind", "i64"}, {"value", "rows"}},
        "launch.steps[0].parameters: 128, 8, 4, 8, 4 bytes given, 'scale' takes 128, 8, 4, 4, 4");
  fails("/launch/steps/0/parameters", Json::array(),
        "launch.steps[0].parameters: none given, 'scale' takes 128, 8, 4, 4, 4");
  fails("/launch/steps/0/parameters/3/value", "rows * 1000000000", "must fit 32 bits");
  fails("/launch/steps/0/speed", 1, "launch.steps[0].speed: unknown key");
  fails("/launch/buffers/in/dtype", "bf17", "launch.buffers[0].dtype: \"bf17\" is not one of f64, f32");
  fails("/launch/buffers/in/shape", Json{1 << 30, 1 << 30},
        "the buffers of a launch may take 4294967296 bytes together");
  fails("/launch/tensor_maps/in_map/box", Json{30, 8}, "rule 17");
  fails("/launch/tensor_maps/in_map/swizzle", "128b", "launch.tensor_maps[0].swizzle: \"128b\" is not known");
  fails("/launch/arch", "sm_100a", "the launch is for sm_100a");
  fails("/launch/sizes/rows", nullptr, "launch.sizes[0].default");
  fails("/bindings/sizes", {{"lines", 3}},
        "launch file.bindings.sizes.lines: \"lines\" is no size; there are rows, columns");
  fails("/bindings/buffers/in", {{"random", "gauss"}}, "bindings.buffers.in.random: \"gauss\" is not one of normal");
  fails("/bindings/buffers/in", Json::object(), "bindings.buffers.in: must have one of file, random, fill");
  fails("/bindings/buffers", Json::object(), "buffer in has no contents: bind it in bindings.buffers");
  fails("/bindings/buffers/in", {{"file", "missing.npy"}}, "missing.npy", 5);
  fails("/bindings/expect/out", {{"fill", 3}, {"rtol", -1}}, "bindings.expect.out.rtol: must be at least 0");
}

TEST_CASE("emulate: code that is no PTX, files that are no JSON, calls that miss something") {
  Terminal terminal;
  const std::string launch = (kExample / "scale.json").string();
  const auto fails = [&](const std::string& ptx, const std::string& message, int code) {
    const Outcome outcome = terminal.run({"emulate", terminal.write("file", ptx), "--launch", launch});
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.err.find(message) != std::string::npos);
  };
  fails(std::string("\x7f"
                    "ELF\x02\x01\x01\x00",
                    8),
        "is a cubin or an object file (ELF); the emulator runs PTX", 3);
  fails("\x50\xed\x55\xba....", "is a fat binary", 3);
  fails("\t.headerflags @\"EF_CUDA_SM90\"\n /*0000*/ LDC R1, c[0x0][0x28] ;", "is a SASS listing", 3);
  fails("hello", "file:1", 4);
  fails("", "has no kernel (.entry)", 4);
  fails(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { frob.u32 1; }", "frob", 4);
  // A kernel beside the one that is launched may be anything; --validate says what.
  const std::string beside = terminal.write("two.ptx", read_text(kPtx) + "\n.visible .entry other() { frob.u32 1; }\n");
  const Outcome launched = terminal.run({"emulate", beside, "--launch", launch, "--entry", "scale"});
  CHECK(launched.code == 0);
  CHECK(launched.err.empty());
  const Outcome refused = terminal.run({"emulate", beside, "--launch", launch, "--entry", "other"});
  CHECK(refused.code == 4);
  CHECK(refused.err.find("'frob.u32' is not an instruction that the emulator knows") != std::string::npos);
  const Outcome validated = terminal.run({"emulate", beside, "--validate"});
  CHECK(validated.code == 4);
  CHECK(validated.err.find("'frob.u32' is not an instruction that the emulator knows") != std::string::npos);
  CHECK(terminal.run({"emulate", kPtx, "--validate"}).out.find(": 1 kernel, every instruction known\n") !=
        std::string::npos);
  CHECK(terminal.run({"emulate"}).code == 2);
  CHECK(terminal.run({"emulate", kPtx}).err.find("--launch FILE says how to launch it") != std::string::npos);
  CHECK(terminal.run({"emulate", "/nonexistent.ptx", "--launch", launch}).code == 5);
  CHECK(terminal.run({"emulate", kPtx, "--launch", "/nonexistent.json"}).code == 5);
  const Outcome outcome = terminal.run({"emulate", kPtx, "--launch", terminal.write("bad.json", "{\"launch\": {,}}")});
  CHECK(outcome.code == 2);
  CHECK(outcome.err.find("bad.json: line 1, column 13") != std::string::npos);
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{{"--size", "rows"},
                                                                                     {"--size", "rows=x"},
                                                                                     {"--size", "lines=3"},
                                                                                     {"--bind", "inn=x.npy"},
                                                                                     {"--scalar", "f=1"},
                                                                                     {"--scalar", "factor=inf"},
                                                                                     {"--expect", "o=x.npy"},
                                                                                     {"--save", "o=x.npy"},
                                                                                     {"--atol", "-1"}}) {
    std::vector<std::string> arguments = {"emulate", kPtx, "--launch", launch};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    CAPTURE(flags[1]);
    CHECK(terminal.run(arguments).code == 2);
  }
}

TEST_CASE("emulate: a huge grid ends with its budget") {
  Terminal terminal;
  Json launch = example();
  launch["launch"]["steps"][0]["grid"] = {0x7FFFFFFF, 65535, 65535};
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = emulate(terminal, launch, {"--max-seconds", "1", "--json"});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  CHECK(outcome.code == 1);
  CHECK(Json::parse(outcome.out)["findings"].back()["name"] == "time-budget");
  outcome = emulate(terminal, launch, {"--max-instructions", "100000", "--json"});
  CHECK(Json::parse(outcome.out)["findings"].back()["name"] == "instruction-budget");
}

TEST_CASE("emulate: a launch file for a kernel of ours, made from its plan, runs with its PTX") {
  if (!find_nvrtc()) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  Terminal terminal;
  terminal.host.prepare_jit = nullptr;
  for (const std::string op : {"copy2d", "fmha"}) {
    CAPTURE(op);
    const Outcome warm = terminal.run({"warm", op, "--json"});
    REQUIRE(warm.code == 0);
    const std::string key = Json::parse(warm.out)["entries"][0]["key"];
    const std::string ptx = terminal.write("kernel.ptx", terminal.run({"cache", "show", key, "--ptx"}).out);
    const std::string plan = terminal.write("plan.json", terminal.run({"plan", op, "--json"}).out);
    const std::string launch = (terminal.folder.path / "launch.json").string();
    const std::vector<std::string> small =
        op == "fmha" ? std::vector<std::string>{"--size", "seqlen_q=70"} : std::vector<std::string>{};
    std::vector<std::string> emit = {"emulate", "--emit-launch", plan, "-o", launch};
    emit.insert(emit.end(), small.begin(), small.end());
    const Outcome emitted = terminal.run(emit);
    CAPTURE(emitted.err);
    REQUIRE(emitted.code == 0);
    const Outcome outcome = terminal.run({"emulate", ptx, "--launch", launch, "--json"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(Json::parse(outcome.out)["outputs"][0]["bytes_never_written"] == 0);
  }
  CHECK(terminal.run({"emulate", "--emit-launch", terminal.write("x.json", "[1]")}).code == 2);
}

TEST_CASE("element types: values and bits of every format, packed ones too") {
  std::byte memory[16] = {};
  for (const char* name :
       {"f64", "f32", "tf32", "f16", "bf16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1", "s4", "s8", "s16", "s32", "s64"}) {
    CAPTURE(name);
    const ElementType* type = find_element_type(name);
    REQUIRE(type != nullptr);
    set_element(*type, memory, 1, -2);
    set_element(*type, memory, 0, 1);
    CHECK(element_value(*type, memory, 0) == 1);
    CHECK(element_value(*type, memory, 1) == -2);
  }
  const ElementType& e2m1 = *find_element_type("e2m1");
  set_element(e2m1, memory, 2, 100);
  CHECK(element_value(e2m1, memory, 2) == 6);
  CHECK(bytes_of(e2m1, 5) == 3);
  const ElementType& scale = *find_element_type("ue8m0");
  set_element(scale, memory, 0, 0.25);
  CHECK(element_bits(scale, memory, 0) == 125);
  const ElementType& s8 = *find_element_type("s8");
  set_element(s8, memory, 0, 1000);
  CHECK(element_value(s8, memory, 0) == 127);
  set_element(s8, memory, 0, -1000);
  CHECK(element_value(s8, memory, 0) == -128);
  const ElementType& u64 = *find_element_type("u64");
  set_element(u64, memory, 0, 1e30);
  CHECK(element_bits(u64, memory, 0) == ~std::uint64_t{0});
  CHECK(find_element_type("bf8") == nullptr);
}

TEST_CASE("launch files: what is left out is filled in as the plan's schema wants it") {
  LaunchFileDefaults defaults;
  defaults.arch = "sm_90a";
  defaults.entries = {"scale"};
  const Json launch = complete_launch(example()["launch"], defaults);
  const LaunchPlan plan = launch_plan_from_json([&] {
    Json copy = launch;
    copy["steps"][0]["parameters"] = Json::array();
    return copy;
  }());
  CHECK(plan.arch == "sm_90a");
  CHECK(plan.steps[0].entry == "scale");
  CHECK(plan.buffers[0].strides[0].text() == "columns");
  CHECK(plan.tensor_maps[0].dims[0].text() == "columns");
  CHECK(plan.tensor_maps[0].strides_bytes[0].text() == "(columns) * (4)");
  CHECK(plan.sizes[0].default_value->text() == "20");
  // A plan of ours is complete already: nothing changes.
  Terminal terminal;
  const Json own = Json::parse(terminal.run({"plan", "fmha", "--json"}).out)["launch"];
  CHECK(complete_launch(own, defaults) == own);
}

// --stats, --trace and --timeline: counted by hand for small kernels, and the same results as without them.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/npy.h"
#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {

const std::filesystem::path kExample = std::filesystem::path(TESSERA_SOURCE_DIR) / "examples/emulate";

std::vector<std::string> example(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"emulate", (kExample / "scale.ptx").string(), "--launch",
                                        (kExample / "scale.json").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Statistics of one warp that executes these lines after %r0 = lane, %r1 = the address of 8192 bytes of shared memory.
Json statistics_of(Terminal& terminal, const std::string& body) {
  const std::string ptx = terminal.write("body.ptx",
                                         ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry body() {\n"
                                         ".reg .b32 %r<8>;\n.reg .f32 %f<8>;\n.shared .align 128 .b8 memory[8192];\n"
                                         "mov.u32 %r0, %tid.x;\nmov.u32 %r1, memory;\n" +
                                             body + "\nret;\n}\n");
  const std::string launch = terminal.write("body.json", R"({"launch": {"steps": [{"block": 32}]}})");
  const Outcome outcome = terminal.run({"emulate", ptx, "--launch", launch, "--stats", "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return Json::parse(outcome.out)["statistics"];
}

}  // namespace

TEST_CASE("--stats counts what the example does") {
  Terminal terminal;
  // Lazy: every warp waits for its tile.
  const Outcome outcome = terminal.run(example({"--stats", "--json", "--schedule", "lazy"}));
  REQUIRE(outcome.code == 0);
  const Json json = Json::parse(outcome.out)["statistics"];
  // 12 CTAs of 8 warps; 20 x 100 elements in, as many out.
  CHECK(json["accesses"]["ld.shared"]["instructions"] == 96);
  CHECK(json["accesses"]["ld.shared"]["read_bytes"] == 96 * 32 * 4);
  CHECK(json["accesses"]["ld.shared"]["wavefronts"] == 96);
  CHECK(json["accesses"]["ld.shared"]["conflicts"] == 0);
  CHECK(json["accesses"]["st.global"]["write_bytes"] == 8000);
  CHECK(json["asynchronous"]["operations"] == 12);
  CHECK(json["asynchronous"]["global_read_bytes"] == 8000);
  CHECK(json["asynchronous"]["shared_written_bytes"] == 12 * 1024);
  CHECK(json["instructions"]["mul"].get<int>() >= 96);
  CHECK(json["thread_instructions"] > json["warp_instructions"]);
  CHECK(json["waits"]["mbarrier 0x800"]["waits"] == 96);
  CHECK(json["waits"]["bar.sync 0"]["waits"] == 96);
  const Outcome text = terminal.run(example({"--stats"}));
  CHECK(text.out.find("    ld.shared: 12,288 bytes read, 0 written, 96 wavefronts, 0 of them bank conflicts\n") !=
        std::string::npos);
  CHECK(text.out.find("asynchronous: 12 operations; global 8,000 bytes read") != std::string::npos);
}

TEST_CASE("--stats: bank conflicts by stride and width") {
  Terminal terminal;
  const auto conflicts = [&](int stride, const std::string& access, const std::string& name) {
    const Json json = statistics_of(
        terminal, "mul.lo.u32 %r2, %r0, " + std::to_string(stride) + ";\nadd.u32 %r2, %r2, %r1;\n" + access);
    return std::pair(json["accesses"][name]["wavefronts"].get<int>(), json["accesses"][name]["conflicts"].get<int>());
  };
  const std::string store = "st.shared.b32 [%r2], %r0;";
  CHECK(conflicts(4, store, "st.shared") == std::pair(1, 0));
  CHECK(conflicts(0, store, "st.shared") == std::pair(1, 0));  // one word for all
  CHECK(conflicts(8, store, "st.shared") == std::pair(2, 1));
  CHECK(conflicts(128, store, "st.shared") == std::pair(32, 31));
  CHECK(conflicts(132, store, "st.shared") == std::pair(1, 0));
  CHECK(conflicts(1, "st.shared.b8 [%r2], %r0;", "st.shared") == std::pair(1, 0));
  CHECK(conflicts(16, "st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0};", "st.shared") == std::pair(4, 0));
  CHECK(conflicts(32, "st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0};", "st.shared") == std::pair(8, 4));
  const std::string matrices = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];";
  CHECK(conflicts(16, matrices, "ldmatrix") == std::pair(4, 0));
  CHECK(conflicts(128, matrices, "ldmatrix") == std::pair(32, 28));
}

TEST_CASE("--stats: wmma as the accesses that sm_90 makes of it") {
  Terminal terminal;
  std::string zero = "mov.b32 %r3, 0;\nmov.f32 %f0, 0f00000000;\nmad.lo.u32 %r2, %r0, 256, %r1;\n";
  for (int at = 0; at < 256; at += 16)
    zero += "st.shared.v4.b32 [%r2+" + std::to_string(at) + "], {%r3, %r3, %r3, %r3};\n";
  const auto counts = [&](const std::string& access, const std::string& name) {
    const Json all = statistics_of(terminal, ".reg .b32 %a<8>;\n.reg .f32 %c<8>;\n" + zero + access)["accesses"][name];
    return std::array{all["wavefronts"].get<int>(), all["conflicts"].get<int>(),
                      all["read_bytes"].get<int>() + all["write_bytes"].get<int>()};
  };
  const auto load = [&](const std::string& form, int registers, int stride) {
    std::string list = "{%a0";
    for (int i = 1; i < registers; ++i) list += ", %a" + std::to_string(i);
    return counts("wmma.load." + form + " " + list + "}, [%r1], " + std::to_string(stride) + ";", "wmma.load.shared");
  };
  using Counts = std::array<int, 3>;
  // Four matrices of 8 lines of 16 bytes: lines of 128 bytes meet in the same banks, 8 elements more keep them apart.
  CHECK(load("a.sync.aligned.row.m16n16k16.shared.f16", 8, 64) == Counts{32, 28, 512});
  CHECK(load("a.sync.aligned.row.m16n16k16.shared.f16", 8, 72) == Counts{4, 0, 512});
  CHECK(load("a.sync.aligned.col.m16n16k16.shared.f16", 8, 64) == Counts{32, 28, 512});
  CHECK(load("b.sync.aligned.col.m8n32k16.shared.s8", 4, 128) == Counts{32, 28, 512});
  // Bytes across lines, one by one: 4 lines and 8 neighbours of each, 2 words a line.
  CHECK(load("a.sync.aligned.col.m16n16k16.shared.s8", 2, 128) == Counts{32, 24, 256});
  CHECK(load("a.sync.aligned.row.m16n16k8.shared.tf32", 4, 32) == Counts{32, 28, 512});
  CHECK(load("a.sync.aligned.row.m16n16k8.shared.tf32", 4, 36) == Counts{4, 0, 512});
  // Accumulators in pairs: half of the lanes at once, 4 lines of 32 bytes.
  const std::string store =
      "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r1], {%f0, %f0, %f0, %f0, %f0, %f0, "
      "%f0, %f0}, ";
  CHECK(counts(store + "32;", "wmma.store.shared") == Counts{32, 24, 1024});
  CHECK(counts(store + "40;", "wmma.store.shared") == Counts{8, 0, 1024});
}

TEST_CASE("--stats: matrix work stands in the opcode") {
  Terminal terminal;
  const Json json = statistics_of(
      terminal,
      "mov.f32 %f0, 0f00000000;\nmov.u32 %r2, 0;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r2, %r2, %r2, %r2}, {%r2, %r2}, "
      "{%f0, %f0, %f0, %f0};");
  const Json& counts = json["matrix"]["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"];
  CHECK(counts["instructions"] == 1);
  CHECK(counts["multiply_adds"] == 16 * 8 * 16);
  const std::string wmma = "wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32";
  const Json more =
      statistics_of(terminal, "mov.f32 %f0, 0f00000000;\nmov.u32 %r2, 0;\n" + wmma +
                                  " {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, {%r2, %r2}, {%r2, %r2, %r2, "
                                  "%r2, %r2, %r2, %r2, %r2}, {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0};");
  CHECK(more["matrix"][wmma]["multiply_adds"] == 8 * 32 * 16);
}

TEST_CASE("--trace writes one line an instruction, which grep finds") {
  Terminal terminal;
  const std::string file = (terminal.folder.path / "trace").string();
  const Outcome outcome = terminal.run(example({"--trace", file, "--stats", "--json"}));
  REQUIRE(outcome.code == 0);
  const Json json = Json::parse(outcome.out)["statistics"];
  std::istringstream text(read_text(file));
  int lines = 0, waits = 0, uniform = 0, mixed = 0;
  for (std::string line; std::getline(text, line);) {
    ++lines;
    REQUIRE(line.starts_with("cta="));
    if (line.ends_with("  waits")) ++waits;
    if (!line.ends_with("  # %f0, [%r8]")) continue;
    if (line.find(" ld.shared.f32 0x3fc00000, [0x") != std::string::npos) ++uniform;
    if (line.find(" ld.shared.f32 0x3fc00000*, [0x") != std::string::npos) ++mixed;
  }
  // A warp scales a row of a tile: 20 rows in four tiles of columns, the last of them with 4 of 32 inside.
  CHECK(uniform == 60);
  CHECK(mixed == 20);
  CHECK(lines - waits == json["warp_instructions"]);
  CHECK(terminal.run(example({"--trace", "/nonexistent/trace"})).code == 5);
}

TEST_CASE("--timeline is a trace that closes every span") {
  Terminal terminal;
  const std::string file = (terminal.folder.path / "timeline.json").string();
  for (const char* schedule : {"fair", "eager", "lazy", "adversarial"}) {
    CAPTURE(schedule);
    const Outcome outcome = terminal.run(example({"--timeline", file, "--json", "--schedule", schedule}));
    REQUIRE(outcome.code == 0);
    const Json events = Json::parse(read_text(file))["traceEvents"];
    std::map<int, int> open;
    int copies = 0, processes = 0;
    double busy = 0;
    for (const Json& event : events) {
      const std::string phase = event["ph"];
      if (phase == "M" && event["name"] == "process_name") {
        ++processes;
        const std::string name = event["args"]["name"];
        CHECK(name.ends_with(std::string("), schedule ") + schedule + ", seed 1"));
      }
      CHECK(phase != "i");  // no finding
      if (phase == "X") busy += event["dur"].get<double>();
      if (phase == "b") {
        ++open[event["id"].get<int>()];
        copies += event["cat"] == "TMA" ? 1 : 0;
      }
      if (phase == "e") --open[event["id"].get<int>()];
    }
    CHECK(processes == 12);
    CHECK(copies == 12);
    CHECK(std::all_of(open.begin(), open.end(), [](const auto& span) { return span.second == 0; }));
    const double instructions = Json::parse(outcome.out)["schedules"][0]["warp_instructions"].get<double>();
    CHECK(busy == doctest::Approx(instructions / 1000));
  }
}

TEST_CASE("--time: of the GPU that the code is for, and without values nothing is said of outputs") {
  Terminal terminal;
  const auto timed = [&](const std::string& gpu) {
    return terminal.run(example({"--time", gpu, "--no-values", "--json"}));
  };
  const Json json = Json::parse(timed("h200").out);
  CHECK(json["pass"] == true);
  CHECK(json["problems"].empty());
  CHECK(json["outputs"].empty());
  CHECK(json["predicted"]["gpu"] == "H200");
  const Outcome other = timed("b200");
  CHECK(other.code == 2);
  CHECK(other.err == "tessera: --time b200: B200 runs sm_100a, and the code is for sm_90a\n");
  // PTX that is for no GPU alone is compiled for later ones.
  std::string ptx = read_text(TESSERA_SOURCE_DIR "/examples/debug/sums.ptx");
  const std::size_t at = ptx.find("sm_90a");
  REQUIRE(at != std::string::npos);
  const auto sums = [&](const std::string& target, const std::string& gpu) {
    std::string text = ptx;
    text.replace(at, std::string("sm_90a").size(), target);
    return terminal.run({"emulate", terminal.write("sums.ptx", text), "--launch",
                         TESSERA_SOURCE_DIR "/examples/debug/sums.json", "--time", gpu, "--no-values"});
  };
  CHECK(sums("sm_80", "b200").code == 0);
  CHECK(sums("sm_120", "b200").code == 2);
  CHECK(sums("sm_100f", "b300").code == 0);
  CHECK(sums("sm_100a", "b300").code == 2);
}

TEST_CASE("--timeline marks findings and tells the schedules of one call apart") {
  Terminal terminal;
  const std::string file = (terminal.folder.path / "timeline.json").string();
  const std::string sums = TESSERA_SOURCE_DIR "/examples/debug/sums";
  const auto events_of = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments{"emulate", sums + ".ptx", "--launch", sums + ".json", "--timeline", file};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    terminal.run(arguments);
    return Json::parse(read_text(file))["traceEvents"];
  };
  std::set<std::string> names;
  for (const Json& event : events_of({"--schedule", "all", "--seed", "7"}))
    if (event["name"] == "process_name") names.insert(event["args"]["name"]);
  CHECK(names.count("row_sums CTA (0, 0, 0), schedule fair, seed 7") == 1);
  CHECK(names.count("row_sums CTA (0, 0, 0), schedule adversarial, seed 7") == 1);
  std::vector<std::string> marks;
  for (const Json& event : events_of({"--races"}))
    if (event["ph"] == "i") {
      marks.push_back(event["name"]);
      CHECK(event["tid"] == 1);  // the warp that writes too early
    }
  REQUIRE(marks.size() == 4);  // a place for each turn of the unrolled loop
  CHECK(marks.front() == "smem-race, PTX line 153");
}

TEST_CASE("observers change nothing") {
  Terminal terminal;
  const std::string file = (terminal.folder.path / "x").string();
  const auto instructions = [&](const std::vector<std::string>& flags) {
    const Outcome outcome = terminal.run(example(flags));
    REQUIRE(outcome.code == 0);
    return Json::parse(outcome.out)["schedules"][0]["warp_instructions"].get<std::int64_t>();
  };
  const std::int64_t plain = instructions({"--json", "--schedule", "adversarial", "--seed", "9"});
  CHECK(instructions({"--json", "--schedule", "adversarial", "--seed", "9", "--stats", "--trace", file}) == plain);
}

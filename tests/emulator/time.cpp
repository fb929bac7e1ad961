// The time model: what instructions, warps and CTAs cost, by kernels of a few instructions, and what a description must
// say. Memory: time_memory.cpp; tensor cores: time_products.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emulator/time/gpu_time.h"
#include "emulator/time/report.h"
#include "emulator/time/whole.h"
#include "tessera/error.h"
#include "tests/emulator/time_run.h"

namespace tessera::emulator::time_test {

TEST_CASE("time: a chain takes the latency of its class, independent instructions the interval") {
  const ClassTime& fma = h200().class_of("fma32");
  CHECK(each("fma.rn.f32 f0, f0, f0, f0;\n") == doctest::Approx(fma.latency).epsilon(0.02));
  const std::string four =
      "fma.rn.f32 f0, f0, f0, f0;\nfma.rn.f32 f1, f1, f1, f1;\nfma.rn.f32 f2, f2, f2, f2;\nfma.rn.f32 f3, f3, f3, f3;\n"
      "fma.rn.f32 f4, f4, f4, f4;\nfma.rn.f32 f5, f5, f5, f5;\n";
  CHECK(each(four) / 6 == doctest::Approx(std::max(1.0, fma.interval)).epsilon(0.05));
}

TEST_CASE("time: warps of one sub-core share its exponent unit, warps of four have four") {
  const double interval = h200().class_of("exponent").interval;
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("ex2.approx.ftz.f32 f{0}, f{0};\n", i);
  CHECK(each(text, 32) / 8 == doctest::Approx(interval).epsilon(0.05));
  CHECK(each(text, 128) / 8 == doctest::Approx(interval).epsilon(0.05));
  CHECK(each(text, 256) / 8 == doctest::Approx(2 * interval).epsilon(0.05));
  const LaunchTime time = time_of(repeated(text, 64), 256);
  CHECK(time.limit == "exponent unit");
}

TEST_CASE("time: a warp goes on when the exponent unit has taken its exponential") {
  std::string both;
  for (int i = 1; i <= 4; ++i)
    both += fmt::format("ex2.approx.ftz.f32 f{0}, f{0};\nfma.rn.f32 f{1}, f{1}, f{1}, f{1};\n", i, i + 4);
  CHECK(each(both) / 4 == doctest::Approx(h200().class_of("exponent").interval + 1).epsilon(0.02));
}

TEST_CASE("time: warps that want the same pipe take turns, and a program reads the clock's cycles") {
  std::string body = "mov.u64 d1, %clock64;\n";
  for (int i = 0; i < 64; ++i) body += fmt::format("max.f32 f{0}, f{0}, f0;\n", 1 + i % 8);
  body +=
      "mov.u64 d2, %clock64;\nsub.s64 d3, d2, d1;\ncvt.u32.u64 r4, d3;\nmul.wide.u32 d4, r0, 4;\n"
      "add.s64 d5, d0, d4;\nst.global.u32 [d5], r4;\n";
  std::vector<std::uint32_t> alone(1024), both(1024);
  time_of(body, 128, &alone);
  time_of(body, 160, &both);  // warps 0 and 4 have one sub-core
  const double interval = h200().class_of("compare").interval;
  CHECK(alone[0] == doctest::Approx(64 * interval).epsilon(0.05));
  for (const std::size_t thread : {0U, 128U}) CHECK(both[thread] == doctest::Approx(2 * 64 * interval).epsilon(0.05));
  CHECK(both[32] == alone[32]);
}

TEST_CASE("time: a taken branch leaves its warp without an instruction for a while") {
  const auto loop = [](int rounds) {
    return cycles(fmt::format(
        "mov.u32 r4, 0;\nmov.u32 r7, 1;\nLOOP:\n{}add.u32 r4, r4, r7;\nsetp.lt.u32 p, r4, {};\n@p bra LOOP;\n",
        multiply_adds(16), rounds));
  };
  const double each = (loop(60) - loop(20)) / 40;
  const double bubble = h200().class_of("branch").latency;
  REQUIRE(bubble > 5);
  CHECK(each > 16 * h200().class_of("fma32").interval + bubble);
  CHECK(each < 16 * h200().class_of("fma32").interval + bubble + 10);
}

TEST_CASE("time: a few instructions behind a branch get predicates, and issue where it is taken, too") {
  const auto skipped = [](int instructions, const char* more) {
    const auto branches = [&](int count) {
      std::string body = "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nmov.f32 f0, 0f00000000;\n";
      for (int i = 0; i < count; ++i)
        body +=
            fmt::format("setp.lt.u32 p, r0, 1024;\n@p bra L{0};\n{1}{2}L{0}:\n", i, multiply_adds(instructions), more);
      return cycles(body);
    };
    return (branches(30) - branches(10)) / 20;
  };
  // Each keeps its pipe, as if it had an effect.
  CHECK(skipped(12, "") - skipped(4, "") == doctest::Approx(8 * h200().class_of("fma32").interval).epsilon(0.05));
  const char* const shifts = "shl.b32 r4, r2, 1;\nshl.b32 r5, r2, 2;\nshl.b32 r6, r2, 3;\n";
  CHECK(skipped(1, shifts) > 3 * h200().class_of("shift").interval);
  CHECK(skipped(40, "") == doctest::Approx(skipped(20, "")));  // a branch
  const char* const store = "st.global.f32 [d1], f1;\n";
  CHECK(skipped(12, store) == doctest::Approx(skipped(4, store)));  // likewise
  CHECK(skipped(40, "") > skipped(4, ""));
}

TEST_CASE("time: both sides of an if with an else are predicates, of which there are seven") {
  // Loads whose other side stores a zero: three at a time are under way, where a branch would let one.
  const auto kernel = [](int count) {
    std::string body = "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nmov.u32 r6, 0;\n";
    for (int i = 0; i < count; ++i)
      body += fmt::format(
          "setp.lt.u32 p, r0, 1024;\n@p bra YES{0};\nbra.uni NO{0};\nYES{0}:\nld.global.cg.u32 r5, [d1];\n"
          "st.shared.u32 [r3], r5;\nbra.uni END{0};\nNO{0}:\nst.shared.u32 [r3], r6;\nEND{0}:\n",
          i);
    return cycles(body + "bar.sync 0;\n");
  };
  const double more = (kernel(12) - kernel(6)) / h200().hbm_latency;
  CHECK(more > 1.5);
  CHECK(more < 3);
}

TEST_CASE("time: a loop that counts by a constant is unrolled, its words are one load") {
  const auto loop = [](const char* step, const char* work) {
    const auto rounds = [&](int count) {
      return cycles(fmt::format("mov.u32 r4, 0;\nmov.u32 r7, 1;\nshl.b32 r8, r0, 9;\nadd.u32 r8, r1, r8;\nLOOP:\n{}"
                                "add.u32 r4, r4, {};\nsetp.lt.u32 p, r4, {};\n@p bra LOOP;\n",
                                work, step, count),
                    32);
    };
    return (rounds(64) - rounds(32)) / 32;
  };
  const std::string work = multiply_adds(8);
  const double bubble = h200().class_of("branch").latency;
  const double known = loop("1", work.c_str()), unknown = loop("r7", work.c_str());
  CHECK(unknown - known > 0.7 * bubble);
  CHECK(unknown - known < bubble + 5);
  const std::string large = multiply_adds(80);
  CHECK(loop("1", large.c_str()) == doctest::Approx(loop("r7", large.c_str())).epsilon(0.02));
  // A word of each turn, all lanes in one bank: as 16 bytes of four turns a quarter of the wavefronts.
  const std::string word = "st.shared.u32 [r8], r5;\nld.shared.u32 r5, [r8];\n";
  const double in_a_row = loop("1", (word + "add.u32 r8, r8, 4;\n").c_str());
  const double apart = loop("1", (word + "add.u32 r8, r8, 8;\n").c_str());
  CHECK(apart - in_a_row > 0.6 * 32);
}

TEST_CASE("time: a remainder is a sequence of instructions") {
  const ClassTime& rem = h200().class_of("rem_u32");
  REQUIRE(rem.slots > 4);
  const std::string three = "rem.u32 r4, r4, r6;\nrem.u32 r5, r5, r6;\nrem.u32 r7, r7, r6;\n";
  CHECK(each(three, 512, "mov.u32 r4, 7;\nmov.u32 r5, 8;\nmov.u32 r7, 9;\nmov.u32 r6, 3;\n") / 3 ==
        doctest::Approx(4 * rem.slots * rem.interval).epsilon(0.1));
}

TEST_CASE("time: an operation on the same values is executed once") {
  const std::string again = "fma.rn.f32 f1, f0, f0, f0;\n", changes = "add.f32 f0, f0, f0;\n";
  CHECK(each(again, 512) < 0.1);
  CHECK(each(again + changes, 512) > 1.3 * each(changes, 512));
}

TEST_CASE("time: halves of a register are taken where they are") {
  const auto with = [](const char* pair) {
    return each(fmt::format("{{\n.reg .b16 l, h;\nmov.b32 {{l, h}}, r6;\nmov.b32 r5, {};\n"
                            "fma.rn.bf16x2 r6, r6, r5, r5;\nfma.rn.bf16x2 r7, r7, r5, r5;\n}}\n",
                            pair),
                512);
  };
  const double none = each("fma.rn.bf16x2 r6, r6, r6, r6;\nfma.rn.bf16x2 r7, r7, r6, r6;\n", 512);
  CHECK(with("{l, l}") == doctest::Approx(none).epsilon(0.02));
  CHECK(with("{h, h}") == doctest::Approx(none).epsilon(0.02));
  CHECK(with("{h, l}") > 1.2 * none);
}

TEST_CASE("time: two operations with three operands are one, unless somebody else wants the first one's result") {
  const auto of_four = [](const char* text) {  // registers, each with a chain of its own
    std::string all;
    for (int i = 4; i < 8; ++i) all += fmt::format(fmt::runtime(text), i);
    return each(all, 512) / (4 * 4 * h200().class_of("add_int").interval);  // operations of a chain's turn
  };
  CHECK(of_four("add.u32 r8, r{0}, r0;\nxor.b32 r{0}, r8, r3;\n") == doctest::Approx(2).epsilon(0.05));
  for (const char* two :
       {"add.u32 r8, r{0}, r0;\nsub.u32 r{0}, r8, r3;\n", "and.b32 r8, r{0}, r0;\nxor.b32 r{0}, r8, r3;\n",
        "shl.b32 r8, r{0}, 2;\nadd.u32 r{0}, r8, r3;\n"}) {
    const std::string text = two;
    CAPTURE(text);
    CHECK(of_four(two) == doctest::Approx(1).epsilon(0.05));
  }
  const std::string pair = "and.b32 r8, r{0}, r0;\nxor.b32 r{0}, r8, r3;\nshr.u32 r{0}, r{0}, 1;\n";
  CHECK(of_four((pair + "max.u32 r9, r9, r{0};\n").c_str()) == doctest::Approx(3).epsilon(0.05));
  CHECK(of_four((pair + "max.u32 r9, r9, r8;\n").c_str()) == doctest::Approx(4).epsilon(0.05));
}

TEST_CASE("time: what all lanes have the same of goes to the uniform datapath") {
  const auto each_of_eight = [](const char* first) {
    std::string before, text;
    for (int i = 4; i < 12; ++i) {
      before += fmt::format("mov.u32 r{}, {};\n", i, first);
      text += fmt::format("shl.b32 r{0}, r{0}, {1};\n", i, i - 3);
    }
    return each(text, 512, before) / 8;
  };
  CHECK(each_of_eight("%ctaid.x") == doctest::Approx(4).epsilon(0.05));
  CHECK(each_of_eight("%laneid") == doctest::Approx(4 * h200().class_of("shift").interval).epsilon(0.05));
}

TEST_CASE("time: tiles that a counter in memory deals are shared by all CTAs that are there") {
  const auto kernel = [](int tiles, int work) {
    return time_of_grid(
               fmt::format("setp.eq.u32 q, r0, 0;\nNEXT:\n@!q bra WAIT;\natom.global.add.u32 r5, [d0], 1;\n"
                           "st.shared.u32 [smem], r5;\nWAIT:\nbar.sync 0;\nld.shared.u32 r5, [smem];\nbar.sync 0;\n"
                           "setp.ge.u32 p, r5, {};\n@p bra END;\n{}bra NEXT;\nEND:\n",
                           tiles, repeated("fma.rn.f32 f0, f0, f0, f0;\n", work)),
               64, 132)
        .cycles;
  };
  const double tile = kernel(132, 4000) - kernel(132, 2000), latency = h200().class_of("fma32").latency;
  CHECK(tile == doctest::Approx(2000 * latency).epsilon(0.05));  // one each
  CHECK(kernel(2 * 132, 4000) - kernel(2 * 132, 2000) == doctest::Approx(2 * tile).epsilon(0.05));
}

TEST_CASE("time: of clusters that differ those beside the longest sample are looked at, too") {
  std::vector<SampleTime> samples{{0, 1, 55}, {87, 1, 56}, {43, 1, 80}, {131, 1, 60}};
  CHECK(beside_longest(samples) == std::vector<std::uint64_t>{21, 65});
  CHECK(samples[1].cluster == 43);
  samples.push_back({21, 1, 95});
  CHECK(beside_longest(samples) == std::vector<std::uint64_t>{10, 32});
  samples = {{0, 1, 100}, {43, 1, 80}};
  CHECK(beside_longest(samples) == std::vector<std::uint64_t>{21});
  samples = {{0, 1, 80}, {1, 1, 100}};
  CHECK(beside_longest(samples).empty());  // none is between them
  samples = {{0, 1, 100}, {43, 1, 99}};
  CHECK(beside_longest(samples).empty());  // alike
}

TEST_CASE("time: only what the first round takes more, being cold, is left out where clusters are compared") {
  const auto sample = [](std::uint64_t cluster, double cycles) {
    SampleTime one;
    one.cluster = cluster, one.cycles = cycles;
    return one;
  };
  const std::vector<SampleTime> alike{sample(0, 1500), sample(200, 1510), sample(300, 1000), sample(598, 1010)};
  CHECK(differ_by_little(alike, 264, 500));
  CHECK(!differ_by_little(alike, 264, 0));
  CHECK(!differ_by_little({sample(0, 1500), sample(72, 20000), sample(288, 1000)}, 264, 500));
  CHECK(!differ_by_little({sample(0, 1500), sample(300, 1000), sample(598, 1200)}, 264, 500));
  // CTAs 60 to 199 loop 20 times as long, two CTAs a multiprocessor; of 290 one sample lies behind the first round.
  const auto kernel = [](const char* longer, std::uint32_t ctas) {
    return time_of_grid(fmt::format("mov.u32 r5, %ctaid.x;\nmov.u32 r6, 20;\nmov.u32 r4, 0;\n{}\n"
                                    "LOOP:\n{}add.u32 r4, r4, 1;\nsetp.lt.u32 q, r4, r6;\n@q bra LOOP;\n",
                                    longer, repeated("fma.rn.f32 f1, f1, f1, f1;\n", 4)),
                        1024, ctas)
        .cycles;
  };
  constexpr const char *kSome = "setp.ge.u32 p, r5, 60;\nsetp.lt.and.u32 p, r5, 200, p;\n@p mov.u32 r6, 400;",
                       *kAll = "mov.u32 r6, 400;";
  const double longest = kernel(kAll, 264);
  for (const std::uint32_t ctas : {290U, 600U}) CHECK(kernel(kSome, ctas) > 0.95 * longest);
}

TEST_CASE("time: CTAs of a multiprocessor begin one after the other") {
  const auto cycles_of = [](std::uint32_t ctas) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = 1;
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(1024);
    REQUIRE(tessera::testing::run_test_entry(device, entry("st.shared.u32 [r3], r0;"), values, 32, ctas).empty());
    return device.take_times().at(0).cycles;
  };
  CHECK(cycles_of(4 * 132) - cycles_of(132) == doctest::Approx(3 * h200().cta_interval).epsilon(0.05));
}

TEST_CASE("time: machine code's registers decide how many CTAs fit, where they are known") {
  const auto ctas_of = [](std::uint32_t registers) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    const auto image = device.load_ptx(entry("st.shared.u32 [r3], r0;"), "test.ptx");
    const EntryHandle handle = image->entry("test");
    if (registers != 0) EmulatedDevice::set_registers(handle, registers);
    DevicePointer buffer = device.allocate(4096);
    void* parameters[] = {&buffer};
    device.launch({handle, {1, 1, 1}, {256, 1, 1}, {1, 1, 1}, 0, false, parameters}, {});
    device.free(buffer);
    return device.take_times().at(0).ctas_per_sm;
  };
  CHECK(ctas_of(0) == 6);  // shared memory's bound
  CHECK(ctas_of(100) == 2);
  CHECK(ctas_of(65) == 3);  // 72 of them: they come in eights
}

TEST_CASE("time: what the assembler said of an image is told, and counts") {
  DeviceOptions options;
  options.time = find_gpu_time("h200");
  options.num_sms = sms_of(*options.time);
  EmulatedDevice device(options);
  const auto time_of_report = [&](const std::vector<EntryReport>& reports) {
    Image made;
    made.ptx = entry("st.shared.u32 [r3], r0;");
    made.report.entries = reports;
    const auto image = device.load(made);
    DevicePointer buffer = device.allocate(4096);
    void* parameters[] = {&buffer};
    device.launch({image->entry("test"), {1, 1, 1}, {256, 1, 1}, {1, 1, 1}, 0, false, parameters}, {});
    device.free(buffer);
    return device.take_times().at(0);
  };
  const LaunchTime none = time_of_report({}), spilled = time_of_report({{"test", 100, 8, 16}}),
                   other = time_of_report({{"another", 100, 8, 16}});
  CHECK(none.ctas_per_sm == 6);
  CHECK(none.spill_bytes == -1);
  CHECK(time_text({none}).find("machine code") == std::string::npos);
  CHECK(spilled.ctas_per_sm == 2);
  CHECK(time_text({spilled}).find(
            "machine code: 100 registers a thread, 24 bytes of spills, which the time has not\n") != std::string::npos);
  CHECK(time_text({time_of_report({{"test", 32}})}).find("machine code: 32 registers a thread, no spills\n") !=
        std::string::npos);
  CHECK(time_json({spilled})["kernels"][0]["spill_bytes"] == 24);
  CHECK(other.ctas_per_sm == 6);
}

TEST_CASE("time: moves between registers and changes of an integer's width cost nothing") {
  const double with =
      cycles(repeated("mov.u32 r4, r0;\nmov.u32 r5, r4;\ncvt.u64.u32 d1, r5;\nadd.u32 r0, r0, r5;\n", 64));
  const double without = cycles(repeated("add.u32 r0, r0, r0;\n", 64));
  CHECK(with == without);
}

TEST_CASE("time: who waits at an mbarrier goes on after the arrival and the hand-off") {
  const std::string init =
      "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
      "setp.lt.u32 q, r0, 32;\n@q bra WAITS;\n";
  const auto kernel = [&](int work) {
    return init + repeated("fma.rn.f32 f0, f0, f0, f0;\n", work) +
           "st.shared.f32 [r3], f0;\nand.b32 r7, r0, 31;\nsetp.eq.u32 q, r7, 0;\n@q mbarrier.arrive.shared.b64 _, "
           "[r6];\nbra END;\n"
           "WAITS: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAITS;\nEND:";
  };
  const LaunchTime time = time_of(kernel(400), 64);
  const double more = time.cycles - cycles(kernel(200), 64);
  CHECK(more == doctest::Approx(200 * h200().class_of("fma32").latency).epsilon(0.02));
  REQUIRE(!time.roles.empty());
  CHECK(time.roles.front().waits.at("mbarrier") > 1000);
}

TEST_CASE("time: registers that are alive at the same time decide how many CTAs fit, not those that were named") {
  const auto ctas_of = [](bool all_at_once) {
    std::string body = ".reg .f32 g<128>;\nmov.f32 f0, 0f00000000;\n";
    const std::string text = "cvt.rn.f32.u32 g{0}, r0;\n", use = "add.f32 f0, f0, g{0};\n";
    for (int i = 0; i < 100; ++i)
      body += fmt::format(fmt::runtime(text), i) + (all_at_once ? std::string() : fmt::format(fmt::runtime(use), i));
    for (int i = 0; i < 100 && all_at_once; ++i) body += fmt::format(fmt::runtime(use), i);
    return time_of(body + "st.shared.f32 [r3], f0;\n", 256).ctas_per_sm;
  };
  CHECK(ctas_of(true) == 2);   // 104 registers and more of 65,536
  CHECK(ctas_of(false) == 6);  // shared memory's bound
}

TEST_CASE("time: clusters of four leave multiprocessors of GPCs over") {
  const auto waves_of = [](std::uint32_t ctas, std::uint32_t cluster) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(1024);
    const std::string text = entry("st.shared.u32 [r3], r0;");
    REQUIRE(tessera::testing::run_test_entry(device, text, values, 1024, ctas, cluster).empty());
    return device.take_times().at(0).waves;
  };
  CHECK(h200().clusters_at_once(4) < sms_of(h200()) / 4);
  CHECK(waves_of(120, 4) / waves_of(120, 2) == doctest::Approx(sms_of(h200()) / 4. / h200().clusters_at_once(4)));
  CHECK(waves_of(120, 2) == doctest::Approx(waves_of(120, 1)));
}

TEST_CASE("time: results are those without a clock") {
  const std::string body =
      "shl.b32 r4, r0, 2;\ncvt.u64.u32 d1, r4;\nadd.u64 d1, d0, d1;\nst.shared.u32 [r3], r0;\nbar.sync 0;\n"
      "xor.b32 r5, r3, 4;\nld.shared.u32 r6, [r5];\nst.global.u32 [d1], r6;\n";
  std::vector<std::uint32_t> values(1024);
  time_of(body, 64, &values);
  for (std::uint32_t i = 0; i < 64; ++i) CHECK(values[i] == (i ^ 1));
}

/// That description where `key` is misspelled.
std::string without(std::string_view gpu, const std::string& key) {
  for (const EmbeddedGpu& one : embedded_gpus())
    if (one.name == gpu) {
      std::string text(one.text);
      const std::size_t at = text.find("\"" + key + "\": {");
      REQUIRE(at != std::string::npos);
      return text.insert(at + 1, "no ");
    }
  return "";
}

TEST_CASE("time: no number stands in for one that a description has not") {
  for (const char* key : {"ctas", "warps", "registers", "shared_bytes_of_cta"})
    for (const char* gpu : {"h200", "rtx5090"})
      CHECK_THROWS_WITH_AS(read_gpu_time(without(gpu, key), "x.json"),
                           doctest::Contains(fmt::format("x.json: sm.{} is missing", key).c_str()), Error);
  CHECK_THROWS_WITH_AS(read_gpu_time(without("h200", "gpcs"), "x.json"), "x.json: sm.gpcs is missing", Error);
  CHECK(find_gpu_time("h200")->gpcs == 8);
  CHECK(find_gpu_time("b200")->ctas_per_sm == 32);
  CHECK(find_gpu_time("rtx5090")->ctas_per_sm == 24);
  // A form that is not described takes what the next M takes.
  const std::shared_ptr<const GpuTime> b200 = find_gpu_time("b200");
  CHECK(b200->tcgen05_form(1, 32, false).latency == b200->tcgen05.at("cg1 m64 smem").latency);
  CHECK(b200->tcgen05_form(2, 128, true).latency == b200->tcgen05.at("cg2 m128 tmem").latency);
  CHECK(b200->tcgen05.at("cg2 m128 tmem").latency != b200->tcgen05.at("cg2 m256 tmem").latency);
  CHECK_THROWS_WITH_AS(read_gpu_time(without("b200", "forms"), "x.json"), "x.json: tcgen05.forms is missing", Error);
}

TEST_CASE("time: descriptions") {
  CHECK_THROWS_WITH_AS(find_gpu_time("h1000"), doctest::Contains("no such GPU: "), Error);
  CHECK_THROWS_WITH_AS(read_gpu_time("{", "x.json"), "x.json: is not JSON", Error);
  CHECK_THROWS_WITH_AS(read_gpu_time("{}", "x.json"), "x.json: name is missing", Error);
  const std::string start = R"({"name": "X", "arch": "sm_90a", "sm": {"count": )";
  CHECK_THROWS_WITH_AS(read_gpu_time(start + "3}}", "x.json"), "x.json: sm.count.value is missing", Error);
  CHECK_THROWS_WITH_AS(read_gpu_time(start + R"({"value": 3, "source": "", "certainty": "measured"}}})", "x.json"),
                       "x.json: sm.count.source: must say where it is from", Error);
  CHECK_THROWS_WITH_AS(read_gpu_time(start + R"({"value": 3, "source": "a", "certainty": "sure"}}})", "x.json"),
                       "x.json: sm.count.certainty: must be measured, published or inferred", Error);
  for (const std::string& name : gpu_time_names()) {
    const std::shared_ptr<const GpuTime> gpu = find_gpu_time(name);
    CHECK(gpu->sms > 0);
    CHECK(gpu->classes.contains("exponent"));
    CHECK(!gpu->mma.empty());
  }
  CHECK(find_gpu_time("RTX 5090")->sms == 170);
  CHECK(error_of(*find_gpu_time("h200")).median_percent > 0);
  CHECK(!error_of(*find_gpu_time("b200")).source.empty());
  CHECK(error_of(*find_gpu_time("gb10")).source.empty());
  // Products lower the clock at once; more of them, time, and 8-bit types more.
  const auto clock = [](double busy, double of_8_bit, double us) { return h200().clock_at(busy, of_8_bit, us); };
  CHECK(clock(0, 0, 100) == h200().clock_mhz);
  CHECK(clock(0.05, 0, 100) < 0.95 * h200().clock_mhz);
  CHECK(clock(0.95, 0, 100) < 0.95 * clock(0.3, 0, 100));
  CHECK(clock(0.95, 0, 1000) < 0.98 * clock(0.95, 0, 100));
  CHECK(clock(0.95, 1, 100) < 0.98 * clock(0.95, 0, 100));
  CHECK(clock(0.3, 0, 1000) == doctest::Approx(clock(0.3, 0, 100)).epsilon(0.005));
  CHECK(h200().part_of_mma() == doctest::Approx(0.65).epsilon(0.02));
  CHECK(find_gpu_time("b200")->part_of_mma() == doctest::Approx(0.235).epsilon(0.02));
  CHECK(find_gpu_time("rtx5090")->part_of_mma() == 1);
  const std::shared_ptr<const GpuTime> b200 = find_gpu_time("b200");
  CHECK(b200->clock_at(0.5, 0, 100) == doctest::Approx((b200->clock_mhz + b200->clock_loaded_mhz) / 2));
  const IntervalTable table{{{64, 32}, {128, 64}, {256, 128}}};
  CHECK(table.at(8) == 32);
  CHECK(table.at(96) == 48);
  CHECK(table.at(256) == 128);
}

}  // namespace tessera::emulator::time_test

// The time model: what single units cost, by kernels of a few instructions, and what a description must say. Longer
// than most files: each unit has a case of its own, and all take the entry and the device at the head.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "emulator/time/gpu_time.h"
#include "emulator/time/report.h"
#include "emulator/time/whole.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::time_test {
namespace {

std::string entry(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{\n"
         ".reg .pred p, q; .reg .b32 r<16>; .reg .b64 d<8>; .reg .f32 f<16>;\n.shared .align 128 .b8 smem[32768];\n"
         ".shared .align 8 .b64 bar;\n"
         "ld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\nmov.u32 r1, smem;\nshl.b32 r2, r0, 2;\nadd.u32 r3, r1, "
         "r2;\n" +
         body + "\nret;\n}\n";
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

LaunchTime time_of(const std::string& body, std::uint32_t threads, std::vector<std::uint32_t>* values = nullptr) {
  DeviceOptions options;
  options.time = find_gpu_time("h200");
  options.num_sms = sms_of(*options.time);
  EmulatedDevice device(options);
  std::vector<std::uint32_t> own(1024);
  const auto findings =
      tessera::testing::run_test_entry(device, entry(body), values != nullptr ? *values : own, threads);
  INFO((findings.empty() ? std::string() : findings.front().message));
  REQUIRE(findings.empty());
  const std::vector<LaunchTime> times = device.take_times();
  REQUIRE(times.size() == 1);
  CHECK(device.take_times().empty());
  CHECK(times[0].is_whole);
  return times[0];
}

/// Multiply-adds, none of which waits for the one before it, each of other values.
std::string multiply_adds(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += fmt::format("fma.rn.f32 f{0}, f{0}, f0, f0;\n", 1 + i % 8);
  return all;
}

double cycles(const std::string& body, std::uint32_t threads = 32) { return time_of(body, threads).cycles; }

/// Cycles of one of the text's instructions, by the difference of two counts.
double each(const std::string& text, std::uint32_t threads = 32, const std::string& before = {}) {
  return (cycles(before + repeated(text, 96), threads) - cycles(before + repeated(text, 32), threads)) / 64;
}

const GpuTime& h200() {
  static const std::shared_ptr<const GpuTime> gpu = find_gpu_time("H200");
  return *gpu;
}

}  // namespace

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

TEST_CASE("time: bank conflicts take as many cycles as there are wavefronts") {
  const std::string load = "ld.shared.f32 f1, [r3];\n";
  const std::string store = "st.shared.f32 [r3], f0;\n";
  const double plain = each(store, 512, "mov.f32 f0, 0f00000000;\n");
  const double eightfold =
      each(store, 512, "mov.f32 f0, 0f00000000;\nand.b32 r4, r0, 31;\nshl.b32 r4, r4, 5;\nadd.u32 r3, r1, r4;\n");
  CHECK(eightfold / plain == doctest::Approx(8).epsilon(0.05));
  (void)load;
}

TEST_CASE("time: loads of words side by side are one load, where they can be aligned") {
  const auto loads = [](std::initializer_list<int> words, const char* base) {
    std::string text;
    for (const int word : words) text += fmt::format("ld.shared.f32 f{}, [r9+{}];\n", word % 16, 4 * word);
    return each(
               text, 512,
               fmt::format("and.b32 r4, r0, 31;\nshl.b32 r4, r4, 4;\nadd.u32 r9, r1, r4;\nmov.f32 f0, 0f00000000;\n"
                           "st.shared.v4.f32 [r9], {{f0, f0, f0, f0}};\nst.shared.f32 [smem+512], f0;\nbar.sync 0;\n{}",
                           base)) *
           h200().smem_bytes_per_clock / (4 * 512);
  };
  CHECK(loads({0, 1, 2, 3}, "") == doctest::Approx(4).epsilon(0.05));  // 16 bytes a lane, no conflict
  CHECK(loads({2, 0, 3, 1}, "") == doctest::Approx(4).epsilon(0.05));
  CHECK(loads({0, 1, 2}, "") == doctest::Approx(4 + 4).epsilon(0.05));  // 8 bytes with two in a bank, 4 with four
  CHECK(loads({0, 1, 2, 3}, "add.u32 r9, r9, 4;\n") == doctest::Approx(16).epsilon(0.05));  // not even
}

TEST_CASE("time: loads of global memory go before stores of shared memory, not before what tells of them") {
  const auto kernel = [](int count, const char* between) {
    std::string body = "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\n";
    for (int i = 0; i < count; ++i)
      body += fmt::format("ld.global.cg.u32 r5, [d1];\nst.shared.u32 [r3], r5;\n{}", between);
    return cycles(body + "bar.sync 0;\n");
  };
  const double latency = h200().hbm_latency;
  CHECK(kernel(12, "") < kernel(4, "") + latency / 2);
  CHECK(kernel(12, "bar.sync 0;\n") > kernel(4, "bar.sync 0;\n") + 7 * latency);
  CHECK(kernel(12, "ld.shared.u32 r6, [r3];\n") > kernel(4, "ld.shared.u32 r6, [r3];\n") + 7 * latency);
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

TEST_CASE("time: wide loads take half of the wavefronts where each lane loads what one beside it does") {
  const auto waves = [](const char* address, const char* load) {
    constexpr std::uint32_t warps = 16;
    return each(load, 32 * warps,
                fmt::format("and.b32 r4, r0, 31;\nshl.b32 r9, r4, 4;\nadd.u32 r9, r1, r9;\nmov.b32 r5, 0;\n"
                            "st.shared.v4.b32 [r9], {{r5, r5, r5, r5}};\nbar.sync 0;\n{}shl.b32 r4, r4, 4;\n"
                            "add.u32 r9, r1, r4;\n",
                            address)) /
           warps;
  };
  const char* const of_16 = "ld.shared.v4.b32 {r10, r11, r12, r13}, [r9];\n";
  const char* const of_8 = "ld.shared.v2.b32 {r10, r11}, [r9];\n";
  CHECK(waves("and.b32 r4, r4, 3;\n", of_16) == doctest::Approx(4).epsilon(0.05));
  CHECK(waves("and.b32 r4, r4, 1;\n", of_16) == doctest::Approx(2).epsilon(0.05));
  CHECK(waves("shr.u32 r4, r4, 2;\n", of_16) == doctest::Approx(2).epsilon(0.05));
  CHECK(waves("and.b32 r4, r4, 3;\n", of_8) == doctest::Approx(2).epsilon(0.05));
  CHECK(waves("shr.u32 r4, r4, 2;\n", of_8) == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("time: many warps wait for the latest of their loads") {
  const auto load = [](std::uint32_t threads) {
    return cycles(
        "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nld.global.cg.u32 r5, [d1];\nst.shared.u32 [r3], r5;\nbar.sync 0;\n",
        threads);
  };
  CHECK(load(1024) > load(32) + 2 * h200().hbm_tail);
}

TEST_CASE("time: what neighbours have asked for is on its way, and comes again where the L2 does not hold it") {
  // Each eighth of the buffer is read by every eighth CTA, 16 KiB a step, two CTAs a multiprocessor, four rounds of
  // them.
  const auto time_of_reads = [](std::size_t bytes, std::uint32_t ctas) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    options.skips_values = true;
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(bytes / 4);
    const std::string body =
        "mov.u32 r4, %ctaid.x;\nand.b32 r4, r4, 7;\nmul.lo.u32 r4, r4, {0};\nshl.b32 r5, r0, 4;\nadd.u32 r4, r4, r5;\n"
        "cvt.u64.u32 d1, r4;\nadd.u64 d1, d0, d1;\nmov.u32 r4, 0;\nmov.u32 r7, 16384;\nLOOP:\n"
        "ld.global.cg.v4.u32 {{r10, r11, r12, r13}}, [d1];\nadd.u32 r14, r10, r11;\nst.shared.u32 [r3], r14;\nbar.sync "
        "0;\n"
        "add.u64 d1, d1, 16384;\nadd.u32 r4, r4, r7;\nsetp.lt.u32 p, r4, {0};\n@p bra LOOP;\n";
    const auto findings =
        tessera::testing::run_test_entry(device, entry(fmt::format(fmt::runtime(body), bytes / 8)), values, 1024, ctas);
    REQUIRE(findings.empty());
    return device.take_times().at(0);
  };
  constexpr std::size_t kStays = 2 << 20, kDoesNot = 40 << 20;
  const LaunchTime once = time_of_reads(kStays, 132), stays = time_of_reads(kStays, 4 * 264);
  CHECK(once.cycles > kStays / 8 / 16384 * h200().hbm_latency);  // all wait for the memory in each step
  CHECK(stays.hbm_bytes == doctest::Approx(kStays + h200().displaced_by(kStays)).epsilon(0.2));
  CHECK(time_of_reads(kDoesNot, 4 * 264).hbm_bytes > 3.5 * kDoesNot);
}

TEST_CASE("time: beside a wgmma the multiply-add pipe has half of its rate") {
  const auto cycles_of = [](int products, int count) {
    std::string body = "setp.ge.u32 q, r0, 128;\n@q bra WORK;\nmov.b64 d2, 0x4000004000010000;\n.reg .f32 c<4>;\n";
    for (int i = 0; i < 4; ++i) body += fmt::format("mov.f32 c{}, 0f00000000;\n", i);
    body += "wgmma.fence.sync.aligned;\n" +
            repeated("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {c0, c1, c2, c3}, d2, d2, 1, 1, 1, 0, 0;\n",
                     products) +
            "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nbra END;\nWORK:\n";
    for (int i = 0; i < count; ++i) body += fmt::format("fma.rn.f32 f{0}, f{0}, f15, f15;\n", i % 8);
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    options.skips_values = true;
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(1024);
    const auto findings = tessera::testing::run_test_entry(device, entry(body + "END:"), values, 256);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const double interval = h200().class_of("fma32").interval;
  CHECK((cycles_of(1, 2600) - cycles_of(1, 2000)) / 600 == doctest::Approx(interval).epsilon(0.03));
  // While 199 more products are at work, the pipe does only a part of what it does without.
  const double work = 199 * h200().wgmma.at("bf16 SS").at(8);
  const double part = 1 / h200().beside_wgmma[static_cast<std::size_t>(Pipe::fma)];
  CHECK(cycles_of(200, 5000) - cycles_of(1, 5000) == doctest::Approx(work * (1 - part)).epsilon(0.05));
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

TEST_CASE("time: operands of a wgmma come while the one before it multiplies") {
  const auto cycles_of = [](const std::string& products, int count) {
    std::string body = ".reg .f32 c<36>;\nmov.b64 d2, 0x4000004000010000;\n";
    for (int i = 0; i < 36; ++i) body += fmt::format("mov.f32 c{}, 0f00000000;\n", i);
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    options.skips_values = true;
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(1024);
    const auto findings =
        tessera::testing::run_test_entry(device,
                                         entry(body + "wgmma.fence.sync.aligned;\n" + repeated(products, count) +
                                               "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"),
                                         values, 128);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const auto each_of = [&](const std::string& products) {
    return (cycles_of(products, 40) - cycles_of(products, 20)) / 20;
  };
  const std::string narrow =
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {c0, c1, c2, c3}, d2, d2, 1, 1, 1, 0, 0;\n";
  std::string wide = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {c4";
  for (int i = 5; i < 36; ++i) wide += fmt::format(", c{}", i);
  wide += "}, {r4, r5, r6, r7}, d2, 1, 1, 1, 0;\n";
  CHECK(each_of(narrow) == doctest::Approx(h200().wgmma.at("bf16 SS").at(8)).epsilon(0.03));  // its operands
  CHECK(each_of(wide) == doctest::Approx(64 / 2).epsilon(0.03));
  CHECK(each_of(narrow + wide) == doctest::Approx((64 + 8) / 2).epsilon(0.05));
}

LaunchTime time_of_grid(const std::string& body, std::uint32_t threads, std::uint32_t ctas) {
  DeviceOptions options;
  options.time = find_gpu_time("h200");
  options.num_sms = sms_of(*options.time);
  options.skips_values = true;
  EmulatedDevice device(options);
  std::vector<std::uint32_t> values(1 << 20);
  const auto findings = tessera::testing::run_test_entry(device, entry(body), values, threads, ctas);
  for (const auto& finding : findings) CAPTURE(finding.message);
  REQUIRE(findings.empty());
  return device.take_times().at(0);
}

TEST_CASE("time: sectors that are written in part take the L2, which all share") {
  const auto stores = [](std::uint32_t ctas) {
    const auto kernel = [&](int count) {
      return time_of_grid("shl.b32 r5, r0, 7;\ncvt.u64.u32 d1, r5;\nadd.u64 d1, d0, d1;\nmov.u32 r7, 0;\n" +
                              repeated("st.global.u32 [d1], r7;\n", count),
                          256, ctas)
          .cycles;
    };
    return (kernel(24) - kernel(8)) / 16;
  };
  CHECK(stores(1) == doctest::Approx(256 * h200().l1_store_part).epsilon(0.05));
  CHECK(stores(132) == doctest::Approx(256 * 132 / h200().l2_parts_per_clock).epsilon(0.05));
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

TEST_CASE("time: the L2 reads once what neighbours read, as long as they are in step") {
  // Copies of 16 KiB, of which CTAs whose numbers are the same after this operation have the same; one goes on for so
  // many multiply-adds.
  const auto kernel = [](const char* operation, int copies) {
    return time_of_grid(
               fmt::format(
                   "mov.u32 r7, %ctaid.x;\n{}\nshl.b32 r7, r7, 14;\ncvt.u64.u32 d1, r7;\nadd.u64 d0, d0, d1;\n"
                   "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
                   "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
                   "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;",
                   operation, copies * 16384,
                   repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], "
                            "16384, [r6];\n",
                            copies)),
               32, 132)
        .cycles;
  };
  const auto rate = [&](const char* operation) { return 24 * 16384 / (kernel(operation, 62) - kernel(operation, 38)); };
  const auto expected = [](double neighbours) {
    const double at_once = 1 + (neighbours - 1) * h200().in_step_after(0);
    return 1 / (1 / (h200().l2_distinct * at_once) + 1 / h200().l2_each);
  };
  CHECK(rate("shr.u32 r7, r7, 3;") == doctest::Approx(expected(1)).epsilon(0.05));   // one of each GPC
  CHECK(rate("shr.u32 r7, r7, 4;") == doctest::Approx(expected(2)).epsilon(0.05));   // two of each
  CHECK(rate("and.b32 r7, r7, 31;") == doctest::Approx(expected(4)).epsilon(0.05));  // four of one
  CHECK(h200().in_step_after(1e4) > 2 * h200().in_step_after(2e5));
  CHECK(h200().in_step_after(1e7) == h200().l2_in_step_after.points.back().second);
}

TEST_CASE("time: what lanes ask for does not wait for the copies that are under way") {
  // One thread copies 4 KiB again and again; another warp loads, once it has begun.
  const auto wait_of_load = [](int copies) {
    const LaunchTime time = time_of(
        fmt::format(
            "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
            "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}bar.sync 0;\nsetp.lt.u32 p, r0, 32;\n@p bra "
            "WAIT;\nld.global.cg.u32 r5, [d0];\nst.shared.u32 [r3+16384], r5;\nbra OVER;\n"
            "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\nOVER:",
            copies * 4096,
            repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 4096, [r6];\n",
                     copies)),
        64);
    return time.roles.back().waits.at("memory");
  };
  CHECK(wait_of_load(64) < wait_of_load(2) + 200);
}

TEST_CASE("time: what was written before goes when others come, first of all") {
  CHECK(h200().displaced_by(0) == 0);
  for (const double megabytes : {0.5, 1., 2., 8., 64.}) {
    CAPTURE(megabytes);
    CHECK(h200().displaced_by(2e6 * megabytes) > h200().displaced_by(1e6 * megabytes));
    CHECK(h200().displaced_by(2e6 * megabytes) < 2 * h200().displaced_by(1e6 * megabytes) + 1);
  }
  CHECK(h200().displaced_by(1e12) == h200().displaced.points.back().second);
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

TEST_CASE("time: a bounds check around a load is a predicate, and loads do not wait for each other's uses") {
  const auto kernel = [](int count, bool is_checked) {
    std::string body = "shl.b32 r4, r0, 2;\ncvt.u64.u32 d1, r4;\nadd.u64 d1, d0, d1;\nmov.f32 f0, 0f00000000;\n";
    for (int i = 0; i < count; ++i) {
      if (is_checked) body += fmt::format("setp.gt.u32 p, r0, 512;\n@p bra L{};\n", i);
      body += fmt::format("ld.global.f32 f1, [d1];\nfma.rn.f32 f0, f1, f1, f0;\n");
      if (is_checked) body += fmt::format("L{}:\n", i);
    }
    return body + "st.shared.f32 [r3], f0;\n";
  };
  const double latency = h200().l2_latency;
  CHECK(cycles(kernel(24, true)) < cycles(kernel(24, false)) + latency);
  CHECK(cycles(kernel(24, true)) < cycles(kernel(8, true)) + latency);
}

TEST_CASE("time: loads behind predicates are under way as far as there are predicate registers") {
  const auto kernel = [](int count, bool is_checked) {
    std::string body = "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\nmov.f32 f0, 0f00000000;\n";
    for (int i = 0; i < count; ++i) {
      if (is_checked) body += fmt::format("setp.gt.u32 p, r0, 512;\n@p bra L{};\n", i);
      body += fmt::format("ld.global.cg.f32 f1, [d1];\nfma.rn.f32 f0, f1, f1, f0;\n");
      if (is_checked) body += fmt::format("L{}:\n", i);
    }
    return body + "st.shared.f32 [r3], f0;\n";
  };
  // With values everything is read from the memory.
  const double turns = (cycles(kernel(30, true)) - cycles(kernel(6, true))) / h200().hbm_latency;
  CHECK(turns == doctest::Approx(24.0 / 6).epsilon(0.1));
  CHECK(cycles(kernel(30, false)) < cycles(kernel(6, false)) + h200().hbm_latency);
}

TEST_CASE("time: a second load of a line takes the L1's latency, one past the L1 that of the memory") {
  const auto chain = [](const char* load) {
    return each(fmt::format("{} r5, [d1];\nand.b32 r5, r5, 0;\ncvt.u64.u32 d2, r5;\nadd.u64 d1, d1, d2;\n", load), 32,
                "cvt.u64.u32 d1, r2;\nadd.u64 d1, d0, d1;\n");
  };
  const double past = chain("ld.global.cg.u32"), through = chain("ld.global.u32");
  CHECK(past - through == doctest::Approx(h200().hbm_latency - h200().l1_latency).epsilon(0.05));
  CHECK(chain("ld.volatile.global.u32") == doctest::Approx(past).epsilon(0.02));
}

TEST_CASE("time: plain stores take the L1's time by lines, and more where 32 bytes are written in part") {
  const auto stores = [](int lines) {
    const std::string address = fmt::format(
        "and.b32 r4, r0, 31;\ndiv.u32 r5, r4, {0};\nrem.u32 r6, r4, {0};\nshl.b32 r5, r5, 7;\nshl.b32 r6, r6, 2;\n"
        "add.u32 r5, r5, r6;\ncvt.u64.u32 d1, r5;\nadd.u64 d1, d0, d1;\nmov.u32 r7, 0;\n",
        32 / lines);
    return each("st.global.u32 [d1], r7;\n", 256, address) / 8;
  };
  CHECK(stores(4) == doctest::Approx(4 * h200().l1_store_line).epsilon(0.05));
  CHECK(stores(8) == doctest::Approx(8 * h200().l1_store_part).epsilon(0.05));
}

TEST_CASE("time: copies between the shared memories of a cluster have the rate of that way") {
  const auto kernel = [](int count) {
    return fmt::format(
        "mov.u32 r6, bar;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nst.shared.u32 [r3], r0;\n"
        "bar.sync 0;\nfence.proxy.async.shared::cta;\nadd.u32 r4, r1, 16384;\n"
        "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
        "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
        count * 4096,
        repeated("@q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r4], [r1], 4096, [r6];\n",
                 count));
  };
  CHECK((cycles(kernel(24), 1024) - cycles(kernel(8), 1024)) / 16 ==
        doctest::Approx(4096 / h200().cluster_bytes_per_clock).epsilon(0.02));
}

TEST_CASE("time: loads of another CTA's shared memory take the way between multiprocessors, of the own none") {
  const auto cycles_of = [](int count, const std::string& rank) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    const std::string text = entry("mov.u32 r5, %cluster_ctarank;\n" + rank +
                                   "shl.b32 r4, r0, 4;\nadd.u32 r3, r1, r4;\nmapa.shared::cluster.u32 r4, r3, r5;\n"
                                   "mov.f32 f0, 0f00000000;\nst.shared.v4.f32 [r3], {f0, f0, f0, f0};\n"
                                   "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" +
                                   repeated("ld.shared::cluster.v4.f32 {f1, f2, f3, f4}, [r4];\n", count) +
                                   "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n");
    std::vector<std::uint32_t> values(1024);
    const auto findings = tessera::testing::run_test_entry(device, text, values, 128, 2, 2);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const auto each = [&](const std::string& rank) { return (cycles_of(200, rank) - cycles_of(140, rank)) / 60; };
  CHECK(each("xor.b32 r5, r5, 1;\n") == doctest::Approx(128 * 16 / h200().cluster_bytes_per_clock).epsilon(0.03));
  CHECK(each("") == doctest::Approx(128 * 16 / h200().smem_bytes_per_clock).epsilon(0.03));
}

TEST_CASE("time: a bulk store by all lanes of a warp is one, where they store the same bytes") {
  const auto kernel = [](int count, const std::string& who) {
    return "setp.lt.u32 q, r0, " + who + ";\nst.shared.u32 [r3], r0;\nbar.sync 0;\nfence.proxy.async.shared::cta;\n" +
           repeated("@q cp.async.bulk.global.shared::cta.bulk_group [d0], [r1], 2048;\n", count) +
           "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n";
  };
  const auto each = [&](const std::string& who) {
    return (cycles(kernel(40, who), 512) - cycles(kernel(8, who), 512)) / 32;
  };
  CHECK(each("1") == doctest::Approx(2048 / h200().tma_store_bytes_per_clock).epsilon(0.05));
  CHECK(each("32") == doctest::Approx(each("1")).epsilon(0.02));
  CHECK(each("64") == doctest::Approx(2 * each("1")).epsilon(0.05));
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

TEST_CASE("time: a copy for both CTAs of a cluster takes the port of both multiprocessors") {
  const auto cycles_of = [](int count, const std::string& multicast) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    const std::string copy = fmt::format(
        "@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{} [r1], [d0], 4096, [r6]{};\n",
        multicast.empty() ? "" : ".multicast::cluster", multicast);
    const std::string text =
        entry(fmt::format("mov.u32 r6, bar;\n.reg .b16 h0;\nmov.u16 h0, 3;\nsetp.eq.u32 q, r0, 0;\n"
                          "@q mbarrier.init.shared.b64 [r6], 1;\n@q fence.mbarrier_init.release.cluster;\n"
                          "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
                          "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
                          "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n"
                          "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n",
                          count * 4096 * (multicast.empty() ? 1 : 2), repeated(copy, count)));
    std::vector<std::uint32_t> values(1024);
    const auto findings = tessera::testing::run_test_entry(device, text, values, 32, 2, 2);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0).cycles;
  };
  const auto each = [&](const std::string& multicast) {
    return (cycles_of(100, multicast) - cycles_of(60, multicast)) / 40;
  };
  CHECK(each("") < 0.8 * each(", h0"));  // no faster than they are issued
  CHECK(each(", h0") == doctest::Approx(2 * 4096 / h200().multicast_bytes_per_clock).epsilon(0.03));
}

TEST_CASE("time: the L2 gives more of what many multiprocessors copy at the same time") {
  const auto each = [](bool is_same) {
    const auto cycles_of = [&](int count) {
      DeviceOptions options;
      options.time = find_gpu_time("h200");
      options.num_sms = sms_of(*options.time);
      options.skips_values = true;
      EmulatedDevice device(options);
      const std::string text = entry(fmt::format(
          "mov.u32 r6, bar;\nmov.u32 r7, %ctaid.x;\nmul.lo.u32 r7, r7, {};\ncvt.u64.u32 d1, r7;\nadd.u64 d0, d0, d1;\n"
          "setp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
          "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
          "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
          is_same ? 0 : 16384, count * 16384,
          repeated("@q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 16384, [r6];\n",
                   count)));
      std::vector<std::uint32_t> values(132 * 4096);
      const auto findings = tessera::testing::run_test_entry(device, text, values, 32, 132);
      for (const auto& finding : findings) CAPTURE(finding.message);
      REQUIRE(findings.empty());
      return device.take_times().at(0).cycles;
    };
    return (cycles_of(62) - cycles_of(38)) / 24;
  };
  const IntervalTable& table = h200().l2_by_sharers;
  CHECK(each(false) == doctest::Approx(16384 / table.at(1)).epsilon(0.05));
  CHECK(each(true) == doctest::Approx(16384 / std::min(h200().port_bytes_per_clock, table.at(132))).epsilon(0.05));
}

// Boxes of rows of a matrix in the buffer, whose map stands behind it.
std::string boxes(int words, int pitch, int rows, int count) {
  std::string text = "mov.u32 r6, bar;\nmov.u32 r7, 0;\nadd.u64 d3, d0, 3968;\nadd.u32 r8, r1, 16384;\n";
  for (int i = 0; i < 128; i += 16) text += fmt::format("st.shared.v4.b32 [smem+{}], {{r7, r7, r7, r7}};\n", 16384 + i);
  const auto replace = [&](const char* field, const char* type, const std::string& value) {
    text += fmt::format("tensormap.replace.tile.{}.shared::cta.b1024.{} [smem+16384], {};\n", field, type, value);
  };
  replace("global_address", "b64", "d0");
  replace("rank", "b32", "1");
  replace("box_dim", "b32", fmt::format("0, {}", words));
  replace("box_dim", "b32", fmt::format("1, {}", rows));
  replace("global_dim", "b32", fmt::format("0, {}", words));
  replace("global_dim", "b32", fmt::format("1, {}", rows));
  replace("global_stride", "b64", fmt::format("0, {}", pitch));
  for (const char* field : {"0, 1", "1, 1"}) replace("element_stride", "b32", field);
  replace("elemtype", "b32", "2");
  for (const char* field : {"interleave_layout", "swizzle_mode", "fill_mode"}) replace(field, "b32", "0");
  return text +
         fmt::format(
             "setp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\nbar.sync 0;\n"
             "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d3], [r8], 128;\n"
             "fence.proxy.tensormap::generic.acquire.gpu [d3], 128;\n"
             "@q mbarrier.arrive.expect_tx.shared.b64 _, [r6], {};\n{}"
             "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n",
             count * rows * words * 4,
             repeated("@q cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r1], "
                      "[d3, {r7, r7}], [r6];\n",
                      count));
}

TEST_CASE("time: the copy engine takes a line of a row a cycle, and longer for rows that begin between sectors") {
  const auto of_each = [](int words, int pitch, int rows) {
    return (cycles(boxes(words, pitch, rows, 96)) - cycles(boxes(words, pitch, rows, 32))) / 64;
  };
  const double line = h200().tma_row;
  REQUIRE(line > 0);
  CHECK(of_each(4, 32, 96) == doctest::Approx(96 * line).epsilon(0.03));
  CHECK(of_each(4, 16, 96) == doctest::Approx(96 * line).epsilon(0.03));  // half a sector each
  CHECK(of_each(8, 32, 112) == doctest::Approx(112 * line).epsilon(0.03));
  CHECK(of_each(24, 32, 96) == doctest::Approx(96 * 1.5 * line).epsilon(0.03));  // each second lies in two lines
  CHECK(of_each(16, 80, 48) ==  // 11 lines of eight rows, four of which begin between sectors
        doctest::Approx(48 * (11.0 / 8 * line + h200().tma_split_row.at(64) / 2)).epsilon(0.03));
}

TEST_CASE("time: mma.sync keeps the rate of its type, and a chain its latency") {
  const auto cycles_of = [](const char* gpu, const std::string& type, int chains, int count) {
    DeviceOptions options;
    options.time = find_gpu_time(gpu);
    options.arch = arch_of(*options.time);
    options.num_sms = sms_of(*options.time);
    EmulatedDevice device(options);
    std::string body;
    for (int i = 0; i < 8; ++i) body += fmt::format("mov.f32 f{}, 0f00000000;\n", i);
    for (int i = 0; i < count; ++i)
      body += fmt::format(
          "mma.sync.aligned.{0} {{f{1},f{2},f{3},f{4}}}, {{r0,r0,r0,r0}}, {{r0,r0}}, {{f{1},f{2},f{3},f{4}}};\n", type,
          4 * (i % chains), 4 * (i % chains) + 1, 4 * (i % chains) + 2, 4 * (i % chains) + 3);
    std::vector<std::uint32_t> values(1024);
    std::string text = entry(body);
    text.replace(text.find("sm_90a"), 6, options.arch);
    REQUIRE(tessera::testing::run_test_entry(device, text, values, 128).empty());
    return device.take_times().at(0).cycles;
  };
  const auto each = [&](const char* gpu, const std::string& type, int chains) {
    return (cycles_of(gpu, type, chains, 96) - cycles_of(gpu, type, chains, 32)) / 64;
  };
  const std::string bf16 = "m16n8k16.row.col.f32.bf16.bf16.f32", fp8 = "m16n8k32.row.col.f32.e4m3.e4m3.f32";
  // 4,096 operations of each of four sub-cores, at 512 and 1,024 a clock; 8,192 at 1,024.
  CHECK(each("rtx5090", bf16, 2) == doctest::Approx(32).epsilon(0.02));
  CHECK(each("rtx5090", bf16, 1) == doctest::Approx(35).epsilon(0.02));
  CHECK(each("PRO 6000", bf16, 2) == doctest::Approx(35.0 / 2).epsilon(0.02));  // two chains of 35 cycles
  CHECK(each("rtx5090", fp8, 2) == doctest::Approx(32).epsilon(0.02));
}

TEST_CASE("time: chains of mma.sync that stand one after the other run side by side") {
  const auto cycles_of = [](int count) {
    std::string body;
    for (int chain = 0; chain < 2; ++chain)
      for (int i = 0; i < count; ++i)
        body += fmt::format(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{f{0},f{1},f{2},f{3}}}, {{r0,r0,r0,r0}}, {{r0,r0}}, "
            "{{f{0},f{1},f{2},f{3}}};\n",
            4 * chain, 4 * chain + 1, 4 * chain + 2, 4 * chain + 3);
    std::string before;
    for (int i = 0; i < 8; ++i) before += fmt::format("mov.f32 f{}, 0f00000000;\n", i);
    return cycles(before + body + "bar.sync 0;\n");
  };
  const MmaTime& mma = h200().mma.at("f16");
  // Both take their turns on the pipe; the second one begins when all turns of the first are taken.
  const double interval = 4 * 4096 / mma.flop_per_clock;
  CHECK((cycles_of(96) - cycles_of(32)) / 64 == doctest::Approx(mma.latency + interval).epsilon(0.05));
}

TEST_CASE("time: without values tcgen05 takes its time, and nobody looks at what was not computed") {
  const auto time_of_products = [](int count, int copies = 0) {
    DeviceOptions options;
    options.time = find_gpu_time("b200");
    options.arch = arch_of(*options.time);
    options.num_sms = sms_of(*options.time);
    options.skips_values = true;
    EmulatedDevice device(options);
    std::string body =
        "mov.u32 r6, bar;\nadd.u32 r7, r1, 16384;\nsetp.eq.u32 q, r0, 0;\n@q mbarrier.init.shared.b64 [r6], 1;\n"
        "setp.lt.u32 p, r0, 32;\n@p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r1], 512;\nbar.sync 0;\n"
        "ld.shared.u32 r8, [r1];\nmov.u32 r9, 138413200;\nshr.u32 r10, r7, 4;\ncvt.u64.u32 d2, r10;\n"
        "or.b64 d2, d2, 0x4000404000000000;\n";  // the descriptor's fixed fields: 128-byte swizzle, 1,024 bytes apart
    body += "add.u32 r12, r8, 256;\n";
    for (int i = 0; i < count; ++i)
      body += repeated("@q tcgen05.cp.cta_group::1.128x128b [r12], d2;\n", copies) +
              "@q tcgen05.mma.cta_group::1.kind::f16 [r8], d2, d2, r9, p;\n";
    body +=
        "@q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [r6];\n"
        "WAIT: mbarrier.try_wait.parity.shared.b64 p, [r6], 0;\n@!p bra WAIT;\n"
        "tcgen05.fence::after_thread_sync;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {r11}, [r8];\n"
        "tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\nsetp.lt.u32 p, r0, 32;\n"
        "@p tcgen05.dealloc.cta_group::1.sync.aligned.b32 r8, 512;\n";
    std::string text = entry(body);
    text.replace(text.find("sm_90a"), 6, options.arch);
    std::vector<std::uint32_t> values(1024);
    const auto findings = tessera::testing::run_test_entry(device, text, values, 32);
    for (const auto& finding : findings) CAPTURE(finding.message);
    REQUIRE(findings.empty());
    return device.take_times().at(0);
  };
  const LaunchTime few = time_of_products(16), many = time_of_products(80);
  CHECK((many.cycles - few.cycles) / 64 == doctest::Approx(128).epsilon(0.01));  // N / 2
  REQUIRE(!many.roles.empty());
  CHECK(many.roles.front().waits.at("tensor core") > 64 * 100);
  // Copies go beside products, until they take longer.
  const auto step = [&](int copies) {
    return (time_of_products(80, copies).cycles - time_of_products(16, copies).cycles) / 64;
  };
  const double copy = find_gpu_time("b200")->tcgen05_copy;
  CHECK(step(2) == doctest::Approx(128).epsilon(0.01));
  CHECK(step(4) == doctest::Approx(4 * copy).epsilon(0.01));
}

TEST_CASE("time: without values nobody looks at shared memory that a copy would have written") {
  for (const bool skips_values : {false, true}) {
    DeviceOptions options;
    options.time = find_gpu_time("h200");
    options.num_sms = sms_of(*options.time);
    options.skips_values = skips_values;
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(1024);
    CHECK(tessera::testing::run_test_entry(device, entry("ld.shared.u32 r4, [r3];"), values, 32).empty() ==
          skips_values);
  }
}

TEST_CASE("time: results are those without a clock") {
  const std::string body =
      "shl.b32 r4, r0, 2;\ncvt.u64.u32 d1, r4;\nadd.u64 d1, d0, d1;\nst.shared.u32 [r3], r0;\nbar.sync 0;\n"
      "xor.b32 r5, r3, 4;\nld.shared.u32 r6, [r5];\nst.global.u32 [d1], r6;\n";
  std::vector<std::uint32_t> values(1024);
  time_of(body, 64, &values);
  for (std::uint32_t i = 0; i < 64; ++i) CHECK(values[i] == (i ^ 1));
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

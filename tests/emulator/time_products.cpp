// The time model: what products on tensor cores cost, by kernels of a few instructions.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/emulator/time_run.h"

namespace tessera::emulator::time_test {

TEST_CASE("time: beside a wgmma the multiply-add pipe has half of its rate, with pairs of 16 bits a quarter") {
  const auto cycles_of = [](int products, int count, const char* instruction) {
    std::string body = "setp.ge.u32 q, r0, 128;\n@q bra WORK;\nmov.b64 d2, 0x4000004000010000;\n.reg .f32 c<4>;\n";
    for (int i = 0; i < 4; ++i) body += fmt::format("mov.f32 c{}, 0f00000000;\n", i);
    body += "wgmma.fence.sync.aligned;\n" +
            repeated("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {c0, c1, c2, c3}, d2, d2, 1, 1, 1, 0, 0;\n",
                     products) +
            "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nbra END;\nWORK:\n";
    for (int i = 0; i < count; ++i) body += fmt::format(fmt::runtime(instruction), 4 + i % 8);
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
  const double work = 199 * h200().wgmma.at("bf16 SS").at(8);
  const auto check = [&](const char* instruction, const char* name, double beside) {
    CAPTURE(name);
    const double alone = (cycles_of(1, 2600, instruction) - cycles_of(1, 2000, instruction)) / 600;
    CHECK(alone == doctest::Approx(h200().class_of(name).interval).epsilon(0.03));
    // While 199 more products are at work, the pipe does only a part of what it does without.
    CHECK(cycles_of(200, 5000, instruction) - cycles_of(1, 5000, instruction) ==
          doctest::Approx(work * (1 - 1 / beside)).epsilon(0.05));
  };
  check("fma.rn.f32 f{0}, f{0}, f15, f15;\n", "fma32", h200().beside_wgmma[static_cast<std::size_t>(Pipe::fma)]);
  check("fma.rn.bf16x2 r{0}, r{0}, r15, r15;\n", "fma16", 4);
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

}  // namespace tessera::emulator::time_test

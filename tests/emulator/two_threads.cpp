// A grid in two halves: the same memory and findings as on one thread, and one thread where halves are not independent.
#include "emulator/two_threads.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::two_threads_test {
namespace {

struct Outcome {
  std::vector<std::uint32_t> out;
  std::vector<EmulatorFinding> findings;
  LaunchStatistics statistics;
};

// The body knows `out`, `i` (the thread's number in the grid) and `place`, where word i of the 1024 words of out is.
Outcome run(const std::string& body, int threads, std::uint32_t ctas = 16) {
  const std::string ptx = fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n.reg .pred p;\n"
      ".reg .b32 i, cta, x, y;\n.reg .b64 out, place, far;\nld.param.u64 out, [buffer];\nmov.u32 cta, %ctaid.x;\n"
      "mov.u32 i, %tid.x;\nmad.lo.u32 i, cta, 32, i;\nmul.wide.u32 place, i, 4;\nadd.s64 place, place, "
      "out;\n{}\nret;\n}}\n",
      body);
  DeviceOptions options;
  options.threads = threads;
  EmulatedDevice device(options);
  Outcome outcome;
  outcome.out.resize(1024, 0x11111111);
  outcome.findings = tessera::testing::run_test_entry(device, ptx, outcome.out, 32, ctas);
  outcome.statistics = device.statistics();
  return outcome;
}

TEST_CASE("two threads give what one gives") {
  const std::string body = "ld.global.b32 x, [place+2048];\nmad.lo.u32 x, i, 7, x;\nst.global.b32 [place], x;";
  const Outcome one = run(body, 1);
  const Outcome two = run(body, 2);
  CHECK(one.statistics.threads == 1);
  CHECK(two.statistics.threads == 2);
  CHECK(two.statistics.why_one_thread.empty());
  CHECK(two.out == one.out);
  CHECK(two.out[511] == 0x11111111u + 7 * 511);
  CHECK(two.out[512] == 0x11111111u);
  CHECK(two.statistics.warp_instructions == one.statistics.warp_instructions);
  CHECK(two.findings.empty());
}

TEST_CASE("findings of both halves") {
  const std::string body = "setp.eq.u32 p, cta, 13;\n@p st.global.b32 [place+4096], i;\nst.global.b32 [place], i;";
  const Outcome two = run(body, 2);
  REQUIRE(two.findings.size() == 1);
  CHECK(two.findings[0].name == "global-out-of-bounds");
  CHECK(two.findings[0].cta[0] == 13);
  CHECK(two.findings[0].message.find("past the end of an allocation of 4096 bytes") != std::string::npos);
}

TEST_CASE("one thread where clusters speak to each other") {
  const auto why = [](const std::string& body) { return run(body, 2).statistics.why_one_thread; };
  CHECK(why("red.global.add.u32 [out], 1;") == "clusters may speak to each other (PTX line 15: red.global.add.u32)");
  CHECK(why("ld.volatile.global.b32 x, [out];").find("clusters may speak") == 0);
  CHECK(why("st.release.gpu.global.b32 [place], i;").find("clusters may speak") == 0);
  CHECK(run("st.global.b32 [place], i;", 2, 1).statistics.why_one_thread == "there is one cluster");
  // Both halves write one word: the memory of before, then the whole grid on one thread.
  const std::string body = "ld.global.b32 x, [out];\nadd.u32 x, x, 1;\nst.global.b32 [out], x;";
  const Outcome two = run(body, 2);
  CHECK(two.statistics.why_one_thread.find("both halves of the grid wrote address 0x7000") == 0);
  CHECK(two.statistics.threads == 1);
  CHECK(two.out == run(body, 1).out);
}

}  // namespace
}  // namespace tessera::emulator::two_threads_test

// A grid in parts: the same memory and findings for every number of threads, and one thread where clusters may speak.
#include "emulator/parts.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::parts_test {
namespace {

struct Outcome {
  std::vector<std::uint32_t> out;
  std::vector<std::string> findings;
  LaunchStatistics statistics;
};

// The body knows `out`, `i` (the thread's number in the grid), `cta` and `place`, where word i of the out is.
Outcome run(const std::string& body, int threads, std::uint32_t ctas = 16, std::uint64_t max_instructions = 0) {
  const std::string ptx = fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n.reg .pred p;\n"
      ".reg .b32 i, cta, x, y;\n.reg .b64 out, place, far;\nld.param.u64 out, [buffer];\nmov.u32 cta, %ctaid.x;\n"
      "mov.u32 i, %tid.x;\nmad.lo.u32 i, cta, 32, i;\nmul.wide.u32 place, i, 4;\nadd.s64 place, place, "
      "out;\n{}\nret;\n}}\n",
      body);
  DeviceOptions options;
  options.threads = threads;
  if (max_instructions != 0) options.max_warp_instructions = max_instructions;
  EmulatedDevice device(options);
  Outcome outcome;
  outcome.out.resize(std::size_t{64} * ctas, 0x11111111);
  for (const EmulatorFinding& finding : tessera::testing::run_test_entry(device, ptx, outcome.out, 32, ctas))
    outcome.findings.push_back(finding.to_string());
  outcome.statistics = device.statistics();
  return outcome;
}

// Some ten instructions a thread, times as many: enough for a second thread to be worth it.
std::string loop(int times, const std::string& body) {
  return fmt::format("mov.u32 y, 0;\nagain:\n{}\nadd.u32 y, y, 1;\nsetp.lt.u32 p, y, {};\n@p bra again;\n", body,
                     times);
}

}  // namespace

TEST_CASE("parts give what the whole grid gives, on any number of threads") {
  const std::string body =
      "ld.global.b32 x, [place+32768];\n" + loop(300, "mad.lo.u32 x, i, 7, x;") + "st.global.b32 [place], x;";
  const Outcome one = run(body, 1, 256);
  CHECK(one.statistics.threads == 1);
  CHECK(one.out[8191] == 0x11111111u + 300 * 7 * 8191);
  CHECK(one.out[8192] == 0x11111111u);
  for (const int threads : {2, 3, 8}) {
    CAPTURE(threads);
    const Outcome more = run(body, threads, 256);
    CHECK(more.statistics.threads == threads);
    CHECK(more.statistics.why_one_thread.empty());
    CHECK(more.out == one.out);
    CHECK(more.statistics.warp_instructions == one.statistics.warp_instructions);
    CHECK(more.findings.empty());
  }
}

TEST_CASE("a grid of two clusters") {
  const Outcome two = run("st.global.b32 [place], i;", 2, 2);
  CHECK(two.statistics.why_one_thread.empty());
  CHECK(two.out[63] == 63);
  CHECK(two.out[64] == 0x11111111);
}

TEST_CASE("findings of all parts up to the first failure, in the order of the parts") {
  // CTAs 70 and 200 step over the end; others before and behind read what nobody wrote, a hazard.
  const std::string body =
      "setp.eq.u32 p, cta, 70;\n@p st.global.b32 [place+65536], i;\nsetp.eq.u32 p, cta, 200;\n"
      "@p st.global.b32 [place+65536], i;\n" +
      loop(400, "mad.lo.u32 x, i, 7, 3;") + "st.global.b32 [place], i;";
  const Outcome two = run(body, 2, 256);
  REQUIRE(two.findings.size() == 1);
  CHECK(two.findings[0].find("global-out-of-bounds") != std::string::npos);
  CHECK(two.findings[0].find("CTA (70, 0, 0)") != std::string::npos);
  CHECK(two.findings[0].find("past the end of an allocation of 65536 bytes") != std::string::npos);
  for (int i = 0; i < 5; ++i) CHECK(run(body, 2 + i, 256).findings == two.findings);
}

TEST_CASE("an endless loop ends with the budget of the grid") {
  const Outcome two = run("again:\nadd.u32 x, i, 1;\nbra again;", 2, 64, 1'000'000);
  REQUIRE(two.findings.size() == 1);
  CHECK(two.findings[0].find("instruction-budget") != std::string::npos);
}

TEST_CASE("integer atomics whose order shows nowhere run on threads") {
  // atom without a reader of its result is what compilers make of atomicAdd.
  const std::string body = loop(100, "atom.global.add.u32 x, [out], 3;\nred.global.add.u32 [out+4], i;");
  const Outcome two = run(body, 4, 256);
  CHECK(two.statistics.why_one_thread.empty());
  CHECK(two.statistics.threads == 4);
  CHECK(two.out[0] == 0x11111111u + 3u * 100 * 8192);
  CHECK(two.out[1] == static_cast<std::uint32_t>(0x11111111u + 100ull * (8191ull * 8192 / 2)));
}

TEST_CASE("one thread where clusters may speak to each other") {
  const auto why = [](const std::string& body) { return run(body, 2).statistics.why_one_thread; };
  CHECK(why("atom.global.add.u32 x, [out], 1;\nst.global.b32 [place], x;") ==
        "clusters may speak to each other (PTX line 15: atom.global.add.u32)");
  CHECK(why("atom.global.add.u32 x, [out], 1;\n@p bra end;\nend:\nst.global.b32 [place], x;").find("PTX line 15") !=
        std::string::npos);
  CHECK(why("mov.u32 x, 1;\natom.global.add.u32 x, [out], x;").find("PTX line 16") != std::string::npos);
  CHECK(why("red.global.add.u32 [out], 1;\nred.global.max.u32 [out], 7;").find("PTX line 16") != std::string::npos);
  for (const char* const body :
       {"red.global.add.f32 [out], 0f3F800000;", "atom.global.exch.b32 x, [out], 1;", "red.global.inc.u32 [out], 9;",
        "red.release.gpu.global.add.u32 [out], 1;", "ld.volatile.global.b32 x, [out];", "ld.global.cv.b32 x, [out];",
        "st.release.gpu.global.b32 [place], i;", "membar.gl;", "fence.acq_rel.gpu;", "fence.sc.sys;"})
    CHECK_MESSAGE(why(body).starts_with("clusters may speak to each other (PTX line 15"), body);
  for (const char* const body :
       {"membar.cta;", "fence.acq_rel.cta;", "ld.global.cg.b32 x, [out];", "red.global.add.u32 [out], 1;"})
    CHECK_MESSAGE(why(body).empty(), body);
  CHECK(run("st.global.b32 [place], i;", 2, 1).statistics.why_one_thread == "there is one cluster");
}

}  // namespace tessera::emulator::parts_test

// Schedule::split, without the race detector: lanes that are not made to meet go apart, and what leans on them being in
// step comes out wrong; what does not is right under every seed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::split_test {
namespace {

const std::string kMeet = "bar.warp.sync -1;\n";

// One warp; i is the lane, `at` its word of shared memory, `to` its word of the buffer.
std::string entry(const std::string& body) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred p, q, lane0, half, low;\n.reg .b32 r<16>, i, at;\n.reg .b64 d<8>, to;\n"
      ".shared .align 128 .b8 smem[2048];\nld.param.u64 d0, [buffer];\nmov.u32 i, %tid.x;\n"
      "setp.eq.u32 lane0, i, 0;\nsetp.lt.u32 half, i, 16;\nshl.b32 r1, i, 2;\nmov.u32 at, smem;\nadd.u32 at, at, r1;\n"
      "cvt.u64.u32 d1, r1;\nadd.u64 to, d0, d1;\n{}\nret;\n}}\n",
      body);
}

std::vector<std::uint32_t> run(const std::string& body, Schedule schedule, std::uint64_t seed) {
  DeviceOptions options;
  options.schedule = schedule;
  options.seed = seed;
  options.max_warp_instructions = 200000;
  EmulatedDevice device(options);
  std::vector<std::uint32_t> values(32);
  for (const EmulatorFinding& finding : tessera::testing::run_test_entry(device, entry(body), values, 32))
    CHECK_MESSAGE(!finding.is_failure, finding.to_string());
  return values;
}

constexpr std::uint64_t kSeeds = 12;

/// How many seeds give something else than the schedule fair.
int wrong(const std::string& body, Schedule schedule = Schedule::split) {
  const std::vector<std::uint32_t> right = run(body, Schedule::fair, 1);
  int count = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) count += run(body, schedule, seed) != right ? 1 : 0;
  return count;
}

std::string sum(const std::string& between) {
  std::string text = "st.shared.b32 [at], i;\n" + between;
  for (const int step : {16, 8, 4, 2, 1}) {
    text += fmt::format("setp.lt.u32 low, i, {0};\n@low ld.shared.b32 r2, [at+{1}];\n@low ld.shared.b32 r3, [at];\n",
                        step, 4 * step);
    text += "@low add.u32 r3, r3, r2;\n@low st.shared.b32 [at], r3;\n" + between;
  }
  return text + "ld.shared.b32 r4, [smem];\nst.global.b32 [to], r4;\n";
}

TEST_CASE("split: lanes that are not made to meet") {
  const std::string exchange =
      "st.shared.b32 [at], i;\n{}xor.b32 r2, r1, 4;\nmov.u32 r3, smem;\nadd.u32 r2, r2, r3;\n"
      "ld.shared.b32 r4, [r2];\nst.global.b32 [to], r4;\n";
  // In step under every other schedule, so that only this one shows it.
  for (const Schedule schedule : {Schedule::eager, Schedule::lazy, Schedule::adversarial})
    CHECK(wrong(sum(""), schedule) == 0);
  CHECK(wrong(sum("")) > 0);
  CHECK(wrong(sum(kMeet)) == 0);
  CHECK(wrong(fmt::format(fmt::runtime(exchange), "")) > 0);
  CHECK(wrong(fmt::format(fmt::runtime(exchange), kMeet)) == 0);
  CHECK(wrong(fmt::format(fmt::runtime(exchange), "bar.sync 0;\n")) == 0);
  CHECK(wrong(fmt::format(fmt::runtime(exchange), "shfl.sync.idx.b32 r5, i, 0, 31, -1;\n")) == 0);
}

TEST_CASE("split: __activemask() is whoever happens to be here") {
  const std::string count = "activemask.b32 r2;\npopc.b32 r3, r2;\nst.global.b32 [to], r3;\n";
  CHECK(wrong(count) > 0);
  CHECK(wrong("vote.sync.ballot.b32 r2, 1, -1;\npopc.b32 r3, r2;\nst.global.b32 [to], r3;\n") == 0);
}

TEST_CASE("split: one lane waits for another of its warp") {
  // A lock that each lane takes once, and a flag that the last lane sets: every lane makes progress.
  CHECK(wrong("mov.u32 r5, 0;\n@lane0 st.shared.b32 [smem+512], 0;\n@lane0 st.shared.b32 [smem+516], 0;\n" + kMeet +
              "LOCK: atom.shared.cas.b32 r2, [smem+512], 0, 1;\nsetp.ne.u32 p, r2, 0;\n@p bra LOCK;\n"
              "ld.volatile.shared.b32 r3, [smem+516];\nadd.u32 r3, r3, 1;\nst.volatile.shared.b32 [smem+516], r3;\n"
              "membar.cta;\natom.shared.exch.b32 r2, [smem+512], 0;\n"
              "WAIT: ld.volatile.shared.b32 r4, [smem+516];\nsetp.ne.u32 p, r4, 32;\n@p bra WAIT;\n"
              "st.global.b32 [to], r4;\n") == 0);
}

TEST_CASE("split: the same seed gives the same run") {
  std::set<std::vector<std::uint32_t>> found;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::vector<std::uint32_t> values = run(sum(""), Schedule::split, seed);
    CHECK(run(sum(""), Schedule::split, seed) == values);
    found.insert(values);
  }
  CHECK(found.size() > 1);
}

}  // namespace
}  // namespace tessera::emulator::split_test

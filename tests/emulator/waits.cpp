// Waits that say "not yet" although the phase is over, and threads that go on all the same.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "tessera/emulator/device.h"

namespace tessera::emulator::waits_test {
namespace {

// Warp 1 stores 32 words and arrives; warp 0 waits as `wait` says and stores what it reads.
std::string kernel(const std::string& wait) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred p, q;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n.shared .align 128 .b8 smem[1024];\n"
      "ld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\nand.b32 r1, r0, 31;\nshl.b32 r2, r1, 2;\nmov.u32 r3, smem;\n"
      "add.u32 r3, r3, r2;\nsetp.eq.u32 p, r0, 0;\n@p mbarrier.init.shared.b64 [smem+512], 32;\nbar.sync 0;\n"
      "setp.lt.u32 p, r0, 32;\n@p bra READER;\nst.shared.b32 [r3], r0;\n"
      "mbarrier.arrive.shared.b64 _, [smem+512];\nexit;\nREADER:\n{}\nld.shared.b32 r4, [r3];\ncvt.u64.u32 d1, r2;\n"
      "add.u64 d0, d0, d1;\nst.global.b32 [d0], r4;\nret;\n}}\n",
      wait);
}

std::set<std::string> names_of(const std::string& wait, Schedule schedule, std::uint64_t seed, bool detects_races) {
  DeviceOptions options;
  options.schedule = schedule;
  options.seed = seed;
  options.detects_races = detects_races;
  options.max_warp_instructions = 200000;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(kernel(wait), "test.ptx");
  DevicePointer buffer = device.allocate(256);
  void* parameters[] = {&buffer};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {64, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  std::set<std::string> names;
  for (const EmulatorFinding& finding : device.take_findings()) names.insert(finding.name);
  return names;
}

using Names = std::set<std::string>;
constexpr std::uint64_t kSeeds = 100;

/// Seeds under which somebody reads what is not there yet.
int seeds_that_read_early(const std::string& wait) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Names names = names_of(wait, Schedule::adversarial, seed, false);
    for (const std::string& name : names) CHECK(name == "smem-uninitialised");
    count += names.empty() ? 0 : 1;
  }
  return count;
}

const std::string kTry = "mbarrier.try_wait.parity.shared.b64 q, [smem+512], 0;\n";
const std::string kLoop = "WAIT: " + kTry + "@!q bra WAIT;";
const std::string kTest = "WAIT: mbarrier.test_wait.parity.shared.b64 q, [smem+512], 0;\n@!q bra WAIT;";
const std::string kToNumber = kTry + "selp.b32 r5, 1, 0, q;\n";

TEST_CASE("a wait whose answer nobody looks at has a name") {
  const Names ignored{"mbarrier-wait-ignored"};
  for (const Schedule schedule : {Schedule::fair, Schedule::lazy}) {
    CHECK(names_of(kTry, schedule, 1, true) == ignored);
    CHECK(names_of(kToNumber, schedule, 1, true) == ignored);  // as inline assembly makes a bool of it
    CHECK(names_of(kToNumber + "and.b32 r6, r5, 1;", schedule, 1, true) == ignored);
    CHECK(names_of(kLoop, schedule, 1, true).empty());
    CHECK(names_of(kTest, schedule, 1, true).empty());
    CHECK(names_of("WAIT: " + kToNumber + "setp.eq.b32 q, r5, 0;\n@q bra WAIT;", schedule, 1, true).empty());
    // A wait that only looks, before one that waits.
    CHECK(names_of(kTry + kLoop, schedule, 1, true).empty());
  }
}

TEST_CASE("waits end early under the adversarial schedule") {
  CHECK(seeds_that_read_early(kTry) > 0);
  // Eight tries, and then as if it were there: the race detector sees it also where it is there.
  const std::string tries =
      "mov.b32 r6, 0;\nWAIT: " + kTry + "@q bra GO;\nadd.u32 r6, r6, 1;\nsetp.lt.u32 q, r6, 8;\n@q bra WAIT;\nGO:";
  CHECK(seeds_that_read_early(tries) > 0);
  int races = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    races += static_cast<int>(names_of(tries, Schedule::adversarial, seed, true).count("smem-race"));
  CHECK(races > 0);
  CHECK(names_of(tries, Schedule::fair, 1, true).empty());
  CHECK(seeds_that_read_early(kLoop) == 0);
  CHECK(seeds_that_read_early(kTest) == 0);
  CHECK(seeds_that_read_early("WAIT: " + kToNumber + "setp.eq.b32 q, r5, 0;\n@q bra WAIT;") == 0);
  CHECK(seeds_that_read_early("WAIT: " + kToNumber + "setp.ne.b32 q, r5, 0;\n@q bra GO;\nbra WAIT;\nGO:") == 0);
  CHECK(seeds_that_read_early("WAIT: mbarrier.try_wait.parity.shared.b64 q, [smem+512], 0, 100;\n@!q bra WAIT;") == 0);
}

// As many as a kernel would call enough.
std::string counted(int tries, const std::string& after) {
  return fmt::format(
      "mov.b32 r6, 0;\nWAIT: {}@q bra GO;\nadd.u32 r6, r6, 1;\nsetp.lt.u32 q, r6, {};\n@q bra WAIT;\n{}GO:", kTry,
      tries, after);
}

TEST_CASE("a wait that counts its tries is led past its last one") {
  CHECK(seeds_that_read_early(counted(1000, "")) > 0);
  // As inline assembly and a compiler make it.
  const std::string compiled = "mov.b32 r6, 0;\nWAIT: " + kToNumber +
                               "setp.eq.s32 p, r5, 0;\nadd.u32 r7, r6, 1;\nsetp.lt.u32 q, r6, 999;\nand.pred q, p, "
                               "q;\nmov.b32 r6, r7;\n@q bra WAIT;";
  CHECK(seeds_that_read_early(compiled) > 0);
  // Asked twice, one after the other, and then as if it were there.
  CHECK(seeds_that_read_early(kTry + "@q bra GO;\n" + kTry + "GO:") > 0);
  // Who traps behind the last try has lost nothing, and who looks ahead and asks again waits.
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    CHECK(names_of(counted(1000, "trap;\n"), Schedule::adversarial, seed, true).empty());
  CHECK(seeds_that_read_early(kTry + "@q bra GO;\n" + kLoop + "\nGO:") == 0);
  CHECK(seeds_that_read_early(kTry + "mov.pred p, q;\nst.shared.b32 [smem+768], r0;\n@p bra GO;\n" + kLoop + "\nGO:") ==
        0);
}

TEST_CASE("a phase that this warp has seen to be over stays so") {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CHECK(names_of(kLoop + "\nbar.warp.sync 0xffffffff;\nmbarrier.test_wait.parity.shared.b64 q, [smem+512], 0;\n"
                           "@!q trap;",
                   Schedule::adversarial, seed, true)
              .empty());
    // The phase before the first.
    CHECK(names_of("mbarrier.try_wait.parity.shared.b64 q, [smem+512], 1;\n@!q bra PAST;\n" + kLoop + "\nPAST:",
                   Schedule::adversarial, seed, true)
              .count("trap") == 0);
  }
}

}  // namespace
}  // namespace tessera::emulator::waits_test

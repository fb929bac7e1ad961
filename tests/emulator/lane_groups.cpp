// Lanes of one warp that are not together: member masks of several groups, bar.warp.sync in branches, CTA barriers that
// they reach one after another, and the grid barrier of cooperative groups.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::lane_groups_test {
namespace {

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

struct Result {
  std::vector<std::uint32_t> words;
  std::vector<EmulatorFinding> findings;
};

/// Every thread stores r9 at out[its number in the grid].
Result run(const std::string& body, Schedule schedule, std::uint64_t seed, std::uint32_t threads,
           std::uint32_t ctas = 1) {
  const std::string text = fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 out)\n{{\n.reg.pred p, q;\n"
      ".reg.b32 r<16>;\n.reg .b64 d<8>;\n.shared.align 4 .b8 smem[1024];\nld.param.u64 d0, [out];\nmov.u32 r0, "
      "%tid.x;\n"
      "{}\nmov.u32 r10, %ctaid.x;\nmov.u32 r11, %ntid.x;\nmad.lo.u32 r10, r10, r11, r0;\nmul.wide.u32 d1, r10, 4;\n"
      "add.s64 d0, d0, d1;\nst.global.b32 [d0], r9;\nret;\n}}\n",
      body);
  DeviceOptions options;
  options.schedule = schedule;
  options.seed = seed;
  options.max_warp_instructions = 200000;
  EmulatedDevice device(options);
  Result result;
  result.words.assign(threads * ctas, 0xDEADBEEF);
  result.findings = tessera::testing::run_test_entry(device, text, result.words, threads, ctas);
  return result;
}

TEST_CASE("lane groups: each with its own member mask at one instruction") {
  // match.any finds lanes that are equal modulo 5, redux adds up each such group.
  const std::string by_match =
      "rem.u32 r1, r0, 5;\nmatch.any.sync.b32 r2, r1, 0xffffffff;\nredux.sync.add.u32 r9, r0, r2;";
  const std::string by_half =
      "setp.lt.u32 p, r0, 16;\nselp.b32 r2, 0xffff, 0xffff0000, p;\nshfl.sync.bfly.b32 r3, r0, 3, 0x101f, r2;\n"
      "setp.gt.u32 q, r3, 9;\nvote.sync.ballot.b32 r9, q, r2;";
  for (const Schedule schedule : kSchedules) {
    const Result sums = run(by_match, schedule, 1, 32);
    const Result votes = run(by_half, schedule, 1, 32);
    CHECK(sums.findings.empty());
    CHECK(votes.findings.empty());
    std::uint32_t ballots[2] = {};
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      if ((lane ^ 3) > 9) ballots[lane / 16] |= 1u << lane;
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      std::uint32_t sum = 0;
      for (std::uint32_t other = lane % 5; other < 32; other += 5) sum += other;
      CHECK(sums.words[lane] == sum);
      CHECK(votes.words[lane] == ballots[lane / 16]);
    }
  }
}

TEST_CASE("lane groups: a lane outside its own mask, and a mask whose lanes never come") {
  const Result outside =
      run("setp.lt.u32 p, r0, 20;\nselp.b32 r2, 0xffff, 0xffff0000, p;\nredux.sync.add.u32 r9, r0, r2;", Schedule::fair,
          1, 32);
  REQUIRE(outside.findings.size() == 1);
  CHECK(outside.findings[0].name == "member-mask");
  CHECK(outside.findings[0].lane == 16);
  CHECK(outside.findings[0].message == "lanes 0x000fffff execute it, their member mask is 0x0000ffff");
  const Result missing =
      run("mov.u32 r9, 0;\nsetp.ge.u32 p, r0, 8;\n@p bra DONE;\nbar.warp.sync 0xffff;\nDONE:\n"
          "@p bar.warp.sync 0xffffff01;",
          Schedule::fair, 1, 32);
  REQUIRE(missing.findings.size() == 1);
  CHECK(missing.findings[0].name == "collective-divergence");
  CHECK(missing.findings[0].message.find("lanes 0x000000ff wait for lanes 0x0000ff00 in a bar.warp.sync of mask "
                                         "0x0000ffff") != std::string::npos);
}

TEST_CASE("lane groups: bar.warp.sync meets bar.warp.sync of another branch") {
  const std::string body =
      "mul.lo.u32 r1, r0, 4;\nmov.u32 r2, smem;\nadd.u32 r1, r1, r2;\nmad.lo.u32 r3, r0, 3, 1;\nsetp.lt.u32 p, r0, "
      "16;\n"
      "@p bra LOW;\nst.shared.b32 [r1], r3;\nbar.warp.sync 0xffffffff;\nld.shared.b32 r9, [r1-64];\nbra DONE;\n"
      "LOW:\nst.shared.b32 [r1], r3;\nbar.warp.sync 0xffffffff;\nld.shared.b32 r9, [r1+64];\nDONE:";
  for (const Schedule schedule : kSchedules)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const Result result = run(body, schedule, seed, 32);
      CHECK(result.findings.empty());
      for (std::uint32_t lane = 0; lane < 32; ++lane) CHECK(result.words[lane] == (lane ^ 16) * 3 + 1);
    }
}

TEST_CASE("lane groups: lanes that come to a CTA barrier one after another") {
  // Lane 0 does more before each barrier; all lanes count each of them once, whichever slices they get.
  const std::string body =
      "mov.u32 r9, 0;\nsetp.ne.u32 p, r0, 0;\nmov.u32 r4, 0;\nLOOP:\n@p bra MEET;\nadd.u32 r5, r4, r4;\nxor.b32 r5, "
      "r5, r0;\n"
      "st.shared.b32 [smem], r4;\nMEET:\nbarrier.sync 0;\nld.shared.b32 r6, [smem];\nadd.u32 r9, r9, r6;\nbarrier.sync "
      "0;\n"
      "add.u32 r4, r4, 1;\nsetp.lt.u32 q, r4, 6;\n@q bra LOOP;";
  for (const Schedule schedule : kSchedules)
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(seed);
      const Result result = run(body, schedule, seed, 96);
      REQUIRE(result.findings.empty());
      for (const std::uint32_t word : result.words) REQUIRE(word == 15);
    }
}

TEST_CASE("lane groups: the grid barrier of cooperative groups") {
  // What cooperative groups make of grid.sync(): %envreg1 and %envreg2 hold where the CTAs meet.
  const std::string body =
      "mov.u32 r1, %envreg2;\nmov.u32 r2, %envreg1;\nmov.b64 d2, {r1, r2};\nmov.u32 r3, %ctaid.x;\nmov.u32 r4, "
      "%nctaid.x;\n"
      "mul.wide.u32 d3, r3, 128;\nadd.s64 d3, d0, d3;\nadd.u32 r5, r3, 100;\nsetp.ne.u32 p, r0, 0;\n"
      "@!p st.global.b32 [d3], r5;\n@p bra MEET;\nmembar.gl;\natom.add.release.gpu.u32 r6, [d2+4], 1;\nAGAIN:\n"
      "ld.acquire.gpu.u32 r7, [d2+4];\nsetp.lt.u32 q, r7, r4;\n@q bra AGAIN;\nMEET:\nbarrier.sync 0;\nxor.b32 r3, r3, "
      "1;\n"
      "mul.wide.u32 d3, r3, 128;\nadd.s64 d3, d0, d3;\nld.global.b32 r9, [d3];\n@p mov.u32 r9, 7;\nbarrier.sync 0;\n"
      // Nobody may store its answer before the other CTA has read.
      "@p bra LAST;\natom.add.release.gpu.u32 r6, [d2+8], 1;\nAGAIN2:\nld.acquire.gpu.u32 r7, [d2+8];\n"
      "setp.lt.u32 q, r7, r4;\n@q bra AGAIN2;\nLAST:\nbarrier.sync 0;";
  for (const Schedule schedule : kSchedules) {
    const Result result = run(body, schedule, 1, 32, 4);
    CHECK(result.findings.empty());
    for (std::uint32_t cta = 0; cta < 4; ++cta) CHECK(result.words[cta * 32] == (cta ^ 1) + 100);
  }
  // More CTAs than run at once: a launch that is not cooperative, in which only the barrier itself traps.
  const std::string large =
      "mov.u32 r1, %envreg2;\nmov.u32 r2, %envreg1;\nmov.b64 d2, {r1, r2};\nsetp.ne.s64 p, d2, 0;\n";
  const Result other = run(large + "mov.u32 r9, 5;", Schedule::fair, 1, 32, 5);
  CHECK(other.findings.empty());
  CHECK(other.words[128] == 5);
  const Result waits = run(large + "@!p trap;", Schedule::fair, 1, 32, 5);
  REQUIRE(!waits.findings.empty());
  CHECK(waits.findings[0].name == "trap");
  CHECK(waits.findings[0].message ==
        "the kernel executed trap, as the grid barrier of cooperative groups does in a launch that is not cooperative: "
        "5 CTAs, of which 4 run at once");
}

TEST_CASE("lane groups: the shared memory that is kept for cooperative groups") {
  const Result result =
      run("mov.u32 r1, %reserved_smem_offset_1;\nmul.lo.u32 r2, r0, 4;\nadd.u32 r1, r1, r2;\n"
          "st.shared.b32 [r1], r0;\nbar.sync 0;\nxor.b32 r2, r2, 124;\nmov.u32 r1, "
          "%reserved_smem_offset_1;\nadd.u32 r1, r1, r2;\nld.shared.b32 r9, [r1];",
          Schedule::fair, 1, 32);
  CHECK(result.findings.empty());
  for (std::uint32_t lane = 0; lane < 32; ++lane) CHECK(result.words[lane] == 31 - lane);
}

// As barriers of tiles of several warps begin: each warp clears its bit of a word that nobody has set, and looks at no
// other.
TEST_CASE("lane groups: bits of the memory that is kept for cooperative groups") {
  for (const Schedule schedule : kSchedules) {
    const Result result = run(
        "mov.u32 r1, %reserved_smem_offset_1;\nshr.u32 r2, r0, 5;\nmov.b32 r3, -2;\nshf.l.wrap.b32 r4, r3, r3, r2;\n"
        "and.b32 r5, r0, 31;\nsetp.eq.u32 p, r5, 0;\n@p red.shared.and.b32 [r1+4], r4;\nbarrier.sync 0;\n"
        "ld.shared.u32 r6, [r1+4];\nnot.b32 r7, r4;\nand.b32 r9, r6, r7;",
        schedule, 1, 128);
    CHECK(result.findings.empty());
    CHECK(result.words == std::vector<std::uint32_t>(128, 0));
  }
}

}  // namespace
}  // namespace tessera::emulator::lane_groups_test

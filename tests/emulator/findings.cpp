// Small kernels with one mistake each, and the finding that it raises; and PTX that does not load.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::findings_test {
namespace {

constexpr const char* kHead = ".version 9.0\n.target sm_90a\n.address_size 64\n";

std::string entry(const std::string& body) {
  return fmt::format(
      "{}.visible .entry test(.param .u64 buffer)\n{{\n.reg .pred p, q;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n"
      ".reg .f32 f<8>;\n.shared .align 128 .b8 smem[1024];\nld.param.u64 d0, [buffer];\nmov.u32 r0, "
      "%tid.x;\n{}\nret;\n}}\n",
      kHead, body);
}

/// Runs the body over `threads` threads with a buffer of 256 uninitialised bytes.
std::vector<EmulatorFinding> run(const std::string& body, std::uint32_t threads = 32,
                                 Schedule schedule = Schedule::fair) {
  DeviceOptions options;
  options.schedule = schedule;
  options.max_warp_instructions = 200000;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(entry(body), "test.ptx");
  DevicePointer buffer = device.allocate(256);
  void* parameters[] = {&buffer};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {threads, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  return device.take_findings();
}

std::string only(const std::vector<EmulatorFinding>& findings) {
  return findings.size() == 1 ? findings[0].name : fmt::format("{} findings", findings.size());
}

TEST_CASE("memory") {
  const auto outside = run("mul.wide.u32 d1, r0, 16;\nadd.s64 d0, d0, d1;\nst.global.b32 [d0], r0;");
  REQUIRE(only(outside) == "global-out-of-bounds");
  CHECK(outside[0].is_failure);
  CHECK(outside[0].lane == 16);
  CHECK(outside[0].ptx_line == 15);
  CHECK(outside[0].message == "write of 4 bytes: 0 bytes past the end of an allocation of 256 bytes at 0x700000000000");
  CHECK(only(run("st.global.b32 [d0+2], r0;")) == "misaligned-address");
  CHECK(only(run("ld.global.b32 r1, [d0];")) == "global-uninitialised");
  CHECK(only(run("ld.shared.b32 r1, [smem+16];")) == "smem-uninitialised");
  CHECK(only(run("st.shared.b32 [smem+1024], r0;")) == "smem-out-of-bounds");
  CHECK(only(run("mov.b64 d1, 64;\nst.b32 [d1], r0;")) == "generic-out-of-bounds");
  CHECK(run("st.global.b32 [d0], r0;\nld.global.b32 r1, [d0];").empty());
}

TEST_CASE("mbarriers whose memory or phase is taken from under them") {
  const std::string init = "setp.eq.u32 p, r0, 0;\n@p mbarrier.init.shared.b64 [smem+64], 32;\nbar.sync 0;\n";
  const std::string meet = "mbarrier.arrive.shared.b64 _, [smem+64];\n";
  const auto overwritten = run(init + "@p st.shared.b64 [smem+68], d0;\nbar.sync 0;\n" + meet);
  CHECK(only(overwritten) == "misaligned-address");
  const auto by_word = run(init + "@p st.shared.b32 [smem+68], r0;\nbar.sync 0;\n" + meet);
  REQUIRE(only(by_word) == "mbarrier-overwritten");
  CHECK(by_word[0].is_failure);
  CHECK(by_word[0].message == "the mbarrier's bytes were overwritten by PTX line 16 (st.shared.b32) of warp 0");
  // Beside it, behind it, and over it when it is initialised again: nothing.
  CHECK(run(init + "@p st.shared.b64 [smem+56], d0;\n@p st.shared.b64 [smem+72], d0;\nbar.sync 0;\n" + meet).empty());
  CHECK(run(init + "@p st.shared.b64 [smem+64], d0;\n@p mbarrier.init.shared.b64 [smem+64], 32;\nbar.sync 0;\n" + meet)
            .empty());
  const auto again = run(init +
                         "setp.lt.u32 q, r0, 3;\n@q mbarrier.arrive.shared.b64 _, [smem+64];\nbar.sync 0;\n"
                         "@p mbarrier.init.shared.b64 [smem+64], 1;");
  REQUIRE(only(again) == "mbarrier-reinitialised");
  CHECK_FALSE(again[0].is_failure);
  CHECK(again[0].message == "phase 0 is open: 29 of 32 arrivals missing, tx-count 0");
  CHECK(run(init + meet + "bar.sync 0;\n@p mbarrier.init.shared.b64 [smem+64], 1;").empty());
}

TEST_CASE("lanes") {
  const auto divergent = run("setp.lt.u32 p, r0, 4;\n@p shfl.sync.idx.b32 r1, r0, 0, 31, 0xffffffff;\nbar.sync 0;");
  REQUIRE(only(divergent) == "collective-divergence");
  CHECK(divergent[0].message.find("lanes 0x0000000f wait for lanes 0xfffffff0") != std::string::npos);
  CHECK(only(run("setp.lt.u32 p, r0, 4;\n@!p exit;\nshfl.sync.idx.b32 r1, r0, 0, 31, 0xffffffff;")) ==
        "member-mask-exited");
  CHECK(only(run("shfl.sync.idx.b32 r1, r0, 0, 31, 0xf;")) == "member-mask");
  CHECK(run("setp.lt.u32 p, r0, 4;\n@p shfl.sync.idx.b32 r1, r0, 0, 31, 0xf;").empty());
  CHECK(
      run("setp.lt.u32 p, r0, 4;\n@p bra A;\nbar.warp.sync 0xfffffff0;\nbra B;\nA: bar.warp.sync 0xf;\nB: bar.sync 0;")
          .empty());
  CHECK(only(run("trap;")) == "trap");
  CHECK(only(run("setp.lt.u32 p, r0, 4;\n@p bra.uni A;\nmov.b32 r1, 1;\nA:")) == "branch-not-uniform");
  CHECK(run("setp.lt.u32 p, r0, 64;\n@p bra.uni A;\nmov.b32 r1, 1;\nA:").empty());
  // Half of the warp leaves; the other half waits for a second warp that does not exist.
  CHECK(only(run("setp.lt.u32 p, r0, 4;\n@p bra OUT;\nbar.sync 0, 64;\nOUT:")) == "deadlock");
  CHECK(run("setp.lt.u32 p, r0, 4;\n@p bra OUT;\nbar.sync 0, 64;\nOUT:", 64).empty());
}

TEST_CASE("barriers") {
  CHECK(run("bar.sync 1, 64;", 64).empty());
  const auto stuck = run("setp.lt.u32 p, r0, 32;\n@p bra DONE;\nbar.sync 1, 64;\nDONE:", 64);
  REQUIRE(only(stuck) == "deadlock");
  CHECK(stuck[0].message.find("waits at barrier 1: 32 of 64 threads are there") != std::string::npos);
  CHECK(only(run("bar.sync 1, 40;")) == "barrier-count");
  CHECK(only(run("LOOP: bra LOOP;")) == "instruction-budget");
}

TEST_CASE("mbarriers") {
  const std::string init = "setp.eq.u32 p, r0, 0;\n@p mbarrier.init.shared.b64 [smem], 1;\nbar.sync 0;\n";
  const std::string wait = "WAIT: mbarrier.try_wait.parity.shared.b64 q, [smem], 0;\n@!q bra WAIT;";
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial})
    CHECK(run(init + "@p mbarrier.arrive.shared.b64 _, [smem];\n" + wait, 64, schedule).empty());
  const auto stuck = run(init + wait);
  REQUIRE(only(stuck) == "deadlock");
  CHECK(stuck[0].message.find("phase 0 (parity 0) of the mbarrier at 0x400: 1 of 1 arrivals missing, tx-count 0") !=
        std::string::npos);
  CHECK(only(run(init + "mbarrier.arrive.shared.b64 _, [smem];\nmbarrier.arrive.shared.b64 _, [smem];")).empty() ==
        false);
  CHECK(only(run("mbarrier.init.shared.b64 [smem], 3;\nmbarrier.arrive.shared.b64 _, [smem], 4;")) ==
        "mbarrier-over-arrival");
  CHECK(only(run("mbarrier.arrive.shared.b64 _, [smem];")) == "mbarrier-not-initialised");
  const auto bytes = run(init + "@p mbarrier.arrive.expect_tx.shared.b64 _, [smem], 64;\n" + wait);
  CHECK(only(bytes) == "expect-tx-mismatch");
  // A wait names the phase by one bit; an H200 shifts the others out.
  const std::string all_ones = "WAIT: mbarrier.try_wait.parity.shared.b64 q, [smem], -2;\n@!q bra WAIT;";
  CHECK(only(run(init + "@p mbarrier.arrive.shared.b64 _, [smem];\n" + all_ones)) == "mbarrier-parity");
  CHECK(run(init + all_ones).back().name == "deadlock");
  // A copy that completes on a barrier that is no more changes nothing here.
  const auto gone =
      run(init + "fence.mbarrier_init.release.cluster;\n" +
              "@!p bra DONE;\nmbarrier.arrive.expect_tx.shared.b64 _, [smem], 32;\n"
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+128], [d0], 32, [smem];\n"
              "mbarrier.inval.shared.b64 [smem];\nDONE:",
          64, Schedule::lazy);
  const auto is_named = [](const EmulatorFinding& finding) { return finding.name == "mbarrier-invalidated"; };
  const auto is_failure = [](const EmulatorFinding& finding) { return finding.is_failure; };
  CHECK(std::any_of(gone.begin(), gone.end(), is_named));
  CHECK(std::none_of(gone.begin(), gone.end(), is_failure));
}

TEST_CASE("bulk copies and fences") {
  const std::string fill = "shl.b32 r2, r0, 2;\nmov.u32 r3, smem;\nadd.s32 r3, r3, r2;\nst.shared.b32 [r3], r0;\n";
  const std::string copy =
      "setp.eq.u32 p, r0, 0;\n@!p bra DONE;\ncp.async.bulk.global.shared::cta.bulk_group [d0], [smem], 128;\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nDONE:";
  CHECK(only(run(fill + "bar.sync 0;\n" + copy)) == "missing-proxy-fence");
  CHECK(run(fill + "fence.proxy.async.shared::cta;\nbar.sync 0;\n" + copy).empty());
}

TEST_CASE("PTX that does not load") {
  const auto problem = [](const std::string& ptx) -> std::string {
    EmulatedDevice device;
    try {
      device.load_ptx(ptx, "test.ptx");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::compile);
      return error.what();
    }
    return "loaded";
  };
  CHECK(problem(entry("add.turbo.s32 r1, r1, r1;"))
            .find("test.ptx:13:1: 'add.turbo.s32': the emulator knows no modifier '.turbo' of add") == 0);
  CHECK(problem(entry("add.s32 r1, r1, d0;")).find("register 'd0' has 64 bits; 'add.s32' needs 32 here") !=
        std::string::npos);
  CHECK(problem(entry("add.s32 r1, r1;")).find("it needs 1 more") != std::string::npos);
  CHECK(problem(entry("add.s32 r1, r1, r99;")).find("'r99' is not declared") != std::string::npos);
  CHECK(problem(entry("bra NOWHERE;")).find("'NOWHERE' is not a label of this scope") != std::string::npos);
  CHECK(problem(entry("A: mov.b32 r1, 1;\nA: mov.b32 r1, 2;")).find("label 'A' stands twice in one scope") !=
        std::string::npos);
  CHECK(problem(entry("{ A: mov.b32 r1, 1; }\n{ A: mov.b32 r1, 2; }\nbra B;\nB:")) == "loaded");
  CHECK(problem(entry(".reg .b32 r<4>;")).find("'r' is declared twice in one scope") != std::string::npos);
  CHECK(problem(entry("{ .reg .b32 r1; }")) == "loaded");
  CHECK(problem(entry(".shared .b8 more[-5];")).find("an extent is not negative: -5") != std::string::npos);
  CHECK(problem(entry("/* mov.b32 r1, 1;")).find("this comment does not end") != std::string::npos);
  CHECK(problem(entry(std::string("mov.b32 r1,\0 1;", 15))).find("this character has no meaning") != std::string::npos);
  CHECK(problem(fmt::format("{}.visible .entry a() {{ ret; }}\n.visible .entry a() {{ ret; }}", kHead))
            .find("kernel 'a' is defined twice") != std::string::npos);
  CHECK(problem(entry("{ .reg .b32 r1;")).find("a '}' is missing") != std::string::npos);
  CHECK(problem(".version 9.0\n.target sm_80\n.address_size 64\n.entry t() { elect.sync _|p, 1; }")
            .find("needs the target sm_90") != std::string::npos);
}

// Every prefix and many single-byte changes of a module: an error or a run, never a crash.
TEST_CASE("damaged PTX") {
  const std::string good = entry(
      "setp.lt.u32 p, r0, 4;\n@p bra A;\nst.shared.v4.b32 [smem], {r0, r1, r2, r3};\nmov.b64 {r4, r5}, d0;\n"
      "A: mbarrier.init.shared.b64 [smem+8], 1;\nfma.rn.f32 f0, f1, 0f3F800000, f2;\n{ .reg .b32 r1; mov.u32 r1, smem; "
      "}");
  EmulatedDevice device;
  const auto load = [&](const std::string& text) {
    try {
      device.load_ptx(text, "damaged.ptx");
    } catch (const Error&) {
    }
  };
  for (std::size_t length = 0; length < good.size(); length += 3) load(good.substr(0, length));
  std::uint64_t state = 1;
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (int change = 0; change < 2; ++change) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text[(state >> 33) % text.size()] = "{}[]()<>,;:.%@!|0x9fr_-+\"\n"[(state >> 20) % 26];
    }
    load(text);
  }
  CHECK(true);
}

}  // namespace
}  // namespace tessera::emulator::findings_test

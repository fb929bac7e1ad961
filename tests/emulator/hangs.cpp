// A hang is headlined by the wait that causes it, not by the threads that wait for those that wait.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"

namespace tessera::emulator::hangs_test {
namespace {

// The body begins in line 15. `one`: thread 0; w: the warp; c: the CTA's rank. An mbarrier at smem counts one arrival.
std::string entry(const std::string& body) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry test(.param .u64 buffer)\n{{\n.reg .pred one, q, s; .reg .b32 r<16>, w, c; .reg .b64 d<8>;\n"
      ".shared .align 128 .b8 smem[1024];\nld.param.u64 d0, [buffer]; mov.u32 r0, %tid.x; shr.u32 w, r0, 5;\n"
      "mov.u32 c, %cluster_ctarank;\nsetp.eq.u32 one, r0, 0;\n@one mbarrier.init.shared.b64 [smem], 1;\n"
      "fence.mbarrier_init.release.cluster;\nbar.sync 0;\nmov.u32 r1, 0;\n{}\nret;\n}}\n",
      body);
}

/// The failure of a launch under every schedule, which must be the same: "name line: the first wait"; "none" without
/// one.
std::string headline(const std::string& body, std::uint32_t threads = 64, std::uint32_t cluster = 1,
                     const char* any_line = nullptr) {
  std::string text;
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    DeviceOptions options;
    options.schedule = schedule;
    options.max_warp_instructions = 100000;
    EmulatedDevice device(options);
    const auto image = device.load_ptx(entry(body), "hang.ptx");
    DevicePointer buffer = device.allocate(1024);
    device.set_bytes(buffer, 0, 1024);
    void* parameters[] = {&buffer};
    LaunchRequest request;
    request.entry = image->entry("test");
    request.block = {threads, 1, 1};
    request.grid = request.cluster = {cluster, 1, 1};
    request.parameters = parameters;
    device.launch(request, {});
    std::string found = "none";
    for (const EmulatorFinding& finding : device.take_findings()) {
      if (!finding.is_failure) continue;
      const std::size_t begin = finding.message.find("\n  ") + 3;
      found = fmt::format("{} {}: {}", finding.name, finding.ptx_line,
                          finding.message.substr(begin, finding.message.find('\n', begin) - begin));
    }
    // Where a spinning loop is stopped is the schedule's.
    if (any_line != nullptr && found.starts_with(any_line)) found.erase(0, found.find(':'));
    if (text.empty()) text = found;
    CHECK(text == found);
  }
  return text;
}

const std::string kWait = "L: mbarrier.try_wait.parity.shared.b64 q, [smem], 0;\n@!q bra L;\n";

TEST_CASE("hangs: an arrival that is missing, and warps at a barrier behind it") {
  // Warp 0 has gone on to the barrier; warp 1 waits for what it should have done before.
  CHECK(
      headline("setp.eq.u32 s, w, 0;\n@s bra MEET;\n" + kWait + "MEET: bar.sync 0;") ==
      "deadlock 17: CTA (0, 0, 0) warp 1 at PTX line 17 waits for phase 0 (parity 0) of the mbarrier at 0x400: 1 of 1 "
      "arrivals missing, tx-count 0");
  CHECK(headline("@one mbarrier.arrive.shared.b64 _, [smem];\n" + kWait + "bar.sync 0;") == "none");
}

TEST_CASE("hangs: one lane waits for an mbarrier, the others for that lane") {
  const std::string wait =
      "deadlock 16: CTA (0, 0, 0) warp 0 at PTX line 16 waits for phase 0 (parity 0) of the mbarrier at 0x400: 1 of 1 "
      "arrivals missing, tx-count 0";
  CHECK(headline("@!one bra MEET;\n" + kWait + "MEET: bar.warp.sync -1;", 32) == wait);
  CHECK(headline("@!one bra MEET;\n" + kWait + "MEET: shfl.sync.idx.b32 r2, r0, 0, 31, -1;", 32) == wait);
  CHECK(headline("@!one bra MEET;\n" + kWait + "MEET: bar.sync 0;", 64) == wait);
  CHECK(headline("@!one bra MEET;\n" + kWait + "MEET: barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
                 32, 2) == wait);
}

TEST_CASE("hangs: bytes that were announced and never come, and lanes that wait for the lane that waits") {
  CHECK(headline("@!one bra MEET;\nmbarrier.arrive.expect_tx.shared.b64 _, [smem], 64;\n" + kWait +
                     "MEET: bar.warp.sync -1;",
                 32) ==
        "expect-tx-mismatch 17: CTA (0, 0, 0) warp 0 at PTX line 17 waits for phase 0 (parity 0) of the mbarrier at "
        "0x400: 0 of 1 arrivals missing, tx-count 64");
}

TEST_CASE("hangs: a warp that looks for what another one writes, and sleeps, holds no copy back") {
  // The lazy schedule completes copies when nothing else can run: a warp that sleeps always can.
  CHECK(headline("setp.eq.u32 s, w, 1;\n@s bra SLEEP;\n@!one bra END;\n"
                 "mbarrier.arrive.expect_tx.shared.b64 _, [smem], 16;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+16], [d0], 16, [smem];\n" +
                 kWait +
                 "mov.u32 r2, 1;\nst.release.gpu.global.u32 [d0+64], r2;\nbra END;\n"
                 "SLEEP: nanosleep.u32 32;\nld.acquire.gpu.global.u32 r1, [d0+64];\n"
                 "setp.eq.u32 s, r1, 0;\n@s bra SLEEP;\nEND:") == "none");
}

TEST_CASE("hangs: __syncthreads in a divergent branch") {
  // Two barriers, each for all lanes: each half of the warp waits for the other.
  const std::string halves =
      headline("setp.lt.u32 s, r0, 16;\n@s bra HALF;\nbar.sync 0;\nbra END;\nHALF: bar.sync 0;\nEND:", 64);
  CHECK(halves.starts_with("collective-divergence "));
  CHECK(halves.find("CTA (0, 0, 0) warp 0 at PTX line ") != std::string::npos);
  // A whole warp goes past: the other waits for threads that never come.
  CHECK(headline("setp.eq.u32 s, w, 0;\n@s bra END;\nbar.sync 1, 64;\nEND:") ==
        "deadlock 17: CTA (0, 0, 0) warp 1 at PTX line 17 waits at barrier 1: 32 of 64 threads are there");
}

TEST_CASE("hangs: a warp that is apart is the cause also where another waits for an mbarrier") {
  // Lanes of warp 0 wait for each other and never arrive for warp 1.
  CHECK(headline("setp.eq.u32 s, w, 1;\n@s bra WAIT;\nsetp.lt.u32 s, r0, 16;\n@s bra HALF;\nbar.warp.sync -1;\n"
                 "shfl.sync.idx.b32 r2, r0, 0, 31, -1;\nHALF: shfl.sync.up.b32 r2, r0, 0, 0, -1;\n"
                 "@one mbarrier.arrive.shared.b64 _, [smem];\nWAIT:\n" +
                 kWait)
            .starts_with("collective-divergence "));
}

TEST_CASE("hangs: the cluster barrier") {
  // CTA 1 waits for an arrival that CTA 0, at the cluster barrier, has not made.
  CHECK(headline("setp.eq.u32 s, c, 0;\n@s bra MEET;\n" + kWait +
                     "MEET: barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
                 32, 2) ==
        "deadlock 17: CTA (1, 0, 0) warp 0 at PTX line 17 waits for phase 0 (parity 0) of the mbarrier at 0x1000400: 1 "
        "of "
        "1 arrivals missing, tx-count 0");
  // One warp waits in the cluster's barrier for another, which waits for it in the CTA's.
  CHECK(headline("setp.eq.u32 s, w, 0;\n@s bra MEET;\nbar.sync 1, 64;\nMEET: barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;",
                 64, 2)
            .starts_with("deadlock "));
}

TEST_CASE("hangs: a lane that spins on memory is named, not those that wait for it") {
  // The loop is lines 16 to 18, the barrier line 19.
  CHECK(headline("@!one bra MEET;\nL: ld.volatile.global.u32 r2, [d0];\nsetp.eq.u32 q, r2, 0;\n@q bra L;\n"
                 "MEET: bar.warp.sync -1;",
                 32, 1, "instruction-budget 1") ==
        ": CTA (0, 0, 0) warp 0 at PTX line 19 lanes 0xfffffffe wait for lanes 0x00000001 in a bar.warp.sync of mask "
        "0xffffffff");
}

}  // namespace
}  // namespace tessera::emulator::hangs_test

// Schedule::weak in kernels as they are written: a flag with and without its order, barriers, asynchronous writes. What
// the model allows of single accesses is in tests/litmus.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/test_entry.h"

namespace tessera::emulator::weak_memory_test {
namespace {

// Two CTAs: the first writes data and then a flag, the second reads the data once it has seen the flag. Results lie
// behind both: what 32 lanes read.
std::string flag_kernel(const std::string& before_flag, const std::string& store, const std::string& load,
                        const std::string& after_flag) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred p, reads;\n.reg .b32 r<8>;\n.reg .b64 base, wide, at;\nld.param.u64 base, [buffer];\n"
      "mov.u32 r0, %ctaid.x;\nmov.u32 r1, %tid.x;\nshl.b32 r2, r1, 2;\ncvt.u64.u32 wide, r2;\nadd.u64 at, base, wide;\n"
      "setp.eq.u32 reads, r0, 1;\n@reads bra wait;\nst.global.b32 [at], 7;\n{}{}.b32 [at+128], 1;\nret;\nwait:\n"
      "{}.b32 r3, [at+128];\nsetp.eq.u32 p, r3, 0;\n@p bra wait;\n{}ld.global.b32 r4, [at];\n"
      "st.global.b32 [at+256], r4;\nret;\n}}\n",
      before_flag, store, load, after_flag);
}

/// Of how many lanes and seeds the data was stale; -1: there were findings.
int stale(const std::string& ptx, Schedule schedule) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    DeviceOptions options;
    options.schedule = schedule;
    options.seed = seed;
    EmulatedDevice device(options);
    std::vector<std::int32_t> values(96);
    if (!tessera::testing::run_test_entry(device, ptx, values, 32, 2).empty()) return -1;
    for (std::size_t lane = 0; lane < 32; ++lane) count += values[64 + lane] == 7 ? 0 : 1;
  }
  return count;
}

}  // namespace

TEST_CASE("weak memory: a flag without an order passes on what was there before, one with it does not") {
  const std::string fence = "fence.acq_rel.gpu;\n";
  const std::string relaxed = flag_kernel("", "st.relaxed.gpu.global", "ld.relaxed.gpu.global", "");
  CHECK(stale(relaxed, Schedule::weak) > 0);
  CHECK(stale(relaxed, Schedule::adversarial) == 0);  // accesses one after another
  CHECK(stale(flag_kernel("", "st.volatile.global", "ld.volatile.global", ""), Schedule::weak) > 0);
  CHECK(stale(flag_kernel("", "st.release.cta.global", "ld.acquire.gpu.global", ""), Schedule::weak) > 0);
  CHECK(stale(flag_kernel(fence, "st.relaxed.gpu.global", "ld.relaxed.gpu.global", ""), Schedule::weak) > 0);
  CHECK(stale(flag_kernel("", "st.release.gpu.global", "ld.acquire.gpu.global", ""), Schedule::weak) == 0);
  CHECK(stale(flag_kernel(fence, "st.relaxed.gpu.global", "ld.relaxed.gpu.global", fence), Schedule::weak) == 0);
  CHECK(stale(flag_kernel("membar.gl;\n", "st.volatile.global", "ld.volatile.global", "membar.gl;\n"),
              Schedule::weak) == 0);
}

TEST_CASE("weak memory: lanes of a warp exchange values behind bar.warp.sync, and behind no other .sync instruction") {
  const auto stale_after = [](const char* waits, Schedule schedule) {
    return stale(
        fmt::format(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
            ".reg .pred q;\n.reg .b32 r<8>, at, other;\n.reg .b64 base, wide, to;\n.shared .align 128 .b8 smem[128];\n"
            "ld.param.u64 base, [buffer];\nmov.u32 r1, %tid.x;\nmov.u32 r0, %ctaid.x;\nsetp.ne.u32 q, r0, 0;\n@q ret;\n"
            "shl.b32 r2, r1, 2;\ncvt.u64.u32 wide, r2;\nadd.u64 to, base, wide;\nmov.u32 at, smem;\n"
            "xor.b32 other, r2, 4;\nadd.u32 other, other, at;\nadd.u32 at, at, r2;\nst.shared.b32 [at], 3;\nbar.sync "
            "0;\n"
            "st.shared.b32 [at], 7;\n{}ld.shared.b32 r4, [other];\nst.global.b32 [to+256], r4;\nret;\n}}\n",
            waits),
        schedule);
  };
  CHECK(stale_after("bar.warp.sync -1;\n", Schedule::weak) == 0);
  CHECK(stale_after("", Schedule::weak) > 0);
  CHECK(stale_after("shfl.sync.idx.b32 r5, r1, 0, 31, -1;\n", Schedule::weak) > 0);
  CHECK(stale_after("vote.sync.any.pred q, q, -1;\n", Schedule::weak) > 0);
  CHECK(stale_after("shfl.sync.idx.b32 r5, r1, 0, 31, -1;\n", Schedule::adversarial) == 0);
}

TEST_CASE("weak memory: behind a barrier everything is there, also what came asynchronously") {
  // A warp writes, both meet, the other reads; then a bulk copy overwrites what was stored, and is waited for.
  const std::string ptx =
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{\n"
      ".reg .pred p, first;\n.reg .b32 r<8>, at;\n.reg .b64 base, wide, to;\n.shared .align 128 .b8 smem[256];\n"
      "ld.param.u64 base, [buffer];\nmov.u32 r0, %tid.x;\nand.b32 r1, r0, 31;\nsetp.lt.u32 first, r0, 32;\n"
      "setp.eq.u32 p, r0, 0;\nshl.b32 r2, r1, 2;\nmov.u32 at, smem;\nadd.u32 at, at, r2;\nshl.b32 r3, r0, 2;\n"
      "cvt.u64.u32 wide, r3;\nadd.u64 to, base, wide;\n"
      "@p mbarrier.init.shared.b64 [smem+128], 1;\nfence.mbarrier_init.release.cluster;\n"
      "@first st.shared.b32 [at], 1;\n@first st.shared.b32 [at], 2;\nbar.sync 0;\nld.shared.b32 r4, [at];\n"
      "bar.sync 0;\nfence.proxy.async;\n"
      "@p mbarrier.arrive.expect_tx.shared.b64 _, [smem+128], 128;\n"
      "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [base], 128, [smem+128];\n"
      "wait:\nmbarrier.try_wait.parity.shared.b64 first, [smem+128], 0;\n@!first bra wait;\n"
      "ld.shared.b32 r5, [at];\nshl.b32 r5, r5, 8;\nor.b32 r4, r4, r5;\nst.global.b32 [to+128], r4;\nret;\n}\n";
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    DeviceOptions options;
    options.schedule = Schedule::weak;
    options.seed = seed;
    EmulatedDevice device(options);
    std::vector<std::int32_t> values(96, 5);
    CHECK(tessera::testing::run_test_entry(device, ptx, values, 64).empty());
    for (std::size_t thread = 0; thread < 64; ++thread) CHECK(values[32 + thread] == (5 << 8 | 2));
  }
}

}  // namespace tessera::emulator::weak_memory_test

// Scopes of arrivals and waits on mbarriers, as far as asynchronous readers; CTAs of a cluster that have exited; and
// who of a warpgroup has read what. Each wrong one beside the right one, under every schedule.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "tessera/emulator/device.h"

namespace tessera::emulator::scopes_test {
namespace {

// CTAs of one cluster; `peer`: rank 0's smem (data at 0, a barrier at 512) as the others see it. p: thread 0.
std::string names(const std::string& body, bool detects_races, std::uint32_t threads = 32, std::uint32_t ctas = 2) {
  std::set<std::string> found;
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    DeviceOptions options;
    options.schedule = schedule;
    options.detects_races = detects_races;
    options.max_warp_instructions = 200000;
    EmulatedDevice device(options);
    const auto image = device.load_ptx(
        fmt::format(".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
                    ".reg .pred p, q, no, leader, other;\n.reg .b32 r<8>, peer, rank, i;\n.reg .b64 out, desc;\n"
                    ".reg .f32 f<4>;\n.shared .align 1024 .b8 smem[4096];\nld.param.u64 out, [buffer];\n"
                    "mov.u32 i, %tid.x;\nsetp.eq.u32 p, i, 0;\nmov.u32 rank, %cluster_ctarank;\n"
                    "setp.eq.and.u32 leader, rank, 0, p;\nsetp.ne.and.u32 other, rank, 0, p;\nsetp.ne.u32 no, 0, 0;\n"
                    "mov.u32 peer, smem;\nmapa.shared::cluster.u32 peer, peer, 0;\n{}\nret;\n}}\n",
                    body),
        "scopes.ptx");
    DevicePointer buffer = device.allocate(4096);
    device.set_bytes(buffer, 0, 4096);
    void* parameters[] = {&buffer};
    LaunchRequest request;
    request.entry = image->entry("test");
    request.block = {threads, 1, 1};
    request.grid = request.cluster = {ctas, 1, 1};
    request.parameters = parameters;
    device.launch(request, {});
    for (const EmulatorFinding& finding : device.take_findings()) found.insert(finding.name);
  }
  std::string text;
  for (const std::string& name : found) text += (text.empty() ? "" : " ") + name;
  return text;
}

const std::string kMeet = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
const std::string kInit =
    "@leader mbarrier.init.shared.b64 [smem+512], 1;\nfence.mbarrier_init.release.cluster;\n" + kMeet;
const std::string kStore = "@other st.shared::cluster.v4.b32 [peer], {1, 2, 3, 4};\n@other fence.proxy.async;\n";
const std::string kCopy =
    "cp.async.bulk.global.shared::cta.bulk_group [out], [smem], 16;\ncp.async.bulk.commit_group;\n"
    "cp.async.bulk.wait_group 0;\nEND:\n" +
    kMeet;

std::string wait(const std::string& how) {
  return fmt::format(
      "@!leader bra END;\nWAIT: mbarrier.try_wait.parity{}.shared.b64 q, [smem+512], 0;\n@!q bra WAIT;\n", how);
}

TEST_CASE("the scope of an arrival whose data another CTA's copy reads") {
  const auto run = [&](const std::string& arrive, const std::string& how = "") {
    return names(kInit + kStore + "@other mbarrier.arrive" + arrive + ".shared::cluster.b64 _, [peer+512];\n" +
                     wait(how) + kCopy,
                 true);
  };
  CHECK(run(".release.cluster") == "");
  CHECK(run(".release.cta") == "scope-too-narrow");
  CHECK(run("") == "scope-too-narrow");  // .cta is the default
  CHECK(run(".release.cluster", ".acquire.cluster") == "");
}

TEST_CASE("the scope of an arrival that hands over what a copy has written") {
  // Rank 1 has copied into its slot and waited; rank 0 reads it there.
  const auto run = [&](const std::string& arrive) {
    return names(
        "@other mbarrier.init.shared.b64 [smem+528], 1;\n" + kInit +
            "@!other bra TOLD;\nmbarrier.arrive.expect_tx.shared.b64 _, [smem+528], 16;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [out], 16, [smem+528];\n"
            "LAST: mbarrier.try_wait.parity.shared.b64 q, [smem+528], 0;\n@!q bra LAST;\n"
            "mbarrier.arrive" +
            arrive + ".shared::cluster.b64 _, [peer+512];\nTOLD:\n" + wait(".acquire.cluster") +
            "mov.u32 r5, smem;\nmapa.shared::cluster.u32 r5, r5, 1;\nld.shared::cluster.b32 r2, [r5];\nEND:\n" + kMeet,
        true);
  };
  CHECK(run(".release.cluster") == "");
  CHECK(run(".release.cta") == "scope-too-narrow");
}

TEST_CASE("relaxed arrivals and waits order what fences make of them") {
  const auto run = [&](const std::string& fence, const std::string& behind) {
    return names(kInit + kStore + fence +
                     "@other mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [peer+512];\n" +
                     wait(".relaxed.cluster") + behind + kCopy,
                 true);
  };
  const std::string wide = "fence.acq_rel.cluster;\n", narrow = "fence.acq_rel.cta;\n";
  CHECK(run(wide, wide) == "");
  CHECK(run("", wide) == "async-read-too-early");
  CHECK(run(wide, "") == "async-read-too-early");
  CHECK(run(narrow, wide) == "scope-too-narrow");
  CHECK(run(wide, narrow) == "scope-too-narrow");
}

TEST_CASE("fences of shared memory alone order a peer's st.async behind a read") {
  // Rank 1 reads its slot and tells rank 0, which fills it again.
  const auto run = [&](const std::string& release, const std::string& acquire) {
    return names(
        "@other mbarrier.init.shared.b64 [smem+528], 1;\n@p st.shared.b32 [smem], 0;\n" + kInit +
            "@other mbarrier.arrive.expect_tx.shared.b64 _, [smem+528], 4;\n@other ld.shared.b32 r2, [smem];\n" +
            release + "@other mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [peer+512];\n" +
            wait(".relaxed.cluster") + acquire +
            "mov.u32 r5, smem;\nmapa.shared::cluster.u32 r5, r5, 1;\n"
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [r5], i, [r5+528];\n"
            "END:\n@!other bra SKIP;\nLAST: mbarrier.try_wait.parity.shared.b64 q, [smem+528], 0;\n"
            "@!q bra LAST;\nSKIP:\n" +
            kMeet,
        true);
  };
  const std::string release = "fence.release.sync_restrict::shared::cta.cluster;\n",
                    acquire = "fence.acquire.sync_restrict::shared::cluster.cluster;\n";
  CHECK(run(release, acquire) == "");
  CHECK(run("", acquire) == "overwritten-before-release");
  CHECK(run(release, "") == "overwritten-before-release");
}

TEST_CASE("a relaxed arrival at the cluster barrier hands over what a fence covers") {
  const auto run = [&](const std::string& arrive) {
    return names(kMeet + kStore + arrive + "barrier.cluster.wait;\n@!leader bra END;\n" + kCopy, true);
  };
  CHECK(run("barrier.cluster.arrive;\n") == "");
  CHECK(run("barrier.cluster.arrive.relaxed;\n") == "async-read-too-early");
  CHECK(run("fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed;\n") == "");
  CHECK(run("fence.acq_rel.cta;\nbarrier.cluster.arrive.relaxed;\n") == "scope-too-narrow");
}

// Rank 0 leaves while the others still have time.
const std::string kLate =
    "setp.eq.u32 q, rank, 0;\n@q bra OUT;\nmov.u32 r1, 0;\nSPIN: add.u32 r1, r1, 1;\n"
    "setp.lt.u32 q, r1, 9000;\n@q bra SPIN;\n";

TEST_CASE("stores, arrivals and copies to a CTA that has exited are failures, without a race detector") {
  const auto run = [&](const std::string& access, const std::string& end) {
    return names(
        kInit + "@p st.shared.v4.b32 [smem+16], {0, 0, 0, 0};\nfence.proxy.async;\n" + kLate + access + "OUT:\n" + end,
        false);
  };
  for (const char* const access :
       {"@p st.shared::cluster.b32 [peer], i;\n", "@p ld.shared::cluster.b32 r2, [peer+16];\n",
        "@p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [peer+512];\n",
        "@p st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [peer], i, [peer+512];\n",
        "@p cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [peer], [smem+16], 16, "
        "[peer+512];\n"}) {
    CAPTURE(access);
    CHECK(run(access, "") == "cluster-peer-exited");
  }
}

// Four warps multiply a tile, wait, and store.
std::string product(const std::string& between, const std::string& store) {
  return "mov.u32 r0, smem;\nshl.b32 r1, i, 4;\nadd.u32 r2, r0, r1;\nst.shared.v4.b32 [r2], {0, 0, 0, 0};\n"
         "fence.proxy.async;\nbar.sync 0;\nshr.u32 r0, r0, 4;\ncvt.u64.u32 desc, r0;\n"
         "or.b64 desc, desc, 0x0000001000080000;\nwgmma.fence.sync.aligned;\n"
         "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, desc, desc, no, 1, 1, 0, 0;\n"
         "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" +
         between + store + "mul.wide.u32 desc, i, 4;\nadd.u64 out, out, desc;\nst.global.f32 [out], f0;\n";
}

TEST_CASE("wgmma.wait_group speaks of the own warp's part") {
  // Rows 16 w to 16 w + 15 of A, 512 bytes each, are warp w's part; B, the first 256 bytes, is everybody's.
  const std::string own = "setp.ge.u32 q, i, 32;\n@q st.shared.v4.b32 [r2], {0, 0, 0, 0};\n";
  const std::string others =
      "xor.b32 r4, i, 32;\nshl.b32 r1, r4, 4;\nmov.u32 r0, smem;\nadd.u32 r0, r0, r1;\n"
      "st.shared.v4.b32 [r0], {0, 0, 0, 0};\n";
  const std::string one = "@p st.shared.b32 [smem], 0;\n";
  CHECK(names(product("", own), true, 128, 1) == "");
  CHECK(names(product("", others), true, 128, 1) == "async-read-not-waited-for");
  CHECK(names(product("bar.sync 0;\n", others), true, 128, 1) == "");
  CHECK(names(product("", one), true, 128, 1) == "async-read-not-waited-for");
  CHECK(names(product("bar.sync 0;\n", one), true, 128, 1) == "");
}

}  // namespace
}  // namespace tessera::emulator::scopes_test

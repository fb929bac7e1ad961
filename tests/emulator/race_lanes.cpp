// Lanes of one warp in the race detector: what orders them, what one of them passes on for the others, and whom a
// finding names.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::race_lanes_test {
namespace {

const std::string kMissing = "missing-warp-sync";
const std::string kMeet = "bar.warp.sync -1;\n";

// Two warps; w is the warp's number, i the lane's. smem holds four bytes a lane of data at 0, 16 a lane at 1024, and
// barriers at 512 and 520. `other` is the next lane's place of data, `half` lanes 0 to 15.
std::string entry(const std::string& body) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry test(.param .u64 buffer)\n{{\n.reg .pred first, second, p, q, lane0, half, low;\n"
      ".reg .b16 h<4>;\n.reg .b32 r<16>, w, i, at, other, wide;\n"
      ".reg .b64 d<8>, to;\n.shared .align 128 .b8 smem[2048];\nld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\n"
      "shr.u32 w, r0, 5;\nand.b32 i, r0, 31;\nsetp.eq.u32 first, w, 0;\nsetp.eq.u32 second, w, 1;\n"
      "setp.eq.u32 lane0, i, 0;\nsetp.lt.u32 half, i, 16;\nshl.b32 r1, i, 2;\nmov.u32 at, smem;\n"
      "mad.lo.u32 wide, i, 16, at;\nadd.u32 wide, wide, 1024;\nxor.b32 other, r1, 4;\nadd.u32 other, other, at;\n"
      "add.u32 at, at, r1;\ncvt.u64.u32 d1, r1;\nadd.u64 to, d0, d1;\nsetp.eq.u32 p, r0, 0;\n{}\nret;\n}}\n",
      body);
}

std::vector<EmulatorFinding> findings(const std::string& body, Schedule schedule, std::uint32_t threads) {
  DeviceOptions options;
  options.schedule = schedule;
  options.detects_races = true;
  options.max_warp_instructions = 200000;
  EmulatedDevice device(options);
  std::vector<std::uint32_t> values(1024);
  return tessera::testing::run_test_entry(device, entry(body), values, threads);
}

// The names of all findings, under every schedule; "" for none.
std::string names(const std::string& body, std::uint32_t threads = 32) {
  std::set<std::string> found;
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial})
    for (const EmulatorFinding& finding : findings(body, schedule, threads)) found.insert(finding.name);
  std::string text;
  for (const std::string& name : found) text += (text.empty() ? "" : " ") + name;
  return text;
}

TEST_CASE("lanes: a store and another lane's load") {
  const std::string store = "st.shared.b32 [at], i;\n", load = "ld.shared.b32 r2, [other];\n";
  CHECK(names(store + load) == kMissing);
  CHECK(names(store + kMeet + load).empty());
  CHECK(names(store + "bar.sync 0;\n" + load).empty());
  CHECK(names(store + "ld.shared.b32 r2, [at];\n").empty());
  // The other way round: the next store may come before the others have read.
  CHECK(names(store + kMeet + load + store) == kMissing);
  CHECK(names(store + kMeet + load + kMeet + store).empty());
  CHECK(names("st.global.b32 [to], i;\nxor.b32 r3, r1, 4;\ncvt.u64.u32 d1, r3;\nadd.u64 to, d0, d1;\n"
              "ld.global.b32 r2, [to];") == kMissing);
  // Other .sync instructions wait for all lanes too, and order no memory among them.
  const std::string zeros = "mov.b32 r4, 0;\nmov.b32 r5, 0;\nmov.b32 r6, 0;\nmov.b32 r7, 0;\nmov.b32 r8, 0;\n";
  for (const char* const waits :
       {"shfl.sync.bfly.b32 r5, i, 1, 31, -1;\n", "vote.sync.any.pred q, lane0, -1;\n", "elect.sync _|q, -1;\n",
        "redux.sync.add.s32 r5, i, -1;\n", "match.any.sync.b32 r5, i, -1;\n",
        "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {r4, r5}, {r6, r7}, {r8}, {r4, r5};\n",
        "movmatrix.sync.aligned.m8n8.trans.b16 r4, r5;\n", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r5}, [wide];\n",
        "wgmma.fence.sync.aligned;\n", "setmaxnreg.dec.sync.aligned.u32 24;\n"}) {
    CAPTURE(waits);
    const std::string clear = "st.shared.v4.b32 [wide], {i, i, i, i};\n" + kMeet;
    CHECK(names(zeros + clear + store + waits + load).find(kMissing) != std::string::npos);
    CHECK(names(zeros + clear + store + waits + kMeet + load).find(kMissing) == std::string::npos);
  }
}

TEST_CASE("lanes: matrices that a warp moves together are each lane's accesses") {
  const std::string store = "st.shared.v4.b32 [wide], {i, i, i, i};\n";
  const std::string load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r4, r5, r6, r7}, [wide];\n";
  CHECK(names(store + load) == kMissing);
  CHECK(names(store + kMeet + load).empty());
  CHECK(names(store + kMeet + load + store) == kMissing);
  CHECK(names(store + kMeet + load + kMeet + store).empty());
  const std::string put =
      "mov.b32 r4, i;\nmov.b32 r5, i;\nmov.b32 r6, i;\nmov.b32 r7, i;\n"
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [wide], {r4, r5, r6, r7};\n";
  CHECK(names(put + "ld.shared.b32 r2, [wide];\n") == kMissing);
  CHECK(names(put + kMeet + "ld.shared.b32 r2, [wide];\n").empty());
  CHECK(names(put + load) == kMissing);
  CHECK(names(put + kMeet + load).empty());
  // Who copies them out speaks for one lane.
  const std::string copy =
      "fence.proxy.async;\n{}add.u32 r4, wide, 0;\n@lane0 cp.async.bulk.global.shared::cta.bulk_group [d0], [r4], "
      "512;\n"
      "@lane0 cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n";
  CHECK(names(put + fmt::format(fmt::runtime(copy), "")) == kMissing);
  CHECK(names(put + fmt::format(fmt::runtime(copy), "elect.sync _|q, -1;\n")) == kMissing);
  CHECK(names(put + fmt::format(fmt::runtime(copy), kMeet)).empty());
}

TEST_CASE("lanes: one lane's store and everybody's load, and back") {
  CHECK(names("@lane0 st.shared.b32 [at], i;\nld.shared.b32 r2, [smem];\n") == kMissing);
  CHECK(names("@lane0 st.shared.b32 [at], i;\n" + kMeet + "ld.shared.b32 r2, [smem];\n").empty());
  CHECK(names("@lane0 st.shared.b32 [at], i;\n" + kMeet + "ld.shared.b32 r2, [smem];\n@lane0 st.shared.b32 [at], i;") ==
        kMissing);
  // Strong accesses of both sides are no race; a weak one beside them is.
  CHECK(names("@lane0 st.volatile.shared.b32 [at], i;\nld.volatile.shared.b32 r2, [smem];\n").empty());
  CHECK(names("@lane0 st.volatile.shared.b32 [at], i;\nld.shared.b32 r2, [smem];\n") == kMissing);
  CHECK(names("st.shared.b32 [at], 0;\n" + kMeet + "atom.shared.add.u32 r2, [smem], 1;\n").empty());
}

TEST_CASE("lanes: halves of words") {
  const std::string place = "shl.b32 r3, i, 1;\nmov.u32 r4, smem;\nadd.u32 r4, r4, r3;\ncvt.u16.u32 h1, i;\n";
  const std::string store = place + "st.shared.b16 [r4], h1;\n";
  CHECK(names(store + "ld.shared.b16 h2, [r4];\n").empty());
  CHECK(names(store + kMeet + "xor.b32 r4, r4, 2;\nld.shared.b16 h2, [r4];\n").empty());
  CHECK(names(store + "and.b32 r4, r4, -4;\nld.shared.b32 r5, [r4];\n") == kMissing);
  CHECK(names(store + kMeet + "and.b32 r4, r4, -4;\nld.shared.b32 r5, [r4];\n").empty());
}

TEST_CASE("lanes: member masks") {
  const std::string store = "st.shared.b32 [at], i;\n";
  const std::string halves = "mov.u32 r4, 0xffff;\n@!half mov.u32 r4, 0xffff0000;\n";
  const std::string far = "xor.b32 r5, r1, 64;\nmov.u32 r6, smem;\nadd.u32 r5, r5, r6;\nld.shared.b32 r2, [r5];\n";
  const std::string near = "ld.shared.b32 r2, [other];\n";
  CHECK(names(store + halves + "bar.warp.sync r4;\n" + near).empty());
  CHECK(names(store + halves + "bar.warp.sync r4;\n" + far) == kMissing);
  CHECK(names(store + halves + "bar.warp.sync r4;\n" + kMeet + far).empty());
  CHECK(names(store + halves + "shfl.sync.bfly.b32 r5, i, 1, 31, r4;\n" + near) == kMissing);
  // What half of the warp has read is all that its own mask orders.
  CHECK(names("@half ld.shared.b32 r2, [other];\n" + halves + "bar.warp.sync r4;\n@half st.shared.b32 [at], i;") ==
        "smem-uninitialised");
  // __activemask() is whoever is here, not the warp.
  const std::string diverged = store + "@!half bra MEET;\nactivemask.b32 r4;\nbar.warp.sync r4;\n";
  CHECK(names(diverged + near + "MEET:").empty());
  CHECK(names(diverged + far + "MEET:") == kMissing);
}

TEST_CASE("lanes: sums without .sync between their steps") {
  std::string sum = "st.shared.b32 [at], i;\n";
  std::string met = sum + kMeet;
  for (const int step : {16, 8, 4, 2, 1}) {
    const std::string add = fmt::format(
        "setp.lt.u32 low, i, {};\n@low ld.shared.b32 r2, [at+{}];\n@low ld.shared.b32 r3, [at];\n"
        "@low add.u32 r3, r3, r2;\n@low st.shared.b32 [at], r3;\n",
        step, 4 * step);
    sum += add;
    met += add + kMeet;
  }
  CHECK(names(sum) == kMissing);
  CHECK(names(met).empty());
}

const std::string kInit =
    "@p mbarrier.init.shared.b64 [smem+512], 1;\n@p mbarrier.init.shared.b64 [smem+520], 32;\n"
    "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n";
std::string wait_for(const std::string& label, int barrier) {
  return fmt::format("{}: mbarrier.try_wait.parity.shared.b64 q, [smem+{}], 0;\n@!q bra {};\n", label, barrier, label);
}

TEST_CASE("lanes: one lane arrives on an mbarrier for all") {
  const std::string store = "@second bra WAITS;\nst.shared.b32 [at], i;\n";
  const std::string arrive = "@lane0 mbarrier.arrive.shared.b64 _, [smem+512];\nbra DONE;\nWAITS:\n";
  const std::string load = wait_for("AGAIN", 512) + "ld.shared.b32 r2, [at];\nDONE:";
  CHECK(names(kInit + store + kMeet + arrive + load, 64).empty());
  CHECK(names(kInit + store + arrive + load, 64) == kMissing);
  // Each for itself.
  const std::string all = "mbarrier.arrive.shared.b64 _, [smem+520];\nbra DONE;\nWAITS:\n";
  CHECK(names(kInit + store + all + wait_for("AGAIN", 520) + "ld.shared.b32 r2, [at];\nDONE:", 64).empty());
  // Reads that are handed back: the slot is written again.
  const std::string clear = "@second st.shared.b32 [at], 0;\nbar.sync 0;\n";
  const std::string read = clear + "@second bra WAITS;\nld.shared.b32 r2, [smem];\n";
  const std::string reuse = wait_for("AGAIN", 512) + "st.shared.b32 [at], i;\nDONE:";
  CHECK(names(kInit + read + kMeet + arrive + reuse, 64).empty());
  CHECK(names(kInit + read + "shfl.sync.idx.b32 r2, i, 0, 31, -1;\n" + arrive + reuse, 64) == kMissing);
  CHECK(names(kInit + read + arrive + reuse, 64) == kMissing);
}

TEST_CASE("lanes: one lane waits for all") {
  const std::string store = "@second bra WAITS;\nst.shared.b32 [at], i;\n" + kMeet +
                            "@lane0 mbarrier.arrive.shared.b64 _, [smem+512];\nbra DONE;\nWAITS:\n@!lane0 bra MEET;\n" +
                            wait_for("AGAIN", 512) + "MEET:\n";
  CHECK(names(kInit + store + kMeet + "ld.shared.b32 r2, [at];\nDONE:", 64).empty());
  CHECK(names(kInit + store + "ld.shared.b32 r2, [at];\nDONE:", 64).find(kMissing) != std::string::npos);
  CHECK(names(kInit + store + "@lane0 ld.shared.b32 r2, [at];\nDONE:", 64).empty());
  // A flag in memory, likewise.
  const std::string flag =
      "@second bra WAITS;\nst.global.b32 [to], i;\n" + kMeet +
      "@lane0 st.release.gpu.global.b32 [d0+512], 1;\nbra DONE;\nWAITS:\n@!lane0 bra MEET;\n"
      "AGAIN: ld.acquire.gpu.global.b32 r3, [d0+512];\nsetp.ne.u32 q, r3, 1;\n@q bra AGAIN;\nMEET:\n";
  CHECK(names(flag + kMeet + "ld.global.b32 r2, [to];\nDONE:", 64).empty());
  CHECK(names(flag + "ld.global.b32 r2, [to];\nDONE:", 64).find(kMissing) != std::string::npos);
  // A shuffle tells the others that lane 0 has waited, and none of them that what it waited for is theirs.
  CHECK(names(kInit + store + "shfl.sync.idx.b32 r2, i, 0, 31, -1;\nld.shared.b32 r2, [at];\nDONE:", 64) == kMissing);
  // All of them wait: nothing is missing.
  const std::string all = "@second bra WAITS;\nst.global.b32 [to], i;\n" + kMeet +
                          "@lane0 st.release.gpu.global.b32 [d0+512], 1;\nbra DONE;\nWAITS:\n"
                          "AGAIN: ld.acquire.gpu.global.b32 r3, [d0+512];\nsetp.ne.u32 q, r3, 1;\n@q bra AGAIN;\n";
  CHECK(names(all + "ld.global.b32 r2, [to];\nDONE:", 64).empty());
}

TEST_CASE("lanes: one lane goes on from a phase that others wait for") {
  // Warp 1 waits for a phase, and its lane 0 alone ends the next one: a lane that looks then waits for the one after.
  const std::string begin = "@second bra WAITS;\n@lane0 mbarrier.arrive.shared.b64 _, [smem+512];\nbra DONE;\nWAITS:\n";
  const std::string next = "@lane0 mbarrier.arrive.shared.b64 _, [smem+512];\nDONE:";
  const std::string loop = begin + wait_for("AGAIN", 512);
  CHECK(names(kInit + loop + kMeet + next, 64).empty());
  CHECK(names(kInit + loop + next, 64).find(kMissing) != std::string::npos);
  // Half of the warp, or whom a shuffle has met, is not all of it.
  CHECK(names(kInit + loop + "@half bar.warp.sync 0xffff;\n" + next, 64).find(kMissing) != std::string::npos);
  CHECK(names(kInit + loop + "shfl.sync.idx.b32 r2, i, 0, 31, -1;\n" + next, 64).empty());
  // By way of another warp, which lane 0 tells.
  const std::string told =
      "@second bra WAITS;\n@lane0 mbarrier.arrive.shared.b64 _, [smem+512];\n" + wait_for("TOLD", 528) +
      "@lane0 mbarrier.arrive.shared.b64 _, [smem+512];\nbra DONE;\nWAITS:\n" + wait_for("AGAIN", 512);
  const std::string tell = "@lane0 mbarrier.arrive.shared.b64 _, [smem+528];\nDONE: bar.sync 0;\n";
  const std::string init = "@p mbarrier.init.shared.b64 [smem+528], 1;\n" + kInit;
  CHECK(names(init + told + kMeet + tell, 64).empty());
  CHECK(names(init + told + tell, 64).find(kMissing) != std::string::npos);
  // One lane waits for all of them, and nobody beside it.
  const std::string alone = begin + "@!lane0 bra DONE;\n" + wait_for("AGAIN", 512);
  CHECK(names(kInit + alone + next, 64).empty());
}

TEST_CASE("lanes: one lane's fence and flag for all") {
  const auto hand_over = [](const std::string& before) {
    return names("@second bra WAITS;\nst.global.b32 [to], i;\n" + before +
                     "@lane0 st.relaxed.gpu.global.b32 [d0+512], 1;\nbra DONE;\nWAITS:\n"
                     "AGAIN: ld.acquire.gpu.global.b32 r3, [d0+512];\nsetp.ne.u32 q, r3, 1;\n@q bra AGAIN;\n"
                     "ld.global.b32 r2, [to];\nDONE:",
                 64);
  };
  CHECK(hand_over(kMeet + "fence.acq_rel.gpu;\n").empty());
  CHECK(hand_over("fence.acq_rel.gpu;\n" + kMeet).empty());
  CHECK(hand_over("fence.acq_rel.gpu;\n") == kMissing);
  CHECK(hand_over("@lane0 fence.acq_rel.gpu;\n") == kMissing);
}

TEST_CASE("lanes: one lane starts a copy for all, and waits for it") {
  const std::string store = "st.shared.b32 [at], i;\nfence.proxy.async;\n";
  const std::string copy =
      "mov.u32 r4, smem;\n@lane0 cp.async.bulk.global.shared::cta.bulk_group [d0], [r4], 128;\n"
      "@lane0 cp.async.bulk.commit_group;\n";
  const std::string wait = "cp.async.bulk.wait_group.read 0;\n";
  CHECK(names(store + kMeet + copy + wait).empty());
  CHECK(names(store + copy + wait) == kMissing);
  CHECK(names(store + kMeet + copy + wait + kMeet + "st.shared.b32 [at], 0;").empty());
  CHECK(names(store + kMeet + copy + wait + "st.shared.b32 [at], 0;") == kMissing);
  CHECK(names(store + kMeet + copy + wait + "@lane0 st.shared.b32 [at], 0;").empty());
}

TEST_CASE("lanes: cp.async is waited for by each lane") {
  const std::string copy =
      "cp.async.ca.shared.global [wide], [d0], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;\n";
  const std::string next = "xor.b32 r4, i, 1;\nmov.u32 r5, smem;\nmad.lo.u32 r4, r4, 16, r5;\n";
  CHECK(names(copy + "ld.shared.b32 r2, [wide];\n").empty());
  CHECK(names(copy + next + "ld.shared.b32 r2, [r4+1024];\n") == kMissing);
  CHECK(names(copy + kMeet + next + "ld.shared.b32 r2, [r4+1024];\n").empty());
  // Started over what another lane has read.
  CHECK(names("st.shared.v4.b32 [wide], {i, i, i, i};\n" + kMeet + next + "ld.shared.b32 r2, [r4+1024];\n" + copy) ==
        kMissing);
  CHECK(
      names("st.shared.v4.b32 [wide], {i, i, i, i};\n" + kMeet + next + "ld.shared.b32 r2, [r4+1024];\n" + kMeet + copy)
          .empty());
}

TEST_CASE("lanes: an mbarrier that one lane has initialised") {
  const std::string init = "@p mbarrier.init.shared.b64 [smem+512], 1;\n";
  const std::string use = "setp.eq.u32 q, i, 1;\n@q mbarrier.arrive.shared.b64 _, [smem+512];\n";
  CHECK(names(init + "@p mbarrier.arrive.shared.b64 _, [smem+512];\n").empty());
  CHECK(names(init + kMeet + use).empty());
  CHECK(names(init + use) == "mbarrier-init-unordered");
}

TEST_CASE("lanes: findings name them") {
  const std::string lane5 = "setp.eq.u32 q, i, 5;\n", lane9 = "setp.eq.u32 low, i, 9;\n";
  const auto message = [](const std::string& body) {
    const std::vector<EmulatorFinding> found = findings(body, Schedule::fair, 64);
    return found.empty() ? std::string{} : found.front().to_string();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  std::string text = message(lane5 + lane9 + "@q st.shared.b32 [smem+64], i;\n@low ld.shared.b32 r2, [smem+64];\n");
  CHECK(has(text, "lane 9,"));
  CHECK(has(text, "write by a thread of CTA (0, 0, 0) warp 0 lane 5,"));
  // Of a row, the lane that touched the byte.
  text = message("@first st.shared.b32 [at], i;\n@second ld.shared.b32 r2, [at];\n");
  CHECK(has(text, "smem-race"));
  CHECK(has(text, "warp 0 lane 0,"));
  text = message(lane9 + "@first st.shared.b32 [at], i;\n@!second bra DONE;\n@low ld.shared.b32 r2, [at];\nDONE:");
  CHECK(has(text, "warp 1 lane 9,"));
  CHECK(has(text, "warp 0 lane 9,"));
  // Of a broadcast all that took part.
  text = message("@first st.shared.b32 [at], i;\nbar.sync 0;\n@first ld.shared.b32 r2, [smem];\n" + lane5 +
                 "@!second bra DONE;\n@q st.shared.b32 [smem], i;\nDONE:");
  CHECK(has(text, "read by a thread of CTA (0, 0, 0) warp 0 lanes 0 to 31,"));
}

}  // namespace
}  // namespace tessera::emulator::race_lanes_test

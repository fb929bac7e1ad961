// The race detector: what orders two accesses, each by a kernel that has the order and one that lacks it.
#include "emulator/findings/race.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::race_test {
namespace {

// Two warps; w is the warp's number, i the lane's. smem holds data at 0, barriers at 512 and 520.
std::string entry(const std::string& body) {
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry test(.param .u64 buffer)\n{{\n.reg .pred first, second, p, q, lane0;\n.reg .b32 r<16>, w, i, "
      "at;\n"
      ".reg .b64 d<8>, to;\n.shared .align 128 .b8 smem[1024];\nld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\n"
      "shr.u32 w, r0, 5;\nand.b32 i, r0, 31;\nsetp.eq.u32 first, w, 0;\nsetp.eq.u32 second, w, 1;\n"
      "setp.eq.u32 lane0, i, 0;\nshl.b32 r1, i, 2;\nmov.u32 at, smem;\nadd.u32 at, at, r1;\ncvt.u64.u32 d1, r1;\n"
      "add.u64 to, d0, d1;\nsetp.eq.u32 p, r0, 0;\n{}\nret;\n}}\n",
      body);
}

// The names of all findings, under every schedule; "" for none.
std::string names(const std::string& body, std::uint32_t threads = 64, std::uint32_t ctas = 1,
                  std::uint32_t cluster = 1) {
  std::set<std::string> found;
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    DeviceOptions options;
    options.schedule = schedule;
    options.detects_races = true;
    options.max_warp_instructions = 200000;
    EmulatedDevice device(options);
    const auto image = device.load_ptx(entry(body), "race.ptx");
    DevicePointer buffer = device.allocate(1024);
    device.set_bytes(buffer, 0, 1024);
    void* parameters[] = {&buffer};
    LaunchRequest request;
    request.entry = image->entry("test");
    request.block = {threads, 1, 1};
    request.grid = {ctas, 1, 1};
    request.cluster = {cluster, 1, 1};
    request.parameters = parameters;
    device.launch(request, {});
    for (const EmulatorFinding& finding : device.take_findings()) found.insert(finding.name);
  }
  std::string text;
  for (const std::string& name : found) text += (text.empty() ? "" : " ") + name;
  return text;
}

const std::string kWrite = "@first st.shared.b32 [at], i;\n";
const std::string kRead = "@second ld.shared.b32 r2, [at];\n";
const std::string kInit =
    "@p mbarrier.init.shared.b64 [smem+512], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n";
const std::string kClear = "@first st.shared.b32 [at], 0;\nbar.sync 0;\n";

TEST_CASE("barriers of a CTA") {
  CHECK(names(kClear + kWrite + "bar.sync 0;\n" + kRead).empty());
  CHECK(names(kClear + kWrite + kRead) == "smem-race");
  CHECK(names(kClear + kRead + kWrite) == "smem-race");
  CHECK(names(kClear + kRead + "bar.sync 0;\n" + kWrite).empty());
  CHECK(names(kClear + kWrite + "@first bar.arrive 1, 64;\n@second bar.sync 1, 64;\n" + kRead).empty());
  // The other direction: who only arrives learns nothing.
  CHECK(names(kClear + "@second bar.arrive 1, 64;\n" + kRead + "@first bar.sync 1, 64;\n" + kWrite) == "smem-race");
}

TEST_CASE("warps that store one value to one place") {
  const std::string read = "bar.sync 0;\nld.shared.b32 r2, [smem];\n";
  CHECK(names("mov.b32 r3, 7;\nst.shared.b32 [smem], r3;\nst.shared.b32 [smem+4], r3;\n" + read).empty());
  CHECK(names("mov.b32 r3, 7;\nst.shared.v2.b32 [smem], {r3, r3};\n" + read).empty());
  CHECK(names("st.shared.b32 [smem], w;\n" + read) == "smem-race");
  CHECK(names("st.shared.v2.b32 [smem], {1, w};\n" + read) == "smem-race");
  CHECK(names(kClear + "@first st.shared.b32 [at], 7;\n@second st.shared.b32 [at], 7;\n") == "smem-race");
  // The next round's value is another one.
  CHECK(names("mov.b32 r3, 0;\nLOOP: st.shared.b32 [smem], r3;\nadd.u32 r3, r3, 1;\nsetp.lt.u32 q, r3, 3;\n@q bra "
              "LOOP;\n") == "smem-race");
}

TEST_CASE("mbarriers") {
  const std::string wait =
      "@!second bra DONE;\nWAIT: mbarrier.try_wait.parity.shared.b64 q, [smem+512], 0;\n@!q bra WAIT;\n";
  const std::string arrive = "@p mbarrier.arrive.shared.b64 _, [smem+512];\n";
  const std::string met = "bar.warp.sync -1;\n";
  CHECK(names(kClear + kInit + kWrite + met + arrive + wait + kRead + "DONE:").empty());
  CHECK(names(kClear + kInit + kWrite + arrive + wait + kRead + "DONE:") == "missing-warp-sync");
  CHECK(names(kClear + kInit + arrive + kWrite + wait + kRead + "DONE:") == "smem-race");
  const std::string relaxed = "@p mbarrier.arrive.relaxed.cta.shared.b64 _, [smem+512];\n";
  CHECK(names(kClear + kInit + kWrite + relaxed + wait + kRead + "DONE:") == "smem-race");
  CHECK(names(kClear + kInit + kWrite + met + "fence.acq_rel.cta;\n" + relaxed + wait + kRead + "DONE:").empty());
}

TEST_CASE("flags in memory") {
  const std::string data = "@first st.global.b32 [to], i;\n";
  const std::string use = "ld.global.b32 r2, [to];\nDONE:";
  const auto hand_over = [&](const std::string& fence, const std::string& store, const std::string& load) {
    return names(data + "bar.warp.sync 0xffffffff;\n" + fence + "@p " + store +
                 " [d0+512], 1;\n@!second bra DONE;\nWAIT: " + load +
                 " r3, [d0+512];\nsetp.eq.u32 q, r3, 0;\n@q bra WAIT;\n" + fence + use);
  };
  CHECK(hand_over("", "st.release.gpu.global.b32", "ld.acquire.gpu.global.b32").empty());
  CHECK(hand_over("", "st.relaxed.gpu.global.b32", "ld.relaxed.gpu.global.b32") == "global-race");
  CHECK(hand_over("fence.acq_rel.gpu;\n", "st.relaxed.gpu.global.b32", "ld.relaxed.gpu.global.b32").empty());
  CHECK(hand_over("fence.acq_rel.gpu;\n", "st.volatile.global.b32", "ld.volatile.global.b32").empty());
  // Weak accesses are no flags.
  CHECK(hand_over("fence.acq_rel.gpu;\n", "st.global.b32", "ld.volatile.global.b32").find("global-race") !=
        std::string::npos);
  CHECK(names("red.global.add.u32 [d0], 1;").empty());
  CHECK(names("@first red.global.add.u32 [d0], 1;\n@second ld.global.b32 r2, [d0];") == "global-race");
}

// CTA 0 stores data and makes a release pattern of the flag at 512; CTA 1 waits for it and goes on.
std::string observed(const std::string& release, const std::string& load, const std::string& use) {
  return "mov.u32 r4, %ctaid.x;\nsetp.eq.u32 q, r4, 1;\n@q bra OBSERVER;\nst.global.b32 [to], i;\n"
         "bar.warp.sync -1;\n" +
         release + "\nbra DONE;\nOBSERVER:\n@!p bra MEET;\nWAIT: " + load +
         "\nsetp.lt.u32 q, r3, 1;\n@q bra WAIT;\nMEET: bar.warp.sync -1;\n" + use + "\nDONE:";
}

TEST_CASE("flags in memory: the write that is observed is ordered as what the pattern releases") {
  const std::string acquire = "ld.acquire.gpu.global.b32 r3, [d0+512];";
  const std::string reset = "ld.global.b32 r2, [to];\n@p st.global.b32 [d0+512], 0;";
  const std::string fence = "fence.acq_rel.gpu;\n";
  // The last block sets the counter back for the next launch.
  for (const char* const write : {"red.relaxed.gpu.global.add.u32 [d0+512], 1;", "atom.global.add.u32 r5, [d0+512], 1;",
                                  "st.relaxed.gpu.global.b32 [d0+512], 1;", "st.volatile.global.b32 [d0+512], 1;"}) {
    CAPTURE(write);
    CHECK(names(observed(fence + "@p " + write, acquire, reset), 32, 2).empty());
    CHECK(names(observed(fence + "@p " + write, "ld.relaxed.gpu.global.b32 r3, [d0+512];", fence + reset), 32, 2)
              .empty());
    CHECK(names(observed("@p " + std::string(write), acquire, reset), 32, 2) == "global-race");
    CHECK(names(observed(fence + "@p " + write, "ld.relaxed.gpu.global.b32 r3, [d0+512];", reset), 32, 2) ==
          "global-race");
  }
  // What lies between the fence and the write is not released with it.
  CHECK(
      names(observed(fence + "st.global.b32 [to], 7;\n@p red.relaxed.gpu.global.add.u32 [d0+512], 1;", acquire, reset),
            32, 2) == "global-race");
}

TEST_CASE("flags in memory: words of vectors and of wider flags") {
  const std::string use = "ld.global.b32 r2, [to];";
  const std::string fence = "fence.acq_rel.gpu;\n";
  CHECK(names(observed(fence + "@p st.relaxed.gpu.global.v2.b32 [d0+512], {r4, 1};",
                       "ld.acquire.gpu.global.b32 r3, [d0+516];", use),
              32, 2)
            .empty());
  CHECK(names(observed(fence + "@p red.relaxed.gpu.global.add.u64 [d0+512], 1;",
                       "ld.acquire.gpu.global.b32 r3, [d0+512];", use),
              32, 2)
            .empty());
}

TEST_CASE("flags in memory: atomics pass on what they find, stores begin anew") {
  // CTA 0 releases, CTA 1 changes the flag without an order of its own, CTA 2 acquires it.
  const auto chain = [](const std::string& link) {
    return names(
        "mov.u32 r4, %ctaid.x;\nsetp.eq.u32 q, r4, 1;\n@q bra LINK;\nsetp.eq.u32 q, r4, 2;\n@q bra END;\n"
        "st.global.b32 [to], i;\nbar.warp.sync -1;\n@p st.release.gpu.global.b32 [d0+512], 1;\nbra DONE;\n"
        "LINK:\n@!p bra DONE;\nW: ld.relaxed.gpu.global.b32 r3, [d0+512];\nsetp.lt.u32 q, r3, 1;\n@q bra W;\n" +
            link +
            "\nbra DONE;\nEND:\n@!p bra MEET;\nV: ld.acquire.gpu.global.b32 r3, [d0+512];\nsetp.lt.u32 q, r3, 2;\n"
            "@q bra V;\nMEET: bar.warp.sync -1;\nld.global.b32 r2, [to];\nDONE:",
        32, 3);
  };
  CHECK(chain("red.relaxed.gpu.global.add.u32 [d0+512], 1;").empty());
  CHECK(chain("atom.relaxed.gpu.global.exch.b32 r5, [d0+512], 2;").empty());
  CHECK(chain("st.relaxed.gpu.global.b32 [d0+512], 2;") == "global-race");
  CHECK(chain("fence.acq_rel.gpu;\nst.relaxed.gpu.global.b32 [d0+512], 2;").empty());
}

TEST_CASE("a race names the instruction that touched the byte") {
  DeviceOptions options;
  options.detects_races = true;
  EmulatedDevice device(options);
  std::vector<std::uint32_t> values(256);
  // Both words lie in one granule; CTA 1 reads the second.
  const std::string ptx = entry(
      "mov.u32 r3, %ctaid.x;\nsetp.eq.u32 q, r3, 1;\n@q bra READ;\n@p st.global.b32 [d0], 1;\n"
      "@p st.global.b32 [d0+8], 1;\nbra DONE;\nREAD:\n@p ld.global.b32 r2, [d0+8];\nDONE:");
  const auto findings = tessera::testing::run_test_entry(device, ptx, values, 32, 2);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].address % 256 == 8);
  const auto line_of = [&](const char* text) {
    return 1 + std::count(ptx.begin(), ptx.begin() + static_cast<std::ptrdiff_t>(ptx.find(text)), '\n');
  };
  const auto store = line_of("@p st.global.b32 [d0+8]"), load = line_of("@p ld.global.b32 r2, [d0+8]");
  // Whichever came first in this run.
  const bool reads_last = findings[0].ptx_line == load;
  CHECK(findings[0].ptx_line == (reads_last ? load : store));
  CHECK(findings[0].message.find(fmt::format("PTX line {} (", reads_last ? store : load)) != std::string::npos);
}

TEST_CASE("races among lanes that share a granule") {
  // Broadcasts and neighbours are followed together: the bytes count, not the lanes.
  const std::string row = "and.b32 r6, i, 3;\nshl.b32 r6, r6, 2;\nmov.u32 r7, smem;\nadd.u32 r7, r7, r6;\n";
  CHECK(names(row + "@first st.shared.b32 [r7], i;\n@second ld.shared.b32 r2, [smem+8];") == "smem-race");
  CHECK(names(row + "@first st.shared.b32 [r7], i;\n@second st.shared.b32 [smem+16], i;").empty());
  CHECK(names(kClear + row + "@first ld.shared.b32 r2, [r7];\n@second st.shared.b8 [smem+5], i;") == "smem-race");
  CHECK(names(kClear + row + "@first ld.shared.b8 r2, [r7];\n@second st.shared.b8 [smem+5], i;").empty());
}

TEST_CASE("CTAs of a grid") {
  CHECK(names("st.global.b32 [to], i;", 32, 2) == "global-race");
  CHECK(names("ld.global.b32 r2, [to];", 32, 2).empty());
  // Different bytes of one granule.
  CHECK(names("mov.u32 r3, %ctaid.x;\ncvt.u64.u32 d2, r3;\nadd.u64 d2, d2, d0;\n@p st.global.u8 [d2], r3;", 32, 4)
            .empty());
}

TEST_CASE("asynchronous copies") {
  const std::string copy = "@first cp.async.ca.shared.global [at], [to], 4;\n@first cp.async.commit_group;\n";
  CHECK(names(copy + "@first cp.async.wait_group 0;\nbar.sync 0;\n" + kRead).empty());
  CHECK(names(kClear + copy + "bar.sync 0;\n" + kRead).find("async-write-not-waited-for") != std::string::npos);
  const std::string store =
      "fence.proxy.async.shared::cta;\nbar.sync 0;\n@p cp.async.bulk.global.shared::cta.bulk_group [d0], [smem], 128;\n"
      "@p cp.async.bulk.commit_group;\n";
  const std::string end = "@p cp.async.bulk.wait_group 0;";
  CHECK(names(kWrite + store + "@p cp.async.bulk.wait_group.read 0;\nbar.sync 0;\n" + kWrite + end).empty());
  CHECK(names(kWrite + store + "bar.sync 0;\n" + kWrite + end).find("async-read-not-waited-for") != std::string::npos);
}

TEST_CASE("bulk stores of equal bytes by all lanes of a warp") {
  // As epilogues issue them without elect: 32 equal copies. Another warp's, or a lane's second one, is a race.
  const std::string fill = "@first st.shared.b32 [at], 5;\nfence.proxy.async;\nbar.sync 0;\n";
  const std::string store = "cp.async.bulk.global.shared::cta.bulk_group [d0], [smem], 64;\n";
  const std::string wait = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n";
  CHECK(names(fill + store + wait, 32).empty());
  CHECK(names(fill + store + wait, 64) == "overwritten-before-release");
  CHECK(names(fill + "mov.u32 r9, 0;\nAGAIN:\n@p " + store + "cp.async.bulk.commit_group;\nadd.u32 r9, r9, 1;\n" +
                  "setp.lt.u32 q, r9, 2;\n@q bra AGAIN;\ncp.async.bulk.wait_group 0;\n",
              32) == "overwritten-before-release");
}

TEST_CASE("clusters") {
  const std::string peer =
      "mapa.shared::cluster.u32 r4, at, 1;\nmov.u32 r5, %cluster_ctarank;\nsetp.eq.u32 q, r5, 0;\n";
  const std::string sync = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
  const std::string write = "@q st.shared::cluster.b32 [r4], i;\n";
  CHECK(names(peer + sync + write + sync, 32, 2, 2).empty());
  CHECK(names(peer + write + sync, 32, 2, 2) == "cluster-peer-not-started");
  CHECK(names(peer + sync + write, 32, 2, 2) == "cluster-peer-exited");
  const std::string stay =  // rank 1, until it happens to be late enough
      "@q bra GO;\nmov.u32 r9, 0;\nSPIN: add.u32 r9, r9, 1;\nsetp.lt.u32 second, r9, 9000;\n@second bra SPIN;\nGO:\n";
  CHECK(names(peer + sync + write + stay, 32, 2, 2) == "cluster-peer-may-exit");
  const std::string relaxed =
      "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n";
  CHECK(names(peer + relaxed + write + sync, 32, 2, 2).empty());
  // That a CTA has started is known however weak its arrival; what it wrote before is not.
  const std::string met = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n";
  CHECK(names(peer + met + write + sync, 32, 2, 2).empty());
  CHECK(names(peer + "st.shared.b32 [at], i;\n" + met + write + sync, 32, 2, 2) == "smem-race");
}

TEST_CASE("vector clocks") {
  const Agent a = 1u << kAgentBits | 1;
  const Agent b = 1u << kAgentBits | 2;
  const Agent other = 2u << kAgentBits | 1;
  VectorClock x(1);
  VectorClock y(2);
  x.raise(a, 3);
  y.raise(other, 5);
  y.raise(b, 2);
  x.join(y);
  CHECK(x.at(a) == 3);
  CHECK(x.at(b) == 2);
  CHECK(x.at(other) == 5);
  VectorClock z = x;
  z.raise(a, 7);
  z.meet(x);
  CHECK(z.at(a) == 3);
  z.meet(VectorClock(1));
  CHECK(z.at(a) == 0);
  CHECK(z.at(other) == 0);
}

TEST_CASE("vector clocks: joined and compared as maps from agents to times") {
  std::mt19937 random{std::random_device{}()};
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto at = [](const std::map<Agent, std::uint32_t>& model, Agent agent) {
    const auto found = model.find(agent);
    return found == model.end() ? 0 : found->second;
  };
  int covered = 0;
  for (int round = 0; round < 2000; ++round) {
    // Two clocks of one or two of three clusters, the second at times a part of the first.
    VectorClock clocks[2] = {VectorClock(1 + below(3)), VectorClock(1 + below(3))};
    std::map<Agent, std::uint32_t> models[2];
    const bool is_part = below(2) == 0;
    for (std::uint32_t i = below(30); i > 0; --i) {
      const Agent agent = (1 + below(3)) << kAgentBits | (1 + below(9));
      const std::uint32_t time = 1 + below(20), which = below(2);
      clocks[which].raise(agent, time);
      models[which][agent] = std::max(models[which][agent], time);
      if (!is_part || which == 0) continue;
      clocks[0].raise(agent, time);
      models[0][agent] = std::max(models[0][agent], time);
    }
    bool covers = true;
    for (const auto& [agent, time] : models[1]) covers = covers && at(models[0], agent) >= time;
    CHECK(clocks[0].covers(clocks[1]) == covers);
    covered += covers ? 1 : 0;
    clocks[0].join(clocks[1]);
    CHECK(clocks[0].covers(clocks[1]));
    for (std::uint32_t cluster = 1; cluster <= 3; ++cluster)
      for (std::uint32_t index = 1; index <= 9; ++index) {
        const Agent agent = cluster << kAgentBits | index;
        CHECK(clocks[0].at(agent) == std::max(at(models[0], agent), at(models[1], agent)));
      }
  }
  CHECK(covered > 200);
  CHECK(covered < 1800);
}

TEST_CASE("race: ordinary stores to global memory, then an asynchronous read of it") {
  const auto body = [](const char* fence) {
    return kInit + "@first st.global.b32 [to], i;\n" + fence +
           "bar.sync 0;\n@p mbarrier.arrive.expect_tx.shared.b64 _, [smem+512], 128;\n"
           "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [d0], 128, [smem+512];\n"
           "AGAIN:\nmbarrier.try_wait.parity.shared.b64 q, [smem+512], 0;\n@!q bra AGAIN;\n" +
           kRead;
  };
  CHECK(names(body("")) == "missing-proxy-fence");
  CHECK(names(body("fence.proxy.async.shared::cta;\n")) == "missing-proxy-fence");
  CHECK(names(body("fence.proxy.async.global;\n")).empty());
  CHECK(names(body("fence.proxy.async;\n")).empty());
  // cp.async reads as threads do.
  CHECK(names("@first st.global.b32 [to], i;\nbar.sync 0;\n@second cp.async.ca.shared.global [at], [to], 4;\n"
              "cp.async.wait_all;\n" +
              kRead)
            .empty());
}

TEST_CASE("race: what a peer CTA stored and fenced is read by the owner's copy") {
  const auto body = [](const char* fence) {
    return std::string(
               "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nmov.u32 r3, %cluster_ctarank;\n"
               "xor.b32 r4, r3, 1;\nmapa.shared::cluster.u32 r5, at, r4;\n"
               "@second st.shared::cluster.b32 [r5], i;\n") +
           fence +
           "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nmul.wide.u32 d2, r3, 128;\n"
           "add.s64 d2, d0, d2;\n@p cp.async.bulk.global.shared::cta.bulk_group [d2], [smem], 128;\n"
           "@p cp.async.bulk.commit_group;\n@p cp.async.bulk.wait_group 0;";
  };
  CHECK(names(body("@second fence.proxy.async;\n"), 64, 2, 2).empty());
  CHECK(names(body(""), 64, 2, 2) == "missing-proxy-fence");
}

}  // namespace
}  // namespace tessera::emulator::race_test

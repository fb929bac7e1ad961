// Race detector: a bulk copy over shared memory whose load an arrival may have overtaken (missing-proxy-fence).
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::reads_under_way_test {
namespace {

struct Consumer {
  std::string read, before, after;  // before and after the arrival that hands the slot back
  int blocks = 5;
};

// A ring of two slots of 128 bytes: warp 0 fills them, warp 1 reads them; r6 is what it reads, from r5 on.
std::string ring(const Consumer& consumer) {
  return fmt::format(
      R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 buffer)
{{
.reg .pred p, q, lane0;
.reg .b32 r<16>, k, slot, round, full, empty, sum;
.reg .f32 f<8>;
.reg .b64 d<4>, to;
.shared .align 128 .b8 smem[1024];
ld.param.u64 d0, [buffer];
mov.u32 r0, %tid.x;
and.b32 r1, r0, 31;
setp.eq.u32 lane0, r1, 0;
setp.eq.u32 p, r0, 0;
mul.wide.u32 d1, r1, 4;
add.u64 to, d0, d1;
@p mbarrier.init.shared.b64 [smem+512], 1;
@p mbarrier.init.shared.b64 [smem+520], 1;
@p mbarrier.init.shared.b64 [smem+528], 1;
@p mbarrier.init.shared.b64 [smem+536], 1;
@p mbarrier.init.shared.b64 [smem+544], 64;
fence.mbarrier_init.release.cluster;
bar.sync 0;
mov.u32 k, 0;
mov.u32 sum, 0;
mov.f32 f0, 0f00000000;
mov.f32 f1, 0f00000000;
mov.f32 f2, 0f00000000;
mov.f32 f3, 0f00000000;
LOOP:
and.b32 slot, k, 1;
shr.u32 round, k, 1;
and.b32 round, round, 1;
mov.u32 full, smem;
mad.lo.u32 full, slot, 8, full;
add.u32 empty, full, 528;
add.u32 full, full, 512;
mov.u32 r5, smem;
mad.lo.u32 r5, slot, 128, r5;
setp.gt.u32 q, r0, 31;
@q bra CONSUME;
@!p bra NEXT;
setp.lt.u32 q, k, 2;
@q bra FILL;
xor.b32 r2, round, 1;
FREE: mbarrier.try_wait.parity.shared.b64 q, [empty], r2;
@!q bra FREE;
FILL: mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r5], [d0], 128, [full];
bra NEXT;
CONSUME: mbarrier.try_wait.parity.shared.b64 q, [full], round;
@!q bra CONSUME;
{}
{}
bar.warp.sync -1;
@lane0 mbarrier.arrive.shared.b64 _, [empty];
{}
NEXT: add.u32 k, k, 1;
setp.lt.u32 q, k, {};
@q bra LOOP;
setp.gt.u32 q, r0, 31;
@q st.global.b32 [to+512], sum;
@q st.global.f32 [to+640], f0;
ret;
}}
)",
      consumer.read, consumer.before, consumer.after, consumer.blocks);
}

std::string findings(const Consumer& consumer) {
  std::set<std::string> found;
  for (const Schedule schedule : {Schedule::fair, Schedule::lazy, Schedule::adversarial}) {
    DeviceOptions options;
    options.schedule = schedule;
    options.detects_races = true;
    options.max_warp_instructions = 200000;
    EmulatedDevice device(options);
    const auto image = device.load_ptx(ring(consumer), "ring.ptx");
    DevicePointer buffer = device.allocate(1024);
    device.set_bytes(buffer, 0, 1024);
    void* parameters[] = {&buffer};
    LaunchRequest request;
    request.entry = image->entry("test");
    request.block = {64, 1, 1};
    request.grid = {1, 1, 1};
    request.parameters = parameters;
    device.launch(request, {});
    for (const EmulatorFinding& finding : device.take_findings()) found.insert(finding.name);
  }
  return fmt::format("{}", fmt::join(found, " "));
}

const std::string kLoad = "mad.lo.u32 r7, r1, 4, r5;\nld.shared.b32 r6, [r7];\n";
const std::string kMatrix =
    "and.b32 r7, r1, 7;\nmad.lo.u32 r7, r7, 16, r5;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {r6}, [r7];\n";
const std::string kProduct =
    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {f0, f1, f2, f3}, {r6, r6}, {r6}, {f0, f1, f2, f3};\n";
const std::string kSum = "add.u32 sum, sum, r6;\n";
const std::string kStore = "st.global.b32 [to+512], r6;\n";
const std::string kFence = "fence.proxy.async.shared::cta;\n";
const char* const kName = "missing-proxy-fence";

TEST_CASE("a slot is filled again while a load of it may be under way") {
  for (const std::string& load : {kLoad, kMatrix}) {
    CHECK(findings({load, "", kStore}) == kName);
    CHECK(findings({load, "", kSum}) == kName);
    // What only computes can be moved behind the arrival.
    CHECK(findings({load, kSum, ""}) == kName);
    CHECK(findings({load, "mov.b32 r8, r6;\n" + kSum, "st.global.b32 [to+512], r8;\n"}) == kName);
    CHECK(findings({load, "", kFence + kStore}) == kName);
    CHECK(findings({load, "fence.proxy.async.global;\n", kStore}) == kName);
  }
  CHECK(findings({kMatrix, kProduct, ""}) == kName);
  // Needed on one of two paths.
  CHECK(findings({kLoad, "setp.eq.u32 q, k, 9;\n@!q bra ON;\n" + kStore + "ON:\n", ""}) == kName);
}

TEST_CASE("what ends a load before its slot is handed back") {
  for (const std::string& load : {kLoad, kMatrix}) {
    CHECK(findings({load, kFence, kStore}).empty());
    CHECK(findings({load, "fence.proxy.async;\n", kSum}).empty());
    CHECK(findings({load, "bar.sync 1, 32;\n", kStore}).empty());
    CHECK(findings({load, "fence.acq_rel.cta;\n", kStore}).empty());
    CHECK(findings({load, kStore, kSum}).empty());
    CHECK(findings({load, kSum + "st.global.b32 [to+512], sum;\n", ""}).empty());
    CHECK(findings({load, "shfl.sync.bfly.b32 r8, r6, 1, 31, -1;\n", kSum}).empty());
    CHECK(findings({load, "setp.eq.u32 q, r6, 1;\n@q bra ON;\nON:\n", kSum}).empty());
    // Nothing is written there again.
    CHECK(findings({load, "", kStore, 2}).empty());
  }
  CHECK(findings({kMatrix, kProduct + kFence, ""}).empty());
}

TEST_CASE("a load that another arrival may overtake, but not the one that hands its slot back") {
  CHECK(findings({kLoad, "mbarrier.arrive.shared.b64 _, [smem+544];\n" + kStore, ""}).empty());
  CHECK(findings({kLoad, "mbarrier.arrive.shared.b64 _, [smem+544];\n", kStore}) == kName);
}

TEST_CASE("a fence ends a load also for arrivals of later rounds that might overtake it") {
  // The second arrival of a round hands the slot back, the first one stands behind the load of the round before.
  const std::string other = "bar.warp.sync -1;\n@lane0 mbarrier.arrive.shared.b64 _, [smem+544];\n";
  CHECK(findings({other + kLoad, kSum + kFence, ""}).empty());
  CHECK(findings({other + kLoad, kSum + "fence.proxy.async.global;\n", ""}) == kName);
}

}  // namespace
}  // namespace tessera::emulator::reads_under_way_test

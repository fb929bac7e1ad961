// The cluster barrier: who counts, and when. PTX ISA, "barrier.cluster".
#include <doctest/doctest.h>

#include "tessera/emulator/device.h"

namespace tessera::emulator::cluster_barrier_test {
namespace {

// All threads arrive. In the first CTA one lane stays and waits, the others leave at once; in the second CTA a warp
// comes late with what the lane that waits reads.
constexpr const char* kLateWarp = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 out) .reqnctapercluster 2, 1, 1
{
.reg .pred p, q;
.reg .b32 r<8>;
.reg .b64 d<4>;
.shared .align 4 .b32 value[1];
ld.param.u64 d0, [out];
mov.u32 r0, %tid.x;
mov.u32 r1, %cluster_ctarank;
setp.eq.u32 p, r1, 1;
setp.ge.and.u32 p, r0, 32, p;
@!p bra ARRIVE;
mov.u32 r2, 0;
LATE:
add.u32 r2, r2, 1;
setp.lt.u32 q, r2, 700;
@q bra LATE;
st.shared.u32 [value], 4711;
ARRIVE:
barrier.cluster.arrive.release.aligned;
or.b32 r3, r0, r1;
setp.ne.u32 q, r3, 0;
@p bra STAY;
@q exit;
barrier.cluster.wait.acquire;
mov.u32 r4, value;
mapa.shared::cluster.u32 r5, r4, 1;
ld.shared::cluster.u32 r6, [r5];
st.global.u32 [d0], r6;
STAY:
mov.u32 r2, 0;
AGAIN:
add.u32 r2, r2, 1;
setp.lt.u32 q, r2, 3000;
@q bra AGAIN;
exit;
}
)";

/// What two CTAs of 64 threads, a cluster, make of a word. No finding is expected.
std::uint32_t word_of(const char* ptx, const DeviceOptions& options, std::uint32_t value) {
  EmulatedDevice device(options);
  const auto image = device.load_ptx(ptx, "cluster_barrier.ptx");
  DevicePointer out = device.allocate(sizeof(value));
  device.copy_to_device(out, &value, sizeof(value));
  void* parameters[] = {&out};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.grid = {2, 1, 1};
  request.cluster = {2, 1, 1};
  request.block = {64, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  for (const EmulatorFinding& finding : device.take_findings()) {
    CAPTURE(finding.name);
    CHECK(finding.message == "");
  }
  device.copy_to_host(&value, out, sizeof(value));
  return value;
}

TEST_CASE("cluster barrier: threads that arrive and leave are not counted for those that have yet to come") {
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(seed);
      DeviceOptions options;
      options.schedule = schedule;
      options.seed = seed;
      const std::uint32_t value = word_of(kLateWarp, options, 0xDEADBEEF);
      CHECK(value == 4711);
    }
}

// Without .aligned lanes of one warp come one after another: in a loop some may have arrived for the next phase when
// others, which had something else to do, have yet to wait for the last one.
constexpr const char* kLanesApart = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 out) .reqnctapercluster 2, 1, 1
{
.reg .pred p, q;
.reg .b32 r<8>;
.reg .b64 d<4>;
ld.param.u64 d0, [out];
mov.u32 r0, 0;
mov.u32 r3, %tid.x;
AGAIN:
setp.ne.u32 q, r3, r0;
@q bra ARRIVE;
mov.u32 r2, %clock;
ARRIVE:
barrier.cluster.arrive;
barrier.cluster.wait;
setp.ne.u32 q, r3, 3;
@q bra ADD;
mov.u32 r2, %clock;
ADD:
atom.global.add.u32 r1, [d0], 1;
add.u32 r0, r0, 1;
setp.lt.u32 p, r0, 5;
@p bra AGAIN;
barrier.cluster.arrive;
barrier.cluster.wait;
exit;
}
)";

TEST_CASE("cluster barrier: lanes wait for the phase that they have arrived in") {
  for (const Schedule schedule : kAllSchedules)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(to_string(schedule));
      CAPTURE(seed);
      DeviceOptions options;
      options.schedule = schedule;
      options.seed = seed;
      const std::uint32_t value = word_of(kLanesApart, options, 0);
      CHECK(value == 2 * 64 * 5);
    }
}

}  // namespace
}  // namespace tessera::emulator::cluster_barrier_test

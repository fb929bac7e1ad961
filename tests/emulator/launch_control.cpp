// clusterlaunchcontrol hands out clusters that have not started: every piece of work is done once, by few CTAs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "tessera/emulator/device.h"

namespace tessera::emulator::launch_control_test {
namespace {

/// Counts its work and how many CTAs were launched: out[i] += 1 for work i, out[count] += 1 by every CTA at its start.
std::string kernel(bool is_cluster, int count) {
  const std::string multicast = is_cluster ? ".multicast::cluster::all" : "";
  const std::string sync =
      is_cluster ? "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" : "bar.sync 0;\n";
  return fmt::format(R"(.version 9.0
.target sm_100a
.address_size 64
.visible .entry test(.param .u64 buffer)
{{
.reg .pred p, q, lead;
.reg .b32 tid, work, rank, parity, at, x, y, z, u;
.reg .b64 out, place;
.reg .b128 handle;
.shared .align 16 .b8 response[16];
.shared .align 8 .b8 bar[8];
ld.param.u64 out, [buffer];
mov.u32 tid, %tid.x;
mov.u32 rank, %cluster_ctarank;
mov.u32 work, %ctaid.x;
setp.eq.u32 lead, tid, 0;
@lead mbarrier.init.shared::cta.b64 [bar], 1;
@lead red.global.add.u32 [out+{0}], 1;
fence.mbarrier_init.release.cluster;
mov.b32 parity, 0;
NEXT:
{1}
@lead mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
{1}
setp.eq.u32 q, rank, 0;
and.pred q, q, lead;
@q clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{2}.b128 [response], [bar];
mul.wide.u32 place, work, 4;
add.u64 place, place, out;
@lead red.global.add.u32 [place], 1;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 p, [bar], parity;
@!p bra WAIT;
xor.b32 parity, parity, 1;
ld.shared.b128 handle, [response];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, handle;
@!p bra DONE;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{x, y, z, _}}, handle;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 work, handle;
setp.ne.u32 p, x, work;
@p trap;
add.u32 work, work, rank;
fence.proxy.async.shared::cta;
bra NEXT;
DONE:
ret;
}}
)",
                     4 * count, sync, multicast);
}

TEST_CASE("every piece of work once") {
  constexpr int kCount = 12;
  for (const bool is_cluster : {false, true})
    for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
      CAPTURE(is_cluster);
      CAPTURE(static_cast<int>(schedule));
      DeviceOptions options;
      options.arch = "sm_100a";
      options.num_sms = 4;
      options.schedule = schedule;
      EmulatedDevice device(options);
      const auto image = device.load_ptx(kernel(is_cluster, kCount), "test.ptx");
      const std::size_t bytes = 4 * (kCount + 1);
      DevicePointer out = device.allocate(bytes);
      device.set_bytes(out, 0, bytes);
      LaunchRequest request;
      request.entry = image->entry("test");
      request.grid = {kCount, 1, 1};
      request.cluster = {is_cluster ? 2u : 1u, 1, 1};
      request.block = {64, 1, 1};
      void* parameters[] = {&out};
      request.parameters = parameters;
      device.launch(request, {});
      for (const EmulatorFinding& finding : device.take_findings()) FAIL_CHECK(finding.to_string());
      std::vector<std::uint32_t> counts(kCount + 1);
      device.copy_to_host(counts.data(), out, bytes);
      for (int i = 0; i < kCount; ++i) CHECK(counts[static_cast<std::size_t>(i)] == 1);
      CHECK(counts[kCount] < kCount);  // some work was handed out
    }
}

/// Rows of a matrix, in any order, to shared memory and back elsewhere: gather4, scatter4. A pair of CTAs gathers four
/// rows each, the data's address one of .shared::cta; both signal the even CTA's barrier, whose address is the CTA's
/// own without the lowest bit of the rank.
std::string gather_kernel(bool is_pair) {
  return fmt::format(R"(.version 9.0
.target sm_100a
.address_size 64
.visible .entry test(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128])
{{
.reg .pred p, even;
.reg .b32 bar, rank, x0, x1, x2, x3, y0, y1, y2, y3;
.reg .b64 source, target, object;
.shared .align 128 .b8 tile[512];
.shared .align 8 .b8 barrier[8];
mov.b64 source, from;
cvta.param.u64 source, source;
mov.b64 target, to;
cvta.param.u64 target, target;
mov.b64 object, barrier;
cvta.shared.u64 object, object;
cvta.to.shared.u64 object, object;
cvt.u32.u64 bar, object;
mov.u32 rank, %cluster_ctarank;
setp.eq.u32 even, rank, 0;
add.u32 x0, rank, 7;
add.u32 x1, rank, 2;
add.u32 x2, rank, 9;
add.u32 x3, rank, 0;
add.u32 y0, rank, 1;
add.u32 y1, rank, 3;
add.u32 y2, rank, 5;
add.u32 y3, rank, 7;
@even mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
@even mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {0};
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
{1}
@!even bra READ;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
@!p bra WAIT;
READ:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [target, {{8, y0, y1, y2, y3}}], [tile];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;
}}
)",
                     is_pair ? 1024 : 512,
                     is_pair
                         ? "and.b32 bar, bar, 0xFEFFFFFF;\ncp.async.bulk.tensor.2d.shared::cta.global.tile::gather4"
                           ".mbarrier::complete_tx::bytes.cta_group::2 [tile], [source, {4, x0, x1, x2, x3}], [bar];"
                         : "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
                           " [tile], [source, {4, x0, x1, x2, x3}], [bar];");
}

void test_gather(bool is_pair) {
  DeviceOptions options;
  options.arch = "sm_100a";
  EmulatedDevice device(options);
  const auto image = device.load_ptx(gather_kernel(is_pair), "test.ptx");
  constexpr std::uint32_t kColumns = 48;
  constexpr std::uint32_t kRows = 12;
  std::vector<std::uint32_t> from(kColumns * kRows);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint32_t>(i * 2654435761u);
  std::vector<std::uint32_t> to(from.size(), 0xDEADBEEF);
  TensorMapObject maps[2];
  DevicePointer buffers[2];
  for (int i = 0; i < 2; ++i) {
    buffers[i] = device.allocate(from.size() * 4);
    device.copy_to_device(buffers[i], i == 0 ? from.data() : to.data(), from.size() * 4);
    ResolvedTensorMap map;
    map.type = TensorMapType::u32;
    map.rank = 2;
    map.address = buffers[i];
    map.dims = {kColumns, kRows};
    map.strides_bytes = {kColumns * 4};
    map.box = {32, 1};
    device.encode(map, maps[i]);
  }
  LaunchRequest request;
  request.entry = image->entry("test");
  const std::uint32_t ctas = is_pair ? 2 : 1;
  request.grid = request.cluster = {ctas, 1, 1};
  void* parameters[] = {&maps[0], &maps[1]};
  request.parameters = parameters;
  device.launch(request, {});
  for (const EmulatorFinding& finding : device.take_findings()) FAIL_CHECK(finding.to_string());
  device.copy_to_host(to.data(), buffers[1], to.size() * 4);
  constexpr std::uint32_t kFrom[4] = {7, 2, 9, 0};
  constexpr std::uint32_t kTo[4] = {1, 3, 5, 7};
  for (std::uint32_t row = 0; row < kRows; ++row)
    for (std::uint32_t column = 0; column < kColumns; ++column) {
      std::uint32_t expected = 0xDEADBEEF;
      for (int i = 0; i < 4; ++i)
        for (std::uint32_t rank = 0; rank < ctas; ++rank)
          if (row == kTo[i] + rank && column >= 8 && column < 40)
            expected = from[(kFrom[i] + rank) * kColumns + column - 4];
      CHECK(to[row * kColumns + column] == expected);
    }
}

TEST_CASE("gather4 and scatter4") { test_gather(false); }
TEST_CASE("gather4 of a pair of CTAs, with one barrier") { test_gather(true); }

}  // namespace
}  // namespace tessera::emulator::launch_control_test

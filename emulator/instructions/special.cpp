// PTX ISA, "Special Registers".
#include <array>
#include <cstring>

#include "emulator/scheduler.h"

namespace tessera::emulator {

std::uint64_t special_value(const Warp& warp, int lane, Special special) {
  const Launch& launch = *warp.launch;
  const Cta& cta = *warp.cta;
  const auto& block = launch.shape.block;
  const auto& grid = launch.shape.grid;
  const auto& cluster = launch.shape.cluster;
  const auto thread = static_cast<std::uint32_t>(warp.index * kLanes + lane);
  const Mask bit = Mask{1} << lane;
  const Mask below = bit - 1;
  switch (special) {
    case Special::tid_x:
      return thread % block[0];
    case Special::tid_y:
      return thread / block[0] % block[1];
    case Special::tid_z:
      return thread / (block[0] * block[1]);
    case Special::ntid_x:
      return block[0];
    case Special::ntid_y:
      return block[1];
    case Special::ntid_z:
      return block[2];
    case Special::ctaid_x:
      return cta.id[0];
    case Special::ctaid_y:
      return cta.id[1];
    case Special::ctaid_z:
      return cta.id[2];
    case Special::nctaid_x:
      return grid[0];
    case Special::nctaid_y:
      return grid[1];
    case Special::nctaid_z:
      return grid[2];
    case Special::laneid:
      return static_cast<std::uint64_t>(lane);
    case Special::warpid:
      return static_cast<std::uint64_t>(warp.index);
    case Special::nwarpid:
      return 64;
    case Special::smid:
      return (cta.id[0] + std::uint64_t{grid[0]} * (cta.id[1] + std::uint64_t{grid[1]} * cta.id[2])) %
             static_cast<std::uint64_t>(launch.options.num_sms);
    case Special::nsmid:
      return static_cast<std::uint64_t>(launch.options.num_sms);
    case Special::gridid:
      return 1;
    case Special::lanemask_eq:
      return bit;
    case Special::lanemask_le:
      return below | bit;
    case Special::lanemask_lt:
      return below;
    case Special::lanemask_ge:
      return ~below;
    case Special::lanemask_gt:
      return ~(below | bit);
    case Special::clusterid_x:
      return cta.id[0] / cluster[0];
    case Special::clusterid_y:
      return cta.id[1] / cluster[1];
    case Special::clusterid_z:
      return cta.id[2] / cluster[2];
    case Special::nclusterid_x:
      return grid[0] / cluster[0];
    case Special::nclusterid_y:
      return grid[1] / cluster[1];
    case Special::nclusterid_z:
      return grid[2] / cluster[2];
    case Special::cluster_ctaid_x:
      return cta.id[0] % cluster[0];
    case Special::cluster_ctaid_y:
      return cta.id[1] % cluster[1];
    case Special::cluster_ctaid_z:
      return cta.id[2] % cluster[2];
    case Special::cluster_nctaid_x:
      return cluster[0];
    case Special::cluster_nctaid_y:
      return cluster[1];
    case Special::cluster_nctaid_z:
      return cluster[2];
    case Special::cluster_ctarank:
      return cta.rank;
    case Special::cluster_nctarank:
      return std::uint64_t{cluster[0]} * cluster[1] * cluster[2];
    case Special::is_explicit_cluster:
      return cluster[0] * cluster[1] * cluster[2] > 1 ? 1 : 0;
    case Special::dynamic_smem_size:
      return launch.shape.dynamic_smem_bytes;
    case Special::total_smem_size:
      return cta.shared_bytes;
    case Special::aggr_smem_size:
      return std::uint64_t{cta.shared_bytes} + kSharedBase;
    case Special::reserved_smem_end:
      return kSharedBase;
    // Cooperative groups find the words of their grid barrier here.
    case Special::envreg:
      return 0;
    case Special::envreg1:
      return launch.options.grid_workspace >> 32;
    case Special::envreg2:
      return launch.options.grid_workspace & 0xFFFFFFFF;
    case Special::clock:
    case Special::clock_hi:
    case Special::clock64:
    case Special::globaltimer:
    case Special::globaltimer_lo:
    case Special::globaltimer_hi:
      return 0;  // read by mov when it executes
  }
  return 0;
}

SpecialReach reach_of(Special special) {
  switch (special) {
    case Special::tid_x:
    case Special::tid_y:
    case Special::tid_z:
      return SpecialReach::thread;
    case Special::ctaid_x:
    case Special::ctaid_y:
    case Special::ctaid_z:
    case Special::warpid:
    case Special::smid:
    case Special::clusterid_x:
    case Special::clusterid_y:
    case Special::clusterid_z:
    case Special::cluster_ctaid_x:
    case Special::cluster_ctaid_y:
    case Special::cluster_ctaid_z:
    case Special::cluster_ctarank:
      return SpecialReach::warp;
    default:
      return SpecialReach::grid;
  }
}

namespace {

// %tid of the warp's lanes; beyond the block there is no lane.
void thread_indices(const Warp& warp, Special special, std::array<std::uint32_t, kLanes>& out) {
  const auto& block = warp.launch->shape.block;
  const auto first = static_cast<std::uint32_t>(warp.index * kLanes);
  std::uint32_t x = first % block[0], y = first / block[0] % block[1], z = first / (block[0] * block[1]);
  for (std::uint32_t& lane : out) {
    lane = special == Special::tid_x ? x : special == Special::tid_y ? y : z;
    if (++x < block[0]) continue;
    x = 0;
    if (++y < block[1]) continue;
    y = 0;
    ++z;
  }
}

}  // namespace

void set_special(const Warp& warp, const SpecialSlot& slot, std::byte* to) {
  const bool is_one = reach_of(slot.special) == SpecialReach::warp;
  std::uint64_t value = special_value(warp, 0, slot.special);
  if (slot.bytes == 0) {
    const Mask mask = value != 0 ? kAllLanes : 0;
    std::memcpy(to, &mask, sizeof(mask));
    return;
  }
  if (slot.bytes == 4) {  // nearly all: without a division for each lane
    alignas(64) std::array<std::uint32_t, kLanes> lanes;
    if (is_one)
      lanes.fill(static_cast<std::uint32_t>(value));
    else if (reach_of(slot.special) == SpecialReach::thread)
      thread_indices(warp, slot.special, lanes);
    else
      for (int lane = 0; lane < kLanes; ++lane)
        lanes[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(special_value(warp, lane, slot.special));
    std::memcpy(to, lanes.data(), sizeof(lanes));
    return;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane != 0 && !is_one) value = special_value(warp, lane, slot.special);
    std::memcpy(to + static_cast<std::size_t>(lane) * slot.bytes, &value, slot.bytes);
  }
}

}  // namespace tessera::emulator

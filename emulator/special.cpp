// Special registers, and waits in words. PTX ISA, "Special Registers".
#include <fmt/format.h>

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

namespace {

std::string describe_mbarrier(const Warp& warp, const Wait& wait) {
  const Mbarrier* barrier = warp.cta->find_mbarrier(wait.index);
  const std::uint32_t address = warp.cta->shared_address(wait.index);
  if (barrier == nullptr) return fmt::format("waits on the mbarrier at 0x{:x}, which is not initialised", address);
  return fmt::format("waits for phase {} (parity {}) of the mbarrier at 0x{:x}: {} of {} arrivals missing, tx-count {}",
                     wait.generation, wait.generation & 1, address, barrier->pending, barrier->expected, barrier->tx);
}

std::string describe_kind(const Warp& warp, const Group& group) {
  const Wait& wait = group.wait;
  switch (wait.kind) {
    case Wait::Kind::none:
      return "can run";
    case Wait::Kind::cta_barrier: {
      const CtaBarrier& barrier = warp.cta->barriers[wait.index];
      const std::uint32_t expected = barrier.counts_all ? warp.cta->live_warps * kLanes : barrier.expected;
      return fmt::format("waits at barrier {}: {} of {} threads are there", wait.index, barrier.arrived, expected);
    }
    case Wait::Kind::cluster_barrier:
      return fmt::format("waits at the cluster barrier: {} of {} threads have arrived", warp.cta->cluster->arrived,
                         warp.cta->cluster->live_threads);
    case Wait::Kind::mbarrier:
      return describe_mbarrier(warp, wait);
    case Wait::Kind::converge:
      return fmt::format("lanes 0x{:08x} wait for lanes 0x{:08x} at one instruction", group.mask,
                         wait.mask & warp.alive & ~group.mask);
    case Wait::Kind::bulk_groups:
      return fmt::format("waits until {} bulk groups are left", wait.generation);
    case Wait::Kind::copy_groups:
      return fmt::format("waits until {} cp.async groups are left", wait.generation);
    case Wait::Kind::wgmma_groups:
      return fmt::format("waits until {} wgmma groups are left; a warp of its warpgroup may not have issued its part",
                         wait.generation);
    case Wait::Kind::wgmma_issue:
      return "waits for the other warps of its warpgroup";
    case Wait::Kind::dependency:
      return "waits for something that never happens";
  }
  return {};
}

}  // namespace

std::string describe_wait(const Warp& warp, const Group& group) {
  const Instruction& in = warp.launch->entry.code[group.pc];
  const auto& id = warp.cta->id;
  std::string place = fmt::format("CTA ({}, {}, {}) warp {} at PTX line {}", id[0], id[1], id[2], warp.index, in.line);
  if (in.source_line > 0)
    place += fmt::format(" ({}:{})", warp.launch->program.source_file(in.source_file), in.source_line);
  return place + " " + describe_kind(warp, group);
}

}  // namespace tessera::emulator

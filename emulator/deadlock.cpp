// When nothing can go on: every waiting group in words, and the mistake that its barriers show.
#include <fmt/format.h>

#include "emulator/scheduler.h"

namespace tessera::emulator {

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
    case Wait::Kind::warp_barrier:
      return fmt::format("lanes 0x{:08x} wait for lanes 0x{:08x} in a bar.warp.sync of mask 0x{:08x}", group.mask,
                         warp.missing_at_barrier(wait.mask, 0), wait.mask);
    case Wait::Kind::bulk_groups:
      return fmt::format("waits until {} bulk groups are left", wait.generation);
    case Wait::Kind::copy_groups:
      return fmt::format("waits until {} cp.async groups are left", wait.generation);
    case Wait::Kind::wgmma_groups:
      return fmt::format("waits until {} wgmma groups are left; a warp of its warpgroup may not have issued its part",
                         wait.generation);
    case Wait::Kind::registers:
      return fmt::format("waits in setmaxnreg.inc for {} registers; the CTA has {} that nobody holds", wait.generation,
                         warp.cta->free_registers);
    case Wait::Kind::wgmma_issue:
      return "waits for the other warps of its warpgroup";
    case Wait::Kind::tensor_space:
      return fmt::format("waits for {} columns of Tensor Memory; {} are taken", wait.index,
                         warp.cta->tensor_memory->describe_blocks());
    case Wait::Kind::tensor_pair:
      return fmt::format("waits for the other CTA of its pair to execute the same allocation instruction (number {})",
                         wait.generation);
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
  const std::string source = warp.launch->program.place_of(in);
  if (!source.empty()) place += " (" + source + ")";
  return place + " " + describe_kind(warp, group);
}

void Scheduler::report_deadlock() {
  EmulatorFinding finding;
  finding.name = "deadlock";
  finding.is_failure = true;
  finding.entry = launch_.entry.name;
  finding.message = "no warp can go on and nothing is on its way";
  finding.cause = "an arrival or a copy that never happens, a wrong byte count, a phase or parity off by one";
  int listed = 0;
  bool diverged = false;
  bool lacks_registers = false;
  bool mismatch = false;  // every arrival is there, but the bytes do not add up and nothing is on its way
  for (Warp* warp : warps_) {
    for (const Group& group : warp->parked) {
      const Instruction& in = launch_.entry.code[group.pc];
      diverged = diverged || group.wait.kind == Wait::Kind::converge || group.wait.kind == Wait::Kind::warp_barrier;
      lacks_registers = lacks_registers || group.wait.kind == Wait::Kind::registers;
      if (group.wait.kind == Wait::Kind::mbarrier) {
        const Mbarrier* barrier = warp->cta->find_mbarrier(group.wait.index);
        mismatch = mismatch || (barrier != nullptr && barrier->pending == 0 && barrier->tx != 0);
      }
      if (finding.ptx_line == 0) {
        finding = [&] {
          EmulatorFinding f = warp->finding(in, "deadlock", -1);
          f.is_failure = true;
          f.message = finding.message;
          f.cause = finding.cause;
          return f;
        }();
      }
      if (++listed <= 40) finding.message += "\n  " + describe_wait(*warp, group);
    }
  }
  if (listed > 40) finding.message += fmt::format("\n  and {} more", listed - 40);
  if (diverged) {
    finding.name = "collective-divergence";
    finding.cause = "a .sync or .aligned instruction that only some lanes of the warp reach";
  }
  if (lacks_registers) {
    finding.name = "setmaxnreg-budget";
    finding.cause = "the counts of all warps together exceed the registers that the CTA was launched with";
  }
  if (mismatch) {
    finding.name = "expect-tx-mismatch";
    finding.cause = "the bytes announced with expect_tx are not the box's (the whole box counts, also out of bounds)";
  }
  launch_.findings.add(std::move(finding));
}

}  // namespace tessera::emulator

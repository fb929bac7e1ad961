// PTX ISA, "bar, barrier", "barrier.cluster", "membar, fence", "setmaxnreg".
#include <fmt/format.h>

#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/memory/weak_memory.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;

// flags: 1 waits, 2 aligned, 4 red.popc, 8 red.and, 16 red.or. op: [0] destination (red), then id, count?, predicate.
Step cta_barrier(Warp& w, const Instruction& in, Mask active) {
  const bool is_reduction = (in.flags & (4 | 8 | 16)) != 0;
  const Operand* op = is_reduction ? in.op + 1 : in.op;
  const U32 id = op[0].kind == Operand::Kind::none ? 0 : uniform<U32>(w, op[0], active);
  if (id > 15) return w.fault(in, "barrier-id", fmt::format("barrier {}: there are 0 to 15", id));
  CtaBarrier& barrier = w.cta->barriers[id];
  if (w.take_wake() == Wake::ready) {
    if (w.race) w.launch->race->acquire(w, active, barrier.race);
    if (w.launch->weak) w.launch->weak->synchronise(w, active);
    if (w.launch->has_mbarriers) w.heard.join(barrier.heard);
    if (!is_reduction) return Step::next;
    for_lanes(active, [&](int lane) {
      if ((in.flags & 4) != 0) write_lane<U32>(w, in.op[0], lane, barrier.last_popc);
    });
    if ((in.flags & 8) != 0) write_predicate(w, in.op[0], active, barrier.last_all ? kAllLanes : 0);
    if ((in.flags & 16) != 0) write_predicate(w, in.op[0], active, barrier.last_any ? kAllLanes : 0);
    return Step::next;
  }
  Step out{};
  if ((in.flags & 2) != 0) {
    if (!w.converged(kAllLanes, active, out)) return out;
    // Who waits here is ordered behind what all of them did.
    if (w.race && (in.flags & 1) != 0) w.launch->race->meet(w, active);
  }
  w.keep(active);
  const bool has_count = op[1].kind != Operand::Kind::none;
  const U32 count = has_count ? uniform<U32>(w, op[1], active) : 0;
  if (has_count && (count == 0 || count % kLanes != 0))
    return w.fault(in, "barrier-count", fmt::format("thread count {}: must be a positive multiple of 32", count));
  if (barrier.arrived > 0 && (barrier.counts_all != !has_count || (has_count && barrier.expected != count)))
    return w.fault(in, "barrier-count",
                   fmt::format("barrier {} expects {} threads in this round; this warp says {}", id, barrier.expected,
                               has_count ? fmt::to_string(count) : "all"),
                   "two groups of warps use one barrier id");
  barrier.counts_all = !has_count;
  barrier.expected = count;
  // An aligned barrier counts whole warps, also one whose last lanes do not exist.
  barrier.arrived += (in.flags & 2) != 0 ? kLanes : static_cast<U32>(std::popcount(active));
  if (is_reduction) {
    const Mask yes = w.read_predicate(op[2]) & active;
    barrier.popc += static_cast<U32>(std::popcount(yes));
    barrier.all = barrier.all && yes == active;
    barrier.any = barrier.any || yes != 0;
  }
  ++w.launch->progress;
  if (w.launch->has_mbarriers) {
    w.heard.raise(w.index, w.launch->progress);
    barrier.pending.join(w.heard);
  }
  if (w.race) w.launch->race->arrive(w, active, barrier.race, true);
  const std::uint64_t generation = barrier.generation;
  w.cta->check_barrier(barrier);
  if ((in.flags & 1) == 0) return Step::next;
  return w.block({Wait::Kind::cta_barrier, id, generation, 0});
}

// The generation of a warp whose last barrier.cluster.wait is over: it waits for nothing until it arrives again.
constexpr std::uint64_t kNotArrived = ~std::uint64_t{0};

Step cluster_arrive(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if ((in.flags & 1) != 0) {
    if (!w.converged(kAllLanes, active, out)) return out;
    if (w.race && (in.flags & 2) == 0) w.launch->race->meet(w, active);
  }
  Cluster& cluster = *w.cta->cluster;
  if (w.race) w.launch->race->arrive(w, active, cluster.race, (in.flags & 2) == 0);
  if ((in.flags & 2) == 0) w.init_fence_time = ++w.launch->fence_clock;  // a release of the cluster's scope
  if (w.cluster_generation != cluster.generation) w.cluster_arrived = 0;
  w.cluster_generation = cluster.generation;
  w.cluster_arrivals = cluster.generation + 1;
  w.cluster_arrived |= active;
  cluster.arrived += static_cast<U32>(std::popcount(active));
  ++w.launch->progress;
  cluster.check_barrier();
  return Step::next;
}
Step cluster_wait(Warp& w, const Instruction& in, Mask active) {
  const bool is_over = w.take_wake() == Wake::ready;
  Step out{};
  if (!is_over && (in.flags & 1) != 0 && !w.converged(kAllLanes, active, out)) return out;
  // Only the aligned form has one state for the warp: without it, lanes come one after another, and those that have not
  // arrived in this generation have in one that is over.
  const bool is_aligned = (in.flags & 1) != 0, is_same = w.cta->cluster->generation == w.cluster_generation;
  const Mask waiting = is_over || !is_same ? 0 : is_aligned ? active : active & w.cluster_arrived;
  if (const Mask over = active & ~waiting; over != 0) {
    if (w.race) w.launch->race->acquire(w, over, w.cta->cluster->race);
    if (w.launch->weak) w.launch->weak->synchronise(w, over);
  }
  if (waiting != 0) {
    w.keep(waiting);
    return w.block({Wait::Kind::cluster_barrier, 0, w.cluster_generation, 0});
  }
  if (!is_aligned) return Step::next;
  if (w.cluster_generation == kNotArrived)
    w.hazard(in, "cluster-wait-without-arrive", -1, 0,
             "this warp has not arrived since its last barrier.cluster.wait: it waits for a phase that is over",
             "barrier.cluster.arrive is missing on the way here, or the warp comes twice");
  else
    w.cluster_waited = w.cluster_generation + 1;
  w.cluster_generation = kNotArrived;
  return Step::next;
}

// flags: 1 .cta scope, 2 .cluster scope, 4 sequentially consistent.
Step memory_fence(Warp& w, const Instruction& in, Mask active) {
  if (w.race) w.launch->race->fence(w, active, (in.flags & 1) != 0);
  if (w.launch->weak) {
    const Scope scope = (in.flags & 1) != 0 ? Scope::cta : (in.flags & 2) != 0 ? Scope::cluster : Scope::gpu;
    w.launch->weak->fence(w, active, (in.flags & 4) != 0, scope);
  }
  if ((in.flags & 1) == 0) w.init_fence_time = ++w.launch->fence_clock;
  return Step::next;
}

// flags: 1 not of shared memory, 2 not of global memory.
Step proxy_fence(Warp& w, const Instruction& in, Mask active) {
  if ((in.flags & 1) == 0) w.fence_time = w.init_fence_time = ++w.launch->fence_clock;
  if ((in.flags & 2) == 0 && w.race) w.launch->race->proxy_fence(w, active);
  if ((in.flags & 1) == 0 && w.race) w.launch->race->shared_proxy_fence(w, active);
  return Step::next;
}

// Launches run one after another, so nothing is left to wait for: what is missing the race detector sees.
Step grid_wait(Warp& w, const Instruction&, Mask active) {
  w.launch->waits_for_prior = true;
  if (w.race) w.launch->race->wait_for_prior(w, active);
  return Step::next;
}

Step grid_launch(Warp& w, const Instruction&, Mask active) {
  w.launch->launches_dependents = true;
  if (w.race) w.launch->race->launch_dependents(w, active);
  return Step::next;
}

// A dec gives the warp's registers to the CTA's pool; an inc waits until the pool has what it needs.
// flags: 1 inc; number: the count.
Step register_count(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const U32 before = w.max_registers;
  const bool is_inc = (in.flags & 1) != 0;
  if (before == 0) {
    w.hazard(in, "setmaxnreg-unbounded", -1, 0, "the kernel states neither .maxnreg nor .maxntid or .reqntid",
             "ptxas ignores setmaxnreg without a register cap: __launch_bounds__ is missing");
    return Step::next;
  }
  if (is_inc ? in.number < before : in.number > before) {
    w.hazard(in, "setmaxnreg-direction", -1, 0,
             fmt::format("{} to {} registers; the warp has {}: undefined", is_inc ? "inc" : "dec", in.number, before),
             "inc and dec are exchanged, or the count does not fit the launch bounds");
    return Step::next;
  }
  const std::int64_t change = (std::int64_t{in.number} - before) * kLanes;
  if (change > w.cta->free_registers) return w.block({Wait::Kind::registers, 0, static_cast<std::uint64_t>(change), 0});
  w.cta->free_registers -= change;
  w.max_registers = in.number;
  ++w.launch->progress;
  return Step::next;
}

}  // namespace

Handler barrier(const Decoded& d) {
  const bool is_bar = d.form->mnemonic.substr(0, 4) == "bar." || d.form->mnemonic == "bar";
  unsigned flags = d.has("arrive") ? 0u : 1u;
  if (is_bar || d.has("aligned")) flags |= 2;
  if (d.has("popc")) flags |= 4;
  if (d.has("and")) flags |= 8;
  if (d.has("or")) flags |= 16;
  d.in->flags = static_cast<std::uint16_t>(flags);
  return cta_barrier;
}
Handler cluster_barrier(const Decoded& d) {
  d.in->flags = static_cast<std::uint16_t>((d.has("aligned") ? 1 : 0) | (d.has("relaxed") ? 2 : 0));
  return d.has("arrive") ? cluster_arrive : cluster_wait;
}
Handler fence(const Decoded& d) {
  const bool is_sc = !d.has("acq_rel") && !d.has("acquire") && !d.has("release");  // membar and a bare fence are
  d.in->flags = static_cast<std::uint16_t>((d.has("cta") ? 1 : 0) | (d.has("cluster") ? 2 : 0) | (is_sc ? 4 : 0));
  return memory_fence;
}
Handler grid_control(const Decoded& d) { return d.has("wait") ? grid_wait : grid_launch; }
Handler fence_proxy_async(const Decoded& d) {
  const bool is_shared = d.has("shared::cta") || d.has("shared::cluster");
  d.in->flags = static_cast<std::uint16_t>((d.has("global") ? 1 : 0) | (is_shared ? 2 : 0));
  return proxy_fence;
}
Handler setmaxnreg(const Decoded& d) {
  const std::int64_t count = d.in->op[0].value;
  d.in->number = static_cast<U32>(count);
  d.in->flags = d.has("inc") ? 1 : 0;
  return count >= 24 && count <= 256 && count % 8 == 0 ? register_count : nullptr;
}

}  // namespace tessera::emulator::bind

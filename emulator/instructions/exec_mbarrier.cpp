// PTX ISA, "mbarrier". A phase ends when no arrival is pending and the tx-count is zero; then the count is reloaded.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/memory/access.h"
#include "emulator/memory/mbarrier.h"
#include "emulator/memory/weak_memory.h"

namespace tessera::emulator {

namespace {
constexpr std::int64_t kMaxTx = (std::int64_t{1} << 20) - 1;
}

std::uint64_t mbarrier_word(const Mbarrier& b) {
  const auto negative = [](std::int64_t value, int bits) {
    return (std::uint64_t{0} - static_cast<std::uint64_t>(value)) & ((std::uint64_t{1} << bits) - 1);
  };
  return (b.phase & 1) << 63 | negative(b.pending, 20) << 43 | negative(b.tx, 21) << 21 | negative(b.expected, 20) << 1;
}

namespace {

// The barrier that an operation completes on; nullptr after a report.
Mbarrier* find_live(Launch& launch, Cta& cta, std::uint32_t offset, const InstructionPlace& place) {
  Mbarrier* barrier = cta.find_mbarrier(offset);
  const bool is_gone = cta.live_warps == 0 && place.cta != cta.id;
  if (barrier != nullptr && !is_gone) return barrier;
  EmulatorFinding finding = place.finding("");
  finding.address = cta.shared_address(offset);
  finding.has_address = true;
  if (is_gone) {
    finding.name = "cluster-peer-exited";
    finding.is_failure = true;
    finding.message = fmt::format(
        "an asynchronous operation completes on an mbarrier of the CTA of rank {}, which has exited", cta.rank);
    finding.cause = kExitedCause;
    launch.findings.add(std::move(finding));
    return nullptr;
  }
  if (cta.make_mbarrier(offset).is_invalidated) {
    finding.name = "mbarrier-invalidated";
    finding.message =
        "an asynchronous operation completes on an mbarrier that was invalidated: whatever lies there now changes";
    finding.cause = "mbarrier.inval before every commit and copy that names the barrier was waited for";
  } else {
    finding.name = "mbarrier-not-initialised";
    finding.is_failure = true;
    finding.message = "an asynchronous operation completes on an mbarrier that is not initialised";
  }
  launch.findings.add(std::move(finding));
  return nullptr;
}

}  // namespace

void complete_bytes(Launch& launch, Cta& cta, std::uint32_t offset, std::int64_t bytes, const InstructionPlace& place) {
  Mbarrier* barrier = find_live(launch, cta, offset, place);
  if (barrier == nullptr) return;
  barrier->tx -= bytes;
  settle(*barrier, launch);
}

void complete_arrival(Launch& launch, Cta& cta, std::uint32_t offset, const InstructionPlace& place) {
  Mbarrier* barrier = find_live(launch, cta, offset, place);
  if (barrier == nullptr) return;
  if (barrier->pending < 1) {
    EmulatorFinding finding = place.finding("");
    finding.name = "mbarrier-over-arrival";
    finding.is_failure = true;
    finding.address = cta.shared_address(offset);
    finding.has_address = true;
    finding.message = fmt::format("an arrival where none of {} is pending", barrier->expected);
    finding.cause = "a count given to mbarrier.init that leaves the commit out, or two commits for one phase";
    launch.findings.add(std::move(finding));
    return;
  }
  --barrier->pending;
  settle(*barrier, launch);
}

namespace bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

// The barrier object of a lane; nullptr after a report.
Mbarrier* find(Warp& w, const Instruction& in, const Operand& op, int lane, Space space, Target& target,
               bool must_live) {
  const U64 address = lane_address(w, op, lane);
  if ((address & 7) != 0) {
    report_misaligned(w, in, lane, address, 8);
    return nullptr;
  }
  if (!locate_any(space, w, lane, address, 8, target) || target.cta == nullptr) {
    report_outside(w, in, space, lane, address, 8, true);
    return nullptr;
  }
  if (!must_live) return &target.cta->make_mbarrier(target.offset);
  Mbarrier* barrier = target.cta->find_mbarrier(target.offset);
  if (barrier == nullptr && !target.cta->make_mbarrier(target.offset).overwritten_by.empty())
    w.fault_at(in, "mbarrier-overwritten", lane, address,
               fmt::format("the mbarrier's bytes were overwritten by {}",
                           target.cta->make_mbarrier(target.offset).overwritten_by),
               "a tile or an array reaches into the barriers, or their memory is used again while they are");
  else if (barrier == nullptr)
    w.fault_at(in, "mbarrier-not-initialised", lane, address, "no mbarrier.init was executed for this address",
               "init without a barrier or fence before its first use, or a wrong address");
  else if (w.race)
    w.launch->race->use(w, in, lane, *target.cta, *barrier);
  return barrier;
}

Space space_in(const Instruction& in) { return static_cast<Space>(in.number); }

Step init(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Target target;
    Mbarrier* barrier = find(w, in, in.op[0], lane, space_in(in), target, false);
    if (barrier == nullptr) return Step::fault;
    const U32 count = read_lane<U32>(w, in.op[1], lane);
    if (count == 0 || count > kMaxTx)
      return w.fault_at(in, "mbarrier-count", lane, target.offset,
                        fmt::format("count {}: must be 1 to {}", count, kMaxTx));
    if (barrier->is_live && (barrier->pending != barrier->expected || barrier->tx != 0))
      w.hazard(in, "mbarrier-reinitialised", lane, target.cta->shared_address(target.offset),
               fmt::format("phase {} is open: {} of {} arrivals missing, tx-count {}", barrier->phase, barrier->pending,
                           barrier->expected, barrier->tx),
               "mbarrier.init for a second round while the first one is not over");
    *barrier = {.offset = target.offset,
                .is_live = true,
                .pending = count,
                .expected = count,
                .initialised_at = w.launch->fence_clock,
                .initialiser = w.index};
    if (w.race) w.launch->race->initialise(w, lane, *target.cta, *barrier);
  }
  ++w.launch->progress;
  return Step::next;
}

Step invalidate(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Target target;
    Mbarrier* barrier = find(w, in, in.op[0], lane, space_in(in), target, true);
    if (barrier == nullptr) return Step::fault;
    const U64 word = mbarrier_word(*barrier);
    std::memcpy(target.data, &word, 8);
    barrier->is_live = false;
    barrier->is_invalidated = true;
    note_written(w, target, 8);
  }
  return Step::next;
}

bool barrier_is_shared(const Warp& w, const Instruction& in, Mask active) {
  const U64 first = lane_address(w, in.op[1], first_lane(active));
  bool same = true;
  for_lanes(active, [&](int lane) { same = same && lane_address(w, in.op[1], lane) == first; });
  return same;
}

// flags: 1 expect_tx, 2 drop, 4 relaxed.
Step arrive(Warp& w, const Instruction& in, Mask active) {
  const Mbarrier* told = nullptr;
  U64 told_phase = 0;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Target target;
    Mbarrier* barrier = find(w, in, in.op[1], lane, space_in(in), target, true);
    if (barrier == nullptr) return Step::fault;
    const bool has_number = in.op[2].kind != Operand::Kind::none;
    const std::int64_t number = has_number ? read_lane<U32>(w, in.op[2], lane) : 1;
    const bool is_expect = (in.flags & 1) != 0;
    const std::int64_t count = is_expect ? 1 : number;
    const U64 word = mbarrier_word(*barrier);
    const U64 token = (word & 0xFFFFFFFF00000000) | (has_number && !is_expect ? static_cast<U64>(number) : 0);
    if (is_expect) barrier->tx += number;
    if (barrier->tx > kMaxTx || barrier->tx < -kMaxTx)
      return w.fault_at(in, "mbarrier-tx-overflow", lane, lane_address(w, in.op[1], lane),
                        fmt::format("tx-count {}: beyond 2^20 - 1 it wraps silently", barrier->tx));
    if (count > barrier->pending)
      return w.fault_at(
          in, "mbarrier-over-arrival", lane, lane_address(w, in.op[1], lane),
          fmt::format("{} arrivals where {} of {} are pending", count, barrier->pending, barrier->expected),
          "more threads arrive than the count given to mbarrier.init, a consumer arrives twice, or a producer is a "
          "phase early");
    barrier->pending -= count;
    if ((in.flags & 2) != 0) barrier->expected -= count;
    if (barrier->race && (barrier != told || barrier->phase != told_phase)) {
      // Lanes that arrive together on one barrier tell together.
      const Mask lanes = barrier_is_shared(w, in, active) ? rest : Mask{1} << lane;
      w.launch->race->arrive(w, lanes, barrier->race, (in.flags & 4) == 0, (in.flags & 8) != 0 && target.cta != w.cta);
      if (lanes == rest) told = barrier, told_phase = barrier->phase;
    }
    settle(*barrier, *w.launch);
    if (!in.op[0].is_sink) write_lane<U64>(w, in.op[0], lane, token);
  }
  ++w.launch->progress;
  return Step::next;
}

// flags: 1 complete_tx, else expect_tx.
Step transaction(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Target target;
    Mbarrier* barrier = find(w, in, in.op[0], lane, space_in(in), target, true);
    if (barrier == nullptr) return Step::fault;
    const std::int64_t bytes = read_lane<U32>(w, in.op[1], lane);
    barrier->tx += in.flags != 0 ? -bytes : bytes;
    if (barrier->tx > kMaxTx || barrier->tx < -kMaxTx)
      return w.fault_at(in, "mbarrier-tx-overflow", lane, lane_address(w, in.op[0], lane),
                        fmt::format("tx-count {}: beyond 2^20 - 1 it wraps silently", barrier->tx));
    settle(*barrier, *w.launch);
  }
  ++w.launch->progress;
  return Step::next;
}

// The phase after the last one that another warp of the CTA had seen when this one heard of it, by CTA barriers: a
// warpgroup that takes turns with another may leave out phases that the other has waited for.
U64 phase_heard_of(const Warp& w, const Cta& owner, U32 offset) {
  U64 next = 0;
  for (const Warp& other : w.cta->warps)
    for (const PhaseSeen& known : other.phases_seen)
      if (known.offset == offset && known.cta == &owner && known.at < w.heard.of(static_cast<std::size_t>(other.index)))
        next = std::max(next, known.next);
  return next;
}

PhaseSeen* phase_seen(Warp& w, const Cta& owner, U32 offset) {
  for (PhaseSeen& known : w.phases_seen)
    if (known.offset == offset && known.cta == &owner) return &known;
  return nullptr;
}

// try_wait may resume before the phase is over, and a test may come before a completion that nothing orders before it:
// now and then the adversarial schedule answers "not yet", mostly a few times, at times as often as a loop that counts
// its tries would take. Then once the truth, so that every loop ends.
bool gives_up(Warp& w) {
  if (w.launch->options.schedule != Schedule::adversarial || w.wake != Wake::none) return false;
  Random& random = w.launch->random;
  if (w.untrue_answers < 0) {
    w.untrue_answers = 0;
    return false;
  }
  if (w.untrue_answers == 0) {
    if (random.below(4) != 0) return false;
    w.untrue_answers = static_cast<int>(random.below(2) != 0 ? 1 + random.below(3) : 1 + random.below(64));
  }
  if (--w.untrue_answers == 0) w.untrue_answers = -1;
  return true;
}

// The phase was over when this warp asked before, or since mbarrier.init: "not yet" would be wrong.
bool has_seen_it_over(Warp& w, const Cta& owner, const Mbarrier& barrier) {
  const PhaseSeen* const seen = phase_seen(w, owner, barrier.offset);
  return seen != nullptr ? seen->next == barrier.phase : barrier.phase == 0;
}

// A wait that may be given up asks a number of times: under the adversarial schedule a quarter of the phases end so
// late, for whoever asks so, that all tries are used up, within reason.
bool is_late(Warp& w, const Instruction& in, const Cta& owner, const Mbarrier& barrier, bool is_over) {
  if ((in.flags & kWaitMayBeGivenUp) == 0 || w.launch->options.schedule != Schedule::adversarial) return false;
  if (w.launch->late_answers == 0 || (is_over && has_seen_it_over(w, owner, barrier))) return false;
  const U64 phase = is_over ? barrier.phase - 1 : barrier.phase;
  std::uint64_t which = w.launch->options.seed;
  for (const std::uint64_t part : {std::uint64_t{owner.id[0]}, std::uint64_t{owner.id[1]}, std::uint64_t{owner.id[2]},
                                   std::uint64_t{barrier.offset}, phase})
    which = Random(which ^ part).next();
  return which % 4 == 0;
}

// What a warp's waits show: it should next wait for the phase after the one it saw last. When that phase and another
// one are over before it asks, the parity misleads it.
void check_phase(Warp& w, const Instruction& in, int lane, const Cta& owner, const Mbarrier& barrier, U64 parity) {
  PhaseSeen* const seen = phase_seen(w, owner, barrier.offset);
  const bool is_over = (barrier.phase & 1) != parity;
  if (seen == nullptr) {
    w.phases_seen.push_back({&owner, barrier.offset, barrier.phase, w.launch->progress});
    return;
  }
  const auto is_missed = [&](U64 next) { return (next & 1) == parity && barrier.phase >= next + 2; };
  if (is_missed(seen->next) && is_missed(std::max(seen->next, phase_heard_of(w, owner, barrier.offset))))
    w.hazard(in, "mbarrier-phase-missed", lane, lane_address(w, in.op[1], lane),
             fmt::format("waits for phase {} (parity {}), but the barrier is in phase {}: {}", seen->next, parity,
                         barrier.phase, is_over ? "a later phase of this parity passes for it" : "the wait goes on"),
             "nothing makes the arriving side wait for this warp, so it may be two phases ahead");
  seen->next = barrier.phase;
  seen->at = w.launch->progress;
}

// flags: 1 parity (else a token), 2 may suspend (try_wait), 4 relaxed, kWaitIsIgnored, kWaitMayBeGivenUp. op:
// predicate, address, parity or token, time limit?.
Step wait(Warp& w, const Instruction& in, Mask active) {
  Mask done = 0;
  const Mbarrier* waited = nullptr;
  bool is_one_barrier = true;
  const Mbarrier* over = nullptr;  // for the race detector: lanes that see one phase, together
  Mask lanes_over = 0;
  const bool is_ignored = (in.flags & kWaitIsIgnored) != 0;
  const bool ends_early = gives_up(w);
  bool comes_late = false;
  const auto acquire = [&] {
    if ((in.flags & 1) != 0) w.launch->race->note_wait(w, lanes_over, *over->race);
    w.launch->race->acquire(w, lanes_over, over->race, (in.flags & 4) != 0);
    lanes_over = 0;
  };
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Target target;
    const Mbarrier* barrier = find(w, in, in.op[1], lane, space_in(in), target, true);
    if (barrier == nullptr) return Step::fault;
    U64 parity = 0;
    if ((in.flags & 1) != 0) {
      parity = read_lane<U32>(w, in.op[2], lane);
      // Machine code shifts it by 31, so the lowest bit counts.
      if (parity > 1)
        w.hazard(in, "mbarrier-parity", lane, lane_address(w, in.op[1], lane),
                 fmt::format("parity {}: must be 0 or 1; its lowest bit is taken", parity),
                 "a count of rounds in place of its lowest bit");
      parity &= 1;
    } else {
      parity = read_lane<U64>(w, in.op[2], lane) >> 63;
    }
    if (is_ignored && w.race) w.launch->race->ignore_wait(w, barrier->race);
    const bool is_over = (barrier->phase & 1) != parity;
    if (is_late(w, in, *target.cta, *barrier, is_over)) {
      comes_late = true;
      continue;
    }
    if (ends_early && is_over && !has_seen_it_over(w, *target.cta, *barrier)) continue;
    check_phase(w, in, lane, *target.cta, *barrier, parity);
    if (is_over) {
      done |= Mask{1} << lane;
      if (barrier->race && !is_ignored) {
        if (over != nullptr && over != barrier) acquire();
        over = barrier;
        lanes_over |= Mask{1} << lane;
      }
    } else {
      is_one_barrier = is_one_barrier && (waited == nullptr || waited == barrier) && target.cta == w.cta;
      waited = barrier;
    }
  }
  if (over != nullptr) acquire();
  if (comes_late) --w.launch->late_answers;
  if (w.launch->weak) w.launch->weak->synchronise(w, done, (in.flags & 4) != 0);
  const Wake reason = w.take_wake();
  if ((in.flags & 2) != 0 && done == 0 && is_one_barrier && reason != Wake::timeout && !ends_early && !comes_late) {
    w.keep(active);
    return w.block({Wait::Kind::mbarrier, waited->offset, waited->phase, 0});
  }
  write_predicate(w, in.op[0], active, done);
  return done == active || ends_early || comes_late ? Step::next : Step::yielded;
}

Step pending_count(Warp& w, const Instruction& in, Mask active) {
  return lift1<U32, U64>(w, in, active, [](U64 token) { return static_cast<U32>((0 - (token >> 43)) & 0xFFFFF); });
}

void set_space(const Decoded& d) { d.in->number = static_cast<U32>(space_of(d)); }

}  // namespace

Handler mbarrier_init(const Decoded& d) {
  set_space(d);
  return init;
}
Handler mbarrier_inval(const Decoded& d) {
  set_space(d);
  return invalidate;
}
Handler mbarrier_arrive(const Decoded& d) {
  set_space(d);
  d.in->flags =
      static_cast<std::uint16_t>((d.has("expect_tx") ? 1 : 0) | (d.form->mnemonic == "mbarrier.arrive_drop" ? 2 : 0) |
                                 (d.has("relaxed") ? 4 : 0) | (d.has("cluster") ? 0 : 8));
  if (d.has("expect_tx") && d.in->op[2].kind == Operand::Kind::none) return nullptr;
  return arrive;
}
Handler mbarrier_tx(const Decoded& d) {
  set_space(d);
  d.in->flags = d.form->mnemonic == "mbarrier.complete_tx" ? 1 : 0;
  return transaction;
}
Handler mbarrier_wait(const Decoded& d) {
  set_space(d);
  d.in->flags = static_cast<std::uint16_t>(
      (d.has("parity") ? 1 : 0) | (d.form->mnemonic == "mbarrier.try_wait" ? 2 : 0) | (d.has("relaxed") ? 4 : 0));
  return wait;
}
Handler mbarrier_pending_count(const Decoded&) { return pending_count; }

}  // namespace bind
}  // namespace tessera::emulator

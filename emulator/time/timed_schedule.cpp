// A launch by its clock: of all warps that can go on, the one with the least time runs one instruction; an asynchronous
// operation that is over earlier comes first. So whoever asks for a thing first gets it, as on the hardware, and waits
// take as long as what they wait for.
#include <algorithm>
#include <queue>
#include <tuple>

#include "emulator/observers/observer.h"
#include "emulator/scheduler.h"
#include "emulator/time/clock.h"

namespace tessera::emulator {
namespace {

struct Turn {
  double time, last;  ///< last: when it issued before, where that counts
  std::uint32_t order;
  WarpClock* warp;
  bool operator<(const Turn& other) const {  // for a queue whose top is the least
    return std::tie(time, last, order) > std::tie(other.time, other.last, other.order);
  }
};

bool can_run(const Warp& warp) {
  return warp.mask != 0 || std::any_of(warp.parked.begin(), warp.parked.end(),
                                       [](const Group& group) { return group.wait.kind == Wait::Kind::none; });
}

}  // namespace

void Scheduler::run_timed() {
  Clock& clock = *launch_.options.clock;
  double now = 0;
  std::uint64_t executed = 0;
  std::priority_queue<Turn> turns;
  std::size_t num_clusters = 0;
  const auto admit = [&](double time) {
    while (admit_cluster()) clock.admit(*launch_.resident_.back(), time);
    num_clusters = launch_.resident_.size();
  };
  const auto queue = [&](WarpClock& warp) {
    turns.push({warp.now, clock.warps_take_turns() ? warp.last_issue : 0, warp.order, &warp});
  };
  const auto queue_all = [&] {
    turns = {};
    for (const std::unique_ptr<WarpClock>& one : clock.warps())
      if (!one->is_blocked && !one->is_done) queue(*one);
  };
  admit(0);
  queue_all();
  constexpr double kNever = 1e18;
  std::uint64_t progress = launch_.progress, stuck_at = 0;
  // After something that may end waits: those whose wait is over take part again.
  const auto wake = [&](bool is_forced = false) {
    if (launch_.progress == progress && !is_forced) return;
    progress = launch_.progress;
    for (const std::unique_ptr<WarpClock>& one : clock.warps()) {
      if (!one->is_blocked) continue;
      Wait::Kind kind = Wait::Kind::none;
      for (const Group& group : one->warp->parked)
        if (group.wait.kind != Wait::Kind::none) kind = group.wait.kind;
      wake_groups(*one->warp);
      if (!can_run(*one->warp)) continue;
      clock.wake(*one, kind, now);
      queue(*one);
    }
  };
  while (!warps_.empty() && !launch_.findings.has_failure()) {
    auto due = static_cast<double>(launch_.async.next_ready());
    // What is due and waits for something else is not looked at before something has happened.
    if (launch_.progress == stuck_at) due = kNever;
    if (turns.empty() || due <= turns.top().time) {
      if (launch_.async.empty() || due >= kNever) {
        const bool any = launch_.async.complete_one(launch_);
        if (!any && !time_out_waits()) {
          report_deadlock();
          break;
        }
      } else {
        now = std::max(now, due);
        launch_.time = static_cast<std::uint64_t>(now);
        const std::uint64_t before = launch_.progress;
        launch_.async.poll(launch_);
        if (launch_.progress == before) {
          stuck_at = before;
          continue;
        }
      }
      wake(true);
      continue;
    }
    WarpClock& turn = *turns.top().warp;
    turns.pop();
    Warp& warp = *turn.warp;
    if (warp.mask == 0 && !warp.resume(false)) {
      for (Group& group : warp.parked) group.yielded = false;
      if (!warp.resume(false)) {
        clock.block(turn, turn.now);
        continue;
      }
    }
    // As long as nobody else is earlier.
    while (true) {
      const Instruction& in = warp.code[warp.pc];
      const double time = clock.earliest(turn, in);
      const bool has_operation =
          launch_.progress != stuck_at && static_cast<double>(launch_.async.next_ready()) <= time;
      if ((!turns.empty() && turns.top().time < time) || has_operation) {
        queue(turn);
        break;
      }
      now = std::max(now, time);
      launch_.time = static_cast<std::uint64_t>(time);
      const Result result = execute_timed(warp);
      ++executed;
      if (result == Result::fault) {
        launch_.time = executed;
        return;
      }
      if (result == Result::done) {
        turn.is_done = true;
        turn.last_issue = std::max(turn.last_issue, time);
        if (warp.cta->cluster->live_threads == 0) {
          for (const std::unique_ptr<Cluster>& cluster : launch_.resident_)
            if (cluster->live_threads == 0) clock.retire(*cluster, now);
          // Its last operations end before others begin: what is stored is on its way when a CTA is over.
          while (launch_.async.complete_one(launch_)) {
          }
          retire_clusters();
          for (std::size_t i = 0; i < launch_.resident_.size(); ++i) {
            const Cta& first = *launch_.resident_[i]->ctas.front();
            if (!clock.knows(first)) clock.admit(*launch_.resident_[i], now + clock.admit_delay());
          }
          queue_all();
        }
        wake();
        break;
      }
      if (warp.mask == 0 && !warp.resume(false)) {
        for (Group& group : warp.parked) group.yielded = false;
        if (!warp.resume(false)) {
          clock.block(turn, turn.now);
          wake();
          if (turn.is_blocked) wake_groups(warp);
          if (turn.is_blocked && can_run(warp)) {
            clock.wake(turn, Wait::Kind::none, now);
            queue(turn);
          }
          break;
        }
      }
      wake();
    }
    if (executed % 4096 == 0 && !within_budget()) break;
    if (clock.stop_after != 0 && executed >= clock.stop_after) break;
  }
  launch_.time = executed;
}

Scheduler::Result Scheduler::execute_timed(Warp& warp) {
  Clock& clock = *launch_.options.clock;
  WarpClock& timed = clock.of(warp);
  Observer* const observer = launch_.options.observer;
  const Instruction& in = warp.code[warp.pc];
  Mask active = warp.mask;
  if (in.guard != kNoGuard) {
    const Mask guard = warp.predicate(in.guard);
    active &= in.guard_negated ? ~guard : guard;
  }
  ++warp.executed;
  clock.issue(timed, in, active, timed.now);
  Step step = Step::next;
  if (active != 0) {
    if (warp.watches_registers && !warp.check_registers(in, active)) return Result::fault;
    if (observer != nullptr) observer->before(warp, in, active, launch_.time);
    // Where only time is asked products leave their registers as they are.
    const bool is_left_out = launch_.options.skips_values && clock.is_mma(in);
    TileCounters* const counters = clock.counter_of(in);
    step = is_left_out ? Step::next : counters != nullptr ? counters->take(warp, in, active) : in.run(warp, in, active);
    if (counters != nullptr && counters->has_found()) clock.stop_after = 1;
    if (observer != nullptr) {
      observer->after(warp, in, active, step, launch_.time);
      observer->slice(warp, launch_.time, launch_.time + 1);
    }
  }
  switch (step) {
    case Step::next:
      clock.passed(timed, in);
      ++warp.pc;
      break;
    case Step::jumped:
      clock.jumped(timed, in);
      break;
    case Step::yielded:
      ++warp.pc;
      warp.park_current({}, true);
      warp.resume(false);
      break;
    case Step::blocked:
      warp.park_current(warp.wait, false);
      break;
    case Step::exited:
      if (warp.is_done()) return Result::done;
      break;
    case Step::fault:
      return Result::fault;
  }
  if (warp.mask != 0 && warp.pc >= warp.merge_pc) warp.reconverge();
  return Result::ran;
}

}  // namespace tessera::emulator

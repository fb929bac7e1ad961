#include "emulator/time/clock.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "emulator/instructions/lanes.h"
#include "emulator/memory/access.h"
#include "emulator/memory/async.h"

namespace tessera::emulator {
namespace {

constexpr const char* kCauseNames[kCauses] = {"issue",       "arithmetic",  "exponent unit", "shared memory", "memory",
                                              "tensor core", "copy engine", "mbarrier",      "CTA barrier",   "cluster",
                                              "other CTA",   "copies",      "other"};

}  // namespace

const char* to_string(Cause cause) { return kCauseNames[static_cast<std::size_t>(cause)]; }

Clock::Clock(const GpuTime& gpu, const Entry& entry, const GlobalMemory& memory, Surroundings surroundings, int num_sms)
    : gpu_(gpu),
      code_(entry.code.data()),
      surroundings_(std::move(surroundings)),
      branch_bubble_(gpu.class_of("branch").latency),
      costs_(costs_of(entry, gpu)),
      sms_(static_cast<std::size_t>(std::max(num_sms, 1))) {
  for (const auto& one : memory.live()) allocations_.push_back(one);
  if (surroundings_.hbm_bytes_per_us <= 0) surroundings_.hbm_bytes_per_us = gpu.hbm_bytes_per_us;
  for (SmClock& sm : sms_) sm.sub_cores.resize(static_cast<std::size_t>(gpu.sub_cores));
}

// Each CTA of a cluster on another multiprocessor where there are enough, the emptiest first.
void Clock::admit(Cluster& cluster, double time) {
  std::vector<bool> taken(sms_.size());
  for (const std::unique_ptr<Cta>& cta : cluster.ctas) {
    std::size_t best = sms_.size();
    for (std::size_t i = 0; i < sms_.size(); ++i)
      if (!taken[i] && (best == sms_.size() || sms_[i].ctas < sms_[best].ctas)) best = i;
    if (best == sms_.size()) best = cta->rank % sms_.size();
    taken[best] = true;
    SmClock& sm = sms_[best];
    ++sm.ctas;
    // Its warps go round the sub-cores, from the one with the fewest on.
    const auto has_fewer = [](const SmClock::SubCore& a, const SmClock::SubCore& b) { return a.warps < b.warps; };
    const auto fewest = std::min_element(sm.sub_cores.begin(), sm.sub_cores.end(), has_fewer);
    const auto first_core = static_cast<int>(fewest - sm.sub_cores.begin());
    if (sm.first < 0) sm.first = time;
    const double start = std::max(time, sm.next_cta);
    if (surroundings_.is_cold) sm.next_cta = start + gpu_.cta_interval;
    sm_of_[cta.get()] = static_cast<int>(best);
    for (Warp& warp : cta->warps) {
      auto clock = std::make_unique<WarpClock>();
      clock->warp = &warp;
      clock->sm = static_cast<int>(best);
      clock->sub_core = (warp.index + first_core) % gpu_.sub_cores;
      ++sm.sub_cores[static_cast<std::size_t>(clock->sub_core)].warps;
      clock->begin = clock->now = clock->last_issue = start;
      clock->order = next_order_++;
      clock->ready.assign(costs_.num_places, 0);
      clock->cause.assign(costs_.num_places, Cause::issue);
      clock->turns.assign(costs_.num_loops, 0);
      by_warp_[&warp] = clock.get();
      warps_.push_back(std::move(clock));
    }
  }
}

void Clock::retire(const Cluster& cluster, double time) {
  for (const std::unique_ptr<Cta>& cta : cluster.ctas) {
    SmClock& sm = sms_[static_cast<std::size_t>(sm_of_.at(cta.get()))];
    --sm.ctas;
    sm.last = std::max(sm.last, time);
    sm_of_.erase(cta.get());
    for (const Warp& warp : cta->warps) by_warp_.erase(&warp);
    std::erase_if(warps_, [&](const std::unique_ptr<WarpClock>& clock) {
      if (clock->warp->cta != cta.get()) return false;
      --sm.sub_cores[static_cast<std::size_t>(clock->sub_core)].warps;
      Role& role = roles_[clock->warp->index];
      role.warps += 1;
      role.instructions += static_cast<double>(clock->instructions);
      role.cycles += clock->last_issue - clock->begin;
      for (std::size_t i = 0; i < kCauses; ++i) role.waits[i] += clock->waits[i];
      return true;
    });
  }
  last_ = std::max(last_, time);
}

double Clock::earliest(WarpClock& warp, const Instruction& in) {
  const InstructionCost& cost = costs_.by_pc[static_cast<std::size_t>(&in - code_)];
  if (cost.kind == CostKind::free || is_folded(warp, in, cost)) return warp.now;
  double time = warp.now;
  Cause cause = warp.pending;
  const std::uint32_t* const places = costs_.places.data() + cost.first;
  // The assembler puts other work of the basic block before arithmetic whose operands are late: it takes its turn on
  // the pipe, and starts when they are there.
  for (std::uint32_t i = 0; i < cost.sources && !cost.is_movable; ++i)
    if (const double ready = warp.ready[places[i]]; ready > time) time = ready, cause = warp.cause[places[i]];
  for (std::size_t i = 0; i < cost.guards; ++i)
    if (const double free = warp.guarded[(warp.next_guard + i) % kGuards]; free > time)
      time = free, cause = Cause::memory;
  if (cost.needs_stores && warp.stored > time) time = warp.stored, cause = warp.block_cause;
  if (cost.ends_block && warp.block_end > time) time = warp.block_end, cause = warp.block_cause;
  if (cost.kind == CostKind::tensor_wait && warp.tensor_memory > time)
    time = warp.tensor_memory, cause = Cause::tensor_core;
  const SmClock& sm = sms_[static_cast<std::size_t>(warp.sm)];
  const SmClock::SubCore& core = sm.sub_cores[static_cast<std::size_t>(warp.sub_core)];
  const auto pipe = static_cast<std::size_t>(cost.time.pipe);
  const double unit = std::max(core.issue, pipe == 0 ? 0.0 : core.pipe[pipe]);
  if (unit > time) time = unit, cause = core.issue >= unit ? Cause::issue : cause_of(cost);
  warp.pending = cause;
  warp.now = time;
  return time;
}

Cause Clock::cause_of(const InstructionCost& cost) const {
  switch (cost.time.pipe) {
    case Pipe::mufu:
      return Cause::exponent;
    case Pipe::memory:
      return Cause::shared_memory;
    case Pipe::tensor:
      return Cause::tensor_core;
    default:
      return Cause::issue;
  }
}

void Clock::issue(WarpClock& warp, const Instruction& in, Mask active, double time) {
  InstructionCost& cost = costs_.by_pc[static_cast<std::size_t>(&in - code_)];
  current_ = &warp;
  current_in_ = &in;
  time_ = time;
  in_operation_ = false;
  if (cost.joined_bytes != 0 && active != 0) join_loads(warp, in, cost, active);
  const std::uint32_t* const places = costs_.places.data() + cost.first;
  const auto give = [&](double ready, Cause cause) {
    for (std::uint32_t i = cost.sources; i < cost.sources + cost.destinations; ++i) {
      warp.ready[places[i]] = ready;
      warp.cause[places[i]] = cause;
    }
  };
  const bool folds = is_folded(warp, in, cost);
  if (cost.is_back_edge) warp.turns[cost.loop] = static_cast<std::uint8_t>((warp.turns[cost.loop] + 1) % kUnrolled);
  if (folds && !cost.is_step) return give(warp.words.at(&in), Cause::shared_memory);
  if (cost.kind == CostKind::free || folds) {  // the value is there when its source is
    double ready = warp.now;
    Cause cause = Cause::issue;
    for (std::uint32_t i = 0; i < cost.sources; ++i)
      if (warp.ready[places[i]] > ready) ready = warp.ready[places[i]], cause = warp.cause[places[i]];
    return give(ready, cause);
  }
  ++warp.instructions;
  warp.waits[static_cast<std::size_t>(warp.pending)] += time - warp.last_issue;
  SmClock& sm = sms_[static_cast<std::size_t>(warp.sm)];
  SmClock::SubCore& core = sm.sub_cores[static_cast<std::size_t>(warp.sub_core)];
  const bool is_one = active == 0 || cost.kind == CostKind::tensor_memory;
  const double slots = is_one ? 1 : cost.repeat;
  core.issue = time + slots;
  sm.issue_busy += slots / gpu_.sub_cores;
  warp.last_issue = time;
  warp.now = time + slots;
  warp.pending = Cause::issue;
  if (surroundings_.is_cold) {
    constexpr std::size_t kInstructionsOfLine = 8;
    const std::size_t line = static_cast<std::size_t>(&in - code_) / kInstructionsOfLine;
    if (sm.code.size() <= line) sm.code.resize(costs_.by_pc.size() / kInstructionsOfLine + 1);
    if (!sm.code[line]) warp.now += gpu_.cold_line;
    sm.code[line] = true;
  }
  if (active == 0) return;
  const auto pipe = static_cast<std::size_t>(cost.time.pipe);
  const bool is_beside_wgmma = sm.tensor > time && !gpu_.wgmma.empty();  // both want the registers
  const double beside = cost.time.beside > 0 ? cost.time.beside : gpu_.beside_wgmma[pipe];
  const double interval = cost.time.interval * cost.repeat * (is_beside_wgmma ? beside : 1);
  if (pipe != 0) {
    core.pipe[pipe] = std::max(core.pipe[pipe], time) + interval;
    sm.pipe_busy[pipe] += interval / gpu_.sub_cores;
  }
  if (cost.time.holds_warp) warp.now = std::max(warp.now, time + interval);
  double start = time;
  if (cost.is_movable) {
    for (std::uint32_t i = 0; i < cost.sources; ++i)
      if (const double operand = warp.ready[places[i]]; operand > start) {
        start = operand;
        if (start > warp.block_end) warp.block_cause = warp.cause[places[i]];
      }
    warp.block_end = std::max(warp.block_end, start);
    if (cost.is_late_store) warp.stored = std::max(warp.stored, start);
  }
  double ready = start + cost.time.latency + (cost.repeat - 1);
  Cause cause = cost.time.pipe == Pipe::mufu     ? Cause::exponent
                : cost.time.pipe == Pipe::tensor ? Cause::tensor_core
                                                 : Cause::arithmetic;
  switch (cost.kind) {
    case CostKind::shared:
    case CostKind::global:
    case CostKind::local:
    case CostKind::atomic:
      if (cost.loop != kAlone && active != 0) follow_words(warp, in, cost, active);
      touch_memory(warp, in, cost, active, time, ready, cause);
      if (const auto words = warp.words.find(&in); words != warp.words.end()) words->second = ready;
      for (std::size_t i = 0; i < cost.guards; ++i) {
        warp.guarded[warp.next_guard] = ready;
        warp.next_guard = (warp.next_guard + 1) % kGuards;
      }
      break;
    case CostKind::wgmma:
      warp.now = time + gpu_.wgmma_issue;
      break;
    case CostKind::tma:
      warp.now = time + gpu_.tma_issue;
      if (in.opcode.starts_with("cp.async.bulk.prefetch.L2")) {
        const int lane = std::countr_zero(active);
        ask_ahead(sm, time, lane_address(*warp.warp, in.op[0], lane),
                  read_lane<std::uint32_t>(*warp.warp, in.op[1], lane));
        if (gpu_.tma_prefetch_issue > 0) warp.now = time + gpu_.tma_prefetch_issue;
      }
      break;
    case CostKind::tensor_memory:
      ready = core.pipe[pipe] + cost.time.latency;
      warp.tensor_memory = std::max(warp.tensor_memory, ready);
      break;
    default:
      break;
  }
  give(ready, cause);
}

void Clock::jumped(WarpClock& warp, const Instruction& in) {
  const InstructionCost& cost = costs_.by_pc[static_cast<std::size_t>(&in - code_)];
  const bool is_left_out = cost.is_back_edge && warp.turns[cost.loop] != 0;
  if (cost.kind != CostKind::free && !is_left_out) warp.now += branch_bubble_;
  if (cost.skipped == 0) return;
  SmClock& sm = sms_[static_cast<std::size_t>(warp.sm)];
  SmClock::SubCore& core = sm.sub_cores[static_cast<std::size_t>(warp.sub_core)];
  const double begin = std::max(core.issue, warp.now);
  core.issue = warp.now = begin + cost.skipped;
  sm.issue_busy += static_cast<double>(cost.skipped) / gpu_.sub_cores;
  warp.instructions += cost.skipped;
  const auto& busy = costs_.skipped.at(static_cast<std::size_t>(&in - code_));
  for (std::size_t pipe = 1; pipe < kPipes; ++pipe) {
    if (busy[pipe] <= 0) continue;
    core.pipe[pipe] = std::max(core.pipe[pipe], begin) + busy[pipe];
    sm.pipe_busy[pipe] += busy[pipe] / gpu_.sub_cores;
    warp.now = std::max(warp.now, core.pipe[pipe]);
  }
}

void Clock::block(WarpClock& warp, double time) {
  warp.is_blocked = true;
  warp.blocked_at = time;
}

void Clock::wake(WarpClock& warp, Wait::Kind kind, double time) {
  warp.is_blocked = false;
  Cause cause = Cause::other;
  double delay = 0;
  switch (kind) {
    case Wait::Kind::mbarrier:
      cause = in_operation_ ? completed_ : Cause::mbarrier;
      delay = in_operation_ ? 0 : gpu_.mbarrier_hand_off;
      break;
    case Wait::Kind::cta_barrier:
      cause = Cause::barrier;
      delay = gpu_.barrier_base + gpu_.barrier_per_warp * static_cast<double>(warp.warp->cta->warps.size());
      break;
    case Wait::Kind::cluster_barrier:
      cause = Cause::cluster;
      delay = gpu_.cluster_barrier;
      break;
    case Wait::Kind::wgmma_groups:
    case Wait::Kind::wgmma_issue:
      cause = Cause::tensor_core;
      break;
    case Wait::Kind::bulk_groups:
    case Wait::Kind::copy_groups:
      cause = Cause::copies;
      break;
    default:
      break;
  }
  if (time + delay <= warp.now) return;
  warp.now = time + delay;
  warp.pending = cause;
}

void Clock::completing(const AsyncOperation& operation, double time) {
  time_ = time;
  in_operation_ = true;
  current_ = nullptr;
  const AsyncWork work = operation.work();
  const bool is_tensor = work.kind == AsyncWork::Kind::wgmma || work.kind == AsyncWork::Kind::tensor ||
                         work.kind == AsyncWork::Kind::commit;
  completed_ = work.kind == AsyncWork::Kind::load ? Cause::copy_engine : is_tensor ? Cause::tensor_core : Cause::copies;
  if (work.cta != nullptr)
    if (const auto found = sm_of_.find(work.cta); found != sm_of_.end()) operation_sm_ = found->second;
}

std::uint64_t Clock::completion(const AsyncOperation& operation) {
  const AsyncWork work = operation.work();
  const Cta* const cta = work.cta;
  int index = current_ != nullptr ? current_->sm : operation_sm_;
  if (current_ == nullptr && cta != nullptr)
    if (const auto found = sm_of_.find(cta); found != sm_of_.end()) index = found->second;
  SmClock& sm = sms_[static_cast<std::size_t>(index)];
  double over = time_;
  switch (work.kind) {
    case AsyncWork::Kind::wgmma: {
      auto [it, is_new] = wgmmas_.try_emplace(work.in);
      if (is_new) it->second = wgmma_time(*work.in);
      over = multiply(it->second, is_of_8_bit(*work.in), sm) + gpu_.wgmma_tail;
      break;
    }
    case AsyncWork::Kind::load: {
      const auto bytes = static_cast<double>(work.bytes);
      const double start = std::max(time_, sm.engine);
      const double took = std::max({gpu_.tma_least, bytes / gpu_.tma_bytes_per_clock, time_of_rows(work)});
      sm.engine = start + took;
      sm.engine_busy += took;
      const double from_shared = bytes / gpu_.smem_bytes_per_clock;
      sm.shared_busy += from_shared;
      over = work.global == 0 ? send_to_cluster(sm, start + took, bytes) : request(sm, start, work.global, bytes, true);
      if (work.global != 0) {
        over = std::max(over, deliver(work, sm, start));
        first_copies.try_emplace({index, allocation_of(work.global)},
                                 work.first_byte != 0 ? work.first_byte : work.global);
      }
      over = std::max(over, sm.engine + gpu_.tma_latency_l2);
      if (work.global != 0) over += first_access(sm);
      // Of plain memory nothing but the bytes has to come.
      if (surroundings_.is_cold && work.first_byte != 0 &&
          std::find(sm.tensors.begin(), sm.tensors.end(), work.global) == sm.tensors.end()) {
        sm.tensors.push_back(work.global);
        over += gpu_.tma_first_use;
      }
      break;
    }
    case AsyncWork::Kind::store_read: {
      const Store store{current_, work.in, work.first_byte != 0 ? work.first_byte : work.global, time_, 0};
      if (store == last_store_) {
        over = last_store_.over;
        break;
      }
      last_store_ = store;
      const auto bytes = static_cast<double>(work.bytes);
      const double start = std::max(time_, sm.store);
      const double took = std::max(gpu_.tma_least, bytes / gpu_.tma_store_bytes_per_clock);
      sm.store = start + took;
      sm.shared_busy += bytes / gpu_.smem_bytes_per_clock;
      write(sm, time_, bytes);
      over = start + took + gpu_.tma_store_read_latency;
      last_store_.over = over;
      break;
    }
    case AsyncWork::Kind::store_write:
      over = time_ + std::max(0.0, gpu_.tma_store_latency - gpu_.tma_store_read_latency);
      break;
    case AsyncWork::Kind::lane_copies:
      first_copies.try_emplace({index, allocation_of(work.global)}, work.global);
      if (work.in != nullptr && work.in->opcode.starts_with("cp.async.ca")) {
        TouchedLines lines;
        for (const auto& [address, bytes] : operation.pieces_read()) lines.add(address, bytes);
        if (current_ != nullptr && gpu_.l1_wavefront_of_warp > 0)
          hold_pipe(*current_, time_, lines.wavefronts(), gpu_.l1_copy_of_warp);
        over = lines.count > 0 ? load_through_l1(sm, true, lines, time_, true) + first_access(sm) : time_;
      } else {
        over = request(sm, time_, work.global, static_cast<double>(work.bytes), false, true) + first_access(sm);
      }
      break;
    case AsyncWork::Kind::remote_store:
      over = send_to_cluster(sm, time_, static_cast<double>(work.bytes));
      break;
    case AsyncWork::Kind::tensor:
      over = tensor_operation(work, sm);
      break;
    case AsyncWork::Kind::commit:  // tells when what was issued before it is done
      over = std::max(time_, sm.tensor_done);
      break;
    case AsyncWork::Kind::other:
      over = time_ + gpu_.smem_latency;
      break;
  }
  return static_cast<std::uint64_t>(std::ceil(over));
}

void Clock::add_to(LaunchTime& result) const {
  int first = -1;
  RoleTime role;
  double warps = 0;
  const auto finish = [&] {
    if (warps == 0) return;
    role.instructions /= warps;
    role.cycles /= warps;
    for (auto& [name, cycles] : role.waits) cycles /= warps;
    result.roles.push_back(role);
  };
  double last_instructions = 0;
  for (const auto& [index, of_warp] : roles_) {
    const double each = of_warp.instructions / of_warp.warps;
    const bool is_other =
        first < 0 || index % 4 == 0 || each > 1.5 * last_instructions || last_instructions > 1.5 * each;
    const bool joins = first >= 0 && index % 4 == 0 && role.first_warp % 4 == 0 && each < 1.1 * last_instructions &&
                       last_instructions < 1.1 * each;
    if (is_other && !joins) {
      finish();
      role = {};
      role.first_warp = first = index;
      warps = 0;
    }
    role.last_warp = index;
    warps += of_warp.warps;
    role.instructions += of_warp.instructions;
    role.cycles += of_warp.cycles;
    for (std::size_t i = 0; i < kCauses; ++i)
      if (of_warp.waits[i] > 0) role.waits[kCauseNames[i]] += of_warp.waits[i];
    last_instructions = each;
  }
  finish();
  double total = 0;
  SmClock sum;
  for (const SmClock& sm : sms_) {
    if (sm.first < 0) continue;
    total += std::max(1.0, sm.last - sm.first);
    sum.issue_busy += sm.issue_busy;
    for (std::size_t i = 0; i < kPipes; ++i) sum.pipe_busy[i] += sm.pipe_busy[i];
    sum.shared_busy += sm.shared_busy;
    sum.tensor_busy += sm.tensor_busy;
    sum.engine_busy += sm.engine_busy;
    sum.path_busy += sm.path_busy;
    sum.port_busy += sm.port_busy;
    sum.l1_busy += sm.l1_busy;
    sum.tensor_copy_busy += sm.tensor_copy_busy;
    sum.to_cluster_busy += sm.to_cluster_busy;
    sum.hbm_busy += sm.hbm_busy;
  }
  const auto add = [&](const char* name, double busy) { result.units.push_back({name, total > 0 ? busy / total : 0}); };
  add("tensor core", sum.tensor_busy + sum.pipe_busy[static_cast<std::size_t>(Pipe::tensor)]);
  add("Tensor Memory copies", sum.tensor_copy_busy);
  add("issue slots", sum.issue_busy);
  add("fma pipe", sum.pipe_busy[static_cast<std::size_t>(Pipe::fma)]);
  add("alu pipe", sum.pipe_busy[static_cast<std::size_t>(Pipe::alu)]);
  add("exponent unit", sum.pipe_busy[static_cast<std::size_t>(Pipe::mufu)]);
  add("shared memory", sum.shared_busy);
  add("L1", sum.l1_busy);
  add("copy engine", sum.engine_busy);
  add("L2", sum.path_busy);
  add("port", sum.port_busy);
  add("other CTAs", sum.to_cluster_busy);
  add("memory", sum.hbm_busy);
}

}  // namespace tessera::emulator

// An execution ends with all warps retired, a failure, a budget used up, or a deadlock that is reported as one:
// declared only when a walk over all warps finds none that can run and no asynchronous operation, no waiting CTA and
// no timed wait is left to help.
#include "emulator/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/call_stack.h"
#include "emulator/findings/race.h"
#include "emulator/findings/schedule_clues.h"
#include "emulator/memory/weak_memory.h"
#include "emulator/observers/observer.h"
#include "emulator/parts.h"
#include "emulator/tensor_cores/tensor_core.h"
#include "emulator/tensor_cores/wgmma.h"

namespace tessera::emulator {
namespace {

// Registers that a thread is launched with: .maxnreg, or what the launch bounds leave it; 0: nothing is stated. A CTA's
// warps share what setmaxnreg moves (PTX ISA, "setmaxnreg").
std::uint32_t launch_registers(const Entry& entry) {
  if (entry.max_registers != 0) return entry.max_registers;
  if (entry.max_threads == 0) return 0;
  const std::uint32_t threads = entry.max_threads * std::max<std::uint32_t>(1, entry.min_ctas_per_sm);
  return std::min<std::uint32_t>(256, 65536 / std::max<std::uint32_t>(threads, 1) / 8 * 8);
}

/// Instructions at most of a turn in which a warp has looked for something that is not there yet.
constexpr std::uint64_t kLook = 64;

std::uint64_t product(const std::array<std::uint32_t, 3>& v) { return std::uint64_t{v[0]} * v[1] * v[2]; }

}  // namespace

Launch::Launch(const Program& program_, const Entry& entry_, GlobalMemory& memory_, const LaunchShape& shape_,
               const LaunchOptions& options_, std::vector<std::byte> parameters_)
    : program(program_),
      entry(entry_),
      memory(memory_),
      shape(shape_),
      options(options_),
      parameters(std::move(parameters_)),
      random(options_.seed * 0x9E3779B97F4A7C15 + options_.part * 0xBF58476D1CE4E5B9 +
             static_cast<std::uint64_t>(options_.schedule)) {
  local_bytes = entry.local_bytes;
  if (entry.has_stack) local_bytes = (local_bytes + 15) / 16 * 16 + stack_bytes(shape, options.num_sms);
  if (WrittenLines::is_needed(entry)) written = std::make_unique<WrittenLines>();
  splits_warps = options.schedule == Schedule::split;
  if (options.detects_races) race = std::make_unique<RaceDetector>(*this);
  clues = std::make_unique<ScheduleClues>();
  if (options.schedule == Schedule::weak) weak = std::make_unique<WeakMemory>(random);
}

Launch::~Launch() = default;

std::array<std::uint32_t, 3> Launch::first_cta(std::uint64_t cluster) const {
  const auto& c = shape.cluster;
  const std::uint64_t nx = shape.grid[0] / c[0];
  const std::uint64_t ny = shape.grid[1] / c[1];
  return {static_cast<std::uint32_t>(cluster % nx * c[0]), static_cast<std::uint32_t>(cluster / nx % ny * c[1]),
          static_cast<std::uint32_t>(cluster / (nx * ny) * c[2])};
}

void Launch::run() {
  start_seconds = options.parts != nullptr ? options.parts->start_seconds : seconds_now();
  if (options.observer != nullptr) options.observer->started(*this);
  Scheduler(*this).run();
  statistics.warp_instructions = time;
  statistics.seconds = seconds_now() - start_seconds;
  if (options.observer != nullptr) options.observer->finished(*this);
}

void Scheduler::run() {
  if (launch_.num_clusters == 0) launch_.num_clusters = product(launch_.shape.grid) / product(launch_.shape.cluster);
  const std::uint64_t cluster_size = product(launch_.shape.cluster);
  max_resident_ctas_ = std::max<std::size_t>(static_cast<std::size_t>(launch_.options.num_sms), cluster_size);
  // Clusters that do not speak need not wait for each other, and of one at a time the host's caches hold more.
  if (launch_.options.parts != nullptr) max_resident_ctas_ = cluster_size;
  if (launch_.options.clock != nullptr) return run_timed();
  while (admit_cluster()) {
  }
  std::size_t turn = 0;
  std::size_t blocked_in_a_row = 0;
  while (!warps_.empty() && !launch_.findings.has_failure()) {
    if (launch_.time >= launch_.async.next_ready()) launch_.async.poll(launch_);
    Warp& warp = pick_warp(turn++);
    const Result result = run_slice(warp, next_slice());
    if (result == Result::fault || !within_budget()) return;
    if (result == Result::done) {
      if (warp.cta->cluster->live_threads == 0) retire_clusters();
      blocked_in_a_row = 0;
      turn = 0;
    } else if (result == Result::ran) {
      blocked_in_a_row = 0;
    } else if (++blocked_in_a_row >= warps_.size()) {  // or they look for something and sleep
      starved_ = nullptr;
      // One more walk over all warps decides: a random choice may have missed one.
      const bool any = std::any_of(warps_.begin(), warps_.end(), [&](Warp* w) {
        wake_groups(*w);
        return std::any_of(w->parked.begin(), w->parked.end(),
                           [](const Group& g) { return g.wait.kind == Wait::Kind::none; });
      });
      if (any && launch_.options.schedule == Schedule::lazy) launch_.async.complete_one(launch_);
      if (!any && !launch_.async.complete_one(launch_) && !admit_cluster() && !time_out_waits())
        return report_deadlock();
      blocked_in_a_row = 0;
    }
  }
}

bool Scheduler::admit_cluster() {
  const std::uint64_t size = product(launch_.shape.cluster);
  if (launch_.next_cluster >= launch_.num_clusters) return false;
  if ((launch_.resident_.size() + 1) * size > max_resident_ctas_) return false;
  const auto& c = launch_.shape.cluster;
  const std::array<std::uint32_t, 3> first = launch_.first_cta(launch_.next_cluster);
  launch_.next_cluster += launch_.options.clock != nullptr ? launch_.options.clock->cluster_step : 1;
  auto cluster = std::make_unique<Cluster>();
  if (launch_.race) launch_.race->start_cluster(*cluster);
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    cluster->ctas.push_back(make_cta());
    const std::array<std::uint32_t, 3> id{first[0] + rank % c[0], first[1] + rank / c[0] % c[1],
                                          first[2] + rank / (c[0] * c[1])};
    start_cta(*cluster->ctas.back(), *cluster, rank, id);
  }
  launch_.resident_.push_back(std::move(cluster));
  return true;
}

std::unique_ptr<Cta> Scheduler::make_cta() {
  if (launch_.spare_.empty()) return std::make_unique<Cta>();
  std::unique_ptr<Cta> cta = std::move(launch_.spare_.back());
  launch_.spare_.pop_back();
  return cta;
}

void Scheduler::start_cta(Cta& cta, Cluster& cluster, std::uint32_t rank, std::array<std::uint32_t, 3> id) {
  const Entry& entry = launch_.entry;
  cta.cluster = &cluster;
  cta.launch = &launch_;
  cta.id = id;
  cta.rank = rank;
  cta.num_threads = static_cast<std::uint32_t>(product(launch_.shape.block));
  const std::uint32_t num_warps = (cta.num_threads + kLanes - 1) / kLanes;
  cta.live_warps = num_warps;
  cta.shared_bytes = entry.dynamic_smem_offset + launch_.shape.dynamic_smem_bytes;
  if (launch_.shape.dynamic_smem_bytes == 0) cta.shared_bytes = entry.static_smem_bytes;
  // 0xFF: as a floating-point number, NaN.
  cta.shared.assign(cta.shared_bytes, std::byte{0xFF});
  cta.shared_shadow.assign(cta.shared_bytes, kAllocated);
  cta.shared_pages.assign(cta.shared_bytes / Cta::kSharedPage + 1, 0);
  // Cooperative groups clear single bits of words there, and never look at the others.
  std::fill_n(cta.shared_shadow.begin() + entry.reserved_smem_offset, entry.reserved_smem_bytes, kReadable);
  cta.written_at.assign(cta.shared_bytes / 16 + 1, 0);
  cta.tile_swizzle.assign(cta.shared_bytes / 16 + 1, 0);
  cta.local.assign(std::size_t{num_warps} * kLanes * launch_.local_bytes, std::byte{0xFF});
  cta.local_shadow.assign(cta.local.size(), kAllocated);
  cta.barriers = {};
  cta.free_registers = 0;
  cta.mbarriers.clear();
  cta.mbarriers_begin = cta.mbarriers_end = 0;
  if (cta.tensor_memory) cta.tensor_memory->reset();
  cta.saw_no_cluster_left = false;
  cta.warpgroups.clear();
  cta.warpgroups.resize((num_warps + 3) / 4);
  if (!cta.register_storage)
    cta.register_storage.reset(new std::byte[std::size_t{num_warps} * entry.register_file_bytes + 64]);
  for (Warp& warp : cta.warps) {  // as new, but for room that it has
    std::vector<Group> parked = std::move(warp.parked);
    parked.clear();
    warp = Warp();
    warp.parked = std::move(parked);
  }
  cta.warps.resize(num_warps);
  cluster.live_threads += cta.num_threads;
  for (std::uint32_t i = 0; i < num_warps; ++i) {
    start_warp(cta.warps[i], cta, static_cast<int>(i));
    warps_.push_back(&cta.warps[i]);
  }
  if (launch_.race) launch_.race->start_cta(cta);
  if (launch_.weak) launch_.weak->start(cta);
}

// What each warp of the grid starts with, by its rank in the cluster: constants, and special registers that are the
// same everywhere. Whatever a kernel reads without having written it (0xFF) is the same in every run.
const std::vector<std::byte>& Scheduler::fresh_registers(const Warp& warp) {
  const Entry& entry = launch_.entry;
  fresh_registers_.resize(warp.cta->cluster->ctas.size());
  std::vector<std::byte>& fresh = fresh_registers_[warp.cta->rank];
  if (!fresh.empty() || entry.register_file_bytes == 0) return fresh;
  fresh.assign(entry.register_file_bytes, std::byte{0xFF});
  for (const ConstantSlot& constant : entry.constants) {
    std::uint64_t bits = constant.bits;
    if (constant.relocation == ConstantSlot::Relocation::shared) bits += std::uint64_t{warp.cta->rank} << kRankShift;
    std::byte* const to = fresh.data() + constant.offset;
    if (constant.bytes == 0) std::memcpy(to, &bits, sizeof(Mask));
    for (std::size_t lane = 0; constant.bytes != 0 && lane < kLanes; ++lane) {
      if (constant.bytes == 16) std::memset(to + lane * 16, 0, 16);
      std::memcpy(to + lane * constant.bytes, &bits, std::min<std::size_t>(constant.bytes, 8));
    }
  }
  for (const SpecialSlot& slot : entry.specials)
    if (reach_of(slot.special) == SpecialReach::grid) set_special(warp, slot, fresh.data() + slot.offset);
  return fresh;
}

void Scheduler::start_warp(Warp& warp, Cta& cta, int index) {
  const Entry& entry = launch_.entry;
  auto base = reinterpret_cast<std::uintptr_t>(cta.register_storage.get());
  base = (base + 63) / 64 * 64;
  warp.registers = reinterpret_cast<std::byte*>(base) + static_cast<std::size_t>(index) * entry.register_file_bytes;
  warp.cta = &cta;
  warp.launch = &launch_;
  warp.code = entry.code.data();
  warp.index = index;
  warp.max_registers = launch_registers(entry);
  const std::uint32_t lanes =
      std::min<std::uint32_t>(kLanes, cta.num_threads - static_cast<std::uint32_t>(index) * kLanes);
  warp.alive = warp.started = lanes == kLanes ? kAllLanes : (Mask{1} << lanes) - 1;
  Group group;
  group.pc = entry.start_pc;
  group.mask = warp.alive;
  warp.parked.push_back(group);
  if (entry.register_file_bytes != 0)
    std::memcpy(warp.registers, fresh_registers(warp).data(), entry.register_file_bytes);
  for (const SpecialSlot& slot : entry.specials)
    if (reach_of(slot.special) != SpecialReach::grid) set_special(warp, slot, warp.registers + slot.offset);
}

void Scheduler::retire_clusters() {
  for (std::size_t i = 0; i < launch_.resident_.size();) {
    Cluster& cluster = *launch_.resident_[i];
    // Operations that nobody waits for still have to land before their memory goes away.
    if (cluster.live_threads != 0) {
      ++i;
      continue;
    }
    while (launch_.async.complete_one(launch_)) {
    }
    for (std::unique_ptr<Cta>& cta : cluster.ctas) {
      check_tensor_memory_freed(*cta);
      const auto first = std::find(warps_.begin(), warps_.end(), cta->warps.data());  // and its others behind it
      warps_.erase(first, first + static_cast<std::ptrdiff_t>(cta->warps.size()));
      launch_.spare_.push_back(std::move(cta));
    }
    launch_.resident_.erase(launch_.resident_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  while (admit_cluster()) {
  }
}

std::uint64_t Scheduler::next_slice() {
  switch (launch_.options.schedule) {
    case Schedule::fair:
      return 64 + launch_.random.below(64);
    case Schedule::eager:
    case Schedule::lazy:
      return 4096;
    case Schedule::weak: {  // what others see between two accesses is what it is about
      const std::uint64_t kind = launch_.random.below(8);
      return kind < 6 ? 1 : kind < 7 ? 1 + launch_.random.below(16) : 1 + launch_.random.below(1000);
    }
    case Schedule::adversarial: {
      const std::uint64_t kind = launch_.random.below(8);
      return kind == 0  ? 1
             : kind < 4 ? 1 + launch_.random.below(64)
             : kind < 7 ? 1 + launch_.random.below(1000)
                        : 20000;
    }
    case Schedule::split: {
      const std::uint64_t kind = launch_.random.below(8);
      return kind < 2 ? 1 : kind < 7 ? 1 + launch_.random.below(32) : 1 + launch_.random.below(1000);
    }
  }
  return 64;
}

// Lanes need not stay together (Volta's independent thread scheduling): some of the running group are left behind,
// until the others have met them again at an instruction that waits for both. At most a few groups, for the time that
// takes; lanes that come back from a wait execute its instruction first.
void Scheduler::split(Warp& warp) {
  constexpr std::size_t kMostGroups = 4;
  if (warp.parked.size() >= kMostGroups || std::popcount(warp.mask) < 2 || warp.wake != Wake::none) return;
  Random& random = launch_.random;
  Mask part = 0;
  switch (random.below(5)) {
    case 0:
      part = Mask{1} << std::countr_zero(warp.mask);
      break;
    case 1:
      part = warp.mask & (warp.mask - 1);  // all but the first
      break;
    case 2:
      part = random.below(2) == 0 ? 0x0000FFFF : 0xFFFF0000;
      break;
    case 3:
      part = static_cast<Mask>(random.next());
      break;
    default:
      return;
  }
  part &= warp.mask;
  if (part == 0 || part == warp.mask) return;
  Group rest;
  rest.pc = warp.pc;
  rest.mask = warp.mask & ~part;
  warp.mask = part;
  warp.parked.push_back(rest);
}

Warp& Scheduler::pick_warp(std::size_t turn) {
  if (!is_random(launch_.options.schedule)) return *warps_[turn % warps_.size()];
  // Now and then one warp gets no turn for long.
  if (launch_.time >= starved_until_) {
    starved_ = launch_.random.below(2) == 0 ? nullptr : warps_[launch_.random.below(warps_.size())];
    starved_until_ = launch_.time + launch_.random.below(20000);
  }
  Warp* picked = warps_[launch_.random.below(warps_.size())];
  if (picked == starved_) picked = warps_[launch_.random.below(warps_.size())];
  return *picked;
}

// A waiting group is over its wait when what it waits for has happened.
bool Scheduler::is_over(const Warp& warp, const Group& group) const {
  const Wait& wait = group.wait;
  auto& async = const_cast<WarpAsync&>(warp.async);
  switch (wait.kind) {
    case Wait::Kind::none:
      return true;
    case Wait::Kind::cta_barrier:
      return warp.cta->barriers[wait.index].generation != wait.generation;
    case Wait::Kind::cluster_barrier:
      return warp.cta->cluster->generation != wait.generation;
    case Wait::Kind::mbarrier: {
      const Mbarrier* barrier = warp.cta->find_mbarrier(wait.index);
      return barrier == nullptr || barrier->phase != wait.generation;
    }
    case Wait::Kind::converge:
      return (group.mask & wait.mask & warp.alive) == (wait.mask & warp.alive);
    case Wait::Kind::warp_barrier:
      return warp.missing_at_barrier(wait.mask, 0) == 0;
    case Wait::Kind::bulk_groups:
    case Wait::Kind::copy_groups: {
      auto& lists = wait.kind == Wait::Kind::bulk_groups ? async.bulk : async.copy;
      for (Mask rest = group.mask; rest != 0; rest &= rest - 1)
        if (!lists[static_cast<std::size_t>(std::countr_zero(rest))].at_most(wait.generation, wait.index != 0))
          return false;
      return true;
    }
    case Wait::Kind::wgmma_groups:
      return async.wgmma.at_most(wait.generation, false);
    case Wait::Kind::tensor_space:
      return warp.cta->tensor_memory->has_room(static_cast<int>(wait.index));
    case Wait::Kind::tensor_pair: {
      const auto& peer = warp.cta->cluster->ctas[warp.cta->rank ^ 1]->tensor_memory;
      return peer && peer->pair_operations >= wait.generation;
    }
    case Wait::Kind::registers:
      return warp.cta->free_registers >= static_cast<std::int64_t>(wait.generation);
    case Wait::Kind::wgmma_issue:
    case Wait::Kind::dependency:
      return false;
  }
  return false;
}

void Scheduler::wake_groups(Warp& warp) {
  for (Group& group : warp.parked) {
    if (group.wait.kind == Wait::Kind::none || !is_over(warp, group)) continue;
    if (group.wait.kind == Wait::Kind::warp_barrier) {
      warp.release_barrier(group.wait.mask);  // all at once: each is over because of the others
      continue;
    }
    // Lanes that are together now have not yet done what they came for.
    group.wake = group.wait.kind == Wait::Kind::converge ? Wake::none : Wake::ready;
    group.wait = {};
  }
}

// Nothing can run: waits that may fail (try_wait) do, so that a kernel can act on it; twice without any progress is a
// deadlock.
bool Scheduler::time_out_waits() {
  idle_rounds_ = launch_.progress == last_progress_ ? idle_rounds_ + 1 : 0;
  last_progress_ = launch_.progress;
  if (idle_rounds_ >= 3) return false;
  bool any = false;
  for (Warp* warp : warps_) {
    for (Group& group : warp->parked) {
      if (group.wait.kind != Wait::Kind::mbarrier) continue;
      group.wait = {};
      group.wake = Wake::timeout;
      any = true;
    }
  }
  return any;
}

Scheduler::Result Scheduler::run_slice(Warp& warp, std::uint64_t slice) {
  if (warp.is_done()) return Result::blocked;
  wake_groups(warp);
  if (!warp.resume(false)) {
    for (Group& group : warp.parked) group.yielded = false;
    if (!warp.resume(false)) return Result::blocked;
  }
  if (launch_.splits_warps) split(warp);
  const std::uint64_t before = warp.executed;
  Observer* const observer = launch_.options.observer;
  const Result result = observer == nullptr ? execute<false>(warp, slice) : execute<true>(warp, slice);
  launch_.time += warp.executed - before;
  if (observer != nullptr) observer->slice(warp, launch_.time - (warp.executed - before), launch_.time);
  return result;
}

// Observed, the loop costs what its observers cost; otherwise it does not know of them.
template <bool kIsObserved>
Scheduler::Result Scheduler::execute(Warp& warp, std::uint64_t slice) {
  const Instruction* const code = warp.code;
  const std::uint64_t before = warp.executed;
  const std::uint64_t end = warp.executed + slice;
  while (warp.executed < end) {
    const Instruction& in = code[warp.pc];
    Mask active = warp.mask;
    if (in.guard != kNoGuard) {
      const Mask guard = warp.predicate(in.guard);
      active &= in.guard_negated ? ~guard : guard;
    }
    ++warp.executed;
    Step step = Step::next;
    if (active != 0) {
      if (warp.watches_registers && !warp.check_registers(in, active)) return Result::fault;
      if constexpr (kIsObserved)
        launch_.options.observer->before(warp, in, active, launch_.time + warp.executed - before);
      step = in.run(warp, in, active);
      if constexpr (kIsObserved)
        launch_.options.observer->after(warp, in, active, step, launch_.time + warp.executed - before);
    }
    switch (step) {
      case Step::next:
        ++warp.pc;
        break;
      case Step::jumped:
        break;
      case Step::yielded:
        ++warp.pc;
        warp.park_current({}, true);
        if (!warp.resume(false)) return warp.executed - before < kLook ? Result::slept : Result::ran;
        break;
      case Step::blocked:
        warp.park_current(warp.wait, false);
        if (!warp.resume(false)) return Result::ran;
        break;
      case Step::exited:
        if (warp.is_done()) return Result::done;
        if (!warp.resume(false)) return Result::ran;
        break;
      case Step::fault:
        return Result::fault;
    }
    if (warp.pc >= warp.merge_pc) warp.reconverge();
  }
  warp.park_current({}, !launch_.splits_warps || launch_.random.below(2) == 0);
  return Result::ran;
}

}  // namespace tessera::emulator

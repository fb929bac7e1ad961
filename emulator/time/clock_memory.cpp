// What a warp's accesses to memory take: wavefronts of shared memory, the way to the L2 and beyond.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "emulator/memory/access.h"
#include "emulator/time/clock.h"

namespace tessera::emulator {
namespace {

constexpr int kBanks = 32;
constexpr std::uint64_t kLineBytes = 128, kSectorBytes = 32;

// When a queue begins with what takes it for so long.
double take(double& queue, double time, double took) {
  const double start = std::max(time, queue);
  queue = start + took;
  return start;
}

// What lanes ask for goes beside the copies that the copy engine has under way: it waits for other lanes, and for this
// part of the copies, which end later.
double beside_copies(double& copies, double& lanes, double time, double took, double waits_for = 0) {
  const double wait = waits_for * std::max(0.0, copies - time);
  copies = std::max(copies, time) + took;
  return take(lanes, time + wait, took);
}

}  // namespace

// Wavefronts of the first executions, and of one in 64 later on: the pattern of an instruction seldom changes.
double Clock::wavefronts(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active) {
  const AccessClass& access = cost.access;
  if (access.address == nullptr) return std::max(1.0, access.bytes / 4.0);
  if (cost.looked_at >= 4 && cost.looked_at++ % 64 != 0) return cost.mean_wavefronts;
  const bool is_matrix = access.matrices > 0;
  const Mask used = is_matrix && access.matrices < 4 ? active & ((Mask{1} << (8 * access.matrices)) - 1) : active;
  // Half a warp at a time where a lane has 8 bytes, a quarter where it has 16, and a matrix; twice as many where all
  // lanes load the same as the one beside them, or the one after that (units.cu).
  int lanes_at_once = access.bytes <= 4 ? 32 : access.bytes == 8 ? 16 : 8;
  const auto are_pairs = [&](int apart) {
    for (int lane = 0; lane < kLanes; ++lane)
      if ((used >> lane & 1) != 0 && (used >> (lane ^ apart) & 1) != 0 &&
          lane_address(*warp.warp, *access.address, lane) != lane_address(*warp.warp, *access.address, lane ^ apart))
        return false;
    return true;
  };
  if (lanes_at_once < kLanes && access.reads && !is_matrix && (are_pairs(1) || are_pairs(2))) lanes_at_once *= 2;
  double sum = 0;
  std::array<std::uint64_t, kLanes * 4> words{};
  (void)in;
  for (int first = 0; first < kLanes; first += lanes_at_once) {
    std::size_t count = 0;
    std::array<std::uint8_t, kBanks> bank{};
    std::uint8_t most = 0;
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      if ((used >> lane & 1) == 0) continue;
      const std::uint64_t address = lane_address(*warp.warp, *access.address, lane) - cost.below;
      for (std::uint64_t at = address / 4; at <= (address + access.bytes - 1) / 4 && count < words.size(); ++at) {
        if (std::find(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count), at) !=
            words.begin() + static_cast<std::ptrdiff_t>(count))
          continue;
        words[count++] = at;
        most = std::max(most, ++bank[at % kBanks]);
      }
    }
    sum += most;
  }
  sum = std::max(sum, 1.0);
  cost.mean_wavefronts = cost.looked_at < 4 && cost.looked_at > 0 ? (cost.mean_wavefronts + sum) / 2 : sum;
  if (cost.looked_at < 4) ++cost.looked_at;
  return sum;
}

void Clock::join_loads(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active) {
  const auto bytes = cost.joined_bytes;
  bool is_even = true;
  for (int lane = 0; lane < kLanes; ++lane)
    if ((active >> lane & 1) != 0 && (lane_address(*warp.warp, *cost.access.address, lane) - cost.below) % bytes != 0)
      is_even = false;
  if (is_even)
    costs_.join(static_cast<std::size_t>(&in - code_));
  else
    cost.below = 0;
  cost.joined_bytes = 0;
}

bool Clock::is_folded(const WarpClock& warp, const Instruction& in, const InstructionCost& cost) const {
  if (cost.loop == kAlone) return false;
  const std::uint8_t turn = warp.turns[cost.loop];
  return cost.is_step ? turn + 1 != kUnrolled : turn != 0 && cost.goes_by_words && warp.words.contains(&in);
}

void Clock::follow_words(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active) {
  constexpr std::uint32_t kWord = 4, kAll = kWord * kUnrolled;
  if (cost.kind != CostKind::shared || !cost.access.reads || cost.access.matrices > 0 || in.guard != kNoGuard ||
      cost.access.address == nullptr || (cost.access.bytes != kWord && !cost.goes_by_words))
    return;
  warp.words.erase(&in);
  const std::uint64_t at = lane_address(*warp.warp, *cost.access.address, std::countr_zero(active));
  const bool is_first = warp.turns[cost.loop] == 0;
  if (!is_first && cost.seen_by == &warp && at == cost.seen_at + kWord) cost.goes_by_words = true;
  cost.seen_by = &warp, cost.seen_at = at;
  bool is_even = cost.goes_by_words && is_first;
  for (int lane = 0; lane < kLanes && is_even; ++lane)
    if ((active >> lane & 1) != 0) is_even = lane_address(*warp.warp, *cost.access.address, lane) % kAll == 0;
  const std::uint32_t bytes = is_even ? kAll : kWord;
  if (bytes != cost.access.bytes) cost.looked_at = 0;  // other wavefronts
  cost.access.bytes = bytes;
  if (is_even) warp.words.emplace(&in, 0);
}

void Clock::touch_memory(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active, double time,
                         double& ready, Cause& cause) {
  SmClock& sm = sms_[static_cast<std::size_t>(warp.sm)];
  const AccessClass& access = cost.access;
  const std::uint64_t first =
      access.address == nullptr ? 0 : lane_address(*warp.warp, *access.address, std::countr_zero(active));
  const bool is_shared = cost.kind == CostKind::shared || access.space == AccessClass::Space::shared ||
                         (access.space == AccessClass::Space::generic && first - kSharedWindow < kWindowBytes);
  if (is_shared && reach_other_cta(warp, in, access, active, first, time, ready, cause)) return;
  if (is_shared) {
    const double waves = wavefronts(warp, in, cost, active) * kBanks * 4 / gpu_.smem_bytes_per_clock;
    const double start = std::max(time, sm.shared);
    sm.shared = start + waves;
    sm.shared_busy += waves;
    ready = start + waves + gpu_.smem_latency - 1;
    cause = Cause::shared_memory;
    // The queue of the memory pipe is short: who finds shared memory far behind waits for it.
    if (gpu_.smem_queue > 0) {
      SmClock::SubCore& core = sm.sub_cores[static_cast<std::size_t>(warp.sub_core)];
      core.shared.push_back(start);
      if (core.shared.size() > static_cast<std::size_t>(gpu_.smem_queue)) core.shared.pop_front();
      double& pipe = core.pipe[static_cast<std::size_t>(Pipe::memory)];
      if (core.shared.size() == static_cast<std::size_t>(gpu_.smem_queue)) pipe = std::max(pipe, core.shared.front());
      if (cost.is_late_store) warp.block_end = std::max(warp.block_end, start);
      return;
    }
    double& waits = cost.is_late_store ? warp.block_end : warp.now;
    waits = std::max(waits, start - gpu_.smem_latency);
    return;
  }
  if (cost.kind == CostKind::local || access.space == AccessClass::Space::local) {
    ready = time + gpu_.smem_latency;
    return;
  }
  cause = Cause::memory;
  const double bytes = std::max(32.0, static_cast<double>(access.bytes) * std::popcount(active));
  TouchedLines lines;
  for (int lane = 0; lane < kLanes && access.address != nullptr; ++lane)
    if ((active >> lane & 1) != 0) lines.add(lane_address(*warp.warp, *access.address, lane), access.bytes);
  if (cost.kind == CostKind::atomic) {
    request(sm, time, first, bytes, false);
    ready = time + gpu_.atomic_latency;
    return;
  }
  if (access.writes) {
    write(sm, time, bytes);
    const double took_of_path = bytes / gpu_.l2_bytes_per_clock_sm;
    beside_copies(sm.path, sm.path_of_lanes, time, took_of_path);
    sm.path_busy += took_of_path;
    // A sector that is written in part takes the L2, which all share, longer than the L1.
    double took = 0;
    const double part = gpu_.l2_parts_per_clock > 0 ? surroundings_.active_sms / gpu_.l2_parts_per_clock : 0;
    for (std::size_t i = 0; i < lines.count; ++i) {
      const auto is_part = [](std::uint8_t written) { return written != 0 && written < kSectorBytes; };
      const auto& sectors = lines.all[i].bytes;
      const auto parts = static_cast<double>(std::count_if(sectors.begin(), sectors.end(), is_part));
      took += parts > 0 ? std::max(gpu_.l1_store_part, parts * part) : gpu_.l1_store_line;
    }
    const double start = std::max(time, sm.l1.busy_until);
    sm.l1.busy_until = start + took;
    sm.l1_busy += took;
    // What goes out of the multiprocessor has a way of its own.
    double out = start;
    if (gpu_.l2_stored_bytes_per_clock > 0)
      out = std::max(out, take(sm.stores, start, bytes * surroundings_.clock_part / gpu_.l2_stored_bytes_per_clock));
    warp.now = std::max(warp.now, out - gpu_.l1_latency);  // as with shared memory: a short queue
    return;
  }
  first_copies.try_emplace({warp.sm, allocation_of(first)}, first);
  if (gpu_.l1_wavefront_of_warp > 0) hold_pipe(warp, time, lines.wavefronts());
  ready = lines.count == 0 ? request(sm, time, first, bytes, false) : load_through_l1(sm, cost.uses_l1, lines, time);
  ready += first_access(sm);
  warp.now = std::max(warp.now, sm.l1.busy_until - gpu_.l1_latency);
}

double Clock::send_to_cluster(SmClock& sm, double time, double bytes) {
  const double took = bytes / gpu_.cluster_bytes_per_clock;
  sm.to_cluster = std::max(sm.to_cluster, time) + took;
  sm.to_cluster_busy += took;
  return sm.to_cluster + gpu_.cluster_store;
}

// Loads and stores of another CTA's shared memory go over the way between multiprocessors: its multiprocessor sends
// what is loaded, this one what is stored. The warp's first lane tells whose memory it is.
bool Clock::reach_other_cta(WarpClock& warp, const Instruction& in, const AccessClass& access, Mask active,
                            std::uint64_t first, double time, double& ready, Cause& cause) {
  const Cta& own = *warp.warp->cta;
  const auto rank = static_cast<std::uint32_t>(first) >> kRankShift;
  const auto& ctas = own.cluster->ctas;
  const bool names_cluster =
      access.space == AccessClass::Space::generic || in.opcode.find("shared::cluster") != std::string_view::npos;
  if (!names_cluster || access.address == nullptr || rank == own.rank || rank >= ctas.size()) return false;
  const auto bytes = static_cast<double>(access.bytes) * std::popcount(active);
  SmClock* sender = &sms_[static_cast<std::size_t>(warp.sm)];
  if (!access.writes)
    if (const auto found = sm_of_.find(ctas[rank].get()); found != sm_of_.end())
      sender = &sms_[static_cast<std::size_t>(found->second)];
  const double latency = access.writes ? gpu_.cluster_store : gpu_.cluster_load;
  const double over = send_to_cluster(*sender, time, bytes) - gpu_.cluster_store + latency;
  cause = Cause::other_cta;
  if (!access.writes) ready = over;
  // As with the own shared memory: a short queue.
  warp.now = std::max(warp.now, over - 2 * latency);
  return true;
}

void TouchedLines::add(std::uint64_t address, std::uint32_t bytes) {
  for (std::uint64_t at = address; at < address + bytes;) {
    const std::uint64_t end = std::min(address + bytes, (at / kSectorBytes + 1) * kSectorBytes);
    const std::uint64_t line = at / kLineBytes;
    std::size_t i = 0;
    while (i < count && all[i].line != line) ++i;
    if (i == all.size()) return;  // more than lanes of 16 bytes touch
    if (i == count) all[count++] = {line, {}};
    std::uint8_t& covered = all[i].bytes[at % kLineBytes / kSectorBytes];
    covered = static_cast<std::uint8_t>(std::min<std::uint64_t>(kSectorBytes, covered + (end - at)));
    for (std::uint64_t word = at / 4; word <= (end - 1) / 4; ++word) all[i].words |= std::uint32_t{1} << (word % 32);
    at = end;
  }
}

double TouchedLines::wavefronts() const {
  std::array<int, 32> of_bank{};
  for (std::size_t i = 0; i < count; ++i)
    for (std::uint32_t rest = all[i].words; rest != 0; rest &= rest - 1)
      ++of_bank[static_cast<std::size_t>(std::countr_zero(rest))];
  return std::max(1, *std::max_element(of_bank.begin(), of_bank.end()));
}

void Clock::hold_pipe(const WarpClock& warp, double time, double wavefronts, double least) {
  SmClock::SubCore& core = sms_[static_cast<std::size_t>(warp.sm)].sub_cores[static_cast<std::size_t>(warp.sub_core)];
  double& pipe = core.pipe[static_cast<std::size_t>(Pipe::memory)];
  pipe = std::max({pipe, time + least, pipe + gpu_.l1_wavefront_of_warp * (wavefronts - 1)});
}

double TouchedLines::sectors() const {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += static_cast<double>(std::count_if(all[i].bytes.begin(), all[i].bytes.end(), [](auto b) { return b != 0; }));
  return sum;
}

// TouchedLines of one set are looked up one after the other; sectors that are not there come from the L2, all of an
// access by one request, and stay where the load allows it.
double Clock::load_through_l1(SmClock& sm, bool uses_l1, const TouchedLines& lines, double time, bool is_copied) {
  std::vector<int> in_set(static_cast<std::size_t>(gpu_.l1_sets));
  for (std::size_t i = 0; i < lines.count; ++i) ++in_set[lines.all[i].line % in_set.size()];
  double lookups = *std::max_element(in_set.begin(), in_set.end());
  if (gpu_.l1_wavefront_of_warp > 0) lookups = std::max({lookups, lines.wavefronts(), is_copied ? gpu_.l1_copy : 0});
  const double start = std::max(time, sm.l1.busy_until);
  sm.l1.busy_until = start + lookups;
  sm.l1_busy += lookups;
  double ready = start + lookups - 1 + gpu_.l1_latency;
  double missing = 0;
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < lines.count; ++i) {
    const auto found = uses_l1 ? sm.l1.lines.find(lines.all[i].line) : sm.l1.lines.end();
    for (std::size_t sector = 0; sector < 4; ++sector) {
      if (lines.all[i].bytes[sector] == 0) continue;
      if (found != sm.l1.lines.end() && found->second.ready[sector] > 0) {
        ready = std::max(ready, found->second.ready[sector]);
      } else {
        if (missing++ == 0) first = lines.all[i].line * kLineBytes + sector * kSectorBytes;
      }
    }
  }
  if (missing == 0) return ready;
  ready = std::max(ready, request(sm, start, first, missing * kSectorBytes, false, is_copied));
  if (!uses_l1) return ready;
  for (std::size_t i = 0; i < lines.count; ++i) {
    const auto [at, is_new] = sm.l1.lines.try_emplace(lines.all[i].line);
    if (is_new) sm.l1.order.push_back(lines.all[i].line);
    for (std::size_t sector = 0; sector < 4; ++sector)
      if (lines.all[i].bytes[sector] != 0 && at->second.ready[sector] == 0) at->second.ready[sector] = ready;
  }
  while (static_cast<double>(sm.l1.order.size() * kLineBytes) > surroundings_.l1_bytes && !sm.l1.order.empty()) {
    sm.l1.lines.erase(sm.l1.order.front());
    sm.l1.order.pop_front();
  }
  return ready;
}

std::uint64_t Clock::allocation_of(std::uint64_t address) const {
  auto next = std::upper_bound(allocations_.begin(), allocations_.end(), std::pair(address, ~std::uint64_t{0}));
  return next == allocations_.begin() ? 0 : (next - 1)->first;
}

double Clock::miss_of(std::uint64_t address, double bytes) {
  const std::uint64_t allocation = allocation_of(address);
  read_bytes[allocation] += bytes;
  read_total += bytes;
  const auto found = surroundings_.miss_of.find(allocation);
  return found == surroundings_.miss_of.end() ? surroundings_.miss : found->second;
}

double Clock::first_access(SmClock& sm) const {
  if (!surroundings_.is_cold) return 0;
  if (sm.translated < 0) sm.translated = time_ + gpu_.first_access;
  return std::max(0.0, sm.translated - time_);
}

double Clock::with_tail(double latency, double tail) {
  constexpr double kGolden = 0.6180339887;
  const double u = std::fmod(static_cast<double>(++latencies_) * kGolden, 1.0);
  return latency - tail - tail * std::log(1 - u);
}

double Clock::l2_load() const {
  double most = 0;
  for (const SmClock& sm : sms_)
    if (sm.first >= 0) most = std::max(most, sm.path_busy / std::max(1.0, sm.last - sm.first));
  return most;
}

// A read by a multiprocessor: when its bytes are there. The way to the L2 and its parts of the shared rates are queues;
// a request that misses waits for the memory as well. Which of them miss is by turns, in the grid's proportion, the
// first one first; who else reads the same at the same time waits for the memory, too.
double Clock::request(SmClock& sm, double time, std::uint64_t address, double bytes, bool is_copy, bool by_lanes) {
  double miss = miss_of(address, bytes);
  const std::uint64_t allocation = allocation_of(address);
  double& read_before = sm.read_of[allocation];
  bool is_in_l2 = false;
  if (const auto cold = surroundings_.cold_of.find(allocation); cold != surroundings_.cold_of.end()) {
    is_in_l2 = read_before >= cold->second.bytes;
    miss = std::min(1.0, miss / cold->second.part);
  }
  read_before += bytes;
  const auto asked_for = sm.asked_for.find(address / kLineBytes);
  is_in_l2 = is_in_l2 || asked_for != sm.asked_for.end();
  const auto found = surroundings_.rate_of.find(allocation);
  double rate = gpu_.l2_bytes_per_clock / surroundings_.active_sms;
  if (found != surroundings_.rate_of.end()) {
    rate = found->second;
    if (is_multicast_ && gpu_.l2_of_multicast > 0)
      rate = std::min(rate, gpu_.l2_of_multicast * gpu_.sms / surroundings_.active_sms);
  }
  const double share =  // at the clock of an idle GPU
      std::min(is_copy || by_lanes ? gpu_.port_bytes_per_clock : gpu_.l2_bytes_per_clock_sm, rate);
  const double took = bytes * surroundings_.clock_part / share;
  // One multiprocessor's copies alone leave the L2 room for loads (lanes.cu).
  const double waits_for = rate < gpu_.tma_bytes_per_clock ? gpu_.l2_lanes_wait : 0;
  const double start =
      is_copy ? take(sm.path, time, took) : beside_copies(sm.path, sm.path_of_lanes, time, took, waits_for);
  sm.path_busy += took;
  double over = start + took + (is_copy ? gpu_.tma_latency_l2 : with_tail(gpu_.l2_latency, gpu_.l2_tail));
  if (asked_for != sm.asked_for.end()) over = std::max(over, asked_for->second);
  if (is_in_l2) return over;
  if (!std::exchange(sm.has_read, true)) sm.miss_left = 1 - miss;
  sm.miss_left += miss;
  if (surroundings_.on_their_way.contains(allocation))
    over = std::max(over, start + (is_copy ? gpu_.tma_latency_hbm : with_tail(gpu_.hbm_latency, gpu_.hbm_tail)));
  if (sm.miss_left < 1 - 1e-9) return over;
  sm.miss_left -= 1;
  return std::max(over, from_memory(sm, time, bytes, is_copy));
}

double Clock::from_memory(SmClock& sm, double time, double bytes, bool is_copy) {
  const double hbm = time_of_read(sm, time, bytes * surroundings_.hbm_factor);
  // It comes when its address is known, which who asked adds.
  const double known = first_access(sm);
  const double asked = time + known;
  const double hbm_start =
      (is_copy ? take(sm.hbm, asked, hbm) : beside_copies(sm.hbm, sm.hbm_of_lanes, asked, hbm)) - known;
  sm.hbm_busy += hbm;
  hbm_total += bytes;
  const double latency = is_copy ? gpu_.tma_latency_hbm : with_tail(gpu_.hbm_latency, gpu_.hbm_tail);
  // While others are under way it takes longer, by a part of what these take (flight.cu), more where the memory
  // writes, too.
  while (!sm.under_way.empty() && sm.under_way.front().first <= asked) {
    sm.under_way_takes -= sm.under_way.front().second;
    sm.under_way.pop_front();
  }
  sm.under_way_takes += hbm;
  const double behind_lanes =
      gpu_.hbm_behind + (gpu_.hbm_behind_mixed - gpu_.hbm_behind) * std::min(1.0, 2 * surroundings_.hbm_written);
  const double behind = (is_copy ? gpu_.tma_behind : behind_lanes) * sm.under_way_takes;
  // A copy's many lines come from all of the memory, not one after the other at the multiprocessor's part of its rate:
  // that bounds what many copies get, and then they still have the way through the L2 (cold.cu).
  const double last = is_copy ? gpu_.tma_latency_l2 : latency;
  const double over = std::max(hbm_start + hbm + last, time + latency + behind);
  sm.under_way.emplace_back(over + known, hbm);
  return over;
}

// The memory is busy with it, and loads of its lines then find them in the L2.
void Clock::ask_ahead(SmClock& sm, double time, std::uint64_t address, double bytes) {
  const auto found = surroundings_.miss_of.find(allocation_of(address));
  const double miss = found == surroundings_.miss_of.end() ? surroundings_.miss : found->second;
  const double over = from_memory(sm, time, bytes * miss, true);
  const auto end = address + static_cast<std::uint64_t>(bytes);
  for (std::uint64_t line = address / kLineBytes; line * kLineBytes < end; ++line) sm.asked_for.try_emplace(line, over);
}

void Clock::drain(SmClock& sm, double time) {
  const double idle = time - std::max(sm.hbm, sm.drained);
  // Written lines go when others come, by reads and by writes in equal parts: while nothing is read half as fast.
  constexpr double kByWrites = 0.5;
  sm.hbm_writes = std::max(0.0, sm.hbm_writes - kByWrites * std::max(0.0, idle));
  sm.drained = std::max(sm.drained, time);
}

double Clock::unwritten() const {
  double most = 0;
  for (const SmClock& sm : sms_)
    most = std::max(most, sm.hbm_writes - std::max(0.0, last_ - std::max(sm.hbm, sm.drained)));
  return most;
}

void Clock::write(SmClock& sm, double time, double bytes) {
  written_bytes += bytes;
  drain(sm, time);
  sm.hbm_writes += memory_cycles(bytes);
}

double Clock::time_of_read(SmClock& sm, double time, double bytes) const {
  const double own = memory_cycles(bytes);
  drain(sm, time);
  const double beside = std::min(own, sm.hbm_writes);
  sm.hbm_writes -= beside;
  return own + beside;
}

// What the L2 answers once goes to every CTA that the copy is for, and takes the port of its multiprocessor.
double Clock::deliver(const AsyncWork& work, SmClock& sm, double time) {
  is_multicast_ = is_multicast_ || work.num_to > 1;
  const double rate = is_multicast_ ? gpu_.multicast_bytes_per_clock : gpu_.port_bytes_per_clock;
  const double took = static_cast<double>(work.bytes) * surroundings_.clock_part / rate;
  double over = 0;
  const auto take = [&](SmClock& one) {
    one.port = std::max(one.port, time) + took;
    one.port_busy += took;
    over = std::max(over, one.port + gpu_.tma_latency_l2);
  };
  if (work.num_to == 0) take(sm);
  for (std::uint32_t i = 0; i < work.num_to; ++i)
    if (const auto found = sm_of_.find(work.to[i]); found != sm_of_.end())
      take(sms_[static_cast<std::size_t>(found->second)]);
  return over;
}

// The copy engine takes the rows of a tensor load one by one, a line of 128 bytes after the other.
double Clock::time_of_rows(const AsyncWork& work) const {
  const double split = gpu_.tma_split_row.points.empty() ? 0 : gpu_.tma_split_row.at(work.row_bytes);
  return work.row_lines * gpu_.tma_row + work.split_rows * split;
}

}  // namespace tessera::emulator

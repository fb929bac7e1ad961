// What a warp's accesses to memory take: wavefronts of shared memory, the way to the L2 and beyond.
#include <algorithm>
#include <bit>
#include <utility>

#include "emulator/memory/access.h"
#include "emulator/time/clock.h"

namespace tessera::emulator {
namespace {

constexpr int kBanks = 32;

}  // namespace

// Wavefronts of the first executions, and of one in 64 later on: the pattern of an instruction seldom changes.
double Clock::wavefronts(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active) {
  const AccessClass& access = cost.access;
  if (access.address == nullptr) return std::max(1.0, access.bytes / 4.0);
  if (cost.looked_at >= 4 && cost.looked_at++ % 64 != 0) return cost.mean_wavefronts;
  const bool is_matrix = access.matrices > 0;
  const Mask used = is_matrix && access.matrices < 4 ? active & ((Mask{1} << (8 * access.matrices)) - 1) : active;
  const int lanes_at_once = access.bytes <= 4 ? 32 : access.bytes == 8 ? 16 : 8;
  double sum = 0;
  std::array<std::uint64_t, kLanes * 4> words{};
  (void)in;
  for (int first = 0; first < kLanes; first += lanes_at_once) {
    std::size_t count = 0;
    std::array<std::uint8_t, kBanks> bank{};
    std::uint8_t most = 0;
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      if ((used >> lane & 1) == 0) continue;
      const std::uint64_t address = lane_address(*warp.warp, *access.address, lane);
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

void Clock::touch_memory(WarpClock& warp, const Instruction& in, InstructionCost& cost, Mask active, double time,
                         double& ready, Cause& cause) {
  SmClock& sm = sms_[static_cast<std::size_t>(warp.sm)];
  const AccessClass& access = cost.access;
  const std::uint64_t first =
      access.address == nullptr ? 0 : lane_address(*warp.warp, *access.address, std::countr_zero(active));
  const bool is_shared = cost.kind == CostKind::shared || access.space == AccessClass::Space::shared ||
                         (access.space == AccessClass::Space::generic && first - kSharedWindow < kWindowBytes);
  if (is_shared) {
    const double waves = wavefronts(warp, in, cost, active) * kBanks * 4 / gpu_.smem_bytes_per_clock;
    const double start = std::max(time, sm.shared);
    sm.shared = start + waves;
    sm.shared_busy += waves;
    ready = start + waves + gpu_.smem_latency - 1;
    cause = Cause::shared_memory;
    // The queue of the memory pipe is short: who finds shared memory far behind waits for it.
    warp.now = std::max(warp.now, start - gpu_.smem_latency);
    return;
  }
  if (cost.kind == CostKind::local || access.space == AccessClass::Space::local) {
    ready = time + gpu_.smem_latency;
    return;
  }
  cause = Cause::memory;
  const double bytes = std::max(32.0, static_cast<double>(access.bytes) * std::popcount(active));
  if (cost.kind == CostKind::atomic) {
    request(sm, time, first, bytes, false);
    ready = time + gpu_.atomic_latency;
    return;
  }
  if (access.writes) {
    written_bytes += bytes;
    sm.path = std::max(sm.path, time) + bytes / gpu_.l2_bytes_per_clock_sm;
    sm.path_busy += bytes / gpu_.l2_bytes_per_clock_sm;
    return;
  }
  ready = request(sm, time, first, bytes, false);
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

// A read by a multiprocessor: when its bytes are there. The way to the L2 and its parts of the shared rates are queues;
// a request that misses waits for the memory as well. Which of them miss is by turns, in the grid's proportion, the
// first one first.
double Clock::request(SmClock& sm, double time, std::uint64_t address, double bytes, bool is_copy) {
  const double miss = miss_of(address, bytes);
  const auto rate = surroundings_.rate_of.find(allocation_of(address));
  const double share =
      std::min(gpu_.l2_bytes_per_clock_sm,
               rate != surroundings_.rate_of.end() ? rate->second : gpu_.l2_bytes_per_clock / surroundings_.active_sms);
  const double start = std::max(time, sm.path);
  const double took = bytes / share;
  sm.path = start + took;
  sm.path_busy += took;
  if (!std::exchange(sm.has_read, true)) sm.miss_left = 1 - miss;
  sm.miss_left += miss;
  double over = start + took + (is_copy ? gpu_.tma_latency_l2 : gpu_.l2_latency);
  if (sm.miss_left >= 1 - 1e-9) {
    sm.miss_left -= 1;
    const double hbm =
        bytes * surroundings_.hbm_factor * gpu_.clock_mhz * surroundings_.active_sms / gpu_.hbm_bytes_per_us;
    const double hbm_start = std::max(time, sm.hbm);
    sm.hbm = hbm_start + hbm;
    sm.hbm_busy += hbm;
    hbm_total += bytes;
    over = std::max(over, hbm_start + hbm + (is_copy ? gpu_.tma_latency_hbm : gpu_.hbm_latency));
  }
  return over;
}

}  // namespace tessera::emulator

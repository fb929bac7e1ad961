#include "emulator/observers/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulator/instructions/exec_wmma.h"
#include "emulator/memory/access.h"

namespace tessera::emulator {
namespace {

constexpr int kBanks = 32;

/// The most different words that one bank is asked for.
std::uint64_t wavefronts_of(const std::vector<std::uint64_t>& words) {
  std::uint64_t most = 0;
  std::array<std::uint64_t, kBanks> count{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::find(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i), words[i]) !=
        words.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    most = std::max(most, ++count[words[i] % kBanks]);
  }
  return most;
}

std::string barrier_name(const Warp& warp, const Wait& wait) {
  switch (wait.kind) {
    case Wait::Kind::mbarrier:
      return fmt::format("mbarrier 0x{:x}", warp.cta->shared_address(wait.index) & ((1u << kRankShift) - 1));
    case Wait::Kind::cta_barrier:
      return fmt::format("bar.sync {}", wait.index);
    case Wait::Kind::cluster_barrier:
      return "barrier.cluster";
    case Wait::Kind::bulk_groups:
      return "cp.async.bulk.wait_group";
    case Wait::Kind::copy_groups:
      return "cp.async.wait_group";
    case Wait::Kind::wgmma_groups:
      return "wgmma.wait_group";
    case Wait::Kind::wgmma_issue:
      return "the warpgroup's other warps";
    case Wait::Kind::converge:
      return "the warp's other lanes";
    case Wait::Kind::tensor_space:
      return "tcgen05.alloc";
    case Wait::Kind::tensor_pair:
      return "the peer CTA";
    default:
      return "other";
  }
}

// wmma: a group of lanes after the other, each with wavefronts or sectors of its own.
void count_wmma(const Warp& warp, const Instruction& in, AccessCounts& counts) {
  std::vector<std::uint64_t> words, sectors;
  for (const std::vector<WmmaPiece>& group : wmma_accesses(warp, in)) {
    words.clear();
    sectors.clear();
    for (const WmmaPiece& piece : group) {
      const bool is_shared = decode_wmma(in).space == static_cast<std::uint32_t>(Space::shared_cta) ||
                             (decode_wmma(in).space == static_cast<std::uint32_t>(Space::generic) &&
                              piece.address - kSharedWindow < kWindowBytes);
      std::vector<std::uint64_t>& units = is_shared ? words : sectors;
      const std::uint64_t size = is_shared ? 4 : 32;
      for (std::uint64_t at = piece.address / size; at <= (piece.address + piece.bytes - 1) / size; ++at)
        units.push_back(at);
    }
    if (!words.empty()) {
      const std::uint64_t wavefronts = wavefronts_of(words);
      counts.wavefronts += wavefronts;
      counts.conflicts += wavefronts - 1;
    }
    std::sort(sectors.begin(), sectors.end());
    counts.sectors += static_cast<std::uint64_t>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
  }
}

/// One wait at a time of a warp's lanes at an instruction.
std::uint64_t wait_key(const Warp& warp, const Instruction& in) {
  return reinterpret_cast<std::uintptr_t>(&warp) ^ (reinterpret_cast<std::uintptr_t>(&in) << 20);
}

}  // namespace

void StatisticsObserver::started(const Launch& launch) {
  code_ = launch.entry.code.data();
  counters_.assign(launch.entry.code.size(), {});
  open_.clear();
}

void StatisticsObserver::count_access(const Warp& warp, const Instruction& in, Counter& counter, Mask active) {
  const AccessClass& access = counter.access;
  AccessCounts& counts = counter.counts;
  ++counts.instructions;
  const bool is_matrix = access.matrices > 0;
  const Mask used = is_matrix && access.matrices < 4 ? active & ((Mask{1} << (8 * access.matrices)) - 1) : active;
  const std::uint64_t bytes = static_cast<std::uint64_t>(std::popcount(used)) * access.bytes;
  if (access.reads) counts.read_bytes += bytes;
  if (access.writes) counts.write_bytes += bytes;
  if (access.is_wmma) return count_wmma(warp, in, counts);
  if (access.address == nullptr || access.space == AccessClass::Space::local ||
      access.space == AccessClass::Space::param)
    return;
  const int lanes_at_once = access.bytes <= 4 ? 32 : access.bytes == 8 ? 16 : 8;
  std::vector<std::uint64_t> words, sectors;
  for (int first = 0; first < kLanes; first += lanes_at_once) {
    words.clear();
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      if ((used >> lane & 1) == 0) continue;
      const std::uint64_t address = lane_address(warp, *access.address, lane);
      const bool is_shared = access.space == AccessClass::Space::shared ||
                             (access.space == AccessClass::Space::generic && address - kSharedWindow < kWindowBytes);
      for (std::uint64_t at = address / 4; is_shared && at <= (address + access.bytes - 1) / 4; ++at)
        words.push_back(at);
      for (std::uint64_t at = address / 32; !is_shared && at <= (address + access.bytes - 1) / 32; ++at)
        sectors.push_back(at);
    }
    if (words.empty()) continue;
    const std::uint64_t wavefronts = wavefronts_of(words);
    counts.wavefronts += wavefronts;
    counts.conflicts += wavefronts - 1;
  }
  std::sort(sectors.begin(), sectors.end());
  counts.sectors += static_cast<std::uint64_t>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

// Addresses are looked at before: a load may overwrite its own.
void StatisticsObserver::before(Warp& warp, const Instruction& in, Mask active, std::uint64_t) {
  Counter& counter = counters_[static_cast<std::size_t>(&in - code_)];
  if (!counter.is_classified) {
    counter.access = classify_access(in);
    counter.is_classified = true;
    counter.is_tensor_mma = in.opcode.starts_with("tcgen05.mma");
  }
  if (counter.access.name.empty()) return;
  uncounted_ = counter.counts;
  count_access(warp, in, counter, active);
}

void StatisticsObserver::after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t time) {
  const std::uint64_t key = wait_key(warp, in);
  Counter& counter = counters_[static_cast<std::size_t>(&in - code_)];
  const bool comes_again = step == Step::blocked || (step == Step::jumped && !counter.access.name.empty());
  if (comes_again && !counter.access.name.empty()) counter.counts = uncounted_;
  if (step == Step::blocked) {
    open_.try_emplace(key, OpenWait{barrier_name(warp, warp.wait), time});
    return;
  }
  if (!open_.empty()) {
    if (const auto open = open_.find(key); open != open_.end()) {
      WaitCounts& counts = waits[open->second.barrier];
      const std::uint64_t waited = time - open->second.since;
      ++counts.waits;
      counts.total += waited;
      counts.longest = std::max(counts.longest, waited);
      open_.erase(open);
    }
  }
  if (comes_again) return;
  if (counter.is_tensor_mma) counter.multiply_adds += tensor_multiply_adds(warp, in, std::countr_zero(active));
  ++counter.executions;
  counter.lanes += static_cast<std::uint64_t>(std::popcount(active));
}

void StatisticsObserver::finished(const Launch& launch) {
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    const Counter& counter = counters_[i];
    if (counter.executions == 0) continue;
    const Instruction& in = code_[i];
    warp_instructions += counter.executions;
    thread_instructions += counter.lanes;
    instructions[opcode_group(in)] += counter.executions;
    if (!counter.access.name.empty()) {
      AccessCounts& sum = accesses[counter.access.name];
      sum.instructions += counter.counts.instructions;
      sum.read_bytes += counter.counts.read_bytes;
      sum.write_bytes += counter.counts.write_bytes;
      sum.wavefronts += counter.counts.wavefronts;
      sum.conflicts += counter.counts.conflicts;
      sum.sectors += counter.counts.sectors;
    }
    const std::uint64_t work = multiply_adds(in);
    if (work != 0 || counter.is_tensor_mma) {
      MatrixCounts& sum = matrix[std::string(in.opcode)];
      sum.instructions += counter.executions;
      sum.multiply_adds += counter.executions * work + counter.multiply_adds;
    }
  }
  async_bytes.add(launch.statistics.async_bytes);
  async_operations += launch.statistics.async_operations;
}

}  // namespace tessera::emulator

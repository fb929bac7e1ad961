#include "generator/attention/fmha_nvfp4_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "generator/attention/fmha_walk.h"

namespace tessera::fmha_nvfp4 {

namespace {

// Of a score, instructions of a lane: 12.7 of head_dim 64 and 13.9 of 128, a warp's of 2,048 keys more by 128 rows in
// the emulator, and 5.8 more with a cap. The assembler may need fewer.
constexpr double kIssuePerScore = 11.5, kIssuePerColumn = 1.2 / 64, kIssuePerCap = 5.8;
constexpr double kWaitCycles = 150;   // of a step: barriers
constexpr double kOpenCycles = 2000;  // of a tile: its Q, first slot, statistics
constexpr double kStoredPerCycle = 32, kStartCycles = 5000, kMergeKernelCycles = 4500;
constexpr double kMergeOfPart = 240;  // a warp goes through its row's parts
// Of products, exponentials and other instructions in turn, what the warps of a scheduler take for theirs: one warp,
// two of a CTA, which get their keys together, or two of two CTAs. Cycles of a CTA's step as predicted for an RTX 5090,
// head_dim 128: 128x128 3,900, 128x64 1,826, 64x128 2,610, 64x64 1,424, of two CTAs 1,580.
constexpr double kOfOneCta = 0.73, kOfTwoCtas = 0.59;
constexpr double kUncovered = 0.1;  // of what the greater of computing and memory does not cover
constexpr Hint kUsualLength = 4096, kUsualHeads = 32;

double size_of(Hint hint, Hint usual) { return static_cast<double>(hint < 0 ? usual : std::max<Hint>(hint, 1)); }

}  // namespace

FmhaNvfp4Cost fmha_nvfp4_cost(const fmha_nvfp4::Config& c, const Fmha& p, const MmaDevice& device) {
  const double batch = size_of(p.batch, 1), queries = size_of(p.seqlen_q, kUsualLength);
  const double keys = size_of(p.seqlen_k, kUsualLength), heads_q = size_of(p.heads_q, kUsualHeads) * batch;
  const double heads_kv = p.heads_kv < 0 ? heads_q : size_of(p.heads_kv, 1) * batch;
  const double rows = std::min<double>(queries, c.tile_m);
  double seen = keys;
  if (c.facts.mask == Mask::causal) seen = std::clamp(keys - (queries - rows) / 2, 1.0, keys);
  if (c.facts.window == Window::sliding) {
    const auto side = [&](Hint size) { return size < 0 ? keys : static_cast<double>(size); };
    seen = std::min(seen,
                    rows + side(p.window_size_left) + (c.facts.mask == Mask::causal ? 0 : side(p.window_size_right)));
  }
  const double tiles = std::ceil(queries / c.tile_m) * heads_q, ctas = fmha_nvfp4::ctas_per_sm(c);
  const double places = device.device.sms * ctas;
  double parts = 1;
  if (fmha_nvfp4::is_split(c))
    parts = std::max(1.0, std::min(std::floor(places / tiles), std::ceil(seen / (2 * c.tile_n))));

  const double scores = 1.0 * c.tile_m * c.tile_n, slot = fmha_nvfp4::slot_bytes(c);
  const double warps = fmha_nvfp4::consumer_warps(c);
  const double tensor = scores * 2 * c.facts.head_dim / (device.products * device.four_bit);
  const double exponentials = scores * (c.facts.softcap == Softcap::none ? 1 : 3) / kMmaExponentialsPerCycle;
  const double smem = slot * (warps + 1) / kMmaSmemBytesPerCycle;
  const double issue =
      scores *
      (kIssuePerScore + kIssuePerColumn * c.facts.head_dim + (c.facts.softcap == Softcap::none ? 0 : kIssuePerCap)) /
      kMmaIssuePerCycle;
  const double l2 = slot / device.l2_bytes;
  const double in_turn = tensor + exponentials + issue;
  const auto step_cycles = [&](double there) {
    const double together = there == 2 ? 2 * kOfTwoCtas : warps == 8 ? kOfOneCta : 1;
    return kWaitCycles + std::max({there * tensor, there * exponentials, there * smem, there * issue, there * l2,
                                   together * in_turn});
  };
  const double steps = std::ceil(seen / parts / c.tile_n);
  const double once =
      kOpenCycles + 1.0 * c.tile_m * c.facts.head_dim * (fmha_nvfp4::stores_sums(c) ? 4 : 2) / kStoredPerCycle;
  // CTAs take tiles in turn, of a causal mask those with most keys first: the first multiprocessor ends last.
  const double grid = std::min(tiles * parts, places);
  const bool is_uneven = tessera::is_uneven(c.facts) && parts == 1;
  std::vector<FmhaWalk> walks;
  for (double cta = 0; cta < std::min(ctas * device.device.sms, grid); cta += device.device.sms) {
    FmhaWalk walk;
    walk.tiles = std::ceil((tiles * parts - cta) / grid);
    const double last = cta + (walk.tiles - 1) * grid;
    const auto steps_of = [&](double tile) {
      return std::ceil(std::clamp(keys - std::floor(tile / heads_q) * rows, 1.0, keys) / c.tile_n);
    };
    walk.steps = walk.tiles * (is_uneven ? (steps_of(cta) + steps_of(last)) / 2 : steps);
    walks.push_back(walk);
  }
  const double computed = cycles_of_walks(std::move(walks), once, step_cycles);
  // Values, scales, delta_s; o; parts, written and read.
  const double of_row = c.facts.head_dim * 9.0 / 16;
  double bytes = heads_q * queries * (of_row + 2.0 * c.facts.head_dim) + heads_kv * keys * 2 * of_row +
                 heads_q * std::ceil(queries / nvfp4::kBlockRows) * keys * 4;
  if (fmha_nvfp4::is_split(c)) bytes += 8 * parts * heads_q * queries * (c.facts.head_dim + 2);
  const double memory = bytes / device.memory_bytes;

  FmhaNvfp4Cost cost;
  const double cycles = kStartCycles +
                        (fmha_nvfp4::is_split(c) ? std::max(kMergeKernelCycles, kMergeOfPart * parts) : 0) +
                        std::max(computed, memory) + kUncovered * std::min(computed, memory);
  cost.us = cycles / device.device.clock_ghz / 1000;
  const double all = tiles * parts * steps;
  cost.work = {all * tensor, all * exponentials, all * smem, all * issue, all * l2, bytes};
  return cost;
}

}  // namespace tessera::fmha_nvfp4

#include "generator/attention/fmha_nvfp4_cost.h"

#include <algorithm>
#include <cmath>

namespace tessera::fmha_nvfp4 {

namespace {

// Of a score, instructions of a lane: 12.7 of head_dim 64 and 13.9 of 128, a warp's of 2,048 keys more by 128 rows in
// the emulator, and 5.8 more with a cap. The assembler may need fewer.
constexpr double kIssuePerScore = 11.5, kIssuePerColumn = 1.2 / 64, kIssuePerCap = 5.8;
constexpr double kWaitCycles = 150;   // of a step: barriers
constexpr double kOpenCycles = 2000;  // of a tile: its Q, first slot, statistics
constexpr double kStoredPerCycle = 32, kStartCycles = 5000, kMergeKernelCycles = 4500;
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
  // A scheduler has one or two warps: what products and the rest do not overlap.
  const double alone = (tensor + exponentials + issue) / (warps / 4);
  const double step =
      kWaitCycles + std::max({ctas * tensor, ctas * exponentials, ctas * smem, ctas * issue, ctas * l2, alone});
  const double steps = std::ceil(seen / parts / c.tile_n);
  const double tile = steps * step + kOpenCycles +
                      1.0 * c.tile_m * c.facts.head_dim * (fmha_nvfp4::stores_sums(c) ? 4 : 2) / kStoredPerCycle;
  const double computed = std::ceil(tiles * parts / places) * tile;
  // Values, scales, delta_s; o; parts, written and read.
  const double of_row = c.facts.head_dim * 9.0 / 16;
  double bytes = heads_q * queries * (of_row + 2.0 * c.facts.head_dim) + heads_kv * keys * 2 * of_row +
                 heads_q * std::ceil(queries / nvfp4::kBlockRows) * keys * 4;
  if (fmha_nvfp4::is_split(c)) bytes += 8 * parts * heads_q * queries * (c.facts.head_dim + 2);
  const double memory = bytes / device.memory_bytes;

  FmhaNvfp4Cost cost;
  const double cycles = kStartCycles + (fmha_nvfp4::is_split(c) ? kMergeKernelCycles : 0) + std::max(computed, memory) +
                        kUncovered * std::min(computed, memory);
  cost.us = cycles / device.device.clock_ghz / 1000;
  const double all = tiles * parts * steps;
  cost.work = {all * tensor, all * exponentials, all * smem, all * issue, all * l2, bytes};
  return cost;
}

}  // namespace tessera::fmha_nvfp4

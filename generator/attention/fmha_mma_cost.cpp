#include "generator/attention/fmha_mma_cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "generator/attention/fmha_cost.h"
#include "generator/attention/fmha_walk.h"
#include "tessera/targets.h"

namespace tessera {

namespace {

constexpr double kIssuePerScore = 5;      // mask, maximum, exponent, sum, conversion
constexpr double kIssuePerWidened = 1.5;  // of an 8-bit key or value, for each warp that takes it
constexpr double kSlotLatency = 1500;     // from a slot's release to its next contents
constexpr double kWaitCycles = 150;       // of a step: barriers
constexpr double kOpenCycles = 2000;      // of a tile: its Q, first block, statistics
constexpr double kJoinCycles = 1500;      // of a tile whose warps join their rows
constexpr double kStoredPerCycle = 32;
constexpr double kStartCycles = 5000;
constexpr double kMergeKernelCycles = 4500, kMergeOfPart = 240;  // a warp goes through its row's parts, as predicted
constexpr double kUncovered = 0.1;    // of what the greater of computing and memory does not cover
constexpr double kNarrowSpan = 0.05;  // for each halving of the swizzle span: more boxes, bank conflicts
constexpr Hint kUsualLength = 4096;
constexpr Hint kUsualHeads = 32;
constexpr Hint kUsualListed = 2048, kUsualWindow = 128;  // of a query's list, and beside it

double size_of(Hint hint, Hint usual) { return static_cast<double>(hint < 0 ? usual : std::max<Hint>(hint, 1)); }

/// Of one multiprocessor and cycle.
double products_of(const fmha::Config& c, const MmaDevice& device) {
  return device.products * (is_8_bit(c.facts) ? device.fp8 : 1);
}

struct Step {
  double tensor, exponentials, issue, smem, l2;
};

Step step_of(const fmha::Config& c, const MmaDevice& device) {
  const double scores = 1.0 * c.tile_m * c.tile_n, columns = fmha::qk_columns(c) + fmha::v_columns(c);
  const double warps = 4 * fmha::consumer_warpgroups(c), readers = fmha::shares_blocks(c) ? 1 : warps;
  const double keys = c.tile_n * bytes_of_keys(c.facts, columns);
  const double queries = fmha::holds_queries(c) ? 0 : 2.0 * c.tile_m * fmha::qk_columns(c);
  const double widened = widens_keys(c.facts) ? readers * c.tile_n * columns : 0;
  return {.tensor = scores * columns / products_of(c, device),
          .exponentials = scores / kMmaExponentialsPerCycle,
          .issue = (scores * kIssuePerScore + widened * kIssuePerWidened) / kMmaIssuePerCycle,
          .smem = (keys * (readers + 1) + queries) / kMmaSmemBytesPerCycle,
          .l2 = keys / device.l2_bytes};
}

/// One step of each of a multiprocessor's CTAs.
double step_cycles_of(const fmha::Config& c, const Step& s, double ctas) {
  const double warps = fmha::consumer_warpgroups(c);
  const double alone = kWaitCycles + (s.tensor + s.exponentials + s.issue) / warps;
  double loads = kSlotLatency / c.stages;
  // K's only slot is free once all have multiplied it, V's likewise.
  if (c.stages == 1) loads += s.tensor / 2;
  return kWaitCycles +
         std::max({ctas * s.tensor, ctas * s.exponentials, ctas * s.issue, ctas * s.smem, ctas * s.l2, alone, loads});
}

/// Keys that a tile walks over, in the mean.
double keys_of_tile(const fmha::Config& c, const Fmha& p, double queries, double keys) {
  if (fmha::has_pools(c)) return keys;
  const double rows = std::min(queries, std::ceil(1.0 * c.tile_m / c.pack_gqa));
  double seen = keys;
  if (c.facts.mask == Mask::causal) seen = std::clamp(keys - (queries - rows) / 2, 1.0, keys);
  if (c.facts.window != Window::sliding) return seen;
  const auto side = [&](Hint size) { return size < 0 ? keys : static_cast<double>(size); };
  const double right = c.facts.mask == Mask::causal ? 0 : side(p.window_size_right);
  return std::min(seen, rows + side(p.window_size_left) + right);
}

struct Tiles {
  double heads = 0, of_head = 0, queries = 0;  // queries: of a tile
  double keys = 0, seen = 0;                   // seen: by a tile, in the mean
  double parts = 1;
  double count() const { return of_head * heads * parts; }
};

/// Of CTA `cta` of `grid`, as templates/fmha/schedule.cuh deals tiles out: in turn; those of a causal mask from the
/// longest to the shortest, every second round backwards, or in pairs of a long and a short one that are all alike.
FmhaWalk walk_of(const fmha::Config& c, const Tiles& t, double cta, double grid) {
  const auto rounds_of = [&](double items) { return std::ceil(std::max(items - cta, 0.0) / grid); };
  const double steps = std::ceil(t.seen / t.parts / c.tile_n);
  const bool grows = tessera::is_uneven(c.facts) && t.of_head > 1 && t.parts == 1;
  if (!grows) return {rounds_of(t.count()) * steps, rounds_of(t.count())};
  const auto steps_of = [&](double tile) {
    const double behind = std::floor(tile / t.heads) * t.queries;  // queries behind its last one
    return std::ceil(std::clamp(t.keys - behind, 1.0, t.keys) / c.tile_n);
  };
  const double pairs = std::ceil(t.of_head / 2) * t.heads;
  if (std::ceil(pairs / grid) * grid - pairs <= pairs / 10)
    return {rounds_of(pairs) * (steps_of(0) + steps_of(t.count() - 1)), 2 * rounds_of(pairs)};
  return walk_of_uneven(t.count(), cta, grid, steps_of);
}

/// Of the multiprocessor that ends last.
double computed_cycles_of(const fmha::Config& c, const Tiles& t, const Step& step, double once, double sms) {
  const double ctas = fmha::ctas_per_sm(c), grid = std::min(t.count(), sms * ctas);
  double most = 0;
  for (double sm = 0; sm < std::min(sms, grid); ++sm) {
    std::vector<FmhaWalk> walks;
    for (double cta = sm; cta < grid; cta += sms) walks.push_back(walk_of(c, t, cta, grid));
    most = std::max(
        most, cycles_of_walks(std::move(walks), once, [&](double there) { return step_cycles_of(c, step, there); }));
  }
  return most;
}

}  // namespace

FmhaMmaCost fmha_mma_cost(const fmha::Config& c, const Fmha& p, const MmaDevice& device) {
  const double batch = size_of(p.batch, 1), queries = size_of(p.seqlen_q, kUsualLength);
  const bool has_pools = fmha::has_pools(c);
  const double listed = size_of(p.topk, kUsualListed), window = size_of(p.seqlen_swa, kUsualWindow);
  const double places_of_keys = size_of(p.seqlen_k, kUsualLength);
  const double keys = has_pools ? listed + window : places_of_keys, heads_q = size_of(p.heads_q, kUsualHeads) * batch;
  const double heads_kv = p.heads_kv < 0 ? heads_q / c.pack_gqa : size_of(p.heads_kv, 1) * batch;
  const double heads = fmha::is_packed(c) ? heads_kv : heads_q, rows = queries * fmha::padded_heads(c);
  const double tiles = std::ceil(rows / c.tile_m) * heads, places = device.device.sms * fmha::ctas_per_sm(c);
  const double seen = keys_of_tile(c, p, queries, keys);
  double parts = 1;
  if (fmha::is_split(c)) parts = std::max(1.0, std::min(std::floor(places / tiles), std::ceil(seen / (2 * c.tile_n))));

  const Step step = step_of(c, device);
  const double stored = 1.0 * c.tile_m * fmha::v_columns(c) * o_element_bytes(c.facts) / kStoredPerCycle;
  const double once = kOpenCycles + stored + (fmha::shares_blocks(c) ? kJoinCycles : 0);
  double narrow = 1;
  for (int span = swizzle_span_bytes(c.swizzle); span < swizzle_span_bytes(fmha::widest_swizzle(c)); span *= 2)
    narrow += kNarrowSpan;
  double computed = 0;
  if (has_fmha_cost(p) && !fmha::is_dealt(c)) {
    const Tiles all{heads, std::ceil(rows / c.tile_m), std::ceil(1.0 * c.tile_m / c.pack_gqa), keys, seen, parts};
    computed = computed_cycles_of(c, all, step, once, device.device.sms);
  } else {
    // How the last round ends is not known.
    const double rounds = has_fmha_cost(p) ? std::ceil(tiles * parts / places) : std::max(1.0, tiles * parts / places);
    computed = rounds * (std::ceil(seen / parts / c.tile_n) * step_cycles_of(c, step, fmha::ctas_per_sm(c)) + once);
  }
  computed *= narrow;
  const double columns = c.facts.head_dim + c.facts.head_dim_v;
  // Of a pool as many rows as there are, or as all lists have places.
  const double read = has_pools ? std::min(places_of_keys, batch * queries * listed) + batch * window : heads_kv * keys;
  double bytes = columns * heads_q * queries * dtype_bytes(c.facts.dtype) + read * bytes_of_keys(c.facts, columns);
  if (fmha::is_split(c)) bytes += 8 * parts * heads_q * queries * (c.facts.head_dim_v + 2);
  const double memory = bytes / device.memory_bytes;

  FmhaMmaCost cost;
  const double steps = tiles * parts * std::ceil(seen / parts / c.tile_n);
  cost.work = {steps * step.tensor, steps * step.exponentials, steps * step.smem,
               steps * step.issue,  steps * step.l2,           bytes};
  cost.cycles = kStartCycles + (fmha::is_split(c) ? std::max(kMergeKernelCycles, kMergeOfPart * parts) : 0) +
                std::max(computed, memory) + kUncovered * std::min(computed, memory);
  cost.us = cost.cycles / device.device.clock_ghz / 1000;
  cost.tensor_share = heads_q * queries * seen * columns / (products_of(c, device) * device.device.sms) / cost.cycles;
  return cost;
}

}  // namespace tessera

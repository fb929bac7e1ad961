#include "generator/fmha_cost.h"

#include <algorithm>
#include <cmath>

#include "generator/model_device.h"

namespace tessera {

namespace {

using fmha::Config;

constexpr double kSms = kHopper.sms;
constexpr double kLaunchCycles = 9309;         // from one event to the other beside the work
constexpr double kTileCycles = 2883;           // of a tile: its statistics, its turn
constexpr double kRowCycles = 2.565;           // of a tile: for 128 columns of Q and O of a row
constexpr double kFirstBlockCycles = 13.29;    // for 128 columns of K and V of a key: until the first block is there
constexpr double kExponentialCycles = 5.348;   // of a warpgroup's 64 scores: exponential, sum, conversion
constexpr double kSoftmaxCycles = 72.9;        // of a block, beside these
constexpr double kChainShare = 0.974;          // of the shorter of product and softmax: what a warpgroup cannot overlap
constexpr double kChainCycles = 336.7;         // of a block: barriers, waits
constexpr double kL2BytesPerCycle = 50.45;     // of one SM
constexpr double kOneStageShare = 0.12;        // of the loads of a block, with one slot
constexpr double kPairScoreCycles = 473.7;     // of a warpgroup's 64 x 64 block that a pair of CTAs exchanges
constexpr double kPairChainCycles = 899.3;     // of the same, until it is there
constexpr double kPairAloneCycles = 182.5;     // where no other warpgroup works meanwhile
constexpr double kCausalImbalance = 0.213;     // of the longest tile: what dealing leaves uneven
constexpr double kMemoryBytesPerCycle = 2394;  // all SMs
constexpr double kSharpness = 5.456;           // of the maximum of times that overlap in part
constexpr double kNarrowShare = 0.05;          // for each halving of the swizzle span: bank conflicts
constexpr int kMostTilesCounted = 256;         // of a head, one by one

double smooth_max(std::initializer_list<double> values) {
  double sum = 0;
  for (const double value : values) sum += std::pow(value, kSharpness);
  return std::pow(sum, 1 / kSharpness);
}

double blocks_of(double keys, int tile_n) { return std::max(1.0, std::ceil(keys / tile_n)); }

/// A step of the CTAs that share an SM: one block of keys for each of them.
double step_cycles(const Config& c, double ctas) {
  const double warpgroups = fmha::consumer_warpgroups(c);
  const double columns = fmha::qk_columns(c) + fmha::v_columns(c);
  const double part = c.cta_pair ? c.tile_n / 64.0 : 0;
  const double products = c.tile_n * columns / 32;
  const double softmax = c.tile_n * kExponentialCycles + kSoftmaxCycles + part * kPairScoreCycles;
  const double loads = ctas * c.tile_n * columns * dtype_bytes(c.dtype) / kL2BytesPerCycle;
  double chain = std::max(products, softmax) + kChainShare * std::min(products, softmax) + kChainCycles;
  if (c.cta_pair) chain += part * kPairChainCycles + (warpgroups < 2 ? kPairAloneCycles : 0);
  const double at_once = ctas * warpgroups;
  const double step = smooth_max({at_once * products, at_once * softmax, chain, loads});
  return c.stages == 1 ? step + kOneStageShare * loads : step;
}

struct Work {
  double longest = 0;  ///< blocks of a tile
  double total = 0;    ///< of a head
};

/// Blocks of keys that the tiles of a head see.
Work work_of(const Config& c, double queries, double keys, double tiles) {
  const double all = blocks_of(keys, c.tile_n);
  if (c.mask == Mask::none) return {all, all * tiles};
  Work work;
  const double counted = std::min<double>(tiles, kMostTilesCounted);
  for (int i = 0; i < static_cast<int>(counted); ++i) {
    const double tile = counted < tiles ? (i + 0.5) * tiles / counted : i;
    const double end = std::min(queries, (tile + 1) * c.tile_m / c.pack_gqa);
    work.total += blocks_of(std::clamp(end + keys - queries, 0.0, keys), c.tile_n) * tiles / counted;
  }
  work.longest = all;
  return work;
}

}  // namespace

bool has_fmha_cost(const Fmha& problem) {
  return problem.batch > 0 && problem.heads_q > 0 && problem.heads_kv > 0 && problem.seqlen_q > 0 &&
         problem.seqlen_k > 0;
}

double fmha_cost(const Config& c, const Fmha& problem) {
  const auto queries = static_cast<double>(problem.seqlen_q), keys = static_cast<double>(problem.seqlen_k);
  const auto kv_heads = static_cast<double>(problem.heads_kv) * static_cast<double>(problem.batch);
  const auto q_heads = static_cast<double>(problem.heads_q) * static_cast<double>(problem.batch);
  const double heads = c.pack_gqa > 1 ? kv_heads : q_heads;
  const double tiles = std::ceil(queries * c.pack_gqa / c.tile_m);
  const Work work = work_of(c, queries, keys, tiles);
  const double count = tiles * heads, sms = kSms / fmha::ctas_per_tile(c);
  const double of_busiest = std::ceil(count / sms);

  double blocks = of_busiest * work.longest;
  if (c.mask == Mask::causal) {
    blocks = work.total * heads / std::min(sms, count);
    if (count > sms) blocks += kCausalImbalance * work.longest * std::min(1.0, sms * fmha::ctas_per_sm(c) / count);
    blocks = std::max(work.longest, blocks);
  }
  // Where an SM holds two CTAs, pairs of its tiles run side by side.
  double step = step_cycles(c, 1), in_turn = of_busiest;
  if (fmha::ctas_per_sm(c) == 2 && of_busiest >= 2) {
    const double paired = 2 * std::floor(of_busiest / 2) / of_busiest;
    step = paired * step_cycles(c, 2) / 2 + (1 - paired) * step;
    in_turn = std::ceil(of_busiest / 2);
  }
  const double columns = (c.head_dim + c.head_dim_v) / 128.0;
  const double fixed =
      (kTileCycles + kRowCycles * c.tile_m * columns) * in_turn + kFirstBlockCycles * c.tile_n * columns;
  const double row_bytes = (c.head_dim + c.head_dim_v) * dtype_bytes(c.dtype);
  const double memory = (q_heads * queries + kv_heads * keys) * row_bytes / kMemoryBytesPerCycle;
  double narrow = 1;
  for (int span = swizzle_span_bytes(c.swizzle); span < swizzle_span_bytes(fmha::widest_swizzle(c)); span *= 2)
    narrow += kNarrowShare;
  return kLaunchCycles + smooth_max({(blocks * step + fixed) * narrow, memory});
}

double fmha_cost_us(double cycles) { return cycles / kHopper.clock_ghz / 1000; }

}  // namespace tessera

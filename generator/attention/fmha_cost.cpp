#include "generator/attention/fmha_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "generator/model_device.h"
#include "spec/fmha_tiles.h"

namespace tessera::fmha {

namespace {

constexpr double kSms = kHopper.sms;
constexpr double kLaunchCycles = 6950;         // from one event to the other beside the work
constexpr double kProductShare = 0.87;         // the tensor cores' clock is the one of short kernels
constexpr double kExponentialCycles = 3.73;    // of 64 scores, while the product before runs
constexpr double kPackCycles = 1.6;            // of the same, behind that product: conversion
constexpr double kChainCycles = 444;           // of a block: barriers, waits
constexpr double kTurnCycles = 312;            // of a block, where warpgroups take turns
constexpr double kIdleCycles = 91.3;           // of a block, for a warpgroup without rows: it takes its turns
constexpr double kIssueCycles = 5.42;          // of 64 scores: what keeps others from exponentials and arithmetic
constexpr double kIssueBlockCycles = 53.1;     // of a block, beside these
constexpr double kPairScoreCycles = 669;       // of a warpgroup's 64 x 64 block that a pair of CTAs exchanges
constexpr double kPairChainCycles = 1120;      // of the same, until it is there
constexpr double kL2BytesPerCycle = 63.6;      // of one SM
constexpr double kWideningCycles = 0.078;      // of an SM, an element of an 8-bit key or value that is widened
constexpr double kWideningAlone = 1.1;         // of these, where one CTA has the SM
constexpr double kLatencyCycles = 1060;        // from a slot that is free to the block that is there
constexpr double kTileCycles = 617;            // of a tile: its statistics, its turn
constexpr double kRowCycles = 7.57;            // of a row of a tile, for 128 columns of Q and O
constexpr double kMaskScoreCycles = 12.4;      // of 64 scores of a block that the mask cuts
constexpr double kMaskCycles = 74.8;           // of such a block
constexpr double kSkippedShare = 0.481;        // of the blocks that only a tile's last warpgroup sees
constexpr double kBesideShare = 0.373;         // of a tile's own cycles, where another CTA computes meanwhile
constexpr double kCloseSteps = 2.01;           // joined tiles: the step behind the last tile, and its loads
constexpr double kCloseCycles = 1220;          // beside these
constexpr double kDrainSteps = 0.465;          // separate tiles: what of the last tile's first and last product shows
constexpr double kDrainCycles = 668;           // beside these
constexpr double kReloadCycles = 3.79;         // separate tiles: of a row, for 128 columns of the next tile's Q
constexpr double kFirstShare = 0.434;          // of the time that Q and first blocks of all CTAs take from memory
constexpr double kMemoryBytesPerCycle = 1790;  // all SMs
constexpr double kL2Bytes = 20e6;              // K and V of all heads that CTAs with different heads find there
constexpr double kAgainShare = 0.25;           // of memory's time, for what they do not find
constexpr double kSharpness = 3.17;            // of the maximum of times that overlap in part
constexpr double kNarrowShare = 0.05;          // for each halving of the swizzle span: bank conflicts
constexpr double kMergeCycles = 4500;          // of the kernel that merges parts, beside its traffic: not fitted
constexpr double kMostItems = 16384;           // tiles that are dealt one by one
constexpr int kMostTilesCounted = 256;         // of a head, where there are more

double smooth_max(std::initializer_list<double> values) {
  double sum = 0;
  for (const double value : values) sum += std::pow(value, kSharpness);
  return std::pow(sum, 1 / kSharpness);
}

struct Sizes {
  double queries = 0, keys = 0;
  double heads = 0;    ///< that have tiles of their own, of all batches
  double q_heads = 0;  ///< of all batches
  double kv_heads = 0;
  double rows = 0;   ///< of a head
  double tiles = 0;  ///< of a head
  double seen = 0;   ///< most keys that a tile sees
  double parts = 1;  ///< of its keys
};

/// Keys that a window leaves to a tile, where its bounds are expected ones.
double seen_keys(const Config& c, const Fmha& p) {
  const auto keys = static_cast<double>(p.seqlen_k);
  if (c.facts.window != Window::sliding) return keys;
  const auto side = [&](Hint size) { return size < 0 ? keys : static_cast<double>(size); };
  const double right = c.facts.mask == Mask::causal ? 0 : side(p.window_size_right);
  return std::min(keys, std::ceil(static_cast<double>(c.tile_m) / c.pack_gqa) + side(p.window_size_left) + right);
}

Sizes sizes_of(const Config& c, const Fmha& p) {
  const auto batch = static_cast<double>(p.batch);
  Sizes s{.queries = static_cast<double>(p.seqlen_q), .keys = static_cast<double>(p.seqlen_k)};
  s.q_heads = static_cast<double>(p.heads_q) * batch;
  s.kv_heads = static_cast<double>(p.heads_kv) * batch;
  s.heads = c.pack_gqa > 1 ? s.kv_heads : s.q_heads;
  s.rows = s.queries * c.pack_gqa;
  s.tiles = std::ceil(s.rows / c.tile_m);
  s.seen = seen_keys(c, p);
  if (fmha::is_split(c)) {
    const double places = kSms * fmha::ctas_per_sm(c), tiles = s.tiles * s.heads * fmha::ctas_per_tile(c);
    s.parts = std::max(1.0, std::min(std::floor(places / tiles), std::ceil(s.seen / (2 * c.tile_n))));
  }
  return s;
}

/// Of the rows of a head.
double visible_keys(const Config& c, const Sizes& s, double row) {
  if (c.facts.mask == Mask::none) return s.keys;
  return std::clamp(std::floor(row / c.pack_gqa) + 1 + s.keys - s.queries, 0.0, s.keys);
}

double blocks_of_tile(const Config& c, const Sizes& s, double tile) {
  const double last_row = std::min(s.rows, (tile + 1) * c.tile_m) - 1;
  return std::max(1.0, std::ceil(std::min(s.seen, visible_keys(c, s, last_row)) / c.tile_n));
}

/// What a CTA does in all.
struct Share {
  double blocks = 0;
  double tiles = 0;
};

struct Deal {
  std::vector<Share> ctas;
  double blocks = 0;        ///< of all
  bool is_by_tile = false;  ///< CTAs side by side have different heads
};

/// Where there are too many causal tiles to deal them one by one, all CTAs have the mean.
void deal_evenly(const Config& c, const Sizes& s, Deal& deal) {
  double of_head = 0;
  const double counted = std::min<double>(s.tiles, kMostTilesCounted);
  for (int i = 0; i < static_cast<int>(counted); ++i)
    of_head += blocks_of_tile(c, s, counted < s.tiles ? std::floor((i + 0.5) * s.tiles / counted) : i);
  of_head *= s.tiles / counted;
  const double pairs = std::ceil(s.tiles / 2);
  const double rounds = std::ceil(s.heads * pairs / static_cast<double>(deal.ctas.size()));
  deal.ctas.assign(deal.ctas.size(), {rounds * of_head / pairs, rounds * s.tiles / pairs});
  deal.blocks = of_head * s.heads;
}

Share& operator+=(Share& share, const Share& more) {
  share.blocks += more.blocks;
  share.tiles += more.tiles;
  return share;
}

/// Around the grid, the first one's to CTA `by`.
void add_turned(std::vector<Share>& sum, const std::vector<Share>& more, std::size_t by) {
  const std::size_t rest = sum.size() - by;
  for (std::size_t i = 0; i < rest; ++i) sum[i + by] += more[i];
  for (std::size_t i = rest; i < sum.size(); ++i) sum[i - rest] += more[i];
}

/// Pairs of a long and a short tile, head after head around the grid. What 2, 4, 8, ... heads give is added up from
/// half of them: sums are whole numbers, in any order the same.
void deal_pairs(const std::vector<double>& blocks, int heads, Deal& deal) {
  const std::size_t grid = deal.ctas.size();
  std::vector<Share> some(grid);
  std::size_t pairs = 0;
  for (std::size_t low = 0, high = blocks.size(); low < high--; ++low, ++pairs)
    some[pairs % grid] += high == low ? Share{blocks[low], 1} : Share{blocks[low] + blocks[high], 2};
  for (std::size_t first = 0; heads > 0; heads /= 2, pairs *= 2) {
    if (heads % 2 == 1) {
      add_turned(deal.ctas, some, first % grid);
      first += pairs;
    }
    const std::vector<Share> half = some;
    add_turned(some, half, pairs % grid);
  }
}

/// Single tiles, the longest of all heads first, every second round of the grid backwards. Those of a length go to CTAs
/// side by side: what a CTA has more than the one before it is added up at last.
void deal_tiles(const std::vector<double>& blocks, int heads, Deal& deal) {
  const auto grid = static_cast<int>(deal.ctas.size());
  std::vector<Share> more(deal.ctas.size() + 1);
  int place = 0, round = 0;
  for (std::size_t tile = blocks.size(); tile-- > 0;)
    for (int left = heads; left > 0;) {
      const int now = std::min(left, grid - place), first = round % 2 == 1 ? grid - place - now : place;
      more[static_cast<std::size_t>(first)] += {blocks[tile], 1};
      more[static_cast<std::size_t>(first + now)] += {-blocks[tile], -1};
      left -= now;
      place += now;
      if (place < grid) continue;
      place = 0;
      ++round;
    }
  Share share;
  for (std::size_t cta = 0; cta < deal.ctas.size(); ++cta) deal.ctas[cta] = share += more[cta];
}

/// As templates/fmha/schedule.cuh does: pairs, or, where few rounds would stay partly empty, single tiles.
void deal_causal(const Config& c, const Sizes& s, Deal& deal) {
  const auto tiles = static_cast<int>(s.tiles), heads = static_cast<int>(s.heads), pairs = (tiles + 1) / 2;
  const auto grid = static_cast<int>(deal.ctas.size());
  const int rounds = (heads * pairs + grid - 1) / grid;
  deal.is_by_tile = rounds * grid - heads * pairs > heads * pairs / 10;
  std::vector<double> blocks;
  for (int tile = 0; tile < tiles; ++tile) blocks.push_back(blocks_of_tile(c, s, tile));
  for (const double of_tile : blocks) deal.blocks += heads * of_tile;
  deal.is_by_tile ? deal_tiles(blocks, heads, deal) : deal_pairs(blocks, heads, deal);
}

Deal deal_of(const Config& c, const Sizes& s) {
  const double slots = kSms / fmha::ctas_per_tile(c) * fmha::ctas_per_sm(c), items = s.tiles * s.heads * s.parts;
  Deal deal;
  deal.ctas.resize(static_cast<std::size_t>(std::min(slots, items)));
  if (is_uneven(c.facts) && !fmha::is_split(c)) {
    items > kMostItems ? deal_evenly(c, s, deal) : deal_causal(c, s, deal);
    return deal;
  }
  const double blocks = std::ceil(blocks_of_tile(c, s, s.tiles - 1) / s.parts);
  const auto grid = static_cast<double>(deal.ctas.size());
  for (std::size_t i = 0; i < deal.ctas.size(); ++i) {
    const double tiles = std::ceil((items - static_cast<double>(i)) / grid);
    deal.ctas[i] = {tiles * blocks, tiles};
  }
  deal.blocks = blocks * items;
  return deal;
}

/// Consumer warpgroups that have rows.
double busy_warpgroups(const Config& c, const Sizes& s) {
  return std::min<double>(fmha::consumer_warpgroups(c), std::ceil(s.rows / fmha::kRowsPerWarpgroup));
}

double exchanged_parts(const Config& c) { return c.cta_pair ? c.tile_n / 64.0 : 0; }
double product_cycles(const Config& c, int columns) {
  return kProductShare * c.tile_n * columns * dtype_bytes(c.facts.dtype) / 64;
}

/// What one warpgroup needs for a block if nobody is in its way: the scores, then the softmax beside the product of the
/// block before, then what only this thread can do.
double chain_of(const Config& c, const Sizes& s) {
  const int groups = fmha::consumer_warpgroups(c);
  const double beside = std::max(product_cycles(c, fmha::v_columns(c)), c.tile_n * kExponentialCycles);
  double rest = beside + c.tile_n * kPackCycles + kChainCycles + exchanged_parts(c) * kPairChainCycles;
  rest += kIdleCycles * (groups - busy_warpgroups(c, s));
  if (busy_warpgroups(c, s) > 1) rest += kTurnCycles;
  return product_cycles(c, fmha::qk_columns(c)) + rest;
}

/// A step of the CTAs that share an SM: one block of keys for each of them.
double step_cycles(const Config& c, const Sizes& s, double ctas) {
  const int columns = fmha::qk_columns(c) + fmha::v_columns(c);
  const double at_once = ctas * busy_warpgroups(c, s);
  const double issue = c.tile_n * kIssueCycles + kIssueBlockCycles + exchanged_parts(c) * kPairScoreCycles;
  const double loads = ctas * c.tile_n * bytes_of_keys(c.facts, columns) / kL2BytesPerCycle;
  // A CTA alone has no other one's loads and products to hide its own behind.
  const double widening = ctas > 1 ? ctas : kWideningAlone;
  const double widened = widens_keys(c.facts) ? widening * c.tile_n * columns * kWideningCycles : 0;
  double chain = chain_of(c, s);
  // With one slot the next block of K is asked for when the scores of this one are there. 8-bit keys wait in slots of
  // their own.
  if (c.stages == 1 && !widens_keys(c.facts))
    chain = std::max(chain, product_cycles(c, fmha::qk_columns(c)) + kLatencyCycles);
  return smooth_max({at_once * product_cycles(c, columns), at_once * issue, chain, loads, widened});
}

/// What the mask adds to a tile: the blocks that it cuts for the last 64 rows of a head. Warpgroups hide it from each
/// other.
double mask_cycles(const Config& c, const Sizes& s) {
  const double first = std::floor((s.rows - 1) / fmha::kRowsPerWarpgroup) * fmha::kRowsPerWarpgroup;
  const double cut = std::ceil(s.keys / c.tile_n) - std::floor(visible_keys(c, s, first) / c.tile_n);
  return cut * (kMaskScoreCycles * c.tile_n + kMaskCycles) / busy_warpgroups(c, s);
}

/// Of an SM with one CTA or two.
struct Cycles {
  double alone = 0, both = 0;  ///< of a step
  double tile = 0;             ///< beside its steps
  double rows = 0;             ///< of a tile, for 128 columns
  double skipped = 0;          ///< blocks of a tile
};

Cycles cycles_of(const Config& c, const Sizes& s) {
  Cycles of{.alone = step_cycles(c, s, 1)};
  of.both = std::max(of.alone, step_cycles(c, s, 2));
  of.rows = c.tile_m * (fmha::qk_columns(c) + fmha::v_columns(c)) / 128.0;
  of.tile = kTileCycles + kRowCycles * of.rows + mask_cycles(c, s);
  if (c.facts.mask != Mask::none)
    of.skipped = kSkippedShare * (busy_warpgroups(c, s) - 1) * fmha::kRowsPerWarpgroup / 2 / c.tile_n;
  return of;
}

double narrow_factor(const Config& c) {
  double narrow = 1;
  for (int span = swizzle_span_bytes(c.swizzle); span < swizzle_span_bytes(fmha::widest_swizzle(c)); span *= 2)
    narrow += kNarrowShare;
  return narrow;
}

/// Of a CTA, beside its tiles.
double end_cycles(const Config& c, const Sizes& s) {
  const double chain = chain_of(c, s);
  return c.q_stages == 2 ? kCloseSteps * chain + kCloseCycles : kDrainSteps * chain + kDrainCycles;
}

/// The busiest SM, from its first product on.
double busiest_cycles(const Config& c, const Sizes& s, const std::vector<Share>& ctas) {
  const Cycles of = cycles_of(c, s);
  const double last = end_cycles(c, s);
  const auto sms = static_cast<std::size_t>(kSms) / static_cast<std::size_t>(fmha::ctas_per_tile(c));
  double busiest = 0;
  for (std::size_t i = 0; i < std::min(ctas.size(), sms); ++i) {
    Share more = ctas[i], less = i + sms < ctas.size() ? ctas[i + sms] : Share{};
    if (more.blocks < less.blocks) std::swap(more, less);
    const double tiles = more.tiles + kBesideShare * less.tiles;
    const double seen = std::max(1.0, more.blocks - of.skipped * more.tiles);
    const double end = last + (c.q_stages == 2 ? 0 : (tiles - 1) * kReloadCycles * of.rows);
    busiest = std::max(busiest, less.blocks * of.both + (seen - less.blocks) * of.alone + tiles * of.tile + end);
  }
  return busiest;
}

/// What comes from memory. Where CTAs side by side have different heads, all heads' K and V are in use at once, and
/// what the L2 does not hold of them comes again for every tile.
double memory_bytes(const Config& c, const Sizes& s, const Deal& deal) {
  const double row_bytes = (c.facts.head_dim + c.facts.head_dim_v) * dtype_bytes(c.facts.dtype);
  const double key_bytes = bytes_of_keys(c.facts, c.facts.head_dim + c.facts.head_dim_v);
  const double keys = s.kv_heads * s.keys * key_bytes;
  double bytes = s.q_heads * s.queries * row_bytes + keys;
  if (deal.is_by_tile && keys > kL2Bytes)
    bytes += kAgainShare * (1 - kL2Bytes / keys) * std::max(0.0, deal.blocks * c.tile_n * key_bytes - keys);
  return bytes;
}

}  // namespace

bool has_fmha_cost(const Fmha& problem) {
  if (problem.kv_pools != KvPools::dense) return false;  // whose rows are not the keys of a query
  return problem.batch > 0 && problem.heads_q > 0 && problem.heads_kv > 0 && problem.seqlen_q > 0 &&
         problem.seqlen_k > 0;
}

double fmha_cost(const Config& c, const Fmha& problem) {
  const Sizes s = sizes_of(c, problem);
  const Deal deal = deal_of(c, s);
  const double first_bytes =
      static_cast<double>(deal.ctas.size()) * (c.tile_m + c.tile_n) * c.facts.head_dim * dtype_bytes(c.facts.dtype);
  // Each part of a row is written and read once, fp32.
  const double of_parts = fmha::is_split(c) ? kMergeCycles + 8 * s.parts * s.q_heads * s.queries *
                                                                 (c.facts.head_dim_v + 2) / kMemoryBytesPerCycle
                                            : 0;
  return of_parts + kLaunchCycles + kFirstShare * first_bytes / kMemoryBytesPerCycle +
         smooth_max(
             {busiest_cycles(c, s, deal.ctas) * narrow_factor(c), memory_bytes(c, s, deal) / kMemoryBytesPerCycle});
}

double least_fmha_cost(const Config& c, const Fmha& problem) {
  const Sizes s = sizes_of(c, problem);
  double items = s.tiles * s.heads * s.parts, blocks = items * std::ceil(blocks_of_tile(c, s, s.tiles - 1) / s.parts);
  if (is_uneven(c.facts) && !fmha::is_split(c)) {
    // A tile sees what its last row does, which is no less than the mean of its rows.
    const double rows = std::min(s.queries, s.keys);
    const double seen = c.pack_gqa * (s.queries * std::max(0.0, s.keys - s.queries) + rows * (rows + 1) / 2);
    blocks = s.heads * std::max(s.tiles, seen / c.tile_m / c.tile_n);
  }
  // The mean of the SMs' work. CTAs that share an SM are no faster than alone in turns, or than two side by side.
  const Cycles of = cycles_of(c, s);
  const double of_tile = of.tile - of.skipped * of.alone;
  const double sum = fmha::ctas_per_sm(c) == 1
                         ? blocks * of.alone + items * of_tile
                         : blocks * std::min(of.alone, of.both / 2) + items * std::min(0.0, of_tile);
  const double sms = std::min(items, std::floor(kSms) / fmha::ctas_per_tile(c));
  return kLaunchCycles + std::max(0.0, (sum / sms + end_cycles(c, s)) * narrow_factor(c));
}

double fmha_cost_us(double cycles) { return cycles / kHopper.clock_ghz / 1000; }

}  // namespace tessera::fmha

#include "generator/products/gemm_weights_cost.h"

#include <algorithm>
#include <cmath>

#include "generator/model_device.h"

namespace tessera::gemm_weights {

namespace {

constexpr int kFewRowsOfTile = 64;  // up to them the model was fitted to runs of few rows
constexpr Hint kExampleRows = 4096, kExampleColumns = 8192, kExampleDepth = 8192;

// Cycles of kHopper.clock_ghz, fitted to bench/results/weights-4-bit.md; a test holds the model to that page's cells.
constexpr double kMemoryBytes = 4.4e12 / 1.7e9;          // of all multiprocessors
constexpr double kFewRowsMemoryBytes = 4.54e12 / 1.7e9;  // with mma.f16 and teams
constexpr double kMostMemoryBytes = 28;                  // of one
constexpr double kL2Bytes = 42;
constexpr double kWidenCycles = 195;  // a warp's instructions for 128 of k of its rows, beside which no other warp of
                                      // its scheduler issues any
// Likewise of up to 32 rows, and each row of the tile, where four warpgroups share a scheduler's turns; each halving of
// k among them costs a part more. Of 64 rows.
constexpr double kFewRowsCycles = 214, kFewRowCycles = 6.3, kSharedDepth = 1.25, k64RowsCycles = 450;
constexpr double kStepCycles = 360;                    // from a warp's step to its next, alone
constexpr double kLoadCycles = 120, kCopyCycles = 25;  // of the thread that loads: a step, and each copy of it
constexpr double kLoadShown = 0.3;  // of that, up to 64 rows: loads, widening and products overlap only in part
constexpr double kTwoStages = 1.2;  // a ring of two slots waits for the memory
constexpr double kProducts = 1780;  // of 16-bit numbers: 87 % of what the tensor cores have
// Of many rows, times the modelled products: measured with 4,096 rows (bench/results/weights-4-bit.md). Of 128 rows a
// warpgroup's one block is multiplied in less time than the next one's widening takes.
constexpr double kManyRowsFactor = 1.03, kOf208RowsFactor = 1.0, kOneBlockOf128Factor = 1.475, kWideTileFactor = 1.14,
                 kTallTileFactor = 1.23;
constexpr double kLaunchCycles = 11600, kFewRowsLaunchCycles = 5500;  // up to 64 rows
constexpr double kItemCycles = 700;  // from a tile's last product to the next one's first
constexpr double kStoredElement = 0.06;
constexpr double kSharedElement = 0.184;  // of the sums that the other parts of a cluster hand over
constexpr double kGroupCycles = 500;      // and those of a CTA

// mma.f16, fitted to bench/results/weights-4-bit.md: microseconds of a launch, and of a block of 64 x 128 weights, of
// which a CTA widens one after the other at the rate of its four schedulers.
constexpr double kDirectLaunchMicroseconds = 6.5;
constexpr double kDirectItemMicroseconds = 0.2, kDirectGroupMicroseconds = 0.3;  // of a further tile
// Of groups of rows, whose activations come anew, a step is longer; a further tile takes longer for each row of it, and
// with k in parts for each number that is handed over.
constexpr double kDirectOfGroups = 1.08, kDirectOfGroupsRowMicroseconds = 0.055;
constexpr double kDirectOfGroupsSharedMicroseconds = 0.0005;
constexpr double kReloaded = 1.03;  // activations, for each tile
// A ring of less than three slots for each group: no slower, but of equals the last; of groups of rows much slower.
constexpr double kShallow = 1.04, kShallowOfGroups = 1.6;
// Twelve warps: a launch of 8 rows, and where their activations stay; of 16 rows. A block of 8 and of 16 rows. What a
// further tile takes, and each group of warps that shares k; in groups of rows one item takes the same whatever the
// tile.
constexpr double kTwelveLaunchMicroseconds = 5.8, kTwelveKeptMicroseconds = 4.35, kTwelveLaunchOf16Microseconds = 5.5;
constexpr double kTwelveBlockMicroseconds = 0.113, kTwelveBlockOf16Microseconds = 0.145;
constexpr double kTwelveItemMicroseconds = 0.6, kTwelveItemOf16Microseconds = 1.3, kTwelveGroupMicroseconds = 0.11;
constexpr double kTwelveOfGroups = 1.0, kTwelveOfGroupsLaunchMicroseconds = 6.1, kTwelveOfGroupsItemMicroseconds = 1.1;
bool has_twelve_warps(const Config& c) { return gemm_weights::direct_warps(c) == 12; }
double direct_launch_microseconds(const Config& c, bool is_of_groups, bool is_resident) {
  if (!has_twelve_warps(c)) return kDirectLaunchMicroseconds;
  if (is_of_groups) return kTwelveOfGroupsLaunchMicroseconds;
  if (c.tile_m > 8) return kTwelveLaunchOf16Microseconds;
  return is_resident ? kTwelveKeptMicroseconds : kTwelveLaunchMicroseconds;
}
double direct_item_microseconds(const Config& c, bool is_of_groups) {
  const double groups = gemm_weights::k_groups(c);
  if (has_twelve_warps(c)) {
    if (is_of_groups) return kTwelveOfGroupsItemMicroseconds;
    return (c.tile_m > 8 ? kTwelveItemOf16Microseconds : kTwelveItemMicroseconds) + kTwelveGroupMicroseconds * groups;
  }
  const double item = kDirectItemMicroseconds + kDirectGroupMicroseconds * groups;
  if (!is_of_groups) return item;
  return item + kDirectOfGroupsRowMicroseconds * c.tile_m +
         kDirectOfGroupsSharedMicroseconds * (c.split_k - 1) * c.tile_m * c.tile_n;
}
bool is_fused(const Config& c) { return fuses_middle(gemm_weights::weights(c), gemm_weights::a_dtype(c)); }
bool is_counted(const Config& c) { return counts_codes(gemm_weights::weights(c), gemm_weights::a_dtype(c)); }
// int4 with zero points, whose codes are numbers as they lie.
constexpr double kCountedZeroPoints = 1.045;
// Of up to 16 rows, beside MXFP4's; int4's under f16.
constexpr double kDirectNvfp4 = 1.065, kDirectInt4 = 0.95, kDirectOfMagic = 1.11;
double direct_format_factor(const Config& c) {
  if (c.facts.b_type == OperandType::int4)
    return is_fused(c) ? kDirectInt4 : is_counted(c) ? kCountedZeroPoints : kDirectOfMagic;
  return c.facts.b_type == OperandType::nvfp4 ? kDirectNvfp4 : 1;
}
double direct_block_microseconds(const Config& c) {
  if (c.tile_m > 16) return c.zero_points == ZeroPoints::given ? 0.207 : 0.185;
  const bool has_twelve = has_twelve_warps(c);
  const double mxfp4 = c.tile_m <= 8 ? (has_twelve ? kTwelveBlockMicroseconds : 0.142)
                                     : (has_twelve ? kTwelveBlockOf16Microseconds : 0.15);
  return mxfp4 * direct_format_factor(c);
}
// Of a step whose activations come from memory.
double direct_step_factor(const Config& c, bool is_of_groups) {
  const bool is_shallow = c.stages < 3 * gemm_weights::k_groups(c);
  if (is_of_groups) return has_twelve_warps(c) ? kTwelveOfGroups : is_shallow ? kShallowOfGroups : kDirectOfGroups;
  if (has_twelve_warps(c)) return is_shallow ? kShallow : 1;
  return is_shallow ? kShallow : kReloaded;
}

// Teams (few rows by wgmma), fitted to the same page: microseconds of a launch, and for each eight rows of the tile; of
// ten thousand sums that a cluster's parts hand over; of a block of 64 x 128 weights, and for each eight rows, less
// where a warpgroup has two of a step, more where there are three warpgroups; of eight rows of a step's activations
// that come anew; of a further tile, and for each eight rows; of groups of rows a block and a launch, which are added,
// and a further tile, instead.
constexpr double kTeamLaunchMicroseconds = 4.558, kTeamLaunchOctetMicroseconds = -0.414,
                 kTeamSharedMicroseconds = 0.193;
constexpr double kTeamBlockMicroseconds = 0.1024, kTeamBlockOctetMicroseconds = 0.01384,
                 kTeamPairMicroseconds = -0.00276;
constexpr double kTeamOfThreeMicroseconds = 0.00484, kTeamStreamMicroseconds = 0.00007;
constexpr double kTeamItemMicroseconds = 1.043, kTeamItemOctetMicroseconds = 0.223;
constexpr double kTeamOfGroupsBlockMicroseconds = 0.01243, kTeamOfGroupsLaunchMicroseconds = -0.433;
constexpr double kTeamOfGroupsItemMicroseconds = 0.579, kTeamOfGroupsItemOctetMicroseconds = 0.106;
// Of a tile of one block, less where activations stay.
constexpr double kTeamOfOneBlockMicroseconds = 0.01242;
// Of one block each, whose laps have whole steps alone: instructions, 283 of 298.
constexpr double kTeamLapFactor = 0.95;
// A block beside MXFP4's; int4's under f16.
constexpr double kTeamNvfp4 = 1.062, kTeamInt4 = 0.984, kTeamInt4Of24Rows = 0.95, kTeamOfMagic = 1.121;
double team_format_factor(const Config& c) {
  if (c.facts.b_type == OperandType::int4)
    return is_fused(c)     ? (c.tile_m < 24 ? kTeamInt4 : kTeamInt4Of24Rows)
           : is_counted(c) ? kCountedZeroPoints
                           : kTeamOfMagic;
  return c.facts.b_type == OperandType::nvfp4 ? kTeamNvfp4 : 1;
}

// 8-bit activations: what a warp takes to widen four of its rows, from 16, 64 and 4,096 x 8,192 x 8,192.
constexpr double kWidenedRowsCycles = 350;
double widened_rows_cycles(const Config& c) {
  return gemm_weights::is_widened(c) ? kWidenedRowsCycles * c.tile_m / gemm_weights::gather_warps(c) / 4 : 0;
}

double hint(Hint value, Hint otherwise) { return static_cast<double>(value > 0 ? value : otherwise); }

struct Rows {
  double of_one = 0;
  double matrices = 0;
};
// Of each matrix or group, and how many have any: contiguous groups share the rows, a row for each at least.
Rows rows_of_matrices(const Gemm& p) {
  const double m = hint(p.m, kExampleRows), l = hint(p.l, 1);
  if (p.grouping != Grouping::contiguous) return {m, l};
  const double groups = std::min(l, m);
  return {std::ceil(m / groups), groups};
}

GemmWeightsCost direct_cost_of(const Config& c, const Gemm& p) {
  const auto [m, matrices] = rows_of_matrices(p);
  const double n = hint(p.n, kExampleColumns), k = hint(p.k, kExampleDepth);
  const double tiles_m = std::ceil(m / c.tile_m), items = tiles_m * std::ceil(n / c.tile_n) * matrices;
  const double clusters = hopper_clusters_at_once(c.split_k), rounds = std::ceil(items / clusters);
  const double steps = std::ceil(std::ceil(k / kWeightDepth) / c.split_k), blocks = gemm_weights::blocks_of_tile(c);
  const bool is_resident = tiles_m * matrices <= 1 && steps <= c.stages && p.grouping == Grouping::none;
  const double weights = blocks * weight_block_bytes(gemm_weights::weights(c));
  const double activations = is_resident ? 0 : gemm_weights::a_slot_bytes(c);
  const double busy = std::min(items, clusters) * c.split_k;
  const double memory = weights / tiles_m / std::min(kMostMemoryBytes, kFewRowsMemoryBytes / busy);
  const double l2 = (weights + activations) / kL2Bytes;
  const double widen = blocks * direct_block_microseconds(c) * 1e3 * kHopper.clock_ghz;
  const double rows = is_resident ? 0 : widened_rows_cycles(c);
  const bool is_of_groups = p.grouping != Grouping::none;
  const double step_factor = is_resident ? 1 : direct_step_factor(c, is_of_groups);
  const double step = std::max({memory, l2, widen, rows}) * step_factor;
  GemmWeightsCost cost;
  cost.bound = widen < step ? "memory" : "the widening of the weights";
  const double launch = direct_launch_microseconds(c, is_of_groups, is_resident);
  const double item = direct_item_microseconds(c, is_of_groups);
  cost.cycles = (launch + (rounds - 1) * item) * 1e3 * kHopper.clock_ghz + rounds * steps * step;
  // Of activations that stay, all are widened once.
  if (is_resident) cost.cycles += steps * std::max(0.0, widened_rows_cycles(c) - step);
  return cost;
}

GemmWeightsCost team_cost_of(const Config& c, const Gemm& p) {
  const auto [m, matrices] = rows_of_matrices(p);
  const double n = hint(p.n, kExampleColumns), k = hint(p.k, kExampleDepth);
  const double tiles_m = std::ceil(m / c.tile_m), items = tiles_m * std::ceil(n / c.tile_n) * matrices;
  const double clusters = hopper_clusters_at_once(c.split_k), rounds = std::ceil(items / clusters);
  const double steps = std::ceil(std::ceil(k / gemm_weights::step_depth(c)) / c.split_k);
  const double of_tile = static_cast<double>(c.tile_n) / kWeightRows, octets = c.tile_m / 8.0;
  // Of a CTA, along k: the last step of all may have one block.
  const double along_k = std::min(std::ceil(std::ceil(k / kWeightDepth) / c.split_k), steps * step_blocks(c));
  const bool is_of_groups = p.grouping != Grouping::none;
  const bool is_resident =
      tiles_m * matrices <= 1 && steps <= c.stages && !is_of_groups && !gemm_weights::has_common_lap(c);
  double block = kTeamBlockMicroseconds + kTeamBlockOctetMicroseconds * octets;
  if (gemm_weights::blocks(c) > 1) block += kTeamPairMicroseconds;
  if (gemm_weights::consumer_warpgroups(c) == 3) block += kTeamOfThreeMicroseconds;
  if (is_of_groups) block += kTeamOfGroupsBlockMicroseconds;
  block *= team_format_factor(c);
  if (gemm_weights::has_laps(c)) block *= kTeamLapFactor;
  if (!is_resident) block += kTeamStreamMicroseconds * octets / of_tile;
  if (of_tile < 2) block += is_resident ? kTeamOfOneBlockMicroseconds / 3 : kTeamOfOneBlockMicroseconds;
  // Multiprocessors share the memory's rate, and few read no faster than each can.
  const double busy = std::min(items, clusters) * c.split_k;
  const double memory =
      weight_block_bytes(gemm_weights::weights(c)) / tiles_m / std::min(kMostMemoryBytes, kFewRowsMemoryBytes / busy);
  block = std::max(block, memory / (1e3 * kHopper.clock_ghz));
  double launch = kTeamLaunchMicroseconds + kTeamLaunchOctetMicroseconds * octets;
  if (c.split_k > 1) launch += kTeamSharedMicroseconds * gemm_weights::parts(c) * c.tile_m * c.tile_n / 1e4;
  double item = kTeamItemMicroseconds + kTeamItemOctetMicroseconds * octets;
  if (is_of_groups) {
    launch += kTeamOfGroupsLaunchMicroseconds;
    item = kTeamOfGroupsItemMicroseconds + kTeamOfGroupsItemOctetMicroseconds * octets;
  }
  GemmWeightsCost cost;
  cost.bound = octets > 1 ? "the widening of the weights" : "memory";
  cost.cycles = (launch + rounds * along_k * of_tile * block + (rounds - 1) * item) * 1e3 * kHopper.clock_ghz;
  return cost;
}

// Of a block, for 128 of k.
double widen_cycles(const Config& c) {
  if (c.tile_m > kFewRowsOfTile) return kWidenCycles;
  if (!gemm_weights::has_few_rows(c)) return k64RowsCycles;
  return (kFewRowsCycles + kFewRowCycles * c.tile_m) * std::pow(kSharedDepth, std::log2(gemm_weights::k_groups(c)));
}

double many_rows_factor(const Config& c) {
  if (c.tile_m <= kFewRowsOfTile) return 1;
  if (c.tile_m > 208) return kTallTileFactor;
  if (c.tile_m > 192 && gemm_weights::blocks(c) == 1) return kOf208RowsFactor;
  if (gemm_weights::blocks(c) > 1) return kWideTileFactor;
  return c.tile_m <= 128 ? kOneBlockOf128Factor : kManyRowsFactor;
}

}  // namespace

GemmWeightsCost gemm_weights_cost(const Config& c, const Gemm& p) {
  if (gemm_weights::is_direct(c)) return direct_cost_of(c, p);
  if (gemm_weights::is_team(c)) return team_cost_of(c, p);
  const auto [m, matrices] = rows_of_matrices(p);
  const double n = hint(p.n, kExampleColumns), k = hint(p.k, kExampleDepth);
  const double tiles_m = std::ceil(m / c.tile_m), items = tiles_m * std::ceil(n / c.tile_n) * matrices;
  const double clusters = hopper_clusters_at_once(c.split_k), rounds = std::ceil(items / clusters);
  const double steps = std::ceil(std::ceil(k / kWeightDepth) / c.split_k);
  const double blocks = gemm_weights::blocks_of_tile(c), groups = gemm_weights::k_groups(c);
  // Boxes of rows that are there.
  const double box = gemm_weights::a_box_rows(c), rows = std::min<double>(c.tile_m, std::ceil(m / box) * box);
  const double weights = gemm_weights::b_slot_bytes(c), activations = rows * kWeightDepth * 2;
  // Multiprocessors that read share the memory's rate; few read no faster than each can. The L2 serves all but one of
  // the passes over the weights.
  const double busy = std::min(items, clusters) * c.split_k;
  const double memory = weights / tiles_m / std::min(kMostMemoryBytes, kMemoryBytes / busy);
  const double l2 = (weights + activations) / kL2Bytes;
  const double widen = blocks * widen_cycles(c);
  const double multiply = blocks * kWeightRows * kWeightDepth * std::max(c.tile_m, 32) / kProducts;
  const double latency = (kStepCycles + multiply / blocks) / groups;
  const double load = kLoadCycles + kCopyCycles * (blocks + 2 * rows / box);
  // Four warpgroups with a block of 64 rows each hide the rest behind each other.
  const bool is_hidden = c.tile_m <= kFewRowsOfTile && !gemm_weights::has_few_rows(c) && blocks == 4;
  double step = std::max({memory, l2, widen, multiply, latency, load, widened_rows_cycles(c)});
  if (!is_hidden) step += 0.15 * std::min(widen, multiply);
  if (c.stages < 3) step *= kTwoStages;
  if (c.tile_m <= kFewRowsOfTile && !is_hidden) step += kLoadShown * load;
  step *= many_rows_factor(c);
  GemmWeightsCost cost;
  cost.bound = step < 1.3 * multiply ? "the tensor cores"
               : step < 1.3 * memory ? "memory"
                                     : "the widening of the weights";
  double item = kItemCycles + kStoredElement * c.tile_m * c.tile_n;
  item += kSharedElement * (c.split_k - 1) * c.tile_m * c.tile_n;
  if (groups > 1) item += kGroupCycles;
  cost.cycles = (c.tile_m <= kFewRowsOfTile ? kFewRowsLaunchCycles : kLaunchCycles) + rounds * (steps * step + item);
  return cost;
}

}  // namespace tessera::gemm_weights

#include "generator/products/gemm_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "generator/model_device.h"
#include "generator/products/gemm_addend_cost.h"
#include "generator/products/gemm_candidates.h"

namespace tessera::gemm {

namespace {

constexpr double kSms = kHopper.sms;
constexpr double kTensorBytesPerCycle = 4096;   // multiplications of one SM, times the bytes of an element
constexpr double kLaunchCycles = 8072;          // from one event to the other and to the first product, beside the work
constexpr double kCtaCycles = 1.834;            // more for each SM that takes part
constexpr double kIssueCycles = 90.7;           // of a step's loads, beside the copies: the wait for a slot
constexpr double kPingPongIssueCycles = 49.94;  // and where they take turns
constexpr double kBoxCycles = 44.07;            // of one copy
constexpr double kRowCycles = 0.09085;          // of a row that it loads, 128 bytes on a line
constexpr double kRowSplitShare = 11.72;        // more of that where all rows lie in two lines
constexpr double kClusterShare = 0.05021;       // more of a step whose B CTAs share, and of one whose A: they keep step
constexpr double kClusterLaterShare = 0.4789;   // of that in all rounds but one
constexpr double kClusterCycles = 148.3;        // of a launch, for each doubling of a cluster
constexpr double kClusterBetweenShare = 0.02164;  // more of what lies between tiles, for each CTA beside one
constexpr double kWgmmaCycles = 2.856;            // of one instruction beside its columns
constexpr double kAloneFactor = 0.9621;           // of products where no other warpgroup works on the tile, of 128 rows
constexpr double kPromotedFactor = 1.008;         // of steps that are added up in fp32
constexpr double kPromotedAloneFactor = 2.4;      // where no other warpgroup works on the tile
constexpr double kScaledAloneFactor = 1.98;       // and what is added has factors of blocks, beside the next one
constexpr double kScaledFactor = 1.08;            // of those whose sums are multiplied by factors of blocks
constexpr double kScaledOneBlockFactor = 1.17;    // the same where two warpgroups have a small block each
constexpr double kJoinedOneBlockFactor = 1.05;    // and where they find products of factors
constexpr double kJoinedTwoBlocksFactor = 1.06;   // the same of two blocks each
constexpr double kJoinedThreeFactor = 0.98;       // and of three warpgroups
constexpr double kJoinedThreeTileCycles = 450;    // and more of their tiles: each stores its part
constexpr double kJoinedShortShare = 0.65;        // of a tile of theirs in which one has rows
constexpr double kJoinedCutFactor = 1.12;         // more of that where a square begins anywhere among columns
constexpr double kScaledPartCycles = 1400;        // of a launch with factors of blocks, for each part of k beyond two
constexpr double kSlowScaledFactor = 1.5;         // where that takes more instructions, see is_slowly_scaled
constexpr double kScaledMemoryShare = 0.1;        // more of memory's time, see scaled_memory_factor
constexpr double kScaledFewSteps = 32;            // behind so many steps of k
constexpr double kScaledUsed = 0.8;               // and of few rows where more of the SMs work
constexpr double kScaledFewTransposed = 1.05;     // of 64 or 128 rows that are columns of D transposed
constexpr double kScaledFewInTurn = 1.03;         // and where warpgroups take turns at tiles of 64 rows
// The same with a gate, where few rows are not D's columns: the products of a step, their factors and the sums of a
// warpgroup come one after the other.
constexpr double kScaledStepCycles = 640;
constexpr double kScaledChainCycles = 440;  // beside the products, where no other warpgroup works on the tile
constexpr double kScaledChainShare = 0.77;  // of the products
constexpr double kSlowScaledChainFactor = 1.1;
constexpr double kEntryBytesPerCycle = 67.81;  // into one SM of all
constexpr double kSharedEntryShare = 0.5478;   // of bytes that another CTA of the cluster loads
constexpr double kSplitTogether = 0.95;  // exponent of how many ask for the same lines, where their clusters split k
constexpr double kSplitLookupFactor = 1.225;  // of that, where the CTAs of a cluster load different parts of k
constexpr double kKeptFactor = 1.044;  // of both where more than two rows of tiles read B, whose lines the L2 keeps
constexpr double kLineSplitShare = 0.7904;        // more of both where all rows lie in two lines
constexpr double kLineSectorShare = 0.8305;       // more where they do not begin on sectors
constexpr double kSharedLineSplitShare = 0.6562;  // the same of what CTAs share
constexpr double kSharedLineSectorShare = 0.2093;
constexpr double kShallowShare = 0.1925;       // more of a step, over the square of the slots that lie ready
constexpr double kLatencyCycles = 2329;        // from a load to its slot's next one, which all slots share
constexpr double kStoreBytesPerCycle = 33.9;   // of a tile of D, through shared memory
constexpr double kPanelCycles = 203.9;         // of each of its panels: two barriers of the warpgroup
constexpr double kTileCycles = 356.9;          // of a tile beside that
constexpr double kWriteBytesPerCycle = 34.9;   // of one SM of all, into the L2
constexpr double kWriteSplitShare = 0.09901;   // more of that where all rows lie in two lines
constexpr double kWriteSectorShare = 0.3391;   // more where they do not begin on sectors
constexpr double kPingPongShare = 0.3561;      // of that time: the rest runs beside the other warpgroup's products
constexpr double kPingPongOver = 0.4749;       // of what is stored for longer than the other multiplies
constexpr double kRelaunchCycles = 3355;       // between a CTA with a split k and the next: it has no second tile
constexpr double kSumCycles = 639.3;           // of adding up the parts of k: two barriers of the cluster
constexpr double kLeaveBytesPerCycle = 108.1;  // of a warpgroup's partial sums
constexpr double kFetchBytesPerCycle = 7.727;  // of those that other CTAs leave
constexpr double kSentSumCycles = 450;         // of adding up the parts where CTAs send each other their sums
constexpr double kSentBytesPerCycle = 12;      // of those that a warpgroup gets
constexpr double kMemoryBytesPerCycle = 2235;  // all SMs
constexpr double kIdleShare = 0.1419;          // more of a last round's bytes, where all SMs are idle
constexpr double kStepSharpness = 7.508;       // of the maximum of what a step overlaps in part
constexpr double kSharpness = 4.181;           // and of a launch's
constexpr Hint kDefaultExtent = 4096;

/// What was fitted apart where rows begin on lines and k is long: there memory and the tensor cores bound most
/// products, elsewhere the L2 and the copies do.
struct Rates {
  double behind_cycles;           ///< of a row of a box that reaches behind the matrix, where all SMs have one
  double second_issue_cycles;     ///< more of a step's loads where two warpgroups give a slot back
  double alone_narrow_factor;     ///< of products where no other warpgroup works on the tile, of 64 rows
  double three_factor;            ///< of products where three warpgroups take turns
  double split_entry_factor;      ///< of all bytes that enter, where CTAs of a cluster load different parts of k
  double lookup_bytes_per_cycle;  ///< that the L2 looks up for one SM of all
};
constexpr Rates kRates{6.365, 85.01, 1.041, 1.024, 1.362, 34.96};
constexpr Rates kRatesOnLines{9, 71.33, 0.9619, 0.9948, 1.466, 27.62};
constexpr double kLongSteps = 8;

double extent(Hint hint, Hint otherwise) { return static_cast<double>(hint < 0 ? otherwise : std::max<Hint>(hint, 1)); }

double ceil_of(double value, double unit) { return std::floor((value + unit - 1) / unit); }

/// Two ways through the model: the time, and a bound that no time is below, without powers, which take most of the
/// model's own time. There the maximum takes the place of a smooth one, and what is only ever added is left out.
enum class Look : std::uint8_t { whole, bound };

/// The greater, or more than that where two come close.
template <Look kLook>
double smooth_max(std::initializer_list<double> values, double sharpness) {
  const double greatest = std::max(values);
  if constexpr (kLook == Look::bound) return greatest;
  double sum = 0;
  for (const double value : values) sum += value == greatest ? 1 : std::pow(value / greatest, sharpness);
  return greatest * std::pow(sum, 1 / sharpness);
}

/// 1 and what rows of 128 bytes cost more that lie in two lines, by how many do: with a pitch of 64 and a multiple of
/// 128 bytes every second one, with odd multiples of 16 seven of eight, half of these in five sectors.
double by_alignment(double pitch, double split, double sector) {
  const auto unit = static_cast<double>(std::gcd(static_cast<std::int64_t>(pitch), std::int64_t{128}));
  return 1 + split * (1 - unit / 128) + (unit < 32 ? sector : 0);
}

/// What the rows of 128 bytes of all tiles lie apart: MN-major ones also begin where a tile does.
double pitch_of(bool is_mn_major, double extent, double tile, double k, double element) {
  if (!is_mn_major) return k * element;
  return static_cast<double>(
      std::gcd(static_cast<std::int64_t>(extent * element), static_cast<std::int64_t>(tile * element)));
}

/// One operand of a step.
struct Operand {
  double rows;           ///< of a tile
  double extent;         ///< of the matrix
  double parts;          ///< CTAs that share it and load a part each
  double box;            ///< rows of a copy; MN-major: of the matrix, in as many rows of 128 bytes
  double pitch;          ///< bytes of what all rows of 128 bytes lie apart, or a divisor of that
  bool is_mn_major;      ///< its rows of 128 bytes lie along the extent
  double answered;       ///< of the CTAs that want the same part in the same step, how many are answered at once
  double behind_cycles;  ///< see Rates

  double tiles() const { return ceil_of(extent, rows); }
  double valid() const { return std::min(rows, extent); }        ///< rows of the first tile
  double last() const { return extent - (tiles() - 1) * rows; }  ///< and of the last

  /// Rows of 128 bytes for so many valid ones: an MN-major tile within the matrix comes in whole panels.
  double copied(double valid_rows) const {
    return is_mn_major && valid_rows >= rows && extent > rows ? ceil_of(rows, box) * box : valid_rows;
  }

  double by_alignment(double split, double sector = 0) const { return gemm::by_alignment(pitch, split, sector); }

  /// Of the copies for a CTA's part of a tile that has so many rows within the matrix. Boxes behind it are left out,
  /// but not where the slots are written for the first time. Rows in a box that reaches behind are slow where many SMs
  /// have one.
  double copy_cycles(double valid_rows, double used, bool is_first) const {
    const double part = (is_mn_major ? ceil_of(rows, box) * box : rows) / parts, valid = copied(valid_rows),
                 own = std::min(part, valid);
    const double needed = ceil_of(own, box), boxes = is_first ? part / box : needed;
    const double behind = ceil_of(valid, box) * box - valid;
    const double reaching = is_mn_major ? (behind > 0 ? box : 0) : behind;
    const double loaded = (is_first ? part : is_mn_major ? needed * box : own) * by_alignment(kRowSplitShare);
    return boxes * kBoxCycles + loaded * kRowCycles + reaching * behind_cycles * used / tiles();
  }

  /// How much more that costs the L2 than rows that begin on lines.
  double line_factor() const {
    return parts > 1 ? by_alignment(kSharedLineSplitShare, kSharedLineSectorShare)
                     : by_alignment(kLineSplitShare, kLineSectorShare);
  }
  /// Bytes that enter an SM, counted as what they cost. What another CTA loads comes in whole lines.
  double entering(double valid_rows) const {
    const double own = line_factor() / parts;
    return copied(valid_rows) * gemm::kStepBytes * (own + (1 - 1 / parts) * kSharedEntryShare);
  }
  /// And its share of the bytes that the L2 looks up: once for all who ask in the same step.
  double looked_up(double valid_rows) const {
    return copied(valid_rows) * gemm::kStepBytes / std::max(answered, parts) * line_factor();
  }
};

/// Cycles of all rounds but the last, and of that.
struct Rounds {
  double full, last;
};

/// The steps of a tile along K.
template <Look kLook>
struct Steps {
  const Rates& rates;
  Operand a, b;
  double tensor = 0;   ///< cycles of the tensor cores in a step
  double issue = 0;    ///< of the loads beside the copies
  double latency = 0;  ///< of a load, that all slots share
  double factor = 1;
  bool is_split = false;
  double from_l2 = 1;  ///< more where B is kept in the L2, from which it drives what was written: see producer.cuh

  /// `used`: share of the SMs that work. Lines and sectors are the whole L2's, and cost as much as there are SMs that
  /// ask.
  double cycles(double rows_of_a, double rows_of_b, double used, bool is_first = false) const {
    const double copies = issue + a.copy_cycles(rows_of_a, used, is_first) + b.copy_cycles(rows_of_b, used, is_first);
    const double entered = (a.entering(rows_of_a) + b.entering(rows_of_b)) * used / kEntryBytesPerCycle;
    const double looked_up = (a.looked_up(rows_of_a) + b.looked_up(rows_of_b)) * used / rates.lookup_bytes_per_cycle;
    return smooth_max<kLook>({tensor, copies, latency, from_l2 * entered * (is_split ? rates.split_entry_factor : 1),
                              from_l2 * looked_up * (is_split ? kSplitLookupFactor : 1)},
                             kStepSharpness) *
           factor;
  }

  /// All steps of the busiest CTA, of which the last round may use fewer SMs. Tiles at the matrix's edge take longer;
  /// who has several tiles has their share.
  Rounds all(double steps, double rounds, double used, double used_last, const Config& c) const {
    const double last = cycles(a.valid(), b.valid(), used_last);
    if (rounds <= 1) used = used_last;
    const double step = rounds > 1 ? cycles(a.valid(), b.valid(), used) : last;
    if constexpr (kLook == Look::bound) return {steps * (rounds - 1) * step, steps * last};
    const auto edge = [&](const Operand& operand, double clusters, double rows_of_a, double rows_of_b) {
      if (clusters <= 1 || operand.last() >= operand.rows) return 0.0;
      const double cycles_there = cycles(rows_of_a, rows_of_b, used);
      return std::max(0.0, cycles_there - step) * (rounds > 1 ? std::ceil(rounds / clusters) : 1);
    };
    const double extra = std::max(edge(a, ceil_of(a.tiles(), c.cluster_m), a.last(), b.valid()),
                                  edge(b, ceil_of(b.tiles(), c.cluster_n), a.valid(), b.last()));
    const double first = cycles(a.valid(), b.valid(), used, true) - step;
    return {steps * (rounds - 1) * step, steps * (last + extra) + std::min<double>(steps, c.stages) * first};
  }
};

const Rates& rates_of(const Config& c, double k) {
  const bool is_on_lines = gemm::a_layout(c) == Layout::k_major && gemm::b_layout(c) == Layout::k_major &&
                           std::fmod(k, gemm::tile_k(c)) == 0 && k > kLongSteps * gemm::tile_k(c);
  return is_on_lines && gemm::element_bytes(c) == 2 ? kRatesOnLines : kRates;
}

/// Whether columns of a tile have factors of their own, or a square begins anywhere among them but in the middle of
/// one; or three warpgroups take turns, which find no products of factors.
bool is_slowly_scaled(const Config& c) {
  if (gemm::b_scale_block(c) == ScaleBlock::of_row) return true;
  if (gemm::consumer_warpgroups(c) == 3) return !gemm::joins_factors(c);
  if (gemm::joins_factors(c) && gemm::blocks(c) == 1) return false;
  return c.tile_n % (kScaleBlock / 2) != 0 && kScaleBlock % c.tile_n != 0;
}

/// Of the tensor cores in a step. A row of wgmma: 64 x tile_n x 32 bytes take tile_n / 2, or as long as its operands
/// do, and one cycle more: of equals the wider ones are faster by up to 1 %.
double tensor_cycles(const Rates& rates, const Config& c) {
  const double wgmma = kWgmmaCycles + std::max(c.tile_n / 2.0, 14 + c.tile_n / 4.0);
  const double shape = gemm::consumer_warpgroups(c) == 3 ? rates.three_factor : 1.0;
  const double tensor = shape * c.tile_m / gemm::kBlockRows * gemm::kStepsOfStage * wgmma;
  const bool is_alone = gemm::is_ping_pong(c) || gemm::consumer_warpgroups(c) == 1;  // within a tile
  if (c.facts.accumulation != Accumulation::promoted)
    return tensor * (!is_alone ? 1 : c.tile_m > gemm::kBlockRows ? kAloneFactor : rates.alone_narrow_factor);
  const double alone = gemm::has_scale_blocks(c) ? kScaledAloneFactor : kPromotedAloneFactor;
  const double promoted = tensor * (is_alone ? alone : kPromotedFactor);
  if (!gemm::has_scale_blocks(c)) return promoted;
  const double one_block = !gemm::joins_factors(c)             ? kScaledOneBlockFactor
                           : gemm::consumer_warpgroups(c) == 3 ? kJoinedThreeFactor
                           : c.tile_n % (kScaleBlock / 2) != 0 ? kJoinedOneBlockFactor * kJoinedCutFactor
                                                               : kJoinedOneBlockFactor;
  const double two_blocks = gemm::joins_factors(c) && !is_alone ? kJoinedTwoBlocksFactor : kScaledFactor;
  const double fast = !is_alone && gemm::blocks(c) == 1 ? one_block : two_blocks;
  const double scaled = promoted * (is_slowly_scaled(c) ? kSlowScaledFactor : fast);
  if (c.facts.gate == Gate::none || gemm::is_ping_pong(c)) return scaled;
  if (c.tile_m > gemm::kBlockRows) return std::max(kScaledStepCycles, scaled);
  return (kScaledChainCycles + kScaledChainShare * tensor) * (is_slowly_scaled(c) ? kSlowScaledChainFactor : 1);
}

/// Of a step's loads beside the copies.
double issue_cycles(const Rates& rates, const Config& c) {
  if (gemm::is_ping_pong(c)) return kIssueCycles + kPingPongIssueCycles;
  return kIssueCycles + (gemm::consumer_warpgroups(c) > 1 ? rates.second_issue_cycles : 0);
}

/// Of a tile's stores.
template <Look kLook>
double store_cycles(const Config& c, double pitch, double used) {
  const double bytes = 1.0 * c.tile_m * gemm::stored_columns_of_d(c) * dtype_bytes(c.facts.d_dtype);
  const double panels = gemm::blocks(c) * gemm::panels_across(c);
  const double written = bytes * used / kWriteBytesPerCycle * by_alignment(pitch, kWriteSplitShare, kWriteSectorShare);
  const bool is_of_three = gemm::joins_factors(c) && gemm::consumer_warpgroups(c) == 3;
  return kTileCycles + (is_of_three ? kJoinedThreeTileCycles : 0) +
         smooth_max<kLook>({bytes / kStoreBytesPerCycle + panels * kPanelCycles, written}, kStepSharpness);
}

/// Of adding up the parts of k: every warpgroup leaves its sums and fetches as many, most from other CTAs, or gets
/// them.
double sum_cycles(const Config& c) {
  if (c.split_k == 1) return 0;
  const double bytes = gemm::blocks(c) * gemm::kBlockRows * c.tile_n * 4.0;
  if (gemm::sends_sums(c)) return kSentSumCycles + bytes * (1 - 1.0 / c.split_k) / kSentBytesPerCycle;
  return kSumCycles + bytes / kLeaveBytesPerCycle + bytes * (1 - 1.0 / c.split_k) / kFetchBytesPerCycle;
}

/// From one tile of a CTA to the next.
template <Look kLook>
double between_tiles(const Config& c, const Steps<kLook>& walk, double steps, double stored, double addend,
                     double summed) {
  double between = stored;
  if (gemm::is_ping_pong(c)) {
    between = kPingPongShare * stored;
    if constexpr (kLook == Look::whole) {
      const double multiplied = steps * walk.cycles(walk.a.valid(), walk.b.valid(), 1);
      between += kPingPongOver * std::max(0.0, stored - multiplied);
    }
    between += addend * addend_share_in_turn(c);
  } else {
    between += addend;
  }
  between *= 1 + kClusterBetweenShare * (gemm::multicast_size(c) - 1);
  return c.split_k > 1 ? between + kRelaunchCycles + summed : between;
}

/// Each round reads its share; of a last round that leaves SMs idle memory is not quite as fast.
Rounds memory_rounds(double bytes, double last_share, double used_last) {
  const double cycles = bytes / kMemoryBytesPerCycle;
  last_share = std::min(1.0, last_share);
  return {cycles * (1 - last_share), cycles * last_share * (1 + kIdleShare * (1 - used_last))};
}

/// The product as the matrix instruction has it, and its tiles in rounds of the clusters that run at the same time.
struct Rounding {
  double m, n, k, l;
  double clusters;  ///< of all rounds: one for each tile of a cluster
  double at_once;   ///< of them
  double rounds;
  double in_last_round;  ///< clusters; of more than a double counts one by one this is any number
  int size;              ///< CTAs of a cluster

  double used() const { return at_once * size / kSms; }  ///< share of the SMs
  double used_last() const { return in_last_round * size / kSms; }
  double used_at_most() const { return std::min(1.0, clusters * size / kSms); }
};

Rounding rounding_of(const Config& c, const Gemm& problem) {
  const bool is_swapped = gemm::is_swapped(c);
  Rounding r{};
  r.m = extent(is_swapped ? problem.n : problem.m, kDefaultExtent);
  r.n = extent(is_swapped ? problem.m : problem.n, kDefaultExtent);
  r.k = extent(problem.k, kDefaultExtent);
  r.l = extent(problem.l, 1);
  r.size = gemm::cluster_size(c);
  const double tile_m = c.tile_m, tile_n = c.tile_n;
  r.clusters = ceil_of(r.m, tile_m * c.cluster_m) * ceil_of(r.n, tile_n * c.cluster_n) * r.l;
  r.at_once = hopper_clusters_at_once(r.size);
  r.rounds = ceil_of(r.clusters, r.at_once);
  r.in_last_round = std::clamp(r.clusters - (r.rounds - 1) * r.at_once, 1.0, r.at_once);
  return r;
}

/// Rows and columns of the tiles of CTAs that run at the same time: as many rows as a group of the raster has.
struct Block {
  double rows, columns;
};

Block block_at_once(const Config& c, const Rounding& r) {
  const bool is_swapped = gemm::is_swapped(c);
  const double tile_m = c.tile_m, tile_n = c.tile_n;
  const double tiles = std::min(r.clusters, r.at_once) * gemm::multicast_size(c);
  const double along = is_swapped ? std::min({ceil_of(r.n, tile_n), tiles, 1.0 * c.raster * c.cluster_n})
                                  : std::min({ceil_of(r.m, tile_m), tiles, 1.0 * c.raster * c.cluster_m});
  const double across = std::max(1.0, tiles / along);
  return {is_swapped ? across : along, is_swapped ? along : across};
}

/// Slots as the model counts them: a ring that is kept short loses nothing by it.
int counted_slots(const Config& c) {
  const int of_slot = gemm::a_slot_bytes(c) + gemm::b_slot_bytes(c);
  return ring_is_short(c) && (c.stages + 1) * of_slot > kShortRingBytes ? gemm::most_stages(c) : c.stages;
}

/// More of a step where CTAs share an operand, for each that is shared, and where few slots lie ready.
double step_factor(const Config& c, double rounds) {
  const int slots = counted_slots(c);
  const double in_step = kClusterShare * (1 + (rounds - 1) * kClusterLaterShare) / rounds;
  const double keeping_step = (c.cluster_m > 1 ? 1 + in_step : 1) * (c.cluster_n > 1 ? 1 + in_step : 1);
  return keeping_step * (1 + kShallowShare / ((slots - 1) * (slots - 1)));
}

/// Whether the L2 keeps the lines of B.
bool keeps_b(const Config& c, const Rounding& r) {
  const double rows_of_clusters =
      gemm::is_swapped(c) ? r.n / (1.0 * c.tile_n * c.cluster_n) : r.m / (1.0 * c.tile_m * c.cluster_m);
  return rows_of_clusters > gemm::most_streamed_rows(c);
}

template <Look kLook>
Steps<kLook> walk_of(const Config& c, const Rounding& r) {
  const double tile_m = c.tile_m, tile_n = c.tile_n, element = gemm::element_bytes(c);
  const bool is_a_mn = gemm::a_layout(c) == Layout::mn_major, is_b_mn = gemm::b_layout(c) == Layout::mn_major;
  const Block block = block_at_once(c, r);
  const auto answered = [&](double askers) { return c.split_k > 1 ? std::pow(askers, kSplitTogether) : askers; };
  const Rates& rates = rates_of(c, r.k);
  return {.rates = rates,
          .a = {tile_m, r.m, 1.0 * c.cluster_n, 1.0 * gemm::a_box_rows(c), pitch_of(is_a_mn, r.m, tile_m, r.k, element),
                is_a_mn, answered(block.columns), rates.behind_cycles},
          .b = {tile_n, r.n, 1.0 * c.cluster_m, 1.0 * gemm::b_box_rows(c), pitch_of(is_b_mn, r.n, tile_n, r.k, element),
                is_b_mn, answered(block.rows), rates.behind_cycles},
          .tensor = tensor_cycles(rates, c),
          .issue = issue_cycles(rates, c),
          .latency = kLatencyCycles / counted_slots(c),
          .factor = step_factor(c, r.rounds),
          .is_split = c.split_k > 1,
          .from_l2 = keeps_b(c, r) ? kKeptFactor : 1};
}

/// Of memory's time with factors of blocks, where k is long: what every CTA loads of 64 rows and more of a comes
/// through the L2 beside the weights, and fewer rows take 64 weights a step, or clusters, longer than 128 in two parts
/// of k. On an H200 clusters that share a took 0.90 to 0.93 of the time of 64 x 7,168 x 16,384 and 18,432, two parts
/// 0.90 to 0.95 of 1 and 8 rows.
double scaled_memory_factor(const Config& c, const Rounding& r) {
  if (!gemm::has_scale_blocks(c) || gemm::is_grouped(c)) return 1;
  const double long_k = std::max(0.0, 1 - kScaledFewSteps / ceil_of(r.k, gemm::tile_k(c)));
  const int rows = gemm::is_swapped(c) ? c.tile_n : c.tile_m, sharing = gemm::is_swapped(c) ? c.cluster_m : c.cluster_n;
  const bool is_narrow = c.tile_m == gemm::kBlockRows && r.used_at_most() > kScaledUsed;
  const bool is_slow = rows >= gemm::kBlockRows
                           ? sharing == 1
                           : gemm::is_swapped(c) && c.split_k == 1 && (is_narrow || gemm::multicast_size(c) > 1);
  return is_slow ? 1 + kScaledMemoryShare * long_k : 1;
}

/// Of few rows that fill their tiles, with factors of blocks: D's rows are columns with a factor each where it is
/// transposed. On an H200 64 x 24,576 x 1,536 took 10.7 us in place of 11.3, 64 x 32,768 x 512 6.3 in place of 6.9.
double few_rows_factor(const Config& c, const Rounding& r) {
  const double rows = gemm::is_swapped(c) ? r.n : r.m;
  if (!gemm::has_scale_blocks(c) || gemm::is_grouped(c) || (rows != 64 && rows != 128)) return 1;
  if (gemm::is_swapped(c)) return kScaledFewTransposed;
  return gemm::is_ping_pong(c) && c.tile_m == gemm::kBlockRows ? kScaledFewInTurn : 1;
}

/// Of the time that all tiles would take as whole ones: of groups whose last tiles are dealt evenly (turns_columns of
/// schedule.cuh).
double share_of_whole_tiles(const Config& c, const Rounding& r) {
  if (!gemm::is_grouped(c) || !gemm::joins_factors(c) || gemm::consumer_warpgroups(c) != 3) return 1;
  const double tiles = ceil_of(r.m, c.tile_m * c.cluster_m), last = r.m - (tiles - 1) * c.tile_m * c.cluster_m;
  const bool is_even = std::fmod(tiles, c.raster) == 0 && last <= gemm::kBlockRows;
  return is_even ? 1 - (1 - kJoinedShortShare) / tiles : 1;
}

template <Look kLook>
GemmCost cost_of(const Config& c, const Gemm& problem) {
  // Of groups l products, each with a share of the rows.
  const Rounding r = rounding_of(c, product_of_group(problem));
  const Steps<kLook> walk = walk_of<kLook>(c, r);
  const double steps = ceil_of(ceil_of(r.k, gemm::tile_k(c)), c.split_k);
  const double d_bytes = dtype_bytes(c.facts.d_dtype), element = gemm::element_bytes(c);
  const double stored = store_cycles<kLook>(c, (gemm::is_swapped(c) ? r.m : r.n) * d_bytes, r.used_at_most());
  const double summed = sum_cycles(c), addend = addend_cycles(c);

  Rounds computed = walk.all(steps, r.rounds, r.used(), r.used_last(), c);
  computed.full += (r.rounds - 1) * between_tiles(c, walk, steps, stored, addend, summed);
  computed.full *= share_of_whole_tiles(c, r);
  const double c_bytes = c.facts.c == Addend::none ? 0 : dtype_bytes(gemm::c_dtype(c));
  const double bytes = ((r.m + r.n) * r.k * element + r.m * r.n * (d_bytes + c_bytes)) * r.l;
  const Rounds memory = memory_rounds(bytes * scaled_memory_factor(c, r), r.in_last_round / r.clusters, r.used_last());
  const double full = r.rounds > 1 ? smooth_max<kLook>({computed.full, memory.full}, kSharpness) : 0;
  const double working = (full + smooth_max<kLook>({computed.last, memory.last}, kSharpness)) * few_rows_factor(c, r);

  GemmCost cost;
  cost.cycles = kLaunchCycles + working + std::min(r.clusters * r.size, kSms) * kCtaCycles +
                std::log2(r.size) * kClusterCycles + stored + addend + summed +
                (gemm::has_scale_blocks(c) ? kScaledPartCycles * std::max(0, c.split_k - 2) : 0);
  cost.rounds = static_cast<long long>(std::min(r.rounds, 9e18));
  cost.is_memory_bound = memory.full + memory.last > computed.full + computed.last;
  cost.tensor_share = r.m * r.n * r.l * r.k * element / (kTensorBytesPerCycle * kSms) / cost.cycles;
  return cost;
}

}  // namespace

GemmCost gemm_cost(const Config& config, const Gemm& problem) { return cost_of<Look::whole>(config, problem); }

double least_gemm_cycles(const Config& config, const Gemm& problem) {
  return cost_of<Look::bound>(config, problem).cycles;
}

double gemm_cost_us(const GemmCost& cost) { return cost.cycles / kHopper.clock_ghz / 1000; }

}  // namespace tessera::gemm

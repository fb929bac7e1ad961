#include "generator/gemm_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/model_device.h"

namespace tessera {

namespace {

using gemm::Config;

constexpr double kSms = kHopper.sms;
constexpr double kLaunchCycles = 7518;          // from one event to the other beside the work
constexpr double kClusterLaunchCycles = 475;    // more where CTAs come in clusters
constexpr double kFirstLoadCycles = 2278;       // from the first copy to the first product
constexpr double kStepCycles = 53.9;            // barriers of a step
constexpr double kClusterFactor = 1.068;        // of a step whose loads are shared: the CTAs keep step
constexpr double kLoneFactor = 1.05;            // of one warpgroup's products: nothing covers its waits
constexpr double kPromotedFactor = 1.136;       // additions that the other warpgroup's products do not cover
constexpr double kPromotedAloneFactor = 1.503;  // where no other warpgroup works on the tile
constexpr double kStoreBytesPerCycle = 22.9;    // of a tile of D, through shared memory
constexpr double kPanelCycles = 115;            // of each of its panels: two barriers of the warpgroup
constexpr double kPingPongShare = 0.292;        // of that time: the rest runs beside the other warpgroup's products
constexpr double kLastShare = 0.362;            // of the last tile's: after all loads, so beside nothing
constexpr double kSplitCycles = 3618;           // barriers of the cluster, and no second tile for its CTAs
constexpr double kFetchBytesPerCycle = 5.5;     // of partial sums
constexpr double kBoxCycles = 34.8;             // of one copy
constexpr double kRowCycles = 1.346;            // of a row that it loads, 128 bytes
constexpr double kSplitLineRows = 1.27;         // as many where a row lies in two lines, in whole sectors
constexpr double kSplitSectorRows = 1.73;       // and where in five sectors
constexpr double kZeroRowCycles = 3.53;         // of a row behind the matrix, which it fills with zeros
constexpr double kPortBytesPerCycle = 68.4;     // into one SM
constexpr double kL2BytesPerCycle = 83.6;       // that the L2 looks up for one SM of all
constexpr double kSplitLineFactor = 1.7;        // of that: rows of 128 bytes that lie in two lines
constexpr double kSplitSectorFactor = 3.48;     // and in five sectors
constexpr double kMemoryBytesPerCycle = 1956;   // all SMs
constexpr double kStreamCycles = 1306;          // until memory delivers at that rate
constexpr double kEvictionCycles = 999;         // what leaves the L2 for a B that stays there
constexpr double kLeastShare = 0.652;           // of the memory's rate that a single SM's loads could ask for
constexpr double kSharpness = 5.7;              // of the maximum of two times that overlap in part
constexpr Hint kDefaultExtent = 4096;

double extent(Hint hint, Hint otherwise) { return static_cast<double>(hint < 0 ? otherwise : std::max<Hint>(hint, 1)); }

double ceil_of(double value, double unit) {
  return static_cast<double>(static_cast<std::int64_t>((value + unit - 1) / unit));
}

/// Which of three, by where rows begin that lie `pitch` bytes apart: on lines, on sectors, on neither.
double by_alignment(double pitch, double lines, double sectors, double neither) {
  const auto bytes = static_cast<std::int64_t>(pitch);
  return bytes % 128 == 0 ? lines : bytes % 32 == 0 ? sectors : neither;
}

/// Clusters that run at the same time. Their CTAs share a GPC of 16 or 18 SMs, so some SMs are left over: with clusters
/// of four an H200 began a second round at the 31st.
double clusters_at_once(int size) {
  if (size == 4) return 30;
  if (size == 8) return 14;
  return std::floor(kSms / size);
}

/// One operand of a step.
struct Operand {
  double rows;    ///< of a tile
  double extent;  ///< of the matrix
  double parts;   ///< CTAs that share it and load a part each
  double box;     ///< rows of a copy
  double pitch;   ///< bytes

  double tiles() const { return ceil_of(extent, rows); }
  double valid() const { return std::min(rows, extent); }        ///< rows of the first tile
  double last() const { return extent - (tiles() - 1) * rows; }  ///< and of the last
  double looked_up(double valid_rows) const {
    return valid_rows / parts * by_alignment(pitch, 1, kSplitLineFactor, kSplitSectorFactor);
  }

  /// Of the copies for a CTA's part of a tile that has so many rows within the matrix. Boxes behind it are left out,
  /// but not where the slots are written for the first time.
  double copy_cycles(double valid_rows, bool is_first) const {
    const double part = rows / parts, own = valid_rows / parts;
    const double boxes = is_first ? part / box : std::max(parts > 1 ? 1.0 : 0.0, ceil_of(own, box));
    return boxes * kBoxCycles + own * by_alignment(pitch, 1, kSplitLineRows, kSplitSectorRows) * kRowCycles +
           (boxes * box - own) * kZeroRowCycles;
  }
};

/// The steps of a tile along K.
struct Steps {
  Operand a, b;
  double tensor = 0;  ///< cycles of the tensor cores in a step
  double used = 0;    ///< share of the SMs
  double factor = 1;

  double cycles(double rows_of_a, double rows_of_b, bool is_first = false) const {
    const double copies = a.copy_cycles(rows_of_a, is_first) + b.copy_cycles(rows_of_b, is_first);
    const double filled = (rows_of_a + rows_of_b) * gemm::kStepBytes / kPortBytesPerCycle;
    // Lines and sectors are the whole L2's, and cost as much as there are SMs that ask.
    const double looked_up =
        (a.looked_up(rows_of_a) + b.looked_up(rows_of_b)) * gemm::kStepBytes * used / kL2BytesPerCycle;
    return std::max({tensor + kStepCycles, copies, filled, looked_up}) * factor;
  }

  /// All steps of the busiest CTA. Tiles at the matrix's edge take longer; who has several tiles has their share.
  double all(double steps, double stages, double rounds, const Config& c) const {
    const double step = cycles(a.valid(), b.valid());
    const auto edge = [&](const Operand& operand, double clusters, double cycles_there) {
      if (clusters <= 1 || operand.last() >= operand.rows) return 0.0;
      return std::max(0.0, cycles_there - step) * (rounds > 1 ? std::ceil(rounds / clusters) : 1);
    };
    const double extra = std::max(edge(a, ceil_of(a.tiles(), c.cluster_m), cycles(a.last(), b.valid())),
                                  edge(b, ceil_of(b.tiles(), c.cluster_n), cycles(a.valid(), b.last())));
    const double first = cycles(a.valid(), b.valid(), true) - step;
    return steps * (rounds * step + extra) + std::min(steps, stages) * first;
  }
};

/// Of the tensor cores in a step. A row of wgmma: 64 x tile_n x 32 bytes take tile_n / 2, or as long as its operands
/// do.
double tensor_cycles(const Config& c) {
  const double wgmma = std::max(c.tile_n / 2.0, 14 + c.tile_n / 4.0);
  double tensor = c.tile_m / gemm::kBlockRows * gemm::kStepsOfStage * wgmma;
  const bool is_alone = gemm::is_ping_pong(c) || gemm::consumer_warpgroups(c) == 1;  // within a tile
  if (c.accumulation == Accumulation::promoted) tensor *= is_alone ? kPromotedAloneFactor : kPromotedFactor;
  return gemm::consumer_warpgroups(c) == 1 ? tensor * kLoneFactor : tensor;
}

}  // namespace

GemmCost gemm_cost(const Config& c, const Gemm& problem) {
  const double m = extent(problem.m, kDefaultExtent), n = extent(problem.n, kDefaultExtent);
  const double k = extent(problem.k, kDefaultExtent), l = extent(problem.l, 1);
  const double tile_m = c.tile_m, tile_n = c.tile_n, element = gemm::element_bytes(c);
  const double steps = ceil_of(ceil_of(k, gemm::tile_k(c)), c.split_k);
  const double clusters = ceil_of(m, tile_m * c.cluster_m) * ceil_of(n, tile_n * c.cluster_n) * l;
  const double rounds = ceil_of(clusters, clusters_at_once(gemm::cluster_size(c)));
  const double used = std::min(1.0, clusters * gemm::cluster_size(c) / kSms);
  const double a_pitch = (c.a_layout == Layout::k_major ? k : m) * element;
  const double b_pitch = (c.b_layout == Layout::k_major ? k : n) * element;
  const Steps walk{.a = {tile_m, m, 1.0 * c.cluster_n, 1.0 * gemm::a_box_rows(c), a_pitch},
                   .b = {tile_n, n, 1.0 * c.cluster_m, 1.0 * gemm::b_box_rows(c), b_pitch},
                   .tensor = tensor_cycles(c),
                   .used = used,
                   .factor = gemm::multicast_size(c) > 1 ? kClusterFactor : 1};

  const double row_bytes = tile_n / c.split_k * dtype_bytes(c.d_dtype);
  const double panels = gemm::blocks(c) * row_bytes / gemm::d_span_bytes(c);
  const double stored = tile_m * row_bytes / kStoreBytesPerCycle + panels * kPanelCycles;
  const bool is_ping_pong = gemm::is_ping_pong(c);
  double fixed = is_ping_pong ? kPingPongShare * stored : stored;
  if (c.split_k > 1) fixed += kSplitCycles + tile_m * tile_n * 4 / kFetchBytesPerCycle;
  const double computed = kFirstLoadCycles + walk.all(steps, c.stages, rounds, c) + (rounds - 1) * fixed;
  const double last = kLastShare * (is_ping_pong ? stored : fixed);

  const double bytes = ((m + n) * k * element + m * n * dtype_bytes(c.d_dtype)) * l;
  const bool is_b_streamed = m <= tile_m * c.cluster_m * gemm::kRowsOfStreamedB;  // see producer.cuh
  const double memory = kFirstLoadCycles + kStreamCycles + (is_b_streamed ? 0 : kEvictionCycles) +
                        bytes / (kMemoryBytesPerCycle * std::min(1.0, kLeastShare + used));
  const double both = std::pow(std::pow(computed, kSharpness) + std::pow(memory, kSharpness), 1 / kSharpness);

  GemmCost cost;
  cost.cycles = kLaunchCycles + (gemm::cluster_size(c) > 1 ? kClusterLaunchCycles : 0) + both + last;
  cost.rounds = static_cast<long long>(rounds);
  cost.is_memory_bound = memory > computed;
  cost.tensor_share = m * n * l * k * gemm::element_bytes(c) / (8192.0 * kSms) / cost.cycles;
  return cost;
}

double gemm_cost_us(const GemmCost& cost) { return cost.cycles / kHopper.clock_ghz / 1000; }

}  // namespace tessera

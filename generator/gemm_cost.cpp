#include "generator/gemm_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/model_device.h"

namespace tessera {

namespace {

using gemm::Config;

constexpr double kSms = kHopper.sms;
constexpr double kLaunchCycles = 7775;         // from one event to the other beside the work
constexpr double kFirstLoadCycles = 2138;      // from the first copy to the first product
constexpr double kStepCycles = 56;             // barriers of a step
constexpr double kClusterFactor = 1.068;       // of a step whose loads are shared: the CTAs keep step
constexpr double kLoneFactor = 1.007;          // of one warpgroup's products: nothing covers its waits
constexpr double kPromotedFactor = 1.143;      // additions that the other warpgroup's products do not cover
constexpr double kPromotedAloneFactor = 1.56;  // where no other warpgroup works on the tile
constexpr double kStoreBytesPerCycle = 23.6;   // of a tile of D, through shared memory
constexpr double kPanelCycles = 133;           // of each of its panels: two barriers of the warpgroup
constexpr double kPingPongShare = 0.275;       // of that time: the rest runs beside the other warpgroup's products
constexpr double kLastShare = 0.41;            // of the last tile's: after all loads, so beside nothing
constexpr double kSplitCycles = 6500;          // barriers of the cluster, and no second tile for its CTAs
constexpr double kFetchBytesPerCycle = 13;     // of partial sums
constexpr double kPortBytesPerCycle = 64.6;    // into one SM
constexpr double kL2BytesPerCycle = 83.4;      // that the L2 looks up for one SM of all
constexpr double kSplitLineFactor = 1.82;      // of that: rows of 128 bytes that lie in two lines
constexpr double kSplitSectorFactor = 2.76;    // and in five sectors
constexpr double kMemoryBytesPerCycle = 1967;  // all SMs
constexpr double kStreamCycles = 1020;         // until memory delivers at that rate
constexpr double kEvictionCycles = 1206;       // what leaves the L2 for a B that stays there
constexpr double kLeastShare = 0.574;          // of the memory's rate that a single SM's loads could ask for
constexpr double kSharpness = 4.73;            // of the maximum of two times that overlap in part
constexpr Hint kDefaultExtent = 4096;

double extent(Hint hint, Hint otherwise) { return static_cast<double>(hint < 0 ? otherwise : std::max<Hint>(hint, 1)); }

/// How much more the L2 has to do for a row of a box, 128 bytes, because of where rows begin: `pitch` bytes apart.
double row_factor(double pitch) {
  const auto bytes = static_cast<std::int64_t>(pitch);
  return bytes % 128 == 0 ? 1 : bytes % 32 == 0 ? kSplitLineFactor : kSplitSectorFactor;
}

double ceil_of(double value, double unit) {
  return static_cast<double>(static_cast<std::int64_t>((value + unit - 1) / unit));
}

}  // namespace

GemmCost gemm_cost(const Config& c, const Gemm& problem) {
  const double m = extent(problem.m, kDefaultExtent), n = extent(problem.n, kDefaultExtent);
  const double k = extent(problem.k, kDefaultExtent), l = extent(problem.l, 1);
  const double tile_m = c.tile_m, tile_n = c.tile_n;
  const double steps = ceil_of(ceil_of(k, gemm::tile_k(c)), c.split_k);

  // One step of a tile. A row of wgmma: 64 x tile_n x 32 bytes take tile_n / 2 cycles, or as long as its operands do.
  const double wgmma = std::max(tile_n / 2, 14 + tile_n / 4);
  double tensor = tile_m / 64 * gemm::kStepsOfStage * wgmma;
  const bool is_ping_pong = c.kernel_schedule == KernelSchedule::ping_pong;
  const bool is_alone = is_ping_pong || gemm::consumer_warpgroups(c) == 1;  // within a tile
  if (c.accumulation == Accumulation::promoted) tensor *= is_alone ? kPromotedAloneFactor : kPromotedFactor;
  if (gemm::consumer_warpgroups(c) == 1) tensor *= kLoneFactor;
  const double element = gemm::element_bytes(c);
  const double rows_of_a = tile_m / c.cluster_n * row_factor((c.a_layout == Layout::k_major ? k : m) * element);
  const double rows_of_b = tile_n / c.cluster_m * row_factor((c.b_layout == Layout::k_major ? k : n) * element);
  const double asked = (tile_m / c.cluster_n + tile_n / c.cluster_m) * gemm::kStepBytes;
  const double clusters = ceil_of(m, tile_m * c.cluster_m) * ceil_of(n, tile_n * c.cluster_n) * l;
  const double used = std::min(1.0, clusters * gemm::cluster_size(c) / kSms);
  // An SM's port takes bytes; lines and sectors are the whole L2's, and cost as much as there are SMs that ask.
  const double looked_up = (rows_of_a + rows_of_b) * gemm::kStepBytes * used;
  const double loads = std::max(asked / kPortBytesPerCycle, looked_up / kL2BytesPerCycle);
  const double step = std::max(tensor + kStepCycles, loads) * (gemm::multicast_size(c) > 1 ? kClusterFactor : 1);

  const double row_bytes = tile_n / c.split_k * dtype_bytes(c.d_dtype);
  const double panels = gemm::blocks(c) * row_bytes / gemm::d_span_bytes(c);
  const double stored = tile_m * row_bytes / kStoreBytesPerCycle + panels * kPanelCycles;
  double fixed = is_ping_pong ? kPingPongShare * stored : stored;
  if (c.split_k > 1) fixed += kSplitCycles + tile_m * tile_n * 4 / kFetchBytesPerCycle;

  const double at_once = static_cast<double>(static_cast<int>(kSms) / gemm::cluster_size(c));
  const double rounds = ceil_of(clusters, at_once);
  const double computed = kFirstLoadCycles + rounds * steps * step + (rounds - 1) * fixed;
  const double last = kLastShare * (is_ping_pong ? stored : fixed);

  const double bytes = ((m + n) * k * element + m * n * dtype_bytes(c.d_dtype)) * l;
  const bool is_b_streamed = m <= tile_m * c.cluster_m * gemm::kRowsOfStreamedB;  // see producer.cuh
  const double memory = kFirstLoadCycles + kStreamCycles + (is_b_streamed ? 0 : kEvictionCycles) +
                        bytes / (kMemoryBytesPerCycle * std::min(1.0, kLeastShare + used));
  const double both = std::pow(std::pow(computed, kSharpness) + std::pow(memory, kSharpness), 1 / kSharpness);

  GemmCost cost;
  cost.cycles = kLaunchCycles + both + last;
  cost.rounds = static_cast<long long>(rounds);
  cost.is_memory_bound = memory > computed;
  cost.tensor_share = m * n * l * k * gemm::element_bytes(c) / (8192.0 * kSms) / cost.cycles;
  return cost;
}

double gemm_cost_us(const GemmCost& cost) { return cost.cycles / kHopper.clock_ghz / 1000; }

}  // namespace tessera

#include "generator/products/gemm_tcgen05_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/model_device.h"

namespace tessera::gemm_tcgen05 {

namespace {

constexpr double kSms = kBlackwell.sms;
// Unless a source is named: found where the choice, and the order of kernels that are near it, agree with the times
// that are predicted for a B200 (11 problems with 10 to 39 kernels each; docs/time.md).
constexpr double kLaunchCycles = 5000;        // a launch
constexpr double kFirstCycles = 6000;         // of a CTA: until its first products
constexpr double kClusterCycles = 1140;       // until CTAs of a cluster have met
constexpr double kSmemBytesPerCycle = 128;    // of one SM
constexpr double kL2BytesOfSm = 91;           // of one SM, at most
constexpr double kSlotCycles = 2160;          // from a slot's release to its next contents
constexpr double kScaleCopyCycles = 48;       // of a tile of scales to Tensor Memory
constexpr double kStoreBytesPerCycle = 24;    // of a tile of D, through shared memory
constexpr double kLoadedColumns = 4;          // of TMEM in registers, 128 lanes: cycles a column, inverse
constexpr double kGateOfColumn = 24;          // of a gate's activation: 128 rows, three of them from the exponent unit
constexpr double kStepCycles = 12;            // barriers of a step that nothing covers, of each pair
constexpr double kSplitCycles = 260;          // barriers of the cluster
constexpr double kDoubledSplitCycles = 1660;  // sums of other CTAs, for each doubling of the parts
constexpr double kSplitTraffic = 1.46;        // of sums that are written and read, beside what the L2 takes
constexpr double kSharpness = 4;              // of the greater one of computing and memory
constexpr Hint kDefaultExtent = 4096;

double extent(Hint hint, Hint otherwise) { return static_cast<double>(hint < 0 ? otherwise : std::max<Hint>(hint, 1)); }
double ceil_of(double value, double unit) { return std::ceil(value / unit); }

// What a CTA asks the L2 for in a step: of what CTAs of its cluster share, its part.
double asked_bytes(const Config& c) {
  double bytes = 0;
  for (const bool is_of_lanes : {true, false}) {
    const int matrices = is_of_lanes ? 1 : gemm_tcgen05::products(c);
    const double parts =
        gemm_tcgen05::scale_parts_of_rows(c, is_of_lanes) * gemm_tcgen05::scale_parts_of_k(c, is_of_lanes);
    bytes += matrices * gemm_tcgen05::loaded_rows(c, is_of_lanes) * gemm_tcgen05::kStepBytes;
    if (gemm_tcgen05::is_scaled(c))
      bytes += matrices * gemm_tcgen05::scale_slot_bytes(c, is_of_lanes ? 1 : gemm_tcgen05::column_blocks(c)) / parts;
  }
  return bytes;
}

// A grid of pairs has one for every two multiprocessors; of larger clusters that walk through tiles it has as many as a
// device with that many multiprocessors is sure to hold.
double clusters_at_once(const Config& c) {
  const int size = gemm_tcgen05::cluster_size(c);
  if (size <= 2 || c.split_k > 1) return std::floor(kSms / size);
  return std::floor(hopper_clusters_at_once(size) * kSms / kHopper.sms);
}

}  // namespace

GemmTcgen05Cost gemm_tcgen05_cost(const Config& c, const Gemm& problem) {
  const double m = extent(problem.m, kDefaultExtent), n = extent(problem.n, kDefaultExtent);
  const double k = extent(problem.k, kDefaultExtent), l = extent(problem.l, 1);
  const double steps = ceil_of(ceil_of(k, gemm_tcgen05::tile_k(c)), c.split_k);
  const double columns = gemm_tcgen05::columns(c), own_rows = gemm_tcgen05::column_rows(c);
  const double products_of_tile = gemm_tcgen05::products(c);

  const double from_smem = (gemm_tcgen05::kLanes + own_rows) * gemm_tcgen05::kChunkBytes / kSmemBytesPerCycle;
  const double tensor = products_of_tile * gemm_tcgen05::kChunks * std::max(columns / 2, from_smem);
  const double scale_copies =
      gemm_tcgen05::is_scaled(c)
          ? gemm_tcgen05::scale_tiles(c) * (1 + products_of_tile * gemm_tcgen05::column_blocks(c)) * kScaleCopyCycles
          : 0;

  const double doublings = std::log2(gemm_tcgen05::cluster_size(c));
  const double stored = gemm_tcgen05::kLanes * columns / c.split_k * dtype_bytes(c.facts.d_dtype) / kStoreBytesPerCycle;
  double store = stored + columns * gemm_tcgen05::kLanes / 32 / kLoadedColumns;
  if (c.facts.gate != Gate::none) store += columns * kGateOfColumn / c.split_k;

  // Of contiguous groups m counts all rows; each group ends with half a tile on average.
  const bool is_contiguous = c.facts.grouping == Grouping::contiguous;
  const double tiles_m = ceil_of(m, c.tile_m * c.cluster_m);
  const double clusters = (is_contiguous ? tiles_m + l / 2 : tiles_m * l) * ceil_of(n, c.tile_n * c.cluster_n);
  const double at_once = clusters_at_once(c);
  const double rounds = ceil_of(clusters, at_once);
  const double l2 =
      std::min(kL2BytesOfSm, kBlackwellL2Bytes / (std::min(clusters, at_once) * gemm_tcgen05::cluster_size(c)));
  const double step = std::max(tensor + gemm_tcgen05::pairs(c) * kStepCycles, scale_copies);
  const double loaded_step = std::max(asked_bytes(c) / l2, kSlotCycles / c.stages);
  const double products = steps * std::max(step, loaded_step);
  const double joined = c.split_k > 1 ? kSplitCycles + kDoubledSplitCycles * doublings : 0;
  if (c.split_k > 1) store += joined + kSplitTraffic * gemm_tcgen05::kLanes * columns * 8 / l2;
  // With one accumulator a tile's products wait until the last one's sums are in registers; its first slots fill.
  const double ahead = std::min(store, c.stages * loaded_step);
  const double next =
      c.accumulators == 2 ? std::max(products, store) : store + std::max(steps * step, steps * loaded_step - ahead);
  const double met = c.split_k == 1 && doublings > 0 ? kClusterCycles : 0;
  const double computed = kFirstCycles + met + products + store + (rounds - 1) * next;

  const double bits_a = operand_bits(c.facts.a_type), bits_b = operand_bits(c.facts.b_type);
  const double all_m = is_contiguous ? m : m * l;
  const double bytes =
      (all_m * bits_a + products_of_tile * n * l * bits_b) * k / 8 + all_m * n * dtype_bytes(c.facts.d_dtype);
  // Few CTAs cannot ask for all that memory delivers; with their rings half of them can. The last tile leaves when its
  // bytes have come.
  const double used = std::min(1.0, 2 * clusters * gemm_tcgen05::cluster_size(c) / kSms);
  const double memory = bytes / (kBlackwellMemoryBytes * std::max(used, 1 / kSms)) + store + joined;

  GemmTcgen05Cost cost;
  cost.cycles = kLaunchCycles + std::pow(std::pow(computed, kSharpness) + std::pow(memory, kSharpness), 1 / kSharpness);
  cost.rounds = static_cast<long long>(rounds);
  cost.is_memory_bound = memory > computed;
  const double macs_per_cycle = gemm_tcgen05::kLanes * 2 * gemm_tcgen05::chunk_k(c) * kSms;
  cost.tensor_share = products_of_tile * m * n * k * l / macs_per_cycle / cost.cycles;
  return cost;
}

double gemm_tcgen05_cost_us(const GemmTcgen05Cost& cost) { return cost.cycles / kBlackwell.clock_ghz / 1000; }

}  // namespace tessera::gemm_tcgen05

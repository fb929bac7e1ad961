#include "generator/products/gemm_tcgen05_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/model_device.h"

namespace tessera::gemm_tcgen05 {

namespace {

constexpr double kSms = kBlackwell.sms;
constexpr double kLaunchCycles = 5000;         // a launch, the first copy, the last store: an estimate
constexpr double kSmemBytesPerCycle = 128;     // of one SM
constexpr double kL2BytesPerCycle = 64;        // of one SM
constexpr double kMemoryBytesPerCycle = 4300;  // all SMs
constexpr double kStoreBytesPerCycle = 32;     // of a tile of D, through shared memory
constexpr double kLoadedColumns = 8;           // of TMEM in registers, 128 lanes: cycles a column, inverse
constexpr double kStepCycles = 24;             // barriers of a step that nothing covers
constexpr double kSplitCycles = 4000;          // barriers of the cluster, and no second tile for its CTAs
constexpr Hint kDefaultExtent = 4096;

double extent(Hint hint, Hint otherwise) { return static_cast<double>(hint < 0 ? otherwise : std::max<Hint>(hint, 1)); }
double ceil_of(double value, double unit) { return std::ceil(value / unit); }

}  // namespace

GemmTcgen05Cost gemm_tcgen05_cost(const Config& c, const Gemm& problem) {
  const double m = extent(problem.m, kDefaultExtent), n = extent(problem.n, kDefaultExtent);
  const double k = extent(problem.k, kDefaultExtent), l = extent(problem.l, 1);
  const double steps = ceil_of(ceil_of(k, gemm_tcgen05::tile_k(c)), c.split_k);
  const double columns = gemm_tcgen05::columns(c), own_rows = gemm_tcgen05::column_rows(c);
  const double products_of_tile = gemm_tcgen05::products(c);

  const double from_smem = (gemm_tcgen05::kLanes + own_rows) * gemm_tcgen05::kChunkBytes / kSmemBytesPerCycle;
  const double tensor = products_of_tile * gemm_tcgen05::kChunks * std::max(columns / 2, from_smem);
  const double asked =
      (gemm_tcgen05::kLanes + products_of_tile * own_rows) * gemm_tcgen05::kStepBytes +
      gemm_tcgen05::scale_slot_bytes(c, 1 + gemm_tcgen05::products(c) * gemm_tcgen05::column_blocks(c));
  const double products = steps * std::max(tensor + kStepCycles, asked / kL2BytesPerCycle);

  const double stored = gemm_tcgen05::kLanes * columns / c.split_k * dtype_bytes(c.facts.d_dtype) / kStoreBytesPerCycle;
  double store = stored + columns * gemm_tcgen05::kLanes / 32 / kLoadedColumns;
  if (c.split_k > 1) store += kSplitCycles + gemm_tcgen05::kLanes * columns * 8 / kL2BytesPerCycle;

  // Of contiguous groups m counts all rows; each group ends with half a tile on average.
  const bool is_contiguous = c.facts.grouping == Grouping::contiguous;
  const double tiles_m = ceil_of(m, c.tile_m * c.cluster_m);
  const double clusters = (is_contiguous ? tiles_m + l / 2 : tiles_m * l) * ceil_of(n, c.tile_n * c.cluster_n);
  const double at_once = std::floor(kSms / gemm_tcgen05::cluster_size(c));
  const double rounds = ceil_of(clusters, at_once);
  const double tile = c.accumulators == 2 ? std::max(products, store) : products + store;
  const double computed = rounds * tile + (c.accumulators == 2 ? std::min(products, store) : 0);

  const double bits_a = operand_bits(c.facts.a_type), bits_b = operand_bits(c.facts.b_type);
  const double all_m = is_contiguous ? m : m * l;
  const double bytes =
      (all_m * bits_a + products_of_tile * n * l * bits_b) * k / 8 + all_m * n * dtype_bytes(c.facts.d_dtype);
  // Few CTAs cannot ask for all that memory delivers.
  const double used = std::min(1.0, clusters * gemm_tcgen05::cluster_size(c) / kSms);
  const double memory = bytes / (kMemoryBytesPerCycle * std::max(used, 1 / kSms));

  GemmTcgen05Cost cost;
  cost.cycles = kLaunchCycles + std::max(computed, memory);
  cost.rounds = static_cast<long long>(rounds);
  cost.is_memory_bound = memory > computed;
  const double macs_per_cycle = gemm_tcgen05::kLanes * 2 * gemm_tcgen05::chunk_k(c) * kSms;
  cost.tensor_share = products_of_tile * m * n * k * l / macs_per_cycle / cost.cycles;
  return cost;
}

double gemm_tcgen05_cost_us(const GemmTcgen05Cost& cost) { return cost.cycles / kBlackwell.clock_ghz / 1000; }

}  // namespace tessera::gemm_tcgen05

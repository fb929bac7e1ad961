#include "generator/products/gemm_mma_cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "generator/model_device.h"

namespace tessera::gemm_mma {

namespace {

constexpr double kSlotCycles = 1500;       // from a slot's release to its next contents, out of the L2
constexpr double kBusySlotCycles = 3000;   // out of memory that is read as fast as it can be: fitted on an H200
constexpr Hint kFewRows = 64;              // with which b comes so on an H200, into all slots but the one that is read
constexpr double kPortBytesPerCycle = 64;  // that one multiprocessor receives
constexpr double kSharpness = 4;           // of the maximum of what a step overlaps in part, fitted on an H200
// And as steps of three and four slots are predicted, alone, within 8 %; two slots alone come out half as long again.
constexpr double kPredictedSharpness = 8;
constexpr double kStepCycles = 40;          // barriers of a step, which another warp of the same scheduler covers
constexpr double kAloneStepCycles = 120;    // and where there is no other
constexpr double kTileCycles = 1000;        // first slot, walk, last products
constexpr double kClusterCycles = 1500;     // two barriers of a cluster, and the way to another CTA's memory
constexpr double kStartCycles = 2500;       // of a CTA that is not persistent: barriers, maps, a ring that is empty
constexpr double kFetchBytesPerCycle = 16;  // of partial sums, one multiprocessor
constexpr double kStoreBytesPerCycle = 32;
constexpr double kLaunchCycles = 5000;
constexpr double kLesserShare = 0.1;  // of what the greater of computing and memory does not cover
constexpr Hint kDefaultExtent = 4096;

double extent(Hint hint, Hint otherwise) { return static_cast<double>(hint < 0 ? otherwise : std::max<Hint>(hint, 1)); }
double ceil_of(double value, double unit) { return std::ceil(value / unit); }

double factor_of(const MmaDevice& rates, const Config& c) {
  if (gemm_mma::element_bits(c) == 16) return 1;
  if (gemm_mma::element_bits(c) == 4) return rates.four_bit;
  if (gemm_mma::is_scaled(c)) return rates.mx8;
  return gemm_mma::is_integer(c) ? rates.int8 : rates.fp8;
}

double bytes_of_d(const Config& c) {
  return gemm_mma::is_quantized(c) ? value_bits(block_format(c.facts.d_format)) / 8.0 : dtype_bytes(c.facts.d_dtype);
}

double smooth_max(double sharpness, std::initializer_list<double> values) {
  double sum = 0;
  for (const double value : values) sum += std::pow(value, sharpness);
  return std::pow(sum, 1 / sharpness);
}

/// A step's part of what passes from a slot's release to its next contents: the other slots are under way meanwhile.
double slot_cycles(const Config& c, const Gemm& problem, const MmaDevice& rates, double l2_cycles) {
  if (rates.is_predicted) return (kSlotCycles + l2_cycles) / (c.stages - 1);
  const bool has_few_rows = problem.m >= 0 && problem.m <= kFewRows;
  return has_few_rows ? kBusySlotCycles / (c.stages - 1) : kSlotCycles / c.stages;
}

}  // namespace

GemmMmaCost gemm_mma_cost(const Config& c, const Gemm& problem) {
  return gemm_mma_cost(c, problem, mma_device_of(problem.arch));
}

GemmMmaCost gemm_mma_cost(const Config& c, const Gemm& problem, const MmaDevice& rates) {
  const bool is_swapped = gemm_mma::is_swapped(c);
  const double m = extent(is_swapped ? problem.n : problem.m, kDefaultExtent),
               n = extent(is_swapped ? problem.m : problem.n, kDefaultExtent);
  const double k = extent(problem.k, kDefaultExtent), l = extent(problem.l, 1);
  const double tile_m = c.tile_m, tile_n = c.tile_n;

  const double products = gemm_mma::products(c);
  const double slot_bytes =
      gemm_mma::a_slot_bytes(c) + gemm_mma::b_slot_bytes(c) + gemm_mma::sfa_slot_bytes(c) + gemm_mma::sfb_slot_bytes(c);
  const double fetched = 1.0 * gemm_mma::consumer_warps(c) * (gemm_mma::warp_m(c) + gemm_mma::warp_n(c)) *
                         gemm_mma::kStepBytes;  // by ldmatrix
  const double products_per_cycle = factor_of(rates, c) * rates.products;
  // A warp has the tensor core of its scheduler, of four.
  const double at_work = rates.is_predicted ? std::min(1.0, gemm_mma::consumer_warps(c) / 4.0) : 1;
  const double tensor = tile_m * gemm_mma::sum_columns(c) * gemm_mma::tile_k(c) / (products_per_cycle * at_work);
  const double parts = c.split_k;
  // Masked groups are taken for full, contiguous ones for as long as each other: a tile more of each is not.
  const bool is_contiguous = c.facts.grouping == Grouping::contiguous;
  const double tiles = ceil_of(is_contiguous ? m / l : m, tile_m) * ceil_of(n, tile_n) * l;
  const double rounds = ceil_of(tiles, std::floor(rates.device.sms / parts));
  const double rows = is_contiguous ? m : m * l;
  const double a_bytes = operand_bits(gemm_mma::a_type(c)) / 8.0, b_bytes = operand_bits(gemm_mma::b_type(c)) / 8.0;
  const double bytes = (rows * a_bytes + products * n * l * b_bytes) * k +
                       rows * n * bytes_of_d(c) / (c.facts.gate == Gate::interleaved ? 2 : 1);
  // A quarter of the multiprocessors keeps the memory busy as it is predicted (48 CTAs of 170: 30.1 us of f16 1 x 3,072
  // x 7,168, 30.5 with k in two parts); fewer are not trusted to.
  const double columns = is_swapped ? ceil_of(m, tile_m) : ceil_of(n, tile_n);
  const double asking = rates.is_predicted ? std::min(1.0, 4 * columns * l * parts / rates.device.sms) : 1;
  const double memory = bytes / (rates.memory_bytes * asking);

  // The L2's rate is shared by the CTAs that are there in the mean of all rounds; one multiprocessor takes so much at
  // most.
  const double there = std::min(rates.device.sms, tiles * parts / rounds);
  const double l2_rate = std::min(kPortBytesPerCycle, rates.l2_bytes * rates.device.sms / there);
  const double steps = ceil_of(ceil_of(k, gemm_mma::tile_k(c)), parts);
  const bool is_alone = gemm_mma::consumer_warps(c) <= 4 && !rates.is_predicted;
  const double step = (is_alone ? kAloneStepCycles : kStepCycles) +
                      smooth_max(rates.is_predicted ? kPredictedSharpness : kSharpness,
                                 {tensor, (slot_bytes + fetched) / kMmaSmemBytesPerCycle, slot_bytes / l2_rate,
                                  slot_cycles(c, problem, rates, slot_bytes / l2_rate)});
  const double stored = tile_m * gemm_mma::columns_of_d(c, c.tile_n) * bytes_of_d(c) / parts / kStoreBytesPerCycle;
  // Each CTA writes its sums, and fetches its share of everyone's: as many bytes again.
  const double added = c.split_k == 1 ? 0
                                      : kStartCycles + kClusterCycles +
                                            tile_m * gemm_mma::sum_columns(c) * 4 *
                                                (1 / kMmaSmemBytesPerCycle + 1 / kFetchBytesPerCycle);
  // What parts add up comes after the last bytes: memory does not hide it.
  const double after = rates.is_predicted ? added : 0;
  const double computed = rounds * (steps * step + stored + added + kTileCycles) - after;

  GemmMmaCost cost;
  cost.cycles = kLaunchCycles + std::max(computed, memory) + kLesserShare * std::min(computed, memory) + after;
  cost.us = cost.cycles / rates.device.clock_ghz / 1000;
  cost.rounds = static_cast<long long>(std::min(rounds, 9e18));
  // Instructions of a step: products of 16 rows, 8 columns and 32 bytes of k, and ldmatrix of 512 bytes.
  const double instructions = tile_m * gemm_mma::sum_columns(c) * gemm_mma::kStepBytes / (16 * 8 * 32) + fetched / 512;
  const double smem = (slot_bytes + fetched) / kMmaSmemBytesPerCycle, l2 = slot_bytes / rates.l2_bytes;
  const double issue = instructions * 32 / kMmaIssuePerCycle, all = tiles * steps * parts;
  cost.work = {all * tensor, 0, all * smem, all * issue, all * l2, bytes};
  cost.tensor_share = rows * n * products * k / (products_per_cycle * rates.device.sms) / cost.cycles;
  return cost;
}

}  // namespace tessera::gemm_mma

#include "generator/products/gemv_cost.h"

#include <algorithm>
#include <cmath>

namespace tessera::gemv {

namespace {

/// Of an element of the matrix: instructions of a lane, without moves; those for the vector, which every CTA converts
/// for its rows; bytes of shared memory for a row of a warp. Counted in the emulator over 256 rows of 8,192 columns
/// with 8 to 32 rows of a CTA: 4.4 to 6.0 instructions of 4-bit matrices, 8.4 to 11.4 of 8-bit ones, within 5 %. The
/// assembler may need fewer.
struct Counted {
  double issue, issue_of_vector, smem;
};
constexpr Counted kHalves{3.8, 17.8, 5.5}, kFloats{7.8, 29, 9.6};
constexpr double kStartCycles = 5000;
constexpr double kWarpsOfSm = 17;   // below, too few loads are in flight for memory's rate
constexpr double kUncovered = 0.1;  // of what the greater of computing and memory does not cover
constexpr Hint kUsualExtent = 4096;

double size_of(Hint hint, Hint usual) { return static_cast<double>(hint < 0 ? usual : std::max<Hint>(hint, 1)); }
double bytes_of(BlockFormat format) { return value_bits(format) / 8.0 + 1.0 / block_elements(format); }

}  // namespace

GemvCost gemv_cost(const gemv::Config& c, const Gemv& p, const MmaDevice& device) {
  const double m = size_of(p.m, kUsualExtent), k = size_of(p.k, kUsualExtent), l = size_of(p.l, 1);
  const Counted& counted = gemv::products(c) == gemv::Products::floats ? kFloats : kHalves;
  const double elements = m * k * l, ctas = std::ceil(m / gemv::rows_of_cta(c)) * l;

  GemvCost cost;
  cost.work.issue = (elements * counted.issue + ctas * k * counted.issue_of_vector) / kMmaIssuePerCycle;
  cost.work.smem = elements * counted.smem / c.warp_rows / kMmaSmemBytesPerCycle;
  const double of_vectors = ctas * k * bytes_of(c.b_format);  // out of the L2, all but the first time
  cost.work.l2 = (elements * bytes_of(c.format) + of_vectors) / device.l2_bytes;
  cost.work.memory_bytes = elements * bytes_of(c.format) + l * (k * bytes_of(c.b_format) + m * dtype_bytes(c.dtype));

  // Multiprocessors without a CTA are idle, and with few warps memory waits for requests.
  const double sms = device.device.sms, busy = std::min(ctas, sms);
  const double fill = std::min(1.0, ctas * gemv::kWarps / (sms * kWarpsOfSm));
  const double computed = std::max({cost.work.issue, cost.work.smem, cost.work.l2}) / busy;
  const double memory = cost.work.memory_bytes / device.memory_bytes / fill;
  cost.us = (kStartCycles + std::max(computed, memory) + kUncovered * std::min(computed, memory)) /
            device.device.clock_ghz / 1000;
  return cost;
}

}  // namespace tessera::gemv

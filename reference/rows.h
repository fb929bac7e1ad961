// Row operators in float64, and how wrong a right one may be.
//
// Each column is carried with an error that it may have: u = 2^-24, and v +- e through every part,
//   residual     e' = e + u |v'|                                    (one sum)
//   factor       e' = e |f| + u |v'|
//   combine      n products and sums: (n + 1) u of the magnitudes' sum
//   compress     of a token the share errs by E = 2 u (|score + ape| of it and of the largest) + 4 u times their
//   distance
//                + 2^-21 and 2 u for each time that sums are scaled down (tokens / 4 + 2 at most) + (tokens + 2) u; the
//                sum of share |v| (E + the mean E)
//   dequant      exact; u of itself for fp32 scales, 2 u with a global scale
//   gate         silu: e' = 16 u |silu(g) up|; gelu by erf: 8 u |g up|; by tanh: (4.1e-6 + 8 u) |g up|; relu: u
//                gpt_oss: as silu, of 1.702 g and up + 1, and 2 u
//   rmsnorm      the sum of squares errs by kAdds u and by 2 sum |v| e; its root by half of it and 2^-22; 3 u for the
//                products: e' = |v'| that + |inverse weight| e
//   layernorm    the mean errs by kAdds u of the mean magnitude and the mean e; then as rmsnorm, and u of the sum
//   rope         sine and cosine err by 2^-20 (sin.approx.f32 and the angle's rounding; position * frequency itself is
//                exact to 2^-48 of a turn times the position): e' = 2^-20 (|a| + |b|) + |cos| e_a + |sin| e_b, and 3 u
//                of both products; of a table the last alone
//   hadamard     e' = (log2(block) + 2) u (sum |v|) / root(block) + (sum e) / root(block); of zeros any sign
//   mhc_pre,     each product and sum rounds once: 6 u of the magnitudes' sum; errors of the streams are carried to
//   mhc_post     their mix
//   mhc_mix      a coefficient before its sigmoid or exponent errs by 2^-21 of x's part and 2 u of itself. Sinkhorn's
//                steps are maps of the factors of rows and columns that do not stretch distances of their logarithms:
//                each adds what it rounds (8 u) and the error of the matrix, at both factors
//   mhc_pre of a product   n parts' sums err by n u of their magnitudes' sum, then as mhc_mix, and the mix as mhc_pre,
//                whose coefficients err
//   mhc_post with a product   of the streams that were stored, by parts of columns: as mhc_product, k = 512
//   softcap      8 u of the cap, and e
//   sigmoid, sqrt_softplus   16 u of the result times max(1, |v|), and e; of the root what 2^-149 of e^-|v| makes of it
//   softmax      p errs by 2 e and |v - largest| 3 u in the exponent, kAdds u in the sum, and 2^-21
// kAdds is what a thread adds one after the other (96, or a 1,024th of the row), a warp's shuffles (5) and a row's
// warps (32), at most.
//
// What a sink writes is a monotone function of v (and of the scale that was written), so the element must lie between
// what v - e and v + e become; a block's scale between what the least and the largest possible magnitude give. Where
// e = 0 there is one result, to the bit. A NaN must come out as the format's NaN.
//   cache        as scaled_8; scales that are powers of two are at least 1e-4; the byte behind mla_584's scales is 0,
//                and what lies between tokens keeps its bytes
//   scaled_8     scale = max(largest magnitude, 1e-4) / 448, 3 u; as a power of two the least that is not below that,
//                exact; values are divided by it: 8 u
//   added        n rows in any order: e of each, u of y's type of each of 16 bits, and of each sum of the magnitudes
// Rows that no slot names keep their bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/spec/row_chain.h"

namespace tessera::reference {

struct RowsRun {
  RowChain chain;  ///< with its sinks
  DType dtype = DType::bf16;
  std::int64_t columns = 0;
  double eps = 1e-6;
  std::int64_t rows = 0, x_rows = 0, heads = 1, placed_rows = 0;
  std::int64_t pages = 0, page_size = 64;  ///< of caches
  std::int64_t table_rows = 0;             ///< of rope's table
  std::int64_t parts = 1;                  ///< of products that mhc_pre adds
};

/// By the names of the launch's buffers; dense. Indices and positions are within and outside of their ranges; slots
/// differ, and some rows have none.
std::map<std::string, Tensor> rows_inputs(const RowsRun& run, Fill kind, std::uint64_t seed);

/// base^(-2 pair / columns), stretched as the step says; radians per position.
double rope_frequency(const RowStep& step, std::int64_t columns, std::int64_t pair);

/// What its cosines and sines are multiplied with: the magnitude, and 1 / the magnitude where it is an inverse.
double rope_magnitude(const RowStep& step);

/// The row behind step `count` of the chain, and the errors that it may have.
struct RowValues {
  std::vector<double> v, e;
  std::vector<double> streams{}, stream_errors{};  ///< that mhc_post stores
  std::vector<double> mix{}, mix_errors{};         ///< that mhc_pre stores, of a product
};
RowValues rows_reference(const RowsRun& run, const std::map<std::string, Tensor>& in, std::int64_t row, int count);

/// Every element of every output is compared; the main output is the first sink. Throws Error{usage} for outputs that
/// are missing.
Comparison check_rows(const RowsRun& run, const std::map<std::string, Tensor>& in,
                      const std::map<std::string, Tensor>& out, int jobs = 0);

}  // namespace tessera::reference

// Attention of NVFP4 operands in float64, with P quantised as the kernel does, and how wrong a right kernel may be.
//
// Operands are what attention_quantize wrote: their values are exact. P is quantised in two levels (spec/fmha_nvfp4.h)
// relative to the largest score that a row has seen up to a step of tile_n keys; so the reference goes over keys in the
// same steps. It knows each exponential but for a small relative error, and so which codes it may become: one, mostly,
// and where it lies at a rounding's boundary, two. What another code would change counts into the bound.
//
// Notation: u = 2^-24, f = |scale| log2(e), m the largest score so far, x = f (s - m) + log2(2688).
//  1. Scores. Each instruction adds four sums of 16 products, exact ones, and the accumulator, cut to 25 fraction bits
//     or more relative to the largest, and cuts the sum to 23: less than (5 * 2^-25 + 2^-23) M, M <= |q'| |k'| +
//     |delta_s|. head_dim / 64 of them: delta_s' each, of s and of m.
//  2. The exponent: f errs by 2 u of |s - m|; m f rounds by u, as its difference to log2(2688) does; so does the fused
//     product: delta_x = f (delta' of s and of m) + u (2 f |s - m| + 2 f |m| + 24 + |x|).
//  3. ex2.approx: 2.1 * 2^-23. So p errs by eps_p = exp(ln 2 delta_x) - 1 + 2.1 * 2^-23, relative; below 2^-126 it is
//  0.
//  4. Scales: largest of 16, eps_p and two roundings; values: p / scale, eps_p, an approximate reciprocal, 2^-23, and a
//     rounding. Codes at both ends of these intervals are tried.
//  5. Sums of O: each instruction like 1, of 64 keys, with M the sum of |P v| so far. A rescaling is one product and
//  one
//     ex2, of a difference that rounds twice: eps_r = T (2.1 * 2^-23 + u + 2 ln 2 u f |change|) for T changes.
//  6. The row's sum: fp32, a thread has a quarter of the keys: (n / 4 + T + 8) u, eps_p of its terms, eps_r.
//  7. One reciprocal and one product: 2^-23 + u; the output's rounding. A rescaling below 2^-126 flushes, and so does a
//     product: 2^-126 (1 + sum |v|), since P is 2,688 at most and a row's sum is not less than that.
//  8. Altered scores. row_shift is added before a cap: u of the sum. The cap's own error: 12 u of its tanh
//     (fmha_bound.h), which has no slope above 1. What distance subtracts: 4 u of itself; of both, 2 u of the score's
//     part and u of the difference. A factor of 1 or of the cap takes the place of f.
//  9. Where maxima leave the kernel (parts, row_max, a sink's share) R = f m + |scale| log2(e) row_shift: err_R = f
//     delta' + u (3 f |m| + 4 |of row_shift| + |R|). A sink adds 2^(sink log2(e) - R): 2 u of its product, err_R and u
//     of the difference, and ex2. Above 2^125 of it its reciprocal flushes, and o is 0.
//  10. Parts: as rows of their own, relative to their own maxima, divided by 2,688 (2 u). Each is multiplied by
//      ex2(R_i - R): err_R of both, u of the difference, ex2, a product, and as many additions as there are parts.
// LSE errs by what the sum errs by, relatively, lg2.approx (2.8e-7, of log2), eight roundings of its parts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/comparison.h"
#include "reference/fmha.h"
#include "reference/tensor.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::reference {

/// As spec/fmha_nvfp4.h has them.
struct Nvfp4Inputs {
  TensorView q, k, v, delta_s, row_shift;
};
struct Nvfp4Outputs {
  TensorView o;  ///< [batch, seqlen_q, heads_q, head_dim]
  std::optional<TensorView> lse{}, row_max{}, row_sum{};
};

struct Nvfp4Check {
  Mask mask = Mask::none;
  std::int64_t window_size_left = -1, window_size_right = -1;  ///< -1: no bound
  std::int64_t attention_chunk = 0;                            ///< 0: there are no chunks
  std::int64_t seqlen_k = 0;
  double softmax_scale = 1;
  double softcap = 0;                                ///< 0: none
  std::optional<TensorView> sink{}, alibi_slopes{};  ///< [heads_q]
  std::optional<TensorView> tree_mask{};             ///< [batch, seqlen_q, words]
  Output output = Output::normalized;
  std::int64_t num_splits = 0;     ///< parts of each tile's keys, which are merged; 0: not split
  std::int64_t split_size = 0;     ///< keys of a part; 0: a share of all
  int tile_m = 128, tile_n = 128;  ///< of the kernel: edges to sample, steps over keys
  std::int64_t max_multiply_adds = std::int64_t{1} << 31;  ///< more than that is sampled
  std::uint64_t seed = 1;
  int jobs = 0;
};

/// Rows of O of one head in float64, with P quantised as the kernel does: [row][head_dim].
std::vector<std::vector<double>> fmha_nvfp4_rows(const Nvfp4Inputs& inputs, const FmhaSizes& sizes,
                                                 const Nvfp4Check& check, std::int64_t batch, std::int64_t head,
                                                 std::span<const std::int64_t> rows);

Comparison check_fmha_nvfp4(const Nvfp4Inputs& inputs, const Nvfp4Outputs& outputs, const Nvfp4Check& check);

}  // namespace tessera::reference

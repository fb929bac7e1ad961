// How wrong a right attention kernel may be: the largest error of one output row, derived step by step.
//
// Notation: u = 2^-24 (fp32 to nearest), n keys visible, d the head dimension, T = ceil(seqlen_k / tile_n) steps over
// the keys, p_j = exp(s_j - m), l = sum p_j, all in real arithmetic; A = sum p_j |v_j| / l, W = sum |v_j|.
//
//  1. Scores. Tensor cores add groups of 16 products and the accumulator: each of the 17 terms is cut to 25 fraction
//     bits relative to the largest one, the sum cut to 23. A group errs by less than (17 * 2^-25 + 2^-23) M
//     = 5.25 * 2^-23 M, M >= every partial sum. With M <= |q| |k| (Cauchy-Schwarz) and ceil(d / 16) groups:
//     delta_s = |scale| ceil(d / 16) 5.25 * 2^-23 |q| max |k|. Two halves of a sum that are added at the end (CTA
//     pairs) err by less: each has half of the groups, its own M is no larger, and the addition costs u M.
//  2. Exponent x = s log2(e) scale - m: two roundings of the folded scale (2u each on |x| <= 2Z), one of the product
//     with m, one of the fused multiply-add, two more where the scale cannot be folded: delta_x <= 9 Z u, with
//     Z = log2(e) |scale| max |s|.
//  3. ex2.approx: 2.1 units in the last place (measured 2.055 and 2.103) = 2.1 * 2^-23; results below 2^-126 flush.
//     So p errs by eps_p = exp(delta_s + ln 2 delta_x) - 1 + 2.1 * 2^-23, relative.
//  4. A rescaling multiplies what was summed by ex2 of a difference of two maxima: one rounding of the difference
//     (2 Z u in the exponent), one ex2, one product; at most T of them, and where parts of the keys are merged one more
//     for each part but the first, which count as steps: eps_r = T (2.1 * 2^-23 + u + 2 ln 2 Z u).
//  5. P is rounded to the 16-bit type, f16 where keys have 8 bits (but on tcgen05 where they are values too): u_P =
//  2^-8
//     (bf16) or 2^-11 (f16), h = half a subnormal step for tiny ones (2^-25 for f16). Weighted by p_j v_j / l:
//     u_P A + h W / l. References are at most the row's maximum, so that of numbers relative to it h is no more.
//     Where f16 stands for all operands (sm_90a, values that are 8-bit keys) a row of bf16 q is brought to 2^14 before:
//     a number loses 2^-39 of the largest at most, together sqrt(d) 2^-39 |q| |k|, a 2^-19th of delta_s: in the 1 %.
//  6. O accumulates on tensor cores like the scores: eps_a = (ceil(n / 16) + 1) 5.25 * 2^-23, of A.
//  7. The row sum adds positive numbers in fp32: eps_l = (n + T + 8) u, any order.
//  8. One reciprocal (1 ulp) and one product: eps_d = 2^-23 + u; a descale of V is one product more, and one of K one
//     rounding more of the folded scale, 2 Z u in delta_x. Output rounding u_o, half a subnormal step h_o. A factor
//     below 2^-126 flushes, that of a row whose sink is all of its sum or of a part that is merged, and so does a
//     product: 2^-126 (1 + P W), where weights are summed as P p_j at most: P = 1, or 448, the largest e4m3.
//
// Normalised element: A (u_P + eps_p + eps_r + eps_a) + h W / l + |o| (eps_p + eps_r + eps_l + eps_d), then the
// output's rounding; 1 % on top for products of these. Un-normalised the same without the division, times l. The row
// statistics follow: |m| within delta_s + 4 u |m|; l within eps_p + eps_r + eps_l; LSE within the sum of both,
// lg2.approx (2.8e-7 in units of log2, measured) and the roundings of its own value.
//
// With independent roundings the squares add: an element's error has at most the square
//   (u_P^2 (sum p_j^2 v_j^2 / l^2 + o^2) + u_o^2 o^2) + (everything else above)^2.
// The largest rounding error stands here for its root mean square, which is smaller by sqrt(3) or more: that is the
// margin for roundings that are not independent; o^2 stands for rows whose p_j are all equal, which round alike.
//
// A cap of c: tanh(y) = 1 - 2 r with r = 1 / w, w = 1 + e, e = exp(2 y). It turns delta_s into no more. Its own error
// is at most 12 u: e errs by 2.1 * 2^-23 from ex2 and by 4 u |2 y| from its argument, and reaches r times e / w^2,
// which is 1/4 at most, and times |2 y| 0.224 at most; w rounds by u, the reciprocal by 2^-23, the result by u; r <= 1.
// So delta_s grows by 12 u c, and |scale| max |s| in Z is c at most. Slopes: a slope times log2(e), the distance, and
// their product round by 4 u of what is subtracted, and the sum by u of itself: Z grows by log2(e) times the largest of
// what is subtracted, and the maximum, a difference, errs by 9 u of both parts.
//
// Whole numbers (see fmha.h) make 1 to 6 exact; 7 and the division's two roundings remain.
//
// 8 bits in all (e4m3 q, k and v). Tensor cores add groups of 32 products and the accumulator: each of the 33 terms is
// cut to 13 fraction bits relative to the largest, and the sum to 13. What differs:
//  1. delta_s = |scale| ceil(d / 32) 34 * 2^-13 m, where m is the largest product or sum of whole groups.
//  5. P is e4m3: u_P = 2^-4. References lie 2^lowered below a maximum, or more, so that h = 2^-10 2^-lowered:
//     lowered is 4 beside wgmma, 6 beside mma.sync and tcgen05.
//  6. Of a chunk of n_c keys, whose sums are taken over (all keys where none are): eps_a = ceil(n_c / 32) 34 * 2^-13,
//     since chunks' A add up to A; but no more than all of it. Each takeover rounds by 2 u, which steps count.
//     Where f16 is kept, of O / l times 2^6 or more, it rounds by 2^-11 of A besides, and by half a subnormal step,
//     2^-31 of l times the descale of V.
// These hold for any numbers and are far from what happens: of thousands of keys with independent weights every product
// may be cut alike. Where signs of products are random, errors have these root mean squares:
//  1. Each of the 33 terms of a group errs by a uniform part of 2^-13 m, the sum by one: 2^-13 m sqrt(12 ceil(d / 32)).
//     eps_p is made from it as above, and adds to u_P^2.
//  6. Likewise 2^-13 M sqrt(12 ceil(n / 32)), and 2^-11 M of each takeover to f16, with partial sums and products of at
//     most M = |o| + 3 sqrt(sum p_j^2 v_j^2) / l. A column whose values have one sign is cut one way: n_c 2^-14 M,
//     times the share of that sign, |o| / A.
// An element may then err by 6 times its root mean square, or by the bound for any numbers where that is less.
//
// tcgen05 keeps of 8-bit products as many bits as of 16-bit ones, as far as public models of it say: 33 terms are cut
// to 25 fraction bits, their sum to 23, which errs by less than (33 * 2^-25 + 2^-23) M = 9.25 * 2^-23 M. There 1 and 6
// are as for 16 bits with this in place of 5.25 * 2^-23 and groups of 32, nothing is promoted, and 5 is as for 8 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/spec/types.h"

namespace tessera::reference {

struct FmhaRowFacts {
  DType dtype = DType::bf16;
  DType output_dtype = DType::bf16;
  bool is_exact = false;  ///< scores, exponentials and sums are exact in fp32
  std::int64_t head_dim = 0;
  std::int64_t visible = 0;  ///< keys
  std::int64_t steps = 0;    ///< over the keys
  double scale = 0;
  double q_norm = 0, max_k_norm = 0;
  double max_abs_score = 0;  ///< unscaled
  double softcap = 0;        ///< 0: none
  double max_bias = 0;       ///< largest of what is subtracted from scores
  bool has_descales = false;
  // 8 bits in all.
  double max_term = 0;             ///< unscaled: the largest product or partial sum of a score
  std::int64_t promote_every = 0;  ///< keys whose sums have 13 fraction bits; 0: all
  int lowered = 6;                 ///< powers of two from a maximum to its reference
  bool has_f16_sums = false;       ///< of such keys, between takeovers
  double v_unit = 1;               ///< what elements of V are multiples of the e4m3 numbers of
  bool has_long_sums = false;      ///< tensor cores keep as many bits as of 16-bit products
  bool has_random_signs = false;   ///< of products: root mean squares say something
};

/// Of what tensor cores add up for a score of this row and key, 8 bits: the largest product, or sum of some groups.
double largest_term(const std::vector<double>& q, const std::vector<double>& k);

/// Relative and absolute parts of the bound that hold for a whole row.
class FmhaRowBound {
 public:
  explicit FmhaRowBound(const FmhaRowFacts& facts);
  /// abs_sum = sum p |v|, square_sum = sum p^2 v^2, v_abs_sum = sum |v|, all relative to the same maximum; sum = l;
  /// value = the reference. is_normalized: value and the sums' quotient by l are compared, else the sums themselves.
  struct Column {
    double value = 0, abs_sum = 0, square_sum = 0, v_abs_sum = 0, sum = 1;
    bool is_normalized = true;
  };
  double element(const Column& column) const;
  double element_square(const Column& column) const;
  double row_max(double value) const;
  double row_sum(double value) const;
  double lse(double value, double maximum) const;

 private:
  /// All but the two 16-bit roundings, and of 8 bits what has a root mean square of its own.
  double remainder(const Column& column, double eps_p, double eps_a) const;
  double any_element(const Column& column) const;
  /// Of what tensor cores sum up to an element of O, 8 bits.
  double accumulation_square(const Column& column) const;
  /// Of a row's sum.
  double sum_error() const;
  bool is_statistical_ = false;
  double takeovers_ = 0, half_kept_ = 0;
  double visible_ = 0, chunk_ = 0, delta_rms_ = 0, eps_p_rms_ = 0;
  double delta_s_ = 0, of_bias_ = 0, eps_p_ = 0, eps_r_ = 0, eps_a_ = 0, eps_l_ = 0, eps_d_ = 0, eps_v_ = 0;
  double u_p_ = 0, half_p_ = 0, u_out_ = 0, half_out_ = 0, largest_p_ = 1;
};

}  // namespace tessera::reference

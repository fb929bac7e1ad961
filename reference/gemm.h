// Matrix product in float64, and the verdict over a kernel's output.
//
//   d = activation(alpha * scale_a * scale_b * a b^T + beta * c + bias)
//
// With factors of blocks a [l, m, k] is multiplied by sfa [l, m / rows, k / 128], b likewise; then the sum of each 128
// of k is multiplied by both factors, whose product is rounded once, and added in fp32.
//
// a [l, m, k], b [l, n, k], c and d [l, m, n], any strides (an MN-major operand is a view with its last two dimensions
// exchanged); bias [n]. 8-bit results saturate at the largest number.
//
// How wrong a right kernel may be, element by element, with u = 2^-24. Tensor cores add groups of 16 products (32 of 8
// bits) and the accumulator: each term is cut to F fraction bits relative to the largest, the sum to F' bits, toward
// zero (16-bit: F = 25, F' = 23; 8-bit: F = F' = 13; measured). With t the largest term of a group, the accumulator
// included, and s its sum, a group errs by at most (terms + 1) 2^-F t + 2^-F' max(t, s). t and s are those of the
// float64 sums in the kernel's order along k, raised by the error up to there. Promoted sums start anew every 128 of k
// and are added in fp32: u per addition; so are the parts of a split k, in the order of their parts. Behind the sum:
// two roundings of alpha, one each for the product, beta c (two) and bias; an activation multiplies what came before by
// at most 1.13 and adds its own error (gelu: 8 u |x|; gelu_tanh: |x| (4.1e-6 + 8 u); silu: 16 u |x|); then the output's
// rounding, half a subnormal step for tiny values. 1 % on top for products of these.
//
// With independent roundings the squares add: the cuts of single terms have random signs, those of the sums are all
// toward zero and add up. expected_square takes them so.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "spec/product_facts.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera::reference {

/// fp32 factors of 128 of k, each of so many rows of an operand: [l, ceil(extent / rows), ceil(k / 128)].
struct BlockFactors {
  TensorView factors;
  std::int64_t rows = 1;
};

struct GemmInputs {
  TensorView a, b;
  std::optional<TensorView> c, bias;
  std::optional<BlockFactors> sfa{}, sfb{};  ///< both or neither, with promoted sums; sfa alone beside 4-bit weights
};

/// How tensor cores sum, where it is not what Hopper does for the type of a.
struct TensorSums {
  std::int64_t group = 16;               ///< products of one instruction
  std::int64_t terms = 17;               ///< that are cut, the accumulator included, each at most as large as a product
  double term = 0x1p-25, sum = 0x1p-23;  ///< what a cut loses, relative to the largest term and to the sum
  std::int64_t step = 64;                ///< elements of k that a split does not divide
  bool is_integer = false;               ///< s32, wrapping around: only its conversion to fp32 rounds
};

struct GemmCheck {
  double alpha = 1, beta = 0;  ///< alpha with scale_a and scale_b in it
  ProductFacts facts{};        ///< what is done to sums, and a gate's turns; operands' types and shapes come with them
  int split_k = 1;
  int k_groups = 1;  ///< of each part of a split k: sums of steps in turn, added up in their order
  std::optional<TensorSums> sums{};
  std::optional<TensorView> sfd{};  ///< check_plain_or_gated: factors of an e4m3 d [l, m, ceil(n / 128)], an output
  bool is_exact = false;            ///< all sums are whole numbers that the accumulators hold: only the output rounds
  bool judges_rel_error = true;
  int tile_m = 128, tile_n = 128;                          ///< of the kernel: edges to sample
  std::int64_t max_multiply_adds = std::int64_t{1} << 30;  ///< more than that is sampled, in whole rows
  std::uint64_t seed = 1;
  int jobs = 0;

  /// Columns of a gate that stand together; 0: there is none.
  int gate_turn() const { return facts.gate == Gate::none ? 0 : facts.interleave; }
};

/// One sum in float64, in the kernel's order, and what a kernel's may be wrong by: at most, the part that cuts toward
/// zero add up to, and the squares of the rest.
struct ProductSum {
  double value = 0, bound = 0;
  double systematic = 0, square = 0;
};
double activated(Activation activation, double x);
/// What an activation in fp32 may be wrong by, beside 1.13 of what its argument is.
double activation_error(Activation activation, double x);
/// `factors`: of each 128 of k, or empty.
ProductSum product_sum(const double* a, const double* b, std::int64_t k, DType a_dtype, const GemmCheck& check,
                       std::span<const double> factors = {});

/// An element's place and value before its rounding to a type: fp32 with what came before it as the bound.
Element product_element(const ProductSum& sum, double c, double bias, const GemmCheck& check);

/// Throws Error{usage} when shapes do not fit each other.
Comparison check_gemm(const GemmInputs& inputs, const TensorView& d, const GemmCheck& check);

/// One element's float64 value before its rounding to the output's type. Precondition: the place is inside.
double gemm_element(const GemmInputs& inputs, const GemmCheck& check, std::int64_t batch, std::int64_t row,
                    std::int64_t column);

}  // namespace tessera::reference

// Products that something is done to before they are stored, in float64: a gate, activation(gate) * up of two products
// with the same a; and results that leave as values and scales of a block-scaled format.
//
// A gate adds to what gemm.h bounds: the roundings of alpha and of a bias, the activation's error (its own, and at most
// 1.13 of what its argument is wrong by, which a limit does not make worse), with gpt-oss' the rounding of up + 1, one
// rounding of the product, then the output's. gpt-oss' gate * sigmoid(1.702 gate) is silu(1.702 gate) / 1.702: its
// slope is silu's, and its argument has two roundings more.
//
// Of a quantised result neither scale nor value is one number: a sum that is right within its bound may fall on either
// side of a rounding boundary. So a scale must be one that a block's largest magnitude gives somewhere within its
// bound, and a value must be within half a step of that scale, and the bound, of the exact one, which counts as
// saturated where the scale makes it so. Where sums are exact, both bounds are nothing, and the bits must be those of
// quantize. Where rows are sampled, those that look as they did before the launch are checked besides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/gemm.h"
#include "reference/gemm_suspects.h"
#include "tessera/spec/operand_type.h"

namespace tessera::reference {

struct GatedInputs {
  GemmInputs product;            ///< a, b (of the gate), c, bias
  std::optional<TensorView> up;  ///< b of up, as b: there is a gate
  GemmCheck check;               ///< alpha: of the gate's product
  double alpha_up = 1;
  std::optional<TensorView> bias_up{};       ///< as bias, which is the gate's
  std::optional<BlockFactors> up_factors{};  ///< as product.sfb, where that is
};

/// Of b's rows [l, n, k] in float64 those that make columns of the gate, or of up, where `interleave` of each stand in
/// turn.
Tensor rows_in_turn(const Tensor& b, int interleave, bool is_up);

/// The other way round: [l, 2 n, k] of a dual gate's b and b2, in turn one by one; up's times a factor.
Tensor rows_of_dual(const TensorView& gate, const TensorView& up, double factor_up);

/// Likewise of a bias [n].
Tensor bias_in_turn(const TensorView& bias, int interleave, bool is_up);

/// activation(gate) * up in float64, of numbers that have their factors and biases.
double gated_value(const GemmCheck& check, double gate, double up);

/// d: [l, m, n] of an element type.
Comparison check_gated(const GatedInputs& inputs, const TensorView& d);

/// check_gated of weights whose rows are gate and up in turn, where check.facts.gate says so, else check_gemm. Of
/// wrong results of wgmma's sums the likely cause is named; others: what a mistake may take in place of the operands.
Comparison check_plain_or_gated(const GemmInputs& inputs, const TensorView& d, const GemmCheck& check,
                                const std::vector<OtherOperands>& others = {});

/// d: bytes [l, m, n * bits / 8], any strides; scales in tiles, of which padding must be 0. g: nvfp4's factor.
Comparison check_quantized_product(const GatedInputs& inputs, BlockFormat format, double g, const TensorView& d,
                                   std::span<const std::byte> scales);

}  // namespace tessera::reference

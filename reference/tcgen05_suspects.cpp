#include "reference/tcgen05_suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/product_finishes.h"
#include "reference/product_suspects.h"
#include "spec/gemm_tcgen05_facts.h"

namespace tessera::reference {

namespace {

/// How near a right result of these sums is to float64's. Of a block-scaled d half a step of its values, roughly: the
/// block's largest is not known here, but of sums of random signs it is some standard deviations.
std::function<double(double, double)> slack_of(const ProductFacts& facts, double factor, std::int64_t k, DType dtype) {
  const double deviation = std::fabs(factor) / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
  if (gemm_tcgen05::is_quantized(facts)) {
    const bool is_four_bit = value_bits(block_format(facts.d_format)) == 4;
    const double relative = is_four_bit ? 0.2 : 0.07, absolute = is_four_bit ? 0.15 : 0.01;
    return [=](double result, double magnitude) {
      return relative * std::fabs(result) + absolute * deviation * magnitude;
    };
  }
  if (facts.d_dtype == DType::s32) return [](double, double) { return 0.0; };
  const double relative = 2 * unit_roundoff(dtype) + (facts.gate == Gate::none ? 2e-6 : 1e-3);
  const double least = half_subnormal(dtype);
  return [=](double result, double magnitude) {
    return relative * std::fabs(result) + 1e-5 * std::fabs(factor) * magnitude + least;
  };
}

}  // namespace

std::vector<Suspect> tcgen05_suspects(const ProductFacts& facts, const ProductTiles& tiles, const GatedInputs& in,
                                      const ProductFactors& factors, const Tcgen05Sources& sources,
                                      const TensorView& d) {
  const bool is_swapped = gemm_tcgen05::is_swapped(tiles);
  const std::int64_t lanes = gemm_tcgen05::kLanes, columns = gemm_tcgen05::column_rows(tiles);
  ProductSuspectInputs product;
  product.a = sources.a;
  product.b = sources.b;
  product.b2 = sources.b2;
  product.has_gate = facts.gate != Gate::none;
  product.rows = in.product.a.shape[1];
  product.columns = gemm_tcgen05::columns_of_d(facts, static_cast<int>(sources.b.rows()));
  product.steps = {.step = gemm_tcgen05::tile_k(facts),
                   .chunk = gemm_tcgen05::chunk_k(facts),
                   .split_k = tiles.split_k,
                   .bits = gemm_tcgen05::smem_bits(facts),
                   .tile_a = facts.a_layout == tessera::Layout::mn_major ? 0
                             : is_swapped                                ? columns
                                                                         : lanes,
                   .tile_b = facts.b_layout == tessera::Layout::mn_major ? 0
                             : is_swapped                                ? lanes
                                                                         : columns};
  const auto of_column = [](const std::optional<TensorView>& bias) -> OfColumn {
    if (!bias) return {};
    return [bias = *bias](std::int64_t column) { return bias.at(column * bias.strides[0]); };
  };
  product.finishes = facts.gate == Gate::none
                         ? finishes_of_sum(in.product, in.check, factors)
                         : finishes_of_gate(in.check, in.alpha_up, of_column(in.product.bias), of_column(in.bias_up));
  product.slack = slack_of(facts, in.check.alpha * (facts.gate == Gate::none ? 1 : in.alpha_up), sources.a.k, d.dtype);
  const auto in_turn = [](std::int64_t together) {
    return [=](std::int64_t column, bool is_up) {
      return column / together * 2 * together + column % together + (is_up ? together : 0);
    };
  };
  if (facts.gate != Gate::interleaved) return product_suspects(product);
  product.row_of_b = in_turn(facts.interleave);
  std::vector<Suspect> list = product_suspects(product);
  for (const int other : {1, 2, 4, 8, 16, 32}) {
    if (other == facts.interleave || sources.b.rows() % (2 * other) != 0) continue;
    ProductSuspectInputs wrong = product;
    wrong.row_of_b = in_turn(other);
    list.push_back({fmt::format("gate and up are taken in turns of {}, interleave is {}", other, facts.interleave),
                    product_guess(wrong)});
  }
  return list;
}

}  // namespace tessera::reference

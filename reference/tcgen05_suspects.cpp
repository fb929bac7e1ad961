#include "reference/tcgen05_suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/product_finishes.h"
#include "reference/product_suspects.h"

namespace tessera::reference {

namespace {

using gemm_tcgen05::Config;

/// How near a right result of these sums is to float64's. Of a block-scaled d half a step of its values, roughly: the
/// block's largest is not known here, but of sums of random signs it is some standard deviations.
std::function<double(double, double)> slack_of(const Config& config, double factor, std::int64_t k, DType dtype) {
  const double deviation = std::fabs(factor) / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
  if (gemm_tcgen05::is_quantized(config)) {
    const bool is_four_bit = value_bits(block_format(config.facts.d_format)) == 4;
    const double relative = is_four_bit ? 0.2 : 0.07, absolute = is_four_bit ? 0.15 : 0.01;
    return [=](double result, double magnitude) {
      return relative * std::fabs(result) + absolute * deviation * magnitude;
    };
  }
  if (config.facts.d_dtype == DType::s32) return [](double, double) { return 0.0; };
  const double relative = 2 * unit_roundoff(dtype) + (config.facts.gate == Gate::none ? 2e-6 : 1e-3);
  const double least = half_subnormal(dtype);
  return [=](double result, double magnitude) {
    return relative * std::fabs(result) + 1e-5 * std::fabs(factor) * magnitude + least;
  };
}

}  // namespace

std::vector<Suspect> tcgen05_suspects(const Config& config, const GatedInputs& in, const ProductFactors& factors,
                                      const Tcgen05Sources& sources, const TensorView& d) {
  const bool is_swapped = gemm_tcgen05::is_swapped(config);
  const std::int64_t lanes = gemm_tcgen05::kLanes, columns = gemm_tcgen05::column_rows(config);
  ProductSuspectInputs product;
  product.a = sources.a;
  product.b = sources.b;
  product.b2 = sources.b2;
  product.has_gate = config.facts.gate != Gate::none;
  product.rows = in.product.a.shape[1];
  product.columns = gemm_tcgen05::columns_of_d(config, static_cast<int>(sources.b.rows()));
  product.steps = {.step = gemm_tcgen05::tile_k(config),
                   .chunk = gemm_tcgen05::chunk_k(config),
                   .split_k = config.split_k,
                   .bits = gemm_tcgen05::smem_bits(config),
                   .tile_a = gemm_tcgen05::is_mn_major(config, !is_swapped) ? 0
                             : is_swapped                                   ? columns
                                                                            : lanes,
                   .tile_b = gemm_tcgen05::is_mn_major(config, is_swapped) ? 0
                             : is_swapped                                  ? lanes
                                                                           : columns};
  const auto of_column = [](const std::optional<TensorView>& bias) -> OfColumn {
    if (!bias) return {};
    return [bias = *bias](std::int64_t column) { return bias.at(column * bias.strides[0]); };
  };
  product.finishes = config.facts.gate == Gate::none
                         ? finishes_of_sum(in.product, in.check, factors)
                         : finishes_of_gate(in.check, in.alpha_up, of_column(in.product.bias), of_column(in.bias_up));
  product.slack =
      slack_of(config, in.check.alpha * (config.facts.gate == Gate::none ? 1 : in.alpha_up), sources.a.k, d.dtype);
  const auto in_turn = [](std::int64_t together) {
    return [=](std::int64_t column, bool is_up) {
      return column / together * 2 * together + column % together + (is_up ? together : 0);
    };
  };
  if (config.facts.gate != Gate::interleaved) return product_suspects(product);
  product.row_of_b = in_turn(config.facts.interleave);
  std::vector<Suspect> list = product_suspects(product);
  for (const int other : {1, 2, 4, 8, 16, 32}) {
    if (other == config.facts.interleave || sources.b.rows() % (2 * other) != 0) continue;
    ProductSuspectInputs wrong = product;
    wrong.row_of_b = in_turn(other);
    list.push_back(
        {fmt::format("gate and up are taken in turns of {}, interleave is {}", other, config.facts.interleave),
         product_guess(wrong)});
  }
  return list;
}

}  // namespace tessera::reference

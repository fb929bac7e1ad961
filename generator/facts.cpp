#include "generator/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "generator/words.h"
#include "spec/packed_weights.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr std::pair<std::string_view, ProductOperand> kProductBuffers[] = {
    {"a", ProductOperand::a},       {"sfa", ProductOperand::a},     {"scale_a", ProductOperand::a},
    {"b", ProductOperand::b},       {"sfb", ProductOperand::b},     {"scale_b", ProductOperand::b},
    {"b2", ProductOperand::b},      {"sfb2", ProductOperand::b},    {"scale_b2", ProductOperand::b},
    {"c", ProductOperand::c},       {"bias", ProductOperand::c},    {"d", ProductOperand::d},
    {"sfd", ProductOperand::d},     {"scale_d", ProductOperand::d}, {"groups", ProductOperand::groups},
    {"indices", ProductOperand::a}, {"zeros", ProductOperand::b}};

}  // namespace

bool names_mma_sync(MmaKind pin, MmaKind own, Arch target) {
  return pin == own || (pin == MmaKind::mma_f16 && target.compute_major() != 12);
}

OperandType operand_type(DType dtype) {
  OperandType type{};
  if (from_word(to_word(dtype), type)) return type;  // they share their words
  throw Error(ErrorKind::unsupported,
              fmt::format("gemm has no kernel for operands of type {}: there are kernels for {}", to_word(dtype),
                          word_list<OperandType>()));
}

Accumulation product_accumulation(const Gemm& problem) {
  // tcgen05 and mma.sync sum in fp32 as it is; beside 4-bit weights 8 bits are widened to 16.
  const bool is_8_bit = (problem.dtype == DType::e4m3 || problem.dtype == DType::e5m2) && !problem.b_int4 &&
                        !(problem.b_format && value_bits(*problem.b_format) == 4);
  const bool is_promoted = is_8_bit && has_family(problem.arch, MmaFamily::wgmma) && !is_mma_sync(problem.mma_kind);
  return problem.accumulation.value_or(is_promoted ? Accumulation::promoted : Accumulation::fast);
}

ProductOperand product_operand(std::string_view buffer) {
  for (const auto& [name, operand] : kProductBuffers)
    if (name == buffer) return operand;
  throw std::out_of_range(fmt::format("{} is no buffer of a product", buffer));
}

ProductTiles product_tiles(const Plan& plan) {
  ProductTiles tiles{.tile_m = plan.number("tile_m"),
                     .tile_n = plan.number("tile_n"),
                     .cluster_m = plan.has_field("cluster_m") ? plan.number("cluster_m") : 1,
                     .cluster_n = plan.has_field("cluster_n") ? plan.number("cluster_n") : 1,
                     .split_k = plan.number("split_k")};
  if (plan.has_field("swap_ab") && plan.field("swap_ab") == to_word(SwapAb::on)) {
    std::swap(tiles.tile_m, tiles.tile_n);
    std::swap(tiles.cluster_m, tiles.cluster_n);
  }
  if (plan.family != "weights") return tiles;
  const auto consumer =
      std::find_if(plan.roles.begin(), plan.roles.end(), [](const RolePlan& role) { return role.name == "consumer"; });
  tiles.k_groups = plan.mma_kind == "mma.f16" ? consumer->warps * kWeightRows / std::max(tiles.tile_n, kWeightRows)
                                              : weight_k_groups(tiles.tile_m, tiles.tile_n);
  return tiles;
}

}  // namespace tessera

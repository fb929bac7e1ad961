#include "generator/products/product_words.h"

#include <fmt/format.h>

#include <string_view>

#include "generator/block_scaled/block_operator.h"
#include "generator/facts.h"
#include "generator/family.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

std::string gate_and_groups_text(const ProductFacts& facts) {
  std::string text;
  if (facts.grouping != Grouping::none) text += fmt::format(", {} groups", to_word(facts.grouping));
  if (facts.gather != Gather::none) text += ", gathered rows";
  if (facts.gate == Gate::dual) text += ", dual";
  if (facts.gate == Gate::interleaved) text += fmt::format(", gate and up by {}", facts.interleave);
  if (facts.gate_activation != GateActivation::silu) text += fmt::format(", {}", to_word(facts.gate_activation));
  if (facts.gate_limit != 0) text += fmt::format(", limit {}", facts.gate_limit);
  return text;
}

std::string gate_and_groups_name(const ProductFacts& facts) {
  std::string name;
  if (facts.grouping != Grouping::none) name += fmt::format("_{}", to_word(facts.grouping));
  if (facts.gather != Gather::none) name += "_gather";
  if (facts.gate == Gate::dual) name += "_dual";
  if (facts.gate == Gate::interleaved) name += fmt::format("_gated{}", facts.interleave);
  if (facts.gate_activation != GateActivation::silu) name += fmt::format("_{}", to_word(facts.gate_activation));
  if (facts.gate_limit != 0) name += fmt::format("_limit{}", facts.gate_limit);
  // Facts that are named here and by the families; any other has its own name.
  constexpr std::string_view kNamed[] = {
      "a_type",     "b_type",   "a_layout",   "b_layout",      "d_dtype",       "accumulation",
      "c",          "bias",     "activation", "gate",          "interleave",    "gate_activation",
      "gate_limit", "d_format", "grouping",   "a_scale_block", "b_scale_block", "gather"};
  return name + other_facts_name(facts, kNamed);
}

std::string addends_name(const ProductFacts& facts) {
  std::string name;
  if (facts.c == Addend::matrix) name += "_c";
  if (facts.bias != Bias::none) name += facts.bias == Bias::group ? "_biases" : "_bias";
  if (facts.activation != Activation::none) name += fmt::format("_{}", to_word(facts.activation));
  return name;
}

std::string product_arguments(const GemmLaunch& launch) {
  const ProductFacts& facts = launch.facts;
  const bool has_c = facts.c == Addend::matrix, is_dual = facts.gate == Gate::dual;
  const bool is_scaled = launch.scale_block > 0, has_scales = launch.has_tensor_scales;
  const bool is_plain = is_scaled && launch.scale_form == ScaleForm::plain, has_scale_maps = is_scaled && !is_plain;
  const char* const a_map = launch.is_gathered ? "b" : "a";  // where there is no map, another stands, never read
  return fmt::format(
      "{{{}, b, {}, {}, {}, {}, d_pointer, {}, {}, {}, {}, {}, {}, {}, m, n, k, l, ldd, d_stride_l, {}, {}, {}{}}}",
      a_map, is_dual ? "b2" : "b",
      has_scale_maps ? (launch.is_gathered ? "b, sfb" : "sfa, sfb") : fmt::format("{}, b", a_map),
      has_scale_maps && is_dual ? "sfb2" : "b", launch.has_d_map && !is_quantized(launch) ? "d" : a_map,
      facts.grouping != Grouping::none ? "static_cast<const int*>(groups)" : "nullptr",
      is_quantized(launch) ? "sfd" : "nullptr", facts.d_format == OutputFormat::nvfp4 ? "scale_d" : "nullptr",
      has_c ? "c" : "nullptr", facts.bias != Bias::none ? "bias" : "nullptr",
      has_scales ? "scale_a, scale_b" : "nullptr, nullptr", has_scales && is_dual ? "scale_b2" : "nullptr",
      has_c ? "ldc, c_stride_l" : "0, 0", facts.d_dtype == DType::s32 ? "1.0f" : "alpha", has_c ? "beta" : "0.0f",
      launch.is_gathered || is_plain
          ? fmt::format(", {}, {}, {}{}", is_plain || (is_scaled && launch.is_gathered) ? "sfa" : "nullptr",
                        is_plain ? "sfb" : "nullptr", is_plain && is_dual ? "sfb2" : "nullptr",
                        launch.is_gathered ? ", a, static_cast<const int*>(indices), lda, a_rows" : "")
          : "");
}

const char* bias_note(const ProductFacts& facts) {
  return facts.bias == Bias::group ? "added to every row of its group" : "added to every row";
}

void require_epilogue_facts(const Gemm& problem) {
  const auto refuse = [](std::string_view key, std::string_view value, std::string_view reason) {
    throw Error(ErrorKind::unsupported, fmt::format("gemm: {} = {}: {}", key, value, reason));
  };
  if (problem.bias == Bias::group && problem.grouping == Grouping::none)
    refuse("bias", "group", "it is for groups of rows (grouping); take column");
  if (problem.d_scale_block == ScaleBlock::none && problem.d_scale_values != Gemm{}.d_scale_values)
    refuse("d_scale_values", to_word(problem.d_scale_values), "d has no factors (d_scale_block)");
  if (problem.gate != Gate::none) return;
  if (problem.gate_activation != Gemm{}.gate_activation)
    refuse("gate_activation", to_word(problem.gate_activation), "there is no gate (gate)");
  if (problem.gate_limit != 0) refuse("gate_limit", fmt::format("{}", problem.gate_limit), "there is no gate (gate)");
}

void require_no_weights(const Gemm& problem) {
  if (problem.b_int4)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("gemm: b_dtype = int4: weights of four bits have kernels for sm_90a (wgmma) beside a of bf16 "
                    "or f16, none for {} and a of {}",
                    problem.arch.to_string(), problem.format ? to_word(*problem.format) : to_word(problem.dtype)));
  if (problem.b_group != Gemm{}.b_group || problem.zero_points != ZeroPoints::none)
    throw Error(ErrorKind::unsupported, "gemm: b_group and zero_points are for b_dtype int4");
}

void require_no_factors_of_d(const Gemm& problem, std::string_view family) {
  if (problem.d_scale_block == ScaleBlock::none) return;
  throw Error(ErrorKind::unsupported,
              fmt::format("gemm: d_scale_block = {}: products whose e4m3 d leaves with fp32 factors have kernels for "
                          "sm_90a (wgmma), none for {}: quantise d with rows (chain e4m3), or take d_dtype mxfp8_e4m3 "
                          "where it is there",
                          to_word(problem.d_scale_block), family));
}

void require_no_facts_of_wgmma(const Gemm& problem, bool has_gather) {
  require_no_weights(problem);
  if (problem.gather != Gather::none && !has_gather)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("gemm: gather = {}: products that gather a's rows have kernels for sm_90a (wgmma) and by mma.sync "
                    "(sm_120, sm_121), none for {}: gather the rows first (rows, chain gather+same)",
                    to_word(problem.gather), problem.arch.to_string()));
  if (problem.a_scale_block == ScaleBlock::none && problem.b_scale_block == ScaleBlock::none) return;
  throw Error(ErrorKind::unsupported,
              fmt::format("gemm: a_scale_block = {}, b_scale_block = {}: products with fp32 factors of blocks of 128 "
                          "have kernels for sm_90a (wgmma), none for {}: take mxfp8 where the instruction has scales",
                          to_word(problem.a_scale_block), to_word(problem.b_scale_block),
                          is_mma_sync(problem.mma_kind) ? "mma.sync" : problem.arch.to_string()));
}

void add_quantized_operands(BlockFormat format, std::vector<OperandPlan>& operands) {
  operands.push_back(scaled_operand("d", format, ScaleForm::tile, "D, quantised in registers"));
  operands.push_back(scale_operand("sfd", format, "of d, tiles"));
  if (format == BlockFormat::nvfp4) operands.push_back(plain_operand("scale_d", "f32", "factor of d's scales"));
}

void add_groups_operand(const ProductFacts& facts, std::vector<OperandPlan>& operands) {
  if (facts.grouping != Grouping::none)
    operands.push_back(plain_operand(
        "groups", "s32", facts.grouping == Grouping::contiguous ? "first row of each, and the end" : "rows of each"));
}

void add_addend_operands(const GemmLaunch& launch, std::vector<OperandPlan>& operands) {
  const ProductFacts& facts = launch.facts;
  if (facts.c == Addend::matrix) operands.push_back(plain_operand("c", to_word(facts.d_dtype), "added, times beta"));
  if (facts.bias != Bias::none) operands.push_back(plain_operand("bias", to_word(facts.d_dtype), bias_note(facts)));
  if (!launch.has_tensor_scales) return;
  for (const char* const name : {"scale_a", "scale_b", "scale_b2"})
    if (facts.gate == Gate::dual || std::string_view(name) != "scale_b2")
      operands.push_back(plain_operand(name, "f32", "factor of alpha if not null"));
}

}  // namespace tessera

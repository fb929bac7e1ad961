// What messages, names and generated code say of a product, in every family of kernels that has gates and groups.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/products/gemm_launch.h"
#include "tessera/gemm_problem.h"
#include "tessera/plan.h"

namespace tessera {

/// ", contiguous groups, gate and up by 8": what stands beside the types in a message.
std::string gate_and_groups_text(const ProductFacts& facts);
/// Throws for a bias of groups without any, and for what is said of a gate where there is none.
void require_epilogue_facts(const Gemm& problem);
/// What a plan says of the operand.
const char* bias_note(const ProductFacts& facts);
/// "_contiguous_gated8", in a kernel's name.
std::string gate_and_groups_name(const ProductFacts& facts);
/// "_c_bias_relu", likewise.
std::string addends_name(const ProductFacts& facts);

/// The body's arguments in generated code: gemm/product_params.cuh. What a kernel has no parameter for is never read:
/// another map, or null.
std::string product_arguments(const GemmLaunch& launch);

/// Throws Error{unsupported} for facts of 4-bit integers.
void require_no_weights(const Gemm& problem);
/// Throws Error{unsupported} for factors of an e4m3 d; `family`: the kernels that have none.
void require_no_factors_of_d(const Gemm& problem, std::string_view family);
/// Throws Error{unsupported} for rows by a list, and for fp32 factors of blocks of 128: wgmma's promoted sums alone are
/// multiplied by them.
void require_no_facts_of_wgmma(const Gemm& problem, bool has_gather = false);

/// Operands beside a, b, their scales and d: groups, c, bias, factors.
/// A block-scaled d, its scales and their factor.
void add_quantized_operands(BlockFormat format, std::vector<OperandPlan>& operands);
void add_groups_operand(const ProductFacts& facts, std::vector<OperandPlan>& operands);
void add_addend_operands(const GemmLaunch& launch, std::vector<OperandPlan>& operands);

}  // namespace tessera

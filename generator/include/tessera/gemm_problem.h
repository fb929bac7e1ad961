// The Problem of matrix products; what facts, pins and hints are: tessera/any_problem.h.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Matrix product d = activation(alpha a b^T + beta c + bias). Shapes, layouts and meanings: docs/operators.md.
struct Gemm {
  static constexpr std::string_view kOperator = "gemm";

  Arch arch{};
  DType dtype = DType::bf16;       ///< of a and b: bf16, f16, e4m3, e5m2, with tcgen05 tf32 too, s8 and u8 on sm_100a
  std::optional<DType> b_dtype{};  ///< of b, where it differs: e4m3 beside e5m2, s8 beside u8
  std::optional<BlockFormat> format{};    ///< of a and b instead of a type: block-scaled, tcgen05 only
  std::optional<BlockFormat> b_format{};  ///< of b, where it differs: mxfp8, mxfp6, mxfp4 in any pair; sm_90a: weights
  bool b_int4 = false;                    ///< sm_90a: b of 4-bit integers, packed by pack_weights
  int b_group = 128;                      ///< of these: k that share a scale, 32, 64 or 128
  ZeroPoints zero_points = ZeroPoints::none;  ///< of these
  ScaleForm scale_form = ScaleForm::tile;     ///< of block-scaled operands
  DType d_dtype = DType::bf16;                ///< f32, bf16 or f16; on sm_90a e4m3 or e5m2, of integers s32 too
  std::optional<BlockFormat> d_format{};      ///< of d instead of a type: values and scales in tiles (tcgen05)
  Layout a_layout = Layout::k_major;
  Layout b_layout = Layout::k_major;
  std::optional<Accumulation> accumulation{};  ///< promoted for 8-bit types; 16-bit ones sum in fp32 as they are
  Addend c = Addend::none;
  Bias bias = Bias::none;
  Activation activation = Activation::none;
  Grouping grouping = Grouping::none;             ///< rows in groups with a b of their own; l is their number
  Gather gather = Gather::none;                   ///< sm_90a, groups: a's rows by a list
  ScaleBlock a_scale_block = ScaleBlock::none;    ///< sm_90a, 8-bit types: which elements of a share a factor of sfa
  ScaleBlock b_scale_block = ScaleBlock::none;    ///< and of b, one of sfb
  ScaleBlock d_scale_block = ScaleBlock::none;    ///< sm_90a, an e4m3 d: which elements share a factor of sfd
  ScaleValues d_scale_values = ScaleValues::any;  ///< of these factors: fp32 numbers, or powers of two alone
  Gate gate = Gate::none;  ///< activation(gate) * up of two products, or of one's columns in turn; not on every target
  GateActivation gate_activation = GateActivation::silu;  ///< of a gate: silu, gelu, gelu_tanh, or gpt-oss' own
  int gate_limit = 0;               ///< the gate is at most this, up between minus this and this (swiglu_limit); 0: any
  std::optional<int> interleave{};  ///< columns of the gate that stand together; not given: 1
  std::optional<int> tile_m{};      ///< rows of d that a CTA works on at a time
  std::optional<int> tile_n{};      ///< columns
  std::optional<int> stages{};      ///< slots of the ring of a and b
  std::optional<int> accumulators{};  ///< tcgen05: tiles in Tensor Memory
  std::optional<int> cluster_m{};     ///< CTAs along m that share b
  std::optional<int> cluster_n{};     ///< CTAs along n that share a
  std::optional<int> split_k{};       ///< CTAs that share the k of a tile
  std::optional<KernelSchedule> kernel_schedule{};
  std::optional<SwapAb> swap_ab{};    ///< sm_90a: b gives the matrix instruction its rows
  std::optional<int> raster{};        ///< tiles along m that are walked before the next one along n
  std::optional<MmaKind> mma_kind{};  ///< the matrix instruction; mma_f16 is a choice on sm_90a too
  Hint m = kUnknownHint, n = kUnknownHint, k = kUnknownHint, l = kUnknownHint;
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

template <>
const OperatorType& operator_type<Gemm>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> gemm_fields();

}  // namespace tessera

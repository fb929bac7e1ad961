// What a caller asks for: the facts that compiled code depends on, optional pins of the choices that the planner would
// make, and optional hints.
//
// A field that is a fact changes the kernel. A pin (std::optional) fixes what the planner otherwise chooses; an illegal
// pin is refused with the rule that it breaks, never replaced. A hint (Hint) steers the choice only: every kernel is
// right on its whole declared domain. Problems are compared and hashed by all of it. The default Problem of an operator
// is a legal one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "base/targets.h"
#include "spec/attention_types.h"
#include "spec/operand_type.h"
#include "spec/types.h"

namespace tessera {

/// A size that the caller expects. 0 is a size like any other: a length may be 0.
using Hint = std::int64_t;
inline constexpr Hint kUnknownHint = -1;

}  // namespace tessera

#include "generator/block_problem.h"  // needs what stands above

namespace tessera {

/// TMA load and store of one tile after the other: y = x for a tensor of rank 1..5. The smallest operator.
struct Copy2d {
  Arch arch{};
  DType dtype = DType::f32;
  int rank = 2;
  std::optional<int> tile_inner{};  ///< box extent along dimension 0, elements
  std::optional<int> tile_outer{};  ///< box extent along dimension 1, elements
  std::optional<Swizzle> swizzle{};
  friend bool operator==(const Copy2d&, const Copy2d&) = default;
};

/// Attention forward. Shapes, masks and meanings: docs/operators.md.
struct Fmha {
  Arch arch{};
  int head_dim = 128;               ///< of q and k
  std::optional<int> head_dim_v{};  ///< of v and o; not given: head_dim
  DType dtype = DType::bf16;        ///< of q, k, v, and of o when it is normalised: bf16 or f16
  Mask mask = Mask::none;
  Window window = Window::none;             ///< tcgen05: sizes are given at launch
  UsedLengths seqused = UsedLengths::none;  ///< tcgen05: valid lengths of each sequence, in memory
  KvPools kv_pools = KvPools::dense;        ///< tcgen05: sparse_window: keys by a list, and those of a window
  Output output = Output::normalized;
  Layout v_layout = Layout::mn_major;  ///< mn_major: v [.., seqlen_k, heads, head_dim]; k_major: keys are contiguous
  std::optional<int> tile_m{};         ///< query rows of one CTA, or of a pair
  std::optional<int> tile_n{};         ///< keys of one step
  std::optional<int> stages{};         ///< K/V ring slots
  std::optional<Swizzle> swizzle{};
  std::optional<MmaKind> mma_kind{};
  std::optional<ProbabilityPath> p_path{};  ///< tcgen05
  std::optional<int> cta_group{};           ///< tcgen05: CTAs of a tile, 1 or 2
  std::optional<int> pack_gqa{};            ///< query heads of a key head that share a tile's rows; 1: none
  std::optional<SplitKv> split_kv{};        ///< tcgen05: CTAs share a tile's keys, a second kernel merges
  Hint batch = kUnknownHint, heads_q = kUnknownHint, heads_kv = kUnknownHint;
  Hint seqlen_q = kUnknownHint, seqlen_k = kUnknownHint, num_splits = kUnknownHint;
  Hint topk = kUnknownHint, seqlen_swa = kUnknownHint;
  Hint window_size_left = kUnknownHint, window_size_right = kUnknownHint;
  friend bool operator==(const Fmha&, const Fmha&) = default;
};

/// Matrix product d = activation(alpha a b^T + beta c + bias). Shapes, layouts and meanings: docs/operators.md.
struct Gemm {
  Arch arch{};
  DType dtype = DType::bf16;       ///< of a and b: bf16, f16, e4m3, e5m2, with tcgen05 tf32 too, s8 and u8 on sm_100a
  std::optional<DType> b_dtype{};  ///< of b, where it differs: e4m3 beside e5m2, s8 beside u8
  std::optional<BlockFormat> format{};     ///< of a and b instead of a type: block-scaled, tcgen05 only
  std::optional<BlockFormat> b_format{};   ///< of b, where it differs: mxfp8 and mxfp4 beside each other
  ScaleForm scale_form = ScaleForm::tile;  ///< of block-scaled operands
  DType d_dtype = DType::bf16;             ///< f32, bf16 or f16; on sm_90a e4m3 or e5m2, of integers s32 too
  std::optional<BlockFormat> d_format{};   ///< of d instead of a type: values and scales in tiles (tcgen05)
  Layout a_layout = Layout::k_major;
  Layout b_layout = Layout::k_major;
  std::optional<Accumulation> accumulation{};  ///< promoted for 8-bit types; 16-bit ones sum in fp32 as they are
  Addend c = Addend::none;
  Bias bias = Bias::none;
  Activation activation = Activation::none;
  Grouping grouping = Grouping::none;  ///< tcgen05: rows in groups with a b of their own; l is their number
  Gate gate = Gate::none;              ///< tcgen05: silu(gate) * up of two products, or of one's columns in turn
  std::optional<int> interleave{};     ///< columns of the gate that stand together; not given: 1
  std::optional<int> tile_m{};         ///< rows of d that a CTA works on at a time
  std::optional<int> tile_n{};         ///< columns
  std::optional<int> stages{};         ///< slots of the ring of a and b
  std::optional<int> accumulators{};   ///< tcgen05: tiles in Tensor Memory
  std::optional<int> cluster_m{};      ///< CTAs along m that share b
  std::optional<int> cluster_n{};      ///< CTAs along n that share a
  std::optional<int> split_k{};        ///< CTAs that share the k of a tile
  std::optional<KernelSchedule> kernel_schedule{};
  std::optional<SwapAb> swap_ab{};  ///< sm_90a: b gives the matrix instruction its rows
  std::optional<int> raster{};      ///< tiles along m that are walked before the next one along n
  Hint m = kUnknownHint, n = kUnknownHint, k = kUnknownHint, l = kUnknownHint;
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

using Problem = std::variant<Copy2d, Fmha, Gemm, Quantize, Dequantize, ConvertScales, Gemv>;

/// "copy2d", "fmha", ...
std::string_view operator_name(const Problem& problem) noexcept;
Arch arch_of(const Problem& problem) noexcept;

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const noexcept;
};

}  // namespace tessera

// The Problem of attention; what facts, pins and hints are: tessera/any_problem.h.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Attention forward. Shapes, masks and meanings: docs/operators.md.
struct Fmha {
  static constexpr std::string_view kOperator = "fmha";

  Arch arch{};
  int head_dim = 128;                   ///< of q and k
  std::optional<int> head_dim_v{};      ///< of v and o; not given: head_dim
  DType dtype = DType::bf16;            ///< of q, k, v: bf16, f16, e4m3; of a normalised o too unless that is e4m3
  std::optional<BlockFormat> format{};  ///< of q, k, v instead of a type: nvfp4, as attention_quantize writes them
  Mask mask = Mask::none;
  Window window = Window::none;               ///< sizes are given at launch
  UsedLengths seqused = UsedLengths::none;    ///< valid lengths of each sequence, in memory
  QueryLayout q_layout = QueryLayout::dense;  ///< of q and o; ragged: seqlen_q are the queries of all sequences
  KvPools kv_pools = KvPools::dense;          ///< sparse_window: keys by a list, and those of a window
  KvLayout kv_layout = KvLayout::dense;       ///< how the keys of sequences lie in k and v
  std::optional<int> page_size{};             ///< keys of a page: with kv_layout paged, and of a kv_cache
  KvCache kv_cache = KvCache::rows;           ///< of kv_pools: rows of kv_dtype, or tokens of a narrower cache
  VIsK v_is_k = VIsK::off;                    ///< values are the first head_dim_v columns of k, there is no v
  Sink sink = Sink::none;                     ///< a logit of each head, in the denominator of o alone
  Softcap softcap = Softcap::none;            ///< of scores; the cap is given at launch
  Alibi alibi = Alibi::none;                  ///< slopes of heads that lower scores by their keys' distance
  TreeMask tree_mask = TreeMask::none;        ///< bits say which keys of its sequence's queries a query sees
  std::optional<DType> kv_dtype{};            ///< of k and v; not given: dtype; e4m3: with descales
  KvFormat kv_format = KvFormat::plain;       ///< of k and v in pages: nvfp4 or mxfp8, codes beside scales
  int split_size = 0;                         ///< keys of a part of split keys, whatever else is in the batch; 0: any
  std::optional<DType> o_dtype{};             ///< of a normalised o; not given: dtype, bf16 for e4m3 and nvfp4
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
  std::optional<KvCopy> kv_copy{};          ///< what loads keys that do not lie dense
  std::optional<SplitKv> split_kv{};        ///< CTAs share a tile's keys, a second kernel merges
  std::optional<int> promote_every{};       ///< e4m3: keys after which sums become fp32; 0: never
  Hint batch = kUnknownHint, heads_q = kUnknownHint, heads_kv = kUnknownHint;
  Hint seqlen_q = kUnknownHint, seqlen_k = kUnknownHint, num_splits = kUnknownHint;
  Hint topk = kUnknownHint, seqlen_swa = kUnknownHint;
  Hint pages = kUnknownHint, max_pages = kUnknownHint, tokens_k = kUnknownHint;
  Hint window_size_left = kUnknownHint, window_size_right = kUnknownHint;
  friend bool operator==(const Fmha&, const Fmha&) = default;
};

template <>
const OperatorType& operator_type<Fmha>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> fmha_fields();

}  // namespace tessera

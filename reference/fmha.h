// Attention forward in float64, and the verdict over a kernel's outputs.
//
// q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim], v [batch, seqlen_k, heads_kv,
// head_dim_v], o [batch, seqlen_q, heads_q, head_dim_v], any strides; row statistics fp32 [batch, heads_q, seqlen_q].
// Query head h reads key head h / (heads_q / heads_kv). Causal is aligned bottom right: query i sees keys j <= i +
// seqlen_k - seqlen_q. A row that sees no key: o = 0, row_sum = 0, row_max = lse = -inf. Un-normalised: o = sum exp(s -
// m) v and row_sum = sum exp(s - m) with m = row_max as the kernel reports it; both are compared relative to that m, m
// itself with the true maximum of the scaled scores. lse = m + ln(row_sum).
//
// A problem too large for a CPU is sampled in whole rows: of one head the first, the last and every tile edge (the rows
// at both sides), of further heads the first, the last and random ones. The poison check always covers every element.
//
// Whole numbers: with inputs of make_integer_inputs() and softmax_scale = ln 2 every score is a small whole number,
// every exponential a power of two and every sum exact in fp32, so that un-normalised outputs must be equal and
// normalised ones may differ by the division alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::reference {

/// Powers of two between a row's maximum and its reference where P has 8 bits; `mma_kind` as a plan has it.
inline int lowered_beside(std::string_view mma_kind) { return mma_kind.substr(0, 5) == "wgmma" ? 4 : 6; }

struct FmhaInputs {
  TensorView q, k, v;
  /// Valid lengths [batch]; absent: all of the tensors'.
  std::optional<TensorView> seqused_q{}, seqused_k{};
  /// Factors of k and v, and of q, [batch, heads_kv]; absent: 1. They count as part of the numbers.
  std::optional<TensorView> k_descale{}, v_descale{}, q_descale{};
};

/// What a kernel wrote. lse, row_max and row_sum are optional; un-normalised outputs need row_max.
struct FmhaOutputs {
  TensorView o;
  std::optional<TensorView> lse, row_max, row_sum;
};

struct FmhaCheck {
  AttentionFacts facts{};  ///< of these mask, v_is_k and whether o is normalised; shapes come with the tensors
  std::int64_t window_size_left = -1, window_size_right = -1;  ///< -1: no bound
  std::int64_t attention_chunk = 0;                            ///< keys of a chunk; 0: there are none
  std::int64_t num_splits = 1;                                 ///< parts of the keys that the kernel merges
  std::optional<TensorView> sink{};  ///< [heads_q]: a logit of each head, in the denominator of a normalised o only
  std::optional<TensorView> alibi_slopes{};  ///< [heads_q]: times a key's distance, subtracted from its score
  std::optional<TensorView> tree_mask{};     ///< [.., words], s32: which of the last keys, those of queries, one sees
  std::vector<std::int64_t> tree_starts{};   ///< its row of each sequence's first query; empty: all have seqlen_q rows
  double softmax_scale = 1;
  double softcap = 0;              ///< scores are softcap * tanh(. / softcap); 0: as they are
  bool is_exact = false;           ///< inputs are make_integer_inputs() and softmax_scale is ln 2
  bool judges_rel_error = true;    ///< false for inputs that the user chose: their roundings need not be independent
  int tile_m = 128, tile_n = 128;  ///< of the kernel: edges to sample, steps of the bound
  int promote_every = 0;           ///< 8-bit q: keys after which sums become fp32; 0: never
  int lowered = 6;                 ///< 8-bit q: powers of two from a maximum to its reference; see lowered_beside()
  bool has_long_sums = false;      ///< 8-bit q: tensor cores keep as many bits as of 16-bit products (tcgen05)
  bool widens_to_queries = false;  ///< 8-bit keys: P and V become q's type, not f16 (tcgen05, v_is_k)
  std::int64_t max_multiply_adds = std::int64_t{1} << 31;  ///< more than that is sampled
  std::uint64_t seed = 1;
  int jobs = 0;

  bool is_normalized() const { return facts.output == Output::normalized; }
};

/// The first columns of k [.., head_dim] as v, where values are those of their keys.
TensorView first_columns(TensorView k, std::int64_t columns);

/// One row of float64 results. Precondition: the places are inside.
struct FmhaRow {
  std::vector<double> o;
  double row_max = 0, row_sum = 0, lse = 0;
};
FmhaRow fmha_row(const FmhaInputs& inputs, const FmhaCheck& check, std::int64_t batch, std::int64_t head,
                 std::int64_t row);

/// Throws Error{usage} when shapes do not fit each other.
Comparison check_fmha(const FmhaInputs& inputs, const FmhaOutputs& outputs, const FmhaCheck& check);

/// Sizes of one attention problem.
struct FmhaSizes {
  std::int64_t batch = 1, heads_q = 1, heads_kv = 1, seqlen_q = 1, seqlen_k = 1, head_dim = 64;
  std::optional<std::int64_t> head_dim_v{};  ///< not given: head_dim
  std::int64_t v_columns() const { return head_dim_v.value_or(head_dim); }
};
/// Random trees of drafted tokens, whose sequences have these numbers of queries: [rows, words], s32.
Tensor make_tree_mask(const std::vector<std::int64_t>& queries, std::int64_t words, std::uint64_t seed);
struct FmhaTensors {
  Tensor q, k, v;
};
FmhaTensors make_inputs(const FmhaSizes& sizes, DType dtype, Fill fill, std::uint64_t seed);
/// softmax_scale must be ln 2.
FmhaTensors make_integer_inputs(const FmhaSizes& sizes, DType dtype, std::uint64_t seed);

}  // namespace tessera::reference

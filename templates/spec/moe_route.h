// A router of experts: from logits to each token's top k experts and their weights, and the lists by which grouped
// products and row operators find the rows of each expert.
//
//   score_e   softmax(logits)_e, 1 / (1 + e^-logit), or the root of ln(1 + e^logit); fp32
//   choice    the k largest of score_e + bias_e; without a bias of the logits, which have the same order, exactly.
//   Among
//             equals the smaller e; a NaN comes behind all numbers. Slot 0 has the largest
//             With expert_groups > 1 only experts of topk_groups groups are chosen: of those with the largest sums of
//             their two largest score + bias, the smaller group among equals (DeepSeek-V3); the order is then that of
//             score + bias, without a bias of scores
//   weights   score_e (no bias), divided by (their sum + 1e-20) with `renormalize`, times `scale`
//
// Lists, for (token, slot) pairs sorted by expert and then by token:
//   contiguous  group e has the rows from groups[e] to groups[e + 1], its size rounded up to `alignment`; counts[e] of
//               them are pairs
//   masked      group e has the rows from e masked_rows on, the first groups[e] are pairs. Pairs behind masked_rows
//               have no row: their slot is -1
// Of a row: indices (its token, -1 where it is padding) and row_weights (0 there); of a pair: slots (its row).
//
// One step has a warp for each token; its CTAs have up to kMaxChunks chunks of tokens, and count each expert's. Up to
// kTokensOfRound tokens are one chunk, whose CTA writes the lists too. Of more the second step writes them, a CTA for
// each chunk: where an expert's pairs of a chunk begin is the sum of the chunks' counts before. Within a chunk, 64
// tokens at a time, each expert has a mask of its tokens, and a pair's place is the number of bits below its own: no
// order of threads changes it.
//
// Entry parameters of both steps, in this order:
//   const void* logits; long long logits_stride_m       elements
//   const float* bias                                   with a bias
//   int* topk_experts; float* topk_weights              [m, top_k]
//   int* groups, counts (contiguous), indices; float* row_weights; int* slots      with groups
//   int* workspace                                      with groups: counts, [chunks][experts]
//   float scale; int m
//   int rows                                            with groups: of the lists; masked: of each group
// Launch: {chunks, 1, 1} CTAs (chunks = 1 to kMaxChunks, at least ceil(m / kTokensOfRound) where that is less) of
// {kThreads, 1, 1}, smem_bytes() of shared memory, programmatic stream serialization. The second step has as many CTAs,
// none for one chunk.
#pragma once

#include "spec/kernel_parts.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/route_types.h"
#include "tessera/spec/types.h"

namespace tessera::moe_route {

struct Config {
  DType dtype = DType::f32;  // of logits
  int experts = 256;
  int top_k = 8;
  int expert_groups = 1;
  int topk_groups = 1;
  Scoring scoring = Scoring::sigmoid;
  Bias bias = Bias::none;
  Renormalize renormalize = Renormalize::on;
  Grouping grouping = Grouping::contiguous;
  int alignment = 1;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kWarp = 32, kThreads = 512, kWarps = kThreads / kWarp;
inline constexpr int kVector = 8;  // neighbouring experts of a lane
inline constexpr int kMaxExperts = kThreads, kMaxTopK = 16, kMaxAlignment = 4096, kMaxExpertGroups = 32;
inline constexpr int kTokensOfRound = 64, kMaxChunks = 256;
inline constexpr int kMaskWords = kTokensOfRound / 32;

TESSERA_HD constexpr int vectors_of_lane(const Config& c) {
  return static_cast<int>(ceil_div(c.experts, static_cast<long long>(kWarp * kVector)));
}
// Groups of experts are whole vectors of lanes side by side.
TESSERA_HD constexpr bool has_expert_groups(const Config& c) { return c.expert_groups > 1; }
TESSERA_HD constexpr int experts_of_group(const Config& c) { return c.experts / c.expert_groups; }
TESSERA_HD constexpr int lanes_of_group(const Config& c) { return experts_of_group(c) / kVector; }
TESSERA_HD constexpr bool has_lists(const Config& c) { return c.grouping != Grouping::none; }
// Counts of a chunk are read in vectors of 4 experts, by as many threads side by side as there are vectors.
TESSERA_HD constexpr int readers_of_count(const Config& c) { return kThreads / (c.experts / 4); }

// Shared memory: sums of chunks' counts (all, and those before), per expert its pairs, those of chunks before, the row
// of its next pair and the masks of a round; sums of warps, and where all experts' rows end.
inline constexpr int kPartsBytes = 2 * kThreads * 16, kSumsBytes = 4 * kWarps + 16;
TESSERA_HD constexpr int experts_bytes(const Config& c) { return c.experts * 4 * (3 + kMaskWords); }
TESSERA_HD constexpr int smem_bytes(const Config& c) {
  return has_lists(c) ? kPartsBytes + experts_bytes(c) + kSumsBytes : 0;
}

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,        // bytes of an element; 4
  experts_out_of_range,      // experts; 512
  experts_not_vectors,       // experts; 8
  top_k_out_of_range,        // top_k; 16
  top_k_above_experts,       // top_k; experts
  groups_out_of_range,       // groups; 32
  groups_uneven,             // experts; groups
  groups_not_lanes,          // experts of a group; 8
  topk_groups_out_of_range,  // groups that are taken; groups
  top_k_above_groups,        // top_k; experts of the groups that are taken
  alignment_out_of_range,    // alignment; 4,096
  alignment_without_lists,   // alignment; 1
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f32 && c.dtype != DType::f16 && c.dtype != DType::bf16)
    return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.experts < kVector || c.experts > kMaxExperts) return {Rule::experts_out_of_range, c.experts, kMaxExperts};
  if (c.experts % kVector != 0) return {Rule::experts_not_vectors, c.experts, kVector};
  if (c.top_k < 1 || c.top_k > kMaxTopK) return {Rule::top_k_out_of_range, c.top_k, kMaxTopK};
  if (c.top_k > c.experts) return {Rule::top_k_above_experts, c.top_k, c.experts};
  if (c.expert_groups < 1 || c.expert_groups > kMaxExpertGroups)
    return {Rule::groups_out_of_range, c.expert_groups, kMaxExpertGroups};
  if (c.experts % c.expert_groups != 0) return {Rule::groups_uneven, c.experts, c.expert_groups};
  const int lanes = lanes_of_group(c);
  if (has_expert_groups(c) && (experts_of_group(c) % kVector != 0 || lanes > kWarp || (lanes & (lanes - 1)) != 0))
    return {Rule::groups_not_lanes, experts_of_group(c), kVector};
  if (c.topk_groups < 1 || c.topk_groups > c.expert_groups)
    return {Rule::topk_groups_out_of_range, c.topk_groups, c.expert_groups};
  if (c.top_k > c.topk_groups * experts_of_group(c))
    return {Rule::top_k_above_groups, c.top_k, c.topk_groups * experts_of_group(c)};
  if (c.alignment < 1 || c.alignment > kMaxAlignment) return {Rule::alignment_out_of_range, c.alignment, kMaxAlignment};
  if (c.alignment > 1 && c.grouping != Grouping::contiguous) return {Rule::alignment_without_lists, c.alignment, 1};
  return {};
}

}  // namespace tessera::moe_route

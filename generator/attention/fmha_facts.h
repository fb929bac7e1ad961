// What all families of attention say of the facts of a kernel: names, operands, refusals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan.h"
#include "tessera/spec/attention_types.h"

namespace tessera {

/// "64", "192/128": with head_dim_v where it differs.
std::string head_dims_text(int head_dim, int head_dim_v);

/// "d64", "d192v128": of a kernel's name.
std::string head_dims_name(const AttentionFacts& facts);
/// "_window_usedk_paged16": what a kernel's name says of which keys a query sees and where they lie.
std::string places_name(const AttentionFacts& facts);

/// Whether a Problem of these facts may have the field of that name: of dense keys no size of pages, of keys with
/// scales no type beside their format.
bool may_pin(const AttentionFacts& facts, std::string_view name);

/// The instruction of kernels by mma.sync, whose Configs have mma_f16 for all operands.
MmaKind mma_sync_kind(const AttentionFacts& facts);

/// Those of two pools beside q, k, v, o and lse. swizzle: of the window's tensor maps; empty: threads load it. Where
/// values are a part of keys: swa_k, lists and their lengths.
std::vector<OperandPlan> listed_operands(const std::string& dtype);
std::vector<OperandPlan> pool_operands(const std::string& dtype, const std::string& swizzle);
/// Those that a fact adds to q, k, v, o and lse; none of them has a tensor map.
std::vector<OperandPlan> fact_operands(const AttentionFacts& facts);

/// "kv_cache mla_656: there is no kernel that reads it": the first fact that is not as the kernels that `read` stands
/// for take it; empty if all are.
std::string unread_fact(const AttentionFacts& facts, const AttentionFacts& read);

/// Throws Error{unsupported} for a type that no family has kernels for.
void require_dtype(const Fmha& problem);
/// Throws Error{unsupported} for facts of scores that do not go together.
void require_facts_of_scores(const Fmha& problem);
/// Throws Error{unsupported} for ragged queries beside what says lengths of queries otherwise, or lists their keys.
void require_queries(const Fmha& problem);
/// Throws Error{unsupported} for parts with a size where keys are not split, and for those that are not known to lie
/// at their multiples. remedy: the split_kv to take.
void require_split(const Fmha& problem, std::string_view remedy);
/// Throws Error{unsupported} for the size of a thing that the problem has not: a window, a list of rows.
void require_sizes_of_facts(const Fmha& problem);

}  // namespace tessera

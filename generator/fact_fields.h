// The facts that a family's Config has nested, by name: for generated code, JSON and printed plans.
#pragma once

#include "spec/product_facts.h"
#include "tessera/spec/attention_types.h"

namespace tessera {

/// visit("a_type", OperandType::bf16), ..., in the order of the struct and of JSON. The structured binding fails to
/// compile when there is a fact more. How sums are kept is a fact of families that have the choice alone.
template <bool kHasAccumulation, class Visit>
void visit_facts(const ProductFacts& facts, Visit&& visit) {
  const auto& [a_type, b_type, a_layout, b_layout, d_dtype, accumulation, c, bias, activation, gate, interleave,
               gate_activation, gate_limit, d_format, grouping, a_scale_block, b_scale_block, gather, d_scale_block,
               d_scale_values] = facts;
  visit("a_type", a_type);
  visit("b_type", b_type);
  visit("a_layout", a_layout);
  visit("b_layout", b_layout);
  visit("d_dtype", d_dtype);
  if constexpr (kHasAccumulation) visit("accumulation", accumulation);
  visit("c", c);
  visit("bias", bias);
  visit("activation", activation);
  visit("gate", gate);
  visit("interleave", interleave);
  visit("gate_activation", gate_activation);
  visit("gate_limit", gate_limit);
  visit("d_format", d_format);
  visit("grouping", grouping);
  visit("a_scale_block", a_scale_block);
  visit("b_scale_block", b_scale_block);
  visit("gather", gather);
  visit("d_scale_block", d_scale_block);
  visit("d_scale_values", d_scale_values);
}

/// visit("head_dim", 128), ..., in the order of JSON. The structured binding fails to compile when there is a fact
/// more.
template <class Visit>
void visit_facts(const AttentionFacts& facts, Visit&& visit) {
  const auto& [head_dim, head_dim_v, dtype, mask, window, seqused, kv_pools, kv_layout, page_size, sink, softcap, alibi,
               tree_mask, output, v_layout, q_layout, v_is_k, kv_dtype, split_size, o_dtype, kv_cache, kv_format] =
      facts;
  visit("head_dim", head_dim);
  visit("head_dim_v", head_dim_v);
  visit("dtype", dtype);
  visit("mask", mask);
  visit("window", window);
  visit("seqused", seqused);
  visit("kv_pools", kv_pools);
  visit("kv_layout", kv_layout);
  visit("page_size", page_size);
  visit("sink", sink);
  visit("softcap", softcap);
  visit("alibi", alibi);
  visit("tree_mask", tree_mask);
  visit("output", output);
  visit("v_layout", v_layout);
  visit("q_layout", q_layout);
  visit("v_is_k", v_is_k);
  visit("kv_dtype", kv_dtype);
  visit("split_size", split_size);
  visit("o_dtype", o_dtype);
  visit("kv_cache", kv_cache);
  visit("kv_format", kv_format);
}

}  // namespace tessera

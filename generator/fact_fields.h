// The facts that a family's Config has nested, by name: for generated code, JSON and printed plans.
#pragma once

#include "spec/product_facts.h"

namespace tessera {

/// visit("a_type", OperandType::bf16), ..., in the order of JSON. The structured binding fails to compile when there is
/// a fact more. Accumulation is visited by the family that has the choice.
template <class Visit>
void visit_facts(const ProductFacts& facts, Visit&& visit) {
  const auto& [a_type, b_type, a_layout, b_layout, d_dtype, accumulation, c, bias, activation, gate, interleave,
               d_format, grouping] = facts;
  visit("a_type", a_type);
  visit("b_type", b_type);
  visit("a_layout", a_layout);
  visit("b_layout", b_layout);
  visit("d_dtype", d_dtype);
  visit("c", c);
  visit("bias", bias);
  visit("activation", activation);
  visit("gate", gate);
  visit("interleave", interleave);
  visit("d_format", d_format);
  visit("grouping", grouping);
}

}  // namespace tessera

// Facts of attention, each changed alone: for tests that a family reads a fact or refuses it by its name.
#pragma once

#include <string_view>
#include <type_traits>

#include "generator/fact_fields.h"

namespace tessera {

/// judge("head_dim", facts), ...: the facts with one that is not as before, 0 or false in place of another value.
template <class Judge>
void for_each_changed_fact(AttentionFacts facts, const Judge& judge) {
  visit_facts(facts, [&](std::string_view fact, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    auto& changed = const_cast<Value&>(value);  // of this function's own facts
    const Value before = value;
    changed = static_cast<Value>(static_cast<int>(value) == 0 ? 1 : 0);
    judge(fact, facts);
    changed = before;
  });
}

}  // namespace tessera

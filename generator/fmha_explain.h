// Words for the rules that attention has on every target. Rules are enumerations of each target's spec header; these
// have the same names in all of them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "generator/words.h"
#include "spec/types.h"

namespace tessera {

template <class Config, class Rule>
std::string explain_shared_rule(const Config& config, const Verdict<Rule>& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::dtype_not_16_bit:
      return fmt::format("{} elements of {} bytes, {} allowed: take bf16 or f16", to_word(config.dtype), found, bound);
    case Rule::head_dim_v_exceeds_head_dim:
      return fmt::format("head_dim_v {}, at most head_dim {} allowed (O leaves through Q's slot)", found, bound);
    case Rule::head_dim_not_multiple_of_span:
      return fmt::format(
          "rows of {} bytes, a multiple of the {} bytes of a swizzle span needed: take a narrower swizzle", found,
          bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 1 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 1 ? "drop a stage" : "take a smaller tile");
    default:
      return "?";
  }
}

}  // namespace tessera

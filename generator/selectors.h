// The fields of a Problem by name: one table per operator drives command-line flags, the keys of shape lists, what
// `plan` prints and the documentation.
//
// Values go in and out as text, in one spelling everywhere: whole numbers in decimal, words of generator/words.h,
// targets like "sm_90a". A pin that the planner may choose itself reads "auto"; a hint that is unknown reads
// "unknown".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/problem.h"

namespace tessera {

enum class SelectorKind : std::uint8_t {
  fact,  ///< the compiled code depends on it
  pin,   ///< fixes a choice of the planner's; "auto" leaves it to the planner
  hint   ///< an expected size, or "unknown": steers the planner's choice only
};
std::string_view to_string(SelectorKind kind) noexcept;

/// One field of an operator's Problem.
struct Selector {
  std::string_view flag;  ///< "head-dim": the command-line flag is --head-dim
  std::string_view key;   ///< "head_dim": the JSON key, and the field's name in Problem and Config
  SelectorKind kind = SelectorKind::fact;
  std::vector<std::string_view> words;  ///< the legal spellings, "auto" aside; empty: a whole number, or a target
  bool is_number = false;
  std::int64_t min = 0, max = 0;  ///< bounds of a whole number
  std::string_view help;
  void (*set)(Problem& problem, const Selector& selector, std::string_view text) = nullptr;  ///< see set_field
  std::string (*text)(const Problem& problem) = nullptr;                                     ///< see field_text
  std::size_t (*hash)(const void* facts) noexcept = nullptr;  ///< of the field in the struct of the Problem
};

/// "copy2d", "fmha", "gemm": in the order of documentation.
std::vector<std::string_view> operator_names();

/// The operator's fields, in the order of its Problem. Throws Error{usage} with the operators that exist.
std::span<const Selector> selectors(std::string_view op);

/// The operator's default Problem, a legal one. Throws Error{usage} like selectors().
Problem default_problem(std::string_view op);

/// Whether `op` is no operator's name but a chain of rows, or a word of one, which stands for rows with that chain.
/// Throws Error{usage} for a chain of several parts that is misspelled.
bool is_row_chain(std::string_view op);

/// Sets one field. Throws Error{usage}: "tile_m = 12x: must be a whole number", "mask = casual: must be one of none,
/// causal", "fmha has no field tile: its fields are arch, head_dim, ...". The problem is then unchanged. A value that
/// is well-formed but that no kernel has is not refused here: make_plan tells the reason.
void set_field(Problem& problem, std::string_view key, std::string_view text);

/// What set_field takes: "128", "causal", "auto". Throws Error{usage} for an unknown key.
std::string field_text(const Problem& problem, std::string_view key);

}  // namespace tessera

// What the library knows of an operator: its fields by name, and a row for each family of kernels. They stand where
// operator_type() of its Problem is defined; which operators there are says tessera/problem.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/selectors.h"
#include "tessera/plan.h"

namespace tessera {

/// Kernels of one operator for some targets: one set of templates with its Config. generator/family.h makes the row of
/// a planner.
struct FamilyRow {
  std::string_view name;     ///< "wgmma", "tcgen05", ...
  std::string_view targets;  ///< "sm_90a": completes "there is one for"
  bool (*has_target)(Arch target) noexcept;
  bool (*serves)(const Problem& problem);  ///< null: every problem for these targets
  Plan (*plan)(const Problem& problem);
  Plan (*bare_plan)(const Problem& problem);  ///< without reason and rejected
  std::string (*planned_kernel)(const Problem& problem);
  std::vector<Problem> (*pinned_candidates)(const Problem& problem);
};

struct OperatorType {
  std::string_view name;
  std::span<const Selector> (*fields)();
  std::span<const FamilyRow> families;
  Problem (*make_default)();
  // Of the struct of its Problem.
  Arch (*arch)(const void* facts) noexcept;
  bool (*equal)(const void* a, const void* b) noexcept;
  std::shared_ptr<void> (*copy)(const void* facts);
};

/// The type of an operator whose Problem's struct is Facts.
template <ProblemFacts Facts>
constexpr OperatorType make_operator_type(std::span<const Selector> (*fields)(), std::span<const FamilyRow> families) {
  return {
      .name = Facts::kOperator,
      .fields = fields,
      .families = families,
      .make_default = [] { return Problem(Facts{}); },
      .arch = [](const void* facts) noexcept { return static_cast<const Facts*>(facts)->arch; },
      .equal = [](const void* a,
                  const void* b) noexcept { return *static_cast<const Facts*>(a) == *static_cast<const Facts*>(b); },
      .copy = [](const void* facts) -> std::shared_ptr<void> {
        return std::make_shared<Facts>(*static_cast<const Facts*>(facts));
      }};
}

/// Operators that the library has, in the order of documentation.
std::span<const OperatorType* const> operator_types() noexcept;

/// The family that has kernels for the Problem's target. Throws Error{unsupported} with those that there are.
const FamilyRow& family_of(const Problem& problem);

}  // namespace tessera

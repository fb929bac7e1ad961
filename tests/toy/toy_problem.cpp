#include "tests/toy/toy_problem.h"

#include "generator/family.h"
#include "generator/field_table.h"
#include "tests/toy/toy_operator.h"

namespace tessera {

std::span<const Selector> toy_scale_fields() {
  static const std::vector<Selector> table = {
      field<&ToyScale::arch>("arch", "arch", "target: sm_90a or sm_100a"),
      offer(field<&ToyScale::activation>("activation", "activation", "what is applied"), {"none", "relu"}),
      field<&ToyScale::threads>("threads", "threads", "threads of a CTA"),
      field<&ToyScale::n>("n", "n", "expected elements"),
  };
  return table;
}

namespace {

constexpr Targets kNarrow{"sm_90a", [](Arch t) noexcept { return has_family(t, MmaFamily::wgmma); }};
constexpr Targets kWide{"sm_100a", [](Arch t) noexcept { return t == Arch{.number = 100, .suffix = 'a'}; }};

constexpr FamilyRow kFamilies[] = {family_row<ToyScaleOperator<1>>("narrow", kNarrow),
                                   family_row<ToyScaleOperator<4>>("wide", kWide)};
constexpr OperatorType kType = make_operator_type<ToyScale>(toy_scale_fields, kFamilies);

}  // namespace

template <>
const OperatorType& operator_type<ToyScale>() noexcept {
  return kType;
}

}  // namespace tessera

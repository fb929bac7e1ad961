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

bool has_narrow(Arch target) noexcept { return has_family(target, MmaFamily::wgmma); }
bool has_wide(Arch target) noexcept { return target == Arch{.number = 100, .suffix = 'a'}; }

constexpr FamilyRow kFamilies[] = {family_row<ToyScaleOperator<1>>("narrow", "sm_90a", has_narrow),
                                   family_row<ToyScaleOperator<4>>("wide", "sm_100a", has_wide)};
constexpr OperatorType kType = make_operator_type<ToyScale>(toy_scale_fields, kFamilies);

}  // namespace

template <>
const OperatorType& operator_type<ToyScale>() noexcept {
  return kType;
}

}  // namespace tessera

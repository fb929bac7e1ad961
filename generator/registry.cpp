// The operators of the library, and which family plans a problem: the first whose row has the target and the problem.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "generator/operator_type.h"
#include "tessera/error.h"
#include "tessera/problem.h"

namespace tessera {

namespace {

template <class... Facts>
std::array<const OperatorType*, sizeof...(Facts)> types_of(OperatorList<Facts...>) {
  return {&operator_type<Facts>()...};
}

}  // namespace

std::span<const OperatorType* const> operator_types() noexcept {
  static const auto types = types_of(Operators{});
  return types;
}

const FamilyRow& family_of(const Problem& problem) {
  const Arch target = arch_of(problem);
  std::vector<std::string_view> targets;
  for (const FamilyRow& family : problem.type().families) {
    if (family.serves != nullptr && !family.serves(problem)) continue;
    if (family.has_target(target)) return family;
    targets.push_back(family.targets);
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("{} has no kernel for arch {}: there is one for {}", operator_name(problem),
                          target.to_string(), fmt::join(targets, ", and for ")));
}

}  // namespace tessera

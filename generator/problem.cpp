// The hash sees all fields, hints too, as equality does: a Problem is a key of the library's map of kernels.
#include <fmt/format.h>

#include <functional>

#include "base/assert.h"
#include "generator/operator_type.h"
#include "tessera/any_problem.h"

namespace tessera {

void Problem::require(const OperatorType& type) const {
  TESSERA_ASSERT(type_ == &type, fmt::format("a problem of {} taken for one of {}",
                                             type_ == nullptr ? std::string_view("none") : type_->name, type.name));
}

void* Problem::own() {
  if (facts_.use_count() != 1) facts_ = type_->copy(facts_.get());
  return facts_.get();
}

bool operator==(const Problem& a, const Problem& b) noexcept {
  if (a.type_ != b.type_) return false;
  return a.facts_ == b.facts_ || a.type_->equal(a.facts_.get(), b.facts_.get());
}

std::string_view operator_name(const Problem& problem) noexcept { return problem.type().name; }

Arch arch_of(const Problem& problem) noexcept { return problem.type().arch(problem.facts_.get()); }

std::size_t ProblemHash::operator()(const Problem& problem) const noexcept {
  return problem.type_ == nullptr ? 0 : hash_of_facts(*problem.type_, problem.facts_.get());
}

std::size_t hash_of_facts(const OperatorType& type, const void* facts) noexcept {
  std::size_t seed = std::hash<std::string_view>{}(type.name);
  for (const Selector& field : type.fields())
    seed ^= field.hash(facts) + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
  return seed;
}

}  // namespace tessera

#include "generator/selectors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/shown.h"
#include "base/suggestion.h"
#include "generator/operator_type.h"
#include "tessera/error.h"
#include "tessera/problem.h"
#include "tessera/row_chain.h"

namespace tessera {

namespace {

const Selector& selector_of(const Problem& problem, std::string_view key) {
  const std::span<const Selector> table = problem.type().fields();
  for (const Selector& selector : table)
    if (selector.key == key) return selector;
  std::vector<std::string_view> keys;
  for (const Selector& selector : table) keys.push_back(selector.key);
  throw Error(ErrorKind::usage, fmt::format("{} has no field {}: its fields are {}{}", operator_name(problem),
                                            shown(key), fmt::join(keys, ", "), suggestion(key, keys)));
}

const OperatorType* type_named(std::string_view op) {
  for (const OperatorType* const type : operator_types())
    if (type->name == op) return type;
  return nullptr;
}

/// A chain of rows, or one of its words (rmsnorm, append_kv(128), ...). Of several parts, or of one with options, a
/// mistake is told with its place; a word may be anything.
std::optional<RowChain> chain_of(std::string_view op) {
  try {
    return parse_row_chain(op);
  } catch (const Error&) {
    if (op.find_first_of("+(") == std::string_view::npos) return {};
    throw;
  }
}

const OperatorType& type_of(std::string_view op) {
  if (const OperatorType* const type = type_named(op)) return *type;
  if (chain_of(op)) return operator_type<Rows>();
  throw Error(ErrorKind::usage, fmt::format("op = {}: must be one of {}{}", shown(op),
                                            fmt::join(operator_names(), ", "), suggestion(op, operator_names())));
}

}  // namespace

std::string_view to_string(SelectorKind kind) noexcept {
  switch (kind) {
    case SelectorKind::fact:
      return "fact";
    case SelectorKind::pin:
      return "pin";
    case SelectorKind::hint:
      return "hint";
  }
  return "?";
}

std::vector<std::string_view> operator_names() {
  std::vector<std::string_view> names;
  for (const OperatorType* const type : operator_types()) names.push_back(type->name);
  return names;
}

std::span<const Selector> selectors(std::string_view op) { return type_of(op).fields(); }

bool is_row_chain(std::string_view op) { return type_named(op) == nullptr && chain_of(op).has_value(); }

Problem default_problem(std::string_view op) {
  if (!is_row_chain(op)) return type_of(op).make_default();
  Rows rows;
  rows.chain = *chain_of(op);
  if (const int columns = told_columns(rows.chain); columns > 0) rows.columns = columns;
  return rows;
}

void set_field(Problem& problem, std::string_view key, std::string_view text) {
  const Selector& selector = selector_of(problem, key);
  selector.set(problem, selector, text);
}

std::string field_text(const Problem& problem, std::string_view key) { return selector_of(problem, key).text(problem); }

}  // namespace tessera

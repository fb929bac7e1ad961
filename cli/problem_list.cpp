#include "cli/problem_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::cli {

std::optional<std::int64_t> Product::count() const {
  auto total = static_cast<std::int64_t>(std::max<std::size_t>(sizes.size(), 1));
  for (const FieldValues& field : fields)
    if (__builtin_mul_overflow(total, static_cast<std::int64_t>(field.values.size()), &total)) return std::nullopt;
  return total;
}

bool Product::is_explicit() const {
  return std::all_of(fields.begin(), fields.end(), [](const FieldValues& field) {
    return field.values.size() == 1 || field.selector->kind == SelectorKind::hint;
  });
}

std::int64_t ProblemList::count() const {
  std::int64_t total = 0;
  for (const Product& product : products) {
    const std::optional<std::int64_t> count = product.count();
    if (!count || __builtin_add_overflow(total, *count, &total) || total > kMaxProblems)
      throw Error(
          ErrorKind::usage,
          fmt::format("{}{} problems in all: at most {} are taken in one call; give fewer values or split the list",
                      product.place.empty() ? "" : product.place + ": ",
                      count ? fmt::format("at least {}", std::max(total, *count)) : "more than 2^63", kMaxProblems));
  }
  return total;
}

namespace {

void expand_product(const Product& product, const std::function<void(const Problem&)>& visit) {
  Problem problem = default_problem(product.op);
  const auto set = [&](const Selector* selector, std::string_view text) { selector->set(problem, *selector, text); };
  for (const FieldValues& field : product.fields) set(field.selector, field.values.front());
  std::vector<std::size_t> at(product.fields.size(), 0);
  while (true) {
    if (product.sizes.empty()) visit(problem);
    for (const SizeSet& size : product.sizes) {
      const Problem before = problem;
      for (const auto& [selector, text] : size.values) set(selector, text);
      visit(problem);
      problem = before;
    }
    std::size_t i = product.fields.size();
    while (i > 0) {
      --i;
      const FieldValues& field = product.fields[i];
      const bool carries = ++at[i] == field.values.size();
      if (carries) at[i] = 0;
      set(field.selector, field.values[at[i]]);
      if (!carries) break;
      if (i == 0) return;
    }
    if (product.fields.empty()) return;
  }
}

}  // namespace

void ProblemList::for_each(const std::function<void(const Problem&, std::size_t)>& visit) const {
  num_tuned_ = 0;
  for (std::size_t i = 0; i < products.size(); ++i)
    expand_product(products[i], [&](const Problem& problem) {
      if (!tuning) return visit(problem, i);
      Problem tuned = problem;
      num_tuned_ += tuning->apply(tuned) ? 1 : 0;
      visit(tuned, i);
    });
}

std::vector<Problem> ProblemList::expand() const {
  std::vector<Problem> problems;
  problems.reserve(static_cast<std::size_t>(count()));
  for_each([&](const Problem& problem, std::size_t) { problems.push_back(problem); });
  return problems;
}

const Product& ProblemList::product_of(std::size_t problem) const {
  if (ends_.size() != products.size()) {
    ends_.clear();
    std::int64_t end = 0;
    for (const Product& product : products) ends_.push_back(end += product.count().value_or(0));
  }
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), static_cast<std::int64_t>(problem));
  if (found == ends_.end()) throw Error(ErrorKind::usage, fmt::format("problem {} is not in the list", problem));
  return products[static_cast<std::size_t>(found - ends_.begin())];
}

ProblemList parse_selectors(std::string_view op, const std::vector<TypedSelector>& typed) {
  ProblemList list;
  Product product;
  const std::span<const Selector> table = selectors(op);
  product.op = list.keep(std::string(op));
  for (const Selector& selector : table) {
    const auto given =
        std::find_if(typed.begin(), typed.end(), [&](const TypedSelector& t) { return t.key == selector.key; });
    if (given == typed.end()) continue;
    FieldValues field{&selector, {}};
    const std::string_view text = list.keep(given->text);
    Problem scratch = default_problem(op);
    for (std::size_t start = 0; start <= text.size();) {
      const std::size_t comma = std::min(text.find(',', start), text.size());
      const std::string_view value = text.substr(start, comma - start);
      set_field(scratch, selector.key, value);
      if (std::find(field.values.begin(), field.values.end(), value) != field.values.end())
        throw Error(ErrorKind::usage, fmt::format("--{} names {} twice", selector.flag, value));
      field.values.push_back(value);
      start = comma + 1;
    }
    product.fields.push_back(std::move(field));
  }
  for (const TypedSelector& t : typed) {
    Problem scratch = default_problem(op);
    field_text(scratch, t.key);  // an unknown key is refused here, with the keys that exist
  }
  list.products.push_back(std::move(product));
  static_cast<void>(list.count());
  return list;
}

}  // namespace tessera::cli

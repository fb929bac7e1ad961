#include "tessera/internal/problem_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/error.h"

namespace tessera {

std::optional<std::int64_t> Product::count() const {
  std::int64_t total = std::max<std::int64_t>(sizes.count(), 1);
  for (const FieldValues& field : fields)
    if (__builtin_mul_overflow(total, static_cast<std::int64_t>(field.values.size()), &total)) return std::nullopt;
  return total;
}

bool Product::is_explicit() const {
  return std::all_of(fields.begin(), fields.end(), [](const FieldValues& field) {
    return field.values.size() == 1 || field.selector->kind == SelectorKind::hint;
  });
}

void ProblemList::take(Product product) {
  add(product);
  typed_ = std::move(product);
}

void ProblemList::add(const Product& product) {
  const std::optional<std::int64_t> count = product.count();
  std::int64_t total = this->count();
  if (!count || __builtin_add_overflow(total, *count, &total) || total > kMaxProblems) {
    if (excess_.empty())
      excess_ =
          fmt::format("{}{} problems in all: at most {} are taken in one call; give fewer values or split the list",
                      product.place.empty() ? "" : product.place + ": ",
                      count ? fmt::format("at least {}", std::max(total, *count)) : "more than 2^63", kMaxProblems);
    return;
  }
  ends_.push_back(total);
  is_explicit_.push_back(product.is_explicit());
}

void ProblemList::require_few_enough() const {
  if (!excess_.empty()) throw Error(ErrorKind::usage, excess_);
}

namespace {

/// The comma behind the value that begins at `start`, or the text's end. Commas in parentheses are part of a value.
std::size_t end_of_value(std::string_view text, std::size_t start) {
  int depth = 0;
  for (std::size_t i = start; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
    if (text[i] == ',' && depth <= 0) return i;
  }
  return text.size();
}

bool expand_product(const Product& product, const std::function<bool(const Problem&)>& visit) {
  Problem problem = default_problem(product.op);
  const auto set = [&](const Selector* selector, std::string_view text) { selector->set(problem, *selector, text); };
  for (const FieldValues& field : product.fields) set(field.selector, field.values.front());
  std::vector<std::size_t> at(product.fields.size(), 0);
  while (true) {
    if (product.sizes.count() == 0 && !visit(problem)) return false;
    const bool goes_on = product.sizes.for_each_while([&](const SizeSet& size) {
      Problem sized = problem;
      for (const auto& [selector, text] : size.values) selector->set(sized, *selector, text);
      return visit(sized);
    });
    if (!goes_on) return false;
    std::size_t i = product.fields.size();
    while (i > 0) {
      --i;
      const FieldValues& field = product.fields[i];
      const bool carries = ++at[i] == field.values.size();
      if (carries) at[i] = 0;
      set(field.selector, field.values[at[i]]);
      if (!carries) break;
      if (i == 0) return true;
    }
    if (product.fields.empty()) return true;
  }
}

}  // namespace

void ProblemList::for_each_product(const std::function<bool(const Product&)>& visit) const {
  if (typed_) {
    static_cast<void>(visit(*typed_));
    return;
  }
  JsonNodes nodes;
  for (std::size_t i = 0; i < num_products(); ++i)
    if (!visit(text->read(i, nodes))) return;
}

void ProblemList::for_each_while(const std::function<bool(const Problem&, std::size_t)>& visit) const {
  num_tuned_ = 0;
  std::size_t i = 0;
  for_each_product([&](const Product& product) {
    const bool goes_on = expand_product(product, [&](const Problem& problem) {
      if (!tuning) return visit(problem, i);
      Problem tuned = problem;
      num_tuned_ += tuning->apply(tuned) ? 1 : 0;
      return visit(tuned, i);
    });
    ++i;
    return goes_on;
  });
}

void ProblemList::for_each(const std::function<void(const Problem&, std::size_t)>& visit) const {
  for_each_while([&](const Problem& problem, std::size_t product) {
    visit(problem, product);
    return true;
  });
}

Problem ProblemList::front() const {
  std::optional<Problem> first;
  for_each_while([&](const Problem& problem, std::size_t) {
    first = problem;
    return false;
  });
  return *first;
}

std::size_t ProblemList::product_of(std::int64_t problem) const {
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), problem);
  if (found == ends_.end()) throw Error(ErrorKind::usage, fmt::format("problem {} is not in the list", problem));
  return static_cast<std::size_t>(found - ends_.begin());
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
      const std::size_t comma = end_of_value(text, start);
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
  list.take(std::move(product));
  list.require_few_enough();
  return list;
}

}  // namespace tessera

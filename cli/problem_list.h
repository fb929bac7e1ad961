// The problems that one call is about: cross products of fields, from a shape list or from selectors on the command
// line.
//
// A product is kept as it was written and expanded one problem at a time, so that a hundred thousand problems cost what
// the caller keeps of them. Its fields turn like an odometer, in the order of the operator's selector table, the last
// fastest; the sizes turn fastest of all.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/suggestion.h"
#include "cli/json_tree.h"
#include "cli/tuning.h"
#include "generator/selectors.h"

namespace tessera::cli {

inline constexpr std::int64_t kMaxProblems = 4'000'000;

struct FieldValues {
  const Selector* selector = nullptr;
  std::vector<std::string_view> values;  ///< each accepted by set_field
};

/// Expected sizes of one problem, by the operator's hints.
struct SizeSet {
  std::vector<std::pair<const Selector*, std::string_view>> values;
};

struct Product {
  std::string_view op;
  std::string place;  ///< "shapes.json:3:5"; empty for the command line
  std::vector<FieldValues> fields;
  std::vector<SizeSet> sizes;  ///< empty: one problem a combination, sizes unknown

  /// Kernels asked for times sizes; nothing when it is above INT64_MAX.
  std::optional<std::int64_t> count() const;
  /// Names one kernel: when no kernel exists for it the call fails, while a member of a larger product is only
  /// reported.
  bool is_explicit() const;
};

class ProblemList {
 public:
  std::vector<Product> products;

  /// Problems in all products. Throws Error{usage} above kMaxProblems.
  std::int64_t count() const;
  /// Calls with each problem and the index of its product, in order.
  void for_each(const std::function<void(const Problem&, std::size_t)>& visit) const;
  std::vector<Problem> expand() const;
  /// The product that the i-th problem of for_each belongs to.
  const Product& product_of(std::size_t problem) const;

  /// Keeps text alive for the views above.
  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }
  std::shared_ptr<const JsonTree> tree;

  /// Choices measured on a device: problems that they know are visited with their pins. Null: none.
  std::shared_ptr<const Tuning> tuning;
  /// Problems that for_each pinned so, each time that it ran.
  std::int64_t num_tuned() const { return num_tuned_; }

 private:
  std::deque<std::string> texts_;
  mutable std::int64_t num_tuned_ = 0;
  mutable std::vector<std::int64_t> ends_;  // problems up to and with each product; made by product_of
};

/// The list in a file's text. Collects every problem of its content and throws Error{usage} with all of them (at most
/// kMaxDiagnostics), each with line, column and caret. See docs/cli.md for the format.
inline constexpr std::size_t kMaxDiagnostics = 50;
ProblemList parse_shape_list(std::string text, const std::string& file);

/// A flag's value as typed: "64,128". Key and text of each selector that was given.
struct TypedSelector {
  std::string key;
  std::string text;
};
/// The product of comma lists. Throws Error{usage}.
ProblemList parse_selectors(std::string_view op, const std::vector<TypedSelector>& typed);

}  // namespace tessera::cli

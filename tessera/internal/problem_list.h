// The problems that one call is about: cross products of fields, from a shape list or from selectors on the command
// line.
//
// A product is kept as it was written, in the text of its shape list, and read again whenever its problems are visited:
// a list of a million products costs its text and some 60 bytes for each. Its fields turn like an odometer, in the
// order of the operator's selector table, the last fastest; the sizes turn fastest of all.
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
#include "generator/selectors.h"
#include "tessera/internal/json_tree.h"
#include "tessera/internal/tuning.h"

namespace tessera {

inline constexpr std::int64_t kMaxProblems = 4'000'000;

struct FieldValues {
  const Selector* selector = nullptr;
  std::vector<std::string_view> values;  ///< each accepted by set_field
};

/// Expected sizes of one problem, by the operator's hints.
struct SizeSet {
  std::vector<std::pair<const Selector*, std::string_view>> values;
};

/// The sizes of a product, read from the text one by one. Empty: one problem a combination, sizes unknown.
class SizeList {
 public:
  SizeList() = default;
  SizeList(std::string_view op, const JsonTree& tree, const JsonNode& array, std::int64_t count)
      : op_(op), tree_(&tree), array_(&array), count_(count) {}
  std::int64_t count() const { return count_; }
  /// False, and no further calls, as soon as visit says so.
  bool for_each_while(const std::function<bool(const SizeSet&)>& visit) const;

 private:
  std::string_view op_;
  const JsonTree* tree_ = nullptr;
  const JsonNode* array_ = nullptr;
  std::int64_t count_ = 0;
};

struct Product {
  std::string_view op;
  std::string place;  ///< "shapes.json:3:5"; empty for the command line
  std::vector<FieldValues> fields;
  SizeList sizes;

  /// Kernels asked for times sizes; nothing when it is above INT64_MAX.
  std::optional<std::int64_t> count() const;
  /// Names one kernel: when no kernel exists for it the call fails, while a member of a larger product is only
  /// reported.
  bool is_explicit() const;
};

/// Products that are written in a text.
class ProductText {
 public:
  virtual ~ProductText() = default;
  /// The i-th one; its views live until the next call with the same nodes.
  virtual Product read(std::size_t i, JsonNodes& nodes) const = 0;
  virtual std::string place(std::size_t i) const = 0;
};

class ProblemList {
 public:
  /// The one product of a command line.
  void take(Product product);
  /// The next product of `text`, which keeps it.
  void add(const Product& product);
  /// Throws Error{usage} where more than kMaxProblems were added.
  void require_few_enough() const;

  /// Problems in all products.
  std::int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  std::size_t num_products() const { return ends_.size(); }
  /// Calls with each problem and the index of its product, in order.
  void for_each(const std::function<void(const Problem&, std::size_t)>& visit) const;
  /// The same until visit says false.
  void for_each_while(const std::function<bool(const Problem&, std::size_t)>& visit) const;
  /// Each product until visit says false.
  void for_each_product(const std::function<bool(const Product&)>& visit) const;
  /// The first of for_each. Precondition: there is one.
  Problem front() const;
  /// The product that the i-th problem of for_each belongs to.
  std::size_t product_of(std::int64_t problem) const;
  std::string place(std::size_t product) const { return text ? text->place(product) : std::string(); }
  bool is_explicit(std::size_t product) const { return is_explicit_[product]; }

  /// Keeps text alive for the views of a product of the command line.
  std::string_view keep(std::string kept) { return kept_.emplace_back(std::move(kept)); }
  std::shared_ptr<const ProductText> text;  ///< null: the command line

  /// Choices measured on a device: problems that they know are visited with their pins. Null: none.
  std::shared_ptr<const Tuning> tuning;
  /// Problems that the last for_each pinned so, as far as it went.
  std::int64_t num_tuned() const { return num_tuned_; }

 private:
  std::optional<Product> typed_;
  std::deque<std::string> kept_;
  mutable std::int64_t num_tuned_ = 0;
  std::vector<std::int64_t> ends_;  ///< problems up to and with each product
  std::vector<bool> is_explicit_;
  std::string excess_;  ///< the message about too many problems
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

}  // namespace tessera

// The text of a shape list to products of fields. First the grammar (json_tree), then the content, of which every
// problem is collected before the call fails. An entry that was found right is not kept: the same reader makes its
// product again from the text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/shown.h"
#include "tessera/error.h"
#include "tessera/internal/problem_list.h"

namespace tessera {

namespace {

/// Members of an object by key, in order.
struct Member {
  const JsonNode* key = nullptr;
  const JsonNode* value = nullptr;
};

const Selector* hint_of(std::string_view op, std::string_view key) {
  for (const Selector& selector : selectors(op))
    if (selector.kind == SelectorKind::hint && selector.key == key) return &selector;
  return nullptr;
}

class ShapeListReader {
 public:
  using Targets = std::vector<const JsonNode*>;
  ShapeListReader(const JsonTree& tree, const std::string& file) : tree_(tree), file_(file) {}
  /// Of a list that was read before, whose targets these are.
  ShapeListReader(const JsonTree& tree, const std::string& file, Targets archs)
      : tree_(tree), file_(file), archs_(std::move(archs)), is_reading_again_(true) {}

  /// Calls with the product of each entry, in order, up to the first mistake, and the entry; throws Error{usage} with
  /// every mistake in the end.
  void read(const std::function<void(Product&, const JsonNode&)>& on_product) {
    const JsonNode& root = tree_.root();
    if (!demand(root, JsonKind::object, "the shape list")) return finish();
    const JsonNode* kernels = nullptr;
    for (const Member& member : members(root)) {
      if (member.key->text == "arch") {
        archs_ = targets(*member.value);
      } else if (member.key->text == "kernels") {
        kernels = member.value;
      } else {
        report_unknown(*member.key, {"arch", "kernels"}, "a shape list");
      }
    }
    if (kernels == nullptr) {
      report(root, "the key kernels is missing: a list of kernels like {\"op\": \"fmha\", \"head_dim\": [64, 128]}");
    } else if (demand(*kernels, JsonKind::array, "kernels")) {
      if (kernels->first_child == 0) report(*kernels, "kernels is empty");
      JsonNodes nodes;
      for (const JsonNode* entry = first_child(*kernels); entry != nullptr && !is_full(); entry = next(*entry)) {
        std::optional<Product> product = read_entry(*entry, nodes);
        if (product && problems_.empty()) on_product(*product, *entry);
      }
    }
    finish();
  }

  const Targets& archs() const { return archs_; }

  /// The product of an entry that was read before.
  Product read_again(const JsonNode& entry, JsonNodes& nodes) { return read_entry(entry, nodes).value(); }

 private:
  bool is_full() const { return problems_.size() >= kMaxDiagnostics; }
  void report(const JsonNode& node, std::string message) {
    if (!is_full()) problems_.push_back(tree_.diagnostic(node.offset, std::move(message)));
  }
  void report_unknown(const JsonNode& key, const std::vector<std::string_view>& known, std::string_view where) {
    const std::string hint = suggestion(key.text, known);
    report(key, fmt::format("unknown key {} in {}{}", shown(key.text), where,
                            hint.empty() ? fmt::format(": its keys are {}", fmt::join(known, ", ")) : hint));
  }
  bool demand(const JsonNode& node, JsonKind kind, std::string_view what) {
    if (node.kind == kind) return true;
    report(node, fmt::format("{} must be {}, {} found", what, to_string(kind), to_string(node.kind)));
    return false;
  }

  void finish() {
    std::stable_sort(problems_.begin(), problems_.end(), [](const Diagnostic& a, const Diagnostic& b) {
      return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
    if (is_full()) problems_.push_back({file_, 0, 0, "more problems follow; these are the first", ""});
    if (!problems_.empty()) throw_diagnostics(ErrorKind::usage, problems_);
  }

  std::vector<Member> members(const JsonNode& object) {
    std::vector<Member> all;
    for (const JsonNode* key = first_child(object); key != nullptr;) {
      const JsonNode* value = next(*key);
      all.push_back({key, value});
      key = next(*value);
    }
    std::vector<const JsonNode*> keys;
    keys.reserve(all.size());
    for (const Member& member : all) keys.push_back(member.key);
    std::stable_sort(keys.begin(), keys.end(), [](auto* a, auto* b) { return a->text < b->text; });
    for (std::size_t i = 1; i < keys.size(); ++i)
      if (keys[i]->text == keys[i - 1]->text)
        report(*keys[i], fmt::format("key {} stands here twice", shown(keys[i]->text)));
    return all;
  }

  // Of an object in a list, which is folded.
  std::vector<Member> members(const JsonNode& object, JsonNodes& nodes) { return members(tree_.unfold(object, nodes)); }

  // The scalar itself or the members of a list of scalars.
  std::vector<const JsonNode*> scalars(const JsonNode& value, std::string_view key) {
    if (value.kind == JsonKind::object) {
      report(value, fmt::format("{} must be a value or a list of values, an object found", shown(key)));
      return {};
    }
    if (value.kind != JsonKind::array) return {&value};
    std::vector<const JsonNode*> all;
    for (const JsonNode* item = first_child(value); item != nullptr; item = next(*item)) {
      if (item->kind == JsonKind::array || item->kind == JsonKind::object) {
        report(*item, fmt::format("{}: a value expected in the list, {} found", shown(key), to_string(item->kind)));
      } else {
        all.push_back(item);
      }
    }
    if (value.first_child == 0) report(value, fmt::format("{}: the list is empty", shown(key)));
    return all;
  }

  /// The list's own targets, looked at here: an entry that has none of its own takes them as they are.
  Targets targets(const JsonNode& value) {
    scratch_ = default_problem(operator_names().front());
    for (const Selector& selector : selectors(operator_names().front()))
      if (selector.key == "arch") {
        const std::size_t before = problems_.size();
        const std::vector<const JsonNode*> all = scalars(value, selector.key);
        static_cast<void>(read_field(selector, all));
        return problems_.size() == before ? all : std::vector<const JsonNode*>{};
      }
    return {};
  }

  bool accept(const Selector& selector, const JsonNode& value) {
    const bool is_word = value.kind == JsonKind::string;
    const bool is_auto = is_word && selector.kind == SelectorKind::pin && value.text == "auto";
    if (!is_auto && is_word == selector.is_number) {
      report(value, fmt::format("{} must be {}, {} found", selector.key, selector.is_number ? "a number" : "a string",
                                to_string(value.kind)));
      return false;
    }
    if (!is_word && value.kind != JsonKind::number) {
      report(value, fmt::format("{} must be {}, {} found", selector.key, selector.is_number ? "a number" : "a string",
                                to_string(value.kind)));
      return false;
    }
    try {
      selector.set(scratch_, selector, value.text);
      return true;
    } catch (const Error& error) {
      report(value, error.what());
      return false;
    }
  }

  FieldValues read_field(const Selector& selector, const std::vector<const JsonNode*>& values) {
    FieldValues field{&selector, {}};
    field.values.reserve(values.size());
    for (const JsonNode* value : values)
      if (accept(selector, *value)) field.values.push_back(value->text);
    std::vector<std::string_view> sorted = field.values;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      const auto second = std::find_if(values.rbegin(), values.rend(), [&](auto* v) { return v->text == *twice; });
      report(**second, fmt::format("{}: {} stands in the list twice", selector.key, shown(*twice)));
    }
    return field;
  }

  static std::vector<std::string_view> keys_of(std::string_view op) {
    std::vector<std::string_view> keys = {"op"};
    bool has_hints = false;
    const bool is_chain = is_row_chain(op);
    for (const Selector& selector : selectors(op)) {
      if (is_chain && selector.key == "chain") continue;
      keys.push_back(selector.key);
      has_hints = has_hints || selector.kind == SelectorKind::hint;
    }
    if (has_hints) keys.push_back("sizes");
    return keys;
  }

  std::optional<std::string_view> read_op(const JsonNode& entry, const std::vector<Member>& all) {
    for (const Member& member : all) {
      if (member.key->text != "op") continue;
      if (!demand(*member.value, JsonKind::string, "op")) return std::nullopt;
      const std::vector<std::string_view> names = operator_names();
      const auto name = std::find(names.begin(), names.end(), member.value->text);
      if (name != names.end()) return *name;
      try {
        if (is_row_chain(member.value->text)) return member.value->text;
      } catch (const Error& error) {
        report(*member.value, error.what());
        return std::nullopt;
      }
      const std::string hint = suggestion(member.value->text, names);
      report(*member.value, fmt::format("unknown operator {}{}", shown(member.value->text),
                                        hint.empty() ? fmt::format(": there are {}", fmt::join(names, ", ")) : hint));
      return std::nullopt;
    }
    for (const Member& member : all)
      if (!suggestion(member.key->text, {"op"}).empty()) {
        report_unknown(*member.key, {"op"}, "a kernel");
        return std::nullopt;
      }
    report(entry, fmt::format("the key op is missing: one of {}", fmt::join(operator_names(), ", ")));
    return std::nullopt;
  }

  std::optional<Product> read_entry(const JsonNode& entry, JsonNodes& nodes) {
    if (!demand(entry, JsonKind::object, "a kernel")) return std::nullopt;
    const std::vector<Member> all = members(entry, nodes);
    const std::optional<std::string_view> op = read_op(entry, all);
    if (!op) return std::nullopt;
    scratch_ = default_problem(*op);
    Product product;
    product.op = *op;
    const std::vector<std::string_view> known = keys_of(*op);
    for (const Member& member : all)
      if (std::find(known.begin(), known.end(), member.key->text) == known.end())
        report_unknown(*member.key, known, *op);
    for (const Selector& selector : selectors(*op)) {
      const auto given =
          std::find_if(all.begin(), all.end(), [&](const Member& m) { return m.key->text == selector.key; });
      if (given != all.end()) {
        product.fields.push_back(read_field(selector, scalars(*given->value, selector.key)));
      } else if (selector.key == "arch" && !archs_.empty()) {
        product.fields.push_back(read_field(selector, archs_));
      }
    }
    for (const Member& member : all)
      if (member.key->text == "sizes" && known.back() == "sizes") product.sizes = read_sizes(*member.value, product);
    return product;
  }

  SizeList read_sizes(const JsonNode& value, const Product& product) {
    if (!demand(value, JsonKind::array, "sizes")) return {};
    if (value.first_child == 0) report(value, "sizes: the list is empty");
    std::vector<std::string_view> known;
    for (const Selector& selector : selectors(product.op))
      if (selector.kind == SelectorKind::hint) known.push_back(selector.key);
    std::int64_t count = 0;
    JsonNodes nodes;
    for (const JsonNode* item = first_child(value); item != nullptr && !is_full(); item = next(*item), ++count) {
      if (is_reading_again_ || !demand(*item, JsonKind::object, "a size")) continue;
      for (const Member& member : members(*item, nodes)) {
        const Selector* const selector = hint_of(product.op, member.key->text);
        const bool is_field = std::any_of(product.fields.begin(), product.fields.end(), [&](const FieldValues& field) {
          return field.selector->key == member.key->text;
        });
        if (selector == nullptr) {
          report_unknown(*member.key, known, "sizes");
        } else if (is_field) {
          report(*member.key, fmt::format("{} stands in the kernel itself too: give it in one place", selector->key));
        } else {
          static_cast<void>(accept(*selector, *member.value));
        }
      }
    }
    return {product.op, tree_, value, count};
  }

  const JsonTree& tree_;
  const std::string& file_;
  Targets archs_;
  bool is_reading_again_ = false;
  std::vector<Diagnostic> problems_;
  Problem scratch_;
};

class ShapeList final : public ProductText {
 public:
  ShapeList(std::string text, std::string file) : tree_(std::move(text), file), file_(std::move(file)) {}

  /// Adds the products of all entries.
  void read_into(ProblemList& list) {
    ShapeListReader reader(tree_, file_);
    JsonTree::Cursor cursor;  // entries come in ascending order: lines are counted once over the whole text
    reader.read([&](Product& product, const JsonNode& entry) {
      const auto [line, column] = tree_.advance(cursor, entry.offset);
      entries_.push_back({&entry, line, column});
      product.place = place(entries_.size() - 1);
      list.add(product);
    });
    archs_ = reader.archs();
    list.require_few_enough();
  }

  Product read(std::size_t i, JsonNodes& nodes) const override {
    Product product = ShapeListReader(tree_, file_, archs_).read_again(*entries_[i].node, nodes);
    product.place = place(i);
    return product;
  }
  std::string place(std::size_t i) const override {
    return fmt::format("{}:{}:{}", file_, entries_[i].line, entries_[i].column);
  }

 private:
  struct Entry {
    const JsonNode* node;
    int line, column;
  };
  JsonTree tree_;
  std::string file_;
  ShapeListReader::Targets archs_;
  std::vector<Entry> entries_;
};

}  // namespace

bool SizeList::for_each_while(const std::function<bool(const SizeSet&)>& visit) const {
  if (count_ == 0) return true;
  JsonNodes nodes;
  SizeSet size;
  for (const JsonNode* item = first_child(*array_); item != nullptr; item = next(*item)) {
    size.values.clear();
    for (const JsonNode* key = first_child(tree_->unfold(*item, nodes)); key != nullptr;) {
      const JsonNode* const value = next(*key);
      size.values.emplace_back(hint_of(op_, key->text), value->text);
      key = next(*value);
    }
    if (!visit(size)) return false;
  }
  return true;
}

ProblemList parse_shape_list(std::string text, const std::string& file) {
  ProblemList list;
  const auto shapes = std::make_shared<ShapeList>(std::move(text), file);
  shapes->read_into(list);
  list.text = shapes;
  return list;
}

}  // namespace tessera

// The text of a shape list to products of fields. First the grammar (json_tree), then the content, of which every
// problem is collected before the call fails.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/shown.h"
#include "cli/problem_list.h"

namespace tessera::cli {

namespace {

/// Members of an object by key, in order.
struct Member {
  const JsonNode* key = nullptr;
  const JsonNode* value = nullptr;
};

class ShapeListReader {
 public:
  explicit ShapeListReader(ProblemList& list, const JsonTree& tree, std::string file)
      : list_(list), tree_(tree), file_(std::move(file)) {}

  void read() {
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
      for (const JsonNode* entry = tree_.first_child(*kernels); entry != nullptr; entry = tree_.next(*entry))
        if (!is_full()) read_entry(*entry);
    }
    finish();
  }

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
    for (const JsonNode* key = tree_.first_child(object); key != nullptr;) {
      const JsonNode* value = tree_.next(*key);
      all.push_back({key, value});
      key = tree_.next(*value);
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

  // The scalar itself or the members of a list of scalars.
  std::vector<const JsonNode*> scalars(const JsonNode& value, std::string_view key) {
    if (value.kind == JsonKind::object) {
      report(value, fmt::format("{} must be a value or a list of values, an object found", shown(key)));
      return {};
    }
    if (value.kind != JsonKind::array) return {&value};
    std::vector<const JsonNode*> all;
    for (const JsonNode* item = tree_.first_child(value); item != nullptr; item = tree_.next(*item)) {
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
  std::vector<const JsonNode*> targets(const JsonNode& value) {
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
    for (const Selector& selector : selectors(op)) {
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

  void read_entry(const JsonNode& entry) {
    if (!demand(entry, JsonKind::object, "a kernel")) return;
    const std::vector<Member> all = members(entry);
    const std::optional<std::string_view> op = read_op(entry, all);
    if (!op) return;
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
      if (member.key->text == "sizes" && known.back() == "sizes") read_sizes(*op, *member.value, product);
    if (!problems_.empty()) return;
    const auto [line, column] = place_of(entry.offset);
    product.place = fmt::format("{}:{}:{}", file_, line, column);
    list_.products.push_back(std::move(product));
  }

  void read_sizes(std::string_view op, const JsonNode& value, Product& product) {
    if (!demand(value, JsonKind::array, "sizes")) return;
    if (value.first_child == 0) report(value, "sizes: the list is empty");
    std::vector<std::string_view> known;
    for (const Selector& selector : selectors(op))
      if (selector.kind == SelectorKind::hint) known.push_back(selector.key);
    for (const JsonNode* item = tree_.first_child(value); item != nullptr && !is_full(); item = tree_.next(*item)) {
      if (!demand(*item, JsonKind::object, "a size")) continue;
      SizeSet size;
      for (const Member& member : members(*item)) {
        const auto selector = std::find_if(selectors(op).begin(), selectors(op).end(), [&](const Selector& s) {
          return s.kind == SelectorKind::hint && s.key == member.key->text;
        });
        const bool is_field = std::any_of(product.fields.begin(), product.fields.end(), [&](const FieldValues& field) {
          return field.selector->key == member.key->text;
        });
        if (selector == selectors(op).end()) {
          report_unknown(*member.key, known, "sizes");
        } else if (is_field) {
          report(*member.key, fmt::format("{} stands in the kernel itself too: give it in one place", selector->key));
        } else if (accept(*selector, *member.value)) {
          size.values.emplace_back(&*selector, member.value->text);
        }
      }
      product.sizes.push_back(std::move(size));
    }
  }

  // Entries come in ascending order: lines are counted once over the whole text.
  std::pair<int, int> place_of(std::uint32_t offset) {
    const auto [line, column] = tree_.advance(cursor_, offset);
    return {line, column};
  }

  ProblemList& list_;
  const JsonTree& tree_;
  std::string file_;
  std::vector<const JsonNode*> archs_;
  std::vector<Diagnostic> problems_;
  Problem scratch_;
  JsonTree::Cursor cursor_;
};

}  // namespace

ProblemList parse_shape_list(std::string text, const std::string& file) {
  ProblemList list;
  const auto tree = std::make_shared<const JsonTree>(std::move(text), file);
  list.tree = tree;
  ShapeListReader(list, *tree, file).read();
  static_cast<void>(list.count());
  return list;
}

}  // namespace tessera::cli

// A module is a list of statements: directives, variables, functions. What links it is the word before each: .visible
// and .weak are seen by all, .extern asks for another module's, and without one the name is the module's own. Bodies
// are not looked into; names of the module's own are replaced in them as words.
#include "guest/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "guest/fat_binary.h"
#include "tessera/error.h"

namespace tessera::guest {
namespace {

enum class Linkage { own, visible, weak, external };

struct Statement {
  std::string_view text;
  std::string name;  ///< empty: a directive
  Linkage linkage = Linkage::own;
  bool is_function = false, is_definition = false;
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Past what stands at `at` and is no text of PTX: a comment or a string; else `at`.
std::size_t past_aside(std::string_view text, std::size_t at) {
  const auto behind = [&](std::size_t found, std::size_t bytes) {
    return found == std::string_view::npos ? text.size() : found + bytes;
  };
  if (text.substr(at, 2) == "//") return behind(text.find('\n', at), 0);
  if (text.substr(at, 2) == "/*") return behind(text.find("*/", at + 2), 2);
  if (text[at] == '"') return behind(text.find('"', at + 1), 1);
  return at;
}

bool begins_with_word(std::string_view text, std::string_view word) {
  return text.starts_with(word) && (text.size() == word.size() || !is_word(text[word.size()]));
}

std::size_t end_of_statement(std::string_view text, std::size_t begin) {
  for (const std::string_view word : {".version", ".target", ".address_size", ".file", ".loc"})
    if (begins_with_word(text.substr(begin), word)) return std::min(text.find('\n', begin), text.size());
  bool has_body = begins_with_word(text.substr(begin), ".section");
  int depth = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    const std::size_t past = past_aside(text, at);
    if (past != at) {
      at = past - 1;
      continue;
    }
    const char c = text[at];
    if (c == '.' && depth == 0)
      has_body = has_body || begins_with_word(text.substr(at), ".func") || begins_with_word(text.substr(at), ".entry");
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0 && has_body) return at + 1;
    if (c == ';' && depth == 0) return at + 1;
  }
  return text.size();
}

// Words, '(' and ')' and '[' and '=' of a statement's head, one by one.
class Head {
 public:
  explicit Head(std::string_view text) : text_(text) {}
  std::string_view next() {
    while (at_ < text_.size() && (is_space(text_[at_]) || past_aside(text_, at_) != at_))
      at_ = std::max(at_ + 1, past_aside(text_, at_));
    const std::size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '.') ++at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == begin && at_ < text_.size()) ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

void skip_parentheses(Head& head) {
  for (int depth = 1; depth > 0;) {
    const std::string_view word = head.next();
    if (word.empty()) return;
    depth += word == "(" ? 1 : word == ")" ? -1 : 0;
  }
}

Statement read_statement(std::string_view text) {
  Statement made{text, {}, Linkage::own, false, false};
  Head head(text);
  std::string_view word = head.next();
  for (const std::string_view directive :
       {".version", ".target", ".address_size", ".file", ".loc", ".section", ".pragma"})
    if (word == directive) return made;
  for (std::string_view last; !word.empty(); word = head.next()) {
    if (word == ".visible") made.linkage = Linkage::visible;
    if (word == ".weak" || word == ".common") made.linkage = Linkage::weak;
    if (word == ".extern") made.linkage = Linkage::external;
    if (word == ".func" || word == ".entry") made.is_function = true;
    const bool is_result = word == "(" && made.is_function && last.empty();
    if (is_result) {
      skip_parentheses(head);
      continue;
    }
    if (word == "(" && !made.is_function) {  // .attribute(...)
      skip_parentheses(head);
      continue;
    }
    if (word == "[" || word == "=" || word == ";" || word == "(" || word == "{") {
      made.name = last;
      break;
    }
    // The number of .align is a word, too; the name comes last.
    if (word.front() != '.' && is_word(word.front())) last = word;
  }
  const bool has_body = made.is_function && text.find('{') != text.npos;
  made.is_definition = made.linkage != Linkage::external && (!made.is_function || has_body);
  return made;
}

std::vector<Statement> statements_of(std::string_view text) {
  std::vector<Statement> all;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\0') break;
    const std::size_t past = past_aside(text, at);
    if (is_space(text[at]) || text[at] == ';' || past != at) {
      at = std::max(at + 1, past);
      continue;
    }
    const std::size_t end = end_of_statement(text, at);
    all.push_back(read_statement(text.substr(at, end - at)));
    at = std::max(end, at + 1);
  }
  return all;
}

std::string with_names(std::string_view text, const std::map<std::string, std::string, std::less<>>& names) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t past = past_aside(text, at);
    std::size_t end = std::max(past, at + 1);
    const bool begins = is_word(text[at]) && (at == 0 || text[at - 1] != '.');
    if (past == at && is_word(text[at]))
      while (end < text.size() && is_word(text[end])) ++end;
    const auto renamed = begins && past == at ? names.find(text.substr(at, end - at)) : names.end();
    out += renamed == names.end() ? text.substr(at, end - at) : std::string_view(renamed->second);
    at = end;
  }
  return out;
}

int version_of(std::string_view text) {
  const std::size_t at = text.find(".version ");
  if (at == text.npos) return 0;
  int major = 0, minor = 0;
  for (std::size_t i = at + 9, part = 0; i < text.size() && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9'));
       ++i) {
    if (text[i] == '.')
      ++part;
    else
      (part == 0 ? major : minor) = (part == 0 ? major : minor) * 10 + (text[i] - '0');
  }
  return major * 100 + minor;
}

}  // namespace

std::string link_ptx(const std::vector<std::string_view>& modules) {
  std::vector<std::vector<Statement>> parts;
  for (const std::string_view module : modules) parts.push_back(statements_of(module));
  // Who defines each shared name: a visible definition before a weak one.
  std::map<std::string, const Statement*> definitions;
  for (const auto& part : parts)
    for (const Statement& one : part) {
      if (!one.is_definition || one.linkage == Linkage::own) continue;
      const Statement*& kept = definitions[one.name];
      if (kept != nullptr && kept->linkage == Linkage::visible && one.linkage == Linkage::visible)
        throw Error(ErrorKind::compile, fmt::format("'{}' is defined in two objects of the program", one.name));
      if (kept == nullptr || (kept->linkage == Linkage::weak && one.linkage == Linkage::visible)) kept = &one;
    }
  const auto newest =
      std::max_element(modules.begin(), modules.end(), [](auto a, auto b) { return version_of(a) < version_of(b); });
  const auto highest =
      std::max_element(modules.begin(), modules.end(), [](auto a, auto b) { return target_of(a) < target_of(b); });
  std::string head = fmt::format(".version {}.{}\n.target {}\n.address_size 64\n", version_of(*newest) / 100,
                                 version_of(*newest) % 100, target_of(*highest));
  std::string variables, functions;
  std::set<std::string> taken, declared;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::map<std::string, std::string, std::less<>> renamed;
    for (const Statement& one : parts[i])
      if (!one.name.empty() && one.linkage == Linkage::own && !renamed.contains(one.name) &&
          (definitions.contains(one.name) || taken.contains(one.name)))
        renamed[one.name] = fmt::format("{}__of_object_{}", one.name, i);
    for (const Statement& one : parts[i]) {
      if (one.name.empty()) continue;
      if (one.linkage == Linkage::own) taken.insert(one.name);
      const auto defined = definitions.find(one.name);
      const bool is_shared = one.linkage != Linkage::own;
      if (is_shared && one.is_definition && defined->second != &one) continue;
      if (is_shared && !one.is_definition) {  // asked for: the definition serves, which may come later
        if (defined != definitions.end() && !one.is_function) continue;
        if (!declared.insert(one.name).second) continue;
      }
      std::string text = with_names(one.text, renamed);
      if (one.linkage == Linkage::external && defined != definitions.end())
        text.replace(text.find(".extern"), 7, ".visible");
      (one.is_function ? functions : variables) += text + "\n";
    }
  }
  // Variables may hold functions' addresses, functions use variables: those first whose names are declared.
  std::string prototypes;
  for (const auto& [name, one] : definitions) {
    const std::size_t body = one->text.find('{');
    if (one->is_function && one->text.find(".entry") > body && !declared.contains(name))
      prototypes += std::string(one->text.substr(0, body)) + ";\n";
  }
  return head + prototypes + variables + functions;
}

std::vector<std::string> unresolved(std::string_view ptx) {
  std::set<std::string> defined = {"vprintf", "__assertfail", "malloc", "free"}, asked;
  for (const Statement& one : statements_of(ptx)) {
    if (one.name.empty()) continue;
    if (one.is_definition) defined.insert(one.name);
    // External shared memory is the launch's.
    if (one.linkage == Linkage::external && one.text.find(".shared") == one.text.npos) asked.insert(one.name);
  }
  std::vector<std::string> names;
  for (const std::string& name : asked)
    if (!defined.contains(name)) names.push_back(name);
  return names;
}

}  // namespace tessera::guest

// Finding the row of an opcode. The table itself is isa_table*.cpp, a file per family.
#include "emulator/syntax/isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <vector>

namespace tessera::emulator {
namespace {

using Words = std::vector<std::string_view>;

Words split(std::string_view text, char separator) {
  Words words;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return words;
}

struct ModifierGroup {
  bool is_optional = false;
  Words alternatives;
};

/// A row with its patterns taken apart.
struct ParsedForm {
  const Form* form = nullptr;
  std::vector<std::vector<Type>> slots;
  std::vector<ModifierGroup> groups;
};

ParsedForm parse_form(const Form& form) {
  ParsedForm parsed;
  parsed.form = &form;
  for (const std::string_view slot : split(form.types, ' ')) {
    std::vector<Type> types;
    for (const std::string_view name : split(slot, '|')) types.push_back(type_of(name));
    parsed.slots.push_back(std::move(types));
  }
  for (std::string_view group : split(form.modifiers, ' ')) {
    ModifierGroup g;
    g.is_optional = group.front() == '[';
    if (g.is_optional) group = group.substr(1, group.size() - 2);
    g.alternatives = split(group, '|');
    parsed.groups.push_back(std::move(g));
  }
  return parsed;
}

using Index = std::unordered_map<std::string_view, std::vector<ParsedForm>>;

const Index& form_index() {
  static const Index index = [] {
    Index made;
    for (const Form& form : isa()) made[form.mnemonic].push_back(parse_form(form));
    return made;
  }();
  return index;
}

// "m64n128k16" against "m64n#k16": the numbers go to the end of the list.
bool word_matches(std::string_view pattern, std::string_view word, std::vector<std::uint32_t>& numbers) {
  const std::size_t hash = pattern.find('#');
  if (hash == std::string_view::npos) return pattern == word;
  if (word.substr(0, hash) != pattern.substr(0, hash)) return false;
  std::uint32_t number = 0;
  const auto result = std::from_chars(word.data() + hash, word.data() + word.size(), number);
  const auto used = static_cast<std::size_t>(result.ptr - word.data());
  if (result.ec != std::errc{} || used == hash || word.substr(used) != pattern.substr(hash + 1)) return false;
  numbers.push_back(number);
  return true;
}

struct Match {
  std::vector<std::uint32_t> numbers;
  bool ok = false;
};

Match match(const ParsedForm& parsed, const std::vector<Type>& types, const Words& modifiers) {
  Match m;
  if (parsed.form->types != "*") {
    if (types.size() != parsed.slots.size()) return m;
    for (std::size_t i = 0; i < types.size(); ++i) {
      bool fits = false;
      for (const Type type : parsed.slots[i]) fits = fits || type == types[i];
      if (!fits) return m;
    }
  }
  if (parsed.form->modifiers == "*") {
    m.ok = true;
    return m;
  }
  std::vector<bool> used(parsed.groups.size(), false);
  for (const std::string_view modifier : modifiers) {
    bool found = false;
    for (std::size_t g = 0; g < parsed.groups.size() && !found; ++g) {
      if (used[g]) continue;
      for (const std::string_view alternative : parsed.groups[g].alternatives)
        if (word_matches(alternative, modifier, m.numbers)) found = used[g] = true;
    }
    if (!found) return m;
  }
  for (std::size_t g = 0; g < used.size(); ++g)
    if (!used[g] && !parsed.groups[g].is_optional) return m;
  m.ok = true;
  return m;
}

bool any_row_knows(const std::vector<ParsedForm>& rows, std::string_view modifier) {
  std::vector<std::uint32_t> numbers;
  for (const ParsedForm& row : rows)
    for (const ModifierGroup& group : row.groups)
      for (const std::string_view alternative : group.alternatives)
        if (word_matches(alternative, modifier, numbers)) return true;
  return false;
}

std::string explain(std::string_view opcode, std::string_view mnemonic, const std::vector<ParsedForm>& rows,
                    const std::vector<Type>& types, const Words& modifiers) {
  for (const std::string_view modifier : modifiers)
    if (!any_row_knows(rows, modifier))
      return fmt::format("'{}': the emulator knows no modifier '.{}' of {}", opcode, modifier, mnemonic);
  std::string type_text;
  for (const Type type : types) type_text += fmt::format(".{}", name_of(type));
  return fmt::format("'{}': the emulator has no form of {} with this combination of modifiers{}", opcode, mnemonic,
                     type_text.empty() ? "" : " and " + type_text);
}

// The longest run of leading words that is a mnemonic.
Index::const_iterator find_mnemonic(std::string_view opcode, std::size_t& used_words, const Words& words) {
  const Index& index = form_index();
  for (std::size_t count = words.size(); count > 0; --count) {
    const std::string_view& last = words[count - 1];
    const auto length = static_cast<std::size_t>(last.data() + last.size() - opcode.data());
    const auto it = index.find(opcode.substr(0, length));
    if (it != index.end()) {
      used_words = count;
      return it;
    }
  }
  return index.end();
}

}  // namespace

bool find_form(std::string_view opcode, Decoded& out, std::string& problem) {
  const Words words = split(opcode, '.');
  std::size_t used_words = 0;
  const auto it = find_mnemonic(opcode, used_words, words);
  if (it == form_index().end()) {
    problem = fmt::format("'{}' is not an instruction that the emulator knows", opcode);
    return false;
  }
  std::vector<Type> types;
  Words modifiers;
  for (std::size_t i = used_words; i < words.size(); ++i) {
    const Type type = type_of(words[i]);
    if (type == Type::none)
      modifiers.push_back(words[i]);
    else
      types.push_back(type);
  }
  if (types.size() > out.types.size() || modifiers.size() > out.modifiers.size()) {
    problem = fmt::format("'{}': too many modifiers", opcode);
    return false;
  }
  for (const ParsedForm& row : it->second) {
    const Match m = match(row, types, modifiers);
    if (!m.ok) continue;
    out.form = row.form;
    out.num_types = static_cast<int>(types.size());
    std::copy(types.begin(), types.end(), out.types.begin());
    out.num_modifiers = static_cast<int>(modifiers.size());
    std::copy(modifiers.begin(), modifiers.end(), out.modifiers.begin());
    out.num_numbers = static_cast<int>(std::min(m.numbers.size(), out.numbers.size()));
    std::copy_n(m.numbers.begin(), out.num_numbers, out.numbers.begin());
    return true;
  }
  problem = explain(opcode, it->first, it->second, types, modifiers);
  return false;
}

int target_number(std::string_view target) {
  int value = 0;
  if (target.size() > 3) std::from_chars(target.data() + 3, target.data() + target.size(), value);
  return value;
}

bool target_has(std::string_view target, std::string_view form_target) {
  for (const std::string_view one : split(form_target, '|')) {
    const char suffix = one.back();
    if (suffix == 'a' || suffix == 'f' ? target == one : target_number(target) >= target_number(one)) return true;
  }
  return false;
}

}  // namespace tessera::emulator

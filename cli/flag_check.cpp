// What is wrong with a line of arguments, before it is parsed: the parser takes whatever stands behind a flag as its
// value, also where that is the next flag, and of its own words none says what the flag is for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/shown.h"
#include "cli/flags.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

bool is_number(std::string_view text) {
  return text.size() > 1 && text[0] == '-' && (text[1] == '.' || (text[1] >= '0' && text[1] <= '9'));
}

/// "--jobs" of "--jobs=3".
std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

}  // namespace

std::vector<std::string_view> FlagSet::names() const {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

const FlagSet::Entry* FlagSet::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

void FlagSet::refuse_unknown(const std::string& command, const std::string& argument,
                             const std::vector<std::string>& arguments) const {
  // Fields of other operators than the one that the line names are no help.
  std::vector<std::string_view> candidates;
  for (const Entry& entry : entries_) {
    const bool is_named = std::any_of(entry.owners.begin(), entry.owners.end(), [&](std::string_view op) {
      return std::find(arguments.begin(), arguments.end(), op) != arguments.end();
    });
    const bool names_operator = std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
      const std::vector<std::string_view> operators = operator_names();
      return std::find(operators.begin(), operators.end(), word) != operators.end();
    });
    if (entry.owners.empty() || is_named || !names_operator) candidates.push_back(entry.name);
  }
  throw Error(ErrorKind::usage,
              fmt::format("unknown flag {} for {}{}; `tessera {} --help` lists what there is", shown(argument), command,
                          suggestion(name_of(argument), candidates), command));
}

void FlagSet::check_value(const Entry& entry, const std::string* value) const {
  if (value == nullptr || *value == "--")
    throw Error(ErrorKind::usage, fmt::format("{} needs a value, {}: {}", entry.name, entry.value, entry.help));
  const bool is_flag = find(name_of(*value)) != nullptr;
  if (!is_flag && (entry.takes_flags || !value->starts_with("--"))) return;
  const std::string way_out = entry.name.starts_with("--") ? fmt::format("{}={}", entry.name, *value)
                                                           : fmt::format("{} ./{}", entry.name, *value);
  throw Error(ErrorKind::usage, fmt::format("{} needs a value, {}, and {} is {}: if it is meant as the value, write {}",
                                            entry.name, entry.value, shown(*value),
                                            is_flag ? "a flag itself" : "spelled like a flag", shown(way_out)));
}

void FlagSet::check(const std::string& command, const std::vector<std::string>& arguments) const {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") return;
    if (!argument.starts_with("-") || argument == "-" || is_number(argument)) continue;
    const std::size_t equals = argument.find('=');
    const bool is_short = !argument.starts_with("--") && argument.size() > 2;  // -oFILE
    const Entry* const entry = find(is_short ? argument.substr(0, 2) : argument.substr(0, equals));
    if (entry == nullptr) refuse_unknown(command, argument, arguments);
    if (is_short && argument[2] == '=')
      throw Error(ErrorKind::usage,
                  fmt::format("{}: write {} {}", shown(argument), entry->name, shown(argument.substr(3))));
    if (is_short) continue;
    if (equals != std::string::npos) {
      if (entry->value.empty())
        throw Error(ErrorKind::usage, fmt::format("{}: {} takes no value", shown(argument), entry->name));
      if (equals + 1 == argument.size())
        throw Error(ErrorKind::usage, fmt::format("{} has an empty value", entry->name));
    } else if (!entry->value.empty()) {
      ++i;
      check_value(*entry, i < arguments.size() ? &arguments[i] : nullptr);
    }
  }
}

std::size_t index_of_word(std::string_view subject, std::string_view text, const std::vector<std::string_view>& words) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end())
    throw Error(ErrorKind::usage, fmt::format("{} = {}: must be one of {}{}", subject, shown(text),
                                              fmt::join(words, ", "), suggestion(text, words)));
  return static_cast<std::size_t>(found - words.begin());
}

void refuse_name_twice(const std::string& flag, const std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (const std::string name = texts[i].substr(0, texts[i].find('='));
          texts[j].substr(0, texts[j].find('=')) == name)
        throw Error(ErrorKind::usage, fmt::format("{} names {} twice ({}, {}): give it once", flag, shown(name),
                                                  shown(texts[j]), shown(texts[i])));
}

}  // namespace tessera::cli

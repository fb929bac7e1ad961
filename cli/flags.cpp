#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/shown.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr std::size_t kHelpColumn = 30, kHelpWidth = 100;

/// The one value of a flag that takes one. Given twice, either could be meant: a script that appends its flag to a list
/// that has it would silently get the last.
const std::string& single_value(const std::string& name, const CLI::results_t& given) {
  if (given.size() > 1) {
    std::vector<std::string> values;
    for (const std::string& value : given) values.push_back(shown(value));
    throw Error(ErrorKind::usage,
                fmt::format("{} is given {} times ({}): give it once", name, given.size(), fmt::join(values, ", ")));
  }
  // An empty value is a script's unset variable, and nothing that a flag takes.
  if (given.front().empty()) throw Error(ErrorKind::usage, fmt::format("{} has an empty value", name));
  return given.front();
}

}  // namespace

FlagSet::FlagSet() : app_(std::make_unique<CLI::App>()) {
  app_->set_help_flag();
  app_->allow_extras();
}

FlagSet::~FlagSet() = default;

void FlagSet::positional(const std::string& name, std::string& target) { app_->add_option(name, target); }

void FlagSet::explain(const std::string& name, const std::string& value, const std::string& help) {
  helps_.push_back({value.empty() ? name : name + " " + value, help, group_});
  entries_.push_back({name, value, help, owners_, value == "OPTION"});
}

void FlagSet::toggle(const std::string& name, bool& target, const std::string& help) {
  app_->add_flag(name, target);
  explain(name, "", help);
}

void FlagSet::text(const std::string& name, const std::string& value, std::string& target, const std::string& help) {
  const auto take = [name, &target](const CLI::results_t& given) {
    target = single_value(name, given);
    return true;
  };
  app_->add_option(name, take)->expected(1)->take_all();
  explain(name, value, help);
}

void FlagSet::number(const std::string& name, const std::string& value, std::int64_t& target, std::int64_t min,
                     const std::string& help) {
  const auto parse = [name, min, &target](const CLI::results_t& given) {
    const std::string& typed = single_value(name, given);
    std::int64_t parsed = 0;
    const auto [stop, error] = std::from_chars(typed.data(), typed.data() + typed.size(), parsed);
    if (error != std::errc() || stop != typed.data() + typed.size() || parsed < min)
      throw Error(ErrorKind::usage,
                  fmt::format("{} = {}: must be a whole number of at least {}", name, shown(typed), min));
    target = parsed;
    return true;
  };
  app_->add_option(name, parse)->expected(1)->take_all();
  explain(name, value, help);
}

void FlagSet::list(const std::string& name, const std::string& value, std::vector<std::string>& target,
                   const std::string& help) {
  const auto take = [name, &target](const CLI::results_t& given) {
    if (std::find(given.begin(), given.end(), "") != given.end())
      throw Error(ErrorKind::usage, fmt::format("{} has an empty value", name));
    target = given;
    return true;
  };
  app_->add_option(name, take)->expected(1)->take_all();
  explain(name, value, help);
}

std::vector<std::string> FlagSet::parse(const std::string& command, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::usage, fmt::format("{}: {}", command, error.what()));
  }
  return app_->remaining();
}

namespace {

/// What a field is to one operator, and its words where they are few.
std::string help_of(const Selector& selector) {
  if (selector.words.size() < 2 || selector.words.size() > 4) return std::string(selector.help);
  return fmt::format("{}: {}", selector.help, fmt::join(selector.words, ", "));
}

/// The same of all operators that have the field: those that say the same stand together. Of a number the first one's
/// help is that of all.
std::string help_of(std::string_view key) {
  std::vector<std::pair<std::string, std::vector<std::string_view>>> groups;
  for (const std::string_view op : operator_names())
    for (const Selector& selector : selectors(op)) {
      if (selector.key != key) continue;
      const std::string help = help_of(selector);
      const auto same = std::find_if(groups.begin(), groups.end(),
                                     [&](const auto& group) { return group.first == help || selector.is_number; });
      if (same != groups.end()) {
        same->second.push_back(op);
      } else {
        groups.push_back({help, {op}});
      }
    }
  // What all begin with stands once: "target: sm_90a (copy2d); sm_90a, or sm_100 ... (fmha)".
  const std::string start = groups.front().first.substr(0, groups.front().first.find(": ") + 2);
  const bool is_shared = start.ends_with(": ") && std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
                           return group.first.starts_with(start);
                         });
  std::string text;
  for (const auto& [help, owners] : groups) {
    text += text.empty() ? help : "; " + (is_shared ? help.substr(start.size()) : help);
    if (owners.size() < operator_names().size()) text += fmt::format(" ({})", fmt::join(owners, ", "));
  }
  return text;
}

}  // namespace

void SelectorFlags::add_to(FlagSet& flags) {
  flags.text("--tuning", "FILE", tuning_file_, "choices of `tessera tune` for the problems that the file knows");
  std::vector<const Selector*> all;
  for (const std::string_view op : operator_names())
    for (const Selector& selector : selectors(op)) {
      const bool is_new =
          std::none_of(all.begin(), all.end(), [&](const Selector* s) { return s->key == selector.key; });
      if (is_new) all.push_back(&selector);
    }
  for (const SelectorKind kind : {SelectorKind::fact, SelectorKind::pin, SelectorKind::hint}) {
    flags.group(
        kind == SelectorKind::fact ? "Selectors: facts that the compiled code depends on (lists make the cross product)"
        : kind == SelectorKind::pin ? "Selectors: pins of what the planner chooses otherwise (auto: its choice)"
                                    : "Sizes: expected ones; every kernel is right for all sizes of its domain");
    for (const Selector* selector : all) {
      if (selector->kind != kind) continue;
      std::vector<std::string_view> owners;
      for (const std::string_view op : operator_names())
        for (const Selector& other : selectors(op))
          if (other.key == selector->key) owners.push_back(op);
      Slot& slot = *slots_.emplace_back(std::make_unique<Slot>(Slot{std::string(selector->key), ""}));
      flags.owned_by(owners).text(fmt::format("--{}", selector->flag), selector->is_number ? "N,..." : "WORD,...",
                                  slot.text, help_of(selector->key));
    }
  }
  flags.owned_by({});
}

std::vector<TypedSelector> SelectorFlags::typed() const {
  std::vector<TypedSelector> all;
  for (const auto& slot : slots_)
    if (!slot->text.empty()) all.push_back({slot->key, slot->text});
  return all;
}

namespace {

void append_wrapped(std::string& out, std::string_view text, std::size_t indent, std::size_t column) {
  std::size_t at = column;
  bool is_first = true;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (!is_first && at + 1 + word.size() > kHelpWidth) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!is_first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    is_first = false;
    start = end + 1;
  }
  out += '\n';
}

}  // namespace

std::string render_help(const HelpPage& page, const std::vector<FlagHelp>& flags) {
  std::string out = fmt::format("{}\n\nUsage: {}\n", page.summary, page.usage);
  if (!page.text.empty()) out += "\n" + page.text;
  std::vector<std::string> groups;
  for (const FlagHelp& flag : flags)
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) groups.push_back(flag.group);
  for (const std::string& group : groups) {
    out += fmt::format("\n{}:\n", group);
    for (const FlagHelp& flag : flags) {
      if (flag.group != group) continue;
      std::string left = "  " + flag.flag;
      if (left.size() + 2 > kHelpColumn) {
        out += left + "\n" + std::string(kHelpColumn, ' ');
      } else {
        out += left + std::string(kHelpColumn - left.size(), ' ');
      }
      append_wrapped(out, flag.help, kHelpColumn, kHelpColumn);
    }
  }
  if (!page.examples.empty()) {
    out += "\nExamples:\n";
    for (const std::string& example : page.examples) out += "  " + example + "\n";
  }
  out +=
      "\nExit codes: 0 ok, 1 ran but the result is wrong or the check failed, 2 usage, 3 unsupported, 4 compile,\n"
      "5 device or I/O, 70 bug in tessera, 130 or 143 interrupted. stdout holds results only, stderr the rest.\n";
  return out;
}

}  // namespace tessera::cli

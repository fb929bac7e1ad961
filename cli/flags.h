// Flags and help of one subcommand: registered once, parsed by CLI11, explained from the same table.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_list.h"

namespace tessera::cli {

struct FlagHelp {
  std::string flag;   ///< "--jobs N"
  std::string help;   ///< one sentence, no full stop
  std::string group;  ///< "Flags", "Selectors", ...
};

class FlagSet {
 public:
  explicit FlagSet(CLI::App& app) : app_(app) {}
  FlagSet& group(std::string name) {
    group_ = std::move(name);
    return *this;
  }
  void toggle(const std::string& name, bool& target, const std::string& help);
  void text(const std::string& name, const std::string& value, std::string& target, const std::string& help);
  void number(const std::string& name, const std::string& value, std::int64_t& target, std::int64_t min,
              const std::string& help);
  void list(const std::string& name, const std::string& value, std::vector<std::string>& target,
            const std::string& help);
  const std::vector<FlagHelp>& helps() const { return helps_; }
  /// Every "--flag", for suggestions and tests.
  std::vector<std::string_view> names() const;

 private:
  void explain(const std::string& name, const std::string& value, const std::string& help);
  CLI::App& app_;
  std::string group_ = "Flags";
  std::vector<FlagHelp> helps_;
  std::vector<std::string> names_;
};

/// A flag for each field of every operator. Values stay text: problem_list.h reads them.
class SelectorFlags {
 public:
  void add_to(FlagSet& flags);
  /// What was given, by key.
  std::vector<TypedSelector> typed() const;
  bool is_any_given() const { return !typed().empty(); }
  /// Of --tuning; empty: not given.
  const std::string& tuning_file() const { return tuning_file_; }

 private:
  struct Slot {
    std::string key, text;
  };
  std::vector<std::unique_ptr<Slot>> slots_;
  std::string tuning_file_;
};

/// The page that --help prints.
struct HelpPage {
  std::string usage, summary;
  std::string text;  ///< paragraphs that teach; may be empty
  std::vector<std::string> examples;
};
std::string render_help(const HelpPage& page, const std::vector<FlagHelp>& flags);

}  // namespace tessera::cli

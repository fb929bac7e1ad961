// Flags and help of one subcommand: registered once, parsed by CLI11, explained from the same table. CLI11 itself is
// included in flags.cpp alone: it costs a file seconds to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/internal/problem_list.h"

namespace CLI {
class App;
}

namespace tessera::cli {

struct FlagHelp {
  std::string flag;   ///< "--jobs N"
  std::string help;   ///< one sentence, no full stop
  std::string group;  ///< "Flags", "Selectors", ...
};

/// The place of a word among those that a flag takes. Throws Error{usage}: "--device = cpu: must be one of gpu,
/// emulator, auto, did you mean emulator?".
std::size_t index_of_word(std::string_view subject, std::string_view text, const std::vector<std::string_view>& words);

/// Refuses a list of NAME=VALUE in which a name stands twice: one of the values would silently lose.
void refuse_name_twice(const std::string& flag, const std::vector<std::string>& texts);

class FlagSet {
 public:
  FlagSet();
  ~FlagSet();
  FlagSet& group(std::string name) {
    group_ = std::move(name);
    return *this;
  }
  /// An argument by its place; help's first line names it.
  void positional(const std::string& name, std::string& target);
  void toggle(const std::string& name, bool& target, const std::string& help);
  void text(const std::string& name, const std::string& value, std::string& target, const std::string& help);
  void number(const std::string& name, const std::string& value, std::int64_t& target, std::int64_t min,
              const std::string& help);
  /// Takes a value each time that it is given.
  void list(const std::string& name, const std::string& value, std::vector<std::string>& target,
            const std::string& help);
  const std::vector<FlagHelp>& helps() const { return helps_; }
  /// Flags that follow are fields of these operators, no others; empty: of the command.
  FlagSet& owned_by(std::vector<std::string_view> operators) {
    owners_ = std::move(operators);
    return *this;
  }
  /// Every "--flag", for tests.
  std::vector<std::string_view> names() const;
  /// Refuses, in the order of the line, what the parser would take otherwise than it was meant or tell in its own
  /// words: unknown flags, flags without their value or with another flag in its place, values of toggles. Throws
  /// Error{usage}.
  void check(const std::string& command, const std::vector<std::string>& arguments) const;
  /// Fills in every target; gives the arguments that nothing takes. Throws Error{usage}.
  std::vector<std::string> parse(const std::string& command, std::vector<std::string> arguments);

 private:
  struct Entry {
    std::string name, value;  ///< an empty value: a toggle
    std::string help;
    std::vector<std::string_view> owners;
    bool takes_flags = false;  ///< values may begin with hyphens
  };
  void explain(const std::string& name, const std::string& value, const std::string& help);
  const Entry* find(std::string_view name) const;
  void refuse_unknown(const std::string& command, const std::string& argument,
                      const std::vector<std::string>& arguments) const;
  void check_value(const Entry& entry, const std::string* value) const;
  std::unique_ptr<CLI::App> app_;
  std::string group_ = "Flags";
  std::vector<std::string_view> owners_;
  std::vector<FlagHelp> helps_;
  std::vector<Entry> entries_;
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

// Sizes of a launch that no problem expects, typed for plan, warm and check: how far apart rows lie, above all.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "tessera/internal/launch_sizes.h"

namespace tessera::cli {

/// "lda=136", as --size takes it. Throws Error{usage}.
GivenSize parse_size(const std::string& text);
/// All of them; a name that stands twice is refused. Throws Error{usage}.
std::vector<GivenSize> parse_sizes(const std::vector<std::string>& texts);
/// Refuses a size that a problem of the list expects and --size gives too. Throws Error{usage}.
void refuse_sizes_twice(const ProblemList& list, const std::vector<GivenSize>& typed);

class SizeFlags {
 public:
  void add_to(FlagSet& flags);
  /// Reads what was typed. Throws Error{usage}.
  void parse();
  /// Against what the problems expect: the same size by two roads is refused. Throws Error{usage}.
  void check(const ProblemList& list) const { refuse_sizes_twice(list, typed_); }
  bool is_any() const { return !typed_.empty(); }
  const std::vector<GivenSize>& typed() const { return typed_; }
  /// As it was typed: " --size lda=136 --pad-rows".
  std::string text() const;
  /// What the problem expects, in it or beside it what was typed, and pitches that are padded where that was asked for.
  /// Nothing where the problem expects nothing and nothing was typed.
  std::vector<GivenSize> given(const Problem& problem, const LaunchSizes& launch) const;

 private:
  std::vector<std::string> texts_;
  std::vector<GivenSize> typed_;
  bool pads_rows_ = false;
};

}  // namespace tessera::cli

// One action of `tessera layout`: what was typed after it, and the page that it makes.
//
// Flags are one table (command_layout.cpp): each names the actions that take it, so a flag given to another action is
// refused, and help and messages agree.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/layout_page.h"

namespace tessera::cli {

class LayoutArguments {
 public:
  std::string action, subject, argument;
  std::map<std::string, std::string> values;  ///< by flag without dashes; toggles are "yes"

  bool has(const std::string& flag) const {
    asked_.insert(flag);
    return values.contains(flag);
  }
  std::string text(const std::string& flag, const std::string& otherwise = {}) const;
  /// A whole number, decimal or 0x...; Error{usage} with the bounds.
  std::int64_t number(const std::string& flag, std::int64_t otherwise, std::int64_t min, std::int64_t max) const;
  /// "3,40"; Error{usage} unless there are min_count to max_count numbers, each from min to max.
  std::vector<std::int64_t> list(const std::string& flag, std::size_t min_count, std::size_t max_count,
                                 std::int64_t min, std::int64_t max) const;
  /// Index of the word in `words`; Error{usage} that lists them.
  std::size_t word(const std::string& flag, const std::vector<std::string_view>& words, std::size_t otherwise) const;
  /// The same for the subject.
  std::size_t subject_word(const std::vector<std::string_view>& words) const;
  /// Flags that were given and that the page did not depend on.
  std::vector<std::string> unused() const;

 private:
  mutable std::set<std::string> asked_;
};

/// Throws Error{usage}: "name = text: must be a whole number from min to max".
std::int64_t parse_layout_number(std::string_view name, std::string_view text, std::int64_t min, std::int64_t max);
/// 0x and the digits of up to 64 bits.
std::uint64_t parse_layout_bits(std::string_view text, int bits);

LayoutPage layout_swizzle(const LayoutArguments& arguments);
LayoutPage layout_smem_descriptor(const LayoutArguments& arguments);
LayoutPage layout_instruction_descriptor(const LayoutArguments& arguments);
LayoutPage layout_tensor_map(const LayoutArguments& arguments);
LayoutPage layout_fragment(const LayoutArguments& arguments);
LayoutPage layout_scale_factors(const LayoutArguments& arguments);
LayoutPage layout_repack(const LayoutArguments& arguments);
LayoutPage layout_smem(const LayoutArguments& arguments);
LayoutPage layout_tmem(const LayoutArguments& arguments);

}  // namespace tessera::cli

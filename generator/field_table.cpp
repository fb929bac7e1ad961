#include "generator/field_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/shown.h"
#include "base/suggestion.h"
#include "generator/operator_type.h"
#include "tessera/error.h"

namespace tessera {

namespace {

[[noreturn]] void refuse(const Selector& selector, std::string_view text, const std::string& demand,
                         const std::string& hint = {}) {
  const std::string_view or_auto = selector.kind == SelectorKind::pin ? ", or auto" : "";
  throw Error(ErrorKind::usage,
              fmt::format("{} = {}: must be {}{}{}", selector.key, shown(text), demand, or_auto, hint));
}

}  // namespace

void refuse_word(const Problem& problem, const Selector& selector, std::string_view text) {
  std::string hint = suggestion(text, selector.words);
  for (const Selector& other : problem.type().fields())
    if (hint.empty() && std::find(other.words.begin(), other.words.end(), text) != other.words.end())
      hint = fmt::format("; {} is a value of {}", text, other.key);
  refuse(selector, text, fmt::format("one of {}", fmt::join(selector.words, ", ")), hint);
}

std::int64_t parse_number(const Selector& selector, std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || stop != text.data() + text.size()) {
    refuse(selector, text, "a whole number");
  }
  if (error == std::errc::result_out_of_range || value < selector.min || value > selector.max) {
    // The largest int is no bound that anybody chose; what a kernel exists for, make_plan tells.
    const bool is_low = error == std::errc::result_out_of_range ? text.front() == '-' : value < selector.min;
    refuse(selector, text,
           is_low && selector.max == kMaxIntField ? fmt::format("at least {}", selector.min)
           : selector.max == kMaxIntField         ? fmt::format("at most {}", selector.max)
                                                  : fmt::format("from {} to {}", selector.min, selector.max));
  }
  return value;
}

}  // namespace tessera

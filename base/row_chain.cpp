#include "tessera/row_chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "base/row_chain_options.h"
#include "base/row_chain_rules.h"
#include "base/row_chain_words.h"
#include "base/suggestion.h"
#include "tessera/error.h"
#include "tessera/spec/row_cache.h"

namespace tessera {

namespace {

using namespace row_chain;

/// A word for several parts: append_kv(128,halves) is join(128)+rope(0..127,halves)+same(0..127,paged)+
/// same(128..255,paged).
constexpr std::string_view kAppendKv = "append_kv";
/// quantize(nvfp4,tile) is nvfp4(tile), and likewise of other formats.
constexpr std::string_view kQuantize = "quantize";

/// The text, and a place in it that is complained of.
class ChainReader {
 public:
  explicit ChainReader(std::string_view text) : text_(text) {}

  RowChain chain() {
    RowChain chain;
    std::vector<Place> places;
    if (text_.empty()) refuse(0, 0, "no part", {});
    while (true) {
      const std::size_t first = at_;
      for (const RowStep& step : parts()) {
        if (places.size() == kMaxRowSteps)
          refuse(first, text_.size() - first, fmt::format("more than {} parts", kMaxRowSteps), {});
        chain.steps[places.size()] = step;
        places.push_back({first, at_ - first});
      }
      if (at_ == text_.size()) break;
      if (text_[at_] != '+') refuse(at_, 1, "+ is expected between two parts", {});
      ++at_;
    }
    if (const std::optional<ChainMistake> mistake = chain_mistake(chain)) {
      const Place& place = places[static_cast<std::size_t>(mistake->step)];
      refuse(place.first, place.length, mistake->what, {});
    }
    return chain;
  }

 private:
  /// Of a part in the text.
  struct Place {
    std::size_t first, length;
  };

  [[noreturn]] void refuse(std::size_t at, std::size_t length, const std::string& what,
                           const std::vector<std::string_view>& candidates) const {
    const std::string_view found = text_.substr(std::min(at, text_.size()), length);
    std::string message = found.empty() ? fmt::format("chain = {}: {}", text_, what)
                                        : fmt::format("chain = {}: {} (character {}): {}", text_, found, at + 1, what);
    if (!candidates.empty()) message += suggestion(found, candidates);
    throw Error(ErrorKind::usage, message,
                {std::string(text_), std::string(at, ' ') + std::string(std::max<std::size_t>(length, 1), '^')});
  }

  std::string_view word() {
    const std::size_t first = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    return text_.substr(first, at_ - first);
  }

  /// One, or those that a word stands for.
  std::vector<RowStep> parts() {
    const std::size_t first = at_;
    if (word() == kAppendKv) return append_kv();
    at_ = first;
    return {part()};
  }

  /// Behind its word: (COLUMNS[, the type that is written][, options of rope]), or nothing: 128 columns.
  std::vector<RowStep> append_kv() {
    int columns = 128;
    const bool is_bare = at_ == text_.size() || text_[at_] != '(';
    if (!is_bare) {
      const std::size_t at = ++at_;
      columns = number();
      if (columns < 8 || columns % 8 != 0 || columns > (1 << 20))
        refuse(at, at_ - at, "columns of k are a multiple of 8", {});
    }
    RowStep join{.kind = RowPart::join, .first = columns}, rope{.kind = RowPart::rope, .last = columns - 1};
    RowStep k{.kind = RowPart::store, .is_same = true};
    std::vector<Seen> seen;
    while (!is_bare && at_ < text_.size() && text_[at_] == ',') {
      const std::size_t start = ++at_;
      const std::string_view type = word();
      if (type == "e4m3") {
        k = {.kind = RowPart::scaled_8, .block = -1};
      } else if (type == "bf16" || type == "f16" || type == "same") {
        named(type, k);
      } else {
        at_ = start;
        seen.push_back(option(rope));
        if (rope.last >= columns) refuse(start, at_ - start, fmt::format("k has the columns 0..{}", columns - 1), {});
        require_kept(rope, seen);
        continue;
      }
      seen.push_back({.first = start, .length = type.size(), .option = nullptr, .value = {}, .kind = "type"});
      require_kept(rope, seen);
    }
    finish(rope, seen);
    if (!is_bare) close();
    k.is_paged = true;
    RowStep v = k;
    k.last = columns - 1;
    v.first = columns;
    v.last = 2 * columns - 1;
    return {join, rope, k, v};
  }

  void close() {
    if (at_ == text_.size() || text_[at_] != ')') refuse(at_, at_ == text_.size() ? 0 : 1, "a ) is missing", {});
    ++at_;
  }

  RowStep part() {
    const std::size_t first = at_;
    const std::string_view name = word();
    const bool is_quantize = name == kQuantize;
    RowStep step;
    if (is_quantize) {
      step = quantize(first);
    } else if (!named(name, step)) {
      std::vector<std::string_view> candidates{kAppendKv, kQuantize};
      for (const PartWord& part : part_words()) candidates.push_back(part.word);
      for (const Alias& alias : kAliases) candidates.push_back(alias.word);
      refuse(first, name.size(), name.empty() ? "a part is expected here" : "no such part", candidates);
    }
    if (at_ < text_.size() && text_[at_] == (is_quantize ? ',' : '(')) {
      std::vector<Seen> seen;
      do {
        ++at_;
        seen.push_back(option(step));
        require_kept(step, seen);
      } while (at_ < text_.size() && text_[at_] == ',');
      finish(step, seen);
      if (!is_quantize) close();
    }
    if (is_quantize) close();
    if (const std::string_view missing = missing_of(step); !missing.empty())
      refuse(first, at_ - first, std::string(missing), {});
    return step;
  }

  /// Behind its word: (FORMAT, of which options may follow.
  RowStep quantize(std::size_t first) {
    if (at_ == text_.size() || text_[at_] != '(')
      refuse(first, kQuantize.size(), "quantize(FORMAT) says in which format a row is written: quantize(nvfp4)", {});
    const std::size_t at = ++at_;
    const std::string_view format = word();
    RowStep step;
    if (!named(format, step) || (step.kind != RowPart::quantize && step.kind != RowPart::scaled_8))
      refuse(at, format.size(), "no such format: nvfp4, mxfp4, mxfp8, mxfp8_e5m2 or e4m3", {});
    return step;
  }

  static bool named(std::string_view name, RowStep& step) {
    for (const PartWord& part : part_words()) {
      if (part.word != name) continue;
      step = part.step;
      return true;
    }
    for (const Alias& alias : kAliases) {
      if (alias.word != name) continue;
      step = ChainReader(alias.chain).part();
      return true;
    }
    return false;
  }

  int number() {
    const std::size_t first = at_;
    int value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) {
      const std::string_view found = word();
      refuse(first, found.size(),
             error == std::errc::result_out_of_range ? "a number up to 2,147,483,647 is expected here"
                                                     : "a whole number is expected here",
             {});
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  /// 0 stands for the scale of a row, which has a word of its own.
  void require_block(const RowStep& step, std::size_t first, int value) const {
    if (value == 0 && (step.kind == RowPart::scaled_8 || step.kind == RowPart::dequant))
      refuse(first, at_ - first, "a scale for 0 columns: a power of two from 8 on, row or tensor", {});
  }

  /// 1.2772589 in millionths, or yarn.
  int magnitude() {
    constexpr std::string_view kYarn = "yarn";
    if (text_.substr(at_, kYarn.size()) == kYarn) {
      at_ += kYarn.size();
      return kYarnMagnitude;
    }
    const std::size_t first = at_;
    const auto is_digit = [&] {
      return at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
    };
    long long value = 0;
    int places = -1;
    for (; is_digit() || (places < 0 && at_ > first && text_.substr(at_, 1) == "."); ++at_) {
      if (text_[at_] != '.') value = std::min(value * 10 + (text_[at_] - '0'), 1000LL * kOneMagnitude);
      if (places >= 0 || text_[at_] == '.') ++places;
    }
    for (int i = std::max(places, 0); i < 6; ++i) value *= 10;
    if (at_ == first || places == 0 || places > 6 || value < 1 || value >= 1000LL * kOneMagnitude)
      refuse(first, at_ == first ? word().size() : at_ - first,
             "a number above 0 and below 1000, of at most six decimal places, or yarn is expected here", {});
    return static_cast<int>(value);
  }

  /// What was read in parentheses: a word, columns or a lone number, and what it has set.
  struct Seen {
    std::size_t first = 0, length = 0;
    const Option* option = nullptr;
    std::optional<int> value;
    std::string_view kind;  ///< one of each: what sets the same
    std::optional<int> number = {};
  };

  /// Behind the last option. A scaling's word sets what is usual beside it, and must not undo what was said before it.
  void finish(RowStep& step, const std::vector<Seen>& seen) const {
    for (const Seen& one : seen) {
      if (one.option != nullptr && one.number && (one.kind == "low" || one.kind == "high"))
        one.option->set(step, *one.number);
      const std::string_view option = text_.substr(one.first, one.length), word = option.substr(0, option.find('='));
      if (const std::string_view why = idle_reason(step, one.option == nullptr ? one.kind : word); !why.empty())
        refuse(one.first, one.length, fmt::format("without effect here: {}", why), {});
    }
  }

  /// What stands twice in parentheses, or undoes what stands before it, is a mistake.
  void require_kept(const RowStep& step, const std::vector<Seen>& seen) const {
    const Seen& last = seen.back();
    for (std::size_t i = 0; i + 1 < seen.size(); ++i) {
      const Seen& before = seen[i];
      const bool is_twice = before.kind == last.kind;
      const bool is_undone = before.option != nullptr && before.value && before.option->get(step) != before.value;
      if (is_twice || is_undone)
        refuse(last.first, last.length,
               fmt::format("it takes the place of {}: one of them", text_.substr(before.first, before.length)), {});
    }
  }

  Seen option(RowStep& step) {
    const std::size_t first = at_;
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      const int value = number();
      if (text_.substr(at_, 2) == ".." && !has_no_range(step)) {
        at_ += 2;
        step.first = value;
        step.last = number();
        if (step.last < step.first) refuse(first, at_ - first, "the last column comes before the first", {});
        return {.first = first, .length = at_ - first, .option = nullptr, .value = {}, .kind = ".."};
      }
      // A lone number is the block, or the cap.
      int* const lone = number_of(step);
      if (lone == nullptr) refuse(first, at_ - first, "columns are written as FIRST..LAST", {});
      require_block(step, first, value);
      *lone = value;
      return {.first = first,
              .length = at_ - first,
              .option = nullptr,
              .value = {},
              .kind = step.kind == RowPart::softcap ? "limit" : "block"};
    }
    const std::string_view name = word();
    std::vector<std::string_view> candidates;
    for (const Option& option : kOptions) {
      if (!option.is_for(step)) continue;
      candidates.push_back(option.word);
      if (option.word != name) continue;
      if (!option.has_number) {
        option.set(step, 1);
        const bool is_of_scale = name == "row" || name == "tensor";
        return {.first = first,
                .length = at_ - first,
                .option = &option,
                .value = option.get(step),
                .kind = is_of_scale ? "block" : name};
      }
      if (at_ == text_.size() || text_[at_] != '=')
        refuse(first, name.size(), fmt::format("{}=NUMBER is expected", name), {});
      ++at_;
      const int value = option.is_magnitude ? magnitude() : number();
      if (option.word == "block") require_block(step, first, value);
      option.set(step, value);
      return {.first = first,
              .length = at_ - first,
              .option = &option,
              .value = option.get(step),
              .kind = name,
              .number = value};
    }
    refuse(first, name.size(),
           candidates.empty() ? std::string(has_no_range(step) ? "a number alone is expected here"
                                                               : "this part has columns alone: FIRST..LAST")
                              : fmt::format("options here are FIRST..LAST, {}", fmt::join(candidates, ", ")),
           candidates);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string magnitude_text(int millionths) {
  if (millionths == kYarnMagnitude) return "yarn";
  std::string text = fmt::format("{}.{:06}", millionths / kOneMagnitude, millionths % kOneMagnitude);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string_view word_of(const RowStep& step) {
  for (const PartWord& part : part_words())
    if (part.step.kind == step.kind && part.step.is_same == step.is_same &&
        (step.kind != RowPart::store || step.is_same || part.step.dtype == step.dtype) &&
        (step.kind != RowPart::quantize || part.step.format == step.format) &&
        (step.kind != RowPart::cache || part.step.cache == step.cache))
      return part.word;
  return "?";
}

std::string text_of(const RowStep& step) {
  std::vector<std::string> options;
  if (step.kind == RowPart::join) {
    options.push_back(std::to_string(step.first));
  } else if (step.kind == RowPart::combine || step.kind == RowPart::compress) {
    options.push_back(std::to_string(step.block));
  } else if (step.first != 0 || step.last >= 0) {
    options.push_back(fmt::format("{}..{}", step.first, step.last));
  }
  for (const Option& option : kOptions) {
    if (!option.is_for(step)) continue;
    const std::optional<int> value = option.get(step);
    if (!value) continue;
    if (!option.has_number) {
      options.emplace_back(option.word);
      continue;
    }
    options.push_back(
        fmt::format("{}={}", option.word, option.is_magnitude ? magnitude_text(*value) : std::to_string(*value)));
  }
  const std::string_view word = word_of(step);
  return options.empty() ? std::string(word) : fmt::format("{}({})", word, fmt::join(options, ","));
}

}  // namespace

RowChain parse_row_chain(std::string_view text) {
  RowChain chain = ChainReader(text).chain();
  const int count = step_count(chain);
  for (int i = 0; i < count; ++i)
    if (is_row_sink(chain.steps[i].kind)) return chain;
  const RowStep& last = chain.steps[count - 1];
  if (!last.is_stored && count < kMaxRowSteps) chain.steps[count] = {.kind = RowPart::store, .is_same = true};
  return chain;
}

std::string to_text(const RowChain& chain) {
  std::vector<std::string> parts;
  for (int i = 0; i < step_count(chain); ++i) parts.push_back(text_of(chain.steps[i]));
  return fmt::format("{}", fmt::join(parts, "+"));
}

int told_columns(const RowChain& chain) {
  int columns = 0;
  for (int i = 0; i < step_count(chain); ++i) {
    const RowStep& step = chain.steps[i];
    if (step.kind == RowPart::mhc_mix) return kMixColumns;
    if (step.kind == RowPart::cache && step.last < 0) return step.first + cache_columns(step.cache);
  }
  for (int i = 0; i < step_count(chain); ++i) {
    if (!is_row_sink(chain.steps[i].kind)) continue;
    if (chain.steps[i].last < 0) return 0;
    columns = std::max(columns, chain.steps[i].last + 1);
  }
  return columns;
}

std::string to_field_text(const RowChain& chain) { return to_text(chain); }
void from_field_text(std::string_view text, RowChain& chain) { chain = parse_row_chain(text); }
std::size_t field_hash(const RowChain& chain) noexcept { return std::hash<std::string>{}(to_text(chain)); }

}  // namespace tessera

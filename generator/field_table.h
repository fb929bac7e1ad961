// How a Problem's struct becomes a table of fields: a row for each member, from which flags, keys of shape lists, help,
// messages and the hash follow.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "generator/selectors.h"
#include "generator/words.h"

namespace tessera {

inline constexpr std::int64_t kMaxIntField = std::numeric_limits<int>::max();
inline constexpr std::int64_t kMaxHintField = std::int64_t{1} << 40;
inline constexpr std::string_view kAutoText = "auto", kUnknownText = "unknown";

/// Throws Error{usage} for a word that the field does not have, and says what was meant: a word of its own, or a field
/// that has this one.
[[noreturn]] void refuse_word(const Problem& problem, const Selector& selector, std::string_view text);
/// Throws Error{usage} for what is no whole number within the selector's bounds.
std::int64_t parse_number(const Selector& selector, std::string_view text);

/// A value that has a text of its own, like a chain of row parts: beside the type stand
///   void from_field_text(std::string_view text, T& value);   throws Error{usage} that points into the text
///   std::string to_field_text(const T& value);               what from_field_text takes, one text for one value
///   std::size_t field_hash(const T& value) noexcept;
template <class T>
concept TextField = requires(const T& value) {
  to_field_text(value);
};

/// Setter, getter and hash of one field, by pointer to member: int, Hint, Arch, an enumeration, a TextField, or an
/// optional of these.
template <auto Member>
struct Field;

template <class Op, class T, T Op::*Member>
struct Field<Member> {
  template <class U>
  struct Strip {
    using type = U;
  };
  template <class U>
  struct Strip<std::optional<U>> {
    using type = U;
  };
  using Value = typename Strip<T>::type;
  static constexpr bool kIsPin = !std::is_same_v<T, Value>;

  static void set(Problem& problem, const Selector& selector, std::string_view text) {
    T field{};
    if (!((kIsPin && text == kAutoText) || set_unknown(field, text))) field = value_of(problem, selector, text);
    problem.edit<Op>().*Member = field;
  }

  static std::string text(const Problem& problem) {
    const T& field = problem.as<Op>().*Member;
    if constexpr (kIsPin) {
      return field.has_value() ? value_text(*field) : std::string(kAutoText);
    } else {
      return value_text(field);
    }
  }

  static std::string value_text(const Value& value) {
    if constexpr (std::is_same_v<Value, Arch>) {
      return value.to_string();
    } else if constexpr (TextField<Value>) {
      return to_field_text(value);
    } else if constexpr (std::is_enum_v<Value>) {
      return std::string(to_word(value));
    } else if (std::is_same_v<Value, Hint> && value == Value{kUnknownHint}) {
      return std::string(kUnknownText);
    } else {
      return std::to_string(value);
    }
  }

  static std::size_t hash(const void* facts) noexcept {
    const T& field = static_cast<const Op*>(facts)->*Member;
    if constexpr (kIsPin) {
      return field.has_value() ? value_hash(*field) + 1 : 0;
    } else {
      return value_hash(field);
    }
  }

 private:
  static bool set_unknown(T& field, std::string_view text) {
    if constexpr (std::is_same_v<Value, Hint>) {
      if (text != kUnknownText) return false;
      field = kUnknownHint;
      return true;
    } else {
      return false;
    }
  }

  static Value value_of(const Problem& problem, const Selector& selector, std::string_view text) {
    if constexpr (std::is_same_v<Value, Arch>) {
      return Arch::parse(text);
    } else if constexpr (TextField<Value>) {
      Value value{};
      from_field_text(text, value);
      return value;
    } else if constexpr (std::is_enum_v<Value>) {
      Value value{};
      if (!from_word(text, value)) refuse_word(problem, selector, text);
      return value;
    } else {
      return static_cast<Value>(parse_number(selector, text));
    }
  }

  static std::size_t value_hash(const Value& value) noexcept {
    if constexpr (std::is_same_v<Value, Arch>) {
      return static_cast<std::size_t>(value.number) * 256 + static_cast<unsigned char>(value.suffix);
    } else if constexpr (TextField<Value>) {
      return field_hash(value);
    } else {
      return std::hash<Value>{}(value);
    }
  }
};

template <auto Member>
Selector field(std::string_view flag, std::string_view key, std::string_view help) {
  using F = Field<Member>;
  using Value = typename F::Value;
  Selector selector;
  selector.flag = flag;
  selector.key = key;
  selector.kind = F::kIsPin ? SelectorKind::pin : std::is_same_v<Value, Hint> ? SelectorKind::hint : SelectorKind::fact;
  if constexpr (std::is_enum_v<Value>) {
    for (const Word<Value>& word : words_of(Value{})) selector.words.push_back(word.text);
  }
  if constexpr (std::is_integral_v<Value>) {
    selector.is_number = true;
    selector.min = selector.kind == SelectorKind::hint ? 0 : 1;
    selector.max = selector.kind == SelectorKind::hint ? kMaxHintField : kMaxIntField;
  }
  selector.help = help;
  selector.set = F::set;
  selector.text = F::text;
  selector.hash = F::hash;
  return selector;
}

/// Of the words that a field can spell those that the operator has kernels for: what help, messages and documentation
/// offer. The others are told by make_plan.
inline Selector offer(Selector selector, std::vector<std::string_view> words) {
  selector.words = std::move(words);
  return selector;
}

}  // namespace tessera

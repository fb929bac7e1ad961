// Strict reading of JSON that somebody else wrote: every value knows its place, every failure names it.
//
// A JsonValue is one value and the chain of places that led to it; the chain is spelled out only in a message
// ("launch.steps[0].grid[1]: must be an integer, found a string"). A child refers to its parent, so it is made from
// a named parent only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera {

class JsonValue {
 public:
  /// name: what the messages call the whole ("launch").
  JsonValue(const nlohmann::ordered_json& json, std::string_view name) noexcept : json_(&json), key_(name) {}

  /// Throws Error{usage} "PATH: what".
  [[noreturn]] void fail(std::string_view what) const;
  std::string path() const;
  const nlohmann::ordered_json& json() const noexcept { return *json_; }

  const std::string& as_string() const;
  bool as_boolean() const;
  /// A finite number, whole or not.
  double as_number() const;
  /// A whole number within the bounds.
  std::int64_t as_integer(std::int64_t min, std::int64_t max) const;

  /// Number of elements; fails unless this is an array of at most max.
  std::size_t array_size(std::size_t max) const;
  JsonValue element(std::size_t index) const&;
  JsonValue element(std::size_t index) const&& = delete;

  /// Fails unless this is an object with all of required, perhaps some of optional, and nothing else.
  void check_keys(std::initializer_list<std::string_view> required,
                  std::initializer_list<std::string_view> optional = {}) const;
  bool has(std::string_view key) const;
  /// Fails when the key is missing.
  JsonValue at(std::string_view key) const&;
  JsonValue at(std::string_view key) const&& = delete;

 private:
  JsonValue(const nlohmann::ordered_json& json, const JsonValue& parent, std::string_view key, std::size_t index)
      : json_(&json), parent_(&parent), key_(key), index_(index) {}

  const nlohmann::ordered_json* json_;
  const JsonValue* parent_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;  // the place in an array, when key_ is empty
};

/// Parses a text; throws Error{usage} "NAME: line L, column C: reason" when it is not JSON, and for a key that stands
/// twice in one object (a plain parser would silently keep one of them).
nlohmann::ordered_json parse_json(std::string_view text, std::string_view name);

}  // namespace tessera

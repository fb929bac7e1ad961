#include "base/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "tessera/error.h"

namespace tessera {

namespace {

using Json = nlohmann::ordered_json;

std::string_view kind_of(const Json& json) noexcept {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    default:
      return "something else";
  }
}

bool contains(std::initializer_list<std::string_view> list, std::string_view key) noexcept {
  return std::find(list.begin(), list.end(), key) != list.end();
}

/// Keys of one object: the list that keeps their order takes the square of it in time.
constexpr std::size_t kMaxKeys = 10'000;

/// Watches the parser for a key that stands twice in one object, and for objects without end.
class DuplicateKeys {
 public:
  explicit DuplicateKeys(std::string_view name) : name_(name) {}
  bool operator()(int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end && !open_.empty()) open_.pop_back();
    if (event == Json::parse_event_t::key && !open_.empty()) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open_.back().insert(key).second && found_.empty()) found_ = key;
      if (open_.back().size() > kMaxKeys)
        throw Error(ErrorKind::usage, fmt::format("{}: an object with more than {} keys", name_, kMaxKeys));
    }
    return true;
  }
  const std::string& found() const noexcept { return found_; }

 private:
  std::string_view name_;
  std::vector<std::unordered_set<std::string>> open_;
  std::string found_;
};

}  // namespace

void JsonValue::fail(std::string_view what) const {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", path(), what));
}

std::string JsonValue::path() const {
  if (parent_ == nullptr) return std::string(key_);
  const std::string before = parent_->path();
  return key_.empty() ? fmt::format("{}[{}]", before, index_) : fmt::format("{}.{}", before, key_);
}

const std::string& JsonValue::as_string() const {
  if (!json_->is_string()) fail(fmt::format("must be a string, found {}", kind_of(*json_)));
  return json_->get_ref<const std::string&>();
}

bool JsonValue::as_boolean() const {
  if (!json_->is_boolean()) fail(fmt::format("must be true or false, found {}", kind_of(*json_)));
  return json_->get<bool>();
}

double JsonValue::as_number() const {
  if (!json_->is_number()) fail(fmt::format("must be a number, found {}", kind_of(*json_)));
  const double value = json_->get<double>();
  if (!std::isfinite(value)) fail("must be a finite number");
  return value;
}

std::int64_t JsonValue::as_integer(std::int64_t min, std::int64_t max) const {
  if (!json_->is_number_integer()) fail(fmt::format("must be an integer, found {}", kind_of(*json_)));
  const bool is_huge = json_->is_number_unsigned() && json_->get<std::uint64_t>() > INT64_MAX;
  if (is_huge || json_->get<std::int64_t>() < min || json_->get<std::int64_t>() > max)
    fail(fmt::format("{}: must lie in {}..{}", json_->dump(), min, max));
  return json_->get<std::int64_t>();
}

std::size_t JsonValue::array_size(std::size_t max) const {
  if (!json_->is_array()) fail(fmt::format("must be an array, found {}", kind_of(*json_)));
  if (json_->size() > max) fail(fmt::format("has {} elements: at most {} are allowed", json_->size(), max));
  return json_->size();
}

JsonValue JsonValue::element(std::size_t index) const& { return {(*json_)[index], *this, {}, index}; }

void JsonValue::check_keys(std::initializer_list<std::string_view> required,
                           std::initializer_list<std::string_view> optional) const {
  if (!json_->is_object()) fail(fmt::format("must be an object, found {}", kind_of(*json_)));
  for (const auto& item : json_->items()) {
    if (contains(required, item.key()) || contains(optional, item.key())) continue;
    std::vector<std::string_view> known(required);
    known.insert(known.end(), optional.begin(), optional.end());
    throw Error(ErrorKind::usage,
                fmt::format("{}.{}: unknown key; known are {}", path(), item.key(), fmt::join(known, ", ")));
  }
  for (const std::string_view key : required)
    if (!has(key)) throw Error(ErrorKind::usage, fmt::format("{}.{}: missing", path(), key));
}

bool JsonValue::has(std::string_view key) const { return json_->is_object() && json_->contains(key); }

JsonValue JsonValue::at(std::string_view key) const& {
  if (!json_->is_object()) fail(fmt::format("must be an object, found {}", kind_of(*json_)));
  const auto found = json_->find(key);
  if (found == json_->end()) throw Error(ErrorKind::usage, fmt::format("{}.{}: missing", path(), key));
  return {*found, *this, key, 0};
}

nlohmann::ordered_json parse_json(std::string_view text, std::string_view name) {
  DuplicateKeys duplicates(name);
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), std::ref(duplicates));
  } catch (const Json::parse_error& error) {
    const std::size_t end = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const std::string_view before = text.substr(0, end);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    // What the library says, without its prefix "[json.exception.parse_error.101] parse error at line 1, column 2: ".
    std::string_view reason = error.what();
    if (const auto colon = reason.find(": "); colon != std::string_view::npos) reason.remove_prefix(colon + 2);
    throw Error(ErrorKind::usage, fmt::format("{}: line {}, column {}: {}", name, line, end - line_start + 1, reason));
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::usage, fmt::format("{}: {}", name, error.what()));
  }
  if (!duplicates.found().empty())
    throw Error(ErrorKind::usage,
                fmt::format("{}: the key \"{}\" stands twice in one object", name, duplicates.found()));
  return json;
}

}  // namespace tessera

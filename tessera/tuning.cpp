#include "tessera/internal/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/launch_json.h"
#include "generator/selectors.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr int kVersion = 1;
constexpr std::size_t kMostChoices = 1'000'000;

OrderedJson problem_json(const Problem& problem) {
  OrderedJson json{{"op", operator_name(problem)}};
  for (const Selector& selector : selectors(operator_name(problem)))
    if (const std::string text = selector.text(problem); text != "auto" && text != "unknown")
      json[std::string(selector.key)] = text;
  return json;
}

Problem read_problem(const JsonValue& json) {
  const JsonValue op = json.at("op");
  Problem problem = default_problem(op.as_string());
  for (const auto& member : json.json().items()) {
    if (member.key() == "op") continue;
    const JsonValue value = json.at(member.key());
    set_field(problem, member.key(), value.as_string());
  }
  return problem;
}

double read_number(const JsonValue& object, std::string_view key) {
  const JsonValue value = object.at(key);
  return value.as_number();
}

}  // namespace

Tuning Tuning::read(const std::string& file) {
  const OrderedJson json = parse_json(read_text(file), file);
  const JsonValue root(json, file);
  root.check_keys({"version", "device", "choices"}, {"predicted"});
  const JsonValue version = root.at("version"), device = root.at("device"), choices = root.at("choices");
  version.as_integer(kVersion, kVersion);
  Tuning tuning;
  tuning.device = device.as_string();
  if (root.has("predicted")) {
    const JsonValue predicted = root.at("predicted");
    tuning.predicted = predicted.as_string();
  }
  const std::size_t count = choices.array_size(kMostChoices);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonValue one = choices.element(i);
    one.check_keys({"problem", "pins", "kernel", "time_us", "default_us", "candidates"});
    const JsonValue problem = one.at("problem"), pins = one.at("pins"), kernel = one.at("kernel");
    TunedChoice choice;
    for (const auto& member : pins.json().items()) {
      const JsonValue value = pins.at(member.key());
      choice.pins.emplace_back(member.key(), value.as_string());
    }
    choice.kernel = kernel.as_string();
    choice.time_us = read_number(one, "time_us");
    choice.default_us = read_number(one, "default_us");
    const JsonValue candidates = one.at("candidates");
    choice.candidates = static_cast<int>(candidates.as_integer(1, 1 << 20));
    const Problem key = read_problem(problem);
    Problem pinned = key;  // refuses what is no field, or no value of it
    for (const auto& [name, text] : choice.pins) set_field(pinned, name, text);
    tuning.set(key, std::move(choice));
  }
  return tuning;
}

void Tuning::write(const std::string& file) const {
  std::vector<std::pair<std::string, OrderedJson>> sorted;
  for (const auto& [problem, choice] : choices_) {
    OrderedJson key = problem_json(problem), pins = OrderedJson::object();
    for (const auto& [name, text] : choice.pins) pins[name] = text;
    sorted.emplace_back(key.dump(), OrderedJson{{"problem", key},
                                                {"pins", std::move(pins)},
                                                {"kernel", choice.kernel},
                                                {"time_us", choice.time_us},
                                                {"default_us", choice.default_us},
                                                {"candidates", choice.candidates}});
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  OrderedJson choices = OrderedJson::array();
  for (auto& one : sorted) choices.push_back(std::move(one.second));
  OrderedJson json{{"version", kVersion}, {"device", device}};
  if (!predicted.empty()) json["predicted"] = predicted;
  json["choices"] = std::move(choices);
  write_file(file, json.dump(1) + "\n");
}

std::string how_made(const Tuning& tuning) {
  return (tuning.predicted.empty() ? "measured on " : "predicted for ") + tuning.device;
}

bool Tuning::apply(Problem& problem) const {
  const auto found = choices_.find(problem);
  if (found == choices_.end()) return false;
  for (const auto& [name, text] : found->second.pins) set_field(problem, name, text);
  return true;
}

}  // namespace tessera

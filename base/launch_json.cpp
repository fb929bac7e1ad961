// First the writers, then the readers, each struct's fields in the struct's order: a field that is known on one side
// only fails the round trip. A reader builds the whole plan before check_launch_plan looks at how its parts fit.
#include "base/launch_json.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxText = 4096;  // characters of a help text or message
constexpr std::string_view kMergeCubin = "merge.cubin";

// --- writing

OrderedJson expression_json(const Expression& expression) {
  const std::string& text = expression.text();
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_plain_number = code == std::errc{} && end == text.data() + text.size() && std::to_string(value) == text;
  return is_plain_number ? OrderedJson(value) : OrderedJson(text);
}

template <class Range>
OrderedJson expressions_json(const Range& range) {
  OrderedJson json = OrderedJson::array();
  for (const Expression& expression : range) json.push_back(expression_json(expression));
  return json;
}

OrderedJson size_json(const SizeSpec& size) {
  OrderedJson json{{"name", size.name}, {"min", size.min}, {"max", size.max}};
  if (size.default_value) json["default"] = expression_json(*size.default_value);
  json["help"] = size.help;
  return json;
}

OrderedJson scalar_json(const ScalarSpec& scalar) {
  OrderedJson json{{"name", scalar.name}};
  if (scalar.default_value) json["default"] = *scalar.default_value;
  json["help"] = scalar.help;
  return json;
}

OrderedJson buffer_json(const BufferSpec& buffer) {
  return {{"name", buffer.name},
          {"role", to_string(buffer.role)},
          {"dtype", buffer.dtype},
          {"shape", expressions_json(buffer.shape)},
          {"strides", expressions_json(buffer.strides)},
          {"alignment", buffer.alignment},
          {"is_optional", buffer.is_optional}};
}

OrderedJson recipe_json(const TensorMapRecipe& recipe) {
  return {{"name", recipe.name},
          {"buffer", recipe.buffer},
          {"type", to_string(recipe.type)},
          {"dims", expressions_json(recipe.dims)},
          {"strides_bytes", expressions_json(recipe.strides_bytes)},
          {"box", recipe.box},
          {"element_strides", recipe.element_strides},
          {"interleave", to_string(recipe.interleave)},
          {"swizzle", to_string(recipe.swizzle)},
          {"l2_promotion", to_string(recipe.l2_promotion)},
          {"fill", to_string(recipe.fill)}};
}

OrderedJson parameter_json(const KernelParameter& parameter) {
  OrderedJson json{{"name", parameter.name}, {"kind", to_string(parameter.kind)}};
  const bool is_integer = parameter.kind == ParameterKind::i32 || parameter.kind == ParameterKind::i64;
  if (is_integer) json["value"] = expression_json(parameter.value);
  if (!is_integer) json["source"] = parameter.source;
  if (parameter.kind == ParameterKind::pointer) json["offset_bytes"] = expression_json(parameter.offset_bytes);
  return json;
}

OrderedJson step_json(const LaunchStep& step) {
  OrderedJson parameters = OrderedJson::array();
  for (const KernelParameter& parameter : step.parameters) parameters.push_back(parameter_json(parameter));
  OrderedJson json{{"entry", step.entry}};
  if (step.is_merge) json["cubin"] = kMergeCubin;
  json.update({{"grid", expressions_json(step.grid)},
               {"block", step.block},
               {"cluster", step.cluster},
               {"dynamic_smem_bytes", step.dynamic_smem_bytes},
               {"programmatic_stream_serialization", step.programmatic_stream_serialization},
               {"parameters", std::move(parameters)}});
  return json;
}

template <class List, class Writer>
OrderedJson list_json(const List& list, Writer writer) {
  OrderedJson json = OrderedJson::array();
  for (const auto& item : list) json.push_back(writer(item));
  return json;
}

OrderedJson rule_json(const DomainRule& rule) {
  return {{"lhs", expression_json(rule.lhs)},
          {"relation", to_string(rule.relation)},
          {"rhs", expression_json(rule.rhs)},
          {"message", rule.message}};
}

// --- reading

std::string read_string(const JsonValue& value) {
  const std::string& text = value.as_string();
  if (text.size() > kMaxText) value.fail(fmt::format("has {} bytes: at most {} are allowed", text.size(), kMaxText));
  return text;
}

Expression read_expression(const JsonValue& value) {
  if (value.json().is_number_integer()) return Expression(value.as_integer(INT64_MIN, INT64_MAX));
  if (!value.json().is_string()) value.fail("must be an integer or an expression in a string");
  try {
    return Expression::parse(value.as_string());
  } catch (const Error& error) {
    value.fail(error.what());
  }
}

template <class Read>
auto read_list(const JsonValue& value, std::size_t max, Read read) {
  const std::size_t size = value.array_size(max);
  std::vector<decltype(read(value))> list;
  list.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    const JsonValue element = value.element(i);
    list.push_back(read(element));
  }
  return list;
}

/// The member `key` of an object, read by a function.
template <class Read>
auto member(const JsonValue& object, std::string_view key, Read read) {
  const JsonValue value = object.at(key);
  return read(value);
}

template <class Read>
auto member_list(const JsonValue& object, std::string_view key, std::size_t max, Read read) {
  const JsonValue value = object.at(key);
  return read_list(value, max, read);
}

template <class Read>
auto member_triple(const JsonValue& object, std::string_view key, Read read) {
  const JsonValue value = object.at(key);
  if (value.array_size(3) != 3) value.fail("must have three elements");
  const auto list = read_list(value, 3, read);
  return std::array{list[0], list[1], list[2]};
}

std::uint32_t read_u32(const JsonValue& value) { return static_cast<std::uint32_t>(value.as_integer(0, UINT32_MAX)); }
std::int64_t read_i64(const JsonValue& value) { return value.as_integer(INT64_MIN, INT64_MAX); }
int read_int(const JsonValue& value) { return static_cast<int>(value.as_integer(INT32_MIN, INT32_MAX)); }
bool read_bool(const JsonValue& value) { return value.as_boolean(); }

/// One of the first `count` enumerators, by the spelling that to_string gives it.
template <class Enum, int count>
Enum read_enum(const JsonValue& value) {
  const std::string& text = value.as_string();
  std::string known;
  for (int i = 0; i < count; ++i) {
    const auto candidate = static_cast<Enum>(i);
    if (to_string(candidate) == text) return candidate;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(candidate));
  }
  value.fail(fmt::format("\"{}\" is not one of {}", text, known));
}

/// A fixed value of the tensor map, by the spelling that tessera/tensor_map.h owns.
template <class Enum>
Enum read_map_enum(const JsonValue& value) {
  Enum out{};
  if (!from_string(value.as_string(), out)) value.fail(fmt::format("\"{}\" is not known", value.as_string()));
  return out;
}

SizeSpec read_size(const JsonValue& value) {
  value.check_keys({"name", "min", "max", "help"}, {"default"});
  SizeSpec size;
  size.name = member(value, "name", read_string);
  size.min = member(value, "min", read_i64);
  size.max = member(value, "max", read_i64);
  if (value.has("default")) size.default_value = member(value, "default", read_expression);
  size.help = member(value, "help", read_string);
  return size;
}

ScalarSpec read_scalar(const JsonValue& value) {
  value.check_keys({"name", "help"}, {"default"});
  ScalarSpec scalar;
  scalar.name = member(value, "name", read_string);
  if (value.has("default"))
    scalar.default_value = member(value, "default", [](const JsonValue& number) { return number.as_number(); });
  scalar.help = member(value, "help", read_string);
  return scalar;
}

BufferSpec read_buffer(const JsonValue& value) {
  value.check_keys({"name", "role", "dtype", "shape", "strides", "alignment", "is_optional"});
  BufferSpec buffer;
  buffer.name = member(value, "name", read_string);
  buffer.role = member(value, "role", read_enum<BufferRole, 3>);
  buffer.dtype = member(value, "dtype", read_string);
  buffer.shape = member_list(value, "shape", kMaxBufferRank, read_expression);
  buffer.strides = member_list(value, "strides", kMaxBufferRank, read_expression);
  buffer.alignment = member(value, "alignment", read_int);
  buffer.is_optional = member(value, "is_optional", read_bool);
  return buffer;
}

DomainRule read_rule(const JsonValue& value) {
  value.check_keys({"lhs", "relation", "rhs", "message"});
  DomainRule rule;
  rule.lhs = member(value, "lhs", read_expression);
  rule.relation = member(value, "relation", read_enum<Relation, 4>);
  rule.rhs = member(value, "rhs", read_expression);
  rule.message = member(value, "message", read_string);
  return rule;
}

TensorMapRecipe read_recipe(const JsonValue& value) {
  value.check_keys({"name", "buffer", "type", "dims", "strides_bytes", "box", "element_strides", "interleave",
                    "swizzle", "l2_promotion", "fill"});
  constexpr std::size_t rank = kMaxTensorMapRank;
  TensorMapRecipe recipe;
  recipe.name = member(value, "name", read_string);
  recipe.buffer = member(value, "buffer", read_string);
  recipe.type = member(value, "type", read_map_enum<TensorMapType>);
  recipe.dims = member_list(value, "dims", rank, read_expression);
  recipe.strides_bytes = member_list(value, "strides_bytes", rank, read_expression);
  recipe.box = member_list(value, "box", rank, read_u32);
  recipe.element_strides = member_list(value, "element_strides", rank, read_u32);
  recipe.interleave = member(value, "interleave", read_map_enum<TensorMapInterleave>);
  recipe.swizzle = member(value, "swizzle", read_map_enum<TensorMapSwizzle>);
  recipe.l2_promotion = member(value, "l2_promotion", read_map_enum<TensorMapL2Promotion>);
  recipe.fill = member(value, "fill", read_map_enum<TensorMapFill>);
  return recipe;
}

Workspace read_workspace(const JsonValue& value) {
  value.check_keys({"bytes", "alignment", "zeroed"});
  Workspace workspace;
  workspace.bytes = member(value, "bytes", read_expression);
  workspace.alignment = member(value, "alignment", read_int);
  workspace.zeroed = member(value, "zeroed", read_bool);
  return workspace;
}

KernelParameter read_parameter(const JsonValue& value) {
  KernelParameter parameter;
  parameter.kind = member(value, "kind", read_enum<ParameterKind, 5>);
  switch (parameter.kind) {
    case ParameterKind::i32:
    case ParameterKind::i64:
      value.check_keys({"name", "kind", "value"});
      parameter.value = member(value, "value", read_expression);
      break;
    case ParameterKind::pointer:
      value.check_keys({"name", "kind", "source", "offset_bytes"});
      parameter.source = member(value, "source", read_string);
      parameter.offset_bytes = member(value, "offset_bytes", read_expression);
      break;
    case ParameterKind::tensor_map:
    case ParameterKind::f32:
      value.check_keys({"name", "kind", "source"});
      parameter.source = member(value, "source", read_string);
      break;
  }
  parameter.name = member(value, "name", read_string);
  return parameter;
}

LaunchStep read_step(const JsonValue& value) {
  value.check_keys(
      {"entry", "grid", "block", "cluster", "dynamic_smem_bytes", "programmatic_stream_serialization", "parameters"},
      {"cubin"});
  LaunchStep step;
  step.entry = member(value, "entry", read_string);
  if (value.has("cubin")) {
    const JsonValue cubin = value.at("cubin");
    step.is_merge = cubin.as_string() == kMergeCubin;
    if (!step.is_merge) cubin.fail(fmt::format("\"{}\" is not known: \"{}\" is", cubin.as_string(), kMergeCubin));
  }
  step.grid = member_triple(value, "grid", read_expression);
  step.block = member_triple(value, "block", read_u32);
  step.cluster = member_triple(value, "cluster", read_u32);
  step.dynamic_smem_bytes = member(value, "dynamic_smem_bytes", read_i64);
  step.programmatic_stream_serialization = member(value, "programmatic_stream_serialization", read_bool);
  step.parameters = member_list(value, "parameters", kMaxParameters, read_parameter);
  return step;
}

void check_version(const JsonValue& launch, std::string_view key, int known) {
  const JsonValue version = launch.at(key);
  const std::int64_t found = version.as_integer(1, INT32_MAX);
  if (found > known)
    version.fail(fmt::format("{}: this program reads up to {}; it is older than the plan", found, known));
}

}  // namespace

int plan_version(const LaunchPlan& plan) noexcept {
  for (const LaunchStep& step : plan.steps)
    if (step.is_merge) return 2;
  return 1;
}

OrderedJson to_json(const LaunchPlan& plan) {
  return {{"version", plan_version(plan)},
          {"expression_version", kExpressionVersion},
          {"op", plan.op},
          {"arch", plan.arch},
          {"sizes", list_json(plan.sizes, size_json)},
          {"scalars", list_json(plan.scalars, scalar_json)},
          {"buffers", list_json(plan.buffers, buffer_json)},
          {"domain", list_json(plan.domain, rule_json)},
          {"tensor_maps", list_json(plan.tensor_maps, recipe_json)},
          {"workspace",
           {{"bytes", expression_json(plan.workspace.bytes)},
            {"alignment", plan.workspace.alignment},
            {"zeroed", plan.workspace.zeroed}}},
          {"steps", list_json(plan.steps, step_json)}};
}

LaunchPlan launch_plan_from_json(const OrderedJson& json) {
  const JsonValue launch(json, "launch");
  // Versions come first: in a newer plan, unknown keys are the consequence and not the cause.
  check_version(launch, "version", kPlanVersion);
  check_version(launch, "expression_version", kExpressionVersion);
  launch.check_keys({"version", "expression_version", "op", "arch", "sizes", "scalars", "buffers", "domain",
                     "tensor_maps", "workspace", "steps"});
  LaunchPlan plan;
  plan.op = member(launch, "op", read_string);
  plan.arch = member(launch, "arch", read_string);
  plan.sizes = member_list(launch, "sizes", kMaxSizes, read_size);
  plan.scalars = member_list(launch, "scalars", kMaxScalars, read_scalar);
  plan.buffers = member_list(launch, "buffers", kMaxBuffers, read_buffer);
  plan.domain = member_list(launch, "domain", kMaxDomainRules, read_rule);
  plan.tensor_maps = member_list(launch, "tensor_maps", kMaxTensorMaps, read_recipe);
  plan.workspace = member(launch, "workspace", read_workspace);
  plan.steps = member_list(launch, "steps", kMaxSteps, read_step);
  check_launch_plan(plan);
  return plan;
}

std::string json_text(const OrderedJson& json) { return json.dump(2) + "\n"; }

}  // namespace tessera

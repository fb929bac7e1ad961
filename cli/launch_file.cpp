#include "cli/launch_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/element_type.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

using Kind = FileParameter::Kind;

constexpr std::size_t kMaxStructBytes = 4096;  // PTX's limit for all parameters of a kernel before sm_70's 32764

struct KindWord {
  std::string_view word;
  Kind kind;
  std::size_t bytes;
};
constexpr KindWord kParameterKinds[] = {{"tensor_map", Kind::tensor_map, 128},
                                        {"pointer", Kind::pointer, 8},
                                        {"i8", Kind::integer, 1},
                                        {"i16", Kind::integer, 2},
                                        {"i32", Kind::integer, 4},
                                        {"i64", Kind::integer, 8},
                                        {"f16", Kind::floating, 2},
                                        {"bf16", Kind::floating, 2},
                                        {"f32", Kind::floating, 4},
                                        {"f64", Kind::floating, 8},
                                        {"bytes", Kind::bytes, 0},
                                        {"struct", Kind::structure, 0}};

Expression read_expression(const JsonValue& value) {
  if (value.json().is_number_integer()) return Expression(value.as_integer(INT64_MIN, INT64_MAX));
  if (!value.json().is_string()) value.fail("must be an integer or an expression in a string");
  try {
    return Expression::parse(value.as_string());
  } catch (const Error& error) {
    value.fail(error.what());
  }
}

std::vector<std::byte> read_hex(const JsonValue& value) {
  std::vector<std::byte> bytes;
  int digits = 0;
  unsigned byte = 0;
  for (const char c : value.as_string()) {
    if (c == ' ' || c == '_') continue;
    const auto digit =
        std::string_view("0123456789abcdef").find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    if (digit == std::string_view::npos) value.fail("must hold hexadecimal digits, two a byte");
    byte = byte * 16 + static_cast<unsigned>(digit);
    if (++digits % 2 != 0) continue;
    bytes.push_back(static_cast<std::byte>(byte));
    byte = 0;
  }
  if (digits % 2 != 0 || bytes.empty() || bytes.size() > kMaxStructBytes)
    value.fail(
        fmt::format("has {} hexadecimal digits: must have two a byte, for 1 to {} bytes", digits, kMaxStructBytes));
  return bytes;
}

FileParameter read_parameter(const JsonValue& value, const LaunchPlan& plan, bool is_field);

void read_structure(const JsonValue& value, const LaunchPlan& plan, bool is_field, FileParameter& parameter) {
  if (is_field) value.fail("a struct inside a struct: give its fields their offsets in the outer one");
  value.check_keys({"kind", "bytes", "fields"}, {"name"});
  const JsonValue bytes = value.at("bytes");
  parameter.bytes = static_cast<std::size_t>(bytes.as_integer(1, kMaxStructBytes));
  const JsonValue fields = value.at("fields");
  const std::size_t count = fields.array_size(256);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonValue field = fields.element(i);
    FileParameter read = read_parameter(field, plan, true);
    if (read.bytes > parameter.bytes || read.offset > parameter.bytes - read.bytes)
      field.fail(fmt::format("bytes {}..{} lie outside the struct's {}", read.offset, read.offset + read.bytes,
                             parameter.bytes));
    parameter.fields.push_back(std::move(read));
  }
}

template <class List>
void require_name(const JsonValue& value, const List& list, const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    value.fail(fmt::format("\"{}\" is no {}; there are {}", name, what,
                           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

void read_source(const JsonValue& value, const LaunchPlan& plan, FileParameter& parameter) {
  const JsonValue source = value.at("source");
  parameter.source = source.as_string();
  if (parameter.kind == Kind::tensor_map) require_name(source, plan.tensor_maps, parameter.source, "tensor map");
  if (parameter.kind == Kind::pointer && parameter.source != "workspace")
    require_name(source, plan.buffers, parameter.source, "buffer, and not \"workspace\"");
  if (parameter.kind == Kind::floating) require_name(source, plan.scalars, parameter.source, "scalar");
}

void check_names_of(const JsonValue& value, const Expression& expression, const LaunchPlan& plan) {
  for (const std::string& name : expression.names()) require_name(value, plan.sizes, name, "size");
}

/// Everything but a structure.
void read_simple(const JsonValue& value, const LaunchPlan& plan, FileParameter& parameter) {
  switch (parameter.kind) {
    case Kind::tensor_map:
      value.check_keys({"kind", "source"}, {"name", "offset"});
      return read_source(value, plan, parameter);
    case Kind::pointer: {
      value.check_keys({"kind", "source"}, {"name", "offset", "offset_bytes"});
      if (value.has("offset_bytes")) {
        const JsonValue offset = value.at("offset_bytes");
        parameter.offset_bytes = read_expression(offset);
        check_names_of(offset, parameter.offset_bytes, plan);
      }
      return read_source(value, plan, parameter);
    }
    case Kind::integer: {
      value.check_keys({"kind", "value"}, {"name", "offset"});
      const JsonValue number = value.at("value");
      parameter.value = read_expression(number);
      return check_names_of(number, parameter.value, plan);
    }
    case Kind::floating: {
      value.check_keys({"kind"}, {"name", "offset", "value", "source"});
      if (value.has("source")) return read_source(value, plan, parameter);
      const JsonValue number = value.at("value");
      parameter.number = number.as_number();
      return;
    }
    case Kind::bytes: {
      value.check_keys({"kind", "hex"}, {"name", "offset"});
      const JsonValue hex = value.at("hex");
      parameter.raw = read_hex(hex);
      parameter.bytes = parameter.raw.size();
      return;
    }
    case Kind::structure:
      return;
  }
}

FileParameter read_parameter(const JsonValue& value, const LaunchPlan& plan, bool is_field) {
  FileParameter parameter;
  const JsonValue kind = value.at("kind");
  parameter.word = kind.as_string();
  const auto* const found = std::find_if(std::begin(kParameterKinds), std::end(kParameterKinds),
                                         [&](const KindWord& known) { return known.word == parameter.word; });
  if (found == std::end(kParameterKinds)) {
    std::vector<std::string_view> words;
    for (const KindWord& known : kParameterKinds) words.push_back(known.word);
    kind.fail(fmt::format("\"{}\" is not one of {}", parameter.word, fmt::join(words, ", ")));
  }
  parameter.kind = found->kind;
  parameter.bytes = found->bytes;
  if (value.has("name")) {
    const JsonValue name = value.at("name");
    parameter.name = name.as_string();
  }
  if (is_field) {
    const JsonValue offset = value.at("offset");
    parameter.offset = static_cast<std::size_t>(offset.as_integer(0, kMaxStructBytes));
  } else if (value.has("offset")) {
    value.fail("offset: is for the fields of a struct");
  }
  if (parameter.kind == Kind::structure) {
    read_structure(value, plan, is_field, parameter);
  } else {
    read_simple(value, plan, parameter);
  }
  return parameter;
}

// --- bindings

std::filesystem::path read_path(const JsonValue& value, const LaunchFileDefaults& defaults) {
  const std::string& text = value.as_string();
  if (text.empty() || text.find('\0') != std::string::npos) value.fail("must be a file's name");
  return defaults.folder / text;
}

double read_non_negative(const JsonValue& object, std::string_view key) {
  if (!object.has(key)) return 0;
  const JsonValue value = object.at(key);
  const double number = value.as_number();
  if (number < 0) value.fail("must be at least 0");
  return number;
}

BufferBinding read_random(const JsonValue& value) {
  value.check_keys({"random"}, {"seed", "scale"});
  BufferBinding binding;
  binding.kind = BufferBinding::Kind::random;
  const JsonValue word = value.at("random");
  binding.distribution = word.as_string();
  static constexpr std::string_view kWords[] = {"normal", "uniform", "integer", "bits"};
  if (std::find(std::begin(kWords), std::end(kWords), binding.distribution) == std::end(kWords))
    word.fail(fmt::format("\"{}\" is not one of normal, uniform, integer, bits", binding.distribution));
  binding.value = 1;
  if (value.has("scale")) {
    const JsonValue scale = value.at("scale");
    binding.value = scale.as_number();
  }
  if (value.has("seed")) {
    const JsonValue seed = value.at("seed");
    binding.seed = static_cast<std::uint64_t>(seed.as_integer(0, INT64_MAX));
    binding.has_seed = true;
  }
  return binding;
}

double read_fill(const JsonValue& value) {
  return value.json() == "nan" ? std::numeric_limits<double>::quiet_NaN() : value.as_number();
}

BufferBinding read_binding(const JsonValue& value, const LaunchPlan& plan, const LaunchFileDefaults& defaults) {
  BufferBinding binding;
  if (value.has("random")) return read_random(value);
  if (value.has("file")) {
    value.check_keys({"file"});
    binding.kind = BufferBinding::Kind::file;
    const JsonValue file = value.at("file");
    binding.file = read_path(file, defaults);
  } else if (value.has("fill")) {
    value.check_keys({"fill"});
    binding.kind = BufferBinding::Kind::fill;
    const JsonValue fill = value.at("fill");
    binding.value = read_fill(fill);
  } else if (value.has("tensor_maps")) {
    value.check_keys({"tensor_maps"});
    binding.kind = BufferBinding::Kind::tensor_maps;
    const JsonValue maps = value.at("tensor_maps");
    const std::size_t count = maps.array_size(kMaxTensorMaps);
    for (std::size_t i = 0; i < count; ++i) {
      const JsonValue name = maps.element(i);
      binding.maps.push_back(name.as_string());
      require_name(name, plan.tensor_maps, binding.maps.back(), "tensor map");
    }
  } else if (value.has("poison") || value.has("null")) {
    const char* const key = value.has("poison") ? "poison" : "null";
    value.check_keys({key});
    const JsonValue is_so = value.at(key);
    if (!is_so.as_boolean()) is_so.fail("must be true; leave the buffer out otherwise");
    binding.kind = value.has("poison") ? BufferBinding::Kind::poison : BufferBinding::Kind::null;
  } else {
    value.fail("must have one of file, random, fill, poison, null, tensor_maps");
  }
  return binding;
}

Expectation read_expectation(const JsonValue& value, const LaunchPlan& plan, const LaunchFileDefaults& defaults) {
  Expectation expectation;
  if (value.has("fill")) {
    value.check_keys({"fill"}, {"atol", "rtol"});
    const JsonValue fill = value.at("fill");
    expectation.value = read_fill(fill);
  } else if (value.has("buffer")) {
    value.check_keys({"buffer"}, {"atol", "rtol"});
    const JsonValue buffer = value.at("buffer");
    expectation.buffer = buffer.as_string();
    require_name(buffer, plan.buffers, expectation.buffer, "buffer");
  } else {
    value.check_keys({"file"}, {"atol", "rtol"});
    const JsonValue path = value.at("file");
    expectation.file = read_path(path, defaults);
  }
  expectation.atol = read_non_negative(value, "atol");
  expectation.rtol = read_non_negative(value, "rtol");
  return expectation;
}

/// Calls `read(name, value)` for each member of an object that may be missing.
template <class Read>
void for_members(const JsonValue& bindings, std::string_view key, Read read) {
  if (!bindings.has(key)) return;
  const JsonValue object = bindings.at(key);
  if (!object.json().is_object()) object.fail("must be an object: names and what they are bound to");
  for (const auto& [name, ignored] : object.json().items()) {
    const JsonValue value = object.at(name);
    read(name, value);
  }
}

void read_bindings(const JsonValue& bindings, const LaunchFileDefaults& defaults, LaunchFile& file) {
  bindings.check_keys({}, {"sizes", "scalars", "buffers", "expect", "save"});
  const LaunchPlan& plan = file.plan;
  for_members(bindings, "sizes", [&](const std::string& name, const JsonValue& value) {
    require_name(value, plan.sizes, name, "size");
    file.sizes[name] = value.as_integer(INT64_MIN + 1, INT64_MAX);
  });
  for_members(bindings, "scalars", [&](const std::string& name, const JsonValue& value) {
    require_name(value, plan.scalars, name, "scalar");
    file.scalars[name] = value.as_number();
  });
  for_members(bindings, "buffers", [&](const std::string& name, const JsonValue& value) {
    require_name(value, plan.buffers, name, "buffer");
    for (std::size_t i = 0; i < plan.buffers.size(); ++i)
      if (plan.buffers[i].name == name) file.buffers[i] = read_binding(value, plan, defaults);
  });
  for_members(bindings, "expect", [&](const std::string& name, const JsonValue& value) {
    require_name(value, plan.buffers, name, "buffer");
    file.expected[name] = read_expectation(value, plan, defaults);
  });
  for_members(bindings, "save", [&](const std::string& name, const JsonValue& value) {
    require_name(value, plan.buffers, name, "buffer");
    file.saved[name] = read_path(value, defaults);
  });
}

/// Before the plan's reader, which would miss the strides that follow from a type.
void check_types(const OrderedJson& launch) {
  if (!launch.contains("buffers") || !launch["buffers"].is_array()) return;
  for (std::size_t i = 0; i < launch["buffers"].size(); ++i) {
    const OrderedJson& buffer = launch["buffers"][i];
    if (!buffer.is_object() || !buffer.contains("dtype") || !buffer["dtype"].is_string()) continue;
    const std::string& type = buffer["dtype"].get_ref<const std::string&>();
    if (find_element_type(type) == nullptr)
      throw Error(ErrorKind::usage,
                  fmt::format("launch.buffers[{}].dtype: \"{}\" is not one of {}", i, type, element_type_names()));
  }
}

}  // namespace

LaunchFile read_launch_file(const OrderedJson& json, const LaunchFileDefaults& defaults) {
  const JsonValue root(json, "launch file");
  const JsonValue given = root.at("launch");
  if (!given.json().is_object()) given.fail("must be an object");
  OrderedJson launch = complete_launch(given.json(), defaults);
  OrderedJson parameters = OrderedJson::array();
  if (launch.contains("steps") && launch["steps"].is_array()) {
    for (OrderedJson& step : launch["steps"]) {
      if (!step.is_object()) continue;
      parameters.push_back(std::exchange(step["parameters"], OrderedJson::array()));
    }
  }
  LaunchFile file;
  check_types(launch);
  file.plan = launch_plan_from_json(launch);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string path = fmt::format("launch.steps[{}].parameters", i);
    const JsonValue list(parameters[i], path);
    const std::size_t count = list.array_size(kMaxParameters);
    file.parameters.emplace_back();
    for (std::size_t p = 0; p < count; ++p) {
      const JsonValue parameter = list.element(p);
      file.parameters.back().push_back(read_parameter(parameter, file.plan, false));
    }
  }
  file.buffers.resize(file.plan.buffers.size());
  if (!root.has("bindings")) return file;
  const JsonValue bindings = root.at("bindings");
  read_bindings(bindings, defaults, file);
  return file;
}

}  // namespace tessera::cli

// What a hand-written launch leaves out, filled in before the plan's strict reader sees it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/element_type.h"
#include "cli/launch_file.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

void set_default(OrderedJson& object, const char* key, OrderedJson value) {
  if (object.is_object() && !object.contains(key)) object[key] = std::move(value);
}

/// {"a": {...}} to [{"name": "a", ...}]; a plain value becomes the key `scalar_key` of its object.
void list_by_name(OrderedJson& launch, const char* key, const char* scalar_key) {
  if (!launch.contains(key)) launch[key] = OrderedJson::array();
  OrderedJson& list = launch[key];
  if (!list.is_object()) return;
  OrderedJson made = OrderedJson::array();
  for (auto& [name, value] : list.items()) {
    OrderedJson item{{"name", name}};
    if (value.is_object()) {
      item.update(value);
    } else if (scalar_key != nullptr) {
      item[scalar_key] = value;
    } else {
      item["value"] = value;  // which the reader refuses by name
    }
    made.push_back(std::move(item));
  }
  list = std::move(made);
}

std::string text_of(const OrderedJson& value) {
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  return value.is_string() ? value.get<std::string>() : "";
}

/// a * b as a number where both are numbers, else as an expression.
OrderedJson product(const OrderedJson& a, const OrderedJson& b) {
  std::int64_t value = 0;
  if (a.is_number_integer() && b.is_number_integer() &&
      !__builtin_mul_overflow(a.get<std::int64_t>(), b.get<std::int64_t>(), &value))
    return value;
  if (a == 1) return b;
  if (b == 1) return a;
  return "(" + text_of(a) + ") * (" + text_of(b) + ")";
}

OrderedJson dense_strides(const OrderedJson& shape) {
  OrderedJson strides = OrderedJson::array();
  OrderedJson stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides.insert(strides.begin(), stride);
    stride = product(shape[i], stride);
  }
  return strides;
}

void complete_buffers(OrderedJson& launch) {
  list_by_name(launch, "buffers", nullptr);
  if (!launch["buffers"].is_array()) return;
  for (OrderedJson& buffer : launch["buffers"]) {
    if (!buffer.is_object()) continue;
    set_default(buffer, "role", "input");
    if (buffer.contains("shape") && buffer["shape"].is_array() && buffer["shape"].size() <= kMaxBufferRank)
      set_default(buffer, "strides", dense_strides(buffer["shape"]));
    set_default(buffer, "alignment", 16);
    set_default(buffer, "is_optional", false);
  }
}

const OrderedJson* find_buffer(const OrderedJson& launch, const OrderedJson& map) {
  if (!map.contains("buffer") || !launch["buffers"].is_array()) return nullptr;
  for (const OrderedJson& buffer : launch["buffers"])
    if (buffer.is_object() && buffer.contains("name") && buffer["name"] == map["buffer"]) return &buffer;
  return nullptr;
}

/// The map of a whole buffer: dimensions reversed, strides in bytes.
void complete_from_buffer(OrderedJson& map, const OrderedJson& buffer) {
  const auto is_list = [&](const char* key) { return buffer.contains(key) && buffer[key].is_array(); };
  if (!buffer.contains("dtype") || !buffer["dtype"].is_string() || !is_list("shape") || !is_list("strides")) return;
  set_default(map, "type", buffer["dtype"]);
  OrderedJson dims = OrderedJson::array(), strides = OrderedJson::array();
  for (std::size_t i = buffer["shape"].size(); i-- > 0;) dims.push_back(buffer["shape"][i]);
  set_default(map, "dims", std::move(dims));
  const ElementType* type = find_element_type(buffer["dtype"].get<std::string>());
  if (type == nullptr || type->bits < 8) return;
  for (std::size_t i = buffer["strides"].size(); i-- > 1;)
    strides.push_back(product(buffer["strides"][i - 1], type->bits / 8));
  set_default(map, "strides_bytes", std::move(strides));
}

void complete_tensor_maps(OrderedJson& launch) {
  list_by_name(launch, "tensor_maps", nullptr);
  if (!launch["tensor_maps"].is_array()) return;
  for (OrderedJson& map : launch["tensor_maps"]) {
    if (!map.is_object()) continue;
    if (const OrderedJson* buffer = find_buffer(launch, map)) complete_from_buffer(map, *buffer);
    if (map.contains("box") && map["box"].is_array()) {
      OrderedJson ones = OrderedJson::array();
      for (std::size_t i = 0; i < map["box"].size(); ++i) ones.push_back(1);
      set_default(map, "element_strides", std::move(ones));
    }
    for (const char* key : {"interleave", "swizzle", "l2_promotion"}) set_default(map, key, "none");
    set_default(map, "fill", "zero");
  }
}

/// 7 and [7] become [7, 1, 1].
void pad_to_three(OrderedJson& step, const char* key) {
  if (!step.contains(key)) step[key] = OrderedJson::array();
  OrderedJson& value = step[key];
  if (value.is_number_integer() || value.is_string()) value = OrderedJson::array({value});
  while (value.is_array() && value.size() < 3) value.push_back(1);
}

void complete_steps(OrderedJson& launch, const LaunchFileDefaults& defaults) {
  if (!launch.contains("steps") || !launch["steps"].is_array()) return;
  for (OrderedJson& step : launch["steps"]) {
    if (!step.is_object()) continue;
    if (!step.contains("entry") && defaults.entries.size() > 1)
      throw Error(ErrorKind::usage,
                  fmt::format("launch.steps[].entry: missing, and the file has {} kernels: {}; name one, "
                              "here or with --entry",
                              defaults.entries.size(), fmt::join(defaults.entries, ", ")));
    if (!defaults.entries.empty()) set_default(step, "entry", defaults.entries.front());
    for (const char* key : {"grid", "block", "cluster"}) pad_to_three(step, key);
    set_default(step, "dynamic_smem_bytes", 0);
    set_default(step, "programmatic_stream_serialization", false);
    set_default(step, "parameters", OrderedJson::array());
  }
}

}  // namespace

OrderedJson complete_launch(OrderedJson launch, const LaunchFileDefaults& defaults) {
  if (!launch.is_object()) return launch;
  set_default(launch, "version", 1);
  set_default(launch, "expression_version", kExpressionVersion);
  set_default(launch, "op", "kernel");
  set_default(launch, "arch", defaults.arch);
  list_by_name(launch, "sizes", "default");
  if (launch["sizes"].is_array()) {
    for (OrderedJson& size : launch["sizes"]) {
      set_default(size, "min", INT64_MIN);
      set_default(size, "max", INT64_MAX);
      set_default(size, "help", "");
    }
  }
  list_by_name(launch, "scalars", "default");
  if (launch["scalars"].is_array())
    for (OrderedJson& scalar : launch["scalars"]) set_default(scalar, "help", "");
  complete_buffers(launch);
  set_default(launch, "domain", OrderedJson::array());
  complete_tensor_maps(launch);
  set_default(launch, "workspace", OrderedJson::object());
  if (launch["workspace"].is_object()) {
    set_default(launch["workspace"], "bytes", 0);
    set_default(launch["workspace"], "alignment", 256);
    set_default(launch["workspace"], "zeroed", false);
  }
  complete_steps(launch, defaults);
  return launch;
}

}  // namespace tessera::cli

#include "base/launch_json.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "tessera/error.h"

namespace tessera {
namespace {

constexpr const char* kPlanText = R"json({
  "version": 1,
  "expression_version": 1,
  "op": "scale",
  "arch": "sm_90a",
  "sizes": [
    {
      "name": "rows",
      "min": 0,
      "max": 1048576,
      "help": "rows of x"
    },
    {
      "name": "x_stride",
      "min": 0,
      "max": 1099511627776,
      "default": "2 * rows",
      "help": ""
    }
  ],
  "scalars": [
    {
      "name": "factor",
      "default": 0.5,
      "help": "multiplied to each element"
    }
  ],
  "buffers": [
    {
      "name": "x",
      "role": "in_out",
      "dtype": "f32",
      "shape": [
        "rows",
        64
      ],
      "strides": [
        "x_stride",
        1
      ],
      "alignment": 16,
      "is_optional": false
    }
  ],
  "domain": [
    {
      "lhs": "rows",
      "relation": "multiple_of",
      "rhs": 8,
      "message": "rows must be a multiple of 8"
    }
  ],
  "tensor_maps": [
    {
      "name": "map_x",
      "buffer": "x",
      "type": "f32",
      "dims": [
        64,
        "rows"
      ],
      "strides_bytes": [
        "x_stride * 4"
      ],
      "box": [
        32,
        64
      ],
      "element_strides": [
        1,
        1
      ],
      "interleave": "none",
      "swizzle": "128B",
      "l2_promotion": "none",
      "fill": "zero"
    }
  ],
  "workspace": {
    "bytes": "rows * 4",
    "alignment": 256,
    "zeroed": true
  },
  "steps": [
    {
      "entry": "tessera_scale",
      "grid": [
        "ceil_div(rows, 64)",
        1,
        1
      ],
      "block": [
        128,
        1,
        1
      ],
      "cluster": [
        2,
        1,
        1
      ],
      "dynamic_smem_bytes": 8192,
      "programmatic_stream_serialization": true,
      "parameters": [
        {
          "name": "map_x",
          "kind": "tensor_map",
          "source": "map_x"
        },
        {
          "name": "partial",
          "kind": "pointer",
          "source": "workspace",
          "offset_bytes": 0
        },
        {
          "name": "rows",
          "kind": "i32",
          "value": "rows"
        },
        {
          "name": "factor",
          "kind": "f32",
          "source": "factor"
        }
      ]
    }
  ]
}
)json";

OrderedJson plan_json() { return parse_json(kPlanText, "plan"); }

std::string failure(const OrderedJson& json) {
  try {
    launch_plan_from_json(json);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

/// The message after one value of the plan was replaced.
std::string failure_with(const std::string& pointer, const OrderedJson& value) {
  OrderedJson json = plan_json();
  json[OrderedJson::json_pointer(pointer)] = value;
  return failure(json);
}

std::string failure_without(const std::string& parent, const std::string& key) {
  OrderedJson json = plan_json();
  json[OrderedJson::json_pointer(parent)].erase(key);
  return failure(json);
}

}  // namespace

TEST_CASE("a plan survives the way through text byte for byte") {
  const LaunchPlan plan = launch_plan_from_json(plan_json());
  CHECK(json_text(to_json(plan)) == kPlanText);
}

TEST_CASE("reading fills every field") {
  const LaunchPlan plan = launch_plan_from_json(plan_json());
  CHECK(plan.op == "scale");
  CHECK(plan.arch == "sm_90a");
  REQUIRE(plan.sizes.size() == 2);
  CHECK_FALSE(plan.sizes[0].default_value.has_value());
  CHECK(plan.sizes[1].default_value == Expression::parse("2 * rows"));
  CHECK(plan.sizes[1].max == std::int64_t{1} << 40);
  CHECK(plan.scalars[0].default_value == 0.5);
  CHECK(plan.buffers[0].role == BufferRole::in_out);
  CHECK(plan.buffers[0].shape[1] == Expression(64));
  CHECK(plan.domain[0].relation == Relation::multiple_of);
  CHECK(plan.tensor_maps[0].swizzle == TensorMapSwizzle::b128);
  CHECK(plan.tensor_maps[0].box == std::vector<std::uint32_t>{32, 64});
  CHECK(plan.workspace.zeroed);
  const LaunchStep& step = plan.steps[0];
  CHECK(step.cluster[0] == 2);
  CHECK(step.programmatic_stream_serialization);
  CHECK(step.parameters[1].source == "workspace");
  CHECK(step.parameters[2].value == Expression::parse("rows"));
  CHECK(step.parameters[3].kind == ParameterKind::f32);
}

TEST_CASE("a step's code may be the merge's, which older programs are told by the version") {
  LaunchPlan plan = launch_plan_from_json(plan_json());
  CHECK(to_json(plan)["version"] == 1);
  CHECK_FALSE(to_json(plan)["steps"][0].contains("cubin"));
  LaunchStep merge = plan.steps[0];
  merge.entry = "tessera_merge";
  merge.is_merge = true;
  plan.steps.push_back(merge);
  const OrderedJson json = to_json(plan);
  CHECK(json["version"] == 2);
  CHECK(json["steps"][1]["cubin"] == "merge.cubin");
  CHECK_FALSE(json["steps"][0].contains("cubin"));
  const LaunchPlan back = launch_plan_from_json(json);
  CHECK(back.steps[1].is_merge);
  CHECK_FALSE(back.steps[0].is_merge);
  CHECK(failure_with("/steps/0/cubin", "other.cubin") ==
        "launch.steps[0].cubin: \"other.cubin\" is not known: \"merge.cubin\" is");
}

TEST_CASE("a default survives as the number that it is") {
  LaunchPlan plan = launch_plan_from_json(plan_json());
  for (const double value : {0.1, 1.0, 0.08838834764831845, 1e-300, -2.5}) {
    plan.scalars[0].default_value = value;
    const auto text = json_text(to_json(plan));
    CHECK(launch_plan_from_json(parse_json(text, "plan")).scalars[0].default_value == value);
  }
}

TEST_CASE("wrong types name the place") {
  CHECK(failure_with("/steps/0/grid/1", 1.5) ==
        "launch.steps[0].grid[1]: must be an integer or an expression in a string");
  CHECK(failure_with("/steps/0/block/0", "128") == "launch.steps[0].block[0]: must be an integer, found a string");
  CHECK(failure_with("/steps", OrderedJson::object()) == "launch.steps: must be an array, found an object");
  CHECK(failure_with("/sizes/0", 5) == "launch.sizes[0]: must be an object, found an integer");
  CHECK(failure_with("/workspace/zeroed", 1) == "launch.workspace.zeroed: must be true or false, found an integer");
  CHECK(failure_with("/scalars/0/default", "x") == "launch.scalars[0].default: must be a number, found a string");
  CHECK(failure_with("/op", nullptr) == "launch.op: must be a string, found null");
  CHECK(failure(OrderedJson::array()) == "launch: must be an object, found an array");
}

TEST_CASE("unknown and missing keys name the place") {
  CHECK(failure_with("/sizes/0/maximum", 5) ==
        "launch.sizes[0].maximum: unknown key; known are name, min, max, help, default");
  CHECK(failure_without("/sizes/0", "min") == "launch.sizes[0].min: missing");
  CHECK(failure_without("", "version") == "launch.version: missing");
  CHECK(failure_without("/steps/0/parameters/1", "offset_bytes") ==
        "launch.steps[0].parameters[1].offset_bytes: missing");
  CHECK(failure_with("/steps/0/parameters/3/value", 1) ==
        "launch.steps[0].parameters[3].value: unknown key; known are name, kind, source");
}

TEST_CASE("a newer plan is refused before anything else is read") {
  CHECK(failure_with("/version", 3) == "launch.version: 3: this program reads up to 2; it is older than the plan");
  CHECK(failure_with("/expression_version", 7) ==
        "launch.expression_version: 7: this program reads up to 1; it is older than the plan");
  CHECK(failure_with("/version", 0) == "launch.version: 0: must lie in 1..2147483647");
}

TEST_CASE("names must be declared") {
  CHECK(failure_with("/steps/0/grid/0", "ceil_div(cols, 64)") ==
        "launch.steps[0].grid[0]: 'ceil_div(cols, 64)' uses 'cols', which is not a size");
  CHECK(failure_with("/sizes/0/default", "x_stride") ==
        "launch.sizes[0].default: 'x_stride' uses 'x_stride', which is declared later: a default follows from earlier "
        "sizes");
  CHECK(failure_with("/tensor_maps/0/buffer", "y") == "launch.tensor_maps[0].buffer: \"y\" is not a buffer");
  CHECK(failure_with("/steps/0/parameters/0/source", "m") ==
        "launch.steps[0].parameters[0].source: \"m\" is not a tensor map");
  CHECK(failure_with("/steps/0/parameters/1/source", "m") ==
        "launch.steps[0].parameters[1].source: \"m\" is not a buffer, and not \"workspace\"");
  CHECK(failure_with("/steps/0/parameters/3/source", "m") ==
        "launch.steps[0].parameters[3].source: \"m\" is not a scalar");
  CHECK(failure_with("/sizes/1/name", "rows") == "launch.sizes[1].name: \"rows\" is declared twice");
  CHECK(failure_with("/sizes/1/name", "min") ==
        "launch.sizes[1].name: \"min\" must be a name: [a-z_][a-z0-9_]*, at most 256 characters, not ceil_div, min or "
        "max");
  CHECK(failure_with("/buffers/0/name", "workspace") == "launch.buffers[0].name: \"workspace\" is reserved");
}

TEST_CASE("values out of range name the bound") {
  CHECK(failure_with("/sizes/0/max", -1) == "launch.sizes[0].max: -1: must not be below min = 0");
  CHECK(failure_with("/sizes/0/max", 18446744073709551615u) ==
        "launch.sizes[0].max: 18446744073709551615: must lie in -9223372036854775808..9223372036854775807");
  CHECK(failure_with("/steps/0/block/1", 16) == "launch.steps[0].block: has 2048 threads: at most 1024 are allowed");
  CHECK(failure_with("/steps/0/block/1", 0) == "launch.steps[0].block[1]: 0: must lie in 1..1024");
  CHECK(failure_with("/steps/0/cluster/0", 32) == "launch.steps[0].cluster[0]: 32: must lie in 1..16");
  CHECK(failure_with("/steps/0/dynamic_smem_bytes", -1) ==
        "launch.steps[0].dynamic_smem_bytes: -1: must lie in 0..1048576");
  CHECK(failure_with("/steps/0/grid", OrderedJson::array({1, 1})) == "launch.steps[0].grid: must have three elements");
  CHECK(failure_with("/tensor_maps/0/box", OrderedJson::array({32})) ==
        "launch.tensor_maps[0].box: has 1 elements: rank 2 needs 2");
  CHECK(failure_with("/tensor_maps/0/box/0", -1) == "launch.tensor_maps[0].box[0]: -1: must lie in 0..4294967295");
  CHECK(failure_with("/tensor_maps/0/swizzle", "96B") == "launch.tensor_maps[0].swizzle: \"96B\" is not known");
  CHECK(failure_with("/buffers/0/alignment", 24) ==
        "launch.buffers[0].alignment: 24: must be a power of two in 1..65536");
  CHECK(failure_with("/domain/0/relation", "odd") ==
        "launch.domain[0].relation: \"odd\" is not one of at_least, at_most, equal, multiple_of");
  CHECK(failure_with("/steps", OrderedJson::array()) == "launch.steps: must not be empty");
}

TEST_CASE("hostile lengths are refused before they are read") {
  const OrderedJson many = OrderedJson::array_t(100'000, 1);
  CHECK(failure_with("/sizes", many) == "launch.sizes: has 100000 elements: at most 64 are allowed");
  CHECK(failure_with("/steps/0/parameters", many) ==
        "launch.steps[0].parameters: has 100000 elements: at most 64 are allowed");
  CHECK(failure_with("/tensor_maps/0/dims", many) ==
        "launch.tensor_maps[0].dims: has 100000 elements: at most 5 are allowed");
  CHECK(failure_with("/sizes/0/help", std::string(5000, 'x')) ==
        "launch.sizes[0].help: has 5000 bytes: at most 4096 are allowed");
}

TEST_CASE("a text that is not JSON names line and column") {
  const auto failure_of = [](std::string_view text) -> std::string {
    try {
      parse_json(text, "plan.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(failure_of("{\"a\": 1,\n \"a\" 2}").substr(0, 28) == "plan.json: line 2, column 6:");
  std::string many = "{";
  for (int i = 0; i <= 10000; ++i) many += fmt::format("{}\"k{}\": 0", i == 0 ? "" : ", ", i);
  CHECK(failure_of(many + "}") == "plan.json: an object with more than 10000 keys");
  CHECK(failure_of("{\"a\": {\"b\": 1, \"b\": 2}}") == "plan.json: the key \"b\" stands twice in one object");
  CHECK(failure_of("{\"a\": {\"b\": 1}, \"b\": 2}") == "accepted");
  CHECK(failure_of(std::string(1'000'000, '[')).substr(0, 10) == "plan.json:");
}

}  // namespace tessera

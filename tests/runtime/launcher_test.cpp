#include "tessera/launcher.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tessera/error.h"
#include "tests/support/fake_device.h"

namespace tessera {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Expression e(std::string_view text) { return Expression::parse(text); }

/// x [rows, 64] f32 copied through a map in two steps: the first with everything, the second over `extra` blocks.
LaunchPlan sample_plan() {
  LaunchPlan plan;
  plan.op = "scale";
  plan.arch = "sm_90a";
  plan.sizes = {{"rows", 0, 1 << 20, {}, ""},
                {"x_stride", 0, std::int64_t{1} << 40, e("64"), ""},
                {"big", INT64_MIN + 1, INT64_MAX, e("7"), ""},
                {"extra", -5, 1 << 30, e("0"), ""},
                {"num_sms", 1, 1 << 20, {}, ""}};
  plan.scalars = {{"factor", 0.5, ""}, {"bias", {}, ""}};
  plan.buffers = {{"x", BufferRole::input, "f32", {e("rows"), e("64")}, {e("x_stride"), e("1")}, 16, false},
                  {"stats", BufferRole::output, "f32", {e("rows")}, {e("1")}, 4, true}};
  plan.domain = {{e("rows"), Relation::multiple_of, e("8"), "rows of a tile"},
                 {e("x_stride"), Relation::at_least, e("64"), "rows must not overlap"}};
  plan.tensor_maps = {{"map_x",
                       "x",
                       TensorMapType::f32,
                       {e("64"), e("rows")},
                       {e("x_stride * 4")},
                       {32, 64},
                       {1, 1},
                       TensorMapInterleave::none,
                       TensorMapSwizzle::b128,
                       TensorMapL2Promotion::none,
                       TensorMapFill::zero}};
  plan.workspace = {e("rows * 4"), 256, true};
  LaunchStep first;
  first.entry = "first";
  first.grid = {e("ceil_div(rows, 64) * 2"), e("1"), e("1")};
  first.block = {128, 1, 1};
  first.cluster = {2, 1, 1};
  first.dynamic_smem_bytes = 8192;
  first.parameters = {{"map", ParameterKind::tensor_map, {}, "map_x", {}},
                      {"partial", ParameterKind::pointer, {}, "workspace", e("rows")},
                      {"stats", ParameterKind::pointer, {}, "stats", e("16")},
                      {"big", ParameterKind::i32, e("big"), "", {}},
                      {"sms", ParameterKind::i64, e("num_sms"), "", {}},
                      {"factor", ParameterKind::f32, {}, "factor", {}},
                      {"bias", ParameterKind::f32, {}, "bias", {}}};
  LaunchStep second;
  second.entry = "second";
  second.grid = {e("1"), e("extra"), e("1")};
  second.programmatic_stream_serialization = true;
  plan.steps = {first, second};
  return plan;
}

struct Fixture {
  FakeDevice device;
  std::vector<std::int64_t> sizes{64, kUseDefault, kUseDefault, kUseDefault, kUseDefault};
  std::vector<double> scalars{kNaN, 1.5};
  std::vector<DevicePointer> buffers{0x1000, 0x2000};
  DevicePointer workspace = 0x3000;
  std::int64_t workspace_bytes = 4096;

  Fixture() { device.entries = {{"first", {128, 8, 8, 4, 8, 4, 4}}, {"second", {}}}; }

  LaunchArguments arguments() const { return {sizes, scalars, buffers, workspace, workspace_bytes}; }

  std::string refusal(ErrorKind kind = ErrorKind::usage) {
    const Launcher launcher(device, sample_plan(), {});
    device.calls.clear();
    try {
      launcher.launch({}, arguments());
    } catch (const Error& error) {
      CHECK(error.kind() == kind);
      for (const std::string& call : device.calls) CHECK(call.substr(0, 6) != "launch");
      return error.what();
    }
    return "launched";
  }
};

std::string construction_failure(FakeDevice& device, const LaunchPlan& plan, ErrorKind kind) {
  try {
    const Launcher launcher(device, plan, {});
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "made";
}

template <class T>
T value_of(const FakeDevice::Launch& launch, std::size_t index) {
  T value{};
  REQUIRE(launch.parameters.at(index).size() == sizeof value);
  std::memcpy(&value, launch.parameters[index].data(), sizeof value);
  return value;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a launch zeroes the workspace, then runs its steps in order, on the caller's stream") {
  const Launcher launcher(device, sample_plan(), {});
  CHECK(device.calls == std::vector<std::string>{"load", "max_dynamic_smem 1 8192"});
  device.calls.clear();
  sizes[3] = 3;
  launcher.launch(Stream::from_handle(42), arguments());
  CHECK(device.calls == std::vector<std::string>{"encode 0x1000", "set_bytes 0x3000 0 256 stream 42",
                                                 "launch first grid 2x1x1 stream 42",
                                                 "launch second grid 1x3x1 stream 42"});
  REQUIRE(device.launches.size() == 2);
  CHECK(device.launches[0].request.block == std::array<std::uint32_t, 3>{128, 1, 1});
  CHECK(device.launches[0].request.cluster == std::array<std::uint32_t, 3>{2, 1, 1});
  CHECK(device.launches[0].request.dynamic_smem_bytes == 8192);
  CHECK_FALSE(device.launches[0].request.programmatic_stream_serialization);
  CHECK(device.launches[1].request.programmatic_stream_serialization);
}

TEST_CASE_FIXTURE(Fixture, "parameters arrive as the kernel declares them") {
  const Launcher launcher(device, sample_plan(), {});
  launcher.launch({}, arguments());
  const FakeDevice::Launch& launch = device.launches.at(0);
  CHECK(launch.parameters[0] == std::vector<std::byte>(128, std::byte{0xa0}));
  CHECK(value_of<std::uint64_t>(launch, 1) == 0x3000 + 64);
  CHECK(value_of<std::uint64_t>(launch, 2) == 0x2010);
  CHECK(value_of<std::int32_t>(launch, 3) == 7);
  CHECK(value_of<std::int64_t>(launch, 4) == 132);
  CHECK(value_of<float>(launch, 5) == 0.5f);
  CHECK(value_of<float>(launch, 6) == 1.5f);
}

TEST_CASE_FIXTURE(Fixture, "tensor maps follow the sizes") {
  sizes[0] = 128;
  sizes[1] = 96;
  const Launcher launcher(device, sample_plan(), {});
  launcher.launch({}, arguments());
  const ResolvedTensorMap& map = device.encoded.at(0);
  CHECK(map.address == 0x1000);
  CHECK(map.rank == 2);
  CHECK(map.dims[1] == 128);
  CHECK(map.strides_bytes[0] == 384);
  CHECK(map.swizzle == TensorMapSwizzle::b128);
  const auto resolved = launcher.resolve_tensor_maps({sizes, {}, {}});
  REQUIRE(resolved.size() == 1);
  CHECK(resolved[0].first == "map_x");
  CHECK(resolved[0].second.address == 0);
  CHECK(resolved[0].second.dims[1] == 128);
}

TEST_CASE_FIXTURE(Fixture, "a launch of the last one's sizes encodes only the maps whose buffers moved") {
  const Launcher launcher(device, sample_plan(), {});
  launcher.launch({}, arguments());
  const auto encodes = [&] { return device.encoded.size(); };
  CHECK(encodes() == 1);
  scalars[0] = 3;
  workspace = 0x5000;
  buffers[1] = 0x7000;
  launcher.launch({}, arguments());
  CHECK(encodes() == 1);
  CHECK(device.launches.at(1).parameters[0] == device.launches.at(0).parameters[0]);
  CHECK(device.launches[1].request.grid == device.launches[0].request.grid);
  CHECK(value_of<std::uint64_t>(device.launches[1], 1) == 0x5000 + 64);
  CHECK(value_of<std::uint64_t>(device.launches[1], 2) == 0x7010);
  CHECK(value_of<float>(device.launches[1], 5) == 3.0f);
  buffers[0] = 0x9000;
  launcher.launch({}, arguments());
  REQUIRE(encodes() == 2);
  CHECK(device.encoded[1].address == 0x9000);
  sizes[0] = 128;
  launcher.launch({}, arguments());
  REQUIRE(encodes() == 3);
  CHECK(device.encoded[2].dims[1] == 128);
  CHECK(device.launches.at(3).request.grid[0] == 4);
  launcher.launch({}, arguments());
  CHECK(encodes() == 3);
  CHECK(value_of<std::uint64_t>(device.launches.at(4), 1) == 0x5000 + 128);
}

TEST_CASE_FIXTURE(Fixture, "what does not follow from the sizes is checked again, and a refused launch is not kept") {
  const Launcher launcher(device, sample_plan(), {});
  launcher.launch({}, arguments());
  const auto refused = [&] {
    try {
      launcher.launch({}, arguments());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("launched");
  };
  const Fixture good;
  buffers[0] = 0x1008;
  CHECK(refused() != "launched");
  buffers[0] = 0;
  CHECK(refused() != "launched");
  buffers = {0x1000};
  CHECK(refused() != "launched");
  buffers = good.buffers;
  scalars[1] = kNaN;
  CHECK(refused() != "launched");
  scalars = good.scalars;
  workspace_bytes = 255;
  CHECK(refused() != "launched");
  workspace_bytes = good.workspace_bytes;
  sizes[0] = 63;
  CHECK(refused() != "launched");
  CHECK(refused() != "launched");
  sizes = {64};
  CHECK(refused() != "launched");
  sizes = good.sizes;
  CHECK(device.launches.size() == 1);
  CHECK(refused() == "launched");
  CHECK(device.encoded.size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "an empty grid skips its step, its maps and its buffers") {
  const Launcher launcher(device, sample_plan(), {});
  device.calls.clear();
  sizes[0] = 0;
  sizes[3] = 1;
  buffers[0] = 0;
  workspace = 0;
  launcher.launch({}, arguments());
  CHECK(device.calls == std::vector<std::string>{"launch second grid 1x1x1 stream 0"});
}

TEST_CASE_FIXTURE(Fixture, "what the caller gives wins over defaults; an optional buffer may be null") {
  sizes[4] = 20;
  scalars[0] = 2;
  buffers[1] = 0;
  const Launcher launcher(device, sample_plan(), {});
  launcher.launch({}, arguments());
  CHECK(value_of<std::int64_t>(device.launches.at(0), 4) == 20);
  CHECK(value_of<float>(device.launches[0], 5) == 2.0f);
  CHECK(value_of<std::uint64_t>(device.launches[0], 2) == 0);
}

TEST_CASE_FIXTURE(Fixture, "indices and workspace by name") {
  const Launcher launcher(device, sample_plan(), {});
  CHECK(launcher.size_index("extra") == 3);
  CHECK(launcher.scalar_index("bias") == 1);
  CHECK(launcher.buffer_index("stats") == 1);
  CHECK(launcher.workspace_bytes(arguments()) == 256);
  CHECK(launcher.resolve_sizes(arguments()) == std::vector<std::int64_t>{64, 64, 7, 0, 132});
  CHECK_THROWS_WITH_AS(launcher.buffer_index("y"), "scale has no buffer 'y'; it has x, stats", Error);
}

TEST_CASE_FIXTURE(Fixture, "sizes outside their range or the domain are refused") {
  SUBCASE("range") {
    sizes[0] = -8;
    CHECK(refusal() == "scale: rows = -8: must lie in 0..1048576");
  }
  SUBCASE("missing") {
    sizes[0] = kUseDefault;
    CHECK(refusal() == "scale: size 'rows' must be given: it has no default");
  }
  SUBCASE("multiple") {
    sizes[0] = 63;
    CHECK(refusal() == "scale: rows = 63: must be a multiple of 8 (rows of a tile)");
  }
  SUBCASE("at least") {
    sizes[1] = 32;
    CHECK(refusal() == "scale: x_stride = 32: must be at least 64 (rows must not overlap)");
  }
  SUBCASE("count") {
    sizes.pop_back();
    CHECK(refusal() == "scale: 4 sizes given: the plan has 5");
  }
  SUBCASE("scalar") {
    scalars[1] = kNaN;
    CHECK(refusal() == "scale: scalar 'bias' must be given: it has no default");
  }
  SUBCASE("scalar that fp32 does not hold") {
    scalars[1] = -1e39;
    CHECK(refusal() == "scale: scalar 'bias' = -1e+39: is passed as fp32, which ends at 3.4e38");
  }
  SUBCASE("infinite scalar") {
    scalars[0] = std::numeric_limits<double>::infinity();
    CHECK(refusal() == "scale: scalar 'factor' = inf: is passed as fp32, which ends at 3.4e38");
  }
  SUBCASE("scalars") {
    scalars.clear();
    CHECK(refusal() == "scale: 0 scalars given: the plan has 2");
  }
}

TEST_CASE_FIXTURE(Fixture, "outputs that overlap themselves are refused, inputs may") {
  LaunchPlan plan = sample_plan();
  plan.domain.pop_back();
  plan.buffers.push_back({"y", BufferRole::output, "f32", {e("rows"), e("64")}, {e("x_stride"), e("1")}, 16, true});
  const auto launched = [&](std::int64_t rows, std::int64_t stride) {
    sizes[0] = rows;
    sizes[1] = stride;
    try {
      Launcher(device, plan, {}).launch({}, arguments());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("launched");
  };
  buffers.push_back(0);
  CHECK(launched(8, 64) == "launched");
  CHECK(launched(8, 32) ==
        "scale: y overlaps itself: x_stride = 32: elements [1, 0] and [0, 32] lie at one place; what is written must "
        "not overlap");
  CHECK(launched(8, 0) ==
        "scale: y overlaps itself: x_stride = 0: elements [1, 0] and [0, 0] lie at one place; what is written must not "
        "overlap");
  CHECK(launched(0, 0) == "launched");
  plan.buffers.back().role = BufferRole::input;
  CHECK(launched(8, 32) == "launched");
}

TEST_CASE_FIXTURE(Fixture, "missing and misaligned pointers are refused") {
  SUBCASE("null") {
    buffers[0] = 0;
    CHECK(refusal() == "scale: buffer 'x' is null: it must be given");
  }
  SUBCASE("misaligned") {
    buffers[0] = 0x1008;
    CHECK(refusal() == "scale: buffer 'x' at 0x1008: must be a multiple of 16; it is 8 past one");
  }
  SUBCASE("optional, misaligned") {
    buffers[1] = 0x2002;
    CHECK(refusal() == "scale: buffer 'stats' at 0x2002: must be a multiple of 4; it is 2 past one");
  }
  SUBCASE("count") {
    buffers.push_back(0x4000);
    CHECK(refusal() == "scale: 3 buffers given: the plan has 2");
  }
  SUBCASE("no workspace") {
    workspace = 0;
    CHECK(refusal() == "scale: workspace is null: these sizes need 256 bytes (Launcher::workspace_bytes)");
  }
  SUBCASE("small workspace") {
    workspace_bytes = 255;
    CHECK(refusal() == "scale: workspace has 255 bytes: these sizes need 256 (Launcher::workspace_bytes)");
  }
  SUBCASE("misaligned workspace") {
    workspace = 0x3010;
    CHECK(refusal() == "scale: buffer 'workspace' at 0x3010: must be a multiple of 256; it is 16 past one");
  }
}

TEST_CASE_FIXTURE(Fixture, "values that the driver could not take are refused") {
  SUBCASE("overflow of 32 bits") {
    sizes[2] = std::int64_t{1} << 31;
    CHECK(refusal() == "scale: parameter 'big' = 'big' is 2147483648: must fit 32 bits");
  }
  SUBCASE("negative grid") {
    sizes[3] = -1;
    CHECK(refusal() == "scale: kernel 'second': grid[1] = 'extra' is -1: must lie in 0..65535");
  }
  SUBCASE("grid") {
    sizes[3] = 65536;
    CHECK(refusal() == "scale: kernel 'second': grid[1] = 'extra' is 65536: must lie in 0..65535");
  }
  SUBCASE("tensor map") {
    sizes[1] = 66;
    const std::string message = refusal();
    CHECK(message.find("scale: tensor map 'map_x': rule 14 (stride): strides_bytes[0] = 264") == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "a grid that the cluster does not divide is refused") {
  LaunchPlan plan = sample_plan();
  plan.steps[0].grid[0] = e("ceil_div(rows, 64)");
  const Launcher launcher(device, plan, {});
  CHECK_THROWS_WITH_AS(launcher.launch({}, arguments()),
                       "scale: kernel 'first': grid[0] = 'ceil_div(rows, 64)' is 1: must be a multiple of the "
                       "cluster's 2",
                       Error);
  CHECK(device.launches.empty());
}

TEST_CASE_FIXTURE(Fixture, "plan and code must belong together") {
  device.entries["first"] = {128, 8, 8, 4, 8, 4};
  CHECK(construction_failure(device, sample_plan(), ErrorKind::device) ==
        "kernel 'first': the plan's parameters have 128, 8, 8, 4, 8, 4, 4 bytes, the code's have 128, 8, 8, 4, 8, 4: "
        "plan and code do not belong together");
  device.entries["first"] = {128, 8, 8, 8, 8, 4, 4};
  CHECK(construction_failure(device, sample_plan(), ErrorKind::device) ==
        "kernel 'first': the plan's parameters have 128, 8, 8, 4, 8, 4, 4 bytes, the code's have 128, 8, 8, 8, 8, 4, "
        "4: plan and code do not belong together");
  device.entries.erase("second");
  device.entries["first"] = {128, 8, 8, 4, 8, 4, 4};
  CHECK(construction_failure(device, sample_plan(), ErrorKind::device) == "no kernel 'second'");
  LaunchPlan plan = sample_plan();
  plan.steps[0].grid[0] = e("cols");
  CHECK(construction_failure(device, plan, ErrorKind::usage) ==
        "launch.steps[0].grid[0]: 'cols' uses 'cols', which is not a size");
}

TEST_CASE_FIXTURE(Fixture, "a device must be able to run the code") {
  LaunchPlan plan = sample_plan();
  plan.steps[0].dynamic_smem_bytes = 300000;
  CHECK(construction_failure(device, plan, ErrorKind::device) ==
        "kernel 'first' needs 300000 bytes of dynamic shared memory: Fake GPU allows 232448");
  const auto verdict = [&](const char* arch, int major, int minor) {
    plan = sample_plan();
    plan.arch = arch;
    device.info_.compute_major = major;
    device.info_.compute_minor = minor;
    return construction_failure(device, plan,
                                std::string_view(arch) == "gfx90a" ? ErrorKind::usage : ErrorKind::device);
  };
  CHECK(verdict("sm_90a", 9, 0) == "made");
  CHECK(verdict("sm_90", 9, 1) == "made");
  CHECK(verdict("sm_100f", 10, 3) == "made");
  CHECK(verdict("sm_120f", 12, 1) == "made");
  CHECK(verdict("sm_90a", 8, 0) == "scale: code for sm_90a runs on compute capability 9.0 only; Fake GPU has 8.0");
  CHECK(verdict("sm_100a", 10, 3) == "scale: code for sm_100a runs on compute capability 10.0 only; Fake GPU has 10.3");
  CHECK(verdict("sm_103f", 10, 0) ==
        "scale: code for sm_103f runs on compute capability 10.3 and later ones of 10.x; Fake GPU has 10.0");
  CHECK(verdict("gfx90a", 9, 0) == "launch.arch: \"gfx90a\" is not of the form sm_90, sm_90a or sm_100f");
}

TEST_CASE_FIXTURE(Fixture, "an entry of two steps is allowed the larger shared memory") {
  LaunchPlan plan = sample_plan();
  plan.steps.push_back(plan.steps[1]);
  plan.steps[1].dynamic_smem_bytes = 1000;
  plan.steps[2].dynamic_smem_bytes = 2000;
  const Launcher launcher(device, plan, {});
  CHECK(device.calls == std::vector<std::string>{"load", "max_dynamic_smem 1 8192", "max_dynamic_smem 2 2000",
                                                 "max_dynamic_smem 2 2000"});
}

}  // namespace tessera

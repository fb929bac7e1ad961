#include "runtime/launch_program.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/support/fake_device.h"

namespace tessera {
namespace {

/// x [rows, 64] f32 through a map; a block for each 64 rows, which gets their number.
LaunchPlan rows_plan() {
  const auto e = [](std::string_view text) { return Expression::parse(text); };
  LaunchPlan plan;
  plan.op = "rows";
  plan.arch = "sm_90a";
  plan.sizes = {{"rows", 0, 1 << 20, {}, ""}};
  plan.buffers = {{"x", BufferRole::input, "f32", {e("rows"), e("64")}, {e("64"), e("1")}, 16, false}};
  TensorMapRecipe map;
  map.name = "map_x";
  map.buffer = "x";
  map.type = TensorMapType::f32;
  map.dims = {e("64"), e("rows")};
  map.strides_bytes = {e("256")};
  map.box = {32, 64};
  map.element_strides = {1, 1};
  plan.tensor_maps = {map};
  plan.workspace.bytes = e("rows * 4");
  LaunchStep step;
  step.entry = "kernel";
  step.grid = {e("ceil_div(rows, 64)"), e("1"), e("1")};
  step.block = {128, 1, 1};
  step.parameters = {{"map", ParameterKind::tensor_map, {}, "map_x", {}},
                     {"rows", ParameterKind::i32, e("rows"), "", {}}};
  plan.steps = {step};
  return plan;
}

/// What a map says of its tensor, to be found again in its bytes.
struct Seen {
  std::uint64_t address, rows;
};

}  // namespace

TEST_CASE("threads that prepare other sizes through one program get each their own") {
  const LaunchPlan plan = rows_plan();
  DeviceInfo info;
  info.compute_major = 9;
  const LaunchProgram program(plan, info);
  std::atomic<int> wrong{0}, encodes{0};
  constexpr int kThreads = 4, kLaunches = 20'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      FakeDevice device;
      device.on_encode = [&](const ResolvedTensorMap& map, TensorMapObject& out) {
        const Seen seen{map.address, map.dims[1]};
        std::memcpy(out.bytes.data(), &seen, sizeof seen);
        ++encodes;
      };
      for (int i = 0; i < kLaunches; ++i) {
        // Sizes and addresses change every few launches, each with a rhythm of its own, and meet other threads'.
        const std::int64_t rows = 64 * (1 + (i / 16 + t) % 3);
        const DevicePointer x = 0x1000u * static_cast<DevicePointer>(1 + i / 8 % 2);
        LaunchFrame frame;
        program.prepare({{&rows, 1}, {}, {&x, 1}, 0x100000, 1 << 20}, device, frame);
        Seen seen{};
        std::memcpy(&seen, frame.maps[0].bytes.data(), sizeof seen);
        std::int32_t parameter = 0;
        std::memcpy(&parameter, frame.pointers[0][1], sizeof parameter);
        const bool is_right = seen.address == x && seen.rows == static_cast<std::uint64_t>(rows) &&
                              frame.grids[0][0] * 64 == static_cast<std::uint64_t>(rows) && parameter == rows &&
                              frame.workspace_bytes == rows * 4 && frame.encoded == 1 && !frame.is_skipped[0];
        if (!is_right) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(encodes < kThreads * kLaunches);  // some were remembered
}

TEST_CASE("the short check of address, dims and strides says what the rules say") {
  std::mt19937_64 random(7);
  const auto pick = [&](std::initializer_list<std::uint64_t> values) {
    return values.begin()[random() % values.size()];
  };
  int legal = 0, illegal = 0;
  for (int i = 0; i < 200'000; ++i) {
    ResolvedTensorMap map;
    map.type = i % 2 == 0 ? TensorMapType::bf16 : TensorMapType::f32;
    map.rank = static_cast<std::uint32_t>(1 + random() % 5);
    map.interleave = map.rank >= 3 && i % 5 == 0 ? TensorMapInterleave::b32 : TensorMapInterleave::none;
    map.box = {16, 2, 2, 2, 2};
    for (std::size_t d = 0; d < 5; ++d) {
      map.dims[d] = 1 + random() % 1000;
      map.strides_bytes[d] = random() % 1000 * 32;
    }
    REQUIRE(first_broken_rule(map) == TensorMapRule::none);
    // One or two of the numbers leave the middle of their range.
    for (std::uint64_t n = random() % 3; n > 0; --n) {
      switch (random() % 3) {
        case 0:
          map.dims[random() % map.rank] = pick({0, 1, 1ull << 32, (1ull << 32) + 1, 1ull << 63, ~0ull});
          break;
        case 1:
          map.strides_bytes[random() % 5] =
              pick({0, 8, 16, 48, (1ull << 40) - 32, (1ull << 40) - 16, 1ull << 40, ~0ull << 4});
          break;
        default:
          map.address = pick({0, 8, 16, 32, 1ull << 56, (1ull << 57) - 32, 1ull << 57, ~0ull << 5});
      }
    }
    const auto mask = static_cast<std::uint64_t>(tensor_map_alignment(map.type, map.interleave)) - 1;
    const bool expected = first_broken_rule(map) == TensorMapRule::none;
    (expected ? legal : illegal) += 1;
    if (are_numbers_legal(map, mask) != expected) FAIL("differs for call " << i);
  }
  CHECK(legal > 10'000);
  CHECK(illegal > 10'000);
}

}  // namespace tessera

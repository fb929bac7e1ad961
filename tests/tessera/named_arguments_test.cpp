// Arguments with names in the order of a plan, up to the most that a plan may have.
#include "tessera/internal/named_arguments.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

struct Arguments {
  std::int64_t even = 2, odd = 3;
  DevicePointer even_buffer = 0x2000, odd_buffer = 0x3000;
  double even_scalar = 0.5, odd_scalar = 0.25;
  DevicePointer workspace = 0x4000;
  std::int64_t workspace_bytes = 16;
};

/// A name for each of a plan's list, for two members in turn.
template <class Spec, class Member>
std::vector<std::pair<std::string_view, Member>> in_turn(const std::vector<Spec>& specs, Member even, Member odd) {
  std::vector<std::pair<std::string_view, Member>> table;
  for (std::size_t i = 0; i < specs.size(); ++i) table.emplace_back(specs[i].name, i % 2 == 0 ? even : odd);
  return table;
}

}  // namespace

TEST_CASE("named arguments: as many sizes, buffers and scalars as a plan may have") {
  LaunchPlan plan;
  plan.sizes.resize(kMaxSizes);
  plan.buffers.resize(kMaxBuffers);
  plan.scalars.resize(kMaxScalars);
  for (std::size_t i = 0; i < plan.sizes.size(); ++i) plan.sizes[i].name = fmt::format("size{}", i);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) plan.buffers[i].name = fmt::format("buffer{}", i);
  for (std::size_t i = 0; i < plan.scalars.size(); ++i) plan.scalars[i].name = fmt::format("scalar{}", i);

  const auto sizes = in_turn(plan.sizes, &Arguments::even, &Arguments::odd);
  const auto buffers = in_turn(plan.buffers, &Arguments::even_buffer, &Arguments::odd_buffer);
  const auto scalars = in_turn(plan.scalars, &Arguments::even_scalar, &Arguments::odd_scalar);
  plan.sizes.back().name = "num_sms";  // which the launcher fills in

  const ArgumentSlots<Arguments> slots(plan, {sizes, buffers, scalars});
  ArgumentSlots<Arguments>::Ordered ordered;
  const LaunchArguments arguments = slots.order(Arguments{}, ordered);
  REQUIRE(arguments.sizes.size() == kMaxSizes);
  REQUIRE(arguments.buffers.size() == kMaxBuffers);
  REQUIRE(arguments.scalars.size() == kMaxScalars);
  for (std::size_t i = 0; i + 1 < kMaxSizes; ++i) CHECK(arguments.sizes[i] == (i % 2 == 0 ? 2 : 3));
  CHECK(arguments.sizes.back() == kUseDefault);
  for (std::size_t i = 0; i < kMaxBuffers; ++i) CHECK(arguments.buffers[i] == (i % 2 == 0 ? 0x2000u : 0x3000u));
  for (std::size_t i = 0; i < kMaxScalars; ++i) CHECK(arguments.scalars[i] == (i % 2 == 0 ? 0.5 : 0.25));
  CHECK(arguments.workspace == 0x4000);
  CHECK(arguments.workspace_bytes == 16);
}

#include "cli/emit_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

/// A size of this name that touches several tiles and a ragged edge, yet runs in a moment.
std::int64_t small_size(const SizeSpec& size) {
  std::int64_t value = 1;
  if (size.name.starts_with("seqlen") || size.name == "m" || size.name == "n" || size.name == "rows") value = 200;
  if (size.name == "k") value = 256;
  if (size.name == "dim0") value = 320;
  if (size.name == "dim1") value = 70;
  if (size.name.starts_with("heads") || size.name == "dim2") value = 2;
  return std::clamp(value, size.min, size.max);
}

}  // namespace

OrderedJson make_launch_file(const OrderedJson& plan, const std::vector<GivenSize>& given) {
  if (plan.is_object() && plan.contains("plans"))
    throw Error(ErrorKind::usage, "--emit-launch: the file holds several plans; print one with `tessera plan --json`");
  const OrderedJson& launch_json = plan.is_object() && plan.contains("launch") ? plan["launch"] : plan;
  const LaunchPlan launch = launch_plan_from_json(launch_json);
  std::vector<GivenSize> sizes = given;
  for (const SizeSpec& size : launch.sizes) {
    const bool is_given =
        std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == size.name; });
    if (!size.default_value && !is_given && size.name != "num_sms") sizes.push_back({size.name, small_size(size)});
  }
  const LaunchSizes checked(launch);
  const auto values = checked.complete(sizes);
  if (values) {
    if (const auto problems = checked.problems(*values); !problems.empty())
      throw Error(ErrorKind::usage,
                  fmt::format("--emit-launch: {}; give other sizes with --size NAME=N", problems.front()),
                  {problems.begin() + 1, problems.end()});
  }
  OrderedJson bindings{
      {"sizes", OrderedJson::object()}, {"scalars", OrderedJson::object()}, {"buffers", OrderedJson::object()}};
  for (const GivenSize& size : sizes) bindings["sizes"][size.name] = size.value;
  for (const ScalarSpec& scalar : launch.scalars)
    if (!scalar.default_value) bindings["scalars"][scalar.name] = 1.0;
  for (const BufferSpec& buffer : launch.buffers)
    if (buffer.role != BufferRole::output) bindings["buffers"][buffer.name] = {{"random", "normal"}};
  return {{"launch", launch_json}, {"bindings", bindings}};
}

}  // namespace tessera::cli

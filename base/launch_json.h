// LaunchPlan <-> JSON. The text is stable: keys in a fixed order, two spaces, one trailing newline; the same plan gives
// the same bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/launch.h"

namespace tessera {

using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const LaunchPlan& plan);
/// Throws Error{usage} that names the key by its path ("launch.steps[0].grid[1]") when it is missing, has the wrong
/// type, or is unknown, and when a name (size, buffer, recipe) is used but not declared.
LaunchPlan launch_plan_from_json(const OrderedJson& json);

}  // namespace tessera

// LaunchPlan <-> JSON: the contract between whoever plans a kernel and whoever launches it.
//
// Keys are the fields' names in their order, all of them present except `default`, and `cubin` of a step, which is
// there where the code is merge.cubin's; an expression is an integer or a
// text of its grammar; a kernel parameter has `value` (i32, i64), `source` (tensor_map, f32) or `source` and
// `offset_bytes` (pointer). `version` and `expression_version` come first: a reader refuses newer ones. Reading is
// strict: what is unknown, missing, of the wrong type, out of range or not declared is refused with its path.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tessera/launch.h"

namespace tessera {

using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const LaunchPlan& plan);
/// The least that a reader must know: 2 where a step's code is merge.cubin's.
int plan_version(const LaunchPlan& plan) noexcept;
/// Throws Error{usage} that names the key by its path ("launch.steps[0].grid[1]") when it is missing, has the wrong
/// type, or is unknown, and when a name (size, buffer, recipe) is used but not declared.
LaunchPlan launch_plan_from_json(const OrderedJson& json);

/// The text of a JSON document as every file of ours has it: two spaces, one trailing newline; the same value gives the
/// same bytes.
std::string json_text(const OrderedJson& json);

}  // namespace tessera

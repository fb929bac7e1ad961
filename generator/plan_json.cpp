// Keys keep one order, because the bytes of plan.json enter a cache key.
#include "generator/plan_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

namespace tessera {

namespace {

OrderedJson operands_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const OperandPlan& operand : plan.operands) {
    OrderedJson entry{{"name", operand.name},
                      {"dtype", operand.dtype},
                      {"tensor_map_type", operand.tensor_map_type},
                      {"swizzle", operand.swizzle},
                      {"use", operand.use}};
    if (!operand.scale_type.empty()) {
      entry["scale_type"] = operand.scale_type;
      entry["scale_block"] = operand.scale_block;
      entry["scale_form"] = operand.scale_form;
    }
    json.push_back(std::move(entry));
  }
  return json;
}

template <class Region>
OrderedJson with_phases(OrderedJson json, const Region& region) {
  if (region.slots > 1) json["slots"] = region.slots;
  for (const MemoryPhase& phase : region.phases)
    json["phases"].push_back({{"content", phase.content}, {"owner", phase.owner}, {"until", phase.until}});
  return json;
}

OrderedJson smem_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const SmemRegion& region : plan.smem)
    json.push_back(with_phases({{"name", region.name}, {"offset", region.offset}, {"bytes", region.bytes}}, region));
  return json;
}

OrderedJson tmem_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const TmemRegion& region : plan.tmem)
    json.push_back(with_phases({{"name", region.name},
                                {"first_column", region.first_column},
                                {"columns", region.columns},
                                {"first_lane", region.first_lane},
                                {"lanes", region.lanes}},
                               region));
  return json;
}

OrderedJson roles_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const RolePlan& role : plan.roles) {
    json.push_back(
        {{"name", role.name}, {"first_warp", role.first_warp}, {"warps", role.warps}, {"registers", role.registers}});
  }
  return json;
}

OrderedJson rejected_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const Rejection& rejection : plan.rejected) {
    json.push_back(
        {{"candidate", rejection.candidate}, {"reason", rejection.reason}, {"is_legal", rejection.is_legal}});
  }
  return json;
}

/// A tenth of a microsecond is more than a model knows.
double rounded(double us) { return std::round(us * 10) / 10; }

OrderedJson costs_json(const Plan& plan) {
  OrderedJson json = OrderedJson::array();
  for (const CostSheet& sheet : plan.costs) {
    OrderedJson units;
    for (const CostSheet::Unit& unit : sheet.units) units[unit.name] = rounded(unit.us);
    json.push_back(
        {{"device", sheet.device}, {"us", rounded(sheet.us)}, {"units", std::move(units)}, {"limit", sheet.limit}});
  }
  return json;
}

}  // namespace

OrderedJson to_json(const Plan& plan, bool with_rejected) {
  OrderedJson config;
  for (const ConfigField& field : plan.fields)
    std::visit([&](const auto& value) { config[field.name] = value; }, field.typed);
  OrderedJson json{{"version", plan_version(plan.launch)}, {"op", plan.op},
                   {"arch", plan.arch.to_string()},        {"kernel", plan.kernel},
                   {"config", std::move(config)},          {"mma_kind", plan.mma_kind},
                   {"operands", operands_json(plan)},      {"smem", smem_json(plan)},
                   {"smem_bytes", plan.smem_bytes}};
  if (plan.tmem_columns > 0) {
    json["tmem"] = tmem_json(plan);
    json["tmem_columns"] = plan.tmem_columns;
  }
  json["entry_registers"] = plan.entry_registers;
  if (plan.max_registers > 0) json["max_registers"] = plan.max_registers;
  json["roles"] = roles_json(plan);
  if (with_rejected) {
    json["reason"] = plan.reason;
    if (!plan.costs.empty()) json["costs"] = costs_json(plan);
    json["rejected"] = rejected_json(plan);
  }
  json["launch"] = to_json(plan.launch);
  return json;
}

std::string plan_json(const Plan& plan) { return json_text(to_json(plan, false)); }

std::string merge_plan_json(const std::string& op, const std::string& arch, const std::string& kernel) {
  return json_text({{"version", 2}, {"op", op}, {"arch", arch}, {"kernel", kernel}});
}

}  // namespace tessera

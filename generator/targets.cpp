#include "generator/targets.h"

#include <algorithm>
#include <string>

namespace tessera {

namespace {

constexpr int kData = 232448;      // 227 KiB: Hopper, and Blackwell in data centres
constexpr int kConsumer = 101376;  // 99 KiB

constexpr TargetRow kTargets[] = {{"sm_90a", "9.0", kData},
                                  {"sm_100a", "10.0", kData},
                                  {"sm_100f", "10.0, 10.3", kData},
                                  {"sm_103a", "10.3", kData},
                                  {"sm_103f", "10.3", kData},
                                  {"sm_120a", "12.0", kConsumer},
                                  {"sm_120f", "12.0, 12.1", kConsumer},
                                  {"sm_121a", "12.1", kConsumer},
                                  {"sm_121f", "12.1", kConsumer}};

std::vector<std::string_view> capabilities_of(const TargetRow& row) {
  std::vector<std::string_view> list;
  for (std::string_view rest = row.loads_on; !rest.empty();) {
    const std::size_t comma = rest.find(", ");
    list.push_back(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 2);
  }
  return list;
}

bool loads(const TargetRow& row, std::string_view capability) {
  const std::vector<std::string_view> list = capabilities_of(row);
  return std::find(list.begin(), list.end(), capability) != list.end();
}

}  // namespace

std::span<const TargetRow> target_rows() noexcept { return kTargets; }

const TargetRow* target_row(Arch target) noexcept {
  const std::string name = target.to_string();
  for (const TargetRow& row : kTargets)
    if (row.target == name) return &row;
  return nullptr;
}

std::string_view loads_on(Arch target) {
  const TargetRow* const row = target_row(target);
  return row == nullptr ? std::string_view{} : row->loads_on;
}

std::vector<std::string_view> targets_for(std::string_view capability) {
  std::vector<std::string_view> list;
  for (const TargetRow& row : kTargets)
    if (loads(row, capability)) list.push_back(row.target);
  return list;
}

std::vector<std::string_view> targets_instead_of(Arch target) {
  std::vector<std::string_view> list;
  const TargetRow* const own = target_row(target);
  if (own == nullptr) return list;
  for (const TargetRow& row : kTargets) {
    const std::vector<std::string_view> needed = capabilities_of(*own);
    const bool serves =
        std::all_of(needed.begin(), needed.end(), [&](std::string_view capability) { return loads(row, capability); });
    if (&row != own && serves) list.push_back(row.target);
  }
  return list;
}

}  // namespace tessera

#include "tessera/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/shown.h"
#include "base/suggestion.h"
#include "spec/limits.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr TargetRow kTargets[] = {{"sm_90a", "9.0"},         {"sm_100a", "10.0"}, {"sm_100f", "10.0, 10.3"},
                                  {"sm_103a", "10.3"},       {"sm_103f", "10.3"}, {"sm_120a", "12.0"},
                                  {"sm_120f", "12.0, 12.1"}, {"sm_121a", "12.1"}, {"sm_121f", "12.1"}};

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

const TargetRow* row_of(Arch target) noexcept {
  for (const TargetRow& row : kTargets)
    if (parse_arch(row.target) == target) return &row;
  return nullptr;
}

}  // namespace

std::optional<Arch> parse_arch(std::string_view text) noexcept {
  if (text.size() < 5 || text.substr(0, 3) != "sm_" || text[3] == '0') return std::nullopt;
  Arch arch{.number = 0, .suffix = 0};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 3, end, arch.number);
  if (error != std::errc{} || arch.number < 10 || arch.number > 999) return std::nullopt;
  if (stop == end) return arch;
  if (stop + 1 != end || (*stop != 'a' && *stop != 'f')) return std::nullopt;
  arch.suffix = *stop;
  return arch;
}

Arch Arch::parse(std::string_view text) {
  if (const std::optional<Arch> arch = parse_arch(text)) return *arch;
  std::vector<std::string_view> targets;
  for (const TargetRow& row : kTargets) targets.push_back(row.target);
  throw Error(ErrorKind::usage,
              fmt::format("arch = {}: must be sm_, a compute capability times ten, and an optional 'a' or 'f', like "
                          "sm_90a{}",
                          shown(text), suggestion(text, targets)));
}

std::string Arch::to_string() const {
  return suffix == 0 ? fmt::format("sm_{}", number) : fmt::format("sm_{}{}", number, suffix);
}

bool runs_on(Arch target, int compute_major, int compute_minor) noexcept {
  if (compute_major != target.compute_major()) return false;
  return target.suffix == 'a' ? compute_minor == target.compute_minor() : compute_minor >= target.compute_minor();
}

bool has_family(Arch target, MmaFamily family) noexcept {
  const bool is_data_centre = target.number == 100 || target.number == 103;
  switch (family) {
    case MmaFamily::wgmma:
      return target.number == 90 && target.suffix == 'a';
    case MmaFamily::tcgen05:
      return is_data_centre && target.suffix != 0;
    case MmaFamily::mma_sync:
      return target.number >= 80;
  }
  return false;
}

std::int64_t smem_bytes_of(Arch target) noexcept {
  return target.compute_major() == 12 ? kMaxSmemBytesOfSm120 : kMaxSmemBytes;
}

std::span<const TargetRow> target_rows() noexcept { return kTargets; }

std::string_view loads_on(Arch target) noexcept {
  const TargetRow* const row = row_of(target);
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
  const TargetRow* const own = row_of(target);
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

// The memories of a planned kernel: which region owns each KiB of shared memory
// or each column of Tensor Memory, and for each region who owns it when. Reads
// plan.json, of a cache entry or of `tessera plan --json`; believes nothing of
// it: regions that overlap or leave the CTA's memory, and owners that no role
// is, are mistakes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_reader.h"
#include "cli/layout_command.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kMostRegions = 256, kMostPhases = 64;
constexpr std::int64_t kCell = 1024, kColumns = 16;
constexpr int kTmemLanes = 128, kTmemColumns = 512;
constexpr int kLanesOfCell = 16;  // the finest that an accumulator layout has

struct Phase {
  std::string content, owner, until;
};

/// Of shared memory: bytes. Of Tensor Memory: columns, and lanes.
struct Region {
  std::string name;
  std::int64_t first = 0, count = 0, slots = 1;
  std::int64_t first_lane = 0, lanes = 1;
  std::vector<Phase> phases;
  std::int64_t end() const { return first + count; }
};

struct PlanFile {
  std::string kernel, arch;
  std::vector<std::string> roles;
  std::vector<Region> regions;
  std::int64_t size = 0;  ///< bytes, or columns
};

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue value = object.at(key);
  return value.as_string();
}

std::int64_t number_of(const JsonValue& object, std::string_view key) {
  const JsonValue value = object.at(key);
  return value.as_integer(0, 1 << 30);
}

void read_phases(const JsonValue& json, Region& region) {
  if (json.has("slots")) region.slots = number_of(json, "slots");
  if (!json.has("phases")) return;
  const JsonValue list = json.at("phases");
  const std::size_t count = list.array_size(kMostPhases);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonValue one = list.element(i);
    region.phases.push_back({text_of(one, "content"), text_of(one, "owner"), text_of(one, "until")});
  }
}

PlanFile read_plan(const LayoutArguments& arguments, bool is_tmem) {
  const std::string what = is_tmem ? "tmem" : "smem";
  if (arguments.subject.empty())
    throw Error(ErrorKind::usage, fmt::format("layout {0}: name a plan.json, like `tessera plan "
                                              "{1} --json > plan.json; tessera layout "
                                              "{0} plan.json`",
                                              what, is_tmem ? "fmha --arch sm_100a" : "fmha"));
  const std::string file = arguments.subject == "-" ? "/dev/stdin" : arguments.subject;
  const OrderedJson json = parse_json(read_text(file), arguments.subject);
  const JsonValue root(json, arguments.subject);
  PlanFile plan;
  if (root.has("plans"))
    throw Error(ErrorKind::usage, fmt::format("{}: holds the plans of a product: give one plan, "
                                              "of single values, like "
                                              "`tessera plan fmha --head-dim 128 --json`",
                                              arguments.subject));
  plan.kernel = root.has("kernel") ? text_of(root, "kernel") : "a plan without a name";
  if (root.has("arch")) plan.arch = text_of(root, "arch");
  if (root.has("roles")) {
    const JsonValue roles = root.at("roles");
    const std::size_t count = roles.array_size(64);
    for (std::size_t i = 0; i < count; ++i) plan.roles.push_back(text_of(roles.element(i), "name"));
  }
  if (is_tmem && !root.has("tmem"))
    throw Error(ErrorKind::usage, fmt::format("{}: {} uses no Tensor Memory: kernels for sm_100a with tcgen05 do",
                                              arguments.subject, plan.kernel));
  const JsonValue list = root.at(what);
  const std::size_t count = list.array_size(kMostRegions);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonValue one = list.element(i);
    Region region;
    region.name = text_of(one, "name");
    region.first = number_of(one, is_tmem ? "first_column" : "offset");
    region.count = number_of(one, is_tmem ? "columns" : "bytes");
    if (is_tmem) {
      region.first_lane = number_of(one, "first_lane");
      region.lanes = number_of(one, "lanes");
    }
    read_phases(one, region);
    plan.regions.push_back(std::move(region));
  }
  const std::string size = what + (is_tmem ? "_columns" : "_bytes");
  if (root.has(size)) plan.size = number_of(root, size);
  return plan;
}

bool do_overlap(const Region& a, const Region& b) {
  return a.first < b.end() && b.first < a.end() && a.first_lane < b.first_lane + b.lanes &&
         b.first_lane < a.first_lane + a.lanes;
}

void find_mistakes(LayoutPage& page, const PlanFile& plan) {
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& a = plan.regions[i];
    if (plan.size > 0 && a.end() > plan.size)
      page.mistakes.push_back(fmt::format("{} ends at {}: the plan asks for {}", a.name, a.end(), plan.size));
    if (a.slots < 1 || a.count % a.slots != 0)
      page.mistakes.push_back(fmt::format("{}: {} does not divide into {} slots", a.name, a.count, a.slots));
    for (std::size_t j = 0; j < i; ++j)
      if (do_overlap(a, plan.regions[j]))
        page.mistakes.push_back(fmt::format("{} and {} overlap from {} on", plan.regions[j].name, a.name,
                                            std::max(a.first, plan.regions[j].first)));
    for (const Phase& phase : a.phases) {
      const std::string role = phase.owner.substr(0, phase.owner.find(' '));
      if (std::find(plan.roles.begin(), plan.roles.end(), role) == plan.roles.end())
        page.mistakes.push_back(fmt::format("{}: {} belongs to '{}', which is no role of the plan: {}", a.name,
                                            phase.content, phase.owner, fmt::join(plan.roles, ", ")));
    }
  }
}

bool is_owner(const Phase& phase, const std::string& asked) {
  return !asked.empty() && phase.owner.substr(0, phase.owner.find(' ')) == asked;
}

std::string asked_owner(const LayoutArguments& arguments, const PlanFile& plan) {
  const std::string asked = arguments.text("owner");
  if (!asked.empty() && std::find(plan.roles.begin(), plan.roles.end(), asked) == plan.roles.end())
    throw Error(ErrorKind::usage, fmt::format("--owner = {}: must be one of {}", asked, fmt::join(plan.roles, ", ")));
  return asked;
}

/// Who owns what when: a row for each phase of each region.
void add_phases(LayoutPage& page, const PlanFile& plan, const std::string& asked) {
  LayoutGrid grid = make_grid(
      "by phase: what each slot of a region holds, who owns it, and "
      "what hands it on",
      "region, phase", {}, "", {"holds", "owner", "until"});
  grid.is_prose = true;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& region = plan.regions[i];
    std::vector<Phase> phases = region.phases;
    if (phases.empty()) phases.push_back({region.name, "all roles", "end"});
    for (std::size_t p = 0; p < phases.size(); ++p) {
      grid.rows.push_back(fmt::format("{} {}, {}", i, region.name, p + 1));
      for (const std::string* const text : {&phases[p].content, &phases[p].owner, &phases[p].until}) {
        LayoutCell cell;
        cell.text = *text;
        cell.link = std::to_string(i);
        cell.group = static_cast<int>(i);
        cell.is_marked = is_owner(phases[p], asked);
        cell.values = {{"region", static_cast<std::int64_t>(i)}, {"phase", static_cast<std::int64_t>(p + 1)}};
        grid.cells.push_back(std::move(cell));
      }
    }
  }
  page.grids.push_back(std::move(grid));
}

/// One cell of a map: the regions that `covers` says are there.
template <class Covers>
void fill_cell(LayoutCell& cell, const PlanFile& plan, const std::string& asked, Covers&& covers) {
  cell.is_outside = true;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (!covers(plan.regions[i])) continue;
    cell.text += fmt::format("{}{}", cell.text.empty() ? "" : "+", i);
    cell.link = cell.text;
    cell.is_outside = false;
    cell.group = static_cast<int>(i);
    cell.values.emplace_back("region", static_cast<std::int64_t>(i));
    for (const Phase& phase : plan.regions[i].phases) cell.is_marked = cell.is_marked || is_owner(phase, asked);
  }
}

std::string slots_text(const Region& region, const char* unit) {
  return region.slots > 1 ? fmt::format("{} slots of {} {}", region.slots, region.count / region.slots, unit)
                          : fmt::format("{} {}", region.count, unit);
}

/// The largest power of two, at most 32, that divides where every region begins
/// and ends.
int columns_of_cell(const std::vector<Region>& regions) {
  int unit = 32;
  for (const Region& region : regions)
    while (region.first % unit != 0 || region.count % unit != 0) unit /= 2;
  return unit;
}

}  // namespace

LayoutPage layout_smem(const LayoutArguments& arguments) {
  const PlanFile plan = read_plan(arguments, false);
  const std::string asked = asked_owner(arguments, plan);
  const std::int64_t most = smem_bytes_of(parse_arch(plan.arch).value_or(Arch{}));  // of one CTA
  LayoutPage page;
  page.title = "shared memory of " + plan.kernel;
  if (plan.regions.empty()) {
    page.notes.push_back(
        "the kernel declares no shared memory: its threads "
        "exchange nothing through it");
    return page;
  }
  std::int64_t end = kCell;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& region = plan.regions[i];
    end = std::max(end, region.end());
    page.facts.emplace_back(
        fmt::format("{} {}", i, region.name),
        fmt::format("{} .. {}, {}, at a multiple of {}", region.first, region.end(), slots_text(region, "bytes"),
                    region.first == 0 ? kCell : region.first & -region.first));
    if (region.end() > most)
      page.mistakes.push_back(
          fmt::format("{} ends at {}: a CTA has at most {} bytes", region.name, region.end(), most));
  }
  find_mistakes(page, plan);
  end = std::min<std::int64_t>(end, 2 * smem_bytes_of(Arch{}));
  const auto rows = static_cast<int>((end + kCell * kColumns - 1) / (kCell * kColumns));
  LayoutGrid grid =
      make_grid("each KiB: the regions in it, by their numbers", "byte",
                numbers(rows, 0, static_cast<int>(kColumns * kCell)), "KiB", numbers(static_cast<int>(kColumns)));
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(grid.cells.size()); ++at) {
    LayoutCell& cell = grid.cells[static_cast<std::size_t>(at)];
    cell.values = {{"byte", at * kCell}};
    fill_cell(cell, plan, asked,
              [&](const Region& region) { return region.first < (at + 1) * kCell && region.end() > at * kCell; });
  }
  page.grids.push_back(std::move(grid));
  add_phases(page, plan, asked);
  return page;
}

LayoutPage layout_tmem(const LayoutArguments& arguments) {
  const PlanFile plan = read_plan(arguments, true);
  const std::string asked = asked_owner(arguments, plan);
  LayoutPage page;
  page.title = "Tensor Memory of " + plan.kernel;
  page.facts.emplace_back("allocated", fmt::format("{} columns of {} lanes", plan.size, kTmemLanes));
  if (plan.size < 32 || plan.size > kTmemColumns || (plan.size & (plan.size - 1)) != 0)
    page.mistakes.push_back(
        fmt::format("tmem_columns = {}: must be a power of two from 32 to {}", plan.size, kTmemColumns));
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& region = plan.regions[i];
    page.facts.emplace_back(
        fmt::format("{} {}", i, region.name),
        fmt::format("columns {} .. {}, {}, lanes {} .. {}", region.first, region.end(), slots_text(region, "columns"),
                    region.first_lane, region.first_lane + region.lanes));
    if (region.first_lane + region.lanes > kTmemLanes || region.end() > kTmemColumns)
      page.mistakes.push_back(
          fmt::format("{} ends at lane {}, column {}: Tensor Memory has {} "
                      "lanes of {} columns",
                      region.name, region.first_lane + region.lanes, region.end(), kTmemLanes, kTmemColumns));
  }
  find_mistakes(page, plan);
  const int unit = columns_of_cell(plan.regions);
  const auto columns = static_cast<int>(std::clamp<std::int64_t>(plan.size, unit, kTmemColumns)) / unit;
  LayoutGrid grid =
      make_grid(fmt::format("each {} lanes by {} columns: the region there, by its number", kLanesOfCell, unit), "lane",
                numbers(kTmemLanes / kLanesOfCell, 0, kLanesOfCell), "column", numbers(columns, 0, unit));
  for (int r = 0; r < kTmemLanes / kLanesOfCell; ++r)
    for (int c = 0; c < columns; ++c) {
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(c));
      const std::int64_t lane = r * kLanesOfCell, column = std::int64_t{c} * unit;
      cell.values = {{"lane", lane}, {"column", column}};
      fill_cell(cell, plan, asked, [&](const Region& region) {
        return region.first < column + unit && region.end() > column && region.first_lane < lane + kLanesOfCell &&
               region.first_lane + region.lanes > lane;
      });
    }
  page.grids.push_back(std::move(grid));
  add_phases(page, plan, asked);
  page.notes.push_back(
      "the CTA allocates these columns when it starts: the "
      "first one is wherever the allocation put it");
  page.notes.push_back("no Blackwell device has run such a kernel; the emulator has");
  return page;
}

}  // namespace tessera::cli

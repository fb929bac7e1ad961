// The shared memory of a planned kernel: which region owns each KiB. Reads plan.json, of a cache entry or of `tessera
// plan
// --json`; believes nothing of it: regions that overlap or leave the CTA's memory are mistakes.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "cli/layout_command.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kCell = 1024, kColumns = 16;
constexpr std::int64_t kMost = 227 * 1024;  // of one CTA, sm_90 and sm_100

struct Region {
  std::string name;
  std::int64_t offset = 0, bytes = 0;
};

std::vector<Region> regions_of(const JsonValue& plan) {
  std::vector<Region> regions;
  const JsonValue list = plan.at("smem");
  const std::size_t count = list.array_size(256);
  for (std::size_t i = 0; i < count; ++i) {
    const JsonValue one = list.element(i);
    const JsonValue name = one.at("name"), offset = one.at("offset"), bytes = one.at("bytes");
    regions.push_back({name.as_string(), offset.as_integer(0, 1 << 30), bytes.as_integer(0, 1 << 30)});
  }
  return regions;
}

void find_mistakes(LayoutPage& page, const std::vector<Region>& regions) {
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const Region& a = regions[i];
    if (a.offset + a.bytes > kMost)
      page.mistakes.push_back(
          fmt::format("{} ends at {}: a CTA has at most {} bytes", a.name, a.offset + a.bytes, kMost));
    for (std::size_t j = 0; j < i; ++j) {
      const Region& b = regions[j];
      if (a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
        page.mistakes.push_back(
            fmt::format("{} and {} overlap from {} on", b.name, a.name, std::max(a.offset, b.offset)));
    }
  }
}

}  // namespace

LayoutPage layout_smem(const LayoutArguments& arguments) {
  if (arguments.subject.empty())
    throw Error(
        ErrorKind::usage,
        "layout smem: name a plan.json, like `tessera plan fmha --json > plan.json; tessera layout smem plan.json`");
  const std::string file = arguments.subject == "-" ? "/dev/stdin" : arguments.subject;
  const OrderedJson json = parse_json(read_text(file), arguments.subject);
  const JsonValue root(json, arguments.subject);
  const std::vector<Region> regions = regions_of(root);
  LayoutPage page;
  page.title = "shared memory of " + (root.has("kernel") ? root.at("kernel").as_string() : arguments.subject);
  std::int64_t end = kCell;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const Region& region = regions[i];
    end = std::max(end, region.offset + region.bytes);
    page.facts.emplace_back(
        fmt::format("{} {}", i, region.name),
        fmt::format("{} .. {}, {} bytes, at a multiple of {}", region.offset, region.offset + region.bytes,
                    region.bytes, region.offset == 0 ? kCell : region.offset & -region.offset));
  }
  find_mistakes(page, regions);
  end = std::min<std::int64_t>(end, 2 * kMost);
  const auto rows = static_cast<int>((end + kCell * kColumns - 1) / (kCell * kColumns));
  std::vector<std::string> labels;
  for (int r = 0; r < rows; ++r) labels.push_back(fmt::format("{}", r * kColumns * kCell));
  LayoutGrid grid =
      make_grid("each KiB: the regions in it, by their numbers", "byte", labels, "KiB", numbers(kColumns));
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(grid.cells.size()); ++at) {
    LayoutCell& cell = grid.cells[static_cast<std::size_t>(at)];
    cell.is_outside = true;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (regions[i].offset >= (at + 1) * kCell || regions[i].offset + regions[i].bytes <= at * kCell) continue;
      cell.text += fmt::format("{}{}", cell.text.empty() ? "" : "+", i);
      cell.link = cell.text;
      cell.is_outside = false;
      cell.group = static_cast<int>(i);
      cell.values = {{"byte", at * kCell}, {"region", static_cast<std::int64_t>(i)}};
    }
  }
  page.grids.push_back(std::move(grid));
  return page;
}

}  // namespace tessera::cli

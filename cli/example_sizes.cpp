#include "cli/example_sizes.h"

#include <algorithm>
#include <string_view>

#include "generator/facts.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kMostRowsMore = 256;

bool has(const std::vector<GivenSize>& given, std::string_view name) {
  return std::any_of(given.begin(), given.end(), [&](const GivenSize& size) { return size.name == name; });
}

std::int64_t whole_tiles_below(std::int64_t extent, std::int64_t tile) {
  return std::max((extent - 1) / tile, std::int64_t{1}) * tile;
}

}  // namespace

void add_rows_and_columns(const Plan& plan, std::int64_t extent, std::vector<GivenSize>& given) {
  const bool has_m = has(given, "m"), has_n = has(given, "n");
  if (has_m && has_n) return;
  const LaunchSizes launch(plan.launch);
  const ProductTiles tiles = product_tiles(plan);
  for (std::int64_t more_n = 1; more_n <= (has_n ? 1 : kMostRowsMore); more_n *= 2)
    for (std::int64_t more_m = 1; more_m <= (has_m ? 1 : kMostRowsMore); more_m *= 2) {
      std::vector<GivenSize> sizes = given;
      if (!has_m) sizes.push_back({"m", whole_tiles_below(extent, tiles.tile_m) + more_m});
      if (!has_n) sizes.push_back({"n", whole_tiles_below(extent, tiles.tile_n) + more_n});
      const auto complete = launch.complete(sizes);
      if (!complete || !launch.problems(*complete).empty()) continue;
      given = std::move(sizes);
      return;
    }
  if (!has_m) given.push_back({"m", extent});
  if (!has_n) given.push_back({"n", extent});
}

}  // namespace tessera::cli

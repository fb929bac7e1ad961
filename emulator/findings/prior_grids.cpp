#include "emulator/findings/prior_grids.h"

#include <fmt/format.h>

#include <bit>

#include "emulator/findings/race.h"

namespace tessera::emulator {
namespace {

constexpr std::size_t kMostPriorGrids = 8;  // of a chain of grids that all start early: the nearest

// An agent of no cluster.
Agent agent_of(std::size_t prior_grid) { return static_cast<Agent>(prior_grid + 1); }

const GridFootprint::Cell* cell_at(const GridFootprint& footprint, std::uint64_t address) {
  const auto page = footprint.pages.find(address >> 12);
  return page == footprint.pages.end() ? nullptr : &(*page->second)[(address & 4095) / 16];
}

}  // namespace

std::vector<PriorGrid> prior_grids_after(const Launch& launch) {
  std::vector<PriorGrid> prior;
  if (!launch.race) return prior;
  if (launch.launches_dependents) prior.push_back({launch.race->footprint()});
  for (const PriorGrid& grid : launch.prior_grids) {
    const bool is_waited_for = grid.is_waited_for && launch.waits_for_prior;
    if (is_waited_for && (grid.ends_first || !launch.launches_dependents)) continue;
    if (prior.size() < kMostPriorGrids) prior.push_back({grid.footprint, is_waited_for});
  }
  return prior;
}

std::shared_ptr<const GridFootprint> RaceDetector::footprint() const {
  auto footprint = std::make_shared<GridFootprint>();
  footprint->entry = launch_.entry.name;
  for (const auto& [number, page] : pages_) {
    auto copy = std::make_unique<GridFootprint::Page>();
    for (std::size_t i = 0; i < page->size(); ++i) {
      GridFootprint::Cell& cell = (*copy)[i];
      for (unsigned n = 0; n < RaceCell::kRecords; ++n) {
        const RaceRecord record = page->at(i).record(n);
        if (record.bytes == 0) continue;
        const bool is_plain = (record.kind & kRaceAtomic) == 0;
        if (is_write(record) || cell.line == 0) {
          const Instruction& in = launch_.entry.code[record.pc];
          cell.line = in.line;
          if (const auto [place, is_new] = footprint->places.try_emplace(in.line); is_new)
            place->second = {std::string(in.opcode), launch_.program.place_of(in),
                             std::string(launch_.program.source_file(in.source_file)), in.source_line};
        }
        (is_write(record) ? cell.written : cell.read) |= record.bytes;
        if (is_plain) (is_write(record) ? cell.plain_written : cell.plain_read) |= record.bytes;
      }
    }
    footprint->pages.emplace(number, std::move(copy));
  }
  return footprint;
}

void RaceDetector::wait_for_prior(Warp& warp, Mask lanes) {
  const auto& prior = launch_.prior_grids;
  warp.race->for_views(lanes, [&](RaceView& view) {
    for (std::size_t i = 0; i < prior.size(); ++i) {
      if (!prior[i].is_waited_for) continue;
      view.seen.raise(agent_of(i), 1);
      view.wide.raise(agent_of(i), 1);
    }
  });
}

void RaceDetector::launch_dependents(const Warp& warp, Mask lanes) {
  for (std::size_t i = 0; i < launch_.prior_grids.size(); ++i)
    if (warp.race->view(std::countr_zero(lanes)).seen.at(agent_of(i)) != 0) launch_.prior_grids[i].ends_first = true;
}

// Grids that overlap may tell each other by flags too: who acquires what an earlier grid wrote as an atomic has seen
// that grid, as far as this is followed.
void RaceDetector::acquire_prior(RaceWarp& state, int lane, std::uint64_t address, std::size_t bytes) {
  for (std::size_t i = 0; i < launch_.prior_grids.size(); ++i) {
    const GridFootprint::Cell* const cell = cell_at(*launch_.prior_grids[i].footprint, address);
    const auto mask = static_cast<std::uint16_t>(((1u << bytes) - 1) << (address % 16));
    if (cell == nullptr || (cell->written & mask) == 0 || (cell->plain_written & mask) != 0) continue;
    state.for_views(Mask{1} << lane, [&](RaceView& view) {
      view.seen.raise(agent_of(i), 1);
      view.wide.raise(agent_of(i), 1);
    });
  }
}

void RaceDetector::check_prior(const RaceRecord& now, const Accessor& accessor, std::uint64_t address) {
  for (std::size_t i = 0; i < launch_.prior_grids.size(); ++i) {
    if (accessor.seen->at(agent_of(i)) != 0) continue;
    const GridFootprint& grid = *launch_.prior_grids[i].footprint;
    const GridFootprint::Cell* const cell = cell_at(grid, address);
    if (cell == nullptr) continue;
    const bool is_atomic = (now.kind & kRaceAtomic) != 0;
    const unsigned written = is_atomic ? cell->plain_written : cell->written;
    const unsigned read = !is_write(now) ? 0u : is_atomic ? cell->plain_read : cell->read;
    const unsigned common = now.bytes & (written | read);
    if (common == 0) continue;
    if (!reported_.insert({static_cast<std::uint32_t>(cell->line), now.pc, kPriorGrid + static_cast<std::uint32_t>(i)})
             .second)
      continue;
    const int byte = std::countr_zero(common);
    const bool is_after_write = (written >> byte & 1) != 0;
    EmulatorFinding finding =
        finding_of(accessor, "missing-griddepcontrol-wait", lane_at(now, byte), address + static_cast<unsigned>(byte));
    finding.message =
        fmt::format("{}, and nothing orders it after the {} by the kernel before, {} (its PTX line {})",
                    is_write(now) ? "write" : "read", is_after_write ? "write" : "read", grid.entry, cell->line);
    finding.cause =
        launch_.prior_grids[i].is_waited_for
            ? "launched with programmatic stream serialization: griddepcontrol.wait, by the thread itself or by one "
              "that it meets, before it touches what the kernel before reads or writes"
            : "griddepcontrol.wait is for the end of the one kernel before, and a kernel between the two executes none";
    launch_.findings.add(std::move(finding));
  }
}

}  // namespace tessera::emulator

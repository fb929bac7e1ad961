// Grids that a programmatic dependent launch may run beside. PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide,
// "Programmatic Dependent Launch and Synchronization".
//
// A grid that is launched with programmatic stream serialization may start once every CTA of the grid before it has
// executed griddepcontrol.launch_dependents or has ended. From there on nothing orders the two, until a thread of the
// dependent executes griddepcontrol.wait: then the grid before has ended and its writes are seen, by that thread and by
// all that it meets or tells. Here one grid runs after the other; the race detector takes them for grids that overlap.
// It keeps what the earlier one did to global memory as a footprint, and each earlier grid is an agent that is seen by
// the wait.
//
// The wait is for the one grid before. What came before that one has ended too only where that one waited itself; so a
// grid that does not wait leaves those before it to its dependents. A grid without launch_dependents is ordered before
// its dependents (PTX asks for the wait where the earlier grid is "employing" it).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::emulator {

class Launch;

/// What a grid did to global memory, as far as the race detector's records tell.
struct GridFootprint {
  /// 16 bytes, as masks. plain: by accesses that are not atomic.
  struct Cell {
    std::uint16_t read = 0, written = 0, plain_read = 0, plain_written = 0;
    std::int32_t line = 0;  ///< in the PTX: of a write, else of a read
  };
  using Page = std::array<Cell, 256>;
  std::string entry;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages;  ///< by address / 4096
  struct Place {
    std::string instruction, source, source_file;
    std::int32_t source_line = 0;
  };
  std::map<std::int32_t, Place> places;  ///< of the cells' lines
};

/// A grid that may still run when another one starts.
struct PriorGrid {
  std::shared_ptr<const GridFootprint> footprint;
  bool is_waited_for = true;  ///< griddepcontrol.wait of the later grid waits for its end
  bool ends_first = false;    ///< the later grid lets its dependents start only after that wait
};

/// What a dependent of this launch, which has ended here, may run beside.
std::vector<PriorGrid> prior_grids_after(const Launch& launch);

}  // namespace tessera::emulator

// Where the CTAs of a cooperative grid meet.
#pragma once

#include <algorithm>
#include <cstring>

#include "emulator/machine.h"

namespace tessera::emulator {

// Zeroed memory for the grid barrier of cooperative groups, which a cooperative launch has; here every launch of a
// kernel that asks for it and whose CTAs run at once. Without it the barrier traps, and all else of a grid works.
class GridWorkspace {
 public:
  GridWorkspace(GlobalMemory& memory, const Entry& entry, const LaunchShape& shape, LaunchOptions& options)
      : memory_(memory) {
    const bool is_asked_for = std::any_of(entry.specials.begin(), entry.specials.end(), [](const SpecialSlot& slot) {
      return slot.special == Special::envreg1 || slot.special == Special::envreg2;
    });
    if (!is_asked_for) return;
    const std::uint64_t ctas = std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
    options.lacks_grid_workspace = ctas > static_cast<std::uint64_t>(options.num_sms);
    if (options.lacks_grid_workspace) return;
    address_ = options.grid_workspace = memory.allocate(kBytes);
    std::memset(memory.data(address_), 0, kBytes);
    memory.mark_initialised(address_, kBytes);
  }
  ~GridWorkspace() {
    if (address_ != 0) memory_.free(address_);
  }
  GridWorkspace(const GridWorkspace&) = delete;
  GridWorkspace& operator=(const GridWorkspace&) = delete;

 private:
  static constexpr std::size_t kBytes = 64;
  GlobalMemory& memory_;
  std::uint64_t address_ = 0;
};

}  // namespace tessera::emulator

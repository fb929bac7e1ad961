// Pages that a process has, seen from outside: where they are mapped and how, and work on them while the thread that
// asks for it does not stand on one of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::emulator {

struct HostMapping {
  std::uint64_t begin = 0, end = 0;
  bool is_readable = false, is_writable = false, is_executable = false, is_shared = false, is_stack = false;
};

/// A line of /proc/self/maps: BEGIN-END PERMISSIONS OFFSET DEVICE INODE NAME. False: it is none. Allocates nothing.
bool read_mapping(std::string_view line, HostMapping& mapping) noexcept;

/// The process's mappings that the range meets, in order; each is cut to it.
std::vector<HostMapping> mappings_of(std::uint64_t begin, std::uint64_t end);

/// Runs the work on a stack of its own: that of the caller stands still meanwhile, so that its pages may be copied and
/// replaced. One at a time: who calls holds a lock. The work allocates nothing.
void on_other_stack(void (*work)(void*), void* argument);

}  // namespace tessera::emulator

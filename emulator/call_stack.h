// The calls of a warp's lanes that are not expanded: each lane has frames of its own, since lanes of one warp may call
// different functions, or one function to different depths. PTX ISA, "Control Flow Instructions: call, ret", "Stack
// Manipulation Instructions".
//
// A function has one set of registers in the warp's file. A call saves those of the lanes that call, because an earlier
// call of theirs may still use them, and the return puts them back. Variables and parameters of the function lie in the
// lane's own stack, behind what the kernel itself declares.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emulator/instructions/lanes.h"

namespace tessera::emulator {

struct CallFrame {
  std::uint32_t return_pc = 0;  ///< one behind the call
  std::uint32_t function = 0;   ///< index into Entry::functions
  std::uint64_t base = 0;       ///< local address of the first byte
  std::uint64_t caller_top = 0;
  std::vector<std::byte> saved;  ///< registers of the function, for this lane
};

class CallStack {
 public:
  explicit CallStack(std::uint64_t first_free) { top.fill(first_free); }
  std::array<std::vector<CallFrame>, kLanes> frames;
  std::array<std::uint64_t, kLanes> top{};  ///< the first free byte of each lane's local memory
};

/// The lanes' stacks; made when they are first asked for.
CallStack& call_stack(Warp& w);

/// Takes bytes from a lane's stack: their local address. False: the stack has no room.
bool take_stack(Warp& w, int lane, std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& address);

/// Bytes of a thread's stack at this launch: as deep as all resident threads may go in 64 MiB, 2 KiB to 64 KiB.
std::uint64_t stack_bytes(const LaunchShape& shape, int num_sms);

}  // namespace tessera::emulator

// What an instruction does to memory, read from its opcode once: for statistics, which look at addresses before the
// instruction runs.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/syntax/program.h"

namespace tessera::emulator {

struct AccessClass {
  enum class Space : std::uint8_t { none, generic, global, shared, local, param };
  std::string name;  ///< "ld.shared", "ldmatrix", ...; empty: touches no memory through its lanes' addresses
  Space space = Space::none;
  std::uint32_t bytes = 0;  ///< of one lane; ldmatrix and stmatrix: of a row
  bool reads = false, writes = false;
  bool is_wmma = false;
  int matrices = 0;                  ///< ldmatrix, stmatrix: how many 8 x 8 ones
  const Operand* address = nullptr;  ///< null: not looked at
};

AccessClass classify_access(const Instruction& in);

/// Multiply-adds of one execution by one warp: mma.sync and wgmma, whose shape stands in the opcode; 0 for all others.
std::uint64_t multiply_adds(const Instruction& in);

/// Those of a tcgen05.mma, whose shape stands in its instruction descriptor; 0 for all others.
std::uint64_t tensor_multiply_adds(const Warp& warp, const Instruction& in, int lane);

/// "ld.global", "wgmma.mma_async", "add": the opcode without types and most modifiers.
std::string opcode_group(const Instruction& in);

}  // namespace tessera::emulator

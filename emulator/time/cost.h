// What each instruction of a kernel costs, decoded once: its class in the description, the registers whose values it
// needs and gives, what it does to memory.
//
// PTX is not machine code. Where a rule of the assembler is certain it stands in class_name(): a move between registers
// is none, 64-bit integers take two instructions. Registers and spills come from the assembler's report, where the
// caller has it (TimeRequest).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/instructions/access_class.h"
#include "emulator/time/gpu_time.h"

namespace tessera::emulator {

/// What the clock does about an instruction beside its pipe.
enum class CostKind : std::uint8_t {
  plain,
  free,
  shared,
  global,
  local,
  atomic,
  wgmma,
  mma,  ///< of a warp, in registers
  tma,
  copy,
  wait,
  tensor_memory,
  tensor_wait
};

inline constexpr std::uint32_t kAlone = 0xFFFFFFFF;  ///< a load that no other joins

struct InstructionCost {
  ClassTime time;
  CostKind kind = CostKind::plain;
  bool is_movable = false;     ///< arithmetic, which the assembler puts where its operands are there
  bool ends_block = false;     ///< what stands before it has been issued
  bool is_late_store = false;  ///< of shared memory
  bool needs_stores = false;   ///< tells others, or reads, what was stored before
  bool uses_l1 = false;        ///< a load whose bytes the L1 may answer
  bool is_guarded = false;     ///< a load behind a branch that the assembler makes a predicate of
  double repeat = 1;           ///< machine instructions of its class
  std::uint32_t first = 0, sources = 0, destinations = 0;  ///< in EntryCosts::places: sources, then destinations
  AccessClass access{};
  /// Loads of four bytes of shared memory that lie side by side are one to the assembler, where it can be aligned: the
  /// pc of the one that comes first in the PTX; of that one, the bytes of all and how many of them are below its own.
  std::uint32_t joins = kAlone, joined_bytes = 0, below = 0;
  double mean_wavefronts = 0;  ///< of a shared access, as far as they were looked at
  std::uint32_t looked_at = 0;
};

struct EntryCosts {
  std::vector<InstructionCost> by_pc;
  std::vector<std::uint32_t> places;  ///< dense numbers of registers
  std::uint32_t num_places = 0;

  /// The loads that join this one are part of it from now on: they can be aligned.
  void join(std::size_t pc);
};

EntryCosts costs_of(const Entry& entry, const GpuTime& gpu);

/// The class of the description that an instruction belongs to, and how many machine instructions it is.
std::string class_name(const Instruction& in, double& repeat, CostKind& kind);

}  // namespace tessera::emulator

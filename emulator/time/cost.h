// What each instruction of a kernel costs, decoded once: its class in the description, the registers whose values it
// needs and gives, what it does to memory.
//
// PTX is not machine code. Where a rule of the assembler is certain it stands in class_name(): a move between registers
// is none, 64-bit integers take two instructions. Registers and spills come from the assembler's report, where the
// caller has it (TimeRequest).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
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

class Chains;

inline constexpr std::uint32_t kAlone = 0xFFFFFFFF;  ///< a load that no other joins
inline constexpr std::uint8_t kUnrolled = 4;         ///< turns of a loop that are one to the machine

struct InstructionCost {
  ClassTime time;
  CostKind kind = CostKind::plain;
  bool is_movable = false;     ///< arithmetic, which the assembler puts where its operands are there
  bool ends_block = false;     ///< what stands before it has been issued
  bool is_late_store = false;  ///< of shared memory
  bool needs_stores = false;   ///< tells others, or reads, what was stored before
  bool is_counter = false;     ///< an atomic addition that may tell a CTA which tile is its next
  bool uses_l1 = false;        ///< a load whose bytes the L1 may answer
  std::uint8_t guards = 0;     ///< predicate registers of a load behind a branch that the assembler makes some of
  /// Of such a branch: machine instructions that stand behind it and issue, without an effect, when it is taken.
  std::uint16_t skipped = 0;
  double repeat = 1;                                       ///< machine instructions of its class
  std::uint32_t first = 0, sources = 0, destinations = 0;  ///< in EntryCosts::places: sources, then destinations
  AccessClass access{};
  /// Loads of four bytes of shared memory that lie side by side are one to the assembler, where it can be aligned: the
  /// pc of the one that comes first in the PTX; of that one, the bytes of all and how many of them are below its own.
  std::uint32_t joins = kAlone, joined_bytes = 0, below = 0;
  /// Of a loop that the assembler unrolls, by its number; of its counters' steps, its comparison and its branch one in
  /// kUnrolled is an instruction.
  std::uint32_t loop = kAlone;
  bool is_step = false, is_back_edge = false;
  bool goes_by_words = false;  ///< its words lie side by side in following turns of the loop: one load of 16 bytes
  const void* seen_by = nullptr;
  std::uint64_t seen_at = 0;   ///< by that warp, in the last turn
  double mean_wavefronts = 0;  ///< of a shared access, as far as they were looked at
  std::uint32_t looked_at = 0;
};

struct EntryCosts {
  std::vector<InstructionCost> by_pc;
  std::unordered_map<std::size_t, std::array<double, kPipes>>
      skipped;                        ///< by pc of a branch that is none: of each pipe
  std::vector<std::uint32_t> places;  ///< dense numbers of registers
  std::uint32_t num_places = 0, num_loops = 0;

  /// The loads that join this one are part of it from now on: they can be aligned.
  void join(std::size_t pc);
};

EntryCosts costs_of(const Entry& entry, const GpuTime& gpu);

/// Branches over a few instructions, which get a predicate instead (predicates.cpp).
void make_predicates(const Entry& entry, EntryCosts& costs);
/// What of those instructions issues where the branch is taken; when all others are known to be instructions or none.
void count_skipped(const Entry& entry, EntryCosts& costs);

/// Sums of a register and a constant that are addresses alone are no instructions (loops.cpp).
void fold_addresses(const Entry& entry, const Chains& chains, EntryCosts& costs);

/// Loops of few instructions that count by a constant, which the assembler unrolls (loops.cpp).
void find_loops(const Entry& entry, EntryCosts& costs);

/// Halves of registers that are taken where they are (values.cpp).
void fold_halves(const Entry& entry, const Chains& chains, EntryCosts& costs);

/// Operations on the same values as one before them in their basic block (values.cpp).
void find_repeated(const Entry& entry, EntryCosts& costs);

/// Operations that the assembler makes one of, and those of its uniform datapath (assembler.cpp).
void join_operations(const Entry& entry, const Chains& chains, EntryCosts& costs);
void find_uniform(const Entry& entry, const Chains& chains, EntryCosts& costs);

/// The class of the description that an instruction belongs to, and how many machine instructions it is.
std::string class_name(const Instruction& in, double& repeat, CostKind& kind);

}  // namespace tessera::emulator

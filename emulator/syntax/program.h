// A PTX module made ready to run: registers are offsets into a warp's register file, labels are instruction indices,
// every instruction points at its handler.
//
// Register file: each register holds its 32 lanes side by side (16-, 32-, 64-, 128-bit elements), a predicate is one
// 32-bit mask. Immediates, symbol addresses and special registers that do not change are registers too, filled when a
// warp starts, so that a handler never asks what kind of source it has.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/syntax/syntax.h"
#include "emulator/syntax/types.h"
#include "tessera/error.h"

namespace tessera::emulator {

class Warp;
struct Form;
struct Instruction;

using Mask = std::uint32_t;
inline constexpr int kLanes = 32;
inline constexpr Mask kAllLanes = 0xFFFFFFFF;
inline constexpr std::uint32_t kNoGuard = 0xFFFFFFFF;

/// What the warp does after an instruction.
enum class Step : std::uint8_t {
  next,     ///< goes on with the following instruction
  jumped,   ///< the handler has set the warp's pc
  blocked,  ///< waits for what the handler left in Warp::wait, then executes the instruction again
  yielded,  ///< goes on after the other warps had their turn
  exited,   ///< no lane of the running group is left
  fault     ///< a failure was reported: the launch ends
};

using Handler = Step (*)(Warp& warp, const Instruction& in, Mask active);

struct Operand {
  enum class Kind : std::uint8_t { none, reg, predicate, address, list, label };
  Kind kind = Kind::none;
  std::uint8_t bytes = 0;     ///< of one lane's element (reg, address: of the base)
  bool is_negated = false;    ///< predicate
  bool is_immediate = false;  ///< value is its bit pattern, the same in all lanes
  bool is_sink = false;       ///< `_`, or left out
  bool is_destination = false;
  std::uint16_t count = 0;            ///< list
  std::uint32_t offset = 0;           ///< into the register file
  std::int64_t value = 0;             ///< address: displacement; label: pc; immediate: bits
  const Operand* elements = nullptr;  ///< list
};

struct Instruction {
  Handler run = nullptr;
  const Operand* op = nullptr;
  std::uint32_t guard = kNoGuard;  ///< offset of the predicate
  bool guard_negated = false;
  std::uint8_t num_operands = 0;
  std::uint16_t flags = 0;   ///< the handler's own
  std::uint32_t number = 0;  ///< the handler's own: a count, a size, a shape
  std::int32_t line = 0;     ///< in the PTX
  std::int32_t source_file = 0;
  std::int32_t source_line = 0;
  std::int32_t caller = -1;  ///< index into syntax::Module::callers
  const Form* form = nullptr;
  std::string_view opcode;
};

/// A constant that every warp starts with.
struct ConstantSlot {
  enum class Relocation : std::uint8_t { none, shared };  ///< shared: the CTA's rank is added in bits 24 and up
  std::uint64_t bits = 0;
  std::uint32_t offset = 0;
  std::uint8_t bytes = 0;  ///< 0: a predicate mask
  Relocation relocation = Relocation::none;
};

enum class Special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  nclusterid_x,
  nclusterid_y,
  nclusterid_z,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_nctaid_x,
  cluster_nctaid_y,
  cluster_nctaid_z,
  cluster_ctarank,
  cluster_nctarank,
  is_explicit_cluster,
  dynamic_smem_size,
  total_smem_size,
  aggr_smem_size,
  reserved_smem_end,  ///< and its size: the region begins at 0
  envreg,             ///< those of which nothing is known: 0
  envreg1,
  envreg2,
  clock,
  clock_hi,
  clock64,
  globaltimer,
  globaltimer_lo,
  globaltimer_hi
};

struct SpecialSlot {
  Special special = Special::tid_x;
  std::uint32_t offset = 0;
  std::uint8_t bytes = 4;
};

struct ParameterSlot {
  std::string name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// A tuple with a register that nothing can have written, and the handler that this finding stands before.
struct UndefinedRead {
  int operand = 0;
  int element = 0;
  Handler handler = nullptr;
  bool is_accumulator = false;  ///< of wgmma: read unless scale-d is false
};

/// A place in the register file; while an entry is resolved, a virtual register.
struct RegisterPlace {
  std::uint32_t offset = 0;
  std::uint8_t bytes = 0;  ///< of one lane; 0: a predicate mask
};

/// A function that is not expanded where it is called: its address is taken, it calls itself, or it uses alloca. A call
/// saves its registers for the lanes that call and gives it a frame on their stacks (call_stack.h).
struct OutOfLine {
  const syntax::Function* function = nullptr;
  std::uint32_t pc = 0;
  std::uint32_t frame_bytes = 0;
  std::uint32_t alignment = 16;
  std::vector<ParameterSlot> parameters;  ///< offsets in the frame
  std::vector<ParameterSlot> results;
  std::vector<RegisterPlace> registers;  ///< those that hold values from one basic block to another
  /// Registers that a call fills with the address of something in the frame.
  struct Address {
    RegisterPlace place;
    std::uint64_t offset = 0;  ///< from the frame's first byte, the generic window's base included
  };
  std::vector<Address> addresses;
};

/// One kernel.
struct Entry {
  std::string name;
  /// Why it cannot be launched: what the emulator does not know, with lines. Empty: it can.
  std::vector<Diagnostic> problems;
  std::vector<Instruction> code;
  std::uint32_t start_pc = 0;                     ///< behind the functions that are called
  std::vector<OutOfLine> functions;               ///< those that are not expanded
  bool has_stack = false;                         ///< of calls that are not expanded, or of alloca
  std::map<std::uint32_t, std::string> refusals;  ///< by pc: what the emulator does not provide, said when reached
  std::vector<ConstantSlot> constants;
  std::vector<SpecialSlot> specials;
  std::vector<ParameterSlot> parameters;
  std::size_t parameter_bytes = 0;
  std::uint32_t register_file_bytes = 0;
  std::uint32_t static_smem_bytes = 0;
  std::uint32_t reserved_smem_offset = 0;  ///< what %reserved_smem_offset_1 names, for the runtime's code alone
  std::uint32_t reserved_smem_bytes = 0;
  std::uint32_t dynamic_smem_offset = 0;  ///< where `.extern .shared` arrays start, from the first byte
  std::uint32_t local_bytes = 0;          ///< of one thread
  std::uint32_t max_threads = 0;          ///< .maxntid or .reqntid; 0: not stated
  std::uint32_t max_registers = 0;        ///< .maxnreg; 0: not stated
  std::uint32_t min_ctas_per_sm = 0;      ///< .minnctapersm; 0: not stated
  std::array<std::uint32_t, 3> required_cluster{0, 0, 0};
  std::map<std::uint32_t, UndefinedRead> undefined_reads;  ///< by pc
  std::vector<std::uint32_t> unread_atomics;               ///< pc of each atom whose result nothing reads, ascending
  /// By pc of an arrival on an mbarrier: loads of shared memory whose value nothing may have needed yet.
  std::map<std::uint32_t, std::vector<std::uint32_t>> reads_under_way;
  std::deque<std::vector<Operand>> operand_lists;  ///< what Instruction::op and Operand::elements point into
};

/// A variable of the module in global or constant memory; the device places it before resolving.
struct ModuleVariable {
  std::string name;
  std::size_t bytes = 0;
  std::size_t alignment = 1;
  std::uint64_t address = 0;
  std::vector<std::byte> initial;  ///< zero-filled to bytes
};

struct Program {
  syntax::Module module;  ///< keeps the text alive
  std::deque<Entry> entries;
  std::vector<ModuleVariable> variables;

  /// What `mov` gives for a function's name; 0: no function of the module.
  std::uint64_t function_address(std::string_view name) const;
  /// nullptr: no function has this address.
  const syntax::Function* function_at(std::uint64_t address) const;

  /// "ptx/mbarrier.cuh:40 from fmha/ring.cuh:57": the template's place of an instruction and where it was inlined; ""
  /// without line tables.
  std::string place_of(const Instruction& in) const;
  /// The template's file of an instruction, "" without one.
  std::string_view source_file(int index) const {
    for (const syntax::SourceFile& file : module.files)
      if (file.index == index) return file.path;
    return {};
  }
};

}  // namespace tessera::emulator

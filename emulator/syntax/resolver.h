// syntax::Module to Program: names to registers, symbols and labels, opcodes to forms and handlers.
#pragma once

#include <functional>

#include "emulator/syntax/program.h"

namespace tessera::emulator {

struct LoadOptions {
  bool shares_places = true;           ///< registers do (assign_registers)
  bool finds_reads_under_way = false;  ///< for the race detector
};

/// Reads a module, finds its global and constant variables, asks `place` for an address for each, then resolves every
/// entry. Throws Error{compile} with the module's problems, each with its line, or where no entry can be launched;
/// otherwise the problems of an entry, an unknown instruction say, stay with it (Entry::problems).
std::unique_ptr<Program> load_program(std::string_view ptx, std::string_view file,
                                      const std::function<std::uint64_t(const ModuleVariable&)>& place,
                                      LoadOptions options = {});

/// Gives every virtual register its place in the register file. Registers that live within one basic block share
/// places, which keeps the working set of straight-line code in the first-level cache. On entry Operand::offset and
/// Instruction::guard are indices into `virtual_types`; afterwards they are byte offsets.
struct VirtualRegister {
  Type type = Type::b32;
  bool is_pinned = false;  ///< constants, special registers, registers of asynchronous instructions
};
/// shares_places false: every register has a place of its own.
void assign_registers(Entry& entry, std::vector<VirtualRegister>& registers, bool shares_places);

/// Fills Entry::undefined_reads and puts the report before those handlers; operands still hold virtual registers.
void find_undefined_reads(Entry& entry, std::size_t num_registers);

/// Marks waits on mbarriers whose answer nobody looks at; operands still hold virtual registers.
void find_ignored_waits(Entry& entry);
void find_given_up_waits(Entry& entry);

/// Fills Entry::reads_under_way; operands still hold virtual registers.
void find_reads_under_way(Entry& entry, std::size_t num_registers);

}  // namespace tessera::emulator

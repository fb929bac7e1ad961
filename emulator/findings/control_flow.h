// Where an instruction may go, for what is found out about a kernel's text when it is loaded.
#pragma once

#include "emulator/syntax/isa.h"
#include "emulator/syntax/program.h"

namespace tessera::emulator {

/// The following instruction is not reached from this one.
inline bool ends_path(const Instruction& in) {
  const std::string_view name = in.form->mnemonic;
  return in.guard == kNoGuard &&
         (name == "bra" || name == "brx.idx" || name == "exit" || name == "ret" || name == "trap");
}

/// Calls f with each place that the instruction names.
template <class F>
void for_labels(const Instruction& in, F f) {
  for (int i = 0; i < in.num_operands; ++i) {
    if (in.op[i].kind == Operand::Kind::label) f(static_cast<std::size_t>(in.op[i].value));
    for (int j = 0; j < in.op[i].count; ++j)
      if (in.op[i].elements[j].kind == Operand::Kind::label) f(static_cast<std::size_t>(in.op[i].elements[j].value));
  }
}

}  // namespace tessera::emulator

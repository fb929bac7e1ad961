// `.func (.reg .u32 r) f (.reg .u32 a)`, and calls whose arguments are registers and numbers: the same module with all
// of them in .param variables. PTX ISA, "Kernel and Function Directives: .func", "Control Flow Instructions: call".
#pragma once

#include "emulator/syntax/syntax.h"

namespace tessera::emulator {

void pass_parameters_in_memory(syntax::Module& module);

}  // namespace tessera::emulator

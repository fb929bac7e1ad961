// PTX text to syntax::Module.
#pragma once

#include <string>
#include <string_view>

#include "emulator/syntax/syntax.h"

namespace tessera::emulator {

/// Throws Error{compile} that carries a Diagnostic (line, column, caret) for every problem found, at most 20; problems
/// in the body of a function stay with it (syntax::Function::problems).
syntax::Module parse_ptx(std::string_view text, std::string_view file);

}  // namespace tessera::emulator

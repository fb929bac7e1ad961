// Runs one twin of a bug file: tensor-map rules or planner, compile, load, launch, findings, numbers; whoever sees the
// mistake first speaks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emulator/machine.h"
#include "tessera/compiler.h"
#include "tests/bugs/bug_file.h"

namespace tessera::bugs {

/// The values of a buffer, and how to name them.
struct BugTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<double> values;  ///< raw bytes for u8
};

struct Outcome {
  std::string text;                ///< one finding a line; empty: clean
  std::vector<std::string> names;  ///< of the emulator's findings; else "tensor-map", "planner", "refused", "mismatch"
};

/// Compiles PTX for a case; "" without a compiler for its language.
std::string ptx_of(const BugCase& bug, Compiler* compiler);
/// What the case says under a schedule. ptx: from ptx_of; not read where there is no kernel.
Outcome run_case(const BugCase& bug, const std::string& ptx, emulator::Schedule schedule, std::uint64_t seed);

/// What `expect` computes, element by element. Throws std::runtime_error for unknown words.
std::vector<double> reference_values(const std::vector<std::string>& words,
                                     const std::map<std::string, BugTensor>& inputs,
                                     const std::vector<std::int64_t>& shape);

}  // namespace tessera::bugs

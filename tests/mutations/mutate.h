// Faults planted in PTX, one instruction at a time: what a slip in a template would do to the code.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::mutations {

/// A register that no instruction has written, under a branch or a guard or not at all: needs Subject::run(is_strict).
inline constexpr const char* kUnwritten = "drop mov.b32";

struct Mutant {
  std::string kind;  ///< "drop wgmma.wait_group", ...
  int line = 0;      ///< in the PTX, from 1
  std::string ptx;
};

/// How one kind changes a line that it applies to.
struct Kind {
  const char* name;
  const char* opcode;  ///< the instruction's start
  std::function<std::string(const std::string&)> change;
};

/// Slips in code for tcgen05 and for the TMA copies that such kernels make.
const std::vector<Kind>& tcgen05_kinds();

/// Slips in code that loads, converts and stores without asynchronous copies.
const std::vector<Kind>& block_kinds();

/// Which kinds besides those that any kernel may have.
enum class Family { products, blocks };

/// Every place of every kind, in order; lines keep their numbers.
std::vector<Mutant> mutants_of(const std::string& ptx, Family family);

/// The PTX with one line replaced.
std::string with_line(const std::string& ptx, int line, const std::string& text);

}  // namespace tessera::mutations

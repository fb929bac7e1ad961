// What attention's consumers on Hopper do with registers that have names, whatever the family: "s0", a score; "o0", an
// accumulator of O; "p0", of P as the A operands of products. A row's values are every second pair.
#pragma once

#include <string>
#include <string_view>

#include "generator/attention/assembly_text.h"

namespace tessera::fmha {

/// declare(), once, at the kernel's entry.
std::string declare_registers(int scores, int outputs, int registers_of_p);
/// find_maxima(): the largest score of each row in this thread.
std::string find_maxima_text(int scores);
/// exponentiate(): scores become probabilities, and are summed.
std::string exponentiate_text(int scores);
/// pack(): P of them, of `type`.
std::string pack_text(int registers_of_p, std::string_view type);
/// rescale(): O times a factor of each row.
std::string rescale_text(int outputs);

/// The sums of two rows, two chains each, of a statement whose first operands they are.
Statement& begin_sums(Statement& statement);
std::string sum_text(int score);
Statement& end_sums(Statement& statement);

}  // namespace tessera::fmha

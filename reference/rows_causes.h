// Which mistake of a row operator gives what was found: mistakes that people make are put into the chain, its inputs or
// a copy of the results, and the one under which the wrong elements become right is named.
#pragma once

#include <string>
#include <vector>

#include "reference/rows.h"

namespace tessera::reference {

/// Elements of these rows that are wrong.
std::int64_t count_wrong_rows(const RowsRun& run, const std::map<std::string, Tensor>& in,
                              const std::map<std::string, Tensor>& out, const std::vector<std::int64_t>& rows);

/// "likely cause: CAUSE (explains 310 of 312 wrong elements that were looked at)" of the first mistake that leaves at
/// most a tenth of them; empty if none does.
std::string likely_cause_of_rows(const RowsRun& run, const std::map<std::string, Tensor>& in,
                                 const std::map<std::string, Tensor>& out, std::vector<std::int64_t> wrong_rows);

}  // namespace tessera::reference

// Problems of a list without a kernel, or with sizes that no launch takes: how warm and check report them, and what
// they make of the exit code.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/json_stream.h"

namespace tessera::cli {

struct Rejected {
  std::size_t index = 0;  ///< of the problem in its list
  std::string reason;
};

/// "rejected: shapes.json:3:5: fmha --head-dim 80: fmha has no kernel ...", a line for each of the first 20.
void report_rejected(const Call& call, const ProblemList& list, const std::vector<Rejected>& rejected);
/// Of a call that fails for them and was told to be quiet: how many, and why the first, in one line.
void complain_of_rejected(const Call& call, std::size_t count, const std::string& first);
/// The member "rejections": [{problem, place, reason}]
void print_rejections(JsonStream& json, const ProblemList& list, const std::vector<Rejected>& rejected);
/// 3 where an explicit entry is among them, nothing else is left, or the call is strict; else 0.
ExitCode rejection_code(const ProblemList& list, const std::vector<Rejected>& rejected, bool is_strict);

}  // namespace tessera::cli

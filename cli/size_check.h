// The offline part of warm and check: every concrete size of every problem against the launch of its kernel.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/size_flags.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/plan.h"

namespace tessera::cli {

/// Plans each distinct kernel once and keeps what sizes its launch takes, once for all kernels that agree on them.
class SizeCheck {
 public:
  explicit SizeCheck(const SizeFlags& flags) : flags_(flags) {}

  /// Why launch would refuse the sizes of a problem with that kernel; empty when it would not, or none is given. Where
  /// they are given in part, what follows from that part is checked, and the problem counted.
  std::string refusal(const Problem& problem, const std::string& kernel);
  /// "2 problems give their sizes in part: what depends on batch, seqlen_k was not checked"; empty: none did.
  std::string partly_checked() const;
  /// Throws Error{usage} for a typed name that none of the kernels so far has: a slip of the keys, where a list of
  /// several operators may well have kernels without a size that others have.
  void require_known_names() const;

 private:
  const LaunchSizes& sizes_of(const Problem& problem, const std::string& kernel);
  void look_for_names(const LaunchSizes& sizes);
  const SizeFlags& flags_;
  KernelSizes sizes_;
  std::int64_t num_partly_checked_ = 0;
  std::set<std::string> unknown_;                    // sizes that problems with others lack
  std::set<std::string> found_names_;                // typed ones that some kernel has
  std::map<std::string, std::string> missed_names_;  // and what the first kernel without it says
};

}  // namespace tessera::cli

// The offline part of warm and check: every concrete size of every problem against the launch of its kernel.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/launch_sizes.h"
#include "generator/plan.h"

namespace tessera::cli {

/// Plans each distinct kernel once and keeps its launch.
class SizeCheck {
 public:
  /// Why launch would refuse the problem's sizes; empty when it would not, or when they are not all known. Throws
  /// Error{unsupported} when no kernel exists.
  std::string refusal(const Problem& problem);

 private:
  struct Kernel {
    Plan plan;
    LaunchSizes sizes;
    explicit Kernel(Plan p) : plan(std::move(p)), sizes(plan.launch) {}
  };
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace tessera::cli

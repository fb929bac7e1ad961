// Offline: the sizes of a launch from what a problem expects, and everything that can be known of the launch without a
// device: ranges, domain, tensor maps by their rules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/size_rules.h"
#include "base/tensor_map_resolve.h"
#include "tessera/launch.h"
#include "tessera/problem.h"

namespace tessera {

/// A size that was given by name.
struct GivenSize {
  std::string name;
  std::int64_t value = 0;
};

/// Sizes as far as they are known.
struct KnownSizes {
  std::vector<std::int64_t> values;  ///< in the plan's order; 0 where unknown
  std::vector<bool> is_known;
  std::vector<std::string> unknown;  ///< the names without a value
};

/// The launch of one kernel, bound once and asked for many sizes.
class LaunchSizes {
 public:
  explicit LaunchSizes(const LaunchPlan& plan);

  /// Throws Error{usage}, with the names that exist, where the launch has no such size.
  void require_name(const std::string& name) const;
  /// Given ones, defaults over known sizes for the rest (num_sms: 1 unless given). Throws Error{usage} for a name that
  /// the plan lacks and for a default that overflows.
  KnownSizes known(const std::vector<GivenSize>& given) const;
  /// The values of known(); nothing when one is missing.
  std::optional<std::vector<std::int64_t>> complete(const std::vector<GivenSize>& given) const;
  /// Pitches (ld*, v_stride_dim) that break no rule about them alone, where those of dense rows, or given ones, would.
  std::vector<GivenSize> padded_pitches(const std::vector<GivenSize>& given) const;
  std::map<std::string, std::int64_t> by_name(const std::vector<std::int64_t>& sizes) const;
  /// What launch would refuse, one line each: sizes out of range, domain rules, outputs that overlap themselves,
  /// tensor-map rules (address rules aside).
  std::vector<std::string> problems(const std::vector<std::int64_t>& sizes) const;
  /// The same of what follows from known sizes alone; the rest is not looked at.
  std::vector<std::string> problems(const KnownSizes& sizes) const;
  std::int64_t evaluate(const Expression& expression, const std::vector<std::int64_t>& sizes) const {
    return rules_.evaluate(expression, sizes);
  }
  std::vector<ResolvedTensorMap> resolve(const std::vector<std::int64_t>& sizes) const;
  const LaunchPlan& plan() const { return rules_.plan(); }

 private:
  bool is_known(const Expression& expression, const KnownSizes& sizes) const;
  bool are_known(const std::vector<Expression>& expressions, const KnownSizes& sizes) const;
  void find_overlaps(const KnownSizes& sizes, std::vector<std::string>& found) const;
  void find_broken_maps(const KnownSizes& sizes, std::vector<std::string>& found) const;
  SizeRules rules_;
  std::vector<BoundTensorMap> maps_;
};

/// The sizes of many kernels' launches: each kernel is planned once, and kernels that agree on all that sizes depend on
/// share what is kept.
class KernelSizes {
 public:
  /// Precondition: `kernel` is the problem's. Lives as long as this.
  const LaunchSizes& of(const Problem& problem, const std::string& kernel);
  bool has(const std::string& kernel) const { return by_kernel_.contains(kernel); }

 private:
  struct Launch {
    LaunchPlan plan;
    LaunchSizes sizes;
    explicit Launch(LaunchPlan of) : plan(std::move(of)), sizes(plan) {}
  };
  std::unordered_map<std::string, std::unique_ptr<Launch>> by_plan_;
  std::unordered_map<std::string, const Launch*> by_kernel_;
};

/// `others` added to `given`, in the place of sizes of the same name.
std::vector<GivenSize> with_sizes(std::vector<GivenSize> given, const std::vector<GivenSize>& others);

/// The sizes that a problem's hints give: all that are known.
std::vector<GivenSize> expected_sizes(const Problem& problem);

}  // namespace tessera

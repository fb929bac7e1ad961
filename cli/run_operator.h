// What `run` needs to know of an operator: sizes when the caller gave none, inputs, the verdict.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/comparison.h"
#include "reference/tensor.h"
#include "tessera/device.h"
#include "tessera/error.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/plan.h"

namespace tessera::cli {

/// One sequence of a file of --lengths.
struct SequenceLengths {
  std::int64_t queries = 0, keys = 0;
  std::int64_t line = 0;
};

/// As typed.
struct RunFlags {
  std::string inputs = "normal";  ///< standard, normal, uniform, integer; of attention rising too
  std::string shape;              ///< copy2d: "500,1024", outermost first
  std::string group_rows;         ///< gemm with groups: "80,176"; empty: random ones
  bool pads_rows = false;         ///< pitches of the smallest legal size
  std::int64_t seed = 1;
  bool is_emulated = false;                         ///< example sizes are then small
  bool is_timed = false;                            ///< time alone is asked: nothing that is there to break kernels
  std::optional<double> softmax_scale;              ///< none: the operator's default
  std::optional<double> softcap;                    ///< of attention whose scores are capped; none: 30
  std::string lengths_file;                         ///< of attention: empty, random or where `lengths` are from
  std::vector<SequenceLengths> lengths;             ///< of each sequence; none: random ones
  double alpha = 1, beta = 1;                       ///< gemm
  std::vector<GivenSize> given_sizes;               ///< of the launch by name, like lda
  std::map<std::string, reference::Tensor> arrays;  ///< by buffer name, from .npy files
  std::map<std::string, std::int64_t> sizes;        ///< of the launch by name, once they are complete
};

class RunOperator {
 public:
  virtual ~RunOperator() = default;
  /// What was given, completed with this operator's example sizes.
  virtual std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const = 0;
  virtual std::vector<double> scalars(const Plan& plan, const RunFlags& flags) const = 0;
  /// Dense tensors for every input buffer.
  virtual std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                          const std::vector<std::int64_t>& sizes,
                                                          const RunFlags& flags) const = 0;
  /// Whether how long a launch takes depends on the values that it reads, and not on whole numbers alone.
  virtual bool has_time_by_values() const { return false; }
  /// The verdict over a launch of flags.sizes.
  virtual reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                        const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                        int jobs) const = 0;
};

/// An operator that has a reference.
struct RunRow {
  std::string_view op;
  std::unique_ptr<RunOperator> (*make)();
  std::string_view flags;   ///< of `run` that not all take: "--alpha, --beta"
  bool only_moves = false;  ///< computes nothing: too large for this machine's memory or not, all of it is run
};

/// Throws Error{unsupported} for an operator that has no reference.
const RunRow& run_row(std::string_view op);
std::unique_ptr<RunOperator> make_run_operator(std::string_view op);
/// Throws Error{usage} unless `op` takes the flag: "--shape: is for copy2d; gemm has --m, --n, --k and --l".
void require_flag(std::string_view op, std::string_view flag);
/// Every size of a launch in the plan's order: those that are given, the operator's examples, the device's
/// multiprocessors. Sizes that no launch takes are an error of the kind `refusal`, its notes the further reasons.
std::vector<std::int64_t> sizes_of_run(const RunOperator& op, const Plan& plan, const RunFlags& flags,
                                       const DeviceInfo& device, ErrorKind refusal = ErrorKind::usage);

}  // namespace tessera::cli

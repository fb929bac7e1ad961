// A launch plan compiled for launching: names are indices, every distinct expression is evaluated once, whatever does
// not depend on sizes is settled.
//
// Values: one array per launch. It begins with the sizes, which base/size_rules.h fills in and checks; behind them each
// distinct expression that is more than a size's name has its place. Expressions are evaluated in phases, because a
// later one may overflow where an earlier check refuses: grids and workspace, then each step's own, unless the step is
// skipped.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bound_expression.h"
#include "base/size_rules.h"
#include "base/tensor_map_resolve.h"
#include "runtime/launch_memo.h"
#include "tessera/device.h"
#include "tessera/launch.h"
#include "tessera/launcher.h"

namespace tessera {

/// Sizes, and every expression that the limits of tessera/launch.h let a plan have.
inline constexpr std::size_t kMaxValues =
    kMaxSizes + 1 + kMaxTensorMaps * (2 * kMaxTensorMapRank - 1) + kMaxSteps * (3 + kMaxParameters);

/// Everything about one launch, on the stack. Left uninitialised on purpose: only what the plan has is written and
/// read.
struct LaunchFrame {
  std::int64_t values[kMaxValues];
  float scalars[kMaxScalars];
  TensorMapObject maps[kMaxTensorMaps];
  std::uint32_t encoded;  // bit i: maps[i] is made
  std::uint32_t grids[kMaxSteps][3];
  bool is_skipped[kMaxSteps];
  std::uint64_t parameters[kMaxSteps][kMaxParameters];
  void* pointers[kMaxSteps][kMaxParameters];
  std::int64_t workspace_bytes;
};
static_assert(kMaxTensorMaps <= 32);

class LaunchProgram {
 public:
  /// Precondition: check_launch_plan(plan). The plan must stay where it is.
  LaunchProgram(const LaunchPlan& plan, const DeviceInfo& info);

  /// Fills in defaults and checks ranges and domain; the sizes are then frame.values[0 .. sizes).
  void prepare_sizes(const LaunchArguments& arguments, LaunchFrame& frame) const;
  /// Evaluates and checks everything, and encodes the maps. Starts nothing. What follows from the sizes alone is taken
  /// from the last launch where that had the same.
  void prepare(const LaunchArguments& arguments, Device& device, LaunchFrame& frame) const;
  /// Precondition: prepare_sizes. May be 0 or less: none.
  std::int64_t workspace_bytes(const LaunchFrame& frame) const;
  /// Precondition: prepare_sizes.
  std::vector<std::pair<std::string, ResolvedTensorMap>> resolve_maps(const LaunchArguments& arguments,
                                                                      const LaunchFrame& frame) const;

 private:
  struct Evaluation {
    BoundExpression expression;
    std::size_t value = 0;
  };
  using Phase = std::vector<Evaluation>;

  struct Map {
    ResolvedTensorMap fixed;  // all that needs no size
    std::array<std::size_t, kMaxTensorMapRank> dims{};
    std::array<std::size_t, kMaxTensorMapRank> strides{};
    std::size_t buffer = 0;
    std::uint64_t alignment_mask = 0;
    bool is_fixed_legal = false;           // then only address, dims and strides are left to check
    std::vector<BoundExpression> extents;  // of the buffer
    BoundTensorMap bound;                  // the same, for messages
  };

  struct Parameter {
    ParameterKind kind = ParameterKind::i32;
    std::size_t value = 0;  // of an integer, or the offset of a pointer
    int source = 0;         // index of the tensor map, buffer or scalar; kWorkspace
  };

  struct Step {
    std::array<std::size_t, 3> grid{};
    Phase phase;
    std::vector<Parameter> parameters;
  };

  std::size_t bind(const Expression& expression, Phase& phase, const Phase* earlier = nullptr);
  void bind_map(const TensorMapRecipe& recipe, TensorMapTarget target);
  void bind_step(const LaunchStep& step);
  void run(const Phase& phase, LaunchFrame& frame) const;

  void check_buffers(const LaunchArguments& arguments, const LaunchFrame& frame) const;
  void fill_scalars(const LaunchArguments& arguments, LaunchFrame& frame) const;
  void check_workspace(const LaunchArguments& arguments, std::int64_t bytes) const;
  void prepare_grid(std::size_t index, LaunchFrame& frame) const;
  void prepare_steps(const LaunchArguments& arguments, Device& device, bool is_recalled, LaunchFrame& frame) const;
  void fill_parameters(std::size_t index, const LaunchArguments& arguments, Device& device, LaunchFrame& frame) const;
  bool has_elements(const Map& map, const LaunchFrame& frame) const;
  DevicePointer stand_in(const LaunchArguments& arguments, const LaunchFrame& frame) const;
  void prepare_map(std::size_t index, const LaunchArguments& arguments, Device& device, LaunchFrame& frame) const;
  std::span<const std::int64_t> sizes(const LaunchFrame& frame) const { return {frame.values, plan_.sizes.size()}; }

  const LaunchPlan& plan_;
  std::int64_t num_sms_ = 0;
  TensorMapTarget target_;
  SizeRules rules_;
  std::map<std::string, std::size_t> values_of_texts_;  // while binding
  std::size_t num_values_ = 0;
  Phase common_phase_;
  std::vector<Map> maps_;
  std::size_t workspace_bytes_ = 0;  // a value
  std::vector<Step> steps_;
  mutable std::optional<LaunchMemo> memo_;
};

/// Whether address, dims and strides break no rule, given that nothing else of the map does and that its type is not
/// packed. mask: alignment of address and strides, less 1.
inline bool are_numbers_legal(const ResolvedTensorMap& map, std::uint64_t mask) noexcept {
  if ((map.address & mask) != 0 || map.address >= kTensorMapAddressEnd) return false;
  for (std::uint32_t i = 0; i < map.rank; ++i)
    if (map.dims[i] - 1 >= kMaxTensorMapDim) return false;
  for (std::uint32_t i = 0; i + 1 < map.rank; ++i)
    if ((map.strides_bytes[i] & mask) != 0 || map.strides_bytes[i] >= kTensorMapStrideEnd) return false;
  return true;
}

}  // namespace tessera

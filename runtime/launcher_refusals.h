// Every way in which a launch is refused, out of the launch path: the message says what was found, the bound and, where
// there is one, the remedy. All of them throw.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/stride_overlap.h"
#include "tessera/device.h"
#include "tessera/launch.h"
#include "tessera/launcher.h"

namespace tessera {

// When the launcher is made.

/// Throws Error{device} unless code for plan.arch runs on the device: `sm_90a` on 9.0 alone, `sm_100f` on 10.x from
/// 10.0, `sm_90` on 9.x. An arch that is not of this form is Error{usage}.
void refuse_foreign_code(const LaunchPlan& plan, const DeviceInfo& info);
[[noreturn]] void refuse_parameters(const LaunchStep& step, const std::vector<ParameterLayout>& found);
[[noreturn]] void refuse_smem(const LaunchStep& step, std::int64_t bytes, const DeviceInfo& info);

// When it launches.

[[noreturn]] void refuse_count(const LaunchPlan& plan, std::string_view what, std::size_t found, std::size_t needed);
[[noreturn]] void refuse_missing_size(const LaunchPlan& plan, const SizeSpec& spec);
[[noreturn]] void refuse_missing_scalar(const LaunchPlan& plan, const ScalarSpec& spec);
[[noreturn]] void refuse_scalar(const LaunchPlan& plan, const ScalarSpec& spec, double value);
[[noreturn]] void refuse_size(const LaunchPlan& plan, const SizeSpec& spec, std::int64_t value);
[[noreturn]] void refuse_domain(const LaunchPlan& plan, const DomainRule& rule, std::int64_t lhs, std::int64_t rhs);
[[noreturn]] void refuse_overlap(const LaunchPlan& plan, const BufferSpec& spec, std::span<const std::int64_t> strides,
                                 const StrideOverlap& overlap);
/// Returns when the buffer has no elements.
void check_null_buffer(const LaunchPlan& plan, const BufferSpec& spec, std::span<const std::string> names,
                       std::span<const std::int64_t> sizes);
[[noreturn]] void refuse_alignment(const LaunchPlan& plan, std::string_view name, DevicePointer pointer, int alignment);
[[noreturn]] void refuse_workspace(const LaunchPlan& plan, const LaunchArguments& arguments, std::int64_t bytes);
[[noreturn]] void refuse_grid(const LaunchPlan& plan, const LaunchStep& step, std::size_t dimension, std::int64_t value,
                              std::int64_t max);
[[noreturn]] void refuse_cluster(const LaunchPlan& plan, const LaunchStep& step, std::size_t dimension,
                                 std::int64_t value);
[[noreturn]] void refuse_i32(const LaunchPlan& plan, const KernelParameter& parameter, std::int64_t value);
/// Precondition: the map breaks a rule.
[[noreturn]] void refuse_tensor_map(const LaunchPlan& plan, const ResolvedTensorMap& map, std::string_view name,
                                    TensorMapTarget target);

}  // namespace tessera

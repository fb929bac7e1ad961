// What `run gemm` does for kernels of targets with tcgen05, and by mma.sync for types of 8 and 4 bits: inputs with
// scales, and the verdict over their product.
#pragma once

#include <map>
#include <string>

#include "cli/run_operator.h"

namespace tessera::cli {

bool is_tcgen05_product(const Plan& plan);

/// Whether all sums are whole numbers that fp32 holds: only the result is rounded.
bool is_exact(const RunFlags& flags);

/// Of --group-rows. Throws Error{usage} for what is no list of numbers.
std::vector<std::int64_t> group_rows_of(const RunFlags& flags);
/// s32: the groups that were given, or random ones of l in m rows. Throws Error{usage} for offsets that do not ascend.
reference::Tensor groups_of_run(Grouping grouping, std::int64_t l, std::int64_t m, const RunFlags& flags);

std::map<std::string, reference::Tensor> tcgen05_product_inputs(const Plan& plan, const LaunchSizes& launch,
                                                                const std::vector<std::int64_t>& sizes,
                                                                const RunFlags& flags);
reference::Comparison compare_tcgen05_product(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                              const std::map<std::string, reference::Tensor>& outputs,
                                              const RunFlags& flags, int jobs);

}  // namespace tessera::cli

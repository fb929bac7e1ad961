// Attention of NVFP4 operands for `run`: inputs through the host's quantisation, and the verdict.
#pragma once

#include <map>
#include <string>

#include "cli/run_operator.h"
#include "reference/fmha.h"

namespace tessera::cli {

bool is_nvfp4_attention(const Plan& plan);
/// q, k, v in units, delta_s, row_shift: of random numbers as other kernels get them.
std::map<std::string, reference::Tensor> nvfp4_inputs(const reference::FmhaTensors& made, const RunFlags& flags);
reference::Comparison compare_nvfp4(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                    const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                    double softmax_scale, int jobs);

}  // namespace tessera::cli

// Attention of NVFP4 operands, and their quantisation, for `run`: where sequences lie, inputs through the host's
// quantisation, and the verdict.
#pragma once

#include <map>
#include <string>

#include "cli/run_operator.h"
#include "reference/fmha.h"
#include "reference/nvfp4_sequences.h"

namespace tessera::cli {

bool is_nvfp4_attention(const Plan& plan);
/// Whether some sequence may have another length than the others.
bool has_lengths(const Plan& plan);

/// cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k and block_table, as far as the plan has them.
std::map<std::string, reference::Tensor> nvfp4_places(const Plan& plan,
                                                      const std::map<std::string, std::int64_t>& sizes,
                                                      const RunFlags& flags);
/// Views of `tensors`, which has the places.
reference::Nvfp4Layout nvfp4_layout(const Plan& plan, const std::map<std::string, std::int64_t>& sizes,
                                    const std::map<std::string, reference::Tensor>& tensors);

/// q, k, v in units, delta_s, row_shift: of random numbers as other kernels get them. `made`: dense ones.
std::map<std::string, reference::Tensor> nvfp4_inputs(const Plan& plan, const LaunchSizes& launch,
                                                      const std::vector<std::int64_t>& sizes,
                                                      const reference::FmhaTensors& made, const RunFlags& flags);
/// softcap: 0, or what scores are capped at.
reference::Comparison compare_nvfp4(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                    const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                    double softmax_scale, double softcap, int jobs);

}  // namespace tessera::cli

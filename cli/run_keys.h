// Inputs of `run` for attention whose keys do not lie dense: lengths, tables of pages, pools.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/run_operator.h"
#include "reference/fmha.h"
#include "tessera/internal/launch_sizes.h"
#include "tessera/plan.h"
#include "tessera/spec/attention_types.h"

namespace tessera::cli {

/// 8-bit keys: k and v as numbers of that type, and descales of their own for each sequence and head; 1 where results
/// shall be exact.
void narrow_keys(const Plan& plan, std::uint64_t seed, bool is_exact, reference::FmhaTensors& made,
                 std::map<std::string, reference::Tensor>& all);
/// v_is_k: v, a part of k, has that of k.
void give_descales(const AttentionFacts& facts, const std::map<std::string, reference::Tensor>& inputs,
                   reference::FmhaInputs& in);

/// Completes `all`, which holds what files brought, with lengths (run_lengths.h) and random tables. Keys go where the
/// tables say, wherever these came from; all other bytes of pools are NaN.
void place_keys(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                const RunFlags& flags, const reference::FmhaTensors& made,
                std::map<std::string, reference::Tensor>& all);

/// The verdict over what the tables point to.
reference::Comparison check_placed_keys(const AttentionFacts& facts,
                                        const std::map<std::string, reference::Tensor>& inputs,
                                        const reference::FmhaOutputs& outputs, const RunFlags& flags,
                                        const reference::FmhaCheck& check);

}  // namespace tessera::cli

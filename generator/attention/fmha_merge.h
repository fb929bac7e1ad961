// The kernel that merges split keys: a translation unit of its own, which all kernels share whose parts and output are
// alike. Its Config is the kernel's, of which everything that a merge does not read is as by default.
#pragma once

#include <string>
#include <string_view>

#include "generator/plan_sources.h"
#include "spec/fmha.h"
#include "spec/fmha_latent.h"
#include "spec/fmha_nvfp4.h"
#include "spec/fmha_tcgen05.h"
#include "tessera/spec/attention_types.h"
#include "tessera/targets.h"

namespace tessera {

/// Of parts [num_splits][rows]: what attention/merge.cuh reads.
AttentionFacts merged_facts(const AttentionFacts& facts);

fmha::Config merge_config(const fmha::Config& config);
fmha_latent::Config merge_config(const fmha_latent::Config& config);
fmha_nvfp4::Config merge_config(const fmha_nvfp4::Config& config);
fmha_tcgen05::Config merge_config(const fmha_tcgen05::Config& config);

/// The template that the translation unit includes.
std::string_view merge_header(const AttentionFacts& facts, bool is_dealt);

/// Name of the entry.
template <class Operator>
std::string merge_name(Arch arch, const typename Operator::Config& config) {
  return Operator::kernel_name(arch, merge_config(config)) + "_merge";
}

/// More threads than a merge has, as most kernels whose parts it merges: told of its 128, ptxas takes 126 registers in
/// place of 91 for parts by number, which ran 1.4 % slower (H200, 28.6 us in place of 28.2).
inline constexpr std::string_view kMergeBounds = "384, 1";

/// For Operator::merge_code().
template <class Operator>
MergeCode merge_code_of(const typename Operator::Config& config) {
  return {merge_header(config.facts, config.split_kv == SplitKv::dealt), kMergeBounds,
          initialisers_of<Operator>(merge_config(config))};
}

}  // namespace tessera

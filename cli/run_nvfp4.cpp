#include "cli/run_nvfp4.h"

#include <algorithm>
#include <utility>

#include "cli/run_lengths.h"
#include "reference/attention_quantize.h"
#include "reference/fmha_nvfp4.h"
#include "reference/key_places.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;
using Sizes = std::map<std::string, std::int64_t>;

std::int64_t page_size_of(const Plan& plan) { return plan.has_field("page_size") ? plan.number("page_size") : 0; }

/// [batch, rows, ..] as rows one behind the other: the first `rows` of them.
reference::Tensor in_a_row(reference::Tensor tensor, std::int64_t rows) {
  reference::Tensor packed(tensor.dtype, {rows, tensor.shape[2], tensor.shape[3]});
  std::copy_n(tensor.bytes.begin(), std::min(packed.bytes.size(), tensor.bytes.size()), packed.bytes.begin());
  return packed;
}

}  // namespace

bool is_nvfp4_attention(const Plan& plan) {
  const Fmha* const facts = plan.problem.get_if<Fmha>();
  return facts != nullptr && facts->format == BlockFormat::nvfp4;
}

bool has_lengths(const Plan& plan) {
  return std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(), [](const BufferSpec& buffer) {
    return buffer.name == "cu_seqlens_q" || buffer.name == "cu_seqlens_k" || buffer.name == "seqused_q" ||
           buffer.name == "seqused_k";
  });
}

Tensors nvfp4_places(const Plan& plan, const Sizes& sizes, const RunFlags& flags) {
  Tensors places;
  for (const BufferSpec& buffer : plan.launch.buffers) {
    if (const auto given = flags.arrays.find(buffer.name); given != flags.arrays.end()) {
      places.emplace(buffer.name, given->second);
    } else if (buffer.name == "cu_seqlens_q") {
      const std::vector<std::int64_t> starts =
          reference::starts_of(query_lengths(flags, sizes.at("batch"), sizes.at("seqlen_q")));
      reference::Tensor tensor(DType::s32, {static_cast<std::int64_t>(starts.size())});
      for (std::size_t i = 0; i < starts.size(); ++i)
        tensor.set(static_cast<std::int64_t>(i), static_cast<double>(starts[i]));
      places.emplace(buffer.name, std::move(tensor));
    } else if (buffer.name == "cu_seqlens_k") {
      places.emplace(buffer.name, key_ends(flags, sizes.at("batch"), sizes.at("seqlen_k"), sizes.at("tokens_k")));
    } else if (buffer.name == "seqused_q") {
      places.emplace(buffer.name, used_queries(flags, sizes.at("batch"), sizes.at("seqlen_q")));
    } else if (buffer.name == "seqused_k") {
      places.emplace(buffer.name, key_lengths(flags, sizes.at("batch"), sizes.at("seqlen_k")));
    } else if (buffer.name == "block_table") {
      places.emplace(buffer.name,
                     reference::draw_block_table(places.at("seqused_k"), page_size_of(plan), sizes.at("pages"),
                                                 sizes.at("max_pages"), static_cast<std::uint64_t>(flags.seed)));
    }
  }
  return places;
}

reference::Nvfp4Layout nvfp4_layout(const Plan& plan, const Sizes& sizes, const Tensors& tensors) {
  reference::Nvfp4Layout layout{sizes.at("batch"), sizes.at("seqlen_q"), sizes.at("seqlen_k")};
  if (const auto tokens = sizes.find("tokens_k"); tokens != sizes.end()) layout.tokens_k = tokens->second;
  layout.page_size = page_size_of(plan);
  for (const auto& [name, slot] :
       {std::pair("cu_seqlens_q", &layout.cu_seqlens_q), std::pair("cu_seqlens_k", &layout.cu_seqlens_k),
        std::pair("seqused_q", &layout.seqused_q), std::pair("seqused_k", &layout.seqused_k),
        std::pair("block_table", &layout.block_table)})
    if (const auto found = tensors.find(name); found != tensors.end()) *slot = found->second.view();
  return layout;
}

Tensors nvfp4_inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                     const reference::FmhaTensors& made, const RunFlags& flags) {
  Tensors all;
  reference::QuantizedAttention quantized;
  if (has_lengths(plan)) {
    const Sizes named = launch.by_name(sizes);
    all = nvfp4_places(plan, named, flags);
    const reference::Nvfp4Layout layout = nvfp4_layout(plan, named, all);
    reference::FmhaTensors packed = made;
    if (layout.cu_seqlens_q) packed.q = in_a_row(made.q, layout.seqlen_q);
    if (layout.cu_seqlens_k) {
      packed.k = in_a_row(made.k, layout.tokens_k);
      packed.v = in_a_row(made.v, layout.tokens_k);
    }
    quantized = reference::quantize_sequences({packed.q.view(), packed.k.view(), packed.v.view()}, layout);
  } else {
    quantized = reference::quantize_attention({made.q.view(), made.k.view(), made.v.view()});
  }
  for (const auto& [name, of] : {std::pair("q", "q_units"), std::pair("k", "k_units"), std::pair("v", "v_units"),
                                 std::pair("delta_s", "delta_s"), std::pair("row_shift", "row_shift")})
    all.emplace(name, std::move(quantized.at(of)));
  for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
  return all;
}

reference::Comparison compare_nvfp4(const Plan& plan, const Tensors& inputs, const Tensors& outputs,
                                    const RunFlags& flags, double softmax_scale, double softcap, int jobs) {
  const Fmha& facts = plan.problem.as<Fmha>();
  reference::Nvfp4Check check;
  check.mask = facts.mask;
  check.output = facts.output;
  check.split_size = facts.split_size;
  check.softcap = softcap;
  for (const auto& [name, size] :
       {std::pair("window_size_left", &check.window_size_left),
        std::pair("window_size_right", &check.window_size_right), std::pair("attention_chunk", &check.attention_chunk),
        std::pair("num_splits", &check.num_splits)})
    if (const auto found = flags.sizes.find(name); found != flags.sizes.end()) *size = found->second;
  check.seqlen_k = flags.sizes.at("seqlen_k");
  check.softmax_scale = softmax_scale;
  check.tile_m = plan.number("tile_m");
  check.tile_n = plan.number("tile_n");
  check.jobs = jobs;
  const auto of = [&](const char* name) { return inputs.at(name).view(); };
  for (const auto& [name, slot] : {std::pair("sink", &check.sink), std::pair("alibi_slopes", &check.alibi_slopes),
                                   std::pair("tree_mask", &check.tree_mask)})
    if (const auto found = inputs.find(name); found != inputs.end()) *slot = found->second.view();
  reference::Nvfp4Outputs views{outputs.at("o").view(), {}, {}, {}};
  for (const auto& [name, slot] :
       {std::pair("lse", &views.lse), std::pair("row_max", &views.row_max), std::pair("row_sum", &views.row_sum)})
    if (const auto found = outputs.find(name); found != outputs.end()) *slot = found->second.view();
  const reference::Nvfp4Inputs in{of("q"), of("k"), of("v"), of("delta_s"), of("row_shift")};
  if (!has_lengths(plan)) return reference::check_fmha_nvfp4(in, views, check);
  return reference::check_nvfp4_sequences(in, nvfp4_layout(plan, flags.sizes, inputs), views, check);
}

}  // namespace tessera::cli

// How the generated entries of an attention kernel call the templates: the parameters of templates/fmha/params.cuh and
// its like, by name.
#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "generator/attention/fmha_keys.h"
#include "generator/attention/fmha_operator.h"

namespace tessera {

namespace {

/// ".a = a, .b = b": designated initialisers of parameters.
class Initialisers {
 public:
  void give(std::string_view name, std::string_view value) {
    text_ += fmt::format("{}.{} = {}", text_.empty() ? "" : ", ", name, value);
  }
  void give(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) give(name, name);
  }
  void give_as(std::string_view type, std::string_view name) {
    give(name, fmt::format("static_cast<{}*>({})", type, name));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Keys that do not lie dense, in the order of the parameters.
void give_keys(const FmhaLaunch& c, Initialisers& given) {
  if (!is_latent(c)) given.give({"k_keys", "v_keys"});
  if (c.facts.kv_layout == KvLayout::paged) {
    given.give_as("const int", "block_table");
    given.give({"pages", "max_pages"});
  } else {
    given.give_as("const int", "cu_seqlens_k");
    given.give({"tokens_k"});
  }
  if (is_latent(c)) return;
  for (const std::string tensor : {"k", "v"})
    for (const std::string step : {"_stride_page", "_stride_seqlen", "_stride_head"})
      if (step != "_stride_page" || c.facts.kv_layout == KvLayout::paged) given.give(tensor + step, tensor + step);
}

/// Keys that are values too.
std::string parameters_of_latent(const FmhaLaunch& c) {
  Initialisers given;
  given.give("q", "q");
  given.give("k", c.copies_keys ? "q" : "k");
  given.give("lse", "lse");
  if (c.facts.seqused != UsedLengths::none) given.give_as("const int", "seqused_k");
  given.give("o_rows", "o");
  if (c.is_split) {
    given.give_as("float", "partial_o");
    given.give_as("float", "partial_sums");
  }
  if (c.joins_tails) given.give_as("int", "tails");
  given.give({"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "softmax_scale"});
  if (c.facts.kv_layout == KvLayout::paged) {
    given.give_as("const int", "block_table");
    given.give({"pages", "max_pages"});
  }
  if (has_pools(c.facts)) {
    given.give({"k_keys", "swa_k"});
    for (const char* const list : {"indices", "topk_lens", "swa_lens", "swa_indices"}) given.give_as("const int", list);
    given.give_as("const float", "sink");
    given.give({"topk", "seqlen_swa", "swa_rows"});
    for (const std::string& stride : strides_of_pools(c)) given.give(stride, stride);
  }
  if (widens_keys(c.facts)) {
    given.give_as("const float", "k_descale");
    given.give({"k_descale_stride_batch"});  // of one key head
  }
  given.give({"o_stride_head", "o_stride_seqlen", "o_stride_batch"});
  return given.text();
}

std::string parameters_of_kernel(const FmhaLaunch& c) {
  if (c.walks_sequences) return parameters_of_latent(c);
  Initialisers given;
  given.give({"q"});
  for (const char* const keys : {"k", "v"}) given.give(keys, c.copies_keys ? "q" : is_latent(c) ? "k" : keys);
  // Parts of split keys do not leave through a tensor map: there is none, and any reference will do. Nor do keys that
  // threads copy come through one.
  given.give("o", has_map_of_o(c) ? "o" : "q");
  for (const char* const tensor : {"k", "v"}) {
    if (c.part_keys.empty()) break;
    std::string maps;
    for (const int keys : c.part_keys) maps += fmt::format("{}&{}", maps.empty() ? "" : ", ", part_map(tensor, keys));
    given.give(fmt::format("{}_parts", tensor), fmt::format("{{{}}}", maps));
  }
  const bool stores_o = !c.is_split || c.is_dealt;
  given.give("lse", stores_o ? "lse" : "nullptr");
  if (c.facts.output == Output::unnormalized && stores_o) given.give({"row_max", "row_sum"});
  if (c.facts.seqused == UsedLengths::qk) given.give_as("const int", "seqused_q");
  if (c.facts.seqused != UsedLengths::none) given.give_as("const int", "seqused_k");
  if (is_ragged(c.facts)) given.give_as("const int", "cu_seqlens_q");
  if (stores_rows(c)) given.give("o_rows", c.is_dealt ? "o" : "o_rows");
  if (c.copies_q) given.give({"q_rows"});
  if (c.is_split) {
    given.give_as("float", "partial_o");
    given.give_as("float", "partial_sums");
  }
  if (c.facts.kv_pools != KvPools::dense) {
    // Pointers where threads load them, else tensor maps.
    if (is_latent(c)) {
      given.give("swa_k_keys", "swa_k");
      given.give_as("const int", "swa_indices");
      given.give({"swa_rows"});
    } else {
      given.give("swa_k", c.copies_keys ? "swa_k" : "&swa_k");
      given.give("swa_v", c.copies_keys ? "swa_v" : "&swa_v");
    }
    for (const char* const list : {"indices", "topk_lens", "swa_lens"}) given.give_as("const int", list);
  }
  if (has_sink(c.facts) && stores_o) given.give_as("const float", "sink");
  if (c.facts.alibi != Alibi::none) given.give_as("const float", "alibi_slopes");
  if (c.facts.tree_mask != TreeMask::none) {
    given.give_as("const unsigned", "tree_mask");
    given.give({"tree_words"});
  }
  if (c.facts.kv_pools != KvPools::dense) given.give({"topk", "seqlen_swa"});
  given.give({"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"});
  if (c.is_split && !c.is_dealt) given.give({"num_splits"});
  if (c.facts.window == Window::sliding) given.give({"window_size_left", "window_size_right"});
  if (c.facts.window == Window::chunked) given.give({"attention_chunk"});
  given.give({"softmax_scale"});
  if (c.facts.softcap != Softcap::none) given.give({"softcap"});
  if (c.facts.kv_layout != KvLayout::dense) give_keys(c, given);
  if (copies_pools(c)) {
    given.give({"k_keys"});
    if (!is_latent(c)) given.give({"v_keys"});
    for (const std::string& stride : strides_of_pools(c)) given.give(stride, stride);
  }
  for (const char* const descale : descales_of(c.facts)) given.give_as("const float", descale);
  for (const std::string descale : descales_of(c.facts))
    for (const char* const step : {"_stride_batch", "_stride_head"}) given.give(descale + step, descale + step);
  for (const char* const scale : key_scales_of(c.facts)) given.give({scale});
  for (const std::string scale : key_scales_of(c.facts))
    for (const char* const step : {"_stride_page", "_stride_head"}) given.give(scale + step, scale + step);
  if (stores_rows(c)) given.give({"o_stride_head", "o_stride_seqlen"});
  if (stores_rows(c) && !is_ragged(c.facts)) given.give({"o_stride_batch"});
  if (c.copies_q) given.give({"q_stride_head", "q_stride_seqlen"});
  if (c.copies_q && !is_ragged(c.facts)) given.give({"q_stride_batch"});
  if (c.is_dealt && has_split_size(c.facts)) given.give({"max_parts"});
  if (c.has_cuts) given.give_as("int", "cuts");
  return given.text();
}

/// Of dealt keys: of the kernel's parameters those that merge_step_of_dealt() has.
std::string parameters_of_merge(const FmhaLaunch& c) {
  Initialisers given;
  for (const char* const map : {"q", "k", "v", "o"})
    if (!is_latent(c) || map[0] == 'q' || map[0] == 'k') given.give(map, "none");
  given.give({"lse"});
  if (c.facts.output == Output::unnormalized) given.give({"row_max", "row_sum"});
  if (!c.has_cuts) {
    if (c.facts.seqused == UsedLengths::qk) given.give_as("const int", "seqused_q");
    if (c.facts.seqused != UsedLengths::none) given.give_as("const int", "seqused_k");
  }
  if (is_ragged(c.facts)) given.give_as("const int", "cu_seqlens_q");
  given.give("o_rows", "o");
  given.give_as("float", "partial_o");
  given.give_as("float", "partial_sums");
  if (c.joins_tails) given.give_as("int", "tails");
  if (has_sink(c.facts) && !has_pools(c.facts)) given.give_as("const float", "sink");
  given.give({"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"});
  if (has_pools(c.facts)) {  // of latent keys alone
    for (const char* const lengths : {"topk_lens", "swa_lens"}) given.give_as("const int", lengths);
    given.give_as("const float", "sink");
    given.give({"topk", "seqlen_swa"});
  }
  if (!c.has_cuts) {
    if (c.facts.window == Window::sliding) given.give({"window_size_left", "window_size_right"});
    if (c.facts.window == Window::chunked) given.give({"attention_chunk"});
    if (c.facts.kv_layout == KvLayout::ragged) {
      given.give_as("const int", "cu_seqlens_k");
      given.give({"tokens_k"});
    }
  }
  given.give({"o_stride_head", "o_stride_seqlen"});
  if (!is_ragged(c.facts)) given.give({"o_stride_batch"});
  if (has_split_size(c.facts)) given.give({"max_parts"});
  if (c.has_cuts) given.give_as("int", "cuts");
  given.give({"num_ctas"});
  return given.text();
}

}  // namespace

std::string fmha_call(const FmhaLaunch& c, std::string_view templates) {
  return fmt::format("tessera::{}::kernel<kConfig>({{{}}})", templates, parameters_of_kernel(c));
}

std::string fmha_merge_call(const FmhaLaunch& c) {
  if (c.is_dealt)
    return fmt::format("const tessera::ptx::TensorMap none{{}};\n  tessera::{}::merge_dealt<kMergeConfig>({{{}}})",
                       is_latent(c) ? "fmha_latent" : "fmha", parameters_of_merge(c));
  Initialisers given;
  given.give_as("const float", "partial_o");
  given.give_as("const float", "partial_sums");
  given.give({"o", "lse"});
  if (c.facts.output == Output::unnormalized) given.give({"row_max", "row_sum"});
  if (has_sink(c.facts)) given.give_as("const float", "sink");
  if (is_ragged(c.facts)) given.give_as("const int", "cu_seqlens_q");
  given.give({"batch", "heads_q", "seqlen_q", "num_splits", "o_stride_head", "o_stride_seqlen"});
  given.give("o_stride_batch", is_ragged(c.facts) ? "0" : "o_stride_batch");
  return fmt::format("tessera::attention::merge<kMergeConfig>({{{}}})", given.text());
}

}  // namespace tessera

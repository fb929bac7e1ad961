#include "generator/attention/fmha_steps.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "generator/attention/fmha_keys.h"
#include "generator/attention/fmha_latent_launch.h"
#include "generator/operator_words.h"
#include "spec/attention_facts.h"
#include "spec/fmha_config.h"

namespace tessera {

// Tiles of queries, without the parts of their keys; ragged: at most.
Expression tiles_of(const FmhaLaunch& c) {
  if (is_ragged(c.facts))
    return expression("(ceil_div(seqlen_q * {}, {}) + batch) * {}", c.padded_heads, c.tile_rows,
                      c.pack_gqa == 1 ? "heads_q" : "heads_kv");
  if (c.pack_gqa == 1 && !has_pools(c.facts))
    return expression("ceil_div(seqlen_q, {}) * heads_q * batch", c.tile_rows);
  return expression("ceil_div(seqlen_q * {}, {}) * heads_kv * batch", c.padded_heads, c.tile_rows);
}

// CTAs that the device has places for, or pairs; rows of CTAs where the tiles of a sequence run side by side.
std::string places_of(const FmhaLaunch& c) {
  if (c.walks_sequences) return latent_places(c);
  // Half of num_sms, rounded down, but never none.
  if (c.ctas_per_tile == 2) return "max(ceil_div(num_sms - 1, 2), 1)";
  return c.ctas_per_sm == 1 ? "num_sms" : fmt::format("{} * num_sms", c.ctas_per_sm);
}

// Most keys that the queries of a tile see. A bound of -1 is none, which counts as all keys.
std::string seen_keys(const FmhaLaunch& c) {
  if (has_pools(c.facts)) return "(topk + seqlen_swa)";
  if (c.facts.window == Window::none) return "seqlen_k";
  // A tile may begin and end within a query's heads.
  const bool is_whole = c.tile_rows % c.padded_heads == 0;
  const std::int64_t queries = ceil_div(c.tile_rows - (is_whole ? 0 : 1), c.padded_heads) + (is_whole ? 0 : 1);
  if (c.facts.window == Window::chunked) return fmt::format("min(seqlen_k, {} + attention_chunk)", queries);
  const auto side = [](const char* name) { return fmt::format("max({0}, 0) + seqlen_k * max(0 - {0}, 0)", name); };
  std::string window = fmt::format("{} + {}", queries, side("window_size_left"));
  if (c.facts.mask == Mask::none) window += " + " + side("window_size_right");
  return fmt::format("min(seqlen_k, {})", window);
}

// Most parts with a size of their own that a tile may have: those that its keys reach into, which may begin within a
// block.
std::string max_parts_of(const FmhaLaunch& c) {
  const int size = c.facts.split_size;
  const std::string of_all = fmt::format("ceil_div(seqlen_k, {})", size);
  if (c.facts.window == Window::none) return fmt::format("max({}, 1)", of_all);
  return fmt::format("max(min({}, ceil_div({} + {}, {})), 1)", of_all, seen_keys(c), c.tile_n, size);
}
// Most blocks of keys that all tiles may have, or parts with a size of their own.
std::string blocks_of(const FmhaLaunch& c) {
  if (c.walks_sequences) return latent_units(c);
  if (has_split_size(c.facts)) return fmt::format("{} * {}", tiles_of(c).text(), max_parts_of(c));
  return fmt::format("{} * max(ceil_div(seqlen_k, {}), 1)", tiles_of(c).text(), c.tile_n);
}
// CTAs that merge a tile's parts: see merge_ctas_of_tile().
std::string merge_ctas_of(const FmhaLaunch& c) {
  const std::string rows = fmt::format("min(seqlen_q * {}, {})", c.pack_gqa, c.tile_rows);
  return fmt::format("min(ceil_div({0}, {1}), max(ceil_div({0}, 16), 4))", rows, c.merge_rows);
}

// Dealt keys: CTAs, or pairs, that have a range. None has less than a block.
std::string ranges_of(const FmhaLaunch& c) {
  const std::string places = c.has_cuts ? fmt::format("min({}, {})", places_of(c), fmha::kMostCutCtas) : places_of(c);
  return fmt::format("min({}, {})", places, blocks_of(c));
}
// Rows of the workspace that parts take.
std::string part_rows_of(const FmhaLaunch& c) {
  if (!c.is_dealt)
    return is_ragged(c.facts) ? "num_splits * heads_q * seqlen_q" : "num_splits * batch * heads_q * seqlen_q";
  if (has_split_size(c.facts))
    return fmt::format("{} * {} * min(seqlen_q * {}, {})", tiles_of(c).text(), max_parts_of(c), c.pack_gqa,
                       c.tile_rows);
  const std::string ctas = c.walks_sequences ? tiles_of_sequence(c) + " * " + ranges_of(c) : ranges_of(c);
  return fmt::format("2 * {} * min({}, {})", ctas, rows_of_sequence(c), c.tile_rows);
}

std::vector<std::string> strides_of(const FmhaLaunch& c, const std::string& tensor) {
  std::vector<std::string> strides{tensor + "_stride_head", tensor + "_stride_seqlen"};
  if (!is_ragged(c.facts)) strides.push_back(tensor + "_stride_batch");
  return strides;
}
std::vector<std::string> strides_of_o(const FmhaLaunch& c) { return strides_of(c, "o"); }

namespace {

/// Appends a step's parameters, in the order of the entry's.
class Parameters {
 public:
  explicit Parameters(LaunchStep& step) : step_(step) {}
  void add(const char* name, ParameterKind kind, Expression value, const char* source, Expression offset = {}) {
    step_.parameters.push_back(
        {.name = name, .kind = kind, .value = std::move(value), .source = source, .offset_bytes = std::move(offset)});
  }
  void map(const char* name) { add(name, ParameterKind::tensor_map, {}, name); }
  void pointer(const char* name) { add(name, ParameterKind::pointer, {}, name); }
  void size(const char* name, ParameterKind kind = ParameterKind::i32) { add(name, kind, Expression::parse(name), ""); }
  /// The parts of split keys: fp32 [num_splits][rows][head_dim_v], behind them [num_splits][rows][2].
  void parts(const FmhaLaunch& c) {
    add("partial_o", ParameterKind::pointer, {}, "workspace");
    add("partial_sums", ParameterKind::pointer, {}, "workspace",
        expression("{} * {}", part_rows_of(c), 4 * c.facts.head_dim_v));
  }
  void strides(const std::vector<std::string>& names) {
    for (const std::string& stride : names) size(stride.c_str(), ParameterKind::i64);
  }
  void tails(const FmhaLaunch& c) {
    add("tails", ParameterKind::pointer, {}, "workspace",
        expression("{} * {}", part_rows_of(c), 4 * (c.facts.head_dim_v + 2)));
  }
  void cuts(const FmhaLaunch& c) {
    add("cuts", ParameterKind::pointer, {}, "workspace",
        expression("{} * {}", part_rows_of(c), 4 * (c.facts.head_dim_v + 2)));
  }
  void max_parts(const FmhaLaunch& c) { add("max_parts", ParameterKind::i32, Expression::parse(max_parts_of(c)), ""); }
  void window(const FmhaLaunch& c) {
    if (c.facts.window == Window::chunked) size("attention_chunk");
    if (c.facts.window == Window::sliding) {
      size("window_size_left");
      size("window_size_right");
    }
  }
  /// What is known of rows in the end.
  void statistics(const FmhaLaunch& c) {
    pointer("lse");
    if (c.facts.output == Output::unnormalized) {
      pointer("row_max");
      pointer("row_sum");
    }
  }

 private:
  LaunchStep& step_;
};

}  // namespace

void add_parts(const FmhaLaunch& c, LaunchStep& step) { Parameters(step).parts(c); }

LaunchStep step_of(const FmhaLaunch& c, const std::string& kernel) {
  LaunchStep step;
  step.entry = kernel;
  // Launched while the kernel before may still run; it waits for its end itself.
  step.programmatic_stream_serialization = c.is_split;
  const std::string tiles = tiles_of(c).text() + (c.is_split ? " * num_splits" : "");
  // As places_of says.
  step.grid[0] = c.ctas_per_tile == 2 ? expression("2 * min(max(ceil_div(num_sms - 1, 2), 1), {})", tiles)
                                      : expression("min({} * num_sms, {})", c.ctas_per_sm, tiles);
  if (c.is_dealt) step.grid[0] = Expression::parse((c.ctas_per_tile == 2 ? "2 * " : "") + ranges_of(c));
  if (c.walks_sequences) step.grid[0] = expression("{} * {}", tiles_of_sequence(c), ranges_of(c));
  step.cluster[0] = static_cast<std::uint32_t>(c.ctas_per_tile * c.tiles_per_cluster);
  step.block[0] = static_cast<std::uint32_t>(c.threads);
  step.dynamic_smem_bytes = c.smem_bytes;
  Parameters parameters(step);
  parameters.map("q");
  if (!c.copies_keys) parameters.map("k");
  if (!c.copies_keys && !is_latent(c)) parameters.map("v");
  for (const char* const tensor : {"k", "v"})
    for (const int keys : c.part_keys) parameters.map(part_map(tensor, keys).c_str());
  if (!c.is_split && !c.walks_sequences) {
    if (has_map_of_o(c)) parameters.map("o");
    parameters.statistics(c);
  } else if (c.is_dealt || c.walks_sequences) {
    parameters.pointer("o");
    parameters.statistics(c);
  }
  if (c.facts.seqused == UsedLengths::qk) parameters.pointer("seqused_q");
  if (c.facts.seqused != UsedLengths::none) parameters.pointer("seqused_k");
  if (is_ragged(c.facts)) parameters.pointer("cu_seqlens_q");
  if (stores_rows(c) && !c.is_dealt && !c.walks_sequences) parameters.add("o_rows", ParameterKind::pointer, {}, "o");
  if (c.copies_q) parameters.add("q_rows", ParameterKind::pointer, {}, "q");
  if (c.is_split) parameters.parts(c);
  if (c.joins_tails) parameters.tails(c);
  if (has_pools(c.facts)) {
    for (const char* const window : {"swa_k", "swa_v"}) {
      if (is_latent(c) && window == std::string_view("swa_v")) continue;
      if (c.copies_keys) {
        parameters.pointer(window);
      } else {
        parameters.map(window);
      }
    }
    for (const char* const buffer : {"indices", "topk_lens", "swa_lens"}) parameters.pointer(buffer);
    if (has_second_list(c)) parameters.pointer("swa_indices");
  }
  // Where num_splits say how keys are split, only who merges the parts divides.
  if (has_sink(c.facts) && (!c.is_split || c.is_dealt)) parameters.pointer("sink");
  if (c.facts.alibi != Alibi::none) parameters.pointer("alibi_slopes");
  if (c.facts.tree_mask != TreeMask::none) {
    parameters.pointer("tree_mask");
    parameters.size("tree_words");
  }
  if (has_pools(c.facts)) {
    for (const char* const size : {"topk", "seqlen_swa"}) parameters.size(size);
    if (has_second_list(c)) parameters.size("swa_rows");
  }
  for (const char* const size : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"}) parameters.size(size);
  if (c.is_split && !c.is_dealt) parameters.size("num_splits");
  parameters.window(c);
  parameters.add("softmax_scale", ParameterKind::f32, {}, "softmax_scale");
  if (c.facts.softcap != Softcap::none) parameters.add("softcap", ParameterKind::f32, {}, "softcap");
  if (lies_in_places(c)) add_key_parameters(c, step);
  if (copies_pools(c)) add_pool_parameters(c, step);
  add_descale_parameters(c, step);
  add_key_scale_parameters(c, step);
  if (stores_rows(c) || c.walks_sequences) parameters.strides(strides_of_o(c));
  if (c.copies_q) parameters.strides(strides_of(c, "q"));
  if (c.is_dealt && has_split_size(c.facts)) parameters.max_parts(c);
  if (c.has_cuts) parameters.cuts(c);
  return step;
}

// Cuts say which parts there are; without them what rows see is looked up again.
LaunchStep merge_step_of_dealt(const FmhaLaunch& c, const std::string& entry) {
  LaunchStep step;
  step.entry = entry;
  step.is_merge = true;
  const std::string cuts = "max(" + ranges_of(c) + " - 1, 0)" + (c.walks_sequences ? " * " + tiles_of_sequence(c) : "");
  step.grid[0] = expression("{} * ceil_div(min({}, {}), {})", cuts, rows_of_sequence(c), c.tile_rows,
                            c.has_cuts ? fmha::kMergeRowsOfCut : c.merge_rows);
  if (has_split_size(c.facts)) step.grid[0] = expression("{} * {}", tiles_of(c).text(), merge_ctas_of(c));
  step.block[0] = static_cast<std::uint32_t>(32 * c.merge_warps);
  step.programmatic_stream_serialization = true;
  Parameters parameters(step);
  parameters.pointer("o");
  parameters.statistics(c);
  if (!c.has_cuts) {
    if (c.facts.seqused == UsedLengths::qk) parameters.pointer("seqused_q");
    if (c.facts.seqused != UsedLengths::none) parameters.pointer("seqused_k");
  }
  if (is_ragged(c.facts)) parameters.pointer("cu_seqlens_q");
  parameters.parts(c);
  if (c.joins_tails) parameters.tails(c);
  if (has_pools(c.facts))
    for (const char* const lengths : {"topk_lens", "swa_lens"}) parameters.pointer(lengths);
  if (has_sink(c.facts)) parameters.pointer("sink");
  if (has_pools(c.facts))
    for (const char* const size : {"topk", "seqlen_swa"}) parameters.size(size);
  for (const char* const size : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"}) parameters.size(size);
  if (!c.has_cuts) {
    parameters.window(c);
    if (c.facts.kv_layout == KvLayout::ragged) {
      parameters.pointer("cu_seqlens_k");
      parameters.size("tokens_k");
    }
  }
  parameters.strides(strides_of_o(c));
  if (has_split_size(c.facts)) parameters.max_parts(c);
  if (c.has_cuts) parameters.cuts(c);
  parameters.add("num_ctas", ParameterKind::i32, Expression::parse(ranges_of(c)), "");
  return step;
}

LaunchStep merge_step(const FmhaLaunch& c, const std::string& entry) {
  LaunchStep step;
  step.entry = entry;
  step.is_merge = true;
  step.grid[0] = expression("ceil_div({}heads_q * seqlen_q, {})", is_ragged(c.facts) ? "" : "batch * ", c.merge_rows);
  step.block[0] = static_cast<std::uint32_t>(32 * c.merge_warps);
  step.programmatic_stream_serialization = true;
  Parameters parameters(step);
  parameters.parts(c);
  parameters.pointer("o");
  parameters.statistics(c);
  if (has_sink(c.facts)) parameters.pointer("sink");
  if (is_ragged(c.facts)) parameters.pointer("cu_seqlens_q");
  for (const char* const size : {"batch", "heads_q", "seqlen_q", "num_splits"}) parameters.size(size);
  parameters.strides(strides_of_o(c));
  return step;
}

}  // namespace tessera

// The launch of attention of NVFP4 operands as data, and the calls of its entries. What the entry takes:
// spec/fmha_nvfp4.h; split keys are merged as those of other families.
#include "generator/attention/fmha_nvfp4_launch.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "generator/attention/fmha_keys.h"
#include "generator/attention/fmha_nvfp4_operator.h"
#include "generator/attention/fmha_operator.h"
#include "generator/attention/fmha_steps.h"
#include "generator/attention/nvfp4_buffers.h"
#include "generator/block_scaled/block_operator.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera::fmha_nvfp4 {

namespace {

constexpr std::int64_t kMaxSplits = 256, kMaxSizedParts = 1 << 16;

Nvfp4Layouts layouts_of(const Config& c) { return {has_ragged_queries(c), has_ragged_keys(c)}; }

std::string tiles_text(const Config& c) {
  return fmt::format("{} * heads_q", nvfp4_query_blocks(layouts_of(c), c.tile_m));
}

/// As launches of other families are described: what their steps and workspaces are made of.
FmhaLaunch launch_facts(const Config& c) {
  return {.facts = c.facts,
          .is_split = fmha_nvfp4::is_split(c),
          .stores_o = true,
          .tile_rows = c.tile_m,
          .tile_n = c.tile_n,
          .merge_rows = kMergeRows,
          .merge_warps = kMergeRows,
          .ctas_per_sm = fmha_nvfp4::ctas_per_sm(c),
          .threads = fmha_nvfp4::num_threads(c),
          .smem_bytes = fmha_nvfp4::smem_layout(c).total_bytes,
          .q = {},
          .k = {},
          .v = {},
          .o = {}};
}

/// Of o, the innermost first.
std::vector<const char*> strides_of(const Config& c) {
  std::vector<const char*> strides{"o_stride_head", "o_stride_seqlen"};
  if (!has_ragged_queries(c)) strides.push_back("o_stride_batch");
  return strides;
}

/// Whether rows of o that fill no box are stored by threads.
bool stores_rows(const Config& c) { return stores_boxes(c) && has_ragged_queries(c); }

void add_map_of_o(const Config& c, LaunchPlan& launch) {
  const int bytes = o_bytes(c);
  TensorMapRecipe map;
  map.name = map.buffer = "o";
  map.type = tensor_map_type(stores_sums(c) ? DType::f32 : c.facts.o_dtype);
  map.swizzle = tensor_map_swizzle(Swizzle::b128);
  map.l2_promotion = TensorMapL2Promotion::l2_128b;
  map.dims = {Expression(c.facts.head_dim), Expression::parse("max(seqlen_q, 1)"), Expression::parse("heads_q"),
              has_ragged_queries(c) ? Expression(1) : Expression::parse("max(batch, 1)")};
  // One sequence may have any stride.
  for (const char* const stride : {"seqlen", "head", has_ragged_queries(c) ? "seqlen" : "batch"})
    map.strides_bytes.push_back(expression("o_stride_{} * {}", stride, bytes));
  map.box = {static_cast<std::uint32_t>(o_span_elements(c)), kRowsOfWarp, 1, 1};
  map.element_strides.resize(map.dims.size(), 1);
  launch.tensor_maps.push_back(std::move(map));
}

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("batch", 0, kMaxLength, {}, "sequences");
  size("heads_q", 1, kMaxHeads, {}, "query heads: a multiple of heads_kv");
  size("heads_kv", 1, kMaxHeads, {}, "key and value heads");
  size("seqlen_q", 0, kMaxLength, {}, has_ragged_queries(c) ? "queries of all sequences" : "queries of a sequence");
  if (has_ragged_keys(c)) {
    size("tokens_k", 0, kMaxLength, {}, "keys of all sequences together");
    size("seqlen_k", 0, kMaxLength, Expression::parse("tokens_k"), "most keys of a sequence");
  } else {
    size("seqlen_k", 0, kMaxLength, {}, "keys of a sequence");
  }
  size("o_stride_head", 1, kMaxStride, Expression(c.facts.head_dim), "elements of o from one head to the next");
  size("o_stride_seqlen", 1, kMaxStride, expression("heads_q * {}", c.facts.head_dim),
       "elements of o from one row to the next");
  if (!has_ragged_queries(c))
    size("o_stride_batch", 1, kMaxStride, expression("max(seqlen_q, 1) * heads_q * {}", c.facts.head_dim),
         "elements of o from one sequence to the next");
  if (c.facts.tree_mask != TreeMask::none)
    size("tree_words", 0, kMaxTreeWords, expression("min(ceil_div(seqlen_q, 32), {})", kMaxTreeWords),
         "words of 32 bits of a query's row of tree_mask");
  if (c.facts.window == Window::chunked)
    size("attention_chunk", 1, kMaxLength, Expression(8192), "keys of a chunk: a query sees none before its own");
  if (c.facts.window == Window::sliding) {
    size("window_size_left", -1, kMaxLength, Expression(-1), "keys before a query that it sees; -1: all");
    size("window_size_right", -1, kMaxLength, Expression(-1), "keys behind a query that it sees; -1: all");
  }
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
  if (!fmha_nvfp4::is_split(c)) return;
  const FmhaLaunch facts = launch_facts(c);
  if (c.facts.split_size > 0) {
    size("num_splits", 1, kMaxSizedParts, Expression::parse(max_parts_of(facts)), "parts of the keys");
    return;
  }
  // As many as fill the device, each with two steps or more.
  size("num_splits", 1, kMaxSplits,
       expression("min(min(max(ceil_div({3} - max({0}, 1) + 1, max({0}, 1)), 1), max(ceil_div({1}, {2}), 1)), {4})",
                  tiles_text(c), seen_keys(facts), 2 * c.tile_n, places_of(facts), kMaxSplits),
       "parts of the keys");
}

void add_domain(const Config& c, LaunchPlan& launch) {
  const auto at_most = [&](const std::string& product, const char* what) {
    add_at_most(launch, Expression::parse(product), kMaxLength, fmt::format("{} must be at most {}", what, kMaxLength));
  };
  launch.domain.push_back({.lhs = Expression::parse("heads_q"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression::parse("heads_kv"),
                           .message = "heads_q must be a multiple of heads_kv"});
  at_most("seqlen_q + seqlen_k", "seqlen_q + seqlen_k");
  at_most("heads_q * batch", "heads_q * batch");
  at_most(tiles_text(c), "the number of query tiles");
  if (fmha_nvfp4::is_split(c)) {
    if (c.facts.split_size > 0)
      launch.domain.push_back(
          {.lhs = Expression::parse("num_splits"),
           .relation = Relation::at_least,
           .rhs = Expression::parse(max_parts_of(launch_facts(c))),
           .message = fmt::format("num_splits must be as many parts of {} keys as a query tile may have",
                                  c.facts.split_size)});
    at_most(tiles_text(c) + " * num_splits", "the number of query tiles times num_splits");
    at_most(has_ragged_queries(c) ? "heads_q * seqlen_q" : "heads_q * batch * seqlen_q", "the number of rows");
  }
  const int elements = 16 / o_element_bytes(c.facts);
  for (const char* const stride : strides_of(c))
    launch.domain.push_back({.lhs = Expression::parse(stride),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(elements),
                             .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride, elements)});
}

/// The buffers that the attention kernel reads or writes; others are the merge's.
bool is_merged(const std::string& buffer) {
  return buffer == "o" || buffer == "lse" || buffer == "row_max" || buffer == "row_sum" || buffer == "sink";
}

LaunchStep step_of(const Config& c, const LaunchPlan& launch, const std::string& kernel) {
  const bool is_split = fmha_nvfp4::is_split(c);
  LaunchStep step;
  step.entry = kernel;
  step.programmatic_stream_serialization = is_split;
  for (const BufferSpec& buffer : launch.buffers) {
    if (is_split && is_merged(buffer.name)) continue;
    if (buffer.name != "o") {
      step.parameters.push_back(pointer_parameter(buffer.name.c_str(), buffer.name.c_str()));
      continue;
    }
    step.parameters.push_back(
        {.name = "o", .kind = ParameterKind::tensor_map, .value = {}, .source = "o", .offset_bytes = {}});
    if (has_ragged_queries(c)) step.parameters.push_back(pointer_parameter("o_rows", "o"));
  }
  if (is_split) add_parts(launch_facts(c), step);
  const auto size = [&](const char* name, ParameterKind kind) {
    step.parameters.push_back(size_parameter(name, kind, Expression::parse(name)));
  };
  const auto scalar = [&](const char* name) {
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::f32, .value = {}, .source = name, .offset_bytes = {}});
  };
  if (c.facts.tree_mask != TreeMask::none) size("tree_words", ParameterKind::i32);
  for (const char* const name : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"})
    size(name, ParameterKind::i32);
  if (is_split) size("num_splits", ParameterKind::i32);
  if (has_ragged_keys(c)) size("tokens_k", ParameterKind::i32);
  if (c.facts.window == Window::chunked) size("attention_chunk", ParameterKind::i32);
  if (c.facts.window == Window::sliding)
    for (const char* const name : {"window_size_left", "window_size_right"}) size(name, ParameterKind::i32);
  if (stores_rows(c))
    for (const char* const name : strides_of(c)) size(name, ParameterKind::i64);
  scalar("softmax_scale");
  if (c.facts.softcap != Softcap::none) scalar("softcap");
  const std::string tiles = tiles_text(c) + (is_split ? " * num_splits" : "");
  step.grid[0] = expression("min({} * num_sms, {})", fmha_nvfp4::ctas_per_sm(c), tiles);
  step.block[0] = static_cast<std::uint32_t>(fmha_nvfp4::num_threads(c));
  step.dynamic_smem_bytes = fmha_nvfp4::smem_layout(c).total_bytes;
  return step;
}

}  // namespace

std::vector<BufferSpec> nvfp4_places_of(const Config& c) {
  std::vector<BufferSpec> places;
  if (has_ragged_queries(c)) places.push_back(nvfp4_numbers("cu_seqlens_q", "batch + 1"));
  if (has_ragged_keys(c)) places.push_back(nvfp4_numbers("cu_seqlens_k", "batch + 1"));
  if (c.facts.seqused == UsedLengths::qk) places.push_back(nvfp4_numbers("seqused_q", "batch"));
  if (c.facts.seqused != UsedLengths::none) places.push_back(nvfp4_numbers("seqused_k", "batch"));
  return places;
}

LaunchPlan fmha_nvfp4_launch(const Config& c, const std::string& arch, const std::string& kernel,
                             const std::string& merge) {
  LaunchPlan launch;
  launch.op = "fmha";
  launch.arch = arch;
  add_sizes(c, launch);
  launch.scalars.push_back({.name = "softmax_scale",
                            .default_value = 1 / std::sqrt(static_cast<double>(c.facts.head_dim)),
                            .help = "factor of the scores: 1 / sqrt(head_dim) by default"});
  if (c.facts.softcap != Softcap::none)
    launch.scalars.push_back({.name = "softcap", .default_value = {}, .help = "cap of the scores: positive"});
  const Nvfp4Layouts layouts = layouts_of(c);
  for (const char* const name : {"q", "k", "v"})
    launch.buffers.push_back(nvfp4_units(name, BufferRole::input, c.facts.head_dim, layouts));
  launch.buffers.push_back(nvfp4_delta_s(BufferRole::input, layouts));
  launch.buffers.push_back(nvfp4_statistic("row_shift", BufferRole::input, layouts));
  BufferSpec o{.name = "o",
               .role = BufferRole::output,
               .dtype = std::string(to_word(c.facts.output == Output::unnormalized ? DType::f32 : c.facts.o_dtype)),
               .shape = {Expression::parse("seqlen_q"), Expression::parse("heads_q"), Expression(c.facts.head_dim)},
               .strides = {Expression::parse("o_stride_seqlen"), Expression::parse("o_stride_head"), Expression(1)}};
  if (!has_ragged_queries(c)) {
    o.shape.insert(o.shape.begin(), Expression::parse("batch"));
    o.strides.insert(o.strides.begin(), Expression::parse("o_stride_batch"));
  }
  launch.buffers.push_back(std::move(o));
  if (stores_boxes(c)) add_map_of_o(c, launch);
  launch.buffers.push_back(nvfp4_statistic("lse", BufferRole::output, layouts));
  launch.buffers.back().is_optional = true;
  if (c.facts.output == Output::unnormalized)
    for (const char* const name : {"row_max", "row_sum"})
      launch.buffers.push_back(nvfp4_statistic(name, BufferRole::output, layouts));
  for (BufferSpec& place : nvfp4_places_of(c)) launch.buffers.push_back(std::move(place));
  if (c.facts.sink != Sink::none) add_of_heads("sink", true, launch);
  if (c.facts.alibi != Alibi::none) add_of_heads("alibi_slopes", false, launch);
  if (c.facts.tree_mask != TreeMask::none) add_tree(launch_facts(c), launch);
  add_domain(c, launch);
  launch.steps.push_back(step_of(c, launch, kernel));
  if (fmha_nvfp4::is_split(c)) {
    launch.workspace.bytes = expression("{} * {}", part_rows_of(launch_facts(c)), 4 * (c.facts.head_dim + 2));
    launch.steps.push_back(merge_step(launch_facts(c), merge));
  }
  return launch;
}

std::string FmhaNvfp4Operator::call_of_step(const Config& config, std::size_t step) {
  if (step == 1) return fmha_merge_call(launch_facts(config));
  std::string given;
  const auto give_value = [&](std::string_view name, std::string_view value) {
    given += fmt::format("{}.{} = {}", given.empty() ? "" : ", ", name, value);
  };
  const auto give = [&](std::string_view name) { give_value(name, name); };
  const auto give_as = [&](std::string_view type, std::string_view name) {
    given += fmt::format(", .{1} = static_cast<{0}*>({1})", type, name);
  };
  for (const char* const name : {"q", "k", "v", "delta_s", "row_shift"}) give(name);
  const bool is_split = fmha_nvfp4::is_split(config);
  if (is_split) {
    give_as("float", "partial_o");
    give_as("float", "partial_sums");
  } else {
    give_value("o", "&o");
    if (stores_rows(config)) give("o_rows");
    give("lse");
    if (config.facts.output == Output::unnormalized)
      for (const char* const name : {"row_max", "row_sum"}) give(name);
  }
  for (const BufferSpec& place : nvfp4_places_of(config)) give_as("const int", place.name);
  if (config.facts.sink != Sink::none && !is_split) give_as("const float", "sink");
  if (config.facts.alibi != Alibi::none) give_as("const float", "alibi_slopes");
  if (config.facts.tree_mask != TreeMask::none) {
    give_as("const unsigned", "tree_mask");
    give("tree_words");
  }
  for (const char* const name : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"}) give(name);
  if (is_split) give("num_splits");
  if (has_ragged_keys(config)) give("tokens_k");
  if (config.facts.window == Window::chunked) give("attention_chunk");
  if (config.facts.window == Window::sliding)
    for (const char* const name : {"window_size_left", "window_size_right"}) give(name);
  if (stores_rows(config))
    for (const char* const name : strides_of(config)) give(name);
  give("softmax_scale");
  if (config.facts.softcap != Softcap::none) give("softcap");
  return fmt::format("tessera::fmha_nvfp4::kernel<kConfig>({{{}}})", given);
}

}  // namespace tessera::fmha_nvfp4

// The launch of an attention kernel as data: sizes and strides, buffers, domain, tensor maps, and the steps: the
// kernel, and behind it the one that merges where keys are split. The launches of all families but NVFP4's
// (fmha_nvfp4_launch.cpp) are written here; their planners fill an FmhaLaunch with what differs. The kernel's side of
// every line stands in the head of spec/fmha.h, and what tcgen05 and latent keys have besides in those of
// spec/fmha_tcgen05.h and spec/fmha_latent.h.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "generator/attention/fmha_keys.h"
#include "generator/attention/fmha_latent_launch.h"
#include "generator/attention/fmha_operator.h"
#include "generator/attention/fmha_steps.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "spec/fmha_config.h"
#include "spec/fmha_latent.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxSplits = 256;
constexpr std::int64_t kMaxSizedParts = 1 << 16;

enum class Operand { q, k, v, o };

// q, k, v and o: whose heads and length they have, and which head_dim.
struct Tensor {
  const char* name;
  Operand operand;
  const char* heads;
  const char* seqlen;
  bool is_output;
  int AttentionFacts::*head_dim;
  FmhaLaunch::Box FmhaLaunch::*box;
};
constexpr Tensor kTensors[] = {
    {"q", Operand::q, "heads_q", "seqlen_q", false, &AttentionFacts::head_dim, &FmhaLaunch::q},
    {"k", Operand::k, "heads_kv", "seqlen_k", false, &AttentionFacts::head_dim, &FmhaLaunch::k},
    {"v", Operand::v, "heads_kv", "seqlen_k", false, &AttentionFacts::head_dim_v, &FmhaLaunch::v},
    {"o", Operand::o, "heads_q", "seqlen_q", true, &AttentionFacts::head_dim_v, &FmhaLaunch::o}};

// Keys of the window beside a list; q, k, v and o keep their names.
constexpr Tensor kWindowTensors[] = {
    {"swa_k", Operand::k, "heads_kv", "seqlen_swa", false, &AttentionFacts::head_dim, &FmhaLaunch::k},
    {"swa_v", Operand::v, "heads_kv", "seqlen_swa", false, &AttentionFacts::head_dim_v, &FmhaLaunch::v}};

std::vector<Tensor> tensors_of(const FmhaLaunch& c) {
  std::vector<Tensor> tensors(std::begin(kTensors), std::end(kTensors));
  if (has_pools(c.facts)) tensors.insert(tensors.end(), std::begin(kWindowTensors), std::end(kWindowTensors));
  if (is_latent(c)) std::erase_if(tensors, [](const Tensor& t) { return t.operand == Operand::v; });
  if (has_second_list(c)) tensors.back().seqlen = "swa_rows";
  return tensors;
}

// Rows that queries list: [seqlen_k, head_dim], for all sequences.
bool is_pool(const FmhaLaunch& c, const Tensor& t) {
  return has_pools(c.facts) && t.seqlen == std::string_view("seqlen_k");
}
// Heads that share rows of a tile.
bool is_packed(const FmhaLaunch& c, const Tensor& t) {
  return (c.pack_gqa > 1 || has_pools(c.facts) || is_latent(c)) && t.heads == std::string_view("heads_q");
}

// Pages of tokens: of all sequences, or of a window.
bool is_cache(const FmhaLaunch& c, const Tensor& t) { return has_cache(c.facts) && t.operand == Operand::k; }

bool is_keys(const FmhaLaunch& c, const Tensor& t) {
  return lies_in_places(c) && (t.operand == Operand::k || t.operand == Operand::v);
}

// V with keys side by side.
bool is_k_major(const FmhaLaunch& c, const Tensor& t) {
  return t.operand == Operand::v && c.facts.v_layout == Layout::k_major;
}

// Rows of all sequences, one after the other.
bool is_ragged(const FmhaLaunch& c, const Tensor& t) {
  return is_ragged(c.facts) && t.seqlen == std::string_view("seqlen_q");
}

void add_sizes(const FmhaLaunch& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("batch", 0, kMaxLength, {}, "sequences");
  size("heads_q", 1, kMaxHeads, {}, "query heads: a multiple of heads_kv");
  size("heads_kv", 1, kMaxHeads, {}, "key and value heads");
  size("seqlen_q", 0, kMaxLength, {}, is_ragged(c.facts) ? "queries of all sequences" : "queries of a sequence");
  if (lies_in_places(c)) {
    add_key_sizes(c, launch);
  } else {
    size("seqlen_k", 0, kMaxLength, {},
         has_pools(c.facts) ? "rows of k and v, for all sequences" : "keys of a sequence");
  }
  if (has_pools(c.facts)) {
    size("topk", 0, kMaxLength, {}, "rows that a query lists");
    size("seqlen_swa", 0, kMaxLength, {},
         has_second_list(c) ? "keys of a sequence's window, or rows of it that a query lists"
                            : "keys of a sequence's window");
    if (has_second_list(c))
      size("swa_rows", 0, kMaxLength, Expression::parse("seqlen_swa"), "rows of swa_k of a sequence");
  }
  for (const Tensor& t : tensors_of(c)) {
    // What is written must not overlap: a stride of 0 is for inputs only.
    const std::int64_t min = t.is_output ? 1 : 0;
    const int head_dim = c.facts.*t.head_dim;
    const auto help = [&](const char* what) {
      return fmt::format("elements of {} from one {} to the next", t.name, what);
    };
    if (is_cache(c, t)) {
      add_cache_strides(c, t.name, t.seqlen, launch);
      continue;
    }
    if (is_pool(c, t)) {
      size(fmt::format("{}_stride_seqlen", t.name), 0, kMaxStride, Expression(head_dim), help("row"));
      continue;
    }
    if (is_keys(c, t)) {
      add_key_strides(c, t.name, key_elements(c.facts, head_dim), launch);
      continue;
    }
    if (is_k_major(c, t)) {
      // [batch, heads_kv, head_dim_v, seqlen_k].
      size("v_stride_dim", 0, kMaxStride, expression("seqlen_k + max(8 - 8 * seqlen_k, 0)"), help("element of a head"));
      size("v_stride_head", 0, kMaxStride, expression("{} * v_stride_dim", head_dim), help("head"));
      size("v_stride_batch", 0, kMaxStride, expression("heads_kv * v_stride_head"), help("sequence"));
      continue;
    }
    size(fmt::format("{}_stride_head", t.name), min, kMaxStride, Expression(head_dim), help("head"));
    size(fmt::format("{}_stride_seqlen", t.name), min, kMaxStride, expression("{} * {}", t.heads, head_dim),
         help("row"));
    if (is_ragged(c, t)) continue;
    size(fmt::format("{}_stride_batch", t.name), min, kMaxStride,
         expression("max({}, 1) * {} * {}", t.seqlen, t.heads, head_dim), help("sequence"));
  }
  if (c.facts.tree_mask != TreeMask::none)
    size("tree_words", 0, kMaxTreeWords, expression("min(ceil_div(seqlen_q, 32), {})", kMaxTreeWords),
         "words of 32 bits of a query's row of tree_mask");
  if (c.facts.window == Window::chunked)
    size("attention_chunk", 1, kMaxLength, Expression(8192), "keys of a chunk: a query sees none before its own");
  if (c.facts.window == Window::sliding) {
    size("window_size_left", -1, kMaxLength, Expression(-1), "keys before a query that it sees; -1: all");
    size("window_size_right", -1, kMaxLength, Expression(-1), "keys behind a query that it sees; -1: all");
  }
  add_descale_sizes(c, launch);
  add_key_scale_sizes(c, launch);
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
  if (c.is_split && !c.is_dealt) {
    if (has_split_size(c.facts)) {
      size("num_splits", 1, kMaxSizedParts, Expression::parse(max_parts_of(c)), "parts of the keys");
      return;
    }
    // As many as fill the device, each with two steps or more.
    const std::string places = c.ctas_per_sm == 1 ? "num_sms" : fmt::format("{} * num_sms", c.ctas_per_sm);
    const std::string tiles = fmt::format("max({} * {}, 1)", tiles_of(c).text(), c.ctas_per_tile);
    size("num_splits", 1, kMaxSplits,
         expression("min(min(max(ceil_div({4} - {0} + 1, {0}), 1), max(ceil_div({1}, {2}), 1)), {3})", tiles,
                    seen_keys(c), 2 * c.tile_n, kMaxSplits, places),
         "parts of the keys");
  }
}

void add_tensor(const FmhaLaunch& c, const Tensor& t, LaunchPlan& launch) {
  const bool is_f32 = t.is_output && c.facts.output == Output::unnormalized;
  const bool is_key = t.operand == Operand::k || t.operand == Operand::v;
  const DType dtype = is_cache(c, t) ? DType::u8
                      : is_f32       ? DType::f32
                      : t.is_output  ? o_dtype(c.facts)
                      : is_key       ? key_dtype(c.facts)
                                     : c.facts.dtype;
  const int bytes = dtype_bytes(dtype);
  const int columns = c.facts.*t.head_dim, head_dim = is_key ? key_elements(c.facts, columns) : columns;
  const int span = (is_key ? key_span_bytes(c.facts, c.swizzle, columns) : swizzle_span_bytes(c.swizzle)) / bytes;

  // A dimension of one may have any stride.
  const Expression sequences = is_ragged(c, t) ? Expression(1) : expression("max(batch, 1)");
  const std::string stride_of_sequence = fmt::format("{}_stride_{}", t.name, is_ragged(c, t) ? "seqlen" : "batch");

  TensorMapRecipe map;
  map.name = t.name;
  map.buffer = t.name;
  map.type = tensor_map_type(dtype);
  map.swizzle = tensor_map_swizzle(!is_key           ? c.swizzle
                                   : c.swizzles_keys ? fmha::swizzle_of_span(span * bytes)
                                                     : key_swizzle(c.facts, c.swizzle));
  // With 256 bytes caches are read at 4.1 TB/s in place of 4.5 (H200, docs/performance.md).
  map.l2_promotion = TensorMapL2Promotion::l2_128b;
  if (is_k_major(c, t)) {
    map.dims = {Expression::parse("max(seqlen_k, 1)"), Expression(head_dim), Expression::parse("heads_kv"),
                Expression::parse("max(batch, 1)")};
    map.strides_bytes = {expression("v_stride_dim * {}", bytes), expression("v_stride_head * {}", bytes),
                         expression("v_stride_batch * {}", bytes)};
  } else if (is_keys(c, t)) {
    set_key_map(c, t.name, head_dim, span, bytes, map);
  } else if (is_pool(c, t)) {
    map.dims = {Expression(head_dim), expression("max({}, 1)", t.seqlen)};
    map.strides_bytes = {expression("{}_stride_seqlen * {}", t.name, bytes)};
  } else if (is_packed(c, t)) {
    map.dims = {Expression(head_dim), Expression(c.pack_gqa), expression("max({}, 1)", t.seqlen),
                Expression::parse("heads_kv"), sequences};
    map.strides_bytes = {expression("{}_stride_head * {}", t.name, bytes),
                         expression("{}_stride_seqlen * {}", t.name, bytes),
                         expression("{}_stride_head * {}", t.name, std::int64_t{c.pack_gqa} * bytes),
                         expression("{} * {}", stride_of_sequence, bytes)};
  } else {
    const bool has_rows = is_padded(c.facts);
    map.dims = {Expression(has_rows ? head_dim : span), expression("max({}, 1)", t.seqlen),
                Expression(has_rows ? 1 : head_dim / span), Expression::parse(t.heads), sequences};
    map.strides_bytes = {expression("{}_stride_seqlen * {}", t.name, bytes), Expression(span * bytes),
                         expression("{}_stride_head * {}", t.name, bytes),
                         expression("{} * {}", stride_of_sequence, bytes)};
  }
  // Four rows come at a time, each a box of its own.
  map.box = is_pool(c, t) ? std::vector<std::uint32_t>{static_cast<std::uint32_t>(span), 1} : (c.*t.box).extents;
  map.box.resize(map.dims.size(), 1);
  map.element_strides.resize(map.dims.size(), 1);
  if (is_keys(c, t)) {
    for (const int keys : c.part_keys) {
      TensorMapRecipe of_part = map;
      of_part.name = part_map(t.name, keys);
      of_part.box[1] = static_cast<std::uint32_t>(keys);
      launch.tensor_maps.push_back(std::move(of_part));
    }
  }
  // Parts of split keys are stored as they are, and merged by threads.
  if (!(t.is_output && !has_map_of_o(c)) && !(is_key && c.copies_keys)) launch.tensor_maps.push_back(std::move(map));

  BufferSpec buffer{.name = t.name,
                    .role = t.is_output ? BufferRole::output : BufferRole::input,
                    .dtype = std::string(to_word(dtype)),
                    .shape = {},
                    .strides = {}};
  if (is_cache(c, t)) {
    set_cache_buffer(c, t.name, t.seqlen, buffer);
  } else if (is_k_major(c, t)) {
    buffer.shape = {Expression::parse("batch"), Expression::parse("heads_kv"), Expression(head_dim),
                    Expression::parse("seqlen_k")};
    buffer.strides = {Expression::parse("v_stride_batch"), Expression::parse("v_stride_head"),
                      Expression::parse("v_stride_dim"), Expression(1)};
  } else if (is_keys(c, t)) {
    set_key_buffer(c, t.name, head_dim, buffer);
  } else if (is_pool(c, t)) {
    buffer.shape = {Expression::parse(t.seqlen), Expression(head_dim)};
    buffer.strides = {expression("{}_stride_seqlen", t.name), Expression(1)};
  } else if (is_ragged(c, t)) {
    buffer.shape = {Expression::parse(t.seqlen), Expression::parse(t.heads), Expression(head_dim)};
    buffer.strides = {expression("{}_stride_seqlen", t.name), expression("{}_stride_head", t.name), Expression(1)};
  } else {
    buffer.shape = {Expression::parse("batch"), Expression::parse(t.seqlen), Expression::parse(t.heads),
                    Expression(head_dim)};
    buffer.strides = {expression("{}_stride_batch", t.name), expression("{}_stride_seqlen", t.name),
                      expression("{}_stride_head", t.name), Expression(1)};
  }
  launch.buffers.push_back(std::move(buffer));
}

// An fp32 value for each row: [batch, heads_q, seqlen_q], dense; ragged: [heads_q, seqlen_q].
void add_statistic(const FmhaLaunch& c, const char* name, bool is_optional, LaunchPlan& launch) {
  std::vector<Expression> shape{Expression::parse("heads_q"), Expression::parse("seqlen_q")};
  std::vector<Expression> strides{Expression::parse("seqlen_q"), Expression(1)};
  if (!is_ragged(c.facts)) {
    shape.insert(shape.begin(), Expression::parse("batch"));
    strides.insert(strides.begin(), Expression::parse("heads_q * seqlen_q"));
  }
  launch.buffers.push_back({.name = name,
                            .role = BufferRole::output,
                            .dtype = "f32",
                            .shape = std::move(shape),
                            .strides = std::move(strides),
                            .alignment = 4,
                            .is_optional = is_optional});
}

// Each rule keeps the products of the next within 64 bits.
void add_domain(const FmhaLaunch& c, LaunchPlan& launch) {
  const auto rule = [&](Expression lhs, Relation relation, Expression rhs, std::string message) {
    launch.domain.push_back(
        {.lhs = std::move(lhs), .relation = relation, .rhs = std::move(rhs), .message = std::move(message)});
  };
  const auto at_most = [&](Expression lhs, const char* what) {
    rule(std::move(lhs), Relation::at_most, Expression(kMaxLength),
         fmt::format("{} must be at most {}", what, kMaxLength));
  };
  rule(Expression::parse("heads_q"), Relation::multiple_of, Expression::parse("heads_kv"),
       "heads_q must be a multiple of heads_kv");
  if (has_pools(c.facts) || is_latent(c))
    rule(Expression::parse("heads_kv"), Relation::equal, Expression(1),
         is_latent(c) ? "heads_kv must be 1: all heads share the keys that are values too"
                      : "heads_kv must be 1: a query's heads share the rows that it lists");
  if (c.pack_gqa > 1 || has_pools(c.facts) || is_latent(c)) {
    rule(Expression::parse("heads_q"), Relation::equal, expression("heads_kv * {}", c.pack_gqa),
         fmt::format("heads_q must be {0} times heads_kv: this kernel packs {0} query heads of a key head; plan "
                     "another with another pack_gqa",
                     c.pack_gqa));
    at_most(expression("seqlen_q * {}", c.padded_heads),
            c.padded_heads == c.pack_gqa ? "the queries times pack_gqa" : "the queries times their rows of tiles");
  }
  at_most(Expression::parse("seqlen_q + seqlen_k"), "seqlen_q + seqlen_k");
  if (has_pools(c.facts)) at_most(Expression::parse("topk + seqlen_swa"), "topk + seqlen_swa");
  at_most(Expression::parse("heads_q * batch"), "heads_q * batch");
  at_most(tiles_of(c), "the number of query tiles");
  if (c.is_dealt)
    at_most(Expression::parse(blocks_of(c)), has_split_size(c.facts)
                                                 ? "the number of query tiles times their parts of keys"
                                                 : "the number of query tiles times their blocks of keys");
  if (has_split_size(c.facts) && !c.is_dealt)
    rule(Expression::parse("num_splits"), Relation::at_least, Expression::parse(max_parts_of(c)),
         fmt::format("num_splits must be as many parts of {} keys as a query tile may have", c.facts.split_size));
  if (c.is_split) {
    if (!c.is_dealt)
      at_most(expression("{} * num_splits", tiles_of(c).text()), "the number of query tiles times num_splits");
    at_most(Expression::parse(is_ragged(c.facts) ? "heads_q * seqlen_q" : "heads_q * batch * seqlen_q"),
            "the number of rows");
  }
  if (!has_map_of_o(c)) {
    const int alignment = 16 / o_element_bytes(c.facts);
    for (const std::string& stride : strides_of_o(c))
      rule(Expression::parse(stride), Relation::multiple_of, Expression(alignment),
           fmt::format("{} must be a multiple of {} (16 bytes)", stride, alignment));
  }
  if (lies_in_places(c)) add_key_domain(c, launch);
  add_key_scale_domain(c, launch);
  if (copies_pools(c)) add_pool_domain(c, launch);
  if (c.facts.v_layout == Layout::k_major) {
    rule(Expression::parse("v_stride_dim"), Relation::multiple_of, Expression(8),
         "v_stride_dim must be a multiple of 8 (16 bytes, tensor map): pad the rows of v (--pad-rows), which need not "
         "be dense");
  }
}

}  // namespace

LaunchPlan fmha_launch(const FmhaLaunch& config, const std::string& arch, const std::string& kernel,
                       const std::string& merge) {
  LaunchPlan launch;
  launch.op = "fmha";
  launch.arch = arch;
  add_sizes(config, launch);
  launch.scalars.push_back({.name = "softmax_scale",
                            .default_value = 1 / std::sqrt(static_cast<double>(config.facts.head_dim)),
                            .help = "factor of the scores: 1 / sqrt(head_dim) by default"});
  if (config.facts.softcap != Softcap::none)
    launch.scalars.push_back({.name = "softcap", .default_value = {}, .help = "cap of the scores: positive"});
  for (const Tensor& tensor : tensors_of(config)) add_tensor(config, tensor, launch);
  add_statistic(config, "lse", true, launch);
  if (config.facts.output == Output::unnormalized) {
    add_statistic(config, "row_max", false, launch);
    add_statistic(config, "row_sum", false, launch);
  }
  if (config.facts.seqused == UsedLengths::qk) add_lengths("seqused_q", launch);
  if (config.facts.seqused != UsedLengths::none) add_lengths("seqused_k", launch);
  if (is_ragged(config.facts))
    add_numbers("cu_seqlens_q", "s32", {Expression::parse("batch + 1")}, {Expression(1)}, launch);
  if (has_pools(config.facts)) add_pools(config, launch);
  if (has_sink(config.facts)) add_of_heads("sink", true, launch);
  if (config.facts.alibi != Alibi::none) add_of_heads("alibi_slopes", false, launch);
  if (config.facts.tree_mask != TreeMask::none) add_tree(config, launch);
  if (lies_in_places(config)) add_key_places(config, launch);
  add_descales(config, launch);
  add_key_scales(config, launch);
  add_domain(config, launch);
  launch.steps.push_back(step_of(config, kernel));
  if (config.is_split) {
    std::string bytes = fmt::format("{} * {}", part_rows_of(config), 4 * (config.facts.head_dim_v + 2));
    if (config.has_cuts) bytes += fmt::format(" + {} * {}", ranges_of(config), 4 * fmha::kCutWords);
    if (config.joins_tails)
      bytes +=
          fmt::format(" + {} * {} * {}", tiles_of_sequence(config), ranges_of(config), 4 * fmha_latent::kTailWords);
    launch.workspace.bytes = Expression::parse(bytes);
    launch.steps.push_back(config.is_dealt ? merge_step_of_dealt(config, merge) : merge_step(config, merge));
  }
  return launch;
}

}  // namespace tessera

// The launch of an attention kernel as data: sizes and strides, buffers, domain, tensor maps, and the steps: the
// kernel, and behind it the one that merges where keys are split. Both families' launches are written here; their
// planners fill an FmhaLaunch with what differs. The kernel's side of every line stands in the head of spec/fmha.h,
// and what tcgen05 has besides in that of spec/fmha_tcgen05.h.
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
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxSms = 1 << 16;
constexpr std::int64_t kMaxSplits = 256;

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
  if (is_latent(c)) std::erase_if(tensors, [](const Tensor& t) { return t.operand == Operand::v; });
  if (has_pools(c.facts)) tensors.insert(tensors.end(), std::begin(kWindowTensors), std::end(kWindowTensors));
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

/// Tiles of queries, without the parts of their keys; ragged: at most.
Expression tiles_of(const FmhaLaunch& c) {
  if (is_ragged(c.facts))
    return expression("(ceil_div(seqlen_q * {}, {}) + batch) * {}", c.pack_gqa, c.tile_rows,
                      c.pack_gqa == 1 ? "heads_q" : "heads_kv");
  if (c.pack_gqa == 1 && !has_pools(c.facts))
    return expression("ceil_div(seqlen_q, {}) * heads_q * batch", c.tile_rows);
  return expression("ceil_div(seqlen_q * {}, {}) * heads_kv * batch", c.padded_heads, c.tile_rows);
}

/// CTAs that the device has places for, or pairs; rows of CTAs where the tiles of a sequence run side by side.
std::string places_of(const FmhaLaunch& c) {
  if (is_latent(c)) return latent_places(c);
  // Half of num_sms, rounded down, but never none.
  if (c.ctas_per_tile == 2) return "max(ceil_div(num_sms - 1, 2), 1)";
  return c.ctas_per_sm == 1 ? "num_sms" : fmt::format("{} * num_sms", c.ctas_per_sm);
}

/// Most blocks of keys that all tiles may have.
std::string blocks_of(const FmhaLaunch& c) {
  if (is_latent(c)) return latent_units(c);
  return fmt::format("{} * max(ceil_div(seqlen_k, {}), 1)", tiles_of(c).text(), c.tile_n);
}
/// Dealt keys: CTAs, or pairs, that have a range. None has less than a block.
std::string ranges_of(const FmhaLaunch& c) { return fmt::format("min({}, {})", places_of(c), blocks_of(c)); }
/// Rows of the workspace that parts take.
std::string part_rows_of(const FmhaLaunch& c) {
  if (!c.is_dealt) return "num_splits * batch * heads_q * seqlen_q";
  const std::string ctas = is_latent(c) ? tiles_of_sequence(c) + " * " + ranges_of(c) : ranges_of(c);
  return fmt::format("2 * {} * min(seqlen_q * {}, {})", ctas, c.pack_gqa, c.tile_rows);
}

/// Most keys that the queries of a tile see. A bound of -1 is none, which counts as all keys.
std::string seen_keys(const FmhaLaunch& c) {
  if (c.facts.window == Window::none) return "seqlen_k";
  const std::int64_t queries = ceil_div(c.tile_rows, c.padded_heads);
  if (c.facts.window == Window::chunked) return fmt::format("min(seqlen_k, {} + attention_chunk)", queries);
  const auto side = [](const char* name) { return fmt::format("max({0}, 0) + seqlen_k * max(0 - {0}, 0)", name); };
  std::string window = fmt::format("{} + {}", queries, side("window_size_left"));
  if (c.facts.mask == Mask::none) window += " + " + side("window_size_right");
  return fmt::format("min(seqlen_k, {})", window);
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
    size("seqlen_swa", 0, kMaxLength, {}, "keys of a sequence's window");
  }
  for (const Tensor& t : tensors_of(c)) {
    // What is written must not overlap: a stride of 0 is for inputs only.
    const std::int64_t min = t.is_output ? 1 : 0;
    const int head_dim = c.facts.*t.head_dim;
    const auto help = [&](const char* what) {
      return fmt::format("elements of {} from one {} to the next", t.name, what);
    };
    if (is_pool(c, t)) {
      size(fmt::format("{}_stride_seqlen", t.name), 0, kMaxStride, Expression(head_dim), help("row"));
      continue;
    }
    if (is_keys(c, t)) {
      add_key_strides(c, t.name, head_dim, launch);
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
  if (widens_keys(c.facts)) add_descale_sizes(launch);
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
  if (c.is_split && !c.is_dealt) {
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
  const DType dtype = is_f32 ? DType::f32 : is_key ? key_dtype(c.facts) : c.facts.dtype;
  const int bytes = dtype_bytes(dtype);
  const int head_dim = c.facts.*t.head_dim;
  const int span = (is_key ? key_span_bytes(c.facts, c.swizzle, head_dim) : swizzle_span_bytes(c.swizzle)) / bytes;

  // A dimension of one may have any stride.
  const Expression sequences = is_ragged(c, t) ? Expression(1) : expression("max(batch, 1)");
  const std::string stride_of_sequence = fmt::format("{}_stride_{}", t.name, is_ragged(c, t) ? "seqlen" : "batch");

  TensorMapRecipe map;
  map.name = t.name;
  map.buffer = t.name;
  map.type = tensor_map_type(dtype);
  map.swizzle = tensor_map_swizzle(is_key ? key_swizzle(c.facts, c.swizzle) : c.swizzle);
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
  // Parts of split keys are stored as they are, and merged by threads.
  if (!(t.is_output && !has_map_of_o(c)) && !(is_keys(c, t) && c.copies_keys))
    launch.tensor_maps.push_back(std::move(map));

  BufferSpec buffer{.name = t.name,
                    .role = t.is_output ? BufferRole::output : BufferRole::input,
                    .dtype = std::string(to_word(dtype)),
                    .shape = {},
                    .strides = {}};
  if (is_k_major(c, t)) {
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

std::vector<std::string> strides_of_o(const FmhaLaunch& c) {
  std::vector<std::string> strides{"o_stride_head", "o_stride_seqlen"};
  if (!is_ragged(c.facts)) strides.emplace_back("o_stride_batch");
  return strides;
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
  if (c.is_dealt) at_most(Expression::parse(blocks_of(c)), "the number of query tiles times their blocks of keys");
  if (c.is_split) {
    if (!c.is_dealt)
      at_most(expression("{} * num_splits", tiles_of(c).text()), "the number of query tiles times num_splits");
    at_most(Expression::parse(is_ragged(c.facts) ? "heads_q * seqlen_q" : "heads_q * batch * seqlen_q"),
            "the number of rows");
  }
  if (!has_map_of_o(c)) {
    const int alignment = 16 / (c.facts.output == Output::unnormalized ? 4 : dtype_bytes(c.facts.dtype));
    for (const std::string& stride : strides_of_o(c))
      rule(Expression::parse(stride), Relation::multiple_of, Expression(alignment),
           fmt::format("{} must be a multiple of {} (16 bytes)", stride, alignment));
  }
  if (lies_in_places(c)) add_key_domain(c, launch);
  if (c.facts.v_layout == Layout::k_major) {
    rule(Expression::parse("v_stride_dim"), Relation::multiple_of, Expression(8),
         "v_stride_dim must be a multiple of 8 (16 bytes, tensor map): pad the rows of v (--pad-rows), which need not "
         "be dense");
  }
}

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
  void strides(const FmhaLaunch& c) {
    for (const std::string& stride : strides_of_o(c)) size(stride.c_str(), ParameterKind::i64);
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
  if (is_latent(c)) step.grid[0] = expression("{} * {}", tiles_of_sequence(c), ranges_of(c));
  step.cluster[0] = static_cast<std::uint32_t>(c.ctas_per_tile);
  step.block[0] = static_cast<std::uint32_t>(c.threads);
  step.dynamic_smem_bytes = c.smem_bytes;
  Parameters parameters(step);
  parameters.map("q");
  if (!c.copies_keys) parameters.map("k");
  if (!c.copies_keys && !is_latent(c)) parameters.map("v");
  if (!c.is_split && !is_latent(c)) {
    if (has_map_of_o(c)) parameters.map("o");
    parameters.statistics(c);
  } else if (c.is_dealt || is_latent(c)) {
    parameters.pointer("o");
    parameters.statistics(c);
  }
  if (c.facts.seqused == UsedLengths::qk) parameters.pointer("seqused_q");
  if (c.facts.seqused != UsedLengths::none) parameters.pointer("seqused_k");
  if (is_ragged(c.facts)) parameters.pointer("cu_seqlens_q");
  if (stores_rows(c) && !c.is_dealt && !is_latent(c)) parameters.add("o_rows", ParameterKind::pointer, {}, "o");
  if (c.is_split) parameters.parts(c);
  if (has_pools(c.facts)) {
    for (const char* const map : {"swa_k", "swa_v"}) parameters.map(map);
    for (const char* const buffer : {"indices", "swa_lens"}) parameters.pointer(buffer);
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
  }
  for (const char* const size : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"}) parameters.size(size);
  if (c.is_split && !c.is_dealt) parameters.size("num_splits");
  if (c.facts.window == Window::chunked) parameters.size("attention_chunk");
  if (c.facts.window == Window::sliding) {
    parameters.size("window_size_left");
    parameters.size("window_size_right");
  }
  parameters.add("softmax_scale", ParameterKind::f32, {}, "softmax_scale");
  if (c.facts.softcap != Softcap::none) parameters.add("softcap", ParameterKind::f32, {}, "softcap");
  if (lies_in_places(c)) add_key_parameters(c, step);
  if (widens_keys(c.facts)) add_descale_parameters(step);
  if (stores_rows(c) || is_latent(c)) parameters.strides(c);
  return step;
}

/// With the first step's parameters: what rows see is looked up again.
LaunchStep merge_step_of_dealt(const FmhaLaunch& c, const LaunchStep& first) {
  LaunchStep step = first;
  step.entry += "_merge";
  const std::string cuts = "max(" + ranges_of(c) + " - 1, 0)" + (is_latent(c) ? " * " + tiles_of_sequence(c) : "");
  step.grid[0] = expression("{} * ceil_div(min(seqlen_q * {}, {}), {})", cuts, c.pack_gqa, c.tile_rows, c.merge_rows);
  step.cluster[0] = 1;
  step.block[0] = static_cast<std::uint32_t>(32 * c.merge_rows);
  step.dynamic_smem_bytes = 0;
  step.programmatic_stream_serialization = true;
  Parameters(step).add("num_ctas", ParameterKind::i32, Expression::parse(ranges_of(c)), "");
  return step;
}

LaunchStep merge_step(const FmhaLaunch& c, const std::string& kernel) {
  LaunchStep step;
  step.entry = kernel + "_merge";
  step.grid[0] = expression("ceil_div(batch * heads_q * seqlen_q, {})", c.merge_rows);
  step.block[0] = static_cast<std::uint32_t>(32 * c.merge_rows);
  step.programmatic_stream_serialization = true;
  Parameters parameters(step);
  parameters.parts(c);
  parameters.pointer("o");
  parameters.statistics(c);
  if (has_sink(c.facts)) parameters.pointer("sink");
  for (const char* const size : {"batch", "heads_q", "seqlen_q", "num_splits"}) parameters.size(size);
  parameters.strides(c);
  return step;
}

}  // namespace

LaunchPlan fmha_launch(const FmhaLaunch& config, const std::string& arch, const std::string& kernel) {
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
  if (has_pools(config.facts)) add_pools(launch);
  if (has_sink(config.facts)) add_of_heads("sink", true, launch);
  if (config.facts.alibi != Alibi::none) add_of_heads("alibi_slopes", false, launch);
  if (config.facts.tree_mask != TreeMask::none) add_tree(config, launch);
  if (lies_in_places(config)) add_key_places(config, launch);
  if (widens_keys(config.facts)) add_descales(launch);
  add_domain(config, launch);
  launch.steps.push_back(step_of(config, kernel));
  if (config.is_split) {
    launch.workspace.bytes = expression("{} * {}", part_rows_of(config), 4 * (config.facts.head_dim_v + 2));
    launch.steps.push_back(config.is_dealt ? merge_step_of_dealt(config, launch.steps.front())
                                           : merge_step(config, kernel));
  }
  return launch;
}

}  // namespace tessera

// The launch of an attention kernel as data: sizes and strides, buffers, domain, tensor maps, the one step. The
// kernel's side of every line stands in the head of spec/fmha.h, for tcgen05 too.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>

#include "generator/fmha_operator.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxLength = (std::int64_t{1} << 31) - (1 << 16);  // coordinates and sums of lengths stay in int
constexpr std::int64_t kMaxHeads = 1 << 16;
constexpr std::int64_t kMaxStride = std::int64_t{1} << 40;
constexpr std::int64_t kMaxSms = 1 << 16;

// q, k, v and o: whose heads and length they have, and which head_dim.
struct Tensor {
  const char* name;
  const char* heads;
  const char* seqlen;
  bool is_output;
  int FmhaLaunch::*head_dim;
  FmhaLaunch::Box FmhaLaunch::*box;
};
constexpr Tensor kTensors[] = {{"q", "heads_q", "seqlen_q", false, &FmhaLaunch::head_dim, &FmhaLaunch::q},
                               {"k", "heads_kv", "seqlen_k", false, &FmhaLaunch::head_dim, &FmhaLaunch::k},
                               {"v", "heads_kv", "seqlen_k", false, &FmhaLaunch::head_dim_v, &FmhaLaunch::v},
                               {"o", "heads_q", "seqlen_q", true, &FmhaLaunch::head_dim_v, &FmhaLaunch::o}};

// V with keys side by side.
bool is_k_major(const FmhaLaunch& c, const Tensor& t) { return t.name[0] == 'v' && c.v_layout == Layout::k_major; }

void add_sizes(const FmhaLaunch& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("batch", 0, kMaxLength, {}, "sequences");
  size("heads_q", 1, kMaxHeads, {}, "query heads: a multiple of heads_kv");
  size("heads_kv", 1, kMaxHeads, {}, "key and value heads");
  size("seqlen_q", 0, kMaxLength, {}, "queries of a sequence");
  size("seqlen_k", 0, kMaxLength, {}, "keys of a sequence");
  for (const Tensor& t : kTensors) {
    // What is written must not overlap: a stride of 0 is for inputs only.
    const std::int64_t min = t.is_output ? 1 : 0;
    const int head_dim = c.*t.head_dim;
    const auto help = [&](const char* what) {
      return fmt::format("elements of {} from one {} to the next", t.name, what);
    };
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
    size(fmt::format("{}_stride_batch", t.name), min, kMaxStride,
         expression("max({}, 1) * {} * {}", t.seqlen, t.heads, head_dim), help("sequence"));
  }
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
}

void add_tensor(const FmhaLaunch& c, const Tensor& t, LaunchPlan& launch) {
  const bool is_f32 = t.is_output && c.output == Output::unnormalized;
  const DType dtype = is_f32 ? DType::f32 : c.dtype;
  const int bytes = dtype_bytes(dtype);
  const int span = swizzle_span_bytes(c.swizzle) / bytes;
  const int head_dim = c.*t.head_dim;

  TensorMapRecipe map;
  map.name = t.name;
  map.buffer = t.name;
  map.type = tensor_map_type(dtype);
  map.swizzle = tensor_map_swizzle(c.swizzle);
  if (is_k_major(c, t)) {
    map.dims = {Expression::parse("max(seqlen_k, 1)"), Expression(head_dim), Expression::parse("heads_kv"),
                Expression::parse("max(batch, 1)")};
    map.strides_bytes = {expression("v_stride_dim * {}", bytes), expression("v_stride_head * {}", bytes),
                         expression("v_stride_batch * {}", bytes)};
  } else {
    map.dims = {Expression(span), expression("max({}, 1)", t.seqlen), Expression(head_dim / span),
                Expression::parse(t.heads), expression("max(batch, 1)")};
    map.strides_bytes = {expression("{}_stride_seqlen * {}", t.name, bytes), Expression(span * bytes),
                         expression("{}_stride_head * {}", t.name, bytes),
                         expression("{}_stride_batch * {}", t.name, bytes)};
  }
  map.box = (c.*t.box).extents;
  map.box.resize(map.dims.size(), 1);
  map.element_strides.resize(map.dims.size(), 1);
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
  } else {
    buffer.shape = {Expression::parse("batch"), Expression::parse(t.seqlen), Expression::parse(t.heads),
                    Expression(head_dim)};
    buffer.strides = {expression("{}_stride_batch", t.name), expression("{}_stride_seqlen", t.name),
                      expression("{}_stride_head", t.name), Expression(1)};
  }
  launch.buffers.push_back(std::move(buffer));
}

// An fp32 value for each row: [batch, heads_q, seqlen_q], dense.
void add_statistic(const char* name, bool is_optional, LaunchPlan& launch) {
  launch.buffers.push_back(
      {.name = name,
       .role = BufferRole::output,
       .dtype = "f32",
       .shape = {Expression::parse("batch"), Expression::parse("heads_q"), Expression::parse("seqlen_q")},
       .strides = {Expression::parse("heads_q * seqlen_q"), Expression::parse("seqlen_q"), Expression(1)},
       .alignment = 4,
       .is_optional = is_optional});
}

// Each rule keeps the products of the next within 64 bits.
void add_domain(const FmhaLaunch& c, const Expression& tiles, LaunchPlan& launch) {
  const auto at_most = [&](Expression lhs, const char* what) {
    launch.domain.push_back({.lhs = std::move(lhs),
                             .relation = Relation::at_most,
                             .rhs = Expression(kMaxLength),
                             .message = fmt::format("{} must be at most {}", what, kMaxLength)});
  };
  launch.domain.push_back({.lhs = Expression::parse("heads_q"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression::parse("heads_kv"),
                           .message = "heads_q must be a multiple of heads_kv"});
  at_most(Expression::parse("seqlen_q + seqlen_k"), "seqlen_q + seqlen_k");
  at_most(Expression::parse("heads_q * batch"), "heads_q * batch");
  at_most(tiles, "the number of query tiles");
  if (c.v_layout == Layout::k_major) {
    launch.domain.push_back({.lhs = Expression::parse("v_stride_dim"),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(8),
                             .message = "v_stride_dim must be a multiple of 8 (16 bytes, tensor map): pad the keys of "
                                        "v, which need not be dense"});
  }
}

LaunchStep step_of(const FmhaLaunch& c, const Expression& tiles, const std::string& kernel) {
  LaunchStep step;
  step.entry = kernel;
  // Half of num_sms, rounded down, but never none.
  step.grid[0] = c.ctas_per_tile == 2 ? expression("2 * min(max(ceil_div(num_sms - 1, 2), 1), {})", tiles.text())
                                      : expression("min({} * num_sms, {})", c.ctas_per_sm, tiles.text());
  step.cluster[0] = static_cast<std::uint32_t>(c.ctas_per_tile);
  step.block[0] = static_cast<std::uint32_t>(c.threads);
  step.dynamic_smem_bytes = c.smem_bytes;
  const auto parameter = [&](const char* name, ParameterKind kind, Expression value, const char* source) {
    step.parameters.push_back(
        {.name = name, .kind = kind, .value = std::move(value), .source = source, .offset_bytes = {}});
  };
  for (const char* const map : {"q", "k", "v", "o"}) parameter(map, ParameterKind::tensor_map, {}, map);
  parameter("lse", ParameterKind::pointer, {}, "lse");
  if (c.output == Output::unnormalized) {
    parameter("row_max", ParameterKind::pointer, {}, "row_max");
    parameter("row_sum", ParameterKind::pointer, {}, "row_sum");
  }
  for (const char* const size : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"})
    parameter(size, ParameterKind::i32, Expression::parse(size), "");
  parameter("softmax_scale", ParameterKind::f32, {}, "softmax_scale");
  return step;
}

}  // namespace

LaunchPlan fmha_launch(const FmhaLaunch& config, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "fmha";
  launch.arch = arch;
  add_sizes(config, launch);
  launch.scalars.push_back({.name = "softmax_scale",
                            .default_value = 1 / std::sqrt(static_cast<double>(config.head_dim)),
                            .help = "factor of the scores: 1 / sqrt(head_dim) by default"});
  for (const Tensor& tensor : kTensors) add_tensor(config, tensor, launch);
  add_statistic("lse", true, launch);
  if (config.output == Output::unnormalized) {
    add_statistic("row_max", false, launch);
    add_statistic("row_sum", false, launch);
  }
  const Expression tiles = expression("ceil_div(seqlen_q, {}) * heads_q * batch", config.tile_m);
  add_domain(config, tiles, launch);
  launch.steps.push_back(step_of(config, tiles, kernel));
  return launch;
}

}  // namespace tessera

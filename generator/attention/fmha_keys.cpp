#include "generator/attention/fmha_keys.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "generator/operator_words.h"
#include "spec/attention_cache.h"

namespace tessera {

namespace {

bool is_paged(const FmhaLaunch& c) { return c.facts.kv_layout == KvLayout::paged; }

/// visit("k", "page"), ...: every stride of k and v.
template <class Visit>
void for_strides(const FmhaLaunch& c, const Visit& visit) {
  for (const char* const tensor : {"k", "v"}) {
    if (is_latent(c) && tensor == std::string_view("v")) continue;
    for (const char* const step : {"page", "seqlen", "head"})
      if (is_paged(c) || step != std::string_view("page")) visit(fmt::format("{}_stride_{}", tensor, step));
  }
}

}  // namespace

void add_key_sizes(const FmhaLaunch& c, LaunchPlan& launch) {
  const auto size = [&](const char* name, std::optional<Expression> value, const char* help) {
    launch.sizes.push_back({name, 0, kMaxLength, std::move(value), help});
  };
  if (is_paged(c)) {
    size("pages", {}, "pages of the pool");
    size("max_pages", {}, "entries of a sequence in block_table");
  } else {
    size("tokens_k", {}, "keys of all sequences together");
  }
  size("seqlen_k", is_paged(c) ? expression("max_pages * {}", c.facts.page_size) : Expression::parse("tokens_k"),
       "most keys of a sequence");
}

void add_key_strides(const FmhaLaunch& c, const std::string& tensor, int head_dim, LaunchPlan& launch) {
  const auto size = [&](const char* step, Expression value, const char* what) {
    launch.sizes.push_back({fmt::format("{}_stride_{}", tensor, step), 0, kMaxStride, std::move(value),
                            fmt::format("elements of {} from one {} to the next", tensor, what)});
  };
  size("head", Expression(head_dim), "head");
  size("seqlen", expression("heads_kv * {}", head_dim), "key");
  if (is_paged(c)) size("page", expression("heads_kv * {}", std::int64_t{c.facts.page_size} * head_dim), "page");
}

void set_key_map(const FmhaLaunch& c, const std::string& tensor, int head_dim, int span, int bytes,
                 TensorMapRecipe& map) {
  const auto stride = [&](const char* step) { return expression("{}_stride_{} * {}", tensor, step, bytes); };
  const Expression keys = is_paged(c) ? Expression(c.facts.page_size) : Expression::parse("max(tokens_k, 1)");
  const Expression pages = is_paged(c) ? Expression::parse("max(pages, 1)") : Expression(1);
  const bool has_rows = is_padded(c.facts);
  map.dims = {Expression(has_rows ? head_dim : span), keys, Expression(has_rows ? 1 : head_dim / span),
              Expression::parse("heads_kv"), pages};
  map.strides_bytes = {stride("seqlen"), Expression(span * bytes), stride("head"),
                       stride(is_paged(c) ? "page" : "seqlen")};
}

void set_key_buffer(const FmhaLaunch& c, const std::string& tensor, int head_dim, BufferSpec& buffer) {
  const auto stride = [&](const char* step) { return expression("{}_stride_{}", tensor, step); };
  if (is_paged(c)) {
    buffer.shape = {Expression::parse("pages"), Expression(c.facts.page_size), Expression::parse("heads_kv"),
                    Expression(head_dim)};
    buffer.strides = {stride("page"), stride("seqlen"), stride("head"), Expression(1)};
  } else {
    buffer.shape = {Expression::parse("tokens_k"), Expression::parse("heads_kv"), Expression(head_dim)};
    buffer.strides = {stride("seqlen"), stride("head"), Expression(1)};
  }
}

void add_key_places(const FmhaLaunch& c, LaunchPlan& launch) {
  BufferSpec buffer{.name = is_paged(c) ? "block_table" : "cu_seqlens_k",
                    .role = BufferRole::input,
                    .dtype = "s32",
                    .shape = {Expression::parse("batch + 1")},
                    .strides = {Expression(1)},
                    .alignment = 4};
  if (is_paged(c)) {
    buffer.shape = {Expression::parse("batch"), Expression::parse("max_pages")};
    buffer.strides = {Expression::parse("max_pages"), Expression(1)};
  }
  launch.buffers.push_back(std::move(buffer));
}

namespace {

/// For 16 bytes of a thread.
void add_stride_rule(const FmhaLaunch& c, const std::string& stride, LaunchPlan& launch) {
  const int elements = has_cache(c.facts) ? 16 : 16 / dtype_bytes(key_dtype(c.facts));
  launch.domain.push_back({.lhs = Expression::parse(stride),
                           .relation = Relation::multiple_of,
                           .rhs = Expression(elements),
                           .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride, elements)});
}

}  // namespace

void add_key_domain(const FmhaLaunch& c, LaunchPlan& launch) {
  if (is_paged(c))
    launch.domain.push_back(
        {.lhs = Expression::parse("seqlen_k"),
         .relation = Relation::at_most,
         .rhs = expression("max_pages * {}", c.facts.page_size),
         .message = fmt::format("seqlen_k must be at most max_pages times page_size, which is {}", c.facts.page_size)});
  for_strides(c, [&](const std::string& stride) { add_stride_rule(c, stride, launch); });
}

void add_key_parameters(const FmhaLaunch& c, LaunchStep& step) {
  const auto pointer = [&](const char* name, const char* source) {
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::pointer, .value = {}, .source = source, .offset_bytes = {}});
  };
  const auto size = [&](const std::string& name, ParameterKind kind) {
    step.parameters.push_back(
        {.name = name, .kind = kind, .value = Expression::parse(name), .source = "", .offset_bytes = {}});
  };
  if (!is_latent(c)) {  // which threads do not read
    pointer("k_keys", "k");
    pointer("v_keys", "v");
  }
  if (is_paged(c)) {
    pointer("block_table", "block_table");
    size("pages", ParameterKind::i32);
    size("max_pages", ParameterKind::i32);
  } else {
    pointer("cu_seqlens_k", "cu_seqlens_k");
    size("tokens_k", ParameterKind::i32);
  }
  if (!is_latent(c)) for_strides(c, [&](const std::string& stride) { size(stride, ParameterKind::i64); });
}

std::span<const char* const> descales_of(const AttentionFacts& facts) {
  static constexpr const char* kAll[] = {"q_descale", "k_descale", "v_descale"};
  if (widens_keys(facts) && facts.v_is_k == VIsK::on) return std::span(kAll).subspan(1, 1);  // v is a part of k
  return std::span(kAll).subspan(is_8_bit(facts) ? 0 : widens_keys(facts) ? 1 : 3);
}

void add_descale_sizes(const FmhaLaunch& c, LaunchPlan& launch) {
  for (const char* const name : descales_of(c.facts)) {
    const auto size = [&](const char* step, Expression value, const char* what) {
      launch.sizes.push_back({fmt::format("{}_stride_{}", name, step), 0, kMaxStride, std::move(value),
                              fmt::format("elements of {} from one {} to the next; 0: one for all", name, what)});
    };
    size("batch", Expression::parse("heads_kv"), "sequence");
    size("head", Expression(1), "head");
  }
}

void add_descales(const FmhaLaunch& c, LaunchPlan& launch) {
  for (const char* const name : descales_of(c.facts)) {
    add_numbers(name, "f32", {Expression::parse("batch"), Expression::parse("heads_kv")},
                {expression("{}_stride_batch", name), expression("{}_stride_head", name)}, launch);
    launch.buffers.back().is_optional = true;
  }
}

void add_descale_parameters(const FmhaLaunch& c, LaunchStep& step) {
  const auto add = [&](const std::string& name, ParameterKind kind) {
    const bool is_pointer = kind == ParameterKind::pointer;
    step.parameters.push_back({.name = name,
                               .kind = kind,
                               .value = is_pointer ? Expression() : Expression::parse(name),
                               .source = is_pointer ? name : "",
                               .offset_bytes = {}});
  };
  for (const char* const name : descales_of(c.facts)) add(name, ParameterKind::pointer);
  for (const char* const name : descales_of(c.facts))
    for (const char* const step_of : {"_stride_batch", "_stride_head"})
      add(std::string(name) + step_of, ParameterKind::i64);
}

std::span<const char* const> key_scales_of(const AttentionFacts& facts) {
  static constexpr const char* kBoth[] = {"k_scale", "v_scale"};
  return std::span(kBoth).subspan(has_key_scales(facts) ? 0 : 2);
}

namespace {

int scale_bytes_of(const FmhaLaunch& c, std::string_view name) {
  return key_scale_bytes(c.facts, name == "k_scale" ? c.facts.head_dim : c.facts.head_dim_v);
}

}  // namespace

void add_key_scale_sizes(const FmhaLaunch& c, LaunchPlan& launch) {
  for (const char* const name : key_scales_of(c.facts)) {
    const auto size = [&](const char* step, Expression value) {
      launch.sizes.push_back({fmt::format("{}_stride_{}", name, step), 0, kMaxStride, std::move(value),
                              fmt::format("bytes of {} from one {} to the next", name, step)});
    };
    size("head", Expression(std::int64_t{c.facts.page_size} * scale_bytes_of(c, name)));
    size("page", expression("heads_kv * {}", std::int64_t{c.facts.page_size} * scale_bytes_of(c, name)));
  }
}

void add_key_scales(const FmhaLaunch& c, LaunchPlan& launch) {
  for (const char* const name : key_scales_of(c.facts)) {
    const int bytes = scale_bytes_of(c, name);
    add_numbers(
        name, "u8",
        {Expression::parse("pages"), Expression::parse("heads_kv"), Expression(c.facts.page_size), Expression(bytes)},
        {expression("{}_stride_page", name), expression("{}_stride_head", name), Expression(bytes), Expression(1)},
        launch);
    launch.buffers.back().alignment = 16;
  }
}

void add_key_scale_domain(const FmhaLaunch& c, LaunchPlan& launch) {
  for (const std::string name : key_scales_of(c.facts))
    for (const char* const step : {"_stride_page", "_stride_head"})
      launch.domain.push_back({.lhs = Expression::parse(name + step),
                               .relation = Relation::multiple_of,
                               .rhs = Expression(16),
                               .message = fmt::format("{}{} must be a multiple of 16 (bulk copy)", name, step)});
}

void add_key_scale_parameters(const FmhaLaunch& c, LaunchStep& step) {
  for (const char* const name : key_scales_of(c.facts))
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::pointer, .value = {}, .source = name, .offset_bytes = {}});
  for (const std::string name : key_scales_of(c.facts))
    for (const char* const of : {"_stride_page", "_stride_head"})
      step.parameters.push_back({.name = name + of,
                                 .kind = ParameterKind::i64,
                                 .value = Expression::parse(name + of),
                                 .source = "",
                                 .offset_bytes = {}});
}

void add_numbers(const char* name, const char* dtype, std::vector<Expression> shape, std::vector<Expression> strides,
                 LaunchPlan& launch) {
  launch.buffers.push_back({.name = name,
                            .role = BufferRole::input,
                            .dtype = dtype,
                            .shape = std::move(shape),
                            .strides = std::move(strides),
                            .alignment = 4});
}

void add_lengths(const char* name, LaunchPlan& launch) {
  add_numbers(name, "s32", {Expression::parse("batch")}, {Expression(1)}, launch);
}

void add_pools(const FmhaLaunch& c, LaunchPlan& launch) {
  const auto list = [&](const char* name, const char* places, bool is_optional) {
    add_numbers(name, "s32", {Expression::parse("batch"), Expression::parse("seqlen_q"), Expression::parse(places)},
                {expression("seqlen_q * {}", places), Expression::parse(places), Expression(1)}, launch);
    launch.buffers.back().is_optional = is_optional;
  };
  list("indices", "topk", false);
  add_numbers("topk_lens", "s32", {Expression::parse("batch"), Expression::parse("seqlen_q")},
              {Expression::parse("seqlen_q"), Expression(1)}, launch);
  launch.buffers.back().is_optional = true;
  add_lengths("swa_lens", launch);
  if (has_second_list(c)) list("swa_indices", "seqlen_swa", true);
}

std::vector<std::string> strides_of_pools(const FmhaLaunch& c) {
  if (has_cache(c.facts)) return {"k_stride_page", "swa_k_stride_page", "swa_k_stride_batch"};
  if (is_latent(c)) return {"k_stride_seqlen", "swa_k_stride_seqlen", "swa_k_stride_batch"};
  return {"k_stride_seqlen",    "v_stride_seqlen",     "swa_k_stride_seqlen",
          "swa_k_stride_batch", "swa_v_stride_seqlen", "swa_v_stride_batch"};
}

void add_pool_domain(const FmhaLaunch& c, LaunchPlan& launch) {
  for (const std::string& stride : strides_of_pools(c)) add_stride_rule(c, stride, launch);
}

void add_cache_strides(const FmhaLaunch& c, const std::string& tensor, const char* tokens, LaunchPlan& launch) {
  const auto size = [&](const char* step, Expression value, const char* what) {
    launch.sizes.push_back({fmt::format("{}_stride_{}", tensor, step), 0, kMaxStride, std::move(value),
                            fmt::format("bytes of {} from one {} to the next", tensor, what)});
  };
  size("page", Expression(cache_page_bytes(c.facts)), "page");
  if (tensor != "k")
    size("batch", expression("max(ceil_div({}, {}), 1) * {}_stride_page", tokens, c.facts.page_size, tensor),
         "sequence");
}

void set_cache_buffer(const FmhaLaunch& c, const std::string& tensor, const char* tokens, BufferSpec& buffer) {
  buffer.shape = {expression("ceil_div({}, {})", tokens, c.facts.page_size), Expression(cache_page_bytes(c.facts))};
  buffer.strides = {expression("{}_stride_page", tensor), Expression(1)};
  if (tensor == "k") return;
  buffer.shape.insert(buffer.shape.begin(), Expression::parse("batch"));
  buffer.strides.insert(buffer.strides.begin(), expression("{}_stride_batch", tensor));
}

void add_pool_parameters(const FmhaLaunch& c, LaunchStep& step) {
  for (const char* const keys : {"k", "v"}) {
    if (is_latent(c) && keys == std::string_view("v")) continue;
    step.parameters.push_back({.name = fmt::format("{}_keys", keys),
                               .kind = ParameterKind::pointer,
                               .value = {},
                               .source = keys,
                               .offset_bytes = {}});
  }
  for (const std::string& stride : strides_of_pools(c))
    step.parameters.push_back({.name = stride,
                               .kind = ParameterKind::i64,
                               .value = Expression::parse(stride),
                               .source = "",
                               .offset_bytes = {}});
}

void add_tree(const FmhaLaunch& c, LaunchPlan& launch) {
  std::vector<Expression> shape{Expression::parse("seqlen_q"), Expression::parse("tree_words")};
  std::vector<Expression> strides{Expression::parse("tree_words"), Expression(1)};
  if (!is_ragged(c.facts)) {
    shape.insert(shape.begin(), Expression::parse("batch"));
    strides.insert(strides.begin(), Expression::parse("seqlen_q * tree_words"));
  }
  add_numbers("tree_mask", "s32", std::move(shape), std::move(strides), launch);
}

void add_of_heads(const char* name, bool is_optional, LaunchPlan& launch) {
  add_numbers(name, "f32", {Expression::parse("heads_q")}, {Expression(1)}, launch);
  launch.buffers.back().is_optional = is_optional;
}

}  // namespace tessera

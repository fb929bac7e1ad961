#include "generator/attention/fmha_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "generator/fact_fields.h"
#include "generator/family.h"
#include "generator/words.h"
#include "spec/attention_facts.h"
#include "tessera/error.h"

namespace tessera {

std::string head_dims_text(int head_dim, int head_dim_v) {
  return head_dim == head_dim_v ? fmt::format("{}", head_dim) : fmt::format("{}/{}", head_dim, head_dim_v);
}

std::string head_dims_name(const AttentionFacts& facts) {
  std::string name = fmt::format("d{}", facts.head_dim);
  if (facts.head_dim_v != facts.head_dim) name += fmt::format("v{}", facts.head_dim_v);
  return name;
}

bool may_pin(const AttentionFacts& facts, std::string_view name) {
  if (name == "page_size") return facts.kv_layout == KvLayout::paged;
  return name != "kv_dtype" || !has_key_scales(facts);
}

MmaKind mma_sync_kind(const AttentionFacts& facts) { return is_8_bit(facts) ? MmaKind::mma_f8 : MmaKind::mma_f16; }

std::string places_name(const AttentionFacts& facts) {
  std::string name;
  if (facts.window != Window::none) name += facts.window == Window::chunked ? "_chunked" : "_window";
  if (facts.seqused != UsedLengths::none) name += fmt::format("_used{}", to_word(facts.seqused));
  if (is_ragged(facts)) name += "_raggedq";
  if (facts.kv_layout == KvLayout::paged) name += fmt::format("_paged{}", facts.page_size);
  if (facts.kv_layout == KvLayout::ragged) name += "_ragged";
  if (has_key_scales(facts)) {
    name += fmt::format("_kv{}", to_word(facts.kv_format));
  } else if (widens_keys(facts)) {
    name += fmt::format("_kv{}", to_word(facts.kv_dtype));
  }
  if (has_cache(facts)) name += fmt::format("_{}_pages{}", to_word(facts.kv_cache), facts.page_size);
  if (is_8_bit(facts) && facts.o_dtype != DType::bf16) name += fmt::format("_to_{}", to_word(facts.o_dtype));
  // Facts that are named elsewhere; any other has its own name.
  constexpr std::string_view kNamed[] = {"head_dim", "head_dim_v", "dtype",     "mask",     "window",   "seqused",
                                         "kv_pools", "kv_layout",  "page_size", "output",   "v_layout", "q_layout",
                                         "kv_dtype", "o_dtype",    "kv_cache",  "kv_format"};
  return name + other_facts_name(facts, kNamed);
}

std::string unread_fact(const AttentionFacts& facts, const AttentionFacts& read) {
  std::vector<std::string> usual;
  visit_facts(read, [&](std::string_view, const auto& value) { usual.push_back(field_value(value)); });
  std::string text;
  std::size_t i = 0;
  visit_facts(facts, [&](std::string_view name, const auto& value) {
    if (text.empty() && field_value(value) != usual[i])
      text = fmt::format("{} {}: there is no kernel that reads it", name, field_value(value));
    ++i;
  });
  return text;
}

std::vector<OperandPlan> pool_operands(const std::string& dtype, const std::string& swizzle) {
  const auto window = [&](const char* name, const char* use) {
    return OperandPlan{.name = name,
                       .dtype = dtype,
                       .tensor_map_type = swizzle.empty() ? std::string() : dtype,
                       .swizzle = swizzle,
                       .use = use};
  };
  const auto numbers = [](const char* name, const char* use) {
    return OperandPlan{.name = name, .dtype = "s32", .tensor_map_type = {}, .swizzle = {}, .use = use};
  };
  return {window("swa_k", "as k: keys of the window"), window("swa_v", "as v: likewise"),
          numbers("indices", "rows of k and v that each query sees; below 0: none"),
          numbers("topk_lens", "rows that each query lists; null: topk"),
          numbers("swa_lens", "valid keys of each sequence's window")};
}

std::vector<OperandPlan> listed_operands(const std::string& dtype) {
  const auto plain = [](const char* name, std::string type, const char* use) {
    return OperandPlan{.name = name, .dtype = std::move(type), .tensor_map_type = {}, .swizzle = {}, .use = use};
  };
  return {plain("swa_k", dtype, "as k: keys of the window"),
          plain("indices", "s32", "rows of k that each query sees; below 0: none"),
          plain("topk_lens", "s32", "rows that each query lists; null: topk"),
          plain("swa_lens", "s32", "valid keys of each sequence's window, or places of its lists"),
          plain("swa_indices", "s32", "rows of swa_k that each query sees; null: a window's")};
}

std::vector<OperandPlan> fact_operands(const AttentionFacts& facts) {
  std::vector<OperandPlan> operands;
  const auto plain = [&](bool is_asked, const char* name, const char* type, const char* use) {
    if (is_asked) operands.push_back({.name = name, .dtype = type, .tensor_map_type = {}, .swizzle = {}, .use = use});
  };
  const bool is_unnormalized = facts.output == Output::unnormalized;
  plain(is_unnormalized, "row_max", "f32", "written");
  plain(is_unnormalized, "row_sum", "f32", "written");
  plain(facts.seqused == UsedLengths::qk, "seqused_q", "s32", "valid queries of each sequence");
  plain(facts.seqused != UsedLengths::none, "seqused_k", "s32", "valid keys of each sequence");
  plain(is_ragged(facts), "cu_seqlens_q", "s32", "where each sequence's queries begin, and the end");
  plain(facts.kv_layout == KvLayout::paged, "block_table", "s32", "pages of each sequence");
  plain(facts.alibi != Alibi::none, "alibi_slopes", "f32", "a slope of each head");
  plain(facts.tree_mask != TreeMask::none, "tree_mask", "s32", "a bit for each query of the sequence");
  plain(has_sink(facts), "sink", "f32", "a logit of each head, in the denominator; may be null");
  plain(facts.kv_layout == KvLayout::ragged, "cu_seqlens_k", "s32", "where the keys of each sequence begin and end");
  plain(is_8_bit(facts), "q_descale", "f32", "factor of q, if not null");
  const bool is_latent = facts.v_is_k == VIsK::on;
  plain(has_descales(facts), "k_descale", "f32",
        is_latent ? "factor of k, and of v with it, if not null" : "factor of k, if not null");
  plain(has_descales(facts) && !is_latent, "v_descale", "f32", "factor of v, if not null");
  for (const char* const name : {"k_scale", "v_scale"})
    plain(has_key_scales(facts), name, "u8", "scales of a page's keys, head after head");
  return operands;
}

namespace {

/// What there are kernels for of keys with scales.
void require_key_scales(const Fmha& problem) {
  if (problem.kv_format == KvFormat::plain) return;
  const auto refuse = [&](const std::string& with, std::string_view remedy) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for kv_format {} with {}: take {}",
                                                    to_word(problem.kv_format), with, remedy));
  };
  if (problem.format) refuse("dtype nvfp4", "bf16, or kv_format plain");
  if (problem.dtype != DType::bf16) refuse(fmt::format("dtype {}", to_word(problem.dtype)), "bf16");
  if (problem.kv_dtype) refuse(fmt::format("kv_dtype {}", to_word(*problem.kv_dtype)), "auto: a format has its own");
  if (problem.kv_layout != KvLayout::paged) refuse(fmt::format("kv_layout {}", to_word(problem.kv_layout)), "paged");
  if (problem.kv_pools != KvPools::dense) refuse("kv_pools sparse_window", "dense");
  if (problem.v_is_k == VIsK::on) refuse("v_is_k", "off");
  const int head_dim_v = problem.head_dim_v.value_or(problem.head_dim);
  const bool is_known = problem.head_dim == 64 || problem.head_dim == 128 || problem.head_dim == 256;
  if (!is_known || head_dim_v != problem.head_dim)
    refuse("head_dim " + head_dims_text(problem.head_dim, head_dim_v), "64, 128 or 256");
  if (problem.page_size.value_or(0) == 1) refuse("page_size 1", "8 or more: a box of keys brings its scales");
}

}  // namespace

void require_dtype(const Fmha& problem) {
  require_key_scales(problem);
  const DType keys = problem.kv_dtype.value_or(problem.dtype);
  const DType o = problem.o_dtype.value_or(problem.dtype);
  if (problem.dtype == DType::e4m3) {
    if (keys != problem.dtype)
      throw Error(ErrorKind::unsupported,
                  fmt::format("fmha has no kernel for kv_dtype {} beside dtype e4m3: take e4m3", to_word(keys)));
    if (problem.o_dtype && o != DType::bf16 && o != DType::f16)
      throw Error(ErrorKind::unsupported,
                  fmt::format("fmha has no kernel for o_dtype {} beside dtype e4m3: take bf16 or f16", to_word(o)));
    return;
  }
  if (o != problem.dtype)
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for o_dtype {} beside dtype {}: take {}",
                                                    to_word(o), to_word(problem.dtype), to_word(problem.dtype)));
  if (problem.dtype == DType::bf16 || problem.dtype == DType::f16) {
    if (keys == problem.dtype || keys == DType::e4m3) return;
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for kv_dtype {} beside dtype {}: take {} or e4m3", to_word(keys),
                            to_word(problem.dtype), to_word(problem.dtype)));
  }
  throw Error(
      ErrorKind::unsupported,
      fmt::format("fmha has no kernel for dtype {}: there are kernels for bf16, f16 and e4m3", to_word(problem.dtype)));
}

void require_facts_of_scores(const Fmha& problem) {
  if (problem.kv_cache != KvCache::rows && (problem.v_is_k == VIsK::off || problem.kv_pools == KvPools::dense))
    throw Error(ErrorKind::unsupported,
                fmt::format("kv_cache {} without v_is_k and kv_pools sparse_window: there is no kernel for it: take "
                            "rows",
                            to_word(problem.kv_cache)));
  require_key_scales(problem);
  if (problem.tree_mask != TreeMask::none) {
    const auto refuse = [](std::string_view other, std::string_view why) {
      throw Error(ErrorKind::unsupported, fmt::format("tree_mask bits with {}: {}", other, why));
    };
    if (problem.mask != Mask::none)
      refuse("mask causal", "its bits say what queries see of each other: take mask none");
    if (problem.window != Window::none)
      refuse(fmt::format("window {}", to_word(problem.window)), "a query's place is not its number: take window none");
    if (problem.kv_pools != KvPools::dense) refuse("kv_pools sparse_window", "there is no kernel for it: take dense");
  }
  if (problem.window == Window::chunked && problem.mask != Mask::causal)
    throw Error(ErrorKind::unsupported,
                fmt::format("window chunked with mask {}: a query sees the keys of its chunk up to itself: take mask "
                            "causal",
                            to_word(problem.mask)));
  if (problem.kv_pools != KvPools::dense && (problem.softcap != Softcap::none || problem.alibi != Alibi::none))
    throw Error(ErrorKind::unsupported, fmt::format("{} with kv_pools {}: there is no kernel for it: take none",
                                                    problem.alibi != Alibi::none ? "alibi per_head" : "softcap tanh",
                                                    to_word(problem.kv_pools)));
  if (problem.sink != Sink::none && problem.output == Output::unnormalized)
    throw Error(ErrorKind::unsupported,
                "sink per_head with output unnormalized: nothing is divided, so that a sink has no place: take sink "
                "none, and add exp(sink - row_max) to row_sum where the rows are divided");
}

void require_queries(const Fmha& problem) {
  if (problem.q_layout != QueryLayout::ragged) return;
  if (problem.seqused == UsedLengths::qk)
    throw Error(ErrorKind::unsupported,
                "seqused qk with q_layout ragged: cu_seqlens_q says how many queries a sequence "
                "has; take seqused k");
  if (problem.kv_pools != KvPools::dense)
    throw Error(ErrorKind::unsupported, fmt::format("q_layout ragged with kv_pools {}: each query has a list of its "
                                                    "own; take dense",
                                                    to_word(problem.kv_pools)));
}

void require_split(const Fmha& problem, std::string_view remedy) {
  if (problem.split_size <= 0) return;
  if (problem.kv_pools != KvPools::dense)
    throw Error(ErrorKind::unsupported,
                fmt::format("split_size {} with kv_pools {}: a query's list is not split: take 0", problem.split_size,
                            to_word(problem.kv_pools)));
  if (problem.split_kv == SplitKv::off)
    throw Error(ErrorKind::unsupported,
                fmt::format("split_size {} with split_kv off: take {}", problem.split_size, remedy));
}

void require_sizes_of_facts(const Fmha& problem) {
  const auto demand = [](bool has_size, std::string_view name, Hint size, std::string_view remedy) {
    if (!has_size && size != kUnknownHint)
      throw Error(ErrorKind::unsupported, fmt::format("{} {} without {}", name, size, remedy));
  };
  const bool has_window = problem.window == Window::sliding, has_pools = problem.kv_pools != KvPools::dense;
  const bool is_paged = problem.kv_layout == KvLayout::paged, is_ragged = problem.kv_layout == KvLayout::ragged;
  demand(is_paged, "pages", problem.pages, "pages: take kv_layout paged");
  demand(is_paged, "max_pages", problem.max_pages, "pages: take kv_layout paged");
  demand(is_ragged, "tokens_k", problem.tokens_k, "ragged keys: take kv_layout ragged");
  demand(has_window, "window_size_left", problem.window_size_left, "a window: take window sliding");
  demand(has_window, "window_size_right", problem.window_size_right, "a window: take window sliding");
  demand(has_pools, "topk", problem.topk, "a list of rows: take kv_pools sparse_window");
  demand(has_pools, "seqlen_swa", problem.seqlen_swa, "a window beside a list: take kv_pools sparse_window");
}

}  // namespace tessera

#include "generator/selectors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/error.h"

using namespace tessera;
namespace selectors_test {

namespace {

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

std::string refusal(std::string_view op, std::string_view key, std::string_view text) {
  Problem problem = default_problem(op);
  const Problem before = problem;
  const std::string message = message_of([&] { set_field(problem, key, text); });
  CHECK(problem == before);
  return message;
}

}  // namespace

TEST_CASE("every selector has a flag, a key that is the flag's name, a help text, and a default that sets itself") {
  for (const std::string_view op : operator_names()) {
    CHECK(operator_name(default_problem(op)) == op);
    for (const Selector& selector : selectors(op)) {
      CAPTURE(selector.key);
      std::string flag(selector.key);
      std::replace(flag.begin(), flag.end(), '_', '-');
      CHECK(selector.flag == flag);
      CHECK(!selector.help.empty());
      Problem problem = default_problem(op);
      const std::string text = field_text(problem, selector.key);
      set_field(problem, selector.key, text);
      CHECK(problem == default_problem(op));
      CHECK(selector.kind == (text == "auto"      ? SelectorKind::pin
                              : text == "unknown" ? SelectorKind::hint
                                                  : SelectorKind::fact));
    }
  }
}

namespace {

template <class... Members>
std::size_t count_of(const Members&...) {
  return sizeof...(Members);
}

}  // namespace

// Each binds all members by name: one that is new does not compile until it stands here, and fails until the table has
// it. A format shares the field of its type.
TEST_CASE("every member of a Problem is a field: the hash and the names know no others") {
  {
    const auto& [arch, dtype, rank, tile_inner, tile_outer, swizzle] = Copy2d{};
    CHECK(copy2d_fields().size() == count_of(arch, dtype, rank, tile_inner, tile_outer, swizzle));
  }
  {
    const auto& [arch, head_dim, head_dim_v, dtype, format, mask, window, seqused, q_layout, kv_pools, kv_layout,
                 page_size, kv_cache, v_is_k, sink, softcap, alibi, tree_mask, kv_dtype, kv_format, split_size, o_dtype,
                 output, v_layout, tile_m, tile_n, stages, swizzle, mma_kind, p_path, cta_group, pack_gqa, kv_copy,
                 split_kv, promote_every, batch, heads_q, heads_kv, seqlen_q, seqlen_k, num_splits, topk, seqlen_swa,
                 pages, max_pages, tokens_k, left, right] = Fmha{};
    CHECK(fmha_fields().size() ==
          count_of(arch, head_dim, head_dim_v, dtype, format, mask, window, seqused, q_layout, kv_pools, kv_layout,
                   page_size, kv_cache, v_is_k, sink, softcap, alibi, tree_mask, kv_dtype, kv_format, split_size,
                   o_dtype, output, v_layout, tile_m, tile_n, stages, swizzle, mma_kind, p_path, cta_group, pack_gqa,
                   kv_copy, split_kv, promote_every, batch, heads_q, heads_kv, seqlen_q, seqlen_k, num_splits, topk,
                   seqlen_swa, pages, max_pages, tokens_k, left, right) -
              count_of(format));
  }
  {
    const auto& [arch, head_dim, dtype, seqused, q_layout, kv_layout, page_size, batch, heads_q, heads_kv, seqlen_q,
                 seqlen_k, pages, max_pages, tokens_k] = AttentionQuantize{};
    CHECK(attention_quantize_fields().size() == count_of(arch, head_dim, dtype, seqused, q_layout, kv_layout, page_size,
                                                         batch, heads_q, heads_kv, seqlen_q, seqlen_k, pages, max_pages,
                                                         tokens_k));
  }
  {
    const auto& [arch, head_dim_v, dtype, o_dtype, sink, threads, at_once, parts, batch, heads_q, seqlen_q] = Merge{};
    CHECK(merge_fields().size() ==
          count_of(arch, head_dim_v, dtype, o_dtype, sink, threads, at_once, parts, batch, heads_q, seqlen_q));
  }
  {
    const auto& [arch, dtype, b_dtype, format, b_format, b_int4, b_group, zero_points, scale_form, d_dtype, d_format,
                 a_layout, b_layout, accumulation, c, bias, activation, grouping, gather, a_scale_block, b_scale_block,
                 d_scale_block, d_scale_values, gate, gate_activation, gate_limit, interleave, tile_m, tile_n, stages,
                 accumulators, cluster_m, cluster_n, split_k, schedule, swap_ab, raster, mma_kind, m, n, k, l] = Gemm{};
    CHECK(gemm_fields().size() == count_of(arch, dtype, b_dtype, format, b_format, b_int4, b_group, zero_points,
                                           scale_form, d_dtype, d_format, a_layout, b_layout, accumulation, c, bias,
                                           activation, grouping, gather, a_scale_block, b_scale_block, d_scale_block,
                                           d_scale_values, gate, gate_activation, gate_limit, interleave, tile_m,
                                           tile_n, stages, accumulators, cluster_m, cluster_n, split_k, schedule,
                                           swap_ab, raster, mma_kind, m, n, k, l) -
                                      count_of(format, b_format, b_int4, d_format));
  }
  {
    const auto& [arch, dtype, format, scale_form, scale_rounding, global_scale, threads, l, rows, k] = Quantize{};
    CHECK(quantize_fields().size() ==
          count_of(arch, dtype, format, scale_form, scale_rounding, global_scale, threads, l, rows, k));
  }
  {
    const auto& [arch, dtype, format, scale_form, global_scale, threads, l, rows, k] = Dequantize{};
    CHECK(dequantize_fields().size() == count_of(arch, dtype, format, scale_form, global_scale, threads, l, rows, k));
  }
  {
    const auto& [arch, to, l, rows, blocks] = ConvertScales{};
    CHECK(convert_scales_fields().size() == count_of(arch, to, l, rows, blocks));
  }
  {
    const auto& [arch, dtype, format, b_format, scale_form, warp_rows, k_warps, l, m, k] = Gemv{};
    CHECK(gemv_fields().size() == count_of(arch, dtype, format, b_format, scale_form, warp_rows, k_warps, l, m, k));
  }
  {
    const auto& [arch, format, scale_form, dtype, group, zero_points, l, n, k] = PackWeights{};
    CHECK(pack_weights_fields().size() == count_of(arch, format, scale_form, dtype, group, zero_points, l, n, k));
  }
  {
    const auto& [arch, dtype, scale_block, scale_values, l, rows, k] = QuantizeBlocks{};
    CHECK(quantize_blocks_fields().size() == count_of(arch, dtype, scale_block, scale_values, l, rows, k));
  }
  {
    const auto& [arch, dtype, columns, chain, threads_of_row, rows_of_cta, ctas_of_row, turns_of_row, rows] = Rows{};
    CHECK(rows_fields().size() ==
          count_of(arch, dtype, columns, chain, threads_of_row, rows_of_cta, ctas_of_row, turns_of_row, rows));
  }
  {
    const auto& [arch, dtype, experts, top_k, expert_groups, topk_groups, scoring, bias, renormalize, grouping,
                 alignment, m] = MoeRoute{};
    CHECK(moe_route_fields().size() == count_of(arch, dtype, experts, top_k, expert_groups, topk_groups, scoring, bias,
                                                renormalize, grouping, alignment, m));
  }
  {
    const auto& [arch, dtype, k, ties, order, range, index_form, values, guesses, threads, ctas, m, n] = Topk{};
    CHECK(topk_fields().size() ==
          count_of(arch, dtype, k, ties, order, range, index_form, values, guesses, threads, ctas, m, n));
  }
  {
    const auto& [arch, heads, head_dim, format, score_dtype, kv_layout, page_size, next_n, context_lengths,
                 score_columns, outside, mma_kind, tile_q, consumers, stages, m, n, batch, pages, max_pages, columns] =
        Indexer{};
    CHECK(indexer_fields().size() == count_of(arch, heads, head_dim, format, score_dtype, kv_layout, page_size, next_n,
                                              context_lengths, score_columns, outside, mma_kind, tile_q, consumers,
                                              stages, m, n, batch, pages, max_pages, columns));
  }
}

TEST_CASE("a Problem is a value: a copy keeps what it was when the other is changed") {
  Problem problem = Fmha{.head_dim = 64};
  const Problem before = problem;
  problem.edit<Fmha>().head_dim = 96;
  CHECK(before.as<Fmha>().head_dim == 64);
  CHECK(problem.as<Fmha>().head_dim == 96);
  CHECK(problem != before);
  CHECK(problem == Problem(Fmha{.head_dim = 96}));
  CHECK(ProblemHash{}(problem) == ProblemHash{}(Fmha{.head_dim = 96}));
  CHECK(ProblemHash{}(problem) == hash_of_facts(operator_type<Fmha>(), problem.get_if<Fmha>()));
  CHECK(problem.get_if<Gemm>() == nullptr);
  CHECK(Problem() == Problem());
  CHECK(Problem() != before);
}

TEST_CASE("every word and a number reach the Problem and come back") {
  for (const std::string_view op : operator_names()) {
    for (const Selector& selector : selectors(op)) {
      std::vector<std::string> values(selector.words.begin(), selector.words.end());
      // The largest window is the one without a bound, -1.
      if (selector.is_number)
        values = {std::to_string(selector.min), "7", std::to_string(selector.max - (selector.min < 0 ? 1 : 0))};
      if (selector.key == "arch") values = {"sm_90a", "sm_100f", "sm_120"};
      if (selector.key == "chain") values = {"residual(store)+rmsnorm+f32", "gate(silu,limit=7)+nvfp4(0..63,tile)"};
      REQUIRE(!values.empty());
      for (const std::string& value : values) {
        CAPTURE(selector.key);
        Problem problem = default_problem(op);
        set_field(problem, selector.key, value);
        CHECK(field_text(problem, selector.key) == value);
        if (value != field_text(default_problem(op), selector.key)) {
          CHECK(problem != default_problem(op));
          CHECK(ProblemHash{}(problem) != ProblemHash{}(default_problem(op)));
        }
        if (selector.kind == SelectorKind::pin) {
          set_field(problem, selector.key, "auto");
          CHECK(problem == default_problem(op));
        }
      }
    }
  }
}

TEST_CASE("bad values name the field, the value and what is legal") {
  CHECK(refusal("fmha", "tile_m", "12x") == "tile_m = 12x: must be a whole number, or auto");
  CHECK(refusal("fmha", "head_dim", "") == "head_dim = : must be a whole number");
  CHECK(refusal("fmha", "head_dim", "auto") == "head_dim = auto: must be a whole number");
  CHECK(refusal("fmha", "head_dim", "1.5") == "head_dim = 1.5: must be a whole number");
  CHECK(refusal("fmha", "head_dim", "+1") == "head_dim = +1: must be a whole number");
  CHECK(refusal("fmha", "head_dim", "-64") == "head_dim = -64: must be at least 1");
  CHECK(refusal("fmha", "head_dim", "0") == "head_dim = 0: must be at least 1");
  CHECK(refusal("fmha", "stages", "99999999999999999999") ==
        "stages = 99999999999999999999: must be at most 2147483647, or auto");
  CHECK(refusal("fmha", "seqlen_q", "-1") == "seqlen_q = -1: must be from 0 to 1099511627776");
  CHECK(refusal("fmha", "seqlen_k", "9223372036854775808") ==
        "seqlen_k = 9223372036854775808: must be from 0 to 1099511627776");
  CHECK(refusal("fmha", "mask", "casual") == "mask = casual: must be one of none, causal, did you mean causal?");
  CHECK(refusal("fmha", "swizzle", "128b") ==
        "swizzle = 128b: must be one of none, 32B, 64B, 128B, or auto, did you mean 128B?");
  CHECK(refusal("fmha", "mma_kind", "wgmma") ==
        "mma_kind = wgmma: must be one of wgmma.f16, tcgen05.f16, tcgen05.f8f6f4, mma.f16, mma.f8, mma.mxf4nvf4, or "
        "auto, did you mean wgmma.f16?");
  CHECK(refusal("copy2d", "dtype", "float") ==
        "dtype = float: must be one of bf16, f16, f32, tf32, f64, e4m3, e5m2, u8, u16, u32, s32, u64, s64, s8, did you "
        "mean f32?");
  CHECK(refusal("copy2d", "dtype", "a\nb") ==
        "dtype = a?b: must be one of bf16, f16, f32, tf32, f64, e4m3, e5m2, u8, u16, u32, s32, u64, s64, s8");
  CHECK(refusal("copy2d", "rank", std::string(100, '7')) ==
        "rank = " + std::string(60, '7') + "...: must be at most 2147483647");
  CHECK(refusal("copy2d", "tile", "1") ==
        "copy2d has no field tile: its fields are arch, dtype, rank, tile_inner, tile_outer, swizzle, did "
        "you mean tile_inner or tile_outer?");
  CHECK(message_of([] { field_text(Fmha{}, "rank"); }).starts_with("fmha has no field rank: its fields are arch, "));
  const std::string all = fmt::format("op = conv: must be one of {}", fmt::join(operator_names(), ", "));
  CHECK(all.starts_with("op = conv: must be one of copy2d, fmha, merge, attention_quantize, gemm, "));
  CHECK(message_of([] { selectors("conv"); }) == all);
  CHECK(message_of([] { default_problem("conv"); }) == all);
}

TEST_CASE("targets") {
  for (const char* const text : {"sm_90a", "sm_90", "sm_100a", "sm_103f", "sm_121a", "sm_75"}) {
    CHECK(Arch::parse(text).to_string() == text);
  }
  CHECK(Arch::parse("sm_90a") == Arch{});
  CHECK(arch_of(Copy2d{.arch = Arch::parse("sm_120a")}) == Arch{.number = 120, .suffix = 'a'});
  for (const char* const text : {"", "sm_", "sm_9", "sm_090a", "sm_90b", "sm_90aa", "sm_90a ", "sm_-90", "90a",
                                 "SM_90a", "sm_1000", "sm_99999999999", "compute_90a"}) {
    CAPTURE(text);
    CHECK(message_of([&] { Arch::parse(text); })
              .starts_with("arch = " + std::string(text) +
                           ": must be sm_, a compute capability times ten, and an optional 'a' or 'f', like sm_90a"));
  }
}

}  // namespace selectors_test

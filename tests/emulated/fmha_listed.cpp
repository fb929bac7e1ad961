// Attention over listed keys that are values too, on sm_90a and sm_100a in the emulator against float64, with the race
// detector: from rows, and from caches that are widened on the way.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "generator/facts.h"
#include "reference/attention_cache.h"
#include "reference/fmha_pools.h"
#include "tests/emulated/fmha_run.h"
#include "tests/support/rows_cases.h"

namespace tessera::fmha_listed_test {
namespace {

using emulator::Schedule;

void check(const Fmha& problem, const reference::FmhaSizes& sizes, const testing::FmhaLaunchFacts& facts,
           Compiler& compiler) {
  testing::check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
}

struct Format {
  KvCache cache;
  int head_dim;
};
constexpr Format kFormats[] = {{KvCache::rows, 576},
                               {KvCache::rows, 512},
                               {KvCache::mla_656, 576},
                               {KvCache::mla_584, 512},
                               {KvCache::mla_384, 512}};

Fmha problem_of(const Format& format, int heads, Mask mask, SplitKv split, const char* arch = "sm_90a") {
  Fmha problem;
  problem.arch = Arch::parse(arch);
  problem.head_dim = format.head_dim;
  problem.head_dim_v = 512;
  problem.mask = mask;
  problem.kv_pools = KvPools::sparse_window;
  problem.kv_cache = format.cache;
  problem.v_is_k = VIsK::on;
  problem.pack_gqa = heads;
  problem.split_kv = split;
  return problem;
}

reference::FmhaSizes sizes_of(const Fmha& p, std::int64_t batch, std::int64_t queries, std::int64_t rows) {
  return {batch, *p.pack_gqa, 1, queries, rows, p.head_dim, 512};
}

TEST_CASE("listed keys: two lists, or one and a window, and sinks in one softmax, from every format") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const Format& format : kFormats)
    for (const SplitKv split : {SplitKv::off, SplitKv::dealt}) {
      const Mask mask = ++turn % 2 == 0 ? Mask::causal : Mask::none;
      const int heads = turn % 3 == 0 ? 128 : turn % 3 == 1 ? 16 : 64;
      const Fmha problem = problem_of(format, heads, mask, split);
      CAPTURE(turn);
      check(problem, sizes_of(problem, 2, 2, 500), {.topk = 150, .seqlen_swa = 70, .num_sms = 3}, *compiler);
      // A window in place of a second list, lists without lengths.
      check(problem, sizes_of(problem, 2, 2, 500), {.topk = 149, .seqlen_swa = 71, .num_sms = 3}, *compiler);
    }
}

TEST_CASE("listed keys: decode and prefill, blocks that end anywhere") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  // Whole pairs of blocks, one block, a key less and one more; more queries than CTAs.
  for (const std::int64_t topk : {128, 64, 127, 129, 1}) {
    const Fmha problem = problem_of(kFormats[topk % 5], 64, Mask::causal, SplitKv::off);
    check(problem, sizes_of(problem, 1, 3, 400), {.topk = topk, .seqlen_swa = 0, .num_sms = 2}, *compiler);
  }
  const Fmha prefill = problem_of(kFormats[2], 32, Mask::causal, SplitKv::off);
  check(prefill, sizes_of(prefill, 1, 20, 300), {.topk = 90, .seqlen_swa = 20, .num_sms = 3}, *compiler);
  // A list over several CTAs; cuts at a query's end; a range with two parts.
  for (const Format& format : {kFormats[1], kFormats[2], kFormats[4]}) {
    const Fmha dealt = problem_of(format, 16, Mask::none, SplitKv::dealt);
    check(dealt, sizes_of(dealt, 1, 1, 900), {.topk = 600, .seqlen_swa = 30, .num_sms = 4}, *compiler);
    check(dealt, sizes_of(dealt, 1, 4, 300), {.topk = 256, .seqlen_swa = 0, .num_sms = 4}, *compiler);
  }
}

TEST_CASE("listed keys: any number of heads") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const int heads : {1, 7, 100, 192, 256}) {
    const Fmha problem =
        problem_of(kFormats[heads % 5], heads, Mask::none, heads % 2 == 0 ? SplitKv::dealt : SplitKv::off);
    check(problem, sizes_of(problem, 1, 2, 200), {.topk = 140, .seqlen_swa = 10, .num_sms = 8}, *compiler);
  }
  Fmha half = problem_of(kFormats[0], 16, Mask::causal, SplitKv::off);
  half.dtype = DType::f16;
  check(half, sizes_of(half, 2, 2, 200), {.topk = 100, .seqlen_swa = 100}, *compiler);
}

TEST_CASE("listed keys: pools that are empty, sinks beyond all scores, scales that are not folded") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const Format& format : {kFormats[1], kFormats[3]}) {
    const Fmha problem = problem_of(format, 16, Mask::causal, SplitKv::off);
    check(problem, sizes_of(problem, 2, 3, 200), {.topk = 0, .seqlen_swa = 150}, *compiler);
    check(problem, sizes_of(problem, 2, 3, 200), {.topk = 150, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 3, 0), {.topk = 50, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 3, 0), {.topk = 0, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 0, 10), {.topk = 5, .seqlen_swa = 5}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 200), {.topk = 100, .seqlen_swa = 50, .has_sink = false}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 200), {.topk = 100, .seqlen_swa = 50, .sink = -1e30}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 200), {.softmax_scale = -0.05, .topk = 100, .seqlen_swa = 50, .sink = 9.5},
          *compiler);
  }
}

TEST_CASE("listed keys on tcgen05: two lists, or one and a window, and sinks in one softmax, from every format") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const Format& format : kFormats)
    for (const std::int64_t window : {70, 71}) {
      const Mask mask = ++turn % 2 == 0 ? Mask::causal : Mask::none;
      const int heads = turn % 3 == 0 ? 128 : turn % 3 == 1 ? 16 : 64;
      const Fmha problem = problem_of(format, heads, mask, SplitKv::off, turn % 4 == 0 ? "sm_103a" : "sm_100a");
      CAPTURE(turn);
      check(problem, sizes_of(problem, 2, 2, 500), {.topk = window == 70 ? 149 : 150, .seqlen_swa = window}, *compiler);
    }
}

TEST_CASE("listed keys on tcgen05: blocks that end anywhere, any number of heads, pools that are empty") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  const auto on = [](int format, int heads, Mask mask) {
    return problem_of(kFormats[format], heads, mask, SplitKv::off, "sm_100a");
  };
  for (const std::int64_t topk : {128, 64, 127, 129, 1}) {
    const Fmha problem = on(static_cast<int>(topk % 5), 64, Mask::causal);
    check(problem, sizes_of(problem, 1, 3, 400), {.topk = topk, .seqlen_swa = 0, .num_sms = 2}, *compiler);
  }
  for (const int heads : {1, 7, 100, 192}) {
    const Fmha problem = on(heads % 5, heads, Mask::none);
    check(problem, sizes_of(problem, 1, 2, 200), {.topk = 140, .seqlen_swa = 9, .num_sms = 3}, *compiler);
  }
  for (const int format : {1, 3}) {
    const Fmha problem = on(format, 16, Mask::causal);
    check(problem, sizes_of(problem, 2, 3, 200), {.topk = 0, .seqlen_swa = 150}, *compiler);
    check(problem, sizes_of(problem, 2, 3, 200), {.topk = 150, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 3, 0), {.topk = 50, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 3, 0), {.topk = 0, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 0, 10), {.topk = 5, .seqlen_swa = 5}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 200), {.softmax_scale = -0.05, .topk = 100, .seqlen_swa = 50, .sink = 9.5},
          *compiler);
  }
}

TEST_CASE("listed keys on tcgen05: parts of a list, merged, more of them than blocks, and pools that are empty") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const Format& format : kFormats) {
    const Mask mask = ++turn % 2 == 0 ? Mask::causal : Mask::none;
    const int heads = turn % 3 == 0 ? 128 : turn % 3 == 1 ? 16 : 64;
    const Fmha problem = problem_of(format, heads, mask, SplitKv::on, turn % 2 == 0 ? "sm_103a" : "sm_100a");
    CAPTURE(turn);
    // Lists with lengths, two of them or one and a window; parts of two blocks, of one, and without any.
    check(problem, sizes_of(problem, 2, 2, 500),
          {.num_splits = 3, .topk = 250, .seqlen_swa = 70 + turn % 2, .num_sms = 3}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 300), {.num_splits = 7, .topk = 129, .seqlen_swa = 9}, *compiler);
  }
  for (const int format : {0, 3}) {
    const Fmha problem = problem_of(kFormats[format], 16, Mask::causal, SplitKv::on, "sm_100a");
    check(problem, sizes_of(problem, 2, 3, 200), {.num_splits = 2, .topk = 0, .seqlen_swa = 150}, *compiler);
    check(problem, sizes_of(problem, 1, 3, 0), {.num_splits = 2, .topk = 50, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 3, 0), {.topk = 0, .seqlen_swa = 0}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 200), {.topk = 100, .seqlen_swa = 50, .has_sink = false}, *compiler);
    check(problem, sizes_of(problem, 1, 2, 200),
          {.softmax_scale = -0.05, .num_splits = 3, .topk = 100, .seqlen_swa = 50, .sink = 9.5}, *compiler);
  }
}

/// Planned, compiled, launched once.
reference::Tensors launched(const Problem& problem, const NamedSizes& sizes, const reference::Tensors& inputs,
                            Compiler& compiler) {
  const Plan plan = make_plan(problem);
  emulator::EmulatedDevice device({.arch = plan.arch.to_string(), .detects_races = true});
  const Launcher launcher(device, plan.launch, compiler.compile(emit(plan)));
  std::vector<double> scalars;
  for (const ScalarSpec& scalar : plan.launch.scalars) scalars.push_back(scalar.default_value.value_or(1e-6));
  std::vector<std::string> problems;
  reference::Tensors outputs = launch_once(device, launcher, sizes, scalars, inputs, problems);
  for (const std::string& text : problems) FAIL_CHECK(text);
  return outputs;
}

TEST_CASE("listed keys: a cache that a row operator wrote gives the bits of bf16 rows made from it") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr std::int64_t kTokens = 192, kQueries = 2, kTopk = 150, kPlaces = 45;
  for (const auto& [format, chain, heads] :
       {std::tuple(kFormats[2], "mla_656", 128), std::tuple(kFormats[3], "mla_584", 64),
        std::tuple(kFormats[4], "mla_384", 16)}) {
    CAPTURE(chain);
    const Rows writer{.dtype = DType::bf16, .columns = format.head_dim, .chain = parse_row_chain(chain)};
    reference::RowsRun run = rows_run(writer, kTokens);
    run.page_size = 64;
    run.pages = kTokens / 64;
    // Every token of the cache is written.
    reference::Tensors of_writer = rows_inputs(run, reference::Fill::normal, 5);
    for (std::int64_t i = 0; i < kTokens; ++i) of_writer.at("slots").set(i, static_cast<double>(kTokens - 1 - i));
    const reference::Tensors written =
        launched(writer, {{"rows", kTokens}, {"pages", run.pages}, {"page_size", 64}}, of_writer, *compiler);
    REQUIRE(written.count("cache") == 1);

    Fmha cached = problem_of(format, heads, Mask::none, SplitKv::off);
    const AttentionFacts facts = attention_facts(cached);
    const reference::FmhaSizes sizes{1, heads, 1, kQueries, kTokens, format.head_dim, 512};
    reference::FmhaPoolTensors made =
        reference::make_pool_inputs(sizes, kTopk, kPlaces, DType::bf16, reference::Fill::normal, 9);
    reference::Tensors inputs{{"q", made.q},
                              {"indices", made.indices},
                              {"topk_lens", reference::make_list_lengths(sizes, kTopk, 10)},
                              {"swa_lens", made.swa_lens},
                              {"swa_indices", reference::make_row_lists(sizes, kPlaces, kTokens, 9, 11)},
                              {"sink", made.sink}};
    const NamedSizes named{{"batch", 1},    {"heads_q", heads},      {"heads_kv", 1},       {"seqlen_q", kQueries},
                           {"topk", kTopk}, {"seqlen_swa", kPlaces}, {"seqlen_k", kTokens}, {"swa_rows", kTokens}};
    // Both lists are of the same tokens.
    const reference::Tensor rows = reference::rows_of_cache(facts, written.at("cache").bytes.data(), kTokens);
    for (const char* const arch : {"sm_90a", "sm_100a"}) {
      CAPTURE(arch);
      cached.arch = Arch::parse(arch);
      Fmha plain = cached;
      plain.kv_cache = KvCache::rows;
      inputs["k"] = inputs["swa_k"] = written.at("cache");
      const reference::Tensors from_cache = launched(cached, named, inputs, *compiler);
      inputs["k"] = inputs["swa_k"] = rows;
      const reference::Tensors from_rows = launched(plain, named, inputs, *compiler);
      CHECK(from_cache.at("o").bytes == from_rows.at("o").bytes);
      CHECK(from_cache.at("lse").bytes == from_rows.at("lse").bytes);
      CHECK(std::isfinite(from_cache.at("o").at(0)));
    }
  }
}

TEST_CASE("listed keys: two lists of rows that all sequences share") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr std::int64_t kBatch = 2, kQueries = 2, kRows = 150, kTopk = 90, kWindowRows = 70, kPlaces = 60;
  for (const Format& format : {kFormats[0], kFormats[3]}) {
    const Fmha problem = problem_of(format, 16, Mask::none, SplitKv::off);
    const AttentionFacts facts = attention_facts(problem);
    const reference::FmhaSizes sizes{kBatch, 16, 1, kQueries, kRows, format.head_dim, 512};
    reference::FmhaPoolTensors made =
        reference::make_pool_inputs(sizes, kTopk, kPlaces, DType::bf16, reference::Fill::normal, 3);
    reference::Tensor k = made.k, window(DType::bf16, {kWindowRows, format.head_dim});
    reference::fill(window, reference::Fill::normal, 4, 1);
    reference::Tensors inputs{{"q", made.q},
                              {"k", k},
                              {"indices", made.indices},
                              {"topk_lens", reference::make_list_lengths(sizes, kTopk, 5)},
                              {"swa_lens", made.swa_lens},
                              {"swa_indices", reference::make_row_lists(sizes, kPlaces, kWindowRows, 6, 1)},
                              {"sink", made.sink},
                              {"swa_k", window}};
    if (has_cache(facts)) {
      inputs["k"] = reference::make_cache(facts, kRows, reference::Fill::normal, 7, 1);
      inputs["swa_k"] = reference::make_cache(facts, kWindowRows, reference::Fill::normal, 7, 2);
      k = reference::rows_of_cache(facts, inputs["k"].bytes.data(), kRows);
      window = reference::rows_of_cache(facts, inputs["swa_k"].bytes.data(), kWindowRows);
    }
    // Where another sequence's window would be are NaNs.
    inputs["swa_k"].bytes.resize(kBatch * inputs["swa_k"].bytes.size(), std::byte{0xFF});
    const NamedSizes named{{"batch", kBatch},         {"heads_q", 16},         {"heads_kv", 1},
                           {"seqlen_q", kQueries},    {"seqlen_k", kRows},     {"topk", kTopk},
                           {"swa_k_stride_batch", 0}, {"seqlen_swa", kPlaces}, {"swa_rows", kWindowRows}};
    const reference::Tensors found = launched(problem, named, inputs, *compiler);
    const std::int64_t columns = format.head_dim;
    reference::FmhaPools in{inputs.at("q").view(),
                            k.view(),
                            {},
                            {},
                            {},
                            made.indices.view(),
                            made.swa_lens.view(),
                            inputs.at("topk_lens").view(),
                            inputs.at("swa_indices").view()};
    in.swa_k = {window.bytes.data(), DType::bf16, {kBatch, kWindowRows, 1, columns}, {0, columns, columns, 1}};
    in.v = reference::first_columns(in.k, 512);
    in.swa_v = reference::first_columns(in.swa_k, 512);
    reference::FmhaCheck check;
    check.facts = facts;
    check.softmax_scale = *make_plan(problem).launch.scalars.at(0).default_value;
    check.tile_m = check.tile_n = 64;
    check.jobs = 1;
    check.sink = made.sink.view();
    const reference::Comparison comparison =
        check_fmha_pools(in, {found.at("o").view(), found.at("lse").view(), {}, {}}, check);
    for (const std::string& problem_text : comparison.problems) FAIL_CHECK(problem_text);
    CHECK(comparison.rows_checked == kBatch * kQueries * 16);
  }
}

TEST_CASE("listed keys: pages of every size") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : kPageSizes) {
    Fmha problem = problem_of(kFormats[2 + turn++ % 3], 16, Mask::none, SplitKv::off);
    problem.page_size = page_size;
    check(problem, sizes_of(problem, 2, 1, 333), {.topk = 70, .seqlen_swa = 66}, *compiler);
  }
}

}  // namespace
}  // namespace tessera::fmha_listed_test

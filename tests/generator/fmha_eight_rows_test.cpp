// Tiles of eight rows, whose products are transposed: which facts they take, which they refuse and in which words, and
// when they let the merge begin.
#include "generator/attention/fmha_eight_rows.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "tests/generator/problems.h"
#include "tests/generator/refusal.h"

using namespace tessera;
namespace fmha_eight_rows_test {
namespace {

/// One query over split keys in pages, eight rows by pin, with some fields set otherwise; "": left out.
Fields fields_with(const Fields& others) {
  Fields fields{{"head_dim", "128"}, {"kv_layout", "paged"}, {"page_size", "64"},
                {"split_kv", "on"},  {"tile_m", "8"},        {"mma_kind", "mma.f16"}};
  for (const auto& [key, text] : others) {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == key; });
    if (found != fields.end())
      found->second = text;
    else
      fields.emplace_back(key, text);
  }
  std::erase_if(fields, [](const auto& field) { return field.second.empty(); });
  return fields;
}

fmha::Config config_with(const Fields& others) {
  return chosen_config<FmhaOperator>(problem_of("fmha", fields_with(others)).as<Fmha>());
}

/// What stands between "with" and the remedy.
std::string refused(const Fields& others) {
  const std::string message = unsupported("fmha", fields_with(others));
  const std::string begin = ": tile_m 8 with ", end = ": tiles of eight rows have no code for it: take tile_m 16";
  const std::size_t at = message.find(begin);
  REQUIRE_MESSAGE(at != std::string::npos, message);
  REQUIRE_MESSAGE(message.ends_with(end), message);
  return message.substr(at + begin.size(), message.size() - end.size() - at - begin.size());
}

TEST_CASE("attention of eight rows: what a pinned tile_m 8 takes") {
  for (const Fields& others : {Fields{}, Fields{{"mask", "causal"}}, Fields{{"split_kv", "dealt"}},
                               Fields{{"kv_dtype", "e4m3"}}, Fields{{"dtype", "f16"}}, Fields{{"page_size", "16"}},
                               Fields{{"pack_gqa", "8"}}, Fields{{"pack_gqa", "16"}}, Fields{{"pack_gqa", "4"}},
                               Fields{{"head_dim", "96"}}, Fields{{"head_dim", "160"}}, Fields{{"tile_n", "128"}}}) {
    CAPTURE(fmt::format("{}", others));
    CHECK(config_with(others).tile_m == 8);
  }
}

TEST_CASE("attention of eight rows: a refusal names each fact that forbids them, and no other") {
  const std::pair<Fields, const char*> cases[] = {
      {{{"split_kv", "off"}}, "split_kv off"},
      {{{"kv_layout", "dense"}, {"page_size", ""}}, "kv_layout dense"},
      {{{"kv_layout", "ragged"}, {"page_size", ""}, {"q_layout", "ragged"}, {"split_kv", "dealt"}},
       "kv_layout ragged, q_layout ragged"},
      {{{"page_size", "1"}}, "kv_copy cp_async"},
      {{{"kv_format", "nvfp4"}}, "kv_format nvfp4"},
      {{{"kv_format", "mxfp8"}}, "kv_format mxfp8"},
      {{{"head_dim", "80"}}, "head_dim 80 (a multiple of 32 needed)"},
      {{{"head_dim", "192"}, {"head_dim_v", "128"}}, "head_dim_v 128 (head_dim 192)"},
      {{{"window", "sliding"}}, "window sliding"},
      {{{"window", "chunked"}, {"mask", "causal"}}, "window chunked"},
      {{{"seqused", "qk"}}, "seqused qk"},
      {{{"split_size", "64"}}, "split_size 64"},
      {{{"q_layout", "ragged"}, {"split_kv", "dealt"}}, "q_layout ragged"},
      {{{"softcap", "tanh"}}, "softcap tanh"},
      {{{"alibi", "per_head"}}, "alibi per_head"},
      {{{"tree_mask", "bits"}}, "tree_mask bits"},
      {{{"sink", "per_head"}}, "sink per_head"},
      {{{"pack_gqa", "3"}}, "pack_gqa 3 (1, 2, 4 or a multiple of 8 needed)"},
      {{{"pack_gqa", "12"}}, "pack_gqa 12 (1, 2, 4 or a multiple of 8 needed)"},
      {{{"output", "unnormalized"}}, "output unnormalized"},
      {{{"q_layout", "ragged"},
        {"split_size", "64"},
        {"head_dim", "192"},
        {"head_dim_v", "128"},
        {"split_kv", "dealt"}},
       "head_dim_v 128 (head_dim 192), split_size 64, q_layout ragged"},
      {{{"arch", "sm_120a"}}, "another target than sm_90a"},
  };
  for (const auto& [others, words] : cases) {
    CAPTURE(fmt::format("{}", others));
    CHECK(refused(others) == words);
  }
}

// The rule counts them in templates/spec, where kernels ask; the words are the planner's.
TEST_CASE("attention of eight rows: what the rule counts has words, and what has words is counted") {
  const fmha::Config taken = config_with({});
  constexpr int kFacts = 16;
  for (unsigned bits = 0; bits < 1u << kFacts; bits += bits < 256 ? 1 : 255) {
    const auto has = [&](int i) { return (bits >> i & 1) != 0; };
    fmha::Config c = taken;
    if (has(0)) c.split_kv = SplitKv::dealt;
    if (has(1)) c.split_kv = SplitKv::off;
    if (has(2)) c.facts.kv_layout = KvLayout::dense;
    if (has(3)) c.kv_copy = KvCopy::cp_async;
    if (has(4)) c.facts.kv_format = KvFormat::mxfp8;
    if (has(5)) c.facts.head_dim = c.facts.head_dim_v = 80;
    if (has(6)) c.facts.head_dim_v = 64;
    if (has(7)) c.facts.window = Window::sliding;
    if (has(8)) c.facts.seqused = UsedLengths::qk;
    if (has(9)) c.facts.split_size = 64;
    if (has(10)) c.facts.q_layout = QueryLayout::ragged;
    if (has(11)) c.facts.softcap = Softcap::tanh;
    if (has(12)) c.facts.tree_mask = TreeMask::bits;
    if (has(13)) c.facts.sink = Sink::per_head;
    if (has(14)) c.pack_gqa = 3;
    if (has(15)) c.facts.output = Output::unnormalized;
    CAPTURE(bits);
    const bool is_refused = fmha::why_invalid_warps(c).rule == fmha::Rule::facts_of_eight_rows;
    CHECK(is_refused == !facts_against_eight_rows(c).empty());
  }
}

TEST_CASE("attention of eight rows: keys that are not dealt let the merge begin late") {
  CHECK(fmha::launches_merge_late(config_with({})));
  CHECK(fmha::launches_merge_late(config_with({{"dtype", "f16"}, {"mask", "causal"}})));
  CHECK_FALSE(fmha::launches_merge_late(config_with({{"split_kv", "dealt"}})));
  CHECK(fmha::launches_merge_late(config_with({{"kv_dtype", "e4m3"}})));
  CHECK_FALSE(fmha::launches_merge_late(config_with({{"kv_dtype", "e4m3"}, {"split_kv", "dealt"}})));
  CHECK_FALSE(fmha::launches_merge_late(config_with({{"tile_m", "16"}})));
}

/// Where single queries are multiplied from raw slots, tiles of 128 rows are faster from 64 rows of a sequence on, in
/// the mean (H200, bench/results/fmha-step.md), else from 128 on.
TEST_CASE("eight rows: a step whose tiles of few rows are raw takes large tiles sooner") {
  const auto rows_of_tile = [](const char* heads_q, const char* tokens, const Fields& others) {
    Fields fields{{"head_dim", "128"}, {"mask", "causal"},    {"q_layout", "ragged"}, {"kv_layout", "paged"},
                  {"page_size", "64"}, {"split_kv", "dealt"}, {"heads_q", heads_q},   {"heads_kv", "8"},
                  {"batch", "66"},     {"seqlen_q", tokens},  {"seqlen_k", "5120"}};
    fields.insert(fields.end(), others.begin(), others.end());
    return chosen_config<FmhaOperator>(problem_of("fmha", fields).as<Fmha>()).tile_m;
  };
  const Fields narrow{{"kv_dtype", "e4m3"}}, wide{};
  CHECK(rows_of_tile("24", "2112", narrow) == 128);  // 96 rows
  CHECK(rows_of_tile("16", "2112", narrow) == 128);  // 64
  CHECK(rows_of_tile("32", "576", narrow) == 64);    // 35
  CHECK(rows_of_tile("24", "2112", wide) == 64);
  CHECK(rows_of_tile("32", "2112", wide) == 128);
}

}  // namespace
}  // namespace fmha_eight_rows_test

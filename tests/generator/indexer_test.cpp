// What indexer refuses, in its own words, and what it chooses. What holds of every operator is tested over
// every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace indexer_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("indexer", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

std::string kernel(const Fields& fields) { return make_plan(problem_of("indexer", fields)).kernel; }

}  // namespace

TEST_CASE("indexer: an illegal pin or fact is refused with the rule that it breaks") {
  for (const char* const heads : {"12", "20", "72"})
    CHECK(unsupported({{"heads", heads}}).find(" heads: a multiple of 8 up to 64 ") != std::string::npos);
  CHECK(unsupported({{"head_dim", "96"}}).ends_with("head_dim 96: 32, 64 or 128"));
  CHECK(unsupported({{"head_dim", "32"}, {"format", "mxfp4"}}).ends_with("head_dim 32 with format mxfp4: 64 or 128"));
  CHECK(unsupported({{"tile_q", "4"}, {"consumers", "3"}, {"format", "mxfp4"}})
            .ends_with("192 registers for accumulators and weights, 160 there: take fewer queries or consumers"));
  CHECK(unsupported({{"score_dtype", "f16"}}).ends_with("scores of f16: f32 or bf16"));
  CHECK(unsupported({{"kv_layout", "dense"}}).ends_with("kv_layout dense: ragged or paged"));
  CHECK(unsupported({{"kv_layout", "paged"}, {"page_size", "48"}})
            .ends_with("pages of 48 keys: a power of two from 8 to 256"));
  CHECK(unsupported({{"page_size", "32"}}).ends_with("page_size 32 with kv_layout ragged, which has no pages"));
  CHECK(unsupported({{"kv_layout", "paged"}, {"next_n", "5"}})
            .ends_with("5 queries a tile, 2 consumers, 12 stages: next_n 5: 1 to 4"));
  CHECK(unsupported({{"next_n", "2"}})
            .ends_with("next_n 2 with kv_layout ragged: only sequences in pages have queries of their own"));
  CHECK(unsupported({{"context_lengths", "query"}})
            .ends_with("context_lengths query with kv_layout ragged: there ks and ke say what each query sees"));
  CHECK(unsupported({{"kv_layout", "paged"}, {"score_columns", "compressed"}})
            .ends_with("score_columns compressed with kv_layout paged: a sequence's keys begin at column 0"));
  CHECK(unsupported({{"heads", "8"}, {"tile_q", "17"}}).ends_with("17 queries in a tile: 1 to 16"));
  CHECK(unsupported({{"kv_layout", "paged"}, {"tile_q", "4"}})
            .ends_with("4 queries in a tile: with kv_layout paged the 1 of a sequence"));
  CHECK(unsupported({{"tile_q", "8"}}).ends_with("64 heads times 8 queries are 512 columns: at most 256"));
  CHECK(unsupported({{"consumers", "5"}, {"tile_q", "1"}}).ends_with("5 consumers: 1 to 4"));
  CHECK(unsupported({{"stages", "25"}, {"consumers", "1"}, {"tile_q", "1"}}).ends_with("25 stages: 1 to 24"));
  CHECK(unsupported({{"stages", "5"}, {"consumers", "2"}, {"tile_q", "1"}})
            .ends_with("5 stages for 2 consumers: as many for each needed"));
  CHECK(unsupported({{"tile_q", "4"}, {"consumers", "3"}})
            .ends_with("224 registers for accumulators and weights, 160 there: take fewer queries or consumers"));
  CHECK(unsupported({{"tile_q", "4"}, {"consumers", "2"}, {"stages", "22"}})
            .ends_with("254,336 bytes of shared memory, 232,448 available: take fewer queries or stages"));
  CHECK(unsupported({{"arch", "sm_100a"}, {"tile_q", "4"}, {"consumers", "3"}})
            .ends_with("768 columns of Tensor Memory, 512 there: take fewer queries or consumers"));
  CHECK(unsupported({{"mma_kind", "tcgen05.f16"}}) ==
        "mma_kind tcgen05.f16 with format e4m3 for sm_90a: indexer has wgmma.f16 for sm_90a, tcgen05.f16 for sm_100 "
        "and sm_103, and mma.f8 for every target");
  CHECK(unsupported({{"arch", "sm_120a"}, {"mma_kind", "wgmma.f16"}}) ==
        "mma_kind wgmma.f16 with format e4m3 for sm_120a: indexer has wgmma.f16 for sm_90a, tcgen05.f16 for sm_100 and "
        "sm_103, and mma.f8 for sm_120 and sm_121");
  CHECK(unsupported({{"arch", "sm_100a"}, {"mma_kind", "wgmma.f16"}})
            .starts_with("mma_kind wgmma.f16 with format e4m3 for sm_100a:"));
  CHECK(unsupported({{"arch", "sm_121a"}, {"format", "mxfp4"}, {"mma_kind", "mma.f16"}})
            .ends_with("and mma.mxf4 for sm_120 and sm_121"));
}

TEST_CASE(
    "indexer: mma_kind is the word that the plan shows; by pin mma.f16 too where mma.sync is not the target's own") {
  const auto shown = [](const Fields& fields) { return make_plan(problem_of("indexer", fields)).mma_kind; };
  CHECK(shown({{"arch", "sm_120a"}}) == "mma.f8");
  CHECK(shown({{"arch", "sm_120a"}, {"mma_kind", "mma.f8"}}) == "mma.f8");
  CHECK(shown({{"arch", "sm_121a"}, {"format", "mxfp4"}, {"mma_kind", "mma.mxf4"}}) == "mma.mxf4");
  CHECK(shown({{"mma_kind", "mma.f16"}}) == "mma.f8");
  CHECK(shown({{"mma_kind", "mma.f8"}}) == "mma.f8");
  CHECK(shown({{"arch", "sm_100a"}, {"format", "mxfp4"}, {"mma_kind", "mma.f16"}}) == "mma.f16");  // widened
  const Plan plan = make_plan(problem_of("indexer", {{"arch", "sm_120a"}}));
  CHECK(plan.field("mma_kind") == "mma.f8");
}

TEST_CASE("indexer: as many columns as instructions and registers have, of queries that there are") {
  CHECK(kernel({}) == "tessera_indexer_sm90a_h64_d128_f32_wgmma_q4_w2_s18");
  CHECK(kernel({{"m", "1"}}) == "tessera_indexer_sm90a_h64_d128_f32_wgmma_q1_w2_s24");
  CHECK(kernel({{"kv_layout", "paged"}, {"next_n", "3"}}) ==
        "tessera_indexer_sm90a_h64_d128_f32_p64_n3_wgmma_q3_w2_s12");
  CHECK(kernel({{"kv_layout", "paged"}}) == "tessera_indexer_sm90a_h64_d128_f32_p64_n1_wgmma_q1_w4_s12");
  CHECK(kernel({{"kv_layout", "paged"}, {"next_n", "2"}}) ==
        "tessera_indexer_sm90a_h64_d128_f32_p64_n2_wgmma_q2_w3_s12");
  CHECK(kernel({{"kv_layout", "paged"}, {"heads", "32"}}) ==
        "tessera_indexer_sm90a_h32_d128_f32_p64_n1_wgmma_q1_w3_s12");
  CHECK(kernel({{"arch", "sm_120a"}}) == "tessera_indexer_sm120a_h64_d128_f32_mma_q2_w2_s6");
  CHECK(kernel({{"format", "mxfp4"}}) == "tessera_indexer_sm90a_h64_d128_f32_mxfp4_wgmma_q2_w3_s24");
  CHECK(kernel({{"format", "mxfp4"}, {"kv_layout", "paged"}, {"next_n", "4"}}) ==
        "tessera_indexer_sm90a_h64_d128_f32_mxfp4_p64_n4_wgmma_q4_w2_s12");
  CHECK(kernel({{"arch", "sm_100a"}, {"format", "mxfp4"}}) ==
        "tessera_indexer_sm100a_h64_d128_f32_mxfp4_tcgen05_q2_w3_s24");
  CHECK(kernel({{"arch", "sm_100a"}, {"format", "mxfp4"}, {"m", "128"}}) ==
        "tessera_indexer_sm100a_h64_d128_f32_mxfp4_tcgen05_q2_w2_s24");
  CHECK(kernel({{"arch", "sm_120a"}, {"format", "mxfp4"}}) ==
        "tessera_indexer_sm120a_h64_d128_f32_mxfp4_mma_q2_w4_s16");
  CHECK(kernel({{"arch", "sm_100a"}}) == "tessera_indexer_sm100a_h64_d128_f32_tcgen05_q4_w2_s8");
  CHECK(kernel({{"arch", "sm_100a"}, {"format", "mxfp4"}, {"kv_layout", "paged"}, {"next_n", "4"}}) ==
        "tessera_indexer_sm100a_h64_d128_f32_mxfp4_p64_n4_tcgen05_q4_w1_s12");
  CHECK(kernel({{"arch", "sm_100f"}, {"mma_kind", "mma.f16"}, {"format", "mxfp4"}}) ==
        "tessera_indexer_sm100f_h64_d128_f32_mxfp4_mma_q2_w2_s24");
  CHECK(kernel({{"arch", "sm_120a"}, {"format", "mxfp4"}, {"kv_layout", "paged"}}) ==
        "tessera_indexer_sm120a_h64_d128_f32_mxfp4_p64_n1_mma_q1_w2_s12");
}

TEST_CASE(
    "indexer: mxfp4 is multiplied as it is on sm_120 and by tcgen05, elsewhere as bf16; a key takes 68 bytes of a "
    "page") {
  const auto operands = [](const Fields& fields) {
    Fields all = fields;
    all.emplace_back("format", "mxfp4");
    return std::string(make_plan(problem_of("indexer", all)).field("operands"));
  };
  CHECK(operands({}) == "bf16");
  CHECK(operands({{"mma_kind", "mma.f16"}}) == "bf16");
  CHECK(operands({{"arch", "sm_103a"}}) == "stored");
  CHECK(operands({{"arch", "sm_103a"}, {"mma_kind", "mma.f16"}}) == "bf16");
  CHECK(operands({{"arch", "sm_121a"}}) == "stored");
  const Plan plan = make_plan(problem_of("indexer", {{"format", "mxfp4"}, {"kv_layout", "paged"}}));
  const auto cache = std::find_if(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                                  [](const auto& buffer) { return buffer.name == "cache"; });
  REQUIRE(cache != plan.launch.buffers.end());
  CHECK(cache->shape.back().evaluate({}) == 64 * 68);
}

}  // namespace indexer_test

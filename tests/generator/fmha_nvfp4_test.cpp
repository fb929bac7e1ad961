// What attention of NVFP4 operands refuses, in its own words, and what it chooses. What holds of every kernel is tested
// over every_fact().
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/attention/fmha_nvfp4_operator.h"
#include "generator/tuning.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"
#include "tests/support/changed_facts.h"

using namespace tessera;
namespace fmha_nvfp4_test {

namespace {

Plan planned(Fields fields) {
  fields.emplace_back("dtype", "nvfp4");
  if (std::none_of(fields.begin(), fields.end(), [](const auto& f) { return f.first == "arch"; }))
    fields.emplace_back("arch", "sm_120a");
  return make_plan(problem_of("fmha", fields));
}

std::string unsupported(const Fields& fields) {
  try {
    planned(fields);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

}  // namespace

TEST_CASE("fmha nvfp4: an illegal fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"arch", "sm_90a"}}) ==
        "fmha has no kernel for dtype nvfp4 on sm_90a: there is one for sm_120 and sm_121 with suffix a or f");
  CHECK(unsupported({{"arch", "sm_100a"}}) ==
        "fmha has no kernel for dtype nvfp4 on sm_100a: there is one for sm_120 and sm_121 with suffix a or f");
  CHECK(unsupported({{"sink", "per_head"}, {"output", "unnormalized"}}).substr(0, 40) ==
        "sink per_head with output unnormalized: ");
  CHECK(unsupported({{"tree_mask", "bits"}, {"mask", "causal"}}) ==
        "tree_mask bits with mask causal: its bits say what queries see of each other: take mask none");
  CHECK(unsupported({{"kv_layout", "paged"}}) ==
        "head_dim 128, nvfp4, tile 128x128, 3 stages: kv_layout paged: keys in pages become dense where they are "
        "quantised (attention_quantize), take dense");
  CHECK(unsupported({{"seqused", "qk"}, {"q_layout", "ragged"}}) ==
        "seqused qk with q_layout ragged: cu_seqlens_q says how many queries a sequence has; take seqused k");
  CHECK(unsupported({{"kv_pools", "sparse_window"}}) ==
        "fmha has no kernel for kv_pools sparse_window with dtype nvfp4: 16 keys share a scale of v and 64 a unit, and "
        "a list has single ones");
  CHECK(unsupported({{"v_is_k", "on"}}) ==
        "fmha has no kernel for v_is_k on with dtype nvfp4: scales of k are for columns of a key, those of v for keys "
        "of a column");
  CHECK(unsupported({{"v_layout", "k"}}) ==
        "fmha has no kernel for v_layout k with dtype nvfp4: v comes in the units that attention_quantize writes");
  CHECK(unsupported({{"head_dim_v", "64"}}) ==
        "fmha has no kernel for head_dim_v 64 beside head_dim 128 with dtype nvfp4");
  CHECK(unsupported({{"split_kv", "dealt"}}) ==
        "head_dim 128, nvfp4, tile 128x128, 3 stages, keys split: split_kv dealt: there is no kernel for it with dtype "
        "nvfp4, take on");
  CHECK(unsupported({{"split_size", "100"}}) ==
        "head_dim 128, nvfp4, tile 128x128, 3 stages, keys split: split_size 100, a multiple of tile_n = 128 needed: "
        "parts are whole steps");
  CHECK(unsupported({{"split_size", "128"}, {"split_kv", "off"}}) == "split_size 128 with split_kv off: take on");
  CHECK(unsupported({{"head_dim", "96"}}) ==
        "head_dim 96, nvfp4, tile 128x128, 3 stages: head_dim 96, 64 or 128 needed (one or two steps of 64 products)");
  CHECK(unsupported({{"o_dtype", "f32"}}) ==
        "head_dim 128, nvfp4, tile 128x128, 3 stages: o_dtype f32: take bf16 or f16");
  CHECK(unsupported({{"window", "chunked"}}) ==
        "window chunked with mask none: a query sees the keys of its chunk up to itself: take mask causal");
  CHECK(unsupported({{"window_size_left", "5"}}) ==
        "window_size_left and window_size_right are sizes of a window, and window is none: take sliding");
}

TEST_CASE("fmha nvfp4: a fact is read or refused by its name, and one that is read is in the kernel's name") {
  using fmha_nvfp4::Config;
  const std::string usual = FmhaNvfp4Operator::kernel_name({.number = 120, .suffix = 'a'}, {});
  int read = 0, refused = 0;
  const auto judge = [&](std::string_view fact, const AttentionFacts& facts) {
    CAPTURE(fact);
    const Config config{.facts = facts};
    const auto verdict = fmha_nvfp4::why_invalid(config);
    if (verdict.ok()) {
      CHECK(fmha_nvfp4::read_facts(facts) == facts);
      CHECK(FmhaNvfp4Operator::kernel_name({.number = 120, .suffix = 'a'}, config) != usual);
      ++read;
    } else {
      CHECK(FmhaNvfp4Operator::explain(config, verdict).find(fact) != std::string::npos);
      ++refused;
    }
  };
  for_each_changed_fact({}, judge);
  AttentionFacts facts;
  facts.dtype = facts.kv_dtype = facts.o_dtype = DType::f16;
  judge("o_dtype", facts);
  // As the facts stand: another one is refused until read_facts() has it.
  CHECK(read == 10);
  CHECK(refused == 13);
}

TEST_CASE("fmha nvfp4: an illegal pin is refused with the rule that it breaks") {
  CHECK(
      unsupported({{"tile_m", "32"}}) ==
      "head_dim 128, nvfp4, tile 32x128, 3 stages: tile_m 32, 64 or 128 needed (four or eight warps of 16 rows, of one "
      "block of queries)");
  CHECK(unsupported({{"tile_n", "96"}}) ==
        "head_dim 128, nvfp4, tile 128x96, 3 stages: tile_n 96, 64 or 128 needed (units of 64 keys, registers of their "
        "scores)");
  CHECK(unsupported({{"stages", "9"}}) == "head_dim 128, nvfp4, tile 128x128, 9 stages: 9 stages, 1 to 8 allowed");
  CHECK(unsupported({{"stages", "8"}, {"tile_n", "128"}}) ==
        "head_dim 128, nvfp4, tile 128x128, 8 stages: 184,448 bytes of shared memory, 101,376 allowed: drop a stage");
  CHECK(
      unsupported({{"pack_gqa", "4"}}) ==
      "head_dim 128, nvfp4, tile 128x128, 3 stages, 4 heads packed: pack_gqa 4, 1 needed: a block of queries with one "
      "mean is of one head");
}

TEST_CASE("fmha nvfp4: tiles of 128 queries, of 64 where there are no more") {
  CHECK(planned({}).kernel == "tessera_fmha_nvfp4_sm120a_d128_128x128_s3_full_to_bf16");
  CHECK(planned({{"seqlen_q", "64"}, {"mask", "causal"}, {"head_dim", "64"}}).kernel ==
        "tessera_fmha_nvfp4_sm120a_d64_64x128_s3_causal_to_bf16");
  CHECK(planned({{"window", "sliding"}, {"arch", "sm_121f"}, {"o_dtype", "f16"}}).kernel ==
        "tessera_fmha_nvfp4_sm121f_d128_128x128_s3_full_window_to_f16");
  CHECK(planned({{"q_layout", "ragged"}, {"kv_layout", "ragged"}}).kernel ==
        "tessera_fmha_nvfp4_sm120a_d128_128x128_s3_full_ragged_raggedk_to_bf16");
  CHECK(planned({{"seqused", "k"}}).kernel == "tessera_fmha_nvfp4_sm120a_d128_128x128_s3_full_usedk_to_bf16");
  CHECK(planned({{"seqused", "qk"}, {"kv_layout", "ragged"}}).kernel ==
        "tessera_fmha_nvfp4_sm120a_d128_128x128_s3_full_raggedk_usedqk_to_bf16");
  CHECK(planned({}).field("dtype") == "nvfp4");
  CHECK(planned({{"sink", "per_head"}, {"softcap", "tanh"}, {"alibi", "per_head"}, {"split_kv", "on"}}).kernel ==
        "tessera_fmha_nvfp4_sm120a_d128_128x128_s3_full_sink_softcap_alibi_split_to_bf16");
  CHECK(planned({{"tree_mask", "bits"}, {"output", "unnormalized"}}).kernel ==
        "tessera_fmha_nvfp4_sm120a_d128_128x64_s3_full_tree_unnormalized_to_bf16");
  CHECK(planned({{"split_size", "256"}, {"mask", "causal"}, {"window", "chunked"}}).kernel ==
        "tessera_fmha_nvfp4_sm120a_d128_128x128_s3_causal_chunked_split256_to_bf16");
}

TEST_CASE("fmha nvfp4: o leaves through a tensor map of a warp's rows, and has no map where keys are split") {
  const auto is_o = [](const auto& x) { return x.name == "o"; };
  const auto map_of_o = [&](const Plan& plan) {
    const auto& maps = plan.launch.tensor_maps;
    const auto map = std::find_if(maps.begin(), maps.end(), is_o);
    REQUIRE(map != maps.end());
    return *map;
  };
  const Plan dense = planned({});
  CHECK(map_of_o(dense).box == std::vector<std::uint32_t>{64, 16, 1, 1});
  CHECK(map_of_o(dense).dims[3].text() == "max(batch, 1)");
  CHECK(map_of_o(planned({{"output", "unnormalized"}})).box == std::vector<std::uint32_t>{32, 16, 1, 1});
  const Plan ragged = planned({{"q_layout", "ragged"}});
  CHECK(map_of_o(ragged).dims[3].text() == "1");
  const auto has_rows = [](const Plan& plan) {
    const auto& list = plan.launch.steps.at(0).parameters;
    return std::any_of(list.begin(), list.end(), [](const auto& parameter) { return parameter.name == "o_rows"; });
  };
  CHECK(has_rows(ragged));
  CHECK(!has_rows(dense));
  const Plan split = planned({{"split_kv", "on"}});
  CHECK(split.launch.tensor_maps.empty());
  CHECK(!has_rows(split));
  // Room for O of all warps beside the ring: 16 rows of 128 columns of 16 bits, of fp32 in two passes.
  CHECK(dense.smem_bytes - split.smem_bytes == 8 * 16 * 128 * 2);
  CHECK(planned({{"output", "unnormalized"}}).smem_bytes == dense.smem_bytes);
}

TEST_CASE("fmha nvfp4: keys are split where few queries are known to see many") {
  const auto split = [](const Fields& fields) { return planned(fields).field("split_kv"); };
  CHECK(split({}) == "off");
  CHECK(split({{"seqlen_q", "1"}, {"seqlen_k", "8192"}}) == "on");
  CHECK(split({{"seqlen_q", "1"}}) == "off");
  CHECK(split({{"seqlen_q", "1"}, {"seqlen_k", "1000"}}) == "off");
  CHECK(split({{"seqlen_q", "65"}, {"seqlen_k", "8192"}}) == "off");
  CHECK(split({{"seqlen_q", "1"}, {"seqlen_k", "8192"}, {"batch", "8"}, {"heads_q", "32"}, {"heads_kv", "8"}}) ==
        "off");
  const Plan plan = planned({{"split_kv", "on"}, {"sink", "per_head"}});
  REQUIRE(plan.launch.steps.size() == 2);
  CHECK(plan.launch.steps[1].entry == plan.kernel + "_merge");
}

TEST_CASE("plans of kernels by mma.sync have a cost sheet for each device of their target") {
  using Names = std::vector<std::string>;
  const auto devices = [](const Plan& plan) {
    Names names;
    for (const CostSheet& sheet : plan.costs) {
      names.push_back(sheet.device);
      REQUIRE(sheet.units.size() == 6);
      double longest = 0;
      for (const CostSheet::Unit& unit : sheet.units) {
        CHECK(unit.us >= 0);
        longest = std::max(longest, unit.us);
      }
      CAPTURE(plan.kernel);
      CAPTURE(sheet.device);
      CHECK(longest > 0);
      CHECK(sheet.us > longest * 0.999);  // nothing is faster than its busiest unit
      CHECK(std::any_of(sheet.units.begin(), sheet.units.end(),
                        [&](const CostSheet::Unit& unit) { return unit.name == sheet.limit && unit.us == longest; }));
    }
    return names;
  };
  const Fields sizes{{"batch", "1"}, {"heads_q", "32"}, {"heads_kv", "8"}, {"seqlen_q", "8192"}, {"seqlen_k", "8192"}};
  const auto attention = [&](const Fields& more) {
    Fields fields = sizes;
    fields.insert(fields.end(), more.begin(), more.end());
    return make_plan(problem_of("fmha", fields));
  };
  CHECK(devices(attention({{"arch", "sm_120a"}})) == Names{"RTX 5090", "RTX PRO 6000"});
  CHECK(devices(attention({{"arch", "sm_121a"}, {"dtype", "e4m3"}})) == Names{"DGX Spark"});
  CHECK(devices(attention({{"arch", "sm_120f"}, {"dtype", "nvfp4"}, {"head_dim", "64"}, {"softcap", "tanh"}})) ==
        Names{"RTX 5090", "RTX PRO 6000", "DGX Spark"});
  CHECK(devices(attention({{"arch", "sm_90a"}, {"mma_kind", "mma.f16"}})) == Names{"H100"});
  CHECK(devices(attention({{"arch", "sm_90a"}})) == Names{});
  CHECK(devices(attention({{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"seqlen_q", "1"}})).size() == 2);
  for (const char* const dtype : {"bf16", "e4m3", "nvfp4", "mxfp8_e4m3", "s8"})
    for (const char* const m : {"8", "4096"}) {
      const Plan plan = make_plan(
          problem_of("gemm", {{"arch", "sm_120a"}, {"dtype", dtype}, {"m", m}, {"n", "4096"}, {"k", "4096"}}));
      CHECK(devices(plan) == Names{"RTX 5090", "RTX PRO 6000"});
      if (m == std::string_view("8")) CHECK(plan.costs[0].limit == "memory");
    }
  // The tensor cores' share of a product of four bits is an eighth of one of sixteen with fp32 sums on a GeForce.
  const auto tensor_us = [&](const char* dtype) {
    return make_plan(
               problem_of("gemm", {{"arch", "sm_120a"}, {"dtype", dtype}, {"m", "4096"}, {"n", "4096"}, {"k", "4096"}}))
        .costs[0]
        .units[0]
        .us;
  };
  CHECK(tensor_us("bf16") == doctest::Approx(8 * tensor_us("nvfp4")).epsilon(0.01));
  CHECK(tensor_us("bf16") == doctest::Approx(4096.0 * 4096 * 4096 / (256 * 170 * 2700)).epsilon(0.02));
  // What quantises, and products with a vector: on the same devices, and nowhere else.
  const auto other = [](const char* op, const char* arch) { return make_plan(problem_of(op, {{"arch", arch}})); };
  for (const char* const op : {"attention_quantize", "gemv"}) {
    CHECK(devices(other(op, "sm_120a")) == Names{"RTX 5090", "RTX PRO 6000"});
    CHECK(devices(other(op, "sm_121f")) == Names{"DGX Spark"});
    CHECK(devices(other(op, "sm_120f")) == Names{"RTX 5090", "RTX PRO 6000", "DGX Spark"});
    for (const char* const arch : {"sm_90a", "sm_100a"}) CHECK(devices(other(op, arch)) == Names{});
    for (const CostSheet& sheet : other(op, "sm_120f").costs) CHECK(sheet.limit == "memory");
    CHECK(other(op, "sm_120a").max_registers >= 64);
  }
  // Bytes of memory: 4,096 rows of 4,096 values of four bits and their scales, at 1.79 TB/s.
  CHECK(other("gemv", "sm_120a").costs[0].units.back().us ==
        doctest::Approx(4096 * 4096 * 9.0 / 16 / 1.79e6).epsilon(0.02));
  // q, k and v of 32 heads: q and k twice, v once, and what is written.
  CHECK(other("attention_quantize", "sm_120a").costs[0].units.back().us ==
        doctest::Approx(4096.0 * 32 * (128 * (10 + 27.0 / 16) + 4 * (32 + 1)) / 1.79e6).epsilon(0.02));
}

TEST_CASE("attention by mma.sync: reason and cost sheets speak of the same devices, and of no rate above the whole") {
  for (const char* const arch : {"sm_120a", "sm_120f", "sm_121a"})
    for (const char* const dtype : {"bf16", "e4m3"})
      for (const char* const head_dim : {"64", "128", "256"}) {
        const Plan plan = make_plan(problem_of("fmha", {{"arch", arch}, {"dtype", dtype}, {"head_dim", head_dim}}));
        CAPTURE(plan.reason);
        REQUIRE(!plan.costs.empty());
        std::size_t at = 0;
        for (const CostSheet& sheet : plan.costs) {
          at = plan.reason.find(fmt::format("{:.1f} us on {} (bound by {}, ", sheet.us, sheet.device, sheet.limit), at);
          REQUIRE(at != std::string::npos);
          const std::size_t share = plan.reason.rfind(", ", plan.reason.find(" % of the tensor cores' rate", at));
          const int percent = std::stoi(plan.reason.substr(share + 2));
          CHECK(percent <= 100);
          CHECK(percent >= 50);
        }
      }
}

TEST_CASE("attention by mma.sync: mma_kind is the word that the plan shows, by pins and in tuning") {
  const std::pair<const char*, std::string> kTypes[] = {
      {"bf16", "mma.f16"}, {"e4m3", "mma.f8"}, {"nvfp4", "mma.mxf4nvf4"}};
  for (const char* const arch : {"sm_120a", "sm_121a"})
    for (const auto& [dtype, word] : kTypes) {
      const Fields facts{{"arch", arch}, {"dtype", dtype}};
      const Plan plan = make_plan(problem_of("fmha", facts));
      CHECK(plan.mma_kind == word);
      if (plan.has_field("mma_kind")) CHECK(plan.field("mma_kind") == word);
      Fields pinned = facts;
      pinned.emplace_back("mma_kind", word);
      CHECK(make_plan(problem_of("fmha", pinned)).kernel == plan.kernel);
      const std::vector<Problem> candidates = pinned_candidates(problem_of("fmha", facts));
      CHECK(candidates.size() > 1);
      for (const Problem& one : candidates) CHECK_NOTHROW(planned_kernel(one));
    }
}

}  // namespace fmha_nvfp4_test

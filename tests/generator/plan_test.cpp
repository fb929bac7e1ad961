#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "generator/copy2d/copy2d_operator.h"
#include "generator/facts.h"
#include "generator/plan_json.h"
#include "generator/products/gemm_operator.h"
#include "generator/products/gemm_weights_operator.h"
#include "tessera/error.h"
#include "tests/generator/golden.h"
#include "tests/generator/problems.h"
#include "tests/generator/refusal.h"

using namespace tessera;
namespace plan_test {

namespace {

// Every Config that an operator ever considers for the facts of every_fact(), with the Problem it is considered for.
// Targets with tcgen05, and products by mma.sync, have operators, and tests, of their own.
template <class Operator, class Visit>
void for_each_candidate(Visit visit) {
  for (const Problem& problem : every_fact()) {
    const auto* const facts = problem.get_if<typename Operator::Problem>();
    if (facts == nullptr || has_family(facts->arch, MmaFamily::tcgen05)) continue;
    if (is_latent(problem) || is_mma_product(problem) || is_mma_attention(problem)) continue;
    if (has_weights(problem) != std::is_same_v<Operator, GemmWeightsOperator>) continue;
    for (const auto& candidate : choose<Operator>(*facts).candidates) visit(*facts, candidate);
  }
}

}  // namespace

TEST_CASE("plans are what they were: golden") {
  check_golden(
      "plan_quantize_nvfp4_tile_amax.json",
      json_text(to_json(make_plan(problem_of("quantize", {{"scale_form", "tile"}, {"global_scale", "amax"}})), true)));
  check_golden("plan_fmha_d128_causal_sm120a.json",
               json_text(to_json(make_plan(problem_of("fmha", {{"arch", "sm_120a"}, {"mask", "causal"}})), true)));
  check_golden("plan_merge_d128_sm120a.json",
               json_text(to_json(make_plan(problem_of("merge", {{"arch", "sm_120a"}, {"sink", "per_head"}})), true)));
  check_golden("plan_gemv_nvfp4_sm100a.json",
               json_text(to_json(make_plan(problem_of("gemv", {{"arch", "sm_100a"}})), true)));
  check_golden("plan_copy2d_r2_f32.json", json_text(to_json(make_plan(problem_of("copy2d")), true)));
  check_golden("plan_copy2d_r5_u8.json",
               json_text(to_json(make_plan(problem_of("copy2d", {{"rank", "5"}, {"dtype", "u8"}})), false)));
  check_golden("plan_fmha_d128_causal.json",
               json_text(to_json(make_plan(problem_of("fmha", {{"mask", "causal"}})), true)));
  check_golden("plan_gemm_nvfp4_sm100a.json", json_text(to_json(make_plan(problem_of("gemm", {{"arch", "sm_100a"},
                                                                                              {"dtype", "nvfp4"},
                                                                                              {"d_dtype", "f16"},
                                                                                              {"m", "128"},
                                                                                              {"n", "7168"},
                                                                                              {"k", "16384"}})),
                                                                true)));
  check_golden("plan_gemm_bf16.json", json_text(to_json(make_plan(problem_of("gemm")), true)));
  check_golden("plan_gemm_bf16_sm120a.json",
               json_text(to_json(make_plan(problem_of("gemm", {{"arch", "sm_120a"}, {"c", "matrix"}})), true)));
  check_golden("plan_gemm_e4m3_split.json", json_text(to_json(make_plan(problem_of("gemm", {{"dtype", "e4m3"},
                                                                                            {"c", "matrix"},
                                                                                            {"bias", "column"},
                                                                                            {"tile_m", "64"},
                                                                                            {"tile_n", "128"},
                                                                                            {"split_k", "4"}})),
                                                              false)));
  check_golden(
      "plan_fmha_d256_unnormalized.json",
      json_text(to_json(make_plan(problem_of("fmha", {{"head_dim", "256"}, {"output", "unnormalized"}})), false)));
}

TEST_CASE("every fact has a plan whose launch is sound and comes back from JSON") {
  for (const Problem& problem : every_fact()) {
    const Plan plan = make_plan(problem);
    CAPTURE(plan.kernel);
    CHECK_NOTHROW(check_launch_plan(plan.launch));
    const OrderedJson json = to_json(plan, false);
    const LaunchPlan back = launch_plan_from_json(OrderedJson::parse(json.dump())["launch"]);
    CHECK(to_json(back) == json["launch"]);
    CHECK(json["config"].size() == plan.fields.size());
    const auto step = std::find_if(plan.launch.steps.begin(), plan.launch.steps.end(),
                                   [&](const LaunchStep& of) { return of.entry == plan.kernel; });
    REQUIRE(step != plan.launch.steps.end());
    CHECK(step->dynamic_smem_bytes == plan.smem_bytes);
    CHECK(plan.smem_bytes <= smem_bytes_of(plan.arch));
    CHECK(planned_kernel(problem) == plan.kernel);
  }
}

TEST_CASE("shared memory of a CTA is the same for planner, device code and table of targets") {
  CHECK(kMaxSmemBytes == smem_bytes_of(Arch::parse("sm_90a")));
  CHECK(kMaxSmemBytes == smem_bytes_of(Arch::parse("sm_100a")));
}

TEST_CASE("shared memory: regions follow each other inside the total, warps fill the block") {
  for (const Problem& problem : every_fact()) {
    const Plan plan = make_plan(problem);
    CAPTURE(plan.kernel);
    std::int64_t end = 0;
    for (const SmemRegion& region : plan.smem) {
      CHECK(region.offset >= end);
      CHECK(region.bytes > 0);
      end = region.offset + region.bytes;
    }
    CHECK(end == plan.smem_bytes);
    int warp = 0;
    int registers = 0;
    for (const RolePlan& role : plan.roles) {
      CHECK(role.first_warp == warp);
      warp += role.warps;
      registers += role.warps * role.registers;
    }
    CHECK(registers <= warp * plan.entry_registers);  // setmaxnreg moves registers, it makes none
    CHECK(plan.launch.steps.front().block[0] == static_cast<std::uint32_t>(32 * warp));
  }
}

TEST_CASE("every legal candidate fits, has a name of its own, and wins when it is pinned") {
  std::map<std::string, copy2d::Config> copies;
  for_each_candidate<Copy2dOperator>([&](const Copy2d& facts, const Candidate<Copy2dOperator>& candidate) {
    if (!candidate.verdict.ok()) return;
    const copy2d::Config& config = candidate.config;
    CHECK(copy2d::smem_layout(config).total_bytes <= kMaxSmemBytes);
    const std::string name = Copy2dOperator::kernel_name(facts.arch, config);
    CHECK(copies.try_emplace(name, config).first->second == config);
    Copy2d pinned = facts;
    pinned.tile_inner = config.box[0];
    if (config.rank > 1) pinned.tile_outer = config.box[1];
    pinned.swizzle = config.swizzle;
    CHECK(planned_kernel(pinned) == name);
  });
  CHECK(copies.size() > 1000);

  std::map<std::string, fmha::Config> attention;
  for_each_candidate<FmhaOperator>([&](const Fmha& facts, const Candidate<FmhaOperator>& candidate) {
    if (!candidate.verdict.ok()) return;
    const fmha::Config& config = candidate.config;
    CHECK(fmha::smem_layout(config).total_bytes <= kMaxSmemBytes);
    const std::string name = FmhaOperator::kernel_name(facts.arch, config);
    CHECK(attention.try_emplace(name, config).first->second == config);
    Fmha pinned = facts;
    pinned.tile_m = config.tile_m;
    pinned.tile_n = config.tile_n;
    pinned.stages = config.stages;
    pinned.swizzle = config.swizzle;
    pinned.mma_kind = config.mma_kind;
    CHECK(planned_kernel(pinned) == name);
  });
  CHECK(attention.size() > 400);

  std::map<std::string, gemm::Config> products;
  for_each_candidate<GemmOperator>([&](const Gemm& facts, const Candidate<GemmOperator>& candidate) {
    if (!candidate.verdict.ok()) return;
    const gemm::Config& config = candidate.config;
    CHECK(gemm::smem_layout(config).total_bytes <= kMaxSmemBytes);
    const std::string name = GemmOperator::kernel_name(facts.arch, config);
    CHECK(products.try_emplace(name, config).first->second == config);
    Gemm pinned = facts;
    const bool is_swapped = gemm::is_swapped(config);  // pins are of the product
    pinned.tile_m = is_swapped ? config.tile_n : config.tile_m;
    pinned.tile_n = is_swapped ? config.tile_m : config.tile_n;
    pinned.stages = config.stages;
    pinned.cluster_m = is_swapped ? config.cluster_n : config.cluster_m;
    pinned.cluster_n = is_swapped ? config.cluster_m : config.cluster_n;
    pinned.swap_ab = config.swap_ab;
    pinned.split_k = config.split_k;
    pinned.kernel_schedule = config.kernel_schedule;
    pinned.raster = config.raster;
    CHECK(planned_kernel(pinned) == name);
  });
  CHECK(products.size() > 2000);

  std::map<std::string, gemm_weights::Config> weights;
  for_each_candidate<GemmWeightsOperator>([&](const Gemm& facts, const Candidate<GemmWeightsOperator>& candidate) {
    if (!candidate.verdict.ok()) return;
    const gemm_weights::Config& config = candidate.config;
    CHECK(gemm_weights::smem_layout(config).total_bytes <= kMaxSmemBytes);
    const std::string name = GemmWeightsOperator::kernel_name(facts.arch, config);
    CHECK(weights.try_emplace(name, config).first->second == config);
    Gemm pinned = facts;
    pinned.mma_kind = config.mma_kind;
    pinned.tile_m = config.tile_m;
    pinned.tile_n = config.tile_n;
    pinned.stages = config.stages;
    pinned.split_k = config.split_k;
    pinned.raster = config.raster;
    CHECK(planned_kernel(pinned) == name);
  });
  CHECK(weights.size() > 200);
}

TEST_CASE("products: sizes steer the tile, and an illegal choice names its rule") {
  const auto config = [](const Fields& fields) { return chosen_config<GemmOperator>(problem_of("gemm", fields)); };
  // Few tiles: narrow ones, or a split k. Many: a large tile, which reads the least.
  const gemm::Config few = config({{"m", "64"}, {"n", "4096"}, {"k", "7168"}});
  CHECK(std::min(few.tile_m, few.tile_n) <= 64);
  const gemm::Config many = config({{"m", "8192"}, {"n", "8192"}, {"k", "8192"}});
  CHECK(many.tile_m * many.tile_n >= 128 * 176);
  CHECK(config({}) == config({{"m", "4096"}, {"n", "4096"}, {"k", "4096"}, {"l", "1"}}));
  CHECK(config({{"dtype", "e4m3"}}).facts.accumulation == Accumulation::promoted);
  CHECK(config({{"dtype", "f16"}}).facts.accumulation == Accumulation::fast);

  CHECK(unsupported("gemm", {{"dtype", "f32"}}) ==
        "gemm f32: a is f32, b is f32: both must be bf16, both f16, or each e4m3 or e5m2 (types of one matrix "
        "instruction)");
  CHECK(
      unsupported("gemm", {{"b_dtype", "e4m3"}}) ==
      "gemm bf16 x e4m3: a is bf16, b is e4m3: both must be bf16, both f16, or each e4m3 or e5m2 (types of one matrix "
      "instruction)");
  CHECK(unsupported("gemm", {{"d_dtype", "u8"}}) == "gemm bf16: d is u8: must be f32, bf16, f16, e4m3 or e5m2");
  CHECK(
      unsupported("gemm", {{"dtype", "e5m2"}, {"b_layout", "mn"}}) ==
      "gemm e5m2: an operand of 1-byte elements whose k is not contiguous, 2 bytes needed (wgmma): make k contiguous, "
      "or take a 16-bit type");
  CHECK(unsupported("gemm", {{"accumulation", "promoted"}}) ==
        "gemm bf16: promoted sums of elements of 2 bytes, 1 allowed: 16-bit types sum in fp32");
  const Fields pins{{"tile_m", "128"},  {"tile_n", "256"}, {"cluster_m", "2"},
                    {"cluster_n", "1"}, {"split_k", "1"},  {"kernel_schedule", "cooperative"}};
  const auto with = [&](const char* key, const char* value) {
    Fields changed = pins;
    for (auto& [name, text] : changed)
      if (name == key) text = value;
    changed.emplace_back("stages", "4");
    return unsupported("gemm", changed);
  };
  const std::string subject = "gemm bf16, tile ";
  CHECK(with("tile_m", "96") ==
        subject + "96x256, 4 stages, cluster 2x1: tile_m 96, a multiple of 64 needed (wgmma M)");
  CHECK(with("tile_n", "260") ==
        subject + "128x260, 4 stages, cluster 2x1: tile_n 260, a multiple of 8 needed (16 bytes of d)");
  CHECK(with("tile_n", "272") == subject + "128x272, 4 stages, cluster 2x1: tile_n 272, at most 256 allowed (wgmma N)");
  CHECK(with("tile_m", "256") == subject +
                                     "256x256, 4 stages, cluster 2x1: 256 accumulator registers a thread, 196 "
                                     "allowed: take a smaller tile");
  CHECK(with("cluster_m", "16") ==
        subject + "128x256, 4 stages, cluster 16x1: a cluster of 16 CTAs, at most 8 allowed");
  CHECK(with("split_k", "9") ==
        subject + "128x256, 4 stages, cluster 2x1, k in 9 parts: split_k 9, 1 to 8 allowed (CTAs of a cluster)");
  CHECK(with("kernel_schedule", "ping_pong") ==
        subject +
            "128x256 ping-pong, 4 stages, cluster 2x1: 256 accumulator registers a thread, 196 allowed: take a "
            "smaller tile");
}

TEST_CASE("attention: three tiles and two stage counts of every head_dim, under every swizzle") {
  for (const fmha::HeadDims& dims : fmha::kHeadDims) {
    for (const Word<Swizzle>& swizzle : kSwizzleWords) {
      if (dims.head_dim * 2 % swizzle_span_bytes(swizzle.value) != 0) continue;
      std::set<std::pair<int, int>> tiles;
      std::set<int> stages;
      for (const auto& candidate :
           choose<FmhaOperator>(
               Fmha{.head_dim = dims.head_dim, .head_dim_v = dims.head_dim_v, .swizzle = swizzle.value})
               .candidates) {
        if (!candidate.verdict.ok()) continue;
        CHECK(candidate.config.swizzle == swizzle.value);
        tiles.insert({candidate.config.tile_m, candidate.config.tile_n});
        stages.insert(candidate.config.stages);
      }
      CHECK(tiles.size() >= 3);
      CHECK(stages.size() >= 2);
    }
  }
}

TEST_CASE("without pins and hints attention gets the measured default") {
  for (const Problem& problem : every_fact()) {
    const Fmha* const facts = problem.get_if<Fmha>();
    if (facts == nullptr || is_latent(problem) || is_mma_attention(problem)) continue;
    if (facts->page_size) continue;  // a pin: tiles whose boxes are whole pages are preferred
    const fmha::Config expected = fmha::default_config(attention_facts(*facts), facts->pack_gqa.value_or(1));
    CHECK(chosen_config<FmhaOperator>(problem) == expected);
  }
}

TEST_CASE("hints steer the choice and nothing else") {
  const auto tile_m = [](const Fields& fields) {
    return chosen_config<FmhaOperator>(problem_of("fmha", fields)).tile_m;
  };
  CHECK(tile_m({}) == 192);
  CHECK(tile_m({{"seqlen_q", "1"}}) == 16);
  CHECK(tile_m({{"seqlen_q", "17"}}) == 64);
  CHECK(tile_m({{"seqlen_q", "4096"}, {"seqlen_k", "4096"}}) == 192);
  CHECK(tile_m({{"seqlen_q", "1"}, {"tile_m", "128"}}) == 128);
  CHECK(tile_m({{"seqlen_q", "2048"}, {"seqlen_k", "2048"}}) == 128);
  CHECK(tile_m({{"seqlen_q", "2048"}, {"seqlen_k", "2049"}}) == 192);
  CHECK(tile_m({{"head_dim", "64"}, {"seqlen_k", "1024"}}) == 256);
  CHECK(tile_m({{"head_dim", "96"}, {"seqlen_k", "1024"}}) == 128);
  CHECK(tile_m({{"mask", "causal"}, {"seqlen_k", "8191"}}) == 128);
  CHECK(tile_m({{"mask", "causal"}, {"seqlen_k", "8192"}}) == 192);
  CHECK(make_plan(problem_of("fmha", {{"seqlen_k", "1024"}}))
            .reason.starts_with("the default for head_dim 128 and 1,024 keys"));
  const Plan plain = make_plan(problem_of("fmha"));
  const Plan hinted = make_plan(problem_of("fmha", {{"batch", "4"}, {"seqlen_q", "8192"}}));
  CHECK(to_json(plain, false) == to_json(hinted, false));
  CHECK(hinted.reason.ends_with("; hints: batch 4, seqlen_q 8192"));
}

TEST_CASE("attention: heads are packed where queries are few, or where a pin says so") {
  const auto packed = [](const Fields& fields) {
    return chosen_config<FmhaOperator>(problem_of("fmha", fields)).pack_gqa;
  };
  CHECK(packed({}) == 1);
  CHECK(packed({{"heads_q", "32"}, {"heads_kv", "4"}}) == 1);
  CHECK(packed({{"heads_q", "32"}, {"heads_kv", "4"}, {"seqlen_q", "1"}}) == 8);
  CHECK(packed({{"heads_q", "32"}, {"heads_kv", "4"}, {"seqlen_q", "64"}}) == 1);
  CHECK(packed({{"heads_q", "32"}, {"heads_kv", "32"}, {"seqlen_q", "1"}}) == 1);
  CHECK(packed({{"heads_q", "12"}, {"heads_kv", "4"}, {"seqlen_q", "1"}}) == 3);
  CHECK(packed({{"heads_q", "128"}, {"heads_kv", "1"}, {"seqlen_q", "1"}}) == 128);
  CHECK(packed({{"heads_q", "12"}, {"heads_kv", "4"}, {"seqlen_q", "64"}}) == 1);
  CHECK(packed({{"heads_q", "32"}, {"heads_kv", "4"}, {"seqlen_q", "1"}, {"pack_gqa", "1"}}) == 1);
  CHECK(packed({{"pack_gqa", "16"}}) == 16);
  CHECK(packed({{"pack_gqa", "192"}}) == 192);
  CHECK(unsupported("fmha", {{"pack_gqa", "65537"}, {"tile_m", "128"}, {"tile_n", "128"}}) ==
        "head_dim 128, tile 128x128, 2 stages, 65537 heads packed: pack_gqa 65,537, 1 to 65,536 allowed (heads of a "
        "launch)");
}

TEST_CASE("attention: threads copy Q and store O where no box has the rows of packed heads") {
  const auto maps = [](const char* heads) {
    std::string names;
    for (const TensorMapRecipe& map : make_plan(problem_of("fmha", {{"pack_gqa", heads}})).launch.tensor_maps)
      names += map.name;
    return names;
  };
  CHECK(maps("4") == "qkvo");
  CHECK(maps("128") == "qkvo");
  CHECK(maps("192") == "qkvo");
  CHECK(maps("3") == "qkv");
  CHECK(maps("96") == "qkv");
  const Plan plan = make_plan(problem_of("fmha", {{"pack_gqa", "96"}}));
  const std::vector<KernelParameter>& parameters = plan.launch.steps.at(0).parameters;
  const auto has = [&](std::string_view name) {
    return std::any_of(parameters.begin(), parameters.end(), [&](const KernelParameter& p) { return p.name == name; });
  };
  for (const char* const name : {"o_rows", "q_rows", "o_stride_head", "q_stride_head", "q_stride_batch"})
    CHECK(has(name));
}

TEST_CASE("a pin outside the table is tried all the same") {
  const Plan plan =
      make_plan(problem_of("fmha", {{"tile_m", "128"}, {"tile_n", "48"}, {"stages", "4"}, {"swizzle", "32B"}}));
  CHECK(plan.kernel == "tessera_fmha_sm90a_d128_128x48_s4_sw32_full_bf16");
  CHECK(plan.reason ==
        "modelled at 0.84 of the default's speed; the only legal candidate; pinned: tile_m 128, tile_n 48, stages 4, "
        "swizzle 32B");
}

TEST_CASE("numbers in messages") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(counted(1, "stage") == "1 stage");
  CHECK(counted(3, "stage") == "3 stages");
}

}  // namespace plan_test

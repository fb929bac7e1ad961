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

using namespace tessera;
namespace plan_test {

namespace {

struct Refusal {
  ErrorKind kind = ErrorKind::io;
  std::string message;
  std::vector<std::string> notes;
};

Refusal refusal(std::string_view op, const Fields& fields) {
  try {
    make_plan(problem_of(op, fields));
  } catch (const Error& error) {
    return {error.kind(), error.what(), error.notes()};
  }
  return {ErrorKind::io, "no error", {}};
}

std::string unsupported(std::string_view op, const Fields& fields) {
  const Refusal found = refusal(op, fields);
  CHECK(found.kind == ErrorKind::unsupported);
  try {
    planned_kernel(problem_of(op, fields));
    FAIL("planned_kernel accepts what make_plan refuses");
  } catch (const Error& error) {
    CHECK(error.what() == found.message);
  }
  return found.message;
}

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
  CHECK(many.tile_m * many.tile_n >= 128 * 192);
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
  CHECK(with("tile_n", "264") == subject +
                                     "128x264, 4 stages, cluster 2x1: tile_n 264, a multiple of 16 needed (16 "
                                     "bytes of d)");
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

TEST_CASE("what no kernel exists for is refused with what exists") {
  CHECK(unsupported("fmha", {{"head_dim", "40"}}) ==
        "fmha has no kernel for head_dim 40: there are kernels for 16, 32, 64, 72, 80, 96, 128, 160, 192/128, 192, 256 "
        "and 512");
  CHECK(unsupported("fmha", {{"head_dim", "128"}, {"head_dim_v", "64"}}) ==
        "fmha has no kernel for head_dim 128/64: there are kernels for 16, 32, 64, 72, 80, 96, 128, 160, 192/128, 192, "
        "256 "
        "and 512");
  CHECK(unsupported("fmha", {{"dtype", "f32"}}) ==
        "fmha has no kernel for dtype f32: there are kernels for bf16, f16 and e4m3");
  for (const char* const arch : {"sm_90a", "sm_100a"})
    CHECK(unsupported("fmha", {{"arch", arch}, {"sink", "per_head"}, {"output", "unnormalized"}}) ==
          "sink per_head with output unnormalized: nothing is divided, so that a sink has no place: take sink none, "
          "and add exp(sink - row_max) to row_sum where the rows are divided");
  for (const char* const arch : {"sm_90a", "sm_100a"})
    CHECK(unsupported("fmha", {{"arch", arch}, {"window", "chunked"}}) ==
          "window chunked with mask none: a query sees the keys of its chunk up to itself: take mask causal");
  CHECK(unsupported("fmha",
                    {{"arch", "sm_100a"}, {"head_dim", "512"}, {"kv_pools", "sparse_window"}, {"softcap", "tanh"}}) ==
        "softcap tanh with kv_pools sparse_window: there is no kernel for it: take none");
  CHECK(unsupported("fmha", {{"tree_mask", "bits"}, {"mask", "causal"}}) ==
        "tree_mask bits with mask causal: its bits say what queries see of each other: take mask none");
  CHECK(unsupported("fmha", {{"tree_mask", "bits"}, {"window", "sliding"}}) ==
        "tree_mask bits with window sliding: a query's place is not its number: take window none");
  CHECK(unsupported("fmha", {{"arch", "sm_80"}}) ==
        "fmha has no kernel for arch sm_80: there is one for sm_90a, and for sm_100 and sm_103 with suffix a or f, and "
        "for sm_120 and sm_121 with suffix a or f");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"dtype", "e4m3"}, {"head_dim", "64"}, {"tile_m", "16"}}) ==
        "fmha has no kernel for dtype e4m3 with tile_m 16 on sm_120a: take tile_m 64");
  CHECK(unsupported("fmha", {{"arch", "sm_121f"}, {"head_dim", "512"}}) ==
        "fmha has no kernel for head_dim_v 512 (of the smallest tile, 64x16 with 1 stage, a thread would hold 264 "
        "registers of S and O, 255 there are; it would take 98,368 bytes of shared memory, 101,376 there are) on "
        "sm_121f");
  // Values that are keys: 64 rows of Q of 576 columns and a slot of 16 keys, and eight barriers.
  static_assert(2 * 576 * (64 + 16) + 64 == 92224);
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"head_dim", "576"}, {"head_dim_v", "512"}, {"v_is_k", "on"}}) ==
        "fmha has no kernel for v_is_k (of the smallest tile, 64x16 with 1 stage, a thread would hold 264 registers of "
        "S and O, 255 there are; it would take 92,224 bytes of shared memory, 101,376 there are) on sm_120a");
  CHECK(unsupported("fmha", {{"arch", "sm_90a"}, {"head_dim", "512"}, {"mma_kind", "mma.f16"}}) ==
        "fmha has no kernel for head_dim_v 512 (of the smallest tile, 64x16 with 1 stage, a thread would hold 264 "
        "registers of S and O, 255 there are; it would take 98,368 bytes of shared memory, 232,448 there are) with "
        "mma_kind mma.f16: take wgmma.f16");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"mma_kind", "wgmma.f16"}}) ==
        "fmha has no kernel for mma_kind wgmma.f16 with dtype bf16 on sm_120a: take mma.f16");
  CHECK(unsupported("fmha", {{"arch", "sm_121a"}, {"dtype", "e4m3"}, {"mma_kind", "mma.f16"}}) ==
        "fmha has no kernel for mma_kind mma.f16 with dtype e4m3 on sm_121a: take mma.f8");
  CHECK(unsupported("fmha", {{"arch", "sm_120f"}, {"dtype", "nvfp4"}, {"mma_kind", "mma.f16"}}) ==
        "fmha has no kernel for mma_kind mma.f16 with dtype nvfp4: take mma.mxf4nvf4");
  CHECK(unsupported("fmha", {{"mma_kind", "mma.f8"}}) ==
        "fmha has no kernel for mma_kind mma.f8 with dtype bf16 on sm_90a: take wgmma.f16 or mma.f16");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"tile_m", "16"}, {"v_layout", "k"}}) ==
        "fmha has no kernel for v_layout k with tile_m 16 on sm_120a: take tile_m 64");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"tile_m", "16"}, {"kv_pools", "sparse_window"}}) ==
        "fmha has no kernel for kv_pools with tile_m 16 on sm_120a: take tile_m 64");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"tile_m", "128"}, {"tile_n", "128"}, {"stages", "2"}}) ==
        "head_dim 128, tile 128x128, 2 stages, mma.sync: 163,968 bytes of shared memory, 101,376 allowed: drop a "
        "stage");
}

TEST_CASE("an illegal pin is refused with the rule that it breaks") {
  fmha::Config large{
      .facts = {.head_dim = 256, .head_dim_v = 256}, .tile_m = 128, .tile_n = 64, .stages = 3, .q_stages = 1};
  CHECK(unsupported("fmha", {{"head_dim", "256"}, {"tile_m", "128"}, {"tile_n", "64"}, {"stages", "3"}}) ==
        "head_dim 256, tile 128x64, 3 stages: " + grouped(fmha::smem_layout(large).total_bytes) +
            " bytes of shared memory, 232,448 allowed: drop a stage");
  CHECK(unsupported("fmha", {{"head_dim", "256"}, {"tile_m", "192"}, {"tile_n", "64"}, {"stages", "1"}}) ==
        "head_dim 256, tile 192x64, 1 stage: 176 registers a thread for S, P and O, 128 allowed: take a smaller tile_m "
        "or tile_n");
  CHECK(unsupported("fmha", {{"tile_m", "96"}, {"tile_n", "128"}}) ==
        "head_dim 128, tile 96x128, 2 stages: tile_m 96, a multiple of 64 needed (wgmma M)");
  CHECK(unsupported("fmha", {{"tile_m", "320"}, {"tile_n", "128"}}) ==
        "head_dim 128, tile 320x128, 2 stages: tile_m 320, at most 256 allowed (consumer warpgroups)");
  CHECK(unsupported("fmha", {{"tile_n", "24"}, {"tile_m", "128"}}) ==
        "head_dim 128, tile 128x24, 2 stages: tile_n 24, a multiple of 16 needed (wgmma K of P V)");
  CHECK(unsupported("fmha", {{"tile_n", "2147483647"}}) ==
        "head_dim 128, tile 192x2147483647, 2 stages: tile_n 2,147,483,647, a multiple of 16 needed (wgmma K of P V)");
  CHECK(unsupported("fmha", {{"stages", "9"}, {"tile_m", "64"}}) ==
        "head_dim 128, tile 64x80, 9 stages: 9 stages, 1 to 8 allowed");
  // Of many candidates each reason is told once.
  const Refusal all = refusal("fmha", {{"tile_n", "24"}});
  REQUIRE(all.notes.size() >= 1);
  CHECK(all.notes.front().ends_with(" more candidates for the same reason"));
  const Refusal product = refusal("gemm", {{"arch", "sm_100a"}, {"dtype", "nvfp4"}, {"cluster_m", "4"}});
  CHECK(product.message ==
        "gemm nvfp4, tile 128x256, 6 stages, 1 accumulator: cluster_m 4, at most 2 allowed (a pair of CTAs)");
  REQUIRE(product.notes.size() == 2);
  CHECK(product.notes[0] == "16 more candidates for the same reason");
  CHECK(product.notes[1] ==
        "tile 16x128 transposed, 10 stages, 2 accumulators, pair along n and 15 more: cluster_m 4, at "
        "most 1 allowed (with few rows a pair lies along n)");
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

TEST_CASE("block-scaled operators refuse what no format has, and name both sides") {
  CHECK(unsupported("quantize", {{"format", "mxfp4"}, {"global_scale", "given"}}) ==
        "quantize bf16 to mxfp4, plain scales, global scale given, 256 threads: a global scale beside scales of type "
        "ue8m0 for 32 elements: it goes with ue4m3 for 16, which is nvfp4; set global_scale none");
  CHECK(
      unsupported("quantize", {{"scale_rounding", "floor"}}) ==
      "quantize bf16 to nvfp4, plain scales, floor, 256 threads: scale_rounding floor beside scales of type ue4m3 for "
      "16 elements: it is a choice of ue8m0 for 32; leave it at up");
  CHECK(unsupported("quantize", {{"dtype", "e4m3"}}) ==
        "quantize has no kernel for dtype e4m3: there are kernels for f32, f16 and bf16");
  CHECK(unsupported("quantize", {{"threads", "100"}}) ==
        "quantize bf16 to nvfp4, plain scales, 100 threads: 100 threads, a multiple of 32 needed (warp)");
  CHECK(unsupported("dequantize", {{"global_scale", "amax"}})
            .ends_with("global_scale amax is found while quantising: give the number that was written then, with "
                       "global_scale given"));
  CHECK(
      unsupported("gemv", {{"b_format", "mxfp8_e4m3"}}) ==
      "gemv has no kernel for a of nvfp4 (scales ue4m3, one for 16 along k) and b of mxfp8_e4m3 (scales ue8m0, one for "
      "32 along k): blocks of both must be the same elements of k; mxfp4 and mxfp8 go together, nvfp4 with itself");
  CHECK(unsupported("gemv", {{"format", "mxfp8_e4m3"}, {"b_format", "mxfp6_e2m3"}}) ==
        "gemv has no kernel for mxfp6_e2m3: take gemm with n = 1, which multiplies it on sm_100, sm_103, sm_120 and "
        "sm_121");
  CHECK(
      unsupported("gemv", {{"scale_form", "tile"}, {"warp_rows", "2"}}) ==
      "gemv nvfp4, tile scales, to f16, 2 rows a warp, 1 warp a row: 2 rows of a warp, 4 needed: with scales in tiles "
      "a warp has four rows that lie 32 apart");
  CHECK(unsupported("gemv", {{"k_warps", "3"}}).ends_with("3 warps of a row: 1, 2, 4 or 8 allowed"));
  CHECK(
      unsupported("convert_scales", {{"arch", "sm_80"}}) ==
      "convert_scales has no kernel for arch sm_80: there is one for sm_90a, and for sm_100, sm_103, sm_120 and sm_121 "
      "with suffix a or f");
}

}  // namespace plan_test

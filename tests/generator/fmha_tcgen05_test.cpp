// Attention on tcgen05: what the planner chooses and refuses, and that what it says about a kernel adds up.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/launch_json.h"
#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/plan_json.h"
#include "spec/fmha_tcgen05_tiles.h"
#include "tessera/error.h"
#include "tests/generator/golden.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace fmha_tcgen05_test {
using fmha_tcgen05::Config;

namespace {

Problem attention(Fields fields) {
  fields.insert(fields.begin(), {"arch", "sm_100a"});
  return problem_of("fmha", fields);
}

std::string refusal_of(const Problem& problem) {
  try {
    make_plan(problem);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "accepted";
}
std::string refusal(const Fields& fields) { return refusal_of(attention(fields)); }

/// Facts of every head_dim, mask, output and layout of V, on every target.
std::vector<Fmha> facts() {
  std::vector<Fmha> all;
  for (const char* const arch : {"sm_100a", "sm_100f", "sm_103a", "sm_103f"})
    for (const fmha_tcgen05::Tile& tile : fmha_tcgen05::kTiles)
      for (const Mask mask : {Mask::none, Mask::causal})
        for (const Output output : {Output::normalized, Output::unnormalized})
          for (const Layout v_layout : {Layout::mn_major, Layout::k_major})
            for (const UsedLengths seqused : {UsedLengths::none, UsedLengths::qk}) {
              if (seqused != UsedLengths::none && v_layout == Layout::k_major) continue;
              all.push_back({.arch = Arch::parse(arch),
                             .head_dim = tile.head_dim,
                             .head_dim_v = tile.head_dim_v,
                             .mask = mask,
                             .window = seqused == UsedLengths::none ? Window::none : Window::sliding,
                             .seqused = seqused,
                             .output = output,
                             .v_layout = v_layout});
            }
  return all;
}

}  // namespace

TEST_CASE("attention on tcgen05: without pins the table's first tile wins") {
  for (const Fmha& problem : facts()) {
    const Config expected = fmha_tcgen05::default_config(attention_facts(problem));
    CHECK(chosen_config<FmhaTcgen05Operator>(problem) == expected);
  }
}

TEST_CASE("attention on tcgen05: every legal candidate fits, has a name of its own, and wins when it is pinned") {
  std::map<std::string, Config> kernels;
  for (const Fmha& problem : facts()) {
    if (problem.arch != Arch::parse("sm_100a")) continue;
    for (const auto& candidate : choose<FmhaTcgen05Operator>(problem).candidates) {
      if (!candidate.verdict.ok()) continue;
      const Config& c = candidate.config;
      CHECK(fmha_tcgen05::smem_layout(c).total_bytes <= kMaxSmemBytes);
      const bool has_tail = c.facts.kv_layout != KvLayout::dense;
      CHECK(fmha_tcgen05::barriers(c).tail[has_tail ? 1 : 0] ==
            static_cast<unsigned>(fmha_tcgen05::smem_layout(c).total_bytes));
      CHECK(fmha_tcgen05::used_columns(c) <= fmha_tcgen05::allocated_columns(c));
      CHECK(fmha_tcgen05::allocated_columns(c) <= 512);
      const fmha_tcgen05::RegisterBudget budget = fmha_tcgen05::register_budget(c);
      CHECK(budget.control + budget.correction + fmha_tcgen05::q_tiles(c) * budget.softmax + budget.widening <=
            fmha_tcgen05::num_threads(c) / 128 * budget.entry);
      CHECK(fmha_tcgen05::num_threads(c) * budget.entry <= 65536);
      const std::string name = FmhaTcgen05Operator::kernel_name(problem.arch, c);
      CHECK(kernels.try_emplace(name, c).first->second == c);
      Fmha pinned = problem;
      pinned.tile_m = c.tile_m;
      pinned.tile_n = c.tile_n;
      pinned.stages = c.stages;
      pinned.swizzle = c.swizzle;
      pinned.p_path = c.p_path;
      pinned.cta_group = c.cta_pair ? 2 : 1;
      pinned.pack_gqa = c.pack_gqa;
      pinned.split_kv = c.split_kv;
      CHECK(planned_kernel(pinned) == name);
    }
  }
  CHECK(kernels.size() > 500);
}

TEST_CASE("attention on tcgen05: regions and warps of a plan add up") {
  for (const Fmha& problem : facts()) {
    const Plan plan = make_plan(problem);
    std::int64_t end = 0;
    for (const SmemRegion& region : plan.smem) {
      CHECK(region.offset >= end);
      CHECK(region.bytes % region.slots == 0);
      end = region.offset + region.bytes;
    }
    CHECK(end == plan.smem_bytes);
    int column = 0;
    for (const TmemRegion& region : plan.tmem) {
      CHECK(region.first_column == column);
      column += region.columns;
      CHECK(region.phases.size() >= 2);
    }
    CHECK(column == fmha_tcgen05::used_columns(chosen_config<FmhaTcgen05Operator>(plan.problem)));
    CHECK(column <= plan.tmem_columns);
    int warps = 0;
    for (const RolePlan& role : plan.roles) {
      CHECK(role.first_warp == warps);
      warps += role.warps;
    }
    CHECK(static_cast<std::uint32_t>(32 * warps) == plan.launch.steps.front().block[0]);
    CHECK(to_json(launch_plan_from_json(to_json(plan.launch))) == to_json(plan.launch));
  }
}

TEST_CASE("attention on tcgen05: 8-bit keys have raw slots, as many as there is room for, and what is refused") {
  const auto with = [](Fields more) {
    more.insert(more.begin(), {"kv_dtype", "e4m3"});
    return more;
  };
  for (const fmha_tcgen05::Tile& tile : fmha_tcgen05::kTilesOfWidened)
    for (const char* const layout : {"dense", "ragged"}) {
      const Problem problem = attention(with({{"head_dim", std::to_string(tile.head_dim)},
                                              {"head_dim_v", std::to_string(tile.head_dim_v)},
                                              {"tile_m", std::to_string(tile.tile_m)},
                                              {"tile_n", std::to_string(tile.tile_n)},
                                              {"kv_layout", layout}}));
      const Config c = chosen_config<FmhaTcgen05Operator>(problem.as<Fmha>());
      const fmha_tcgen05::SmemLayout smem = fmha_tcgen05::smem_layout(c);
      const int raw = c.tile_n * (c.facts.head_dim + c.facts.head_dim_v);
      CHECK(fmha_tcgen05::raw_stages(c) >= 2);
      CHECK(smem.raw_k.bytes + smem.raw_v.bytes == fmha_tcgen05::raw_stages(c) * raw);
      CHECK((fmha_tcgen05::raw_stages(c) == fmha_tcgen05::kMaxRawStages ||
             smem.total_bytes + raw + 8 * 4 * fmha_tcgen05::kMaxRawStages > kMaxSmemBytes));
      for (const bool is_v : {false, true}) CHECK(fmha_tcgen05::load_ring(c, is_v).offset % 128 == 0);
      const Plan plan = make_plan(problem);
      CHECK(plan.launch.tensor_maps.at(1).swizzle == TensorMapSwizzle::none);
      CHECK(plan.launch.tensor_maps.size() == 4);  // o leaves through its map
      std::int64_t end = 0;
      for (const SmemRegion& region : plan.smem) {
        CHECK(region.offset >= end);
        end = region.offset + region.bytes;
      }
      CHECK(end == plan.smem_bytes);
      CHECK(plan.roles.back().name == "widen_kv");
      CHECK(static_cast<std::uint32_t>(32 * (plan.roles.back().first_warp + plan.roles.back().warps)) ==
            plan.launch.steps.front().block[0]);
      const fmha_tcgen05::RegisterBudget budget = fmha_tcgen05::register_budget(c);
      CHECK(budget.control + budget.correction + fmha_tcgen05::q_tiles(c) * budget.softmax + budget.widening <=
            fmha_tcgen05::num_threads(c) / 128 * budget.entry);
      CHECK(fmha_tcgen05::num_threads(c) * budget.entry <= 65536);
    }
  CHECK(refusal(with({{"tile_m", "256"}, {"tile_n", "128"}, {"stages", "1"}})) ==
        "head_dim 128, tile 256x128, 1 stage: tile_n 128 with keys in e4m3 and two products of rows in a tile, at most "
        "64 allowed (registers of softmax threads): take it, or tile_m 128");
  CHECK(refusal(with({{"cta_group", "2"}, {"tile_m", "256"}})) ==
        "head_dim 128, tile 256x64, 2 stages, CTA pair: keys in e4m3 in a tile of 2 CTAs, 1 allowed: take cta_group 1");
  CHECK(refusal(with({{"v_layout", "k"}})) ==
        "head_dim 128, tile 256x64, 2 stages: v_layout k with keys in e4m3: take v_layout mn");
  CHECK(refusal(with({{"head_dim", "256"}, {"stages", "2"}, {"tile_n", "128"}})).find("bytes of shared memory") !=
        std::string::npos);
}

TEST_CASE("attention on tcgen05: 8 bits in all, and what is refused") {
  const auto with = [](Fields more) {
    more.insert(more.begin(), {"dtype", "e4m3"});
    return more;
  };
  for (const fmha_tcgen05::Tile& tile : fmha_tcgen05::kTilesOf8Bit)
    for (const char* const output : {"normalized", "unnormalized"}) {
      const Problem problem = attention(with({{"head_dim", std::to_string(tile.head_dim)},
                                              {"head_dim_v", std::to_string(tile.head_dim_v)},
                                              {"tile_m", std::to_string(tile.tile_m)},
                                              {"tile_n", std::to_string(tile.tile_n)},
                                              {"stages", std::to_string(tile.stages)},
                                              {"cta_group", tile.cta_pair ? "2" : "1"},
                                              {"output", output}}));
      const Config c = chosen_config<FmhaTcgen05Operator>(problem.as<Fmha>());
      CHECK(fmha_tcgen05::used_columns(c) <= 512);
      // O leaves through Q's slot in equal parts.
      const int bytes = c.facts.output == Output::normalized ? 2 : 4;
      CHECK(fmha_tcgen05::o_passes(c) == bytes);
      CHECK(fmha_tcgen05::o_pass_columns(c) * bytes * fmha_tcgen05::rows_per_cta(c) <= fmha_tcgen05::q_slot_bytes(c));
      CHECK(fmha_tcgen05::o_pass_columns(c) % fmha_tcgen05::o_span_elements(c) == 0);
      const Plan plan = make_plan(problem);
      CHECK(plan.mma_kind == "tcgen05.f8f6f4");
      CHECK(plan.launch.tensor_maps.size() == 4);
      for (int i = 0; i < 3; ++i) CHECK(plan.launch.tensor_maps[static_cast<std::size_t>(i)].type == TensorMapType::u8);
      for (const char* const name : {"q_descale", "k_descale", "v_descale"})
        CHECK(std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                          [&](const BufferSpec& of) { return of.name == name && of.is_optional; }));
    }
  CHECK(make_plan(attention(with({{"o_dtype", "f16"}}))).kernel ==
        "tessera_fmha_sm100a_d128_256x128_s4_sw128_full_e4m3_to_f16");
  for (const char* const head_dim : {"16", "32", "72", "80", "96", "160", "512"})
    CHECK(refusal(with({{"head_dim", head_dim}})) ==
          std::string("fmha has no kernel for dtype e4m3 with head_dim ") + head_dim);
  CHECK(refusal(with({{"kv_pools", "sparse_window"}})) == "fmha has no kernel for dtype e4m3 with kv_pools");
  CHECK(refusal(with({{"softcap", "tanh"}, {"alibi", "per_head"}})) == "accepted");
  CHECK(refusal(with({{"promote_every", "1024"}})) ==
        "fmha has no kernel for promote_every 1024 on sm_100a: take sm_90a");
  CHECK(refusal(with({{"mma_kind", "tcgen05.f16"}})) ==
        "fmha has no kernel for mma_kind tcgen05.f16 with dtype e4m3 on sm_100a: take tcgen05.f8f6f4");
  CHECK(refusal(with({{"v_layout", "k"}})) ==
        "head_dim 128, tile 256x128, 4 stages: v_layout k with keys in e4m3: take v_layout mn");
}

TEST_CASE("attention on tcgen05: hints steer the tile") {
  const auto tile_m = [](const Fields& fields) { return chosen_config<FmhaTcgen05Operator>(attention(fields)).tile_m; };
  CHECK(tile_m({}) == 256);
  CHECK(tile_m({{"seqlen_q", "1"}}) == 128);
  CHECK(tile_m({{"seqlen_q", "4096"}}) == 256);
  CHECK(tile_m({{"seqlen_q", "1"}, {"tile_m", "256"}}) == 256);
}

TEST_CASE("attention on tcgen05: what is refused, with what exists") {
  CHECK(refusal({{"head_dim", "40"}}) ==
        "fmha has no kernel for head_dim 40 on sm_100a: there are kernels for 16, 32, 64, 72, 80, 96, 128, 160, "
        "192/128, 192, 256 "
        "and 512");
  CHECK(refusal({{"dtype", "f32"}}) == "fmha has no kernel for dtype f32: there are kernels for bf16, f16 and e4m3");
  CHECK(refusal({{"mma_kind", "wgmma.f16"}}) ==
        "fmha has no kernel for mma_kind wgmma.f16 with dtype bf16 on sm_100a: take tcgen05.f16");
  CHECK(refusal({{"cta_group", "3"}}) == "fmha has no kernel for cta_group 3: 1 or 2 CTAs share a tile");
  const std::string d128 = "head_dim 128, tile ";
  CHECK(refusal({{"tile_m", "192"}}) ==
        d128 + "192x128, 2 stages: tile_m 192, a multiple of 128 needed (rows of a product)");
  CHECK(refusal({{"tile_m", "384"}}) == d128 + "384x128, 2 stages: tile_m 384, at most 256 allowed (two products)");
  CHECK(refusal({{"tile_n", "48"}}) == d128 +
                                           "256x48, 2 stages: tile_n 48, a multiple of 32 needed (columns that a "
                                           "softmax thread loads at once)");
  CHECK(refusal({{"tile_n", "2147483647"}, {"v_layout", "k"}}) ==
        d128 +
            "256x2147483647, 2 stages: tile_n 2,147,483,647, a multiple of 32 needed (columns that a softmax thread "
            "loads at once)");
  CHECK(refusal({{"tile_n", "160"}}) == d128 +
                                            "256x160, 2 stages: tile_n 160, at most 128 allowed (scores in a "
                                            "softmax thread's registers)");
  CHECK(refusal({{"tile_n", "32"}, {"v_layout", "k"}, {"swizzle", "128B"}}) ==
        d128 +
            "256x32, 2 stages: 64 bytes of keys in a step, a multiple of the 128 bytes of a swizzle span needed: "
            "take a narrower swizzle");
  CHECK(refusal({{"stages", "9"}}) == d128 + "256x128, 9 stages: 9 stages, 1 to 8 allowed");
  CHECK(refusal({{"stages", "3"}, {"tile_m", "256"}, {"tile_n", "128"}, {"cta_group", "1"}}) ==
        d128 + "256x128, 3 stages: 264,448 bytes of shared memory, 232,448 allowed: drop a stage");
  CHECK(refusal({{"head_dim", "256"}, {"tile_m", "256"}, {"cta_group", "1"}}) ==
        "head_dim 256, tile 256x128, 2 stages: 768 columns of Tensor Memory, 512 allowed: take a smaller tile");
  CHECK(refusal({{"head_dim", "16"}, {"swizzle", "64B"}}) ==
        "head_dim 16, tile 256x128, 4 stages: rows of 32 bytes, a multiple of the 64 bytes of a swizzle span needed: "
        "take a narrower swizzle");
  CHECK(refusal({{"head_dim", "16"}, {"cta_group", "2"}}) ==
        "head_dim 16, tile 256x128, 4 stages, CTA pair: head_dim 16, a multiple of 32 needed (tcgen05 K and N)");
  CHECK(refusal({{"head_dim", "512"}, {"cta_group", "1"}}) ==
        "head_dim 512, tile 128x128, 1 stage: head_dim_v 512 in one CTA, 256 allowed (Tensor Memory for O and S): take "
        "a pair of CTAs");
  CHECK(refusal({{"head_dim", "512"}, {"p_path", "tmem"}}) ==
        "head_dim 512, tile 128x128, 1 stage, CTA pair: P in Tensor Memory with 64 rows a CTA, 128 needed: take P in "
        "shared memory");
}

TEST_CASE("attention on tcgen05: what is refused of windows, used lengths, packed heads and pools") {
  const Fields pools = {{"kv_pools", "sparse_window"}};
  const auto with = [&](Fields more) {
    more.insert(more.begin(), pools.begin(), pools.end());
    return refusal(more);
  };
  CHECK(with({}) == "accepted");
  CHECK(with({{"tile_m", "256"}, {"cta_group", "1"}}) ==
        "head_dim 128, tile 256x128, 2 stages, 128 heads packed, two pools of keys: 2 products of rows in a tile, 1 "
        "allowed with two pools of keys: take a smaller tile_m");
  for (const char* const heads : {"1", "3", "20", "80", "96", "130", "192"})
    for (const char* const head_dim : {"64", "512"})
      CHECK(with({{"head_dim", head_dim}, {"pack_gqa", heads}}) == "accepted");
  CHECK(with({{"swizzle", "none"}, {"head_dim", "64"}}) ==
        "head_dim 64, tile 128x128, 3 stages, 128 heads packed, two pools of keys: a swizzle span of 16 bytes, 32 or "
        "more needed with two pools of keys (gather4)");
  for (const char* const arch : {"sm_90a", "sm_100a"})
    for (const auto& [key, word] :
         {std::pair("seqused", "k"), std::pair("window", "sliding"), std::pair("split_kv", "on"),
          std::pair("output", "unnormalized"), std::pair("v_layout", "k")})
      CHECK(with({{"arch", arch}, {key, word}})
                .find("two pools of keys with used lengths, a sliding window of its own, split keys, "
                      "v_layout k or output unnormalized: take none of these") != std::string::npos);
  CHECK(refusal({{"topk", "100"}}) == "topk 100 without a list of rows: take kv_pools sparse_window");
  CHECK(refusal({{"pack_gqa", "192"}}) == "accepted");
  CHECK(refusal({{"pack_gqa", "65537"}}) ==
        "head_dim 128, tile 256x128, 2 stages, 65537 heads packed: pack_gqa 65,537, 1 to 65,536 allowed (heads of a "
        "launch)");
  CHECK(refusal({{"window_size_left", "128"}}) == "window_size_left 128 without a window: take window sliding");
  CHECK(refusal({{"v_layout", "k"}, {"seqused", "k"}}) ==
        "head_dim 128, tile 256x128, 2 stages: V with keys side by side, 2 bytes each, and used lengths: loads would "
        "begin off the 16 bytes that TMA needs: take v_layout mn");
}

TEST_CASE("attention on tcgen05: with pools the list and the window count, not the rows there are") {
  const auto tile_n = [](Fields hints) {
    hints.insert(hints.begin(), {{"kv_pools", "sparse_window"}, {"head_dim", "128"}, {"heads_q", "128"}});
    return chosen_config<FmhaTcgen05Operator>(attention(hints)).tile_n;
  };
  CHECK(tile_n({{"seqlen_k", "50"}}) == 128);
  CHECK(tile_n({{"seqlen_k", "50"}, {"topk", "2048"}, {"seqlen_swa", "128"}}) == 128);
  CHECK(tile_n({{"seqlen_k", "5000"}, {"topk", "60"}, {"seqlen_swa", "60"}}) == 64);
  CHECK(tile_n({{"seqlen_k", "5000"}, {"topk", "0"}, {"seqlen_swa", "0"}}) == 128);
  const Plan plan = make_plan(attention({{"kv_pools", "sparse_window"}, {"head_dim", "512"}, {"heads_q", "96"}}));
  CHECK(plan.reason.find("75.0 % of its tiles is work") != std::string::npos);
}

TEST_CASE("what attention has on tcgen05 alone is refused on sm_90a") {
  CHECK(refusal_of(attention({{"kv_pools", "sparse_window"}, {"q_layout", "ragged"}})) ==
        "q_layout ragged with kv_pools sparse_window: each query has a list of its own; take dense");
  CHECK(refusal_of(attention({{"seqused", "qk"}, {"q_layout", "ragged"}})) ==
        "seqused qk with q_layout ragged: cu_seqlens_q says how many queries a sequence has; take seqused k");
  CHECK(refusal_of(problem_of("fmha", {{"window_size_right", "5"}})) ==
        "window_size_right 5 without a window: take window sliding");
  CHECK(refusal_of(problem_of("fmha", {{"p_path", "smem"}})) ==
        "fmha has no kernel for p_path smem on sm_90a: take sm_100a or sm_103a");
  CHECK(refusal_of(problem_of("fmha", {{"cta_group", "2"}})) ==
        "fmha has no kernel for cta_group 2 on sm_90a: take sm_100a or sm_103a");
  CHECK(refusal_of(problem_of("fmha", {{"mma_kind", "tcgen05.f16"}})) ==
        "fmha has no kernel for mma_kind tcgen05.f16 on sm_90a: take sm_100a or sm_103a");
}

TEST_CASE("attention on tcgen05: pins that no tile of the table bears get tiles of fewer keys") {
  const auto config = [](Fields fields) { return chosen_config<FmhaTcgen05Operator>(attention(std::move(fields))); };
  CHECK(config({{"head_dim", "256"}, {"stages", "2"}}).tile_n >= 64);
  const Config deep = config({{"head_dim", "256"}, {"stages", "3"}});
  CHECK(deep.stages == 3);
  CHECK(deep.tile_n < 128);
  CHECK(config({{"head_dim", "256"}, {"stages", "4"}, {"cta_group", "1"}}).tile_n == 32);
  CHECK(config({{"head_dim", "128"}, {"stages", "8"}, {"p_path", "smem"}}).stages == 8);
  // Where nothing helps, the refusal speaks of the table's tile.
  CHECK(
      refusal({{"head_dim", "512"}, {"stages", "3"}}) ==
      "head_dim 512, tile 128x128, 3 stages, CTA pair: 477,912 bytes of shared memory, 232,448 allowed: drop a stage");
  CHECK(refusal({{"head_dim", "256"}, {"stages", "3"}, {"tile_n", "128"}}).find("shared memory") != std::string::npos);
}

TEST_CASE("attention on tcgen05: keys are not split where a window shows few of them") {
  const auto is_split = [](Fields more) {
    Fields fields{{"seqlen_q", "1"}, {"seqlen_k", "65536"}, {"heads_q", "8"}, {"heads_kv", "8"}, {"batch", "1"}};
    fields.insert(fields.end(), more.begin(), more.end());
    return fmha_tcgen05::is_split(chosen_config<FmhaTcgen05Operator>(attention(fields)));
  };
  const Fields window{{"window", "sliding"}};
  const auto with = [&](Fields more) {
    more.insert(more.begin(), window.begin(), window.end());
    return is_split(std::move(more));
  };
  CHECK(is_split({}));
  CHECK(with({}));
  CHECK(!with({{"window_size_left", "127"}, {"window_size_right", "0"}}));
  CHECK(!with({{"window_size_left", "127"}, {"mask", "causal"}}));
  CHECK(with({{"window_size_left", "127"}}));  // all keys behind
  CHECK(with({{"window_size_left", "-1"}, {"window_size_right", "0"}}));
  CHECK(with({{"window_size_left", "4096"}, {"window_size_right", "0"}}));
}

TEST_CASE("fields of a window: -1 is no bound, in both directions") {
  Problem problem = attention({{"window", "sliding"}, {"window_size_left", "-1"}});
  CHECK(field_text(problem, "window_size_left") == "-1");
  CHECK(field_text(problem, "window_size_right") == "unknown");
  set_field(problem, "window_size_left", "2147418111");
  CHECK(field_text(problem, "window_size_left") == "2147418111");
  CHECK_THROWS_WITH_AS(set_field(problem, "window_size_left", "2147418113"),
                       "window_size_left = 2147418113: must be from -1 to 2147418112", Error);
}

TEST_CASE("attention on tcgen05: goldens") {
  check_golden("plan_fmha_sm100a_d512.json", to_json(make_plan(attention({{"head_dim", "512"}})), true).dump(2) + "\n");
  check_golden("plan_fmha_sm100a_d128_vk.json",
               to_json(make_plan(attention({{"mask", "causal"}, {"v_layout", "k"}})), true).dump(2) + "\n");
  check_golden(
      "plan_fmha_sm100a_d128_split.json",
      to_json(make_plan(attention(
                  {{"seqlen_q", "1"}, {"heads_q", "32"}, {"heads_kv", "2"}, {"window", "sliding"}, {"seqused", "k"}})),
              true)
              .dump(2) +
          "\n");
  check_golden(
      "plan_fmha_sm100a_d512_pools.json",
      to_json(make_plan(attention({{"head_dim", "512"}, {"kv_pools", "sparse_window"}, {"heads_q", "64"}})), true)
              .dump(2) +
          "\n");
}

}  // namespace fmha_tcgen05_test

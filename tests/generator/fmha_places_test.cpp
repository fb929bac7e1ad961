// Attention over keys that do not lie dense: what the planner chooses and refuses, and what a launch takes.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "tessera/error.h"
#include "tessera/expression.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace fmha_places_test {

namespace {

std::string refusal(const Fields& fields) {
  try {
    make_plan(problem_of("fmha", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "accepted";
}

fmha::Config config_of(const Fields& fields) {
  return chosen_config<FmhaOperator>(problem_of("fmha", fields).as<Fmha>());
}

bool has_buffer(const LaunchPlan& launch, std::string_view name) {
  return std::any_of(launch.buffers.begin(), launch.buffers.end(),
                     [&](const BufferSpec& buffer) { return buffer.name == name; });
}

TEST_CASE("ragged prefills: blocks of two pages' parts, or of whole boxes in longer pages, where sequences are long") {
  const auto chosen = [](std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv, const char* mask,
                         const char* page_size = "64") {
    const fmha::Config c = config_of({{"mask", mask},
                                      {"q_layout", "ragged"},
                                      {"kv_layout", "paged"},
                                      {"page_size", page_size},
                                      {"batch", std::to_string(batch)},
                                      {"heads_q", std::to_string(heads_q)},
                                      {"heads_kv", std::to_string(heads_kv)},
                                      {"seqlen_q", "16384"},
                                      {"seqlen_k", std::to_string(16384 / batch)}});
    return std::array{c.tile_m, c.tile_n, c.stages};
  };
  for (const char* const mask : {"none", "causal"}) {
    CHECK(chosen(1, 16, 16, mask) == std::array{192, 80, 3});
    CHECK(chosen(1, 32, 8, mask) == std::array{192, 80, 3});
    CHECK(chosen(1, 32, 8, mask, "128") == std::array{192, 64, 3});
    CHECK(chosen(16, 32, 8, mask) == std::array{128, 128, 2});
  }
  CHECK(chosen(4, 32, 8, "causal") == std::array{128, 128, 2});
}

TEST_CASE("ragged prefills over pages of 64 keys: a map for each number of keys that a part may have") {
  const LaunchPlan launch = make_plan(problem_of("fmha", {{"q_layout", "ragged"},
                                                          {"kv_layout", "paged"},
                                                          {"page_size", "64"},
                                                          {"tile_m", "192"},
                                                          {"tile_n", "80"},
                                                          {"stages", "3"}}))
                                .launch;
  std::vector<std::string> maps;
  for (const TensorMapRecipe& map : launch.tensor_maps) maps.push_back(fmt::format("{} {}", map.name, map.box.at(1)));
  std::sort(maps.begin(), maps.end());
  CHECK(fmt::format("{}", fmt::join(maps, ", ")) ==
        "k 16, k_32 32, k_48 48, k_64 64, o 64, q 64, v 16, v_32 32, v_48 48, v_64 64");
}

TEST_CASE("decode over pages: dealt e4m3 keys have three slots, other keys two") {
  const auto slots = [](const char* kv_dtype, const char* batch, const char* head_dim, const char* page_size) {
    return config_of({{"head_dim", head_dim},
                      {"mask", "causal"},
                      {"kv_layout", "paged"},
                      {"page_size", page_size},
                      {"kv_dtype", kv_dtype},
                      {"batch", batch},
                      {"heads_q", "32"},
                      {"heads_kv", "8"},
                      {"seqlen_q", "1"},
                      {"seqlen_k", "8192"}})
        .stages;
  };
  CHECK(slots("e4m3", "8", "128", "16") == 3);
  CHECK(slots("e4m3", "128", "128", "64") == 3);
  CHECK(slots("bf16", "8", "128", "16") == 2);
  CHECK(slots("e4m3", "1", "128", "16") == 2);  // by num_splits
  CHECK(slots("e4m3", "8", "64", "16") == 2);   // not measured
}

}  // namespace

TEST_CASE("keys in pages: what is refused, and why") {
  CHECK(refusal({{"kv_layout", "paged"}})
            .find("kv_layout paged without a page_size: take 1, 8, 16, 32, 64, 128 or 256") != std::string::npos);
  CHECK(refusal({{"kv_layout", "paged"}, {"page_size", "24"}})
            .find("page_size 24: there are kernels for 1, 8, 16, 32, 64, 128 and 256") != std::string::npos);
  CHECK(refusal({{"page_size", "16"}}).find("page_size 16 without pages: take kv_layout paged") != std::string::npos);
  CHECK(refusal({{"kv_copy", "cp_async"}}).find("kv_copy cp_async, dense keys come by TMA: take tma") !=
        std::string::npos);
  CHECK(refusal({{"kv_layout", "paged"}, {"page_size", "1"}, {"kv_copy", "tma"}})
            .find("page_size 1, at least 8 needed for TMA (rows of a swizzle's pattern): take kv_copy cp_async") !=
        std::string::npos);
  CHECK(refusal({{"pages", "5"}}) == "pages 5 without pages: take kv_layout paged");
  CHECK(refusal({{"tokens_k", "5"}}) == "tokens_k 5 without ragged keys: take kv_layout ragged");
  const auto on_tcgen05 = [](Fields fields) {
    fields.insert(fields.begin(), {{"arch", "sm_100a"}, {"kv_layout", "ragged"}});
    return refusal(fields);
  };
  CHECK(on_tcgen05({}) == "accepted");
  CHECK(on_tcgen05({{"cta_group", "2"}})
            .find("keys that do not lie dense in a tile of 2 CTAs, 1 allowed: take cta_group 1") != std::string::npos);
  CHECK(on_tcgen05({{"v_layout", "k"}})
            .find("kv_layout paged or ragged with v_layout k or two pools of keys: take none of these") !=
        std::string::npos);
}

TEST_CASE("keys in pages: every head_dim has a kernel for every page, and its boxes are parts of pages") {
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    for (const int page_size : kPageSizes)
      for (const char* const split : {"off", "on"}) {
        CAPTURE(dims.head_dim);
        CAPTURE(page_size);
        const fmha::Config c = config_of({{"head_dim", std::to_string(dims.head_dim)},
                                          {"head_dim_v", std::to_string(dims.head_dim_v)},
                                          {"kv_layout", "paged"},
                                          {"page_size", std::to_string(page_size)},
                                          {"split_kv", split}});
        CHECK(c.facts.seqused == UsedLengths::k);
        CHECK(c.kv_copy == (page_size < 8 ? KvCopy::cp_async : KvCopy::tma));
        CHECK(page_size % fmha::box_keys(c) == 0);
        CHECK(c.tile_n % fmha::box_keys(c) == 0);
        if (c.kv_copy == KvCopy::tma) CHECK(fmha::box_keys(c) % 8 == 0);
      }
}

TEST_CASE("keys in pages: buffers, maps and sizes of a launch") {
  const LaunchPlan paged = make_plan(problem_of("fmha", {{"kv_layout", "paged"}, {"page_size", "16"}})).launch;
  CHECK(has_buffer(paged, "block_table"));
  CHECK(has_buffer(paged, "seqused_k"));
  CHECK(paged.tensor_maps.size() == 4);
  const LaunchPlan by_threads =
      make_plan(problem_of("fmha", {{"kv_layout", "paged"}, {"page_size", "1"}, {"split_kv", "on"}})).launch;
  CHECK(by_threads.tensor_maps.size() == 1);  // q: k and v need none, parts of o neither
  const LaunchPlan ragged = make_plan(problem_of("fmha", {{"kv_layout", "ragged"}})).launch;
  CHECK(has_buffer(ragged, "cu_seqlens_k"));
  CHECK_FALSE(has_buffer(ragged, "seqused_k"));
  const auto rule = [&](const LaunchPlan& launch, std::string_view message) {
    return std::any_of(launch.domain.begin(), launch.domain.end(),
                       [&](const DomainRule& of) { return of.message == message; });
  };
  CHECK(rule(paged, "seqlen_k must be at most max_pages times page_size, which is 16"));
  CHECK(rule(by_threads, "k_stride_page must be a multiple of 8 (16 bytes)"));
  CHECK(rule(ragged, "v_stride_seqlen must be a multiple of 8 (16 bytes)"));
}

TEST_CASE("keys in pages: a plan says what a block has in memory, and how many slots of it fit") {
  const auto said = [](Fields fields) {
    fields.insert(
        fields.end(),
        {{"kv_layout", "paged"}, {"page_size", "64"}, {"heads_q", "32"}, {"heads_kv", "8"}, {"seqlen_q", "1"}});
    const std::string reason = make_plan(problem_of("fmha", fields)).reason;
    const std::size_t begin = std::min(reason.find("a block of "), reason.size());
    return reason.substr(begin, reason.find(';', begin) - begin);
  };
  using Field = Fields::value_type;
  const Field nvfp4{"kv_format", "nvfp4"}, mxfp8{"kv_format", "mxfp8"}, e4m3{"kv_dtype", "e4m3"};
  const Field mma{"mma_kind", "mma.f16"}, tcgen05{"arch", "sm_100a"}, consumer{"arch", "sm_120a"};
  CHECK(said({mma}) == "a block of 128 keys has 65,536 bytes of K and V in memory, and 3 slots of it fit");
  CHECK(said({mma, e4m3}) == "a block of 64 keys has 16,384 bytes of K and V in memory, and 8 slots of it fit");
  CHECK(said({mma, mxfp8}) == "a block of 64 keys has 16,896 bytes of K and V in memory, and 8 slots of it fit");
  CHECK(said({mma, nvfp4}) == "a block of 64 keys has 9,216 bytes of K and V in memory, and 8 slots of it fit");
  CHECK(said({tcgen05}) == "a block of 128 keys has 65,536 bytes of K and V in memory, and 3 slots of it fit");
  CHECK(said({tcgen05, nvfp4}) == "a block of 128 keys has 18,432 bytes of K and V in memory, and 3 slots of it fit");
  CHECK(said({consumer}) == "a block of 64 keys has 32,768 bytes of K and V in memory, and 2 slots of it fit");
  CHECK(said({consumer, mxfp8}) == "a block of 64 keys has 16,896 bytes of K and V in memory, and 5 slots of it fit");
  CHECK(said({consumer, {"head_dim", "256"}, nvfp4}) ==
        "a block of 64 keys has 18,432 bytes of K and V in memory, and 3 slots of it fit");
  CHECK(make_plan(problem_of("fmha", {})).reason.find("a block of ") == std::string::npos);
}

TEST_CASE("keys with scales: what is refused, and why; what a launch takes") {
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"}) {
    const auto of_arch = [&](Fields more) {
      more.insert(more.begin(), {{"arch", arch}, {"kv_format", "nvfp4"}});
      return refusal(more);
    };
    const auto of_pages = [&](Fields more) {
      more.insert(more.begin(), {{"kv_layout", "paged"}, {"page_size", "16"}});
      return of_arch(more);
    };
    CHECK(of_pages({}) == "accepted");
    CHECK(of_pages({{"head_dim", "256"}, {"mask", "causal"}, {"window", "sliding"}}) == "accepted");
    CHECK(of_arch({}) == "fmha has no kernel for kv_format nvfp4 with kv_layout dense: take paged");
    CHECK(of_arch({{"kv_layout", "ragged"}}) ==
          "fmha has no kernel for kv_format nvfp4 with kv_layout ragged: take paged");
    CHECK(of_arch({{"kv_layout", "paged"}, {"page_size", "1"}}) ==
          "fmha has no kernel for kv_format nvfp4 with page_size 1: take 8 or more: a box of keys brings its scales");
    CHECK(of_pages({{"dtype", "f16"}}) == "fmha has no kernel for kv_format nvfp4 with dtype f16: take bf16");
    CHECK(of_pages({{"kv_dtype", "e4m3"}}) ==
          "fmha has no kernel for kv_format nvfp4 with kv_dtype e4m3: take auto: a format has its own");
    CHECK(of_pages({{"head_dim", "96"}}) ==
          "fmha has no kernel for kv_format nvfp4 with head_dim 96: take 64, 128 or 256");
  }
  const Fields paged{{"kv_layout", "paged"}, {"page_size", "16"}};
  const auto launch_of = [&](const char* format) {
    Fields fields = paged;
    fields.push_back({"kv_format", format});
    return make_plan(problem_of("fmha", fields)).launch;
  };
  const LaunchPlan nvfp4 = launch_of("nvfp4"), mxfp8 = launch_of("mxfp8");
  for (const LaunchPlan* const launch : {&nvfp4, &mxfp8})
    for (const char* const name : {"k_descale", "v_descale", "k_scale", "v_scale"}) CHECK(has_buffer(*launch, name));
  // 64 bytes of a key's codes, 16 keys of a page; 128.
  CHECK(nvfp4.tensor_maps.at(1).box == std::vector<std::uint32_t>{64, 16, 1, 1, 1});
  CHECK(mxfp8.tensor_maps.at(1).box == std::vector<std::uint32_t>{128, 16, 1, 1, 1});
  const auto shape_of = [](const LaunchPlan& launch, std::string_view name) {
    std::string text;
    for (const BufferSpec& buffer : launch.buffers)
      for (const Expression& extent : buffer.shape)
        if (buffer.name == name) text += extent.text() + " ";
    return text;
  };
  CHECK(shape_of(nvfp4, "k") == "pages 16 heads_kv 64 ");
  CHECK(shape_of(nvfp4, "k_scale") == "pages heads_kv 16 8 ");
  CHECK(shape_of(mxfp8, "v") == "pages 16 heads_kv 128 ");
  CHECK(shape_of(mxfp8, "v_scale") == "pages heads_kv 16 4 ");
  const auto rule = [&](std::string_view message) {
    return std::any_of(nvfp4.domain.begin(), nvfp4.domain.end(),
                       [&](const DomainRule& of) { return of.message == message; });
  };
  CHECK(rule("k_scale_stride_page must be a multiple of 16 (bulk copy)"));
  CHECK(rule("k_stride_seqlen must be a multiple of 16 (16 bytes)"));
}

TEST_CASE("keys in e4m3: what is refused, and why; what a launch takes") {
  CHECK(refusal({{"kv_dtype", "f16"}}) == "fmha has no kernel for kv_dtype f16 beside dtype bf16: take bf16 or e4m3");
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_103a"}) {
    const auto of_arch = [&](Fields more) {
      more.insert(more.begin(), {{"arch", arch}, {"kv_dtype", "e4m3"}});
      return refusal(more);
    };
    for (const char* const head_dim : {"72", "512"})
      CHECK(of_arch({{"head_dim", head_dim}}) ==
            std::string("fmha has no kernel for kv_dtype e4m3 with head_dim ") + head_dim);
    for (const char* const head_dim : {"16", "80", "160"}) CHECK(of_arch({{"head_dim", head_dim}}) == "accepted");
    CHECK(of_arch({{"softcap", "tanh"}, {"alibi", "per_head"}}) == "accepted");
    CHECK(of_arch({}) == "accepted");
    CHECK(of_arch({{"kv_pools", "sparse_window"}}) == "fmha has no kernel for kv_dtype e4m3 with kv_pools");
  }
  CHECK(refusal({{"kv_dtype", "bf16"}}) == "accepted");
  const LaunchPlan plain = make_plan(problem_of("fmha", {{"kv_dtype", "bf16"}})).launch;
  CHECK_FALSE(has_buffer(plain, "k_descale"));
  const LaunchPlan launch = make_plan(problem_of("fmha", {{"kv_dtype", "e4m3"}})).launch;
  for (const char* const name : {"k_descale", "v_descale"}) CHECK(has_buffer(launch, name));
  // Dense maps of 8 bits without a swizzle; o has none.
  REQUIRE(launch.tensor_maps.size() == 3);
  CHECK(launch.tensor_maps[1].box == std::vector<std::uint32_t>{128, 80, 1, 1, 1});
  // Decode: one consumer warpgroup and two CTAs on an SM.
  const fmha::Config decode = config_of({{"kv_dtype", "e4m3"},
                                         {"split_kv", "on"},
                                         {"pack_gqa", "4"},
                                         {"tile_m", "64"},
                                         {"tile_n", "64"},
                                         {"stages", "1"}});
  CHECK(fmha::ctas_per_sm(decode) == 2);
  CHECK(fmha::raw_stages(decode) == 3);
  CHECK(fmha::register_budget(decode).consumer == 144);
}

TEST_CASE("two pools of keys: a tile is one query, the list and the window count, and what is refused") {
  const auto with = [](Fields more) {
    more.insert(more.begin(), {"kv_pools", "sparse_window"});
    return more;
  };
  const auto config = [&](const Fields& more) { return config_of(with(more)); };
  CHECK(config({}).pack_gqa == 128);
  CHECK(config({}).tile_m == 128);
  CHECK(config({}).kv_copy == KvCopy::cp_async);
  CHECK(config({{"heads_q", "64"}}).tile_m == 64);
  CHECK(config({{"heads_q", "65"}}).tile_m == 128);
  // The list and the window count, not the rows there are.
  CHECK(config({{"seqlen_k", "50"}}).tile_n == 128);
  CHECK(config({{"seqlen_k", "5000"}, {"topk", "40"}, {"seqlen_swa", "24"}}).tile_n == 64);
  const Plan plan = make_plan(problem_of("fmha", with({{"head_dim", "512"}, {"heads_q", "96"}})));
  CHECK(plan.reason.find("75.0 % of its tiles is work") != std::string::npos);
  // Threads load all keys, with 16 bytes each.
  for (const TensorMapRecipe& map : plan.launch.tensor_maps) CHECK((map.name == "q" || map.name == "o"));
  CHECK(std::any_of(plan.launch.domain.begin(), plan.launch.domain.end(), [](const DomainRule& rule) {
    return rule.message == "swa_v_stride_batch must be a multiple of 8 (16 bytes)";
  }));
  const auto refused = [&](const Fields& more) { return refusal(with(more)); };
  CHECK(refused({{"kv_copy", "tma"}}).find("kv_copy tma, rows of two pools of keys come by threads: take cp_async") !=
        std::string::npos);
  CHECK(refused({{"q_layout", "ragged"}}) ==
        "q_layout ragged with kv_pools sparse_window: each query has a list of its own; take dense");
  CHECK(refused({{"kv_layout", "ragged"}})
            .find("kv_layout paged or ragged with v_layout k or two pools of keys: take none of these") !=
        std::string::npos);
  CHECK(refused({{"tree_mask", "bits"}}) ==
        "tree_mask bits with kv_pools sparse_window: there is no kernel for it: take "
        "dense");
  CHECK(refused({{"split_size", "2048"}}) ==
        "split_size 2048 with kv_pools sparse_window: a query's list is not split: take 0");
}

}  // namespace fmha_places_test

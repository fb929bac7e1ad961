// Attention over keys that are values too: which kernel a problem gets, what is refused, and what a launch takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "generator/attention/fmha_latent_operator.h"
#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/candidates.h"
#include "generator/operator_words.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"
#include "tests/support/changed_facts.h"

using namespace tessera;
namespace fmha_latent_test {

namespace {

Problem latent(const Fields& more = {}) {
  Fields fields{{"head_dim", "576"}, {"head_dim_v", "512"}, {"v_is_k", "on"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return problem_of("fmha", fields);
}

std::string refusal(const Fields& fields) {
  try {
    make_plan(latent(fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "accepted";
}

/// On 132 multiprocessors, with 128 heads.
std::int64_t value_of(const Expression& expression, std::int64_t batch, std::int64_t queries, std::int64_t keys) {
  const std::map<std::string, std::int64_t> sizes{
      {"batch", batch}, {"heads_q", 128}, {"seqlen_q", queries}, {"seqlen_k", keys}, {"num_sms", 132}};
  std::vector<std::int64_t> values;
  for (const std::string& name : expression.names()) values.push_back(sizes.at(name));
  return expression.evaluate(values);
}

}  // namespace

TEST_CASE("latent attention: the family of problems with v_is_k, and of no other") {
  CHECK(make_plan(latent()).family == "wgmma_latent");
  CHECK(make_plan(problem_of("fmha")).family == "wgmma");
  for (const char* const arch : {"sm_100a", "sm_103a"}) CHECK(make_plan(latent({{"arch", arch}})).family == "tcgen05");
}

TEST_CASE("latent attention: what is refused, and why") {
  const std::string subject = "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed: ";
  CHECK(refusal({{"head_dim", "512"}}) ==
        "head_dim 512 with v_is_k, tile 64x64, 128 heads packed: head_dim 512, 576 needed (keys that are values too "
        "have 576 columns)");
  CHECK(refusal({{"head_dim_v", "576"}}) ==
        "head_dim 576 with v_is_k, tile 64x64, 128 heads packed: head_dim_v 576, 512 needed (values are the first 512 "
        "columns of a key)");
  CHECK(refusal({{"tile_m", "128"}}) ==
        "head_dim 576/512 with v_is_k, tile 128x64, 128 heads packed: tile_m 128, 64 needed (O of more rows finds no "
        "registers)");
  CHECK(
      refusal({{"tile_n", "32"}}) ==
      "head_dim 576/512 with v_is_k, tile 64x32, 128 heads packed: tile_n 32, 64 needed (P takes the place of a panel "
      "of its block)");
  CHECK(refusal({{"stages", "3"}}) == subject + "stages 3, 2 needed (one for each block of a pair)");
  CHECK(refusal({{"swizzle", "64B"}}) == subject + "a swizzle span of 64 bytes, 128 needed: take 128B");
  CHECK(refusal({{"pack_gqa", "48"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 48 heads packed: pack_gqa 48, a divisor or a multiple of 64 needed "
        "(rows of a tile): pad the heads");
  CHECK(refusal({{"window", "sliding"}}) == subject + "window sliding: there is no kernel for it with v_is_k");
  CHECK(refusal({{"output", "unnormalized"}}) ==
        subject + "output unnormalized: there is no kernel for it with v_is_k");
  CHECK(refusal({{"q_layout", "ragged"}}) == subject + "q_layout ragged: there is no kernel for it with v_is_k");
  CHECK(refusal({{"seqused", "qk"}}) == subject + "seqused qk: there is no kernel for it with v_is_k, take k");
  CHECK(refusal({{"kv_layout", "ragged"}}) ==
        subject + "kv_layout ragged: there is no kernel for it with v_is_k, take dense or paged");
  CHECK(refusal({{"page_size", "64"}}) == subject + "page_size 64 without pages: take kv_layout paged");
  const std::string paged = "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, pages of ";
  CHECK(refusal({{"kv_layout", "paged"}, {"page_size", "1"}}) ==
        paged + "1: page_size 1, at least 8 needed for TMA (rows of a swizzle's pattern)");
  CHECK(refusal({{"kv_layout", "paged"}, {"page_size", "24"}}) ==
        paged + "24: page_size 24: there are kernels for 1, 8, 16, 32, 64, 128 and 256");
  CHECK(refusal({{"split_kv", "on"}}) == subject + "split_kv on: ranges follow lengths with v_is_k, take dealt");
  CHECK(refusal({{"v_layout", "k"}}) == "fmha has no kernel for v_layout k with v_is_k");
  CHECK(refusal({{"kv_copy", "cp_async"}}) == "fmha has no kernel for kv_copy cp_async with v_is_k");
  CHECK(refusal({{"dtype", "e4m3"}}) == "fmha has no kernel for dtype e4m3 with v_is_k");
  CHECK(refusal({{"kv_dtype", "e5m2"}}) == "fmha has no kernel for kv_dtype e5m2 beside dtype bf16: take bf16 or e4m3");
  fmha_latent::Config c;
  c.facts.kv_dtype = DType::e5m2;
  CHECK(FmhaLatentOperator::explain(c, fmha_latent::why_invalid(c)) == "kv_dtype e5m2: take bf16 or e4m3");
}

TEST_CASE("latent attention: a fact is read or refused by a rule") {
  int read = 0, refused = 0;
  for_each_changed_fact(fmha_latent::Config{}.facts, [&](std::string_view fact, const AttentionFacts& facts) {
    CAPTURE(fact);
    const fmha_latent::Config config{.facts = facts};
    const auto verdict = fmha_latent::why_invalid(config);
    CHECK((verdict.ok() || verdict.rule == fmha_latent::Rule::fact_not_read) ==
          (fact == "mask" || fact == "seqused" || fact == "kv_pools" || fact == "sink" || fact == "softcap" ||
           fact == "alibi" || fact == "tree_mask" || fact == "v_layout" || fact == "split_size" ||
           fact == "kv_format" || fact == "o_dtype"));
    if (verdict.rule == fmha_latent::Rule::fact_not_read)
      CHECK(FmhaLatentOperator::explain(config, verdict).find(fact) == 0);
    ++(verdict.ok() ? read : refused);
  });
  // As the facts stand: another one is refused until read_facts() has it.
  CHECK(read == 4);
  CHECK(refused == 18);
}

TEST_CASE("latent attention: e4m3 keys are bytes in maps, and have one descale") {
  const Plan plan = make_plan(latent({{"kv_dtype", "e4m3"}}));
  CHECK(plan.kernel == "tessera_fmha_latent_sm90a_d576v512_64x64_s3_sw128_full_bf16_kve4m3_v_is_k_on_pack128");
  const auto buffer = [&](std::string_view name) {
    return std::find_if(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                        [&](const BufferSpec& b) { return b.name == name; });
  };
  REQUIRE(buffer("k") != plan.launch.buffers.end());
  CHECK(buffer("k")->dtype == "e4m3");
  REQUIRE(buffer("k_descale") != plan.launch.buffers.end());
  CHECK(buffer("k_descale")->is_optional);
  CHECK(buffer("v_descale") == plan.launch.buffers.end());
  CHECK(std::none_of(plan.launch.sizes.begin(), plan.launch.sizes.end(),
                     [](const SizeSpec& size) { return size.name.starts_with("v_"); }));
  REQUIRE(plan.launch.tensor_maps.size() == 2);
  CHECK(plan.launch.tensor_maps[1].swizzle == tensor_map_swizzle(Swizzle::b64));
  CHECK(plan.launch.tensor_maps[1].box == std::vector<std::uint32_t>{64, 64, 1, 1, 1});
  // Three slots of bytes, and P beside them.
  const auto region = [](const Plan& of, std::string_view name) {
    const auto found =
        std::find_if(of.smem.begin(), of.smem.end(), [&](const SmemRegion& r) { return r.name == name; });
    return found == of.smem.end() ? 0 : found->bytes;
  };
  CHECK(region(plan, "k") == 3 * 64 * 576);
  CHECK(region(plan, "p") == 4 * 64 * 64 * 2);
  CHECK(region(make_plan(latent()), "p") == 0);
  CHECK(plan.field("stages") == "3");
  CHECK(refusal({{"kv_dtype", "e4m3"}, {"stages", "2"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, keys in e4m3: stages 2, 3 needed (as many as "
        "there is room for)");
  REQUIRE(plan.roles.size() == 5);
  CHECK(plan.roles[2].name == "load_k_second");
  // The fewest rows that hold those of a sequence, where its queries are known.
  const auto tile_of = [&](const char* heads, const char* queries) {
    Fields fields{{"kv_dtype", "e4m3"}, {"heads_q", heads}};
    if (*queries != '\0') fields.emplace_back("seqlen_q", queries);
    const Plan of = make_plan(latent(fields));
    return of.field("tile_m") + " " + of.field("stages");
  };
  CHECK(tile_of("16", "1") == "16 5");
  CHECK(tile_of("16", "2") == "32 4");
  CHECK(tile_of("8", "2") == "16 5");
  CHECK(tile_of("16", "3") == "64 3");
  CHECK(tile_of("64", "1") == "64 3");
  CHECK(tile_of("16", "") == "64 3");
  CHECK(
      refusal({{"kv_dtype", "e4m3"}, {"tile_m", "48"}}) ==
      "head_dim 576/512 with v_is_k, tile 48x64, 128 heads packed, keys in e4m3: tile_m 48, 16, 32 or 64 needed (rows "
      "of a sequence)");
  CHECK(refusal({{"tile_m", "16"}}) ==
        "head_dim 576/512 with v_is_k, tile 16x64, 128 heads packed: tile_m 16, 64 needed (O of more rows finds no "
        "registers)");
  const LaunchPlan plain = make_plan(latent()).launch;
  CHECK(std::none_of(plain.buffers.begin(), plain.buffers.end(),
                     [](const BufferSpec& b) { return b.name.ends_with("_descale"); }));
}

TEST_CASE("latent attention: listed keys, of any number of heads, and what does not go with them") {
  const auto refused = [](Fields more) {
    more.insert(more.begin(), {"kv_pools", "sparse_window"});
    return refusal(more);
  };
  const std::string subject = "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, two pools of keys: ";
  CHECK(refused({}) == "accepted");
  CHECK(refused({{"head_dim", "512"}}) == "accepted");
  CHECK(refused({{"pack_gqa", "100"}, {"sink", "per_head"}, {"kv_copy", "cp_async"}}) == "accepted");
  CHECK(refused({{"head_dim", "256"}}) ==
        "head_dim 256/512 with v_is_k, tile 64x64, 128 heads packed, two pools of keys: head_dim 256, 512 or 576 "
        "needed (listed keys that are values too)");
  CHECK(refused({{"kv_copy", "tma"}}) == "fmha has no kernel for kv_copy tma with v_is_k");
  const std::string places =
      "kv_layout paged or used lengths with two pools of keys: a list says where keys are, take neither";
  CHECK(refused({{"seqused", "k"}}) == subject + places);
  CHECK(refused({{"kv_layout", "paged"}, {"page_size", "64"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, pages of 64, two pools of keys: " + places);
  CHECK(refused({{"kv_dtype", "e4m3"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, keys in e4m3, two pools of keys: kv_dtype e4m3 "
        "with two pools of keys: take bf16, or a kv_cache");
  CHECK(refused({{"page_size", "64"}}) == subject + "page_size 64 without pages: take kv_layout paged");
  CHECK(refusal({{"kv_cache", "mla_656"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed in mla_656, pages of 64: kv_cache mla_656 without "
        "a list of rows: take kv_pools sparse_window");
  CHECK(refused({{"kv_cache", "mla_584"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, two pools of keys in mla_584, pages of 64: "
        "head_dim 576, 512 needed (columns of a token of kv_cache mla_584)");
  CHECK(refused({{"kv_cache", "mla_656"}, {"dtype", "f16"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, two pools of keys in mla_656, pages of 64: "
        "kv_cache mla_656 beside dtype f16: its rotations are bf16, take bf16");
  CHECK(refused({{"kv_cache", "mla_656"}, {"page_size", "24"}}) ==
        "head_dim 576/512 with v_is_k, tile 64x64, 128 heads packed, two pools of keys in mla_656, pages of 24: "
        "page_size 24: there are kernels for 1, 8, 16, 32, 64, 128 and 256");
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"}) {
    try {
      make_plan(problem_of("fmha", {{"arch", arch}, {"kv_cache", "mla_584"}}));
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(std::string(error.what()) ==
            "kv_cache mla_584 without v_is_k and kv_pools sparse_window: there is no kernel for it: take rows");
    }
  }
}

TEST_CASE("latent attention: lists of few queries are split, by the words of their target") {
  const auto planned = [](const char* arch, const char* batch, const char* topk) {
    return make_plan(
        latent({{"arch", arch}, {"kv_pools", "sparse_window"}, {"batch", batch}, {"seqlen_q", "2"}, {"topk", topk}}));
  };
  for (const auto& [arch, word] :
       {std::pair("sm_90a", "dealt"), std::pair("sm_100a", "on"), std::pair("sm_103f", "on")}) {
    CHECK(planned(arch, "4", "2048").field("split_kv") == word);
    CHECK(planned(arch, "4", "512").field("split_kv") == "off");
    CHECK(planned(arch, "128", "2048").field("split_kv") == "off");
  }
  const Plan plan = planned("sm_100a", "1", "2048");
  REQUIRE(plan.launch.steps.size() == 2);
  const auto parts = std::find_if(plan.launch.sizes.begin(), plan.launch.sizes.end(),
                                  [](const SizeSpec& size) { return size.name == "num_splits"; });
  REQUIRE(parts != plan.launch.sizes.end());
  const auto of = [&](std::int64_t batch, std::int64_t topk, std::int64_t window) {
    const std::map<std::string, std::int64_t> sizes{{"batch", batch}, {"seqlen_q", 2},        {"heads_kv", 1},
                                                    {"topk", topk},   {"seqlen_swa", window}, {"num_sms", 148}};
    std::vector<std::int64_t> values;
    for (const std::string& name : parts->default_value->names()) values.push_back(sizes.at(name));
    return parts->default_value->evaluate(values);
  };
  CHECK(of(1, 2048, 0) == 16);  // two blocks of 64 keys each
  CHECK(of(1, 512, 128) == 5);
  CHECK(of(8, 2048, 0) == 4);  // 32 tiles of 64 heads
  CHECK(of(128, 2048, 0) == 1);
}

TEST_CASE("latent attention: the launch of listed keys") {
  const LaunchPlan launch = make_plan(latent({{"kv_pools", "sparse_window"}, {"split_kv", "dealt"}})).launch;
  REQUIRE(launch.tensor_maps.size() == 1);
  CHECK(launch.tensor_maps[0].box == std::vector<std::uint32_t>{64, 64, 1, 1, 1});
  const auto has = [](const LaunchPlan& of, std::string_view name) {
    return std::any_of(of.buffers.begin(), of.buffers.end(), [&](const BufferSpec& b) { return b.name == name; });
  };
  for (const char* const name : {"k", "swa_k", "indices", "topk_lens", "swa_lens", "swa_indices", "sink"})
    CHECK(has(launch, name));
  // What may be null: lists have topk places, and there is a window.
  for (const BufferSpec& buffer : launch.buffers)
    CHECK(buffer.is_optional == (buffer.name == "lse" || buffer.name == "sink" || buffer.name == "topk_lens" ||
                                 buffer.name == "swa_indices"));
  const auto rows = std::find_if(launch.sizes.begin(), launch.sizes.end(),
                                 [](const SizeSpec& size) { return size.name == "swa_rows"; });
  REQUIRE(rows != launch.sizes.end());
  CHECK(rows->default_value->text() == "seqlen_swa");
  for (const char* const name : {"v", "swa_v"}) CHECK(!has(launch, name));
  const auto value = [](const Expression& expression, std::int64_t batch, std::int64_t queries, std::int64_t topk) {
    const std::map<std::string, std::int64_t> sizes{{"batch", batch},  {"seqlen_q", queries}, {"topk", topk},
                                                    {"seqlen_swa", 0}, {"num_sms", 132},      {"seqlen_k", 1000}};
    std::vector<std::int64_t> values;
    for (const std::string& name : expression.names()) values.push_back(sizes.at(name));
    return expression.evaluate(values);
  };
  CHECK(value(launch.steps.at(0).grid[0], 128, 2, 2048) == 132);  // 66 ranges of 2 tiles
  CHECK(value(launch.steps.at(0).grid[0], 1, 2, 512) == 16);      // 8 pairs of blocks
  CHECK(value(launch.steps.at(0).grid[0], 0, 2, 512) == 0);
  CHECK(value(launch.workspace.bytes, 128, 2, 2048) == 2 * 132 * 64 * 514 * 4);

  // A page is whole 576 bytes in mla_584, as its writers have it.
  const LaunchPlan cached =
      make_plan(latent({{"head_dim", "512"}, {"kv_pools", "sparse_window"}, {"kv_cache", "mla_584"}})).launch;
  const auto k =
      std::find_if(cached.buffers.begin(), cached.buffers.end(), [](const BufferSpec& b) { return b.name == "k"; });
  REQUIRE(k != cached.buffers.end());
  CHECK(k->dtype == "u8");
  REQUIRE(k->shape.size() == 2);
  CHECK(value(k->shape[0], 1, 1, 1) == 16);  // 1,000 tokens in pages of 64
  CHECK(k->shape[1].text() == "37440");      // 65 * 576 >= 64 * 584
}

TEST_CASE("latent attention: heads and the split follow from hints") {
  const auto config_of = [](const Fields& fields) {
    return chosen_config<FmhaLatentOperator>(latent(fields).as<Fmha>());
  };
  CHECK(config_of({}).pack_gqa == 128);
  CHECK(config_of({{"heads_q", "16"}}).pack_gqa == 16);
  CHECK(config_of({}).split_kv == SplitKv::off);
  CHECK(config_of({{"seqlen_k", "1024"}}).split_kv == SplitKv::dealt);
  CHECK(config_of({{"seqlen_k", "1024"}, {"split_kv", "off"}}).split_kv == SplitKv::off);
}

TEST_CASE("latent attention: no v, tiles of a sequence side by side") {
  const LaunchPlan launch = make_plan(latent({{"split_kv", "dealt"}})).launch;
  CHECK(launch.tensor_maps.size() == 2);
  CHECK(std::none_of(launch.buffers.begin(), launch.buffers.end(), [](const BufferSpec& b) { return b.name == "v"; }));
  const auto grid = [&](std::int64_t batch, std::int64_t queries, std::int64_t keys) {
    return value_of(launch.steps.at(0).grid[0], batch, queries, keys);
  };
  CHECK(grid(128, 1, 4096) == 132);     // 66 ranges of 2 tiles
  CHECK(grid(128, 4, 4096) == 128);     // 16 ranges of 8 tiles
  CHECK(grid(1, 1, 1000) == 16);        // 8 pairs of blocks
  CHECK(grid(1, 100, 1 << 20) == 200);  // more tiles than multiprocessors
  CHECK(grid(0, 1, 4096) == 0);
  CHECK(grid(3, 0, 4096) == 0);
  CHECK(value_of(launch.steps.at(1).grid[0], 128, 1, 4096) == 65 * 2 * 4);
  // Parts of two slots a CTA, and behind them what each says of its tail.
  constexpr std::int64_t kParts = 2 * 132 * 64 * 514 * 4;
  CHECK(value_of(launch.workspace.bytes, 128, 1, 4096) == kParts + 132 * 8);
  const auto& parameters = launch.steps.at(0).parameters;
  const auto tails = std::find_if(parameters.begin(), parameters.end(),
                                  [](const KernelParameter& parameter) { return parameter.name == "tails"; });
  REQUIRE(tails != parameters.end());
  CHECK(value_of(tails->offset_bytes, 128, 1, 4096) == kParts);
  const LaunchPlan paged = make_plan(latent({{"kv_layout", "paged"}, {"page_size", "64"}})).launch;
  CHECK(std::none_of(paged.sizes.begin(), paged.sizes.end(),
                     [](const SizeSpec& size) { return size.name.starts_with("v_"); }));
  CHECK(std::none_of(paged.domain.begin(), paged.domain.end(),
                     [](const DomainRule& rule) { return rule.message.starts_with("v_"); }));
  const LaunchPlan whole = make_plan(latent()).launch;
  CHECK(value_of(whole.steps.at(0).grid[0], 5, 1, 4096) == 10);
  CHECK(whole.steps.size() == 1);
}

TEST_CASE("latent attention on tcgen05: one buffer of keys for both products, and what is refused") {
  const auto with = [](Fields more) {
    more.insert(more.begin(), {"arch", "sm_100a"});
    return more;
  };
  for (const char* const heads : {"16", "48", "64", "128"}) {
    const Plan plan = make_plan(latent(with({{"pack_gqa", heads}})));
    const auto c = chosen_config<FmhaTcgen05Operator>(plan.problem.as<Fmha>());
    CHECK(fmha_tcgen05::used_columns(c) == 2 * 32 + 256);
    CHECK(fmha_tcgen05::smem_layout(c).v.bytes == 0);
    CHECK(plan.launch.tensor_maps.size() == 3);  // q, k and o
    CHECK(std::none_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                       [](const BufferSpec& b) { return b.name == "v"; }));
    // Each of a product's rows has two lanes, one for each half of its columns.
    std::vector<int> lanes(static_cast<std::size_t>(2 * 64), 0);
    for (int lane = 0; lane < 128; ++lane)
      ++lanes[static_cast<std::size_t>(64 * fmha_tcgen05::part_of_lane(c, lane) + fmha_tcgen05::row_of_lane(c, lane))];
    CHECK(lanes == std::vector<int>(128, 1));
  }
  const auto config_of = [&](const Fields& fields) {
    return chosen_config<FmhaTcgen05Operator>(latent(with(fields)).as<Fmha>());
  };
  CHECK(config_of({}).pack_gqa == 128);
  CHECK(config_of({{"heads_q", "16"}}).pack_gqa == 16);
  CHECK(config_of({{"seqlen_q", "1"}, {"seqlen_k", "4096"}, {"batch", "8"}}).split_kv == SplitKv::on);
  const auto refused = [&](const Fields& fields) { return refusal(with(fields)); };
  const std::string subject = "head_dim 576/512, tile 64x64, 2 stages, 128 heads packed, keys that are values too: ";
  CHECK(refused({{"head_dim", "512"}}) ==
        "head_dim 512, tile 64x64, 2 stages, 128 heads packed, keys that are values too: head_dim 512 with v_is_k, 576 "
        "needed (keys that are values too have 576 columns)");
  CHECK(refused({{"head_dim_v", "256"}})
            .find("head_dim_v 256 with v_is_k, 512 needed (values are the first 512 columns of "
                  "a key)") != std::string::npos);
  CHECK(refused({{"tile_m", "128"}}) ==
        "head_dim 576/512, tile 128x64, 2 stages, 128 heads packed, keys that are values too: 576 columns of Tensor "
        "Memory, 512 allowed: take a smaller tile");
  CHECK(refused({{"stages", "1"}}) ==
        "head_dim 576/512, tile 64x64, 1 stage, 128 heads packed, keys that are values too: 1 stage with v_is_k, at "
        "least 2 needed (a block is kept until both products have read it)");
  CHECK(refused({{"stages", "3"}}) ==
        "head_dim 576/512, tile 64x64, 3 stages, 128 heads packed, keys that are values "
        "too: 304,856 bytes of shared memory, 232,448 allowed: drop a stage");
  CHECK(refused({{"cta_group", "2"}})
            .find("v_is_k in a tile of 2 CTAs, 1 allowed (one product wants half of the keys "
                  "there, the other half of the columns): take cta_group 1") != std::string::npos);
  CHECK(refused({{"p_path", "tmem"}}) ==
        subject + "P in Tensor Memory with 64 rows a CTA, 128 needed: take P in shared memory");
  for (const auto& [field, word] :
       {std::pair("output", "unnormalized"), std::pair("v_layout", "k"), std::pair("kv_layout", "ragged")})
    CHECK(refused({{field, word}}) ==
          subject +
              "v_is_k with output unnormalized, v_layout k, kv_layout ragged or kv_copy cp_async: take none of these");
  CHECK(refused({{"kv_layout", "paged"}, {"page_size", "1"}}).find("page_size 1, at least 8 needed for TMA") !=
        std::string::npos);
  CHECK(refused({{"dtype", "e4m3"}}) == "fmha has no kernel for dtype e4m3 with v_is_k");
  const Plan widened = make_plan(latent(with({{"kv_dtype", "e4m3"}})));
  const auto of_e4m3 = chosen_config<FmhaTcgen05Operator>(widened.problem.as<Fmha>());
  CHECK(fmha_tcgen05::p_dtype(of_e4m3) == DType::bf16);
  // The bytes of a block end where its slot ends: panel j is written where bytes of panels up to 2 j - 8 were.
  const fmha_tcgen05::LoadRing ring = fmha_tcgen05::load_ring(of_e4m3, false);
  const fmha_tcgen05::SmemLayout smem = fmha_tcgen05::smem_layout(of_e4m3);
  CHECK(ring.slot_bytes == fmha_tcgen05::k_slot_bytes(of_e4m3));
  CHECK(2 * ring.bytes == ring.slot_bytes);
  CHECK(ring.offset + ring.bytes == smem.k.offset + ring.slot_bytes);
  CHECK(smem.raw_k.bytes + smem.raw_v.bytes == 0);
  CHECK(std::none_of(widened.launch.buffers.begin(), widened.launch.buffers.end(),
                     [](const BufferSpec& b) { return b.name == "v_descale"; }));
}

TEST_CASE("latent attention on tcgen05: listed keys, gathered by a warpgroup of its own") {
  const auto listed = [](const Fields& fields) {
    Fields all{{"arch", "sm_100a"}, {"kv_pools", "sparse_window"}};
    all.insert(all.end(), fields.begin(), fields.end());
    return latent(all);
  };
  const auto refused = [&](const Fields& fields) -> std::string {
    try {
      make_plan(listed(fields));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const Plan plan = make_plan(listed({{"head_dim", "512"}, {"kv_cache", "mla_584"}}));
  CHECK(plan.roles.back().name == "gather");
  CHECK(plan.launch.tensor_maps.size() == 2);  // q and o
  CHECK(plan.launch.steps.at(0).block[0] == 512);
  for (const char* const name : {"k", "swa_k"})
    CHECK(std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                      [&](const BufferSpec& b) { return b.name == name && b.dtype == "u8"; }));
  CHECK(std::none_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                     [](const BufferSpec& b) { return b.name == "v" || b.name == "swa_v"; }));
  const auto config = chosen_config<FmhaTcgen05Operator>(plan.problem.as<Fmha>());
  const fmha_tcgen05::RegisterBudget budget = fmha_tcgen05::register_budget(config);
  CHECK(budget.control + budget.correction + budget.softmax + budget.widening == 512);
  // The same slots as Hopper's, whose parts write them.
  CHECK(fmha_tcgen05::k_slot_bytes(config) == 8 * fmha_latent::kPanelBytes);
  const std::string subject =
      "head_dim 576/512, tile 64x64, 2 stages, 128 heads packed, two pools of keys, keys that are values too";
  CHECK(refused({{"head_dim", "512"}, {"kv_cache", "mla_656"}})
            .find("head_dim 512, 576 needed (columns of a token of kv_cache mla_656)") != std::string::npos);
  CHECK(refused({{"kv_cache", "mla_656"}, {"dtype", "f16"}})
            .find("kv_cache mla_656 beside dtype f16: its rotations are bf16, take bf16") != std::string::npos);
  CHECK(refused({{"kv_cache", "mla_656"}, {"page_size", "24"}}).find("page_size 24") != std::string::npos);
  CHECK(refused({{"kv_copy", "tma"}}) ==
        subject + ": kv_copy tma with listed keys that are values too: threads gather them, take cp_async");
  CHECK(refused({{"swizzle", "64B"}}) ==
        subject + ": a swizzle span of 64 bytes, 128 needed for listed keys that are values too: take 128B");
  CHECK(refused({{"tile_n", "128"}}).find("tile_n 128, 64 needed (listed keys that are values too, 16 of each warp)") !=
        std::string::npos);
  CHECK(refused({{"head_dim", "320"}}).find("head_dim 320, 512 or 576 needed") != std::string::npos);
  CHECK(refused({{"split_kv", "on"}}) == "accepted");
  CHECK(refused({{"split_kv", "dealt"}}) != "accepted");
  CHECK(refused({{"kv_dtype", "e4m3"}}) == "fmha has no kernel for kv_dtype e4m3 with kv_pools");
}

}  // namespace fmha_latent_test

// Attention over e4m3 q, k and v: what is refused, and why; what a Config and a launch have besides.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

namespace tessera::fmha_8_bit_test {
namespace {

Problem of_e4m3(Fields fields) {
  fields.emplace_back("dtype", "e4m3");
  return problem_of("fmha", fields);
}

std::string refusal(const Fields& fields) {
  try {
    make_plan(of_e4m3(fields));
    return "accepted";
  } catch (const Error& error) {
    return std::string(error.what());
  }
}

fmha::Config config_of(const Fields& fields) { return chosen_config<FmhaOperator>(of_e4m3(fields).as<Fmha>()); }

TEST_CASE("e4m3 attention: what is refused, and why") {
  for (const char* const head_dim : {"16", "32", "72", "96", "160", "512"})
    CHECK(refusal({{"head_dim", head_dim}}) ==
          std::string("fmha has no kernel for dtype e4m3 with head_dim ") + head_dim);
  for (const auto& [field, word] :
       {std::pair("softcap", "tanh"), std::pair("alibi", "per_head"), std::pair("tree_mask", "bits")})
    CHECK(refusal({{field, word}}) == "accepted");
  CHECK(refusal({{"kv_pools", "sparse_window"}}) == "fmha has no kernel for dtype e4m3 with kv_pools");
  for (const char* const arch : {"sm_100a", "sm_103a"}) CHECK(refusal({{"arch", arch}}) == "accepted");
  CHECK(refusal({{"o_dtype", "f32"}}) == "fmha has no kernel for o_dtype f32 beside dtype e4m3: take bf16 or f16");
  CHECK(refusal({{"kv_dtype", "bf16"}}) == "fmha has no kernel for kv_dtype bf16 beside dtype e4m3: take e4m3");
  CHECK(refusal({{"kv_dtype", "e4m3"}}) == "accepted");
  CHECK(refusal({{"v_layout", "k"}, {"tile_m", "128"}, {"tile_n", "128"}})
            .find("v_layout k with kv_layout paged or ragged, or with keys in e4m3: take v_layout mn") !=
        std::string::npos);
  CHECK(refusal({{"tile_m", "128"}, {"tile_n", "112"}}).find("tile_n 112, a multiple of 32 needed (wgmma K of P V)") !=
        std::string::npos);
  CHECK(refusal({{"tile_m", "128"}, {"tile_n", "128"}, {"promote_every", "192"}})
            .find("promote_every 192, a multiple of 128 needed (tile_n)") != std::string::npos);
  try {
    make_plan(problem_of("fmha", {{"tile_m", "128"}, {"tile_n", "128"}, {"promote_every", "1024"}}));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("promote_every 1,024 with dtype bf16, whose sums are fp32: take 0") !=
          std::string::npos);
  }
  try {
    make_plan(problem_of("fmha", {{"o_dtype", "f16"}}));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "fmha has no kernel for o_dtype f16 beside dtype bf16: take bf16");
  }
}

TEST_CASE("e4m3 attention: o has 16 bits, factors of q, k and v, maps of 8 bits") {
  for (const std::string o_dtype : {"bf16", "f16"}) {
    const LaunchPlan launch = make_plan(of_e4m3({{"o_dtype", o_dtype}})).launch;
    const auto buffer = [&](std::string_view name) {
      return *std::find_if(launch.buffers.begin(), launch.buffers.end(),
                           [&](const BufferSpec& of) { return of.name == name; });
    };
    CHECK(buffer("o").dtype == o_dtype);
    for (const char* const name : {"q", "k", "v"}) CHECK(buffer(name).dtype == "e4m3");
    for (const char* const name : {"q_descale", "k_descale", "v_descale"}) {
      CHECK(buffer(name).dtype == "f32");
      CHECK(buffer(name).is_optional);
    }
    REQUIRE(launch.tensor_maps.size() == 3);
    for (const TensorMapRecipe& map : launch.tensor_maps) CHECK(map.type == TensorMapType::u8);
    CHECK(launch.tensor_maps[2].box == std::vector<std::uint32_t>{128, 96, 1, 1, 1});
  }
  CHECK(make_plan(of_e4m3({})).kernel == "tessera_fmha_sm90a_d128_192x96_s2_sw128_full_e4m3");
  CHECK(make_plan(of_e4m3({{"o_dtype", "f16"}, {"promote_every", "0"}})).kernel ==
        "tessera_fmha_sm90a_d128_192x96_s2_sw128_full_e4m3_to_f16_promote0");
}

TEST_CASE("e4m3 attention: the default of every head_dim, promoted after 1,920 keys at most") {
  for (const auto& [head_dim, head_dim_v] : {std::pair("64", "64"), std::pair("128", "128"), std::pair("192", "128"),
                                             std::pair("192", "192"), std::pair("256", "256")}) {
    const fmha::Config c = config_of({{"head_dim", head_dim}, {"head_dim_v", head_dim_v}});
    CHECK(c.promote_every > 1920 - c.tile_n);
    CHECK(c.promote_every <= 1920);
    CHECK(c.promote_every % c.tile_n == 0);
    const fmha::Config paged =
        config_of({{"head_dim", head_dim}, {"head_dim_v", head_dim_v}, {"kv_layout", "paged"}, {"page_size", "16"}});
    CHECK(paged.tile_m <= 128);
  }
  const fmha::Config whole = config_of({{"head_dim", "256"}}),
                     bare = config_of({{"head_dim", "256"}, {"promote_every", "0"}});
  CHECK(std::array{whole.tile_m, whole.tile_n, whole.stages} == std::array{128, 96, 2});
  CHECK(fmha::keeps_f16_sums(whole));
  CHECK(fmha::keeps_sums_in_o(whole));
  CHECK(std::array{fmha::raw_v_stages(whole), fmha::raw_v_stages(bare)} == std::array{2, 2});
  // Of split keys a tile has no rows of o to itself.
  const fmha::Config split = config_of({{"head_dim", "256"}, {"tile_m", "128"}, {"tile_n", "64"}, {"split_kv", "on"}});
  CHECK(fmha::keeps_f16_sums(split));
  CHECK_FALSE(fmha::keeps_sums_in_o(split));
  CHECK(fmha::raw_v_stages(split) == 1);
  CHECK_FALSE(fmha::keeps_f16_sums(config_of({{"head_dim", "128"}})));
  CHECK(std::array{bare.tile_m, bare.tile_n, bare.stages} == std::array{128, 96, 2});
}

TEST_CASE("e4m3 attention: what else is looked up for a score takes a smaller tile") {
  for (const auto& [field, word] :
       {std::pair("softcap", "tanh"), std::pair("alibi", "per_head"), std::pair("tree_mask", "bits")}) {
    const fmha::Config c = config_of({{"head_dim", "128"}, {field, word}});  // without: 192x96
    CHECK(c.tile_m == 128);
  }
  const Fields window{{"head_dim", "192"}, {"head_dim_v", "128"}, {"window", "sliding"}};
  CHECK(config_of(window).tile_n == 128);
  Fields with_slopes = window;
  with_slopes.emplace_back("alibi", "per_head");
  CHECK(config_of(with_slopes).tile_n < 128);
}

}  // namespace
}  // namespace tessera::fmha_8_bit_test

// Products by mma.sync as the planner sees them: who gets them, candidates, names, what the sizes steer, and every
// refusal in words.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/products/gemm_mma_cost.h"
#include "generator/products/gemm_mma_operator.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace gemm_mma_test {
using gemm_mma::Config;

namespace {

Fields on_120(Fields fields) {
  fields.emplace_back("arch", "sm_120a");
  return fields;
}
Fields pinned(const Fields& changed) {
  Fields fields{{"arch", "sm_120a"}, {"tile_m", "128"}, {"tile_n", "256"}, {"stages", "2"}};
  fields.insert(fields.end(), changed.begin(), changed.end());
  return fields;
}
Config config(const Fields& fields) { return chosen_config<GemmMmaOperator>(problem_of("gemm", on_120(fields))); }
Plan plan(const Fields& fields) { return make_plan(problem_of("gemm", fields)); }

/// Of D, in a tile.
int rows_of(const Config& c) { return gemm_mma::is_swapped(c) ? c.tile_n : c.tile_m; }

std::string refusal(const Fields& fields) {
  try {
    plan(fields);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no refusal";
}

}  // namespace

TEST_CASE("mma products: the kernels of sm_120 and sm_121, and of sm_90a where they are asked for") {
  for (const char* const arch : {"sm_120a", "sm_120f", "sm_121a", "sm_121f"}) {
    CHECK(plan({{"arch", arch}}).family == "mma");
    CHECK(plan({{"arch", arch}, {"mma_kind", "mma.f16"}}).kernel == plan({{"arch", arch}}).kernel);
  }
  CHECK(plan({}).family == "wgmma");
  CHECK(plan({{"mma_kind", "wgmma.f16"}}).kernel == plan({}).kernel);
  CHECK(plan({{"mma_kind", "mma.f16"}}).family == "mma");
  CHECK(plan({{"mma_kind", "mma.f16"}}).mma_kind == "mma.f16");
  CHECK(plan({{"arch", "sm_100a"}}).family == "tcgen05");
  CHECK(plan({{"arch", "sm_100a"}, {"mma_kind", "tcgen05.f16"}}).kernel == plan({{"arch", "sm_100a"}}).kernel);
  CHECK(plan({{"arch", "sm_103a"}, {"dtype", "e4m3"}, {"mma_kind", "tcgen05.f8f6f4"}}).family == "tcgen05");

  CHECK(refusal({{"mma_kind", "tcgen05.f16"}}) ==
        "gemm has no kernel for mma_kind tcgen05.f16 with dtype bf16 on sm_90a: take wgmma.f16");
  CHECK(refusal({{"arch", "sm_120a"}, {"mma_kind", "wgmma.f16"}}) ==
        "gemm has no kernel for mma_kind wgmma.f16 with dtype bf16 on sm_120a: take mma.f16");
  CHECK(refusal({{"arch", "sm_100a"}, {"mma_kind", "mma.f16"}}) ==
        "gemm has no kernel for mma_kind mma.f16 with dtype bf16 on sm_100a: take tcgen05.f16");
  CHECK(refusal({{"dtype", "e4m3"}, {"mma_kind", "wgmma.f16"}}) ==
        "gemm has no kernel for mma_kind wgmma.f16 with dtype e4m3 on sm_90a: leave mma_kind auto");
  CHECK(refusal({{"arch", "sm_80"}}) ==
        "gemm has no kernel for arch sm_80: there is one for sm_120 and sm_121 with suffix a or f, and for sm_90a, and "
        "for sm_100 and sm_103 with suffix a or f");
}

TEST_CASE("mma products: every legal candidate fits, has a name of its own, and wins when it is pinned") {
  std::map<std::string, Config> all;
  for (const Problem& problem : every_fact()) {
    if (!is_mma_product(problem)) continue;
    const Gemm& facts = problem.as<Gemm>();
    for (const auto& candidate : choose<GemmMmaOperator>(facts).candidates) {
      if (!candidate.verdict.ok()) continue;
      const Config& c = candidate.config;
      CHECK(gemm_mma::smem_layout(c).total_bytes <= smem_bytes_of(Arch::parse("sm_120a")));
      CHECK(gemm_mma::warp_m(c) * gemm_mma::warp_n(c) / 32 <= 128);
      if (gemm_mma::has_d_map(c)) CHECK(gemm_mma::staged_blocks(c) >= 1);
      const std::string name = GemmMmaOperator::kernel_name(facts.arch, c);
      CHECK(all.try_emplace(name, c).first->second == c);
      Gemm pins = facts;
      const bool is_swapped = gemm_mma::is_swapped(c);
      pins.tile_m = is_swapped ? c.tile_n : c.tile_m;
      pins.tile_n = is_swapped ? c.tile_m : c.tile_n;
      pins.split_k = c.split_k;
      pins.swap_ab = c.swap_ab;
      pins.stages = c.stages;
      pins.raster = c.raster;
      CHECK(planned_kernel(pins) == name);
    }
  }
  CHECK(all.size() > 200);
  CHECK(kMaxSmemBytesOfSm120 == smem_bytes_of(Arch::parse("sm_121a")));
}

TEST_CASE("mma products: sizes steer the tile, and the same Config serves both kinds of targets") {
  const Config many = config({{"m", "8192"}, {"n", "8192"}, {"k", "8192"}});
  CHECK(many.tile_m * many.tile_n >= 64 * 128);  // 64 x 128: 5,533 us as predicted, the choice of before 5,575
  CHECK(rows_of(config({{"m", "16"}, {"n", "16384"}, {"k", "4096"}})) == 16);
  CHECK(rows_of(config({{"m", "60"}, {"n", "16384"}, {"k", "4096"}})) <= 64);
  // MN-major operands come in panels of 128 bytes, or of 64 or 32 for tiles of few rows.
  CHECK(rows_of(config({{"m", "16"}, {"n", "16384"}, {"k", "4096"}, {"a_layout", "mn"}})) == 16);
  CHECK(rows_of(config({{"dtype", "e4m3"}, {"m", "16"}, {"n", "16384"}, {"k", "4096"}, {"a_layout", "mn"}})) == 32);
  const Plan hopper = plan({{"mma_kind", "mma.f16"}, {"tile_m", "128"}, {"tile_n", "128"}});
  const Plan geforce = plan({{"arch", "sm_120a"}, {"tile_m", "128"}, {"tile_n", "128"}});
  CHECK(hopper.smem_bytes == geforce.smem_bytes);
  CHECK(hopper.number("stages") == 3);
  CHECK(geforce.number("stages") == 3);
  CHECK(geforce.reason.starts_with("modelled (never measured) at "));
  CHECK(product_tiles(geforce) == ProductTiles{.tile_m = 128, .tile_n = 128});
  // D has a tensor map, of boxes of 16 rows by a warp's columns, where that is no slower than registers.
  CHECK(geforce.launch.tensor_maps.size() == 3);
  CHECK(geforce.launch.tensor_maps.back().name == "d");
  CHECK(geforce.launch.tensor_maps.back().box == std::vector<std::uint32_t>{32, 16, 1});
  CHECK(geforce.launch.tensor_maps.back().swizzle == TensorMapSwizzle::b64);
  for (const Fields& fact : {Fields{{"c", "matrix"}}, Fields{{"grouping", "masked"}}, Fields{{"gate", "interleaved"}},
                             Fields{{"split_k", "2"}, {"tile_m", "64"}}, Fields{{"tile_m", "64"}, {"tile_n", "128"}},
                             Fields{{"swap_ab", "on"}, {"tile_m", "16"}, {"tile_n", "64"}}}) {
    Fields fields{{"arch", "sm_120a"}};
    fields.insert(fields.end(), fact.begin(), fact.end());
    CHECK(plan(fields).launch.tensor_maps.size() == 2);
  }
}

TEST_CASE("mma products: few rows get tiles of few rows, and a split k where there are few tiles") {
  for (const char* const dtype : {"bf16", "e4m3", "nvfp4"})
    for (const int m : {1, 4, 8, 16, 32, 64}) {
      INFO(dtype << ", m = " << m);
      const auto of = [&](const char* n, const char* k) {
        return config({{"dtype", dtype}, {"m", std::to_string(m)}, {"n", n}, {"k", k}});
      };
      const Config wide = of("24576", "4096"), narrow = of("2048", "16384");
      CHECK(rows_of(wide) <= std::max(m, 16));
      CHECK(rows_of(narrow) <= std::max(m, 16));
      // 32 tiles or fewer of 64 columns leave most of 170 multiprocessors without work: of one row of tiles k is split.
      const int rows = rows_of(narrow), columns = gemm_mma::is_swapped(narrow) ? narrow.tile_m : narrow.tile_n;
      CHECK((m + rows - 1) / rows * (2048 / columns) * narrow.split_k >= 64);
      if (m <= rows) CHECK(narrow.split_k >= 4);
      CHECK(gemm_mma::smem_layout(narrow).total_bytes > 60000);  // many steps on their way
    }
  // One row of D in eight columns of the instruction, not in sixteen rows.
  const Plan one = plan({{"arch", "sm_120a"}, {"m", "1"}, {"n", "4096"}, {"k", "4096"}, {"tile_m", "8"}});
  CHECK(one.field("swap_ab") == "on");
  CHECK(product_tiles(one).tile_m == 8);
  CHECK(one.launch.steps.at(0).cluster[0] == static_cast<std::uint32_t>(one.number("split_k")));
  // The entry takes b for a, and n for m.
  CHECK(one.launch.steps.at(0).parameters.at(0).source == "b");
  CHECK(one.launch.steps.at(0).parameters.at(0).name == "a");
  const Plan scaled = plan({{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"swap_ab", "on"}});
  CHECK(scaled.launch.steps.at(0).parameters.at(2).name == "sfa");
  CHECK(scaled.launch.steps.at(0).parameters.at(2).source == "sfb");
}

TEST_CASE("mma products: gates and groups have operands and names of their own") {
  const auto has = [](const Plan& plan, const char* name) {
    return std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                       [&](const BufferSpec& buffer) { return buffer.name == name; });
  };
  const Plan dual = plan({{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"gate", "dual"}});
  for (const char* const name : {"b2", "sfb2", "scale_b2"}) CHECK(has(dual, name));
  CHECK(dual.launch.tensor_maps.size() == 6);
  CHECK(dual.kernel.find("_dual_") != std::string::npos);
  const Plan grouped =
      plan({{"arch", "sm_120a"}, {"dtype", "mxfp8_e4m3"}, {"gate", "interleaved"}, {"grouping", "contiguous"}});
  CHECK(has(grouped, "groups"));
  CHECK(grouped.kernel.find("_contiguous_gated1_") != std::string::npos);
  CHECK(std::any_of(grouped.launch.sizes.begin(), grouped.launch.sizes.end(),
                    [](const SizeSpec& size) { return size.name == "group_tiles"; }));
  CHECK(grouped.number("split_k") == 1);
  CHECK(grouped.field("swap_ab") == "off");
  // A gate's two products have the registers of one of twice the columns.
  const Config wide = config({{"gate", "dual"}, {"tile_m", "128"}, {"tile_n", "128"}});
  CHECK(gemm_mma::warp_n(wide) == 64);
  CHECK(gemm_mma::warp_columns(wide) == 32);
  CHECK(gemm_mma::consumer_warps(wide) == 8);
  // Few rows of groups, each with a B of its own: tiles of few rows.
  CHECK(rows_of(config({{"grouping", "masked"}, {"m", "16"}, {"n", "4096"}, {"k", "4096"}, {"l", "32"}})) == 16);
  CHECK(rows_of(config({{"grouping", "contiguous"}, {"m", "256"}, {"n", "4096"}, {"k", "4096"}, {"l", "32"}})) == 16);
}

TEST_CASE("mma products: every type goes with every d, gate, kind of groups and layout that its elements have") {
  constexpr const char* kTypes[][2] = {{"bf16", "bf16"},
                                       {"f16", "f16"},
                                       {"e4m3", "e5m2"},
                                       {"s8", "u8"},
                                       {"nvfp4", "nvfp4"},
                                       {"mxfp4", "mxfp4"},
                                       {"mxfp8_e4m3", "mxfp8_e5m2"},
                                       {"mxfp8_e5m2", "mxfp4"},
                                       {"mxfp4", "mxfp8_e4m3"}};
  int served = 0;
  for (const auto& [a, b] : kTypes)
    for (const char* const d : {"bf16", "f32", "nvfp4", "mxfp4", "mxfp8_e4m3"})
      for (const char* const gate : {"none", "dual", "1", "8", "32"})
        for (const char* const grouping : {"none", "masked", "contiguous"})
          for (const bool is_mn : {false, true}) {
            const bool is_interleaved = gate[0] >= '0' && gate[0] <= '9';
            Fields fields{{"dtype", a}, {"b_dtype", b}, {"d_dtype", d}, {"grouping", grouping}};
            fields.emplace_back("gate", is_interleaved ? "interleaved" : gate);
            if (is_interleaved) fields.emplace_back("interleave", gate);
            const auto is_packed = [](const std::string& type) {
              return type == "nvfp4" || type == "mxfp4" || type.starts_with("mxfp6");
            };
            if (is_mn && !is_packed(b)) fields.emplace_back("b_layout", "mn");
            if (is_mn && !is_packed(a) && std::string_view(grouping) != "contiguous")
              fields.emplace_back("a_layout", "mn");
            const Config c = config(fields);
            CHECK(why_invalid(c).ok());
            if (is_interleaved) CHECK(gemm_mma::warp_columns(c) % c.facts.interleave == 0);
            ++served;
          }
  CHECK(served == 9 * 5 * 5 * 3 * 2);
}

TEST_CASE("mma products: rows by a list have no map, nor their scales, and warps that copy them") {
  for (const char* const dtype : {"bf16", "e4m3", "nvfp4", "mxfp8_e4m3"}) {
    CAPTURE(dtype);
    const Plan listed = plan(
        {{"arch", "sm_120a"}, {"dtype", dtype}, {"grouping", "contiguous"}, {"gather", "rows"}, {"d_dtype", "bf16"}});
    CHECK(listed.kernel.find("_contiguous_gather") != std::string::npos);
    for (const TensorMapRecipe& map : listed.launch.tensor_maps) CHECK((map.name == "b" || map.name == "sfb"));
    CHECK(std::count_if(listed.roles.begin(), listed.roles.end(),
                        [](const RolePlan& role) { return role.name == "gather" && role.warps == 2; }) == 1);
    // One matrix of a, and its scales in tiles of its own rows: the list says which group takes which.
    for (const BufferSpec& buffer : listed.launch.buffers)
      if (buffer.name == "a" || buffer.name == "sfa") {
        CHECK(buffer.shape[0].text() == "1");
        CHECK(buffer.shape[1].text().find("a_rows") != std::string::npos);
      }
  }
  // Values of four bits that TMA would unpack beside mxfp8 are copied as they are: no row of whole boxes is asked for.
  for (const DomainRule& rule : plan({{"arch", "sm_120a"},
                                      {"dtype", "mxfp4"},
                                      {"b_dtype", "mxfp8_e4m3"},
                                      {"grouping", "masked"},
                                      {"gather", "rows"}})
                                    .launch.domain)
    CHECK(rule.message.find("lda must be at least") == std::string::npos);
}

TEST_CASE("mma products: plain scales have no map, and warps that copy them") {
  const Plan plain = plan({{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"scale_form", "plain"}});
  CHECK(plain.kernel.find("_nvfp4_plain_to_bf16") != std::string::npos);
  for (const TensorMapRecipe& map : plain.launch.tensor_maps)
    CHECK((map.name == "a" || map.name == "b" || map.name == "d"));
  CHECK(std::count_if(plain.roles.begin(), plain.roles.end(),
                      [](const RolePlan& role) { return role.name == "scales" && role.warps == 2; }) == 1);
  for (const BufferSpec& buffer : plain.launch.buffers)
    if (buffer.name.starts_with("sf")) CHECK(buffer.shape.size() == 3);
  // Types without scales are the same kernel, whatever is said of them.
  CHECK(plan({{"arch", "sm_120a"}, {"scale_form", "plain"}}).kernel == plan({{"arch", "sm_120a"}}).kernel);
}

TEST_CASE("mma products: 8-bit types have factors, and their own sums") {
  const auto has = [](const Plan& plan, const char* name) {
    return std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                       [&](const BufferSpec& buffer) { return buffer.name == name; });
  };
  const Plan fp8 = plan({{"arch", "sm_120a"}, {"dtype", "e4m3"}, {"b_dtype", "e5m2"}});
  CHECK(fp8.mma_kind == "mma.f8");
  CHECK(has(fp8, "scale_a"));
  CHECK(fp8.kernel.find("_e4m3_e5m2_to_bf16_kk_") != std::string::npos);
  const Plan sums = plan({{"arch", "sm_121a"}, {"dtype", "s8"}, {"b_dtype", "u8"}, {"d_dtype", "s32"}});
  CHECK(sums.mma_kind == "mma.i8");
  CHECK(!has(sums, "scale_a"));
  CHECK(sums.launch.scalars.empty());
  CHECK(has(plan({{"arch", "sm_120a"}, {"dtype", "s8"}}), "scale_b"));
  CHECK(product_facts({.dtype = DType::e4m3, .mma_kind = MmaKind::mma_f16}).accumulation == Accumulation::fast);
  // Hopper widens them, for which large parts of a warp leave no registers.
  const auto on_hopper = [](const char* dtype, const Fields& more) {
    Fields fields{{"mma_kind", "mma.f16"}, {"dtype", dtype}};
    fields.insert(fields.end(), more.begin(), more.end());
    return chosen_config<GemmMmaOperator>(problem_of("gemm", fields));
  };
  const Config widened = on_hopper("e4m3", {});
  CHECK(gemm_mma::warp_m(widened) * gemm_mma::warp_n(widened) <= 32 * 32);
  CHECK(on_hopper("e4m3", {{"tile_m", "128"}, {"tile_n", "128"}}).tile_n == 128);
  CHECK(on_hopper("s8", {{"m", "8192"}, {"n", "8192"}}).tile_m >= 128);
}

TEST_CASE("mma products: block-scaled types bring their scales along") {
  const Config nvfp4 = config({{"dtype", "nvfp4"}, {"tile_m", "128"}, {"tile_n", "128"}});
  CHECK(gemm_mma::tile_k(nvfp4) == 256);
  CHECK(gemm_mma::scale_tiles(nvfp4) == 4);
  CHECK(gemm_mma::chunk_blocks(nvfp4) == 4);
  const Config mxfp4 = config({{"dtype", "mxfp4"}});
  CHECK(gemm_mma::scale_tile(mxfp4, 3) == 1);
  CHECK(gemm_mma::scale_byte(mxfp4, 3) == 2);
  const Config mxfp8 = config({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp8_e5m2"}});
  CHECK(gemm_mma::scale_tile(mxfp8, 3) == 0);
  CHECK(gemm_mma::scale_byte(mxfp8, 3) == 3);
  const Plan plan =
      gemm_mma_test::plan({{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"tile_m", "128"}, {"tile_n", "128"}});
  CHECK(plan.mma_kind == "mma.mxf4nvf4");
  CHECK(plan.launch.tensor_maps.size() == 5);
  CHECK(gemm_mma_test::plan({{"arch", "sm_121f"}, {"dtype", "mxfp4"}}).mma_kind == "mma.mxf4");
  const Config mixed = config({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}});
  CHECK(gemm_mma::tile_k(mixed) == 128);
  CHECK(gemm_mma::b_copied_bytes(mixed) * 2 == gemm_mma::b_slot_bytes(mixed));
  CHECK(gemm_mma_test::plan({{"arch", "sm_121f"}, {"dtype", "mxfp4"}, {"b_dtype", "mxfp8_e5m2"}}).mma_kind ==
        "mma.mxf8f6f4");
  CHECK(gemm_mma_test::plan({{"arch", "sm_120f"}, {"dtype", "mxfp8_e5m2"}}).mma_kind == "mma.mxf8f6f4");
}

TEST_CASE("mma products: more work never takes less time, by the model") {
  const Config c = config(pinned({}));
  const auto us = [&](Hint m, Hint k) {
    Gemm p{.m = m, .n = 4096, .k = k};
    p.arch = Arch::parse("sm_120a");
    return gemm_mma_cost(c, p).us;
  };
  for (const Hint m : {1, 100, 1000, 5000}) {
    CHECK(us(m, 4096) <= us(2 * m, 4096));
    CHECK(us(m, 4096) < us(m, 8192));
  }
  // 235 TFLOP/s at most.
  CHECK(2.0 * 8192 * 4096 * 8192 / us(8192, 8192) / 1e6 < 236);
}

// Predictions of an RTX 5090 (bench/time/choices.jsonl): three slots of half the columns are faster than two, parts of
// K are not hidden by memory that is read meanwhile, and two warps have two of four tensor cores.
TEST_CASE("mma products: on Blackwell what is chosen follows predictions") {
  const auto chosen = [](const Fields& fields) { return config(fields); };
  const Config mixed =
      chosen({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}, {"m", "512"}, {"n", "4096"}, {"k", "7168"}});
  CHECK(mixed.stages == 3);
  CHECK(chosen({{"dtype", "e4m3"}, {"m", "32"}, {"n", "3072"}, {"k", "7168"}}).split_k == 1);
  CHECK(chosen({{"dtype", "s8"}, {"m", "64"}, {"n", "6144"}, {"k", "4096"}}).split_k == 1);
  const Config narrow = chosen({{"dtype", "mxfp4"}, {"m", "64"}, {"n", "2048"}, {"k", "7168"}});
  CHECK(gemm_mma::consumer_warps(narrow) >= 4);
  // More CTAs share the L2: a step of each takes as long or longer.
  Gemm p{.m = 128, .n = 128, .k = 8192};
  p.arch = Arch::parse("sm_120a");
  const double one = gemm_mma_cost(mixed, p).cycles;
  p.n = 128 * 160;
  CHECK(gemm_mma_cost(mixed, p).cycles > one);
  // On Hopper the constants are those that were fitted to a clock.
  CHECK_FALSE(kHopperByMma.is_predicted);
}

TEST_CASE("mma products: every rule says value, bound and remedy") {
  const std::string tile = "gemm bf16, tile 128x256, 2 stages: ";
  const std::string types =
      ": both must be bf16, f16, nvfp4 or mxfp4, or each e4m3 or e5m2, or each s8 or u8, or each mxfp8, mxfp6 "
      "or mxfp4 (mma.sync kernels)";
  CHECK(refusal(on_120({{"dtype", "e4m3"}, {"b_dtype", "s8"}})) == "gemm e4m3 x s8: a is e4m3, b is s8" + types);
  CHECK(refusal(on_120({{"dtype", "tf32"}})) == "gemm tf32: a is tf32, b is tf32" + types);
  CHECK(refusal(on_120({{"b_dtype", "f16"}})) == "gemm bf16 x f16: a is bf16, b is f16" + types);
  CHECK(refusal(on_120({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "nvfp4"}})) ==
        "gemm mxfp8_e4m3 x nvfp4: a is mxfp8_e4m3, b is nvfp4" + types);
  CHECK(refusal({{"mma_kind", "mma.f16"}, {"dtype", "nvfp4"}}) ==
        "gemm nvfp4: mma.sync has block scales on sm_120 and sm_121 with suffix a or f, not on sm_90a");
  CHECK(refusal(on_120({{"d_dtype", "e4m3"}})) ==
        "gemm bf16: d is e4m3: must be f32, bf16, f16 or a block-scaled format");
  CHECK(refusal({{"mma_kind", "mma.f16"}, {"d_dtype", "nvfp4"}}) ==
        "gemm bf16: d of nvfp4 has kernels for sm_120 and sm_121 with suffix a or f (mma.sync), and for sm_100 and "
        "sm_103 (tcgen05), none for sm_90a");
  CHECK(refusal(pinned({{"d_dtype", "mxfp4"}, {"gate", "interleaved"}, {"tile_n", "32"}, {"tile_m", "64"}})) ==
        "gemm bf16, gate and up by 1, tile 64x32, 2 stages: 16 columns of d a warp, a multiple of 32 needed (the block "
        "that shares a scale): take tile_n 64 or more");
  CHECK(refusal(on_120({{"d_dtype", "nvfp4"},
                        {"swap_ab", "on"},
                        {"tile_m", "16"},
                        {"tile_n", "64"},
                        {"split_k", "1"},
                        {"stages", "4"}})) ==
        "gemm bf16, tile 16x64 transposed, 4 stages: swap_ab on with a block-scaled d, off allowed: blocks are columns "
        "of the instruction");
  CHECK(refusal(on_120({{"gate", "dual"}, {"bias", "column"}})) ==
        "gemm bf16, dual: gate dual with c, bias or an activation: a gate is all that happens to its sums");
  CHECK(refusal(on_120({{"gather", "rows"}})) ==
        "gemm bf16, gathered rows: gather rows without groups: it is for rows of groups; gather the rows first (rows, "
        "chain gather+same)");
  CHECK(refusal(on_120({{"grouping", "masked"}, {"gather", "rows"}, {"a_layout", "mn"}})) ==
        "gemm bf16, masked groups, gathered rows: a_layout mn with gather rows: a row's k is copied in units of 16 "
        "bytes; make k of a contiguous");
  CHECK(refusal(on_120({{"grouping", "contiguous"}, {"a_layout", "mn"}})) ==
        "gemm bf16, contiguous groups: a_layout mn with contiguous groups: a copy begins at a multiple of 16 bytes, a "
        "group at any row; take masked groups, or make k of a contiguous");
  CHECK(refusal(pinned({{"gate", "interleaved"}, {"interleave", "64"}})) ==
        "gemm bf16, gate and up by 64, tile 128x256, 2 stages: interleave 64: it must divide 32, the columns of d that "
        "a warp has");
  CHECK(refusal(on_120({{"interleave", "2"}})) == "gemm: interleave = 2 with gate = none: it is for interleaved gates");
  CHECK(
      refusal(on_120({{"gate", "dual"},
                      {"swap_ab", "on"},
                      {"tile_m", "16"},
                      {"tile_n", "64"},
                      {"split_k", "1"},
                      {"stages", "4"}})) ==
      "gemm bf16, dual, tile 16x64 transposed, 4 stages: swap_ab on with a gate, off allowed: gate and up are columns "
      "of the instruction");
  CHECK(refusal(on_120({{"grouping", "masked"},
                        {"swap_ab", "on"},
                        {"tile_m", "16"},
                        {"tile_n", "64"},
                        {"split_k", "1"},
                        {"stages", "4"}})) ==
        "gemm bf16, masked groups, tile 16x64 transposed, 4 stages: swap_ab on with groups, off allowed: rows of a "
        "group are rows of the instruction");
  CHECK(refusal(
            on_120({{"grouping", "masked"}, {"tile_m", "16"}, {"tile_n", "64"}, {"split_k", "2"}, {"stages", "4"}})) ==
        "gemm bf16, masked groups, tile 16x64, 4 stages, k in 2 parts: split_k 2, 1 allowed with groups: their tiles "
        "are counted on the device");
  CHECK(refusal(on_120({{"accumulation", "promoted"}})) ==
        "gemm bf16: accumulation promoted is for wgmma (sm_90a): mma.sync sums in fp32 as it is");
  CHECK(refusal({{"mma_kind", "mma.f16"}, {"dtype", "e4m3"}, {"accumulation", "promoted"}}) ==
        "gemm e4m3: accumulation promoted is for wgmma (sm_90a): mma.sync sums in fp32 as it is");
  CHECK(refusal(on_120({{"dtype", "s8"}, {"d_dtype", "e5m2"}})) ==
        "gemm s8: d is e5m2: must be f32, bf16, f16, s32 or a block-scaled format");
  CHECK(refusal(on_120({{"d_dtype", "s32"}})) ==
        "gemm bf16: d is s32: must be f32, bf16, f16 or a block-scaled format");
  CHECK(refusal(on_120({{"dtype", "u8"}, {"d_dtype", "s32"}, {"bias", "column"}})) ==
        "gemm u8: d is s32 with c, bias, an activation or a gate: sums of integers are stored as they are; take d of "
        "type f32, bf16 or f16");
  CHECK(refusal(on_120({{"dtype", "nvfp4"}, {"a_layout", "mn"}})) ==
        "gemm nvfp4: a_layout mn with elements of 4 bits, 8 bits needed (two values of a byte must be neighbours along "
        "k): "
        "make k of a contiguous");
  CHECK(refusal(on_120({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}, {"a_layout", "mn"}, {"b_layout", "mn"}})) ==
        "gemm mxfp8_e4m3 x mxfp4: b_layout mn with elements of 4 bits, 8 bits needed (two values of a byte must be "
        "neighbours along k): make k of b contiguous");
  CHECK(refusal(on_120({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp6_e2m3"}, {"b_layout", "mn"}})) ==
        "gemm mxfp8_e4m3 x mxfp6_e2m3: b_layout mn with elements of 6 bits, 8 bits needed (values that share bytes "
        "must be neighbours along k): make k of b contiguous");
  CHECK(
      refusal(on_120({{"d_dtype", "mxfp6_e2m3"}})) ==
      "gemm: d of mxfp6_e2m3: no epilogue makes values of six bits: take d of bf16 and quantize it, or d of mxfp8_e4m3 "
      "or mxfp4");
  CHECK(refusal(on_120({{"d_dtype", "bf16"}, {"dtype", "mxfp6_e3m2"}, {"b_dtype", "e4m3"}})) ==
        "gemm mxfp6_e3m2 x e4m3: a is mxfp6_e3m2, b is e4m3" + types);
  CHECK(refusal({{"mma_kind", "mma.f16"}, {"dtype", "e5m2"}, {"b_layout", "mn"}}) ==
        "gemm e5m2: b_layout mn with elements of 8 bits: ldmatrix transposes bytes (m16n16) on sm_120 and sm_121 with "
        "suffix a or f, not on sm_90a: make k of b contiguous");
  CHECK(refusal(on_120({{"accumulators", "2"}})) == "gemm: accumulators = 2 is for Tensor Memory (tcgen05)");
  CHECK(refusal(on_120({{"kernel_schedule", "ping_pong"}})) ==
        "gemm: kernel_schedule = ping_pong is for wgmma (sm_90a): with mma.sync every warp has its part of each tile");
  const Fields swapped{{"swap_ab", "on"}, {"tile_m", "16"}, {"tile_n", "64"}, {"stages", "4"}, {"split_k", "1"}};
  const auto swapped_but = [&](const Fields& changed) {
    Fields fields = swapped;
    fields.insert(fields.end(), changed.begin(), changed.end());
    return refusal(on_120(fields));
  };
  CHECK(swapped_but({{"tile_m", "4"}}) ==
        "gemm bf16, tile 4x64 transposed, 4 stages: tile_m 4, a power of two from 8 on needed (mma.sync N)");
  CHECK(swapped_but({{"tile_n", "96"}}) ==
        "gemm bf16, tile 16x96 transposed, 4 stages: tile_n 96, a power of two from 16 on needed (mma.sync M)");
  CHECK(swapped_but({{"a_layout", "mn"}, {"tile_m", "8"}}) ==
        "gemm bf16, tile 8x64 transposed, 4 stages: tile_m 8 with a_layout mn, 16 or more needed (32 bytes, the least "
        "swizzle span)");
  CHECK(swapped_but({{"dtype", "s8"}, {"b_layout", "mn"}, {"tile_n", "16"}}) ==
        "gemm s8, tile 16x16 transposed, 4 stages: tile_n 16 with b_layout mn, 32 or more needed (32 bytes, the least "
        "swizzle span)");
  CHECK(swapped_but({{"tile_m", "512"}}) ==
        "gemm bf16, tile 512x64 transposed, 4 stages: tile_m 512, at most 256 allowed (rows of a TMA box)");
  CHECK(refusal(pinned({{"tile_m", "96"}})) ==
        "gemm bf16, tile 96x256, 2 stages: tile_m 96, a power of two from 16 on needed (mma.sync M)");
  CHECK(refusal(pinned({{"tile_m", "512"}})) ==
        "gemm bf16, tile 512x256, 2 stages: tile_m 512, at most 256 allowed (rows of a TMA box)");
  CHECK(refusal(pinned({{"tile_n", "16"}})) ==
        "gemm bf16, tile 128x16, 2 stages: tile_n 16, a power of two from 32 on needed (columns of a warp)");
  CHECK(refusal(pinned({{"tile_n", "320"}})) ==
        "gemm bf16, tile 128x320, 2 stages: tile_n 320, at most 256 allowed (rows of a TMA box)");
  CHECK(refusal(pinned({{"dtype", "e4m3"}, {"tile_m", "16"}, {"a_layout", "mn"}})) ==
        "gemm e4m3, tile 16x256, 2 stages: tile_m 16 with a_layout mn, 32 or more needed (32 bytes, the least swizzle "
        "span)");
  CHECK(refusal(pinned({{"tile_m", "256"}})) ==
        "gemm bf16, tile 256x256, 2 stages: 16 warps of 64 x 64, at most 8 allowed (registers): take a smaller tile");
  CHECK(refusal(pinned({{"stages", "1"}})) == "gemm bf16, tile 128x256, 1 stage: 1 stage, 2 to 16 allowed");
  CHECK(refusal(pinned({{"stages", "3"}})) ==
        "gemm bf16, tile 128x256, 3 stages: 147,504 bytes of shared memory, 101,376 allowed (sm_120 and sm_121): drop "
        "a stage");
  CHECK(refusal(pinned({{"cluster_m", "2"}})) ==
        tile + "a cluster of 2 CTAs along m or n, 1 allowed: sm_120 and sm_121 have no multicast");
  CHECK(refusal(pinned({{"cluster_n", "4"}})) ==
        tile + "a cluster of 4 CTAs along m or n, 1 allowed: sm_120 and sm_121 have no multicast");
  CHECK(refusal(pinned({{"split_k", "9"}})) ==
        "gemm bf16, tile 128x256, 2 stages, k in 9 parts: split_k 9, 1 to 8 allowed (CTAs of a cluster)");
  CHECK(refusal(pinned({{"split_k", "2"}})) ==
        "gemm bf16, tile 128x256, 2 stages, k in 2 parts: partial sums of 131,072 bytes, 98,304 of ring: take more "
        "stages");
  CHECK(refusal(pinned({{"raster", "2000"}})) == tile + "raster 2,000, 1 to 1,024 allowed");
}

}  // namespace gemm_mma_test

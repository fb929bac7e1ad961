// Products on tcgen05 as the planner sees them: candidates, names, what the sizes steer, and every refusal in words.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "generator/candidates.h"
#include "generator/products/gemm_tcgen05_operator.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace gemm_tcgen05_test {

namespace {

using gemm_tcgen05::Config;

Fields on_blackwell(Fields fields) {
  fields.insert(fields.begin(), {"arch", "sm_100a"});
  return fields;
}

Config config(const Fields& fields) {
  return chosen_config<GemmTcgen05Operator>(problem_of("gemm", on_blackwell(fields)));
}

std::string refusal(const Fields& fields) {
  try {
    make_plan(problem_of("gemm", on_blackwell(fields)));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no refusal";
}

/// Tiles and all that a test may leave to the planner, pinned: the message is then about what is being asked for.
Fields pinned(Fields fields) {
  const Fields defaults = {{"tile_m", "128"}, {"tile_n", "128"}, {"cluster_m", "1"},   {"cluster_n", "1"},
                           {"split_k", "1"},  {"stages", "3"},   {"accumulators", "1"}};
  for (const auto& [key, text] : defaults) {
    bool is_given = false;
    for (const auto& field : fields) is_given = is_given || field.first == key;
    if (!is_given) fields.emplace_back(key, text);
  }
  return fields;
}

}  // namespace

TEST_CASE("tcgen05 products: every legal candidate fits, has a name of its own, and wins when it is pinned") {
  std::map<std::string, Config> kernels;
  for (const Problem& problem : every_fact()) {
    const Gemm* const facts = problem.get_if<Gemm>();
    if (facts == nullptr || !has_family(facts->arch, MmaFamily::tcgen05)) continue;
    for (const auto& candidate : choose<GemmTcgen05Operator>(*facts).candidates) {
      if (!candidate.verdict.ok()) continue;
      const Config& c = candidate.config;
      CHECK(gemm_tcgen05::smem_layout(c).total_bytes <= kMaxSmemBytes);
      CHECK(gemm_tcgen05::tmem_layout(c).used <= kTmemColumns);
      const std::string name = GemmTcgen05Operator::kernel_name(facts->arch, c);
      CAPTURE(name);
      CHECK(kernels.try_emplace(name, c).first->second == c);
      Gemm pins = *facts;
      pins.tile_m = c.tile_m;
      pins.tile_n = c.tile_n;
      pins.stages = c.stages;
      pins.accumulators = c.accumulators;
      pins.cluster_m = c.cluster_m;
      pins.cluster_n = c.cluster_n;
      pins.split_k = c.split_k;
      pins.raster = c.raster;
      CHECK(planned_kernel(pins) == name);
    }
  }
  CHECK(kernels.size() > 500);
}

TEST_CASE("tcgen05 products: sizes steer the tile") {
  // Many rows: pairs of CTAs, which read half of b each. Few rows: operands change places. Few tiles: k is split.
  const Config many = config({{"m", "8192"}, {"n", "8192"}, {"k", "8192"}});
  CHECK(gemm_tcgen05::pair_size(many) == 2);
  CHECK(many.tile_n >= 192);
  CHECK(gemm_tcgen05::is_swapped(config({{"m", "16"}, {"n", "8192"}, {"k", "4096"}})));
  CHECK(config({{"m", "16"}, {"n", "2048"}, {"k", "16384"}}).split_k > 1);
  CHECK(config({{"dtype", "nvfp4"}, {"m", "128"}, {"n", "7168"}, {"k", "2048"}}).facts.d_dtype == DType::bf16);
}

TEST_CASE("tcgen05 products: what memory holds") {
  // A step of nvfp4: 256 elements a row, four tiles of scales for each 128 rows, in TMEM four columns each.
  const Config nvfp4{.facts = {.a_type = OperandType::nvfp4, .b_type = OperandType::nvfp4}, .tile_n = 192, .stages = 4};
  CHECK(gemm_tcgen05::tile_k(nvfp4) == 256);
  CHECK(gemm_tcgen05::scale_tiles(nvfp4) == 4);
  CHECK(gemm_tcgen05::scale_columns(nvfp4) == 4 + 8);
  CHECK(gemm_tcgen05::scale_slots(nvfp4) == 10);  // 512 - 2 * 192 columns
  CHECK(gemm_tcgen05::waits_for_scale_slots(nvfp4));
  CHECK(!gemm_tcgen05::do_sums_overlap(nvfp4));
  // Of 256 columns there is room for one tile and three quarters of another; what both have is two panels of fp32.
  Config wide = nvfp4;
  wide.tile_n = 256;
  wide.stages = 3;
  CHECK(gemm_tcgen05::do_sums_overlap(wide));
  CHECK(gemm_tcgen05::all_sum_columns(wide) == 192 + 256);
  CHECK(gemm_tcgen05::scale_slots(wide) == 5);
  CHECK(gemm_tcgen05::tmem_layout(wide).used == 448 + 60);
  CHECK(gemm_tcgen05::sum_phases(wide) == 1);
  CHECK(gemm_tcgen05::panels_until_free(wide) == 1);
  CHECK(gemm_tcgen05::why_invalid(wide).ok());
  wide.facts.d_dtype = DType::f32;
  CHECK(gemm_tcgen05::panels_until_free(wide) == 2);
  wide.accumulators = 1;
  CHECK(!gemm_tcgen05::do_sums_overlap(wide));
  CHECK(!gemm_tcgen05::waits_for_scale_slots(wide));
  CHECK(gemm_tcgen05::panels_until_free(wide) == 8);
  const Config mxfp8{.facts = {.a_type = OperandType::mxfp8_e4m3, .b_type = OperandType::mxfp4}, .tile_n = 128};
  CHECK(gemm_tcgen05::tile_k(mxfp8) == 128);
  CHECK(gemm_tcgen05::scale_columns(mxfp8) == 8);
  CHECK(gemm_tcgen05::operand_bytes(mxfp8, OperandType::mxfp8_e4m3, 128) == 128 * 128);
  CHECK(gemm_tcgen05::operand_bytes(mxfp8, OperandType::mxfp4, 128) == 128 * 64);  // as TMA counts them: packed
  CHECK(gemm_tcgen05::operand_bytes(mxfp8, OperandType::mxfp6_e3m2, 128) == 128 * 96);
}

TEST_CASE("tcgen05 products: what two pairs share is loaded in parts") {
  // Pairs along m have the same columns: each CTA loads a half of its half, and a part of all columns' scales.
  const ProductFacts nvfp4{.a_type = OperandType::nvfp4, .b_type = OperandType::nvfp4};
  const Config along_m{.facts = nvfp4, .tile_n = 256, .stages = 4, .accumulators = 1, .cluster_m = 4};
  CHECK(gemm_tcgen05::cluster_size(along_m) == 4);
  CHECK(gemm_tcgen05::pair_size(along_m) == 2);
  CHECK(gemm_tcgen05::column_rows(along_m) == 128);
  CHECK(gemm_tcgen05::a_box(along_m).extents[1] == 128);
  CHECK(gemm_tcgen05::b_box(along_m).extents[1] == 64);
  CHECK(gemm_tcgen05::scale_box(along_m, true).extents[1] == 4);
  CHECK(gemm_tcgen05::scale_box(along_m, false).extents[1] == 2);  // of 4 tiles along k
  CHECK(gemm_tcgen05::scale_box(along_m, false).extents[2] == 1);  // of 2 row blocks
  // Pairs along n have the same lanes; the columns' scales are those of a pair.
  const Config along_n{.facts = nvfp4, .tile_n = 256, .stages = 4, .accumulators = 1, .cluster_m = 2, .cluster_n = 2};
  CHECK(gemm_tcgen05::a_box(along_n).extents[1] == 64);
  CHECK(gemm_tcgen05::b_box(along_n).extents[1] == 128);
  CHECK(gemm_tcgen05::scale_box(along_n, true).extents[1] == 2);
  CHECK(gemm_tcgen05::scale_box(along_n, false).extents[1] == 4);
  CHECK(gemm_tcgen05::scale_box(along_n, false).extents[2] == 1);
  // A step of mxfp8 has two tiles of the columns' scales, fewer than CTAs that want them.
  const Config mxfp8{.facts = {.a_type = OperandType::mxfp8_e4m3, .b_type = OperandType::mxfp8_e4m3},
                     .tile_n = 256,
                     .stages = 4,
                     .accumulators = 1,
                     .cluster_m = 4};
  CHECK(gemm_tcgen05::scale_box(mxfp8, false).extents[1] == 1);
  CHECK(gemm_tcgen05::scale_box(mxfp8, false).extents[2] == 1);
}

TEST_CASE("tcgen05 products: a wrong pairing is refused with both sides") {
  CHECK(refusal({{"dtype", "nvfp4"}, {"b_dtype", "mxfp4"}}) ==
        "gemm nvfp4 x mxfp4: a is nvfp4 (e2m1 values, scales ue4m3, one for 16 along k), b is mxfp4 (e2m1 values, "
        "scales ue8m0, one for 32 along k): no instruction multiplies the two; both must be f16, bf16, tf32, nvfp4 or "
        "mxfp4, or each e4m3 or e5m2, or each s8 or u8, or each mxfp8, mxfp6 or mxfp4");
  CHECK(refusal({{"dtype", "mxfp8_e4m3"}, {"b_dtype", "e4m3"}})
            .starts_with("gemm mxfp8_e4m3 x e4m3: a is mxfp8_e4m3 (e4m3 values, scales ue8m0, one for 32 along k), b "
                         "is e4m3: no"));
  CHECK(refusal({{"dtype", "bf16"}, {"b_dtype", "f16"}}).starts_with("gemm bf16 x f16: a is bf16, b is f16: no"));
  CHECK(
      refusal({{"dtype", "nvfp4"}, {"scale_form", "plain"}}) ==
      "gemm nvfp4: scales in the plain form, tiles needed (tcgen05 reads tiles of 128 rows by 4 blocks): convert them "
      "with convert_scales, to = tile");
  CHECK(refusal({{"dtype", "u16"}}) ==
        "gemm has no kernel for operands of type u16: there are kernels for bf16, f16, tf32, e4m3, e5m2, s8, u8, int4, "
        "nvfp4, "
        "mxfp4, mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3");
  CHECK(refusal({{"d_dtype", "e4m3"}}) == "gemm bf16: d is e4m3: must be f32, bf16, f16 or a block-scaled format");
  CHECK(
      refusal({{"dtype", "nvfp4"}, {"b_layout", "mn"}}) ==
      "gemm nvfp4: b_layout mn with b of type nvfp4: k of 4-bit values must be contiguous (the instruction takes them "
      "K-major only); transpose b, or take a type of 8 bits or more");
  CHECK(refusal({{"a_layout", "mn"}, {"grouping", "contiguous"}}) ==
        "gemm bf16, contiguous groups: a_layout mn with contiguous groups: a copy begins at a multiple of 16 bytes, a "
        "group at any row; take masked groups, or make k of a contiguous");
  CHECK(refusal(pinned({{"b_layout", "mn"}, {"tile_n", "96"}}))
            .find("96 rows of an operand with layout mn in a CTA, a multiple of 64 needed (128 bytes, swizzle span)") !=
        std::string::npos);
  CHECK(refusal(pinned({{"grouping", "masked"}, {"split_k", "2"}}))
            .find("split_k 2, 1 allowed with groups: their tiles are counted on the device") != std::string::npos);
  CHECK(refusal({{"accumulation", "promoted"}, {"dtype", "e4m3"}}) ==
        "gemm: accumulation = promoted is for 8-bit sums of sm_90a: tcgen05 sums in fp32 as it is");
  CHECK(refusal({{"kernel_schedule", "ping_pong"}}) ==
        "gemm: kernel_schedule = ping_pong is for sm_90a: with tcgen05 no warpgroup multiplies");
  CHECK(refusal({{"arch", "sm_90a"}, {"dtype", "mxfp4"}}) ==
        "gemm: mxfp4 has kernels for sm_100 and sm_103 with suffix a or f (tcgen05), none for sm_90a");
  CHECK(refusal({{"arch", "sm_90a"}, {"accumulators", "2"}}) ==
        "gemm: accumulators = 2 is for Tensor Memory, which sm_90a does not have");
}

TEST_CASE("tcgen05 products: integers are for sm_100a, and their sums leave as they are or as fp32") {
  const Plan sums =
      make_plan(problem_of("gemm", on_blackwell({{"dtype", "s8"}, {"b_dtype", "u8"}, {"d_dtype", "s32"}})));
  CHECK(sums.mma_kind.starts_with("tcgen05.i8"));
  CHECK(sums.launch.scalars.empty());
  const auto has_scale = [](const Plan& plan) {
    return std::any_of(plan.launch.buffers.begin(), plan.launch.buffers.end(),
                       [](const BufferSpec& buffer) { return buffer.name == "scale_a"; });
  };
  CHECK(!has_scale(sums));
  CHECK(has_scale(make_plan(problem_of("gemm", on_blackwell({{"dtype", "u8"}})))));
  for (const char* const arch : {"sm_100f", "sm_103a", "sm_103f"})
    CHECK(refusal({{"arch", arch}, {"dtype", "s8"}}) ==
          std::string("gemm s8: integer products (tcgen05 kind::i8) have kernels for sm_100a, none for ") + arch +
              ", whose assembler refuses the kind; take e4m3 there");
  CHECK(refusal({{"arch", "sm_90a"}, {"dtype", "u8"}}) ==
        "gemm: u8 has kernels for sm_100a (tcgen05 kind::i8), none for sm_90a");
  CHECK(
      refusal({{"dtype", "s8"}, {"d_dtype", "s32"}, {"gate", "dual"}}) ==
      "gemm s8, dual: d is s32 with c, bias, an activation or a gate: sums of integers are stored as they are; take d "
      "of type f32, bf16 or f16");
  CHECK(refusal({{"d_dtype", "s32"}}) == "gemm bf16: d is s32: must be f32, bf16, f16 or a block-scaled format");
  CHECK(refusal({{"dtype", "s8"}, {"d_dtype", "u32"}}) ==
        "gemm s8: d is u32: must be f32, bf16, f16, s32 or a block-scaled format");
  CHECK(refusal({{"dtype", "s8"}, {"b_dtype", "e4m3"}}).starts_with("gemm s8 x e4m3: a is s8, b is e4m3: no"));
}

TEST_CASE("tcgen05 products: gates and block-scaled results") {
  const Config dual = config({{"gate", "dual"}, {"dtype", "nvfp4"}});
  CHECK(gemm_tcgen05::products(dual) == 2);
  CHECK(gemm_tcgen05::sum_columns(dual) == 2 * dual.tile_n);
  CHECK(!gemm_tcgen05::is_swapped(config({{"gate", "dual"}, {"m", "16"}})));
  const Config gated = config({{"gate", "interleaved"}, {"interleave", "16"}, {"d_dtype", "nvfp4"}, {"m", "16"}});
  CHECK(gemm_tcgen05::stored_columns(gated) * 2 == gated.tile_n);
  CHECK(gated.split_k == 1);
  CHECK(refusal({{"gate", "dual"}, {"bias", "column"}}) ==
        "gemm bf16, dual: gate dual with c, bias or an activation: a gate is all that happens to its sums");
  CHECK(refusal({{"interleave", "2"}}) == "gemm: interleave = 2 with gate = none: it is for interleaved gates");
  CHECK(refusal({{"arch", "sm_90a"}, {"d_dtype", "mxfp4"}}) ==
        "gemm: a block-scaled d has kernels for sm_100 and sm_103 with suffix a or f (tcgen05), none for sm_90a");
}

TEST_CASE("tcgen05 products: every rule says value, bound and remedy") {
  const auto says = [](const Fields& fields) {
    const std::string text = refusal(pinned(fields));
    return text.substr(text.find(": ") + 2);
  };
  CHECK(says({{"tile_m", "256"}}) ==
        "tile_m 256, 16 to 128 allowed (lanes of Tensor Memory): take cluster_m 2 for 256 rows");
  CHECK(says({{"tile_m", "64"}, {"tile_n", "96"}}) ==
        "tile_n 96 with tile_m 64, 128 needed: one of the two is the lanes of Tensor Memory");
  CHECK(says({{"tile_n", "40"}}) == "tile_n 40, a multiple of 16 needed (N of the instruction)");
  CHECK(says({{"tile_n", "48"}, {"cluster_m", "2"}}) == "tile_n 48, a multiple of 32 needed (N of the instruction)");
  CHECK(says({{"dtype", "nvfp4"}, {"tile_n", "96"}}) ==
        "tile_n 96, a multiple of 64 needed (where an instruction may start to read scales)");
  CHECK(says({{"tile_n", "272"}}) == "tile_n 272, at most 256 allowed (N of the instruction)");
  CHECK(says({{"stages", "1"}}) == "1 stage, 2 to 16 allowed");
  CHECK(says({{"accumulators", "3"}}) == "3 accumulators, 1 or 2 allowed");
  CHECK(says({{"cluster_m", "3"}}) == "cluster_m 3, 1, 2 or 4 allowed (a pair of CTAs, or two that share b)");
  CHECK(says({{"cluster_n", "2"}}) == "cluster_n 2, at most 1 allowed (with 128 rows a pair lies along m)");
  CHECK(says({{"cluster_m", "2"}, {"cluster_n", "3"}}) == "cluster_n 3, at most 2 allowed (two pairs that share a)");
  CHECK(says({{"dtype", "e4m3"}, {"b_layout", "mn"}, {"tile_n", "256"}, {"cluster_m", "4"}}) ==
        "64 rows of an operand with layout mn in a CTA, a multiple of 128 needed (128 bytes, swizzle span)");
  CHECK(says({{"split_k", "2"}, {"cluster_m", "4"}}) ==
        "split_k 2, 1 allowed with a pair of CTAs: take cluster_m and cluster_n 1");
  CHECK(says({{"tile_m", "32"}, {"cluster_m", "2"}}) ==
        "cluster_m 2, at most 1 allowed (with few rows a pair lies along n)");
  CHECK(says({{"split_k", "3"}}) == "split_k 3, a power of two up to 8 allowed (CTAs of a cluster)");
  CHECK(says({{"split_k", "2"}, {"cluster_m", "2"}}) ==
        "split_k 2, 1 allowed with a pair of CTAs: take cluster_m and cluster_n 1");
  CHECK(says({{"split_k", "4"}, {"tile_n", "32"}}) ==
        "8 columns of Tensor Memory for each CTA along k, a multiple of 16 needed: take a smaller split_k");
  CHECK(says({{"split_k", "2"}, {"tile_n", "256"}, {"stages", "2"}}) ==
        "partial sums of 131,072 bytes, 98,304 of ring: take more stages");
  CHECK(says({{"gate", "interleaved"}, {"interleave", "24"}}) ==
        "interleave 24: it must divide 32, the columns of d that are stored at a time");
  CHECK(says({{"gate", "dual"}, {"tile_m", "64"}}) ==
        "tile_m 64, 128 needed with a gate or a block-scaled d (whole blocks of a row in a thread)");
  CHECK(says({{"gate", "dual"}, {"split_k", "2"}}) == "split_k 2, 1 allowed with a gate or a block-scaled d");
  CHECK(says({{"d_dtype", "mxfp4"}, {"tile_n", "48"}}) ==
        "48 columns of d a tile, a multiple of 32 needed (the block that shares a scale)");
  CHECK(says({{"raster", "2000"}}) == "raster 2,000, 1 to 1,024 allowed");
  CHECK(says({{"dtype", "nvfp4"}, {"gate", "dual"}, {"tile_n", "128"}, {"accumulators", "2"}}) ==
        "572 columns of Tensor Memory for sums and scales, 512 allowed: take one accumulator");
  CHECK(says({{"tile_n", "256"}, {"stages", "5"}}) == "278,632 bytes of shared memory, 232,448 allowed: drop a stage");
}

TEST_CASE("tcgen05 products: one pin leaves the rest to the planner, or is what the refusal names") {
  for (const char* const dtype : {"bf16", "nvfp4", "mxfp8_e4m3"}) {
    const Config c = config({{"dtype", dtype}, {"tile_m", "64"}});
    CHECK(c.tile_m == 64);
    CHECK(c.tile_n == 128);
  }
  CHECK(
      refusal({{"gate", "dual"}, {"tile_m", "32"}}) ==
      "gemm bf16, dual, tile 32x128 transposed, 10 stages, 2 accumulators, pair along n: tile_m 32, 128 needed with a "
      "gate or a block-scaled d (whole blocks of a row in a thread)");
  CHECK(refusal({{"dtype", "nvfp4"}, {"tile_m", "32"}})
            .ends_with("tile_m 32, a multiple of 64 needed (where an instruction may start to read scales)"));
}

}  // namespace gemm_tcgen05_test

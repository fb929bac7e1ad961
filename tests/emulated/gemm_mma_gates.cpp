// Gates and groups by mma.sync, under several schedules: gate and up by two operands, and in turn in columns of one, by
// every interleave that a quad exchanges or a warp has apart; groups of rows, contiguous and masked, empty ones and
// ones that end anywhere in a tile, also with rows of a by a list. Scales are surrounded by NaN codes, rows by NaN
// values: neither reaches a result.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_tcgen05_run.h"
#include "tests/support/sample.h"

namespace tessera::gemm_mma_gates_test {
namespace {

using reference::Fill;

const ProductCase kGatesByMma[] = {
    {"bf16, dual, warps of 32 columns",
     {{"arch", "sm_120a"}, {"gate", "dual"}, {"tile_m", "64"}, {"tile_n", "64"}, {"stages", "2"}},
     {{"m", 70}, {"n", 136}, {"k", 200}},
     Fill::standard},
    {"f16 to fp32, dual, b mn-major, warps of 64 columns, rows of odd length",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"dtype", "f16"},
      {"d_dtype", "f32"},
      {"b_layout", "mn"},
      {"gate", "dual"},
      {"tile_m", "128"},
      {"tile_n", "128"}},
     {{"m", 130}, {"n", 136}, {"k", 72}, {"ldd", 139}},
     Fill::standard},
    {"nvfp4, dual, few rows, k in two parts, factors of both",
     {{"arch", "sm_120a"},
      {"dtype", "nvfp4"},
      {"d_dtype", "f16"},
      {"gate", "dual"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"split_k", "2"}},
     {{"m", 20}, {"n", 203}, {"k", 560}, {"ldd", 205}, {"lda", 576}, {"ldb", 576}, {"ldb2", 576}},
     Fill::standard},
    {"mxfp8, dual, two tiles of scales a row of tiles, two matrices",
     {{"arch", "sm_121a"}, {"dtype", "mxfp8_e4m3"}, {"gate", "dual"}, {"tile_m", "64"}, {"tile_n", "128"}},
     {{"m", 70}, {"n", 200}, {"k", 160}, {"l", 2}},
     Fill::standard},
    {"u8 by s8, gate and up in turn, any bytes",
     {{"arch", "sm_120f"},
      {"dtype", "u8"},
      {"b_dtype", "s8"},
      {"gate", "interleaved"},
      {"tile_m", "32"},
      {"tile_n", "64"}},
     {{"m", 40}, {"n", 150}, {"k", 112}},
     Fill::standard},
    {"bf16, gate and up by 2, k in two parts",
     {{"arch", "sm_120a"},
      {"gate", "interleaved"},
      {"interleave", "2"},
      {"tile_m", "16"},
      {"tile_n", "128"},
      {"split_k", "2"}},
     {{"m", 21}, {"n", 204}, {"k", 200}},
     Fill::standard},
    {"bf16, gate and up by 4, warps of 64 columns",
     {{"arch", "sm_120a"}, {"gate", "interleaved"}, {"interleave", "4"}, {"tile_m", "128"}, {"tile_n", "256"}},
     {{"m", 100}, {"n", 264}, {"k", 72}},
     Fill::standard},
    {"mxfp4, gate and up by 8",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp4"},
      {"gate", "interleaved"},
      {"interleave", "8"},
      {"tile_m", "64"},
      {"tile_n", "128"}},
     {{"m", 70}, {"n", 144}, {"k", 352}},
     Fill::standard},
    {"e4m3 to fp32, gate and up by 16",
     {{"arch", "sm_121f"},
      {"dtype", "e4m3"},
      {"d_dtype", "f32"},
      {"gate", "interleaved"},
      {"interleave", "16"},
      {"tile_m", "32"},
      {"tile_n", "64"}},
     {{"m", 33}, {"n", 96}, {"k", 144}},
     Fill::standard},
    {"bf16, gate and up by 32",
     {{"arch", "sm_120a"}, {"gate", "interleaved"}, {"interleave", "32"}, {"tile_m", "256"}, {"tile_n", "128"}},
     {{"m", 100}, {"n", 192}, {"k", 72}},
     Fill::standard},
};

const ProductCase kGroupsByMma[] = {
    {"bf16, contiguous groups, rows of d that end within 16 bytes, c and a bias",
     {{"arch", "sm_120a"},
      {"grouping", "contiguous"},
      {"c", "matrix"},
      {"bias", "column"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 300}, {"n", 100}, {"k", 136}, {"l", 5}, {"ldd", 104}}},
    {"bf16, contiguous groups, all empty",
     {{"arch", "sm_90a"}, {"mma_kind", "mma.f16"}, {"grouping", "contiguous"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 30}, {"n", 64}, {"k", 64}, {"l", 2}},
     Fill::integer,
     {0, 0}},
    {"mxfp4, contiguous groups of one row, none, exactly a tile, more than one, and rows that belong to none",
     {{"arch", "sm_120a"}, {"dtype", "mxfp4"}, {"grouping", "contiguous"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 400}, {"n", 70}, {"k", 288}, {"l", 7}},
     Fill::integer,
     {1, 0, 64, 150, 0, 1, 129}},
    {"nvfp4, masked groups, gate and up in turn: full, none, one row",
     {{"arch", "sm_121a"},
      {"dtype", "nvfp4"},
      {"grouping", "masked"},
      {"gate", "interleaved"},
      {"tile_m", "128"},
      {"tile_n", "128"}},
     {{"m", 150}, {"n", 192}, {"k", 288}, {"l", 4}},
     Fill::standard,
     {150, 0, 1, 77}},
    {"bf16, masked groups, gpt-oss' gate by 2 with a limit, a bias of each group",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"grouping", "masked"},
      {"gate", "interleaved"},
      {"interleave", "2"},
      {"gate_activation", "gpt_oss"},
      {"gate_limit", "7"},
      {"bias", "group"},
      {"tile_m", "64"},
      {"tile_n", "128"}},
     {{"m", 70}, {"n", 212}, {"k", 72}, {"l", 3}},
     Fill::standard,
     {70, 0, 9}},
    {"mxfp8, contiguous groups, gate and up by 16, gelu, a limit and a bias of each group",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp8_e4m3"},
      {"grouping", "contiguous"},
      {"gate", "interleaved"},
      {"interleave", "16"},
      {"gate_activation", "gelu"},
      {"gate_limit", "2"},
      {"bias", "group"},
      {"tile_m", "64"},
      {"tile_n", "128"}},
     {{"m", 100}, {"n", 224}, {"k", 160}, {"l", 3}},
     Fill::standard,
     {66, 0, 30}},
    {"bf16, contiguous groups, a bias of each, few rows",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"grouping", "contiguous"},
      {"bias", "group"},
      {"m", "24"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"stages", "4"}},
     {{"m", 30}, {"n", 131}, {"k", 72}, {"l", 3}},
     Fill::integer,
     {13, 0, 16}},
    {"bf16, m of a contiguous, masked groups, dual",
     {{"arch", "sm_120a"},
      {"a_layout", "mn"},
      {"grouping", "masked"},
      {"gate", "dual"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 136}, {"n", 72}, {"k", 72}, {"l", 3}},
     Fill::standard,
     {3, 136, 57}},
    {"e4m3, masked groups of few rows, fewer CTAs than tiles",
     {{"arch", "sm_120f"},
      {"dtype", "e4m3"},
      {"grouping", "masked"},
      {"c", "matrix"},
      {"tile_m", "16"},
      {"tile_n", "64"}},
     {{"m", 50}, {"n", 150}, {"k", 144}, {"l", 3}, {"ldd", 152}, {"num_sms", 3}},
     Fill::integer,
     {50, 33, 2}},
};

const ProductCase kGathersByMma[] = {
    {"bf16, contiguous groups, rows by a list, gate and up in turn, more slots than steps",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"grouping", "contiguous"},
      {"gather", "rows"},
      {"gate", "interleaved"},
      {"interleave", "8"},
      {"tile_m", "64"},
      {"tile_n", "128"}},
     {{"m", 150}, {"n", 208}, {"k", 200}, {"l", 4}, {"a_rows", 40}, {"lda", 208}},
     Fill::standard,
     {65, 0, 1, 70}},
    {"nvfp4, masked groups, rows by a list with their scales, two tiles of scales a tile, c",
     {{"arch", "sm_120a"},
      {"dtype", "nvfp4"},
      {"grouping", "masked"},
      {"gather", "rows"},
      {"c", "matrix"},
      {"tile_m", "256"},
      {"tile_n", "64"}},
     {{"m", 150}, {"n", 70}, {"k", 560}, {"l", 3}, {"a_rows", 300}, {"lda", 576}, {"ldb", 576}},
     Fill::standard,
     {150, 0, 9}},
    {"mxfp4 by mxfp8, contiguous groups, rows by a list that are unpacked on their way, few rows",
     {{"arch", "sm_121a"},
      {"dtype", "mxfp4"},
      {"b_dtype", "mxfp8_e4m3"},
      {"grouping", "contiguous"},
      {"gather", "rows"},
      {"tile_m", "16"},
      {"tile_n", "64"}},
     {{"m", 60}, {"n", 70}, {"k", 288}, {"l", 3}, {"a_rows", 200}},
     Fill::standard,
     {20, 1, 33}},
    {"e4m3, masked groups, rows by a list, k within a step",
     {{"arch", "sm_120f"},
      {"dtype", "e4m3"},
      {"grouping", "masked"},
      {"gather", "rows"},
      {"tile_m", "32"},
      {"tile_n", "32"}},
     {{"m", 40}, {"n", 33}, {"k", 72}, {"l", 2}, {"a_rows", 5}, {"lda", 80}, {"ldb", 80}},
     Fill::standard,
     {40, 33}},
};

const ProductCase kPlainScalesByMma[] = {
    {"nvfp4, plain scales, cells that begin anywhere, two tiles of rows",
     {{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"scale_form", "plain"}, {"tile_m", "256"}, {"tile_n", "64"}},
     {{"m", 150}, {"n", 70}, {"k", 592}, {"lda", 608}, {"ldb", 608}, {"l", 2}},
     Fill::standard},
    {"mxfp8, plain scales, whole cells, d transposed, k in three parts",
     {{"arch", "sm_121a"},
      {"dtype", "mxfp8_e4m3"},
      {"scale_form", "plain"},
      {"swap_ab", "on"},
      {"tile_m", "8"},
      {"tile_n", "64"},
      {"split_k", "3"}},
     {{"m", 13}, {"n", 100}, {"k", 640}},
     Fill::standard},
    {"mxfp4, plain scales, dual, contiguous groups",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp4"},
      {"scale_form", "plain"},
      {"gate", "dual"},
      {"grouping", "contiguous"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 150}, {"n", 70}, {"k", 512}, {"l", 3}},
     Fill::standard,
     {65, 0, 70}},
    {"mxfp8 by mxfp4, plain scales, masked groups, rows by a list, a block-scaled d",
     {{"arch", "sm_120f"},
      {"dtype", "mxfp8_e4m3"},
      {"b_dtype", "mxfp4"},
      {"d_dtype", "nvfp4"},
      {"scale_form", "plain"},
      {"grouping", "masked"},
      {"gather", "rows"},
      {"tile_m", "32"},
      {"tile_n", "64"}},
     {{"m", 50}, {"n", 96}, {"k", 288}, {"l", 2}, {"a_rows", 30}, {"ldb", 384}},
     Fill::standard,
     {50, 7}},
};

const ProductCase kQuantizedByMma[] = {
    {"bf16 to nvfp4, exact, tiles of fewer rows than a tile of scales has, two matrices",
     {{"arch", "sm_120a"}, {"d_dtype", "nvfp4"}, {"bias", "column"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 70}, {"n", 176}, {"k", 64}, {"l", 2}, {"ldd", 192}}},
    {"mxfp8 to mxfp8, exact, tiles of more rows than the matrix",
     {{"arch", "sm_121a"}, {"dtype", "mxfp8_e4m3"}, {"d_dtype", "mxfp8_e4m3"}, {"tile_m", "256"}, {"tile_n", "64"}},
     {{"m", 40}, {"n", 160}, {"k", 160}, {"l", 2}}},
    {"nvfp4 to nvfp4, gate and up in turn, few rows, k in two parts",
     {{"arch", "sm_120a"},
      {"dtype", "nvfp4"},
      {"d_dtype", "nvfp4"},
      {"gate", "interleaved"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"split_k", "2"}},
     {{"m", 20}, {"n", 224}, {"k", 544}, {"ldd", 128}},
     Fill::standard},
    {"bf16 to mxfp4, gate and up by 16, warps of 64 columns",
     {{"arch", "sm_120f"},
      {"d_dtype", "mxfp4"},
      {"gate", "interleaved"},
      {"interleave", "16"},
      {"tile_m", "128"},
      {"tile_n", "256"}},
     {{"m", 130}, {"n", 192}, {"k", 72}},
     Fill::standard},
    {"bf16 to nvfp4, contiguous groups, dual: scales of d in tiles of the groups",
     {{"arch", "sm_120a"},
      {"d_dtype", "nvfp4"},
      {"grouping", "contiguous"},
      {"gate", "dual"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 330}, {"n", 80}, {"k", 72}, {"l", 4}, {"ldd", 96}},
     Fill::standard,
     {40, 207, 0, 3}},
};

}  // namespace

TEST_CASE("products by mma.sync: results that leave as block-scaled formats") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using enum emulator::Schedule;
  for (const ProductCase& test : kQuantizedByMma)
    if (testing::takes_next_case(6)) check_product(test, *compiler, {fair, adversarial});
}

TEST_CASE("products by mma.sync: gates") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using enum emulator::Schedule;
  for (const ProductCase& test : kGatesByMma)
    if (testing::takes_next_case(6)) check_product(test, *compiler, {fair, adversarial});
}

TEST_CASE("products by mma.sync: groups of rows") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using enum emulator::Schedule;
  for (const ProductCase& test : kGroupsByMma)
    if (testing::takes_next_case(6)) check_product(test, *compiler, {fair, eager, adversarial});
}

TEST_CASE("products by mma.sync: groups whose rows of a a list names") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using enum emulator::Schedule;
  for (const ProductCase& test : kGathersByMma)
    if (testing::takes_next_case(4)) check_product(test, *compiler, {fair, eager, lazy, adversarial, split, weak});
}

TEST_CASE("products by mma.sync: plain scales") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using enum emulator::Schedule;
  for (const ProductCase& test : kPlainScalesByMma)
    if (testing::takes_next_case(4)) check_product(test, *compiler, {fair, eager, lazy, adversarial, split, weak});
}

}  // namespace tessera::gemm_mma_gates_test

// Products of few rows by mma.sync under every schedule: tiles of D transposed, from eight rows of A on, and a K that
// the CTAs of a cluster share, parts without a step among them. Scales are surrounded by NaN codes, rows by NaN values:
// neither reaches a result.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_tcgen05_run.h"

namespace tessera::gemm_mma_few_rows_test {
namespace {

using reference::Fill;

const ProductCase kProductsOfFewRows[] = {
    {"one row, k in four parts, one of them without a step, c and a bias",
     {{"arch", "sm_120a"},
      {"swap_ab", "on"},
      {"tile_m", "8"},
      {"tile_n", "64"},
      {"split_k", "4"},
      {"c", "matrix"},
      {"bias", "column"},
      {"activation", "relu"}},
     {{"m", 1}, {"n", 150}, {"k", 184}}},
    {"transposed, two tiles of rows, b mn-major, f16 to fp32, two matrices, more tiles than CTAs",
     {{"arch", "sm_121a"},
      {"dtype", "f16"},
      {"d_dtype", "f32"},
      {"b_layout", "mn"},
      {"swap_ab", "on"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"split_k", "1"}},
     {{"m", 21}, {"n", 152}, {"k", 136}, {"ldd", 153}, {"l", 2}, {"num_sms", 4}}},
    {"as it is, k in two parts, rows of d that end within 16 bytes",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"swap_ab", "off"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"split_k", "2"},
      {"c", "matrix"}},
     {{"m", 19}, {"n", 133}, {"k", 456}, {"ldd", 136}}},
    {"nothing to add up, k in eight parts",
     {{"arch", "sm_120a"}, {"bias", "column"}, {"tile_m", "32"}, {"tile_n", "64"}, {"split_k", "8"}},
     {{"m", 30}, {"n", 70}, {"k", 0}}},
    {"e4m3 by e5m2 transposed: the kernel's types are exchanged, factors",
     {{"arch", "sm_120f"},
      {"dtype", "e4m3"},
      {"b_dtype", "e5m2"},
      {"swap_ab", "on"},
      {"tile_m", "8"},
      {"tile_n", "128"},
      {"split_k", "2"}},
     {{"m", 13}, {"n", 140}, {"k", 400}},
     Fill::standard},
    {"s8 by u8, sums as they are, k in three parts, transposed",
     {{"arch", "sm_120a"},
      {"dtype", "s8"},
      {"b_dtype", "u8"},
      {"d_dtype", "s32"},
      {"swap_ab", "on"},
      {"tile_m", "32"},
      {"tile_n", "64"},
      {"split_k", "3"}},
     {{"m", 33}, {"n", 70}, {"k", 912}},
     Fill::standard},
    {"nvfp4, eight rows, transposed, k in two parts whose scales end in the second, two matrices",
     {{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"swap_ab", "on"}, {"tile_m", "8"}, {"tile_n", "64"}, {"split_k", "2"}},
     {{"m", 20}, {"n", 203}, {"k", 560}, {"l", 2}, {"lda", 576}, {"ldb", 576}}},
    {"mxfp4, transposed, tiles of rows within a tile of scales",
     {{"arch", "sm_121f"},
      {"dtype", "mxfp4"},
      {"swap_ab", "on"},
      {"tile_m", "32"},
      {"tile_n", "128"},
      {"split_k", "1"}},
     {{"m", 50}, {"n", 150}, {"k", 352}},
     Fill::standard},
    {"mxfp8 of both types, as it is, k in four parts",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp8_e4m3"},
      {"b_dtype", "mxfp8_e5m2"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"split_k", "4"}},
     {{"m", 21}, {"n", 130}, {"k", 608}},
     Fill::standard},
};

}  // namespace

TEST_CASE("products by mma.sync: few rows, transposed and with a split k, under every schedule") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using enum emulator::Schedule;
  for (const ProductCase& test : kProductsOfFewRows)
    check_product(test, *compiler, {fair, eager, lazy, adversarial, split, weak});
}

}  // namespace tessera::gemm_mma_few_rows_test

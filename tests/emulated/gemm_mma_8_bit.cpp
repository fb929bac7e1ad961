// Products of types of 8 and 4 bits by mma.sync, in the emulator, against float64: of sm_120a and its like, which no
// such hardware has run, and of sm_90a. Scales are surrounded by NaN codes, rows by NaN values: neither reaches a
// result.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "generator/selectors.h"
#include "tests/emulated/gemm_tcgen05_run.h"

namespace tessera::gemm_mma_8_bit_test {
namespace {

using reference::Fill;

const ProductCase kCases[] = {
    {"e4m3 by e5m2, factors, c and a bias, two matrices, rows of d that end within 16 bytes",
     {{"arch", "sm_120a"},
      {"dtype", "e4m3"},
      {"b_dtype", "e5m2"},
      {"c", "matrix"},
      {"bias", "column"},
      {"tile_m", "64"},
      {"tile_n", "128"}},
     {{"m", 70}, {"n", 133}, {"k", 208}, {"l", 2}, {"ldd", 136}}},
    {"e5m2, random, eight warps",
     {{"arch", "sm_121a"}, {"dtype", "e5m2"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "128"}},
     {{"m", 100}, {"n", 130}, {"k", 144}},
     Fill::standard},
    {"e4m3, widened by the assembler",
     {{"arch", "sm_90a"}, {"mma_kind", "mma.f16"}, {"dtype", "e4m3"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 70}, {"n", 90}, {"k", 272}, {"lda", 288}}},
    {"s8 by u8, sums as they are, more tiles than CTAs",
     {{"arch", "sm_120f"}, {"dtype", "s8"}, {"b_dtype", "u8"}, {"d_dtype", "s32"}, {"tile_m", "32"}, {"tile_n", "64"}},
     {{"m", 70}, {"n", 131}, {"k", 400}, {"num_sms", 2}},
     Fill::standard},
    {"u8, to bf16 by way of fp32, with an activation",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"dtype", "u8"},
      {"activation", "relu"},
      {"tile_m", "16"},
      {"tile_n", "64"}},
     {{"m", 20}, {"n", 100}, {"k", 144}}},
    {"nvfp4, blocks behind k, tiles that begin within a tile of scales, two matrices",
     {{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"c", "matrix"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 150}, {"n", 203}, {"k", 304}, {"l", 2}, {"lda", 320}, {"ldb", 320}}},
    {"nvfp4, random, two tiles of scales a row of tiles",
     {{"arch", "sm_121a"}, {"dtype", "nvfp4"}, {"d_dtype", "f32"}, {"tile_m", "64"}, {"tile_n", "256"}},
     {{"m", 70}, {"n", 300}, {"k", 528}, {"lda", 544}, {"ldb", 544}},
     Fill::standard},
    {"mxfp4, an odd number of blocks, few rows",
     {{"arch", "sm_120f"}, {"dtype", "mxfp4"}, {"bias", "column"}, {"tile_m", "16"}, {"tile_n", "128"}},
     {{"m", 21}, {"n", 140}, {"k", 352}},
     Fill::standard},
    {"mxfp8 by mxfp4, k ends inside the 128 elements of the tensor map, two matrices",
     {{"arch", "sm_120a"}, {"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 70}, {"n", 100}, {"k", 352}, {"l", 2}, {"lda", 368}, {"ldb", 448}}},
    {"mxfp4 by mxfp8, as it is, random",
     {{"arch", "sm_121f"},
      {"dtype", "mxfp4"},
      {"b_dtype", "mxfp8_e4m3"},
      {"swap_ab", "off"},
      {"tile_m", "32"},
      {"tile_n", "64"}},
     {{"m", 33}, {"n", 70}, {"k", 288}, {"lda", 384}},
     Fill::standard},
    {"mxfp4 by mxfp8, eight rows, transposed, k in two parts, random",
     {{"arch", "sm_121a"},
      {"dtype", "mxfp4"},
      {"b_dtype", "mxfp8_e5m2"},
      {"swap_ab", "on"},
      {"tile_m", "8"},
      {"tile_n", "64"},
      {"split_k", "2"}},
     {{"m", 13}, {"n", 130}, {"k", 416}, {"lda", 512}},
     Fill::standard},
    {"e4m3 by e5m2, both transposed by ldmatrix, two panels of a, half a panel of b, k ends within a step",
     {{"arch", "sm_120a"},
      {"dtype", "e4m3"},
      {"b_dtype", "e5m2"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "256"},
      {"tile_n", "64"}},
     {{"m", 300}, {"n", 90}, {"k", 203}, {"l", 2}, {"lda", 304}, {"ldb", 112}}},
    {"s8 by u8, sums as they are, any bytes, b transposed, panels of 32 bytes",
     {{"arch", "sm_121a"},
      {"dtype", "s8"},
      {"b_dtype", "u8"},
      {"d_dtype", "s32"},
      {"b_layout", "mn"},
      {"tile_m", "16"},
      {"tile_n", "32"}},
     {{"m", 21}, {"n", 77}, {"k", 160}, {"ldb", 80}},
     Fill::standard},
    {"u8, a transposed, d transposed, k in three parts",
     {{"arch", "sm_120f"},
      {"dtype", "u8"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"swap_ab", "on"},
      {"tile_m", "32"},
      {"tile_n", "128"},
      {"split_k", "3"}},
     {{"m", 40}, {"n", 144}, {"k", 500}, {"lda", 48}}},
    {"mxfp8, both transposed by ldmatrix, random",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp8_e4m3"},
      {"b_dtype", "mxfp8_e5m2"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "128"}},
     {{"m", 150}, {"n", 200}, {"k", 224}, {"lda", 160}, {"ldb", 208}},
     Fill::standard},
    {"mxfp4 by mxfp8, the bytes transposed, the others padded",
     {{"arch", "sm_121a"},
      {"dtype", "mxfp4"},
      {"b_dtype", "mxfp8_e4m3"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 70}, {"n", 100}, {"k", 352}, {"lda", 384}, {"ldb", 112}},
     Fill::standard},
    {"mxfp8 of both types, eight warps",
     {{"arch", "sm_120a"}, {"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp8_e5m2"}, {"tile_m", "128"}, {"tile_n", "128"}},
     {{"m", 140}, {"n", 130}, {"k", 224}},
     Fill::standard},
};

}  // namespace

TEST_CASE("products by mma.sync: types of 8 and 4 bits, scales of blocks") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  for (const ProductCase& test : kCases)
    check_product(test, *compiler, {emulator::Schedule::fair, emulator::Schedule::adversarial});
}

}  // namespace tessera::gemm_mma_8_bit_test

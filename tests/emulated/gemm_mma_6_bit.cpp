// Products of MXFP6 by mma.sync, in the emulator, against float64: every pair that an instruction takes with values of
// six bits on a side, which no such hardware has run. Scales are surrounded by NaN codes, rows by NaN values: neither
// reaches a result.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "generator/selectors.h"
#include "tests/emulated/gemm_tcgen05_run.h"

namespace tessera::gemm_mma_6_bit_test {
namespace {

using reference::Fill;

const ProductCase kCases[] = {
    {"e3m2, k ends inside the 128 elements of the tensor map, two matrices",
     {{"arch", "sm_120a"}, {"dtype", "mxfp6_e3m2"}, {"c", "matrix"}, {"tile_m", "64"}, {"tile_n", "64"}},
     {{"m", 70}, {"n", 100}, {"k", 352}, {"l", 2}, {"lda", 384}, {"ldb", 512}}},
    {"e2m3, random, eight warps, more tiles than CTAs",
     {{"arch", "sm_121a"}, {"dtype", "mxfp6_e2m3"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "128"}},
     {{"m", 140}, {"n", 130}, {"k", 224}, {"num_sms", 2}, {"lda", 256}, {"ldb", 256}},
     Fill::standard},
    {"e3m2, eight rows, d transposed, k in two parts, random",
     {{"arch", "sm_120f"},
      {"dtype", "mxfp6_e3m2"},
      {"b_dtype", "mxfp6_e2m3"},
      {"swap_ab", "on"},
      {"tile_m", "8"},
      {"tile_n", "64"},
      {"split_k", "2"}},
     {{"m", 13}, {"n", 130}, {"k", 416}, {"lda", 512}, {"ldb", 512}},
     Fill::standard},
    {"e2m3 by e4m3, the bytes transposed by ldmatrix",
     {{"arch", "sm_121a"},
      {"dtype", "mxfp6_e2m3"},
      {"b_dtype", "mxfp8_e4m3"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 70}, {"n", 100}, {"k", 352}, {"lda", 384}, {"ldb", 112}},
     Fill::standard},
    {"e3m2 by e2m1, plain scales, whose cells begin anywhere, k in three parts",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp6_e3m2"},
      {"b_dtype", "mxfp4"},
      {"scale_form", "plain"},
      {"swap_ab", "off"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"split_k", "3"}},
     {{"m", 20}, {"n", 90}, {"k", 480}, {"lda", 512}, {"ldb", 512}}},
    {"e2m3, contiguous groups, gate and up by 16, a bias of each group",
     {{"arch", "sm_120a"},
      {"dtype", "mxfp6_e2m3"},
      {"grouping", "contiguous"},
      {"gate", "interleaved"},
      {"interleave", "16"},
      {"bias", "group"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 150}, {"n", 96}, {"k", 160}, {"l", 3}, {"lda", 256}, {"ldb", 256}},
     Fill::standard,
     {60, 0, 80}},
    {"e3m2 by e5m2, masked groups, rows by a list that are unpacked on their way, to mxfp8",
     {{"arch", "sm_121a"},
      {"dtype", "mxfp6_e3m2"},
      {"b_dtype", "mxfp8_e5m2"},
      {"d_dtype", "mxfp8_e4m3"},
      {"grouping", "masked"},
      {"gather", "rows"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 70}, {"n", 128}, {"k", 352}, {"l", 3}, {"a_rows", 50}, {"lda", 384}, {"ldb", 352}},
     Fill::standard,
     {70, 0, 33}},
};

/// A small product of the pair, ragged along everything.
ProductCase pair_of(const std::string& a, const std::string& b) {
  return {a + " by " + b,
          {{"arch", "sm_120a"},
           {"dtype", a},
           {"b_dtype", b},
           {"swap_ab", "off"},
           {"split_k", "1"},
           {"tile_m", "32"},
           {"tile_n", "64"}},
          {{"m", 21}, {"n", 70}, {"k", 160}, {"lda", 256}, {"ldb", 256}},
          Fill::standard};
}

}  // namespace

TEST_CASE("products of MXFP6 by mma.sync: loads, facts, groups") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  for (const ProductCase& test : kCases)
    check_product(test, *compiler, {emulator::Schedule::fair, emulator::Schedule::adversarial});
}

TEST_CASE("products of MXFP6 by mma.sync: every pair with six bits on a side") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  const std::vector<std::string> types{"mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8_e4m3", "mxfp8_e5m2"};
  for (const std::string& a : types)
    for (const std::string& b : types)
      if (a.starts_with("mxfp6") || b.starts_with("mxfp6"))
        check_product(pair_of(a, b), *compiler, {emulator::Schedule::fair});
}

}  // namespace tessera::gemm_mma_6_bit_test

// Products on tcgen05 under every schedule: element types, block-scaled formats, one CTA and pairs, tiles stored as
// they are and transposed, a split K, ragged edges, rows of d that TMA takes and that it does not. Scales are
// surrounded by NaN codes, rows by NaN values: neither reaches a result.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_tcgen05_run.h"
#include "tests/support/sample.h"

namespace tessera::gemm_tcgen05_test {
namespace {

using EmulatorSchedule = emulator::Schedule;
using reference::Fill;

const ProductCase kDense[] = {
    {"bf16, ragged, two rounds",
     {{"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"split_k", "1"}, {"stages", "2"}},
     {{"m", 300}, {"n", 200}, {"k", 200}}},
    {"f16 to fp32, c, bias, padded rows, batched",
     {{"dtype", "f16"},
      {"d_dtype", "f32"},
      {"c", "matrix"},
      {"bias", "column"},
      {"activation", "relu"},
      {"tile_m", "128"},
      {"tile_n", "96"},
      {"cluster_m", "1"},
      {"split_k", "1"},
      {"stages", "3"}},
     {{"m", 70}, {"n", 130}, {"k", 120}, {"l", 2}, {"lda", 136}, {"ldb", 128}, {"ldc", 131}, {"ldd", 140}}},
    {"bf16, rows of d that tma cannot store, one accumulator",
     {{"tile_m", "128"},
      {"tile_n", "48"},
      {"cluster_m", "1"},
      {"split_k", "1"},
      {"stages", "4"},
      {"accumulators", "1"}},
     {{"m", 190}, {"n", 77}, {"k", 136}, {"ldd", 81}}},
    {"bf16, nothing to add up",
     {{"bias", "column"}, {"activation", "gelu"}, {"tile_m", "128"}, {"tile_n", "64"}, {"stages", "2"}},
     {{"m", 40}, {"n", 64}, {"k", 0}}},
    {"tf32 to fp32, random",
     {{"dtype", "tf32"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "32"}, {"stages", "3"}},
     {{"m", 100}, {"n", 40}, {"k", 100}},
     Fill::standard},
    {"e4m3 by e5m2, scales, random",
     {{"dtype", "e4m3"}, {"b_dtype", "e5m2"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 130}, {"n", 72}, {"k", 272}},
     Fill::standard},
    {"s8 by u8 to s32, any bytes, ragged k",
     {{"dtype", "s8"}, {"b_dtype", "u8"}, {"d_dtype", "s32"}, {"tile_m", "128"}, {"tile_n", "48"}, {"cluster_m", "1"}},
     {{"m", 140}, {"n", 100}, {"k", 201}, {"lda", 208}, {"ldb", 224}},
     Fill::standard},
    {"s8 to fp32, factors, c and bias, k in two parts, any bytes",
     {{"dtype", "s8"},
      {"d_dtype", "f32"},
      {"c", "matrix"},
      {"bias", "column"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"split_k", "2"}},
     {{"m", 100}, {"n", 72}, {"k", 640}, {"l", 2}},
     Fill::standard},
};

const ProductCase kScaled[] = {
    {"nvfp4, k ends inside a tile of scales, second tile of columns starts inside one",
     {{"dtype", "nvfp4"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"stages", "3"}},
     {{"m", 150}, {"n", 130}, {"k", 352}, {"lda", 384}}},
    {"nvfp4 to f16, 192 columns, scales in few slots, factors, random",
     {{"dtype", "nvfp4"},
      {"d_dtype", "f16"},
      {"tile_m", "128"},
      {"tile_n", "192"},
      {"cluster_m", "1"},
      {"c", "matrix"}},
     {{"m", 128}, {"n", 400}, {"k", 1312}},
     Fill::standard},
    {"mxfp4 to fp32, batched, half a pair of scales at the end",
     {{"dtype", "mxfp4"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "128"}, {"cluster_m", "1"}},
     {{"m", 130}, {"n", 72}, {"k", 288}, {"l", 2}}},
    {"mxfp8, ragged k",
     {{"dtype", "mxfp8_e4m3"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"stages", "2"}},
     {{"m", 100}, {"n", 100}, {"k", 224}}},
    {"mxfp8 e5m2 by e4m3, random",
     {{"dtype", "mxfp8_e5m2"}, {"b_dtype", "mxfp8_e4m3"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "128"}},
     {{"m", 140}, {"n", 100}, {"k", 320}},
     Fill::standard},
    {"mxfp8 by mxfp4",
     {{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 100}, {"n", 100}, {"k", 384}}},
    {"mxfp8 by mxfp4, k ends inside the 128 elements of the tensor map",
     {{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 100}, {"n", 100}, {"k", 352}, {"l", 2}, {"lda", 368}, {"ldb", 448}}},
    {"mxfp4 by mxfp8, transposed, k in two parts, the last step a quarter",
     {{"dtype", "mxfp4"}, {"b_dtype", "mxfp8_e4m3"}, {"tile_m", "64"}, {"tile_n", "128"}, {"split_k", "2"}},
     {{"m", 70}, {"n", 130}, {"k", 416}, {"lda", 512}}},
    {"mxfp4 by mxfp8, transposed",
     {{"dtype", "mxfp4"}, {"b_dtype", "mxfp8_e5m2"}, {"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "1"}},
     {{"m", 70}, {"n", 200}, {"k", 256}}},
};

const ProductCase kArrangements[] = {
    {"bf16, a pair of CTAs, ragged",
     {{"tile_m", "128"}, {"tile_n", "96"}, {"cluster_m", "2"}, {"stages", "3"}},
     {{"m", 300}, {"n", 200}, {"k", 200}}},
    {"nvfp4, a pair of CTAs, k ends inside a tile of scales",
     {{"dtype", "nvfp4"}, {"tile_m", "128"}, {"tile_n", "128"}, {"cluster_m", "2"}, {"stages", "2"}},
     {{"m", 400}, {"n", 200}, {"k", 608}}},
    {"mxfp8, a pair of CTAs, 256 columns, one accumulator",
     {{"dtype", "mxfp8_e4m3"}, {"tile_m", "128"}, {"tile_n", "256"}, {"cluster_m", "2"}},
     {{"m", 520}, {"n", 300}, {"k", 416}}},
    {"bf16, few rows, transposed, c and bias",
     {{"tile_m", "16"}, {"tile_n", "128"}, {"cluster_n", "1"}, {"split_k", "1"}, {"c", "matrix"}, {"bias", "column"}},
     {{"m", 13}, {"n", 300}, {"k", 200}, {"ldd", 304}}},
    {"bf16 to fp32, few rows, a pair along n, rows that tma cannot store",
     {{"d_dtype", "f32"}, {"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "2"}},
     {{"m", 100}, {"n", 333}, {"k", 136}}},
    {"nvfp4, few rows, a pair along n",
     {{"dtype", "nvfp4"}, {"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "2"}},
     {{"m", 100}, {"n", 400}, {"k", 352}}},
    {"bf16, k in four parts, one of them empty",
     {{"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"split_k", "4"}, {"stages", "3"}},
     {{"m", 128}, {"n", 100}, {"k", 192}}},
    {"nvfp4, k in two parts, few rows, random",
     {{"dtype", "nvfp4"}, {"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "1"}, {"split_k", "2"}},
     {{"m", 64}, {"n", 200}, {"k", 1056}},
     Fill::standard},
};

const ProductCase kGates[] = {
    {"bf16, dual",
     {{"gate", "dual"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"stages", "2"}},
     {{"m", 150}, {"n", 136}, {"k", 200}},
     Fill::standard},
    {"nvfp4, dual, a pair of CTAs, rows that tma cannot store",
     {{"dtype", "nvfp4"},
      {"d_dtype", "f16"},
      {"gate", "dual"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "2"}},
     {{"m", 300}, {"n", 130}, {"k", 608}, {"ldd", 133}},
     Fill::standard},
    {"u8 by s8, dual, a pair of CTAs, any bytes",
     {{"dtype", "u8"}, {"b_dtype", "s8"}, {"gate", "dual"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "2"}},
     {{"m", 270}, {"n", 72}, {"k", 112}},
     Fill::standard},
    {"bf16 to nvfp4, exact",
     {{"d_dtype", "nvfp4"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 70}, {"n", 176}, {"k", 64}, {"l", 2}, {"ldd", 192}}},
    {"mxfp8 to mxfp8, a pair of CTAs, exact",
     {{"dtype", "mxfp8_e4m3"}, {"d_dtype", "mxfp8_e4m3"}, {"tile_m", "128"}, {"tile_n", "128"}, {"cluster_m", "2"}},
     {{"m", 140}, {"n", 288}, {"k", 160}}},
    {"nvfp4 to nvfp4, gate and up in turn, one accumulator",
     {{"dtype", "nvfp4"},
      {"d_dtype", "nvfp4"},
      {"gate", "interleaved"},
      {"tile_m", "128"},
      {"tile_n", "128"},
      {"cluster_m", "1"},
      {"accumulators", "1"}},
     {{"m", 100}, {"n", 224}, {"k", 288}, {"ldd", 128}},
     Fill::standard},
    {"bf16 to mxfp4, gate and up by 16",
     {{"d_dtype", "mxfp4"}, {"gate", "interleaved"}, {"interleave", "16"}, {"tile_m", "128"}, {"tile_n", "64"}},
     {{"m", 130}, {"n", 192}, {"k", 100}, {"lda", 104}, {"ldb", 104}},
     Fill::standard},
};

// The four layouts, and what else may be MN-major.
const ProductCase kLayouts[] = {
    {"bf16, m of a contiguous, ragged",
     {{"a_layout", "mn"}, {"tile_m", "128"}, {"tile_n", "96"}, {"cluster_m", "1"}, {"split_k", "1"}, {"stages", "3"}},
     {{"m", 200}, {"n", 130}, {"k", 100}, {"ldb", 104}, {"lda", 208}}},
    {"f16, n of b contiguous, a pair of CTAs",
     {{"dtype", "f16"}, {"b_layout", "mn"}, {"tile_m", "128"}, {"tile_n", "128"}, {"cluster_m", "2"}, {"stages", "3"}},
     {{"m", 300}, {"n", 200}, {"k", 136}}},
    {"bf16, both, few rows, transposed, batched",
     {{"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "128"},
      {"cluster_n", "1"},
      {"split_k", "1"}},
     {{"m", 72}, {"n", 200}, {"k", 77}, {"l", 2}}},
    {"bf16, both, a pair along n",
     {{"a_layout", "mn"}, {"b_layout", "mn"}, {"tile_m", "128"}, {"tile_n", "256"}, {"cluster_m", "2"}},
     {{"m", 264}, {"n", 264}, {"k", 150}}},
    {"bf16, both, k in two parts",
     {{"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"split_k", "2"}},
     {{"m", 128}, {"n", 72}, {"k", 200}}},
    {"e4m3 by e5m2, both",
     {{"dtype", "e4m3"},
      {"b_dtype", "e5m2"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "128"},
      {"tile_n", "128"},
      {"cluster_m", "1"}},
     {{"m", 144}, {"n", 160}, {"k", 200}}},
    {"tf32, both, random: swizzled in units of 32 bytes",
     {{"dtype", "tf32"},
      {"d_dtype", "f32"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"}},
     {{"m", 140}, {"n", 76}, {"k", 90}},
     Fill::standard},
    {"u8 to s32, both, a pair of CTAs, any bytes",
     {{"dtype", "u8"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"d_dtype", "s32"},
      {"tile_m", "128"},
      {"tile_n", "256"},
      {"cluster_m", "2"}},
     {{"m", 272}, {"n", 304}, {"k", 150}},
     Fill::standard},
    {"mxfp8, both, ragged k",
     {{"dtype", "mxfp8_e4m3"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "128"},
      {"tile_n", "128"},
      {"cluster_m", "1"}},
     {{"m", 144}, {"n", 96}, {"k", 224}}},
    {"mxfp8, m of a contiguous, by mxfp4, a pair of CTAs",
     {{"dtype", "mxfp8_e4m3"},
      {"b_dtype", "mxfp4"},
      {"a_layout", "mn"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "2"}},
     {{"m", 272}, {"n", 100}, {"k", 256}}},
    {"bf16, m of a contiguous, masked groups, dual",
     {{"a_layout", "mn"},
      {"grouping", "masked"},
      {"gate", "dual"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"}},
     {{"m", 200}, {"n", 72}, {"k", 72}, {"l", 3}},
     Fill::standard,
     {3, 200, 57}},
};

const ProductCase kGroups[] = {
    {"bf16, contiguous groups, a pair of CTAs",
     {{"grouping", "contiguous"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "2"}, {"stages", "3"}},
     {{"m", 500}, {"n", 100}, {"k", 136}, {"l", 5}}},
    {"nvfp4, contiguous groups, few rows, transposed",
     {{"dtype", "nvfp4"}, {"grouping", "contiguous"}, {"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "1"}},
     {{"m", 300}, {"n", 200}, {"k", 352}, {"l", 4}}},
    {"mxfp8, masked groups",
     {{"dtype", "mxfp8_e4m3"}, {"grouping", "masked"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 200}, {"n", 130}, {"k", 160}, {"l", 4}}},
    {"nvfp4 to nvfp4, masked groups, gate and up in turn, a pair of CTAs",
     {{"dtype", "nvfp4"},
      {"d_dtype", "nvfp4"},
      {"gate", "interleaved"},
      {"grouping", "masked"},
      {"tile_m", "128"},
      {"tile_n", "128"},
      {"cluster_m", "2"}},
     {{"m", 300}, {"n", 192}, {"k", 288}, {"l", 3}, {"ldd", 96}},
     Fill::standard},
    {"mxfp4, contiguous groups of one row, none, exactly a tile, more than one, and rows that belong to none",
     {{"dtype", "mxfp4"}, {"grouping", "contiguous"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 500}, {"n", 70}, {"k", 288}, {"l", 7}},
     Fill::integer,
     {1, 0, 128, 200, 0, 1, 129}},
    {"mxfp8 by mxfp4, masked groups: full, none, one row",
     {{"dtype", "mxfp8_e5m2"},
      {"b_dtype", "mxfp4"},
      {"grouping", "masked"},
      {"tile_m", "128"},
      {"tile_n", "128"},
      {"cluster_m", "2"}},
     {{"m", 150}, {"n", 100}, {"k", 256}, {"l", 4}},
     Fill::integer,
     {150, 0, 1, 77}},
    {"nvfp4 to nvfp4, contiguous groups, a pair of CTAs: scales of d in tiles of the groups",
     {{"dtype", "nvfp4"},
      {"d_dtype", "nvfp4"},
      {"grouping", "contiguous"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "2"}},
     {{"m", 330}, {"n", 80}, {"k", 160}, {"l", 4}, {"ldd", 96}},
     Fill::integer,
     {40, 257, 0, 3}},
    {"bf16 to mxfp8, contiguous groups, gate and up in turn",
     {{"d_dtype", "mxfp8_e4m3"},
      {"gate", "interleaved"},
      {"grouping", "contiguous"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"}},
     {{"m", 180}, {"n", 192}, {"k", 72}, {"l", 3}},
     Fill::standard,
     {5, 130, 45}},
    {"e4m3, masked groups, few rows, transposed, a pair along n, c",
     {{"dtype", "e4m3"}, {"grouping", "masked"}, {"tile_m", "32"}, {"cluster_n", "2"}, {"c", "matrix"}},
     {{"m", 50}, {"n", 300}, {"k", 144}, {"l", 3}, {"ldd", 304}},
     Fill::integer,
     {50, 33, 2}},
    {"mxfp8, masked groups, gpt-oss' gate by 2 with a limit, a bias of each group",
     {{"dtype", "mxfp8_e4m3"},
      {"gate", "interleaved"},
      {"interleave", "2"},
      {"gate_activation", "gpt_oss"},
      {"gate_limit", "7"},
      {"bias", "group"},
      {"grouping", "masked"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"}},
     {{"m", 150}, {"n", 100}, {"k", 160}, {"l", 3}},
     Fill::standard,
     {150, 0, 9}},
    {"bf16 to mxfp8, contiguous groups, a limited gate, gelu, a bias of each group",
     {{"d_dtype", "mxfp8_e4m3"},
      {"gate", "interleaved"},
      {"gate_activation", "gelu"},
      {"gate_limit", "4"},
      {"bias", "group"},
      {"grouping", "contiguous"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"}},
     {{"m", 180}, {"n", 192}, {"k", 72}, {"l", 3}},
     Fill::standard,
     {5, 130, 45}},
    {"bf16, masked groups, few rows, transposed, a bias of each group",
     {{"grouping", "masked"}, {"bias", "group"}, {"tile_m", "32"}, {"tile_n", "128"}, {"cluster_n", "1"}},
     {{"m", 40}, {"n", 200}, {"k", 72}, {"l", 3}},
     Fill::integer,
     {40, 0, 13}},
    {"bf16, contiguous groups, all empty",
     {{"grouping", "contiguous"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 30}, {"n", 64}, {"k", 64}, {"l", 2}},
     Fill::integer,
     {0, 0}},
    {"bf16, dual, contiguous groups, rows that tma cannot store",
     {{"grouping", "contiguous"}, {"gate", "dual"}, {"tile_m", "128"}, {"tile_n", "64"}, {"cluster_m", "1"}},
     {{"m", 260}, {"n", 77}, {"k", 72}, {"l", 3}},
     Fill::standard},
};

void run_under_every_schedule(const ProductCase& test, Compiler& compiler) {
  if (!testing::takes_next_case(24)) return;
  using enum EmulatorSchedule;
  check_product(test, compiler, {fair, eager, lazy, adversarial});
}

TEST_CASE("products on tcgen05 under every schedule: element types") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const ProductCase& test : kDense) run_under_every_schedule(test, *compiler);
}

TEST_CASE("products on tcgen05 under every schedule: block-scaled formats") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const ProductCase& test : kScaled) run_under_every_schedule(test, *compiler);
}

TEST_CASE("products on tcgen05 under every schedule: gates, and results that leave as block-scaled formats") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const ProductCase& test : kGates) run_under_every_schedule(test, *compiler);
}

TEST_CASE("products on tcgen05 under every schedule: the four layouts") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const ProductCase& test : kLayouts) run_under_every_schedule(test, *compiler);
}

TEST_CASE("products on tcgen05 under every schedule: groups of rows") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const ProductCase& test : kGroups) run_under_every_schedule(test, *compiler);
}

TEST_CASE("products on tcgen05 under every schedule: pairs, transposed tiles, a split k") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const ProductCase& test : kArrangements) run_under_every_schedule(test, *compiler);
}

}  // namespace
}  // namespace tessera::gemm_tcgen05_test

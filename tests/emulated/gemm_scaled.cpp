// Products with fp32 factors of blocks of 128 on sm_90a, in the emulator under every schedule, followed by its race
// detector, and compared with float64.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_run.h"
#include "tests/support/sample.h"

namespace tessera {
namespace {

using namespace gemm_run;

using Fields = std::vector<std::pair<std::string, std::string>>;

/// of a, of b, and other fields.
Fields fields(const char* a, const char* b, const Fields& others) {
  Fields all{{"dtype", "e4m3"}, {"a_scale_block", a}, {"b_scale_block", b}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

Fields tile(const char* m, const char* n, const char* stages, const Fields& others = {}) {
  Fields all{{"tile_m", m}, {"tile_n", n}, {"stages", stages}};
  const auto pin = [&](const char* key, const char* value) {
    for (const auto& [name, text] : others)
      if (name == key) return;
    all.emplace_back(key, value);
  };
  pin("cluster_m", "1");
  pin("cluster_n", "1");
  pin("split_k", "1");
  pin("kernel_schedule", "cooperative");
  pin("swap_ab", "off");
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

TEST_CASE("factors of blocks under every schedule") {
  const Case cases[] = {
      {"factors by bulk copies and by threads in turn, a cluster, few slots",
       fields("1x128", "128x128", tile("128", "128", "3", {{"cluster_m", "2"}})),
       {{"m", 500}, {"n", 300}, {"k", 1024}, {"sfa_stride_m", 1}, {"sfa_stride_k", 500}, {"num_sms", 2}},
       Fill::standard},
      {"rows of factors, ragged, k no multiple of 128",
       fields("1x128", "128x128", tile("64", "64", "2")),
       {{"m", 77}, {"n", 200}, {"k", 304}},
       Fill::standard},
      {"squares that lie anywhere among a tile's columns, two blocks a warpgroup",
       fields("1x128", "128x128", tile("256", "112", "3", {{"cluster_n", "2"}})),
       {{"m", 300}, {"n", 500}, {"k", 512}},
       Fill::sparse_integer},
      {"laps of all slots, steps before and behind them, and factors of b for more than 32 steps",
       fields("1x128", "128x128", tile("256", "128", "3")),
       {{"m", 300}, {"n", 200}, {"k", 4496}, {"num_sms", 1}, {"sfa_stride_m", 1}, {"sfa_stride_k", 300}},
       Fill::standard},
      {"tiles that begin at any multiple of 16 in a square, each row of factors by itself",
       fields("1x128", "128x128", tile("128", "144", "2")),
       {{"m", 130}, {"n", 600}, {"k", 656}, {"l", 2}, {"num_sms", 2}},
       Fill::standard},
      {"three squares across a tile",
       fields("1x128", "128x128", tile("128", "176", "3")),
       {{"m", 150}, {"n", 540}, {"k", 400}},
       Fill::standard},
      {"planned for whole tiles, which one copy loads, and launched with others",
       fields("1x128", "128x128", tile("256", "128", "2", {{"m", "1024"}, {"n", "256"}, {"cluster_m", "2"}})),
       {{"m", 330}, {"n", 200}, {"k", 528}},
       Fill::standard},
      {"planned for few rows, whose factors are copied for large tiles too, and launched with others",
       fields("1x128", "128x128", tile("128", "192", "3", {{"m", "128"}})),
       {{"m", 200}, {"n", 400}, {"k", 400}},
       Fill::standard},
      {"groups that end within a tile, products of factors",
       fields("1x128", "128x128", tile("256", "128", "2", {{"grouping", "contiguous"}})),
       {{"m", 500}, {"n", 136}, {"k", 400}, {"l", 3}},
       Fill::standard,
       false,
       {200, 0, 260}},
      {"three warpgroups with products of factors, one of them without rows, laps of all slots",
       fields("1x128", "128x128", tile("192", "128", "3")),
       {{"m", 300}, {"n", 200}, {"k", 1040}, {"num_sms", 1}, {"sfa_stride_m", 1}, {"sfa_stride_k", 300}},
       Fill::standard},
      {"the same in groups, c and bias",
       fields("1x128", "128x128",
              tile("192", "128", "2", {{"grouping", "contiguous"}, {"c", "matrix"}, {"bias", "column"}})),
       {{"m", 500}, {"n", 136}, {"k", 400}, {"l", 3}, {"num_sms", 2}},
       Fill::standard,
       false,
       {200, 0, 260}},
      {"transposed tiles: columns have factors of their own",
       fields("1x128", "128x128", tile("48", "192", "4", {{"swap_ab", "on"}})),
       {{"m", 100}, {"n", 500}, {"k", 640}, {"sfa_stride_m", 1}, {"sfa_stride_k", 100}},
       Fill::standard},
      {"k in parts, one of them without a step, matrices",
       fields("1x128", "128x128", tile("64", "128", "3", {{"split_k", "4"}, {"d_dtype", "f32"}})),
       {{"m", 70}, {"n", 130}, {"k", 384}, {"l", 2}},
       Fill::standard},
      {"three parts of k that send each other their sums, few rows transposed, a d that tma cannot store",
       fields("1x128", "128x128", tile("48", "64", "4", {{"swap_ab", "on"}, {"split_k", "3"}, {"cluster_n", "2"}})),
       {{"m", 40}, {"n", 200}, {"k", 1008}, {"ldd", 203}},
       Fill::standard},
      {"two parts that send each other sums for two panels, c",
       fields("1x128", "128x128", tile("64", "128", "3", {{"split_k", "2"}, {"c", "matrix"}, {"d_dtype", "f32"}})),
       {{"m", 100}, {"n", 500}, {"k", 640}},
       Fill::standard},
      {"two parts that fetch each other's sums: two blocks a warpgroup",
       fields("1x128", "128x128", tile("256", "64", "3", {{"split_k", "2"}})),
       {{"m", 270}, {"n", 130}, {"k", 640}},
       Fill::standard},
      {"ping-pong, both of rows, every stride",
       fields("1x128", "1x128", tile("128", "64", "4", {{"kernel_schedule", "ping_pong"}, {"d_dtype", "f16"}})),
       {{"m", 300},
        {"n", 200},
        {"k", 400},
        {"l", 2},
        {"sfa_stride_m", 5},
        {"sfa_stride_k", 1},
        {"sfa_stride_l", 1600},
        {"sfb_stride_n", 3},
        {"sfb_stride_k", 700},
        {"sfb_stride_l", 2900}},
       Fill::standard},
      {"both of squares, c and bias",
       fields("128x128", "128x128", tile("192", "64", "3", {{"c", "matrix"}, {"bias", "column"}})),
       {{"m", 400}, {"n", 150}, {"k", 256}},
       Fill::standard},
      {"few rows of square factors, transposed",
       fields("128x128", "1x128", tile("16", "64", "5", {{"swap_ab", "on"}, {"b_dtype", "e5m2"}})),
       {{"m", 9}, {"n", 200}, {"k", 1024}},
       Fill::standard},
      {"d with factors, ragged, rows of factors in a pitch",
       fields("1x128", "128x128",
              tile("128", "128", "3", {{"d_dtype", "e4m3"}, {"d_scale_block", "1x128"}, {"bias", "column"}})),
       {{"m", 150}, {"n", 300}, {"k", 272}, {"sfd_stride_m", 5}, {"num_sms", 2}},
       Fill::standard},
      {"d with factors that are powers of two, columns of them side by side, ping-pong, d that tma cannot store",
       fields("1x128", "1x128",
              tile("128", "128", "4",
                   {{"d_dtype", "e4m3"},
                    {"d_scale_block", "1x128"},
                    {"d_scale_values", "pow2"},
                    {"kernel_schedule", "ping_pong"}})),
       {{"m", 201}, {"n", 250}, {"k", 400}, {"l", 2}, {"ldd", 251}, {"sfd_stride_m", 1}, {"sfd_stride_n", 204}},
       Fill::standard},
      {"d with factors of exact sums: the bits of quantize_blocks; one copy of the epilogue",
       {{"d_dtype", "e4m3"},
        {"d_scale_block", "1x128"},
        {"tile_m", "128"},
        {"tile_n", "256"},
        {"stages", "3"},
        {"cluster_m", "1"},
        {"c", "matrix"},
        {"activation", "relu"}},
       {{"m", 140}, {"n", 400}, {"k", 72}}},
      {"d with factors, k in parts, a kernel of 16-bit operands",
       {{"d_dtype", "e4m3"},
        {"d_scale_block", "1x128"},
        {"tile_m", "64"},
        {"tile_n", "256"},
        {"stages", "4"},
        {"split_k", "2"},
        {"dtype", "f16"},
        {"activation", "silu"}},
       {{"m", 70}, {"n", 500}, {"k", 328}},
       Fill::standard},
      {"d with factors, a gate in two instructions, a list of rows in groups",
       fields("1x128", "128x128",
              tile("128", "256", "3",
                   {{"d_dtype", "e4m3"},
                    {"d_scale_block", "1x128"},
                    {"gate", "interleaved"},
                    {"interleave", "8"},
                    {"grouping", "contiguous"},
                    {"gather", "rows"}})),
       {{"m", 300}, {"n", 336}, {"k", 400}, {"l", 4}, {"a_rows", 90}, {"num_sms", 3}},
       Fill::standard,
       false,
       {77, 0, 129, 60}},
      {"no products, factors of zeros",
       fields("1x128", "128x128", tile("64", "128", "2", {{"d_dtype", "e4m3"}, {"d_scale_block", "1x128"}})),
       {{"m", 70}, {"n", 72}, {"k", 0}}},
      {"no products", fields("1x128", "128x128", tile("64", "64", "2")), {{"m", 70}, {"n", 72}, {"k", 0}}},
  };
  check_under_every_schedule(cases, 3);
}

}  // namespace
}  // namespace tessera

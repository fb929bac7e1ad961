// Products of groups on sm_90a, in the emulator under every schedule, followed by its race detector, and compared with
// float64: a group's rows are its own, rows of no group are left as they were.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_run.h"
#include "tests/support/sample.h"

namespace tessera {
namespace {

using namespace gemm_run;

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields tile(const char* grouping, const char* m, const char* n, const char* stages, const Fields& others = {}) {
  return with_pins({{"grouping", grouping}, {"tile_m", m}, {"tile_n", n}, {"stages", stages}},
                   {{"cluster_m", "1"}, {"cluster_n", "1"}, {"kernel_schedule", "cooperative"}}, others);
}

const Fields kFactors{{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "128x128"}};
Fields with_factors(Fields others) {
  others.insert(others.begin(), kFactors.begin(), kFactors.end());
  return others;
}

const Case kCases[] = {
    {"contiguous: empty groups at every place, one row, more than a tile, rows behind the last one",
     tile("contiguous", "128", "64", "3"),
     {{"m", 340}, {"n", 136}, {"k", 136}, {"l", 7}, {"num_sms", 3}},
     Fill::integer,
     false,
     {0, 1, 130, 0, 64, 137, 0}},
    {"masked: rows of matrices that are not full, ping-pong, c and bias",
     tile("masked", "64", "64", "4",
          {{"kernel_schedule", "ping_pong"}, {"c", "matrix"}, {"bias", "column"}, {"activation", "relu"}}),
     {{"m", 150}, {"n", 72}, {"k", 200}, {"l", 5}, {"num_sms", 2}},
     Fill::integer,
     false,
     {3, 0, 150, 64, 65}},
    {"contiguous: a cluster that shares b, one CTA of which has rows of another group, f32",
     tile("contiguous", "128", "96", "2", {{"cluster_m", "2"}, {"d_dtype", "f32"}, {"dtype", "f16"}}),
     {{"m", 420}, {"n", 100}, {"k", 72}, {"l", 3}, {"num_sms", 4}, {"ldd", 104}},
     Fill::integer,
     false,
     {100, 257, 40}},
    {"contiguous: columns left over that are no whole panel, of rows before another group's",
     tile("contiguous", "64", "72", "3"),
     {{"m", 150}, {"n", 200}, {"k", 136}, {"l", 3}, {"num_sms", 3}},
     Fill::integer,
     false,
     {33, 0, 100}},
    {"contiguous: factors of rows that begin anywhere, factors of squares of each group's b",
     with_factors(tile("contiguous", "128", "128", "3")),
     {{"m", 300}, {"n", 264}, {"k", 384}, {"l", 4}, {"num_sms", 2}},
     Fill::standard,
     false,
     {77, 0, 129, 50}},
    {"contiguous: rows of d that tma cannot store, a cluster that shares a, d with addends",
     tile("contiguous", "128", "64", "3", {{"cluster_n", "2"}, {"bias", "group"}, {"c", "matrix"}}),
     {{"m", 210}, {"n", 77}, {"k", 136}, {"l", 4}, {"ldd", 81}, {"ldc", 79}, {"num_sms", 4}},
     Fill::integer,
     false,
     {70, 3, 0, 129}},
    {"masked: factors by bulk copies, squares of a too, few rows in each matrix",
     with_factors(tile("masked", "64", "128", "4", {{"m", "16"}, {"a_scale_block", "128x128"}})),
     {{"m", 200}, {"n", 264}, {"k", 512}, {"l", 6}, {"num_sms", 3}},
     Fill::standard,
     false,
     {1, 16, 0, 130, 2, 0}},
    {"masked: both of rows, 8-bit d, ping-pong, a cluster",
     tile("masked", "128", "64", "3",
          {{"dtype", "e4m3"},
           {"b_dtype", "e5m2"},
           {"a_scale_block", "1x128"},
           {"b_scale_block", "1x128"},
           {"d_dtype", "e4m3"},
           {"kernel_schedule", "ping_pong"},
           {"cluster_m", "2"}}),
     {{"m", 300}, {"n", 144}, {"k", 272}, {"l", 3}, {"num_sms", 2}},
     Fill::standard,
     false,
     {300, 5, 130}},
    {"masked: mn-major a and b, three warpgroups",
     tile("masked", "192", "80", "2", {{"a_layout", "mn"}, {"b_layout", "mn"}}),
     {{"m", 200}, {"n", 96}, {"k", 100}, {"l", 3}, {"num_sms", 2}},
     Fill::integer,
     false,
     {200, 1, 70}},
    {"contiguous: 8-bit types with a factor of each tensor, two blocks a warpgroup",
     tile("contiguous", "256", "96", "3", {{"dtype", "e5m2"}, {"d_dtype", "f16"}, {"activation", "silu"}}),
     {{"m", 400}, {"n", 200}, {"k", 272}, {"l", 3}, {"num_sms", 2}},
     Fill::standard,
     false,
     {10, 290, 100}},
    {"contiguous: rows by a list, some of none, rows of a in any order, k that ends inside 16 bytes",
     tile("contiguous", "128", "64", "4", {{"gather", "rows"}, {"cluster_m", "2"}}),
     {{"m", 300}, {"n", 72}, {"k", 204}, {"l", 4}, {"a_rows", 90}, {"lda", 208}, {"ldb", 208}, {"num_sms", 4}},
     Fill::integer,
     false,
     {77, 0, 129, 60}},
    {"masked: rows and their factors by a list, ping-pong",
     with_factors(tile("masked", "64", "64", "5", {{"gather", "rows"}, {"kernel_schedule", "ping_pong"}})),
     {{"m", 140}, {"n", 136}, {"k", 400}, {"l", 4}, {"a_rows", 200}, {"num_sms", 2}},
     Fill::standard,
     false,
     {3, 130, 0, 64}},
    {"contiguous: rows and their factors by a list, column by column, two blocks a warpgroup, few slots",
     with_factors(tile("contiguous", "256", "96", "2", {{"gather", "rows"}, {"d_dtype", "f32"}})),
     {{"m", 400},
      {"n", 200},
      {"k", 512},
      {"l", 3},
      {"a_rows", 64},
      {"sfa_stride_m", 1},
      {"sfa_stride_k", 64},
      {"num_sms", 2}},
     Fill::standard,
     false,
     {10, 290, 90}},
    {"no products",
     tile("contiguous", "64", "64", "2"),
     {{"m", 140}, {"n", 72}, {"k", 0}, {"l", 3}},
     Fill::integer,
     false,
     {70, 0, 1}},
    {"no rows at all",
     tile("contiguous", "64", "64", "2"),
     {{"m", 140}, {"n", 72}, {"k", 64}, {"l", 3}},
     Fill::integer,
     false,
     {0, 0, 0}},
};

TEST_CASE("products of groups under every schedule") { check_under_every_schedule(kCases, 3); }

}  // namespace
}  // namespace tessera

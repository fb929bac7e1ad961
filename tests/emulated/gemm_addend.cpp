// Products that add beta * c on sm_90a, in the emulator under every schedule, followed by its race detector, and
// compared with float64: rows of c that begin on 16 bytes and end within, and rows that begin anywhere.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_run.h"
#include "tests/support/sample.h"

namespace tessera {
namespace {

using namespace gemm_run;

Fields tile(const char* m, const char* n, const Fields& others = {}) {
  return with_pins({{"c", "matrix"}, {"tile_m", m}, {"tile_n", n}},
                   {{"cluster_m", "1"},
                    {"cluster_n", "1"},
                    {"split_k", "1"},
                    {"stages", "3"},
                    {"swap_ab", "off"},
                    {"kernel_schedule", "cooperative"}},
                   others);
}

const Case kCases[] = {
    {"four panels and two ahead, rows that end within 16 bytes, two tiles a CTA",
     tile("128", "256"),
     {{"m", 150}, {"n", 390}, {"k", 136}, {"ldc", 392}, {"num_sms", 2}}},
    {"three warpgroups, columns left over that are no whole panel, d over c",
     tile("192", "176", {{"dtype", "f16"}}),
     {{"m", 200}, {"n", 270}, {"k", 72}, {"ldc", 272}, {"ldd", 272}, {"l", 2}, {"num_sms", 3}},
     Fill::integer,
     true},
    {"two blocks of rows a warpgroup in turn, no panel ahead, d over c",
     tile("128", "160", {{"kernel_schedule", "ping_pong"}}),
     {{"m", 300}, {"n", 200}, {"k", 72}, {"ldc", 200}, {"ldd", 200}, {"num_sms", 1}},
     Fill::integer,
     true},
    {"the same of rows that begin anywhere, an activation",
     tile("128", "112", {{"kernel_schedule", "ping_pong"}, {"bias", "column"}, {"activation", "silu"}}),
     {{"m", 200}, {"n", 150}, {"k", 72}, {"ldc", 153}, {"num_sms", 1}},
     Fill::standard},
    {"fp32, rows that end within 16 bytes",
     tile("128", "104", {{"d_dtype", "f32"}}),
     {{"m", 140}, {"n", 206}, {"k", 72}, {"ldc", 208}, {"num_sms", 2}}},
    {"d transposed, rows left over, rows that end within 16 bytes, d over c",
     tile("104", "128", {{"swap_ab", "on"}}),
     {{"m", 203}, {"n", 141}, {"k", 136}, {"ldc", 144}, {"ldd", 144}, {"num_sms", 2}},
     Fill::integer,
     true},
    {"an 8-bit d, whose c is twice as wide",
     tile("64", "112", {{"dtype", "e4m3"}, {"d_dtype", "e4m3"}}),
     {{"m", 70}, {"n", 240}, {"k", 144}, {"ldc", 243}}},
    {"a panel of c for each slot of the whole tile, products of factors",
     with_factors(tile("128", "192", {{"stages", "2"}})),
     {{"m", 200}, {"n", 264}, {"k", 512}, {"num_sms", 2}},
     Fill::standard},
    {"sums of other parts of k that lie where panels will",
     with_factors(tile("64", "96", {{"split_k", "3"}})),
     {{"m", 140}, {"n", 130}, {"k", 1408}, {"ldc", 136}},
     Fill::standard},
    {"parts of k that fetch their sums, a cluster",
     tile("128", "128", {{"split_k", "2"}, {"cluster_m", "2"}}),
     {{"m", 300}, {"n", 140}, {"k", 200}, {"ldc", 144}}},
    {"contiguous groups, d over c: rows of the next group are not touched",
     tile("64", "72", {{"grouping", "contiguous"}}),
     {{"m", 133}, {"n", 200}, {"k", 136}, {"l", 3}, {"ldc", 200}, {"ldd", 200}, {"num_sms", 3}},
     Fill::integer,
     true,
     {33, 0, 100}},
    {"weights of 4 bits, rows of d that end within 16 bytes",
     {{"b_dtype", "mxfp4"},
      {"c", "matrix"},
      {"mma_kind", "wgmma.f16"},
      {"tile_m", "32"},
      {"tile_n", "128"},
      {"split_k", "1"}},
     {{"m", 37}, {"n", 204}, {"k", 416}, {"ldc", 208}}},
};

TEST_CASE("products over c under every schedule") { check_under_every_schedule(kCases, 4); }

}  // namespace
}  // namespace tessera

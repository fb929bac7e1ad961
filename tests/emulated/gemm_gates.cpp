// Gates in the epilogue of products on sm_90a (wgmma), in the emulator under every schedule, followed by its race
// detector, and compared with float64. Share of the whole run: three seconds.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_run.h"
#include "tests/support/sample.h"

namespace tessera {
namespace {

using namespace gemm_run;

Fields gated(const char* interleave, const char* m, const char* n, const char* stages, const Fields& others = {}) {
  return with_pins(
      {{"gate", "interleaved"}, {"interleave", interleave}, {"tile_m", m}, {"tile_n", n}, {"stages", stages}},
      {{"cluster_m", "1"}, {"cluster_n", "1"}, {"kernel_schedule", "cooperative"}}, others);
}

Fields dual(const char* m, const char* n, const char* stages, const Fields& others = {}) {
  Fields all = gated("1", m, n, stages, others);
  all[0].second = "dual";
  return all;
}

const Case kCases[] = {
    {"one warpgroup, gpt-oss' gate with a limit and a bias; d that tma cannot store",
     gated("8", "64", "64", "3", {{"gate_activation", "gpt_oss"}, {"gate_limit", "2"}, {"bias", "column"}}),
     {{"m", 77}, {"n", 144}, {"k", 136}, {"ldd", 75}},
     Fill::standard},
    {"in turns of eight, a cluster, more tiles than CTAs",
     gated("8", "128", "128", "3", {{"cluster_m", "2"}, {"b_layout", "mn"}}),
     {{"m", 300}, {"n", 272}, {"k", 200}, {"l", 2}, {"num_sms", 2}},
     Fill::standard},
    {"in turns of sixteen, ping-pong, f32, a bias; rows of d in a pitch",
     gated("16", "128", "96", "4",
           {{"kernel_schedule", "ping_pong"}, {"d_dtype", "f32"}, {"dtype", "f16"}, {"bias", "column"}}),
     {{"m", 300}, {"n", 192}, {"k", 72}, {"ldd", 108}, {"num_sms", 2}},
     Fill::standard},
    {"in turns of a whole tile: factors of squares are those of gate or up alone",
     with_factors(gated("64", "128", "128", "3")),
     {{"m", 200}, {"n", 384}, {"k", 400}},
     Fill::standard},
    {"two blocks a warpgroup, factors of squares anywhere among a tile's columns, 8-bit d, a bias",
     with_factors(gated("8", "256", "96", "2", {{"d_dtype", "e4m3"}, {"bias", "column"}})),
     {{"m", 300}, {"n", 208}, {"k", 256}},
     Fill::standard},
    {"three warpgroups, factors of tensors",
     gated("16", "192", "64", "3", {{"dtype", "e5m2"}, {"d_dtype", "f16"}, {"gate_activation", "gelu_tanh"}}),
     {{"m", 200}, {"n", 160}, {"k", 272}},
     Fill::standard},
    {"contiguous groups, rows by a list with their factors",
     with_factors(gated("8", "128", "64", "4", {{"grouping", "contiguous"}, {"gather", "rows"}})),
     {{"m", 300}, {"n", 144}, {"k", 272}, {"l", 4}, {"a_rows", 90}, {"num_sms", 3}},
     Fill::standard,
     false,
     {77, 0, 129, 60}},
    {"masked groups, last rows of which stay within their matrix, ping-pong, a bias of each group",
     gated("32", "64", "128", "4", {{"grouping", "masked"}, {"kernel_schedule", "ping_pong"}, {"bias", "group"}}),
     {{"m", 150}, {"n", 192}, {"k", 200}, {"l", 4}, {"num_sms", 2}},
     Fill::standard,
     false,
     {3, 0, 150, 65}},
    {"two matrices, one warpgroup, gelu with a limit; d that tma cannot store",
     dual("64", "64", "3", {{"gate_activation", "gelu"}, {"gate_limit", "3"}}),
     {{"m", 77}, {"n", 75}, {"k", 136}},
     Fill::standard},
    {"two matrices, n contiguous, a cluster of which each CTA loads one, batches, more tiles than CTAs",
     dual("128", "128", "3", {{"cluster_m", "2"}, {"b_layout", "mn"}}),
     {{"m", 300}, {"n", 136}, {"k", 200}, {"l", 2}, {"num_sms", 2}},
     Fill::standard},
    {"two matrices of 8 bits, each with its factor, three warpgroups, a cluster of four",
     dual("192", "64", "3", {{"dtype", "e4m3"}, {"d_dtype", "f16"}, {"cluster_m", "4"}}),
     {{"m", 800}, {"n", 80}, {"k", 272}},
     Fill::standard},
    {"two matrices of contiguous groups, rows by a list, f32, ping-pong",
     dual("128", "96", "4",
          {{"grouping", "contiguous"}, {"gather", "rows"}, {"d_dtype", "f32"}, {"kernel_schedule", "ping_pong"}}),
     {{"m", 300}, {"n", 100}, {"k", 136}, {"l", 4}, {"a_rows", 90}, {"num_sms", 3}},
     Fill::standard,
     false,
     {77, 0, 129, 60}},
    {"no products", gated("8", "64", "64", "2"), {{"m", 70}, {"n", 96}, {"k", 0}}},
};

TEST_CASE("gates of products by wgmma under every schedule") { check_under_every_schedule(kCases, 4); }

}  // namespace
}  // namespace tessera

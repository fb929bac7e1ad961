// What the planner refuses, in words: what no kernel exists for, pins that break a rule, formats that go with nothing.
#include <doctest/doctest.h>

#include "generator/candidates.h"
#include "generator/facts.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"
#include "tests/generator/refusal.h"

using namespace tessera;
namespace plan_refusals_test {

TEST_CASE("what no kernel exists for is refused with what exists") {
  CHECK(unsupported("fmha", {{"head_dim", "40"}}) ==
        "fmha has no kernel for head_dim 40: there are kernels for 16, 32, 64, 72, 80, 96, 128, 160, 192/128, 192, 256 "
        "and 512");
  CHECK(unsupported("fmha", {{"head_dim", "128"}, {"head_dim_v", "64"}}) ==
        "fmha has no kernel for head_dim 128/64: there are kernels for 16, 32, 64, 72, 80, 96, 128, 160, 192/128, 192, "
        "256 "
        "and 512");
  CHECK(unsupported("fmha", {{"dtype", "f32"}}) ==
        "fmha has no kernel for dtype f32: there are kernels for bf16, f16 and e4m3");
  for (const char* const arch : {"sm_90a", "sm_100a"})
    CHECK(unsupported("fmha", {{"arch", arch}, {"sink", "per_head"}, {"output", "unnormalized"}}) ==
          "sink per_head with output unnormalized: nothing is divided, so that a sink has no place: take sink none, "
          "and add exp(sink - row_max) to row_sum where the rows are divided");
  for (const char* const arch : {"sm_90a", "sm_100a"})
    CHECK(unsupported("fmha", {{"arch", arch}, {"window", "chunked"}}) ==
          "window chunked with mask none: a query sees the keys of its chunk up to itself: take mask causal");
  CHECK(unsupported("fmha",
                    {{"arch", "sm_100a"}, {"head_dim", "512"}, {"kv_pools", "sparse_window"}, {"softcap", "tanh"}}) ==
        "softcap tanh with kv_pools sparse_window: there is no kernel for it: take none");
  CHECK(unsupported("fmha", {{"tree_mask", "bits"}, {"mask", "causal"}}) ==
        "tree_mask bits with mask causal: its bits say what queries see of each other: take mask none");
  CHECK(unsupported("fmha", {{"tree_mask", "bits"}, {"window", "sliding"}}) ==
        "tree_mask bits with window sliding: a query's place is not its number: take window none");
  CHECK(unsupported("fmha", {{"arch", "sm_80"}}) ==
        "fmha has no kernel for arch sm_80: there is one for sm_90a, and for sm_100 and sm_103 with suffix a or f, and "
        "for sm_120 and sm_121 with suffix a or f");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"dtype", "e4m3"}, {"head_dim", "64"}, {"tile_m", "16"}}) ==
        "fmha has no kernel for dtype e4m3 with tile_m 16 on sm_120a: take tile_m 64");
  CHECK(unsupported("fmha", {{"arch", "sm_121f"}, {"head_dim", "512"}}) ==
        "fmha has no kernel for head_dim_v 512 (of the smallest tile, 64x16 with 1 stage, a thread would hold 264 "
        "registers of S and O, 255 there are; it would take 98,368 bytes of shared memory, 101,376 there are) on "
        "sm_121f");
  // Values that are keys: 64 rows of Q of 576 columns and a slot of 16 keys, and eight barriers.
  static_assert(2 * 576 * (64 + 16) + 64 == 92224);
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"head_dim", "576"}, {"head_dim_v", "512"}, {"v_is_k", "on"}}) ==
        "fmha has no kernel for v_is_k (of the smallest tile, 64x16 with 1 stage, a thread would hold 264 registers of "
        "S and O, 255 there are; it would take 92,224 bytes of shared memory, 101,376 there are) on sm_120a");
  CHECK(unsupported("fmha", {{"arch", "sm_90a"}, {"head_dim", "512"}, {"mma_kind", "mma.f16"}}) ==
        "fmha has no kernel for head_dim_v 512 (of the smallest tile, 64x16 with 1 stage, a thread would hold 264 "
        "registers of S and O, 255 there are; it would take 98,368 bytes of shared memory, 232,448 there are) with "
        "mma_kind mma.f16: take wgmma.f16");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"mma_kind", "wgmma.f16"}}) ==
        "fmha has no kernel for mma_kind wgmma.f16 with dtype bf16 on sm_120a: take mma.f16");
  CHECK(unsupported("fmha", {{"arch", "sm_121a"}, {"dtype", "e4m3"}, {"mma_kind", "mma.f16"}}) ==
        "fmha has no kernel for mma_kind mma.f16 with dtype e4m3 on sm_121a: take mma.f8");
  CHECK(unsupported("fmha", {{"arch", "sm_120f"}, {"dtype", "nvfp4"}, {"mma_kind", "mma.f16"}}) ==
        "fmha has no kernel for mma_kind mma.f16 with dtype nvfp4: take mma.mxf4nvf4");
  CHECK(unsupported("fmha", {{"mma_kind", "mma.f8"}}) ==
        "fmha has no kernel for mma_kind mma.f8 with dtype bf16 on sm_90a: take wgmma.f16 or mma.f16");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"tile_m", "16"}, {"v_layout", "k"}}) ==
        "fmha has no kernel for v_layout k with tile_m 16 on sm_120a: take tile_m 64");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"tile_m", "16"}, {"kv_pools", "sparse_window"}}) ==
        "fmha has no kernel for kv_pools with tile_m 16 on sm_120a: take tile_m 64");
  CHECK(unsupported("fmha", {{"arch", "sm_120a"}, {"tile_m", "128"}, {"tile_n", "128"}, {"stages", "2"}}) ==
        "head_dim 128, tile 128x128, 2 stages, mma.sync: 163,968 bytes of shared memory, 101,376 allowed: drop a "
        "stage");
}

TEST_CASE("an illegal pin is refused with the rule that it breaks") {
  fmha::Config large{
      .facts = {.head_dim = 256, .head_dim_v = 256}, .tile_m = 128, .tile_n = 64, .stages = 3, .q_stages = 1};
  CHECK(unsupported("fmha", {{"head_dim", "256"}, {"tile_m", "128"}, {"tile_n", "64"}, {"stages", "3"}}) ==
        "head_dim 256, tile 128x64, 3 stages: " + grouped(fmha::smem_layout(large).total_bytes) +
            " bytes of shared memory, 232,448 allowed: drop a stage");
  CHECK(unsupported("fmha", {{"head_dim", "256"}, {"tile_m", "192"}, {"tile_n", "64"}, {"stages", "1"}}) ==
        "head_dim 256, tile 192x64, 1 stage: 176 registers a thread for S, P and O, 128 allowed: take a smaller tile_m "
        "or tile_n");
  CHECK(unsupported("fmha", {{"tile_m", "96"}, {"tile_n", "128"}}) ==
        "head_dim 128, tile 96x128, 2 stages: tile_m 96, a multiple of 64 needed (wgmma M)");
  CHECK(unsupported("fmha", {{"tile_m", "320"}, {"tile_n", "128"}}) ==
        "head_dim 128, tile 320x128, 2 stages: tile_m 320, at most 256 allowed (consumer warpgroups)");
  CHECK(unsupported("fmha", {{"tile_n", "24"}, {"tile_m", "128"}}) ==
        "head_dim 128, tile 128x24, 2 stages: tile_n 24, a multiple of 16 needed (wgmma K of P V)");
  CHECK(unsupported("fmha", {{"tile_n", "2147483647"}}) ==
        "head_dim 128, tile 192x2147483647, 2 stages: tile_n 2,147,483,647, a multiple of 16 needed (wgmma K of P V)");
  CHECK(unsupported("fmha", {{"stages", "9"}, {"tile_m", "64"}}) ==
        "head_dim 128, tile 64x80, 9 stages: 9 stages, 1 to 8 allowed");
  // Of many candidates each reason is told once.
  const Refusal all = refusal("fmha", {{"tile_n", "24"}});
  REQUIRE(all.notes.size() >= 1);
  CHECK(all.notes.front().ends_with(" more candidates for the same reason"));
  const Refusal product = refusal("gemm", {{"arch", "sm_100a"}, {"dtype", "nvfp4"}, {"cluster_m", "3"}});
  CHECK(product.message ==
        "gemm nvfp4, tile 128x256, 5 stages, 2 accumulators, pair along m: cluster_m 3, 1, 2 or 4 allowed (a pair of "
        "CTAs, or two that share b)");
  REQUIRE(product.notes.size() == 2);
  CHECK(product.notes[0] == "19 more candidates for the same reason");
  CHECK(product.notes[1] ==
        "tile 16x128 transposed, 10 stages, 2 accumulators, pair along n and 15 more: cluster_m 3, at "
        "most 1 allowed (with few rows a pair lies along n)");
}

TEST_CASE("block-scaled operators refuse what no format has, and name both sides") {
  CHECK(unsupported("quantize", {{"format", "mxfp4"}, {"global_scale", "given"}}) ==
        "quantize bf16 to mxfp4, plain scales, global scale given, 256 threads: a global scale beside scales of type "
        "ue8m0 for 32 elements: it goes with ue4m3 for 16, which is nvfp4; set global_scale none");
  CHECK(
      unsupported("quantize", {{"scale_rounding", "floor"}}) ==
      "quantize bf16 to nvfp4, plain scales, floor, 256 threads: scale_rounding floor beside scales of type ue4m3 for "
      "16 elements: it is a choice of ue8m0 for 32; leave it at up");
  CHECK(unsupported("quantize", {{"dtype", "e4m3"}}) ==
        "quantize has no kernel for dtype e4m3: there are kernels for f32, f16 and bf16");
  CHECK(unsupported("quantize", {{"threads", "100"}}) ==
        "quantize bf16 to nvfp4, plain scales, 100 threads: 100 threads, a multiple of 32 needed (warp)");
  CHECK(unsupported("dequantize", {{"global_scale", "amax"}})
            .ends_with("global_scale amax is found while quantising: give the number that was written then, with "
                       "global_scale given"));
  CHECK(
      unsupported("gemv", {{"b_format", "mxfp8_e4m3"}}) ==
      "gemv has no kernel for a of nvfp4 (scales ue4m3, one for 16 along k) and b of mxfp8_e4m3 (scales ue8m0, one for "
      "32 along k): blocks of both must be the same elements of k; mxfp4 and mxfp8 go together, nvfp4 with itself");
  CHECK(unsupported("gemv", {{"format", "mxfp8_e4m3"}, {"b_format", "mxfp6_e2m3"}}) ==
        "gemv has no kernel for mxfp6_e2m3: take gemm with n = 1, which multiplies it on sm_100, sm_103, sm_120 and "
        "sm_121");
  CHECK(
      unsupported("gemv", {{"scale_form", "tile"}, {"warp_rows", "2"}}) ==
      "gemv nvfp4, tile scales, to f16, 2 rows a warp, 1 warp a row: 2 rows of a warp, 4 needed: with scales in tiles "
      "a warp has four rows that lie 32 apart");
  CHECK(unsupported("gemv", {{"k_warps", "3"}}).ends_with("3 warps of a row: 1, 2, 4 or 8 allowed"));
  CHECK(
      unsupported("convert_scales", {{"arch", "sm_80"}}) ==
      "convert_scales has no kernel for arch sm_80: there is one for sm_90a, and for sm_100, sm_103, sm_120 and sm_121 "
      "with suffix a or f");
}

}  // namespace plan_refusals_test

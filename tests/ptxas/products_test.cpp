// Block-scaled operators and products on tcgen05 beyond what every_fact() has: every kind for every target, groups,
// quantised results of every kind of product, the block-scaled operators for every target of Blackwell. No spill, no
// stack, no warning or note, no shared memory that the plan does not list.
#include <doctest/doctest.h>

#include "tests/generator/problems.h"
#include "tests/ptxas/complaint.h"

using namespace tessera;

namespace {

constexpr const char* kTargets[] = {"sm_100a", "sm_103a", "sm_100f", "sm_103f"};

/// One pair of types of each kind, and the mixed ones of two kinds.
struct Types {
  const char* a;
  const char* b;
};
constexpr Types kTypes[] = {{"bf16", "bf16"},
                            {"f16", "f16"},
                            {"tf32", "tf32"},
                            {"e4m3", "e5m2"},
                            {"s8", "u8"},
                            {"nvfp4", "nvfp4"},
                            {"mxfp4", "mxfp4"},
                            {"mxfp8_e4m3", "mxfp4"},
                            {"mxfp4", "mxfp8_e5m2"},
                            {"mxfp8_e5m2", "mxfp8_e4m3"},
                            {"mxfp6_e3m2", "mxfp6_e2m3"}};

bool is_integer(const Types& types) { return std::string_view(types.a) == "s8"; }

class Kernels {
 public:
  /// On the next target in turn, unless one is given.
  void add(const Types& types, Fields fields, const char* target = nullptr) {
    if (is_integer(types) && target != nullptr && std::string_view(target) != "sm_100a") return;
    fields.emplace_back("arch", is_integer(types) ? "sm_100a" : target != nullptr ? target : kTargets[turn_++ % 4]);
    fields.emplace_back("dtype", types.a);
    fields.emplace_back("b_dtype", types.b);
    add("gemm", fields);
  }
  void add(const char* op, const Fields& fields) {
    const Problem problem = problem_of(op, fields);
    all_.try_emplace(planned_kernel(problem), problem);
  }
  const std::map<std::string, Problem>& all() const { return all_; }

 private:
  std::size_t turn_ = 0;
  std::map<std::string, Problem> all_;
};

}  // namespace

TEST_CASE("nvrtc: every kind of product on every target, in groups, with quantised results") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  Kernels kernels;
  constexpr const char* kQuantized[] = {"nvfp4", "mxfp8_e4m3", "mxfp4", "mxfp8_e5m2"};
  std::size_t turn = 0;
  for (const Types& types : kTypes) {
    for (const char* const target : kTargets) kernels.add(types, {}, target);
    for (const char* const gate : {"none", "interleaved"})
      kernels.add(types, {{"d_dtype", kQuantized[turn++ % 4]}, {"gate", gate}});
    for (const char* const grouping : {"contiguous", "masked"})
      for (const char* const pair : {"1", "2"})
        kernels.add(types, {{"grouping", grouping}, {"tile_m", "128"}, {"cluster_m", pair}});
    kernels.add(types, {{"grouping", "masked"}, {"gate", "interleaved"}, {"d_dtype", kQuantized[turn++ % 4]}});
    kernels.add(types, {{"tile_m", "64"}, {"tile_n", "128"}, {"cluster_m", "1"}, {"cluster_n", "2"}});
  }
  for (const char* const type : {"bf16", "tf32", "e4m3", "s8"})
    kernels.add({type, type}, {{"a_layout", "mn"}, {"b_layout", "mn"}});
  check_all(*compiler, kernels.all());
  CHECK(kernels.all().size() >= 95);
}

TEST_CASE("nvrtc: block-scaled operators for every target of Blackwell, and with the tensor's largest magnitude") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  Kernels kernels;
  constexpr const char* kOthers[] = {"sm_100a", "sm_103a", "sm_121a", "sm_100f", "sm_103f", "sm_120f", "sm_121f"};
  std::size_t turn = 0;
  // Each for sm_120a, and for one of the others.
  const auto add = [&](const char* op, Fields fields) {
    for (const char* const arch : {"sm_120a", kOthers[turn++ % std::size(kOthers)]}) {
      fields.emplace_back("arch", arch);
      kernels.add(op, fields);
    }
  };
  constexpr std::pair<const char*, const char*> kMxFormats[] = {
      {"mxfp4", "auto"}, {"mxfp8_e4m3", "auto"}, {"mxfp4", "mxfp8_e4m3"}, {"mxfp8_e5m2", "mxfp4"}};
  for (const char* const form : {"plain", "tile"})
    for (const char* const dtype : {"f32", "f16", "bf16"}) {
      for (const char* const format : {"nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3"}) {
        add("quantize", {{"format", format}, {"dtype", dtype}, {"scale_form", form}});
        add("dequantize", {{"format", format}, {"dtype", dtype}, {"scale_form", form}});
      }
      for (const char* const g : {"given", "amax"})
        add("quantize", {{"global_scale", g}, {"dtype", dtype}, {"scale_form", form}});
      add("gemv", {{"dtype", dtype}, {"scale_form", form}});
      for (const auto& [a, b] : kMxFormats) {
        add("gemv", {{"dtype", dtype}, {"scale_form", form}, {"format", a}, {"b_format", b}});
        kernels.add("gemv", {{"dtype", dtype}, {"scale_form", form}, {"format", a}, {"b_format", b}});  // sm_90a
      }
      kernels.add("quantize", {{"global_scale", "amax"}, {"dtype", dtype}, {"scale_form", form}});  // sm_90a
    }
  for (const char* const form : {"plain", "tile"}) add("convert_scales", {{"to", form}});
  for (const char* const dtype : {"f32", "bf16"})
    for (const char* const block : {"128x128", "1x128"}) {
      add("quantize_blocks", {{"dtype", dtype}, {"scale_block", block}});
      kernels.add("quantize_blocks", {{"dtype", dtype}, {"scale_block", block}});  // sm_90a
    }
  check_all(*compiler, kernels.all());
  CHECK(kernels.all().size() >= 208);
}

TEST_CASE("nvrtc: 4-bit weights, packed, and under products of few rows and many") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  Kernels kernels;
  for (const char* const b : {"mxfp4", "nvfp4", "int4"}) {
    kernels.add("pack_weights", {{"format", b}});
    for (const auto& [tile_m, tile_n] : {std::pair("16", "64"), std::pair("16", "128"), std::pair("32", "256"),
                                         std::pair("64", "128"), std::pair("64", "256"), std::pair("128", "256"),
                                         std::pair("192", "128"), std::pair("208", "128"), std::pair("256", "128")})
      for (const char* const d_dtype : {"bf16", "f32"})
        kernels.add(
            "gemm",
            {{"b_dtype", b}, {"mma_kind", "wgmma.f16"}, {"tile_m", tile_m}, {"tile_n", tile_n}, {"d_dtype", d_dtype}});
    for (const auto& [tile_m, tile_n, split_k] :
         {std::tuple("8", "64", "1"), std::tuple("8", "192", "2"), std::tuple("24", "128", "2"),
          std::tuple("8", "384", "1"), std::tuple("32", "384", "2"), std::tuple("16", "512", "1"),
          std::tuple("32", "512", "1")})
      kernels.add(
          "gemm",
          {{"b_dtype", b}, {"mma_kind", "wgmma.f16"}, {"tile_m", tile_m}, {"tile_n", tile_n}, {"split_k", split_k}});
    for (const char* const split_k : {"2", "4"})
      kernels.add(
          "gemm",
          {{"b_dtype", b}, {"mma_kind", "wgmma.f16"}, {"tile_m", "32"}, {"tile_n", "128"}, {"split_k", split_k}});
    for (const auto& [tile_m, tile_n] : {std::pair("8", "384"), std::pair("16", "512"), std::pair("32", "384")})
      kernels.add("gemm", {{"b_dtype", b},
                           {"grouping", "masked"},
                           {"mma_kind", "wgmma.f16"},
                           {"tile_m", tile_m},
                           {"tile_n", tile_n},
                           {"split_k", "1"}});
    kernels.add("gemm", {{"b_dtype", b},
                         {"grouping", "contiguous"},
                         {"gather", "rows"},
                         {"mma_kind", "mma.f16"},
                         {"tile_m", "32"},
                         {"tile_n", "256"},
                         {"split_k", "1"}});
    for (const auto& [tile_m, tile_n, split_k] :
         {std::tuple("8", "64", "1"), std::tuple("8", "128", "2"), std::tuple("16", "128", "4"),
          std::tuple("16", "256", "3"), std::tuple("32", "256", "1"), std::tuple("8", "192", "1"),
          std::tuple("16", "192", "1"), std::tuple("32", "192", "1")})
      kernels.add(
          "gemm",
          {{"b_dtype", b}, {"mma_kind", "mma.f16"}, {"tile_m", tile_m}, {"tile_n", tile_n}, {"split_k", split_k}});
  }
  for (const char* const group : {"32", "64"})
    for (const char* const tile_m : {"16", "128"})
      kernels.add("gemm", {{"dtype", "f16"},
                           {"d_dtype", "f16"},
                           {"b_dtype", "int4"},
                           {"b_group", group},
                           {"zero_points", "given"},
                           {"mma_kind", "wgmma.f16"},
                           {"tile_m", tile_m},
                           {"bias", "column"},
                           {"activation", "silu"}});
  check_all(*compiler, kernels.all());
  CHECK(kernels.all().size() == 124);
}

TEST_CASE("nvrtc: merges of every number of parts at once, for every target of Blackwell and Hopper") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  Kernels kernels;
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"})
    for (const char* const parts : {"2", "8"})
      for (const char* const dtype : {"f32", "bf16"})
        for (const char* const threads : {"128", "256"})
          kernels.add("merge",
                      {{"arch", arch}, {"parts", parts}, {"dtype", dtype}, {"threads", threads}, {"sink", "per_head"}});
  check_all(*compiler, kernels.all());
  CHECK(kernels.all().size() == 40);
}

// The generated header with what latent attention's consumers over 8-bit keys do with registers that the compiler does
// not see.
#include "generator/attention/widened_registers.h"

#include <doctest/doctest.h>

#include <string>

#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {
namespace {

Config config_of(int rows) {
  Config c;
  c.facts.kv_dtype = DType::e4m3;
  c.tile_m = rows;
  c.pack_gqa = rows;
  c.stages = slots(c);
  REQUIRE(why_invalid(c).rule == Rule::ok);
  return c;
}

// A function's statement in one line, as NVRTC reads it.
std::string function_of(const Config& config, const std::string& name) {
  std::string text = widened_registers(config);
  for (std::size_t at; (at = text.find(" \"\n        \"")) != std::string::npos;) text.replace(at, 12, " ");
  const std::size_t at = text.find("void " + name + "(");
  REQUIRE(at != std::string::npos);
  return text.substr(at, text.find("\n  }\n", at) - at);
}

int times_in(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("8-bit latent keys: registers of S^T, O^T, of both halves of A, and of a number for each row of a thread") {
  CHECK(times_in(function_of(config_of(64), "declare"),
                 ".reg .b32 s<32>; .reg .b32 o<128>; .reg .b32 a<16>; "
                 ".reg .b32 w<16>;") == 1);
  CHECK(times_in(function_of(config_of(16), "declare"),
                 ".reg .b32 s<8>; .reg .b32 o<32>; .reg .b32 a<16>; "
                 ".reg .b32 w<4>;") == 1);
}

TEST_CASE("8-bit latent keys: a panel's scores are two groups of two steps, and what reads A is waited for") {
  for (const int rows : {16, 32, 64}) {
    CAPTURE(rows);
    const std::string product = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(rows) + "k16.f32.f16.f16 {s0, s1,";
    const std::string begin = function_of(config_of(rows), "begin_scores"),
                      add = function_of(config_of(rows), "add_scores");
    for (const std::string& panel : {begin, add}) {
      CHECK(times_in(panel, product) == 4);
      CHECK(times_in(panel, "}, {a0, a1, a2, a3}, b0, t, 1, 1, 0;") == 1);
      CHECK(times_in(panel, "}, {a12, a13, a14, a15}, b3, u, 1, 1, 0;") == 1);
      CHECK(times_in(panel, "cvt.rn.f16x2.e4m3x2") == 16);
      CHECK(times_in(panel, "wgmma.fence.sync.aligned;") == 2);
      CHECK(times_in(panel, "wgmma.commit_group.sync.aligned;") == 2);
    }
    CHECK(times_in(begin, "mov.pred t, 0;") == 1);
    CHECK(times_in(begin, "wgmma.wait_group") == 0);
    CHECK(times_in(add, "mov.pred t, 1;") == 1);
    CHECK(times_in(add, "wgmma.wait_group.sync.aligned 1;") == 2);
  }
}

TEST_CASE("8-bit latent keys: a block's values are four tiles of columns in each step of 16 keys") {
  const std::string values = function_of(config_of(32), "add_values");
  CHECK(times_in(values, "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {o0, o1,") == 4);
  CHECK(times_in(values, "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {o48, o49,") == 4);
  CHECK(times_in(values, "b0, t, 1, 1, 1;") == 4);
  CHECK(times_in(values, ", u, 1, 1, 1;") == 12);
  CHECK(times_in(values, "prmt.b32") == 32);
  CHECK(times_in(values, "wgmma.wait_group.sync.aligned 1;") == 6);
}

TEST_CASE("8-bit latent keys: a mask has an end for each row, else one is enough") {
  Config c = config_of(64);
  CHECK(times_in(function_of(c, "hide_behind"), "const int (&ends)[1]") == 1);
  c.facts.mask = Mask::causal;
  const std::string hide = function_of(c, "hide_behind");
  CHECK(times_in(hide, "const int (&ends)[16]") == 1);
  CHECK(times_in(hide, "setp.gt.s32 t, %16, 8;") == 1);  // the last row's second key
}

TEST_CASE("8-bit latent keys: lanes halve what they have of each row until a row is whole") {
  // 8, 4 and 2 numbers are exchanged for 64 rows; for 16 two, and then each over the lanes that have the same row.
  CHECK(times_in(function_of(config_of(64), "add_sums"), "shfl.sync.bfly.b32") == 14);
  CHECK(times_in(function_of(config_of(64), "find_maxima"), "shfl.sync.bfly.b32") == 14);
  CHECK(times_in(function_of(config_of(16), "add_sums"), "shfl.sync.bfly.b32") == 2 + 4);
}

TEST_CASE("8-bit latent keys: parts leave as fp32 where keys are dealt") {
  Config c = config_of(64);
  CHECK(times_in(widened_registers(c), "store_f32_rows") == 0);
  CHECK(times_in(function_of(c, "store_16_bit_rows"), "st.global.v4.b32 [a], {v0, v1, v2, v3}") == 16);
  c.split_kv = SplitKv::dealt;
  CHECK(times_in(function_of(c, "store_f32_rows"), "st.global.v4.b32") == 32);
}

}  // namespace
}  // namespace tessera::fmha_latent

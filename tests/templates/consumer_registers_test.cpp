// The generated header with what attention's consumers do with registers that the compiler does not see. The default
// one, checked in beside its config, is the golden.
#include "generator/attention/consumer_registers.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "spec/fmha_tiles.h"

namespace tessera::fmha {
namespace {

// In one line, as NVRTC reads it.
std::string text_of(const Config& config) {
  std::string text = consumer_registers(config);
  for (std::size_t at; (at = text.find(" \"\n        \"")) != std::string::npos;) text.replace(at, 12, " ");
  return text;
}

std::string function(const std::string& text, const std::string& name) {
  const std::size_t at = text.find("void " + name + "(");
  REQUIRE(at != std::string::npos);
  return text.substr(at, text.find("\n  }\n", at) - at);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

AttentionFacts facts(int head_dim, DType dtype) {
  AttentionFacts facts;
  facts.head_dim = facts.head_dim_v = head_dim;
  facts.dtype = facts.kv_dtype = dtype;
  return facts;
}

TEST_CASE("the default Config's header is the one that is checked in") {
  std::ifstream file(TESSERA_SOURCE_DIR "/templates/fmha/default/wgmma_shapes.cuh");
  std::ostringstream golden;
  golden << file.rdbuf();
  CHECK(consumer_registers(default_config({})) == golden.str());
}

TEST_CASE("every step of a product is an instruction, and only the first has a predicate") {
  const Config c = default_config(facts(128, DType::bf16));
  const std::string text = text_of(c);
  const std::string keys = function(text, "multiply_keys"), values = function(text, "multiply_values");
  const std::string scores =
      "wgmma.mma_async.sync.aligned.m64n" + std::to_string(c.tile_n) + "k16.f32.bf16.bf16 {s0, s1,";
  CHECK(count(keys, scores) == score_steps(c));
  CHECK(count(keys, "}, a, b, t, 1, 1, 0, 0;") == 1);
  CHECK(count(keys, "}, a, b, u, 1, 1, 0, 0;") == score_steps(c) - 1);
  CHECK(count(values, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {o0, o1,") == output_steps(c));
  CHECK(count(values, "{p0, p1, p2, p3}, b, t, 1, 1, 1;") == 1);
  CHECK(count(values, "{p4, p5, p6, p7}, b, u, 1, 1, 1;") == 1);
}

TEST_CASE("each register is declared, and each is masked, raised, packed, scaled and stored once") {
  const Config c = default_config(facts(64, DType::f16));
  const std::string text = text_of(c);
  const int scores = c.tile_n / 2;
  CHECK(count(text, ".reg .b32 s<" + std::to_string(scores) + ">; .reg .b32 o<32>; .reg .b32 p<" +
                        std::to_string(scores / 2) + ">;") == 1);
  CHECK(count(function(text, "mask"), "selp.b32 s") == scores);
  CHECK(count(function(text, "exponentiate"), "ex2.approx.ftz.f32 s") == scores);
  CHECK(count(function(text, "pack"), "cvt.rn.f16x2.f32 p") == scores / 2);
  CHECK(count(function(text, "rescale"), "mul.f32 o") == 32);
  CHECK(count(function(text, "stage"), "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+") == 4);
  CHECK(count(text, "to_exponents") + count(text, "add_promoted") + count(text, "store_") + count(text, "alter(") == 0);
}

TEST_CASE("8 bits have their own softmax, sums that are promoted, and rows that leave from registers") {
  const Config c = default_config(facts(256, DType::e4m3));
  REQUIRE(c.promote_every > 0);
  REQUIRE(keeps_sums_in_o(c));
  const std::string text = text_of(c);
  CHECK(count(function(text, "to_exponents"), "fma.rn.f32 s") == c.tile_n / 2);
  CHECK(count(function(text, "make_probabilities"), "cvt.rn.satfinite.e4m3x2.f32") == c.tile_n / 4);
  CHECK(count(function(text, "add_promoted"), "fma.rn.f32 o") == 128);
  CHECK(count(function(text, "add_promoted"), "ld.global.v4.b32") == 16);
  CHECK(count(function(text, "keep_promoted"), "st.global.v4.b32") == 16);
  CHECK(count(function(text, "store_16_bit_rows"), "st.global.v2.b32") == 32);
  CHECK(count(text, "exponentiate(") + count(text, "pack(") + count(text, "stage(") == 0);
}

TEST_CASE("what facts ask for") {
  AttentionFacts f = facts(128, DType::bf16);
  f.softcap = Softcap::tanh;
  f.alibi = Alibi::per_head;
  f.window = Window::sliding;
  const Config c = default_config(f);
  const std::string text = text_of(c);
  CHECK(count(function(text, "alter"), "rcp.approx.ftz.f32") == c.tile_n / 2);
  CHECK(count(function(text, "alter"), "abs.f32") == c.tile_n / 2);
  CHECK(count(function(text, "mask"), "setp.le.and.s32") == c.tile_n / 2);
}

TEST_CASE("keys that are there by a bit: a word for 32 of them") {
  AttentionFacts f = facts(64, DType::bf16);
  f.tree_mask = TreeMask::bits;
  const Config c = default_config(f);
  const std::string hide = function(text_of(c), "hide_by_bits");
  CHECK(count(hide, "selp.b32 s") == c.tile_n / 2);
  CHECK(count(hide, "const unsigned (&of_second)[" + std::to_string((c.tile_n + 31) / 32) + "]") == 1);
  CHECK(count(hide, ", 33554432;") == (c.tile_n + 31 - 25) / 32 * 2);  // key 25 of each word, in both rows
}

TEST_CASE("lines stay within 120 columns") {
  for (const DType dtype : {DType::bf16, DType::e4m3}) {
    std::istringstream text(consumer_registers(default_config(facts(256, dtype))));
    for (std::string line; std::getline(text, line);) CHECK(line.size() <= 120);
  }
}

}  // namespace
}  // namespace tessera::fmha

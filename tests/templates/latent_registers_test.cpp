// The generated header with what latent attention's consumers do with registers that the compiler does not see. The
// default one, checked in beside its config, is the golden.
#include "generator/attention/latent_registers.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tessera::fmha_latent {
namespace {

// In one line, as NVRTC reads it.
std::string text_of(const Config& config) {
  std::string text = latent_registers(config);
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

TEST_CASE("the header of keys that are values too is the one that is checked in") {
  std::ifstream file(TESSERA_SOURCE_DIR "/templates/fmha_latent/default/wgmma_shapes.cuh");
  std::ostringstream golden;
  golden << file.rdbuf();
  CHECK(latent_registers({}) == golden.str());
}

TEST_CASE("scores are begun and added to, a panel at a time; O is overwritten if told so") {
  const std::string text = text_of({});
  const std::string begin = function(text, "begin_scores"), add = function(text, "add_scores");
  for (const std::string& keys : {begin, add}) {
    CHECK(count(keys, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {s0, s1,") == 4);
    CHECK(count(keys, "}, a, b, t, 1, 1, 0, 0;") == 1);
    CHECK(count(keys, "}, a, b, u, 1, 1, 0, 0;") == 3);
  }
  CHECK(count(begin, "mov.pred t, 0;") == 1);
  CHECK(count(add, "mov.pred t, 1;") == 1);
  const std::string own = function(text, "multiply_own"), other = function(text, "multiply_other");
  CHECK(count(own, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {o0, o1,") == 4);
  CHECK(count(own, "{p0, p1, p2, p3}, b, t, 1, 1, 1;") == 1);
  CHECK(count(own, "{p12, p13, p14, p15}, b, u, 1, 1, 1;") == 1);
  CHECK(count(other, "}, a, b, t, 1, 1, 0, 1;") == 1);
  CHECK(count(other, "}, a, b, u, 1, 1, 0, 1;") == 3);
}

TEST_CASE("a score is hidden by its row's end, or by the bit of its key") {
  const std::string dense = text_of({});
  CHECK(count(dense, "hide_missing") == 0);
  CHECK(count(function(dense, "hide_behind"), "setp.gt.s32 t, %2, 57;") == 1);  // the last column, of the second row
  Config of_pools;
  of_pools.facts.kv_pools = KvPools::sparse_window;
  const std::string gathered = text_of(of_pools);
  CHECK(count(gathered, "hide_behind") == 0);
  // Bit 9 of a warp's 16 keys, one warp of four: a thread's columns 8 and 9 of them, of two rows.
  CHECK(count(function(gathered, "hide_missing"), "and.b32 y, %4, 512;") == 2);
}

TEST_CASE("parts leave as fp32, and are staged where the next CTA's are added") {
  Config dealt;
  dealt.split_kv = SplitKv::dealt;
  CHECK(count(latent_registers({}), "store_f32_rows") == 0);
  CHECK(count(latent_registers({}), "stage_rows") == 0);
  CHECK(count(function(text_of(dealt), "store_f32_rows"), "st.global.v2.b32") == 64);
  CHECK(count(function(text_of(dealt), "stage_rows"), "st.shared.v2.b32") == 64);
  dealt.facts.kv_pools = KvPools::sparse_window;
  CHECK(count(latent_registers(dealt), "stage_rows") == 0);
}

}  // namespace
}  // namespace tessera::fmha_latent

// Products with 4-bit weights, compiled by NVRTC, run in the emulator under every schedule, followed by its race
// detector, and compared with float64. The weights are packed on the host; pack_weights makes the same bytes.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/emulated/gemm_run.h"
#include "tests/support/sample.h"

namespace tessera::gemm_weights_test {
namespace {

using namespace gemm_run;

Case weights(const char* name, std::vector<std::pair<std::string, std::string>> fields,
             std::map<std::string, std::int64_t> sizes, Fill fill = Fill::integer) {
  Case test{name, std::move(fields), std::move(sizes), fill};
  const auto add = [&](const char* field, const char* otherwise) {
    if (std::none_of(test.fields.begin(), test.fields.end(), [&](const auto& f) { return f.first == field; }))
      test.fields.emplace_back(field, otherwise);
  };
  add("b_dtype", "mxfp4");
  add("mma_kind", "wgmma.f16");
  return test;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      weights("one row, many laps of the ring", {{"tile_m", "16"}, {"tile_n", "64"}, {"stages", "8"}, {"split_k", "1"}},
              {{"m", 1}, {"n", 70}, {"k", 2080}}, Fill::standard),
      weights("tiles in turn, boxes of activations left out, rows of d that threads store",
              {{"tile_m", "32"}, {"tile_n", "128"}, {"stages", "4"}, {"split_k", "1"}},
              {{"m", 41}, {"n", 201}, {"k", 416}, {"ldd", 203}, {"num_sms", 3}}, Fill::standard),
      weights("k in two parts, each warpgroup's added up elsewhere, c, bias, relu",
              {{"tile_m", "16"},
               {"tile_n", "128"},
               {"stages", "4"},
               {"split_k", "2"},
               {"c", "matrix"},
               {"bias", "column"},
               {"activation", "relu"}},
              {{"m", 20}, {"n", 264}, {"k", 640}, {"num_sms", 4}}),
      weights("k in four parts, more parts than steps, two matrices",
              {{"tile_m", "16"}, {"tile_n", "128"}, {"stages", "4"}, {"split_k", "4"}},
              {{"m", 16}, {"n", 96}, {"k", 256}, {"l", 2}}, Fill::standard),
      weights("four warpgroups, nvfp4 with its factor, k in two parts",
              {{"b_dtype", "nvfp4"}, {"tile_m", "16"}, {"tile_n", "256"}, {"stages", "2"}, {"split_k", "2"}},
              {{"m", 9}, {"n", 300}, {"k", 400}}, Fill::standard),
      weights("two blocks a warpgroup, f16",
              {{"dtype", "f16"},
               {"d_dtype", "f16"},
               {"b_dtype", "nvfp4"},
               {"tile_m", "128"},
               {"tile_n", "256"},
               {"stages", "2"},
               {"split_k", "1"}},
              {{"m", 150}, {"n", 270}, {"k", 304}}),
      weights("wide tiles, pitch of a", {{"tile_m", "192"}, {"tile_n", "64"}, {"stages", "2"}, {"split_k", "1"}},
              {{"m", 200}, {"n", 64}, {"k", 160}, {"lda", 168}}, Fill::standard),
      weights("int4, a scale for 128",
              {{"b_dtype", "int4"}, {"tile_m", "16"}, {"tile_n", "128"}, {"stages", "4"}, {"split_k", "2"}},
              {{"m", 17}, {"n", 130}, {"k", 384}}, Fill::standard),
      weights("int4 with zero points, a scale for 32",
              {{"b_dtype", "int4"}, {"b_group", "32"}, {"zero_points", "given"}, {"tile_m", "32"}, {"tile_n", "64"}},
              {{"m", 30}, {"n", 90}, {"k", 352}}, Fill::standard),
      weights("int4 with zero points, a scale for 64, f16, whole numbers",
              {{"dtype", "f16"},
               {"d_dtype", "f16"},
               {"b_dtype", "int4"},
               {"b_group", "64"},
               {"zero_points", "given"},
               {"tile_m", "64"},
               {"tile_n", "128"},
               {"split_k", "1"}},
              {{"m", 70}, {"n", 140}, {"k", 192}, {"l", 2}}),
      weights("mma.f16: eight warps share k, activations loaded once",
              {{"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "64"}, {"stages", "16"}, {"split_k", "1"}},
              {{"m", 3}, {"n", 200}, {"k", 1312}, {"num_sms", 2}}, Fill::standard),
      weights("mma.f16: a ring of activations, laps with steps that a group does not have",
              {{"mma_kind", "mma.f16"}, {"tile_m", "16"}, {"tile_n", "128"}, {"stages", "8"}, {"split_k", "1"}},
              {{"m", 27}, {"n", 300}, {"k", 1440}, {"num_sms", 2}}, Fill::standard),
      weights("mma.f16: k in two parts, tiles in turn, c, bias, relu, f32",
              {{"mma_kind", "mma.f16"},
               {"d_dtype", "f32"},
               {"tile_m", "8"},
               {"tile_n", "256"},
               {"stages", "4"},
               {"split_k", "2"},
               {"c", "matrix"},
               {"bias", "column"},
               {"activation", "relu"}},
              {{"m", 8}, {"n", 900}, {"k", 960}, {"num_sms", 4}}),
      weights("mma.f16: k in three parts, two matrices, nvfp4 with its factor",
              {{"mma_kind", "mma.f16"},
               {"b_dtype", "nvfp4"},
               {"tile_m", "8"},
               {"tile_n", "128"},
               {"stages", "8"},
               {"split_k", "3"}},
              {{"m", 13}, {"n", 140}, {"k", 720}, {"l", 2}, {"num_sms", 6}}, Fill::standard),
      weights("mma.f16: more parts of k than steps",
              {{"mma_kind", "mma.f16"}, {"tile_m", "16"}, {"tile_n", "128"}, {"stages", "8"}, {"split_k", "4"}},
              {{"m", 16}, {"n", 128}, {"k", 256}}, Fill::standard),
      weights("mma.f16: 32 rows, int4 with zero points, a scale for 32, f16",
              {{"mma_kind", "mma.f16"},
               {"dtype", "f16"},
               {"d_dtype", "f16"},
               {"b_dtype", "int4"},
               {"b_group", "32"},
               {"zero_points", "given"},
               {"tile_m", "32"},
               {"tile_n", "256"},
               {"stages", "4"},
               {"split_k", "1"}},
              {{"m", 30}, {"n", 290}, {"k", 416}}, Fill::standard),
      weights("e4m3 activations, tiles in turn, more parts of k than one, laps with steps that a group does not have",
              {{"dtype", "e4m3"}, {"tile_m", "32"}, {"tile_n", "128"}, {"stages", "4"}, {"split_k", "2"}},
              {{"m", 41}, {"n", 201}, {"k", 672}, {"num_sms", 4}}, Fill::standard),
      weights("e5m2 activations in a pitch, two matrices, two blocks a warpgroup, c and a bias",
              {{"dtype", "e5m2"},
               {"b_dtype", "nvfp4"},
               {"tile_m", "128"},
               {"tile_n", "256"},
               {"stages", "2"},
               {"c", "matrix"},
               {"bias", "column"}},
              {{"m", 140}, {"n", 270}, {"k", 304}, {"l", 2}, {"lda", 320}, {"num_sms", 3}}),
      weights("mma.f16: e4m3 activations, loaded once for all tiles",
              {{"mma_kind", "mma.f16"}, {"dtype", "e4m3"}, {"tile_m", "8"}, {"tile_n", "64"}, {"stages", "16"}},
              {{"m", 3}, {"n", 200}, {"k", 1312}, {"num_sms", 2}}, Fill::standard),
      weights("mma.f16: e4m3 activations in a ring, int4 with zero points and scales of bf16",
              {{"mma_kind", "mma.f16"},
               {"dtype", "e4m3"},
               {"b_dtype", "int4"},
               {"b_group", "32"},
               {"zero_points", "given"},
               {"d_dtype", "f32"},
               {"tile_m", "16"},
               {"tile_n", "128"},
               {"stages", "8"},
               {"split_k", "1"}},
              {{"m", 27}, {"n", 300}, {"k", 1440}, {"num_sms", 2}}, Fill::standard),
      weights("a gate, warpgroups share k",
              {{"gate", "interleaved"}, {"interleave", "8"}, {"tile_m", "16"}, {"tile_n", "128"}, {"stages", "4"}},
              {{"m", 21}, {"n", 144}, {"k", 416}}, Fill::standard),
      weights("a gate with a limit and a bias, gelu_tanh",
              {{"gate", "interleaved"},
               {"interleave", "8"},
               {"gate_activation", "gelu_tanh"},
               {"gate_limit", "3"},
               {"bias", "column"},
               {"tile_m", "16"},
               {"tile_n", "64"},
               {"stages", "8"}},
              {{"m", 21}, {"n", 144}, {"k", 160}, {"l", 2}}, Fill::standard),
      weights("mma.f16: a gate, int4, f16",
              {{"mma_kind", "mma.f16"},
               {"dtype", "f16"},
               {"d_dtype", "f16"},
               {"b_dtype", "int4"},
               {"gate", "interleaved"},
               {"interleave", "8"},
               {"tile_m", "8"},
               {"tile_n", "64"},
               {"stages", "16"}},
              {{"m", 11}, {"n", 144}, {"k", 512}, {"l", 2}}, Fill::standard),
      weights("mma.f16: nothing to add up",
              {{"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "128"}, {"stages", "8"}, {"split_k", "2"}},
              {{"m", 5}, {"n", 64}, {"k", 0}}),
      weights("nothing to add up",
              {{"tile_m", "16"}, {"tile_n", "64"}, {"stages", "8"}, {"split_k", "2"}, {"bias", "column"}},
              {{"m", 5}, {"n", 64}, {"k", 0}}),
      weights("no rows", {{"tile_m", "16"}, {"tile_n", "64"}, {"stages", "8"}, {"split_k", "1"}},
              {{"m", 0}, {"n", 64}, {"k", 128}}),
  };
  return list;
}

}  // namespace

TEST_CASE("products with 4-bit weights: every schedule, races, float64") { check_under_every_schedule(cases(), 8); }

}  // namespace tessera::gemm_weights_test

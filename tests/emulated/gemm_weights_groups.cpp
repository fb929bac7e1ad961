// Products with 4-bit weights for each group of rows: compiled by NVRTC, run in the emulator under every schedule,
// followed by its race detector, and compared with float64. Rows behind a group's last must stay poisoned.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/emulated/gemm_run.h"
#include "tests/support/sample.h"

namespace tessera::gemm_weights_groups_test {
namespace {

using namespace gemm_run;

Case groups(const char* name, const char* grouping, const char* gather,
            std::vector<std::pair<std::string, std::string>> fields, std::map<std::string, std::int64_t> sizes,
            std::vector<std::int64_t> rows, Fill fill = Fill::standard) {
  Case test{name, std::move(fields), std::move(sizes), fill};
  test.fields.emplace_back("grouping", grouping);
  test.fields.emplace_back("gather", gather);
  if (std::none_of(test.fields.begin(), test.fields.end(), [](const auto& f) { return f.first == "b_dtype"; }))
    test.fields.emplace_back("b_dtype", "mxfp4");
  test.sizes["l"] = static_cast<std::int64_t>(rows.size());
  test.group_rows = std::move(rows);
  return test;
}

// More groups than a warp reads at a time, most of them empty.
std::vector<std::int64_t> many_groups() {
  std::vector<std::int64_t> rows(75, 0);
  rows[3] = 9;
  rows[31] = 1;
  rows[32] = 17;
  rows[70] = 2;
  return rows;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      groups("wgmma, contiguous, a tile behind its group", "contiguous", "none",
             {{"mma_kind", "wgmma.f16"}, {"tile_m", "16"}, {"tile_n", "64"}, {"stages", "8"}, {"split_k", "1"}},
             {{"m", 60}, {"n", 136}, {"k", 416}, {"num_sms", 3}}, {5, 0, 40, 1}),
      groups("wgmma, masked, k in two parts, c, bias, silu", "masked", "none",
             {{"mma_kind", "wgmma.f16"},
              {"tile_m", "32"},
              {"tile_n", "128"},
              {"stages", "4"},
              {"split_k", "2"},
              {"c", "matrix"},
              {"bias", "column"},
              {"activation", "silu"}},
             {{"m", 45}, {"n", 201}, {"k", 640}, {"num_sms", 4}}, {0, 45, 33, 1}),
      groups("wgmma, many groups, d of fp32, tiles of 128 rows", "contiguous", "none",
             {{"mma_kind", "wgmma.f16"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "128"}, {"stages", "3"}},
             {{"m", 29}, {"n", 70}, {"k", 160}, {"num_sms", 5}}, many_groups()),
      groups("wgmma, e4m3 activations of masked groups, a gate", "masked", "none",
             {{"mma_kind", "wgmma.f16"},
              {"dtype", "e4m3"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"tile_m", "16"},
              {"tile_n", "64"},
              {"stages", "8"}},
             {{"m", 45}, {"n", 144}, {"k", 416}, {"num_sms", 3}}, {0, 45, 3, 16}),
      groups("mma.f16, e4m3 activations by a list, nvfp4", "contiguous", "rows",
             {{"mma_kind", "mma.f16"},
              {"dtype", "e4m3"},
              {"b_dtype", "nvfp4"},
              {"tile_m", "8"},
              {"tile_n", "128"},
              {"stages", "12"}},
             {{"m", 60}, {"n", 136}, {"k", 400}, {"a_rows", 20}, {"num_sms", 3}}, {5, 0, 30, 1}),
      groups("wgmma, rows of nvfp4 of each group that are packed first", "contiguous", "none",
             {{"mma_kind", "wgmma.f16"},
              {"b_dtype", "nvfp4"},
              {"scale_form", "plain"},
              {"tile_m", "32"},
              {"tile_n", "128"},
              {"stages", "4"}},
             {{"m", 60}, {"n", 136}, {"k", 272}, {"num_sms", 3}}, {5, 0, 40, 1}),
      groups("wgmma, rows by a list, two blocks a warpgroup", "contiguous", "rows",
             {{"mma_kind", "wgmma.f16"}, {"tile_m", "128"}, {"tile_n", "256"}, {"stages", "2"}},
             {{"m", 200}, {"n", 264}, {"k", 320}, {"a_rows", 50}, {"num_sms", 3}}, {150, 3, 47}),
      groups("wgmma, masked rows by a list, int4 with zero points, warpgroups share k", "masked", "rows",
             {{"mma_kind", "wgmma.f16"},
              {"b_dtype", "int4"},
              {"b_group", "32"},
              {"zero_points", "given"},
              {"tile_m", "16"},
              {"tile_n", "64"},
              {"stages", "8"}},
             {{"m", 20}, {"n", 90}, {"k", 736}, {"a_rows", 31}, {"lda", 744}, {"num_sms", 2}}, {20, 7, 0}),
      groups("teams, many groups, more steps than slots, rows of d that begin anywhere", "masked", "none",
             {{"mma_kind", "wgmma.f16"}, {"tile_m", "8"}, {"tile_n", "256"}, {"stages", "2"}, {"split_k", "1"}},
             {{"m", 17}, {"n", 331}, {"k", 672}, {"ldd", 331}, {"num_sms", 3}}, many_groups()),
      groups("teams that share k, a gate, CTAs without a tile", "masked", "none",
             {{"mma_kind", "wgmma.f16"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"tile_m", "16"},
              {"tile_n", "64"},
              {"stages", "8"},
              {"split_k", "2"}},
             {{"m", 16}, {"n", 80}, {"k", 416}, {"num_sms", 8}}, {0, 16, 0, 3}),
      groups("teams, k of none", "contiguous", "none",
             {{"mma_kind", "wgmma.f16"},
              {"bias", "column"},
              {"tile_m", "16"},
              {"tile_n", "128"},
              {"stages", "4"},
              {"split_k", "1"}},
             {{"m", 30}, {"n", 200}, {"k", 0}, {"num_sms", 3}}, {20, 0, 9}),
      groups("mma.f16, many groups of few rows", "masked", "none",
             {{"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "128"}, {"stages", "12"}, {"split_k", "1"}},
             {{"m", 17}, {"n", 200}, {"k", 416}, {"num_sms", 3}}, many_groups()),
      groups("mma.f16, contiguous, k in two parts, nvfp4 with its factor, c", "contiguous", "none",
             {{"mma_kind", "mma.f16"},
              {"b_dtype", "nvfp4"},
              {"tile_m", "16"},
              {"tile_n", "128"},
              {"stages", "8"},
              {"split_k", "2"},
              {"c", "matrix"}},
             {{"m", 52}, {"n", 140}, {"k", 720}, {"num_sms", 6}}, {3, 0, 16, 33}),
      groups("mma.f16, rows by a list, steps that a group does not have", "contiguous", "rows",
             {{"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "64"}, {"stages", "16"}, {"split_k", "1"}},
             {{"m", 30}, {"n", 130}, {"k", 1312}, {"a_rows", 9}, {"num_sms", 3}}, {1, 9, 0, 20}),
      groups("mma.f16, masked rows by a list, 32 rows, f16, fp32 d, k in two parts", "masked", "rows",
             {{"mma_kind", "mma.f16"},
              {"dtype", "f16"},
              {"d_dtype", "f32"},
              {"b_dtype", "nvfp4"},
              {"tile_m", "32"},
              {"tile_n", "256"},
              {"stages", "4"},
              {"split_k", "2"}},
             {{"m", 40}, {"n", 290}, {"k", 352}, {"a_rows", 64}, {"num_sms", 4}}, {40, 1}),
      groups("wgmma, a gate, two blocks a warpgroup, a list", "contiguous", "rows",
             {{"mma_kind", "wgmma.f16"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"tile_m", "128"},
              {"tile_n", "256"},
              {"stages", "2"}},
             {{"m", 60}, {"n", 336}, {"k", 320}, {"a_rows", 50}, {"ldd", 171}, {"num_sms", 3}}, {20, 3, 37}),
      groups("mma.f16, a gate, k in two parts, fp32 d", "masked", "none",
             {{"mma_kind", "mma.f16"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"d_dtype", "f32"},
              {"tile_m", "16"},
              {"tile_n", "128"},
              {"stages", "8"},
              {"split_k", "2"}},
             {{"m", 19}, {"n", 208}, {"k", 672}, {"num_sms", 4}}, {19, 0, 7}),
      groups("wgmma, gpt-oss' gate with a limit and a bias of each group, a list", "contiguous", "rows",
             {{"mma_kind", "wgmma.f16"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"gate_activation", "gpt_oss"},
              {"gate_limit", "7"},
              {"bias", "group"},
              {"tile_m", "32"},
              {"tile_n", "128"},
              {"stages", "4"}},
             {{"m", 60}, {"n", 208}, {"k", 320}, {"a_rows", 50}, {"num_sms", 3}}, {20, 3, 0, 37}),
      groups("mma.f16, a limited gate, gelu, a bias of each group, k in two parts", "masked", "none",
             {{"mma_kind", "mma.f16"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"gate_activation", "gelu"},
              {"gate_limit", "10"},
              {"bias", "group"},
              {"tile_m", "8"},
              {"tile_n", "128"},
              {"stages", "12"},
              {"split_k", "2"}},
             {{"m", 11}, {"n", 208}, {"k", 544}, {"num_sms", 4}}, {11, 0, 7}),
      groups("wgmma, a bias of each group, d by TMA", "masked", "none",
             {{"mma_kind", "wgmma.f16"}, {"bias", "group"}, {"tile_m", "64"}, {"tile_n", "128"}, {"stages", "4"}},
             {{"m", 70}, {"n", 200}, {"k", 288}, {"num_sms", 3}}, {70, 1, 0, 33}),
      groups("mma.f16, a bias of each group, c, an activation", "contiguous", "rows",
             {{"mma_kind", "mma.f16"},
              {"bias", "group"},
              {"c", "matrix"},
              {"activation", "silu"},
              {"tile_m", "16"},
              {"tile_n", "64"},
              {"stages", "16"}},
             {{"m", 41}, {"n", 131}, {"k", 160}, {"a_rows", 30}, {"num_sms", 4}}, {17, 0, 23}),
      groups("few rows by wgmma: a tile for each group, two blocks a warpgroup", "masked", "none",
             {{"mma_kind", "wgmma.f16"}, {"tile_m", "8"}, {"tile_n", "384"}, {"stages", "4"}},
             {{"m", 8}, {"n", 500}, {"k", 416}, {"num_sms", 3}}, {8, 0, 3, 1}),
      groups("few rows by wgmma: a gate with a limit, a bias of each group, k in two parts", "contiguous", "none",
             {{"mma_kind", "wgmma.f16"},
              {"gate", "interleaved"},
              {"interleave", "8"},
              {"gate_activation", "gpt_oss"},
              {"gate_limit", "7"},
              {"bias", "group"},
              {"tile_m", "24"},
              {"tile_n", "128"},
              {"stages", "6"},
              {"split_k", "2"}},
             {{"m", 60}, {"n", 208}, {"k", 800}, {"num_sms", 4}}, {20, 3, 0, 37}),
      groups("no group", "contiguous", "none", {{"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "64"}},
             {{"m", 4}, {"n", 64}, {"k", 128}}, {}),
      groups("nothing to add up", "masked", "rows", {{"mma_kind", "wgmma.f16"}, {"tile_m", "16"}, {"tile_n", "64"}},
             {{"m", 5}, {"n", 64}, {"k", 0}, {"a_rows", 4}}, {3, 5}),
  };
  return list;
}

}  // namespace

TEST_CASE("products with 4-bit weights of groups: every schedule, races, float64") {
  check_under_every_schedule(cases(), 5);
}

}  // namespace tessera::gemm_weights_groups_test

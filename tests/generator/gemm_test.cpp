// Products on sm_90a whose tiles are those of D transposed, whose k is in parts, or that have factors of blocks, as the
// planner sees them. Longer than most files: all cases take the problems and shapes at the head.
#include <doctest/doctest.h>

#include <set>
#include <utility>

#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/family.h"
#include "generator/products/gemm_operator.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace gemm_test {

namespace {

Plan plan(const Fields& fields) { return make_plan(problem_of("gemm", fields)); }
gemm::Config config(const Fields& fields) { return chosen_config<GemmOperator>(problem_of("gemm", fields)); }

std::string refusal(const Fields& fields) {
  try {
    plan(fields);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no refusal";
}

}  // namespace

TEST_CASE("products: tiles of D transposed where rows of D would leave others part empty") {
  const Fields sizes = {{"m", "274"}, {"n", "15280"}, {"k", "4544"}};
  const auto with = [&](const char* key, const char* text) {
    Fields fields = sizes;
    fields.emplace_back(key, text);
    return fields;
  };
  const gemm::Config c = config(sizes);
  CHECK(gemm::is_swapped(c));
  CHECK(c.tile_n % 16 == 0);
  CHECK(ceil_div(274, c.tile_n) * c.tile_n < 320);
  CHECK(plan(sizes).kernel.find(fmt::format("_{}x{}t", c.tile_n, c.tile_m)) != std::string::npos);
  CHECK(!gemm::is_swapped(config(with("swap_ab", "off"))));
  CHECK(!gemm::is_swapped(config(with("d_dtype", "f32"))));
  CHECK(!gemm::is_swapped(config({})));
  CHECK(gemm::is_swapped(config({{"swap_ab", "on"}})));
  CHECK(gemm::is_swapped(config({{"swap_ab", "on"}, {"dtype", "e4m3"}, {"b_dtype", "e5m2"}, {"d_dtype", "f16"}})));
  CHECK(refusal(with("d_dtype", "f32")) == "no refusal");
  CHECK(refusal({{"swap_ab", "on"}, {"d_dtype", "f32"}, {"tile_m", "64"}, {"tile_n", "64"}, {"stages", "4"}})
            .find("swap_ab with a d of 4-byte elements, 2 bytes needed (stmatrix): leave swap_ab off") !=
        std::string::npos);
}

TEST_CASE("products: with swap_ab pins and messages are of the product") {
  const Fields pins = {{"swap_ab", "on"},  {"a_layout", "k"}, {"b_layout", "mn"},
                       {"tile_m", "96"},   {"tile_n", "128"}, {"cluster_m", "1"},
                       {"cluster_n", "2"}, {"split_k", "1"},  {"kernel_schedule", "cooperative"},
                       {"stages", "3"},    {"dtype", "f16"},  {"d_dtype", "f16"}};
  const auto with = [&](const char* key, const char* value) {
    Fields changed = pins;
    for (auto& [name, text] : changed)
      if (name == key) text = value;
    return changed;
  };
  const gemm::Config c = config(pins);
  CHECK(c.tile_m == 128);
  CHECK(c.tile_n == 96);
  CHECK(c.cluster_m == 2);
  CHECK(c.cluster_n == 1);
  CHECK(gemm::a_layout(c) == Layout::mn_major);
  CHECK(gemm::b_layout(c) == Layout::k_major);
  CHECK(c.facts.a_layout == Layout::k_major);
  CHECK(c.facts.b_layout == Layout::mn_major);
  CHECK(GemmOperator::label(c) == "tile 96x128 swapped, 3 stages, cluster 1x2");

  const std::string subject = "gemm f16, tile ";
  CHECK(refusal(with("tile_m", "68")) ==
        subject + "68x128 swapped, 3 stages, cluster 1x2: tile_m 68, a multiple of 8 needed (a panel of d)");
  CHECK(refusal(with("tile_m", "272")) ==
        subject + "272x128 swapped, 3 stages, cluster 1x2: tile_m 272, at most 256 allowed (wgmma N)");
  CHECK(refusal(with("tile_n", "96")) ==
        subject + "96x96 swapped, 3 stages, cluster 1x2: tile_n 96, a multiple of 64 needed (wgmma M)");
  CHECK(refusal(with("cluster_m", "4")) ==
        subject +
            "96x128 swapped, 3 stages, cluster 4x2: 32 rows of b for each CTA along m, a multiple of 64 needed: take a "
            "smaller cluster_m");
}

TEST_CASE("products: with swap_ab the launch has a tile for every row and column") {
  const Plan swapped = plan({{"swap_ab", "on"},
                             {"tile_m", "48"},
                             {"tile_n", "128"},
                             {"cluster_m", "1"},
                             {"cluster_n", "1"},
                             {"split_k", "1"},
                             {"kernel_schedule", "cooperative"}});
  const LaunchStep& step = swapped.launch.steps.at(0);
  std::vector<std::int64_t> sizes;
  for (const std::string& name : step.grid[0].names())
    sizes.push_back(name == "m" ? 100 : name == "n" ? 520 : name == "l" ? 2 : 132);
  CHECK(step.grid[0].evaluate(sizes) == 3 * 5 * 2);
  REQUIRE(step.parameters.size() > 3);
  CHECK(step.parameters[0].source == "b");
  CHECK(step.parameters[1].source == "a");
}

TEST_CASE("products: the grid has no more clusters than run at once") {
  const auto grid = [](const char* cluster_m, const char* cluster_n, std::int64_t sms, std::int64_t m) {
    const Plan pinned = plan({{"tile_m", "128"},
                              {"tile_n", "128"},
                              {"cluster_m", cluster_m},
                              {"cluster_n", cluster_n},
                              {"split_k", "1"},
                              {"kernel_schedule", "cooperative"}});
    const Expression& ctas = pinned.launch.steps.at(0).grid[0];
    std::vector<std::int64_t> sizes;
    for (const std::string& name : ctas.names())
      sizes.push_back(name == "m" ? m : name == "n" ? 512 : name == "l" ? 1 : sms);
    return ctas.evaluate(sizes);
  };
  CHECK(grid("1", "1", 132, 1 << 20) == 132);
  CHECK(grid("2", "1", 132, 1 << 20) == 132);
  CHECK(grid("2", "2", 132, 1 << 20) == 120);
  CHECK(grid("1", "4", 132, 1 << 20) == 120);
  CHECK(grid("4", "2", 132, 1 << 20) == 112);
  CHECK(grid("2", "2", 132, 512) == 16);
  for (const std::int64_t sms : {1, 3, 4, 8}) CHECK(grid("2", "2", sms, 1 << 20) == 4);
  CHECK(grid("2", "1", 3, 1 << 20) == 2);
}

TEST_CASE("products: a pinned split of k finds a width of either layout") {
  for (const char* const layout : {"k", "mn"})
    for (const char* const parts : {"3", "5", "7"})
      CHECK(
          refusal({{"swap_ab", "on"}, {"a_layout", layout}, {"b_layout", layout}, {"split_k", parts}, {"m", "100"}}) ==
          "no refusal");
}

TEST_CASE("products: no candidate has more sums than its epilogue leaves registers for") {
  for (const Bias bias : {Bias::none, Bias::column})
    for (const Layout layout : {Layout::k_major, Layout::mn_major})
      for (const Hint m : {100, 190, 414, 4754}) {
        Gemm problem;
        problem.bias = bias;
        problem.a_layout = layout;
        problem.m = m;
        for (const auto& candidate : choose<GemmOperator>(problem).candidates) {
          if (!candidate.verdict.ok() || gemm::accumulator_registers(candidate.config) <= 160) continue;
          CHECK(bias == Bias::none);
          CHECK(layout == Layout::k_major);
          CHECK(!gemm::is_swapped(candidate.config));
        }
      }
}

TEST_CASE("products: pins do not lead to a tile without registers while they allow another") {
  const Fields large = {{"m", "8192"}, {"n", "8192"}, {"k", "8192"}};
  const auto sums_with = [&](Fields fields) {
    fields.insert(fields.end(), large.begin(), large.end());
    return gemm::accumulator_registers(config(fields));
  };
  CHECK(sums_with({{"kernel_schedule", "ping_pong"}}) > 160);
  CHECK(sums_with({{"kernel_schedule", "ping_pong"}, {"bias", "column"}}) <= 160);
  CHECK(sums_with({{"kernel_schedule", "ping_pong"}, {"d_dtype", "f32"}}) <= 160);
  CHECK(sums_with({{"tile_n", "192"}, {"d_dtype", "f32"}}) <= 160);
  CHECK(sums_with({{"tile_n", "192"}, {"c", "matrix"}}) <= 160);
  CHECK(sums_with({{"tile_m", "256"}, {"bias", "column"}}) <= 160);
  // Asked for by name: there is no other.
  CHECK(sums_with({{"tile_m", "256"}, {"tile_n", "176"}, {"bias", "column"}}) == 176);
  CHECK(sums_with({{"tile_m", "128"}, {"tile_n", "192"}, {"kernel_schedule", "ping_pong"}, {"activation", "gelu"}}) ==
        192);
}

TEST_CASE("products: tiles of 192 rows are loaded in six boxes at most, also where few rows are expected") {
  const auto box_with = [](const char* tile_m, const char* m) {
    return config({{"tile_m", tile_m}, {"m", m}, {"swap_ab", "off"}, {"dtype", "e4m3"}, {"d_dtype", "bf16"}}).box_m;
  };
  CHECK(box_with("128", "5") == 16);
  CHECK(box_with("192", "5") == 32);
  CHECK(box_with("192", "100") == 64);
}

TEST_CASE("products: few expected rows refuse no pinned tile: three warpgroups that find products of factors") {
  const auto box_with = [](const char* m) {
    return config({{"tile_m", "192"},
                   {"tile_n", "128"},
                   {"m", m},
                   {"swap_ab", "off"},
                   {"dtype", "e4m3"},
                   {"d_dtype", "bf16"},
                   {"a_scale_block", "1x128"},
                   {"b_scale_block", "128x128"}})
        .box_m;
  };
  CHECK(box_with("5") == 64);
  CHECK(box_with("32") == 64);
  CHECK(box_with("4096") == 64);
}

TEST_CASE("products: a refusal's remedy is one that helps") {
  const std::string wide = refusal({{"dtype", "e4m3"}, {"d_dtype", "bf16"}, {"tile_n", "256"}});
  CHECK(wide.find("256 accumulator registers a thread, 196 allowed: take a smaller tile or accumulation fast") !=
        std::string::npos);
  CHECK(refusal({{"dtype", "e4m3"}, {"d_dtype", "bf16"}, {"tile_n", "256"}, {"accumulation", "fast"}}) == "no refusal");
  const Fields both = {{"dtype", "e4m3"}, {"d_dtype", "bf16"}, {"tile_m", "256"}, {"tile_n", "256"}};
  CHECK(refusal(both).find("fast") == std::string::npos);

  CHECK(refusal({{"cluster_m", "2"}, {"split_k", "5"}, {"swap_ab", "off"}})
            .find("a cluster of 10 CTAs, at most 8 allowed") != std::string::npos);
  CHECK(refusal({{"cluster_m", "3"}, {"swap_ab", "off"}})
            .find("a cluster of 3 CTAs along m or n, a power of two up to 8 allowed") != std::string::npos);
}

TEST_CASE("products: pinned stages that no usual tile leaves room for get a narrower one") {
  const gemm::Config c = config({{"tile_m", "192"}, {"stages", "7"}});
  CHECK(c.tile_m == 192);
  CHECK(c.stages == 7);
  CHECK(c.tile_n == 48);
  CHECK(refusal({{"tile_m", "192"}, {"stages", "16"}}) != "no refusal");
}

TEST_CASE("products: k in any number of parts up to eight") {
  for (const int parts : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const std::string tile_n = std::to_string(std::min(256, 16 * parts * (parts < 5 ? 2 : 1)));
    const gemm::Config c = config({{"split_k", std::to_string(parts)}, {"tile_n", tile_n}, {"tile_m", "64"}});
    CHECK(c.split_k == parts);
  }
  std::set<int> chosen;
  for (const int m : {77, 128, 172, 321, 422, 1024})
    for (const int k : {4608, 9728, 12992}) {
      const gemm::Config c = config({{"m", std::to_string(m)}, {"n", "640"}, {"k", std::to_string(k)}});
      chosen.insert(c.split_k);
    }
  CHECK(chosen.size() >= 3);
}

TEST_CASE(
    "products: few widths of transposed tiles, those with the fewest rows behind the last and those that fill rounds") {
  for (const std::int64_t m : {1, 17, 65, 100, 257, 413, 1000, 5000, 100000}) {
    std::set<int> widths;
    Gemm problem;
    problem.m = m;
    problem.n = problem.k = 4096;
    problem.split_k = 1;
    for (const auto& candidate : choose<GemmOperator>(problem).candidates)
      if (gemm::is_swapped(candidate.config)) widths.insert(candidate.config.tile_n);
    CHECK(!widths.empty());
    CHECK(widths.size() <= (m < 64 ? 2 : 10));
    for (const int width : widths) CHECK(round_up(m, width) - m < std::max<std::int64_t>(16, m));
  }
}

namespace {

bool has_tile(const Gemm& problem, int tile_m, int tile_n, SwapAb swap_ab) {
  for (const auto& candidate : choose<GemmOperator>(problem).candidates) {
    const gemm::Config& c = candidate.config;
    if (c.tile_m == tile_m && c.tile_n == tile_n && c.swap_ab == swap_ab && gemm::cluster_size(c) == 1) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("products: the widths whose tiles fill one round of the multiprocessors, or two, are candidates") {
  const Gemm three{.m = 384, .n = 6144, .k = 4096};
  CHECK(has_tile(three, 128, 144, SwapAb::off));                              // 3 x 43 tiles
  CHECK(has_tile(three, 192, 96, SwapAb::off));                               // 2 x 64
  CHECK(has_tile({.m = 384, .n = 7168, .k = 18432}, 192, 112, SwapAb::off));  // 2 x 64
  CHECK(has_tile({.m = 1792, .n = 2560, .k = 9728}, 256, 144, SwapAb::on));   // 10 x 13
  CHECK(has_tile({.m = 64, .n = 51200, .k = 5120}, 64, 80, SwapAb::off));     // 640 in five
  // Not where a size is unknown, nor where there are more tiles than in a few rounds.
  CHECK(!has_tile({.n = 6144, .k = 4096}, 192, 96, SwapAb::off));
  CHECK(!has_tile({.m = 384 * 64, .n = 6144, .k = 4096}, 192, 96, SwapAb::off));
  CHECK(!has_tile({.m = Hint{1} << 40, .n = Hint{1} << 40, .k = 4096, .l = Hint{1} << 40}, 192, 96, SwapAb::off));
}

TEST_CASE("products with factors of blocks: what is refused, and what a launch asks for") {
  const Fields scaled{{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "128x128"}};
  const auto with = [&](const Fields& others) {
    Fields fields = scaled;
    fields.insert(fields.end(), others.begin(), others.end());
    return fields;
  };
  CHECK(refusal({{"dtype", "e4m3"}, {"a_scale_block", "1x128"}}) ==
        "gemm e4m3: a_scale_block and b_scale_block: one is none; give both operands scale blocks, or neither");
  CHECK(refusal({{"a_scale_block", "1x128"}, {"b_scale_block", "1x128"}}) ==
        "gemm bf16: scale blocks of elements of 2 bytes, 1 allowed: they are for e4m3 and e5m2");
  CHECK(refusal(with({{"accumulation", "fast"}})) ==
        "gemm e4m3: accumulation fast with scale blocks: each 128 of k are multiplied by their factors in fp32 "
        "(promoted)");
  const std::string other =
      "gemm: a_scale_block = 1x128, b_scale_block = 128x128: products with fp32 factors of blocks "
      "of 128 have kernels for sm_90a (wgmma), none for ";
  CHECK(refusal(with({{"arch", "sm_100a"}})) == other + "sm_100a: take mxfp8 where the instruction has scales");
  CHECK(refusal(with({{"arch", "sm_120a"}})) == other + "sm_120a: take mxfp8 where the instruction has scales");
  CHECK(refusal(with({{"mma_kind", "mma.f16"}})) == other + "mma.sync: take mxfp8 where the instruction has scales");
  const LaunchPlan launch = plan(scaled).launch;
  CHECK(launch.steps.front().programmatic_stream_serialization);
  CHECK(launch.tensor_maps.front().l2_promotion == TensorMapL2Promotion::l2_128b);
  CHECK(config(with({{"m", "8"}, {"swap_ab", "on"}})).box_m == 8);
  // One copy an operand where many rows are whole tiles.
  const auto box = [&](const char* m, const char* n, const char* grouping) {
    const gemm::Config c = config(with({{"m", m},
                                        {"n", n},
                                        {"k", "1024"},
                                        {"tile_m", "256"},
                                        {"tile_n", "128"},
                                        {"cluster_m", "1"},
                                        {"cluster_n", "1"},
                                        {"grouping", grouping}}));
    CHECK(gemm::joins_factors(c));
    return std::pair(gemm::a_box_rows(c), gemm::b_box_rows(c));
  };
  CHECK(box("4096", "4096", "none") == std::pair(256, 128));
  CHECK(box("4000", "4096", "none").first == 64);
  CHECK(box("4096", "4000", "none").second == 64);
  CHECK(box("4096", "4096", "contiguous") == std::pair(64, 64));
  // Large tiles of few rows have copies of factors.
  const auto tile = [&](const char* m, const char* grouping) {
    return config(with({{"m", m},
                        {"n", "24576"},
                        {"k", "1536"},
                        {"tile_m", "128"},
                        {"tile_n", "192"},
                        {"swap_ab", "off"},
                        {"grouping", grouping}}));
  };
  CHECK(gemm::joins_factors(tile("129", "none")));
  CHECK_FALSE(gemm::joins_factors(tile("128", "none")));
  CHECK(gemm::joins_factors(tile("128", "contiguous")));
  std::vector<std::string> sizes;
  for (const SizeSpec& size : launch.sizes)
    if (size.name.starts_with("sf")) sizes.push_back(size.name + " = " + size.default_value->text());
  CHECK(sizes == std::vector<std::string>{"sfa_stride_k = 1", "sfa_stride_m = ceil_div(k, 128)",
                                          "sfa_stride_l = max(sfa_stride_m * m, sfa_stride_k * ceil_div(k, 128))",
                                          "sfb_stride_k = 1", "sfb_stride_n = ceil_div(k, 128)",
                                          "sfb_stride_l = max(sfb_stride_n * ceil_div(n, 128), sfb_stride_k * "
                                          "ceil_div(k, 128))"});
}

TEST_CASE("products with factors of blocks: of many rows the tiles that an H200 was fastest with, or nearly") {
  struct Choice {
    const char *grouping, *l, *m, *n, *k;
    int tile_m, tile_n;
  };
  for (const Choice& choice : {Choice{"none", "1", "4096", "7168", "16384", 256, 128},
                               {"none", "1", "4096", "4096", "7168", 256, 128},
                               {"none", "1", "4096", "2112", "7168", 192, 128},
                               {"none", "1", "4096", "576", "7168", 128, 144},
                               {"none", "1", "4096", "24576", "1536", 128, 192},
                               {"none", "1", "4096", "32768", "512", 128, 192},
                               {"none", "1", "4096", "7168", "2048", 256, 128},
                               {"contiguous", "4", "32768", "4096", "7168", 192, 128},
                               {"contiguous", "8", "32768", "4096", "7168", 192, 128},
                               {"contiguous", "4", "32768", "7168", "2048", 192, 128},
                               {"contiguous", "8", "32768", "7168", "2048", 192, 128}}) {
    CAPTURE(choice.l);
    CAPTURE(choice.n);
    CAPTURE(choice.k);
    const gemm::Config c = config({{"dtype", "e4m3"},
                                   {"a_scale_block", "1x128"},
                                   {"b_scale_block", "128x128"},
                                   {"grouping", choice.grouping},
                                   {"l", choice.l},
                                   {"m", choice.m},
                                   {"n", choice.n},
                                   {"k", choice.k}});
    CHECK(!gemm::is_swapped(c));
    CHECK(gemm::joins_factors(c));
    CHECK(std::pair(c.tile_m, c.tile_n) == std::pair(choice.tile_m, choice.tile_n));
    CHECK(gemm::multicast_size(c) == 1);
  }
}

TEST_CASE("an e4m3 d with factors: tiles, what is refused, and what a launch asks for") {
  const auto with = [&](const Fields& others) {
    Fields fields{{"d_dtype", "e4m3"}, {"d_scale_block", "1x128"}};
    fields.insert(fields.end(), others.begin(), others.end());
    return fields;
  };
  CHECK(refusal({{"d_scale_block", "1x128"}}) == "gemm bf16: d_scale_block with a d of bf16: it is for d_dtype e4m3");
  CHECK(refusal(with({{"d_scale_block", "128x128"}})) ==
        "gemm bf16: d_scale_block 128x128: a thread block has the columns of a square, not its rows; take 1x128");
  CHECK(refusal({{"d_scale_values", "pow2"}}) == "gemm: d_scale_values = pow2: d has no factors (d_scale_block)");
  CHECK(refusal(with({{"arch", "sm_100a"}})) ==
        "gemm: d_scale_block = 1x128: products whose e4m3 d leaves with fp32 factors have kernels for sm_90a (wgmma), "
        "none for sm_100a: quantise d with rows (chain e4m3), or take d_dtype mxfp8_e4m3 where it is there");
  CHECK(refusal(with({{"tile_m", "128"}, {"tile_n", "96"}, {"split_k", "1"}}))
            .find("96 columns of d for a CTA, a multiple of 128 needed (they share a factor: d_scale_block): take "
                  "tile_n 128 or 256") != std::string::npos);
  // Whatever the sizes, a tile has whole blocks of d's columns.
  for (const char* const m : {"1", "64", "200", "4096"})
    for (const char* const gate : {"none", "dual"}) {
      const Plan chosen = plan(with({{"m", m}, {"n", "4096"}, {"k", "7168"}, {"gate", gate}}));
      CHECK(chosen.number("tile_n") % (std::string_view(gate) == "none" ? 128 : 256) == 0);
    }
  const Plan gated = plan(with({{"dtype", "e4m3"},
                                {"a_scale_block", "1x128"},
                                {"b_scale_block", "128x128"},
                                {"gate", "interleaved"},
                                {"interleave", "8"},
                                {"grouping", "contiguous"}}));
  CHECK(gated.number("tile_n") == 256);
  std::vector<std::string> sizes;
  for (const SizeSpec& size : gated.launch.sizes)
    if (size.name.starts_with("sfd")) sizes.push_back(size.name + " = " + size.default_value->text());
  CHECK(sizes == std::vector<std::string>{"sfd_stride_n = 1", "sfd_stride_m = max(ceil_div(ceil_div(n, 2), 128), 1)"});
}

TEST_CASE("products of groups: what is refused, tiles for a group's rows, and what a launch asks for") {
  const auto grouped = [](const char* grouping, const Fields& others) {
    Fields fields{{"grouping", grouping}};
    fields.insert(fields.end(), others.begin(), others.end());
    return fields;
  };
  CHECK(refusal(grouped("contiguous", {{"a_layout", "mn"}})) ==
        "gemm bf16, contiguous groups: a_layout mn with contiguous groups: a copy begins at a multiple of 16 bytes, a "
        "group at any row; take masked groups, or make k of a contiguous");
  CHECK(refusal(grouped("masked", {{"a_layout", "mn"}})) == "no refusal");
  const Fields squares{{"dtype", "e4m3"}, {"a_scale_block", "128x128"}, {"b_scale_block", "128x128"}};
  CHECK(refusal(grouped("contiguous", squares)) ==
        "gemm e4m3, contiguous groups: a_scale_block 128x128 with contiguous groups: a square begins at a multiple of "
        "128 rows, a group at any; take masked groups, or 1x128");
  CHECK(refusal(grouped("masked", squares)) == "no refusal");
  const Fields tile{{"tile_m", "64"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"cluster_n", "1"}, {"stages", "4"}};
  const auto with = [&](const char* key, const char* value) {
    Fields fields = grouped("masked", tile);
    fields.emplace_back(key, value);
    return fields;
  };
  CHECK(refusal(with("swap_ab", "on"))
            .find("swap_ab on with groups, off allowed: rows of a group are rows of the "
                  "instruction") != std::string::npos);
  CHECK(refusal(with("split_k", "2")).find("split_k 2, 1 allowed with groups: their tiles are counted on the device") !=
        std::string::npos);
  CHECK(refusal({{"gather", "rows"}}) ==
        "gemm bf16, gathered rows: gather rows without groups: it is for rows of groups; gather the rows first (rows, "
        "chain gather+same)");
  CHECK(refusal(grouped("masked", {{"gather", "rows"}, {"a_layout", "mn"}})) ==
        "gemm bf16, masked groups, gathered rows: a_layout mn with gather rows: a row's k is copied in units of 16 "
        "bytes; make k of a contiguous");
  CHECK(refusal(grouped("masked", {{"gather", "rows"}, {"arch", "sm_100a"}})) ==
        "gemm: gather = rows: products that gather a's rows have kernels for sm_90a (wgmma) and by mma.sync (sm_120, "
        "sm_121), none for sm_100a: gather the rows first (rows, chain gather+same)");
  CHECK(refusal(grouped("contiguous", {{"gather", "rows"}, {"cluster_n", "2"}}))
            .find("cluster_n 2, 1 allowed with gather rows: each CTA copies its own rows of a") != std::string::npos);
  // As many rows as a group has, whichever way they are counted.
  for (const auto& [grouping, m] : {std::pair("masked", "16"), std::pair("contiguous", "512")}) {
    const Plan few = plan(grouped(grouping, {{"m", m}, {"n", "4096"}, {"k", "4096"}, {"l", "32"}}));
    CHECK(few.number("tile_m") == 64);
    CHECK(few.number("split_k") == 1);
    CHECK(few.field("swap_ab") == "off");
    CHECK(few.kernel.find(std::string("_") + grouping + "_") != std::string::npos);
  }
  CHECK(plan(grouped("contiguous", {{"m", "8192"}, {"n", "4096"}, {"k", "4096"}, {"l", "4"}})).number("tile_m") >= 128);
  // Rows of all contiguous groups are one matrix, with its factors; b has one for each group.
  const Fields factors{{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "128x128"}};
  const LaunchPlan launch = plan(grouped("contiguous", factors)).launch;
  std::string shapes;
  for (const BufferSpec& buffer : launch.buffers)
    if (buffer.name != "scale_a" && buffer.name != "scale_b")
      shapes += fmt::format("{} {} {}; ", buffer.name, buffer.dtype, buffer.shape[0].text());
  CHECK(shapes == "a e4m3 1; b e4m3 l; groups s32 l + 1; d bf16 1; sfa f32 1; sfb f32 l; ");
  CHECK_FALSE(std::any_of(launch.sizes.begin(), launch.sizes.end(), [](const SizeSpec& size) {
    return size.name == "a_stride_l" || size.name == "sfa_stride_l" || size.name == "group_tiles";
  }));
}

TEST_CASE("products: a plan's tiles are of the product, whichever operand gives the instruction its rows") {
  const Fields tile{{"tile_m", "64"}, {"tile_n", "128"}, {"cluster_m", "1"}, {"cluster_n", "2"}};
  for (const char* const swap_ab : {"off", "on"}) {
    Fields fields = tile;
    fields.emplace_back("swap_ab", swap_ab);
    const Plan plan = gemm_test::plan(fields);
    CHECK(plan.field("swap_ab") == swap_ab);
    CHECK(plan.number("tile_m") == (plan.field("swap_ab") == "on" ? 128 : 64));
    CHECK(product_tiles(plan) == ProductTiles{.tile_m = 64, .tile_n = 128, .cluster_m = 1, .cluster_n = 2});
    CHECK_FALSE(plan.has_field("accumulators"));
  }
  CHECK(product_facts({.dtype = DType::e4m3, .b_dtype = DType::e5m2}) ==
        ProductFacts{.a_type = OperandType::e4m3, .b_type = OperandType::e5m2, .accumulation = Accumulation::promoted});
  CHECK(product_facts({.format = BlockFormat::nvfp4, .d_format = BlockFormat::mxfp4}) ==
        ProductFacts{.a_type = OperandType::nvfp4, .b_type = OperandType::nvfp4, .d_format = OutputFormat::mxfp4});
}

TEST_CASE("products: every buffer says whose operand it is, by an extent that only this one has") {
  for (const Problem& problem : every_fact()) {
    if (problem.get_if<Gemm>() == nullptr) continue;
    for (const BufferSpec& buffer : make_plan(problem).launch.buffers) {
      CAPTURE(buffer.name);
      std::set<std::string> extents;
      for (const Expression& extent : buffer.shape)
        for (const std::string& name : extent.names()) extents.insert(name);
      const ProductOperand operand = product_operand(buffer.name);
      if (buffer.shape.size() < 3) continue;
      CHECK(extents.contains("n") == (operand != ProductOperand::a));
      CHECK((extents.contains("m") || extents.contains("group_tiles") || extents.contains("a_rows")) ==
            (operand != ProductOperand::b));
    }
  }
  CHECK_THROWS_AS(product_operand("beta"), std::out_of_range);
}

TEST_CASE("products: no candidate comes twice") {
  for (const Hint m : {1, 48, 64, 384, 1792, 4096})
    for (const Hint n : {64, 2560, 6144, 57344}) {
      std::set<std::string> names;
      const Gemm problem{.m = m, .n = n, .k = 4096};
      const auto candidates = choose<GemmOperator>(problem).candidates;
      for (const auto& candidate : candidates) names.insert(GemmOperator::kernel_name(problem.arch, candidate.config));
      CHECK(names.size() == candidates.size());
    }
}

TEST_CASE("wgmma products: gates") {
  const gemm::Config c = config({{"gate", "interleaved"}, {"interleave", "64"}, {"m", "4096"}, {"n", "4096"}});
  CHECK(!gemm::is_swapped(c));
  CHECK(c.split_k == 1);
  CHECK(c.tile_n % 128 == 0);
  const Plan dual = plan({{"gate", "dual"}, {"dtype", "e4m3"}});
  CHECK(dual.kernel.find("_dual_") != std::string::npos);
  CHECK(dual.launch.tensor_maps.at(2).name == "b2");
  CHECK(config({{"gate", "dual"}, {"b_layout", "mn"}, {"n", "4096"}}).tile_n % 128 == 0);
  CHECK(refusal({{"gate", "dual"}, {"bias", "column"}}) ==
        "gemm bf16, dual: gate dual with a bias or factors of blocks: put the rows of gate and up into one b, in turn "
        "(gate interleaved)");
  const Plan gated = plan({{"gate", "interleaved"}, {"interleave", "8"}, {"grouping", "masked"}});
  CHECK(gated.kernel.find("_masked_gated8_") != std::string::npos);
  CHECK(refusal({{"gate", "interleaved"}, {"c", "matrix"}}) ==
        "gemm bf16, gate and up by 1: gate interleaved with c or an activation: none of them allowed beside it "
        "(gate_activation is the gate's)");
  CHECK(refusal({{"gate", "interleaved"}, {"interleave", "6"}}) ==
        "gemm bf16, gate and up by 6: interleave 6: a power of two from 8 to 128 needed (a thread has gate and up of a "
        "column)");
  CHECK(refusal({{"interleave", "2"}}) == "gemm: interleave = 2 with gate = none: it is for interleaved gates");
  CHECK(refusal({{"gate", "interleaved"}, {"interleave", "8"}, {"swap_ab", "on"}})
            .find("swap_ab on with a gate, off allowed") != std::string::npos);
  CHECK(refusal({{"gate", "interleaved"}, {"interleave", "8"}, {"split_k", "2"}})
            .find("split_k 2, 1 allowed with a gate") != std::string::npos);
  CHECK(refusal({{"gate", "interleaved"}, {"interleave", "8"}, {"tile_n", "80"}})
            .find("tile_n 80, a multiple of 32 needed (whole turns of gate and up, and 16 columns of d)") !=
        std::string::npos);
}

TEST_CASE("a fact that no part of a kernel's name says stands there by its own name") {
  constexpr std::string_view kNamed[] = {"gate_limit"};
  ProductFacts product;
  CHECK(other_facts_name(product, kNamed).empty());
  product.gate_limit = 7;
  product.gather = Gather::rows;
  product.interleave = 8;
  CHECK(other_facts_name(product, kNamed) == "_interleave_8_gather_rows");
  AttentionFacts attention;
  attention.sink = Sink::per_head;
  CHECK(other_facts_name(attention, kNamed) == "_sink_per_head");
}

}  // namespace gemm_test

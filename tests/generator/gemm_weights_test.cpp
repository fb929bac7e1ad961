// Products with 4-bit weights, and the packing of these, as the planner sees them: who gets them, what the sizes steer,
// where codes lie, and every refusal in words.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/products/gemm_weights_operator.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace gemm_weights_test {

namespace {

// Of wgmma.f16, unless the instruction is given.
Fields with_weights(Fields fields) {
  fields.emplace_back("b_dtype", "mxfp4");
  if (std::none_of(fields.begin(), fields.end(), [](const auto& f) { return f.first == "mma_kind"; }))
    fields.emplace_back("mma_kind", "wgmma.f16");
  return fields;
}

std::string refusal(std::string_view op, const Fields& fields) {
  try {
    make_plan(problem_of(op, fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no refusal";
}

gemm_weights::Config config(const Fields& fields) {
  return chosen_config<GemmWeightsOperator>(problem_of("gemm", with_weights(fields)));
}

}  // namespace

TEST_CASE("weights: the family of sm_90a, beside 16-bit activations alone") {
  for (const char* const b : {"mxfp4", "nvfp4", "int4"}) {
    const Plan plan = make_plan(problem_of("gemm", {{"b_dtype", b}}));
    CHECK(plan.family == "weights");
    CHECK(plan.launch.tensor_maps.size() == 2);
    CHECK(plan.launch.steps.front().programmatic_stream_serialization);
  }
  CHECK(make_plan(problem_of("gemm", {{"dtype", "mxfp4"}, {"arch", "sm_100a"}})).family == "tcgen05");
  CHECK(refusal("gemm", {{"b_dtype", "int4"}, {"arch", "sm_100a"}}) ==
        "gemm: b_dtype = int4: weights of four bits have kernels for sm_90a (wgmma) beside a of bf16 or f16, none for "
        "sm_100a and a of bf16");
  CHECK(refusal("gemm", {{"dtype", "nvfp4"}, {"b_dtype", "int4"}}) ==
        "gemm: b_dtype = int4: weights of four bits have kernels for sm_90a (wgmma) beside a of bf16 or f16, none for "
        "sm_90a and a of nvfp4");
  CHECK(refusal("gemm", {{"zero_points", "given"}}) == "gemm: b_group and zero_points are for b_dtype int4");
}

TEST_CASE("weights: few rows get narrow tiles, and parts of k where there are few tiles") {
  const Fields llama{{"n", "8192"}, {"k", "8192"}};
  const auto of = [&](const char* m) {
    Fields fields = llama;
    fields.emplace_back("m", m);
    return config(fields);
  };
  CHECK(of("1").tile_m == 8);
  CHECK(of("16").tile_m == 16);
  CHECK(of("20").tile_m == 24);
  CHECK(of("32").tile_m == 32);
  CHECK(of("32").tile_n == 128);
  CHECK(of("32").split_k == 2);
  // Not more rows than there are, in eights, of small products either.
  CHECK(config({{"m", "16"}, {"n", "704"}, {"k", "1536"}}).tile_m == 16);
  CHECK(of("4096").tile_m >= 128);
  CHECK(of("4096").split_k == 1);
}

TEST_CASE("weights: teams or mma.f16 for few rows, and by pin") {
  const auto of = [](Fields fields) {
    fields.emplace_back("b_dtype", "mxfp4");
    return chosen_config<GemmWeightsOperator>(problem_of("gemm", fields));
  };
  const gemm_weights::Config one = of({{"m", "1"}, {"n", "10240"}, {"k", "8192"}, {"tile_n", "192"}});
  CHECK(one.mma_kind == MmaKind::mma_f16);
  CHECK(one.tile_m == 8);
  // Half blocks, where two clusters' tiles of whole ones would leave multiprocessors without any.
  CHECK(of({{"m", "1"}, {"n", "10240"}, {"k", "8192"}}).tile_n == gemm_weights::kHalfTile);
  CHECK(of({{"m", "16"}, {"n", "10240"}, {"k", "8192"}}).tile_n == gemm_weights::kHalfTile);
  CHECK(of({{"m", "32"}, {"n", "10240"}, {"k", "8192"}}).tile_n == gemm_weights::kHalfTile);
  CHECK(of({{"m", "32"}, {"n", "9728"}, {"k", "4096"}}).tile_n != gemm_weights::kHalfTile);
  const gemm_weights::Config team = of({{"m", "16"}, {"n", "8192"}, {"k", "8192"}});
  CHECK(gemm_weights::is_team(team));
  CHECK(team.tile_n == 128);
  CHECK(team.split_k == 2);
  // All activations stay: 16 steps of 256 of k, which two groups of warpgroups share, beside rings of two slots.
  CHECK(team.stages == 16);
  CHECK(gemm_weights::k_groups(team) == 2);
  CHECK(gemm_weights::direct_depth(team) == 2);
  // Where they do not stay their ring is the longer one over a short k.
  const auto streamed = [&](const char* m, const char* k) {
    return of({{"m", m}, {"n", "7168"}, {"k", k}, {"tile_n", "128"}, {"split_k", "2"}});
  };
  CHECK(streamed("24", "8192").stages == 10);
  CHECK(streamed("32", "8192").stages == 8);
  CHECK(gemm_weights::direct_depth(streamed("32", "8192")) == 2);
  CHECK(streamed("16", "16384").stages == 12);
  CHECK(streamed("24", "16384").stages == 6);
  CHECK(streamed("32", "16384").stages == 6);
  CHECK(of({{"m", "4096"}, {"n", "8192"}, {"k", "8192"}}).mma_kind == MmaKind::wgmma_f16);
  // All activations of a part of k in the ring, which has whole rounds of the groups that share it.
  const gemm_weights::Config pinned =
      of({{"m", "8"}, {"n", "8192"}, {"k", "4480"}, {"mma_kind", "mma.f16"}, {"tile_n", "128"}, {"split_k", "2"}});
  CHECK(gemm_weights::k_groups(pinned) == 6);
  CHECK(pinned.stages == 18);
  // Of 16 rows a short ring where each cluster has one tile, and where all activations do not fit.
  const auto direct = [&](Fields fields) {
    fields.emplace_back("mma_kind", "mma.f16");
    return of(std::move(fields));
  };
  CHECK(direct({{"m", "16"}, {"n", "8192"}, {"k", "8192"}}).stages == 12);
  CHECK(direct({{"m", "16"}, {"n", "57344"}, {"k", "8192"}, {"tile_n", "128"}, {"split_k", "2"}}).stages == 18);
  // Of eight rows all activations stay beside shorter rings of weights, and a warp copies them.
  const gemm_weights::Config kept = direct({{"m", "1"}, {"n", "8192"}, {"k", "8192"}});
  CHECK(kept.stages == 36);
  CHECK(gemm_weights::direct_depth(kept) == 2);
  CHECK(gemm_weights::copies_rows(kept));
  CHECK(gemm_weights::direct_depth(pinned) == 3);
  CHECK(!gemm_weights::copies_rows(pinned));
  // Twelve warps where 128 registers are enough for each, else eight.
  const auto warps = [&](Fields fields) {
    for (const auto& [key, value] :
         {std::pair("mma_kind", "mma.f16"), std::pair("tile_n", "128"), std::pair("m", "16")})
      fields.emplace_back(key, value);
    return gemm_weights::direct_warps(of(std::move(fields)));
  };
  CHECK(warps({{"tile_m", "8"}}) == 12);
  CHECK(warps({{"tile_m", "16"}}) == 12);
  CHECK(warps({{"tile_m", "32"}}) == 8);
  CHECK(warps({{"tile_m", "8"}, {"grouping", "masked"}}) == 12);
  CHECK(warps({{"tile_m", "16"}, {"grouping", "masked"}}) == 8);
}

TEST_CASE("weights: of many rows the tile that was measured to be fastest") {
  for (const auto& [n, k] : {std::pair("8192", "8192"), std::pair("7168", "16384")}) {
    const gemm_weights::Config many = config({{"m", "4096"}, {"n", n}, {"k", k}});
    CHECK(many.tile_m == 208);
    CHECK(many.tile_n == 128);
  }
}

TEST_CASE("weights: groups, and rows by a list") {
  const auto plan_of = [](const Fields& fields) { return make_plan(problem_of("gemm", with_weights(fields))); };
  const auto parameters = [](const Plan& plan) {
    std::string text;
    for (const KernelParameter& parameter : plan.launch.steps.front().parameters) text += parameter.name + " ";
    return text;
  };
  const Plan masked = plan_of({{"grouping", "masked"}, {"m", "8"}, {"l", "32"}, {"mma_kind", "mma.f16"}});
  CHECK(masked.kernel.ends_with("_masked"));
  CHECK(parameters(masked) == "a b d_pointer groups m n k l ldd d_stride_l alpha ");
  const Plan biased = plan_of({{"grouping", "masked"},
                               {"gate", "interleaved"},
                               {"interleave", "8"},
                               {"gate_activation", "gpt_oss"},
                               {"gate_limit", "7"},
                               {"bias", "group"},
                               {"m", "8"},
                               {"l", "32"}});
  CHECK(biased.kernel.ends_with("_masked_gated8_gpt_oss_limit7_biases"));
  CHECK(parameters(biased) == "a b d_pointer groups bias m n k l ldd d_stride_l alpha ");
  const Plan listed = plan_of({{"grouping", "contiguous"}, {"gather", "rows"}, {"m", "512"}, {"l", "8"}});
  CHECK(listed.kernel.ends_with("_contiguous_gather"));
  CHECK(parameters(listed) == "d b d_pointer groups m n k l ldd d_stride_l alpha a indices lda a_rows ");
  CHECK(listed.roles.size() == 4);
  // Rows of a group steer the tile, not those of all.
  const auto tile_m = [](const Fields& fields) {
    Fields all = fields;
    all.emplace_back("b_dtype", "mxfp4");
    return chosen_config<GemmWeightsOperator>(problem_of("gemm", all)).tile_m;
  };
  CHECK(tile_m({{"grouping", "contiguous"}, {"m", "256"}, {"l", "32"}, {"n", "4096"}, {"k", "7168"}}) == 8);
  CHECK(tile_m({{"grouping", "contiguous"}, {"m", "32768"}, {"l", "8"}, {"n", "4096"}, {"k", "7168"}}) >= 128);
}

TEST_CASE("weights: rows are packed into a workspace by a step in front") {
  const Plan plan = make_plan(
      problem_of("gemm", {{"b_dtype", "int4"}, {"zero_points", "given"}, {"b_group", "32"}, {"scale_form", "plain"}}));
  REQUIRE(plan.launch.steps.size() == 2);
  CHECK(plan.launch.steps[0].entry == plan.kernel + "_pack");
  CHECK(plan.kernel.find("_z_plain") != std::string::npos);
  CHECK(plan.launch.workspace.bytes.text().starts_with("l * "));
  std::vector<std::string> names;
  for (const BufferSpec& buffer : plan.launch.buffers) names.push_back(buffer.name);
  CHECK(names == std::vector<std::string>{"a", "b", "sfb", "zeros", "d"});
  const SourceBundle bundle = emit(plan);
  CHECK(
      bundle.text.find("pack_weights::kernel<tessera::gemm_weights::kPacking>(values, scales, zeros, packed, n, k)") !=
      std::string::npos);
}

TEST_CASE("weights: activations of 8 bits with factors for 128 of k take mma.f16, whatever the rows") {
  for (const char* const m : {"1", "16", "4096"}) {
    const Plan plan = make_plan(problem_of(
        "gemm",
        {{"dtype", "e4m3"}, {"b_dtype", "mxfp4"}, {"a_scale_block", "1x128"}, {"m", m}, {"n", "8192"}, {"k", "8192"}}));
    CHECK(plan.mma_kind == "mma.f16");
    std::vector<std::string> names;
    for (const BufferSpec& buffer : plan.launch.buffers) names.push_back(buffer.name);
    CHECK(std::find(names.begin(), names.end(), "sfa") != names.end());
    CHECK(std::find(names.begin(), names.end(), "sfb") == names.end());
  }
}

TEST_CASE("weights: an illegal pin or fact is refused with the rule that it breaks") {
  const auto ends = [](const Fields& fields, const std::string& text) {
    const std::string found = refusal("gemm", with_weights(fields));
    CAPTURE(found);
    CHECK(found.ends_with(text));
  };
  ends({{"dtype", "s8"}}, "a is s8: must be bf16, f16, e4m3 or e5m2 beside 4-bit weights");
  ends({{"dtype", "e4m3"}, {"accumulation", "promoted"}},
       "4-bit weights have kernels for a and b with contiguous k, without promoted sums and a block-scaled d");
  const std::string factors =
      "scale blocks beside 4-bit weights: a_scale_block 1x128 of a of e4m3 or e5m2 alone (weights have scales of their "
      "own)";
  ends({{"a_scale_block", "1x128"}}, factors);
  ends({{"dtype", "e4m3"}, {"a_scale_block", "128x128"}}, factors);
  ends({{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "128x128"}}, factors);
  ends({{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"mma_kind", "wgmma.f16"}},
       "a_scale_block beside 4-bit weights by wgmma, mma.f16 needed (mma_kind): its sums of 128 of k are apart");
  ends({{"dtype", "f16"}}, "scales of mxfp4 reach beyond f16's exponents: take a of bf16, or weights in nvfp4");
  ends({{"d_dtype", "e4m3"}}, "d is e4m3: must be f32, bf16 or f16 beside 4-bit weights");
  ends({{"a_layout", "mn"}},
       "4-bit weights have kernels for a and b with contiguous k, without promoted sums and a block-scaled d");
  ends({{"gate", "dual"}},
       "gate dual: of 4-bit weights the rows of gate and up are packed together, eight in turn (gate interleaved, "
       "interleave 8)");
  ends({{"gate", "interleaved"}},
       "interleave 1: 8 allowed with 4-bit weights (rows g and g + 8 of the instruction are one thread's): pack the "
       "rows "
       "in that order");
  ends({{"gate", "interleaved"}, {"interleave", "8"}, {"c", "matrix"}},
       "a gate with c or activation: none of them allowed beside it (gate_activation is the gate's)");
  ends({{"gate_activation", "gpt_oss"}}, "gemm: gate_activation = gpt_oss: there is no gate (gate)");
  ends({{"gate_limit", "7"}}, "gemm: gate_limit = 7: there is no gate (gate)");
  ends({{"bias", "group"}}, "gemm: bias = group: it is for groups of rows (grouping); take column");
  ends({{"interleave", "8"}}, "gemm: interleave = 8: it is for interleaved gates");
  ends({{"gather", "rows"}},
       "gather rows without groups: it is for rows of groups; gather the rows first (rows, chain gather+same)");
  ends({{"b_group", "64"}}, "b_group and zero_points are for int4: mxfp4 has a scale for 32");
  ends({{"tile_m", "20"}}, "tile_m 20: a multiple of 8 up to 32, or of 16 up to 256 needed (columns of wgmma)");
  ends({{"tile_m", "24"}, {"grouping", "masked"}, {"gather", "rows"}},
       "tile_m 24: a multiple of 16 up to 256 needed (columns of wgmma, in boxes of 8)");
  ends({{"tile_m", "80"}}, "tile_m 80: a multiple of 16 up to 256 needed (columns of wgmma, in boxes of 32)");
  ends({{"tile_m", "64"}, {"tile_n", "192"}}, "tile_n 192: 64, 128 or 256 allowed (64 for each block of weights)");
  ends(
      {{"tile_m", "8"}, {"tile_n", "320"}},
      "tile_n 320: 64, 128, 160, 192, 256, 384, 448, 512 or 576 allowed with up to 32 rows by wgmma (64 for each block "
      "of weights)");
  ends({{"tile_m", "8"}, {"tile_n", "160"}, {"grouping", "masked"}, {"mma_kind", "wgmma.f16"}},
       "tile_n 160: 64, 128, 192, 256, 384, 448, 512 or 576 allowed with up to 32 rows by wgmma (64 for each block of "
       "weights)");
  ends({{"tile_m", "8"}, {"tile_n", "448"}, {"split_k", "2"}},
       "split_k with 2 blocks of weights for each warpgroup, 1 allowed: take a smaller tile");
  ends({{"tile_m", "16"}, {"tile_n", "128"}, {"stages", "5"}},
       "5 stages, a multiple of 2 needed, from 4 on: that many groups take turns, each with two at least");
  ends({{"tile_m", "16"}, {"tile_n", "64"}, {"split_k", "9"}}, "split_k 9, 1 to 8 allowed (CTAs of a cluster)");
  ends({{"tile_m", "16"}, {"tile_n", "64"}, {"split_k", "3"}, {"grouping", "masked"}, {"gather", "rows"}},
       "split_k 3, 1 to 2 allowed (CTAs of a cluster)");
  ends({{"tile_m", "128"}, {"tile_n", "256"}, {"split_k", "2"}},
       "split_k with 2 blocks of weights for each warpgroup, 1 allowed: take a smaller tile");
  ends({{"tile_m", "256"}, {"tile_n", "256"}}, "256 accumulator registers a thread, 152 allowed: take a smaller tile");
  ends({{"tile_m", "128"}, {"tile_n", "128"}, {"stages", "9"}}, "drop a stage");
  ends({{"tile_m", "64"}, {"stages", "17"}}, "17 stages, 2 to 16 allowed");
  ends({{"tile_m", "8"}, {"tile_n", "256"}, {"stages", "65"}}, "65 stages, 2 to 64 allowed");
  ends({{"raster", "2000"}}, "raster 2,000, 1 to 1,024 allowed");
  ends({{"swap_ab", "off"}}, "gemm: swap_ab = off: 4-bit weights give the instruction its rows (on)");
  ends({{"kernel_schedule", "ping_pong"}}, "gemm: kernel_schedule = ping_pong: cooperative allowed with 4-bit weights");
  ends({{"cluster_m", "2"}}, "gemm: cluster_m = 2: 1 allowed with 4-bit weights");
  ends({{"cluster_n", "2"}}, "gemm: cluster_n = 2: 1 allowed with 4-bit weights");
  ends({{"accumulators", "2"}}, "gemm: accumulators = 2: is for Tensor Memory, which sm_90a does not have");
  ends({{"mma_kind", "tcgen05.f16"}},
       "gemm: mma_kind = tcgen05.f16: 4-bit weights are multiplied by wgmma.f16 or mma.f16");
  ends({{"mma_kind", "mma.f16"}, {"tile_m", "64"}},
       "tile_m 64: 8, 16 or 32 allowed with mma.f16 (eight rows an instruction)");
  ends({{"mma_kind", "mma.f16"}, {"tile_m", "16"}, {"tile_n", "384"}},
       "tile_n 384: 64, 128, 192 or 256 allowed with mma.f16 (64 for each block of weights)");
  ends({{"mma_kind", "mma.f16"}, {"tile_n", "320"}},
       "tile_n 320: 64, 128, 192, 256 or 384 allowed with mma.f16 (64 for each block of weights)");
  ends({{"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "128"}, {"stages", "6"}},
       "6 stages, a multiple of 6 needed, from 12 on: that many groups take turns, each with two at least");
  CHECK(refusal("gemm", {{"b_dtype", "int4"}, {"b_group", "48"}}).ends_with("b_group 48: 32, 64 or 128 allowed"));
}

TEST_CASE("pack_weights: refusals") {
  const auto of = [](const Fields& fields) { return refusal("pack_weights", fields); };
  CHECK(of({{"group", "64"}}).ends_with("group and zero_points are for int4: mxfp4 has a scale for 32"));
  CHECK(of({{"format", "nvfp4"}, {"zero_points", "given"}})
            .ends_with("group and zero_points are for int4: nvfp4 has a scale for 16"));
  CHECK(of({{"format", "int4"}, {"group", "16"}}).ends_with("group 16: 32, 64 or 128 allowed"));
  CHECK(of({{"format", "int4"}, {"scale_form", "tile"}})
            .ends_with("scale_form tile is for scales of mxfp4 and nvfp4: those of int4 are [l, n, k / group]"));
  CHECK(of({{"format", "int4"}, {"dtype", "f32"}})
            .ends_with("scales of type f32: bf16 or f16 needed, the type of the activations"));
  CHECK(of({{"arch", "sm_100a"}}) == "pack_weights has no kernel for arch sm_100a: there is one for sm_90a");
}

TEST_CASE("packed weights: a pair of words is made such that its sum has what both leave over") {
  std::uint64_t state = 1;
  const auto next = [&] {
    return static_cast<unsigned>((state = state * 6364136223846793005u + 1442695040888963407u) >> 32);
  };
  for (int i = 0; i < 10000; ++i) {
    const unsigned first = next(), second = next();
    const WordPair pair = pair_with_sum(first, second);
    const unsigned sum = pair.first + (pair.second << kShiftOfSecond);
    const unsigned of_second = kLeftOfFirst << kShiftOfSecond;
    REQUIRE((sum & kLeftOfFirst) == (first & kLeftOfFirst));
    REQUIRE((sum & of_second) == (second << kShiftOfSecond & of_second));
    REQUIRE((pair.first & ~kLeftOfFirst) == (first & ~kLeftOfFirst));
    REQUIRE((pair.second & ~kLeftOfFirst) == (second & ~kLeftOfFirst));
    REQUIRE(pair_of_sum(pair.first, pair.second) == WordPair{first, second});
  }
}

TEST_CASE("packed weights: every bit of a block is one weight's, and scales have places of their own") {
  for (const OperandType type : {OperandType::mxfp4, OperandType::int4}) {
    std::set<std::pair<int, int>> bits;
    for (int row = 0; row < kWeightRows; ++row)
      for (int k = 0; k < kWeightDepth; ++k) {
        const WeightPlace place = weight_place(row, k);
        for (int bit = 0; bit < 4; ++bit) {
          const bool is_second = place.word % 2 != 0;
          const PlacedCode placed = placed_code(type, 1u << bit, is_second, place.reg, place.half);
          const int first = place.word - (is_second ? 1 : 0);
          for (int i = 0; i < 32; ++i) {
            if ((placed.first >> i & 1) != 0) bits.emplace(first, i);
            if ((placed.second >> i & 1) != 0) bits.emplace(first + 1, i);
          }
        }
      }
    CHECK(bits.size() == 8 * kWeightCodeBytes);
  }
  for (const PackedWeights& w :
       {PackedWeights{OperandType::nvfp4, 16, false}, PackedWeights{OperandType::int4, 32, true},
        PackedWeights{OperandType::int4, 128, false}}) {
    std::set<int> places;
    for (int row = 0; row < kWeightRows; ++row)
      for (int i = 0; i < kWeightDepth / w.group; ++i) {
        const int at = scale_place(w, row, i);
        places.insert(at);
        const int bytes = w.type == OperandType::int4 ? 2 * at + 2 + (w.has_zeros ? pair_scale_bytes(w) : 0) : at + 1;
        CHECK(kWeightCodeBytes + bytes <= weight_block_bytes(w));
      }
    CHECK(places.size() == static_cast<std::size_t>(kWeightRows * kWeightDepth / w.group));
  }
  std::set<std::pair<int, int>> bits;  // of mxfp4's scales
  const PackedWeights mxfp4{OperandType::mxfp4, 32, false};
  for (int row = 0; row < kWeightRows; ++row)
    for (int i = 0; i < kWeightDepth / mxfp4.group; ++i)
      for (int bit = 0; bit < 8; ++bit) {
        const unsigned placed = placed_exponent(1u << bit, row_in_pair(row), i % 2);
        for (int j = 0; j < 32; ++j)
          if ((placed >> j & 1) != 0) bits.emplace(scale_place(mxfp4, row, i), j);
      }
  CHECK(bits.size() == static_cast<std::size_t>(8 * (weight_block_bytes(mxfp4) - kWeightCodeBytes)));
  for (const auto& [word, bit] : bits) CHECK(4 * word + 4 <= weight_block_bytes(mxfp4) - kWeightCodeBytes);
  // By rows of a pair, then by 32 of k: what a mask leaves of the word, and of the word rotated by eight bits.
  CHECK(placed_exponent(0xff, 0, 0) == 0x00007f80);
  CHECK(placed_exponent(0xff, 0, 1) == 0x7f800000);
  CHECK(placed_exponent(0xff, 1, 0) == 0x8000007f);
  CHECK(placed_exponent(0xff, 1, 1) == 0x007f8000);
  CHECK(packed_ue8m0(0) == 94);     // 2^-127 * 2^94, as bf16
  CHECK(packed_ue8m0(160) == 254);  // 2^33 likewise
  CHECK(packed_ue8m0(161) == 255);  // infinity
  CHECK(packed_ue8m0(255) == 255);
  CHECK(packed_ue4m3(0x38) == 22u << 3);  // 1
  CHECK(packed_ue4m3(0x01) == 13u << 3);  // 2^-9
  CHECK(packed_ue4m3(0x07) == (15u << 3 | 6));
  CHECK(packed_ue4m3(0x7e) == (30u << 3 | 6));  // 448
  CHECK(packed_ue4m3(0xff) == 0xff);
}

}  // namespace gemm_weights_test

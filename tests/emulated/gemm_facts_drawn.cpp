// Products on sm_90a of drawn facts, in the emulator with its race detector, against float64: weights of four bits,
// packed or in rows, under activations of 16 and 8 bits, and gates by wgmma, in turn with a bias or dual; with and
// without groups, lists of rows, pinned tiles and parts of k. A run takes a few draws, always the same ones; with
// TESSERA_ALL_CASES=1 as many as kAllDraws. Share of the whole run: five seconds.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tessera/error.h"
#include "tests/emulated/gemm_run.h"
#include "tests/support/random_draw.h"
#include "tests/support/sample.h"

namespace tessera::gemm_facts_drawn_test {
namespace {

using namespace gemm_run;

constexpr std::uint64_t kDraws = 8, kAllDraws = 150;

class Draw : tessera::testing::RandomDraw {
 public:
  explicit Draw(std::uint64_t seed)
      : RandomDraw(seed), name_(fmt::format("draw {}", seed)), is_of_weights_(seed % 3 != 0) {}

  /// What some kernel serves; other draws are made again.
  Case served() {
    for (int tries = 0;; ++tries) {
      Case test = is_of_weights_ ? weights() : gate();
      test.name = name_.c_str();
      try {
        make_plan(problem_of(test));
        return test;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::unsupported || tries > 1000) throw;
      }
    }
  }

 private:
  /// Groups, and a list of rows.
  void add_groups(Case& test) {
    if (!one_in(2)) {
      test.sizes["l"] = pick(1, 2);
      return;
    }
    const bool is_contiguous = one_in(2);
    const std::int64_t l = pick(1, 4);
    std::int64_t sum = 0, most = 0;
    for (std::int64_t i = 0; i < l; ++i) {
      test.group_rows.push_back(one_in(3) ? 0 : pick(1, one_in(2) ? 20 : 140));
      sum += test.group_rows.back();
      most = std::max(most, test.group_rows.back());
    }
    test.fields.emplace_back("grouping", is_contiguous ? "contiguous" : "masked");
    test.sizes["l"] = l;
    test.sizes["m"] = std::max<std::int64_t>((is_contiguous ? sum : most) + pick(0, 5), 1);
    if (!one_in(3)) return;
    test.fields.emplace_back("gather", "rows");
    test.sizes["a_rows"] = pick(1, 90);
  }
  void add_bias(Case& test) {
    if (!one_in(2)) return;
    const bool is_grouped = !test.group_rows.empty();
    test.fields.emplace_back("bias", is_grouped && one_in(2) ? "group" : "column");
  }
  void add_factors(Case& test) {
    test.fields.emplace_back("d_dtype", "e4m3");
    test.fields.emplace_back("d_scale_block", "1x128");
    test.fields.emplace_back("d_scale_values", of({"any", "pow2"}));
  }
  void add_gate_function(Case& test) {
    test.fields.emplace_back("gate_activation", of({"silu", "gelu", "gelu_tanh", "gpt_oss"}));
    if (one_in(3)) test.fields.emplace_back("gate_limit", "3");
    test.fill = Fill::standard;
  }

  Case weights() {
    Case test{name_.c_str(), {}, {{"m", one_in(2) ? pick(1, 20) : pick(1, 200)}, {"num_sms", pick(1, 6)}}};
    const auto set = [&](const char* key, const std::string& word) { test.fields.emplace_back(key, word); };
    const std::string a = of({"e4m3", "e4m3", "e5m2", "bf16", "f16"}), b = of({"mxfp4", "nvfp4", "int4"});
    set("dtype", a);
    set("b_dtype", b);
    set("d_dtype", of({"bf16", "f16", "f32"}));
    if (one_in(3)) set("scale_form", "plain");
    std::int64_t group = b == "nvfp4" ? 16 : 32;
    if (b == "int4") {
      group <<= pick(0, 2);
      set("b_group", std::to_string(group));
      if (one_in(2)) set("zero_points", "given");
    }
    test.fill = one_in(2) ? Fill::integer : Fill::standard;
    add_groups(test);
    add_bias(test);
    std::int64_t unit = 1;
    if (one_in(4)) {
      set("gate", "interleaved");
      set("interleave", "8");
      unit = 16;
      add_gate_function(test);
    } else if (one_in(3)) {
      set("c", "matrix");
    }
    const bool is_8_bit = a == "e4m3" || a == "e5m2", has_factors_of_a = is_8_bit && one_in(2);
    if (has_factors_of_a) set("a_scale_block", "1x128");
    if (one_in(2)) {
      set("mma_kind", has_factors_of_a ? "mma.f16" : of({"wgmma.f16", "mma.f16"}));
      set("tile_m", has_factors_of_a ? of({"8", "16"}) : of({"8", "16", "32", "64", "128", "192"}));
      set("tile_n", of({"64", "128", "256"}));
      set("split_k", std::to_string(pick(1, 3)));
    }
    test.sizes["n"] = unit * pick(1, 260 / unit);
    test.sizes["k"] = group * pick(1, 900 / group);
    const std::int64_t of_row = a == "bf16" || a == "f16" ? 8 : 16;
    test.sizes["lda"] = (test.sizes["k"] + of_row - 1) / of_row * of_row + of_row * pick(0, 1);
    return test;
  }

  Case gate() {
    Case test{name_.c_str(), {}, {{"m", pick(1, 300)}, {"num_sms", pick(1, 4)}}};
    const auto set = [&](const char* key, const std::string& word) { test.fields.emplace_back(key, word); };
    const std::string type = of({"bf16", "f16", "e4m3", "e5m2"});
    const bool is_16_bit = type == "bf16" || type == "f16", is_dual = one_in(2);
    set("dtype", type);
    set("d_dtype", of({"bf16", "f16", "f32", "e4m3"}));
    set("gate", is_dual ? "dual" : "interleaved");
    const std::int64_t interleave = std::int64_t{8} << pick(0, 3), unit = is_dual ? 1 : 2 * interleave;
    const bool is_b_mn = is_16_bit && one_in(3);
    if (is_b_mn) set("b_layout", "mn");
    add_groups(test);
    if (!is_dual) {
      set("interleave", std::to_string(interleave));
      add_bias(test);
      if (!is_16_bit && one_in(2)) {
        set("a_scale_block", "1x128");
        set("b_scale_block", of({"128x128", "1x128"}));
      }
    }
    add_gate_function(test);
    const bool has_factors = one_in(3);
    if (has_factors) add_factors(test);
    if (!one_in(3)) {
      set("tile_m", of({"64", "128", "192"}));
      set("tile_n", has_factors ? "256" : of({"64", "96", "128", "192"}));
      set("cluster_m", of({"1", "2", "4"}));
    }
    test.sizes["n"] = unit * pick(1, std::max<std::int64_t>(260 / unit, 1));
    test.sizes["k"] = pick(1, 400);
    const std::int64_t of_row = is_16_bit ? 8 : 16;
    const auto pitch = [&](std::int64_t elements) { return (elements + of_row - 1) / of_row * of_row; };
    test.sizes["lda"] = pitch(test.sizes["k"]);
    test.sizes["ldb"] = pitch(is_b_mn ? test.sizes["n"] : test.sizes["k"]);
    if (is_dual) test.sizes["ldb2"] = test.sizes["ldb"] + of_row;
    return test;
  }

  std::string name_;
  bool is_of_weights_;
};

TEST_CASE("products on sm_90a: drawn weights of four bits, activations and gates") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr EmulatorSchedule kSchedules[] = {EmulatorSchedule::adversarial, EmulatorSchedule::lazy,
                                             EmulatorSchedule::eager};
  const std::uint64_t draws = testing::takes_all_cases() ? kAllDraws : kDraws;
  for (std::uint64_t seed = 1; seed <= draws; ++seed) {
    Draw draw(seed);
    const Case test = draw.served();
    std::string text;
    for (const auto& [key, word] : test.fields) text += fmt::format(" {}={}", key, word);
    for (const auto& [key, value] : test.sizes) text += fmt::format(" {}={}", key, value);
    CAPTURE(text);
    check(test, *compiler, {kSchedules[seed % 3]});
  }
}

}  // namespace
}  // namespace tessera::gemm_facts_drawn_test

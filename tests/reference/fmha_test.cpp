// The reference against a direct formula, and its verdict over a model of a kernel in fp32 with 16-bit P: what is right
// passes with room on the bound, each typical fault is found and described.
#include "reference/fmha.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "reference/fmha_bound.h"
#include "reference/fmha_sample.h"
#include "tessera/error.h"

using namespace tessera;
using namespace tessera::reference;

namespace {

struct Case {
  FmhaSizes sizes;
  DType dtype = DType::bf16;
  FmhaCheck check;
  std::int64_t mask_shift = 0;  // a fault: the diagonal is this far off
};

struct Outputs {
  Tensor o, lse, row_max, row_sum;
  FmhaOutputs views() const { return {o.view(), lse.view(), row_max.view(), row_sum.view()}; }
};

std::int64_t visible(const Case& c, std::int64_t i) {
  if (c.check.facts.mask == Mask::none) return c.sizes.seqlen_k;
  return std::max<std::int64_t>(0,
                                std::min(c.sizes.seqlen_k, i + c.sizes.seqlen_k - c.sizes.seqlen_q + 1 + c.mask_shift));
}

// Step by step over the keys as a kernel goes, with its roundings: fp32 everywhere, P in the 16-bit type.
Outputs run_model(const Case& c, const FmhaTensors& in) {
  const FmhaSizes& s = c.sizes;
  const std::int64_t v_columns = s.v_columns();
  Outputs out{Tensor(c.check.is_normalized() ? c.dtype : DType::f32, {s.batch, s.seqlen_q, s.heads_q, v_columns}),
              Tensor(DType::f32, {s.batch, s.heads_q, s.seqlen_q}),
              Tensor(DType::f32, {s.batch, s.heads_q, s.seqlen_q}),
              Tensor(DType::f32, {s.batch, s.heads_q, s.seqlen_q})};
  const float scale = static_cast<float>(c.check.softmax_scale) * std::numbers::log2e_v<float>;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads_q; ++h)
      for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
        const std::int64_t hk = h / (s.heads_q / s.heads_kv), row = (b * s.seqlen_q + i) * s.heads_q + h;
        std::vector<float> o(static_cast<std::size_t>(v_columns), 0.0f);
        float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
        for (std::int64_t first = 0; first < visible(c, i); first += c.check.tile_n) {
          std::vector<float> p;
          float before = maximum;
          for (std::int64_t j = first; j < std::min(first + c.check.tile_n, visible(c, i)); ++j) {
            float score = 0;
            for (std::int64_t d = 0; d < s.head_dim; ++d)
              score += static_cast<float>(in.q.at(row * s.head_dim + d)) *
                       static_cast<float>(in.k.at(((b * s.seqlen_k + j) * s.heads_kv + hk) * s.head_dim + d));
            p.push_back(score);
            maximum = std::max(maximum, score);
          }
          const float correction = std::exp2(before * scale - maximum * scale);
          sum *= correction;
          for (float& x : o) x *= correction;
          for (std::size_t j = 0; j < p.size(); ++j) {
            const float value = std::exp2(std::fma(p[j], scale, -maximum * scale));
            sum += value;
            const auto rounded =
                static_cast<float>(to_double(c.dtype, from_double(c.dtype, static_cast<double>(value))));
            const std::int64_t key = ((b * s.seqlen_k + first + static_cast<std::int64_t>(j)) * s.heads_kv + hk);
            for (std::size_t d = 0; d < o.size(); ++d)
              o[d] += rounded * static_cast<float>(in.v.at(key * v_columns + static_cast<std::int64_t>(d)));
          }
        }
        const std::int64_t statistic = (b * s.heads_q + h) * s.seqlen_q + i;
        const float ln2 = std::numbers::ln2_v<float>;
        out.row_max.set(statistic, static_cast<double>(maximum * scale * ln2));
        out.row_sum.set(statistic, static_cast<double>(sum));
        out.lse.set(statistic, static_cast<double>((maximum * scale + std::log2(sum)) * ln2));
        for (std::int64_t d = 0; d < v_columns; ++d) {
          const float x = o[static_cast<std::size_t>(d)];
          const float value = sum == 0 ? 0.0f : c.check.is_normalized() ? x * (1.0f / sum) : x;
          out.o.set(row * v_columns + d, static_cast<double>(value));
        }
      }
  return out;
}

Case make_case(FmhaSizes sizes, DType dtype, Mask mask, bool is_normalized) {
  Case c{sizes, dtype, {}};
  c.check.facts.mask = mask;
  c.check.facts.output = is_normalized ? Output::normalized : Output::unnormalized;
  c.check.softmax_scale = 1 / std::sqrt(static_cast<double>(sizes.head_dim));
  c.check.tile_n = 32;
  c.check.tile_m = 16;
  return c;
}

Comparison verdict(const Case& c, const FmhaTensors& in, const Outputs& out) {
  return check_fmha({in.q.view(), in.k.view(), in.v.view()}, out.views(), c.check);
}

std::string problems(const Comparison& comparison) {
  std::string text;
  for (const std::string& line : comparison.problems) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("one row against the formula") {
  const Case c = make_case({1, 2, 1, 3, 5, 64}, DType::f16, Mask::causal, true);
  const FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 3);
  const FmhaRow row = fmha_row({in.q.view(), in.k.view(), in.v.view()}, c.check, 0, 1, 1);
  // Row 1 of 3 with 5 keys sees keys 0..3.
  double weights[4], total = 0;
  for (int j = 0; j < 4; ++j) {
    double score = 0;
    for (int d = 0; d < 64; ++d) score += in.q.at((1 * 2 + 1) * 64 + d) * in.k.at(j * 64 + d);
    total += weights[j] = std::exp(score / 8);
  }
  for (int d = 0; d < 64; ++d) {
    double expected = 0;
    for (int j = 0; j < 4; ++j) expected += weights[j] / total * in.v.at(j * 64 + d);
    CHECK(row.o[static_cast<std::size_t>(d)] == doctest::Approx(expected).epsilon(1e-12));
  }
  CHECK(row.lse == doctest::Approx(std::log(total)).epsilon(1e-12));
  CHECK(row.lse == doctest::Approx(row.row_max + std::log(row.row_sum)).epsilon(1e-12));
}

TEST_CASE("v may have other columns than q and k, and each of them counts") {
  for (const std::int64_t v_columns : {16, 48, 96}) {
    for (const bool is_normalized : {true, false}) {
      const Case c = make_case({2, 4, 2, 37, 53, 48, v_columns}, DType::bf16, Mask::causal, is_normalized);
      const FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 11);
      CHECK(in.v.shape == std::vector<std::int64_t>{2, 53, 2, v_columns});
      Outputs out = run_model(c, in);
      const Comparison comparison = verdict(c, in, out);
      CAPTURE(problems(comparison));
      CHECK(comparison.pass);
      CHECK(comparison.rows_checked == 2 * 4 * 37);
      const std::int64_t last = 2 * 37 * 4 * v_columns - 1;
      out.o.set(last, out.o.at(last) + 1);
      CHECK_FALSE(verdict(c, in, out).pass);
    }
  }
  const Case c = make_case({1, 1, 1, 4, 4, 64, 32}, DType::bf16, Mask::none, true);
  const FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 1);
  Outputs out = run_model(c, in);
  out.o = Tensor(DType::bf16, in.q.shape);
  CHECK_THROWS_WITH_AS(verdict(c, in, out), "o: shape [1, 4, 1, 64] found, [1, 4, 1, 32] expected", Error);
}

TEST_CASE("a right kernel passes, and the bounds are not idle") {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Mask mask : {Mask::none, Mask::causal})
      for (const bool is_normalized : {true, false})
        for (const FmhaSizes& sizes :
             {FmhaSizes{2, 4, 2, 40, 70, 64}, FmhaSizes{1, 2, 2, 33, 20, 128}, FmhaSizes{1, 3, 1, 1, 1, 64},
              FmhaSizes{1, 1, 1, 5, 0, 64}, FmhaSizes{1, 2, 1, 2, 300, 256}}) {
          const Case c = make_case(sizes, dtype, mask, is_normalized);
          const FmhaTensors in = make_inputs(sizes, dtype, Fill::normal, 11);
          const Comparison result = verdict(c, in, run_model(c, in));
          CAPTURE(problems(result));
          CHECK(result.pass);
          CHECK(result.rows_checked == sizes.batch * sizes.heads_q * sizes.seqlen_q);
          CHECK(result.cosine > 0.9999);
          if (sizes.seqlen_k == 70) {
            CHECK(result.rel_error > result.rel_bound / 20);
            CHECK(result.rel_bound < 4 * unit_roundoff(dtype));
          }
        }
}

TEST_CASE("whole numbers make un-normalised outputs exact") {
  for (const bool is_normalized : {true, false}) {
    Case c = make_case({1, 4, 2, 70, 130, 64}, DType::bf16, Mask::causal, is_normalized);
    c.check.softmax_scale = std::numbers::ln2;
    c.check.is_exact = true;
    const FmhaTensors in = make_integer_inputs(c.sizes, c.dtype, 5);
    Outputs out = run_model(c, in);
    const Comparison result = verdict(c, in, out);
    CAPTURE(problems(result));
    CHECK(result.pass);
    if (!is_normalized) CHECK(result.max_abs_error == 0);
    // One unit in the last place is too much.
    out.o.set(0, out.o.at(0) * (is_normalized ? 1 + 0x1p-7 : 1 + 0x1p-23) + (out.o.at(0) == 0 ? 1e-6 : 0));
    CHECK(!verdict(c, in, out).pass);
  }
}

TEST_CASE("faults are found and described") {
  const Case c = make_case({2, 4, 2, 64, 96, 64}, DType::bf16, Mask::causal, true);
  const FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 21);
  const Outputs right = run_model(c, in);
  REQUIRE(verdict(c, in, right).pass);

  SUBCASE("a hole that was never written") {
    Outputs out = right;
    for (int d = 16; d < 32; ++d)
      for (int i = 0; i < 2 * 64 * 4; ++i) {
        const std::size_t at = static_cast<std::size_t>(i * 64 + d) * 2;
        out.o.bytes[at] = out.o.bytes[at + 1] = std::byte{0xFF};
      }
    const Comparison result = verdict(c, in, out);
    CHECK(!result.pass);
    CHECK(result.problems.at(0) == "o: 8192 of 32768 elements were never written, the first is element 16");
    CHECK(result.problems.at(1).starts_with(
        "o: 8192 of 32768 checked elements wrong; batch all, head all, row all, column 16..31; first at [0, 0, 0, 16]: "
        "found nan"));
  }
  SUBCASE("half of each tile's rows is zero") {
    Outputs out = right;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t i = 0; i < 64; ++i)
        for (std::int64_t e = 0; i % 16 >= 8 && e < 4 * 64; ++e) out.o.set((b * 64 + i) * 256 + e, 0.0);
    const Comparison result = verdict(c, in, out);
    CHECK(!result.pass);
    CHECK(problems(result).find("row 8..15 of each 16") != std::string::npos);
  }
  SUBCASE("the mask is off by one") {
    for (const std::int64_t shift : {-1, 1}) {
      Case shifted = c;
      shifted.mask_shift = shift;
      CHECK(!verdict(c, in, run_model(shifted, in)).pass);
    }
  }
  SUBCASE("a small systematic error that each element's bound hides") {
    Outputs out = right;
    for (std::int64_t i = 0; i < out.o.elements(); ++i) out.o.set(i, out.o.at(i) * 1.02);
    const Comparison result = verdict(c, in, out);
    CHECK(!result.pass);
    CHECK(problems(result).find("explained by independent roundings") != std::string::npos);
  }
  SUBCASE("row statistics") {
    Outputs out = right;
    out.lse.set(70, out.lse.at(70) + 0.001);
    const Comparison result = verdict(c, in, out);
    CHECK(!result.pass);
    CHECK(problems(result).starts_with(
        "lse: 1 of 512 checked elements wrong; batch 0, head 1, row 6; first at [0, 1, 6]"));
  }
}

TEST_CASE("the reference maximum may trail the true one by a factor of 2^8, not more and not ahead") {
  for (const bool is_exact : {false, true}) {
    Case c = make_case({1, 2, 1, 20, 50, 64}, DType::bf16, Mask::none, false);
    c.check.is_exact = is_exact;
    if (is_exact) c.check.softmax_scale = std::numbers::ln2;
    const FmhaTensors in =
        is_exact ? make_integer_inputs(c.sizes, c.dtype, 4) : make_inputs(c.sizes, c.dtype, Fill::normal, 4);
    const Outputs right = run_model(c, in);
    for (const int doublings : {0, 1, 8, 9, -1}) {
      Outputs out = right;
      for (std::int64_t i = 0; i < out.row_max.elements(); ++i) {
        out.row_max.set(i, out.row_max.at(i) - doublings * std::numbers::ln2);
        out.row_sum.set(i, std::ldexp(out.row_sum.at(i), doublings));
      }
      for (std::int64_t i = 0; i < out.o.elements(); ++i) out.o.set(i, std::ldexp(out.o.at(i), doublings));
      const Comparison result = verdict(c, in, out);
      CAPTURE(problems(result));
      CAPTURE(doublings);
      CHECK(result.pass == (doublings >= 0 && doublings <= 8));
    }
  }
}

TEST_CASE("rows that see no key are zero with -inf statistics, nothing else passes") {
  const Case c = make_case({1, 1, 1, 8, 4, 64}, DType::bf16, Mask::causal, true);
  const FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 1);
  Outputs out = run_model(c, in);
  CHECK(out.lse.at(3) == -std::numeric_limits<double>::infinity());
  REQUIRE(verdict(c, in, out).pass);
  out.lse.set(3, std::nan(""));
  CHECK(!verdict(c, in, out).pass);
  out.lse.set(3, -1e30);
  CHECK(!verdict(c, in, out).pass);
  out = run_model(c, in);
  out.o.set(64, 1e-30);
  CHECK(!verdict(c, in, out).pass);
}

TEST_CASE("a row of NaN is right where the inputs give NaN, and only there") {
  const Case c = make_case({1, 2, 1, 16, 32, 64}, DType::bf16, Mask::none, true);
  FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 5);
  in.q.set(3 * 2 * 64 + 7, std::nan(""));  // row 3, head 0
  const Comparison of_nan = verdict(c, in, run_model(c, in));
  for (const std::string& problem : of_nan.problems) CHECK_FALSE(problem.starts_with("o:"));
  Outputs out = run_model(c, in);
  out.o.set(4 * 2 * 64, std::nan(""));  // row 4 has no reason
  CHECK(problems(verdict(c, in, out)).find("o: 1 of 2048 checked elements wrong") != std::string::npos);
}

TEST_CASE("statistics and outputs that are no numbers, or infinite, are right where the inputs make them so") {
  const Case c = make_case({1, 2, 1, 8, 40, 64}, DType::bf16, Mask::none, false);
  const double infinity = std::numeric_limits<double>::infinity();
  FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 4);
  in.q.set(3 * 2 * 64, std::nan(""));  // head 0, row 3
  in.v.set(7 * 64 + 5, infinity);      // column 5 of all others
  Outputs out = run_model(c, in);
  // The model's maximum does not see a NaN; a row of them has any maximum.
  CHECK(problems(verdict(c, in, out)).find("row_max") == std::string::npos);
  for (Tensor* const statistic : {&out.lse, &out.row_sum}) statistic->set(3, std::nan(""));
  CAPTURE(problems(verdict(c, in, out)));
  CHECK(verdict(c, in, out).pass);
  Outputs wrong = out;
  wrong.lse.set(4, std::nan(""));  // has no reason
  CHECK(problems(verdict(c, in, wrong)).find("lse: 1 of 16 checked elements wrong") != std::string::npos);
  wrong = out;
  wrong.o.set(5, -infinity);
  CHECK(problems(verdict(c, in, wrong)).find("o: 1 of 1024 checked elements wrong") != std::string::npos);
}

TEST_CASE("a row whose scores are all -inf counts as one that sees no key") {
  const Case c = make_case({1, 1, 1, 2, 40, 64}, DType::bf16, Mask::none, true);
  const double infinity = std::numeric_limits<double>::infinity();
  FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 4);
  for (std::int64_t j = 0; j < 40 * 64; ++j) in.k.set(j, std::fabs(in.k.at(j)) + 1);
  for (std::int64_t d = 0; d < 64; ++d) in.q.set(d, d == 0 ? -infinity : 0.0);
  const FmhaRow row = fmha_row({in.q.view(), in.k.view(), in.v.view()}, c.check, 0, 0, 0);
  CHECK(row.lse == -infinity);
  CHECK(row.row_sum == 0);
  CHECK(row.o.front() == 0);
  CHECK(std::isfinite(fmha_row({in.q.view(), in.k.view(), in.v.view()}, c.check, 0, 0, 1).lse));
}

TEST_CASE("a row whose sink is all of its sum may flush to zero, and nothing larger may") {
  const FmhaRowBound bound({.head_dim = 64, .visible = 64, .steps = 1, .scale = 0.125, .q_norm = 8, .max_k_norm = 8});
  FmhaRowBound::Column column{.value = 2.5e-40, .abs_sum = 60, .square_sum = 60, .v_abs_sum = 60, .sum = 2.4e41};
  CHECK(bound.element(column) > 2.5e-40);
  column.value = 2.5e-35, column.sum = 2.4e36;
  CHECK(bound.element(column) < 1e-36);
  CHECK(bound.element_square(column) < 1e-72);
  // Of 8 bits: 2^6 of a value of 4 beside a sink of 2e39 come to 1.3e-37, by a factor that flushes.
  const FmhaRowBound of_8_bit({.dtype = DType::e4m3, .head_dim = 64, .visible = 1, .steps = 1, .scale = 0.125});
  column = {.value = 1.3e-37, .abs_sum = 4, .square_sum = 16, .v_abs_sum = 4, .sum = 3e37};
  CHECK(of_8_bit.element(column) > 1.3e-37);
  CHECK(of_8_bit.element(column) < 1e-34);
}

TEST_CASE("large problems are sampled in whole rows: first, last, every tile edge of one head") {
  FmhaCheck check;
  check.tile_m = 128;
  check.max_multiply_adds = 1 << 26;
  const FmhaSizes sizes{4, 32, 8, 4096, 4096, 128};
  const std::vector<HeadRows> chosen = choose_rows(sizes, check);
  CHECK(chosen.size() >= 4);
  std::int64_t rows = 0;
  for (const HeadRows& head : chosen) {
    CHECK(head.rows.front() == 0);
    CHECK(head.rows.back() == 4095);
    rows += static_cast<std::int64_t>(head.rows.size());
  }
  CHECK(rows < 1000);
  const std::vector<std::int64_t>& first = chosen.front().rows;
  for (std::int64_t edge = 128; edge < 4096; edge += 128) {
    CHECK(std::binary_search(first.begin(), first.end(), edge));
    CHECK(std::binary_search(first.begin(), first.end(), edge - 1));
  }
  check.max_multiply_adds = std::int64_t{1} << 60;
  CHECK(choose_rows(sizes, check).size() == 128);
  CHECK(choose_rows({0, 1, 1, 4, 4, 64}, check).empty());
}

TEST_CASE("bad shapes are refused") {
  const Case c = make_case({1, 4, 2, 8, 8, 64}, DType::bf16, Mask::none, true);
  FmhaTensors in = make_inputs(c.sizes, c.dtype, Fill::normal, 1);
  const Outputs out = run_model(c, in);
  in.v = Tensor(DType::bf16, {1, 8, 1, 64});
  CHECK_THROWS_WITH_AS(
      verdict(c, in, out),
      "v: shape [1, 8, 1, 64] does not fit the other tensors ([batch, seqlen, heads, head_dim]; heads_q a "
      "multiple of heads_kv)",
      Error);
}

// Wrong results of products on sm_90a, made with a mistake each, and the cause that is named for them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "reference/gemm_gated.h"
#include "reference/groups.h"
#include "reference/random.h"

using namespace tessera;
using namespace tessera::reference;
namespace gemm_causes_test {

namespace {

using I = std::int64_t;

constexpr I kM = 24, kN = 160, kK = 384;

struct Operands {
  Tensor a, b, sfa, sfb;

  Operands(DType dtype, I l, bool has_factors) : a(dtype, {l, kM, kK}), b(dtype, {l, kN, kK}) {
    fill(a, Fill::normal, 3, 0);
    fill(b, Fill::normal, 3, 1);
    if (!has_factors) return;
    sfa = factors({l, kM, kK / 128}, 2);
    sfb = factors({l, (kN + 127) / 128, kK / 128}, 3);
  }
  static Tensor factors(std::vector<I> shape, std::uint64_t stream) {
    Tensor made(DType::f32, std::move(shape));
    const CounterRandom random(3, stream);
    for (I i = 0; i < made.elements(); ++i) made.set(i, 0.5 + random.uniform(static_cast<std::uint64_t>(i)));
    return made;
  }
  GemmInputs inputs() const {
    GemmInputs in{a.view(), b.view(), {}, {}};
    if (sfa.elements() > 1) {
      in.sfa = BlockFactors{sfa.view(), 1};
      in.sfb = BlockFactors{sfb.view(), 128};
    }
    return in;
  }
};

GemmCheck check_of(DType dtype) {
  GemmCheck check;
  check.facts.accumulation = dtype_bytes(dtype) == 1 ? Accumulation::promoted : Accumulation::fast;
  check.tile_m = 64;
  check.tile_n = 128;
  check.jobs = 1;
  return check;
}

/// d of inputs that a mistake changed, each element from the place that `from` says.
Tensor product(
    const GemmInputs& in, const GemmCheck& check,
    const std::function<Coordinates(const Coordinates&)>& from = [](const Coordinates& at) { return at; }) {
  const I l = in.a.shape[0], m = in.a.shape[1], n = in.b.shape[1];
  Tensor d(DType::bf16, {l, m, n});
  for (I i = 0; i < d.elements(); ++i) {
    const Coordinates at = from({i / n / m, i / n % m, i % n});
    d.set(i, at[1] < m && at[2] < n ? gemm_element(in, check, at[0], at[1], at[2]) : 0);
  }
  return d;
}

std::string texts(const Comparison& result) {
  CHECK(!result.pass);
  std::string all;
  for (const std::string& problem : result.problems) all += problem + "\n";
  return all;
}

void expect(const Comparison& result, const std::string& cause) {
  const std::string all = texts(result);
  CAPTURE(all);
  CHECK(all.find("likely cause: " + cause) != std::string::npos);
}

}  // namespace

TEST_CASE("products on sm_90a: parts of k and places") {
  const Operands right(DType::bf16, 1, false);
  const GemmCheck check = check_of(DType::bf16);
  CHECK(check_plain_or_gated(right.inputs(), product(right.inputs(), check).view(), check).pass);
  const auto without = [&](I first, I last) {
    Operands wrong = right;
    for (I row = 0; row < kM; ++row)
      for (I k = first; k < last; ++k) wrong.a.set(row * kK + k, 0);
    return check_plain_or_gated(right.inputs(), product(wrong.inputs(), check).view(), check);
  };
  expect(without(192, 256), "the step of k from 192 to 255 is missing");
  expect(without(320, 384), "the last step of k (from 320 on) is missing");
  const Tensor exchanged = product(right.inputs(), check, [](const Coordinates& at) {
    return Coordinates{at[0], at[1], at[2] ^ 8, 0, 0};
  });
  expect(check_plain_or_gated(right.inputs(), exchanged.view(), check),
         "column c of d holds what belongs to column c ^ 8");
}

TEST_CASE("products on sm_90a: sums that are never promoted") {
  // Of positive numbers a sum soon outweighs what is added to it.
  constexpr I kRows = 4, kDepth = 4096;
  Tensor a(DType::e4m3, {1, kRows, kDepth}), b(DType::e4m3, {1, kRows, kDepth});
  const CounterRandom random(5, 0);
  for (I i = 0; i < a.elements(); ++i) {
    a.set(i, 0.5 + random.uniform(static_cast<std::uint64_t>(2 * i)));
    b.set(i, 0.5 + random.uniform(static_cast<std::uint64_t>(2 * i + 1)));
  }
  const GemmInputs in{a.view(), b.view(), {}, {}};
  const GemmCheck check = check_of(DType::e4m3);
  const auto cut = [](double x, int bits, double of) {
    const double unit = std::ldexp(1.0, std::ilogb(of) - bits);
    return std::floor(x / unit) * unit;
  };
  Tensor d(DType::f32, {1, kRows, kRows});
  for (I i = 0; i < d.elements(); ++i) {
    double sum = 0;
    for (I first = 0; first < kDepth; first += 32) {
      double largest = sum, next = 0;
      const auto term = [&](I k) { return a.at(i / kRows * kDepth + k) * b.at(i % kRows * kDepth + k); };
      for (I k = first; k < first + 32; ++k) largest = std::max(largest, term(k));
      for (I k = first; k < first + 32; ++k) next += cut(term(k), 13, largest);
      next += cut(sum, 13, largest);
      sum = cut(next, 13, next);
    }
    d.set(i, sum);
  }
  expect(check_plain_or_gated(in, d.view(), check), "sums are not promoted");
}

TEST_CASE("products on sm_90a: factors of blocks") {
  const Operands right(DType::e4m3, 1, true);
  const GemmCheck check = check_of(DType::e4m3);
  CHECK(check_plain_or_gated(right.inputs(), product(right.inputs(), check).view(), check).pass);
  const auto with = [&](const std::function<void(Operands&)>& change) {
    Operands wrong = right;
    change(wrong);
    return check_plain_or_gated(right.inputs(), product(wrong.inputs(), check).view(), check);
  };
  constexpr I kSteps = kK / 128;
  expect(with([&](Operands& wrong) {
           for (I i = 0; i < right.sfa.elements(); ++i)
             wrong.sfa.set(i, right.sfa.at(i % kSteps + 1 < kSteps ? i + 1 : i));
         }),
         "blocks of k take the factor of a (sfa) of the next 128");
  expect(with([&](Operands& wrong) {
           for (I i = 0; i < right.sfa.elements(); ++i)
             wrong.sfa.set(i, right.sfa.at(i >= 8 * kSteps ? i - 8 * kSteps : i % kSteps));
         }),
         "row takes the factor of a (sfa) 8 rows before");
  expect(with([&](Operands& wrong) {
           for (I i = 0; i < right.sfb.elements(); ++i)
             wrong.sfb.set(i, right.sfb.at(i + kSteps < right.sfb.elements() ? i + kSteps : i));
         }),
         "128 rows takes the factor of b (sfb) of the 128 rows behind");
  expect(with([&](Operands& wrong) {
           for (I i = 0; i < right.sfb.elements(); ++i) wrong.sfb.set(i, 1);
         }),
         "factors of b (sfb) do not count");
}

TEST_CASE("products on sm_90a: groups and lists") {
  const Operands right(DType::bf16, 3, false);
  const GemmCheck check = check_of(DType::bf16);
  const Tensor groups = groups_of(Grouping::masked, {kM, kM, kM});
  Operands wrong = right;
  for (I i = 0; i < 2 * kN * kK; ++i) wrong.b.set(i, right.b.at(i + kN * kK));
  expect(check_grouped_gemm(Grouping::masked, groups.view(), right.inputs(), product(wrong.inputs(), check).view(),
                            check, {}),
         "rows of the group are multiplied by b of the next group");
}

TEST_CASE("products on sm_90a: gates") {
  const Operands right(DType::bf16, 1, false);
  GemmCheck check = check_of(DType::bf16);
  check.facts.gate = Gate::interleaved;
  check.facts.interleave = 8;
  Tensor d(DType::bf16, {1, kM, kN / 2});
  const auto fill_d = [&](I interleave, bool is_exchanged) {
    for (I i = 0; i < d.elements(); ++i) {
      const I row = i / (kN / 2), column = i % (kN / 2);
      const I gate = column / interleave * 2 * interleave + column % interleave;
      const double x = gemm_element(right.inputs(), check, 0, row, gate);
      const double y = gemm_element(right.inputs(), check, 0, row, gate + interleave);
      d.set(i, is_exchanged ? activated(Activation::silu, y) * x : activated(Activation::silu, x) * y);
    }
    return check_plain_or_gated(right.inputs(), d.view(), check);
  };
  CHECK(fill_d(8, false).pass);
  expect(fill_d(8, true), "gate and up have changed places");
  expect(fill_d(4, false), "gate and up are taken in turns of 4, interleave is 8");
}

}  // namespace gemm_causes_test

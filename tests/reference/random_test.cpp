#include "reference/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "reference/poison.h"
#include "tessera/error.h"

using namespace tessera;
using namespace tessera::reference;

TEST_CASE("the same counter gives the same bits, another one others") {
  const CounterRandom a(7, 0), b(7, 0), other_stream(7, 1), other_seed(8, 0);
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    CHECK(a.bits(i) == b.bits(i));
    CHECK(a.bits(i) != other_stream.bits(i));
    CHECK(a.bits(i) != other_seed.bits(i));
    seen.insert(a.bits(i));
  }
  CHECK(seen.size() == 10000);
}

TEST_CASE("moments of the distributions") {
  const CounterRandom random(1, 2);
  constexpr int kCount = 200000;
  double sum = 0, square = 0, uniform = 0;
  std::array<int, 9> histogram{};
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = random.normal(i);
    sum += x;
    square += x * x;
    uniform += random.uniform(i);
    ++histogram[static_cast<std::size_t>(random.integer(i, -4, 4) + 4)];
  }
  // Four standard deviations of each mean.
  CHECK(std::fabs(sum / kCount) < 4 / std::sqrt(kCount));
  CHECK(std::fabs(square / kCount - 1) < 4 * std::sqrt(2.0 / kCount));
  CHECK(std::fabs(uniform / kCount - 0.5) < 4 * std::sqrt(1.0 / 12 / kCount));
  for (const int count : histogram) CHECK(std::fabs(count - kCount / 9.0) < 4.5 * std::sqrt(kCount / 9.0));
}

TEST_CASE("fills") {
  Tensor tensor(DType::bf16, {33, 64});
  fill(tensor, Fill::sparse_integer, 3, 0);
  std::set<double> values;
  for (int row = 0; row < 33; ++row) {
    int nonzero = 0;
    for (int column = 0; column < 64; ++column) {
      const double value = tensor.at(row * 64 + column);
      values.insert(value);
      nonzero += value != 0;
    }
    CHECK(nonzero >= 1);
    CHECK(nonzero <= 4);
  }
  CHECK(values == std::set<double>{-1, 0, 1});
  Tensor again(DType::bf16, {33, 64}), other(DType::bf16, {33, 64});
  fill(again, Fill::normal, 3, 0);
  fill(other, Fill::normal, 3, 1);
  CHECK(again.bytes != other.bytes);
  fill(other, Fill::normal, 3, 0);
  CHECK(again.bytes == other.bytes);
  CHECK_THROWS_WITH_AS(Tensor(DType::f32, {1 << 20, 1 << 20, 1 << 20}), doctest::Contains("more than 1 TiB"), Error);
  CHECK_THROWS_AS(Tensor(DType::f32, {-1}), Error);
}

TEST_CASE("poison: elements never written and guards written to are counted") {
  Tensor tensor(DType::bf16, {4, 8});
  CHECK(count_poisoned(tensor.view()).poisoned == 0);
  std::fill(tensor.bytes.begin() + 2 * 9, tensor.bytes.begin() + 2 * 12, std::byte{kPoisonByte});
  CHECK(count_poisoned(tensor.view()).poisoned == 3);
  CHECK(count_poisoned(tensor.view()).first == 9);
  TensorView columns{tensor.bytes.data(), DType::bf16, {8, 4}, {1, 8}};
  CHECK(count_poisoned(columns).poisoned == 3);
  CHECK(count_poisoned(columns).first == 5);
  std::vector<std::byte> guard(64, std::byte{kPoisonByte});
  CHECK(guard_problem("o", "after", guard).empty());
  guard[2] = guard[3] = std::byte{0};
  CHECK(guard_problem("o", "after", guard) == "o: 2 bytes after it overwritten, the nearest 3 away");
  CHECK(guard_problem("o", "before", guard) == "o: 2 bytes before it overwritten, the nearest 61 away");
}

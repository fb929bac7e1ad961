// Planted patterns are named; random ones are not.
#include "reference/mismatch_pattern.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "reference/random.h"

namespace tessera::reference {
namespace {

struct Planted {
  ElementSums sums;
  std::vector<Axis> axes;
};

/// rows x columns of normal numbers; `spoil` gives what is found instead.
Planted plant(std::int64_t rows, std::int64_t columns,
              const std::function<double(std::int64_t, std::int64_t, double)>& spoil) {
  Planted planted;
  planted.axes = {{"row", rows, {}}, {"column", columns, {}}};
  const CounterRandom random(11, 0);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      Element element;
      element.expected = random.normal(static_cast<std::uint64_t>(r * columns + c));
      element.found = spoil(r, c, element.expected);
      element.at = {r, c};
      planted.sums.add(element);
    }
  return planted;
}

std::string report(const Planted& planted) { return describe_mismatches("o", planted.sums, planted.axes); }

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

TEST_CASE("mismatches: periods of tiles are named, on axes without blocks of their own") {
  has(report(plant(128, 64, [](auto, auto c, double x) { return c % 16 >= 8 ? x + 1 : x; })),
      "row all, column 8..15 of each 16");
  has(report(plant(512, 8, [](auto r, auto, double x) { return r % 128 >= 96 ? x + 1 : x; })),
      "row 96..127 of each 128, column all");
  has(report(plant(64, 64, [](auto, auto c, double x) { return c >= 8 ? x + 1 : x; })), "column 8..63");
}

TEST_CASE("mismatches: a few rows are no period, and none of warps or lanes") {
  Planted planted = plant(1700, 32, [](auto r, auto, double x) { return r == 333 || r == 1501 ? x + 1 : x; });
  planted.axes[0].blocks = {8, 16, 64, 128};
  const std::string few = report(planted);
  has(few, "row 333, 1501, column all");
  CHECK(few.find("warp") == std::string::npos);
  CHECK(few.find("lane") == std::string::npos);
}

TEST_CASE("mismatches: Tensor Memory has lanes of its own") {
  const Planted planted = plant(256, 32, [](auto r, auto, double x) { return r / 16 % 4 == 1 ? x + 1 : x; });
  const std::string text = describe_mismatches("d", planted.sums, planted.axes, Accumulator::tensor_memory);
  CHECK(text.find("wgmma") == std::string::npos);
  CHECK(text.find("accumulator's layout") == std::string::npos);
}

TEST_CASE("mismatches: warps and lanes") {
  const std::string warp = report(plant(256, 32, [](auto r, auto, double x) { return r / 16 % 4 == 1 ? x + 1 : x; }));
  has(warp, "warp 1 of each 4, if a warp owns 16 rows (wgmma)");
  const std::string quadrant =
      report(plant(256, 32, [](auto r, auto, double x) { return r / 32 % 4 == 3 ? x + 1 : x; }));
  has(quadrant, "warp 3 of each 4, if a warp owns 32 rows (tensor memory)");
  const std::string lanes = report(plant(64, 64, [](auto r, auto c, double x) {
    const auto lane = r % 8 * 4 + c % 8 / 2;
    return lane == 5 || lane == 6 ? x + 1 : x;
  }));
  has(lanes, "lanes 5..6 of the accumulator's layout");
}

TEST_CASE("mismatches: factors, zeros, NaN, signs") {
  has(report(plant(64, 64, [](auto, auto, double x) { return 4.01 * x; })), "found is 4 times what is expected");
  has(report(plant(64, 64, [](auto, auto, double x) { return x / 2; })), "found is 1/2 times what is expected");
  has(report(plant(64, 64, [](auto, auto, double x) { return -x; })), "with its sign flipped");
  has(report(plant(64, 64, [](auto r, auto, double x) { return r < 5 ? 0 : x; })), "every wrong element is 0");
  has(report(
          plant(64, 64, [](auto r, auto, double x) { return r < 5 ? std::numeric_limits<double>::quiet_NaN() : x; })),
      "every wrong element is NaN");
}

TEST_CASE("mismatches: scale blocks off by a power of two each") {
  const std::string blocks = report(
      plant(16, 128, [](auto r, auto c, double x) { return std::ldexp(x, static_cast<int>((r + c / 32) % 3) + 1); }));
  has(blocks, "along column each block of 32 is off by one power of two, 2 to 8 times");
}

TEST_CASE("mismatches: random errors show no pattern") {
  const CounterRandom random(12, 1);
  const Planted planted = plant(64, 64, [&](auto r, auto c, double x) {
    const auto i = static_cast<std::uint64_t>(r * 64 + c);
    return random.uniform(i) < 0.3 ? x + random.normal(i + 5000) : x;
  });
  CHECK(mismatch_patterns(planted.sums.mismatches, planted.axes).empty());
  const std::string text = report(planted);
  has(text, "row all, column all; first at");
}

}  // namespace
}  // namespace tessera::reference

#include "base/stride_overlap.h"

#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <set>
#include <vector>

namespace tessera {
namespace {

using Numbers = std::vector<std::int64_t>;

std::int64_t place(const std::array<std::int64_t, kMaxBufferRank>& index, const Numbers& strides) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) sum += index[i] * strides[i];
  return sum;
}

/// Every index, one after the other.
bool overlaps(const Numbers& extents, const Numbers& strides) {
  std::set<std::int64_t> places;
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = 0;
    for (std::size_t d = 0; d < extents.size(); ++d) {
      at += rest % extents[d] * strides[d];
      rest /= extents[d];
    }
    if (!places.insert(at).second) return true;
  }
  return false;
}

bool is_apart(const Numbers& extents, const Numbers& strides) { return !find_overlap(extents, strides); }

}  // namespace

TEST_CASE("stride overlap: layouts that nest in any order, and strides that have no say") {
  CHECK(is_apart({2, 300, 8, 128}, {300 * 8 * 128, 8 * 128, 128, 1}));
  CHECK(is_apart({2, 300, 8, 128}, {128, 2 * 8 * 128, 2 * 128, 1}));      // sequences side by side
  CHECK(is_apart({2, 300, 8, 128}, {8 * 300 * 128, 128, 300 * 128, 1}));  // heads outside
  CHECK(is_apart({1, 300, 1, 128}, {0, 128, 0, 1}));
  CHECK(is_apart({}, {}));
  CHECK(is_apart({5, 0, 7}, {0, 0, 0}));
  CHECK(is_apart({1 << 30, 128}, {std::int64_t{1} << 40, 1}));
  CHECK(is_apart({65536, 1 << 30, 128}, {std::int64_t{1} << 37, 128, 1}));
  CHECK_FALSE(is_apart({65536, 1 << 30, 128}, {std::int64_t{1} << 36, 128, 1}));
}

TEST_CASE("stride overlap: interleaved layouts are told apart exactly") {
  CHECK(is_apart({2, 3}, {3, 2}));  // 0 2 4 3 5 7
  CHECK_FALSE(is_apart({3, 4}, {3, 2}));
  CHECK(is_apart({2, 100, 40}, {25 * 40, 10 * 40, 1}));  // a matrix between the rows of another
  CHECK_FALSE(is_apart({3, 100, 40}, {25 * 40, 10 * 40, 1}));
  CHECK_FALSE(is_apart({2, 2, 40}, {40, 39, 1}));
  CHECK_FALSE(is_apart({4}, {0}));
  CHECK(is_apart({4, 3}, {-3, 1}));
}

TEST_CASE("stride overlap: what is found is an overlap, and nothing is missed") {
  std::mt19937 random(7);
  int apart = 0;
  for (int i = 0; i < 20000; ++i) {
    Numbers extents, strides;
    for (unsigned d = 0, rank = 1 + random() % 4; d < rank; ++d) {
      extents.push_back(1 + static_cast<std::int64_t>(random() % 5));
      strides.push_back(static_cast<std::int64_t>(random() % 40) - (random() % 4 == 0 ? 20 : 0));
    }
    CAPTURE(extents);
    CAPTURE(strides);
    const std::optional<StrideOverlap> overlap = find_overlap(extents, strides);
    REQUIRE(overlap.has_value() == overlaps(extents, strides));
    apart += overlap ? 0 : 1;
    if (!overlap) continue;
    REQUIRE(overlap->is_proven);
    REQUIRE(overlap->first != overlap->second);
    REQUIRE(place(overlap->first, strides) == place(overlap->second, strides));
    for (std::size_t d = 0; d < extents.size(); ++d) {
      REQUIRE((overlap->first[d] >= 0 && overlap->first[d] < extents[d]));
      REQUIRE((overlap->second[d] >= 0 && overlap->second[d] < extents[d]));
    }
  }
  CHECK(apart > 1000);
  CHECK(apart < 19000);
}

TEST_CASE("stride overlap: the search ends") {
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<StrideOverlap> overlap =
      find_overlap(Numbers{1000003, 1000033, 1000037}, Numbers{4000000000039, 4000000000037, 4000000000001});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
  REQUIRE(overlap);
  BufferSpec buffer;
  buffer.name = "d";
  buffer.strides = {Expression::parse("s0"), Expression::parse("s1"), Expression::parse("s2")};
  if (!overlap->is_proven)
    CHECK(overlap_message(buffer, Numbers{3, 2, 1}, *overlap) ==
          "d may overlap itself: s0 = 3 and s1 = 2 and s2 = 1: that its elements lie apart was not proven in 262144 "
          "steps; take strides of which each is more than what the smaller ones reach");
}

TEST_CASE("stride overlap: the message names the strides and two elements") {
  BufferSpec buffer;
  buffer.name = "d";
  buffer.strides = {Expression::parse("d_stride_l"), Expression::parse("ldd"), Expression(1)};
  const auto said = [&](const Numbers& extents, const Numbers& strides) {
    const std::optional<StrideOverlap> overlap = find_overlap(extents, strides);
    REQUIRE(overlap);
    return overlap_message(buffer, strides, *overlap);
  };
  CHECK(said({2, 9, 8}, {40, 8, 1}) ==
        "d overlaps itself: d_stride_l = 40 and ldd = 8: elements [1, 0, 0] and [0, 5, 0] lie at one place; what is "
        "written must not overlap");
  CHECK(said({2, 3, 8}, {64, 6, 1}) ==
        "d overlaps itself: ldd = 6: elements [0, 1, 0] and [0, 0, 6] lie at one place; what is written must not "
        "overlap");
  CHECK(said({2, 3, 8}, {0, 8, 1}) ==
        "d overlaps itself: d_stride_l = 0: elements [1, 0, 0] and [0, 0, 0] lie at one place; what is written must "
        "not overlap");
}

}  // namespace tessera

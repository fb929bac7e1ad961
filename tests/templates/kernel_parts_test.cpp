#include "spec/kernel_parts.h"

#include <doctest/doctest.h>

using namespace tessera;

namespace {

struct Barriers {
  common::BarrierRow full, empty, last;
};
constexpr Barriers barriers_from(unsigned smem) {
  common::BarrierCursor cursor{{smem, 1024, 0}};
  return {cursor.take(3), cursor.take(3), cursor.take(1)};
}

}  // namespace

TEST_CASE("rows of barriers follow each other, 8 bytes a barrier") {
  constexpr Barriers kOffsets = barriers_from(0);
  CHECK(kOffsets.full[0] == 1024);
  CHECK(kOffsets.empty[0] == 1024 + 3 * 8);
  CHECK(kOffsets.last[0] == 1024 + 6 * 8);
  CHECK(barriers_from(0x400).empty[2] == 0x400 + 1024 + 5 * 8);
}

TEST_CASE("a constant row gives the addresses that a row with an address gives") {
  constexpr Barriers kBarriers = barriers_from(0);
  const unsigned smem = 0x4000;
  const Barriers placed = barriers_from(smem);
  for (int i = 0; i < 3; ++i) {
    CHECK(common::barrier_at<kBarriers.empty>(smem, i) == placed.empty[i]);
    CHECK(common::row_at<kBarriers.empty>(smem, 1)[i] == placed.empty[1 + i]);
  }
  CHECK(common::barrier_at<kBarriers.last>(smem) == placed.last[0]);
}

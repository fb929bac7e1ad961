// Swizzles, descriptors and fragment maps against the PTX manual's own pictures, and against each other.
#include <doctest/doctest.h>

#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

#include "emulator/math/fragments.h"
#include "emulator/math/matrix_descriptor.h"
#include "emulator/math/tile_copy.h"
#include "emulator/math/tmem_layout.h"
#include "tests/emulator_math/random.h"

namespace tessera::emulator::math {
namespace {

TEST_CASE("swizzle patterns as the manual draws them: 16-byte chunks of 128-byte lines") {
  struct Picture {
    Swizzle mode;
    int lines[8][8];
  };
  const Picture pictures[] = {{Swizzle::b128,
                               {{0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6},
                                {2, 3, 0, 1, 6, 7, 4, 5},
                                {3, 2, 1, 0, 7, 6, 5, 4},
                                {4, 5, 6, 7, 0, 1, 2, 3},
                                {5, 4, 7, 6, 1, 0, 3, 2},
                                {6, 7, 4, 5, 2, 3, 0, 1},
                                {7, 6, 5, 4, 3, 2, 1, 0}}},
                              {Swizzle::b64,
                               {{0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6},
                                {2, 3, 0, 1, 6, 7, 4, 5},
                                {3, 2, 1, 0, 7, 6, 5, 4},
                                {0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6},
                                {2, 3, 0, 1, 6, 7, 4, 5},
                                {3, 2, 1, 0, 7, 6, 5, 4}}},
                              {Swizzle::b32,
                               {{0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6},
                                {0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6},
                                {0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6},
                                {0, 1, 2, 3, 4, 5, 6, 7},
                                {1, 0, 3, 2, 5, 4, 7, 6}}},
                              {Swizzle::b128_atom_32b,
                               {{0, 1, 2, 3, 4, 5, 6, 7},
                                {2, 3, 0, 1, 6, 7, 4, 5},
                                {4, 5, 6, 7, 0, 1, 2, 3},
                                {6, 7, 4, 5, 2, 3, 0, 1},
                                {0, 1, 2, 3, 4, 5, 6, 7},
                                {2, 3, 0, 1, 6, 7, 4, 5},
                                {4, 5, 6, 7, 0, 1, 2, 3},
                                {6, 7, 4, 5, 2, 3, 0, 1}}}};
  for (const Picture& p : pictures)
    for (std::uint32_t line = 0; line < 8; ++line)
      for (std::uint32_t chunk = 0; chunk < 8; ++chunk) {
        const std::uint32_t a = 0x400 + line * 128 + chunk * 16 + 5;
        CHECK(apply_swizzle(p.mode, a) ==
              0x400 + line * 128 + static_cast<std::uint32_t>(p.lines[line][chunk]) * 16 + 5);
      }
}

TEST_CASE("every swizzle is its own inverse and stays in its repeat") {
  for (int mode = 0; mode <= 7; ++mode)
    for (std::uint32_t a = 0; a < 4096; ++a) {
      const auto s = static_cast<Swizzle>(mode);
      REQUIRE(apply_swizzle(s, apply_swizzle(s, a)) == a);
      REQUIRE(apply_swizzle(s, a) / 128 == a / 128);
    }
}

TEST_CASE("descriptor fields") {
  // 128B, SBO 1024, LBO 16, start 0x6400, as public sm_90a kernels build it.
  const std::uint64_t bits = std::uint64_t{1} << 62 | std::uint64_t{64} << 32 | std::uint64_t{1} << 16 | 0x640;
  const DecodedDescriptor d = decode_descriptor(DescriptorKind::wgmma, bits);
  CHECK(d.issue == DescriptorIssue::none);
  CHECK(d.descriptor.start == 0x6400);
  CHECK(d.descriptor.leading_bytes == 16);
  CHECK(d.descriptor.stride_bytes == 1024);
  CHECK(d.descriptor.swizzle == Swizzle::b128);
  CHECK(encode_descriptor(DescriptorKind::wgmma, d.descriptor) == bits);
  CHECK(decode_descriptor(DescriptorKind::wgmma, bits | std::uint64_t{1} << 15).issue ==
        DescriptorIssue::reserved_bits);
  CHECK(decode_descriptor(DescriptorKind::wgmma, bits | std::uint64_t{1} << 46).issue ==
        DescriptorIssue::reserved_bits);
  const std::uint64_t blackwell = bits | std::uint64_t{1} << 46;
  CHECK(decode_descriptor(DescriptorKind::tcgen05, blackwell).issue == DescriptorIssue::none);
  CHECK(decode_descriptor(DescriptorKind::tcgen05, blackwell).descriptor.swizzle == Swizzle::b128);
  CHECK(decode_descriptor(DescriptorKind::tcgen05, bits).issue == DescriptorIssue::version);
  CHECK(decode_descriptor(DescriptorKind::tcgen05, blackwell | std::uint64_t{1} << 61).issue ==
        DescriptorIssue::swizzle);
  for (DescriptorKind kind : {DescriptorKind::wgmma, DescriptorKind::tcgen05})
    for (Swizzle s : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
      const MatrixDescriptor in{0x12340, 0x3000, 0x20, 5, s, false};
      const DecodedDescriptor out = decode_descriptor(kind, encode_descriptor(kind, in));
      CHECK(out.issue == DescriptorIssue::none);
      CHECK(out.descriptor.start == in.start);
      CHECK(out.descriptor.leading_bytes == in.leading_bytes);
      CHECK(out.descriptor.stride_bytes == in.stride_bytes);
      CHECK(out.descriptor.base_offset == in.base_offset);
      CHECK(out.descriptor.swizzle == in.swizzle);
    }
}

// Where a tensor copy puts element (inner, outer) of a 2-D tile: the address whose global source is that element.
std::uint32_t copied_to(const TensorTile& tile, std::uint32_t shared, std::uint64_t global) {
  std::uint32_t found = 0;
  for_each_chunk(tile, {0, 0, 0, 0, 0}, shared, [&](const TileChunk& c) {
    if (global >= c.global && global < c.global + 16) found = c.shared + static_cast<std::uint32_t>(global - c.global);
  });
  return found;
}

TEST_CASE("a tile that a tensor copy writes is read back by the descriptor that goes with it") {
  struct Case {
    Swizzle swizzle;
    TileType type;
    int bits;
  };
  for (const Case& c : {Case{Swizzle::b128, TileType::bf16, 16}, Case{Swizzle::b64, TileType::bf16, 16},
                        Case{Swizzle::b32, TileType::bf16, 16}, Case{Swizzle::b128, TileType::u8, 8},
                        Case{Swizzle::b128, TileType::f32, 32}}) {
    const auto element = static_cast<std::uint32_t>(c.bits) / 8;
    const std::uint32_t span = swizzle_span_bytes(c.swizzle);
    const std::uint32_t inner = span / element;
    TensorTile tile;
    tile.type = c.type;
    tile.rank = 2;
    tile.dims = {inner, 64};
    tile.stride_bytes = {span};
    tile.box = {inner, 64};
    tile.swizzle = c.swizzle;
    const std::uint32_t shared = 0x2480;  // not at the pattern's start: the XOR is on the absolute address
    // K-major: rows of the tile are rows of the operand; 8 rows are 8 * span bytes.
    const MatrixDescriptor k_major{shared, 16, 8 * span, 0, c.swizzle, false};
    // MN-major: rows of the tile are k.
    const MatrixDescriptor mn_major{shared, 64 * span, 8 * span, 0, c.swizzle, false};
    for (std::uint32_t outer = 0; outer < 64; outer += 7)
      for (std::uint32_t i = 0; i < inner; ++i) {
        const std::uint32_t want = copied_to(tile, shared, outer * span + i * element);
        REQUIRE(element_address(k_major, Major::k, c.bits, outer, i) == want);
        REQUIRE(element_address(mn_major, Major::mn, c.bits, i, outer) == want);
      }
  }
}

TEST_CASE("strides without swizzle, and the 32-byte atoms of tf32") {
  // Canonical layouts: 8x16-byte core matrices; 16-bit elements.
  const MatrixDescriptor d{0x1000, 0x800, 0x100, 3, Swizzle::none, false};
  CHECK(element_address(d, Major::k, 16, 0, 0) == 0x1000);
  CHECK(element_address(d, Major::k, 16, 3, 5) == 0x1000 + 3 * 16 + 5 * 2);
  CHECK(element_address(d, Major::k, 16, 11, 9) == 0x1000 + 0x100 + 3 * 16 + 0x800 + 2);
  CHECK(element_address(d, Major::mn, 16, 3, 5) == 0x1000 + 3 * 2 + 5 * 16);
  CHECK(element_address(d, Major::mn, 16, 11, 9) == 0x1000 + 0x100 + 3 * 2 + 0x800 + 16);
  // A base offset equal to the pattern's start makes a shifted tile look like an aligned one.
  for (std::uint32_t shift = 0; shift < 8; ++shift) {
    const MatrixDescriptor aligned{0x4000, 0, 0x400, 0, Swizzle::b128, false};
    const MatrixDescriptor shifted{0x4000 + shift * 128, 0, 0x400, shift, Swizzle::b128, false};
    for (std::uint32_t r = 0; r < 16; ++r)
      for (std::uint32_t k = 0; k < 64; k += 8)
        REQUIRE(element_address(shifted, Major::k, 16, r, k) - shift * 128 ==
                element_address(aligned, Major::k, 16, r, k));
  }
  const MatrixDescriptor atoms{0x4000, 0x2000, 0x200, 0, Swizzle::b128_atom_32b, false};
  CHECK(element_address(atoms, Major::mn, 32, 8, 0) == 0x4000 + 32);
  CHECK(element_address(atoms, Major::mn, 32, 0, 1) == 0x4000 + 128 + 32);
  CHECK(element_address(atoms, Major::mn, 32, 0, 5) == 0x4000 + 0x200 + 128 + 32);
  CHECK(element_address(atoms, Major::mn, 32, 33, 0) == 0x4000 + 0x2000 + 4);
}

TEST_CASE("chunks name every element once") {
  for (Major major : {Major::k, Major::mn})
    for (int bits : {4, 8, 16, 32}) {
      const MatrixDescriptor d{0x8000, 0x1000, 0x400, 0, Swizzle::b128, false};
      std::set<std::pair<int, int>> seen;
      const int k_extent = 256 / bits;
      for_each_chunk(d, major, bits, 24, k_extent, [&](std::uint32_t address, int index, int k, int elements) {
        for (int i = 0; i < elements; ++i) {
          const int at = major == Major::k ? index : index + i;
          const int at_k = major == Major::k ? k + i : k;
          REQUIRE(seen.insert({at, at_k}).second);
          if (bits >= 8)
            REQUIRE(address + static_cast<std::uint32_t>(i * bits / 8) ==
                    element_address(d, major, bits, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at_k)));
        }
      });
      CHECK(seen.size() == static_cast<std::size_t>(24 * k_extent));
    }
}

// The map of (thread, register, element) covers rows x columns exactly once.
template <class Map>
void check_cover(int rows, int columns, int threads, int registers, int elements, Map map) {
  std::set<std::pair<int, int>> seen;
  for (int t = 0; t < threads; ++t)
    for (int r = 0; r < registers; ++r)
      for (int e = 0; e < elements; ++e) {
        const Place p = map(t, r, e);
        REQUIRE(p.row < rows);
        REQUIRE(p.column < columns);
        seen.insert({p.row, p.column});
      }
  CHECK(seen.size() == static_cast<std::size_t>(rows * columns));
  CHECK(threads * registers * elements == rows * columns);
}

TEST_CASE("fragments cover their matrices") {
  const auto a = [](int bits) { return [bits](int t, int r, int e) { return mma_a(bits, t, r, e); }; };
  const auto b = [](int bits) { return [bits](int t, int r, int e) { return mma_b(bits, t, r, e); }; };
  check_cover(16, 16, 32, 4, 2, a(16));
  check_cover(16, 8, 32, 2, 2, a(16));
  check_cover(16, 8, 32, 4, 1, a(32));
  check_cover(16, 4, 32, 2, 1, a(32));
  check_cover(16, 32, 32, 4, 4, a(8));
  check_cover(16, 64, 32, 4, 8, a(4));
  check_cover(16, 256, 32, 4, 32, a(1));
  check_cover(16, 8, 32, 2, 2, b(16));
  check_cover(32, 8, 32, 2, 4, b(8));
  check_cover(64, 8, 32, 2, 8, b(4));
  check_cover(8, 8, 32, 2, 1, b(32));
  check_cover(16, 8, 32, 4, 1, [](int t, int v, int) { return mma_d(t, v); });
  check_cover(64, 256, 128, 128, 1, [](int t, int v, int) { return wgmma_d(t, v); });
  check_cover(64, 16, 128, 4, 2, [](int t, int r, int e) { return wgmma_a(16, t, r, e); });
  check_cover(64, 32, 128, 4, 4, [](int t, int r, int e) { return wgmma_a(8, t, r, e); });
  check_cover(64, 8, 128, 4, 1, [](int t, int r, int e) { return wgmma_a(32, t, r, e); });
}

TEST_CASE("fragments, single places") {
  const auto same = [](Place p, int row, int column) { return p.row == row && p.column == column; };
  CHECK(same(mma_a(16, 5, 0, 1), 1, 3));   // lane 5: g 1, q 1
  CHECK(same(mma_a(16, 5, 3, 0), 9, 10));  // a6: row g + 8, k = 2q + 8
  CHECK(same(mma_a(8, 6, 2, 3), 1, 27));
  CHECK(same(mma_a(32, 7, 1, 0), 9, 3));
  CHECK(same(mma_b(16, 5, 1, 1), 11, 1));
  CHECK(same(mma_d(5, 2), 9, 2));
  CHECK(same(wgmma_d(37, 6), 25, 10));  // warp 1, lane 5: row 16 + 1 + 8, n = 2 + 8
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < 4; ++v) CHECK(same(wgmma_d(lane, v), mma_d(lane, v).row, mma_d(lane, v).column));
  CHECK(mma_scale_lane_a(3, 0) == 12);
  CHECK(mma_scale_lane_a(11, 1) == 15);
  CHECK(mma_scale_lane_b(2, 3) == 11);
}

TEST_CASE("ldmatrix gives an mma its A; the transposed form its B from rows of k") {
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r)
      for (int b = 0; b < 4; ++b) {
        // x4 with the four 8x8 quarters of A in the order of A's registers.
        const MatrixByte m = m8n8(lane, r, b);
        const Place p = mma_a(16, lane, r, b / 2);
        CHECK(m.address_lane / 8 == r);
        CHECK(m.address_lane % 8 == p.row % 8);
        CHECK(m.offset / 2 == p.column % 8);
        const MatrixByte t = m8n8_trans(lane, r, b);
        const Place q = mma_b(16, lane, r, b / 2);
        CHECK(t.address_lane % 8 == q.row % 8);
        CHECK(t.offset / 2 == q.column);
        CHECK(t.offset % 2 == b % 2);
      }
  CHECK(m16n16_trans_b8(9, 3, 2).address_lane == 22);
  CHECK(m16n16_trans_b8(9, 3, 2).offset == 10);
  CHECK(m16n8_trans_b8(9, 1, 3).address_lane == 11);
  CHECK(m16n8_trans_b8(9, 1, 3).offset == 10);
  CHECK(m8n16_narrow(6, 9, 0, 1).first_bit == 30);
}

TEST_CASE("Tensor Memory maps") {
  // Every shape covers its lanes x columns once; 16x256b is mma's accumulator, repeated every 8 columns.
  const auto cover = [](TmemShape shape, int n, int lanes, int columns) {
    std::set<std::pair<int, int>> seen;
    for (int t = 0; t < 32; ++t)
      for (int r = 0; r < tmem_registers(shape, n); ++r) {
        const TmemPlace p = tmem_register(shape, t, r, n);
        REQUIRE(p.lane < lanes);
        REQUIRE(p.column < columns);
        REQUIRE(seen.insert({p.lane, p.column}).second);
      }
    CHECK(seen.size() == static_cast<std::size_t>(lanes * columns));
  };
  cover(TmemShape::l32x32b, 8, 32, 8);
  cover(TmemShape::l16x64b, 8, 16, 16);
  cover(TmemShape::l16x128b, 8, 16, 32);
  cover(TmemShape::l16x256b, 4, 16, 32);
  cover(TmemShape::l16x32bx2, 8, 16, 16);
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 16; ++r) {
      const TmemPlace p = tmem_register(TmemShape::l16x256b, lane, r);
      CHECK(p.lane == mma_d(lane, r % 4).row);
      CHECK(p.column == mma_d(lane, r % 4).column + 8 * (r / 4));
    }
  CHECK(tmem_accumulator(TmemAccumulator::f, 37, 9, 64).lane == 69);
  CHECK(tmem_accumulator(TmemAccumulator::b, 5, 200, 256).lane == 69);
  CHECK(tmem_accumulator(TmemAccumulator::b, 5, 200, 256).column == 72);
  CHECK(tmem_operand(16, 5).column == 2);
  CHECK(tmem_operand(16, 5).first_bit == 16);
  CHECK(tmem_operand(4, 63).column == 7);
  CHECK(tmem_scale(77, 2).lane == 77 % 32 + 64);
  CHECK(tmem_scale(77).column == 2);
  CHECK(tmem_scale_byte(2, 2, 40) == 3);
  for (TmemCopy shape :
       {TmemCopy::c128x128b, TmemCopy::c64x128b_02_13, TmemCopy::c64x128b_01_23, TmemCopy::c32x128b_x4}) {
    std::set<int> lanes;
    for (int row = 0; row < tmem_copy_rows(shape); ++row)
      for (int copy = 0; copy < tmem_copies(shape); ++copy) lanes.insert(tmem_copy(shape, row, 0, copy).lane);
    CHECK(lanes.size() == 128);
  }
  CHECK(tmem_copy(TmemCopy::c64x128b_01_23, 40, 1, 1).lane == 104);
}

}  // namespace
}  // namespace tessera::emulator::math

// templates/spec, which kernels and `tessera layout` use, against the emulator's own decoding of the PTX manual:
// written apart, compared exhaustively.
#include <doctest/doctest.h>

#include <random>

#include "emulator/math/fragments.h"
#include "emulator/math/instruction_descriptor.h"
#include "emulator/math/matrix_descriptor.h"
#include "emulator/math/tmem_layout.h"
#include "spec/fragment.h"
#include "spec/smem_descriptor.h"
#include "spec/sparse.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/instruction_descriptor.h"

namespace tessera::emulator::math {
namespace {

using layout::Fragment;
using layout::FragmentShape;

/// Calls visit(slot, element) for every element of every register, after checking that both directions agree and that
/// the matrix is covered once.
template <class Visit>
void for_each_slot(const FragmentShape& shape, Visit&& visit) {
  std::vector<int> seen(static_cast<std::size_t>(shape.rows * shape.columns));
  for (int lane = 0; lane < fragment_lanes(shape); ++lane)
    for (int reg = 0; reg < fragment_registers(shape); ++reg)
      for (int index = 0; index < fragment_elements(shape); ++index) {
        const layout::FragmentElement at = fragment_element(shape, {lane, reg, index});
        REQUIRE(at.row >= 0);
        REQUIRE(at.row < shape.rows);
        REQUIRE(at.column >= 0);
        REQUIRE(at.column < shape.columns);
        ++seen[static_cast<std::size_t>(at.row * shape.columns + at.column)];
        const layout::FragmentSlot back = fragment_slot(shape, at);
        REQUIRE(back.lane == lane);
        REQUIRE(back.reg == reg);
        REQUIRE(back.index == index);
        visit(layout::FragmentSlot{lane, reg, index}, at);
      }
  for (const int count : seen) REQUIRE(count == 1);
}

bool same(const layout::FragmentElement& at, const Place& place) {
  return at.row == place.row && at.column == place.column;
}

TEST_CASE("spec: fragments of mma.sync and wgmma are the emulator's") {
  for (const int bits : {1, 4, 8, 16, 32}) {
    const int quad = 4 * 32 / bits;  // of K, what the registers of a quad cover
    for (const int k : {quad, 2 * quad}) {
      for_each_slot({Fragment::mma_a, 16, k, bits},
                    [&](auto s, auto at) { REQUIRE(same(at, mma_a(bits, s.lane, s.reg, s.index))); });
      for_each_slot({Fragment::mma_b, k, 8, bits},
                    [&](auto s, auto at) { REQUIRE(same(at, mma_b(bits, s.lane, s.reg, s.index))); });
    }
    for_each_slot({Fragment::mma_a, 8, quad, bits}, [](auto, auto) {});
  }
  for (const int bits : {16, 32}) {
    const int per = 32 / bits;
    for_each_slot({Fragment::mma_d, 16, 8, bits},
                  [&](auto s, auto at) { REQUIRE(same(at, mma_d(s.lane, s.reg * per + s.index))); });
    for (int n = 8; n <= 256; n += 8)
      for_each_slot({Fragment::wgmma_d, 64, n, bits},
                    [&](auto s, auto at) { REQUIRE(same(at, wgmma_d(s.lane, s.reg * per + s.index))); });
  }
  for (const int bits : {8, 16, 32})
    for_each_slot({Fragment::wgmma_a, 64, 256 / bits, bits},
                  [&](auto s, auto at) { REQUIRE(same(at, wgmma_a(bits, s.lane, s.reg, s.index))); });
}

TEST_CASE("spec: repacking D as A keeps every element in its thread, and every column once") {
  for (const int bits : {4, 8, 16, 32})
    for (const int columns : {128 / bits, 256 / bits}) {
      const FragmentShape a{Fragment::mma_a, 16, columns, bits}, d{Fragment::mma_d, 16, 8, 32};
      std::vector<bool> is_taken(static_cast<std::size_t>(columns));
      for (int k = 0; k < columns; ++k) {
        const int column = layout::repack_column(bits, k);
        if (bits == 16) CHECK(column == k);
        if (columns % 8 != 0) continue;  // less than a tile of D
        REQUIRE(column < columns);
        CHECK_FALSE(is_taken[static_cast<std::size_t>(column)]);
        is_taken[static_cast<std::size_t>(column)] = true;
        for (int row = 0; row < 16; ++row)
          REQUIRE(fragment_slot(a, {row, k}).lane == fragment_slot(d, {row, column % 8}).lane);
      }
    }
}

TEST_CASE("spec: sparse metadata is the emulator's, every group of every row in one place") {
  for (const auto& [bits, k] : {std::pair(16, 16), std::pair(16, 32), std::pair(32, 8), std::pair(32, 16),
                                std::pair(8, 32), std::pair(8, 64), std::pair(4, 64), std::pair(4, 128)}) {
    const layout::SparseShape shape{bits, k, false};
    const int groups = sparse_groups(shape);
    for (int selector = 0; selector < sparse_selectors(shape); ++selector) {
      int places = 0;
      for (int lane = 0; lane < 32; ++lane)
        for (int nibble = 0; nibble < 8; ++nibble) {
          const Place place = mma_metadata(bits, groups, selector, lane, nibble);
          if (place.row < 0) continue;
          ++places;
          const layout::MetadataSlot slot = sparse_metadata_slot(shape, selector, {place.row, place.column});
          REQUIRE(slot.lane == lane);
          REQUIRE(slot.first_bit == 4 * nibble);
          // wgmma: each warp has 16 rows, laid out alike.
          const layout::MetadataSlot third = sparse_metadata_slot(shape, selector, {32 + place.row, place.column});
          REQUIRE(third.lane == 64 + lane);
          REQUIRE(third.first_bit == 4 * nibble);
        }
      REQUIRE(places == 16 * groups);
    }
  }
}

TEST_CASE("spec: ldmatrix and stmatrix are the emulator's") {
  for (const int count : {1, 2, 4}) {
    for_each_slot({Fragment::matrix, 8 * count, 8, 16}, [&](auto s, auto at) {
      const MatrixByte byte = m8n8(s.lane, s.reg, 2 * s.index);
      REQUIRE(same(at, {byte.address_lane, byte.offset / 2}));
    });
    for_each_slot({Fragment::matrix_trans, 8 * count, 8, 16}, [&](auto s, auto at) {
      const MatrixByte byte = m8n8_trans(s.lane, s.reg, 2 * s.index);
      REQUIRE(same(at, {byte.address_lane, byte.offset / 2}));
    });
    for_each_slot({Fragment::matrix_store_b8, 8 * count, 16, 8}, [&](auto s, auto at) {
      const MatrixByte byte = m16n8_trans_b8(s.lane, s.reg, s.index);
      REQUIRE(same(at, {byte.address_lane, byte.offset}));
    });
    for_each_slot({Fragment::matrix_narrow, 8 * count, 16, 8}, [&](auto s, auto at) {
      for (const int width : {4, 6}) {
        const MatrixBits bits = m8n16_narrow(width, s.lane, s.reg, s.index);
        REQUIRE(same(at, {bits.address_lane, bits.first_bit / width}));
      }
    });
    if (count < 4)
      for_each_slot({Fragment::matrix_trans_b8, 16 * count, 16, 8}, [&](auto s, auto at) {
        const MatrixByte byte = m16n16_trans_b8(s.lane, s.reg, s.index);
        REQUIRE(same(at, {byte.address_lane, byte.offset}));
      });
  }
}

TEST_CASE("spec: tcgen05.ld and .st are the emulator's") {
  struct Shape {
    Fragment fragment;
    TmemShape emulated;
    int lanes, columns, largest;  // columns of .x1
  };
  for (const Shape& shape : {Shape{Fragment::tmem_32x32b, TmemShape::l32x32b, 32, 1, 128},
                             Shape{Fragment::tmem_16x64b, TmemShape::l16x64b, 16, 2, 128},
                             Shape{Fragment::tmem_16x128b, TmemShape::l16x128b, 16, 4, 64},
                             Shape{Fragment::tmem_16x256b, TmemShape::l16x256b, 16, 8, 32},
                             Shape{Fragment::tmem_16x32bx2, TmemShape::l16x32bx2, 16, 2, 128}})
    for (int n = 1; n <= shape.largest; n *= 2)
      for (const int per : {1, 2}) {  // 2: .pack::16b, a register for two columns
        const FragmentShape map{shape.fragment, shape.lanes, per * shape.columns * n, 32 / per};
        REQUIRE(fragment_registers(map) == tmem_registers(shape.emulated, n));
        for_each_slot(map, [&](auto s, auto at) {
          const TmemPlace place =
              tmem_register(shape.emulated, s.lane, s.reg, n);  // n: the split, next to the first half
          REQUIRE(at.row == place.lane);
          REQUIRE(at.column == per * place.column + s.index);
        });
      }
}

TEST_CASE("spec: block scales are the emulator's") {
  for (int row = 0; row < 16; ++row)
    for (const int thread : {0, 1})
      CHECK(layout::mma_scale_slot(true, thread, 0, row, 0).lane == mma_scale_lane_a(row, thread));
  for (int column = 0; column < 8; ++column)
    for (int thread = 0; thread < 4; ++thread)
      CHECK(layout::mma_scale_slot(false, thread, 0, column, 0).lane == mma_scale_lane_b(column, thread));
  for (const int vector : {1, 2, 4})
    for (int id = -1; id <= 4; ++id) {
      const bool is_legal = vector == 1 ? id >= 0 && id <= 3 : vector == 2 ? id == 0 || id == 2 : id == 0;
      CHECK(layout::why_bad_selectors(true, vector, 0, id).ok() == is_legal);
      if (!is_legal) continue;
      const int block = vector == 4 ? 16 : 32;
      for (int k = 0; k < 32 * (vector == 1 ? 1 : 2); ++k)
        CHECK(layout::mma_scale_slot(true, 0, id, 0, k / block).byte == tmem_scale_byte(vector, id, k));
    }
  // The tile of 512 bytes, copied by tcgen05.cp.32x128b.warpx4, is the cell that the instruction reads.
  for (int row = 0; row < 128; ++row)
    for (int block = 0; block < 8; ++block) {
      const long long offset = scale_offset(ScaleForm::tile, 128, 8, 0, row, block);
      const layout::TmemScale place = layout::tmem_scale_place(128, row, block);
      CHECK(place.column / 4 == offset / kTileBytes);
      const int in_tile = static_cast<int>(offset % kTileBytes);
      CHECK(tmem_copy(TmemCopy::c32x128b_x4, in_tile / 16, in_tile % 16 / 4, 0).lane == place.lane);
      CHECK(in_tile % 16 / 4 == place.column % 4);
      CHECK(in_tile % 4 == place.byte);
      CHECK(tmem_scale(row).lane == place.lane);
      CHECK(tmem_scale(row).column == place.column % 4);
    }
}

Swizzle emulated(layout::SmemLayout from) {
  constexpr Swizzle kAll[] = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128, Swizzle::b128_atom_32b};
  return kAll[static_cast<int>(from)];
}

TEST_CASE("spec: shared-memory descriptors are the emulator's, bit by bit and address by address") {
  std::mt19937_64 random(20);
  for (const auto& [kind, theirs] : {std::pair(layout::DescriptorKind::wgmma, DescriptorKind::wgmma),
                                     std::pair(layout::DescriptorKind::tcgen05, DescriptorKind::tcgen05)})
    for (int i = 0; i < 20000; ++i) {
      layout::SmemDescriptor d;
      d.start = static_cast<unsigned>(random() % (1 << 14)) * 16;
      d.leading_bytes = static_cast<int>(random() % 512) * 16;
      d.stride_bytes = static_cast<int>(random() % 512) * 16;
      d.base_offset = static_cast<int>(random() % 8);
      d.layout = static_cast<layout::SmemLayout>(random() % (kind == layout::DescriptorKind::wgmma ? 4 : 5));
      REQUIRE(why_invalid(kind, d).ok());
      const MatrixDescriptor same{d.start,
                                  static_cast<std::uint32_t>(d.leading_bytes),
                                  static_cast<std::uint32_t>(d.stride_bytes),
                                  static_cast<std::uint32_t>(d.base_offset),
                                  emulated(d.layout),
                                  false};
      const unsigned long long bits = encode_smem_descriptor(kind, d);
      REQUIRE(bits == encode_descriptor(theirs, same));
      const layout::DecodedSmemDescriptor back = decode_smem_descriptor(kind, bits);
      REQUIRE(encode_smem_descriptor(kind, back.fields) == bits);
      REQUIRE(back.reserved == 0);
      const auto index = static_cast<std::uint32_t>(random() % 64), k = static_cast<std::uint32_t>(random() % 64);
      REQUIRE(smem_operand_address(d, layout::Major::k, static_cast<int>(index), static_cast<int>(k * 2)) ==
              element_address(same, Major::k, 16, index, k));
      REQUIRE(smem_operand_address(d, layout::Major::mn, static_cast<int>(k), static_cast<int>(index * 2)) ==
              element_address(same, Major::mn, 16, index, k));
    }
  // Any 64 bits: what cannot be is found by both.
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random() & random();
    for (const auto& [kind, theirs] : {std::pair(layout::DescriptorKind::wgmma, DescriptorKind::wgmma),
                                       std::pair(layout::DescriptorKind::tcgen05, DescriptorKind::tcgen05)}) {
      const layout::DecodedSmemDescriptor mine = decode_smem_descriptor(kind, bits);
      const bool is_fine = mine.reserved == 0 && !mine.is_version_wrong && !mine.is_layout_wrong;
      REQUIRE(is_fine == (decode_descriptor(theirs, bits).issue == DescriptorIssue::none));
    }
  }
}

TEST_CASE("spec: instruction descriptors are the emulator's") {
  std::mt19937 random(21);
  constexpr Format kFormats[] = {Format::f16,  Format::bf16, Format::tf32, Format::e4m3,
                                 Format::e5m2, Format::e2m3, Format::e3m2, Format::e2m1};
  int legal = 0;
  for (int i = 0; i < 400000; ++i) {
    const auto kind = static_cast<layout::Tcgen05Kind>(random() % 7);
    const auto theirs = static_cast<Tcgen05Kind>(kind);
    layout::InstructionDescriptor d;
    d.a = static_cast<layout::Tcgen05Type>(random() % layout::kNumTcgen05Types);
    d.b = static_cast<layout::Tcgen05Type>(random() % layout::kNumTcgen05Types);
    d.d = static_cast<layout::Tcgen05Result>(random() % 3);
    d.m = 32 << random() % 4;
    d.n = 8 * static_cast<int>(1 + random() % 32);
    d.is_a_mn_major = random() % 3 == 0;
    d.is_b_mn_major = random() % 3 == 0;
    d.negates_a = random() % 3 == 0;
    d.negates_b = random() % 3 == 0;
    d.is_sparse = random() % 4 == 0;
    d.saturates = random() % 4 == 0;
    d.scales_are_ue8m0 = random() % 3 != 0;
    d.scale_id_a = static_cast<int>(random() % 4);
    d.scale_id_b = static_cast<int>(random() % 4);
    if (!is_block_scaled(kind)) d.scale_id_a = d.scale_id_b = 0;
    d.is_k96 = random() % 5 == 0;
    if (!why_invalid(kind, d).ok()) continue;
    ++legal;
    const std::uint32_t bits = encode_instruction_descriptor(kind, d);
    const InstructionDescriptor read = decode_instruction(theirs, bits);
    CAPTURE(bits);
    REQUIRE(read.issue == InstructionIssue::none);
    REQUIRE(read.m == d.m);
    REQUIRE(read.n == d.n);
    REQUIRE((read.a_major == Major::mn) == d.is_a_mn_major);
    REQUIRE((read.b_major == Major::mn) == d.is_b_mn_major);
    REQUIRE(read.negate_a == d.negates_a);
    REQUIRE(read.negate_b == d.negates_b);
    REQUIRE(read.sparse == d.is_sparse);
    REQUIRE(read.saturate == d.saturates);
    REQUIRE(read.scale_id_a == d.scale_id_a);
    REQUIRE(read.scale_id_b == d.scale_id_b);
    REQUIRE(read.k == (d.is_k96 ? 96 : layout::tcgen05_k(kind)));
    if (!is_block_scaled(kind)) {
      REQUIRE(static_cast<int>(read.result) == static_cast<int>(d.d));
    } else {
      REQUIRE((read.scale_format == Format::ue8m0) == d.scales_are_ue8m0);
    }
    if (kind == layout::Tcgen05Kind::i8) {
      REQUIRE(read.a_signed == (d.a == layout::Tcgen05Type::s8));
      REQUIRE(read.b_signed == (d.b == layout::Tcgen05Type::s8));
    } else {
      REQUIRE(read.a == kFormats[static_cast<int>(d.a)]);
      REQUIRE(read.b == kFormats[static_cast<int>(d.b)]);
    }
    const layout::DecodedInstruction back = decode_instruction_descriptor(kind, bits);
    REQUIRE(back.reserved == 0);
    REQUIRE(encode_instruction_descriptor(kind, back.fields) == bits);
  }
  CHECK(legal > 1000);
  // A value from generated code in public: f16 x f16 -> f32, M 128, N 256, A K-major, B MN-major.
  const layout::DecodedInstruction known = decode_instruction_descriptor(layout::Tcgen05Kind::f16, 0x08410010);
  CHECK(known.fields.m == 128);
  CHECK(known.fields.n == 256);
  CHECK(known.fields.is_b_mn_major);
  CHECK_FALSE(known.fields.is_a_mn_major);
}

}  // namespace
}  // namespace tessera::emulator::math

// The units of NVFP4 attention, which templates/spec/nvfp4_units.h lays out, against the emulator's own decoding of the
// PTX manual: a lane that reads its words and scales in order has the instruction's fragments.
#include "spec/nvfp4_units.h"

#include <doctest/doctest.h>

#include <iterator>
#include <set>

#include "emulator/math/fragments.h"
#include "spec/fragment.h"

namespace tessera::emulator::math {
namespace {

constexpr int kBits = 4, kPerWord = 8;

}  // namespace

TEST_CASE("nvfp4 units: a lane's words are its registers of A and B") {
  for (const int head_dim : {64, 128}) {
    const int steps = head_dim / nvfp4::kDepth;
    std::set<int> of_q, of_k, of_v;
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < kPerWord; ++e) {
        for (int step = 0; step < steps; ++step)
          for (int r = 0; r < 4; ++r) {
            const Place at = mma_a(kBits, lane, r, e);
            const int column = step * nvfp4::kDepth + at.column;
            REQUIRE(column % 8 == e);
            REQUIRE(nvfp4::q_word(at.row, column) == step * 512 + 16 * lane + 4 * r);
            of_q.insert(nvfp4::q_word(at.row, column));
          }
        for (int tile = 0; tile < nvfp4::kKeysOfUnit / 8; ++tile)
          for (int step = 0; step < steps; ++step)
            for (int r = 0; r < 2; ++r) {
              const Place at = mma_b(kBits, lane, r, e);
              const int key = tile / 4 * 32 + nvfp4::key_of_column(tile % 4 * 8 + at.column);
              const int column = step * nvfp4::kDepth + at.row, word = (tile * steps + step) * 2 + r;
              REQUIRE(column % 8 == e);
              REQUIRE(nvfp4::k_word(head_dim, key, column) == nvfp4::word_offset(lane, word));
              of_k.insert(nvfp4::word_offset(lane, word));
            }
        for (int tile = 0; tile < head_dim / 8; ++tile)
          for (int r = 0; r < 2; ++r) {
            const Place at = mma_b(kBits, lane, r, e);
            REQUIRE(at.row % 8 == e);
            REQUIRE(nvfp4::v_word(at.row, tile * 8 + at.column) == nvfp4::word_offset(lane, 2 * tile + r));
            of_v.insert(nvfp4::word_offset(lane, 2 * tile + r));
          }
      }
    // Each word once, and no byte beside them.
    CHECK(4 * std::ssize(of_q) == nvfp4::q_scales_offset(head_dim));
    CHECK(*of_q.rbegin() == nvfp4::q_scales_offset(head_dim) - 4);
    for (const std::set<int>& words : {of_k, of_v}) {
      CHECK(4 * std::ssize(words) == nvfp4::key_scales_offset(head_dim));
      CHECK(*words.rbegin() == nvfp4::key_scales_offset(head_dim) - 4);
    }
  }
}

TEST_CASE("nvfp4 units: a lane's accumulators of S are what it has of P as A") {
  for (int lane = 0; lane < 32; ++lane)
    for (int group = 0; group < 2; ++group)
      for (int tile = 0; tile < 4; ++tile)
        for (int v = 0; v < 4; ++v) {
          const Place in_s = mma_d(lane, v);
          const int key = 32 * group + nvfp4::key_of_column(tile * 8 + in_s.column);
          REQUIRE(nvfp4::column_of_key(key % 32) == tile * 8 + in_s.column);
          const Place in_p = mma_a(kBits, lane, 2 * group + v / 2, 2 * tile + v % 2);
          REQUIRE(in_p.row == in_s.row);
          REQUIRE(in_p.column == key);
        }
}

TEST_CASE("nvfp4 units: a lane's scale words are those that the instruction asks it for") {
  for (const int head_dim : {64, 128}) {
    const int steps = head_dim / nvfp4::kDepth;
    std::set<int> of_q, of_k, of_v;
    for (int block = 0; block < 4; ++block) {
      for (int step = 0; step < steps; ++step)
        for (int row = 0; row < 16; ++row) {
          // The thread id is the step: with one step half of the lanes have no scales.
          const layout::ScaleSlot slot = layout::mma_scale_slot(true, step, 0, row, block);
          const int word = steps == 2 ? slot.lane : slot.lane / 4 * 2 + slot.lane % 4;
          const int at = nvfp4::q_scale(head_dim, row, step * nvfp4::kDepth + block * nvfp4::kGroup);
          REQUIRE(at == nvfp4::q_scales_offset(head_dim) + 4 * word + slot.byte);
          of_q.insert(at);
        }
      for (int tile = 0; tile < nvfp4::kKeysOfUnit / 8; ++tile)
        for (int step = 0; step < steps; ++step)
          for (int n = 0; n < 8; ++n) {
            const layout::ScaleSlot slot = layout::mma_scale_slot(false, tile % 4, 0, n, block);
            const int key = tile / 4 * 32 + nvfp4::key_of_column(tile % 4 * 8 + n);
            const int at = nvfp4::k_scale(head_dim, key, step * nvfp4::kDepth + block * nvfp4::kGroup);
            REQUIRE(at == nvfp4::key_scales_offset(head_dim) + slot.lane * 8 * steps + (tile / 4 * steps + step) * 4 +
                              slot.byte);
            of_k.insert(at);
          }
      for (int column = 0; column < head_dim; ++column) {
        const layout::ScaleSlot slot = layout::mma_scale_slot(false, column / 8 % 4, 0, column % 8, block);
        const int at = nvfp4::v_scale(head_dim, block * nvfp4::kGroup, column);
        REQUIRE(at == nvfp4::key_scales_offset(head_dim) + slot.lane * (head_dim / 8) + column / 32 * 4 + slot.byte);
        of_v.insert(at);
      }
    }
    CHECK(std::ssize(of_q) + nvfp4::q_scales_offset(head_dim) == nvfp4::q_unit_bytes(head_dim));
    for (const std::set<int>& scales : {of_k, of_v}) {
      CHECK(std::ssize(scales) + nvfp4::key_scales_offset(head_dim) == nvfp4::key_unit_bytes(head_dim));
      CHECK(*scales.rbegin() == nvfp4::key_unit_bytes(head_dim) - 1);
    }
  }
}

}  // namespace tessera::emulator::math

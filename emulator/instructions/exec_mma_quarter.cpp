// PTX ISA, "mma.sync", m8n8k4 of f16: four products of 8 x 8 x 4, the p-th of threads 4p to 4p + 3 and 4p + 16 to
// 4p + 19.
//
// A unit for it is in sm_70 alone. For sm_90 ptxas 13.0 writes shuffles and fp32 instructions, whose order is the one
// below, read from its machine code; other targets are taken to do the same.
#include "emulator/instructions/bind.h"
#include "emulator/instructions/exec_mma.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/convert.h"
#include "emulator/math/float_arithmetic.h"

namespace tessera::emulator::bind {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;

constexpr int kProducts = 4;
constexpr int kSize = 8;
constexpr int kDepth = 4;

enum Flags : U16 { kHalfResult = 1, kColumnsOfA = 2, kRowsOfB = 4 };

float float_of(U32 half) { return static_cast<float>(math::decode<math::Format::f16>(half & 0xFFFF)); }

/// A thread's product, and whether it holds the upper half of the rows (A, C, D) or columns (B).
int product_of(int lane) { return lane % 16 / 4; }
int upper_of(int lane) { return lane / 16 * 4; }

// Element i of a thread's four, of A or B: contiguous ones lie along the way that `.row` or `.col` says.
math::Place place_of_a(int lane, int i, bool is_col) {
  return is_col ? math::Place{i + upper_of(lane), lane % 4} : math::Place{lane % 4 + upper_of(lane), i};
}
math::Place place_of_b(int lane, int i, bool is_row) {
  return is_row ? math::Place{lane % 4, i + upper_of(lane)} : math::Place{i, lane % 4 + upper_of(lane)};
}
// Value i of a thread's eight, of C or D.
math::Place place_of_d(int lane, int i, bool is_half) {
  if (is_half) return {lane % 4 + upper_of(lane), i};
  return {(lane & 1) + (i & 2) + upper_of(lane), (i & 4) + (lane & 2) + (i & 1)};
}

struct Matrices {
  float a[kProducts][kSize][kDepth];
  float b[kProducts][kDepth][kSize];
};

void gather(const Warp& w, const Instruction& in, Matrices& m) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kDepth; ++i) {
      const auto element = [&](const Operand& list) {
        return float_of(w.reg<U32>(list.elements[i / 2].offset)[lane] >> (16 * (i % 2)));
      };
      const math::Place a = place_of_a(lane, i, (in.flags & kColumnsOfA) != 0);
      const math::Place b = place_of_b(lane, i, (in.flags & kRowsOfB) != 0);
      m.a[product_of(lane)][a.row][a.column] = element(in.op[1]);
      m.b[product_of(lane)][b.row][b.column] = element(in.op[2]);
    }
}

/// f32: a chain along k, then C. f16: pairs of k one after the other onto C.
float dot(const float (&a)[kDepth], const float (&b)[kDepth][kSize], int column, float c, bool is_half) {
  const auto pair = [&](int k, float before) {
    return math::fma_nearest(a[k + 1], b[k + 1][column], math::fma_nearest(a[k], b[k][column], before));
  };
  if (!is_half) return math::add_nearest(c, pair(2, pair(0, 0.0f)));
  return math::add_nearest(math::add_nearest(c, pair(0, -0.0f)), pair(2, -0.0f));  // -0: the first one only multiplies
}

Step multiply(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  static thread_local Matrices m;
  gather(w, in, m);
  const bool is_half = (in.flags & kHalfResult) != 0;
  const auto place_in = [&](const Operand& list, int i) { return list.elements[is_half ? i / 2 : i].offset; };
  const auto shift_of = [&](int i) { return is_half ? 16 * (i % 2) : 0; };
  float d[kLanes][kSize];  // whole before any register is written: D may be C in another order
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kSize; ++i) {
      const math::Place at = place_of_d(lane, i, is_half);
      const U32 word = w.reg<U32>(place_in(in.op[3], i))[lane] >> shift_of(i);
      const float c = is_half ? float_of(word) : w.reg<float>(place_in(in.op[3], i))[lane];
      const int p = product_of(lane);
      d[lane][i] = dot(m.a[p][at.row], m.b[p], at.column, c, is_half);
    }
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kSize; ++i) {
      if (!is_half) {
        w.reg<float>(place_in(in.op[0], i))[lane] = d[lane][i];
        continue;
      }
      U32& to = w.reg<U32>(place_in(in.op[0], i))[lane];
      const U32 half = math::convert_pair<math::Format::f16>(0.0f, d[lane][i]);
      to = (to & ~(0xFFFFu << shift_of(i))) | half << shift_of(i);
    }
  return Step::next;
}

}  // namespace

Handler mma_quarter(const Decoded& d) {
  const bool is_half = d.type(0) == Type::f16;
  const int results = is_half ? 4 : 8;
  const Operand* op = d.in->op;
  if (d.type(0) != d.type(3) || op[0].count != results || op[1].count != 2 || op[2].count != 2 ||
      op[3].count != results)
    return nullptr;
  // Modifiers are a set elsewhere; here the first layout is A's, the second B's.
  std::string_view layouts[2];
  int count = 0;
  for (int i = 0; i < d.num_modifiers; ++i) {
    const std::string_view word = d.modifiers[static_cast<std::size_t>(i)];
    if ((word == "row" || word == "col") && count < 2) layouts[count++] = word;
  }
  if (count != 2) return nullptr;
  d.in->flags = static_cast<U16>((is_half ? kHalfResult : 0) | (layouts[0] == "col" ? kColumnsOfA : 0) |
                                 (layouts[1] == "row" ? kRowsOfB : 0));
  return multiply;
}

}  // namespace tessera::emulator::bind

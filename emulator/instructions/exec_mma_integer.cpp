// PTX ISA, "mma.sync": products of integers and of bits. Sums are exact and wrap at 32 bits, or clamp with .satfinite.
#include "emulator/instructions/bind.h"
#include "emulator/instructions/exec_mma.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/mma_integer.h"

namespace tessera::emulator::bind {
namespace {

using math::IntegerFormat;
using U16 = std::uint16_t;
using U32 = std::uint32_t;

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kMaxWords = 8;  // of a row of bits: K = 256

bool is_nibble(IntegerFormat format) { return format == IntegerFormat::s4 || format == IntegerFormat::u4; }

// C into d[m][n], or d[m][n] into D. The m8 shapes have two registers.
void move_accumulators(const Warp& w, const Operand& list, std::int32_t* d, bool to_matrix) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < list.count; ++v) {
      const math::Place place = math::mma_d(lane, v);
      std::int32_t& at = d[place.row * kColumns + place.column];
      std::int32_t& reg = w.reg<std::int32_t>(list.elements[v].offset)[lane];
      if (to_matrix)
        at = reg;
      else
        reg = at;
    }
  }
}

// number: A's format | B's << 4 | K << 8; flags: 1 .satfinite, 2 eight rows.
Step multiply(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  static thread_local math::IntegerOperand a;
  static thread_local math::IntegerOperand b;
  const auto a_format = static_cast<IntegerFormat>(in.number & 15);
  const auto b_format = static_cast<IntegerFormat>((in.number >> 4) & 15);
  const int k = static_cast<int>(in.number >> 8);
  const int bits = is_nibble(a_format) ? 4 : 8;
  a.resize((in.flags & 2) != 0 ? 8 : kRows, k);
  b.resize(kColumns, k);
  for (int r = 0; r < in.op[1].count; ++r) {
    const U32* words = w.reg<U32>(in.op[1].elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      const math::Place place = math::mma_a(bits, lane, r, 0);
      a.decode(a_format, reinterpret_cast<const std::byte*>(words + lane), 32 / bits, place.row, place.column,
               math::IntegerOperand::Run::along_k);
    }
  }
  for (int r = 0; r < in.op[2].count; ++r) {
    const U32* words = w.reg<U32>(in.op[2].elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      const math::Place place = math::mma_b(bits, lane, r, 0);
      b.decode(b_format, reinterpret_cast<const std::byte*>(words + lane), 32 / bits, place.column, place.row,
               math::IntegerOperand::Run::along_k);
    }
  }
  std::int32_t d[kRows * kColumns];
  move_accumulators(w, in.op[3], d, true);
  math::integer_tile(a, b, d, kColumns, (in.flags & 1) != 0, k);
  move_accumulators(w, in.op[0], d, false);
  return Step::next;
}

// number: 0 .and.popc, 1 .xor.popc. A word of 32 k stays whole: register r of thread q is word q + 4 * (r / 2) of its
// row.
Step multiply_bits(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  U32 a[kRows][kMaxWords] = {};
  U32 b[kColumns][kMaxWords] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < in.op[1].count; ++r) {
      const math::Place place = math::mma_a(1, lane, r, 0);
      a[place.row][place.column / 32] = w.reg<U32>(in.op[1].elements[r].offset)[lane];
    }
    for (int r = 0; r < in.op[2].count; ++r) {
      const math::Place place = math::mma_b(1, lane, r, 0);
      b[place.column][place.row / 32] = w.reg<U32>(in.op[2].elements[r].offset)[lane];
    }
  }
  const auto operation = in.number == 0 ? math::BitOperation::and_popc : math::BitOperation::xor_popc;
  std::int32_t result[4][kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int v = 0; v < in.op[3].count; ++v) {
      const math::Place place = math::mma_d(lane, v);
      result[v][lane] = math::bit_dot(operation, a[place.row], b[place.column], kMaxWords,
                                      w.reg<std::int32_t>(in.op[3].elements[v].offset)[lane]);
    }
  for (int v = 0; v < in.op[0].count; ++v)
    std::memcpy(w.reg<std::int32_t>(in.op[0].elements[v].offset), result[v], sizeof(result[v]));
  return Step::next;
}

IntegerFormat format_of(Type type) {
  return type == Type::s8   ? IntegerFormat::s8
         : type == Type::u8 ? IntegerFormat::u8
         : type == Type::s4 ? IntegerFormat::s4
                            : IntegerFormat::u4;
}

}  // namespace

Handler mma_integer(const Decoded& d) {
  const IntegerFormat a = format_of(d.type(1));
  const bool is_8 = mma_has_8_rows(d);
  if (!mma_lists_fit(d, is_nibble(a) ? 4 : 8, is_8 ? 2 : 4)) return nullptr;
  d.in->flags = static_cast<U16>((d.has("satfinite") ? 1u : 0u) | (is_8 ? 2u : 0u));
  d.in->number = static_cast<U32>(a) | static_cast<U32>(format_of(d.type(2))) << 4 | static_cast<U32>(mma_k(d)) << 8;
  return multiply;
}

Handler mma_bits(const Decoded& d) {
  if (!mma_lists_fit(d, 1, mma_has_8_rows(d) ? 2 : 4)) return nullptr;
  d.in->number = d.has("xor") ? 1 : 0;
  return multiply_bits;
}

}  // namespace tessera::emulator::bind

// PTX ISA, "wmma.mma": products of fragments that wmma.load brought in.
//
// The registers of the 32 lanes are gathered into whole matrices by the maps of math/wmma_layout.h. The sums are those
// of mma.sync, which the target's machine code uses: f16 and bf16 in one step of K = 16, tf32 in two of K = 4. Where D
// and C differ in type, sums are made in f32: an f16 C is widened before, an f16 D rounded to nearest after.
#include "emulator/instructions/bind.h"
#include "emulator/instructions/exec_wmma.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/convert.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/mma_integer.h"
#include "emulator/math/mma_step.h"
#include "emulator/math/mma_tile.h"

namespace tessera::emulator::bind {
namespace {

using math::WmmaMatrix;
using U16 = std::uint16_t;
using U32 = std::uint32_t;

constexpr int kMaxSide = 32;

// Instruction::number: the shape's index (4 bits) | A and B's width << 4 | what the family needs << 12.
const WmmaMap& map_of(const Instruction& in, WmmaMatrix matrix) {
  return wmma_map(wmma_number(static_cast<int>(in.number & 15), matrix, static_cast<int>(in.number >> 4 & 0xFF)));
}
const WmmaMap& sums_of(const Instruction& in, int bits) {
  return wmma_map(wmma_number(static_cast<int>(in.number & 15), WmmaMatrix::d, bits));
}
U32 family_of(const Instruction& in) { return in.number >> 12; }

// A (side = row) or B (side = column) into an operand. A register is a run along k, so lines of k are put together
// first.
template <class Matrix, class Format>
void gather(const Warp& w, const Operand& op, const WmmaMap& map, Format format, Matrix& out) {
  constexpr std::size_t kLineBytes = 32;  // 16 elements of 16 bits, 8 of 32
  const bool is_a = map.fragment.matrix == WmmaMatrix::a;
  const int sides = is_a ? map.fragment.shape.m : map.fragment.shape.n;
  const int bits = map.fragment.bits;
  std::byte lines[kMaxSide][kLineBytes];
  for (int r = 0; r < map.registers; ++r) {
    const U32* words = w.reg<U32>(wmma_offset(op, r));
    for (int lane = 0; lane < kLanes; ++lane) {
      const WmmaMap::SmallPlace first = *map.of(lane, r);
      const int k = is_a ? first.column : first.row;
      std::memcpy(lines[is_a ? first.row : first.column] + k * bits / 8, words + lane, sizeof(U32));
    }
  }
  out.resize(sides, map.fragment.shape.k);
  for (int side = 0; side < sides; ++side)
    out.decode(format, lines[side], map.fragment.shape.k, side, 0, Matrix::Run::along_k);
}

// Calls f(row, column, word of the lane's register, shift in it) for every element of C or D.
template <class F>
void each_sum(const Warp& w, const Operand& op, const WmmaMap& map, F f) {
  for (int r = 0; r < map.registers; ++r) {
    U32* words = w.reg<U32>(wmma_offset(op, r));
    for (int lane = 0; lane < kLanes; ++lane)
      for (int e = 0; e < map.per_register; ++e) {
        const WmmaMap::SmallPlace place = map.of(lane, r)[e];
        f(place.row, place.column, words[lane], e * map.fragment.bits);
      }
  }
}

enum Flags : U16 { kHalfD = 1, kHalfC = 2, kSaturate = 4 };

U32 widen(U32 half) { return std::bit_cast<U32>(static_cast<float>(math::decode<math::Format::f16>(half & 0xFFFF))); }
U32 narrow(U32 word) { return math::convert_pair<math::Format::f16>(0.0f, std::bit_cast<float>(word)) & 0xFFFF; }

// family: index into math::kMmaPaths | format of A and B << 8.
Step multiply_float(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  static thread_local math::MmaOperand a;
  static thread_local math::MmaOperand b;
  const math::MmaPath& path = *math::kMmaPaths[family_of(in) & 0xFF];
  const auto format = static_cast<math::Format>(family_of(in) >> 8);
  gather(w, in.op[1], map_of(in, WmmaMatrix::a), format, a);
  gather(w, in.op[2], map_of(in, WmmaMatrix::b), format, b);
  const bool has_half_d = (in.flags & kHalfD) != 0;
  const bool has_half_c = (in.flags & kHalfC) != 0;
  // The tile's vectors run over its columns: rows of A where B has few columns.
  const bool is_transposed = b.count() < math::kMmaLanes;
  const int pitch = is_transposed ? a.count() : b.count();
  U32 d[kMaxSide * kMaxSide];
  const auto at = [&](int row, int column) -> U32& {
    return is_transposed ? d[column * pitch + row] : d[row * pitch + column];
  };
  each_sum(w, in.op[3], sums_of(in, has_half_c ? 16 : 32), [&](int row, int column, U32 word, int shift) {
    const U32 code = has_half_c ? word >> shift & 0xFFFF : word;
    at(row, column) = has_half_c && !has_half_d ? widen(code) : code;
  });
  if (is_transposed)
    math::mma_tile(path, b, a, d, pitch);
  else
    math::mma_tile(path, a, b, d, pitch);
  each_sum(w, in.op[0], sums_of(in, has_half_d ? 16 : 32), [&](int row, int column, U32& word, int shift) {
    const U32 sum = at(row, column);
    if (!has_half_d)
      word = sum;
    else
      word = (word & ~(0xFFFFu << shift)) | (has_half_c ? sum & 0xFFFF : narrow(sum)) << shift;
  });
  return Step::next;
}

// family: format of A and B.
Step multiply_integer(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  static thread_local math::IntegerOperand a;
  static thread_local math::IntegerOperand b;
  const auto format = static_cast<math::IntegerFormat>(family_of(in));
  gather(w, in.op[1], map_of(in, WmmaMatrix::a), format, a);
  gather(w, in.op[2], map_of(in, WmmaMatrix::b), format, b);
  std::int32_t d[kMaxSide * kMaxSide];
  const int pitch = b.count();
  const WmmaMap& sums = sums_of(in, 32);
  each_sum(w, in.op[3], sums,
           [&](int row, int column, U32 word, int) { d[row * pitch + column] = static_cast<std::int32_t>(word); });
  math::integer_tile(a, b, d, pitch, (in.flags & kSaturate) != 0, a.k());
  each_sum(w, in.op[0], sums,
           [&](int row, int column, U32& word, int) { word = static_cast<U32>(d[row * pitch + column]); });
  return Step::next;
}

// A register holds 32 k of its row or column. family: math::BitOperation.
Step multiply_bits(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  constexpr int kWords = 4;
  U32 a[8][kWords];
  U32 b[8][kWords];
  for (int lane = 0; lane < kLanes; ++lane) {
    const WmmaMap::SmallPlace at_a = *map_of(in, WmmaMatrix::a).of(lane, 0);
    const WmmaMap::SmallPlace at_b = *map_of(in, WmmaMatrix::b).of(lane, 0);
    a[at_a.row][at_a.column / 32] = w.reg<U32>(wmma_offset(in.op[1], 0))[lane];
    b[at_b.column][at_b.row / 32] = w.reg<U32>(wmma_offset(in.op[2], 0))[lane];
  }
  const auto operation = static_cast<math::BitOperation>(family_of(in));
  std::int32_t d[8][8];
  each_sum(w, in.op[3], sums_of(in, 32), [&](int row, int column, U32 word, int) {
    d[row][column] = math::bit_dot(operation, a[row], b[column], kWords, static_cast<std::int32_t>(word));
  });
  each_sum(w, in.op[0], sums_of(in, 32),
           [&](int row, int column, U32& word, int) { word = static_cast<U32>(d[row][column]); });
  return Step::next;
}

// A chain of fused multiply-adds, lowest k first, C at its start. family: rounding.
Step multiply_f64(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  constexpr int kSide = 8, kDepth = 4;
  const auto rounding = static_cast<math::Rounding>(family_of(in));
  double a[kSide][kDepth];
  double b[kSide][kDepth];
  for (int lane = 0; lane < kLanes; ++lane) {
    const WmmaMap::SmallPlace at_a = *map_of(in, WmmaMatrix::a).of(lane, 0);
    const WmmaMap::SmallPlace at_b = *map_of(in, WmmaMatrix::b).of(lane, 0);
    a[at_a.row][at_a.column] = w.reg<double>(wmma_offset(in.op[1], 0))[lane];
    b[at_b.column][at_b.row] = w.reg<double>(wmma_offset(in.op[2], 0))[lane];
  }
  const WmmaMap& sums = sums_of(in, 64);
  double result[2][kLanes];
  for (int r = 0; r < sums.registers; ++r)
    for (int lane = 0; lane < kLanes; ++lane) {
      const WmmaMap::SmallPlace at = *sums.of(lane, r);
      double sum = w.reg<double>(wmma_offset(in.op[3], r))[lane];
      for (int k = 0; k < kDepth; ++k) sum = math::fma(a[at.row][k], b[at.column][k], sum, rounding);
      result[r][lane] = sum;
    }
  for (int r = 0; r < sums.registers; ++r)
    std::memcpy(w.reg<double>(wmma_offset(in.op[0], r)), result[r], sizeof(result[r]));
  return Step::next;
}

// Every list is as long as PTX wants; the shape and the width of A and B go to Instruction::number.
bool bind_shape(const Decoded& d, Type type_d, Type type_ab, Type type_c) {
  const int shape = wmma_shape(d);
  const Operand* op = d.in->op;
  const auto fits = [&](int i, WmmaMatrix matrix, Type type) {
    return wmma_count(op[i]) == wmma_registers(wmma_map(wmma_number(shape, matrix, bits_of(type))), type);
  };
  if (!fits(0, WmmaMatrix::d, type_d) || !fits(1, WmmaMatrix::a, type_ab) || !fits(2, WmmaMatrix::b, type_ab) ||
      !fits(3, WmmaMatrix::d, type_c))
    return false;
  d.in->number = static_cast<U32>(shape) | static_cast<U32>(bits_of(type_ab)) << 4;
  return true;
}

// Modifiers are a set elsewhere; the forms that are .row.col only do not mean .col.row.
bool is_row_col(const Decoded& d) {
  for (int i = 0; i < d.num_modifiers && d.modifiers[static_cast<std::size_t>(i)] != "row"; ++i)
    if (d.modifiers[static_cast<std::size_t>(i)] == "col") return false;
  return true;
}

// Code for targets below sm_90 is taken as run by an sm_90; for sm_100 and sm_120 ptxas writes the same steps.
const math::MmaPath& path_of(const Decoded& d, Type type_ab, bool is_half) {
  using namespace math::mma_paths;
  const bool is_blackwell = target_number(d.target) >= 100;
  if (type_ab == Type::tf32) return is_blackwell ? kBlackwellTf32K4 : kHopperTf32K4;
  if (is_half) return is_blackwell ? kBlackwellF16 : kHopperF16;
  return is_blackwell ? kBlackwellF32 : kHopperF32;
}

}  // namespace

Handler wmma_float(const Decoded& d) {
  const bool names_factors = d.num_types == 4;  // of f16 only D and C are named
  const Type type_d = d.type(0);
  const Type type_ab = names_factors ? d.type(1) : Type::f16;
  const Type type_c = d.type(names_factors ? 3 : 1);
  if (!bind_shape(d, type_d, type_ab, type_c)) return nullptr;
  const bool is_half = type_d == Type::f16 && type_c == Type::f16;
  const math::MmaPath* path = &path_of(d, type_ab, is_half);
  U32 index = 0;
  while (math::kMmaPaths[index] != path) ++index;
  const math::Format format = type_ab == Type::f16    ? math::Format::f16
                              : type_ab == Type::bf16 ? math::Format::bf16
                                                      : math::Format::tf32;
  d.in->number |= (index | static_cast<U32>(format) << 8) << 12;
  d.in->flags = static_cast<U16>((type_d == Type::f16 ? kHalfD : 0) | (type_c == Type::f16 ? kHalfC : 0));
  return multiply_float;
}

Handler wmma_f64(const Decoded& d) {
  if (!bind_shape(d, Type::f64, Type::f64, Type::f64)) return nullptr;
  const auto rounding = d.has("rz")   ? math::Rounding::toward_zero
                        : d.has("rm") ? math::Rounding::down
                        : d.has("rp") ? math::Rounding::up
                                      : math::Rounding::nearest_even;
  d.in->number |= static_cast<U32>(rounding) << 12;
  return multiply_f64;
}

Handler wmma_integer(const Decoded& d) {
  const Type type = d.type(1);
  const bool is_nibble = bits_of(type) == 4;
  if (!bind_shape(d, Type::s32, type, Type::s32) || (is_nibble && !is_row_col(d))) return nullptr;
  const math::IntegerFormat format = type == Type::s8   ? math::IntegerFormat::s8
                                     : type == Type::u8 ? math::IntegerFormat::u8
                                     : type == Type::s4 ? math::IntegerFormat::s4
                                                        : math::IntegerFormat::u4;
  d.in->number |= static_cast<U32>(format) << 12;
  d.in->flags = d.has("satfinite") ? kSaturate : 0;
  return multiply_integer;
}

Handler wmma_bits(const Decoded& d) {
  if (!bind_shape(d, Type::s32, Type::b1, Type::s32) || !is_row_col(d)) return nullptr;
  d.in->number |= static_cast<U32>(d.has("xor") ? math::BitOperation::xor_popc : math::BitOperation::and_popc) << 12;
  return multiply_bits;
}

}  // namespace tessera::emulator::bind

// PTX ISA, "mma.sp": products whose A stores half of its elements. Which bits of which thread's metadata place a group
// was measured on an H200 (math/fragments.h).
//
// The tensor core picks from B what the stored elements of a row meet, and multiplies as it does densely: so each row
// is a dense product of its stored elements with its own choice of B's rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/exec_mma.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/mma_integer.h"
#include "emulator/math/mma_path.h"
#include "emulator/math/mma_tile.h"

namespace tessera::emulator::bind {
namespace {

using math::Format;
using U16 = std::uint16_t;
using U32 = std::uint32_t;

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kMostK = 128;

// number: K | format << 8 (of floats) | path << 12; flags as below.
enum Flags : U16 { kHalfResult = 1, kInteger = 2, kSaturates = 4, kSignedA = 8, kSignedB = 16, kNibbles = 32 };

/// What an instruction reads: codes as they stand in registers, and for each stored element of a row its k.
struct Operands {
  std::array<std::array<U32, kMostK / 2>, kRows> a{};
  std::array<std::array<U32, kMostK>, kColumns> b{};
  std::array<std::array<int, kMostK / 2>, kRows> k_of{};
};

void gather(const Warp& w, const Instruction& in, int bits, Operands& out) {
  const int per = 32 / bits;
  const U32 mask = bits == 32 ? ~0u : (1u << bits) - 1;
  for (const bool is_a : {true, false}) {
    const Operand& list = in.op[is_a ? 1 : 2];
    for (int r = 0; r < list.count; ++r) {
      const U32* words = w.reg<U32>(list.elements[r].offset);
      for (int lane = 0; lane < kLanes; ++lane)
        for (int e = 0; e < per; ++e) {
          const math::Place at = is_a ? math::mma_a(bits, lane, r, e) : math::mma_b(bits, lane, r, e);
          const U32 code = words[lane] >> (e * bits) & mask;
          if (is_a)
            out.a[static_cast<std::size_t>(at.row)][static_cast<std::size_t>(at.column)] = code;
          else
            out.b[static_cast<std::size_t>(at.column)][static_cast<std::size_t>(at.row)] = code;
        }
    }
  }
}

/// False, with a fault: four bits that name no choice.
bool place(Warp& w, const Instruction& in, int bits, int k, int selector, Operands& out) {
  const U32* words = w.reg<U32>(in.op[4].offset);
  const int group = bits == 32 ? 2 : bits == 4 ? 8 : 4, kept = group / 2, width = bits == 4 ? 2 : 1;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int nibble = 0; nibble < 8; ++nibble) {
      const math::Place at = math::mma_metadata(bits, k / group, selector, lane, nibble);
      if (at.row < 0) continue;
      const U32 choice = words[lane] >> (4 * nibble) & 15;
      const int first = static_cast<int>(choice & 3), second = static_cast<int>(choice >> 2);
      const bool is_legal = bits == 32 ? choice == 4 || choice == 14 : first < second;
      if (!is_legal) {
        w.fault(in, "mma-metadata",
                fmt::format("lane {}: bits {}..{} of the metadata are {:#x}: {}", lane, 4 * nibble + 3, 4 * nibble,
                            choice, bits == 32 ? "must be 0x4 or 0xe" : "the second index must be above the first"));
        return false;
      }
      auto& row = out.k_of[static_cast<std::size_t>(at.row)];
      for (int i = 0; i < kept; ++i) {
        const int index = bits == 32 ? (choice == 14 ? 1 : 0) : (i / width == 0 ? first : second) * width + i % width;
        row[static_cast<std::size_t>(at.column * kept + i)] = at.column * group + index;
      }
    }
  return true;
}

std::int64_t integer_of(U32 code, bool is_signed, int bits) {
  const U32 sign = 1u << (bits - 1);
  return is_signed ? static_cast<std::int64_t>(code ^ sign) - static_cast<std::int64_t>(sign) : code;
}

U32 integer_dot(const Instruction& in, const Operands& operands, std::size_t row, std::size_t column, int stored,
                int bits, U32 c) {
  std::int64_t sum = static_cast<std::int32_t>(c);
  for (std::size_t i = 0; i < static_cast<std::size_t>(stored); ++i)
    sum += integer_of(operands.a[row][i], (in.flags & kSignedA) != 0, bits) *
           integer_of(operands.b[column][static_cast<std::size_t>(operands.k_of[row][i])], (in.flags & kSignedB) != 0,
                      bits);
  if ((in.flags & kSaturates) != 0) sum = std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<U32>(sum);
}

Step multiply(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const auto format = static_cast<Format>(in.number >> 8 & 15);
  const bool is_integer = (in.flags & kInteger) != 0, is_half = (in.flags & kHalfResult) != 0;
  const int k = static_cast<int>(in.number & 255), stored = k / 2;
  const int bits = is_integer ? ((in.flags & kNibbles) != 0 ? 4 : 8) : format == Format::tf32 ? 32 : 16;
  const int group = bits == 32 ? 2 : bits == 4 ? 8 : 4;
  const auto selector = static_cast<int>(in.op[5].value);
  if (selector >= 16 / (k / group)) {
    w.fault(in, "mma-metadata", fmt::format("sparsity selector {}: must be below {} here", selector, 16 / (k / group)));
    return Step::fault;
  }
  static thread_local Operands operands;
  gather(w, in, bits, operands);
  if (!place(w, in, bits, k, selector, operands)) return Step::fault;
  static thread_local math::MmaOperand a;
  static thread_local math::MmaOperand b;
  U32 d[kRows][kColumns];
  const auto each_result = [&](auto&& f) {
    for (int lane = 0; lane < kLanes; ++lane)
      for (int v = 0; v < 4; ++v) f(lane, v, math::mma_d(lane, v));
  };
  each_result([&](int lane, int v, math::Place at) {
    const U32 word = w.reg<U32>(in.op[3].elements[is_half ? v / 2 : v].offset)[lane];
    d[at.row][at.column] = is_half ? word >> (16 * (v % 2)) & 0xFFFF : word;
  });
  for (int row = 0; row < kRows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (is_integer) {
      for (std::size_t n = 0; n < kColumns; ++n) d[row][n] = integer_dot(in, operands, r, n, stored, bits, d[row][n]);
      continue;
    }
    a.resize(1, stored);
    b.resize(kColumns, stored);
    for (int i = 0; i < stored; ++i) {
      a.set(format, operands.a[r][static_cast<std::size_t>(i)], 0, i);
      const auto from = static_cast<std::size_t>(operands.k_of[r][static_cast<std::size_t>(i)]);
      for (int n = 0; n < kColumns; ++n) b.set(format, operands.b[static_cast<std::size_t>(n)][from], n, i);
    }
    U32 column[kColumns * kRows] = {};  // b's columns are the tile's rows, this row of A its only column
    for (int n = 0; n < kColumns; ++n) column[n * kRows] = d[row][n];
    math::mma_tile(*math::kMmaPaths[in.number >> 12], b, a, column, kRows);
    for (int n = 0; n < kColumns; ++n) d[row][n] = column[n * kRows];
  }
  each_result([&](int lane, int v, math::Place at) {
    U32& word = w.reg<U32>(in.op[0].elements[is_half ? v / 2 : v].offset)[lane];
    const int shift = is_half ? 16 * (v % 2) : 0;
    const U32 mask = is_half ? 0xFFFFu << shift : ~0u;
    word = (word & ~mask) | (d[at.row][at.column] << shift & mask);
  });
  return Step::next;
}

/// A has half of the registers that a dense one has.
bool lists_fit(const Decoded& d, int bits, int results) {
  const int per_row = mma_k(d) * bits / 128;
  const Operand* op = d.in->op;
  return op[0].count == results && op[1].count == per_row && op[2].count == per_row && op[3].count == results;
}

}  // namespace

Handler mma_sparse(const Decoded& d) {
  using namespace math::mma_paths;
  const Type type = d.type(1);
  const int k = mma_k(d);
  d.in->number = static_cast<U32>(k);
  if (type == Type::f16 || type == Type::bf16 || type == Type::tf32) {
    const bool is_half = d.type(0) == Type::f16, is_tf32 = type == Type::tf32;
    if (d.type(0) != d.type(3) || !lists_fit(d, is_tf32 ? 32 : 16, is_half ? 2 : 4)) return nullptr;
    // As the dense product of the stored elements: not compared with hardware, sums that are exact do not depend on it.
    const math::MmaPath& path = is_tf32   ? (k == 8 ? kHopperTf32K4 : kHopperTf32)
                                : k == 16 ? (is_half ? kHopperK8F16 : kHopperK8)
                                          : (is_half ? kHopperF16 : kHopperF32);
    U32 index = 0;
    while (math::kMmaPaths[index] != &path) ++index;
    const Format format = is_tf32 ? Format::tf32 : type == Type::f16 ? Format::f16 : Format::bf16;
    d.in->flags = is_half ? U16{kHalfResult} : U16{0};
    d.in->number |= static_cast<U32>(format) << 8 | index << 12;
    return multiply;
  }
  const bool is_nibble = type == Type::s4 || type == Type::u4;
  if (!lists_fit(d, is_nibble ? 4 : 8, 4)) return nullptr;
  unsigned flags = kInteger;
  if (is_nibble) flags |= kNibbles;
  if (d.has("satfinite")) flags |= kSaturates;
  if (type == Type::s8 || type == Type::s4) flags |= kSignedA;
  if (d.type(2) == Type::s8 || d.type(2) == Type::s4) flags |= kSignedB;
  d.in->flags = static_cast<U16>(flags);
  return multiply;
}

}  // namespace tessera::emulator::bind

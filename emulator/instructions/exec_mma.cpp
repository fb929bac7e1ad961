// PTX ISA, "mma.sync": floating-point and block-scaled products of one warp; integers and bits are
// exec_mma_integer.cpp.
//
// The registers of the 32 lanes are gathered into matrices by the fragment maps of math/fragments.h, the tensor core's
// own sums are math/mma_path.h's, and the results go back by the map of D. A has 16 rows (8 in the m8 shapes), B always
// 8 columns, so A's rows are what the tile kernel's vectors run over: D is kept transposed while it is computed.
#include "emulator/instructions/exec_mma.h"

#include <fmt/format.h>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/mma_fp4.h"
#include "emulator/math/mma_step.h"
#include "emulator/math/mma_tile.h"

namespace tessera::emulator::bind {

int mma_k(const Decoded& d) {
  for (int i = 0; i < d.num_modifiers; ++i) {
    const std::string_view word = d.modifiers[static_cast<std::size_t>(i)];
    const std::size_t k = word.find("n8k");
    if (word[0] != 'm' || k == std::string_view::npos) continue;
    int value = 0;
    for (const char c : word.substr(k + 3)) value = value * 10 + (c - '0');
    return value;
  }
  return 0;
}
bool mma_has_8_rows(const Decoded& d) {
  for (int i = 0; i < d.num_modifiers; ++i)
    if (d.modifiers[static_cast<std::size_t>(i)].substr(0, 4) == "m8n8") return true;
  return false;
}
bool mma_lists_fit(const Decoded& d, int element_bits, int results) {
  // Modifiers are a set elsewhere; here .row.col is not .col.row.
  for (int i = 0; i < d.num_modifiers && d.modifiers[static_cast<std::size_t>(i)] != "row"; ++i)
    if (d.modifiers[static_cast<std::size_t>(i)] == "col") return false;
  const int per_row = mma_k(d) * element_bits / 128;  // registers of one thread along a row: four threads share it
  const bool is_f64 = element_bits == 64;
  const int k_registers = is_f64 ? mma_k(d) / 4 : per_row;
  const int rows = mma_has_8_rows(d) ? 1 : 2;
  const Operand* op = d.in->op;
  return op[0].count == results && op[1].count == rows * k_registers && op[2].count == k_registers &&
         op[3].count == results;
}

namespace {

using math::Format;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr int kRows = 16;
constexpr int kColumns = 8;

// number: A's format | B's << 4 | K << 8 | path << 20 (index into kMmaPaths).
enum Flags : U16 {
  kHalfResult = 1,
  kPadded = 2,   // kind::f8f6f4, mxf8f6f4: a byte each, narrow formats inside it
  kScaled = 4,   // block scales: operands 4 to 7
  kScale2X = 8,  // two scales per row and instruction
  kScale4X = 16,
  kUe4m3 = 32
};

Format format_of(Type type) {
  switch (type) {
    case Type::f16:
      return Format::f16;
    case Type::bf16:
      return Format::bf16;
    case Type::tf32:
      return Format::tf32;
    case Type::e5m2:
      return Format::e5m2;
    case Type::e3m2:
      return Format::e3m2;
    case Type::e2m3:
      return Format::e2m3;
    case Type::e2m1:
      return Format::e2m1;
    default:
      return Format::e4m3;
  }
}
int bits_of_format(Format format) {
  return format == Format::tf32 ? 32 : format == Format::f16 || format == Format::bf16 ? 16 : 8;
}

// The bits of a byte that hold the value of a narrow format in a kind::f8f6f4 operand, in all four bytes of a word.
U32 value_bits(Format format) {
  if (format == Format::e2m1) return 0x3C3C3C3C;
  return format == Format::e2m3 || format == Format::e3m2 ? 0x3F3F3F3F : 0xFFFFFFFF;
}

// The first lane whose operand has bits set beside the values of its narrow format; kLanes without one.
int lane_with_stray_bits(const Warp& w, const Operand& list, Format format) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int r = 0; r < list.count; ++r)
      if ((w.reg<U32>(list.elements[r].offset)[lane] & ~value_bits(format)) != 0) return lane;
  return kLanes;
}

void check_containers(Warp& w, const Instruction& in, const Operand& list, Format format, char name) {
  const int lane = lane_with_stray_bits(w, list, format);
  if (lane == kLanes) return;
  w.hazard(in, "mma-container-bits", lane, 0,
           fmt::format("operand {} has bits set outside its {}-bit values, which "
                       "are ignored here: hardware's treatment "
                       "of them is not documented",
                       name, format == Format::e2m1 ? 4 : 6),
           format == Format::e2m1 ? "e2m1 stands in bits 5 to 2 of its byte: shift by 2 after ldmatrix"
                                  : "6-bit values stand in bits 5 to 0 of their byte");
}

// fp8 operands that the path widens to f16, element by element.
void gather_widened(const Warp& w, const Operand& list, Format format, bool is_a, math::MmaOperand& out) {
  for (int r = 0; r < list.count; ++r) {
    const U32* words = w.reg<U32>(list.elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      U16 codes[4];
      for (int e = 0; e < 4; ++e) codes[e] = static_cast<U16>(math::widen_fp8(format, words[lane] >> (8 * e) & 0xFF));
      const math::Place place = is_a ? math::mma_a(8, lane, r, 0) : math::mma_b(8, lane, r, 0);
      out.decode(Format::f16, reinterpret_cast<const std::byte*>(codes), 4, is_a ? place.row : place.column,
                 is_a ? place.column : place.row, math::MmaOperand::Run::along_k);
    }
  }
}

// A (is_a) or B of the warp into `out`: index = row of A or column of B.
void gather(const Warp& w, const Operand& list, Format format, bool is_a, bool is_padded, math::MmaOperand& out) {
  const int bits = bits_of_format(format);
  const int shift = is_padded && format == Format::e2m1 ? 2 : 0;
  for (int r = 0; r < list.count; ++r) {
    const U32* words = w.reg<U32>(list.elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      U32 word = words[lane];
      if (is_padded) word = (word & value_bits(format)) >> shift;
      const math::Place place = is_a ? math::mma_a(bits, lane, r, 0) : math::mma_b(bits, lane, r, 0);
      out.decode(format, reinterpret_cast<const std::byte*>(&word), 32 / bits, is_a ? place.row : place.column,
                 is_a ? place.column : place.row, math::MmaOperand::Run::along_k);
    }
  }
}

// C into d[n][m], or d[n][m] into D.
void move_accumulators(const Warp& w, const Operand& list, bool is_half, U32* d, bool to_matrix) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < 4; ++v) {
      const math::Place place = math::mma_d(lane, v);
      U32& at = d[place.column * kRows + place.row];
      U32& reg = w.reg<U32>(list.elements[is_half ? v / 2 : v].offset)[lane];
      const int shift = is_half ? 16 * (v % 2) : 0;
      const U32 mask = is_half ? 0xFFFFu << shift : ~0u;
      if (to_matrix)
        at = (reg & mask) >> shift;
      else
        reg = (reg & ~mask) | at << shift;
    }
  }
}

// Byte and thread selectors of the block scales.
struct ScaleIds {
  U32 byte_a = 0;
  U32 thread_a = 0;
  U32 byte_b = 0;
  U32 thread_b = 0;
};

bool read_scale_ids(Warp& w, const Instruction& in, Mask active, ScaleIds& ids) {
  ids = {uniform<U16>(w, in.op[5].elements[0], active), uniform<U16>(w, in.op[5].elements[1], active),
         uniform<U16>(w, in.op[7].elements[0], active), uniform<U16>(w, in.op[7].elements[1], active)};
  const auto byte_fits = [&](U32 byte) {
    if ((in.flags & kScale4X) != 0) return byte == 0;
    return (in.flags & kScale2X) != 0 ? byte == 0 || byte == 2 : byte <= 3;
  };
  const char* allowed = (in.flags & kScale4X) != 0 ? "0" : (in.flags & kScale2X) != 0 ? "0 or 2" : "0 to 3";
  const auto refuse = [&](const char* name, U32 value, const char* bound) {
    w.fault(in, "mma-scale-id", fmt::format("{} = {}: must be {}", name, value, bound));
    return false;
  };
  if (!byte_fits(ids.byte_a)) return refuse("byte-id-a", ids.byte_a, allowed);
  if (!byte_fits(ids.byte_b)) return refuse("byte-id-b", ids.byte_b, allowed);
  if (ids.thread_a > 1) return refuse("thread-id-a", ids.thread_a, "0 or 1");
  if (ids.thread_b > 3) return refuse("thread-id-b", ids.thread_b, "0 to 3");
  return true;
}

const Operand& single(const Operand& operand) {
  return operand.kind == Operand::Kind::list ? operand.elements[0] : operand;
}

// Calls f(is_a, index, j, code): scale j of row (column) `index`.
template <class F>
void each_scale(const Warp& w, const Instruction& in, const ScaleIds& ids, int per_row, F f) {
  const U32* a = w.reg<U32>(single(in.op[4]).offset);
  const U32* b = w.reg<U32>(single(in.op[6]).offset);
  for (int j = 0; j < per_row; ++j) {
    for (int row = 0; row < kRows; ++row) {
      const U32 word = a[math::mma_scale_lane_a(row, static_cast<int>(ids.thread_a))];
      f(true, row, j, static_cast<std::uint8_t>(word >> (8 * (ids.byte_a + static_cast<U32>(j)))));
    }
    for (int column = 0; column < kColumns; ++column) {
      const U32 word = b[math::mma_scale_lane_b(column, static_cast<int>(ids.thread_b))];
      f(false, column, j, static_cast<std::uint8_t>(word >> (8 * (ids.byte_b + static_cast<U32>(j)))));
    }
  }
}

Step multiply(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  static thread_local math::MmaOperand a;
  static thread_local math::MmaOperand b;
  const auto a_format = static_cast<Format>(in.number & 15);
  const auto b_format = static_cast<Format>((in.number >> 4) & 15);
  const int k = static_cast<int>((in.number >> 8) & 0xFFF);
  const bool is_padded = (in.flags & kPadded) != 0;
  const bool is_half = (in.flags & kHalfResult) != 0;
  a.resize(kRows, k);
  b.resize(kColumns, k);
  if (is_padded) {
    check_containers(w, in, in.op[1], a_format, 'A');
    check_containers(w, in, in.op[2], b_format, 'B');
  }
  const math::MmaPath& path = *math::kMmaPaths[in.number >> 20];
  if (path.pairs_split) {
    gather_widened(w, in.op[1], a_format, true, a);
    gather_widened(w, in.op[2], b_format, false, b);
  } else {
    gather(w, in.op[1], a_format, true, is_padded, a);
    gather(w, in.op[2], b_format, false, is_padded, b);
  }
  if ((in.flags & kScaled) != 0) {
    ScaleIds ids;
    if (!read_scale_ids(w, in, active, ids)) return Step::fault;
    each_scale(w, in, ids, 1,
               [](bool is_a, int index, int, std::uint8_t code) { (is_a ? a : b).scale(code, index, 0, 32); });
  }
  U32 d[kColumns * kRows];
  move_accumulators(w, in.op[3], is_half, d, true);
  math::mma_tile(path, b, a, d, kRows);
  move_accumulators(w, in.op[0], is_half, d, false);
  return Step::next;
}

// mxf4, mxf4nvf4: number is the index into kFp4Paths.
constexpr const math::Fp4Path* kFp4Paths[] = {&math::mma_paths::kSm120Fp4, &math::mma_paths::kSm120Fp4Narrow};

Step multiply_fp4(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  ScaleIds ids;
  if (!read_scale_ids(w, in, active, ids)) return Step::fault;
  static thread_local math::Fp4Operand a;
  static thread_local math::Fp4Operand b;
  a.resize(kRows, 64);
  b.resize(kColumns, 64);
  for (const bool is_a : {true, false}) {
    const Operand& list = in.op[is_a ? 1 : 2];
    for (int r = 0; r < list.count; ++r) {
      const U32* words = w.reg<U32>(list.elements[r].offset);
      for (int lane = 0; lane < kLanes; ++lane) {
        const math::Place place = is_a ? math::mma_a(4, lane, r, 0) : math::mma_b(4, lane, r, 0);
        const auto* packed = reinterpret_cast<const std::byte*>(words + lane);
        if (is_a)
          a.decode(packed, 8, place.row, place.column);
        else
          b.decode(packed, 8, place.column, place.row);
      }
    }
  }
  const Format format = (in.flags & kUe4m3) != 0 ? Format::ue4m3 : Format::ue8m0;
  const int per_row = (in.flags & kScale4X) != 0 ? 4 : 2;
  const int block = 64 / per_row;
  each_scale(w, in, ids, per_row, [&](bool is_a, int index, int j, std::uint8_t code) {
    (is_a ? a : b).scale(format, code, index, j * block, block);
  });
  U32 d[kColumns * kRows];
  move_accumulators(w, in.op[3], false, d, true);
  math::fp4_tile(*kFp4Paths[in.number], b, a, d, kRows);
  move_accumulators(w, in.op[0], false, d, false);
  return Step::next;
}

// f64: a chain of fused multiply-adds, lowest k first, C at its start. flags: rounding | 8 rows << 3; number: K.
Step multiply_f64(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const auto rounding = static_cast<math::Rounding>(in.flags & 7);
  const int rows = (in.flags & 8) != 0 ? 8 : kRows;
  const int k = static_cast<int>(in.number);
  double a[kRows][16];
  double b[kColumns][16];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < in.op[1].count; ++r) {
      // In an m8 shape there is one row group: registers go along K at once.
      const math::Place place = math::mma_a(32, lane, rows == 8 ? 2 * r : r, 0);
      a[place.row][place.column] = w.reg<double>(in.op[1].elements[r].offset)[lane];
    }
    for (int r = 0; r < in.op[2].count; ++r) {
      const math::Place place = math::mma_b(32, lane, r, 0);
      b[place.column][place.row] = w.reg<double>(in.op[2].elements[r].offset)[lane];
    }
  }
  double result[4][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < in.op[3].count; ++v) {
      const math::Place place = math::mma_d(lane, v);
      double sum = w.reg<double>(in.op[3].elements[v].offset)[lane];
      for (int i = 0; i < k; ++i) sum = math::fma(a[place.row][i], b[place.column][i], sum, rounding);
      result[v][lane] = sum;
    }
  }
  for (int v = 0; v < in.op[0].count; ++v)
    std::memcpy(w.reg<double>(in.op[0].elements[v].offset), result[v], sizeof(result[v]));
  return Step::next;
}

// Which sums the target's tensor core makes. Code for targets below sm_90 is taken as run by an sm_90.
const math::MmaPath& path_of(const Decoded& d, Format a, int k) {
  using namespace math::mma_paths;
  const bool half = d.type(0) == Type::f16;
  const int major = target_number(d.target) / 10;
  const bool is_blackwell = major >= 10;
  if (a == Format::tf32) {
    if (k == 4) return is_blackwell ? kBlackwellTf32K4 : kHopperTf32K4;
    return is_blackwell ? kBlackwellTf32 : kHopperTf32;
  }
  if (a == Format::f16 || a == Format::bf16) {
    if (k == 8) {
      if (half) return is_blackwell ? kBlackwellK8F16 : kHopperK8F16;
      return is_blackwell ? kBlackwellK8 : kHopperK8;
    }
    if (half) return is_blackwell ? kBlackwellF16 : kHopperF16;
    return is_blackwell ? kBlackwellF32 : kHopperF32;
  }
  // Eight-bit formats: only the sm_120 family has them in hardware; for the others ptxas widens to f16.
  if (major < 12) {
    if (k == 16) return half ? kWidenedFp8K16F16 : kWidenedFp8K16;
    return half ? kWidenedFp8F16 : kWidenedFp8;
  }
  if (k == 16) return half ? kSm120Fp8K16F16 : kSm120Fp8K16;
  return half ? kBlackwellF8f6f4F16 : kBlackwellF8f6f4;
}

U32 index_of(const math::MmaPath& path) {
  U32 index = 0;
  while (math::kMmaPaths[index] != &path) ++index;
  return index;
}

// Operands 4 to 7: scales (a register or a list of one) and pairs of selectors.
bool scales_fit(const Decoded& d) {
  for (const int i : {4, 6}) {
    const Operand& scale = d.in->op[i];
    if (scale.kind == Operand::Kind::list && scale.count != 1) return false;
    if (d.in->op[i + 1].kind != Operand::Kind::list || d.in->op[i + 1].count != 2) return false;
  }
  return true;
}

}  // namespace

Handler mma_float(const Decoded& d) {
  const Format a = format_of(d.type(1));
  const Format b = format_of(d.type(2));
  const int k = mma_k(d);
  const bool half = d.type(0) == Type::f16;
  // A and B mix only among the formats of a byte, and D and C are of one type.
  if (d.type(0) != d.type(3) || !mma_lists_fit(d, bits_of_format(a), half ? 2 : 4)) return nullptr;
  const bool is_scaled = d.has("block_scale");
  if (is_scaled && !scales_fit(d)) return nullptr;
  unsigned flags = half ? unsigned{kHalfResult} : 0u;
  if (d.has("kind::f8f6f4") || d.has("kind::mxf8f6f4")) flags |= kPadded;
  if (is_scaled) flags |= kScaled;
  d.in->flags = static_cast<U16>(flags);
  d.in->number =
      static_cast<U32>(a) | static_cast<U32>(b) << 4 | static_cast<U32>(k) << 8 | index_of(path_of(d, a, k)) << 20;
  return multiply;
}

Handler mma_fp4(const Decoded& d) {
  if (!mma_lists_fit(d, 4, 4) || !scales_fit(d)) return nullptr;
  const bool is_4x = d.has("scale_vec::4X");
  d.in->flags = static_cast<U16>((is_4x ? kScale4X : kScale2X) | (d.type(4) == Type::ue4m3 ? kUe4m3 : 0));
  d.in->number = 0;  // kSm120Fp4
  return multiply_fp4;
}

Handler mma_f64(const Decoded& d) {
  const bool is_8 = mma_has_8_rows(d);
  if (!mma_lists_fit(d, 64, is_8 ? 2 : 4)) return nullptr;
  const auto rounding = d.has("rz")   ? math::Rounding::toward_zero
                        : d.has("rm") ? math::Rounding::down
                        : d.has("rp") ? math::Rounding::up
                                      : math::Rounding::nearest_even;
  d.in->flags = static_cast<U16>(static_cast<unsigned>(rounding) | (is_8 ? 8u : 0u));
  d.in->number = static_cast<U32>(mma_k(d));
  return multiply_f64;
}

}  // namespace tessera::emulator::bind

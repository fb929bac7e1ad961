// PTX ISA, "ldmatrix", "stmatrix": rows of 16 bytes in shared memory, whose addresses the lanes give, as fragments.
// Both go through the generic proxy and are done when they are issued. "movmatrix": a fragment transposed.
#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/math/fragments.h"
#include "emulator/memory/access.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

using ByteMap = math::MatrixByte (*)(int lane, int reg, int byte);

// Finds the 16-byte rows of the lanes that give addresses, of which the first `used` bytes count. False after a report.
bool find_rows(Warp& w, const Instruction& in, const Operand& address, int count, bool is_write,
               std::array<Target, kLanes>& rows, std::size_t used = 16) {
  const auto space = static_cast<Space>(in.number & 0xFF);
  for (int lane = 0; lane < count; ++lane) {
    const U64 at = lane_address(w, address, lane);
    if ((at & 15) != 0) {
      report_misaligned(w, in, lane, at, 16);
      return false;
    }
    Target& row = rows[static_cast<std::size_t>(lane)];
    if (!locate_any(space, w, lane, at, 16, row) || row.cta == nullptr) {
      report_outside(w, in, space, lane, at, 16, is_write);
      return false;
    }
    if (!is_write && !shadow_has(row.shadow, used, kReadable)) report_uninitialised(w, in, row, lane, at, used);
    if (w.race) w.launch->race->access(w, in, kAllLanes, row, used, {is_write, false, false});
  }
  return true;
}

// number: space; flags: how many lanes give addresses.
template <ByteMap kMap>
Step load(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  std::array<Target, kLanes> rows;
  if (!find_rows(w, in, in.op[1], in.flags, false, rows)) return Step::fault;
  const Operand& list = in.op[0];
  for (int r = 0; r < list.count; ++r) {
    U32* to = w.reg<U32>(list.elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      U32 value = 0;
      for (int b = 0; b < 4; ++b) {
        const math::MatrixByte from = kMap(lane, r, b);
        const auto byte = static_cast<U32>(rows[static_cast<std::size_t>(from.address_lane)].data[from.offset]);
        value |= byte << (8 * b);
      }
      to[lane] = value;
    }
  }
  return Step::next;
}

using BitMap = math::MatrixBits (*)(int width, int lane, int reg, int byte);

// Rows of 16 elements of 4 or 6 bits with padding behind them; a byte receives one in its low bits. number: space |
// bits of an element << 8; flags: how many lanes give addresses.
template <BitMap kMap>
Step load_narrow(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const auto width = static_cast<int>(in.number >> 8);
  std::array<Target, kLanes> rows;
  // What is padding, of 16 elements' 8 or 12 bytes, nobody need have written.
  if (!find_rows(w, in, in.op[1], in.flags, false, rows, 2 * static_cast<std::size_t>(width))) return Step::fault;
  const Operand& list = in.op[0];
  for (int r = 0; r < list.count; ++r) {
    U32* to = w.reg<U32>(list.elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      U32 value = 0;
      for (int b = 0; b < 4; ++b) {
        const math::MatrixBits from = kMap(width, lane, r, b);
        const std::byte* row = rows[static_cast<std::size_t>(from.address_lane)].data;
        U32 bits = static_cast<U32>(row[from.first_bit / 8]) >> from.first_bit % 8;
        if (from.first_bit % 8 + width > 8)
          bits |= static_cast<U32>(row[from.first_bit / 8 + 1]) << (8 - from.first_bit % 8);
        value |= (bits & ((1u << width) - 1)) << (8 * b);
      }
      to[lane] = value;
    }
  }
  return Step::next;
}

template <ByteMap kMap>
Step store(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  std::array<Target, kLanes> rows;
  if (!find_rows(w, in, in.op[0], in.flags, true, rows)) return Step::fault;
  const Operand& list = in.op[1];
  for (int r = 0; r < list.count; ++r) {
    const U32* from = w.reg<U32>(list.elements[r].offset);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int b = 0; b < 4; ++b) {
        const math::MatrixByte to = kMap(lane, r, b);
        rows[static_cast<std::size_t>(to.address_lane)].data[to.offset] = static_cast<std::byte>(from[lane] >> (8 * b));
      }
    }
  }
  for (std::size_t lane = 0; lane < in.flags; ++lane) note_written(w, rows[lane], 16);
  return Step::next;
}

// A lane holds elements 2q and 2q + 1 of row lane / 4, q = lane % 4, of the source as of the destination.
Step transpose(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  U32 sa[kLanes];
  const U32* const a = source<U32>(w, in.op[1], sa);
  U32 result[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto element = [&](int row, int column) { return (a[4 * row + column / 2] >> (16 * (column % 2))) & 0xFFFF; };
    const int row = lane / 4, column = 2 * (lane % 4);
    result[lane] = element(column, row) | element(column + 1, row) << 16;
  }
  store_lanes(w, in.op[0], active, result);
  return Step::next;
}

int count_of(const Decoded& d) { return d.has("x4") ? 4 : d.has("x2") ? 2 : 1; }

}  // namespace

Handler ldmatrix(const Decoded& d) {
  const int count = count_of(d);
  const bool is_wide = d.has("m16n16");
  d.in->number = static_cast<U32>(space_of(d));
  d.in->flags = static_cast<std::uint16_t>((is_wide ? 16 : 8) * count);
  if (d.in->op[0].count != (is_wide ? 2 * count : count)) return nullptr;
  if (d.has("b8x16")) {
    d.in->number |= (d.has("b6x16_p32") ? 6u : 4u) << 8;
    return is_wide ? load_narrow<math::m16n16_trans_narrow> : load_narrow<math::m8n16_narrow>;
  }
  if (is_wide) return load<math::m16n16_trans_b8>;
  return d.has("trans") ? load<math::m8n8_trans> : load<math::m8n8>;
}
Handler movmatrix(const Decoded&) { return transpose; }
Handler stmatrix(const Decoded& d) {
  const int count = count_of(d);
  d.in->number = static_cast<U32>(space_of(d));
  d.in->flags = static_cast<std::uint16_t>(8 * count);
  if (d.in->op[1].count != count) return nullptr;
  if (d.has("m16n8")) return store<math::m16n8_trans_b8>;
  return d.has("trans") ? store<math::m8n8_trans> : store<math::m8n8>;
}

}  // namespace tessera::emulator::bind

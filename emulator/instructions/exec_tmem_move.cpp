// PTX ISA, "tcgen05.ld", "tcgen05.st", "tcgen05.ld.red": registers to and from the warp's quarter of Tensor Memory.
//
// Both are asynchronous; here they act when they are issued, and the warp remembers them until wait::ld or wait::st so
// that others who touch the same words before are told. (A register dependency on tcgen05.ld needs no wait: PTX orders
// it.) Where each register goes: emulator/math/tmem_layout.h.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "emulator/math/float_arithmetic.h"
#include "emulator/math/tmem_layout.h"
#include "emulator/tensor_cores/tensor_core.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using math::TmemPlace;
using math::TmemShape;

// number: shape | count << 4; flags: 1 pack or unpack, 2 st, then of ld.red: 4 red, 8 max, 16 abs, 32 NaN, 64 s32,
// 128 u32.
struct Move {
  TmemShape shape = TmemShape::l32x32b;
  int registers = 0;
  bool packs = false;
  int lane = 0;    // of the first word
  int column = 0;  // of the first word
  int split = 0;   // columns from the first half to the second, 16x32bx2
  int width = 0;   // columns of one half

  int per_word() const { return packs ? 2 : 1; }
  TmemRegion whole(int quarter) const {
    return {column + std::min(split, 0), column + std::max(split, 0) + width, 1u << quarter};
  }
};

int columns_of(TmemShape shape, int n) {
  switch (shape) {
    case TmemShape::l32x32b:
    case TmemShape::l16x32bx2:
      return n;
    case TmemShape::l16x64b:
      return 2 * n;
    case TmemShape::l16x128b:
      return 4 * n;
    case TmemShape::l16x256b:
      return 8 * n;
  }
  return n;
}

const Operand& register_at(const Operand& list, int i) {
  return list.kind == Operand::Kind::list ? list.elements[i] : list;
}

// Reads and checks the address; false after a report.
bool find_place(Warp& w, const Instruction& in, const Operand& address_op, const Operand& split_op, Mask active,
                Move& m) {
  m.shape = static_cast<TmemShape>(in.number & 15);
  const int n = static_cast<int>(in.number >> 4);
  m.registers = math::tmem_registers(m.shape, n);
  m.packs = (in.flags & 1) != 0;
  m.width = columns_of(m.shape, n) * m.per_word();
  const auto address = static_cast<U32>(lane_address(w, address_op, first_lane(active)));
  for (Mask rest = active; rest != 0; rest &= rest - 1)
    if (static_cast<U32>(lane_address(w, address_op, std::countr_zero(rest))) != address) {
      w.fault_at(in, "tmem-address-not-uniform", std::countr_zero(rest), address,
                 "the lanes of a warp name different Tensor Memory addresses",
                 "the lane index added to the address: the shape spreads the lanes by itself");
      return false;
    }
  m.lane = tmem_lane(address);
  m.column = tmem_column(address);
  const int quarter = w.index % 4;
  const bool is_whole = m.shape == TmemShape::l32x32b;
  if (m.lane / 32 == 0 && quarter != 0) {
    // Public kernels that run on hardware give every warp the same address and say that these bits are ignored there.
    w.hazard(in, "tmem-lane-bits", -1, address,
             fmt::format("address lane {}: warp {} reaches lanes {} to {}, and goes there", m.lane, w.index,
                         32 * quarter, 32 * quarter + 31),
             "PTX wants the warp's index modulo 4 times 32 in bits 16 and up of the address; hardware is said to take "
             "the warp's own lanes whatever stands there");
    m.lane += 32 * quarter;
  }
  if (m.lane / 32 != quarter || (m.lane % 32 != 0 && (is_whole || m.lane % 32 != 16))) {
    w.fault_at(in, "tmem-lane-quadrant", -1, address,
               fmt::format("address lane {}: warp {} reaches lanes {} to {} and the shape starts at lane {}{}", m.lane,
                           w.index, 32 * quarter, 32 * quarter + 31, 32 * quarter,
                           is_whole ? "" : fmt::format(" or {}", 32 * quarter + 16)),
               "the warp's index modulo 4 times 32 belongs into bits 16 and up of the address");
    return false;
  }
  if (m.shape == TmemShape::l16x32bx2) {
    m.split = static_cast<int>(static_cast<std::int16_t>(split_op.value));
    if (split_op.value < 0 || split_op.value > 0xFFFF) {
      w.fault_at(in, "not-supported", -1, address,
                 fmt::format("semantics unknown: an immHalfSplitoff of {} with lane bits", split_op.value));
      return false;
    }
  }
  for (const int first : {m.column, m.column + m.split})
    if (!check_allocated(w, in, *w.cta, {first, first + m.width, 1u << quarter}, "the transfer")) return false;
  return true;
}

/// Calls visit(register, thread, lane, column) for every register of every thread.
template <class Visit>
void for_each_word(const Move& m, Visit&& visit) {
  for (int r = 0; r < m.registers; ++r)
    for (int t = 0; t < kLanes; ++t) {
      const TmemPlace place = math::tmem_register(m.shape, t, r);
      const int second = m.shape == TmemShape::l16x32bx2 && t >= 16 ? m.split : 0;
      visit(r, t, m.lane + place.lane, m.column + second + place.column * m.per_word());
    }
}

// A word of the transfer that nobody has written; lane -1: none. A quarter of which one half of the lanes was written
// and the other was not is what an accumulator with M = 64 leaves: such a half is read along and thrown away.
TmemPlace find_unwritten(const TensorMemory& memory, const Move& m) {
  const auto half = [&](int first_lane) {
    int unwritten = 0;
    TmemPlace bad{-1, 0};
    for (const int first : {m.column, m.column + m.split})
      for (int lane = first_lane; lane < first_lane + 16; ++lane) {
        const int column = memory.first_unwritten(lane, first, m.width);
        if (column < 0) continue;
        ++unwritten;
        if (bad.lane < 0) bad = {lane, column};
      }
    return std::pair{bad, unwritten};
  };
  const auto lower = half(m.lane);
  if (m.shape != TmemShape::l32x32b) return lower.first;
  const auto upper = half(m.lane + 16);
  constexpr int kAll = 2 * 16;
  if (lower.second == 0 && upper.second == kAll) return {-1, 0};
  if (upper.second == 0 && lower.second == kAll) return {-1, 0};
  return lower.first.lane >= 0 ? lower.first : upper.first;
}

// What may not be so when the words are read.
bool check_read(Warp& w, const Instruction& in, const Move& m) {
  TensorMemory& memory = *w.cta->tensor_memory;
  const int quarter = w.index % 4;
  const TmemRegion region = m.whole(quarter);
  const auto address = static_cast<std::uint64_t>(m.lane) << 16 | static_cast<std::uint64_t>(m.column);
  if (const TmemUse* use = memory.find_use(region, true); use != nullptr) {
    w.fault_at(in, "tmem-read-in-flight", -1, address,
               fmt::format("{} (PTX line {}) has not completed; it writes columns {} to {}", use->in->opcode,
                           use->in->line, use->region.first, use->region.end - 1),
               "tcgen05.commit and the wait on its mbarrier must come before tcgen05.ld");
    return false;
  }
  if (w.launch->options.skips_values) return true;  // the rest are hazards, and nobody has written values
  for (const Warp& warp : w.cta->warps)
    for (const WarpTensor::Transfer& store : warp.tensor.stores)
      if (store.region.overlaps(region))
        w.hazard(in, "missing-tcgen05-wait", -1, address,
                 fmt::format("warp {}'s {} (PTX line {}) to these columns was not waited for", warp.index,
                             store.in->opcode, store.in->line),
                 "tcgen05.wait::st must come between tcgen05.st and tcgen05.ld");
  for (int column = region.first; column < region.end && w.race; ++column) {
    const TmemStamp& stamp = memory.stamp(quarter, column);
    if (stamp.race_agent == 0 || w.race->has_seen(stamp.race_agent, stamp.race_clock)) continue;
    w.hazard(in, "async-write-not-waited-for", -1, address,
             fmt::format("nothing orders the load after the operation of the tensor core that wrote column {}", column),
             "tcgen05.commit and the wait on its mbarrier must come before tcgen05.ld");
    break;
  }
  for (int column = region.first; column < region.end; ++column) {
    if (memory.stamp(quarter, column).operated_at <= w.tensor.fence_after) continue;
    w.hazard(in, "missing-tcgen05-fence", -1, address,
             fmt::format("column {} was written by an asynchronous operation; this warp executed no "
                         "tcgen05.fence::after_thread_sync since",
                         column),
             "PTX asks for it between the wait on the commit's mbarrier and tcgen05.ld");
    w.tensor.fence_after = w.launch->tmem_clock;  // said once
    break;
  }
  check_fences(w, in, *w.cta, region, false);
  if (const TmemPlace bad = find_unwritten(memory, m); bad.lane >= 0)
    w.hazard(in, "tmem-uninitialised", bad.lane % 32, address,
             fmt::format("reads Tensor Memory lane {}, column {}, which nobody has written", bad.lane, bad.column),
             "another accumulator layout than the instruction's M, or a column range that is too wide");
  return true;
}

// ld.red: over the columns of each lane, in the order of the registers.
U32 reduce(unsigned flags, U32 a, U32 b) {
  const bool is_max = (flags & 8) != 0;
  if ((flags & 64) != 0) {
    const auto x = static_cast<std::int32_t>(a);
    const auto y = static_cast<std::int32_t>(b);
    return static_cast<U32>(is_max ? std::max(x, y) : std::min(x, y));
  }
  if ((flags & 128) != 0) return is_max ? std::max(a, b) : std::min(a, b);
  const auto is_nan = [](U32 bits) { return (bits & 0x7FFFFFFF) > 0x7F800000; };
  if ((flags & 16) != 0) {
    a &= 0x7FFFFFFF;
    b &= 0x7FFFFFFF;
  }
  if (is_nan(a) || is_nan(b)) {
    if ((flags & 32) != 0 || (is_nan(a) && is_nan(b))) return 0x7FFFFFFF;
    return is_nan(a) ? b : a;
  }
  // As integers, with the negative ones turned round: -0 is below +0.
  const auto key = [](U32 bits) { return bits >> 31 != 0 ? ~bits : bits | 0x80000000; };
  return (key(a) < key(b)) == is_max ? b : a;
}

// Another warp that frees these columns must come later.
void note_transfer(Warp& w, const Instruction& in, const TmemRegion& region) {
  if (!w.race) return;
  w.tensor.last_transfer = {&in, region};
  w.tensor.transferred_at = w.race->clock;
  w.tensor.arrivals_at_transfer = w.cluster_arrivals;
  w.race->is_dirty = true;
}

// op: registers, address, split?; ld.red: registers, reduced value, address.
Step load(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  tensor_memory_of(*w.cta);
  const bool reduces = (in.flags & 4) != 0;
  Move m;
  const Operand* address = in.op + (reduces ? 2 : 1);
  if (!find_place(w, in, address[0], reduces ? address[0] : address[1], active, m) || !check_read(w, in, m))
    return Step::fault;
  TensorMemory& memory = *w.cta->tensor_memory;
  for_each_word(m, [&](int r, int t, int lane, int column) {
    const U32* words = memory.row(lane) + column;
    w.reg<U32>(register_at(in.op[0], r).offset)[t] = m.packs ? (words[0] & 0xFFFF) | words[1] << 16 : words[0];
  });
  if (reduces) {
    for (int t = 0; t < kLanes; ++t) {
      U32 value = w.reg<U32>(register_at(in.op[0], 0).offset)[t];
      if ((in.flags & 16) != 0) value &= 0x7FFFFFFF;
      for (int r = 1; r < m.registers; ++r)
        value = reduce(in.flags, value, w.reg<U32>(register_at(in.op[0], r).offset)[t]);
      w.reg<U32>(in.op[1].offset)[t] = value;
    }
  }
  if (w.tensor.loads.empty()) w.tensor.load_places.assign(w.launch->entry.register_file_bytes / 64 + 1, false);
  for (int r = 0; r < m.registers; ++r) w.tensor.load_places[register_at(in.op[0], r).offset / 64] = true;
  const TmemRegion region = m.whole(w.index % 4);
  const std::uint64_t now = ++w.launch->tmem_clock;
  for (int column = region.first; column < region.end; ++column) {
    TmemStamp& stamp = memory.stamp(w.index % 4, column);
    stamp.loaded_at = now;
    stamp.loaded_by = w.index;
  }
  w.tensor.loads.push_back({&in, region});
  note_transfer(w, in, region);
  w.watches_registers = true;
  return Step::next;
}

// op: address, split?, registers.
Step store(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  TensorMemory& memory = tensor_memory_of(*w.cta);
  Move m;
  if (!find_place(w, in, in.op[0], in.op[1], active, m)) return Step::fault;
  const Operand& source = in.op[2];
  const int quarter = w.index % 4;
  const TmemRegion region = m.whole(quarter);
  if (const TmemUse* use = memory.find_use(region, false); use != nullptr)
    return w.fault_at(in, "tmem-write-in-flight", -1,
                      static_cast<std::uint64_t>(m.lane) << 16 | static_cast<std::uint64_t>(m.column),
                      fmt::format("{} (PTX line {}) has not completed; it uses columns {} to {}", use->in->opcode,
                                  use->in->line, use->region.first, use->region.end - 1),
                      "tcgen05.commit and the wait on its mbarrier must come before tcgen05.st");
  check_fences(w, in, *w.cta, region, true);
  for_each_word(m, [&](int r, int t, int lane, int column) {
    const U32 value = w.reg<U32>(register_at(source, r).offset)[t];
    U32* words = memory.row(lane) + column;
    words[0] = m.packs ? value & 0xFFFF : value;
    if (m.packs) words[1] = value >> 16;
    memory.mark_written(lane, column, m.per_word());
  });
  const std::uint64_t now = ++w.launch->tmem_clock;
  for (int column = region.first; column < region.end; ++column) {
    TmemStamp& stamp = memory.stamp(quarter, column);
    stamp.stored_at = now;
    stamp.stored_by = w.index;
  }
  w.tensor.stores.push_back({&in, region});
  note_transfer(w, in, region);
  return Step::next;
}

bool read_shape(const Decoded& d, const Operand& registers) {
  constexpr std::string_view kShapes[] = {"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"};
  U32 shape = 0;
  for (U32 i = 0; i < 5; ++i)
    if (d.has(kShapes[i])) shape = i;
  const U32 n = d.numbers[0];
  if (n < 1 || n > 128 || !std::has_single_bit(n)) return false;
  const int count = math::tmem_registers(static_cast<TmemShape>(shape), static_cast<int>(n));
  const int given = registers.kind == Operand::Kind::list ? registers.count : 1;
  if (count > 128 || given != count) return false;
  for (int i = 0; i < given; ++i)
    if (register_at(registers, i).bytes != 4) return false;
  d.in->number = shape | n << 4;
  return true;
}

}  // namespace

Handler tcgen05_ld(const Decoded& d) {
  if (!read_shape(d, d.in->op[0])) return nullptr;
  const bool has_split = d.in->op[2].kind != Operand::Kind::none;
  if (has_split != d.has("16x32bx2")) return nullptr;
  d.in->flags = d.has("pack::16b") ? 1 : 0;
  return load;
}
Handler tcgen05_ld_red(const Decoded& d) {
  if (!read_shape(d, d.in->op[0]) || d.numbers[0] < 2) return nullptr;
  const Type type = d.type();
  if (type != Type::f32 && (d.has("abs") || d.has("NaN"))) return nullptr;
  d.in->flags =
      static_cast<std::uint16_t>(4 | (d.has("max") ? 8 : 0) | (d.has("abs") ? 16 : 0) | (d.has("NaN") ? 32 : 0) |
                                 (type == Type::s32 ? 64 : 0) | (type == Type::u32 ? 128 : 0));
  return load;
}
Handler tcgen05_st(const Decoded& d) {
  const bool has_split = d.has("16x32bx2");
  if ((d.in->op[1].kind != Operand::Kind::none) != has_split || !read_shape(d, d.in->op[2])) return nullptr;
  d.in->flags = static_cast<std::uint16_t>((d.has("unpack::16b") ? 1 : 0) | 2);
  return store;
}

}  // namespace tessera::emulator::bind

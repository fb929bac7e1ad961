// PTX ISA, "Data Movement and Conversion Instructions": mov, cvta, isspacep, mapa, getctarank.
#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/instructions/wide.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
template <class T>
Step copy(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) { return a; });
}
Step copy_predicate(Warp& w, const Instruction& in, Mask active) {
  write_predicate(w, in.op[0], active, w.read_predicate(in.op[1]));
  return Step::next;
}

// The usual pairs: two words and a double word, two halves and a word.
template <class Whole, class Half>
Step pack_pair(Warp& w, const Instruction& in, Mask active) {
  const Half* const low = w.reg<Half>(in.op[1].elements[0].offset);
  const Half* const high = w.reg<Half>(in.op[1].elements[1].offset);
  constexpr int kBits = 8 * sizeof(Half);
  return apply_lanes<Whole>(w, in.op[0], active, [=](int lane) {
    return static_cast<Whole>(static_cast<Whole>(high[lane]) << kBits | low[lane]);
  });
}
template <class Whole, class Half>
Step unpack_pair(Warp& w, const Instruction& in, Mask active) {
  const Whole* const from = w.reg<Whole>(in.op[1].offset);
  const Operand* const to = in.op[0].elements;
  constexpr int kBits = 8 * sizeof(Half);
  apply_lanes<Half>(w, to[0], active, [=](int lane) { return static_cast<Half>(from[lane]); });
  apply_lanes<Half>(w, to[1], active, [=](int lane) { return static_cast<Half>(from[lane] >> kBits); });
  return Step::next;
}
bool is_pair_of(const Operand& list, int bytes) {
  return list.count == 2 && list.elements[0].bytes == bytes && list.elements[1].bytes == bytes;
}

// mov.b64 d, {a, b}: the first element is the lowest.
Step pack(Warp& w, const Instruction& in, Mask active) {
  const Operand& list = in.op[1];
  for_lanes(active, [&](int lane) {
    std::byte value[16];
    std::size_t at = 0;
    for (int i = 0; i < list.count; ++i) {
      const Operand& e = list.elements[i];
      const std::size_t bytes = std::min<std::size_t>(e.bytes, in.op[0].bytes / std::size_t{list.count});
      std::memcpy(value + at, w.registers + e.offset + static_cast<std::size_t>(lane) * e.bytes, bytes);
      at += bytes;
    }
    std::memcpy(w.registers + in.op[0].offset + static_cast<std::size_t>(lane) * in.op[0].bytes, value, at);
  });
  return Step::next;
}
Step unpack(Warp& w, const Instruction& in, Mask active) {
  const Operand& list = in.op[0];
  const std::size_t step = in.op[1].bytes / std::size_t{list.count};
  for_lanes(active, [&](int lane) {
    std::byte value[16];
    std::memcpy(value, w.registers + in.op[1].offset + static_cast<std::size_t>(lane) * in.op[1].bytes, in.op[1].bytes);
    for (int i = 0; i < list.count; ++i) {
      const Operand& e = list.elements[i];
      std::memcpy(w.registers + e.offset + static_cast<std::size_t>(lane) * e.bytes,
                  value + static_cast<std::size_t>(i) * step, std::min<std::size_t>(e.bytes, step));
    }
  });
  return Step::next;
}

// Timers count executed instructions: monotonic, and the same in every run of a seed. On a clock they tell its cycles.
Step read_timer(Warp& w, const Instruction& in, Mask active) {
  const U64 now = w.launch->time + (w.launch->options.clock != nullptr ? 0 : w.executed);
  const auto special = static_cast<Special>(in.number);
  const bool high = special == Special::clock_hi || special == Special::globaltimer_hi;
  for_lanes(active, [&](int lane) { write_lane<U64>(w, in.op[0], lane, high ? now >> 32 : now); });
  return Step::next;
}

template <U64 kWindow, bool kTo, class T>
Step convert_address(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) { return static_cast<T>(kTo ? a - kWindow : a + kWindow); });
}
template <bool kTo>
Handler pick_window(const Decoded& d) {
  if (d.has("shared") || d.has("shared::cta") || d.has("shared::cluster"))
    return convert_address<kSharedWindow, kTo, U64>;
  if (d.has("local")) return convert_address<kLocalWindow, kTo, U64>;
  if (d.has("param") || d.has("param::entry")) return convert_address<kParamWindow, kTo, U64>;
  return convert_address<0, kTo, U64>;
}

bool in_window(U64 address, U64 window) { return address - window < kWindowBytes; }
template <U64 kWindow>
Step is_in_window(Warp& w, const Instruction& in, Mask active) {
  U64 sa[kLanes];
  const U64* a = source<U64>(w, in.op[1], sa);
  Mask result = 0;
  for_lanes(active, [&](int lane) {
    const U64 address = a[lane];
    bool inside = in_window(address, kWindow);
    if constexpr (kWindow == kGlobalBase) inside = address >= kGlobalBase;
    if (in.flags != 0) inside = inside && ((address - kWindow) >> kRankShift) == w.cta->rank;
    if (inside) result |= Mask{1} << lane;
  });
  write_predicate(w, in.op[0], active, result);
  return Step::next;
}

constexpr U64 kOffsetMask = (U64{1} << kRankShift) - 1;

template <class T>
Step map_to_rank(Warp& w, const Instruction& in, Mask active) {
  return lift2<T, T, U32>(w, in, active, [](T address, U32 rank) {
    constexpr auto kKeep = static_cast<T>(~U64{0x0FFFFFFF}) | static_cast<T>(kOffsetMask);
    return static_cast<T>((address & kKeep) | (static_cast<T>(rank & 15) << kRankShift));
  });
}
template <class T>
Step rank_of(Warp& w, const Instruction& in, Mask active) {
  return lift1<U32, T>(w, in, active, [](T address) { return static_cast<U32>(address >> kRankShift) & 15; });
}

bool fits(const Operand& list, int bytes) {
  if (list.count == 0 || bytes % list.count != 0) return false;
  for (int i = 0; i < list.count; ++i) {
    const Operand& e = list.elements[i];
    if (e.kind != Operand::Kind::reg) return false;
    if (e.bytes != bytes / list.count && !(bytes / list.count == 1 && e.bytes == 2)) return false;
  }
  return true;
}

}  // namespace

Handler mov(const Decoded& d) {
  Operand& to = const_cast<Operand&>(d.in->op[0]);
  const Operand& from = d.in->op[1];
  if (to.kind == Operand::Kind::predicate || from.kind == Operand::Kind::predicate)
    return to.kind == from.kind ? copy_predicate : nullptr;
  if (to.kind == Operand::Kind::list) {
    if (from.kind != Operand::Kind::reg || !fits(to, from.bytes)) return nullptr;
    if (from.bytes == 8 && is_pair_of(to, 4)) return unpack_pair<U64, U32>;
    return from.bytes == 4 && is_pair_of(to, 2) ? unpack_pair<U32, std::uint16_t> : unpack;
  }
  if (from.kind == Operand::Kind::list) {
    if (!fits(from, to.bytes)) return nullptr;
    if (to.bytes == 8 && is_pair_of(from, 4)) return pack_pair<U64, U32>;
    return to.bytes == 4 && is_pair_of(from, 2) ? pack_pair<U32, std::uint16_t> : pack;
  }
  if (!from.is_immediate && from.value >= static_cast<std::int64_t>(Special::clock)) {
    d.in->number = static_cast<U32>(from.value);
    return read_timer;
  }
  switch (to.bytes) {
    case 2:
      return wide::or_plain<Same, std::uint16_t, std::uint16_t>(d, copy<std::uint16_t>);
    case 4:
      return wide::or_plain<Same, U32, U32>(d, copy<U32>);
    case 8:
      return wide::or_plain<Same, U64, U64>(d, copy<U64>);
    case 16:
      return copy<U128>;
    default:
      return nullptr;
  }
}
Handler cvta(const Decoded& d) { return d.has("to") ? pick_window<true>(d) : pick_window<false>(d); }
Handler isspacep(const Decoded& d) {
  d.in->flags = d.has("shared::cta") || d.has("shared") ? 1 : 0;
  if (d.has("global") || d.has("const")) return is_in_window<kGlobalBase>;
  if (d.has("local")) return is_in_window<kLocalWindow>;
  if (d.has("param") || d.has("param::entry")) return is_in_window<kParamWindow>;
  return is_in_window<kSharedWindow>;
}
Handler mapa(const Decoded& d) { return bits_of(d.type()) == 32 ? map_to_rank<U32> : map_to_rank<U64>; }
Handler getctarank(const Decoded& d) { return d.in->op[1].bytes == 4 ? rank_of<U32> : rank_of<U64>; }

}  // namespace tessera::emulator::bind

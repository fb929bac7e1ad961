// The adaptors between pure functions T -> T and instructions: they fetch the lanes of the operands, apply the function
// and write the result where the active mask says so.
//
// A register may be wider than the instruction's type where PTX allows it (ld, st, cvt, 8-bit types): then sources are
// cut and destinations extended, through a scratch copy.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "emulator/machine.h"

namespace tessera::emulator {

struct U128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

template <class F>
inline void for_lanes(Mask active, F f) {
  if (active == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (Mask rest = active; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
  }
}

inline int first_lane(Mask active) { return std::countr_zero(active); }

/// One lane of a register of any width, its low bits.
template <class T>
T read_lane(const Warp& w, const Operand& op, int lane) {
  T value{};
  std::memcpy(&value, w.registers + op.offset + static_cast<std::size_t>(lane) * op.bytes,
              std::min(sizeof(T), static_cast<std::size_t>(op.bytes)));
  return value;
}

/// Writes one lane, extended to the register's width by T's sign.
template <class T>
void write_lane(const Warp& w, const Operand& op, int lane, T value) {
  std::byte* to = w.registers + op.offset + static_cast<std::size_t>(lane) * op.bytes;
  if constexpr (std::is_integral_v<T>) {
    if (op.bytes > sizeof(T)) {
      const auto wide = static_cast<std::uint64_t>(
          static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(value));
      std::memcpy(to, &wide, std::min<std::size_t>(op.bytes, 8));
      return;
    }
  }
  std::memcpy(to, &value, std::min(sizeof(T), static_cast<std::size_t>(op.bytes)));
}

/// The 32 lanes of a source as T's, in place when the widths agree.
template <class T>
inline const T* source(const Warp& w, const Operand& op, T (&scratch)[kLanes]) {
  if (op.bytes == sizeof(T)) [[likely]]
    return w.reg<T>(op.offset);
  for (int lane = 0; lane < kLanes; ++lane) scratch[lane] = read_lane<T>(w, op, lane);
  return scratch;
}

template <class D>
inline void store_lanes(const Warp& w, const Operand& op, Mask active, const D* values) {
  if (op.bytes == sizeof(D)) [[likely]] {
    D* d = w.reg<D>(op.offset);
    for_lanes(active, [&](int lane) { d[lane] = values[lane]; });
  } else {
    for_lanes(active, [&](int lane) { write_lane<D>(w, op, lane, values[lane]); });
  }
}

// Before a loop over lanes that do not depend on each other.
#if defined(__clang__)
#define TESSERA_LANE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TESSERA_LANE_LOOP _Pragma("GCC ivdep")
#endif

// Sources and destination are the same register or do not overlap, so the lanes of one instruction are independent.
template <class D, class F>
inline Step apply_lanes(Warp& w, const Operand& to, Mask active, F f) {
  if (active == kAllLanes && to.bytes == sizeof(D)) [[likely]] {
    D* d = w.reg<D>(to.offset);
    TESSERA_LANE_LOOP
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = f(lane);
  } else if (to.bytes == sizeof(D)) {
    D* d = w.reg<D>(to.offset);
    for (Mask rest = active; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      d[lane] = f(lane);
    }
  } else {
    for_lanes(active, [&](int lane) { write_lane<D>(w, to, lane, f(lane)); });
  }
  return Step::next;
}

/// d = f(a)
template <class D, class A, class F>
inline Step lift1(Warp& w, const Instruction& in, Mask active, F f) {
  alignas(64) A sa[kLanes];
  const A* a = source<A>(w, in.op[1], sa);
  return apply_lanes<D>(w, in.op[0], active, [&](int lane) -> D { return f(a[lane]); });
}

/// d = f(a, b)
template <class D, class A, class B, class F>
inline Step lift2(Warp& w, const Instruction& in, Mask active, F f) {
  alignas(64) A sa[kLanes];
  alignas(64) B sb[kLanes];
  const A* a = source<A>(w, in.op[1], sa);
  const B* b = source<B>(w, in.op[2], sb);
  return apply_lanes<D>(w, in.op[0], active, [&](int lane) -> D { return f(a[lane], b[lane]); });
}

/// d = f(a, b, c)
template <class D, class A, class B, class C, class F>
inline Step lift3(Warp& w, const Instruction& in, Mask active, F f) {
  alignas(64) A sa[kLanes];
  alignas(64) B sb[kLanes];
  alignas(64) C sc[kLanes];
  const A* a = source<A>(w, in.op[1], sa);
  const B* b = source<B>(w, in.op[2], sb);
  const C* c = source<C>(w, in.op[3], sc);
  return apply_lanes<D>(w, in.op[0], active, [&](int lane) -> D { return f(a[lane], b[lane], c[lane]); });
}

/// 32 bytes of 0 or 1 to a mask.
[[gnu::always_inline]] inline Mask gather_flags(const std::uint8_t (&flags)[kLanes]) {
  Mask result = 0;
  for (int part = 0; part < 4; ++part) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, flags + 8 * part, 8);
    result |= static_cast<Mask>((eight * 0x0102040810204080) >> 56) << (8 * part);
  }
  return result;
}

/// A predicate's mask, lane by lane, of f(a, b).
template <class T, class F>
inline Mask compare_lanes(const Warp& w, const Operand& oa, const Operand& ob, F f) {
  alignas(64) T sa[kLanes];
  alignas(64) T sb[kLanes];
  const T* a = source<T>(w, oa, sa);
  const T* b = source<T>(w, ob, sb);
  alignas(64) std::uint8_t flags[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) flags[lane] = f(a[lane], b[lane]) ? 1 : 0;
  return gather_flags(flags);
}

inline void write_predicate(const Warp& w, const Operand& op, Mask active, Mask value) {
  Mask& p = w.predicate(op.offset);
  p = (p & ~active) | (value & active);
}

/// A value that all active lanes share: the first one's.
template <class T>
T uniform(const Warp& w, const Operand& op, Mask active) {
  return read_lane<T>(w, op, first_lane(active));
}

}  // namespace tessera::emulator

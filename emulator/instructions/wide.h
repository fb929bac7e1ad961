// The busiest instructions once more, compiled for AVX-512 and for AVX2: a register's 32 lanes are two or four vectors,
// and lanes that are not active cost a blend. Elsewhere their plain handlers (lanes.h) run.
#pragma once

#include <tuple>

#include "emulator/instructions/lanes.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator::wide {

enum class Vectors { none, avx2, avx512 };

#if defined(__x86_64__)
#define TESSERA_FOR_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]]
#define TESSERA_FOR_AVX2 [[gnu::target("avx2,fma")]]

// After TESSERA_LANE_LOOP: the vectors of the loop without a loop around them, 32-bit lanes of AVX2.
#if defined(__clang__)
#define TESSERA_FOUR_VECTORS
#else
#define TESSERA_FOUR_VECTORS _Pragma("GCC unroll 4")
#endif

inline Vectors find_vectors() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return Vectors::avx512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Vectors::avx2 : Vectors::none;
}
/// What programs that are loaded use; tests choose less than the host has.
inline Vectors here = find_vectors();

/// d = F{}(sources ...), every register as wide as its type. F has no state and takes any bits: also inactive lanes are
/// computed.
template <class F, class D, class... S>
struct Lift {
  template <std::size_t... I>
  [[gnu::always_inline]] static Step all(Warp& w, const Instruction& in, Mask active) {
    D* d = w.reg<D>(in.op[0].offset);
    const std::tuple<const S*...> from{w.reg<S>(in.op[I + 1].offset)...};
    if (active == kAllLanes) [[likely]] {
      TESSERA_LANE_LOOP
      TESSERA_FOUR_VECTORS
      for (int lane = 0; lane < kLanes; ++lane) d[lane] = F{}(std::get<I>(from)[lane]...);
      return Step::next;
    }
    alignas(64) D result[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = F{}(std::get<I>(from)[lane]...);
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = (active >> lane & 1) != 0 ? result[lane] : d[lane];
    return Step::next;
  }
  template <std::size_t... I>
  TESSERA_FOR_AVX512 static Step all_avx512(Warp& w, const Instruction& in, Mask active) {
    return all<I...>(w, in, active);
  }
  template <std::size_t... I>
  TESSERA_FOR_AVX2 static Step all_avx2(Warp& w, const Instruction& in, Mask active) {
    return all<I...>(w, in, active);
  }
  template <std::size_t... I>
  static Handler handler(std::index_sequence<I...>) {
    return here == Vectors::avx512 ? all_avx512<I...> : all_avx2<I...>;
  }
};
#else
inline Vectors here = Vectors::none;
#endif

/// The handler for this host, else the plain one.
template <class F, class D, class... S>
Handler or_plain(const Decoded& d, Handler plain) {
#if defined(__x86_64__)
  constexpr std::size_t kBytes[] = {sizeof(D), sizeof(S)...};
  bool fits = here != Vectors::none;
  for (std::size_t i = 0; i < std::size(kBytes); ++i)
    fits = fits && d.in->op[i].kind == Operand::Kind::reg && d.in->op[i].bytes == kBytes[i];
  if (fits) return Lift<F, D, S...>::handler(std::index_sequence_for<S...>{});
#endif
  static_cast<void>(d);
  return plain;
}

}  // namespace tessera::emulator::wide

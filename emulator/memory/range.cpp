#include "emulator/memory/range.h"

#include <algorithm>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "emulator/instructions/wide.h"

namespace tessera::emulator {
namespace {

/// low and high are distances from `start`.
template <class Base>
[[gnu::always_inline]] inline Scan finish(std::uint64_t start, std::int32_t low, std::int32_t high, std::uint32_t bits,
                                          std::uint32_t gaps) {
  const std::uint64_t lowest = start + static_cast<std::uint64_t>(static_cast<std::int64_t>(low));
  const std::uint32_t length = static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low);
  bool is_wide = length > (1u << 30);
  if constexpr (sizeof(Base) == 4)  // 32-bit addresses wrap
    is_wide = is_wide || low < -(1 << 30) || lowest > 0xFFFFFFFF || lowest + length > 0xFFFFFFFF;
  return {lowest, length, bits, gaps, is_wide};
}

// Distances to the first active lane first, in 32 bits: wider ones say that the lanes lie too far apart.
template <class Base>
[[gnu::always_inline]] inline Scan scan_lanes(const Base* base, std::int64_t displacement, std::size_t bytes,
                                              Mask active, std::uint32_t* delta) {
  const Base first = base[first_lane(active)];
  const auto start = static_cast<std::uint64_t>(static_cast<Base>(first + static_cast<Base>(displacement)));
  alignas(64) std::int32_t from_first[kLanes];
  std::int32_t low = 0, high = 0;
  std::uint32_t bits = 0;
  if constexpr (sizeof(Base) == 8) {
    std::uint64_t far = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const Base distance = (active >> lane & 1) != 0 ? base[lane] - first : 0;
      from_first[lane] = static_cast<std::int32_t>(distance);
      far |= distance + (std::uint64_t{1} << 30);
    }
    if (far >> 31 != 0) return {0, 0, 0, 1, true};
  } else {
    for (int lane = 0; lane < kLanes; ++lane)
      from_first[lane] = static_cast<std::int32_t>((active >> lane & 1) != 0 ? base[lane] - first : 0);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    low = std::min(low, from_first[lane]);
    high = std::max(high, from_first[lane]);
    bits |= static_cast<std::uint32_t>(from_first[lane]);
  }
  const auto step = static_cast<std::uint32_t>(bytes);
  std::uint32_t gaps = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    delta[lane] = static_cast<std::uint32_t>(from_first[lane]) - static_cast<std::uint32_t>(low);
    gaps |= delta[lane] ^ (static_cast<std::uint32_t>(lane) * step);
  }
  return finish<Base>(start, low, high, bits | static_cast<std::uint32_t>(start), gaps);
}

#if defined(__x86_64__)
/// The same by vectors: distances of four times eight lanes.
struct Distances {
  __m256i of[4];
};
TESSERA_FOR_AVX2 [[gnu::always_inline]] inline __m256i lanes_of(Mask active, int part) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(active >> (8 * part)));
  return _mm256_cmpeq_epi32(_mm256_and_si256(all, bits), bits);
}
TESSERA_FOR_AVX2 [[gnu::always_inline]] inline bool find_distances(const std::uint32_t* base, std::uint32_t first,
                                                                   Distances& out) {
  const __m256i from = _mm256_set1_epi32(static_cast<int>(first));
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part)
    out.of[part] = _mm256_sub_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(base) + part), from);
  return true;
}
/// False: some are too wide for 31 bits. Lanes that are not active must be 0: `active` cuts them.
template <bool kAll>
TESSERA_FOR_AVX2 [[gnu::always_inline]] inline bool find_distances(const std::uint64_t* base, std::uint64_t first,
                                                                   Mask active, Distances& out) {
  const __m256i from = _mm256_set1_epi64x(static_cast<long long>(first));
  const __m256i middle = _mm256_set1_epi64x(1 << 30);
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  __m256i far = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    const auto* const at = reinterpret_cast<const __m256i*>(base) + 2 * part;
    __m256i low = _mm256_sub_epi64(_mm256_loadu_si256(at), from);
    __m256i high = _mm256_sub_epi64(_mm256_loadu_si256(at + 1), from);
    if constexpr (!kAll) {
      const __m256i lanes = lanes_of(active, part);
      low = _mm256_and_si256(low, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(lanes)));
      high = _mm256_and_si256(high, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(lanes, 1)));
    }
    far = _mm256_or_si256(far, _mm256_or_si256(_mm256_add_epi64(low, middle), _mm256_add_epi64(high, middle)));
    out.of[part] =
        _mm256_blend_epi32(_mm256_permutevar8x32_epi32(low, even), _mm256_permutevar8x32_epi32(high, even), 0xF0);
  }
  const __m256i beyond = _mm256_srli_epi64(far, 31);
  return _mm256_testz_si256(beyond, beyond) != 0;
}
template <bool kMax>
TESSERA_FOR_AVX2 [[gnu::always_inline]] inline std::int32_t across(__m256i v) {
  __m128i a = _mm256_castsi256_si128(v), b = _mm256_extracti128_si256(v, 1);
  a = kMax ? _mm_max_epi32(a, b) : _mm_min_epi32(a, b);
  b = _mm_shuffle_epi32(a, 0x4E);
  a = kMax ? _mm_max_epi32(a, b) : _mm_min_epi32(a, b);
  b = _mm_shuffle_epi32(a, 0xB1);
  return _mm_cvtsi128_si32(kMax ? _mm_max_epi32(a, b) : _mm_min_epi32(a, b));
}
TESSERA_FOR_AVX2 [[gnu::always_inline]] inline std::uint32_t bits_of_any(__m256i v) {
  __m128i a = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  a = _mm_or_si128(a, _mm_shuffle_epi32(a, 0x4E));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_or_si128(a, _mm_shuffle_epi32(a, 0xB1))));
}
template <class Base, bool kAll>
TESSERA_FOR_AVX2 Scan scan_avx2(const Base* base, std::int64_t displacement, std::size_t bytes, Mask active,
                                std::uint32_t* delta) {
  const Base first = base[kAll ? 0 : first_lane(active)];
  const auto start = static_cast<std::uint64_t>(static_cast<Base>(first + static_cast<Base>(displacement)));
  Distances d;
  if constexpr (sizeof(Base) == 8) {
    if (!find_distances<kAll>(base, first, active, d)) return {0, 0, 0, 1, true};
  } else {
    find_distances(base, first, d);
    if (active != kAllLanes)
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) d.of[part] = _mm256_and_si256(d.of[part], lanes_of(active, part));
  }
  auto* const to = reinterpret_cast<__m256i*>(delta);
  const auto step = static_cast<int>(bytes);
  const __m256i any = _mm256_or_si256(_mm256_or_si256(d.of[0], d.of[1]), _mm256_or_si256(d.of[2], d.of[3]));
  const __m256i lanes = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(step));
  __m256i gaps = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part)
    gaps = _mm256_or_si256(gaps,
                           _mm256_xor_si256(d.of[part], _mm256_add_epi32(lanes, _mm256_set1_epi32(8 * part * step))));
  std::uint32_t bits = static_cast<std::uint32_t>(start);
  std::int32_t low = 0, high = 0;
  const bool is_dense = _mm256_testz_si256(gaps, gaps) != 0;
  if (is_dense) {
    high = (kLanes - 1) * step;
  } else if (_mm256_testz_si256(any, any) == 0) {
    low = across<false>(_mm256_min_epi32(_mm256_min_epi32(d.of[0], d.of[1]), _mm256_min_epi32(d.of[2], d.of[3])));
    high = across<true>(_mm256_max_epi32(_mm256_max_epi32(d.of[0], d.of[1]), _mm256_max_epi32(d.of[2], d.of[3])));
    bits |= bits_of_any(any);
    const __m256i lowest = _mm256_set1_epi32(low);
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) d.of[part] = _mm256_sub_epi32(d.of[part], lowest);
  }
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) _mm256_storeu_si256(to + part, d.of[part]);
  return finish<Base>(start, low, high, bits, is_dense ? 0 : 1);
}
#endif
template <class Base>
Scan scan(const Base* base, std::int64_t displacement, std::size_t bytes, Mask active, std::uint32_t* delta) {
#if defined(__x86_64__)
  if (wide::here != wide::Vectors::none)
    return active == kAllLanes ? scan_avx2<Base, true>(base, displacement, bytes, active, delta)
                               : scan_avx2<Base, false>(base, displacement, bytes, active, delta);
#endif
  return scan_lanes(base, displacement, bytes, active, delta);
}

// Bits is as wide as the lanes' access. Of a lane that is not active delta is that of the first active one.
template <class Bits>
bool each_has(const Range& range, std::uint8_t bits) {
  const std::uint8_t* const shadow = range.first.shadow;
  auto all = static_cast<Bits>(~Bits{0});
  for (const std::uint32_t delta : range.delta) {
    Bits some = 0;
    std::memcpy(&some, shadow + delta, sizeof(Bits));
    all = static_cast<Bits>(all & some);
  }
  const auto want = static_cast<Bits>(bits * static_cast<Bits>(0x0101010101010101u));
  return (all & want) == want;
}
template <class Bits>
void mark_each(const Range& range) {
  const auto readable = static_cast<Bits>(kReadable * static_cast<Bits>(0x0101010101010101u));
  for (const std::uint32_t delta : range.delta) std::memcpy(range.first.shadow + delta, &readable, sizeof(Bits));
}

bool all_have(const Range& range, std::size_t bytes, Mask active, std::uint8_t bits) {
  const std::uint8_t* shadow = range.first.shadow;
  if (range.is_one) return shadow_has(shadow, bytes, bits);
  if (range.is_dense) {
    std::array<std::uint64_t, kLanes / 8> all;
    all.fill(~std::uint64_t{0});
    for (std::size_t i = 0; i < bytes; ++i) {
      std::array<std::uint64_t, kLanes / 8> some;
      std::memcpy(some.data(), shadow + i * kLanes, kLanes);
      for (std::size_t j = 0; j < all.size(); ++j) all[j] &= some[j];
    }
    const std::uint64_t want = bits * 0x0101010101010101u;
    return (all[0] & all[1] & all[2] & all[3] & want) == want;
  }
  if (bytes == 1) return each_has<std::uint8_t>(range, bits);
  if (bytes == 2) return each_has<std::uint16_t>(range, bits);
  if (bytes == 4) return each_has<std::uint32_t>(range, bits);
  if (bytes == 8) return each_has<std::uint64_t>(range, bits);
  for (Mask rest = active; rest != 0; rest &= rest - 1)
    if (!shadow_has(shadow + range.delta[static_cast<std::size_t>(std::countr_zero(rest))], bytes, bits)) return false;
  return true;
}

// As GlobalMemory::learn.
void learn_shared(Cta& cta, std::uint32_t offset) {
  std::uint8_t& page = cta.shared_pages[offset / Cta::kSharedPage];
  constexpr std::uint8_t kLooks = 8;
  if (page == Cta::kSharedKnown || ++page < kLooks) return;
  const std::size_t begin = offset / Cta::kSharedPage * Cta::kSharedPage;
  const std::size_t bytes = std::min<std::size_t>(Cta::kSharedPage, cta.shared_bytes - begin);
  const std::uint8_t* const shadow = cta.shared_shadow.data() + begin;
  std::uint8_t all = 0xFF;
  for (std::size_t i = 0; i < bytes; ++i) all &= shadow[i];
  page = (all & kReadable) == kReadable ? Cta::kSharedKnown : 0;
}

}  // namespace

Scan scan_addresses(const Warp& w, const Operand& op, std::size_t bytes, Mask active, std::uint32_t* delta) {
  return op.bytes == 4 ? scan(w.reg<std::uint32_t>(op.offset), op.value, bytes, active, delta)
                       : scan(w.reg<std::uint64_t>(op.offset), op.value, bytes, active, delta);
}

// A thread's local memory lies in one piece, those of a warp one behind the other.
bool find_local_range(const Warp& w, std::size_t bytes, Mask active, std::uint64_t base, const Scan& scan, Range& out) {
  const std::uint64_t size = w.launch->local_bytes, low = scan.low - base;
  if (low >= size || scan.length + bytes > size - low || size * kLanes > std::numeric_limits<std::uint32_t>::max())
    return false;
  const std::uint64_t at = static_cast<std::uint64_t>(w.index) * kLanes * size + low;
  out.first = {w.cta->local.data() + at, w.cta->local_shadow.data() + at, nullptr, 0};
  const auto first = static_cast<std::size_t>(first_lane(active));
  const std::uint32_t of_others = out.delta[first] + static_cast<std::uint32_t>(first * size);
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    out.delta[lane] = (active >> lane & 1) != 0 ? out.delta[lane] + static_cast<std::uint32_t>(lane * size) : of_others;
  return true;
}

bool look_at_range(const Warp& w, const Range& range, std::size_t bytes, Mask active, std::uint8_t bits) {
  if (!all_have(range, bytes, active, bits)) return false;
  if (bits != kReadable) return true;
  if (range.first.cta != nullptr) {
    learn_shared(*range.first.cta, range.first.offset + range.delta[static_cast<std::size_t>(first_lane(active))]);
  } else {
    const std::byte* const at = range.first.data + range.delta[static_cast<std::size_t>(first_lane(active))];
    if (const std::uint64_t address = w.launch->memory.address_of(at); address != 0) w.launch->memory.learn(address);
  }
  return true;
}

void note_all_written(const Warp& w, const Range& range, std::size_t bytes, Mask active) {
  if (range.is_dense) return note_written(w, range.first, kLanes * bytes, range.is_known);
  if (range.is_one) return note_written(w, range.first, bytes, range.is_known);
  if (range.first.cta == nullptr && range.first.shadow != nullptr && !w.launch->written) {  // nothing but the shadow
    if (bytes == 1) return mark_each<std::uint8_t>(range);
    if (bytes == 2) return mark_each<std::uint16_t>(range);
    if (bytes == 4) return mark_each<std::uint32_t>(range);
    if (bytes == 8) return mark_each<std::uint64_t>(range);
  }
  for (Mask rest = active; rest != 0; rest &= rest - 1)
    note_written(w, range.of_lane(std::countr_zero(rest)), bytes, range.is_known);
}

}  // namespace tessera::emulator

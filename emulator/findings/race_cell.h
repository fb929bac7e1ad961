// What 16 bytes of memory remember of their accesses.
//
// Every access looks at the records of its bytes, so they lie as they are looked at: which bytes, whose, when of all of
// them in the first cache line, compared several at a time; the rest is read of those that matter. Lanes are masks, not
// numbers of sets, so that two accesses are compared without a table. Memory pays for both: 12 bytes for each byte, but
// pieces of one history share theirs (race_states.h).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "emulator/findings/vector_clock.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tessera::emulator {

/// The lanes of a warp that touched each of the four words.
struct WordLanes {
  std::array<std::uint32_t, 4> of{};
  bool operator==(const WordLanes&) const = default;
};
inline WordLanes all_words(std::uint32_t lanes) { return {{lanes, lanes, lanes, lanes}}; }

/// One bit in four, the lowest of a word's bytes: the words of which some byte is in the mask.
inline unsigned words_of(unsigned bytes) { return (bytes | bytes >> 1 | bytes >> 2 | bytes >> 3) & 0x1111u; }

inline constexpr std::uint8_t kRaceWrite = 1;
inline constexpr std::uint8_t kRaceAtomic = 2;
inline constexpr std::uint8_t kRaceAsync = 4;
inline constexpr std::uint8_t kRaceNarrow = 8;

/// An access.
struct RaceRecord {
  WordLanes lanes;
  Agent agent = 0;
  std::uint32_t clock = 0;
  std::uint32_t pc = 0;
  std::uint16_t bytes = 0;  ///< mask
  std::uint8_t kind = 0;    ///< kRaceWrite...: 4 bits
  std::uint8_t split = 0;   ///< words of which some bytes were touched by some of the lanes, others by others: 4 bits
  bool operator==(const RaceRecord&) const = default;
};
inline bool is_write(const RaceRecord& r) { return (r.kind & kRaceWrite) != 0; }
inline bool is_async(const RaceRecord& r) { return (r.kind & kRaceAsync) != 0; }

struct alignas(64) RaceCell {
  static constexpr unsigned kRecords = 6;
  static constexpr unsigned kAll = (1u << kRecords) - 1;

  RaceRecord record(unsigned i) const {
    return {lanes[i], agents[i], clocks[i], pcs[i], bytes[i], kind(i), static_cast<std::uint8_t>(kinds[i] >> 4)};
  }
  void set(unsigned i, const RaceRecord& record) {
    bytes[i] = record.bytes;
    agents[i] = record.agent;
    clocks[i] = record.clock;
    lanes[i] = record.lanes;
    pcs[i] = record.pc;
    kinds[i] = static_cast<std::uint8_t>(record.kind | record.split << 4);
  }
  void drop(unsigned i) {
    bytes[i] = 0;
    agents[i] = 0;
  }
  std::uint8_t kind(unsigned i) const { return kinds[i] & 15; }

  // Records by their numbers, as masks.
  unsigned used() const { return sharing(0xFFFF); }
#if defined(__SSE2__)
  /// That have one of these bytes.
  unsigned sharing(std::uint16_t mask) const {
    const __m128i common =
        _mm_and_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(this)), _mm_set1_epi16(static_cast<short>(mask)));
    const __m128i none = _mm_cmpeq_epi16(common, _mm_setzero_si128());
    return ~static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(none, none))) & kAll;
  }
  unsigned of_time(Agent agent, std::uint32_t clock) const {
    const __m128i who = _mm_set1_epi32(static_cast<int>(agent)), when = _mm_set1_epi32(static_cast<int>(clock));
    const auto load = [](const std::uint32_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
    const auto equal = [&](unsigned first) {
      return _mm_movemask_ps(_mm_castsi128_ps(_mm_and_si128(_mm_cmpeq_epi32(load(agents.data() + first), who),
                                                            _mm_cmpeq_epi32(load(clocks.data() + first), when))));
    };
    return static_cast<unsigned>(equal(0) | equal(2) << 2);
  }
#else
  unsigned sharing(std::uint16_t mask) const {
    unsigned found = 0;
    for (unsigned i = 0; i < kRecords; ++i) found |= ((bytes[i] & mask) != 0 ? 1u : 0u) << i;
    return found;
  }
  unsigned of_time(Agent agent, std::uint32_t clock) const {
    unsigned found = 0;
    for (unsigned i = 0; i < kRecords; ++i) found |= (agents[i] == agent && clocks[i] == clock ? 1u : 0u) << i;
    return found;
  }
#endif

  std::array<std::uint16_t, kRecords> bytes{};  ///< 0: no record
  std::uint32_t uses = 0;                       ///< RaceStates; compared with the bytes, and left out
  std::array<Agent, kRecords> agents{};
  std::array<std::uint32_t, kRecords> clocks{};
  std::array<WordLanes, kRecords> lanes{};
  std::array<std::uint32_t, kRecords> pcs{};
  std::array<std::uint8_t, kRecords> kinds{};  ///< RaceRecord::kind | split << 4
};
static_assert(sizeof(RaceCell) == 192);

}  // namespace tessera::emulator

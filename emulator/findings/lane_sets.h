// Which lanes of a warp touched a word: two bytes, for a record that must stay small.
//
// Most words are touched by one lane of an instruction, or by all of them (a broadcast). Sets of several lanes are kept
// in a table; a launch has few of them.
#pragma once

#include <bit>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tessera::emulator {

/// Below 32: that lane. Else a set's number | kLaneSets.
using LaneCode = std::uint16_t;
inline constexpr LaneCode kLaneSets = 0x8000;
inline constexpr LaneCode kUnknownLanes = 0xFFFF;  ///< more sets than there are numbers: nothing is said of lanes

struct LaneSet {
  std::uint32_t lanes = 0;
  bool is_split = false;  ///< some bytes of the word by some of the lanes, others by others
};

class LaneSets {
 public:
  LaneCode code(std::uint32_t lanes, bool is_split = false) {
    if (lanes != 0 && (lanes & (lanes - 1)) == 0) return static_cast<LaneCode>(std::countr_zero(lanes));
    const std::uint64_t key = std::uint64_t{lanes} << 1 | (is_split ? 1 : 0);
    if (key == last_key_) return last_;
    const auto [place, is_new] = numbers_.try_emplace(key, static_cast<LaneCode>(sets_.size() | kLaneSets));
    if (is_new && sets_.size() == 0x7FFF) {
      numbers_.erase(place);
      return kUnknownLanes;
    }
    if (is_new) sets_.push_back({lanes, is_split});
    last_key_ = key;
    return last_ = place->second;
  }
  LaneSet set(LaneCode code) const {
    if (code < kLaneSets) return {std::uint32_t{1} << (code & 31), false};
    return code == kUnknownLanes ? LaneSet{0, true} : sets_[code & ~kLaneSets & 0xFFFF];
  }
  /// The lanes of a word of which `a` touched some bytes and `b` some; masks of four bits.
  LaneCode join(LaneCode a, unsigned bytes_a, LaneCode b, unsigned bytes_b) {
    if (bytes_a == 0 || (a == b && (a < kLaneSets || bytes_a == bytes_b))) return b;
    if (bytes_b == 0) return a;
    if (a == kUnknownLanes || b == kUnknownLanes) return kUnknownLanes;
    const LaneSet x = set(a), y = set(b);
    return code(x.lanes | y.lanes, x.is_split || y.is_split || bytes_a != bytes_b);
  }

 private:
  std::vector<LaneSet> sets_;
  std::unordered_map<std::uint64_t, LaneCode> numbers_;
  std::uint64_t last_key_ = 0;  // no set's
  LaneCode last_ = 0;
};

/// The codes of a granule's four words, the first in the lowest bits.
using LaneCodes = std::uint64_t;
inline LaneCode code_of_word(LaneCodes codes, int word) { return static_cast<LaneCode>(codes >> (16 * word)); }
inline LaneCodes all_words(LaneCode code) { return code * std::uint64_t{0x0001000100010001}; }
/// All bits of the codes whose words have one of these bytes.
inline LaneCodes words_of(std::uint16_t bytes) {
  if (bytes == 0xFFFF) return ~LaneCodes{0};
  LaneCodes words = 0;
  for (int word = 0; word < 4; ++word)
    if ((bytes >> (4 * word) & 15) != 0) words |= LaneCodes{0xFFFF} << (16 * word);
  return words;
}

}  // namespace tessera::emulator

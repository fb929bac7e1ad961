// What tests that draw their problems draw them with: the same numbers for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace tessera::testing {

class RandomDraw {
 protected:
  explicit RandomDraw(std::uint64_t seed) : random_(seed) {}

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(std::int64_t of) { return pick(1, of) == 1; }
  template <std::size_t kCount>
  const char* of(const char* const (&words)[kCount]) {
    return words[pick(0, kCount - 1)];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace tessera::testing

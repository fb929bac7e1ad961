// A list of cases that is longer than each test run should last: a run takes the first case of a test and about one of
// every `of` others, always the same ones; with TESSERA_ALL_CASES=1, as in scripts/nightly, it takes all.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace tessera::testing {

inline bool takes_all_cases() {
  const char* const all = std::getenv("TESSERA_ALL_CASES");
  return all != nullptr && std::string_view(all) == "1";
}

/// Whether a sample of one in `of` has the case of this number, from 0. Chosen by a hash (splitmix64), since a stride
/// would meet only some values of the loops that make the cases.
inline bool is_in_sample(std::uint64_t number, std::uint64_t of) {
  std::uint64_t mixed = number * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return number == 0 || (mixed ^ (mixed >> 31)) % of == 0;
}

/// For a loop over the places of one thing after another, all but the last of which are alike: a run takes one of `of`
/// places, of each thing others.
class Stride {
 public:
  explicit Stride(int of) : step_(takes_all_cases() ? 1 : of) {}
  int step() const { return step_; }
  /// Of the next thing.
  int first() { return next_++ % step_; }

 private:
  int step_, next_ = 0;
};

/// Counts the cases of one loop.
class Sample {
 public:
  explicit Sample(std::uint64_t of) : of_(takes_all_cases() ? 1 : of) {}
  /// Of the next case.
  bool takes() { return is_in_sample(next_++, of_); }

 private:
  std::uint64_t of_, next_ = 0;
};

/// The same for what many loops of a test call: each TEST_CASE counts for itself.
inline bool takes_next_case(std::uint64_t of) {
  static const void* test = nullptr;
  static std::uint64_t next = 0;
  const void* const current = doctest::getContextOptions()->currentTest;
  if (current != test) next = 0;
  test = current;
  return takes_all_cases() || is_in_sample(next++, of);
}

}  // namespace tessera::testing

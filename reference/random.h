// Inputs from a counter: element i of stream s under a seed is a pure function of (seed, s, i), so that any part of a
// tensor can be made alone, by any number of threads, with the same bytes on every machine.
//
// bits() is two rounds of the 64-bit finaliser of SplitMix over the counter (xor-shift, multiply by an odd constant): a
// bijection of the counter for a fixed seed and stream, far better mixed than numerical tests need.
#pragma once

#include <cstdint>

#include "reference/tensor.h"

namespace tessera::reference {

class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::uint64_t stream);
  std::uint64_t bits(std::uint64_t index) const noexcept;
  /// In [0, 1), 53 bits.
  double uniform(std::uint64_t index) const noexcept;
  /// Standard normal (Box-Muller over two uniform values of this index).
  double normal(std::uint64_t index) const noexcept;
  /// Equally likely in [low, high]; the bias is below 2^-32 for ranges under 2^32.
  std::int64_t integer(std::uint64_t index, std::int64_t low, std::int64_t high) const noexcept;

 private:
  std::uint64_t key_;
};

enum class Fill : std::uint8_t {
  normal,          ///< mean 0, variance 1
  uniform,         ///< [-1, 1)
  integer,         ///< whole numbers in [-4, 4]
  sparse_integer,  ///< along the last dimension at most four entries of -1 or 1, the rest 0
  sign,            ///< -1, 0 or 1
  standard         ///< normal, with blocks of zeros, and steep rows (times 16) among flat ones (a sixteenth)
};

/// What Fill::standard multiplies an element of a matrix with: 0 in one of six blocks of 16 rows and 64 columns, 16 in
/// one row of 32, 1/16 in the others of every second 32.
double standard_factor(const CounterRandom& random, std::int64_t row, std::int64_t column) noexcept;

/// Fills a tensor; integer element types take whole numbers of their range for every Fill. `standard` takes the last
/// dimension as columns, of a tensor with one dimension 256 elements.
void fill(Tensor& tensor, Fill kind, std::uint64_t seed, std::uint64_t stream);

}  // namespace tessera::reference

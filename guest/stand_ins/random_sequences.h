// Sequences of random numbers in the order in which cuRAND's host interface gives them: many streams of one generator,
// far apart, whose numbers are dealt out in turn. cuRAND's manual, "Generator Types", "Ordering of results"; what it
// leaves open (what a double and a pair of normal values take, where an offset leads) as cuRAND 13.0 does it on the
// host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::guest {

/// One generator with its place in the sequence.
class RandomSequence {
 public:
  virtual ~RandomSequence() = default;
  virtual void bits(std::uint32_t* to, std::size_t count) = 0;
  /// In (0, 1].
  virtual void uniform(float* to, std::size_t count) = 0;
  virtual void uniform(double* to, std::size_t count) = 0;
  /// Mean 0, deviation 1, by Box and Muller; pairs unless takes_odd().
  virtual void normal(float* to, std::size_t count) = 0;
  virtual void normal(double* to, std::size_t count) = 0;
  virtual bool takes_odd() const { return false; }
};

/// Marsaglia's xorwow, 4,096 streams that are 2^67 apart. From number `offset` on, as all of these.
std::unique_ptr<RandomSequence> make_xorwow(std::uint64_t seed, std::uint64_t offset);
/// L'Ecuyer's MRG32k3a, streams that are 2^76 apart.
std::unique_ptr<RandomSequence> make_mrg32k3a(std::uint64_t seed, std::uint64_t offset, std::size_t streams);
/// Philox-4x32-10, 65,536 subsequences, each dealing four numbers at a time.
std::unique_ptr<RandomSequence> make_philox(std::uint64_t seed, std::uint64_t offset);

}  // namespace tessera::guest

// How far an output is from its reference, element by element, and what the wrong elements have in common.
//
// Each element comes with the value found, the reference and a bound that the error may not exceed whatever the
// inputs are (derived where the reference is computed, see fmha_bound.h). Besides, `expected_square` is the square that
// the error may have when roundings are independent; their sum over all elements bounds the relative error of the whole
// output far more tightly, and so finds a small systematic fault that each element's bound would hide.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::reference {

inline constexpr int kMaxAxes = 5;
using Coordinates = std::array<std::int64_t, kMaxAxes>;

struct Element {
  double found = 0;
  double expected = 0;
  double bound = 0;
  double expected_square = 0;
  Coordinates at{};
};

struct Mismatch {
  Coordinates at{};
  double found = 0, expected = 0, bound = 0;
};

/// Sums over the elements of one output; parts made by several threads are merged in a fixed order.
class ElementSums {
 public:
  void add(const Element& element);
  void merge(const ElementSums& other);

  std::int64_t checked = 0;
  std::int64_t mismatched = 0;
  double error_square = 0, expected_value_square = 0, found_square = 0, dot = 0;
  double allowed_square = 0;  ///< sum of expected_square
  double max_abs_error = 0;
  std::vector<Mismatch> mismatches;  ///< at most kMaxKept, the earliest added
  static constexpr std::size_t kMaxKept = 65536;

  /// Root of error over root of reference; the error itself where the reference is all zero.
  double rel_error() const;
  double rel_bound() const;
  /// 1 where both are all zero.
  double cosine() const;
};

/// The verdict over one call's outputs.
struct Comparison {
  bool pass = true;
  double rel_error = 0;      ///< of the main output
  double rel_bound = 0;      ///< what independent roundings allow; not judged for inputs that the user chose
  double max_abs_error = 0;  ///< of the main output
  double cosine = 1;
  std::int64_t rows_checked = 0, rows_total = 0;
  std::vector<std::string> problems;  ///< for a person: what is wrong, where, in which pattern; empty when pass
  std::vector<Mismatch> mismatches;   ///< of the main output, as many as were kept
};

/// One axis of an output: its name in messages and the block sizes whose edges a fault may follow (tiles, fragments).
struct Axis {
  std::string name;
  std::int64_t extent = 0;
  std::vector<std::int64_t> blocks;
};

/// Where sums lie, which decides what a warp and a lane have of a tile: registers of wgmma, or Tensor Memory.
enum class Accumulator { any, tensor_memory };

/// "o: 512 of 8192 elements wrong; seqlen_q 64..127 of each 128, head_dim all; first at [0, 64, 0, 0]: found 0,
/// expected 1.5, bound 0.01", and what mismatch_patterns() sees in them. Precondition: sums.mismatched > 0.
std::string describe_mismatches(std::string_view output, const ElementSums& sums, const std::vector<Axis>& axes,
                                Accumulator accumulator = Accumulator::any);

}  // namespace tessera::reference

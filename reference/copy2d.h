// The copy's reference: y holds x's bits, except that fp32 copied as tf32 is rounded to nearest even on its way.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "reference/comparison.h"
#include "reference/tensor.h"
#include "tessera/error.h"

namespace tessera::reference {

/// The bits that a copy of `bits` leaves.
inline std::uint64_t copied_bits(DType dtype, std::uint64_t bits) {
  if (dtype != DType::tf32) return bits;
  const std::uint64_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7FFFE000;
  if (magnitude == 0x7F800000) return bits;
  // Nearest even at bit 13; a carry runs into the exponent, past the largest number to infinity.
  return (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000;
}

/// Every element, bit for bit. Throws Error{usage} when the shapes differ. tiles: extents of the kernel's tile,
/// outermost first, for the description of a mismatch; may be empty.
inline Comparison check_copy2d(const TensorView& x, const TensorView& y, const std::vector<std::int64_t>& tiles = {}) {
  if (x.shape != y.shape || x.dtype != y.dtype || x.shape.empty() || x.shape.size() > kMaxAxes)
    throw Error(ErrorKind::usage, "x and y must have the same type and shape, of rank 1 to 5");
  const std::size_t rank = x.shape.size();
  const std::int64_t elements = element_count(x.shape);
  ElementSums sums;
  std::int64_t wrong = 0;
  std::vector<std::int64_t> at(rank, 0);
  std::int64_t from = 0, to = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint64_t expected = copied_bits(x.dtype, x.bits_at(from));
    const std::uint64_t found = y.bits_at(to);
    if (found != expected) ++wrong;
    Element element;
    element.found = found == expected ? 0.0 : to_double(y.dtype, found);
    element.expected = found == expected ? 0.0 : to_double(x.dtype, expected);
    if (found != expected && !(element.found != element.expected)) element.bound = -1;  // same value, other bits
    std::copy(at.begin(), at.end(), element.at.begin());
    sums.add(element);
    for (std::size_t d = rank; d-- > 0;) {
      from += x.strides[d];
      to += y.strides[d];
      if (++at[d] < x.shape[d]) break;
      from -= x.strides[d] * x.shape[d];
      to -= y.strides[d] * y.shape[d];
      at[d] = 0;
    }
  }
  Comparison result;
  result.rel_error = sums.rel_error();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = wrong == 0 ? 1 : sums.cosine();
  result.rows_total = result.rows_checked = rank == 0 || x.shape.back() == 0 ? 0 : elements / x.shape.back();
  if (wrong > 0) {
    std::vector<Axis> axes;
    for (std::size_t d = 0; d < rank; ++d)
      axes.push_back(
          {fmt::format("dim{}", rank - 1 - d), x.shape[d],
           tiles.size() == rank ? std::vector<std::int64_t>{8, tiles[d]} : std::vector<std::int64_t>{8, 32, 64}});
    result.problems.push_back(describe_mismatches("y", sums, axes));
  }
  result.pass = wrong == 0;
  return result;
}

}  // namespace tessera::reference

// The copy's reference: y holds x's bits, except that fp32 copied as tf32 is rounded to nearest even on its way.
#pragma once

#include "reference/comparison.h"
#include "reference/tensor.h"

namespace tessera::reference {

/// The bits that a copy of `bits` leaves.
std::uint64_t copied_bits(DType dtype, std::uint64_t bits);

/// Every element, bit for bit. Throws Error{usage} when the shapes differ. tiles: extents of the kernel's tile,
/// outermost first, for the description of a mismatch; may be empty.
Comparison check_copy2d(const TensorView& x, const TensorView& y, const std::vector<std::int64_t>& tiles = {});

}  // namespace tessera::reference

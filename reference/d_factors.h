// Products whose e4m3 d leaves with an fp32 factor for each 128 columns of a row (gemm's d_scale_block): d and its
// factors are what quantize_blocks makes of the fp32 results.
//
// A result that is right within its bound may lie on either side of a rounding boundary, and a block's largest
// magnitude anywhere within it. So a factor must be one that the least or the largest such magnitude gives, or lie
// between both; an element must be within half a step of e4m3, times the factor, of the exact result, beside its own
// bound and the three roundings of the division. It is judged by the factor that was found and, where that is wrong,
// by the right one: a factor that is wrong alone is told as such. Where sums are exact, all bits must be those of
// quantize_blocks.
#pragma once

#include "reference/gated_rows.h"

namespace tessera::reference {

/// in.check.sfd: f32 [l, m, ceil(n / 128)] any strides; d: e4m3 [l, m, n].
Comparison check_d_factors(const GatedInputs& in, const TensorView& d);

}  // namespace tessera::reference

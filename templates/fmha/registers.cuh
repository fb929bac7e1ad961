// Registers of a consumer by wgmma that the compiler does not see: a block's scores S, the accumulators of O, and P as
// the A operands. An assembly statement without braces declares them in the scope of the kernel, and others name them:
// products, mask, softmax, rescaling. So the compiler has no values to follow through loops and branches, which half of
// its time went into; the assembler sees the same registers as before.
//
// Registers<...> is a specialisation in a generated header, wgmma_shapes.cuh:
//   declare           once, at the kernel's entry
//   clear_probabilities   P is 0: a warp may be without rows, and what is multiplied for nothing must be written
//   multiply_keys     S = Q K^T, issued: matmul.cuh says what S, P and O are
//   multiply_values   O = P V, or O += P V, issued
//   read_scores, write_scores, read_output   copies, for what is written in C++
//   mask              scores times a factor, or -inf: mask.cuh
//   alter             altered scores: attention/altered_scores.cuh
//   hide_by_bits      scores times a factor, or -inf: pools.cuh, tree.cuh
//   find_maxima       the largest score of each row in this thread
//   exponentiate      scores become probabilities and are summed: softmax.cuh; pack: P of them
//   to_exponents, make_probabilities   the same for 8 bits: softmax_8_bit.cuh
//   rescale           O times a factor of each row
//   add_promoted, keep_promoted        promoted.cuh
// Between the issue of a product and the wait for it nothing may touch what it reads or writes: ptx/wgmma.cuh. All are
// volatile, so they stay in their order.
#pragma once

#include "spec/fmha.h"

namespace tessera::fmha {

template <int kScores, int kOutputs>
struct Registers;

template <Config C>
using RegistersOf = Registers<C.tile_n / 2, v_columns(C) / 2>;

}  // namespace tessera::fmha

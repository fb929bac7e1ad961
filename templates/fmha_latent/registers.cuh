// Registers of a consumer that the compiler does not see, as fmha/registers.cuh has them: a block's scores S, this
// warpgroup's half of O, and P as the A operands, or, over 8-bit keys, what is widened as the A operands.
//
// Registers<...> is a specialisation in a generated header, wgmma_shapes.cuh. Over 16-bit keys:
//   declare           once, at the kernel's entry
//   begin_scores, add_scores       S = Q K^T over a panel; S += Q K^T: matmul.cuh
//   multiply_own, multiply_other   O = P V, or O += P V, of P in registers, or in shared memory
//   hide_behind, hide_missing      scores times a factor, or -inf: of keys behind a row's end, of those not listed
//   find_maxima       the largest score of each row in this thread
//   exponentiate      scores become probabilities and are summed: fmha/softmax.cuh; pack: P of them
//   store_probabilities            P to shared memory
//   rescale           O times a factor of each row
//   store_16_bit_rows, store_f32_rows, stage_rows   O leaves, rows that are null do not
// Over 8-bit keys (transposed.cuh), where `at` is the thread's place in what shared memory has of each row:
//   declare           likewise
//   begin_scores, add_scores       S^T = K Q^T over a panel, which is read and widened; S^T +=. Both close their groups
//   add_values        O^T = V^T P^T, or O^T +=, over a block, likewise
//   hide_behind       as above
//   find_exceeded     whether a score is beyond its row's limit
//   find_maxima       the largest score, times its scale, of the rows that this lane has in the end
//   exponentiate      scores become probabilities, and P in shared memory; add_sums: of those rows their sums
//   rescale           O^T times a factor of each row
//   store_16_bit_rows, store_f32_rows   O leaves by lanes that ask others where their rows go
// Between the issue of a product and the wait for it nothing may touch what it reads or writes: ptx/wgmma.cuh. All are
// volatile, so they stay in their order.
#pragma once

#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

template <int kRowsOfTile>
struct Registers;

template <Config C>
using RegistersOf = Registers<C.tile_m>;

}  // namespace tessera::fmha_latent

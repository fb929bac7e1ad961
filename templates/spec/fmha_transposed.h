// Attention on Hopper over e4m3 q, k and v (dtype e4m3): what its CTAs have besides.
//
// wgmma reads 8-bit operands K-major alone, and the K of P V is the keys. V lies token-major, as every cache has it: it
// comes to a ring of raw slots, raw_v, as K comes to its own, and two warps of the producer warpgroup (transpose_v)
// bring each block to a slot that consumers read,
//   v [stages][tile_n / span][columns][span]    the span is that of transposed_swizzle()
// by ldmatrix.trans, byte permutations and stmatrix. The two orders of a transposed block are free, and such that no
// value has to change lanes:
//
//   keys     a sum over keys does not ask for their order. Of 16 keys a lane t of a warp has the scores of keys
//            8 h + 2 (t % 4) + b, h and b 0 or 1, and in the A operand the places 4 (t % 4) + i: there it puts key
//            h = i / 2, b = i % 2. V's keys lie likewise: place 4 q + 2 h + b is key 8 h + 2 q + b.
//   columns  those of 16 lie as the even ones, then the odd ones, since ldmatrix moves pairs of columns. A thread then
//            has four columns of O side by side, 4 (t % 4) and on of 16.
//
// One warp loads Q and K (load_k), one V (load_v). O leaves from registers: there is no map of it.
//
// P is e4m3 too, of numbers up to 2^8.75 of 448: a row's reference begins 2^kLowered below its maximum, so that what
// lies 2^(10 + kLowered) below that still counts. Sums of rows are those of P before it is rounded. Between kLowered
// and 8.75 a maximum may rise before the reference moves and O is scaled anew, for which all rows of a warpgroup wait.
// Of 16,384 scores drawn from a normal distribution with a deviation of 1 some row of 64 asked for it in 10 % of the
// steps of 96 keys with 2 powers of two between (6 and 8), in 0.5 % with 3.75, in none of 5,070 with 4.75.
//
// Sums. Of an accumulator of 8-bit products the tensor cores keep 13 fraction bits, and of a product what these bits
// reach: where many keys have the same weight each is cut by more the more came before it, and in the end it counts for
// nothing. So O of some keys (promote_every) is added in fp32 to sums in shared memory (promoted), and begins anew; or
// to sums in rows of o (keeps_sums_in_o).
//
// Descales, fp32 [batch, heads_kv] or null (1): q_descale and k_descale are factors of the scale of the scores,
// v_descale one of a finished row of O. Behind softmax_scale, or the parameters of pages, the entry has
//   float* q_descale, k_descale, v_descale
//   long long q_descale_stride_batch, q_descale_stride_head, the same of k and v
// and then the strides of o, unless keys are split in num_splits parts.
#pragma once

#include "spec/fmha_widened.h"

namespace tessera::fmha {

inline constexpr int kTransposingWarps = 2;
inline constexpr int kLowered = 4;             // powers of two
inline constexpr float kSlackOfSteps = 8.75f;  // of exponents, before a reference moves: 448 is more
inline constexpr int kKeysOfPromotion = 1920;
inline constexpr int kPromotedShift = 6;  // powers of two between a row's sum and its factor: fmha/promoted.cuh

// Of a transposed block: the widest whose span divides its keys.
TESSERA_HD constexpr Swizzle transposed_swizzle(const Config& c) {
  return c.tile_n % 128 == 0 ? Swizzle::b128 : c.tile_n % 64 == 0 ? Swizzle::b64 : Swizzle::b32;
}

TESSERA_HD constexpr bool keeps_f16_sums(const Config& c) { return tessera::keeps_f16_sums(c.tile_m, v_columns(c)); }
// Of a warpgroup: its rows' sums, and two factors of each thread.
TESSERA_HD constexpr int promoted_sums_bytes(const Config& c) {
  return kRowsPerWarpgroup * v_columns(c) * (keeps_f16_sums(c) ? 2 : 4);
}
TESSERA_HD constexpr int promoted_slot_bytes(const Config& c) {
  return c.promote_every > 0 ? (keeps_sums_in_o(c) ? 0 : promoted_sums_bytes(c)) + 128 * 8 : 0;
}
// Blocks between two promotions.
TESSERA_HD constexpr int blocks_of_promotion(const Config& c) { return c.promote_every / c.tile_n; }

// What nobody pins.
TESSERA_HD constexpr int default_promotion(const Config& c) {
  if (!transposes_v(c) || c.tile_n < 1) return 0;
  return c.tile_n > kKeysOfPromotion ? c.tile_n : kKeysOfPromotion / c.tile_n * c.tile_n;
}

// Slots of V as it was loaded.
TESSERA_HD constexpr int raw_v_stages(const Config& c) {
  return transposes_v(c) ? transposing_stages(c) : raw_stages(c);
}

}  // namespace tessera::fmha

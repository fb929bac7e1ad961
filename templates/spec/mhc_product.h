// The product before mHC's mixes: rows of all streams by the few rows of coefficients, and the rows' sums of squares.
//
//   d[i, j] = sum_k a[i, k] b[j, k]        sum_squares[i] = sum_k a[i, k]^2
//
// a is bf16, b fp32, both row by row; n is small (mHC: 24), k long (28,672): what counts is that a is read once, at the
// memory's speed. An element of b is the sum of two bf16 numbers, which is b to 2^-17 (tf32 is to 2^-12); products are
// exact, sums fp32.
//
// One warp loads, the others multiply. a and b come by TMA, `stages` chunks of 64 columns ahead, in rows of 128 bytes,
// swizzled: of a 64 columns, which ldmatrix takes to the registers of mma.sync, its elements being squared on the way;
// of b twice 32, of which lane 4 g + t loads columns 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of each 16 of row g, and splits
// them. (Rows of 32 bytes would keep a warp's lanes in different banks, and take TMA four times as many requests.)
//
// warps_m warps have 32 rows each, warps_k take chunks in turn: a warp that waits for every fourth chunk alone, and has
// four steps of 16 columns to overlap then, leaves one CTA a multiprocessor enough (8,192 x 7,168 on an H200, us: 31;
// where warps shared the steps of each chunk 37, with two CTAs a multiprocessor 34). A warp sees a slot's phases one
// after the other only if the ring has a multiple of warps_k slots: a parity that it skipped would look like the next.
//
// ctas CTAs of a cluster have parts of k of the same rows, and each adds up the parts of some rows, in the order of the
// parts: bits do not change from run to run. With splits the launch has that many parts more, which are not added: d
// and sum_squares have one more extent.
//
// Entry parameters, in this order:
//   CUtensorMap a                                     {k, m} in boxes of {64, rows_of_cta()}, 128-byte swizzle
//   CUtensorMap b                                     {32, n, k / 32} in boxes of {32, n, 2}, 128-byte swizzle
//   float* d; long long d_stride_m, d_stride_split; float* sum_squares; long long sum_squares_stride_split
//   int m, k
// Launch: grid {ceil(m / rows_of_cta()) ctas, splits, 1} in clusters of {ctas, 1, 1}, block {threads(), 1, 1},
// smem_bytes() of shared memory, programmatic stream serialization.
#pragma once

#include "spec/limits.h"
#include "tessera/spec/types.h"

namespace tessera::mhc_product {

struct Config {
  int n = 24;
  int splits = 1;
  int warps_m = 4;
  int warps_k = 2;
  int ctas = 8;
  int stages = 4;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kWarp = 32, kMaxWarps = 16, kMaxCtas = 8, kMaxN = 64, kMaxSplits = 64;
inline constexpr int kRowsOfWarp = 32, kTileN = 8;
inline constexpr int kChunk = 64, kRowBytes = 128;  // of k: a row of a slot
inline constexpr int kSteps = kChunk / 16;
inline constexpr int kPanel = 32, kPanels = kChunk / kPanel;  // columns of b whose rows lie together
inline constexpr int kMaxStages = 16;

TESSERA_HD constexpr int product_warps(const Config& c) { return c.warps_m * c.warps_k; }
TESSERA_HD constexpr int threads(const Config& c) { return kWarp * (product_warps(c) + 1); }
TESSERA_HD constexpr int rows_of_cta(const Config& c) { return kRowsOfWarp * c.warps_m; }
TESSERA_HD constexpr int rows_of_rank(const Config& c) { return rows_of_cta(c) / c.ctas; }
// Of a row of sums: n, that of squares, and zeros up to 16 bytes.
TESSERA_HD constexpr int row_floats(const Config& c) { return c.n + 4; }
TESSERA_HD constexpr int a_slot_bytes(const Config& c) { return rows_of_cta(c) * kRowBytes; }
TESSERA_HD constexpr int b_slot_bytes(const Config& c) { return c.n * 4 * kChunk; }

// Offsets from the start of shared memory, which is aligned to 1,024 bytes. Sums of the warps lie where the slots were;
// those of the cluster's CTAs, of the rows that this one adds up, have a place of their own, since CTAs are over at
// other times.
struct SmemLayout {
  int a = 0;
  int b = 0;
  int gathered = 0;
  int barriers = 0;  // full ones, then empty ones
  int total = 0;
};
TESSERA_HD constexpr int parts_bytes(const Config& c) { return 4 * c.warps_k * rows_of_cta(c) * row_floats(c); }
TESSERA_HD constexpr int gathered_bytes(const Config& c) {
  return c.ctas > 1 ? static_cast<int>(round_up(4 * c.ctas * rows_of_rank(c) * row_floats(c), 16)) : 0;
}
TESSERA_HD constexpr int fixed_bytes(const Config& c) { return gathered_bytes(c) + 16 * kMaxStages; }
// As many as fit, with the sums of the warps; none, if these alone don't.
TESSERA_HD constexpr int stages_within(const Config& c, int bytes) {
  if (parts_bytes(c) > bytes - fixed_bytes(c)) return 0;
  const int fit = (bytes - fixed_bytes(c)) / (a_slot_bytes(c) + b_slot_bytes(c));
  const int most = fit > kMaxStages ? kMaxStages : fit;
  return most / c.warps_k * c.warps_k;
}
TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.b = c.stages * a_slot_bytes(c);
  const int ring = layout.b + c.stages * b_slot_bytes(c), parts = static_cast<int>(round_up(parts_bytes(c), 16));
  layout.gathered = ring > parts ? ring : parts;
  layout.barriers = layout.gathered + gathered_bytes(c);
  layout.total = layout.barriers + 16 * kMaxStages;
  return layout;
}
TESSERA_HD constexpr int smem_bytes(const Config& c) { return smem_layout(c).total; }
// Of a multiprocessor of 228 KB, as far as a thread is left 96 registers, which the sums of 40 columns fit in.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  return threads(c) <= 320 && c.n <= 40 && smem_bytes(c) <= kMaxSmemBytesOfTwo ? 2 : 1;
}

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  n_out_of_range,       // n; 64
  n_not_tiles,          // n; 8
  splits_out_of_range,  // splits; 64
  warps_out_of_range,   // warps of a CTA that multiply; 16
  ctas_out_of_range,    // CTAs of a cluster; 8
  stages_missing,       // stages; warps_k
  stages_not_turns,     // stages; warps_k
  stages_out_of_range,  // stages; 16
  smem_exceeded,        // bytes of shared memory; 232,448
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.n < kTileN || c.n > kMaxN) return {Rule::n_out_of_range, c.n, kMaxN};
  if (c.n % kTileN != 0) return {Rule::n_not_tiles, c.n, kTileN};
  if (c.splits < 1 || c.splits > kMaxSplits) return {Rule::splits_out_of_range, c.splits, kMaxSplits};
  const long long warps = static_cast<long long>(c.warps_m) * c.warps_k;
  if (c.warps_m < 1 || c.warps_k < 1 || warps > kMaxWarps) return {Rule::warps_out_of_range, warps, kMaxWarps};
  if (c.ctas < 1 || c.ctas > kMaxCtas || (c.ctas & (c.ctas - 1)) != 0)
    return {Rule::ctas_out_of_range, c.ctas, kMaxCtas};
  if (c.stages < c.warps_k) return {Rule::stages_missing, c.stages, c.warps_k};
  if (c.stages % c.warps_k != 0) return {Rule::stages_not_turns, c.stages, c.warps_k};
  if (c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (smem_bytes(c) > kMaxSmemBytes) return {Rule::smem_exceeded, smem_bytes(c), kMaxSmemBytes};
  return {};
}

}  // namespace tessera::mhc_product

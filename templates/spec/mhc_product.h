// The product before mHC's mixes: rows of all streams by the few rows of coefficients, and the rows' sums of squares.
//
//   d[i, j] = sum_k a[i, k] b[j, k]        sum_squares[i] = sum_k a[i, k]^2
//
// a is bf16, b fp32, both row by row; n is small (mHC: 24), k long (28,672): what counts is that a is read once, at the
// memory's speed. An element of b is the sum of two bf16 numbers, which is b to 2^-17 (tf32 is to 2^-12); products are
// exact, sums fp32.
//
// a goes from memory to the registers that mma.sync reads: since k may be taken in any order as long as a and b have
// the same, lane 4 g + t of a warp loads 8 neighbours from k = 8 t on, of rows g, g + 8, g + 16, g + 24; of each 32
// columns step s of two multiplies its elements 4 s to 4 s + 3. Threads with the same columns split b for all of them
// into shared memory, as mma.sync takes it: 16 bytes a lane for a step and 8 rows of b.
//
// Of a CTA warps_m warps have 32 rows each, warps_k take chunks of 64 columns in turn; ctas CTAs of a cluster have
// parts of k of the same rows, and each adds up the parts of some rows, in the order of the parts: bits do not change
// from run to run. With splits the launch has that many parts more, which are not added: d and sum_squares have one
// more extent.
//
// Entry parameters, in this order:
//   const void* a; long long a_stride_m; const float* b; long long b_stride_n      elements
//   float* d; long long d_stride_m, d_stride_split; float* sum_squares; long long sum_squares_stride_split
//   int m, k
// Launch: grid {ceil(m / rows_of_cta()) ctas, splits, 1} in clusters of {ctas, 1, 1}, block {threads(), 1, 1},
// smem_bytes() of shared memory, programmatic stream serialization.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::mhc_product {

struct Config {
  int n = 24;
  int splits = 1;
  int warps_m = 4;
  int warps_k = 1;
  int ctas = 8;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kWarp = 32, kMaxWarps = 16, kMaxCtas = 8, kMaxN = 64, kMaxSplits = 64;
inline constexpr int kMaxSmem = 101376;  // of the targets that have the least
inline constexpr int kRowsOfWarp = 32, kTileN = 8;
inline constexpr int kVector = 8;               // elements of a row that a lane loads at a time
inline constexpr int kHalfChunk = 4 * kVector;  // of k, that a warp's lanes load at a time
inline constexpr int kChunk = 2 * kHalfChunk;   // of k, that are under way while others are multiplied
inline constexpr int kSteps = kChunk / 16, kStages = 2;

TESSERA_HD constexpr int threads(const Config& c) { return kWarp * c.warps_m * c.warps_k; }
TESSERA_HD constexpr int rows_of_cta(const Config& c) { return kRowsOfWarp * c.warps_m; }
// Of a row of sums: n, that of squares, and what keeps rows apart in the banks.
TESSERA_HD constexpr int row_floats(const Config& c) { return c.n + 5; }
TESSERA_HD constexpr int rows_of_rank(const Config& c) { return rows_of_cta(c) / c.ctas; }
// b of a chunk, split: [steps][n / 8][lanes] of 16 bytes.
TESSERA_HD constexpr int chunk_bytes(const Config& c) { return kSteps * c.n / kTileN * kWarp * 16; }
TESSERA_HD constexpr int stage_bytes(const Config& c) { return c.warps_k * chunk_bytes(c); }
// Sums of the warps, where b was; behind them those of the cluster's CTAs, of the rows that this one adds up.
TESSERA_HD constexpr int parts_bytes(const Config& c) { return 4 * c.warps_k * rows_of_cta(c) * row_floats(c); }
TESSERA_HD constexpr int ring_bytes(const Config& c) {
  const int bytes = kStages * stage_bytes(c);
  return static_cast<int>(round_up(bytes > parts_bytes(c) ? bytes : parts_bytes(c), 16));
}
TESSERA_HD constexpr int gathered_bytes(const Config& c) {
  return c.ctas > 1 ? 4 * c.ctas * rows_of_rank(c) * row_floats(c) : 0;
}
TESSERA_HD constexpr int smem_bytes(const Config& c) { return ring_bytes(c) + gathered_bytes(c); }
// 12 warps of a multiprocessor have 168 registers a thread.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  const int warps = c.warps_m * c.warps_k;
  return warps >= 12 ? 1 : 12 / warps;
}

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  n_out_of_range,       // n; 64
  n_not_tiles,          // n; 8
  splits_out_of_range,  // splits; 64
  warps_out_of_range,   // warps of a CTA; 16
  ctas_out_of_range,    // CTAs of a cluster; 8
  smem_exceeded,        // bytes of shared memory; 101,376
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.n < kTileN || c.n > kMaxN) return {Rule::n_out_of_range, c.n, kMaxN};
  if (c.n % kTileN != 0) return {Rule::n_not_tiles, c.n, kTileN};
  if (c.splits < 1 || c.splits > kMaxSplits) return {Rule::splits_out_of_range, c.splits, kMaxSplits};
  const long long warps = static_cast<long long>(c.warps_m) * c.warps_k;
  if (c.warps_m < 1 || c.warps_k < 1 || warps > kMaxWarps) return {Rule::warps_out_of_range, warps, kMaxWarps};
  if (c.ctas < 1 || c.ctas > kMaxCtas || (c.ctas & (c.ctas - 1)) != 0)
    return {Rule::ctas_out_of_range, c.ctas, kMaxCtas};
  if (smem_bytes(c) > kMaxSmem) return {Rule::smem_exceeded, smem_bytes(c), kMaxSmem};
  return {};
}

}  // namespace tessera::mhc_product

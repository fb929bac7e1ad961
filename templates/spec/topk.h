// The k largest elements of each row of a matrix, exactly.
//
//   A row is scores[i, start ..] with `length` columns; j counts from its start. An element stands before another if it
//   is larger; of equals (-0 and +0 are equal) with `ties` smaller that with the smaller j, with larger that with the
//   larger. A NaN stands behind every number, -inf too; NaNs are equals. The first min(k, length) in that order are
//   taken.
//   indices   of those taken: in ascending order of j, or (`order` value) as they stand, the largest first; then -1
//             columns   j
//             pages     block_table[s, j / page_size] * page_size + j % page_size, s = row_sequences[i] (no list: i).
//             -1
//                       where the table's entry is negative, or s or j / page_size is none of the table's
//             offsets   j + offsets[i]
//   values    the elements, with their bits; -inf behind them
//   kth       the k-th of those taken, as fp32; -inf: fewer were taken, or a NaN
//
// How: keys are whole numbers in the order of the elements. `ctas` CTAs of a cluster have neighbouring parts of a row.
// A part that fits is kept in shared memory as keys; of a longer one the keys that may still be among the k largest are
// kept, with their j: a sample of the whole row has k that are larger than what is not kept; and wherever the room is
// used up, the k largest are found and the others dropped. So a row is read once from memory. Then a digit of 11 bits
// at a time says, by a histogram over the whole cluster, which keys are taken, until a digit's keys are taken all.
// Results are placed by prefix sums over keys in the order of j: neither what is taken nor where it stands depends on
// the order of threads.
//
// With guesses the part is read as a long one whose keys below the row's guess are not kept: no sample, and every step
// after that has few keys. Where fewer than k of the whole row are left the row is read again without the guess, so
// that a guess costs time alone, whatever it is.
//
// Entry parameters, in this order:
//   const void* scores; long long scores_stride_m     elements; any alignment that elements have
//   const int* lengths                                [m], cut to what there is (range lengths, starts)
//   const int* row_starts                             [m], likewise (starts)
//   const int* block_table; long long block_table_stride; const int* row_sequences (may be null)     (pages)
//   const int* offsets                                [m] (offsets)
//   const float* guesses                              [m] (guesses); kth may be the same memory
//   int* indices; long long indices_stride_m
//   void* values; long long values_stride_m           (with values)
//   float* kth                                        [m] (guesses)
//   int n; int sequences, max_pages, page_size (pages)
// Launch: {m ctas, 1, 1} CTAs in clusters of {ctas, 1, 1}, {threads, 1, 1} threads, smem_bytes() of shared memory,
// programmatic stream serialization.
#pragma once

#include "spec/limits.h"
#include "tessera/spec/topk_types.h"
#include "tessera/spec/types.h"

namespace tessera::topk {

struct Config {
  DType dtype = DType::f32;  // of scores
  int k = 512;
  Ties ties = Ties::smaller;
  ResultOrder order = ResultOrder::index;
  RowRange range = RowRange::all;
  IndexForm index_form = IndexForm::columns;
  WithValues values = WithValues::off;
  WithGuesses guesses = WithGuesses::off;
  int threads = 512;
  int ctas = 1;
  int elements = 16;  // of a thread in a chunk of a long part
  int words = 25600;  // of shared memory for keys: that many, or half as many with their j

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kWarp = 32, kMaxK = 2048, kMaxCtas = 16;
inline constexpr int kDigitBits = 11, kBins = 1 << kDigitBits;
inline constexpr int kSampleOfCta = 8192, kSampleOfRow = 24576;  // elements, where a cluster has a row, and one CTA
inline constexpr int kSampleDigits = 2, kSampleShare = 4;        // no more than that share of a part

// Bits of a key: what is the same in all keys of a type is left out.
TESSERA_HD constexpr int key_bits(const Config& c) {
  return c.dtype == DType::f32 ? 32 : c.dtype == DType::f16 ? 19 : 16;
}
TESSERA_HD constexpr bool has_guesses(const Config& c) { return c.guesses == WithGuesses::on; }
TESSERA_HD constexpr int digits(const Config& c) { return (key_bits(c) + kDigitBits - 1) / kDigitBits; }
TESSERA_HD constexpr int vector_elements(const Config& c) { return 16 / dtype_bytes(c.dtype); }
// Elements of a long part that are looked at before room is asked for; a thread's are whole vectors.
TESSERA_HD constexpr int chunk(const Config& c) { return c.elements * c.threads; }
TESSERA_HD constexpr int vectors_of_thread(const Config& c) { return c.elements / vector_elements(c); }
TESSERA_HD constexpr int warps(const Config& c) { return c.threads / kWarp; }
// Digits whose sums over the cluster have memory of their own: those of the sample, of the result, and the one that a
// guess fails at.
TESSERA_HD constexpr int summed_digits(const Config& c) { return digits(c) + kSampleDigits + (has_guesses(c) ? 1 : 0); }
// Keys that are kept with their j.
TESSERA_HD constexpr int pairs(const Config& c) { return c.words / 2; }
TESSERA_HD constexpr int next_power_of_two(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}
TESSERA_HD constexpr int sorted_pairs(const Config& c) {
  return c.order == ResultOrder::value ? next_power_of_two(c.k) : 0;
}
// Elements of a part that is kept whole: 32,768 took 17.3 us so and 14.0 us as a long part (128 K columns on an H200, k
// 512, four CTAs).
inline constexpr int kMostKept = 24576;
TESSERA_HD constexpr int kept_whole(const Config& c) { return c.words < kMostKept ? c.words : kMostKept; }
// Elements of a part of which a guess is looked at only if there are more: 4,096 took 9.3 us with it and 8.0 without,
// 8,192 10.6 and 11.1 (an H200, one row).
inline constexpr int kLeastGuessed = 4096;
// Blocks of a warp's vectors, side by side, that are looked at before a long part is.
TESSERA_HD constexpr int most_sampled_blocks(const Config& c) {
  const int most = c.ctas > 1 ? kSampleOfCta : kSampleOfRow;
  return (most < c.words ? most : c.words) / (kWarp * vector_elements(c));
}
// Of a digit's histogram over the cluster the bins that a CTA adds up.
TESSERA_HD constexpr int bins_of_cta(const Config& c) { return kBins / c.ctas; }

// Offsets from the start of shared memory.
struct SmemLayout {
  int keys = 0;
  int histogram = 0;
  int sums = 0;    // for each digit, and those of the sample: this CTA's bins of the cluster's histogram
  int sorted = 0;  // pairs of key and j, of the whole cluster's results
  int counts = 0;  // of warps, twice; what was found of a digit; keys above and at the limit
  int total = 0;
};
inline constexpr int kCountsBytes = 4 * (2 * kWarp + 4 + 4);
TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.histogram = 4 * c.words;
  layout.sums = layout.histogram + 4 * kBins;
  layout.sorted = layout.sums + (c.ctas > 1 ? 4 * summed_digits(c) * bins_of_cta(c) : 0);
  layout.counts = layout.sorted + static_cast<int>(round_up(8 * sorted_pairs(c), 16));
  layout.total = layout.counts + kCountsBytes;
  return layout;
}
TESSERA_HD constexpr int smem_bytes(const Config& c) { return smem_layout(c).total; }
TESSERA_HD constexpr int min_ctas(const Config& c) {
  return c.threads <= 512 && smem_bytes(c) <= kMaxSmemBytesOfTwo ? 2 : 1;
}
// Words for keys of which two CTAs of 512 threads are resident, or one of 1,024, within `most` bytes of shared memory.
TESSERA_HD constexpr int words_within(Config c, int most) {
  c.words = 0;
  const int bytes = most - smem_bytes(c);
  return bytes < 0 ? 0 : bytes / 4 / 1024 * 1024;
}

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,    // bytes of an element; 4
  k_out_of_range,        // k; 2,048
  threads_not_offered,   // threads; 1,024
  elements_not_offered,  // elements; 16
  ctas_not_offered,      // CTAs of a cluster; 16
  words_too_few,         // pairs that fit; k and a chunk
  smem_exceeded,         // bytes of shared memory; 232,448
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f32 && c.dtype != DType::f16 && c.dtype != DType::bf16)
    return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.k < 1 || c.k > kMaxK) return {Rule::k_out_of_range, c.k, kMaxK};
  if (c.threads != 512 && c.threads != 1024) return {Rule::threads_not_offered, c.threads, 1024};
  if (c.elements != 8 && c.elements != 16) return {Rule::elements_not_offered, c.elements, 16};
  if (c.ctas < 1 || c.ctas > kMaxCtas || (c.ctas & (c.ctas - 1)) != 0)
    return {Rule::ctas_not_offered, c.ctas, kMaxCtas};
  if (c.words % 8 != 0 || pairs(c) < c.k + chunk(c)) return {Rule::words_too_few, pairs(c), c.k + chunk(c)};
  if (smem_bytes(c) > kMaxSmemBytes) return {Rule::smem_exceeded, smem_bytes(c), kMaxSmemBytes};
  return {};
}

}  // namespace tessera::topk

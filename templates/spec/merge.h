// Joins attention over different keys: parts (o_i, lse_i) of the same rows to (o, lse).
//
//   o   = sum_i exp(lse_i) o_i / (sum_i exp(lse_i) + exp(sink))     lse = ln sum_i exp(lse_i)
//
// lse_i is natural, -inf where part i saw no key: then it weighs nothing, whatever its o_i holds. A row of such parts
// alone gives o = 0 and lse = -inf. Exponents are differences to the largest lse_i of the parts so far; sums go through
// the parts in their order, at_once of them at a time: bits do not change from run to run.
//
// A thread has 16 bytes of a row's parts, the neighbouring threads the rest of the row. Rows are numbered such that up
// to 8 queries of one head follow each other: their lse_i are one sector of memory, their o_i whole rows.
//
// Entry parameters, in this order:
//   const void* o_parts; const float* lse_parts; void* o; float* lse; const float* sink     lse, sink: may be null
//   int parts, rows, heads_q, seqlen_q              rows = batch * heads_q * seqlen_q
//   long long o_parts_stride_part, _batch, _seqlen, _head; lse_parts_stride_part, _batch, _head;
//             o_stride_batch, _seqlen, _head        elements
// Launch: grid {ceil(rows / rows_of_cta()), 1, 1}, block {threads, 1, 1}, programmatic stream serialization.
#pragma once

#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::merge {

struct Config {
  int head_dim_v = 128;
  DType dtype = DType::bf16;    // of the parts
  DType o_dtype = DType::bf16;  // of o
  Sink sink = Sink::none;
  int threads = 256;
  int at_once = 4;  // parts whose loads are on their way at the same time

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxThreads = 1024, kMaxAtOnce = 16;
inline constexpr int kLoadBytes = 16;
inline constexpr int kQueriesTogether = 8;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,          // bytes of an element of the parts; 4
  o_dtype_not_floating,        // bytes of an element of o; 4
  row_not_whole_loads,         // bytes of a row of a part; 16
  threads_not_multiple_of_32,  // threads; 32
  threads_out_of_range,        // threads; 1,024
  row_longer_than_cta,         // threads of a row; threads
  at_once_out_of_range,        // at_once; 16
};

// Of a row that one thread has.
TESSERA_HD constexpr int elements_of_thread(const Config& c) { return kLoadBytes / dtype_bytes(c.dtype); }
TESSERA_HD constexpr int threads_of_row(const Config& c) { return c.head_dim_v / elements_of_thread(c); }
// The last threads of a CTA have none where a row's do not divide it.
TESSERA_HD constexpr int rows_of_cta(const Config& c) { return c.threads / threads_of_row(c); }

// CTAs of an SM, for __launch_bounds__: 40 registers a thread with two parts at once, 48 with four, 80 with eight.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  const int threads_of_sm = c.at_once <= 2 ? 1536 : c.at_once <= 4 ? 1280 : c.at_once <= 8 ? 768 : 512;
  return c.threads >= threads_of_sm ? 1 : threads_of_sm / c.threads;
}

TESSERA_HD constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (!is_floating(c.dtype)) return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (!is_floating(c.o_dtype)) return {Rule::o_dtype_not_floating, dtype_bytes(c.o_dtype), 4};
  if (c.head_dim_v < 1 || c.head_dim_v % elements_of_thread(c) != 0)
    return {Rule::row_not_whole_loads, static_cast<long long>(c.head_dim_v) * dtype_bytes(c.dtype), kLoadBytes};
  if (c.threads < 32 || c.threads > kMaxThreads) return {Rule::threads_out_of_range, c.threads, kMaxThreads};
  if (c.threads % 32 != 0) return {Rule::threads_not_multiple_of_32, c.threads, 32};
  if (threads_of_row(c) > c.threads) return {Rule::row_longer_than_cta, threads_of_row(c), c.threads};
  if (c.at_once < 1 || c.at_once > kMaxAtOnce) return {Rule::at_once_out_of_range, c.at_once, kMaxAtOnce};
  return {};
}

}  // namespace tessera::merge

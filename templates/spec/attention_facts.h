// What follows from the facts of attention alone, for the Configs of all its families.
#pragma once

#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera {

// Whether scores are more than the products of q and k times a scale.
TESSERA_HD constexpr bool alters_scores(const AttentionFacts& f) {
  return f.softcap != Softcap::none || f.alibi != Alibi::none;
}
// Whether lengths of sequences are read from memory: of their keys, of either.
TESSERA_HD constexpr bool reads_lengths_of_keys(const AttentionFacts& f) {
  return f.seqused != UsedLengths::none || f.kv_layout == KvLayout::ragged;
}
// Whether sequences' queries follow each other without gaps.
TESSERA_HD constexpr bool is_ragged(const AttentionFacts& f) { return f.q_layout == QueryLayout::ragged; }
TESSERA_HD constexpr bool reads_lengths(const AttentionFacts& f) { return reads_lengths_of_keys(f) || is_ragged(f); }
TESSERA_HD constexpr bool has_pools(const AttentionFacts& f) { return f.kv_pools != KvPools::dense; }
// Whether keys are tokens of a cache that is narrower than rows: spec/attention_cache.h.
TESSERA_HD constexpr bool has_cache(const AttentionFacts& f) { return f.kv_cache != KvCache::rows; }
// Whether heads have sinks: lists of rows have always had them, which may be null.
TESSERA_HD constexpr bool has_sink(const AttentionFacts& f) { return f.sink != Sink::none || has_pools(f); }
// Whether work grows with a tile's place in the sequence.
TESSERA_HD constexpr bool is_uneven(const AttentionFacts& f) {
  return f.mask == Mask::causal && f.window == Window::none && !has_pools(f);
}
// Whether the last block ends with the last valid key, so that block 0 may begin before key 0.
TESSERA_HD constexpr bool ends_with_last_key(const AttentionFacts& f) {
  return f.seqused != UsedLengths::none && f.kv_layout == KvLayout::dense;
}
// Whether keys before some of a query's block may be hidden from it: by a window, since block 0 begins before key 0, or
// since the query is none of the sequence's.
TESSERA_HD constexpr bool hides_first_keys(const AttentionFacts& f) {
  return f.window != Window::none || ends_with_last_key(f) || has_pools(f) || f.seqused == UsedLengths::qk;
}
// Whether k and v have 8 bits, beside descales: threads widen them to the 16 of dtype.
TESSERA_HD constexpr bool widens_keys(const AttentionFacts& f) {
  return dtype_bytes(f.kv_dtype) < dtype_bytes(f.dtype);
}
// Whether q, k and v have 8 bits and are multiplied as they are, beside descales.
TESSERA_HD constexpr bool is_8_bit(const AttentionFacts& f) { return dtype_bytes(f.dtype) == 1; }
TESSERA_HD constexpr bool has_descales(const AttentionFacts& f) { return widens_keys(f) || is_8_bit(f); }
// Of k and v in memory.
TESSERA_HD constexpr DType key_dtype(const AttentionFacts& f) { return widens_keys(f) ? f.kv_dtype : f.dtype; }
// Whether k and v are codes with scales for blocks of columns.
TESSERA_HD constexpr bool has_key_scales(const AttentionFacts& f) { return f.kv_format != KvFormat::plain; }
TESSERA_HD constexpr bool has_key_nibbles(const AttentionFacts& f) { return f.kv_format == KvFormat::nvfp4; }
// Of a key's columns: elements of kv_dtype in memory, of which one byte has two codes of e2m1; bytes; scales, a byte
// each.
TESSERA_HD constexpr int key_elements(const AttentionFacts& f, int columns) {
  return has_key_nibbles(f) ? columns / 2 : columns;
}
TESSERA_HD constexpr int key_row_bytes(const AttentionFacts& f, int columns) {
  return key_elements(f, columns) * dtype_bytes(key_dtype(f));
}
TESSERA_HD constexpr int columns_of_key_scale(const AttentionFacts& f) { return has_key_nibbles(f) ? 16 : 32; }
TESSERA_HD constexpr int key_scale_bytes(const AttentionFacts& f, int columns) {
  return has_key_scales(f) ? columns / columns_of_key_scale(f) : 0;
}
// All of it, for models of time.
TESSERA_HD constexpr double bytes_of_keys(const AttentionFacts& f, double columns) {
  const double codes = columns * dtype_bytes(key_dtype(f)) / (has_key_nibbles(f) ? 2 : 1);
  return has_key_scales(f) ? codes + columns / columns_of_key_scale(f) : codes;
}
// Codes of e2m1 become 1 / 256 of their numbers, which takes one product in place of two: attention/widen_scaled.cuh.
// The factors of scores and of rows of O have the rest.
TESSERA_HD constexpr float widened_unit(const AttentionFacts& f) { return has_key_nibbles(f) ? 256.0f : 1.0f; }
// How k and v come to shared memory, as panels [columns / span][keys][span]: under the Config's swizzle; or without, as
// wide as a line of shared memory where rows allow, for threads to read.
TESSERA_HD constexpr int key_span_bytes(const AttentionFacts& f, Swizzle swizzle, int columns) {
  if (!widens_keys(f)) return swizzle_span_bytes(swizzle);
  int span = 128;
  while (key_row_bytes(f, columns) % span != 0) span /= 2;
  return span;
}
TESSERA_HD constexpr Swizzle key_swizzle(const AttentionFacts& f, Swizzle swizzle) {
  return widens_keys(f) ? Swizzle::none : swizzle;
}
// Columns of a row in shared memory and in products: whole steps of 16. Where that is more than the head has, zeros
// follow, and what is stored ends with the head.
TESSERA_HD constexpr int padded_columns(int head_dim) { return (head_dim + 15) / 16 * 16; }
TESSERA_HD constexpr bool is_padded(const AttentionFacts& f) { return f.head_dim % 16 != 0 || f.head_dim_v % 16 != 0; }
// Whether parts of split keys have a size of their own, so that a sequence's bits depend on nothing else in the batch.
// They begin at multiples of it among their tile's keys.
TESSERA_HD constexpr bool has_split_size(const AttentionFacts& f) { return f.split_size > 0; }
// In blocks of tile_n keys, one at least whatever the numbers are.
TESSERA_HD constexpr int blocks_of_part(const AttentionFacts& f, int tile_n) {
  return f.split_size > tile_n ? f.split_size / tile_n : 1;
}
// Of 8-bit operands on Hopper, where sums are promoted: whether those wait as f16, in half of the room. Those of 128
// rows and 256 columns leave one slot for 64 keys otherwise.
TESSERA_HD constexpr bool keeps_f16_sums(long long tile_m, long long columns) { return tile_m * columns >= 128 * 256; }
// Of a normalised o.
TESSERA_HD constexpr DType o_dtype(const AttentionFacts& f) { return is_8_bit(f) ? f.o_dtype : f.dtype; }
TESSERA_HD constexpr int o_element_bytes(const AttentionFacts& f) {
  return f.output == Output::unnormalized ? 4 : dtype_bytes(o_dtype(f));
}

}  // namespace tessera

// The chain of a row operator: what is read, what is done to a row, and where it goes, part after part. Host and device
// evaluate the same functions. How a chain is spelled: docs/rows.md; what each part computes, to the bit where bits
// are told: reference/rows.h.
#pragma once

#include "tessera/spec/block_scale.h"
#include "tessera/spec/types.h"

namespace tessera {

enum class RowPart {
  end,
  // where rows come from: before all others
  gather,    // row i is row indices[i] of x; a negative index gives a row of zeros
  heads,     // row i is head i % heads of token i / heads: x and rows that are read and written have strides of both
  gate,      // activation(gate) * up of two halves of x, or of its even and odd columns
  mhc_pre,   // sum of pre_i X_i over the streams X_i of a row of x
  mhc_post,  // X'_j = post_j x + sum of comb_ij X_i, which are stored; the row is the sum of pre'_j X'_j
  join,      // columns from `first` on are those of a second tensor
  combine,   // sum of weight_ij times the rows of x that row i names, `block` of them
  compress,  // sum over the `block` tokens of an entry of softmax(score + ape) times x, column by column
  dequant,   // x is values and scales: of a block-scaled format, or e4m3 under fp32 scales of `block` columns
  // what is done to them
  residual,   // + a second tensor; the sum may be written back
  factor,     // * a number for each row
  rmsnorm,    // / root(mean of squares + eps) * weight
  layernorm,  // (v - mean) / root(variance + eps) * weight + bias
  rope,       // pairs of columns turned by position * frequency
  hadamard,   // times the Hadamard matrix of `block`, over its root, block by block
  mhc_mix,    // mHC's 24 coefficients from the product of the streams: sigmoids, and Sinkhorn's iterations
  softcap,    // limit * tanh(v / limit)
  softmax,    // exp(v - largest) / sum
  sigmoid,
  sqrt_softplus,  // root(ln(1 + e^v))
  // where they go: the row as it is at that place of the chain
  store,     // 16 or 32-bit elements
  quantize,  // a block-scaled format
  scaled_8,  // e4m3 with fp32 scales for `block` columns, a row, or the whole tensor
  cache,     // a token of a cache's page, in one of its layouts
};

// How rope's frequencies base^(-2 i / d) are stretched for longer contexts than a model was trained with.
enum class RopeScaling { none, linear, llama3, yarn };

// A rope's magnitude: 1, or 0.1 ln(stretch) + 1 as YaRN has it.
inline constexpr int kOneMagnitude = 1000000, kYarnMagnitude = -1;

// A token in a cache's page. Where its bytes are: tessera/spec/row_cache.h.
enum class RowCache { mla_656, mla_584, mla_384, mla_528, mla_288, indexer_132, indexer_68 };

// mHC's streams of a row, and its coefficients: pre, post, and comb [i][j] row by row.
inline constexpr int kStreams = 4, kMixColumns = 24, kMixPost = 4, kMixComb = 8;

// One part. `first` and `last` are the columns that it works on, counted from 0, both included; last < 0: all from
// `first` on. The other fields are those of the kinds named.
struct RowStep {
  RowPart kind = RowPart::end;
  int first = 0;
  int last = -1;
  // residual: the sum is stored. store, quantize, scaled_8: row i goes to row slots[i]; negative: nowhere. Paged: row i
  // is head i % heads of a token, which goes to place slots[i / heads] of the pages.
  bool is_stored = false;
  bool is_placed = false;
  bool is_paged = false;
  bool is_added = false;  // store of placed rows: they are added to what is there, and rows may share a slot
  // gate
  Activation activation = Activation::silu;
  bool is_interleaved = false;
  bool is_gpt_oss = false;  // gate sigmoid(1.702 gate) (up + 1), whatever `activation` says
  int limit = 0;            // gate at most this, up within +- this; 0: none. softcap: the cap
  // rmsnorm, layernorm
  bool has_weight = true;
  bool adds_one = false;  // the factor is 1 + weight
  // rope
  bool is_inverse = false;
  bool has_table = false;  // of cosines and sines, whatever the fields below say
  bool is_halves = false;  // pairs (i, i + d / 2) in place of (2 i, 2 i + 1)
  int base = 10000;
  RopeScaling scaling = RopeScaling::none;
  int stretch = 1;        // of the context
  int trained = 8192;     // positions of training: llama3, yarn
  int low = 1, high = 4;  // llama3: low and high frequency factor; yarn: beta slow and beta fast
  // What cosine and sine are multiplied with, in millionths; the inverse divides by it.
  int magnitude = kOneMagnitude;
  // mhc_mix, mhc_pre of a product: columns of the streams together, and Sinkhorn's iterations
  int hidden = 16384;
  int iterations = 20;
  // mhc_post: the new streams' product with the next mix's rows of weights is taken, and no row is made. mhc_pre: the
  // mix is made of such a product, and written
  bool has_product = false;
  // hadamard: 64, 128 or 256. scaled_8: columns of a scale, 0: the row, -1: one scale for all, given. combine: rows
  // that are added. compress: tokens of an entry. dequant of e4m3: as scaled_8.
  int block = 128;
  // compress: an entry has the first halves of the rows of the entry before too, and the second halves of its own
  bool overlaps = false;
  // dequant: e4m3 under fp32 scales, whatever `format` says
  bool is_e4m3 = false;
  // store
  bool is_same = false;  // of x's type, whatever `dtype` says
  DType dtype = DType::bf16;
  // quantize
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm form = ScaleForm::plain;
  bool has_global = false;  // nvfp4: a factor of all scales is given
  // scaled_8
  bool is_power = false;         // scales are powers of two
  bool is_column_major = false;  // scales of one block of columns side by side, rows padded to 4
  bool is_packed = false;        // likewise, of four blocks as bytes of a word: ue8m0
  // cache
  RowCache cache = RowCache::mla_656;

  TESSERA_HD friend constexpr bool operator==(const RowStep&, const RowStep&) = default;
};

inline constexpr int kMaxRowSteps = 12;

struct RowChain {
  RowStep steps[kMaxRowSteps]{};

  TESSERA_HD friend constexpr bool operator==(const RowChain&, const RowChain&) = default;
};

TESSERA_HD constexpr int step_count(const RowChain& chain) {
  int count = 0;
  while (count < kMaxRowSteps && chain.steps[count].kind != RowPart::end) ++count;
  return count;
}
TESSERA_HD constexpr bool is_row_sink(RowPart kind) {
  return kind == RowPart::store || kind == RowPart::quantize || kind == RowPart::scaled_8 || kind == RowPart::cache;
}
TESSERA_HD constexpr bool is_row_source(RowPart kind) {
  switch (kind) {
    case RowPart::gate:
    case RowPart::mhc_pre:
    case RowPart::mhc_post:
    case RowPart::join:
    case RowPart::combine:
    case RowPart::compress:
    case RowPart::dequant:
      return true;
    default:
      return false;
  }
}
TESSERA_HD constexpr bool has_part(const RowChain& chain, RowPart kind) {
  for (const RowStep& step : chain.steps)
    if (step.kind == kind) return true;
  return false;
}
TESSERA_HD constexpr bool has_placed_sink(const RowChain& chain) {
  for (const RowStep& step : chain.steps)
    if (step.is_placed && step.kind != RowPart::cache) return true;
  return false;
}
// Whether a rope reads a table.
TESSERA_HD constexpr bool has_rope_table(const RowChain& chain) {
  for (const RowStep& step : chain.steps)
    if (step.has_table) return true;
  return false;
}
// Whether several rows may have one slot: all that slots name is added.
TESSERA_HD constexpr bool shares_slots(const RowChain& chain) {
  for (const RowStep& step : chain.steps)
    if ((step.is_placed && !step.is_added) || step.is_paged || step.kind == RowPart::cache) return false;
  return has_placed_sink(chain);
}
TESSERA_HD constexpr bool has_paged_sink(const RowChain& chain) {
  for (const RowStep& step : chain.steps)
    if (step.is_paged) return true;
  return false;
}
// Whether x has strides of tokens and heads.
TESSERA_HD constexpr bool has_heads(const RowChain& chain) {
  return has_part(chain, RowPart::heads) || has_paged_sink(chain);
}
// Whether a step's rows have them: those of a residual, and those that are stored.
TESSERA_HD constexpr bool has_heads(const RowChain& chain, const RowStep& step) {
  if (step.kind == RowPart::join) return has_heads(chain);
  const bool is_of_rows =
      step.kind == RowPart::residual || (step.kind == RowPart::store && !step.is_placed && !step.is_paged);
  return is_of_rows && has_part(chain, RowPart::heads);
}
// Whether rows have slots: of placed sinks, of pages, or of a cache.
TESSERA_HD constexpr bool has_slots(const RowChain& chain) {
  return has_placed_sink(chain) || has_paged_sink(chain) || has_part(chain, RowPart::cache);
}
// The number of the step that says what x's columns become, or of the first step behind the last.
TESSERA_HD constexpr int source_step(const RowChain& chain) {
  for (int i = 0; i < kMaxRowSteps; ++i)
    if (is_row_source(chain.steps[i].kind)) return i;
  return kMaxRowSteps - 1;
}
TESSERA_HD constexpr RowPart source_of(const RowChain& chain) {
  const RowPart kind = chain.steps[source_step(chain)].kind;
  return is_row_source(kind) ? kind : RowPart::end;
}
// What a store writes, of rows of `x`.
TESSERA_HD constexpr DType stored_type(const RowStep& step, DType x) { return step.is_same ? x : step.dtype; }
// Columns of a step in rows of `columns`.
TESSERA_HD constexpr int last_column(const RowStep& step, int columns) {
  return step.last < 0 ? columns - 1 : step.last;
}
TESSERA_HD constexpr int width(const RowStep& step, int columns) { return last_column(step, columns) - step.first + 1; }

// Columns of x for `columns` of the chain; of its bytes where they are values of a format.
TESSERA_HD constexpr long long source_columns(const RowChain& chain, long long columns) {
  const RowStep& step = chain.steps[source_step(chain)];
  switch (source_of(chain)) {
    case RowPart::gate:
      return 2 * columns;
    case RowPart::mhc_pre:
      return kStreams * columns;
    case RowPart::join:
      return step.first;
    case RowPart::compress:
      return step.overlaps ? 2 * columns : columns;
    case RowPart::dequant:
      return step.is_e4m3 ? columns : columns * value_bits(step.format) / 8;
    default:
      return columns;
  }
}
// Whether the streams of mhc_post go into a product.
TESSERA_HD constexpr bool ends_in_product(const RowChain& chain) {
  return source_of(chain) == RowPart::mhc_post && chain.steps[source_step(chain)].has_product;
}
// Whether the mix of mhc_pre is made of a product.
TESSERA_HD constexpr bool begins_with_product(const RowChain& chain) {
  return source_of(chain) == RowPart::mhc_pre && chain.steps[source_step(chain)].has_product;
}
// Tokens that an entry of compress has: with those of the entry before.
TESSERA_HD constexpr int compressed_tokens(const RowStep& step) { return step.overlaps ? 2 * step.block : step.block; }

// Bytes of the fp32 scales of `rows` rows of scaled_8 with blocks; what is one for another block of columns.
TESSERA_HD constexpr long long scale_rows(const RowStep& step, long long rows) {
  return step.is_column_major || step.is_packed ? round_up(rows, 4) : rows;
}
// Where the byte of a packed scale stands, of rows that are padded to `rows`.
TESSERA_HD constexpr long long packed_scale_at(long long rows, long long row, int block) {
  return (block / 4 * rows + row) * 4 + block % 4;
}

}  // namespace tessera

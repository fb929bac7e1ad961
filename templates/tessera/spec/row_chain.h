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
  gather,  // row i is row indices[i] of x; a negative index gives a row of zeros
  gate,    // activation(gate) * up of two halves of x, or of its even and odd columns
  // what is done to them
  residual,   // + a second tensor; the sum may be written back
  factor,     // * a number for each row
  rmsnorm,    // / root(mean of squares + eps) * weight
  layernorm,  // (v - mean) / root(variance + eps) * weight + bias
  rope,       // pairs of columns turned by position * frequency
  hadamard,   // times the Hadamard matrix of `block`, over its root, block by block
  // where they go: the row as it is at that place of the chain
  store,     // 16 or 32-bit elements
  quantize,  // a block-scaled format
  scaled_8,  // e4m3 with fp32 scales for `block` columns, a row, or the whole tensor
};

// How rope's frequencies base^(-2 i / d) are stretched for longer contexts than a model was trained with.
enum class RopeScaling { none, linear, llama3, yarn };

// One part. `first` and `last` are the columns that it works on, counted from 0, both included; last < 0: all from
// `first` on. The other fields are those of the kinds named.
struct RowStep {
  RowPart kind = RowPart::end;
  int first = 0;
  int last = -1;
  // residual: the sum is stored. store, quantize, scaled_8: row i goes to row slots[i]; negative: nowhere.
  bool is_stored = false;
  bool is_placed = false;
  // gate
  Activation activation = Activation::silu;
  bool is_interleaved = false;
  int limit = 0;  // gate at most this, up within +- this; 0: none
  // rmsnorm, layernorm
  bool has_weight = true;
  bool adds_one = false;  // the factor is 1 + weight
  // rope
  bool is_inverse = false;
  bool is_halves = false;  // pairs (i, i + d / 2) in place of (2 i, 2 i + 1)
  int base = 10000;
  RopeScaling scaling = RopeScaling::none;
  int stretch = 1;        // of the context
  int trained = 8192;     // positions of training: llama3, yarn
  int low = 1, high = 4;  // llama3: low and high frequency factor; yarn: beta slow and beta fast
  // hadamard: 64, 128 or 256. scaled_8: columns of a scale, 0: the row, -1: one scale for all, given.
  int block = 128;
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
  return kind == RowPart::store || kind == RowPart::quantize || kind == RowPart::scaled_8;
}
TESSERA_HD constexpr bool has_part(const RowChain& chain, RowPart kind) {
  for (const RowStep& step : chain.steps)
    if (step.kind == kind) return true;
  return false;
}
TESSERA_HD constexpr bool has_placed_sink(const RowChain& chain) {
  for (const RowStep& step : chain.steps)
    if (step.is_placed) return true;
  return false;
}
// The step that says where x's columns come from, or one of kind `end`.
TESSERA_HD constexpr RowStep gate_of(const RowChain& chain) {
  for (const RowStep& step : chain.steps)
    if (step.kind == RowPart::gate) return step;
  return {};
}
// What a store writes, of rows of `x`.
TESSERA_HD constexpr DType stored_type(const RowStep& step, DType x) { return step.is_same ? x : step.dtype; }
// Columns of x for `columns` of the chain.
TESSERA_HD constexpr long long source_columns(const RowChain& chain, long long columns) {
  return has_part(chain, RowPart::gate) ? 2 * columns : columns;
}

// Columns of a step in rows of `columns`.
TESSERA_HD constexpr int last_column(const RowStep& step, int columns) {
  return step.last < 0 ? columns - 1 : step.last;
}
TESSERA_HD constexpr int width(const RowStep& step, int columns) { return last_column(step, columns) - step.first + 1; }

// Bytes of the fp32 scales of `rows` rows of scaled_8 with blocks; what is one for another block of columns.
TESSERA_HD constexpr long long scale_rows(const RowStep& step, long long rows) {
  return step.is_column_major ? round_up(rows, 4) : rows;
}

}  // namespace tessera

// Quantisation to a block-scaled format: what a Config is, which ones are legal, and how threads divide the tensor.
// What is computed, to the bit: reference/quantize.h. The formats and where scales lie: tessera/spec/block_scale.h.
//
// x is [l, rows, k] of f32, f16 or bf16, dense; k is a multiple of the block. A thread quantises 16 neighbours along k:
// a block of nvfp4, or half a block of the others, whose amax two lanes share.
// A thread has visits() such groups.
//
// Plain scales: threads count through the tensor's groups of 16, which is all there is to it. Tile form: a warp has
// four blocks along k of 8 rows (nvfp4) or 4 (mx) that lie 32 rows apart, so that its scales fill whole 16-byte pieces
// of one tile; the warps of a CTA have tiles side by side along k. Padding bytes of a tile are written as 0.
//
// Entry parameters, in this order:
//   const void* x; void* values, scales
//   float* global_scale             given: read; amax: written, the tensor's g
//   const unsigned* workspace       amax: bits of the largest magnitude
//   long long groups                plain form only: l * rows * k / 16
//   int rows, k                     tile form only
// Launch: plain {ceil(l * rows * k / 16 / threads / visits), 1, 1}; tile {ceil(k tiles / warps / visits) *
// row_units(), ceil(rows / 128), l}, so that CTAs that run at once share rows; block {threads, 1, 1}. With
// GlobalScale::amax a step before finds the largest magnitude: const void* x, unsigned* workspace (zero before), long
// long groups; grid {min(4 * num_sms, ceil(bytes / threads / 128)), 1, 1}; amax_smem_bytes() of shared memory.
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera::quantize {

inline constexpr int kGroup = 16;  // elements of a thread

struct Config {
  DType dtype = DType::bf16;
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm scale_form = ScaleForm::plain;
  ScaleRounding scale_rounding = ScaleRounding::up;
  GlobalScale global_scale = GlobalScale::none;
  Conversion conversion = Conversion::software;
  int threads = 256;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxThreads = 1024;
inline constexpr int kAmaxUnits = 8;  // loads of 16 bytes that a thread of the step before has under way

// What the step before has of each warp: its largest magnitude.
TESSERA_HD constexpr int amax_smem_bytes(const Config& c) { return c.threads / 32 * 4; }

// Groups of a thread: two where what is the same for both costs something, a place in tiles or a global scale.
TESSERA_HD constexpr int visits(const Config& c) {
  const bool is_simple = c.scale_form == ScaleForm::plain && c.global_scale == GlobalScale::none;
  return c.dtype == DType::f32 || is_simple ? 1 : 2;
}

// Whether two codes of e2m1 are made at a time, in the halves of registers: quantize/round.cuh and quotient.cuh.
TESSERA_HD constexpr bool rounds_pairs(const Config& c) {
  return c.dtype != DType::f32 && c.conversion == Conversion::software && value_type(c.format) == ValueType::e2m1;
}

// CTAs of an SM, for __launch_bounds__. Without this number the assembler keeps registers few and moves loads down to
// where they are used, one after the other. 40 registers a thread, 48 for the quotients of pairs, or 64 where sixteen
// are divided as they are.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  const int threads = c.global_scale == GlobalScale::none ? 1536 : rounds_pairs(c) ? 1280 : 1024;
  return c.threads >= threads ? 1 : threads / c.threads;
}

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,          // bytes of an element; 4
  global_scale_without_nvfp4,  // the format's block; 16
  rounding_without_power,      // the format's block; 32
  threads_not_multiple_of_32,  // threads; 32
  threads_out_of_range,        // threads; 1,024
};

TESSERA_HD constexpr bool is_source_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (!is_source_type(c.dtype)) return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.global_scale != GlobalScale::none && c.format != BlockFormat::nvfp4)
    return {Rule::global_scale_without_nvfp4, block_elements(c.format), 16};
  if (c.scale_rounding != ScaleRounding::up && c.format == BlockFormat::nvfp4)
    return {Rule::rounding_without_power, block_elements(c.format), 32};
  if (c.threads < 32 || c.threads > kMaxThreads) return {Rule::threads_out_of_range, c.threads, kMaxThreads};
  if (c.threads % 32 != 0) return {Rule::threads_not_multiple_of_32, c.threads, 32};
  return {};
}

}  // namespace tessera::quantize

// The Problems of block-scaled operators; included by generator/problem.h, which says what facts, pins and hints are.
// What each computes: docs/operators.md.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/block_scale.h"
#include "spec/types.h"

namespace tessera {

/// x to values and scales of a block-scaled format.
struct Quantize {
  Arch arch{};
  DType dtype = DType::bf16;  ///< of x: f32, f16 or bf16
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm scale_form = ScaleForm::plain;
  ScaleRounding scale_rounding = ScaleRounding::up;  ///< ue8m0 scales only
  GlobalScale global_scale = GlobalScale::none;      ///< nvfp4 only
  std::optional<int> threads{};                      ///< of a CTA
  Hint l = kUnknownHint, rows = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const Quantize&, const Quantize&) = default;
};

/// The inverse: values and scales to y.
struct Dequantize {
  Arch arch{};
  DType dtype = DType::bf16;  ///< of y: f32, f16 or bf16
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm scale_form = ScaleForm::plain;
  GlobalScale global_scale = GlobalScale::none;  ///< none or given
  std::optional<int> threads{};                  ///< of a CTA
  Hint l = kUnknownHint, rows = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const Dequantize&, const Dequantize&) = default;
};

/// Scales from one form to the other.
struct ConvertScales {
  Arch arch{};
  ScaleForm to = ScaleForm::tile;
  Hint l = kUnknownHint, rows = kUnknownHint, blocks = kUnknownHint;
  friend bool operator==(const ConvertScales&, const ConvertScales&) = default;
};

/// c = alpha a b for a block-scaled matrix and vector.
struct Gemv {
  Arch arch{};
  DType dtype = DType::f16;  ///< of c: f32, f16 or bf16
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm scale_form = ScaleForm::plain;
  std::optional<int> warp_rows{};  ///< rows of a warp
  std::optional<int> k_warps{};    ///< warps that share a row
  Hint l = kUnknownHint, m = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const Gemv&, const Gemv&) = default;
};

}  // namespace tessera

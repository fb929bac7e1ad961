// The Problems of block-scaled operators; what facts, pins and hints are: tessera/any_problem.h. What each computes:
// docs/operators.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/types.h"

namespace tessera {

/// x to values and scales of a block-scaled format.
struct Quantize {
  static constexpr std::string_view kOperator = "quantize";

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
  static constexpr std::string_view kOperator = "dequantize";

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
  static constexpr std::string_view kOperator = "convert_scales";

  Arch arch{};
  ScaleForm to = ScaleForm::tile;
  Hint l = kUnknownHint, rows = kUnknownHint, blocks = kUnknownHint;
  friend bool operator==(const ConvertScales&, const ConvertScales&) = default;
};

/// c = alpha a b for a block-scaled matrix and vector: both nvfp4, or each mxfp4 or mxfp8.
struct Gemv {
  static constexpr std::string_view kOperator = "gemv";

  Arch arch{};
  DType dtype = DType::f16;                 ///< of c: f32, f16 or bf16
  BlockFormat format = BlockFormat::nvfp4;  ///< of a
  std::optional<BlockFormat> b_format{};    ///< of b, where it is not a's
  ScaleForm scale_form = ScaleForm::plain;
  std::optional<int> warp_rows{};  ///< rows of a warp
  std::optional<int> k_warps{};    ///< warps that share a row
  Hint l = kUnknownHint, m = kUnknownHint, k = kUnknownHint;
  friend bool operator==(const Gemv&, const Gemv&) = default;
};

template <>
const OperatorType& operator_type<Quantize>() noexcept;
template <>
const OperatorType& operator_type<Dequantize>() noexcept;
template <>
const OperatorType& operator_type<ConvertScales>() noexcept;
template <>
const OperatorType& operator_type<Gemv>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> quantize_fields();
std::span<const Selector> dequantize_fields();
std::span<const Selector> convert_scales_fields();
std::span<const Selector> gemv_fields();

}  // namespace tessera

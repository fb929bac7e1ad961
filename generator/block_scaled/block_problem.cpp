#include "tessera/block_problem.h"

#include "generator/block_scaled/convert_scales_operator.h"
#include "generator/block_scaled/dequantize_operator.h"
#include "generator/block_scaled/quantize_operator.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/products/gemv_operator.h"

namespace tessera {

namespace {

constexpr std::string_view kFormatHelp = "block-scaled format; mxfp6 and mxfp8 with their type: mxfp6_e3m2";

std::vector<std::string_view> reals() { return {"f32", "f16", "bf16"}; }

/// Those of gemv: not mxfp6.
std::vector<std::string_view> formats_of_whole_bytes() { return {"nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"}; }

}  // namespace

std::span<const Selector> quantize_fields() {
  static const std::vector<Selector> table = {
      field<&Quantize::arch>("arch", "arch", kArchHelp),
      offer(field<&Quantize::dtype>("dtype", "dtype", "type of x"), reals()),
      field<&Quantize::format>("format", "format", kFormatHelp),
      field<&Quantize::scale_form>("scale-form", "scale_form", "where scales lie"),
      field<&Quantize::scale_rounding>("scale-rounding", "scale_rounding",
                                       "how ue8m0 scales are taken; floor is the OCP rule"),
      field<&Quantize::global_scale>("global-scale", "global_scale", "nvfp4's fp32 factor of all scales"),
      field<&Quantize::threads>("threads", "threads", "threads of a CTA"),
      field<&Quantize::l>("l", "l", "expected number of matrices"),
      field<&Quantize::rows>("rows", "rows", "expected number of rows"),
      field<&Quantize::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

std::span<const Selector> dequantize_fields() {
  static const std::vector<Selector> table = {
      field<&Dequantize::arch>("arch", "arch", kArchHelp),
      offer(field<&Dequantize::dtype>("dtype", "dtype", "type of y"), reals()),
      field<&Dequantize::format>("format", "format", kFormatHelp),
      field<&Dequantize::scale_form>("scale-form", "scale_form", "where scales lie"),
      offer(field<&Dequantize::global_scale>("global-scale", "global_scale", "nvfp4's fp32 factor of all scales"),
            {"none", "given"}),
      field<&Dequantize::threads>("threads", "threads", "threads of a CTA"),
      field<&Dequantize::l>("l", "l", "expected number of matrices"),
      field<&Dequantize::rows>("rows", "rows", "expected number of rows"),
      field<&Dequantize::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

std::span<const Selector> convert_scales_fields() {
  static const std::vector<Selector> table = {
      field<&ConvertScales::arch>("arch", "arch", kArchHelp),
      field<&ConvertScales::to>("to", "to", "the form that is written"),
      field<&ConvertScales::l>("l", "l", "expected number of matrices"),
      field<&ConvertScales::rows>("rows", "rows", "expected number of rows"),
      field<&ConvertScales::blocks>("blocks", "blocks", "expected scales of a row"),
  };
  return table;
}

std::span<const Selector> gemv_fields() {
  static const std::vector<Selector> table = {
      field<&Gemv::arch>("arch", "arch", kArchHelp),
      offer(field<&Gemv::dtype>("dtype", "dtype", "type of c"), reals()),
      offer(field<&Gemv::format>("format", "format", "block-scaled format of a"), formats_of_whole_bytes()),
      offer(field<&Gemv::b_format>("b-format", "b_format",
                                   "block-scaled format of b, where it is not a's: mxfp4 and mxfp8 go together"),
            formats_of_whole_bytes()),
      field<&Gemv::scale_form>("scale-form", "scale_form", "where scales lie"),
      field<&Gemv::warp_rows>("warp-rows", "warp_rows", "rows of a warp: 1, 2 or 4"),
      field<&Gemv::k_warps>("k-warps", "k_warps", "warps that share a row: 1, 2, 4 or 8"),
      field<&Gemv::l>("l", "l", "expected number of matrices"),
      field<&Gemv::m>("m", "m", "expected number of rows"),
      field<&Gemv::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

namespace {

constexpr FamilyRow kQuantizeFamilies[] = {family_row<QuantizeOperator>("rows", kAllTargets)};
constexpr FamilyRow kDequantizeFamilies[] = {family_row<DequantizeOperator>("rows", kAllTargets)};
constexpr FamilyRow kConvertScalesFamilies[] = {family_row<ConvertScalesOperator>("rows", kAllTargets)};
constexpr FamilyRow kGemvFamilies[] = {family_row<GemvOperator>("rows", kAllTargets)};
constexpr OperatorType kQuantize = make_operator_type<Quantize>(quantize_fields, kQuantizeFamilies);
constexpr OperatorType kDequantize = make_operator_type<Dequantize>(dequantize_fields, kDequantizeFamilies);
constexpr OperatorType kConvertScales =
    make_operator_type<ConvertScales>(convert_scales_fields, kConvertScalesFamilies);
constexpr OperatorType kGemv = make_operator_type<Gemv>(gemv_fields, kGemvFamilies);

}  // namespace

template <>
const OperatorType& operator_type<Quantize>() noexcept {
  return kQuantize;
}
template <>
const OperatorType& operator_type<Dequantize>() noexcept {
  return kDequantize;
}
template <>
const OperatorType& operator_type<ConvertScales>() noexcept {
  return kConvertScales;
}
template <>
const OperatorType& operator_type<Gemv>() noexcept {
  return kGemv;
}

}  // namespace tessera

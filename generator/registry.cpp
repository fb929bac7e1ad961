// The one list of operators and of the families that each has: a row for each pair. A problem is planned by the first
// row that has its target.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "generator/attention/fmha_operator.h"
#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/block_scaled/convert_scales_operator.h"
#include "generator/block_scaled/dequantize_operator.h"
#include "generator/block_scaled/quantize_operator.h"
#include "generator/copy2d/copy2d_operator.h"
#include "generator/family.h"
#include "generator/products/gemm_operator.h"
#include "generator/products/gemm_tcgen05_operator.h"
#include "generator/products/gemv_operator.h"

namespace tessera {

namespace {

constexpr std::string_view kHopper = "sm_90a", kDataCentre = "sm_100 and sm_103 with suffix a or f",
                           kEveryTarget = "sm_90a, and for sm_100, sm_103, sm_120 and sm_121 with suffix a or f";

bool has_wgmma(Arch target) noexcept { return has_family(target, MmaFamily::wgmma); }
bool has_tcgen05(Arch target) noexcept { return has_family(target, MmaFamily::tcgen05); }
bool is_in_table(Arch target) noexcept { return !loads_on(target).empty(); }

constexpr FamilyRow kCopy2dFamilies[] = {family_row<Copy2dOperator>("tma", kHopper, has_wgmma)};
constexpr FamilyRow kFmhaFamilies[] = {family_row<FmhaOperator>("wgmma", kHopper, has_wgmma),
                                       family_row<FmhaTcgen05Operator>("tcgen05", kDataCentre, has_tcgen05)};
constexpr FamilyRow kGemmFamilies[] = {family_row<GemmOperator>("wgmma", kHopper, has_wgmma),
                                       family_row<GemmTcgen05Operator>("tcgen05", kDataCentre, has_tcgen05)};
constexpr FamilyRow kQuantizeFamilies[] = {family_row<QuantizeOperator>("rows", kEveryTarget, is_in_table)};
constexpr FamilyRow kDequantizeFamilies[] = {family_row<DequantizeOperator>("rows", kEveryTarget, is_in_table)};
constexpr FamilyRow kConvertScalesFamilies[] = {family_row<ConvertScalesOperator>("rows", kEveryTarget, is_in_table)};
constexpr FamilyRow kGemvFamilies[] = {family_row<GemvOperator>("rows", kEveryTarget, is_in_table)};

constexpr OperatorType kCopy2d = make_operator_type<Copy2d>(copy2d_fields, kCopy2dFamilies);
constexpr OperatorType kFmha = make_operator_type<Fmha>(fmha_fields, kFmhaFamilies);
constexpr OperatorType kGemm = make_operator_type<Gemm>(gemm_fields, kGemmFamilies);
constexpr OperatorType kQuantize = make_operator_type<Quantize>(quantize_fields, kQuantizeFamilies);
constexpr OperatorType kDequantize = make_operator_type<Dequantize>(dequantize_fields, kDequantizeFamilies);
constexpr OperatorType kConvertScales =
    make_operator_type<ConvertScales>(convert_scales_fields, kConvertScalesFamilies);
constexpr OperatorType kGemv = make_operator_type<Gemv>(gemv_fields, kGemvFamilies);

constexpr const OperatorType* kTypes[] = {&kCopy2d, &kFmha, &kGemm, &kQuantize, &kDequantize, &kConvertScales, &kGemv};

}  // namespace

template <>
const OperatorType& operator_type<Copy2d>() noexcept {
  return kCopy2d;
}
template <>
const OperatorType& operator_type<Fmha>() noexcept {
  return kFmha;
}
template <>
const OperatorType& operator_type<Gemm>() noexcept {
  return kGemm;
}
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

std::span<const OperatorType* const> operator_types() noexcept { return kTypes; }

const FamilyRow& family_of(const Problem& problem) {
  const Arch target = arch_of(problem);
  std::vector<std::string_view> targets;
  for (const FamilyRow& family : problem.type().families) {
    if (family.has_target(target)) return family;
    targets.push_back(family.targets);
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("{} has no kernel for arch {}: there is one for {}", operator_name(problem),
                          target.to_string(), fmt::join(targets, ", and for ")));
}

}  // namespace tessera

#include "tessera/gemm_problem.h"

#include <fmt/format.h>

#include "generator/facts.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/products/gemm_mma_operator.h"
#include "generator/products/gemm_operator.h"
#include "generator/products/gemm_tcgen05_operator.h"
#include "generator/products/gemm_weights_operator.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

// Element types that are operands of a product too: they share their words.
std::vector<std::string_view> product_types() {
  std::vector<std::string_view> types;
  DType dtype{};
  for (const Word<OperandType>& type : kOperandTypeWords)
    if (from_word(type.text, dtype)) types.push_back(type.text);
  return types;
}

// The type of a product's operand: an element type or a block-scaled format, two members of the Problem behind one
// field. b's may be "auto".
template <auto DTypeMember, auto FormatMember>
struct OperandField {
  static constexpr bool kIsPin = Field<DTypeMember>::kIsPin;

  static void set(Problem& problem, const Selector& selector, std::string_view text) {
    auto dtype = problem.as<Gemm>().*DTypeMember;
    auto format = problem.as<Gemm>().*FormatMember;
    DType element{};
    BlockFormat block{};
    if (from_word(text, element)) {
      dtype = element;
      format.reset();
    } else if (from_word(text, block)) {
      format = block;
      if constexpr (kIsPin) dtype.reset();
    } else if (kIsPin && text == kAutoText) {
      if constexpr (kIsPin) dtype.reset();
      format.reset();
    } else {
      refuse_word(problem, selector, text);
    }
    Gemm& facts = problem.edit<Gemm>();
    facts.*DTypeMember = dtype;
    facts.*FormatMember = format;
  }

  static std::string text(const Problem& problem) {
    const auto& format = problem.as<Gemm>().*FormatMember;
    return format ? std::string(to_word(*format)) : Field<DTypeMember>::text(problem);
  }

  static std::size_t hash(const void* facts) noexcept {
    return 31 * Field<DTypeMember>::hash(facts) + Field<FormatMember>::hash(facts);
  }
};

/// b's may be integers of four bits too.
struct WeightsField {
  using Other = OperandField<&Gemm::b_dtype, &Gemm::b_format>;

  static void set(Problem& problem, const Selector& selector, std::string_view text) {
    const bool is_int4 = text == to_word(OperandType::int4);
    Other::set(problem, selector, is_int4 ? kAutoText : text);
    problem.edit<Gemm>().b_int4 = is_int4;
  }
  static std::string text(const Problem& problem) {
    return problem.as<Gemm>().b_int4 ? std::string(to_word(OperandType::int4)) : Other::text(problem);
  }
  static std::size_t hash(const void* facts) noexcept {
    return Other::hash(facts) ^ (static_cast<const Gemm*>(facts)->b_int4 ? 0x9E3779B9U : 0U);
  }
};

Selector with_weights(Selector selector) {
  selector.words.push_back(to_word(OperandType::int4));
  selector.set = WeightsField::set;
  selector.text = WeightsField::text;
  selector.hash = WeightsField::hash;
  return selector;
}

/// d is no mxfp6: no epilogue makes it.
Selector without_six_bits(Selector selector) {
  std::erase_if(selector.words, [](std::string_view word) {
    BlockFormat format{};
    return from_word(word, format) && is_mxfp6(format);
  });
  return selector;
}

/// 0 is a value too.
Selector with_zero(Selector selector) {
  selector.min = 0;
  return selector;
}

/// A CTA has not all rows of a square.
Selector without_squares(Selector selector) {
  std::erase(selector.words, to_word(ScaleBlock::square));
  return selector;
}

/// words: of element types; every block-scaled format is offered beside them.
template <auto DTypeMember, auto FormatMember>
Selector operand_field(std::string_view flag, std::string_view key, std::string_view help,
                       const std::vector<std::string_view>& words) {
  Selector selector = field<DTypeMember>(flag, key, help);
  selector.words = words;
  for (const Word<BlockFormat>& word : kBlockFormatWords) selector.words.push_back(word.text);
  selector.set = OperandField<DTypeMember, FormatMember>::set;
  selector.text = OperandField<DTypeMember, FormatMember>::text;
  selector.hash = OperandField<DTypeMember, FormatMember>::hash;
  return selector;
}

}  // namespace

std::span<const Selector> gemm_fields() {
  static const std::vector<Selector> table = {
      field<&Gemm::arch>("arch", "arch", kArchHelp),
      operand_field<&Gemm::dtype, &Gemm::format>("dtype", "dtype",
                                                 "type of a and b: bf16, f16, e4m3, e5m2; with tcgen05 tf32 and "
                                                 "block-scaled formats, on sm_100a and by mma.sync s8 and u8",
                                                 product_types()),
      with_weights(operand_field<&Gemm::b_dtype, &Gemm::b_format>(
          "b-dtype", "b_dtype",
          "type of b where it is not a's: e4m3 beside e5m2, s8 beside u8, mxfp8, mxfp6 and mxfp4 beside each other; on "
          "sm_90a weights of 4 bits: mxfp4, nvfp4, int4",
          product_types())),
      field<&Gemm::b_group>("b-group", "b_group", "int4 weights along k that share a scale: 32, 64 or 128"),
      field<&Gemm::zero_points>("zero-points", "zero_points", "whether int4 weights have zero points"),
      field<&Gemm::scale_form>("scale-form", "scale_form",
                               "where scales of block-scaled operands lie; 4-bit weights: packed (tile), or rows"),
      without_six_bits(operand_field<&Gemm::d_dtype, &Gemm::d_format>(
          "d-dtype", "d_dtype",
          "type of d: f32, bf16, f16; on sm_90a e4m3 and e5m2, with tcgen05 block-scaled formats, of integers s32 too",
          {"bf16", "f16", "f32", "e4m3", "e5m2", "s32"})),
      field<&Gemm::a_layout>("a-layout", "a_layout",
                             "contiguous dimension of a: k, or mn (16-bit types, on Blackwell 8-bit ones too)"),
      field<&Gemm::b_layout>("b-layout", "b_layout",
                             "contiguous dimension of b: k, or mn (16-bit types, on Blackwell 8-bit ones too)"),
      field<&Gemm::accumulation>("accumulation", "accumulation",
                                 "sums of 8-bit types: 13 fraction bits, or promoted to fp32 every 128 of k (auto)"),
      field<&Gemm::c>("c", "c", "whether beta * c is added"),
      field<&Gemm::bias>("bias", "bias", "whether a bias for each column is added; of groups: a row for each (group)"),
      field<&Gemm::activation>("activation", "activation", "what is applied to the sums"),
      field<&Gemm::grouping>("grouping", "grouping",
                             "l groups of rows, each with a b of its own: one behind the other, or masked"),
      field<&Gemm::gather>("gather", "gather", "rows of groups have the rows of a that a list names (not tcgen05)"),
      field<&Gemm::a_scale_block>("a-scale-block", "a_scale_block",
                                  "elements of an 8-bit a that share an fp32 factor: 128 of a row, or of 128 rows"),
      field<&Gemm::b_scale_block>("b-scale-block", "b_scale_block", "the same of b"),
      without_squares(
          field<&Gemm::d_scale_block>("d-scale-block", "d_scale_block",
                                      "e4m3 d with an fp32 factor for 128 of a row, as the next product's a is read")),
      field<&Gemm::d_scale_values>("d-scale-values", "d_scale_values",
                                   "d's factors: any fp32 numbers, or powers of two alone"),
      field<&Gemm::gate>("gate", "gate",
                         "activation(gate) * up of two products (a by b, a by b2), or of b's columns in turn"),
      field<&Gemm::gate_activation>("gate-activation", "gate_activation",
                                    "of a gate; gpt_oss: gate * sigmoid(1.702 gate) * (up + 1)"),
      with_zero(field<&Gemm::gate_limit>("gate-limit", "gate_limit",
                                         "the gate is at most this, up between minus this and this; 0: any")),
      field<&Gemm::interleave>("interleave", "interleave", "columns of the gate that stand together (auto: 1)"),
      field<&Gemm::tile_m>("tile-m", "tile_m", "rows of d that one CTA works on at a time"),
      field<&Gemm::tile_n>("tile-n", "tile_n", "columns of d that one CTA works on at a time"),
      field<&Gemm::stages>("stages", "stages", "slots of the ring of a and b"),
      field<&Gemm::accumulators>("accumulators", "accumulators", "tiles in Tensor Memory: 1 or 2 (tcgen05)"),
      field<&Gemm::cluster_m>("cluster-m", "cluster_m", "CTAs along m that share b"),
      field<&Gemm::cluster_n>("cluster-n", "cluster_n", "CTAs along n that share a"),
      field<&Gemm::split_k>("split-k", "split_k", "CTAs that share the k of a tile"),
      field<&Gemm::kernel_schedule>("kernel-schedule", "kernel_schedule",
                                    "whether warpgroups share tiles or take turns"),
      field<&Gemm::swap_ab>("swap-ab", "swap_ab",
                            "whether b gives wgmma or mma.sync its rows, and a its columns: d transposed"),
      field<&Gemm::raster>("raster", "raster", "tiles of clusters along m walked before the next along n"),
      field<&Gemm::mma_kind>(
          "mma-kind", "mma_kind",
          "matrix instruction, as plan shows it (wgmma.f16, tcgen05.f16, mma.f16, mma.mxf4nvf4, ..)"),
      field<&Gemm::m>("m", "m", "expected rows of d"),
      field<&Gemm::n>("n", "n", "expected columns of d"),
      field<&Gemm::k>("k", "k", "expected products of a sum"),
      field<&Gemm::l>("l", "l", "expected number of matrices"),
  };
  return table;
}

namespace {

constexpr FamilyRow kGemmFamilies[] = {
    family_row<GemmWeightsOperator>("weights", kWgmmaTargets), family_row<GemmMmaOperator>("mma", kMmaTargets),
    family_row<GemmOperator>("wgmma", kWgmmaTargets), family_row<GemmTcgen05Operator>("tcgen05", kTcgen05Targets)};
constexpr OperatorType kGemm = make_operator_type<Gemm>(gemm_fields, kGemmFamilies);

OperandType type_of_a(const Gemm& problem) {
  return problem.format ? operand_type(*problem.format) : operand_type(problem.dtype);
}

OperandType type_of_b(const Gemm& problem) {
  if (problem.b_int4) return OperandType::int4;
  if (problem.b_format) return operand_type(*problem.b_format);
  return problem.b_dtype ? operand_type(*problem.b_dtype) : type_of_a(problem);
}

}  // namespace

ProductFacts product_facts(const Gemm& problem) {
  if (problem.d_format && is_mxfp6(*problem.d_format))
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: d of {}: no epilogue makes values of six bits: take d of bf16 and quantize it, or d "
                            "of mxfp8_e4m3 or mxfp4",
                            to_word(*problem.d_format)));
  return {.a_type = type_of_a(problem),
          .b_type = type_of_b(problem),
          .a_layout = problem.a_layout,
          .b_layout = problem.b_layout,
          .d_dtype = problem.d_format ? DType::bf16 : problem.d_dtype,
          .accumulation = product_accumulation(problem),
          .c = problem.c,
          .bias = problem.bias,
          .activation = problem.activation,
          .gate = problem.gate,
          .interleave = problem.interleave.value_or(1),
          .gate_activation = problem.gate_activation,
          .gate_limit = problem.gate_limit,
          .d_format = problem.d_format ? output_format(*problem.d_format) : OutputFormat::plain,
          .grouping = problem.grouping,
          .a_scale_block = problem.a_scale_block,
          .b_scale_block = problem.b_scale_block,
          .gather = problem.gather,
          .d_scale_block = problem.d_scale_block,
          .d_scale_values = problem.d_scale_values};
}

template <>
const OperatorType& operator_type<Gemm>() noexcept {
  return kGemm;
}

}  // namespace tessera

// What may stand in the parentheses of a chain's parts.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/row_chain_words.h"
#include "tessera/spec/row_chain.h"

namespace tessera::row_chain {

/// A word inside of parentheses: for which kinds, how it is read, and how it is written (empty: it is not set).
struct Option {
  std::string_view word;
  bool (*is_for)(const RowStep&);
  bool has_number;
  void (*set)(RowStep&, int);
  std::optional<int> (*get)(const RowStep&);
  bool is_magnitude = false;  ///< the number is a decimal one, kept in millionths, or the word yarn
};

template <RowPart... kKinds>
bool is_any(const RowStep& step) {
  return ((step.kind == kKinds) || ...);
}
inline bool is_sink(const RowStep& step) { return is_row_sink(step.kind) && step.kind != RowPart::cache; }
/// Sources that are whole rows.
inline bool has_no_range(const RowStep& step) {
  return is_any<RowPart::join, RowPart::combine, RowPart::compress, RowPart::dequant>(step);
}
/// What must stand in parentheses behind a part's word, where nothing is usual; empty: nothing is missing.
inline std::string_view missing_of(const RowStep& step) {
  if (step.kind == RowPart::join && step.first == 0)
    return "join(COLUMN) says from which column on a row is that of x2";
  if (step.kind == RowPart::combine && step.block == 0) return "combine(ROWS) says how many rows are added";
  if (step.kind == RowPart::compress && step.block == 0) return "compress(TOKENS) says how many tokens an entry has";
  if (step.kind == RowPart::dequant && step.block == kNoBlock)
    return "dequant(FORMAT) says what x is: e4m3, nvfp4, mxfp4, mxfp8_e4m3 or mxfp8_e5m2";
  return {};
}
/// A lone number in parentheses, where a part takes one.
inline int* number_of(RowStep& step) {
  switch (step.kind) {
    case RowPart::scaled_8:
    case RowPart::hadamard:
    case RowPart::combine:
    case RowPart::compress:
      return &step.block;
    case RowPart::softcap:
      return &step.limit;
    case RowPart::join:
      return &step.first;
    default:
      return nullptr;
  }
}
/// Why an option that was given has no effect on its part, even where it says what is usual; empty: it has one.
inline std::string_view idle_reason(const RowStep& step, std::string_view option) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), option) != words.end();
  };
  if (step.kind == RowPart::rope && step.has_table && is_one_of({"base", "trained", "low", "high", "magnitude"}))
    return "the table says how far each position turns";
  if (step.kind == RowPart::rope && step.scaling != RopeScaling::llama3 && step.scaling != RopeScaling::yarn &&
      is_one_of({"trained", "low", "high"}))
    return "it goes with llama3=N or yarn=N";
  if (step.kind == RowPart::dequant && !step.is_e4m3 && is_one_of({"block", "row", "tensor"}))
    return "the format says how many columns a scale has";
  if (step.kind == RowPart::scaled_8 && step.block < 0 && option == "pow2") return "the scale is given";
  if (step.kind == RowPart::mhc_pre && !step.has_product && option == "iterations") return "it goes with product";
  if (is_any<RowPart::rmsnorm, RowPart::layernorm>(step) && !step.has_weight && option == "plus_one")
    return "there is no weight that 1 could be added to";
  return {};
}
inline std::optional<int> when(bool is_set) { return is_set ? std::optional(1) : std::nullopt; }
inline std::optional<int> unless(int value, int usual) { return value == usual ? std::nullopt : std::optional(value); }

template <Activation kActivation>
constexpr Option activation(std::string_view word) {
  return {word, is_any<RowPart::gate>, false, [](RowStep& s, int) { s.activation = kActivation; },
          [](const RowStep& s) { return when(s.activation == kActivation && !s.is_gpt_oss); }};
}
template <RopeScaling kScaling>
constexpr Option scaling(std::string_view word) {
  return {word, is_any<RowPart::rope>, true,
          [](RowStep& s, int value) {
            s.scaling = kScaling;
            s.stretch = value;
            if (kScaling == RopeScaling::yarn && s.low == 1 && s.high == 4) s.high = 32;
          },
          [](const RowStep& s) { return s.scaling == kScaling ? std::optional(s.stretch) : std::nullopt; }};
}

template <BlockFormat kFormat>
constexpr Option read_as(std::string_view word) {
  return {word, is_any<RowPart::dequant>, false,
          [](RowStep& s, int) {
            s.format = kFormat;
            s.is_e4m3 = false;
            s.block = 128;
          },
          [](const RowStep& s) { return when(!s.is_e4m3 && s.format == kFormat); }};
}

/// In the order in which they are written. What sets others' defaults stands before them.
inline constexpr Option kOptions[] = {
    activation<Activation::silu>("silu"),
    activation<Activation::gelu>("gelu"),
    activation<Activation::gelu_tanh>("gelu_tanh"),
    activation<Activation::relu>("relu"),
    {"gpt_oss", is_any<RowPart::gate>, false, [](RowStep& s, int) { s.is_gpt_oss = true; },
     [](const RowStep& s) { return when(s.is_gpt_oss); }},
    {"interleaved", is_any<RowPart::gate>, false, [](RowStep& s, int) { s.is_interleaved = true; },
     [](const RowStep& s) { return when(s.is_interleaved); }},
    {"limit", is_any<RowPart::gate, RowPart::softcap>, true, [](RowStep& s, int value) { s.limit = value; },
     [](const RowStep& s) { return unless(s.limit, s.kind == RowPart::softcap ? 30 : 0); }},
    {"e4m3", is_any<RowPart::dequant>, false,
     [](RowStep& s, int) {
       s.is_e4m3 = true;
       if (s.block == kNoBlock) s.block = 128;
     },
     [](const RowStep& s) { return when(s.is_e4m3); }},
    read_as<BlockFormat::nvfp4>("nvfp4"),
    read_as<BlockFormat::mxfp4>("mxfp4"),
    read_as<BlockFormat::mxfp8_e4m3>("mxfp8_e4m3"),
    read_as<BlockFormat::mxfp8_e5m2>("mxfp8_e5m2"),
    {"mxfp8", is_any<RowPart::dequant>, false,
     [](RowStep& s, int) {
       s.format = BlockFormat::mxfp8_e4m3;
       s.is_e4m3 = false;
       s.block = 128;
     },
     [](const RowStep&) -> std::optional<int> { return std::nullopt; }},
    {"store", is_any<RowPart::residual>, false, [](RowStep& s, int) { s.is_stored = true; },
     [](const RowStep& s) { return when(s.is_stored); }},
    {"no_weight", is_any<RowPart::rmsnorm, RowPart::layernorm, RowPart::combine>, false,
     [](RowStep& s, int) { s.has_weight = false; }, [](const RowStep& s) { return when(!s.has_weight); }},
    {"plus_one", is_any<RowPart::rmsnorm, RowPart::layernorm>, false, [](RowStep& s, int) { s.adds_one = true; },
     [](const RowStep& s) { return when(s.adds_one); }},
    {"inverse", is_any<RowPart::rope>, false, [](RowStep& s, int) { s.is_inverse = true; },
     [](const RowStep& s) { return when(s.is_inverse); }},
    {"table", is_any<RowPart::rope>, false, [](RowStep& s, int) { s.has_table = true; },
     [](const RowStep& s) { return when(s.has_table); }},
    {"halves", is_any<RowPart::rope>, false, [](RowStep& s, int) { s.is_halves = true; },
     [](const RowStep& s) { return when(s.is_halves); }},
    {"base", is_any<RowPart::rope>, true, [](RowStep& s, int value) { s.base = value; },
     [](const RowStep& s) { return unless(s.base, 10000); }},
    scaling<RopeScaling::linear>("linear"),
    scaling<RopeScaling::llama3>("llama3"),
    scaling<RopeScaling::yarn>("yarn"),
    {"trained", is_any<RowPart::rope>, true, [](RowStep& s, int value) { s.trained = value; },
     [](const RowStep& s) { return unless(s.trained, 8192); }},
    {"low", is_any<RowPart::rope>, true, [](RowStep& s, int value) { s.low = value; },
     [](const RowStep& s) { return unless(s.low, 1); }},
    {"high", is_any<RowPart::rope>, true, [](RowStep& s, int value) { s.high = value; },
     [](const RowStep& s) { return unless(s.high, s.scaling == RopeScaling::yarn ? 32 : 4); }},
    {"magnitude", is_any<RowPart::rope>, true, [](RowStep& s, int value) { s.magnitude = value; },
     [](const RowStep& s) { return unless(s.magnitude, kOneMagnitude); }, true},
    {"row", is_any<RowPart::scaled_8, RowPart::dequant>, false, [](RowStep& s, int) { s.block = 0; },
     [](const RowStep& s) { return when(s.block == 0); }},
    {"tensor", is_any<RowPart::scaled_8, RowPart::dequant>, false, [](RowStep& s, int) { s.block = -1; },
     [](const RowStep& s) { return when(s.block == -1); }},
    {"block", is_any<RowPart::scaled_8, RowPart::hadamard, RowPart::dequant>, true,
     [](RowStep& s, int value) { s.block = value; },
     [](const RowStep& s) { return s.block > 0 ? unless(s.block, 128) : std::nullopt; }},
    {"overlap", is_any<RowPart::compress>, false, [](RowStep& s, int) { s.overlaps = true; },
     [](const RowStep& s) { return when(s.overlaps); }},
    {"hidden", is_any<RowPart::mhc_mix>, true, [](RowStep& s, int value) { s.hidden = value; },
     [](const RowStep& s) { return unless(s.hidden, 16384); }},
    {"product", is_any<RowPart::mhc_pre, RowPart::mhc_post>, false,
     [](RowStep& s, int) {
       s.has_product = true;
       s.is_stored = s.kind == RowPart::mhc_post;
     },
     [](const RowStep& s) { return when(s.has_product); }},
    {"iterations", is_any<RowPart::mhc_mix, RowPart::mhc_pre>, true,
     [](RowStep& s, int value) { s.iterations = value; }, [](const RowStep& s) { return unless(s.iterations, 20); }},
    {"pow2", is_any<RowPart::scaled_8>, false, [](RowStep& s, int) { s.is_power = true; },
     [](const RowStep& s) { return when(s.is_power); }},
    {"packed", is_any<RowPart::scaled_8>, false, [](RowStep& s, int) { s.is_packed = s.is_power = true; },
     [](const RowStep& s) { return when(s.is_packed); }},
    {"columns", is_any<RowPart::scaled_8, RowPart::dequant>, false, [](RowStep& s, int) { s.is_column_major = true; },
     [](const RowStep& s) { return when(s.is_column_major); }},
    {"tile", is_any<RowPart::quantize, RowPart::dequant>, false, [](RowStep& s, int) { s.form = ScaleForm::tile; },
     [](const RowStep& s) { return when(s.form == ScaleForm::tile); }},
    {"global", is_any<RowPart::quantize, RowPart::dequant>, false, [](RowStep& s, int) { s.has_global = true; },
     [](const RowStep& s) { return when(s.has_global); }},
    {"scatter", is_sink, false, [](RowStep& s, int) { s.is_placed = true; },
     [](const RowStep& s) { return when(s.is_placed); }},
    {"add", is_any<RowPart::store>, false, [](RowStep& s, int) { s.is_added = true; },
     [](const RowStep& s) { return when(s.is_added); }},
    {"paged", is_any<RowPart::store, RowPart::scaled_8>, false, [](RowStep& s, int) { s.is_paged = true; },
     [](const RowStep& s) { return when(s.is_paged); }},
};

}  // namespace tessera::row_chain

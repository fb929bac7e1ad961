// The words of a chain's parts, and those that stand for parts.
#pragma once

#include <string_view>
#include <vector>

#include "tessera/spec/row_chain.h"

namespace tessera {

/// The block of a dequant of which no format was said.
inline constexpr int kNoBlock = -2;

/// A word of the text and the step that it is, without options.
struct PartWord {
  std::string_view word;
  RowStep step;
};

inline RowStep stored_as(DType dtype) { return {.kind = RowPart::store, .dtype = dtype}; }
inline RowStep scaled_in(BlockFormat format) { return {.kind = RowPart::quantize, .format = format}; }

inline const std::vector<PartWord>& part_words() {
  static const std::vector<PartWord> words = {
      {"gather", {.kind = RowPart::gather}},
      {"heads", {.kind = RowPart::heads}},
      {"gate", {.kind = RowPart::gate}},
      {"residual", {.kind = RowPart::residual}},
      {"factor", {.kind = RowPart::factor}},
      {"rmsnorm", {.kind = RowPart::rmsnorm}},
      {"layernorm", {.kind = RowPart::layernorm}},
      {"rope", {.kind = RowPart::rope}},
      {"mhc_pre", {.kind = RowPart::mhc_pre}},
      {"mhc_post", {.kind = RowPart::mhc_post}},
      {"join", {.kind = RowPart::join}},
      {"combine", {.kind = RowPart::combine, .block = 0}},
      {"compress", {.kind = RowPart::compress, .block = 0}},
      {"dequant", {.kind = RowPart::dequant, .block = kNoBlock}},
      {"hadamard", {.kind = RowPart::hadamard}},
      {"mhc_mix", {.kind = RowPart::mhc_mix}},
      {"softcap", {.kind = RowPart::softcap, .limit = 30}},
      {"softmax", {.kind = RowPart::softmax}},
      {"sigmoid", {.kind = RowPart::sigmoid}},
      {"sqrt_softplus", {.kind = RowPart::sqrt_softplus}},
      {"same", {.kind = RowPart::store, .is_same = true}},
      {"bf16", stored_as(DType::bf16)},
      {"f16", stored_as(DType::f16)},
      {"f32", stored_as(DType::f32)},
      {"nvfp4", scaled_in(BlockFormat::nvfp4)},
      {"mxfp4", scaled_in(BlockFormat::mxfp4)},
      {"mxfp8_e4m3", scaled_in(BlockFormat::mxfp8_e4m3)},
      {"mxfp8_e5m2", scaled_in(BlockFormat::mxfp8_e5m2)},
      {"e4m3", {.kind = RowPart::scaled_8}},
      {"mla_656", {.kind = RowPart::cache, .cache = RowCache::mla_656}},
      {"mla_584", {.kind = RowPart::cache, .cache = RowCache::mla_584}},
      {"mla_384", {.kind = RowPart::cache, .cache = RowCache::mla_384}},
      {"mla_528", {.kind = RowPart::cache, .cache = RowCache::mla_528}},
      {"mla_288", {.kind = RowPart::cache, .cache = RowCache::mla_288}},
      {"indexer_132", {.kind = RowPart::cache, .cache = RowCache::indexer_132}},
      {"indexer_68", {.kind = RowPart::cache, .cache = RowCache::indexer_68}},
  };
  return words;
}

/// Words that stand for parts.
struct Alias {
  std::string_view word, chain;
};
inline constexpr Alias kAliases[] = {{"silu_mul", "gate(silu)"},        {"swiglu", "gate(silu)"},
                                     {"gelu_mul", "gate(gelu)"},        {"gelu_tanh_mul", "gate(gelu_tanh)"},
                                     {"mxfp8", "mxfp8_e4m3"},           {"rotary", "rope"},
                                     {"rms_norm", "rmsnorm"},           {"layer_norm", "layernorm"},
                                     {"inverse_rope", "rope(inverse)"}, {"neox_rope", "rope(halves)"}};

}  // namespace tessera

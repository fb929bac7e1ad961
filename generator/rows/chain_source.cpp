// A chain in generated code: the initialiser of a RowChain.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/rows/rows_operator.h"
#include "generator/words.h"

namespace tessera {

namespace {

std::string_view kind_word(const RowStep& step) {
  switch (step.kind) {
    case RowPart::end:
      return "RowPart::end";
    case RowPart::gather:
      return "RowPart::gather";
    case RowPart::heads:
      return "RowPart::heads";
    case RowPart::gate:
      return "RowPart::gate";
    case RowPart::residual:
      return "RowPart::residual";
    case RowPart::factor:
      return "RowPart::factor";
    case RowPart::rmsnorm:
      return "RowPart::rmsnorm";
    case RowPart::layernorm:
      return "RowPart::layernorm";
    case RowPart::rope:
      return "RowPart::rope";
    case RowPart::hadamard:
      return "RowPart::hadamard";
    case RowPart::mhc_pre:
      return "RowPart::mhc_pre";
    case RowPart::mhc_post:
      return "RowPart::mhc_post";
    case RowPart::join:
      return "RowPart::join";
    case RowPart::combine:
      return "RowPart::combine";
    case RowPart::compress:
      return "RowPart::compress";
    case RowPart::dequant:
      return "RowPart::dequant";
    case RowPart::softcap:
      return "RowPart::softcap";
    case RowPart::softmax:
      return "RowPart::softmax";
    case RowPart::sigmoid:
      return "RowPart::sigmoid";
    case RowPart::sqrt_softplus:
      return "RowPart::sqrt_softplus";
    case RowPart::cache:
      return "RowPart::cache";
    case RowPart::mhc_mix:
      return "RowPart::mhc_mix";
    case RowPart::store:
      return "RowPart::store";
    case RowPart::quantize:
      return "RowPart::quantize";
    case RowPart::scaled_8:
      return "RowPart::scaled_8";
  }
  return "?";
}

std::string_view scaling_word(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::none:
      return "RopeScaling::none";
    case RopeScaling::linear:
      return "RopeScaling::linear";
    case RopeScaling::llama3:
      return "RopeScaling::llama3";
    case RopeScaling::yarn:
      return "RopeScaling::yarn";
  }
  return "?";
}

std::string_view cache_word(RowCache cache) {
  switch (cache) {
    case RowCache::mla_656:
      return "RowCache::mla_656";
    case RowCache::mla_584:
      return "RowCache::mla_584";
    case RowCache::mla_384:
      return "RowCache::mla_384";
    case RowCache::mla_528:
      return "RowCache::mla_528";
    case RowCache::mla_288:
      return "RowCache::mla_288";
    case RowCache::indexer_132:
      return "RowCache::indexer_132";
    case RowCache::indexer_68:
      return "RowCache::indexer_68";
  }
  return "?";
}

/// The fields of a step that are not the default, in the order of the struct.
std::string initialiser_of_step(const RowStep& step) {
  const RowStep usual;
  std::vector<std::string> fields{fmt::format(".kind = {}", kind_word(step))};
  const auto add = [&](std::string_view name, const auto& value, const auto& default_value, std::string text) {
    if (value != default_value) fields.push_back(fmt::format(".{} = {}", name, text));
  };
  const auto flag = [&](std::string_view name, bool value, bool default_value) {
    add(name, value, default_value, value ? "true" : "false");
  };
  const auto number = [&](std::string_view name, int value, int default_value) {
    add(name, value, default_value, std::to_string(value));
  };
  number("first", step.first, usual.first);
  number("last", step.last, usual.last);
  flag("is_stored", step.is_stored, usual.is_stored);
  flag("is_placed", step.is_placed, usual.is_placed);
  flag("is_paged", step.is_paged, usual.is_paged);
  flag("is_added", step.is_added, usual.is_added);
  add("activation", step.activation, usual.activation, std::string(to_enumerator(step.activation)));
  flag("is_interleaved", step.is_interleaved, usual.is_interleaved);
  flag("is_gpt_oss", step.is_gpt_oss, usual.is_gpt_oss);
  number("limit", step.limit, usual.limit);
  flag("has_weight", step.has_weight, usual.has_weight);
  flag("adds_one", step.adds_one, usual.adds_one);
  flag("is_inverse", step.is_inverse, usual.is_inverse);
  flag("has_table", step.has_table, usual.has_table);
  flag("is_halves", step.is_halves, usual.is_halves);
  number("base", step.base, usual.base);
  add("scaling", step.scaling, usual.scaling, std::string(scaling_word(step.scaling)));
  number("stretch", step.stretch, usual.stretch);
  number("trained", step.trained, usual.trained);
  number("low", step.low, usual.low);
  number("high", step.high, usual.high);
  add("magnitude", step.magnitude, usual.magnitude,
      step.magnitude == kYarnMagnitude ? "kYarnMagnitude" : std::to_string(step.magnitude));
  number("hidden", step.hidden, usual.hidden);
  number("iterations", step.iterations, usual.iterations);
  flag("has_product", step.has_product, usual.has_product);
  number("block", step.block, usual.block);
  flag("overlaps", step.overlaps, usual.overlaps);
  flag("is_e4m3", step.is_e4m3, usual.is_e4m3);
  flag("is_same", step.is_same, usual.is_same);
  add("dtype", step.dtype, usual.dtype, std::string(to_enumerator(step.dtype)));
  add("format", step.format, usual.format, std::string(to_enumerator(step.format)));
  add("form", step.form, usual.form, std::string(to_enumerator(step.form)));
  flag("has_global", step.has_global, usual.has_global);
  flag("is_power", step.is_power, usual.is_power);
  flag("is_column_major", step.is_column_major, usual.is_column_major);
  flag("is_packed", step.is_packed, usual.is_packed);
  add("cache", step.cache, usual.cache, std::string(cache_word(step.cache)));
  return fmt::format("{{{}}}", fmt::join(fields, ", "));
}

}  // namespace

std::string to_initialiser(const RowChain& chain) {
  std::vector<std::string> steps;
  for (int i = 0; i < step_count(chain); ++i) steps.push_back(initialiser_of_step(chain.steps[i]));
  return fmt::format("{{{{{}}}}}", fmt::join(steps, ",\n               "));
}

}  // namespace tessera

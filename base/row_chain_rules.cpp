#include "base/row_chain_rules.h"

#include <fmt/format.h>

#include "spec/rows.h"

namespace tessera {

namespace {

bool is_power_of_two(int value) { return value > 0 && (value & (value - 1)) == 0; }

std::string mistake_of(const RowChain& chain, const RowStep& step) {
  switch (step.kind) {
    case RowPart::combine:
      if (step.block < 1 || step.block > rows::kMaxCombined)
        return fmt::format("combine of {} rows: 1 to {}", step.block, rows::kMaxCombined);
      break;
    case RowPart::compress:
      if (!is_power_of_two(step.block) || step.block > rows::kMaxCompressed)
        return fmt::format("compress of {} tokens: a power of two up to {} needed", step.block, rows::kMaxCompressed);
      break;
    case RowPart::dequant:
      if (step.is_e4m3 && step.form == ScaleForm::tile)
        return "dequant of e4m3 with scales in tiles: they are fp32, plain or columns";
      if (!step.is_e4m3 && step.is_column_major)
        return "dequant of block-scaled rows with scales by columns: take plain or tile";
      if (!step.is_e4m3 && step.block != RowStep{}.block)
        return "dequant of block-scaled rows with a block, row or tensor: the format says how many columns a scale has";
      if (step.is_column_major && step.block <= 0)
        return "dequant of e4m3 with one scale a row or for all, by columns: these have no order";
      break;
    case RowPart::gather:
      if (has_part(chain, RowPart::combine) || has_part(chain, RowPart::compress))
        return "gather before combine or compress: these name their rows of x themselves";
      break;
    case RowPart::mhc_post:
      if (step.has_product && step_count(chain) > 1)
        return "mhc_post(product) beside other parts: it writes the streams and their product, and makes no row";
      break;
    case RowPart::mhc_pre:
      if (!step.has_product && step.iterations != RowStep{}.iterations)
        return "mhc_pre with iterations, of a mix that is given: they go with product";
      break;
    case RowPart::gate:
      if (step.is_gpt_oss && step.activation != RowStep{}.activation)
        return "gate with gpt_oss and another activation: gpt_oss is one";
      break;
    case RowPart::rope: {
      RowStep plain = step, usual{.kind = RowPart::rope, .first = step.first, .last = step.last};
      plain.has_table = plain.is_halves = plain.is_inverse = false;
      if (step.has_table && plain != usual)
        return "rope of a table with a base, a scaling or a magnitude: the table says how far each position turns";
      if ((step.scaling == RopeScaling::none || step.scaling == RopeScaling::linear) &&
          (step.trained != usual.trained || step.low != usual.low || step.high != usual.high))
        return "rope with trained, low or high, which go with llama3=N or yarn=N";
      if (step.base < 2) return fmt::format("rope with base {}: 2 at least", step.base);
      if (step.stretch < 1) return fmt::format("rope stretched {} times: once at least", step.stretch);
      if (step.trained < 1) return fmt::format("rope trained with {} positions: 1 at least", step.trained);
      if (step.scaling != RopeScaling::none && step.high <= step.low)
        return fmt::format("rope with low {} and high {}: high must be above", step.low, step.high);
      if (step.magnitude == kYarnMagnitude && step.scaling != RopeScaling::yarn)
        return "rope with magnitude=yarn and no yarn=N: it is 0.1 ln(N) + 1";
      if (step.magnitude != kYarnMagnitude && step.magnitude < 1)
        return fmt::format("rope with a magnitude of {} millionths: more than 0 needed", step.magnitude);
      break;
    }
    case RowPart::rmsnorm:
    case RowPart::layernorm:
      if (step.adds_one && !step.has_weight) return "a norm with plus_one and no weight that 1 could be added to";
      break;
    case RowPart::scaled_8:
      if (step.block > 0 && (step.block < rows::kVector || !is_power_of_two(step.block)))
        return fmt::format("e4m3 with a scale for {} columns: a power of two from {} on", step.block, rows::kVector);
      if (step.is_packed && step.block <= 0) return "e4m3 with packed scales of rows: they are those of blocks";
      if (step.is_packed && step.is_column_major) return "e4m3 with packed and columns: packed scales lie by columns";
      if (step.block < 0 && step.is_power) return "e4m3 with one scale that is given, and pow2: it is used as it is";
      if (step.is_packed && !step.is_power) return "e4m3 with packed scales that are no powers of two: add pow2";
      break;
    case RowPart::quantize:
      if (step.is_placed && step.form == ScaleForm::tile)
        return "scattered rows with scales in tiles: a tile belongs to 128 rows; take plain scales";
      break;
    case RowPart::store:
      if (step.is_added && !step.is_placed)
        return "rows that are added, without scatter: they are added where slots say, bf16(scatter,add)";
      break;
    default:
      break;
  }
  if (has_part(chain, RowPart::heads) && !rows::goes_with_heads(step))
    return "beside heads, where a row is a head of a token, stand no scatter and of sources gate and join alone";
  if (has_paged_sink(chain) && !rows::goes_with_pages(step))
    return "beside paged sinks, where a row is a head of a token and slots are those of tokens, stand no gather, "
           "scatter, "
           "cache or source other than join";
  if (step.is_paged && step.kind == RowPart::scaled_8 && step.block >= 0)
    return "e4m3 in pages with scales of blocks or rows: it goes with one scale, e4m3(tensor,paged)";
  return {};
}

}  // namespace

std::optional<ChainMistake> chain_mistake(const RowChain& chain) {
  for (int i = 0; i < step_count(chain); ++i)
    if (std::string what = mistake_of(chain, chain.steps[i]); !what.empty()) return ChainMistake{i, std::move(what)};
  return {};
}

}  // namespace tessera

// Names of the buffers that the parts of a chain take.
#include <fmt/format.h>

#include <map>

#include "tessera/row_chain.h"

namespace tessera {

namespace {

/// Where rows are heads of tokens they have a stride of tokens too.
std::string step_stride(const RowChain& chain, const RowStep& step, const std::string& name) {
  return name + (has_heads(chain, step) || step.is_paged ? "_stride_head" : "_stride_row");
}

}  // namespace

std::vector<RowStepNames> row_step_names(const RowChain& chain) {
  std::map<std::string, int> seen;
  const auto numbered = [&](const std::string& name) {
    const int number = ++seen[name];
    return number == 1 ? name : fmt::format("{}{}", name, number);
  };
  std::vector<RowStepNames> list;
  for (int i = 0; i < step_count(chain); ++i) {
    const RowStep& step = chain.steps[i];
    RowStepNames names;
    switch (step.kind) {
      case RowPart::residual:
        names.in = numbered("residual");
        names.in_stride = step_stride(chain, step, names.in);
        if (step.is_stored) {
          names.out = names.in + "_out";
          names.out_stride = step_stride(chain, step, names.out);
        }
        break;
      case RowPart::mhc_pre:
        if (step.has_product) {
          names.in = "product";
          names.in2 = numbered("sum_squares");
          names.in3 = numbered("mix_base");
          names.in4 = numbered("mix_scale");
          names.out = "mix_out";
          break;
        }
        names.in = numbered("mix");
        break;
      case RowPart::rope:
        if (step.has_table) names.in = numbered("rope_table");
        break;
      case RowPart::join:
        names.in = "x2";
        names.in_stride = step_stride(chain, step, names.in);
        break;
      case RowPart::combine:
        names.in = "indices";
        if (step.has_weight) names.in2 = "weights";
        break;
      case RowPart::compress:
        names.in = "scores";
        names.in_stride = "scores_stride_row";
        names.in2 = "ape";
        names.in3 = "tokens";
        break;
      case RowPart::dequant:
        names.in = step.is_e4m3 && step.block < 0 ? "x_scale" : "x_scales";
        if (step.is_column_major) names.in_stride = "x_scales_stride_block";
        if (step.has_global) names.in2 = "x_global_scale";
        break;
      case RowPart::mhc_post:
        names.in = numbered("streams");
        names.in_stride = names.in + "_stride_row";
        names.in2 = numbered("mix");
        names.in3 = step.has_product ? "mix_weight" : "next_" + names.in2;
        if (step.has_product) {
          names.out2 = "product";
          names.out3 = "sum_squares";
        }
        names.out = names.in + "_out";
        names.out_stride = names.out + "_stride_row";
        break;
      case RowPart::mhc_mix:
        names.in = numbered("sum_squares");
        names.in2 = numbered("mix_base");
        names.in3 = numbered("mix_scale");
        break;
      case RowPart::factor:
        names.in = numbered("factor");
        break;
      case RowPart::rmsnorm:
      case RowPart::layernorm:
        if (step.has_weight) names.in = numbered("weight");
        if (step.kind == RowPart::layernorm) names.in2 = numbered("bias");
        break;
      case RowPart::store:
        names.out = numbered("y");
        names.out_stride = step_stride(chain, step, names.out);
        break;
      case RowPart::cache:
        names.out = numbered("cache");
        names.out_stride = names.out + "_stride_page";
        break;
      case RowPart::quantize:
        names.out = numbered("y");
        names.out2 = names.out + "_scales";
        if (step.has_global) names.in = names.out + "_global_scale";
        break;
      case RowPart::scaled_8:
        names.out = numbered("y");
        (step.block < 0 ? names.in : names.out2) = names.out + (step.block < 0 ? "_scale" : "_scales");
        if (step.is_paged) names.out_stride = names.out + "_stride_head";
        break;
      default:
        break;
    }
    list.push_back(std::move(names));
  }
  return list;
}

}  // namespace tessera

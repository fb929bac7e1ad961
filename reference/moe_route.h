// A router of experts in float64, and how wrong a right one may be.
//
// With u = 2^-24, of a logit x:
//   score        sigmoid, root of softplus: 16 u of itself times max(1, |x|); softmax: 2^-20 + (experts + 3 (largest -
//   x))
//                u of itself
//   weight       with `renormalize` the sum of the chosen scores errs as they do, and 20 u for its additions and the
//                quotient; u for the factor
//   choice       without a bias the logits', exact. With one the score's error and u of the sum: an expert may stand
//                before another if it may be as large; of two with the same logit and bias the smaller is first
//   groups       the sum of two choices errs as both and by u; a group is dropped if topk_groups others may be larger,
//   and
//                kept if it may be among as many. Experts of groups that must be dropped are wrong, those of groups
//                that must be kept have to be looked at
// What was chosen and is within that is taken as it was found: weights and lists are compared with what follows from
// it, lists exactly. A NaN comes behind every number.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/route_types.h"

namespace tessera::reference {

struct MoeRouteRun {
  DType dtype = DType::f32;
  std::int64_t m = 0, experts = 256, top_k = 8;
  std::int64_t expert_groups = 1, topk_groups = 1;
  Scoring scoring = Scoring::sigmoid;
  Bias bias = Bias::none;
  Renormalize renormalize = Renormalize::on;
  Grouping grouping = Grouping::contiguous;
  std::int64_t alignment = 1;
  std::int64_t rows = 0;  ///< of the lists; masked: of each group
  double scale = 1;
};

/// logits, and bias where there is one. Some logits of a token are equal, so that ties are decided.
std::map<std::string, Tensor> moe_route_inputs(const MoeRouteRun& run, Fill kind, std::uint64_t seed);

/// Every element of every output is compared; the main output is topk_weights. Names the mistake under which results
/// become right, if it knows one.
Comparison check_moe_route(const MoeRouteRun& run, const std::map<std::string, Tensor>& in,
                           const std::map<std::string, Tensor>& out, int jobs = 0);

}  // namespace tessera::reference

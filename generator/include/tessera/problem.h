// The Problems of all operators, and the one list of them.
#pragma once

#include "tessera/any_problem.h"
#include "tessera/attention_quantize_problem.h"
#include "tessera/block_problem.h"
#include "tessera/copy2d_problem.h"
#include "tessera/fmha_problem.h"
#include "tessera/gemm_problem.h"
#include "tessera/indexer_problem.h"
#include "tessera/merge_problem.h"
#include "tessera/mhc_product_problem.h"
#include "tessera/moe_route_problem.h"
#include "tessera/pack_weights_problem.h"
#include "tessera/quantize_blocks_problem.h"
#include "tessera/rows_problem.h"
#include "tessera/topk_problem.h"

namespace tessera {

template <class... Facts>
struct OperatorList {};

/// In the order of documentation. What the library knows of one stands where operator_type() of it is defined.
using Operators = OperatorList<Copy2d, Fmha, Merge, AttentionQuantize, Gemm, Quantize, Dequantize, ConvertScales, Gemv,
                               PackWeights, QuantizeBlocks, Rows, MhcProduct, MoeRoute, Topk, Indexer>;

}  // namespace tessera

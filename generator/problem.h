// The Problems of all operators, and the one list of them.
#pragma once

#include "generator/any_problem.h"
#include "generator/attention/fmha_problem.h"
#include "generator/block_scaled/block_problem.h"
#include "generator/copy2d/copy2d_problem.h"
#include "generator/products/gemm_problem.h"

namespace tessera {

template <class... Facts>
struct OperatorList {};

/// In the order of documentation. What the library knows of one stands where operator_type() of it is defined.
using Operators = OperatorList<Copy2d, Fmha, Gemm, Quantize, Dequantize, ConvertScales, Gemv>;

}  // namespace tessera

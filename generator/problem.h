// The Problems of all operators.
#pragma once

#include "generator/any_problem.h"
#include "generator/attention/fmha_problem.h"
#include "generator/block_scaled/block_problem.h"
#include "generator/copy2d/copy2d_problem.h"
#include "generator/products/gemm_problem.h"

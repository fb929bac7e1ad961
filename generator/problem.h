// The Problems of all operators.
#pragma once

#include "generator/any_problem.h"
#include "generator/block_problem.h"
#include "generator/copy2d_problem.h"
#include "generator/fmha_problem.h"
#include "generator/gemm_problem.h"

// How long a product takes on data-centre Blackwell, by a model: what a Config is scored with. Rates are published ones
// (a B200: 148 multiprocessors, 2.25 PFLOP/s of dense bf16, 8 TB/s); no device was asked, so the model orders
// candidates and promises nothing.
//
// An instruction of N columns takes N / 2 cycles for 32 bytes of K, whatever the type, or as long as its operands take
// to leave shared memory at 128 bytes a cycle: a pair reads half of the columns' operand. A step takes that, or as long
// as copies of its scales to Tensor Memory take, or as the L2 takes to deliver it, whose rate all multiprocessors
// share. With two accumulators a tile's store runs beside the next tile's products.
#pragma once

#include "spec/gemm_tcgen05.h"
#include "tessera/problem.h"

namespace tessera::gemm_tcgen05 {

struct GemmTcgen05Cost {
  double cycles = 0;
  long long rounds = 0;     // tiles that a CTA takes one after the other
  double tensor_share = 0;  // of the tensor cores' rate
  bool is_memory_bound = false;
};

GemmTcgen05Cost gemm_tcgen05_cost(const gemm_tcgen05::Config& config, const Gemm& problem);
double gemm_tcgen05_cost_us(const GemmTcgen05Cost& cost);

}  // namespace tessera::gemm_tcgen05

// The entry's parameters as one value. The maps stay references: TMA reads a map at its address in parameter space.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::fmha_tcgen05 {

struct Params {
  const ptx::TensorMap& q;
  const ptx::TensorMap& k;
  const ptx::TensorMap& v;
  const ptx::TensorMap& o;
  float* lse;      // may be null
  float* row_max;  // un-normalised output only
  float* row_sum;  // likewise
  int batch;
  int heads_q;
  int heads_kv;
  int seqlen_q;
  int seqlen_k;
  float softmax_scale;
};

}  // namespace tessera::fmha_tcgen05

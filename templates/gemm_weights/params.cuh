// What the entry was launched with, passed on by reference: tensor maps must stay where they are, in parameter space.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::gemm_weights {

struct Params {
  const ptx::TensorMap& a;
  const ptx::TensorMap& d;
  const void* b;  // packed weights
  void* d_pointer;
  const void* c;         // facts.c only
  const void* bias;      // facts.bias only
  const float* scale_b;  // may be null
  int m;
  int n;
  int k;
  int l;
  long long ldd;
  long long d_stride_l;
  long long ldc;
  long long c_stride_l;
  float alpha;
  float beta;
};

}  // namespace tessera::gemm_weights

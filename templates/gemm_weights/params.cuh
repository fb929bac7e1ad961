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
  const float* scale_a;  // 8-bit A only; may be null
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
  const int* groups = nullptr;      // facts.grouping only: offsets [l + 1], or rows [l]
  const void* a_pointer = nullptr;  // rows of A that warps copy, from here on
  const int* indices = nullptr;     // facts.gather only: [m], or of masked groups [l, m]
  long long lda = 0;
  int a_rows = 0;              // facts.gather only
  long long a_stride_l = 0;    // without it
  const float* sfa = nullptr;  // facts.a_scale_block only, from here on: [l, m, k / 128]
  long long sfa_stride_m = 0;
  long long sfa_stride_k = 0;
  long long sfa_stride_l = 0;
};

// For a kernel that has no map of one of them.
[[maybe_unused]] static __device__ const ptx::TensorMap kNoMap{};  // nvcc refuses an inline one

}  // namespace tessera::gemm_weights

// What the entry of a product with everything beside it was launched with, passed on by reference: tensor maps must
// stay where they are, in parameter space.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::gemm {

struct ProductParams {
  const ptx::TensorMap& a;
  const ptx::TensorMap& b;
  const ptx::TensorMap& b2;   // dual only
  const ptx::TensorMap& sfa;  // block-scaled types only
  const ptx::TensorMap& sfb;
  const ptx::TensorMap& sfb2;  // dual too
  const ptx::TensorMap& d;     // where D has one
  void* d_pointer;
  const int* groups;      // facts.grouping only: offsets [l + 1], or rows [l]
  void* sfd;              // D block-scaled only
  const float* scale_d;   // may be null
  const void* c;          // facts.c only
  const void* bias;       // facts.bias only
  const float* scale_a;   // may be null
  const float* scale_b;   // may be null
  const float* scale_b2;  // may be null
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
  const void* sfa_pointer = nullptr;  // plain scales, sfa with a gather too
  const void* sfb_pointer = nullptr;
  const void* sfb2_pointer = nullptr;
  const void* a_pointer = nullptr;  // facts.gather only, from here on
  const int* indices = nullptr;
  long long lda = 0;
  int a_rows = 0;
};

}  // namespace tessera::gemm

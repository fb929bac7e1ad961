// What the entry was launched with, passed on by reference: tensor maps must stay where they are, in parameter space.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::gemm {

// fp32 factors of an operand's blocks: [l, rows or blocks of rows, blocks of k], whichever is contiguous.
struct Scales {
  const float* data = nullptr;
  long long stride_row = 0;
  long long stride_k = 0;
  long long stride_l = 0;
};

// fp32 factors of D: [l, m, blocks of 128 columns].
struct FactorsOfD {
  float* data = nullptr;
  long long stride_row = 0;
  long long stride_block = 0;
  long long stride_l = 0;
};

struct Params {
  const ptx::TensorMap& a;
  const ptx::TensorMap& b;
  const ptx::TensorMap& d;
  void* d_pointer;
  const void* c;         // facts.c only
  const void* bias;      // facts.bias only
  const float* scale_a;  // may be null
  const float* scale_b;  // may be null
  Scales sfa;            // facts.a_scale_block and b_scale_block only
  Scales sfb;
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
  const void* a_pointer = nullptr;  // facts.gather only, from here on
  const int* indices = nullptr;     // [m], or of masked groups [l, m]
  long long lda = 0;
  int a_rows = 0;
  const ptx::TensorMap* b2 = nullptr;  // dual gate only, from here on
  const float* scale_b2 = nullptr;     // may be null
  FactorsOfD sfd{};                    // facts.d_scale_block only
};

}  // namespace tessera::gemm

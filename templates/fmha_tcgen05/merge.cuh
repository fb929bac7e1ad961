// Merges the parts of split keys: a warp for each row of the output.
//
// Part i of a row is O_i = sum exp(s - m_i) v, un-normalised, with the reference m_i and the sum l_i. With m the
// largest reference, O = sum O_i exp(m_i - m) and l = sum l_i exp(m_i - m). A part that saw no key has m_i = -inf and
// weighs nothing; a row of such parts alone gives 0, and its logarithm -inf.
#pragma once

#include "fmha_tcgen05/params.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

struct MergeParams {
  const float* partial_o;
  const float* partial_sums;
  void* o;
  float* lse;                // may be null
  float* row_max = nullptr;  // un-normalised output only
  float* row_sum = nullptr;  // likewise
  int batch;
  int heads_q;
  int seqlen_q;
  int num_splits;
  long long o_stride_head;
  long long o_stride_seqlen;
  long long o_stride_batch;
};

template <Config C>
__device__ __forceinline__ void merge(const MergeParams& p) {
  constexpr float kLn2 = 0.6931471805599453f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const long long rows = static_cast<long long>(p.batch) * p.heads_q * p.seqlen_q;
  const long long row = static_cast<long long>(blockIdx.x) * kMergeRows + threadIdx.x / 32;
  if (row >= rows) return;
  const auto sums_of = [&](int split, unsigned& reference, unsigned& sum) {
    ptx::ld_global_v2(p.partial_sums + 2 * (split * rows + row), reference, sum);
  };
  unsigned reference, part_sum;
  float max = ptx::minus_infinity();
#pragma unroll 1
  for (int split = 0; split < p.num_splits; ++split) {
    sums_of(split, reference, part_sum);
    max = fmaxf(max, __uint_as_float(reference));
  }
  const float subtrahend = max == ptx::minus_infinity() ? 0.0f : max;
  float sum = 0;
#pragma unroll 1
  for (int split = 0; split < p.num_splits; ++split) {
    sums_of(split, reference, part_sum);
    sum += __uint_as_float(part_sum) * ptx::ex2(__uint_as_float(reference) - subtrahend);
  }
  const float factor = C.output == Output::unnormalized ? 1.0f : sum == 0.0f ? 0.0f : 1.0f / sum;

  const unsigned query_head = static_cast<unsigned>(row / p.seqlen_q);
  const long long query = row - static_cast<long long>(query_head) * p.seqlen_q;
  const unsigned batch = query_head / static_cast<unsigned>(p.heads_q);
  const unsigned head = query_head - batch * static_cast<unsigned>(p.heads_q);
  const long long first = batch * p.o_stride_batch + query * p.o_stride_seqlen + head * p.o_stride_head;
#pragma unroll 1
  for (int column = 4 * lane; column < C.head_dim_v; column += 128) {
    float o[4] = {0, 0, 0, 0};
#pragma unroll 1
    for (int split = 0; split < p.num_splits; ++split) {
      sums_of(split, reference, part_sum);
      const float weight = ptx::ex2(__uint_as_float(reference) - subtrahend) * factor;
      const ptx::Vector4 part = ptx::ld_global_v4(p.partial_o + (split * rows + row) * C.head_dim_v + column);
      o[0] = fmaf(__uint_as_float(part.x), weight, o[0]);
      o[1] = fmaf(__uint_as_float(part.y), weight, o[1]);
      o[2] = fmaf(__uint_as_float(part.z), weight, o[2]);
      o[3] = fmaf(__uint_as_float(part.w), weight, o[3]);
    }
    char* const out = static_cast<char*>(p.o) + (first + column) * o_element_bytes(C);
    if constexpr (C.output == Output::unnormalized) {
      ptx::st_global_v4(out,
                        {__float_as_uint(o[0]), __float_as_uint(o[1]), __float_as_uint(o[2]), __float_as_uint(o[3])});
    } else {
      ptx::st_global_v2(out, ptx::cvt_pack<C.dtype>(o[0], o[1]), ptx::cvt_pack<C.dtype>(o[2], o[3]));
    }
  }
  if (lane != 0) return;
  if (p.lse != nullptr) p.lse[row] = (subtrahend + ptx::lg2(sum)) * kLn2;
  if constexpr (C.output == Output::unnormalized) {
    p.row_max[row] = max * kLn2;
    p.row_sum[row] = sum;
  }
}

}  // namespace tessera::fmha_tcgen05

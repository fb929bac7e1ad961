// mHC between two layers: the new streams' product with the rows of weights of the next mix, where the streams are
// made; and the mix of such a product, where the streams are read again.
//
// The product is mma.sync's, of 16 rows by 8 by 16 columns. Since columns may be taken in any order as long as streams
// and weights have the same, lane 4 g + t has 8 neighbours of each 32 columns, from 8 t on, of rows g and g + 8: step s
// of two multiplies its elements 4 s to 4 s + 3. Weights are the sum of two bf16 numbers each, which is fp32 to 2^-17;
// streams are bf16 as they are stored.
#pragma once

#include "ptx/mma.cuh"
#include "ptx/shared_words.cuh"
#include "rows/steps.cuh"

namespace tessera::rows {

inline constexpr int kBlocksOfPart = kPartColumns / 32, kSteps = 2;

// x to bf16, rounded, and what that leaves over, as pairs.
__device__ __forceinline__ void split_pair(unsigned low, unsigned high, unsigned& first, unsigned& second) {
  const float a = __uint_as_float(low), b = __uint_as_float(high);
  first = ptx::cvt_pack<DType::bf16>(a, b);
  second = ptx::cvt_pack<DType::bf16>(a - __uint_as_float(first << 16), b - __uint_as_float(first & 0xffff0000u));
}

// The weights of a part's columns to shared memory, [block][stream][step][tile of 8 rows][lane] of 16 bytes.
template <Config C>
__device__ __forceinline__ void split_weights(const void* weights, int first, unsigned to) {
  constexpr int kQuads = kPartColumns / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kMixColumns * kStreams * kQuads; i += threads_of_cta(C)) {
    const int quad = i % kQuads, stream = i / kQuads % kStreams, row = i / (kQuads * kStreams);
    const int column = first + 4 * quad;
    ptx::Vector4 v = {0, 0, 0, 0};
    if (column < C.columns)
      v = ptx::ld_global_v4_written(static_cast<const float*>(weights) +
                                    static_cast<long long>(row * kStreams + stream) * C.columns + column);
    ptx::Words4 words;
    split_pair(v.x, v.y, words.x, words.z);
    split_pair(v.z, v.w, words.y, words.w);
    const int piece = ((quad / 8 * kStreams + stream) * kSteps + quad % 2) * kMixTiles + row / 8;
    const int lane = row % 8 * 4 + quad / 2 % 4;
    ptx::st_shared_v4(to + static_cast<unsigned>((piece * kWarp + lane) * 16), words);
  }
}

// What a warp's rows take of their mix, to shared memory: post, and comb of the four streams that go in, for each
// stream that comes out. 40 registers a lane they would be otherwise. All lanes of the warp.
__device__ __forceinline__ void load_remix(const Params& p, const StepParams& step, long long first, int lane,
                                           float* remix) {
  __syncwarp();  // those before have been read
  for (int i = lane; i < kRowsOfWarp * kStreams * (kStreams + 1); i += kWarp) {
    const int row = i / (kStreams * (kStreams + 1)), to = i / (kStreams + 1) % kStreams, which = i % (kStreams + 1);
    const int column = which == 0 ? kMixPost + to : kMixComb + (which - 1) * kStreams + to;
    remix[row * kRemixOfRow + to * kRemixOfStream + which] =
        first + row < p.rows
            ? ptx::ld_global_f32_written(static_cast<const float*>(step.in2) + (first + row) * kMixColumns + column)
            : 0.0f;
  }
  __syncwarp();
}

// x is what a layer made of the streams. 16 rows of a warp, 32 of a part's columns: the new streams are stored, and
// multiplied as they are stored.
template <Config C>
__device__ __forceinline__ void multiply_block(const Params& p, const long long (&rows)[2], int column,
                                               const float* remix, unsigned weights, float (&sums)[kMixTiles][4],
                                               float (&squares)[2]) {
  const StepParams& step = p.steps[source_step(C.chain)];
  Raw<C.dtype> made[2], streams[2][kStreams];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool is_in = rows[h] < p.rows && column < C.columns;
    made[h] = is_in ? load8<C.dtype>(p.x, rows[h] * p.x_stride + column) : zeros8<C.dtype>();
    const char* const from = static_cast<const char*>(step.in) + 2 * (rows[h] * step.in_stride + column);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) streams[h][s] = is_in ? load8<C.dtype>(from, s * C.columns) : zeros8<C.dtype>();
  }
#pragma unroll
  for (int to = 0; to < kStreams; ++to) {
    unsigned words[2][kVector / 2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const of_row = remix + 8 * h * kRemixOfRow + to * kRemixOfStream;
      const float4 some = *reinterpret_cast<const float4*>(of_row);
      const float post = some.x, comb[kStreams] = {some.y, some.z, some.w, of_row[4]};
#pragma unroll
      for (int pair = 0; pair < kVector / 2; ++pair) {
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[i] = post * element<C.dtype>(made[h], 2 * pair + i);
#pragma unroll
          for (int s = 0; s < kStreams; ++s) v[i] = fmaf(comb[s], element<C.dtype>(streams[h][s], 2 * pair + i), v[i]);
        }
        words[h][pair] = ptx::cvt_pack<C.dtype>(v[0], v[1]);
        const float low = __uint_as_float(words[h][pair] << 16), high = __uint_as_float(words[h][pair] & 0xffff0000u);
        squares[h] = fmaf(high, high, fmaf(low, low, squares[h]));
      }
      if (rows[h] < p.rows && column < C.columns)
        ptx::st_global_v4(
            static_cast<char*>(step.out) + 2 * (rows[h] * step.out_stride + column) + 2LL * to * C.columns,
            {words[h][0], words[h][1], words[h][2], words[h][3]});
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const unsigned a[4] = {words[0][2 * s], words[1][2 * s], words[0][2 * s + 1], words[1][2 * s + 1]};
#pragma unroll
      for (int tile = 0; tile < kMixTiles; ++tile) {
        const ptx::Words4 b =
            ptx::ld_shared_v4(weights + static_cast<unsigned>(((to * kSteps + s) * kMixTiles + tile) * kWarp * 16));
        ptx::mma_m16n8k16<C.dtype>(sums[tile], a, b.x, b.y);
        ptx::mma_m16n8k16<C.dtype>(sums[tile], a, b.z, b.w);
      }
    }
  }
}

template <Config C>
__device__ __forceinline__ void multiply_streams(const Params& p) {
  extern __shared__ __align__(16) float row_sums[];
  constexpr int kWarps = threads_of_cta(C) / kWarp;
  const StepParams& step = p.steps[source_step(C.chain)];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / 4, member = lane % 4;
  const int part = static_cast<int>(blockIdx.x), first = part * kPartColumns;
  const unsigned weights = ptx::shared_address(row_sums);
  float* const remix = row_sums + kSplitBytes / 4 + static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp * kRemixOfRow;
  split_weights<C>(step.in3, first, weights);
  __syncthreads();
  const long long turn = static_cast<long long>(gridDim.y) * C.rows_of_cta;
  for (long long tile = static_cast<long long>(blockIdx.y) * C.rows_of_cta +
                        static_cast<int>(threadIdx.x) / kWarp % kWarps * kRowsOfWarp;
       tile < p.rows; tile += turn) {
    const long long rows[2] = {tile + group, tile + group + 8};
    load_remix(p, step, tile, lane, remix);
    float sums[kMixTiles][4] = {}, squares[2] = {};
#pragma unroll 1
    for (int block = 0; block < kBlocksOfPart; ++block)
      multiply_block<C>(p, rows, first + 32 * block + kVector * member, remix + group * kRemixOfRow,
                        weights + static_cast<unsigned>((block * kStreams * kSteps * kMixTiles * kWarp + lane) * 16),
                        sums, squares);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      squares[h] += __shfl_xor_sync(kAllLanes, squares[h], 1);
      squares[h] += __shfl_xor_sync(kAllLanes, squares[h], 2);
      if (rows[h] >= p.rows) continue;
      const long long row = static_cast<long long>(part) * p.rows + rows[h];
      float* const to = static_cast<float*>(step.out2) + row * kMixColumns + 2 * member;
#pragma unroll
      for (int n = 0; n < kMixTiles; ++n) {
        to[8 * n] = sums[n][2 * h];
        to[8 * n + 1] = sums[n][2 * h + 1];
      }
      if (member == 0) static_cast<float*>(step.out3)[row] = squares[h];
    }
  }
}

// Where a row's 24 sums and its sum of squares are, over all parts.
template <Config C>
__device__ __forceinline__ float* place_of_totals(const Place& place) {
  extern __shared__ __align__(16) float row_sums[];
  return row_sums + remix_at(C) / 4 + place.of_cta * slices_of_totals(C) * kTotalsFloats;
}

// Each of a row's first warps adds parts in turn, then their sums are added, in the order of the warps. All threads of
// the CTA.
template <Config C>
__device__ __forceinline__ const float* totals_of_row(const Params& p, const Place& place) {
  const StepParams& step = p.steps[source_step(C.chain)];
  float* const totals = place_of_totals<C>(place);
  constexpr int kThreads = C.threads_of_row / C.ctas_of_row, kSlices = slices_of_totals(C);
  constexpr int kTogether = kThreads < kWarp ? kThreads : kWarp;
  const int thread = place.thread % kThreads, slice = thread / kTogether;
  for (int i = thread % kTogether; i < kTotals && slice < kSlices; i += kTogether) {
    const bool is_product = i < kMixColumns;
    const float* const from = is_product ? static_cast<const float*>(step.in) + place.row * kMixColumns + i
                                         : static_cast<const float*>(step.in2) + place.row;
    const long long apart = static_cast<long long>(p.rows) * (is_product ? kMixColumns : 1);
    float sum = 0;
#pragma unroll 8
    for (int part = slice; part < step.parts; part += kSlices)
      sum += place.is_live ? ptx::ld_global_f32_written(from + part * apart) : 0.0f;
    totals[slice * kTotalsFloats + i] = sum;
  }
  if constexpr (kSlices > 1) {
    __syncthreads();
    if (thread < kTotals) {
#pragma unroll
      for (int i = 1; i < kSlices; ++i) totals[thread] += totals[i * kTotalsFloats + thread];
    }
  }
  __syncthreads();
  return totals;
}

// Before sigmoids and Sinkhorn's iterations.
template <Config C>
__device__ __forceinline__ float coefficient_of_totals(const Params& p, const float* totals, int column) {
  const StepParams& step = p.steps[source_step(C.chain)];
  const float inverse = rsqrtf(fmaf(totals[kMixColumns], 1.0f / static_cast<float>(kStreams * C.columns), p.eps));
  const int group = column < kMixPost ? 0 : column < kMixComb ? 1 : 2;
  return fmaf(totals[column] * inverse, ptx::ld_global_f32_written(static_cast<const float*>(step.in4) + group),
              ptx::ld_global_f32_written(static_cast<const float*>(step.in3) + column));
}

template <Config C>
__device__ __forceinline__ void pre_of_totals(const Params& p, const float* totals, float (&pre)[kStreams]) {
#pragma unroll
  for (int i = 0; i < kStreams; ++i) pre[i] = sigmoid(coefficient_of_totals<C>(p, totals, i)) + p.eps;
}

// What the next mhc_post takes: last, since Sinkhorn's iterations are long and nothing here waits for them.
template <Config C>
__device__ __forceinline__ void store_mix(const Params& p, const Place& place) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  if (place.thread / kWarp != 0) return;
  const float* const totals = place_of_totals<C>(place);
  const bool has_coefficients = place.thread < kMixColumns / kVector;
  float m[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    m[i] = has_coefficients ? coefficient_of_totals<C>(p, totals, place.thread * kVector + i) : 0.0f;
  coefficients_of<S.iterations>(place.thread, p.eps, m);
  if (!has_coefficients || !place.is_live) return;
  store8<DType::f32>(p.steps[source_step(C.chain)].out, place.row * kMixColumns + place.thread * kVector, m);
}

}  // namespace tessera::rows

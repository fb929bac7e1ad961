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

// Eight elements of a part, whose 256 bytes go to the L2 together: other lanes and blocks follow.
template <DType kDType>
__device__ __forceinline__ Raw<kDType> load8_of_part(const void* from, long long element) {
  const ptx::Vector4 v = ptx::ld_global_v4_written_256(static_cast<const char*>(from) + 2 * element);
  return {{v.x, v.y, v.z, v.w}};
}

// Of 16 rows of a warp, 32 of a part's columns: x, what a layer made of the streams, and the streams.
template <Config C>
struct BlockOfRows {
  Raw<C.dtype> made[2], streams[2][kStreams];
};

template <Config C>
__device__ __forceinline__ void load_block(const Params& p, const long long (&rows)[2], int column,
                                           BlockOfRows<C>& block) {
  const StepParams& step = p.steps[source_step(C.chain)];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool is_in = rows[h] < p.rows && column < C.columns;
    block.made[h] = is_in ? load8_of_part<C.dtype>(p.x, rows[h] * p.x_stride + column) : zeros8<C.dtype>();
    const char* const from = static_cast<const char*>(step.in) + 2 * (rows[h] * step.in_stride + column);
#pragma unroll
    for (int s = 0; s < kStreams; ++s)
      block.streams[h][s] = is_in ? load8_of_part<C.dtype>(from, s * C.columns) : zeros8<C.dtype>();
  }
}

// The new streams are stored, and multiplied as they are stored.
template <Config C>
__device__ __forceinline__ void multiply_block(const Params& p, const long long (&rows)[2], int column,
                                               const BlockOfRows<C>& block, const float* remix, unsigned weights,
                                               float (&sums)[kMixTiles][4], float (&squares)[2]) {
  const StepParams& step = p.steps[source_step(C.chain)];
  // Pair by pair for all streams that come out: as floats, those that go in would take 80 registers.
  unsigned words[kStreams][2][kVector / 2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float post[kStreams], comb[kStreams][kStreams];
#pragma unroll
    for (int to = 0; to < kStreams; ++to) {
      const float* const of_stream = remix + 8 * h * kRemixOfRow + to * kRemixOfStream;
      const float4 some = *reinterpret_cast<const float4*>(of_stream);
      post[to] = some.x;
      comb[to][0] = some.y;
      comb[to][1] = some.z;
      comb[to][2] = some.w;
      comb[to][3] = of_stream[4];
    }
#pragma unroll
    for (int pair = 0; pair < kVector / 2; ++pair) {
#pragma unroll
      for (int to = 0; to < kStreams; ++to) {
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[i] = post[to] * element<C.dtype>(block.made[h], 2 * pair + i);
#pragma unroll
          for (int s = 0; s < kStreams; ++s)
            v[i] = fmaf(comb[to][s], element<C.dtype>(block.streams[h][s], 2 * pair + i), v[i]);
        }
        const unsigned word = words[to][h][pair] = ptx::cvt_pack<C.dtype>(v[0], v[1]);
        const float low = __uint_as_float(word << 16), high = __uint_as_float(word & 0xffff0000u);
        squares[h] = fmaf(high, high, fmaf(low, low, squares[h]));
      }
    }
  }
#pragma unroll
  for (int to = 0; to < kStreams; ++to) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned(&out)[kVector / 2] = words[to][h];
      if (rows[h] < p.rows && column < C.columns)
        ptx::st_global_v4(
            static_cast<char*>(step.out) + 2 * (rows[h] * step.out_stride + column) + 2LL * to * C.columns,
            {out[0], out[1], out[2], out[3]});
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const unsigned a[4] = {words[to][0][2 * s], words[to][1][2 * s], words[to][0][2 * s + 1],
                             words[to][1][2 * s + 1]};
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
  const long long first_tile =
      static_cast<long long>(blockIdx.y) * C.rows_of_cta + static_cast<int>(threadIdx.x) / kWarp % kWarps * kRowsOfWarp;
  constexpr int kBytesOfBlock = kStreams * kSteps * kMixTiles * kWarp * 16;
  const int column = first + kVector * member;
  const float* const of_rows = remix + group * kRemixOfRow;
  const unsigned of_lane = weights + static_cast<unsigned>(lane * 16);
  // Two blocks are on their way: whole lines of 128 bytes. The first rows' before the loop, and not the next rows'
  // beside the last ones: 196 us for 4,096 rows of 7,168 columns on an H200, against 212 and 210.
  BlockOfRows<C> blocks[2];
  const long long first_rows[2] = {first_tile + group, first_tile + group + 8};
  load_block<C>(p, first_rows, column, blocks[0]);
  load_block<C>(p, first_rows, column + 32, blocks[1]);
  for (long long tile = first_tile; tile < p.rows; tile += turn) {
    const long long rows[2] = {tile + group, tile + group + 8};
    if (tile != first_tile) {
      load_block<C>(p, rows, column, blocks[0]);
      load_block<C>(p, rows, column + 32, blocks[1]);
    }
    load_remix(p, step, tile, lane, remix);
    float sums[kMixTiles][4] = {}, squares[2] = {};
#pragma unroll 1
    for (int block = 0; block < kBlocksOfPart; block += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = block + i;
        multiply_block<C>(p, rows, column + 32 * at, blocks[i], of_rows,
                          of_lane + static_cast<unsigned>(at * kBytesOfBlock), sums, squares);
        if (block + 2 < kBlocksOfPart) load_block<C>(p, rows, column + 32 * (at + 2), blocks[i]);
      }
    }
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

// The four sums of a row that pre is made of, and that of squares.
struct PreSums {
  float v[kStreams + 1];
};

__device__ __forceinline__ int parts_of(const StepParams& step) { return step.parts; }

// What one part says of them. Precondition: there is such a part, and such a row.
__device__ __forceinline__ PreSums pre_of_part(const Params& p, const StepParams& step, long long row, int part) {
  const long long at = static_cast<long long>(part) * p.rows + row;
  const ptx::Vector4 v = ptx::ld_global_v4_written(static_cast<const float*>(step.in) + at * kMixColumns);
  const float squares = ptx::ld_global_f32_written(static_cast<const float*>(step.in2) + at);
  return {{__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w), squares}};
}

// The threads of a row that take its parts, in turn.
template <Config C>
__device__ __forceinline__ constexpr int takers_of_parts() {
  constexpr int kThreads = C.threads_of_row / C.ctas_of_row;
  return kThreads < kWarp * kMostSlices ? kThreads : kWarp * kMostSlices;
}

// A thread's first part: its loads go out before those of the streams.
template <Config C>
__device__ __forceinline__ PreSums first_part(const Params& p, const Place& place) {
  const StepParams& step = p.steps[source_step(C.chain)];
  const int thread = place.thread % (C.threads_of_row / C.ctas_of_row);
  if (!place.is_live || thread >= takers_of_parts<C>() || thread >= parts_of(step)) return {};
  return pre_of_part(p, step, place.row, thread);
}

// From a thread's first part to the sums over all parts, which all threads of the row get: a thread's parts are added
// in their order, then those of a warp's lanes, then those of warps. All threads of the CTA.
template <Config C>
__device__ __forceinline__ PreSums sum_of_parts(const Params& p, const Place& place, PreSums sums) {
  constexpr int kThreads = C.threads_of_row / C.ctas_of_row, kTakers = takers_of_parts<C>();
  constexpr int kLanes = kThreads < kWarp ? kThreads : kWarp;
  const StepParams& step = p.steps[source_step(C.chain)];
  const int thread = place.thread % kThreads;
  if (place.is_live && thread < kTakers) {
#pragma unroll 1
    for (int part = thread + kTakers; part < parts_of(step); part += kTakers) {
      const PreSums more = pre_of_part(p, step, place.row, part);
#pragma unroll
      for (int i = 0; i <= kStreams; ++i) sums.v[i] += more.v[i];
    }
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i <= kStreams; ++i) sums.v[i] += __shfl_xor_sync(kAllLanes, sums.v[i], distance);
  }
  if constexpr (kThreads > kWarp) {
    extern __shared__ __align__(16) float row_sums[];
    constexpr int kSlices = kTakers / kWarp;
    float* const of_row = row_sums + remix_at(C) / 4 + place.of_cta * kSlices * kTotalsFloats;
    if (thread % kWarp == 0 && thread < kTakers) {
#pragma unroll
      for (int i = 0; i <= kStreams; ++i) of_row[thread / kWarp * kTotalsFloats + i] = sums.v[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i <= kStreams; ++i) sums.v[i] = of_row[i];
#pragma unroll
    for (int slice = 1; slice < kSlices; ++slice) {
#pragma unroll
      for (int i = 0; i <= kStreams; ++i) sums.v[i] += of_row[slice * kTotalsFloats + i];
    }
  }
  return sums;
}

// The factor of a row's product: 1 / root(mean of squares + eps).
template <Config C>
__device__ __forceinline__ float norm_of_streams(const Params& p, float squares) {
  return rsqrtf(fmaf(squares, 1.0f / static_cast<float>(kStreams * C.columns), p.eps));
}

template <Config C>
__device__ __forceinline__ void pre_of_sums(const Params& p, const PreSums& sums, float (&pre)[kStreams]) {
  const StepParams& step = p.steps[source_step(C.chain)];
  const float scale = ptx::ld_global_f32_written(step.in4) * norm_of_streams<C>(p, sums.v[kStreams]);
#pragma unroll
  for (int i = 0; i < kStreams; ++i)
    pre[i] =
        sigmoid(fmaf(sums.v[i], scale, ptx::ld_global_f32_written(static_cast<const float*>(step.in3) + i))) + p.eps;
}

// The mixes of a CTA's rows, which the next mhc_post takes: these CTAs have no other work, since Sinkhorn's iterations
// are long. A row has kLanesOfMix lanes, of which every eight go through parts in turn: the first six add four columns
// each, the seventh adds squares.
template <Config C>
__device__ __forceinline__ void make_mixes(const Params& p) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  constexpr int kOfPart = 8, kTogether = kLanesOfMix / kOfPart, kLoaders = kMixColumns / 4;
  const StepParams& step = p.steps[source_step(C.chain)];
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfMix, member = lane % kOfPart;
  const long long row =
      static_cast<long long>(blockIdx.x) * rows_of_mix(C) + static_cast<int>(threadIdx.x) / kLanesOfMix;
  const bool is_live = row < p.rows;
  float sums[4] = {};
  if (is_live && member <= kLoaders) {
    const bool is_squares = member == kLoaders;
    const float* const from = is_squares ? static_cast<const float*>(step.in2) + row
                                         : static_cast<const float*>(step.in) + row * kMixColumns + 4 * member;
    const long long apart = static_cast<long long>(p.rows) * (is_squares ? 1 : kMixColumns);
#pragma unroll 8
    for (int part = lane / kOfPart; part < parts_of(step); part += kTogether) {
      ptx::Vector4 v = {0, 0, 0, 0};
      if (is_squares) {
        v.x = __float_as_uint(ptx::ld_global_f32_written(from + part * apart));
      } else {
        v = ptx::ld_global_v4_written(from + part * apart);
      }
      sums[0] += __uint_as_float(v.x);
      sums[1] += __uint_as_float(v.y);
      sums[2] += __uint_as_float(v.z);
      sums[3] += __uint_as_float(v.w);
    }
  }
#pragma unroll
  for (int distance = kOfPart; distance < kLanesOfMix; distance *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], distance);
  }
  const int first = static_cast<int>(threadIdx.x) % kWarp - member;  // the lane of columns 0 to 3
  const float inverse = norm_of_streams<C>(p, __shfl_sync(kAllLanes, sums[0], first + kLoaders));
  // Of a row's lanes the first three have eight columns each from here on.
  float m[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) m[i] = __shfl_sync(kAllLanes, sums[i % 4], (first + 2 * member + i / 4) % kWarp);
  const bool has_coefficients = lane < kMixColumns / kVector;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int column = member * kVector + i, group = column < kMixPost ? 0 : column < kMixComb ? 1 : 2;
    m[i] = has_coefficients
               ? fmaf(m[i] * inverse, ptx::ld_global_f32_written(static_cast<const float*>(step.in4) + group),
                      ptx::ld_global_f32_written(static_cast<const float*>(step.in3) + column))
               : 0.0f;
  }
  coefficients_of<S.iterations>(member, p.eps, m);
  if (has_coefficients && is_live) store8<DType::f32>(step.out, row * kMixColumns + member * kVector, m);
}

}  // namespace tessera::rows

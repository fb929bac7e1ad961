// mhc_post with a product, for few rows: what product.cuh does, by all warps of a CTA on 16 rows.
//
// There a warp goes through its part's four blocks of 32 columns one after the other, which for one row is all of the
// time. Here each of eight warps has one block and two of the streams that come out, and weights go from memory to the
// fragments of mma.sync: with so few rows each is used once or twice. The sums of warps meet in shared memory.
#pragma once

#include "rows/product.cuh"

namespace tessera::rows {

// Warp w has block w % 4 of a part and streams 2 (w / 4) and the next.
inline constexpr int kStreamsOfWarp = 2, kWarpsOfTile = kBlocksOfPart * kStreams / kStreamsOfWarp;
static_assert(kWarpsOfTile * kWarp == kThreadsOfTile * kRowsOfWarp);

// A lane's share of a block: 8 neighbours of two rows of x and of each stream, and what they are mixed by.
template <Config C>
struct BlockOfTile {
  Raw<C.dtype> made[2], streams[2][kStreams];
  float post[2][kStreamsOfWarp], comb[2][kStreams][kStreamsOfWarp];  // of a row, for the two streams that come out
};

__device__ __forceinline__ void load_few(const float* from, float (&to)[kStreamsOfWarp]) {
#pragma unroll
  for (int n = 0; n < kStreamsOfWarp; ++n) to[n] = ptx::ld_global_f32_written(from + n);
}

template <Config C>
__device__ __forceinline__ void load_block(const Params& p, long long row, int column, int stream, BlockOfTile<C>& of) {
  const StepParams& step = p.steps[source_step(C.chain)];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const long long at = row + 8 * h;
    of.made[h] = zeros8<C.dtype>();
    if (at >= p.rows) {
#pragma unroll
      for (int s = 0; s < kStreams; ++s) {
        of.streams[h][s] = zeros8<C.dtype>();
        for (int n = 0; n < kStreamsOfWarp; ++n) of.comb[h][s][n] = 0;
      }
      for (int n = 0; n < kStreamsOfWarp; ++n) of.post[h][n] = 0;
      continue;
    }
    const bool is_in_row = column < C.columns;
    if (is_in_row) of.made[h] = load8<C.dtype>(p.x, at * p.x_stride + column);
    const float* const mix = static_cast<const float*>(step.in2) + at * kMixColumns + stream;
    load_few(mix + kMixPost, of.post[h]);
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      of.streams[h][s] = zeros8<C.dtype>();
      if (is_in_row) of.streams[h][s] = load8<C.dtype>(step.in, at * step.in_stride + s * C.columns + column);
      load_few(mix + kMixComb + s * kStreams, of.comb[h][s]);
    }
  }
}

// Rows of weights of a warp's block and streams, as they are: 4 columns of each step and tile of 8 rows.
struct WeightsOfBlock {
  ptx::Vector4 of[kStreamsOfWarp][kSteps][kMixTiles];
};

template <Config C>
__device__ __forceinline__ void load_weights_of_block(const void* weights, int column, int stream, int group,
                                                      WeightsOfBlock& to) {
#pragma unroll
  for (int n = 0; n < kStreamsOfWarp; ++n) {
#pragma unroll
    for (int tile = 0; tile < kMixTiles; ++tile) {
      const long long row = static_cast<long long>(8 * tile + group) * kStreams + stream + n;
      const float* const from = static_cast<const float*>(weights) + row * C.columns + column;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        to.of[n][s][tile] = {0, 0, 0, 0};
        if (column < C.columns) to.of[n][s][tile] = ptx::ld_global_v4_written(from + 4 * s);
      }
    }
  }
}

// The new streams are stored, and multiplied as they are stored.
template <Config C>
__device__ __forceinline__ void multiply_few(const Params& p, long long row, int column, int stream,
                                             const BlockOfTile<C>& of, const WeightsOfBlock& weights,
                                             float (&sums)[kMixTiles][4], float (&squares)[2]) {
  const StepParams& step = p.steps[source_step(C.chain)];
#pragma unroll
  for (int n = 0; n < kStreamsOfWarp; ++n) {
    unsigned words[2][kVector / 2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int pair = 0; pair < kVector / 2; ++pair) {
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[i] = of.post[h][n] * element<C.dtype>(of.made[h], 2 * pair + i);
#pragma unroll
          for (int s = 0; s < kStreams; ++s)
            v[i] = fmaf(of.comb[h][s][n], element<C.dtype>(of.streams[h][s], 2 * pair + i), v[i]);
        }
        const unsigned word = words[h][pair] = ptx::cvt_pack<C.dtype>(v[0], v[1]);
        const float low = __uint_as_float(word << 16), high = __uint_as_float(word & 0xffff0000u);
        squares[h] = fmaf(high, high, fmaf(low, low, squares[h]));
      }
      const long long at = (row + 8 * h) * step.out_stride + static_cast<long long>(stream + n) * C.columns + column;
      if (row + 8 * h < p.rows && column < C.columns)
        ptx::st_global_v4(static_cast<char*>(step.out) + 2 * at, {words[h][0], words[h][1], words[h][2], words[h][3]});
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const unsigned a[4] = {words[0][2 * s], words[1][2 * s], words[0][2 * s + 1], words[1][2 * s + 1]};
#pragma unroll
      for (int tile = 0; tile < kMixTiles; ++tile) {
        const ptx::Vector4& v = weights.of[n][s][tile];
        unsigned first[2], second[2];
        split_pair(v.x, v.y, first[0], second[0]);
        split_pair(v.z, v.w, first[1], second[1]);
        ptx::mma_m16n8k16<C.dtype>(sums[tile], a, first[0], first[1]);
        ptx::mma_m16n8k16<C.dtype>(sums[tile], a, second[0], second[1]);
      }
    }
  }
}

// What the CTA's warps have of a tile's sums, through shared memory to memory. All threads.
__device__ __forceinline__ void share_sums(const Params& p, const StepParams& step, long long first, int part,
                                           const float (&sums)[kMixTiles][4], float (&squares)[2]) {
  extern __shared__ __align__(16) float row_sums[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  float* const mine = row_sums + warp * kSumsOfTile * kWarp + lane;
#pragma unroll
  for (int i = 0; i < 4 * kMixTiles; ++i) mine[i * kWarp] = sums[i / 4][i % 4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    squares[h] += __shfl_xor_sync(kAllLanes, squares[h], 1);
    squares[h] += __shfl_xor_sync(kAllLanes, squares[h], 2);
    mine[(4 * kMixTiles + h) * kWarp] = squares[h];
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < kSumsOfTile * kWarp; i += kWarpsOfTile * kWarp) {
    float sum = row_sums[i];
#pragma unroll
    for (int w = 1; w < kWarpsOfTile; ++w) sum += row_sums[w * kSumsOfTile * kWarp + i];
    const int which = i / kWarp, group = lane / 4, member = lane % 4;
    const bool is_square = which >= 4 * kMixTiles;
    const long long row = first + group + 8 * (is_square ? which % 2 : which / 2 % 2);
    if (row >= p.rows) continue;
    const long long at = static_cast<long long>(part) * p.rows + row;
    if (!is_square) {
      static_cast<float*>(step.out2)[at * kMixColumns + which / 4 * 8 + 2 * member + which % 2] = sum;
    } else if (member == 0) {
      static_cast<float*>(step.out3)[at] = sum;
    }
  }
  __syncthreads();
}

template <Config C>
__device__ __forceinline__ void multiply_few_streams(const Params& p) {
  const StepParams& step = p.steps[source_step(C.chain)];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / 4, part = static_cast<int>(blockIdx.x);
  const int column = part * kPartColumns + 32 * (warp % kBlocksOfPart) + kVector * (lane % 4);
  const int stream = kStreamsOfWarp * (warp / kBlocksOfPart);
  const long long turn = static_cast<long long>(gridDim.y) * kRowsOfWarp;
  long long tile = static_cast<long long>(blockIdx.y) * kRowsOfWarp;
  BlockOfTile<C> block;
  WeightsOfBlock weights;
  load_block<C>(p, tile + group, column, stream, block);
  load_weights_of_block<C>(step.in3, column, stream, group, weights);
#pragma unroll 1
  for (; tile < p.rows; tile += turn) {
    float sums[kMixTiles][4] = {}, squares[2] = {};
    multiply_few<C>(p, tile + group, column, stream, block, weights, sums, squares);
    if (tile + turn < p.rows) load_block<C>(p, tile + turn + group, column, stream, block);
    share_sums(p, step, tile, part, sums, squares);
  }
}

}  // namespace tessera::rows

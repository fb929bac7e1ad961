// mHC between two layers: the new streams' product with the rows of weights of the next mix, where the streams are
// made; and the mix of such a product, where the streams are read again.
//
// The product is mma.sync's, of 16 rows by 8 by 16 columns. Since columns may be taken in any order as long as streams
// and weights have the same, lane 4 g + t has 8 neighbours of each 32 columns, from 8 t on, of rows g and g + 8: step s
// of two multiplies its elements 4 s to 4 s + 3. Weights are the sum of two bf16 numbers each, which is fp32 to 2^-17;
// streams are bf16 as they are stored.
#pragma once

#include "ptx/cp_async.cuh"
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

// The weights of a part's columns to shared memory, [block][stream][step][tile of 8 rows][lane] of 16 bytes. A thread
// has several loads on their way: one after the other they are most of the time of few rows.
template <Config C>
__device__ __forceinline__ void split_weights(const void* weights, int first, unsigned to) {
  constexpr int kQuads = kPartColumns / 4, kPieces = kMixColumns * kStreams * kQuads, kTogether = 12;
#pragma unroll 1
  for (int from = static_cast<int>(threadIdx.x); from < kPieces; from += kTogether * threads_of_cta(C)) {
    ptx::Vector4 loaded[kTogether];
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const int i = from + n * threads_of_cta(C), quad = i % kQuads, column = first + 4 * quad;
      loaded[n] = {0, 0, 0, 0};
      if (i < kPieces && column < C.columns)
        loaded[n] = ptx::ld_global_v4_written(static_cast<const float*>(weights) +
                                              static_cast<long long>(i / kQuads) * C.columns + column);
    }
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const int i = from + n * threads_of_cta(C);
      const int quad = i % kQuads, stream = i / kQuads % kStreams, row = i / (kQuads * kStreams);
      const ptx::Vector4& v = loaded[n];
      ptx::Words4 words;
      split_pair(v.x, v.y, words.x, words.z);
      split_pair(v.z, v.w, words.y, words.w);
      const int piece = ((quad / 8 * kStreams + stream) * kSteps + quad % 2) * kMixTiles + row / 8;
      const int lane = row % 8 * 4 + quad / 2 % 4;
      if (i < kPieces) ptx::st_shared_v4(to + static_cast<unsigned>((piece * kWarp + lane) * 16), words);
    }
  }
}

// What a warp's rows take of their mix: post, and comb of the four streams that go in. It is loaded a tile ahead.
inline constexpr int kRemixOfLane = kRowsOfWarp * kRemixOfRow / kWarp;
struct RemixOfTile {
  float of[kRemixOfLane];
};

__device__ __forceinline__ void load_remix(const Params& p, const StepParams& step, long long first, int lane,
                                           RemixOfTile& remix) {
#pragma unroll
  for (int n = 0; n < kRemixOfLane; ++n) {
    const int row = (n * kWarp + lane) / kRemixOfRow, which = (n * kWarp + lane) % kRemixOfRow;
    remix.of[n] = first + row < p.rows ? ptx::ld_global_f32_written(static_cast<const float*>(step.in2) +
                                                                    (first + row) * kMixColumns + kMixPost + which)
                                       : 0.0f;
  }
}

// All lanes of the warp.
__device__ __forceinline__ void store_remix(const RemixOfTile& remix, int lane, float* to) {
  __syncwarp();  // those before have been read
#pragma unroll
  for (int n = 0; n < kRemixOfLane; ++n) to[n * kWarp + lane] = remix.of[n];
  __syncwarp();
}

// A lane's copies of a block, of 16 rows of a warp and 32 of a part's columns: of two rows x, what a layer made of the
// streams, and the streams. A piece is 16 bytes of each lane, which it reads itself: no barrier is needed.
inline constexpr int kPiecesOfRow = kStreams + 1, kPieceBytes = 16 * kWarp;

template <Config C>
__device__ __forceinline__ void copy_block(const Params& p, long long row, int column, unsigned to) {
  const StepParams& step = p.steps[source_step(C.chain)];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const long long at = row + 8 * h;
    const int bytes = at < p.rows && column < C.columns ? 16 : 0;
    const unsigned pieces = to + static_cast<unsigned>(h * kPiecesOfRow * kPieceBytes);
    ptx::cp_async_16(pieces, static_cast<const char*>(p.x) + 2 * (at * p.x_stride + column), bytes);
    const char* const from = static_cast<const char*>(step.in) + 2 * (at * step.in_stride + column);
#pragma unroll
    for (int s = 0; s < kStreams; ++s)
      ptx::cp_async_16(pieces + static_cast<unsigned>((s + 1) * kPieceBytes), from + 2LL * s * C.columns, bytes);
  }
}

template <DType kDType>
__device__ __forceinline__ Raw<kDType> piece_at(unsigned address) {
  const ptx::Words4 v = ptx::ld_shared_v4(address);
  return {{v.x, v.y, v.z, v.w}};
}

// The new streams are stored, and multiplied as they are stored.
template <Config C>
__device__ __forceinline__ void multiply_block(const Params& p, long long row, int column, unsigned block,
                                               const float* remix, unsigned weights, float (&sums)[kMixTiles][4],
                                               float (&squares)[2]) {
  const StepParams& step = p.steps[source_step(C.chain)];
  // Pair by pair for all streams that come out: as floats, those that go in would take 80 registers.
  unsigned words[kStreams][2][kVector / 2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const unsigned pieces = block + static_cast<unsigned>(h * kPiecesOfRow * kPieceBytes);
    const Raw<C.dtype> made = piece_at<C.dtype>(pieces);
    Raw<C.dtype> streams[kStreams];
    float comb[kStreams][kStreams];
    const float* const of_row = remix + 8 * h * kRemixOfRow;
    const float4 posts = *reinterpret_cast<const float4*>(of_row);
    const float post[kStreams] = {posts.x, posts.y, posts.z, posts.w};
#pragma unroll
    for (int s = 0; s < kStreams; ++s) {
      streams[s] = piece_at<C.dtype>(pieces + static_cast<unsigned>((s + 1) * kPieceBytes));
      const float4 to = *reinterpret_cast<const float4*>(of_row + kStreams * (1 + s));
      comb[s][0] = to.x, comb[s][1] = to.y, comb[s][2] = to.z, comb[s][3] = to.w;
    }
#pragma unroll
    for (int pair = 0; pair < kVector / 2; ++pair) {
#pragma unroll
      for (int to = 0; to < kStreams; ++to) {
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[i] = post[to] * element<C.dtype>(made, 2 * pair + i);
#pragma unroll
          for (int s = 0; s < kStreams; ++s) v[i] = fmaf(comb[s][to], element<C.dtype>(streams[s], 2 * pair + i), v[i]);
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
      if (row + 8 * h < p.rows && column < C.columns)
        ptx::st_global_v4(
            static_cast<char*>(step.out) + 2 * ((row + 8 * h) * step.out_stride + column) + 2LL * to * C.columns,
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

// Sums of a tile: two rows of a lane's group.
__device__ __forceinline__ void store_sums(const Params& p, const StepParams& step, long long row, int part, int member,
                                           const float (&sums)[kMixTiles][4], float (&squares)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    squares[h] += __shfl_xor_sync(kAllLanes, squares[h], 1);
    squares[h] += __shfl_xor_sync(kAllLanes, squares[h], 2);
    if (row + 8 * h >= p.rows) continue;
    const long long at = static_cast<long long>(part) * p.rows + row + 8 * h;
    float* const to = static_cast<float*>(step.out2) + at * kMixColumns + 2 * member;
#pragma unroll
    for (int n = 0; n < kMixTiles; ++n)
      ptx::st_global_v2(to + 8 * n, __float_as_uint(sums[n][2 * h]), __float_as_uint(sums[n][2 * h + 1]));
    if (member == 0) static_cast<float*>(step.out3)[at] = squares[h];
  }
}

// A warp goes through its tiles of 16 rows, block by block, while the next blocks are on their way, those of the next
// tile too. Of four slots two are filled together: whole lines of 128 bytes (4,096 rows of 7,168 columns on an H200:
// 157 us, 159 with one at a time).
template <Config C>
__device__ __forceinline__ void multiply_streams(const Params& p) {
  extern __shared__ __align__(16) float row_sums[];
  constexpr int kWarps = threads_of_cta(C) / kWarp, kStages = stages_of_product(C);
  constexpr int kTogether = kStages == 4 ? 2 : 1;
  const StepParams& step = p.steps[source_step(C.chain)];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp % kWarps;
  const int group = lane / 4, member = lane % 4;
  const int part = static_cast<int>(blockIdx.x), first = part * kPartColumns, column = first + kVector * member;
  const unsigned weights = ptx::shared_address(row_sums);
  float* const remix = row_sums + kSplitBytes / 4 + warp * kRowsOfWarp * kRemixOfRow;
  const unsigned ring = weights + static_cast<unsigned>(ring_of_product(C) + warp * kStages * kBlockBytes + lane * 16);
  const long long turn = static_cast<long long>(gridDim.y) * C.rows_of_cta;
  const long long first_tile = static_cast<long long>(blockIdx.y) * C.rows_of_cta + warp * kRowsOfWarp;
  // The block that is copied next, and where to.
  long long copied_tile = first_tile;
  int copied_block = 0;
  unsigned copied_slot = 0;
  const auto copy_next = [&] {
    if (copied_tile < p.rows)
      copy_block<C>(p, copied_tile + group, column + 32 * copied_block, ring + copied_slot * kBlockBytes);
    ptx::cp_async_commit_group();
    if (++copied_block == kBlocksOfPart) copied_block = 0, copied_tile += turn;
    if (++copied_slot == kStages) copied_slot = 0;
  };
#pragma unroll
  for (int i = 0; i < kStages - kTogether; ++i) copy_next();
  RemixOfTile next;
  load_remix(p, step, first_tile, lane, next);
  split_weights<C>(step.in3, first, weights);
  __syncthreads();
  constexpr int kBytesOfBlock = kStreams * kSteps * kMixTiles * kWarp * 16;
  const float* const of_rows = remix + group * kRemixOfRow;
  const unsigned of_lane = weights + static_cast<unsigned>(lane * 16);
  unsigned slot = 0;
  for (long long tile = first_tile; tile < p.rows; tile += turn) {
    store_remix(next, lane, remix);
    load_remix(p, step, tile + turn, lane, next);
    float sums[kMixTiles][4] = {}, squares[2] = {};
#pragma unroll 1
    for (int block = 0; block < kBlocksOfPart; ++block) {
      if (block % kTogether == 0) {
        ptx::cp_async_wait_group<kStages - 2 * kTogether>();
#pragma unroll
        for (int i = 0; i < kTogether; ++i) copy_next();  // over the blocks before
      }
      multiply_block<C>(p, tile + group, column + 32 * block, ring + slot * kBlockBytes, of_rows,
                        of_lane + static_cast<unsigned>(block * kBytesOfBlock), sums, squares);
      if (++slot == kStages) slot = 0;
    }
    store_sums(p, step, tile + group, part, member, sums, squares);
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
// are long. A row has lanes_of_mix() lanes, of which every eight go through parts in turn: the first six add four
// columns each, the seventh adds squares.
template <Config C>
__device__ __forceinline__ void make_mixes(const Params& p) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  constexpr int kLanes = lanes_of_mix(C), kOfPart = 8, kTogether = kLanes / kOfPart, kLoaders = kMixColumns / 4;
  constexpr int kUnderWay = kLanes == kWarp ? 14 : 8;
  const StepParams& step = p.steps[source_step(C.chain)];
  const int lane = static_cast<int>(threadIdx.x) % kLanes, member = lane % kOfPart;
  const long long row = static_cast<long long>(blockIdx.x) * rows_of_mix(C) + static_cast<int>(threadIdx.x) / kLanes;
  const bool is_live = row < p.rows;
  float sums[4] = {};
  if (is_live && member <= kLoaders) {
    const bool is_squares = member == kLoaders;
    const float* const from = is_squares ? static_cast<const float*>(step.in2) + row
                                         : static_cast<const float*>(step.in) + row * kMixColumns + 4 * member;
    const long long apart = static_cast<long long>(p.rows) * (is_squares ? 1 : kMixColumns);
#pragma unroll kUnderWay
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
  for (int distance = kOfPart; distance < kLanes; distance *= 2) {
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

// The steps between loads and stores, on rows in registers; norms: norms.cuh.
#pragma once

#include "gemm/activation.cuh"
#include "ptx/reciprocal.cuh"
#include "rows/norms.cuh"
#include "rows/row.cuh"

namespace tessera::rows {

// Frequencies of the rope that is step kNumber, as parts of a turn times 2^64: generated, since they are numbers of the
// chain. at(pair): of this pair and those behind it, 16-byte aligned where pair is even.
template <int kNumber>
struct RopeTurns;

template <Config C, int kNumber>
__device__ __forceinline__ void add_residual(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kVectors = vectors_of_thread(C);
  Raw<C.dtype> raw[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = column_of<C>(place, j);
    raw[j] = zeros8<C.dtype>();
    if (place.is_live && is_in<C, S>(place, j))
      raw[j] = load8<C.dtype, reads_stay(C)>(
          p.in, start_in_step<C, S>(place, p.in_stride, p.in_stride_token) + column - S.first);
  }
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] += element<C.dtype>(raw[j], i);
    const int column = column_of<C>(place, j);
    if constexpr (S.is_stored) {
      if (place.is_live && is_in<C, S>(place, j) && makes_values<C>(place))
        store8<C.dtype>(p.out, start_in_step<C, S>(place, p.out_stride, p.out_stride_token) + column - S.first, x.v[j]);
    }
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void multiply_by_factor(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  const float factor = place.is_live ? ptx::ld_global_f32_written(static_cast<const float*>(p.in) + place.row) : 0.0f;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x.v[j][i] *= factor;
    }
}

// Cosines and sines of position * frequency for kPairs pairs: whole turns fall out of the product of integers, so that
// no position is too large.
template <int kNumber, bool kIsInverse, int kPairs>
__device__ __forceinline__ void turns_of(int pair, int position, float (&cosine)[kPairs], float (&sine)[kPairs]) {
  using Turns = RopeTurns<kNumber>;
  const ulonglong2* const from = reinterpret_cast<const ulonglong2*>(Turns::at(pair));
  // 2 pi / 2^32; what turns backwards has the other sine.
  const float radians = (position < 0) != kIsInverse ? -1.4629180792671596e-9f : 1.4629180792671596e-9f;
  const unsigned distance = position < 0 ? 0u - static_cast<unsigned>(position) : static_cast<unsigned>(position);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const unsigned long long turn = i % 2 == 0 ? from[i / 2].x : from[i / 2].y;
    const unsigned parts =
        static_cast<unsigned>(turn >> 32) * distance + __umulhi(static_cast<unsigned>(turn), distance);
    const float angle = static_cast<float>(static_cast<int>(parts)) * radians;
    cosine[i] = __cosf(angle) * Turns::kMagnitude;
    sine[i] = __sinf(angle) * Turns::kMagnitude;
  }
}

// The same from a table: a row for each position, its cosines in front of its sines. A position that it has not turns
// nothing.
template <Config C, int kNumber, int kPairs>
__device__ __forceinline__ void turns_of_table(const StepParams& p, int pair, int position, float (&cosine)[kPairs],
                                               float (&sine)[kPairs]) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kWidth = width(S, C.columns);
  const bool is_there = position >= 0 && position < p.parts;
  const float* const from = static_cast<const float*>(p.in) + (is_there ? position : 0LL) * kWidth + pair;
#pragma unroll
  for (int i = 0; i < kPairs; i += 4) {
    ptx::Vector4 c = {0, 0, 0, 0}, s = {0, 0, 0, 0};
    if (is_there) {
      c = ptx::ld_global_v4_written(from + i);
      s = ptx::ld_global_v4_written(from + kWidth / 2 + i);
    }
    const unsigned cosines[4] = {c.x, c.y, c.z, c.w}, sines[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      cosine[i + k] = is_there ? __uint_as_float(cosines[k]) : 1.0f;
      sine[i + k] = S.is_inverse ? -__uint_as_float(sines[k]) : __uint_as_float(sines[k]);
    }
  }
}

template <Config C, int kNumber, int kPairs>
__device__ __forceinline__ void turns_of_step(const StepParams& p, int pair, int position, float (&cosine)[kPairs],
                                              float (&sine)[kPairs]) {
  constexpr RowStep S = C.chain.steps[kNumber];
  if constexpr (S.has_table) {
    turns_of_table<C, kNumber>(p, pair, position, cosine, sine);
  } else {
    turns_of<kNumber, S.is_inverse>(pair, position, cosine, sine);
  }
}

__device__ __forceinline__ void turn(float cosine, float sine, float& a, float& b) {
  const float was = a;
  a = fmaf(a, cosine, -b * sine);
  b = fmaf(b, cosine, was * sine);
}

template <Config C, int kNumber>
__device__ __forceinline__ void rope_pairs(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    if (!is_in<C, S>(place, j)) continue;
    float cosine[kVector / 2], sine[kVector / 2];
    turns_of_step<C, kNumber>(p, (column_of<C>(place, j) - S.first) / 2, place.position, cosine, sine);
#pragma unroll
    for (int i = 0; i < kVector / 2; ++i) turn(cosine[i], sine[i], x.v[j][2 * i], x.v[j][2 * i + 1]);
  }
}

// The other half's vector is the thread's own, some vectors on.
template <Config C, int kNumber>
__device__ __forceinline__ void rope_own_halves(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kHalf = width(S, C.columns) / 2, kApart = kHalf / (C.threads_of_row * kVector);
#pragma unroll
  for (int j = 0; j + kApart < vectors_of_thread(C); ++j) {
    const int at = column_of<C>(place, j) - S.first;
    if (!is_in<C, S>(place, j) || at >= kHalf) continue;
    float cosine[kVector], sine[kVector];
    turns_of_step<C, kNumber>(p, at, place.position, cosine, sine);
#pragma unroll
    for (int i = 0; i < kVector; ++i) turn(cosine[i], sine[i], x.v[j][i], x.v[j + kApart][i]);
  }
}

// The other half's vector is with a lane of the same warp, at the same j.
template <Config C, int kNumber>
__device__ __forceinline__ void rope_halves(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kHalf = width(S, C.columns) / 2;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int at = column_of<C>(place, j) - S.first;
    const bool is_second = at >= kHalf;
    float other[kVector], cosine[kVector], sine[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) other[i] = __shfl_xor_sync(kAllLanes, x.v[j][i], kHalf / kVector);
    if (!is_in<C, S>(place, j)) continue;
    turns_of_step<C, kNumber>(p, is_second ? at - kHalf : at, place.position, cosine, sine);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      x.v[j][i] = fmaf(x.v[j][i], cosine[i], other[i] * (is_second ? sine[i] : -sine[i]));
  }
}

// Halves of any width, such as the 36 columns of heads of 72: by fours of columns, whose other half's four are with a
// lane of the same warp, at the same j; where a half is no whole vectors it is the vector's other four.
template <Config C, int kNumber>
__device__ __forceinline__ void rope_any_halves(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr int kFour = kVector / 2, kHalf = width(S, C.columns) / 2 / kFour, kOther = kHalf % 2;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    if (!has_columns_of<C, S>(j)) continue;
    const int vector = (column_of<C>(place, j) - S.first) / kVector;
    float turned[kVector];
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      const int at = 2 * vector + four;
      const bool is_second = at >= kHalf;
      // Of lanes that are not in the range any: they go along.
      const int lane = static_cast<int>(threadIdx.x) + ((is_second ? at - kHalf : at + kHalf) / 2 - vector);
      float cosine[kFour] = {}, sine[kFour] = {}, other[kFour];
#pragma unroll
      for (int i = 0; i < kFour; ++i) other[i] = __shfl_sync(kAllLanes, x.v[j][(four + kOther) % 2 * kFour + i], lane);
      if (is_in<C, S>(place, j))
        turns_of_step<C, kNumber>(p, (is_second ? at - kHalf : at) * kFour, place.position, cosine, sine);
#pragma unroll
      for (int i = 0; i < kFour; ++i)
        turned[four * kFour + i] =
            fmaf(x.v[j][four * kFour + i], cosine[i], other[i] * (is_second ? sine[i] : -sine[i]));
    }
    if (!is_in<C, S>(place, j)) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = turned[i];
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void rope(const StepParams& p, const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  if constexpr (!S.is_halves) {
    rope_pairs<C, kNumber>(p, place, x);
  } else if constexpr (has_own_halves(C, S)) {
    rope_own_halves<C, kNumber>(p, place, x);
  } else if constexpr (has_halves_of_lanes(C, S)) {
    rope_halves<C, kNumber>(p, place, x);
  } else {
    rope_any_halves<C, kNumber>(p, place, x);
  }
}

__device__ __forceinline__ void butterfly(float& a, float& b) {
  const float sum = a + b, difference = a - b;
  a = sum;
  b = difference;
}

// In Sylvester's order: entry (i, j) has the sign of the parity of i & j.
template <Config C, int kNumber>
__device__ __forceinline__ void hadamard(const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  constexpr float kNorm = S.block == 64 ? 0.125f : S.block == 128 ? 0.08838834764831845f : 0.0625f;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const bool is_changed = is_in<C, S>(place, j);
    float v[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] = x.v[j][i];
#pragma unroll
    for (int distance = 1; distance < kVector; distance *= 2) {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        if ((i & distance) == 0) butterfly(v[i], v[i + distance]);
    }
#pragma unroll
    for (int lanes = 1; lanes < S.block / kVector; lanes *= 2) {
      const bool is_second = (place.thread & lanes) != 0;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float other = __shfl_xor_sync(kAllLanes, v[i], lanes);
        v[i] = is_second ? other - v[i] : v[i] + other;
      }
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = is_changed ? v[i] * kNorm : x.v[j][i];
  }
}

// 1 / (1 + e^-x).
__device__ __forceinline__ float sigmoid(float x) { return ptx::rcp(1.0f + ptx::ex2(x * -1.4426950408889634f)); }

template <RowStep S>
__device__ __forceinline__ float elementwise(float x) {
  if constexpr (S.kind == RowPart::softcap) {
    constexpr float kCap = S.limit;
    return fmaf(2 * kCap, sigmoid(x * (2.0f / kCap)), -kCap);  // tanh(x) = 2 / (1 + e^-2x) - 1
  } else if constexpr (S.kind == RowPart::sigmoid) {
    return sigmoid(x);
  } else {
    return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void change_elements(const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    if (!is_in<C, S>(place, j)) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = elementwise<S>(x.v[j][i]);
  }
}

template <Config C, int kNumber>
__device__ __forceinline__ void softmax(const Place& place, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  float most = ptx::minus_infinity(), sum = 0;
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) most = fmaxf(most, x.v[j][i]);
    }
  most = over_row<C, sums_before(C.chain, kNumber), true>(place, most);
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        x.v[j][i] = ptx::ex2((x.v[j][i] - most) * 1.4426950408889634f);
        sum += x.v[j][i];
      }
    }
  const float inverse = ptx::rcp(over_row<C, sums_before(C.chain, kNumber) + 1>(place, sum));
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j)
    if (is_in<C, S>(place, j)) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) x.v[j][i] *= inverse;
    }
}

// Sinkhorn's iterations over the 4 x 4 of two lanes, rows 0 and 1 with the even one. The first has gone through a
// softmax.
__device__ __forceinline__ void normalise_columns(float eps, float (&v)[kVector]) {
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    const float mine = v[i] + v[kStreams + i];
    const float inverse = ptx::rcp(mine + __shfl_xor_sync(kAllLanes, mine, 3) + eps);
    v[i] *= inverse;
    v[kStreams + i] *= inverse;
  }
}
__device__ __forceinline__ void normalise_rows(float eps, float (&v)[kVector]) {
#pragma unroll
  for (int row = 0; row < kVector; row += kStreams) {
    const float inverse = ptx::rcp(v[row] + v[row + 1] + v[row + 2] + v[row + 3] + eps);
#pragma unroll
    for (int i = 0; i < kStreams; ++i) v[row + i] *= inverse;
  }
}

// From m to mHC's coefficients: of a row's threads the first has those of pre and post, the next two the rows of comb;
// the others of their warp go along.
template <int kIterations>
__device__ __forceinline__ void coefficients_of(int thread, float eps, float (&m)[kVector]) {
  float v[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = m[i];
#pragma unroll
  for (int row = 0; row < kVector; row += kStreams) {
    const float most = fmaxf(fmaxf(v[row], v[row + 1]), fmaxf(v[row + 2], v[row + 3]));
#pragma unroll
    for (int i = 0; i < kStreams; ++i) v[row + i] = ptx::ex2((v[row + i] - most) * 1.4426950408889634f);
    const float sum = ptx::rcp(v[row] + v[row + 1] + v[row + 2] + v[row + 3]);
#pragma unroll
    for (int i = 0; i < kStreams; ++i) v[row + i] = fmaf(v[row + i], sum, eps);
  }
  normalise_columns(eps, v);
#pragma unroll 1
  for (int i = 1; i < kIterations; ++i) {
    normalise_rows(eps, v);
    normalise_columns(eps, v);
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    m[i] = thread > 0 ? v[i] : i < kMixPost ? sigmoid(m[i]) + eps : 2.0f * sigmoid(m[i]);
}

template <Config C, int kNumber>
__device__ __forceinline__ void mix(const StepParams& p, const Place& place, float eps, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[kNumber];
  const bool has_coefficients = place.thread < kMixColumns / kVector;
  const float squares = place.is_live ? ptx::ld_global_f32_written(static_cast<const float*>(p.in) + place.row) : 1.0f;
  const float inverse = rsqrtf(fmaf(squares, 1.0f / static_cast<float>(S.hidden), eps));
  const float* const base = static_cast<const float*>(p.in2);
  const float* const scale = static_cast<const float*>(p.in3);
  float v[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int column = place.thread * kVector + i;
    const int group = column < kMixPost ? 0 : column < kMixComb ? 1 : 2;
    v[i] = has_coefficients ? fmaf(x.v[0][i] * inverse, scale[group], base[column]) : 0.0f;
  }
  coefficients_of<S.iterations>(place.thread, eps, v);
  if (has_coefficients) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[0][i] = v[i];
  }
}

}  // namespace tessera::rows

// The body of row operators: a row from its loads through the parts of the chain to its stores. In and out: see
// spec/rows.h.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/griddepcontrol.cuh"
#include "rows/few_products.cuh"
#include "rows/product.cuh"
#include "rows/sinks.cuh"
#include "rows/sources.cuh"
#include "rows/steps.cuh"

namespace tessera::rows {

// The row of x as it is, without a gate; of two tensors the columns of the second behind those of the first.
template <Config C>
__device__ __forceinline__ void load_row(const Params& p, const Place& place, Values<C>& x) {
  constexpr int kVectors = vectors_of_thread(C);
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  const StepParams& step = p.steps[source_step(C.chain)];
  const long long start = start_of_row<C>(place, p.x_stride, p.x_stride_token);
  const long long start2 = start_of_row<C>(place, step.in_stride, step.in_stride_token);
  const int first = column_of<C>(place, 0);
  Raw<C.dtype> raw[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = column_of<C>(place, j);
    raw[j] = zeros8<C.dtype>();
    if (place.source < 0 || (has_tail(C) && column >= C.columns)) continue;
    // Where all threads' vectors are on one side the compiler knows: two loads of one register cost more than one.
    const int from = columns_to<C>(j), to = columns_to<C>(j + 1);
    if (S.kind == RowPart::join && (from >= S.first || (to > S.first && column >= S.first))) {
      raw[j] = load8<C.dtype>(step.in, start2 + first - S.first + columns_to<C>(j));
    } else {
      raw[j] = load8<C.dtype, reads_stay(C)>(p.x, start + first + columns_to<C>(j));
    }
  }
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = element<C.dtype>(raw[j], i);
    if constexpr (keeps_as_read(C)) x.kept[j] = raw[j];
  }
}

inline constexpr float kMinusGptOss = -1.702f * 1.4426950408889634f;

template <RowStep S>
__device__ __forceinline__ float gated(float gate, float up) {
  if constexpr (S.limit > 0) {
    constexpr float kLimit = S.limit;
    gate = fminf(gate, kLimit);
    up = fmaxf(fminf(up, kLimit), -kLimit);
  }
  if constexpr (S.is_gpt_oss) return __fdividef(gate, 1.0f + ptx::ex2(gate * kMinusGptOss)) * (up + 1.0f);
  return gemm::activate<S.activation>(gate) * up;
}

// Both halves of a row of 2 * columns, or its even and odd columns; one becomes of two.
template <Config C>
__device__ __forceinline__ void load_gated(const Params& p, const Place& place, long long row, Values<C>& x) {
  constexpr RowStep S = C.chain.steps[source_step(C.chain)];
  constexpr int kVectors = vectors_of_thread(C), kApart = S.is_interleaved ? kVector : C.columns;
  Raw<C.dtype> first[kVectors], second[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = column_of<C>(place, j);
    first[j] = second[j] = zeros8<C.dtype>();
    if (row < 0 || (has_tail(C) && column >= C.columns)) continue;
    const long long at = start_of_row<C>(place, p.x_stride, p.x_stride_token) + (S.is_interleaved ? 2 : 1) * column;
    first[j] = load8<C.dtype>(p.x, at);
    second[j] = load8<C.dtype>(p.x, at + kApart);
  }
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if constexpr (S.is_interleaved) {
        const Raw<C.dtype>& raw = i < kVector / 2 ? first[j] : second[j];
        const int pair = 2 * (i % (kVector / 2));
        x.v[j][i] = gated<S>(element<C.dtype>(raw, pair), element<C.dtype>(raw, pair + 1));
      } else {
        x.v[j][i] = gated<S>(element<C.dtype>(first[j], i), element<C.dtype>(second[j], i));
      }
    }
  }
}

// A row's coefficients of mHC, from `first` on.
template <int kCount>
__device__ __forceinline__ void load_mix(const void* mix, long long row, int first, float (&coefficients)[kCount]) {
  const float* const from = static_cast<const float*>(mix) + row * kMixColumns + first;
#pragma unroll
  for (int i = 0; i < kCount; ++i) coefficients[i] = ptx::ld_global_f32_written(from + i);
}

// The streams of a row of x lie side by side.
template <Config C>
__device__ __forceinline__ void load_streams_of_x(const Params& p, const Place& place, int vector,
                                                  Raw<C.dtype> (&raw)[kStreams]) {
  const int column = column_of<C>(place, vector);
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    raw[s] = zeros8<C.dtype>();
    if (place.source >= 0 && (!has_tail(C) || column < C.columns))
      raw[s] = load8<C.dtype>(p.x, place.source * p.x_stride + static_cast<long long>(s) * C.columns + column);
  }
}

// Some vectors are on their way while the mix is made or read, and while those before are mixed.
template <Config C>
__device__ __forceinline__ void load_mixed(const Params& p, const Place& place, Values<C>& x) {
  constexpr int kVectors = vectors_of_thread(C), kMost = C.dtype == DType::f32 ? 1 : 2;
  constexpr int kAhead = begins_with_product(C.chain) && kVectors > 1 ? kMost : 1;
  PreSums sums = {};
  if constexpr (begins_with_product(C.chain)) sums = first_part<C>(p, place);
  Raw<C.dtype> raw[kAhead][kStreams];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) load_streams_of_x<C>(p, place, j, raw[j]);
  float pre[kStreams] = {};
  if constexpr (begins_with_product(C.chain)) {
    pre_of_sums<C>(p, sum_of_parts<C>(p, place, sums), pre);
  } else {
    if (place.is_live) load_mix(p.steps[source_step(C.chain)].in, place.row, 0, pre);
  }
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    Raw<C.dtype>(&of_vector)[kStreams] = raw[j % kAhead];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      float sum = pre[0] * element<C.dtype>(of_vector[0], i);
#pragma unroll
      for (int s = 1; s < kStreams; ++s) sum = fmaf(pre[s], element<C.dtype>(of_vector[s], i), sum);
      x.v[j][i] = sum;
    }
    if (j + kAhead < kVectors) load_streams_of_x<C>(p, place, j + kAhead, of_vector);
  }
}

// What a row's mix of the streams takes, in shared memory, stream after stream that comes out: post, comb of the four
// streams that go in, pre of the next layer. 24 registers a thread they would be otherwise.
template <Config C>
__device__ __forceinline__ float* remix_of_row(const StepParams& step, const Place& place) {
  extern __shared__ __align__(16) float row_sums[];
  float* const remix = row_sums + remix_at(C) / 4 + place.of_cta * kRemixFloats;
  constexpr int kThreads = C.threads_of_row / C.ctas_of_row;
  for (int i = place.thread % kThreads; i < kRemixFloats; i += kThreads) {
    const int to = i / kRemixOfStream, which = i % kRemixOfStream;
    const void* const from = which <= kStreams ? step.in2 : step.in3;
    const int at = which == 0 ? kMixPost + to : which <= kStreams ? kMixComb + (which - 1) * kStreams + to : to;
    remix[i] = place.is_live && which <= kStreams + 1
                   ? ptx::ld_global_f32_written(static_cast<const float*>(from) + place.row * kMixColumns + at)
                   : 0.0f;
  }
  __syncthreads();
  return remix;
}

template <Config C>
struct StreamsOfVector {
  Raw<C.dtype> made, streams[kStreams];
};

template <Config C>
__device__ __forceinline__ void load_streams(const Params& p, const Place& place, int vector, StreamsOfVector<C>& raw) {
  const StepParams& step = p.steps[source_step(C.chain)];
  const int column = column_of<C>(place, vector);
  const bool is_in_row = place.is_live && (!has_tail(C) || column < C.columns);
  raw.made = zeros8<C.dtype>();
  if (is_in_row && place.source >= 0) raw.made = load8<C.dtype>(p.x, place.source * p.x_stride + column);
#pragma unroll
  for (int s = 0; s < kStreams; ++s) {
    raw.streams[s] = zeros8<C.dtype>();
    if (is_in_row)
      raw.streams[s] =
          load8<C.dtype>(step.in, place.row * step.in_stride + static_cast<long long>(s) * C.columns + column);
  }
}

// x is what a layer made of the streams; they become the next layer's, whose mix of them stays as the row. The next
// vector is on its way while one is mixed.
template <Config C>
__device__ __forceinline__ void load_remixed(const Params& p, const Place& place, Values<C>& x) {
  const StepParams& step = p.steps[source_step(C.chain)];
  StreamsOfVector<C> next;
  load_streams<C>(p, place, 0, next);
  const float* const remix = remix_of_row<C>(step, place);
#pragma unroll
  for (int j = 0; j < vectors_of_thread(C); ++j) {
    const int column = column_of<C>(place, j);
    const bool is_in_row = place.is_live && (!has_tail(C) || column < C.columns);
    const StreamsOfVector<C> raw = next;
    if (j + 1 < vectors_of_thread(C)) load_streams<C>(p, place, j + 1, next);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = 0;
#pragma unroll
    for (int to = 0; to < kStreams; ++to) {
      const float4 first = *reinterpret_cast<const float4*>(remix + to * kRemixOfStream);
      const float4 last = *reinterpret_cast<const float4*>(remix + to * kRemixOfStream + 4);
      const float comb[kStreams] = {first.y, first.z, first.w, last.x};
      float stream[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        stream[i] = first.x * element<C.dtype>(raw.made, i);
#pragma unroll
        for (int s = 0; s < kStreams; ++s) stream[i] = fmaf(comb[s], element<C.dtype>(raw.streams[s], i), stream[i]);
        x.v[j][i] = fmaf(last.y, stream[i], x.v[j][i]);
      }
      if (is_in_row)
        store8<C.dtype>(step.out, place.row * step.out_stride + static_cast<long long>(to) * C.columns + column,
                        stream);
    }
  }
}

// Given scales of step kNumber and those behind it: where they are used, loads could no longer go out before x's.
template <Config C, int kNumber>
__device__ __forceinline__ void load_given_scales(const Params& p, Values<C>& x) {
  if constexpr (kNumber < step_count(C.chain)) {
    constexpr RowStep S = C.chain.steps[kNumber];
    if constexpr (S.kind == RowPart::scaled_8 && S.block < 0)
      x.given[kNumber] = ptx::ld_global_f32_written(static_cast<const float*>(p.steps[kNumber].in));
    load_given_scales<C, kNumber + 1>(p, x);
  }
}

// Step kNumber and those behind it.
template <Config C, int kNumber>
__device__ __forceinline__ void run_steps(const Params& p, const Place& place, Values<C>& x) {
  if constexpr (kNumber < step_count(C.chain)) {
    constexpr RowPart kKind = C.chain.steps[kNumber].kind;
    const StepParams& step = p.steps[kNumber];
    if constexpr (C.turns_of_row > 1) {
      if (place.pass < sums_before(C.chain, kNumber)) return;  // these turns' sum is made
      if constexpr (kKind == RowPart::store || kKind == RowPart::quantize)
        if (!makes_values<C>(place)) return run_steps<C, kNumber + 1>(p, place, x);
    }
    if constexpr (kKind == RowPart::residual) add_residual<C, kNumber>(step, place, x);
    if constexpr (kKind == RowPart::factor) multiply_by_factor<C, kNumber>(step, place, x);
    if constexpr (kKind == RowPart::rmsnorm) rmsnorm<C, kNumber>(step, place, p.eps, x);
    if constexpr (kKind == RowPart::layernorm) layernorm<C, kNumber>(step, place, p.eps, x);
    if constexpr (kKind == RowPart::rope) rope<C, kNumber>(step, place, x);
    if constexpr (kKind == RowPart::hadamard) hadamard<C, kNumber>(place, x);
    if constexpr (kKind == RowPart::softcap || kKind == RowPart::sigmoid || kKind == RowPart::sqrt_softplus)
      change_elements<C, kNumber>(place, x);
    if constexpr (kKind == RowPart::mhc_mix) mix<C, kNumber>(step, place, p.eps, x);
    if constexpr (kKind == RowPart::softmax) softmax<C, kNumber>(place, x);
    if constexpr (kKind == RowPart::store) store<C, kNumber>(p, place, x);
    if constexpr (kKind == RowPart::scaled_8) quantize_e4m3<C, kNumber>(p, place, x);
    if constexpr (kKind == RowPart::cache) store_token<C, kNumber>(p, place, x);
    if constexpr (kKind == RowPart::quantize) {
      quantize_blocks<C, kNumber>(p, place, x);
      if constexpr (C.chain.steps[kNumber].form == ScaleForm::tile) pad_scales<C, kNumber>(p, place);
    }
    run_steps<C, kNumber + 1>(p, place, x);
  }
}

template <Config C>
__device__ __forceinline__ void load_source(const Params& p, const Place& place, Values<C>& x) {
  constexpr RowPart kSource = source_of(C.chain);
  if constexpr (kSource == RowPart::gate) {
    load_gated<C>(p, place, place.source, x);
  } else if constexpr (kSource == RowPart::mhc_pre) {
    load_mixed<C>(p, place, x);
  } else if constexpr (kSource == RowPart::mhc_post) {
    load_remixed<C>(p, place, x);
  } else if constexpr (kSource == RowPart::combine) {
    load_combined<C>(p, place, x);
  } else if constexpr (kSource == RowPart::compress) {
    load_compressed<C>(p, place, x);
  } else if constexpr (kSource == RowPart::dequant) {
    load_dequantized<C>(p, place, x);
  } else {
    load_row<C>(p, place, x);
  }
}

// Behind the last turn for a sum: that of the row's threads.
template <Config C, int kNumber>
__device__ __forceinline__ void end_pass(const Place& place) {
  constexpr int kSums = sums_before(C.chain, kMaxRowSteps);
  if constexpr (kNumber < kSums) {
    if (place.pass == kNumber)
      place.sums[kNumber] = over_threads<C, kNumber, is_largest(C.chain, kNumber)>(place, place.sums[kSums]);
    end_pass<C, kNumber + 1>(place);
  }
}

// A row in turns. A thread's number counts on from turn to turn, as if it were that of another thread.
template <Config C>
__device__ __forceinline__ void chain_in_turns(const Params& p, Place place, Values<C>& x) {
  constexpr int kSums = sums_before(C.chain, kMaxRowSteps);
  const int thread = place.thread;
  float sums[kSums + 1] = {};
  place.sums = sums;
#pragma unroll 1
  for (place.pass = 0; place.pass <= kSums; ++place.pass) {
#pragma unroll 1
    for (int turn = 0; turn < C.turns_of_row; ++turn) {
      place.turn = turn;
      place.thread = thread + turn * vectors_of_thread(C) * C.threads_of_row;
      load_source<C>(p, place, x);
      run_steps<C, 0>(p, place, x);
    }
    place.thread = thread;
    end_pass<C, 0>(place);
  }
}

template <Config C>
__device__ __forceinline__ void chain_of_row(const Params& p) {
  if constexpr (has_shared_sums(C)) begin_shared_sums<C>();
  ptx::griddepcontrol_wait();
  const Place place = place_of_thread<C>(p);
  Values<C> x;
  load_given_scales<C, 0>(p, x);
  if constexpr (C.turns_of_row > 1) return chain_in_turns<C>(p, place, x);
  if constexpr (loads_weights_first(C)) load_first_weights<C, 0>(p, place, x);
  load_source<C>(p, place, x);
  run_steps<C, 0>(p, place, x);
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  ptx::griddepcontrol_launch_dependents();  // the next launch may get ready; it waits for the end of this one
  if constexpr (ends_in_product(C.chain)) {
    ptx::griddepcontrol_wait();
    if constexpr (shares_tiles(C)) return multiply_few_streams<C>(p);
    multiply_streams<C>(p);
    return;
  }
  if constexpr (begins_with_product(C.chain)) {
    if (static_cast<int>(blockIdx.x) < mix_ctas(C, p.rows)) {
      ptx::griddepcontrol_wait();
      return make_mixes<C>(p);
    }
  }
  chain_of_row<C>(p);
}

}  // namespace tessera::rows

// The body of row operators: a row from its loads through the parts of the chain to its stores. In and out: see
// spec/rows.h.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/griddepcontrol.cuh"
#include "rows/sinks.cuh"
#include "rows/steps.cuh"

namespace tessera::rows {

// Row `row` of x as it is, without a gate.
template <Config C>
__device__ __forceinline__ void load_row(const Params& p, const Place& place, long long row, Values<C>& x) {
  constexpr int kVectors = vectors_of_thread(C);
  Raw<C.dtype> raw[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = column_of<C>(place, j);
    raw[j] = zeros8<C.dtype>();
    if (row >= 0 && (!has_tail(C) || column < C.columns)) raw[j] = load8<C.dtype>(p.x, row * p.x_stride + column);
  }
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x.v[j][i] = element<C.dtype>(raw[j], i);
  }
}

template <RowStep S>
__device__ __forceinline__ float gated(float gate, float up) {
  if constexpr (S.limit > 0) {
    constexpr float kLimit = S.limit;
    gate = fminf(gate, kLimit);
    up = fmaxf(fminf(up, kLimit), -kLimit);
  }
  return gemm::activate<S.activation>(gate) * up;
}

// Both halves of a row of 2 * columns, or its even and odd columns; one becomes of two.
template <Config C>
__device__ __forceinline__ void load_gated(const Params& p, const Place& place, long long row, Values<C>& x) {
  constexpr RowStep S = gate_of(C.chain);
  constexpr int kVectors = vectors_of_thread(C), kApart = S.is_interleaved ? kVector : C.columns;
  Raw<C.dtype> first[kVectors], second[kVectors];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int column = column_of<C>(place, j);
    first[j] = second[j] = zeros8<C.dtype>();
    if (row < 0 || (has_tail(C) && column >= C.columns)) continue;
    const long long at = row * p.x_stride + (S.is_interleaved ? 2 : 1) * column;
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

// Step kNumber and those behind it.
template <Config C, int kNumber>
__device__ __forceinline__ void run_steps(const Params& p, const Place& place, Values<C>& x) {
  if constexpr (kNumber < step_count(C.chain)) {
    constexpr RowPart kKind = C.chain.steps[kNumber].kind;
    const StepParams& step = p.steps[kNumber];
    if constexpr (kKind == RowPart::residual) add_residual<C, kNumber>(step, place, x);
    if constexpr (kKind == RowPart::factor) multiply_by_factor<C, kNumber>(step, place, x);
    if constexpr (kKind == RowPart::rmsnorm) rmsnorm<C, kNumber>(step, place, p.eps, x);
    if constexpr (kKind == RowPart::layernorm) layernorm<C, kNumber>(step, place, p.eps, x);
    if constexpr (kKind == RowPart::rope) rope<C, kNumber>(place, place.position, x);
    if constexpr (kKind == RowPart::hadamard) hadamard<C, kNumber>(place, x);
    if constexpr (kKind == RowPart::store) store<C, kNumber>(p, place, x);
    if constexpr (kKind == RowPart::scaled_8) quantize_e4m3<C, kNumber>(p, place, x);
    if constexpr (kKind == RowPart::quantize) {
      quantize_blocks<C, kNumber>(p, place, x);
      if constexpr (C.chain.steps[kNumber].form == ScaleForm::tile) pad_scales<C, kNumber>(p, place);
    }
    run_steps<C, kNumber + 1>(p, place, x);
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  ptx::griddepcontrol_launch_dependents();  // the next launch may get ready; it waits for the end of this one
  ptx::griddepcontrol_wait();
  const Place place = place_of_thread<C>(p);
  Values<C> x;
  if constexpr (has_part(C.chain, RowPart::gate)) {
    load_gated<C>(p, place, place.source, x);
  } else {
    load_row<C>(p, place, place.source, x);
  }
  run_steps<C, 0>(p, place, x);
}

}  // namespace tessera::rows

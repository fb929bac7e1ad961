// The product of one ring slot: issue only; the caller waits. Fragment layout of a block's accumulators (row, column)
// of value v in thread t of the warpgroup: row 16 (t / 32) + t % 32 / 4 + 8 (v / 2 % 2), column 8 (v / 4) + 2 (t % 4) +
// v % 2.
#pragma once

#include "ptx/wgmma.cuh"
#include "spec/gemm.h"
#include "spec/matrix_descriptor.h"

namespace tessera::gemm {

// 64 rows of a tile.
template <Config C>
using Block = float[C.tile_n / 2];
// The same of one instruction.
template <Config C>
using OfInstruction = float[instruction_columns(C) / 2];
// All rows of a warpgroup.
template <Config C>
using Accumulators = float[blocks(C)][C.tile_n / 2];

template <WgmmaShape kShape>
using MmaOf = ptx::Wgmma<kShape.n, kShape.dtype, kShape.a_in_registers, kShape.b_is_mn_major, kShape.steps,
                         kShape.a_is_mn_major, kShape.b_dtype>;
template <Config C>
using Mma = MmaOf<wgmma_shape(C)>;

// Descriptors of 64 rows of a slot's A, which begin at `a`, and of an instruction's columns of its B. 64 rows of A are
// one panel in either layout, and K-major panels have no second one along K.
template <Config C>
__device__ __forceinline__ unsigned long long descriptor_of_a(unsigned a) {
  return a_layout(C) == Layout::mn_major ? mn_major_descriptor(a, tile_k(C), Swizzle::b128)
                                         : k_major_descriptor(a, kBlockRows, Swizzle::b128);
}
template <Config C>
__device__ __forceinline__ unsigned long long descriptor_of_b(unsigned b) {
  return b_layout(C) == Layout::mn_major ? mn_major_descriptor(b, tile_k(C), Swizzle::b128)
                                         : k_major_descriptor(b, instruction_columns(C), Swizzle::b128);
}

// Adds the product of 64 rows of A and a B to `block`; replaces it if `accumulate` is 0.
template <Config C>
__device__ __forceinline__ void issue_block(OfInstruction<C>& block, unsigned long long of_a, unsigned long long of_b,
                                            int accumulate) {
  constexpr bool kAIsMnMajor = a_layout(C) == Layout::mn_major;
  constexpr bool kBIsMnMajor = b_layout(C) == Layout::mn_major;
  unsigned long long a_steps[kStepsOfStage], b_steps[kStepsOfStage];
#pragma unroll
  for (int i = 0; i < kStepsOfStage; ++i) {
    a_steps[i] = advance_descriptor(of_a, kAIsMnMajor ? mn_major_step_bytes(i, Swizzle::b128) : 32 * i);
    b_steps[i] = advance_descriptor(of_b, kBIsMnMajor ? mn_major_step_bytes(i, Swizzle::b128) : 32 * i);
  }
  Mma<C>::mma(block, a_steps, b_steps, accumulate);
}

// The operands of a step as descriptors of 8-bit, K-major ones: those of slots differ in their low words. They are
// moved to the next slot while products are on their way: made between two steps' products, by ten instructions of
// which each waits for the last, they took 4 % of a product of 4,096 rows on an H200.
template <Config C>
struct StepOperands {
  const unsigned long long first_a, first_b;  // of slot 0
  unsigned low_a, low_b;

  __device__ __forceinline__ StepOperands(unsigned long long a, unsigned long long b) : first_a(a), first_b(b) {}

  __device__ __forceinline__ void move_to(int slot) {
    low_a = static_cast<unsigned>(first_a) + slot * (a_slot_bytes(C) >> 4);
    low_b = static_cast<unsigned>(first_b) + slot * (b_slot_bytes(C) >> 4);
    asm volatile("" : "+r"(low_a), "+r"(low_b));  // no later than here
  }
  // 64 rows of A, and an instruction's columns of B.
  __device__ __forceinline__ unsigned long long a(int block) const {
    return advance_descriptor(first_a >> 32 << 32 | low_a, block * kBlockRows * kStepBytes);
  }
  __device__ __forceinline__ unsigned long long b(int part) const {
    return advance_descriptor(first_b >> 32 << 32 | low_b, part * instruction_columns(C) * kStepBytes);
  }
};

template <Config C>
__device__ __forceinline__ void hold(Accumulators<C>& accumulators) {
#pragma unroll
  for (int i = 0; i < blocks(C); ++i) Mma<C>::hold(accumulators[i]);
}

template <Config C>
__device__ __forceinline__ void clear(Accumulators<C>& accumulators) {
#pragma unroll
  for (int i = 0; i < blocks(C); ++i) {
#pragma unroll
    for (int v = 0; v < C.tile_n / 2; ++v) accumulators[i][v] = 0.0f;
  }
}

}  // namespace tessera::gemm

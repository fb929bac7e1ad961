// A consumer warpgroup: its blocks of 64 columns of D, from the ring to D.
//
// Products come in groups of 64 of k for a block. While one is made the weights of the next are widened into other
// registers; a group is waited for once the next is issued, because the tensor cores read the weights from the
// registers until then. A slot is free when the first group of the next one was issued and waited for. Warpgroups that
// share a block take turns with the slots, each its own ones.
#pragma once

#include "common/ring.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/matmul.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "gemm_weights/split.cuh"
#include "gemm_weights/store.cuh"
#include "gemm_weights/widen.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "spec/gemm_weights.h"
#include "spec/matrix_descriptor.h"

namespace tessera::gemm_weights {

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kBlocks = blocks(C);
  static constexpr gemm::Config kEpilogue = epilogue_config(C);
  using Mma = gemm::MmaOf<wgmma_shape(C)>;
  using Accumulators = gemm::Accumulators<kEpilogue>;

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  // Taken from lane 0, so that the compiler knows one value for the warp and can keep addresses in uniform registers.
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0) - 1;
  const int group = warpgroup % k_groups(C);
  const int first_block = warpgroup / k_groups(C) * kBlocks;
  common::RingPosition<C.stages> ring{0, 0};  // where the tile's slots begin

  __device__ __forceinline__ void wait(const common::RingPosition<C.stages>& at) const {
    ptx::mbarrier_wait_parity(common::barrier_at<kBarriers.full>(smem, at.slot), at.parity);
  }
  // Once all lanes have read what they take from the slot themselves.
  __device__ __forceinline__ void release(int slot) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      ptx::mbarrier_arrive(common::empty_behind<C.stages>(common::barrier_at<kBarriers.full>(smem, slot)));
  }
  __device__ __forceinline__ PackedBlock<C> block_of(int slot, int i) const {
    return PackedBlock<C>(smem + kLayout.b.offset + slot * b_slot_bytes(C) +
                          (first_block + i) * weight_block_bytes(weights(C)));
  }
  // To the group's next slot; a lap is whole rounds of the groups.
  static __device__ __forceinline__ void advance(common::RingPosition<C.stages>& at) {
    at.slot += k_groups(C);
    if (at.slot >= C.stages) {
      at.slot -= C.stages;
      at.parity ^= 1;
    }
  }

  template <int kHalf>
  __device__ __forceinline__ void issue(float (&sums)[C.tile_m / 2], const unsigned (&a)[kStepsOfHalf][4],
                                        int slot) const {
    const unsigned panel = smem + kLayout.a.offset + slot * a_slot_bytes(C) + kHalf * panel_bytes(C);
    const unsigned long long of_b = k_major_descriptor(panel, C.tile_m, Swizzle::b128);
    unsigned long long steps[kStepsOfHalf];
#pragma unroll
    for (int i = 0; i < kStepsOfHalf; ++i) steps[i] = advance_descriptor(of_b, 32 * i);
    ptx::wgmma_fence();
    Mma::mma(sums, a, steps, 1);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
  }

  // Codes and scales of a block are fetched before the products of the one before are waited for.
  __device__ __forceinline__ void multiply(Accumulators& accumulators) {
    // Sums begin with zeros, not with a product that overwrites: a part of K without a step has no path of its own, on
    // which the compiler would keep all sums a second time.
    gemm::clear<kEpilogue>(accumulators);
    const int steps = schedule.k_end - schedule.k_begin;
    common::RingPosition<C.stages> at = ring;
    at.slot += group;  // a tile's slots begin with a whole round
    int step = group;
    if (step < steps) {
      wait(at);
      PackedBlock<C> next = block_of(at.slot, 0);
      int previous = at.slot;
#pragma unroll 1
      for (; step < steps; step += k_groups(C)) {
        common::RingPosition<C.stages> following = at;
        advance(following);
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          const PackedBlock<C> block = next;
          unsigned first[kStepsOfHalf][4], second[kStepsOfHalf][4];
          block.template widen<0>(first);
          issue<0>(accumulators[i], first, at.slot);
          if (i == 0 && step != group) release(previous);
          block.template widen<1>(second);
          if (i + 1 < kBlocks) {
            next = block_of(at.slot, i + 1);
          } else if (step + k_groups(C) < steps) {
            wait(following);
            next = block_of(following.slot, 0);
          }
          issue<1>(accumulators[i], second, at.slot);
        }
        previous = at.slot;
        at = following;
      }
      ptx::wgmma_wait_group<0>();
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) Mma::hold(accumulators[i]);
      release(previous);
    }
    // The last round may be without a step for this group.
    if (step < schedule.slots()) {
      wait(at);
      release(at.slot);
    }
    ring.advance(schedule.slots());
  }

  // For the epilogue N is M: D leaves transposed.
  __device__ __forceinline__ gemm::Params epilogue_params() const {
    const float alpha = factor_of<C>(p);
    return {p.d, p.d, p.d, p.d_pointer, p.c,   p.bias,       nullptr, nullptr,      {},    {},
            p.n, p.m, p.k, p.l,         p.ldd, p.d_stride_l, p.ldc,   p.c_stride_l, alpha, p.beta};
  }

  // fp32, and gates: eight lanes write neighbours.
  __device__ __forceinline__ void store_from_registers(const gemm::Params& params, const Accumulators& accumulators,
                                                       int column, const Tile& tile) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = column + static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if constexpr (is_gated(C)) {
#pragma unroll
        for (int v = 0; v < C.tile_m / 2; v += 4)
          store_gated<C>(p, &accumulators[i][v], params.alpha, first - lane / 4 + i * kWeightRows, v * 2, tile);
      } else {
#pragma unroll
        for (int v = 0; v < C.tile_m / 2; v += 2) {
          const int of_n = first + i * kWeightRows + v / 2 % 2 * 8, of_m = tile.row + v / 4 * 8 + lane % 4 * 2;
          float pair[2] = {accumulators[i][v], accumulators[i][v + 1]};
          gemm::finish_pair<C.facts, DType::f32, true>(pair, params, params.alpha, of_n, p.n, of_m, tile.batch,
                                                       tile.b_batch);
          const long long at = tile.batch * p.d_stride_l + of_m * p.ldd + of_n;
          if (of_n < p.n && of_m < tile.row_end) store_element<C>(p, at, pair[0]);
          if (of_n < p.n && of_m + 1 < tile.row_end) store_element<C>(p, at + p.ldd, pair[1]);
        }
      }
    }
  }

  __device__ __forceinline__ void run() {
    Accumulators accumulators;
    gemm::Params params = epilogue_params();
    gemm::Epilogue<kEpilogue> epilogue{params, smem + kLayout.d.offset - gemm::smem_layout(kEpilogue).d.offset,
                                       warpgroup};
    epilogue.row_end = p.n;
    Parts<C> parts{smem, first_block, group, schedule.rank};
    schedule.begin();
#pragma unroll 1
    for (int item = schedule.first(); schedule.has(item); item += schedule.stride()) {
      multiply(accumulators);
      const Tile tile = schedule.at(item);
      if constexpr (is_grouped(C)) params.n = tile.row_end;  // rows of D that the tile may have
      if constexpr (gemm_weights::parts(C) > 1) {
        if (!parts.is_owner()) {
          parts.share(accumulators[0]);
          continue;
        }
        parts.add_up(accumulators[0]);
      }
      if constexpr (C.facts.bias == Bias::group) epilogue.group = tile.b_batch;
      const int column = tile.column + first_block * kWeightRows;
      if constexpr (has_d_map(C)) {
        epilogue.ask_for_addend(column, tile.row, tile.batch);
        epilogue.store(gemm::WholeSums<kEpilogue>{accumulators}, column, tile.row, tile.batch);
      } else {
        store_from_registers(params, accumulators, column, tile);
      }
    }
    if constexpr (has_d_map(C)) epilogue.finish();
    if constexpr (gemm_weights::parts(C) > 1) parts.finish();
  }
};

}  // namespace tessera::gemm_weights

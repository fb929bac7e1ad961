// A consumer warp with mma.f16: blocks of 64 columns of D, each for one warp of every group, whose steps of 128 along K
// the groups take in turn. Weights reach it through a ring of its own, a block at a time: nothing but the warp's lanes
// has to meet for them. Activations come from the CTA's ring.
//
// mma.sync m16n8k16 takes its A as wgmma does, so the packed layout serves both; B are eight rows of activations, by
// ldmatrix, K-major with a swizzle of 128 bytes: the rows of a matrix lie in different banks. A fragment of B serves
// four of A.
#pragma once

#include "common/ring.cuh"
#include "gemm_weights/direct_split.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "gemm_weights/store.cuh"
#include "gemm_weights/widen.cuh"
#include "ptx/bulk.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

template <Config C>
struct DirectConsumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kDepth = direct_depth(C);
  static constexpr int kGroups = k_groups(C);
  static constexpr int kOctets = C.tile_m / 8;  // rows of D that an instruction takes
  static constexpr int kBlockBytes = weight_block_bytes(weights(C));
  using Sums = DirectSums<C>;
  using Scales = BlockScales<C>[kDirectParts];

  // Codes of 64 of k.
  struct Half {
    ptx::Words4 codes[kDirectParts];
  };
  // Activations of two instructions along k.
  struct Fragments {
    unsigned b[2][kOctets][2];
  };

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int block = warp % blocks_of_tile(C);
  const int group = warp / blocks_of_tile(C);
  const int blocks_n = (p.n - 1) / kWeightRows + 1;
  const int steps = Schedule<C>::steps_of(p.k);
  const int count = schedule.k_end - schedule.k_begin;  // of a tile, all groups
  const unsigned fragment = smem + kLayout.a.offset + fragment_offset();
  const unsigned own = smem + kLayout.b.offset + warp * kDepth * kBlockBytes;
  common::RingPosition<C.stages> ring{0, 0};  // of activations: where the tile's slots begin
  common::RingPosition<kDepth> blocks{0, 0};  // of weights: the block that is read next
  // Lane 0: the block that is loaded next.
  common::RingPosition<kDepth> next{0, 0};
  Schedule<C> next_schedule{p};
  int next_item = count > group ? schedule.first() : schedule.end();
  int next_step = group;
  const char* next_block = nullptr;

  // Of this lane: its row of the matrix that it names. One octet: matrices lie along k, two instructions' worth; more:
  // two of an instruction, for each of two octets.
  __device__ __forceinline__ unsigned fragment_offset() const {
    const unsigned row = lane % 8, matrix = lane / 8;
    if constexpr (kOctets == 1) return row * kPanelBytes + (matrix ^ row) * 16;
    return (matrix / 2 * 8 + row) * kPanelBytes + (matrix % 2 ^ row) * 16;
  }
  __device__ __forceinline__ unsigned loaded(int slot) const {
    return common::barrier_at<kBarriers.loaded>(smem, warp * kDepth + slot);
  }

  // Lane 0. Blocks behind the last are that one again.
  __device__ __forceinline__ void begin_next_item() {
    if (!next_schedule.has(next_item)) next_item = schedule.end();
    if (next_item >= schedule.end()) return;
    const Tile tile = next_schedule.at(next_item);
    const int of_n = min(tile.column / kWeightRows + block, blocks_n - 1);
    const long long at = (static_cast<long long>(tile.b_batch) * blocks_n + of_n) * steps + schedule.k_begin + group;
    next_block = static_cast<const char*>(p.b) + at * kBlockBytes;
    next_step = group;
  }
  __device__ __forceinline__ void load_block() {
    if (next_item >= schedule.end()) return;
    const unsigned full = loaded(next.slot);
    const unsigned long long policy = next_schedule.reads_weights_once() ? ptx::kEvictFirst : ptx::kEvictNormal;
    ptx::mbarrier_arrive_expect_tx(full, kBlockBytes);
    ptx::bulk_load_with_policy(own + next.slot * kBlockBytes, next_block, kBlockBytes, full, policy);
    next.advance();
    next_block += kGroups * kBlockBytes;
    next_step += kGroups;
    if (next_step >= count) {
      next_item += schedule.stride();
      begin_next_item();
    }
  }
  // The first blocks, before the CTA has met: the warp's own barriers.
  __device__ __forceinline__ void start() {
    if constexpr (is_grouped(C)) {
      ptx::griddepcontrol_wait();
      schedule.begin();
      next_schedule.begin_at(schedule);
    }
    if (lane == 0) {
#pragma unroll 1
      for (int i = 0; i < kDepth; ++i) ptx::mbarrier_init(loaded(i), 1);
      ptx::fence_mbarrier_init();
      begin_next_item();
      ptx::griddepcontrol_wait();
#pragma unroll 1
      for (int i = 0; i < kDepth; ++i) load_block();
    }
    __syncwarp();
  }

  __device__ __forceinline__ Half load_half(unsigned of_block, int half) const {
    Half codes;
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i)
      codes.codes[i] = ptx::ld_shared_v4(of_block + ((half * kDirectParts + i) * 32 + lane) * 16);
    return codes;
  }
  __device__ __forceinline__ void load_scales(unsigned of_block, Scales& scales) const {
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i) scales[i] = BlockScales<C>(of_block + kWeightCodeBytes, i * 8 + lane / 4);
  }
  // From byte 64 * pair of a panel on.
  __device__ __forceinline__ Fragments load_fragments(unsigned panel, int pair) const {
    Fragments f;
    if constexpr (kOctets == 1) {
      unsigned r[4];
      ptx::ldmatrix_x4(panel ^ (64 * pair), r);
#pragma unroll
      for (int i = 0; i < 4; ++i) f.b[i / 2][0][i % 2] = r[i];
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < kOctets; j += 2) {
          unsigned r[4];
          ptx::ldmatrix_x4((panel ^ (64 * pair + 32 * i)) + j * 8 * kPanelBytes, r);
          f.b[i][j][0] = r[0];
          f.b[i][j][1] = r[1];
          f.b[i][j + 1][0] = r[2];
          f.b[i][j + 1][1] = r[3];
        }
      }
    }
    return f;
  }

  template <int kStep>
  __device__ __forceinline__ void multiply_step(Sums& sums, const Half& codes, const Scales& scales,
                                                const unsigned (&b)[kOctets][2]) const {
#pragma unroll
    for (int i = 0; i < kDirectParts; ++i) {
      unsigned a[4];
      constexpr int kFirst = kStep % kStepsOfHalf / 2 * 2;  // of the pair of words
      widen_step<C, kStep>(word_of<kFirst>(codes.codes[i]), word_of<kFirst + 1>(codes.codes[i]), scales[i], a);
#pragma unroll
      for (int j = 0; j < kOctets; ++j) ptx::mma_m16n8k16<a_dtype(C)>(sums.of[i][j], a, b[j][0], b[j][1]);
    }
  }
  template <int kHalf>
  __device__ __forceinline__ void multiply_half(Sums& sums, const Half& codes, const Scales& scales,
                                                unsigned panel) const {
    constexpr int kStep = kHalf * kStepsOfHalf;
    const Fragments first = load_fragments(panel, 0);
    multiply_step<kStep>(sums, codes, scales, first.b[0]);
    const Fragments second = load_fragments(panel, 1);
    multiply_step<kStep + 1>(sums, codes, scales, first.b[1]);
    multiply_step<kStep + 2>(sums, codes, scales, second.b[0]);
    multiply_step<kStep + 3>(sums, codes, scales, second.b[1]);
  }

  __device__ __forceinline__ void wait_for_block() const {
    ptx::mbarrier_wait_parity(loaded(blocks.slot), blocks.parity);
  }
  // All of it is in registers.
  __device__ __forceinline__ void release_block() {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) load_block();
  }
  __device__ __forceinline__ unsigned block_address() const { return own + blocks.slot * kBlockBytes; }
  __device__ __forceinline__ void arrive(int slot) const {
    ptx::mbarrier_arrive(common::empty_behind<C.stages>(common::barrier_at<kBarriers.full>(smem, slot)));
  }
  static __device__ __forceinline__ void advance(common::RingPosition<C.stages>& at) {
    at.slot += kGroups;
    if (at.slot >= C.stages) {
      at.slot -= C.stages;
      at.parity ^= 1;
    }
  }
  __device__ __forceinline__ void wait_for_slot(const common::RingPosition<C.stages>& at, bool has_loaded) const {
    if (!has_loaded) ptx::mbarrier_wait_parity(common::barrier_at<kBarriers.full>(smem, at.slot), at.parity);
  }

  // The rows of factors that this lane's two rows of A in each eight have, if the kernel has any; -1: none.
  struct FactorRows {
    const float* matrix;
    int of[kOctets][2];

    FactorRows() = default;
    __device__ __forceinline__ FactorRows(const Params& p, const Tile& tile, int lane)
        : matrix(p.sfa + (is_gathered(C) ? 0 : tile.batch * p.sfa_stride_l)) {
#pragma unroll
      for (int i = 0; i < 2 * kOctets; ++i) {
        int row = tile.row + i / 2 * 8 + lane % 4 * 2 + i % 2;
        bool is_row = row < tile.row_end;
        if constexpr (is_gathered(C)) {
          if (is_row) row = p.indices[static_cast<long long>(tile.batch) * p.m + row];
          is_row = is_row && row >= 0 && row < p.a_rows;
        }
        of[i / 2][i % 2] = is_row ? row : -1;
      }
    }
  };
  // Of a step of 128 of k.
  struct Factors {
    float of[kOctets][2];

    __device__ __forceinline__ Factors(const Params& p, const FactorRows& rows, int step) {
      if constexpr (has_factors(C)) {
#pragma unroll
        for (int i = 0; i < 2 * kOctets; ++i) {
          const int row = rows.of[i / 2][i % 2];
          of[i / 2][i % 2] = row >= 0 ? rows.matrix[row * p.sfa_stride_m + step * p.sfa_stride_k] : 0.0f;
        }
      }
    }
    __device__ __forceinline__ void add(Sums& sums, const Sums& of_step) const {
#pragma unroll
      for (int i = 0; i < kDirectParts; ++i) {
#pragma unroll
        for (int j = 0; j < kOctets; ++j) {
#pragma unroll
          for (int v = 0; v < 4; ++v) sums.of[i][j][v] = fmaf(of_step.of[i][j][v], of[j][v % 2], sums.of[i][j][v]);
        }
      }
    }
  };

  // A block's second half is read once the first is multiplied, and its slot given back then: the next block is on its
  // way while the second half is multiplied, and a warp that waits keeps no slot.
  __device__ __forceinline__ void multiply(Sums& sums, const FactorRows& rows, bool has_loaded) {
    const bool is_resident = schedule.is_resident();
    if (is_resident) ring = {0, 0};
    common::RingPosition<C.stages> at = ring;
    at.slot += group;  // a tile's slots begin with a whole round
    int step = group;
    if (step < count) {
#pragma unroll 1
      for (; step < count; step += kGroups) {
        wait_for_block();
        Scales scales;
        load_scales(block_address(), scales);
        const Half first = load_half(block_address(), 0);
        wait_for_slot(at, has_loaded);
        const unsigned panel = fragment + at.slot * a_slot_bytes(C);
        Sums of_step{};
        Sums& added = has_factors(C) ? of_step : sums;
        multiply_half<0>(added, first, scales, panel);
        const Half second = load_half(block_address(), 1);
        release_block();
        blocks.advance();
        const Factors factors(p, rows, schedule.k_begin + step);  // on their way beside the second half
        multiply_half<1>(added, second, scales, panel + panel_bytes(C));
        if constexpr (has_factors(C)) factors.add(sums, of_step);
        if (!is_resident) {
          // Products, and with them the loads that only they need, may be moved behind an arrival, but not behind the
          // fence.
          ptx::fence_proxy_async_shared();
          __syncwarp();
          if (lane == 0) arrive(at.slot);
        }
        advance(at);
      }
      ptx::fence_proxy_async_shared();  // also where the slots stay: before the arrivals of the sums
    }
    // The last round may be without a step for this group.
    if (!is_resident && step < schedule.slots()) {
      wait_for_slot(at, false);
      __syncwarp();
      if (lane == 0) arrive(at.slot);
    }
    if (!is_resident) ring.advance(schedule.slots());
  }

  __device__ __forceinline__ void run() {
    DirectSplit<C> split{smem, block, group, lane, schedule.rank};
    bool has_loaded = false;
#pragma unroll 1
    for (int item = schedule.first(); schedule.has(item); item += schedule.stride()) {
      Sums sums{};
      if constexpr (has_factors(C)) {
        multiply(sums, FactorRows(p, schedule.at(item), lane), has_loaded);
      } else {
        multiply(sums, FactorRows(), has_loaded);
      }
      has_loaded = schedule.is_resident();
      if constexpr (parts(C) > 1) split.send_all(sums);
      const Tile tile = schedule.at(item);
      const int column = tile.column + block * kWeightRows;
      if constexpr (parts(C) > 1) split.receive(sums);
#pragma unroll
      for (int i = 0; i < kDirectParts; ++i)
        if (split.is_owner(i)) store_sums<C>(p, sums.of[i], column + i * kDirectRows, tile);
      if constexpr (parts(C) > 1) split.release(schedule.has(item + schedule.stride()));
    }
  }
};

}  // namespace tessera::gemm_weights

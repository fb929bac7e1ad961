// A consumer warpgroup: its rows of each tile, from the ring to D.
//
// Without promotion the products of step i are issued before those of step i - 1 are waited for, so the tensor cores
// always have the next step; the slot of step i - 1 is released then. With promotion (8-bit operands) the products of a
// step go into registers of their own and are added to the sums in fp32: that waits for the step itself, and the other
// warpgroup keeps the tensor cores busy meanwhile. With scale blocks they are multiplied by their factors on the way
// (scales.cuh).
//
// With ping-pong warpgroup w takes every second tile, and passes over the slots of the others. A barrier's parity only
// tells a phase from its neighbours, so a warpgroup may not wait for its first slot before the other has seen all of
// its own: they pass a token, once a tile.
#pragma once

#include "common/ring.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/gate.cuh"
#include "gemm/matmul.cuh"
#include "gemm/params.cuh"
#include "gemm/scales.cuh"
#include "gemm/schedule.cuh"
#include "gemm/split.cuh"
#include "ptx/cluster.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/wgmma.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr int kBlocks = blocks(C);
  static constexpr int kParts = instructions_of_block(C);  // more than one with promoted sums alone

  const Params& p;
  const unsigned smem;
  const Barriers barriers = barriers_at<C>(smem);
  TileSchedule<C, Walker::warp> schedule{p};
  // Taken from lane 0, so that the compiler knows one value for the warp and can keep addresses in uniform registers.
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0) - 1;
  const int first_block = is_ping_pong(C) ? 0 : warpgroup * kBlocks;
  common::RingPosition<C.stages> ring{};

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (is_ping_pong(C)) ptx::barrier_sync(kBarrierOfTurn + warpgroup, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (is_ping_pong(C)) ptx::barrier_arrive(kBarrierOfTurn + 1 - warpgroup, 2 * kWarpgroupThreads);
  }

  // One arrival of each warp, at every CTA that loads into this slot.
  __device__ __forceinline__ void release(int slot) const {
    const unsigned empty = common::empty_behind<C.stages>(barriers.full[slot]);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (multicast_size(C) == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty);
    } else {
      const ClusterPlace<C>& place = schedule.place;
      const bool is_source = lane / C.cluster_n == place.m || lane % C.cluster_n == place.n;
      if (lane < multicast_size(C) && is_source)
        ptx::mbarrier_arrive_cluster(ptx::mapa(empty, place.k * multicast_size(C) + lane));
    }
  }

  __device__ __forceinline__ unsigned long long a_of(int slot, int block) const {
    return descriptor_of_a<C>(smem + kLayout.a.offset + slot * a_slot_bytes(C) +
                              (first_block + block) * kBlockRows * kStepBytes);
  }
  // `part`: whose columns an instruction takes, where one does not take all.
  __device__ __forceinline__ unsigned long long b_of(int slot, int part = 0) const {
    return descriptor_of_b<C>(smem + kLayout.b.offset + slot * b_slot_bytes(C) +
                              part * instruction_columns(C) * kStepBytes);
  }

  // `before_end` is called while the last products are on their way.
  template <class BeforeEnd>
  __device__ __forceinline__ void multiply(Accumulators<C>& accumulators, const BeforeEnd& before_end) {
    int previous = 0;
#pragma unroll 1
    for (int step = 0; step < schedule.steps(); ++step) {
      ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) issue_block<C>(accumulators[i], a_of(ring.slot, i), b_of(ring.slot), step != 0);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>();
      if (step != 0) release(previous);
      previous = ring.slot;
      ring.advance();
    }
    pass_turn();
    before_end();
    ptx::wgmma_wait_group<0>();
    hold<C>(accumulators);
    release(previous);
  }

  __device__ __forceinline__ void multiply_promoted(Accumulators<C>& accumulators) {
    constexpr int kOfPart = instruction_columns(C) / 2;
    OfInstruction<C> of_step;
    clear<C>(accumulators);
#pragma unroll 1
    for (int step = 0; step < schedule.steps(); ++step) {
      ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
#pragma unroll
      for (int i = 0; i < kBlocks * kParts; ++i) {
        const int block = i / kParts, part = i % kParts;
        ptx::wgmma_fence();
        issue_block<C>(of_step, a_of(ring.slot, block), b_of(ring.slot, part), 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        Mma<C>::hold(of_step);
        if (i == kBlocks * kParts - 1) release(ring.slot);
#pragma unroll
        for (int v = 0; v < kOfPart; ++v) accumulators[block][part * kOfPart + v] += of_step[v];
      }
      ring.advance();
    }
    pass_turn();
  }

  // What is read for a block's sums is read while the products before it are on their way: a wait for shared memory
  // before or among its own leaves the tensor cores idle, or lets the other warpgroup's products in between, so that
  // both end at the same time. The slot may be filled anew once all lanes have their factors.
  template <int kOffset>
  __device__ __forceinline__ void multiply_scaled(Accumulators<C>& accumulators, const TileIndex& tile) {
    using Scales = BlockScales<C, kOffset>;
    OfInstruction<C> of_step;
    clear<C>(accumulators);
    StepOperands<C> operands(a_of(0, 0), b_of(0));
    operands.move_to(ring.slot);
    ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
    Scales next(tile, smem, ring.slot, first_block, schedule.k_begin);
#pragma unroll 1
    for (int step = schedule.k_begin; step < schedule.k_end; ++step) {
      common::RingPosition<C.stages> following = ring;
      following.advance();
#pragma unroll
      for (int i = 0; i < kBlocks * kParts; ++i) {
        const int block = i / kParts, part = i % kParts;
        const bool is_last = i == kBlocks * kParts - 1;
        const Scales scales = next;
        ptx::wgmma_fence();
        issue_block<C>(of_step, operands.a(block), operands.b(part), 0);
        ptx::wgmma_commit_group();
        if (is_last) operands.move_to(following.slot);
        if (part + 1 < kParts) {
          // Those of the block's other columns too.
        } else if (!is_last) {
          next = Scales(tile, smem, ring.slot, first_block + block + 1, step);
        } else if (step + 1 < schedule.k_end) {
          ptx::mbarrier_wait_parity(barriers.full[following.slot], following.parity);
          next = Scales(tile, smem, following.slot, first_block, step + 1);
        }
        ptx::wgmma_wait_group<0>();
        Mma<C>::hold(of_step);
        if constexpr (Scales::kHasColumns) scales.add(accumulators[block], of_step, part);
        if (is_last) {
          // No load of columns' factors is under way when TMA may write the slot again.
          if constexpr (Scales::kHasColumns) ptx::wgmma_fence();
          __syncwarp();
          release(ring.slot);
        }
        if constexpr (!Scales::kHasColumns) scales.add(accumulators[block], of_step, part);
      }
      ring = following;
    }
    pass_turn();
  }

  // Steps as in multiply_scaled until `until` are left, added to groups kFrom to kTo - 1 of eight columns.
  template <int kFrom, int kTo, class Scales>
  __device__ __forceinline__ void multiply_until(int until, int& left, int& step, Scales& next,
                                                 StepOperands<C>& operands, Accumulators<C>& accumulators,
                                                 const TileIndex& tile) {
    OfInstruction<C> of_step;
#pragma unroll 1
    while (left > until) {
      common::RingPosition<C.stages> following = ring;
      following.advance();
      const int next_step = schedule.after(step);
      const Scales scales = next;
      ptx::wgmma_fence();
      issue_block<C>(of_step, operands.a(0), operands.b(0), 0);
      ptx::wgmma_commit_group();
      operands.move_to(following.slot);
      if (--left > 0) {
        ptx::mbarrier_wait_parity(barriers.full[following.slot], following.parity);
        next = Scales(tile, smem, following.slot, first_block, next_step);
      }
      ptx::wgmma_wait_group<0>();
      Mma<C>::hold(of_step);
      __syncwarp();
      release(ring.slot);
      scales.template add<kFrom, kTo>(accumulators[0], of_step, 0);
      ring = following;
      step = next_step;
    }
  }

  // The sums of the other part's columns, which are the second half, go out before the last steps (shares_steps).
  template <int kOffset>
  __device__ __forceinline__ void multiply_shared(Accumulators<C>& accumulators, const TileIndex& tile) {
    using Scales = BlockScales<C, kOffset>;
    constexpr int kGroups = C.tile_n / 8;
    clear<C>(accumulators);
    StepOperands<C> operands(a_of(0, 0), b_of(0));
    operands.move_to(ring.slot);
    ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
    int step = schedule.k_begin, left = schedule.steps();
    Scales next(tile, smem, ring.slot, first_block, step);
    multiply_until<0, kGroups>(schedule.shared, left, step, next, operands, accumulators, tile);
    send_other_half<C>(accumulators, incoming_sums<C>(smem, warpgroup), barriers.fetched[0], schedule.place);
    multiply_until<0, kGroups / 2>(0, left, step, next, operands, accumulators, tile);
  }

  // Tiles with products of factors. Beside the first products of a tile the next one is found, beside its last ones
  // staging memory is waited for, and its first sums are written, not added to zeros: with that, stores of each warp
  // and factors that are ready, contiguous groups of 16 steps took 0.93 to 0.98 of the time on an H200.
  struct Beside {
    Consumer& consumer;
    Epilogue<C>& epilogue;
    int item;
    bool has_tile;
    TileIndex tile;

    __device__ __forceinline__ void find(int at) {
      item = at;
      has_tile = item < consumer.schedule.items_up_to(item);
      if (has_tile) tile = consumer.schedule.at(item);
    }
    __device__ __forceinline__ void first() { find(item + consumer.schedule.stride() * (is_ping_pong(C) ? 2 : 1)); }
    __device__ __forceinline__ void last() { epilogue.get_ready(); }
  };

  // A step of the same with products of factors, which are there beside each other, of all its blocks. A square begins
  // between kFirst and kLast columns before the tile. kSlot: the step's, where the loop knows it; else -1.
  template <int kFirst, int kLast, int kSlot, bool kIsFirst>
  __device__ __forceinline__ void multiply_step(Accumulators<C>& accumulators, StepOperands<C>& operands,
                                                JoinedFactors<C>& next, int offset, bool has_next, Beside& beside) {
    OfInstruction<C> of_step;
    common::RingPosition<C.stages> here = ring;
    if constexpr (kSlot >= 0) here.slot = kSlot;
    common::RingPosition<C.stages> following = here;
    following.advance();
#pragma unroll
    for (int i = 0; i < kBlocks * kParts; ++i) {
      const int block = i / kParts, part = i % kParts;
      const bool is_last = i == kBlocks * kParts - 1;
      ptx::wgmma_fence();
      issue_block<C>(of_step, operands.a(block), operands.b(part), 0);
      ptx::wgmma_commit_group();
      const BlockFactors<C, kFirst, kLast> factors(next, block);
      if (i == 0) __syncwarp();  // all lanes have read the slot's factors
      if constexpr (kIsFirst)
        if (i == 0) beside.first();
      if (is_last) {
        operands.move_to(following.slot);
        if (has_next) {
          ptx::mbarrier_wait_parity(barriers.full[following.slot], following.parity);
          next.load(smem, following.slot, first_block / kBlocks);
        } else {
          beside.last();
        }
      }
      ptx::wgmma_wait_group<0>();
      if (is_last) {
        release(here.slot);
        ptx::wgmma_wait_group<0>();  // for nothing: the compiler would move the release below the sums
      }
      Mma<C>::hold(of_step);
      factors.template add<kIsFirst>(accumulators[block], of_step, part, offset);
    }
    ring = following;
  }

  // A step for each slot, from slot kSlot on: addresses are sums of one register and a number, and nothing moves from
  // register to register. An eighth of the loop's instructions are saved, which at the power limit is time.
  template <int kFirst, int kLast, int kSlot = 0>
  __device__ __forceinline__ void multiply_lap(Accumulators<C>& accumulators, StepOperands<C>& operands,
                                               JoinedFactors<C>& next, int offset, bool has_next, Beside& beside) {
    constexpr bool kIsLast = kSlot == C.stages - 1;
    multiply_step<kFirst, kLast, kSlot, false>(accumulators, operands, next, offset, !kIsLast || has_next, beside);
    if constexpr (!kIsLast)
      multiply_lap<kFirst, kLast, kSlot + 1>(accumulators, operands, next, offset, has_next, beside);
  }

  template <int kFirst, int kLast>
  __device__ __forceinline__ void multiply_joined(Accumulators<C>& accumulators, const TileIndex& tile,
                                                  Beside& beside) {
    StepOperands<C> operands(a_of(0, 0), b_of(0));
    operands.move_to(ring.slot);
    ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
    JoinedFactors<C> next;
    next.load(smem, ring.slot, first_block / kBlocks);
    const int offset = tile.column % kScaleBlock;
    int left = schedule.steps() - 1;
    multiply_step<kFirst, kLast, -1, true>(accumulators, operands, next, offset, left > 0, beside);
#pragma unroll 1
    while (left > 0) {
      if (ring.slot == 0 && left >= C.stages) {
#pragma unroll 1
        do {
          left -= C.stages;
          ring.slot = 0;
          multiply_lap<kFirst, kLast>(accumulators, operands, next, offset, left > 0, beside);
        } while (left >= C.stages);
      } else {
        multiply_step<kFirst, kLast, -1, false>(accumulators, operands, next, offset, --left > 0, beside);
      }
    }
    pass_turn();
  }

  __device__ __forceinline__ void multiply_joined(Accumulators<C>& accumulators, const TileIndex& tile,
                                                  Beside& beside) {
    constexpr int kUnit = unit_of_offsets(C.tile_n), kHalf = kScaleBlock / 2;
    if constexpr (joined_squares(C) == 1 || kUnit == kScaleBlock) {
      multiply_joined<0, 0>(accumulators, tile, beside);
    } else if (tile.column % kScaleBlock < kHalf) {
      multiply_joined<0, kHalf - kUnit>(accumulators, tile, beside);
    } else {
      multiply_joined<kHalf, kScaleBlock - kUnit>(accumulators, tile, beside);
    }
  }

  // Whether the warpgroup has no rows of a tile: it leaves the tensor cores, and their power, to the others. In turns
  // with another one it multiplies zeros, as its turn and its place in the ring go on with what it does.
  __device__ __forceinline__ bool has_no_rows(const TileIndex& tile) const {
    return joins_factors(C) && !is_ping_pong(C) && C.split_k == 1 &&
           tile.row + first_block * kBlockRows >= tile.row_end;
  }
  // The steps of such a tile.
  __device__ __forceinline__ void pass_over() {
#pragma unroll 1
    for (int left = schedule.steps(); left > 0; --left) {
      ptx::mbarrier_wait_parity(barriers.full[ring.slot], ring.parity);
      __syncwarp();  // all lanes have seen it
      release(ring.slot);
      ring.advance();
    }
  }

  // Tiles that begin with a square or in the middle of one have a loop for each: instructions that select factors made
  // products of 4,096 x 2,112 x 7,168 on an H100 a tenth slower.
  __device__ __forceinline__ void multiply_scaled(Accumulators<C>& accumulators, const TileIndex& tile) {
    constexpr int kHalf = kScaleBlock / 2;
    if constexpr (shares_steps(C)) {
      multiply_shared<C.tile_n == kScaleBlock ? 0 : -1>(accumulators, tile);
    } else if constexpr (C.tile_n % kScaleBlock == 0) {
      multiply_scaled<0>(accumulators, tile);
    } else if constexpr (C.tile_n % kHalf == 0 && C.tile_n > kHalf && b_scale_block(C) == ScaleBlock::square) {
      if (tile.column % kScaleBlock == 0) {
        multiply_scaled<0>(accumulators, tile);
      } else {
        multiply_scaled<kHalf>(accumulators, tile);
      }
    } else {
      multiply_scaled<-1>(accumulators, tile);
    }
  }

  // What becomes of a tile's sums.
  __device__ __forceinline__ void store(Accumulators<C>& accumulators, Epilogue<C>& epilogue, const TileIndex& tile) {
    if constexpr (C.facts.bias == Bias::group) epilogue.group = tile.b_batch;
    if constexpr (is_gated(C)) {
      const float alpha_up = is_dual(C) ? scaled_alpha<is_8_bit(a_dtype(C))>(p, p.scale_b2) : epilogue.alpha;
      epilogue.store(GatedSums<C>{accumulators, p, epilogue.alpha, alpha_up, tile.column, tile.b_batch},
                     tile.row + first_block * kBlockRows, columns_of_d(C, tile.column), tile.batch);
    } else if constexpr (C.split_k == 1) {
      epilogue.store(WholeSums<C>{accumulators}, tile.row + first_block * kBlockRows, tile.column, tile.batch);
    } else if constexpr (sends_sums(C)) {
      const unsigned incoming = incoming_sums<C>(smem, warpgroup);
      if constexpr (!shares_steps(C)) send_partial_sums<C>(accumulators, incoming, barriers.fetched[0], schedule.place);
      ptx::mbarrier_wait_parity_acquire_cluster(barriers.fetched[0], 0);
      epilogue.store(ReceivedSums<C>{accumulators, incoming, schedule.place.k}, tile.row + first_block * kBlockRows,
                     tile.column + schedule.place.k * stored_columns(C), tile.batch);
    } else {
      // Other warps, of the own warpgroup too, may still multiply what lies there: each waited for its own part.
      ptx::barrier_sync(kBarrierOfConsumers, consumer_warpgroups(C) * kWarpgroupThreads);
      share_partial_sums<C>(accumulators, smem, first_block);
      ptx::cluster_arrive();
      ptx::cluster_wait();
      epilogue.store(PartialSums<C>{smem, first_block, schedule.place}, tile.row + first_block * kBlockRows,
                     tile.column + schedule.place.k * stored_columns(C), tile.batch);
      release_partial_sums<C>(barriers.fetched[0], schedule.place);
    }
  }

  __device__ __forceinline__ void begin_epilogue(Epilogue<C>& epilogue, const TileIndex& of) {
    epilogue.row_end = of.row_end;
    const int first = C.split_k == 1 ? 0 : schedule.place.k * stored_columns(C);
    epilogue.ask_for_addend(of.row + first_block * kBlockRows, of.column + first, of.batch);
  }

  __device__ __forceinline__ void run_joined() {
    Accumulators<C> accumulators;
    Epilogue<C> epilogue{p, smem, warpgroup};
    Beside next{*this, epilogue};
    next.find(schedule.first() + (is_ping_pong(C) ? warpgroup * schedule.stride() : 0));
    if (is_ping_pong(C) && warpgroup == 1) ring.advance(schedule.steps());
#pragma unroll 1
    while (next.has_tile) {
      const TileIndex uniform = next.tile;
      if (has_no_rows(uniform)) {
        next.first();
        pass_over();
        continue;
      }
      TileIndex tile = uniform;
      tile.hold();
      wait_turn();
      multiply_joined(accumulators, uniform, next);
      if (is_ping_pong(C)) ring.advance(schedule.steps());
      begin_epilogue(epilogue, tile);
      store(accumulators, epilogue, tile);
    }
    epilogue.finish();
  }

  __device__ __forceinline__ void run() {
    Accumulators<C> accumulators;
    Epilogue<C> epilogue{p, smem, warpgroup};
    int round = 0;
#pragma unroll 1
    for (int item = schedule.first(); item < schedule.items_up_to(item); item += schedule.stride(), ++round) {
      if (is_ping_pong(C) && round % 2 != warpgroup) {
        ring.advance(schedule.steps());
        continue;
      }
      wait_turn();
      TileIndex tile;
      const auto find_tile = [&] {
        tile = schedule.at(item);
        begin_epilogue(epilogue, tile);
      };
      if constexpr (has_scale_blocks(C)) {
        const TileIndex uniform = schedule.at(item);
        tile = uniform;
        tile.hold();  // its divisions run beside the wait for the first slot
        multiply_scaled(accumulators, uniform);
        begin_epilogue(epilogue, tile);
      } else if constexpr (C.facts.accumulation == Accumulation::promoted) {
        multiply_promoted(accumulators);
        find_tile();
      } else if constexpr (loads_addend_ahead(C)) {
        multiply(accumulators, find_tile);
      } else {
        multiply(accumulators, [] {});
        find_tile();
      }
      store(accumulators, epilogue, tile);
    }
    epilogue.finish();
  }
};

template <Config C>
__device__ __forceinline__ void consume(const Params& p, unsigned smem) {
  if constexpr (roles_wait(C)) ptx::griddepcontrol_wait();  // the first tile is found beside the wait for its slot
  Consumer<C> consumer{p, smem};
  if (consumer.warpgroup == 1) consumer.pass_turn();  // the first warpgroup begins
  if constexpr (joins_factors(C)) {
    consumer.run_joined();
  } else {
    consumer.run();
  }
}

}  // namespace tessera::gemm

// Fused attention forward, warp-specialised for Hopper.
//
// One warpgroup produces, tile_m / 64 consume. Loads, products and softmax overlap in three ways: TMA fills the rings
// ahead of the consumers; a consumer's Q K^T of the next key block runs on the tensor cores beside its softmax of this
// one; and consumer warpgroups take turns, so that one multiplies while another exponentiates. Roles in their order:
// producer.cuh, consumer.cuh (mask.cuh, softmax.cuh, matmul.cuh), epilogue.cuh; schedule.cuh says who takes which tile.
#pragma once

#include "common/illegal_config.cuh"
#include "common/pieces.cuh"
#include "fmha/consumer.cuh"
#include "fmha/dealer.cuh"
#include "fmha/eight_rows.cuh"
#include "fmha/keys_ahead.cuh"
#include "fmha/params.cuh"
#include "fmha/passed_tiles.cuh"
#include "fmha/producer.cuh"
#include "fmha/ragged.cuh"
#include "fmha/registers.cuh"
#include "fmha/row_warps.cuh"
#include "fmha/step_8_bit.cuh"
#include "fmha/step_work.cuh"
#include "fmha/transpose.cuh"
#include "fmha/warps.cuh"
#include "fmha/widened.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/setmaxnreg.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Full barriers take one arrival (the loading thread, with the bytes), or one of each lane that copies, and one with
// the bits of present keys; K and V slots are emptied by every consumer warp, a Q slot by the thread that has sent O
// from it, or by the four warps whose parts leave from registers. Unrolled: in a loop each round has a fence of its
// own.
template <Config C>
__device__ __forceinline__ void init_barriers(unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  constexpr int kNumQ = C.q_stages * row_groups(C);
  constexpr int kLoaders = has_widening_warps(C) ? kWideningWarps : C.kv_copy == KvCopy::cp_async ? 32 : 1;
#pragma unroll
  for (int i = 0; i < kNumQ; ++i) {
    ptx::mbarrier_init(barrier_at<kBarriers.q_full>(smem, i), copies_q(C) ? 32 : 1);
    ptx::mbarrier_init(barrier_at<kBarriers.q_empty>(smem, i), leaves_from_registers(C) ? 4 : 1);
    if constexpr (has_storing_warp(C)) ptx::mbarrier_init(barrier_at<kBarriers.o_full>(smem, i), 4);
  }
#pragma unroll
  for (int i = 0; i < (passes_tiles(C) ? kPassedTiles : 0); ++i)
    ptx::mbarrier_init(barrier_at<kBarriers.passed>(smem, i), 1);
#pragma unroll
  for (int i = 0; i < C.stages; ++i) {
    ptx::mbarrier_init(barrier_at<kBarriers.k_full>(smem, i), kLoaders + (has_pools(C) ? 1 : 0));
    ptx::mbarrier_init(barrier_at<kBarriers.k_empty>(smem, i), 4 * consumer_warpgroups(C));
    ptx::mbarrier_init(barrier_at<kBarriers.v_full>(smem, i), transposes_v(C) ? kTransposingWarps : kLoaders);
    ptx::mbarrier_init(barrier_at<kBarriers.v_empty>(smem, i), 4 * consumer_warpgroups(C));
  }
#pragma unroll
  for (int i = 0; i < row_groups(C); ++i) {
    if constexpr (has_storing_warp(C)) ptx::mbarrier_init(barrier_at<kBarriers.o_read>(smem, i), 1);
    if constexpr (C.cta_pair) {
      ptx::mbarrier_init(barrier_at<kBarriers.exchange_full>(smem, i), 1);
      ptx::mbarrier_init(barrier_at<kBarriers.exchange_empty>(smem, i), 4);
    }
  }
#pragma unroll
  for (int i = 0; i < (asks_ahead(C) ? 2 : 0); ++i) ptx::mbarrier_init(barrier_at<kBarriers.early>(smem, i), 1);
  if constexpr (has_placed_keys(C)) ptx::mbarrier_init(barrier_at<kBarriers.tail>(smem), 1);
  if constexpr (has_widening_warps(C) || transposes_v(C)) init_raw_barriers<C>(smem);
  ptx::fence_mbarrier_init();
}

// Of kernels by wgmma: consumers are compiled beside all else.
inline constexpr int kPieceOfConsumers = 2;

// What consumers' schedules are made from.
template <Config C>
__device__ __forceinline__ decltype(auto) schedule_source(const Params& params, unsigned smem) {
  if constexpr (passes_tiles(C)) {
    return smem;
  } else {
    return (params);
  }
}

// All threads of a tile's CTAs.
template <Config C>
__device__ __forceinline__ void sync_tile() {
  if constexpr (C.cta_pair) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    __syncthreads();
  }
}

template <Config C>
__device__ __forceinline__ void set_producer_registers() {
  constexpr RegisterBudget kBudget = register_budget(C);
  if constexpr (kBudget.producer < kBudget.entry) ptx::setmaxnreg_dec<kBudget.producer>();
}
// One or the other also where no count changes: a warp whole at this instruction is what lets the assembler keep
// descriptors in uniform registers. Without it, causal kernels of one warpgroup move each there before each wgmma.
template <Config C>
__device__ __forceinline__ void set_consumer_registers() {
  constexpr RegisterBudget kBudget = register_budget(C);
  if constexpr (kBudget.consumer > kBudget.entry) {
    ptx::setmaxnreg_inc<kBudget.consumer>();
  } else {
    ptx::setmaxnreg_dec<kBudget.consumer>();
  }
}

// The roles by wgmma, each with a schedule from `scheduled`. What a piece does not have must not be instantiated
// either, or front end and NVVM would work on it until they find that nobody comes there: roles are classes, and `if
// constexpr` asks who has which.
template <Config C, class Scheduled>
struct ProducerRole {
  const Params& params;
  const unsigned smem;
  const Scheduled& scheduled;

  __device__ __forceinline__ void operator()() const {
    set_producer_registers<C>();
    if constexpr (has_widening_warps(C)) {
      widen<C>(params, scheduled(), smem);
    } else if constexpr (transposes_v(C)) {
      load_and_transpose<C>(params, scheduled(), smem);
    } else if constexpr (passes_tiles(C)) {
      if (threadIdx.x / 32 == kWarpOfQ) {
        load_and_pass<C>(params, smem);
      } else {
        produce<C>(params, PassedTiles<C>{smem}, smem);
      }
    } else {
      produce<C>(params, scheduled(), smem);
    }
  }
};

template <Config C, class Scheduled>
struct ConsumerRole {
  const Params& params;
  const unsigned smem;
  const Scheduled& scheduled;

  __device__ __forceinline__ void operator()() const {
    set_consumer_registers<C>();
    if constexpr (has_raw_tiles(C)) {
      consume_step<C>(params, scheduled(), smem);
    } else {
      consume<C>(params, scheduled(), smem);
    }
  }
};

template <Config C, class Scheduled>
__device__ __forceinline__ void run_roles(const Params& params, unsigned smem, const Scheduled& scheduled) {
  if constexpr (common::kIsFirstPiece) {
    if (threadIdx.x < kWarpgroupThreads) return ProducerRole<C, Scheduled>{params, smem, scheduled}();
    if constexpr (has_widening_warps(C)) {
      if (threadIdx.x >= (1 + consumer_warpgroups(C)) * kWarpgroupThreads)
        return load_widened<C>(params, scheduled(), smem);
    }
  }
  common::in_piece<kPieceOfConsumers, has_key_scales(C.facts)>(ConsumerRole<C, Scheduled>{params, smem, scheduled});
}

// Few queries over pages: while the kernel before still runs, the producers look up what they will load first. One asks
// the L2 for it, the others start the first block's boxes as soon as they may, and only then look whether all that has
// stayed as it was.
template <Config C>
__device__ __forceinline__ void run_ahead(const Params& params, unsigned smem) {
  if (threadIdx.x < kWarpgroupThreads) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    KeysAhead<C> ahead(params);
    if (warp == kWarpOfO) {
      ptx::barrier_arrive(0, num_threads(C));  // nobody waits for this warp
      set_producer_registers<C>();
      return ahead.ask(kBlocksAhead);
    }
    ptx::barrier_sync(0, num_threads(C));
    set_producer_registers<C>();
    attention::KnownBlock known;
    if (warp != kWarpOfQ) known = ahead.first_block();
    if (warp != kWarpOfQ || is_dealt(C)) ptx::griddepcontrol_wait();  // else where its tile is known: wait_with_tile()
    if (warp != kWarpOfQ) start_first_block<C>(params, smem, known, warp == kWarpOfV);
    produce<C>(params, Schedule<C>{params}, smem, known);
  } else {
    ptx::barrier_sync(0, num_threads(C));
    set_consumer_registers<C>();
    ptx::griddepcontrol_wait();
    if (!begins_merge_late<C>()) ptx::griddepcontrol_launch_dependents();
    if constexpr (has_eight_rows(C)) {
      consume_eight_rows<C>(params, Schedule<C>{params}, smem);
    } else {
      consume_shared<C>(params, Schedule<C>{params}, smem);
    }
  }
}

template <Config C>
__device__ __forceinline__ void run(const Params& params, unsigned smem) {
  if constexpr (common::kIsFirstPiece) {
    if constexpr (is_split(C)) {
      ptx::griddepcontrol_wait();  // what came before in the stream, whose end this launch did not wait for
      ptx::griddepcontrol_launch_dependents();  // the merge waits for the end of all
    }
    if constexpr (has_whole_tiles(C)) share_out<C>(params);
    sync_tile<C>();
  }

  using Schedules = typename ConsumerSchedule<C>::Type;
  if constexpr (uses_mma_sync(C)) {
    // One schedule in each role: what lives across the change of registers takes some that producers have too, and with
    // head_dim 256, pages and ragged queries the assembler spilled it. The roles stand here since the compiler would
    // optimise those of a function there, and here again.
    if (threadIdx.x < kWarpgroupThreads) {
      set_producer_registers<C>();
      if constexpr (!passes_tiles(C)) {
        produce<C>(params, Schedules{schedule_source<C>(params, smem)}, smem);
      } else if (threadIdx.x / 32 == kWarpOfQ) {
        load_and_pass<C>(params, smem);
      } else {
        produce<C>(params, PassedTiles<C>{smem}, smem);
      }
    } else {
      set_consumer_registers<C>();
      const Schedules schedule{schedule_source<C>(params, smem)};
      if constexpr (shares_blocks(C)) {
        consume_shared<C>(params, schedule, smem);
      } else {
        consume_rows<C>(params, schedule, smem);
      }
    }
  } else {
    const Schedules schedule{schedule_source<C>(params, smem)};
    const Schedules* const of_all = &schedule;
    run_roles<C>(params, smem, [of_all]() -> const Schedules& { return *of_all; });
  }
  // The other CTA still sends here and must not find this one gone.
  if constexpr (C.cta_pair) {
    __syncwarp();
    sync_tile<C>();
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& params) {
  common::require_legal<why_invalid(C)>();

  if constexpr (!uses_mma_sync(C)) RegistersOf<C>::declare();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  if constexpr (common::kIsFirstPiece) {
    if (threadIdx.x == 0) init_barriers<C>(smem);
    // Another warp: the first loads need them.
    if (threadIdx.x == 32) {
      if constexpr (!copies_q(C)) ptx::prefetch_tensormap(params.q);
      ptx::prefetch_tensormap(params.k);
      ptx::prefetch_tensormap(params.v);
      if constexpr (!leaves_from_registers(C)) ptx::prefetch_tensormap(params.o);
    }
  }
  if constexpr (asks_ahead(C)) {
    run_ahead<C>(params, smem);
  } else {
    run<C>(params, smem);
  }
}

}  // namespace tessera::fmha

// A team with one block: as TeamConsumer (team.cuh), with fewer instructions, which are what takes the time with 16
// rows and more. The steps of a lap of the ring of weights are written one behind the other, so that where a block
// lies, and its barriers, are constants. Each of a panel's four instructions has a descriptor of its own, which is
// moved on behind it: of one for all, each would be made once the instruction before had read it, and waited for.
//
// Laps within a tile are written once more without what only its first and last ones need (kSteady), where they are
// many (repeats_laps()): there whether loads have come is asked before weights are widened, and waited for afterwards.
//
// Where the ring of activations has laps as long (has_common_lap()), a round in which a group has no step takes a slot
// of its weights too, so that both rings stay together.
#pragma once

#include "common/ring.cuh"
#include "gemm/matmul.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "gemm_weights/widen.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pairs.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "spec/gemm_weights.h"
#include "spec/matrix_descriptor.h"

namespace tessera::gemm_weights {

// kHalf: the team of half a block (has_half_block()), one of whose instructions has both of a slot's panels of 128 of
// k.
template <Config C, bool kHalf = false>
struct LapConsumer {
  static constexpr bool kIsHalf = kHalf;
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kLap = direct_depth(C);  // steps, of a slot each
  static constexpr bool kHasCommonLap = has_common_lap(C);
  static constexpr int kGroups = k_groups(C);
  static constexpr int kTeamsOfGroup = teams_of_group(C);
  static constexpr int kBlockBytes = weight_block_bytes(weights(C)), kSlotBytes = ring_slot_bytes(C);
  static constexpr unsigned kPanelStep = panel_bytes(C) / 16;  // of a descriptor
  static constexpr int kSums = kHalf ? C.tile_m : C.tile_m / 2;
  using Mma = gemm::MmaOf<kHalf ? wgmma_shape_of_half(C) : wgmma_shape(C)>;
  using Sums = float[1][kSums];

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  // Taken from lane 0, so that the compiler knows one value for the warp.
  const int team = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) % 4;  // of the team
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = team / kTeamsOfGroup;
  const int first_block = team % kTeamsOfGroup;
  static constexpr int own_blocks = 1;
  const int count = schedule.k_end - schedule.k_begin;  // of a tile, all groups
  const int blocks_k = (p.k - 1) / kWeightDepth + 1;
  const unsigned own = smem + kLayout.b.offset + team * kLap * kSlotBytes;
  static constexpr unsigned long long kDescriptor = k_major_descriptor(0, C.tile_m, Swizzle::b128);
  const unsigned low = static_cast<unsigned>(kDescriptor) + ((smem + kLayout.a.offset) >> 4);
  common::RingPosition<C.stages> ring{0, 0};  // of activations: where the tile's slots begin
  int step_of_lap = 0;                        // of weights: that is read next
  unsigned parity = 0;                        // of that slot
  // The assembler does not know that shared memory's addresses are small, nor this one: constants are added up.
  const unsigned panel_step = kPanelStep | smem >> 31;
  const unsigned end_of_slots = common::barrier_at<kBarriers.full>(smem, C.stages);

  struct Descriptors {
    unsigned long long of[kStepsOfHalf];

    __device__ __forceinline__ void move(unsigned step) {
#pragma unroll
      for (int i = 0; i < kStepsOfHalf; ++i) of[i] = ptx::add_to_low(of[i], step);
    }
  };
  // Where a tile stands.
  struct Walk {
    int step = 0;                             // of all groups'
    common::RingPosition<C.stages> at{0, 0};  // of activations
    unsigned previous = 0;                    // barrier of the activations of the step before
    bool has_loaded = false;                  // all activations are there
    bool is_resident = false;                 // they stay
    int early = -1;                           // the step whose block comes in halves
    Descriptors descriptors;
    unsigned full = 0;  // barrier of the step's activations
  };

  template <bool kIs, int kUnused = 0>
  struct BlockOf {
    using Type = PackedBlock<C>;
  };
  template <int kUnused>
  struct BlockOf<true, kUnused> {
    using Type = PackedHalf<C>;
  };
  using Block = typename BlockOf<kHalf>::Type;

  __device__ __forceinline__ unsigned loaded(int slot) const {
    return common::barrier_at<kBarriers.loaded>(smem, team * kLap + slot);
  }
  __device__ __forceinline__ unsigned emptied(int slot) const {
    return common::barrier_at<kBarriers.emptied>(smem, team * kLap + slot);
  }
  template <int kSlot>
  __device__ __forceinline__ Block read_block(bool is_there) const {
    if (!is_there) ptx::mbarrier_wait_parity(loaded(kSlot), parity);
    return Block(own + kSlot * kSlotBytes);
  }
  // Of a tile. The launch's first block comes in halves, and its first parity is 0.
  __device__ __forceinline__ Block read_first(bool is_early) const {
    const unsigned early = common::barrier_at<kBarriers.early>(smem, team);
    ptx::mbarrier_wait_parity(is_early ? early : loaded(step_of_lap), parity);
    return Block(own + step_of_lap * kSlotBytes);
  }
  // To the next slot. This warp has all of this one in registers: what was read was widened and handed to wgmma.
  template <int kSlot>
  __device__ __forceinline__ void give_back() {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(emptied(kSlot));
    if constexpr (kSlot + 1 == kLap) parity ^= 1;
  }
  __device__ __forceinline__ void release_slot(unsigned full) const {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(common::empty_behind<C.stages>(full));
  }

  // Of 64 of k: a panel of the slot. The caller waits. Descriptors are `step` further on afterwards.
  static __device__ __forceinline__ void issue(float (&sums)[kSums], const unsigned (&a)[kStepsOfHalf][4],
                                               Descriptors& descriptors, unsigned step) {
    ptx::wgmma_fence();
    Mma::mma(sums, a, descriptors.of, 1);
    ptx::wgmma_commit_group();
    descriptors.move(step);
  }

  // The activations of the step before.
  template <int kStep, bool kSteady>
  __device__ __forceinline__ void release_previous(const Walk& walk) const {
    constexpr unsigned kToPrevious = static_cast<unsigned>((kStep == 0 ? kLap - 1 : -1) * 8 * kGroups);  // barrier
    if (!walk.is_resident && (kSteady || walk.step != group))
      release_slot(kHasCommonLap ? walk.full + kToPrevious : walk.previous);
  }
  // The block's second half, where it comes by itself.
  template <int kStep, bool kSteady>
  __device__ __forceinline__ void wait_for_second(const Walk& walk) const {
    if (!kSteady && kStep == 0 && walk.step == walk.early) ptx::mbarrier_wait_parity(loaded(0), parity);
  }

  // The step's activations: in two parts, so that the answer is there once weights are widened.
  template <bool kSteady>
  __device__ __forceinline__ bool has_activations(const Walk& walk) const {
    if (!kHasCommonLap && walk.has_loaded) return true;
    return kSteady && ptx::mbarrier_test_wait_parity(walk.full, walk.at.parity);
  }
  __device__ __forceinline__ void wait_for_activations(const Walk& walk, bool are_there) const {
    if (!are_there) ptx::mbarrier_wait_parity(walk.full, walk.at.parity);
  }
  // Likewise the weights of the step behind the lap's step kStep.
  template <int kStep, bool kSteady>
  __device__ __forceinline__ bool has_following() const {
    constexpr int kNext = (kStep + 1) % kLap;
    return kSteady && ptx::mbarrier_test_wait_parity(loaded(kNext), kNext == 0 ? parity ^ 1 : parity);
  }

  // Of the lap's step kStep. Descriptors are moved by `to_next` from the step's first panel.
  template <int kStep, bool kSteady>
  __device__ __forceinline__ void take_block(Sums& sums, Block& following, Walk& walk, unsigned to_next,
                                             bool has_next) {
    if constexpr (kHalf) {
      take_half<kStep, kSteady>(sums, following, walk, to_next, has_next);
    } else {
      take_whole<kStep, kSteady>(sums, following, walk, to_next, has_next);
    }
  }
  template <int kStep, bool kSteady>
  __device__ __forceinline__ void take_half(Sums& sums, Block& following, Walk& walk, unsigned to_next, bool has_next) {
    unsigned first[kStepsOfHalf][4], second[kStepsOfHalf][4];
    const bool has_rows = has_activations<kSteady>(walk);
    following.widen(first);
    if (kSteady) wait_for_activations(walk, has_rows);
    issue(sums[0], first, walk.descriptors, 2 * panel_step);
    ptx::wgmma_wait_group<1>();
    release_previous<kStep, kSteady>(walk);
    wait_for_second<kStep, kSteady>(walk);
    const bool is_there = has_following<kStep, kSteady>();
    const Block block(own + kStep * kSlotBytes + kBlockBytes);
    block.widen(second);
    issue(sums[0], second, walk.descriptors, to_next - 2 * kPanelStep);
    give_back<kStep>();
    if (has_next) following = read_block<(kStep + 1) % kLap>(is_there);
    ptx::wgmma_wait_group<1>();
  }
  template <int kStep, bool kSteady>
  __device__ __forceinline__ void take_whole(Sums& sums, Block& following, Walk& walk, unsigned to_next,
                                             bool has_next) {
    unsigned first[kStepsOfHalf][4], second[kStepsOfHalf][4];
    Block block = following;
    const bool has_rows = has_activations<kSteady>(walk);
    block.template widen<0>(first);
    if (kSteady) wait_for_activations(walk, has_rows);
    issue(sums[0], first, walk.descriptors, panel_step);
    ptx::wgmma_wait_group<1>();
    release_previous<kStep, kSteady>(walk);
    block.template widen<1>(second);
    issue(sums[0], second, walk.descriptors, panel_step);
    wait_for_second<kStep, kSteady>(walk);
    const bool is_there = has_following<kStep, kSteady>();
    if (blocks_k > 0) {  // always: without the branch the assembler makes each product wait for the one before
      block = Block(own + kStep * kSlotBytes + kBlockBytes);
      ptx::wgmma_wait_group<1>();
      block.template widen<0>(first);
      issue(sums[0], first, walk.descriptors, panel_step);
      ptx::wgmma_wait_group<1>();
      block.template widen<1>(second);
      issue(sums[0], second, walk.descriptors, to_next - 3 * kPanelStep);
    }
    give_back<kStep>();
    if (has_next) following = read_block<(kStep + 1) % kLap>(is_there);
    ptx::wgmma_wait_group<1>();
  }
  // The lap's step kStep; false where the tile has no further one.
  template <int kStep, bool kSteady>
  __device__ __forceinline__ bool take_step(Sums& sums, Block& following, Walk& walk) {
    const unsigned full = walk.full;
    const bool has_next = kSteady || walk.step + kGroups < count;
    const bool wraps = kHasCommonLap ? kStep == kLap - 1 : full + 8 * kGroups >= end_of_slots;
    const int slots = kGroups - (wraps ? C.stages : 0);
    const unsigned to_next = static_cast<unsigned>(slots * a_slot_bytes(C) / 16);
    if (!kSteady) wait_for_activations(walk, has_activations<false>(walk));
    take_block<kStep, kSteady>(sums, following, walk, to_next, has_next);
    walk.previous = full;
    walk.step += kGroups;
    walk.full += static_cast<unsigned>(8 * slots);
    walk.at.parity ^= wraps ? 1 : 0;
    if (!has_next) step_of_lap = (kStep + 1) % kLap;
    return has_next;
  }
  // A round in which this group has no step.
  __device__ __forceinline__ void pass_round(const Walk& walk) {
    ptx::mbarrier_wait_parity(walk.full, walk.at.parity);
    release_slot(walk.full);
    if constexpr (kHasCommonLap) {
      ptx::mbarrier_wait_parity(loaded(step_of_lap), parity);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(emptied(step_of_lap));
      if (step_of_lap == kLap - 1) parity ^= 1;
      step_of_lap = (step_of_lap + 1) % kLap;
    }
  }

  // Of half a block: warps 2 and 3 hand their sums of use to warps 0 and 1.
  __device__ __forceinline__ void add_halves(const Sums& sums, float (&all)[1][C.tile_m / 8][4]) const {
    constexpr int kBarrier = 2, kOctetBytes = 32 * 16;
    const unsigned at = smem + kLayout.half.offset + warp % 2 * (C.tile_m / 8) * kOctetBytes + lane * 16;
    if (warp >= 2) {
#pragma unroll
      for (int i = 0; i < C.tile_m / 8; ++i) {
        const int v = C.tile_m / 2 + 4 * i;
        ptx::st_shared_v4_f32(at + i * kOctetBytes, sums[0][v], sums[0][v + 1], sums[0][v + 2], sums[0][v + 3]);
      }
    }
    ptx::barrier_sync(kBarrier, kWarpgroupThreads);
#pragma unroll
    for (int i = 0; i < C.tile_m / 8; ++i) {
      float other[4] = {};
      if (warp < 2) ptx::ld_shared_v4_f32(at + i * kOctetBytes, other);
#pragma unroll
      for (int v = 0; v < 4; ++v) all[0][i][v] = sums[0][4 * i + v] + other[v];
    }
    ptx::barrier_sync(kBarrier, kWarpgroupThreads);  // before the next tile's
  }

  __device__ __forceinline__ void multiply(Sums& sums, Tile& /*of groups*/, bool has_loaded, int item) {
    static_assert(kLap == 2 || kLap == 3, "steps are written out below");
    const bool is_resident = schedule.is_resident();
    if (is_resident) ring = {0, 0};
#pragma unroll
    for (int v = 0; v < kSums; ++v) sums[0][v] = 0.0f;
    Mma::hold(sums[0]);
    Walk walk;
    walk.at = ring;
    walk.at.slot += group;  // a tile's slots begin with a whole round
    walk.step = group;
#pragma unroll
    for (int i = 0; i < kStepsOfHalf; ++i) {
      const unsigned high = static_cast<unsigned>(kDescriptor >> 32) | (smem + i) >> 31;
      const unsigned of_slot = low + walk.at.slot * (a_slot_bytes(C) / 16);
      walk.descriptors.of[i] = static_cast<unsigned long long>(high) << 32 | (of_slot + 2 * i);
    }
    walk.full = common::barrier_at<kBarriers.full>(smem, walk.at.slot);
    walk.has_loaded = has_loaded;
    walk.is_resident = is_resident;
    if (walk.step < count) {
      const bool is_first = item == schedule.first();
      walk.early = is_first ? group : -1;
      Block following = read_first(is_first);
      int from = step_of_lap;
#pragma unroll 1
      for (;;) {
        if (from <= 0 && !take_step<0, false>(sums, following, walk)) break;
        if (from <= 1 && !take_step<1, false>(sums, following, walk)) break;
        if constexpr (kLap > 2) {
          if (!take_step<2, false>(sums, following, walk)) break;
        }
        from = 0;
        if constexpr (repeats_laps(C)) {
#pragma unroll 1
          while (walk.step + kLap * kGroups < count) {
            take_step<0, true>(sums, following, walk);
            take_step<1, true>(sums, following, walk);
            if constexpr (kLap > 2) take_step<2, true>(sums, following, walk);
          }
        }
      }
      ptx::wgmma_wait_group<0>();
      Mma::hold(sums[0]);
      ptx::fence_proxy_async_shared();  // before the arrivals of the sums
      if (!is_resident) release_slot(walk.previous);
    }
    // The last round may be without a step for this group.
    if (!is_resident && walk.step < schedule.slots()) pass_round(walk);
    if (!is_resident) ring.advance(schedule.slots());
  }
};

}  // namespace tessera::gemm_weights

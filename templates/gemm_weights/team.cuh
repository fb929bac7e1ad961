// A team with wgmma.f16 and few rows: a consumer warpgroup, its blocks of 64 columns of D, and a ring of its own for
// their weights. Teams beyond the tile's blocks share k: the groups take steps of 128 in turn. Activations come from
// the CTA's ring, whose slots are wgmma's B.
//
// A block's codes are in registers before it is widened, 64 of k at a time; while one half is multiplied the other is
// widened, and the next block's codes are read while the second is on its way. So a block's slot is given back before
// its products are made, once the second half's are issued.
//
// Threads of their own load the weights, one for one or two teams: consumers have neither the instructions nor the
// registers for it, and no lane of theirs goes its own way between the instructions of wgmma.
//
// A team with one block has a consumer of its own (team_lap.cuh), and the first half of its first block a barrier: of
// the bytes that all multiprocessors ask for when a launch begins the first ones are there half a block sooner.
#pragma once

#include "common/ring.cuh"
#include "gemm/matmul.cuh"
#include "gemm_weights/params.cuh"
#include "gemm_weights/schedule.cuh"
#include "gemm_weights/store.cuh"
#include "gemm_weights/team_split.cuh"
#include "gemm_weights/widen.cuh"
#include "ptx/bulk.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "spec/gemm_weights.h"
#include "spec/matrix_descriptor.h"

namespace tessera::gemm_weights {

// A warp, of which one thread loads: the blocks of its teams, each in turn, into the ring of each.
template <Config C>
struct TeamLoader {
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kDepth = direct_depth(C);
  static constexpr int kGroups = k_groups(C);
  static constexpr int kBlocks = blocks(C);
  static constexpr int kTeamsOfGroup = teams_of_group(C);
  static constexpr int kTeams = consumer_warpgroups(C) / team_loaders(C);
  static constexpr int kBlockBytes = weight_block_bytes(weights(C)), kSlotBytes = ring_slot_bytes(C);

  const Params& p;
  const unsigned smem;
  const int first_team;
  Schedule<C, true> schedule{p};
  const int blocks_n = (p.n - 1) / kWeightRows + 1;
  const int blocks_k = (p.k - 1) / kWeightDepth + 1;
  const int count = schedule.k_end - schedule.k_begin;

  __device__ __forceinline__ void init_barriers() const {
#pragma unroll 1
    for (int i = first_team * kDepth; i < (first_team + kTeams) * kDepth; ++i) {
      ptx::mbarrier_init(common::barrier_at<kBarriers.loaded>(smem, i), 1);
      ptx::mbarrier_init(common::barrier_at<kBarriers.emptied>(smem, i), 4);
    }
    if constexpr (has_laps(C)) {
#pragma unroll
      for (int t = 0; t < kTeams; ++t) ptx::mbarrier_init(common::barrier_at<kBarriers.early>(smem, first_team + t), 1);
    }
    ptx::fence_mbarrier_init();
  }

  // In place of a block behind the last along k: no weights. Laps have no step that is half as long as others.
  static __device__ __forceinline__ void clear_block(unsigned at) {
#pragma unroll 4
    for (int i = 0; i < kBlockBytes; i += 16) ptx::st_shared_v4(at + i, {0, 0, 0, 0});
    ptx::fence_proxy_async_shared();  // before what is loaded there later
  }
  __device__ __forceinline__ static bool is_half_of(int team) {
    return has_half_block(C) && team == consumer_warpgroups(C) - 1;
  }
  // 32 rows of a block: the codes of 64 of k, those of the next 64, and the scales, which lie as the first half's do.
  static constexpr int kHalfCodes = kWeightCodeBytes / 4;
  static __device__ __forceinline__ void load_half(unsigned to, const char* from, bool is_upper, unsigned full,
                                                   unsigned long long policy) {
    constexpr int kScales = kWeightPairs / 2 * pair_bytes(weights(C));
    ptx::bulk_load_with_policy(to, from, kHalfCodes, full, policy);
    ptx::bulk_load_with_policy(to + 2 * kHalfCodes, from + 2 * kHalfCodes, kHalfCodes, full, policy);
    const char* const scales = from + kWeightCodeBytes + (is_upper ? kScales - kHalfCodes : 0);
    ptx::bulk_load_with_policy(to + kWeightCodeBytes, scales, kScales, full, policy);
  }
  __device__ __forceinline__ void load_halves(unsigned to, const char* from, int there, bool is_upper, unsigned full,
                                              bool is_first, int team, unsigned long long policy) const {
    const unsigned early = common::barrier_at<kBarriers.early>(smem, team);
    if (is_first) ptx::mbarrier_arrive_expect_tx(early, kBlockBytes / 2);
    ptx::mbarrier_arrive_expect_tx(full, (is_first ? there - kBlockBytes : there) / 2);
    load_half(to, from, is_upper, is_first ? early : full, policy);
    if (there > kBlockBytes) load_half(to + kBlockBytes, from + kBlockBytes, is_upper, full, policy);
  }
  // Of a tile, the first of a team's blocks i along k. Blocks behind the last of columns are that one again.
  __device__ __forceinline__ const char* first_block(const Tile& tile, int team, int i) const {
    const int first = has_half_block(C) ? first_block_of(tile.column) : tile.column / kWeightRows;
    const int of_n = is_half_of(team) ? half_block_of(tile.column) : first + team % kTeamsOfGroup * kBlocks + i;
    const long long row = static_cast<long long>(tile.b_batch) * blocks_n + min(of_n, blocks_n - 1);
    const int of_k = (schedule.k_begin + team / kTeamsOfGroup) * step_blocks(C);
    return static_cast<const char*>(p.b) + (row * blocks_k + of_k) * kBlockBytes;
  }
  __device__ __forceinline__ int bytes_of_step(int step) const {
    return min(blocks_k - (schedule.k_begin + step) * step_blocks(C), step_blocks(C)) * kBlockBytes;
  }
  // Before the launch before has ended: it may still write the weights, so they are asked of the L2 alone, which has
  // what was written last.
  __device__ __forceinline__ void prefetch() {
    if (!schedule.has(schedule.first())) return;
    const Tile tile = schedule.at(schedule.first());
#pragma unroll
    for (int t = 0; t < kTeams; ++t) {
      const int team = first_team + t, group = team / kTeamsOfGroup;
      const char* from = first_block(tile, team, 0);
#pragma unroll 1
      for (int step = group; step < min(count, prefetched_steps(C) * kGroups); step += kGroups) {
        ptx::bulk_prefetch(from, bytes_of_step(step));
        from += kGroups * kSlotBytes;
      }
    }
  }
  __device__ __forceinline__ void run(bool is_loading) {
    if (!is_grouped(C) && !is_loading) return;  // else the lanes that do not load may walk first
    common::RingPosition<kDepth> ring[kTeams];
#pragma unroll 1
    for (int item = schedule.first(); schedule.has(item); item += schedule.stride()) {
      if (!is_loading) continue;
      const Tile tile = schedule.at(item);
      const unsigned long long policy = schedule.reads_weights_once() ? ptx::kEvictFirst : ptx::kEvictNormal;
      const char* blocks[kTeams][kBlocks];
#pragma unroll
      for (int t = 0; t < kTeams; ++t) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          blocks[t][i] = first_block(tile, first_team + t, i);
          if (is_half_of(first_team + t) && is_upper_half(tile.column)) blocks[t][i] += kHalfCodes;
        }
      }
#pragma unroll 1
      for (int round = 0; round < count; round += kGroups) {
        const bool is_first = has_laps(C) && round == 0 && item == schedule.first();
#pragma unroll
        for (int t = 0; t < kTeams; ++t) {
          const int team = first_team + t, step = round + team / kTeamsOfGroup;
          if (step >= count && !has_common_lap(C)) continue;
          const int there = bytes_of_step(step);
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) {
            if (i >= blocks_of_team(C, team % kTeamsOfGroup)) continue;
            const int at = team * kDepth + ring[t].slot;
            const unsigned full = common::barrier_at<kBarriers.loaded>(smem, at);
            if (begins_slowly(C) && round == kGroups && item == schedule.first())
              ptx::mbarrier_wait_parity(common::barrier_at<kBarriers.early>(smem, team), 0);
            ptx::mbarrier_wait_parity(common::barrier_at<kBarriers.emptied>(smem, at), ring[t].parity ^ 1);
            if (has_common_lap(C) && step >= count) {  // as many slots as the ring of activations takes
              ptx::mbarrier_arrive(full);
              ring[t].advance();
              continue;
            }
            const unsigned to = smem + smem_layout(C).b.offset + at * kSlotBytes;
            if (has_laps(C) && there < kSlotBytes) clear_block(to + kBlockBytes);
            if (is_half_of(team)) {
              load_halves(to, blocks[t][i], there, is_upper_half(tile.column), full, is_first, team, policy);
              blocks[t][i] += kGroups * kSlotBytes;
              ring[t].advance();
              continue;
            }
            if (is_first && i == 0) {
              const unsigned early = common::barrier_at<kBarriers.early>(smem, team);
              ptx::mbarrier_arrive_expect_tx(early, kBlockBytes);
              ptx::bulk_load_with_policy(to, blocks[t][i], kBlockBytes, early, policy);
              ptx::mbarrier_arrive_expect_tx(full, there - kBlockBytes);
              if (there > kBlockBytes)
                ptx::bulk_load_with_policy(to + kBlockBytes, blocks[t][i] + kBlockBytes, there - kBlockBytes, full,
                                           policy);
            } else {
              ptx::mbarrier_arrive_expect_tx(full, there);
              ptx::bulk_load_with_policy(to, blocks[t][i], there, full, policy);
            }
            blocks[t][i] += kGroups * kSlotBytes;
            ring[t].advance();
          }
        }
      }
    }
  }
};

template <Config C>
struct TeamConsumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kDepth = direct_depth(C);
  static constexpr int kGroups = k_groups(C);
  static constexpr int kBlocks = blocks(C);
  static constexpr int kTeamsOfGroup = teams_of_group(C);
  static constexpr int kBlockBytes = weight_block_bytes(weights(C)), kSlotBytes = ring_slot_bytes(C);
  using Mma = gemm::MmaOf<wgmma_shape(C)>;
  using Sums = float[kBlocks][C.tile_m / 2];
  static constexpr bool kIsHalf = false;

  const Params& p;
  const unsigned smem;
  Schedule<C, true> schedule{p};
  // Taken from lane 0, so that the compiler knows one value for the warp.
  const int team = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) % 4;  // of the team
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = team / kTeamsOfGroup;
  const int first_block = team % kTeamsOfGroup * kBlocks;
  const int own_blocks = blocks_of_team(C, team % kTeamsOfGroup);
  const int count = schedule.k_end - schedule.k_begin;  // of a tile, all groups
  const int blocks_k = (p.k - 1) / kWeightDepth + 1;
  const unsigned own = smem + kLayout.b.offset + team * kDepth * kSlotBytes;
  // The descriptor of the first slot's activations: others differ in the low word. The assembler does not know that
  // shared memory's addresses are small: a constant it would write anew for each instruction.
  static constexpr unsigned long long kDescriptor = k_major_descriptor(0, C.tile_m, Swizzle::b128);
  const unsigned low = static_cast<unsigned>(kDescriptor) + ((smem + kLayout.a.offset) >> 4);
  const unsigned high = static_cast<unsigned>(kDescriptor >> 32) | smem >> 31;
  common::RingPosition<C.stages> ring{0, 0};    // of activations: where the tile's slots begin
  common::RingPosition<kDepth> at_block{0, 0};  // of weights: the block that is read next
  __device__ __forceinline__ unsigned loaded(int slot) const {
    return common::barrier_at<kBarriers.loaded>(smem, team * kDepth + slot);
  }
  __device__ __forceinline__ unsigned emptied(int slot) const {
    return common::barrier_at<kBarriers.emptied>(smem, team * kDepth + slot);
  }
  __device__ __forceinline__ PackedBlock<C> read_block() const {
    ptx::mbarrier_wait_parity(loaded(at_block.slot), at_block.parity);
    return PackedBlock<C>(own + at_block.slot * kSlotBytes);
  }
  __device__ __forceinline__ PackedBlock<C> read_second() const {
    return PackedBlock<C>(own + at_block.slot * kSlotBytes + kBlockBytes);
  }
  // To the next slot. This warp has all of this one in registers: what was read was widened and handed to wgmma.
  __device__ __forceinline__ void give_back() {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(emptied(at_block.slot));
    at_block.advance();
  }
  __device__ __forceinline__ void wait_for_slot(const common::RingPosition<C.stages>& at, bool has_loaded) const {
    if (!has_loaded) ptx::mbarrier_wait_parity(common::barrier_at<kBarriers.full>(smem, at.slot), at.parity);
  }
  __device__ __forceinline__ void release_slot(int slot) const {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(common::empty_behind<C.stages>(common::barrier_at<kBarriers.full>(smem, slot)));
  }
  static __device__ __forceinline__ void advance(common::RingPosition<C.stages>& at) {
    at.slot += kGroups;
    if (at.slot >= C.stages) {
      at.slot -= C.stages;
      at.parity ^= 1;
    }
  }

  // Of 64 of k: a panel of the slot. The caller waits.
  template <int kPanel>
  __device__ __forceinline__ void issue(float (&sums)[C.tile_m / 2], const unsigned (&a)[kStepsOfHalf][4],
                                        int slot) const {
    const unsigned of_panel = low + ((slot * a_slot_bytes(C) + kPanel * panel_bytes(C)) >> 4);
    unsigned long long along_k[kStepsOfHalf];
#pragma unroll
    for (int i = 0; i < kStepsOfHalf; ++i)
      along_k[i] = static_cast<unsigned long long>(high) << 32 | (of_panel + 2 * i);
    ptx::wgmma_fence();
    Mma::mma(sums, a, along_k, 1);
    ptx::wgmma_commit_group();
  }

  // Of groups of rows the slot says which tile it is of.
  __device__ __forceinline__ unsigned tile_beside(int slot) const {
    return smem + kLayout.tiles.offset + slot * kTileBytes;
  }
  __device__ __forceinline__ bool has_tile() const {
    wait_for_slot({group, 0}, false);
    return !schedule.is_none(tile_beside(group));
  }

  __device__ __forceinline__ void multiply(Sums& sums, Tile& tile, bool has_loaded, int /*item*/) {
    const bool is_resident = schedule.is_resident();
    if (is_resident) ring = {0, 0};
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int v = 0; v < C.tile_m / 2; ++v) sums[i][v] = 0.0f;
      Mma::hold(sums[i]);
    }
    common::RingPosition<C.stages> at = ring;
    at.slot += group;  // a tile's slots begin with a whole round
    int step = group, previous = -1;
    if (step < count) {
      PackedBlock<C> following = read_block();
#pragma unroll 1
      for (; step < count; step += kGroups) {
        wait_for_slot(at, has_loaded);
        const bool has_second = (schedule.k_begin + step) * step_blocks(C) + 1 < blocks_k;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          if (i > 0 && i >= own_blocks) continue;
          const bool has_next = i + 1 < own_blocks || step + kGroups < count;
          unsigned first[kStepsOfHalf][4], second[kStepsOfHalf][4];
          PackedBlock<C> block = following;
          block.template widen<0>(first);
          issue<0>(sums[i], first, at.slot);
          ptx::wgmma_wait_group<1>();
          if (i == 0 && !is_resident && previous >= 0) release_slot(previous);
          block.template widen<1>(second);
          issue<1>(sums[i], second, at.slot);
          if (has_second) {
            block = read_second();
            ptx::wgmma_wait_group<1>();
            block.template widen<0>(first);
            issue<2>(sums[i], first, at.slot);
            ptx::wgmma_wait_group<1>();
            block.template widen<1>(second);
            issue<3>(sums[i], second, at.slot);
          }
          give_back();
          if (has_next) following = read_block();
          ptx::wgmma_wait_group<1>();
        }
        previous = at.slot;
        advance(at);
      }
      ptx::wgmma_wait_group<0>();
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) Mma::hold(sums[i]);
      if constexpr (is_grouped(C)) tile = schedule.read_tile(tile_beside(previous));
      ptx::fence_proxy_async_shared();  // before the arrivals of the sums
      if (!is_resident) release_slot(previous);
    }
    // The last round may be without a step for this group.
    if (!is_resident && step < schedule.slots()) {
      wait_for_slot(at, false);
      if constexpr (is_grouped(C)) tile = schedule.read_tile(tile_beside(at.slot));
      release_slot(at.slot);
    }
    if (!is_resident) ring.advance(schedule.slots());
  }
};

// All tiles of a team.
template <Config C, class Consumer>
__device__ __forceinline__ void run_team(Consumer& consumer) {
  constexpr int kBlocks = blocks(C);
  auto& schedule = consumer.schedule;
  TeamSplit<C> split{consumer.smem, consumer.first_block, consumer.warp, consumer.group, consumer.lane, schedule.rank};
  bool has_loaded = false, has_next = true;
  if constexpr (is_grouped(C)) has_next = consumer.has_tile();
#pragma unroll 1
  for (int item = schedule.first(); is_grouped(C) ? has_next : schedule.has(item); item += schedule.stride()) {
    typename Consumer::Sums sums;
    Tile tile{};
    consumer.multiply(sums, tile, has_loaded, item);
    has_loaded = schedule.is_resident();
    float of_warp[kBlocks][C.tile_m / 8][4];
    if constexpr (Consumer::kIsHalf) {
      consumer.add_halves(sums, of_warp);
      if (consumer.warp >= kDirectParts / 2) continue;
    } else {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int v = 0; v < C.tile_m / 2; ++v) of_warp[i][v / 4][v % 4] = sums[i][v];
    }
    if constexpr (parts(C) > 1) split.send_all(of_warp);
    if constexpr (!is_grouped(C)) tile = schedule.at(item);
    const int first_column =
        Consumer::kIsHalf   ? half_block_of(tile.column) * kWeightRows + (is_upper_half(tile.column) ? kHalfRows : 0)
        : has_half_block(C) ? (first_block_of(tile.column) + consumer.first_block) * kWeightRows
                            : tile.column + consumer.first_block * kWeightRows;
    const int column = first_column + consumer.warp * kDirectRows;
    if constexpr (parts(C) > 1) split.receive(of_warp);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      if (split.is_owner() && i < consumer.own_blocks)
        store_sums<C>(consumer.p, of_warp[i], column + i * kWeightRows, tile);
    if constexpr (is_grouped(C)) has_next = !tile.is_last;
    if constexpr (parts(C) > 1) split.release(is_grouped(C) ? has_next : schedule.has(item + schedule.stride()));
  }
}

}  // namespace tessera::gemm_weights

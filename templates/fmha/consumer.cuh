// A consumer warpgroup: 64 query rows of each tile, from Q K^T to O. One file, though long: its steps share registers.
//
// Each step issues S_(j+1) = Q K^T and O += P_j V back to back and then works on S_(j+1) as soon as it is there, while
// the second product still runs: the tensor cores have work during the softmax. With two slots for Q the same holds
// from tile to tile: the next tile's first scores are computed beside the last O += P V. With one slot they cannot,
// because O leaves through the slot that the next Q needs.
//
// With ping-pong the warpgroups pass a token: only its holder issues, and hands it on at once, so that their products
// queue up in turns instead of colliding and one's softmax falls into the other's products.
#pragma once

#include "attention/sink.cuh"
#include "fmha/alter.cuh"
#include "fmha/epilogue.cuh"
#include "fmha/exchange.cuh"
#include "fmha/key_blocks.cuh"
#include "fmha/mask.cuh"
#include "fmha/matmul.cuh"
#include "fmha/params.cuh"
#include "fmha/passed_tiles.cuh"
#include "fmha/pools.cuh"
#include "fmha/promoted.cuh"
#include "fmha/registers.cuh"
#include "fmha/ring.cuh"
#include "fmha/schedule.cuh"
#include "fmha/softmax.cuh"
#include "fmha/tree.cuh"
#include "fmha/widened.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/reciprocal.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Whether a step finds the next one's keys, so that nothing stands between two warpgroups' products but the turn: with
// 8 bits, and where ragged queries are prefilled. Dense keys of 16 bits gained less than runs differ.
TESSERA_HD constexpr bool looks_ahead(const Config& c) {
  return (transposes_v(c) && consumer_warpgroups(c) > 1) || passes_prefills(c);
}

// Whether sums are promoted within a step: where the first step of the next tile ends a tile.
TESSERA_HD constexpr bool promotes_in_steps(const Config& c) { return c.promote_every > 0 && c.q_stages > 1; }

// Whether the blocks that are still to be skipped say that a step only closes a tile, and not a flag: beside altered
// scores and a window ptxas spilled that, where consumers are compiled alone.
TESSERA_HD constexpr bool counts_hidden(const Config& c) { return alters_scores(c.facts) && hides_first_keys(c.facts); }

// A flag that a loop carries. ptxas keeps an int that is one value for the warp in a uniform register, and asks each
// lane about a bool.
template <bool kIsUniform>
struct LoopFlag {
  using Type = bool;
};
template <>
struct LoopFlag<true> {
  using Type = int;
};

struct NoRawTiles {};

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kWarpgroups = consumer_warpgroups(C);
  using KvPosition = RingPosition<C.stages>;
  using QPosition = RingPosition<C.q_stages>;

  const Params& p;
  const typename ConsumerSchedule<C>::Type& schedule;
  const unsigned smem;
  Scale scale = scale_of<C>(p);  // 8-bit keys: of the tile that was begun
  attention::Altering altering = attention::altering_of<C>(p);
  // Taken from lane 0, so that the compiler knows one value for the warp and can keep addresses in uniform registers.
  int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0) - 1;
  KvPosition kv = KvPosition{}.previous();  // of the last scores that were issued
  QPosition q = QPosition{}.previous();     // of the last tile that was begun
  int first_row = 0;                        // of that tile
  int promotion = 0;                        // where promotes_in_steps(): the block behind whose step sums are promoted
  int blocks = 0;                           // its key blocks that are left, the one at hand included
  int first_key = 0;                        // at which the first of them begins; see has_first_key
  Lengths used{};                           // of its sequence; where lengths are read from memory
  RowStatistics rows{};
  float of_values = 1;   // the descale of the tile's values, where it is found before the products
  long long token = 0;   // the first of its sequence; where the Config has trees
  float slopes[2] = {};  // of this thread's rows, times log2(e); where the Config has them
  int accumulate = 0;    // whether O holds something of its tile
  unsigned exchange_parity = 0;
  bool is_idle = false;  // 8-bit keys: none of this warp's rows is one of the tile's head
  // What the next step begins with, where it is looked for: the slot of its product with V, that of its scores, the low
  // word of the latter's descriptor, and whether its keys were seen to be there.
  KvPosition of_output = KvPosition{}.previous();
  KvPosition kv_ahead{};
  unsigned k_low_ahead = k_low(kv_ahead);
  int is_k_ahead = 0;
  unsigned carried_q = low_of_slot();

  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C.ping_pong) ptx::barrier_sync(kBarrierOfTurn + warpgroup, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    const int next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
    if constexpr (C.ping_pong) ptx::barrier_arrive(kBarrierOfTurn + next, 2 * kWarpgroupThreads);
  }

  // The low word of the descriptor of a slot of K.
  __device__ __forceinline__ unsigned k_low(const KvPosition& at) const {
    const unsigned slot = smem + kLayout.k.offset + at.slot() * k_slot_bytes(C);
    return static_cast<unsigned>(k_major_descriptor(slot, C.tile_n, C.swizzle));
  }
  __device__ __forceinline__ void wait_k(const KvPosition& at) const {
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.k_full>(smem, at.slot()), at.parity());
  }
  // While a step's exponentials are under way: what the next one would have to find between two turns.
  __device__ __forceinline__ void look_ahead() {
    if constexpr (!looks_ahead(C)) return;
    of_output = kv;
    kv_ahead = kv;
    kv_ahead.advance();
    k_low_ahead = static_cast<unsigned>(ptx::forget(static_cast<int>(k_low(kv_ahead))));
    const unsigned full = barrier_at<kBarriers.k_full>(smem, kv_ahead.slot());
    is_k_ahead = ptx::mbarrier_test_wait_parity(full, kv_ahead.parity()) ? 1 : 0;
  }
  // To the next block's keys, once they are there.
  __device__ __forceinline__ unsigned go_on() {
    if constexpr (looks_ahead(C)) {
      kv = kv_ahead;
      if (!is_k_ahead) wait_k(kv);
    } else {
      kv.advance();
      wait_k(kv);
    }
    if constexpr (C.kv_copy == KvCopy::cp_async) ptx::fence_proxy_async_shared();
    return looks_ahead(C) ? k_low_ahead : k_low(kv);
  }
  __device__ __forceinline__ void wait_v(const KvPosition& at) const {
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.v_full>(smem, at.slot()), at.parity());
    if constexpr (C.kv_copy == KvCopy::cp_async) ptx::fence_proxy_async_shared();
  }
  __device__ __forceinline__ unsigned v_slot(const KvPosition& at) const {
    return smem + kLayout.v.offset + at.slot() * v_slot_bytes(C);
  }
  // One arrival of each warp hands a slot back.
  template <BarrierRow kEmpty>
  __device__ __forceinline__ void release(const KvPosition& at) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kEmpty>(smem, at.slot()));
  }
  __device__ __forceinline__ int q_index() const { return q.slot() * row_groups(C) + warpgroup; }
  // Beside the exchange of CTA pairs no registers are left to keep what follows from the address.
  __device__ __forceinline__ unsigned q_slot() const {
    const int slot = static_cast<int>(smem) + kLayout.q.offset + q_index() * q_slot_bytes(C);
    return static_cast<unsigned>(C.cta_pair ? ptx::forget(slot) : slot);
  }

  // The low word of Q's descriptor. Of two slots and more a tile carries it on: what follows from a slot's number, six
  // instructions, the compiler would compute in each step, between a warpgroup's turn and its first product.
  static constexpr bool kCarriesQ = C.q_stages > 1 && !C.cta_pair;
  __device__ __forceinline__ unsigned low_of_slot() const {
    return static_cast<unsigned>(k_major_descriptor(q_slot(), kRowsPerWarpgroup, C.swizzle));
  }
  __device__ __forceinline__ unsigned low_of_q() const { return kCarriesQ ? carried_q : low_of_slot(); }
  __device__ __forceinline__ void advance_q() {
    q.advance();
    constexpr int kBytes = row_groups(C) * q_slot_bytes(C);
    if constexpr (kCarriesQ)
      carried_q += static_cast<unsigned>((q.slot() == 0 ? (1 - C.q_stages) * kBytes : kBytes) / 16);
  }

  // Of the tile's sequence. Parameters are no state: no register is kept for them.
  __device__ __forceinline__ Lengths lengths() const {
    if constexpr (!reads_lengths(C.facts)) return {p.seqlen_k, p.seqlen_q};
    return used;
  }

  // Of the tile that was begun.
  __device__ __forceinline__ int blocks_of_tile(const TileIndex& tile) const {
    if constexpr (passes_tiles(C)) return schedule.blocks();
    if constexpr (has_pools(C)) return pooled_blocks<C>(p, tile);
    if constexpr (has_first_key(C)) {
      const Blocks of_tile = KeyBlocks<C>(p, lengths()).of_tile(tile);
      return of_tile.end - of_tile.begin;
    }
    return key_blocks<C>(p, first_row + C.tile_m);
  }

  // Key blocks at the end of the tile that was begun that none of this warpgroup's rows sees, all but one if it has no
  // rows at all.
  __device__ __forceinline__ int hidden_blocks(const TileIndex& tile) const {
    if constexpr (passes_tiles(C)) return schedule.hidden_blocks(warpgroup);
    if constexpr (has_pools(C)) return 0;
    if constexpr (shares_tiles<C>()) {
      if (!works_on(tile, warpgroup)) return blocks_of_tile(tile) - 1;
    }
    const int begin = tile.m * C.tile_m + warpgroup * kRowsPerWarpgroup;
    if constexpr (has_first_key(C)) {
      const KeyBlocks<C> keys(p, lengths());
      return keys.hidden_of(keys.of_tile(tile), begin);
    }
    const int of_tile = key_blocks<C>(p, tile.m * C.tile_m + C.tile_m);
    const int own = begin < rows_of_head<C>(p) ? key_blocks<C>(p, begin + kRowsPerWarpgroup) : 1;
    return of_tile - own;
  }

  // The first of this thread's two rows in a tile; the second is 8 further. Needed rarely, so no register is kept for
  // it.
  __device__ __forceinline__ int row_in_tile() const {
    const int thread = ptx::forget(static_cast<int>(threadIdx.x)) % kWarpgroupThreads;
    if constexpr (shares_blocks(C)) return thread % 32 / 4;
    return warpgroup * kRowsPerWarpgroup + thread / 32 * 16 + thread % 32 / 4;
  }

  // The query head of one of this thread's two rows of a tile. Also of one that is not there, which may lie before 0.
  __device__ __forceinline__ int head_of_row(const TileIndex& tile, int r) const {
    const auto row = static_cast<unsigned>(tile.m * C.tile_m + row_in_tile() + 8 * r);
    // Rows that are none count as the last one's.
    if constexpr (has_pools(C)) return min(static_cast<int>(row % padded_heads(C)), C.pack_gqa - 1);
    return head_of<C>(p, tile).head * C.pack_gqa + static_cast<int>(row % C.pack_gqa);
  }

  // Of the scores of 8-bit operands, whose tiles have factors of their own.
  __device__ __forceinline__ void take_scale(float of_scores) {
    if constexpr (alters_scores(C.facts)) {
      altering = attention::altering_of<C>(p, of_scores);
    } else {
      scale = Scale(of_scores);
    }
  }

  // Goes on to a tile, once its Q is there.
  __device__ __forceinline__ void begin(const TileIndex& tile) {
    advance_q();
    first_row = tile.m * C.tile_m;
    if constexpr (passes_tiles(C)) {
      used = {schedule.keys(), tile.queries};
    } else if constexpr (reads_lengths(C.facts)) {
      used = lengths_of<C>(p, tile);
    }
    if constexpr (is_8_bit(C.facts)) {
      take_scale(p.softmax_scale *
                 descale_of<C>(p, p.q_descale, p.q_descale_stride_batch, p.q_descale_stride_head, tile) *
                 descale_of<C>(p, p.k_descale, p.k_descale_stride_batch, p.k_descale_stride_head, tile));
    } else if constexpr (widens_keys(C.facts)) {
      take_scale(p.softmax_scale *
                 descale_of<C>(p, p.k_descale, p.k_descale_stride_batch, p.k_descale_stride_head, tile));
    }
    if constexpr (skips_idle_warps(C)) {
      const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32, 0);
      is_idle = first_row + warpgroup * kRowsPerWarpgroup + 16 * warp >= rows_of<C>(p, lengths());
    }
    // Few queries would wait for it in the end.
    if constexpr (shares_blocks(C) && has_descales(C.facts))
      of_values = descale_of<C>(p, p.v_descale, p.v_descale_stride_batch, p.v_descale_stride_head, tile);
    blocks = blocks_of_tile(tile);
    if constexpr (passes_tiles(C)) {
      first_key = ends_with_last_key(C.facts) || hides_first_keys(C.facts) || is_dealt(C) ? schedule.first_key() : 0;
    } else if constexpr (has_first_key(C)) {
      const KeyBlocks<C> keys(p, lengths());
      first_key = keys.key_of(keys.of_tile(tile).begin);
    }
    if constexpr (C.facts.alibi != Alibi::none) {
#pragma unroll
      for (int r = 0; r < 2; ++r) slopes[r] = attention::slope_of<C>(p, head_of_row(tile, r));
    }
    if constexpr (C.facts.tree_mask != TreeMask::none) token = first_token<C>(p, head_of<C>(p, tile));
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.q_full>(smem, q_index()), q.parity());
    if constexpr (copies_q(C)) ptx::fence_proxy_async_shared();
  }

  __device__ __forceinline__ void drop_v() const {
    wait_v(kv);
    __syncwarp();
    release<kBarriers.v_empty>(kv);
  }

  // Leaves out a block. The turn is taken all the same: each warpgroup has one for each block of a tile. No product
  // brings the lanes together here, and one that still waits when the slot has been filled again waits for ever.
  __device__ __forceinline__ void skip_block() {
    go_on();
    __syncwarp();
    release<kBarriers.k_empty>(kv);
    wait_turn();
    pass_turn();
    drop_v();
    look_ahead();
  }
  __device__ __forceinline__ void skip_blocks(int count) {
    blocks -= count;
#pragma unroll 1
    for (; count > 0; --count) skip_block();
  }

  // Whether some key of a block is hidden from some of this warpgroup's rows. The first row sees the first keys, the
  // last one the last.
  __device__ __forceinline__ bool has_hidden(int first_key_of_block) const {
    return has_hidden(first_key_of_block, first_row + warpgroup * kRowsPerWarpgroup);
  }
  __device__ __forceinline__ bool has_hidden(int first_key_of_block, int row) const {
    if (first_key_of_block + C.tile_n > visible_end<C>(p, lengths(), row)) return true;
    if constexpr (!hides_first_keys(C.facts)) return false;
    const int last_row = row + kRowsPerWarpgroup - 1;
    if (C.facts.seqused == UsedLengths::qk && last_row >= lengths().q * C.pack_gqa) return true;
    return first_key_of_block < visible_keys<C>(p, lengths(), last_row).begin;
  }

  // The rare cases: a scale that cannot be folded, a block that holds hidden keys.
  __device__ __forceinline__ void fix_up() const {
    const int first_key_of_block = (has_first_key(C) ? first_key : 0) + (blocks - 1) * C.tile_n;
    if constexpr (alters_scores(C.facts)) {
      float distances[2];
      const float addend[2] = {-slopes[0], -slopes[1]};
      find_distances<C>(lengths(), first_row + row_in_tile(), first_key_of_block, distances);
      RegistersOf<C>::alter(altering.inner, altering.outer, addend, distances);
    }
    if (scale.is_applied() || has_hidden(first_key_of_block)) {
      const VisibleColumns columns = visible_columns<C>(p, lengths(), first_row + row_in_tile(), first_key_of_block);
      RegistersOf<C>::mask(scale.factor(), columns.limits, columns.begins);
    }
    if constexpr (C.facts.tree_mask != TreeMask::none)
      hide_by_tree<C>(p, lengths(), token, first_row + row_in_tile(), first_key_of_block);
  }
  // The largest of this thread's scores in each row, times the folded scale.
  __device__ __forceinline__ void find_scaled_maxima(float (&max)[2]) const {
    RegistersOf<C>::find_maxima(max);
    max[0] *= scale.folded;
    max[1] *= scale.folded;
  }
  __device__ __forceinline__ void exponentiate() {
    const float addend[2] = {-rows.subtrahend(0), -rows.subtrahend(1)};
    RegistersOf<C>::exponentiate(scale.folded, addend, rows.sum);
  }

  // Behind a ragged sequence's last row stand those of the next one, which may not have a say in when references move.
  __device__ __forceinline__ void leave_out_foreign_rows(float (&max)[2]) const {
    const int own_rows = rows_of<C>(p, lengths()) - first_row - row_in_tile();
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (8 * r >= own_rows) max[r] = ptx::minus_infinity();
  }

  // 1 / sum of a finished row, its head's sink included; of a part of dealt keys 1.
  __device__ __forceinline__ float factor_with_sink(const TileIndex& tile, int r) const {
    if (is_dealt(C) && tile.split >= 0) return 1.0f;
    const int head = head_of_row(tile, r);
    float whole = rows.sum[r];
    if (p.sink != nullptr) whole += attention::sink_share(p.sink[head], rows.subtrahend(r));
    return whole == 0.0f ? 0.0f : ptx::rcp(whole);
  }

  // What needs only the row sums, so that it can run beside the last product. factor: O is multiplied with it.
  __device__ __forceinline__ void finish_rows(const TileIndex& tile, float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (!shares_blocks(C)) rows.sum[r] = sum_of_quad(rows.sum[r]);
      factor[r] = is_split(C) ? 1.0f : rows.sum[r] == 0.0f ? 0.0f : ptx::rcp(rows.sum[r]);
      if constexpr (is_dealt(C) && C.facts.output == Output::normalized)
        factor[r] = tile.split >= 0 ? 1.0f : rows.sum[r] == 0.0f ? 0.0f : ptx::rcp(rows.sum[r]);
      if constexpr (divides_with_sink(C)) factor[r] = factor_with_sink(tile, r);
    }
    if constexpr (has_descales(C.facts)) {
      const float of_v = shares_blocks(C)
                             ? of_values
                             : descale_of<C>(p, p.v_descale, p.v_descale_stride_batch, p.v_descale_stride_head, tile);
#pragma unroll
      for (int r = 0; r < 2; ++r) factor[r] = C.facts.output == Output::unnormalized ? of_v : factor[r] * of_v;
    }
    // Where warps own their rows, behind O: what is done while it lives takes long to compile. Of those that share a
    // block's keys one has them.
    if constexpr (!uses_mma_sync(C)) write_statistics(tile);
  }
  __device__ __forceinline__ void write_statistics(const TileIndex& tile) const {
    if constexpr (shares_tiles<C>()) {
      if (!works_on(tile, warpgroup)) return;
    }
    store_statistics<C>(p, tile, rows, tile.m * C.tile_m + row_in_tile());
  }

  // A tile's O leaves.
  __device__ __forceinline__ void hand_over(const Accumulator<C>& output, const TileIndex& tile,
                                            const QPosition& of_tile) const {
    if constexpr (is_split(C)) {
      store_part<C>(p, output, tile, tile.m * C.tile_m + row_in_tile(), warpgroup, of_tile, smem);
    } else if constexpr (leaves_from_registers(C)) {
      store_whole<C>(p, output, tile, tile.m * C.tile_m + row_in_tile(), warpgroup, of_tile, smem);
    } else if constexpr (is_ragged(C.facts)) {
      hand_over_ragged<C>(p, output, tile, tile.m * C.tile_m + row_in_tile(), warpgroup, of_tile, smem);
    } else {
      stage_output<C>(output, warpgroup, of_tile, smem);
    }
  }

  __device__ __forceinline__ void hand_over_registers(const TileIndex& tile, const QPosition& of_tile) const {
    const Accumulator<C> output{};  // in the registers that have names
    hand_over(output, tile, of_tile);
  }

  // The tile before the one that was begun, where a register is not kept for each number of it.
  __device__ __forceinline__ TileIndex opened(const TileIndex& tile) const {
    if constexpr (passes_tiles(C)) {
      return schedule.before();
    } else {
      return tile;
    }
  }

  // A block's scores, and beside them O += P V of the block before. In a tile's first step that is the last product of
  // the tile before, if it is still open; then its O is complete and leaves. If it is not open, the product has nothing
  // to do: it multiplies what happens to lie in shared memory into an O that the next one overwrites. A wgmma in a
  // branch would make ptxas serialise them all.
  //
  // A tile's first step exists once with every other, since each copy of this code takes its time to compile. What only
  // the first one does hides where all lanes must look anyway, behind "some row's reference moves".
  template <bool kHasOutput>
  __device__ __forceinline__ void step(bool is_first, bool is_open, const TileIndex& old_tile, const TileIndex& tile) {
    if constexpr (is_8_bit(C.facts)) {
      step_8_bit<kHasOutput>(is_first, is_open, old_tile, tile);
    } else {
      step_16_bit<kHasOutput>(is_first, is_open, old_tile);
    }
  }
  template <bool kHasOutput>
  __device__ __forceinline__ void step_16_bit(bool is_first, bool is_open, const TileIndex& old_tile) {
    const KvPosition of_v = looks_ahead(C) ? of_output : kv;
    const unsigned of_k = go_on();
    wait_turn();
    ptx::wgmma_fence();
    issue_scores<C>(low_of_q(), of_k);
    if constexpr (kHasOutput) {
      if constexpr (!has_placed_keys(C) && !widens_keys(C.facts)) {
        if (is_open) wait_v(of_v);
        ptx::wgmma_fence();
        issue_output<C>(v_slot(of_v), accumulate);
      } else {
        // Threads write to slots: what is multiplied for nothing is a block that is there, and stays.
        const KvPosition read = looks_ahead(C) || is_open ? of_v : kv;
        wait_v(read);
        ptx::wgmma_fence();
        issue_output<C>(v_slot(read), accumulate);
      }
    }
    pass_turn();

    ptx::wgmma_wait_group<kHasOutput ? 1 : 0>();
    [[maybe_unused]] PresentKeys<C> present;
    if constexpr (has_pools(C)) present.load(smem, kv.slot());
    release<kBarriers.k_empty>(kv);
    if constexpr (C.cta_pair) {
      Scores<C> scores;
      RegistersOf<C>::read_scores(scores);
      exchange_scores<C>(scores, warpgroup, exchange_parity, smem);
      RegistersOf<C>::write_scores(scores);
      exchange_parity ^= 1;
    }
    float max[2], factor[2];
    if constexpr (widens_keys(C.facts)) {
      max[0] = max[1] = ptx::minus_infinity();
      if (!is_idle) {
        fix_up();
        find_scaled_maxima(max);
      }
    } else {
      if constexpr (has_pools(C)) {
        present.hide_others(scale);
      } else {
        fix_up();
      }
      find_scaled_maxima(max);
    }
    if constexpr (has_split_size(C.facts) && is_ragged(C.facts)) leave_out_foreign_rows(max);
    const bool moves = __any_sync(0xffffffff, is_first || rows.is_exceeded(max));
    if (moves && is_first) {
      if (is_open) finish_rows(opened(old_tile), factor);
      rows = RowStatistics::begin(max);
    } else if (moves) {
      rows.move(max, factor);
    }
    look_ahead();
    if (!widens_keys(C.facts) || !is_idle) exponentiate();
    if constexpr (kHasOutput) {
      ptx::wgmma_wait_group<0>();
      if (is_open) release<kBarriers.v_empty>(of_v);
    }
    if (!widens_keys(C.facts) || !is_idle) RegistersOf<C>::pack();
    if (kHasOutput && moves && is_open) {
      if (scales_finished(C) || !is_first) RegistersOf<C>::rescale(factor);
      if (is_first) hand_over_registers(opened(old_tile), q.previous());
    }
    accumulate = is_first ? 0 : 1;
  }
  // The same for 8 bits: step_8_bit.cuh.
  template <bool kHasOutput>
  __device__ __forceinline__ void step_8_bit(bool is_first, bool is_open, const TileIndex& old_tile,
                                             const TileIndex& tile);
  __device__ __forceinline__ bool find_exponents(bool is_first, bool is_open, const TileIndex& old_tile,
                                                 float (&factor)[2]);
  __device__ __forceinline__ void walk_and_close(const TileIndex& tile, int round);
  __device__ __forceinline__ PromotedSums<C> promoted_of(const TileIndex& tile) const {
    return promoted_sums<C>(p, tile, tile.m * C.tile_m + row_in_tile(), smem, warpgroup);
  }

  // A tile's last product, with no scores beside it.
  __device__ __forceinline__ void multiply_last(const TileIndex& tile, float (&factor)[2]) {
    wait_v(kv);
    ptx::wgmma_fence();
    issue_output<C>(v_slot(kv), accumulate);
    finish_rows(tile, factor);
    ptx::wgmma_wait_group<0>();
    release<kBarriers.v_empty>(kv);
  }
  __device__ __forceinline__ void leave(const TileIndex& tile, const float (&factor)[2]) const {
    if (scales_finished(C)) RegistersOf<C>::rescale(factor);
    hand_over_registers(tile, q);
  }
  // The tile of a round, where a register is not kept for each number of it.
  __device__ __forceinline__ TileIndex tile_of(const TileIndex& tile, int round) const {
    if constexpr (passes_tiles(C)) {
      return schedule.at(round);
    } else {
      return tile;
    }
  }

  // With one slot for Q a tile is closed before the next begins.
  __device__ __forceinline__ void run_separate() {
    RegistersOf<C>::clear_probabilities();
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0; schedule.has(round); round = schedule.next(round, tile)) {
      tile = schedule.at(round);
      begin(tile);
      work_on(tile, round);
    }
  }
  // The tile that was begun, to its end.
  __device__ __forceinline__ void work_on(const TileIndex& tile, int round) {
    skip_blocks(hidden_blocks(tile));
    step<false>(true, false, tile, tile);
    if constexpr (C.promote_every > 0) {
      --blocks;
      walk_and_close(tile, round);
    } else {
#pragma unroll 1
      while (--blocks > 0) step<true>(false, true, tile, tile);
      float factor[2];
      multiply_last(tile_of(tile, round), factor);
      leave(tile_of(tile, round), factor);
    }
  }

  // A tile whose last product no other one's first step has beside it.
  __device__ __forceinline__ void close(const TileIndex& tile) {
    float factor[2];
    multiply_last(tile, factor);
    leave(tile, factor);
    accumulate = 0;
  }

  // With two, a tile stays open until the first step of the next one, so that no product has a copy without scores
  // beside it. Where this warpgroup has nothing to see in the next tile's first block a step serves for the closing
  // alone: its scores are computed and dropped. So it does after the last tile, on a tile that is not there, unless the
  // Config has raw tiles: these are worked on by `raw`, and before them and at the end an open tile is closed by
  // itself.
  template <class RawTiles>
  __device__ __forceinline__ void run_joined(const RawTiles& raw) {
    RegistersOf<C>::clear_probabilities();
    using Flag = typename LoopFlag<looks_ahead(C)>::Type;
    Flag is_open = false;
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0;; round = schedule.next(round, tile)) {
      const bool has_new = schedule.has(round);
      if (!has_new && !is_open) return;  // a CTA without tiles
      if constexpr (has_raw_tiles(C)) {
        const bool goes_on = has_new && !schedule.is_raw();
        if (!goes_on) {
          if (is_open) close(opened(tile));
          if (!has_new) return;
          is_open = false;
          begin(schedule.at(round));
          raw.work_on(schedule.at(round));
          continue;
        }
      }
      const TileIndex new_tile = schedule.at(round);
      begin(new_tile);
      int hidden = has_new ? hidden_blocks(new_tile) : 1;
      bool only_closes = is_open && hidden > 0;
      if (only_closes) blocks = 1;
#pragma unroll 1  // twice at most; the loop of the steps stays as lean as if there were no closing
      for (;;) {
        if (!only_closes) {
          skip_blocks(hidden);
          if constexpr (counts_hidden(C)) hidden = 0;
        }
        // What is multiplied for nothing, where no tile is open, is a block that is there, and stays.
        if (looks_ahead(C) && !is_open) of_output = kv_ahead;
        Flag is_first = true;
        if constexpr (promotes_in_steps(C)) promotion = (blocks - 1) / blocks_of_promotion(C) * blocks_of_promotion(C);
#pragma unroll 1
        for (; blocks > 0; --blocks) {
          step<true>(is_first, is_open, tile, new_tile);
          is_first = false;
          is_open = true;
        }
        if (counts_hidden(C) ? hidden == 0 : !only_closes) break;
        only_closes = false;
        is_open = false;
        if (!has_new) return;
        drop_v();
        blocks = blocks_of_tile(new_tile) - 1;
        hidden = hidden_blocks(new_tile) - 1;
      }
      tile = new_tile;
    }
  }
};

template <Config C>
__device__ __forceinline__ void consume(const Params& p, const typename ConsumerSchedule<C>::Type& schedule,
                                        unsigned smem) {
  Consumer<C> consumer{p, schedule, smem};
  if constexpr (C.promote_every > 0) forget_promoted<C>(smem, consumer.warpgroup);
  if (consumer.warpgroup == Consumer<C>::kWarpgroups - 1) consumer.pass_turn();  // the first warpgroup begins
  if constexpr (C.q_stages == 1) {
    consumer.run_separate();
  } else {
    consumer.run_joined(NoRawTiles{});
  }
}

}  // namespace tessera::fmha

// A consumer warp: 16 rows of each tile, from the ring to O.
#pragma once

#include "attention/altered_scores.cuh"
#include "attention/sink.cuh"
#include "attention/tree_mask.cuh"
#include "common/ring.cuh"
#include "fmha_nvfp4/probabilities.cuh"
#include "fmha_nvfp4/store.cuh"
#include "fmha_nvfp4/tiles.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_block_scale.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"

namespace tessera::fmha_nvfp4 {

// Words [kFirst, kFirst + kWords) of a lane's scales: one load.
template <int kWords>
__device__ __forceinline__ void load_words(unsigned address, unsigned (&words)[kWords]) {
  static_assert(kWords == 2 || kWords == 4);
  if constexpr (kWords == 2) {
    ptx::ld_shared_v2(address, words[0], words[1]);
  } else {
    const ptx::Words4 v = ptx::ld_shared_v4(address);
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
  }
}

template <Config C>
struct Consumer {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr BarrierRow kFull = full_barriers(C);
  static constexpr int kSteps = score_steps(C), kColumnTiles = C.facts.head_dim / 8;
  static constexpr int kTilesOfUnit = nvfp4::kKeysOfUnit / 8, kScoresOfUnit = 4 * kTilesOfUnit;
  static constexpr float kRaise = 11.392317f, kLower = 1.0f / 2688.0f;  // log2(448 * 6), and its way back
  static constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
  static constexpr bool kAlters = alters_scores(C.facts), kCaps = C.facts.softcap != Softcap::none;
  using Scores = float[C.tile_n / 2];
  using Outputs = OutputRows<C>;

  const Params& p;
  const unsigned smem;
  // Taken from lane 0, so that the compiler knows one value for the warp.
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) - kWarpgroupThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  common::RingPosition<C.stages> ring{};
  const attention::Altering altering = attention::altering_of<C>(p);
  // Scores are multiplied by a factor that is not negative: with a negative scale they change their signs before.
  const float factor = kAlters ? attention::folded<C>(altering) : fmaxf(fabsf(p.softmax_scale) * kLog2E, 0x1p-100f);

  unsigned q[kSteps][4];
  unsigned q_scales;
  float max[2], sum[2];
  float shift[2], slope;  // row_shift, of capped scores; of the head, times log2(e)

  __device__ __forceinline__ Consumer(const Params& params, unsigned shared) : p(params), smem(shared) {}

  __device__ __forceinline__ int row_of(const Tile<C>& tile) const { return tile.first_row + kRowsOfWarp * warp; }

  __device__ __forceinline__ void load_queries(const Tile<C>& tile) {
    const char* const unit = static_cast<const char*>(p.q) +
                             tile.query_block(p) * nvfp4::q_block_bytes(C.facts.head_dim) +
                             static_cast<long long>(row_of(tile) / kRowsOfWarp) * nvfp4::q_unit_bytes(C.facts.head_dim);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const ptx::Vector4 v = ptx::ld_global_v4(unit + 512 * step + 16 * lane);
      q[step][0] = v.x;
      q[step][1] = v.y;
      q[step][2] = v.z;
      q[step][3] = v.w;
    }
    // One step: the second two threads of a quad have no scales to give.
    const int word = kSteps == 2 ? lane : lane / 4 * 2 + lane % 2;
    q_scales = ptx::ld_global_u32(unit + nvfp4::q_scales_offset(C.facts.head_dim) + 4 * word);
  }

  // Accumulators of S begin as delta_s: a thread's 8 keys of each 32, the same for both of its rows.
  __device__ __forceinline__ void begin_scores(Scores& scores) const {
    const unsigned delta_s = smem + kLayout.delta_s.offset + ring.slot * delta_slot_bytes(C) + lane % 4 * 32;
#pragma unroll
    for (int group = 0; group < C.tile_n / 32; ++group) {
      float delta[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&four)[4] = *reinterpret_cast<float(*)[4]>(delta + 4 * half);
        ptx::ld_shared_v4_f32(delta_s + 128 * group + 16 * half, four);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e)
        scores[16 * group + e / 2 * 4 + e % 2] = scores[16 * group + e / 2 * 4 + 2 + e % 2] = delta[e];
    }
  }

  // A unit's accumulator tiles from kTile on. Ids of scales are part of an instruction, so tiles are numbers of the
  // type.
  template <int kTile = 0>
  __device__ __forceinline__ void multiply_keys(float* scores, unsigned unit,
                                                const unsigned (&scales)[2 * kSteps]) const {
    if constexpr (kTile < kTilesOfUnit) {
      // One load has both steps of a tile, or a step of two.
      constexpr int kTiles = 2 / kSteps;
      const ptx::Words4 v = ptx::ld_shared_v4(unit + kTile / kTiles * 512 + 16 * lane);
      constexpr int kGroup = kTile / 4 * kSteps;
      multiply<0, kTile % 4>(scores + 4 * kTile, q[0], v.x, v.y, q_scales, scales[kGroup]);
      if constexpr (kSteps == 2) {
        multiply<1, kTile % 4>(scores + 4 * kTile, q[1], v.z, v.w, q_scales, scales[kGroup + 1]);
      } else {
        multiply<0, kTile % 4 + 1>(scores + 4 * kTile + 4, q[0], v.z, v.w, q_scales, scales[kGroup]);
      }
      multiply_keys<kTile + kTiles>(scores, unit, scales);
    }
  }
  template <int kThreadOfA, int kThreadOfB>
  static __device__ __forceinline__ void multiply(float* sums, const unsigned (&a)[4], unsigned b0, unsigned b1,
                                                  unsigned sfa, unsigned sfb) {
    ptx::mma_block_scale<OperandType::nvfp4, OperandType::nvfp4, 0, kThreadOfA, kThreadOfB>(sums, a, b0, b1, sfa, sfb);
  }

  __device__ __forceinline__ void multiply_queries(Scores& scores) const {
#pragma unroll
    for (int u = 0; u < units_of_step(C); ++u) {
      const unsigned unit =
          smem + kLayout.k.offset + ring.slot * key_slot_bytes(C) + u * nvfp4::key_unit_bytes(C.facts.head_dim);
      unsigned scales[2 * kSteps];
      load_words(unit + nvfp4::key_scales_offset(C.facts.head_dim) + lane * 8 * kSteps, scales);
      multiply_keys(scores + u * kScoresOfUnit, unit, scales);
    }
  }

  // Two tiles of columns after the other.
  template <int kTile = 0>
  __device__ __forceinline__ void multiply_values(Outputs& outputs, const Probabilities& of, unsigned unit,
                                                  const unsigned (&scales)[C.facts.head_dim / 32]) const {
    if constexpr (kTile < kColumnTiles) {
      const ptx::Words4 v = ptx::ld_shared_v4(unit + kTile / 2 * 512 + 16 * lane);
      multiply<0, kTile % 4>(outputs + 4 * kTile, of.words, v.x, v.y, of.scales, scales[kTile / 4]);
      multiply<0, kTile % 4 + 1>(outputs + 4 * kTile + 4, of.words, v.z, v.w, of.scales, scales[kTile / 4]);
      multiply_values<kTile + 2>(outputs, of, unit, scales);
    }
  }

  // Where row_shift, lse and its like have a row's number: [batch, heads_q, seqlen_q], ragged [heads_q, queries of
  // all].
  __device__ __forceinline__ long long statistic_at(const Tile<C>& tile, int row) const {
    const long long sequences = has_ragged_queries<C>() ? 0 : static_cast<long long>(tile.sequence) * p.heads_q;
    return (sequences + tile.head) * p.seqlen_q + tile.queries.first + row;
  }
  __device__ __forceinline__ float row_shift_of(const Tile<C>& tile, int row) const {
    if (row >= tile.queries.rows) return 0.0f;
    return __uint_as_float(ptx::ld_global_u32(p.row_shift + statistic_at(tile, row)));
  }

  // Of this thread's two rows: capped, lowered.
  __device__ __forceinline__ void alter(Scores& scores, const Tile<C>& tile, int first_key) const {
    float distances[2];  // of the row's own key from the thread's first
#pragma unroll
    for (int r = 0; r < 2; ++r)
      distances[r] = static_cast<float>(row_of(tile) + lane / 4 + 8 * r + tile.keys.rows - tile.queries.rows -
                                        first_key - lane % 4 * 8);
#pragma unroll
    for (int i = 0; i < C.tile_n / 2; ++i) {
      const int row = i / 2 % 2, key = i / 16 * 32 + i % 16 / 4 * 2 + i % 2;
      const float score = kCaps ? scores[i] + shift[row] : scores[i];
      scores[i] = attention::altered<C>(score, altering, slope, distances[row] - static_cast<float>(key));
    }
  }

  __device__ __forceinline__ void hide_by_tree(Scores& scores, const Tile<C>& tile, int first_key) const {
    const attention::Lengths lengths{.k = tile.keys.rows, .q = tile.queries.rows};
    if (first_key + C.tile_n <= lengths.k - lengths.q) return;
    const long long token =
        has_ragged_queries<C>() ? tile.queries.first : static_cast<long long>(tile.sequence) * p.seqlen_q;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const attention::TreeRow row = attention::tree_row(p, lengths, token, row_of(tile) + lane / 4 + 8 * r);
#pragma unroll
      for (int group = 0; group < C.tile_n / 32; ++group) {
        const unsigned bits = row.visible(first_key + 32 * group + lane % 4 * 8);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if ((bits >> e & 1) == 0) scores[16 * group + e / 2 * 4 + 2 * r + e % 2] = ptx::minus_infinity();
      }
    }
  }

  // Signs, what becomes of scores, and what a row does not see.
  __device__ __forceinline__ void fix_up(Scores& scores, const Tile<C>& tile, int first_key) const {
    const int row = row_of(tile);
    if constexpr (kAlters) {
      alter(scores, tile, first_key);
    } else if (p.softmax_scale < 0) {
#pragma unroll
      for (int i = 0; i < C.tile_n / 2; ++i) scores[i] = -scores[i];
    }
    if constexpr (C.facts.tree_mask != TreeMask::none) hide_by_tree(scores, tile, first_key);
    const bool hides_rows = has_used_queries<C>() && row + kRowsOfWarp > tile.queries.rows;
    const bool hides_last = hides_rows || first_key + C.tile_n > tile.visible_keys(p, row).end;
    const bool hides_first =
        C.facts.window != Window::none && first_key < tile.visible_keys(p, row + kRowsOfWarp - 1).begin;
    if (!hides_last && !hides_first) return;
    const int of_lane = first_key + lane % 4 * 8;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Keys keys = tile.visible_keys(p, row + lane / 4 + 8 * r);
#pragma unroll
      for (int i = 0; i < C.tile_n / 4; ++i) {
        const int key = of_lane + i / 8 * 32 + i % 8;
        if (key >= keys.end || key < keys.begin)
          scores[i / 8 * 16 + i % 8 / 2 * 4 + 2 * r + i % 2] = ptx::minus_infinity();
      }
    }
  }

  // Maxima follow scores, and O and the sums follow them.
  __device__ __forceinline__ void follow_maxima(const Scores& scores, Outputs& outputs) {
    float largest[2] = {max[0], max[1]};
#pragma unroll
    for (int i = 0; i < C.tile_n / 2; ++i) largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], scores[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffff, largest[r], 1));
      largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffff, largest[r], 2));
    }
    if (!__any_sync(0xffffffff, largest[0] > max[0] || largest[1] > max[1])) return;
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // A row that saw no key before: its O and sum are 0.
      rescale[r] = max[r] == ptx::minus_infinity() ? 0.0f : ptx::ex2((max[r] - largest[r]) * factor);
      max[r] = largest[r];
      sum[r] *= rescale[r];
    }
#pragma unroll
    for (int i = 0; i < C.facts.head_dim / 2; ++i) outputs[i] *= rescale[i / 2 % 2];
  }

  __device__ __forceinline__ void step(Outputs& outputs, const Tile<C>& tile, int first_key) {
    Scores scores;
    const unsigned full = common::barrier_at<kFull>(smem, ring.slot);
    ptx::mbarrier_wait_parity(full, ring.parity);
    begin_scores(scores);
    multiply_queries(scores);
    fix_up(scores, tile, first_key);
    follow_maxima(scores, outputs);
    float subtrahend[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) subtrahend[r] = (max[r] == ptx::minus_infinity() ? 0.0f : max[r] * factor) - kRaise;
#pragma unroll
    for (int u = 0; u < units_of_step(C); ++u) {
      const unsigned unit =
          smem + kLayout.v.offset + ring.slot * key_slot_bytes(C) + u * nvfp4::key_unit_bytes(C.facts.head_dim);
      Probabilities of;
      exponentiate(of, scores + u * kScoresOfUnit, factor, subtrahend, sum);
      unsigned scales[C.facts.head_dim / 32];
      load_words(unit + nvfp4::key_scales_offset(C.facts.head_dim) + lane * (C.facts.head_dim / 8), scales);
      multiply_values(outputs, of, unit, scales);
    }
    // One arrival of each warp, whose lanes have read what they need of the slot. The fence ends the reads before the
    // next bulk copy's writes, which are another proxy's.
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(common::empty_behind<C.stages>(full));
    ring.advance();
  }

  __device__ __forceinline__ void store(const Outputs& outputs, const Tile<C>& tile) {
    float factors[2];  // of rows of O
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
      const int row = row_of(tile) + lane / 4 + 8 * r;
      const bool is_there = row < tile.rows, is_first = lane % 4 == 0;
      const long long at = statistic_at(tile, row);
      // Of all of the row's logits, times log2(e), besides what the scores have of it.
      const float apart = kCaps ? 0.0f : p.softmax_scale * kLog2E * row_shift_of(tile, row);
      const float largest = max[r] * factor + apart;
      if constexpr (is_split(C)) {
        if (!is_there) continue;
        const long long rows = static_cast<long long>(has_ragged_queries<C>() ? 1 : p.batch) * p.heads_q * p.seqlen_q;
        const long long of_part = tile.split * rows + at;
        store_row_of_sums<C>(p.partial_o + of_part * C.facts.head_dim, outputs, r, kLower);
        if (is_first)
          ptx::st_global_v2(p.partial_sums + 2 * of_part, __float_as_uint(largest), __float_as_uint(sum[r] * kLower));
        continue;
      }
      if constexpr (C.facts.output == Output::unnormalized) {
        factors[r] = kLower;
      } else {
        float whole = sum[r];
        if constexpr (C.facts.sink != Sink::none) {
          const float subtrahend = max[r] == ptx::minus_infinity() ? 0.0f : largest - kRaise;
          if (p.sink != nullptr) whole += attention::sink_share(p.sink[tile.head], subtrahend);
        }
        factors[r] = whole == 0.0f ? 0.0f : 1.0f / whole;
      }
      if (!is_first || !is_there) continue;
      if constexpr (C.facts.output == Output::unnormalized) {
        p.row_max[at] = largest * kLn2;
        p.row_sum[at] = sum[r] * kLower;
      }
      if (p.lse == nullptr) continue;
      const float logarithm = (max[r] * factor + (ptx::lg2(sum[r]) - kRaise)) * kLn2;
      p.lse[at] = sum[r] == 0.0f ? ptx::minus_infinity()
                  : kCaps        ? logarithm
                                 : fmaf(p.softmax_scale, row_shift_of(tile, row), logarithm);
    }
    if constexpr (stores_boxes(C)) store_rows<C>(p, smem, warp, outputs, factors, tile, row_of(tile));
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int index = static_cast<int>(blockIdx.x); index < num_tiles<C>(p); index += static_cast<int>(gridDim.x)) {
      const Tile<C> tile(p, index);
      if (tile.is_empty()) continue;
      if (!has_used_queries<C>() || tile.first_row < tile.queries.rows) load_queries(tile);  // else nobody wrote them
      Outputs outputs;
#pragma unroll
      for (int i = 0; i < C.facts.head_dim / 2; ++i) outputs[i] = 0.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        max[r] = ptx::minus_infinity();
        sum[r] = 0.0f;
        shift[r] = kCaps ? row_shift_of(tile, row_of(tile) + lane / 4 + 8 * r) : 0.0f;
      }
      slope = C.facts.alibi == Alibi::none ? 0.0f : attention::slope_of<C>(p, tile.head);
#pragma unroll 1
      for (int block = tile.first_block; block < tile.end_block; ++block) step(outputs, tile, block * C.tile_n);
      store(outputs, tile);
    }
    if constexpr (stores_boxes(C)) finish_stores();
  }
};

}  // namespace tessera::fmha_nvfp4

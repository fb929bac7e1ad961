// Consumer warps that share each block's keys, for few queries: spec/fmha_warps.h.
//
// A warp's fragments of S and O are laid out as wgmma's are for one warp (matmul.cuh), with 16 rows and its own keys,
// so masks, softmax and stores are those of the other kernels. Warps know nothing of each other until a tile's end:
// each has its own references, sums and O.
#pragma once

#include "attention/widen.cuh"
#include "attention/widen_scaled.cuh"
#include "fmha/alter.cuh"
#include "fmha/consumer.cuh"
#include "fmha/joined_rows.cuh"
#include "fmha/mask.cuh"
#include "fmha/matmul.cuh"
#include "fmha/softmax.cuh"
#include "fmha/tree.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// A tile of shared memory as panels [columns / span][rows][span], and where a lane finds its rows of matrices in it.
template <Swizzle kSwizzle, int kRows, int kSpan>
struct Panels {
  unsigned base;

  // Of 16 bytes, which are chunk `chunk` of their row.
  __device__ __forceinline__ unsigned chunk(int row, int chunk) const {
    constexpr int kChunks = kSpan / 16;
    return swizzle_address(kSwizzle, base + chunk / kChunks * kRows * kSpan + row * kSpan + chunk % kChunks * 16);
  }
  // The same in two steps: a row's chunk, and from its address that of the one `by` chunks further, of which numbers no
  // bit is set in both. For a swizzle turns a row's chunks by bits of the row alone, and panels begin where its pattern
  // does.
  __device__ __forceinline__ static unsigned further(unsigned chunk, int by) {
    constexpr int kChunks = kSpan / 16;
    return (chunk ^ static_cast<unsigned>(by % kChunks * 16)) + static_cast<unsigned>(by / kChunks * kRows * kSpan);
  }
};

// Before a slot is given back to TMA, by all lanes. Loads of the generic proxy and TMA's writes after them are
// ordered by a proxy fence alone: without it ptxas lets the arrival overtake ldmatrix whose result nobody has used
// yet, and on Hopper the next block came into one of some 10^9 of them.
__device__ __forceinline__ void end_reads() {
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

// Of eight columns of a query those that pairs of a key's word of nibbles have, two pairs: (j, j + 4).
__device__ __forceinline__ void pair_columns(unsigned first, unsigned second, unsigned& even, unsigned& odd) {
  even = ptx::prmt(first, second, 0x5410);
  odd = ptx::prmt(first, second, 0x7632);
}

// A word of codes of two keys' values: of each column both. `scales`: the first key's one, where the codes' block is.
template <Config C>
__device__ __forceinline__ void widen_values(unsigned word, unsigned scales,
                                             unsigned (&pairs)[attention::kPairsOfWord<C.facts.kv_format>]) {
  const unsigned first = ptx::ld_shared_u8(scales);
  const unsigned second = ptx::ld_shared_u8(scales + key_scale_bytes(C.facts, v_columns(C)));
  // Bytes: an even and an odd column of one key, the same of the next key.
  if constexpr (!has_key_nibbles(C.facts)) word = ptx::prmt(word, 0, 0x3120);
  attention::widen_pairs<C.facts.kv_format>(word, attention::scale_pair<C.facts.kv_format>(first, second), pairs);
}

// A tile's beginning for warps that share each block's keys: Q goes to registers, and its slot back. `of`: a consumer.
template <Config C, class Of, class Queries>
__device__ __forceinline__ void begin_shared(Of& of, const TileIndex& tile, Queries& q, int round) {
  of.begin(tile);
  of.load_queries(q);
  end_reads();
  if (of.lane == 0) ptx::mbarrier_arrive(barrier_at<barriers(C).q_empty>(of.smem, of.q_index()));
  of.prepare(q);
  if constexpr (asks_ahead(C)) {
    if (round == 0 && of.p.pages > 0) ptx::mbarrier_wait_parity(barrier_at<barriers(C).early>(of.smem, 0), 0);
  }
  of.rows = RowStatistics{};
}

template <Config C>
struct SharedConsumer : Consumer<C> {
  static constexpr Config kWarp = of_one_warp(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr bool kWidens = widens_keys(C.facts);
  static constexpr int kKeys = keys_of_warp(C);
  // Steps of the instruction's k along the columns of Q and K, and 16-byte chunks of a row of K or V.
  static constexpr int kScoreSteps = qk_columns(C) / 16;
  static constexpr bool kIsScaled = has_key_scales(C.facts);
  static constexpr bool kIsNibbles = has_key_nibbles(C.facts);
  static constexpr int kChunksOfV = slot_row_bytes(C, v_columns(C)) / 16;
  static constexpr int kScalesOfK = key_scale_bytes(C.facts, qk_columns(C));
  static constexpr int kScalesOfV = key_scale_bytes(C.facts, v_columns(C));
  static constexpr int kPairs = attention::kPairsOfWord<C.facts.kv_format>;
  using QueryFragments = unsigned[kScoreSteps][4];

  int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32;
  int lane = static_cast<int>(threadIdx.x) % 32;
  RingPosition<C.stages> ring;

  // The A operand of each step. 8-bit keys: columns in the order in which a word of a key has them.
  __device__ __forceinline__ void load_queries(QueryFragments& q) const {
    constexpr int kSpan = swizzle_span_bytes(C.swizzle);
    const Panels<C.swizzle, kRowsOfWarpMma, kSpan> panels{this->q_slot()};
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = lane / 4 + 8 * r;
        if constexpr (kIsNibbles) {
          if (step % 2 == 0) load_two_steps(q + step, panels.chunk(row, 2 * step + lane % 4), r);
        } else if constexpr (kWidens) {
          const unsigned at = panels.chunk(row, 2 * step + lane % 4 / 2) + lane % 2 * 8;
          ptx::ld_shared_v2(at, q[step][r], q[step][2 + r]);
        } else {
          q[step][r] = ptx::ld_shared_u32(panels.chunk(row, 2 * step) + lane % 4 * 4);
          q[step][2 + r] = ptx::ld_shared_u32(panels.chunk(row, 2 * step + 1) + lane % 4 * 4);
        }
      }
    }
  }
  __device__ __forceinline__ static void prepare(QueryFragments& /*q*/) {}
  // 4-bit keys: columns in the order in which pairs come out of a word.
  __device__ __forceinline__ static void load_two_steps(unsigned (*q)[4], unsigned chunk, int r) {
    const ptx::Words4 words = ptx::ld_shared_v4(chunk);
    pair_columns(words.x, words.z, q[0][r], q[0][2 + r]);
    pair_columns(words.y, words.w, q[1][r], q[1][2 + r]);
  }

  // S of this warp's keys. Two groups of eight keys and two chunks of their rows at a time.
  __device__ __forceinline__ void multiply_queries(Scores<kWarp>& scores, const QueryFragments& q,
                                                   unsigned slot) const {
    constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, qk_columns(C));
    constexpr int kChunksOfRow = slot_row_bytes(C, qk_columns(C)) / 16;
    [[maybe_unused]] const unsigned scales = this->smem + kLayout.k_scales.offset +
                                             ring.slot() * scale_slot_bytes(C, qk_columns(C)) +
                                             (warp * kKeys + lane / 4) * kScalesOfK;
    const Panels<swizzle_of_keys(C, qk_columns(C)), C.tile_n, kSpan> panels{slot};
#pragma unroll
    for (int v = 0; v < kKeys / 2; ++v) scores[v] = 0.0f;
#pragma unroll
    for (int chunk = 0; chunk < kChunksOfRow; chunk += 2) {
#pragma unroll
      for (int group = 0; group < kKeys / 8; group += 2) {
        const int row = warp * kKeys + 8 * (group + lane / 8 % 2) + lane % 8;
        const int second = chunk + 1 < kChunksOfRow ? lane / 16 : 0;
        unsigned words[4];
        ptx::ldmatrix_x4(panels.chunk(row, chunk + second), words);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float* const of_group = scores + 4 * (group + i);
          if constexpr (kIsScaled) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              if (chunk + half == kChunksOfRow) continue;
              const int block = kIsNibbles ? 2 * (chunk + half) + lane % 4 / 2 : chunk / 2;
              const unsigned code = ptx::ld_shared_u8(scales + 8 * (group + i) * kScalesOfK + block);
              unsigned pairs[kPairs];
              attention::widen_pairs<C.facts.kv_format>(words[2 * half + i],
                                                        attention::scale_pair<C.facts.kv_format>(code, code), pairs);
#pragma unroll
              for (int j = 0; j < kPairs / 2; ++j)
                ptx::mma_m16n8k16<C.facts.dtype>(of_group, q[(chunk + half) * kPairs / 2 + j], pairs[2 * j],
                                                 pairs[2 * j + 1]);
            }
          } else if constexpr (kWidens) {
            unsigned low, high;
            attention::widen_word<C.facts.dtype>(words[i], low, high);
            ptx::mma_m16n8k16<C.facts.dtype>(of_group, q[chunk], low, high);
            if (chunk + 1 == kChunksOfRow) continue;
            attention::widen_word<C.facts.dtype>(words[2 + i], low, high);
            ptx::mma_m16n8k16<C.facts.dtype>(of_group, q[chunk + 1], low, high);
          } else {
            ptx::mma_m16n8k16<C.facts.dtype>(of_group, q[chunk / 2], words[i], words[2 + i]);
          }
        }
      }
    }
  }

  // O += P V of this warp's keys.
  __device__ __forceinline__ void multiply_values(Accumulator<C>& output, const Probabilities<kWarp>& p,
                                                  unsigned slot) const {
    constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, v_columns(C));
    constexpr DType kType = p_dtype(C);
    const Panels<swizzle_of_keys(C, v_columns(C)), C.tile_n, kSpan> panels{slot};
    [[maybe_unused]] const unsigned scales = this->smem + kLayout.v_scales.offset +
                                             ring.slot() * scale_slot_bytes(C, v_columns(C)) +
                                             (warp * kKeys + lane % 4 * 2) * kScalesOfV;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const int row = warp * kKeys + 16 * step + lane % 16;
#pragma unroll
      for (int chunk = 0; chunk < kChunksOfV; chunk += 2) {
        const int second = chunk + 1 < kChunksOfV ? lane / 16 : 0;
        unsigned words[4];
        ptx::ldmatrix_x4_trans(panels.chunk(row, chunk + second), words);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (chunk + i == kChunksOfV) continue;
          if constexpr (kIsScaled) {
            const int block = kIsNibbles ? 2 * (chunk + i) + lane / 16 : chunk / 2;
            unsigned pairs[2][kPairs];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              widen_values<C>(words[2 * i + half], scales + (16 * step + 8 * half) * kScalesOfV + block, pairs[half]);
#pragma unroll
            for (int j = 0; j < kPairs; ++j)
              ptx::mma_m16n8k16<kType>(output + 4 * ((chunk + i) * kPairs + j), p[step], pairs[0][j], pairs[1][j]);
          } else if constexpr (kWidens) {
            // Bytes: an even and an odd column of one key, the same of the next key.
            unsigned even[2], odd[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
              attention::widen_word<kType>(ptx::prmt(words[2 * i + half], 0, 0x3120), even[half], odd[half]);
            ptx::mma_m16n8k16<kType>(output + 8 * (chunk + i), p[step], even[0], even[1]);
            ptx::mma_m16n8k16<kType>(output + 8 * (chunk + i) + 4, p[step], odd[0], odd[1]);
          } else {
            ptx::mma_m16n8k16<kType>(output + 4 * (chunk + i), p[step], words[2 * i], words[2 * i + 1]);
          }
        }
      }
    }
  }

  // As fix_up() of Consumer, for this warp's keys.
  __device__ __forceinline__ void fix_up_own(Scores<kWarp>& scores) const {
    const int first_of_block = (has_first_key(C) ? this->first_key : 0) + (this->blocks - 1) * C.tile_n;
    const int first = first_of_block + warp * kKeys;
    const int row = this->first_row + this->row_in_tile();
    if constexpr (alters_scores(C.facts))
      alter_scores<kWarp>(scores, this->altering, this->slopes, this->lengths(), row, first);
    if (this->scale.is_applied() || this->has_hidden(first_of_block))
      scale_and_mask<kWarp>(scores, this->p, this->lengths(), this->scale.factor(), row, first);
    if constexpr (C.facts.tree_mask != TreeMask::none)
      hide_by_tree<kWarp>(scores, this->p, this->lengths(), this->token, row, first);
  }

  __device__ __forceinline__ void step(const QueryFragments& q, Accumulator<C>& output) {
    Scores<kWarp> scores;
    const unsigned k_slot = this->smem + kLayout.k.offset + ring.slot() * k_slot_bytes(C);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.k_full>(this->smem, ring.slot()), ring.parity());
    multiply_queries(scores, q, k_slot);
    end_reads();
    this->template release<kBarriers.k_empty>(ring);
    fix_up_own(scores);
    float max[2];
    find_maxima(scores, this->scale, max);
    if constexpr (has_split_size(C.facts) && is_ragged(C.facts)) this->leave_out_foreign_rows(max);
    if (__any_sync(0xffffffff, this->rows.is_exceeded(max))) {
      float factor[2];
      this->rows.move(max, factor);
      rescale(output, factor);
    }
    exponentiate(scores, this->scale, this->rows);
    Probabilities<kWarp> probabilities;
    pack<kWarp>(probabilities, scores);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.v_full>(this->smem, ring.slot()), ring.parity());
    multiply_values(output, probabilities, this->smem + kLayout.v.offset + ring.slot() * v_slot_bytes(C));
    end_reads();
    this->template release<kBarriers.v_empty>(ring);
    ring.advance();
  }

  __device__ __forceinline__ static void sync_warps() { ptx::barrier_sync(kBarrierOfWarpgroup, kWarpgroupThreads); }

  // A tile's end. Vectors of four columns of a row of O pass through shared memory, of one row of a lane and half of
  // its columns at a time, as many as there is room for: each warp leaves its own, and adds up every fourth of all.
  static constexpr int kVectors = v_columns(C) / 16;  // of a lane's row
  static constexpr int kPasses = kVectors > 1 ? 2 : 1;
  static constexpr int kVectorsAtOnce = (kVectors + kPasses - 1) / kPasses;
  static_assert(kVectorsAtOnce * kConsumerWarps * 32 * 16 <= joined_rows_bytes(C));

  // How many of them a pass has: the last one of 80 columns has fewer.
  static __device__ constexpr int vectors_of_pass(int pass) {
    const int left = kVectors - pass * kVectorsAtOnce;
    return left < kVectorsAtOnce ? left : kVectorsAtOnce;
  }

  __device__ __forceinline__ unsigned sums_of(int of_warp) const {
    return this->smem + kLayout.joined.offset + 8 * (of_warp * kRowsOfWarpMma + lane / 4);
  }
  __device__ __forceinline__ unsigned vector_of(int of_warp, int i) const {
    const unsigned vectors = this->smem + kLayout.joined.offset + joined_sums_bytes(C);
    return vectors + ((of_warp * kVectorsAtOnce + i) * 32 + lane) * 16;
  }

  __device__ __forceinline__ void leave_sums() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      this->rows.sum[r] = sum_of_quad(this->rows.sum[r]);
      if (lane % 4 == 0) ptx::st_shared_v2_f32(sums_of(warp) + 64 * r, this->rows.reference[r], this->rows.sum[r]);
    }
  }
  __device__ __forceinline__ void leave_vectors(const Accumulator<C>& output, int r, int pass) const {
#pragma unroll
    for (int i = 0; i < vectors_of_pass(pass); ++i) {
      const ptx::Vector4 four = vector_of_row<C>(output, pass * kVectorsAtOnce + i, r);
      ptx::st_shared_v4(vector_of(warp, i), {four.x, four.y, four.z, four.w});
    }
  }
  // The row's reference and sum of all warps' keys, and the weights of their vectors.
  __device__ __forceinline__ void join_sums(int r, float (&weights)[kConsumerWarps]) {
    float of_warp[kConsumerWarps];
    float& reference = this->rows.reference[r];
#pragma unroll
    for (int i = 0; i < kConsumerWarps; ++i) {
      unsigned bits, sum;
      ptx::ld_shared_v2(sums_of(i) + 64 * r, bits, sum);
      weights[i] = __uint_as_float(bits);
      of_warp[i] = __uint_as_float(sum);
      reference = fmaxf(reference, weights[i]);
    }
    this->rows.sum[r] = 0.0f;
#pragma unroll
    for (int i = 0; i < kConsumerWarps; ++i) {
      weights[i] = ptx::ex2(weights[i] - this->rows.subtrahend(r));
      this->rows.sum[r] += of_warp[i] * weights[i];
    }
  }
  __device__ __forceinline__ ptx::Vector4 add_vectors(int i, const float (&weights)[kConsumerWarps],
                                                      float factor) const {
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < kConsumerWarps; ++j) {
      float four[4];
      ptx::ld_shared_v4_f32(vector_of(j, i), four);
#pragma unroll
      for (int column = 0; column < 4; ++column) sums[column] = fmaf(four[column], weights[j], sums[column]);
    }
    if constexpr (scales_finished(C)) {
#pragma unroll
      for (int column = 0; column < 4; ++column) sums[column] *= factor;
    }
    return {__float_as_uint(sums[0]), __float_as_uint(sums[1]), __float_as_uint(sums[2]), __float_as_uint(sums[3])};
  }

  __device__ __forceinline__ void finish(const TileIndex& tile, const Accumulator<C>& output, bool is_first) {
    const int row = tile.m * C.tile_m + this->row_in_tile();
    // Whether some lane's second row is one of the head's.
    const bool has_second = rows_of_tile_head<C>(this->p, tile) > tile.m * C.tile_m + kRowsOfWarpMma / 2;
    if (!is_first) sync_warps();  // what the tile before left has been read
    leave_sums();
    leave_vectors(output, 0, 0);
    sync_warps();
    float weights[2][kConsumerWarps], factor[2];
    join_sums(0, weights[0]);
    if (has_second) join_sums(1, weights[1]);
    this->finish_rows(tile, factor);
    if (warp == 0) this->write_statistics(tile);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (r == 1 && !has_second) break;
      char* const to = row_to_store<C>(this->p, tile, row + 8 * r);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (r + pass > 0) {
          sync_warps();
          leave_vectors(output, r, pass);
          sync_warps();
        }
#pragma unroll 1
        for (int i = warp; i < vectors_of_pass(pass); i += kConsumerWarps)
          store_vector<C>(to, tile, pass * kVectorsAtOnce + i, add_vectors(i, weights[r], factor[r]));
      }
    }
  }

  __device__ __forceinline__ void run() {
    TileIndex tile{0, 0};
#pragma unroll 1
    for (int round = 0; this->schedule.has(round); round = this->schedule.next(round, tile)) {
      tile = this->schedule.at(round);
      QueryFragments q;
      begin_shared<C>(*this, tile, q, round);
      Accumulator<C> output;
#pragma unroll
      for (int v = 0; v < v_columns(C) / 2; ++v) output[v] = 0.0f;
#pragma unroll 1
      for (; this->blocks > 0; --this->blocks) step(q, output);
      finish(tile, output, round == 0);
    }
  }
};

template <Config C>
__device__ __forceinline__ void consume_shared(const Params& p, const Schedule<C>& schedule, unsigned smem) {
  SharedConsumer<C> consumer{{p, schedule, smem}};
  consumer.run();
}

}  // namespace tessera::fmha

// From a warp's sums to D: scale, add, activate, round, and out, straight from the registers.
//
// A thread's sums are pairs of columns, 4 or 8 bytes. Pairs of fp32 that a quad of threads stores side by side fill a
// sector of 32 bytes. Of 16-bit types a quad first exchanges what it has of four groups of eight columns, so that each
// thread stores the 16 bytes of one. Where rows of D do not lie multiples of these apart, or end within, elements are
// stored one by one. So are those of D transposed, where a thread's pair is of two rows, and the eight threads that
// have the same pair of rows store eight neighbours of each.
//
// With a gate a warp has gate and up of the same columns of D, in groups of their own, or in the same groups, where a
// quad exchanges what each thread needs for its pair of D.
//
// Sums of integers become fp32 first, with one rounding, or are what is stored.
//
// A D that has a map goes through shared memory instead, blocks of 16 rows at a time (staged.cuh).
#pragma once

#include "common/transpose_quad.cuh"
#include "gemm/activation.cuh"
#include "gemm/finish.cuh"
#include "gemm/product_params.cuh"
#include "gemm/product_walk.cuh"
#include "gemm/quantizer.cuh"
#include "gemm_mma/staged.cuh"
#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "ptx/math.cuh"
#include "spec/gemm_mma.h"

namespace tessera::gemm_mma {

// Rows of 16, groups of eight columns, and a thread's four sums: two columns of row lane / 4, and of the row 8 further.
template <bool kIsInteger>
struct SumType {
  using Type = float;
};
template <>
struct SumType<true> {
  using Type = int;
};
template <Config C>
using Sum = typename SumType<is_integer(C)>::Type;
template <Config C>
using UnitSums = Sum<C>[unit_groups(C)][4];
template <Config C>
using Sums = Sum<C>[warp_m(C) / kBlock][warp_n(C) / 8][4];

template <Config C>
__device__ __forceinline__ void clear(Sums<C>& sums) {
#pragma unroll
  for (int m = 0; m < warp_m(C) / kBlock; ++m) {
#pragma unroll
    for (int n = 0; n < warp_n(C) / 8; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[m][n][v] = 0;
    }
  }
}

// As transpose_quad(), of two threads and two groups: an even thread has words 2 i and 2 i + 1 of the first, an odd one
// of the second.
__device__ __forceinline__ void transpose_pair(unsigned (&words)[2]) {
  const bool is_upper = (threadIdx.x & 1) != 0;
  const unsigned received = __shfl_xor_sync(0xffffffff, is_upper ? words[0] : words[1], 1);
  if (is_upper) {
    words[0] = received;
  } else {
    words[1] = received;
  }
}

template <Config C>
struct Epilogue {
  static constexpr int kElementBytes = dtype_bytes(C.facts.d_dtype);
  static constexpr bool kIsGated = C.facts.gate != Gate::none;
  // Groups of eight columns of D in a unit, and those that are stored together.
  static constexpr int kGroups = kIsGated ? unit_groups(C) / 2 : unit_groups(C);
  static constexpr int kTogether = kElementBytes != 2 ? 1 : kGroups < 4 ? kGroups : 4;
  static constexpr int kWords = kTogether == 1 ? 2 : kTogether;  // that a thread stores
  static constexpr int kStored = kWords * 4 / kElementBytes;
  // What a unit has: sums, or with a gate what becomes of them.
  using Value = typename SumType<is_integer(C) && !kIsGated>::Type;

  const gemm::ProductParams& p;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float alpha = gemm::scaled_alpha<has_tensor_scales(C)>(p, p.scale_b);
  const float alpha_up = C.facts.gate == Gate::dual ? gemm::scaled_alpha<has_tensor_scales(C)>(p, p.scale_b2) : alpha;
  const int columns_d = columns_of_d(C, p.n);
  const bool is_in_vectors = (p.ldd | p.d_stride_l) * kElementBytes % (4 * kWords) == 0;
  // C is read where what becomes of it is stored, by the same thread: it may be D.
  static constexpr bool kReadsWords = C.facts.c == Addend::matrix && !is_quantized(C) && !is_swapped(C);
  const bool is_c_in_vectors =
      ((p.ldc | p.c_stride_l) * kElementBytes | reinterpret_cast<unsigned long long>(p.c)) % (4 * kWords) == 0;

  __device__ __forceinline__ void store_words(const unsigned (&words)[kWords], const gemm::WalkedTile& tile, int row,
                                              int column) const {
    if (row >= tile.row_end) return;
    const long long index = tile.a_matrix * p.d_stride_l + row * p.ldd + column;
    if (is_in_vectors && column + kStored <= columns_d) {
      unsigned char* const to = static_cast<unsigned char*>(p.d_pointer) + index * kElementBytes;
      if constexpr (kWords == 4) {
        ptx::st_global_v4(to, {words[0], words[1], words[2], words[3]});
      } else {
        ptx::st_global_v2(to, words[0], words[1]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kStored; ++i) {
      if (column + i >= columns_d) continue;
      if constexpr (kElementBytes == 2) {
        static_cast<unsigned short*>(p.d_pointer)[index + i] =
            static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      } else {
        static_cast<unsigned*>(p.d_pointer)[index + i] = words[i];
      }
    }
  }

  // Of C, as store_words() has them of D.
  __device__ __forceinline__ void load_words(unsigned (&words)[kWords], const gemm::WalkedTile& tile, int row,
                                             int column) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = 0;
    if (row >= tile.row_end || p.beta == 0.0f) return;
    const long long index = tile.a_matrix * p.c_stride_l + row * p.ldc + column;
    const unsigned char* const from = static_cast<const unsigned char*>(p.c) + index * kElementBytes;
    if (is_c_in_vectors && column + kStored <= p.n) {
      if constexpr (kWords == 4) {
        const ptx::Vector4 v = ptx::ld_global_v4_written(from);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
      } else {
        ptx::ld_global_v2_written(from, words[0], words[1]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kStored; ++i) {
      if (column + i >= p.n) continue;
      if constexpr (kElementBytes == 2) {
        words[i / 2] |= static_cast<unsigned>(reinterpret_cast<const unsigned short*>(from)[i]) << (i % 2 * 16);
      } else {
        words[i] = reinterpret_cast<const unsigned*>(from)[i];
      }
    }
  }
  // The first of the columns of D, of kTogether groups, that this thread loads and stores.
  __device__ __forceinline__ int column_of_words() const {
    if constexpr (kElementBytes != 2) return lane % 4 * 2;
    return kTogether == 4 ? lane % 4 * 8 : lane % 2 * 8 + lane % 4 / 2 * 4;
  }
  // Groups of words that this thread has of rows to those of its pairs of sums; and back.
  static __device__ __forceinline__ void exchange(unsigned (&words)[kWords]) {
    if constexpr (kElementBytes == 2 && kTogether == 4) {
      common::transpose_quad(words);
    } else if constexpr (kElementBytes == 2) {
      transpose_pair(words);
    }
  }

  // What a column of D is made from, of 16 columns of sums or fewer whose interleave divides eight: the thread's
  // element `kElement` of two that lie side by side in its part of one of two groups, by way of the quad.
  template <int kElement>
  __device__ __forceinline__ float exchanged(const Sum<C> (&sums)[unit_groups(C)][4], int group, int half,
                                             int column) const {
    const int from = (lane & ~3) | column % 8 / 2;
    const Sum<C> low = __shfl_sync(0xffffffff, sums[group][2 * half + kElement], from);
    const Sum<C> high = __shfl_sync(0xffffffff, sums[group + 1][2 * half + kElement], from);
    return static_cast<float>(column < 8 ? low : high);
  }

  // `of_gate`, `of_up`: rows of B, whose bias they have where there is one.
  __device__ __forceinline__ float gated(float gate, float up, int of_gate, int of_up, int group) const {
    float x = gate * alpha, y = up * alpha_up;
    if constexpr (C.facts.bias != Bias::none) {
      if (of_gate < p.n) x += gemm::bias_of<C.facts, C.facts.d_dtype>(p, group, p.n, of_gate);
      if (of_up < p.n) y += gemm::bias_of<C.facts, C.facts.d_dtype>(p, group, p.n, of_up);
    }
    return gemm::gated<C.facts>(x, y);
  }

  template <int kElement>
  __device__ __forceinline__ float gated_of_quad(const Sum<C> (&sums)[unit_groups(C)][4], int group, int half, int of_b,
                                                 int matrix) const {
    constexpr int kInterleave = C.facts.interleave;
    const int of_d = lane % 4 * 2 + kElement, gate = of_d / kInterleave * 2 * kInterleave + of_d % kInterleave;
    // Where gate and up alternate, a thread's pair is one of each.
    constexpr int kOfGate = kInterleave == 1 ? 0 : kElement, kOfUp = kInterleave == 1 ? 1 : kElement;
    return gated(exchanged<kOfGate>(sums, group, half, gate), exchanged<kOfUp>(sums, group, half, gate + kInterleave),
                 of_b + gate, of_b + gate + kInterleave, matrix);
  }

  // A unit's columns of D from its sums of gate and up: of rows `of_b` of B and on, where both stand in turn.
  __device__ __forceinline__ void apply_gate(float (&values)[kGroups][4], const Sum<C> (&sums)[unit_groups(C)][4],
                                             int of_b, int matrix) const {
    constexpr bool kIsDual = C.facts.gate == Gate::dual;
    constexpr int kApart = kIsDual ? kGroups : C.facts.interleave / 8;  // groups from a gate's to up's
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (kApart == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          values[g][2 * half] = gated_of_quad<0>(sums, 2 * g, half, of_b + 16 * g, matrix);
          values[g][2 * half + 1] = gated_of_quad<1>(sums, 2 * g, half, of_b + 16 * g, matrix);
        }
      } else {
        const int gate = g / kApart * 2 * kApart + g % kApart;
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int of_gate = of_b + 8 * gate + lane % 4 * 2 + v % 2;
          values[g][v] = gated(static_cast<float>(sums[gate][v]), static_cast<float>(sums[gate + kApart][v]), of_gate,
                               of_gate + 8 * kApart, matrix);
        }
      }
    }
  }

  // Two neighbours in fp32, on their way out.
  __device__ __forceinline__ void finish(float (&pair)[2], const Value (&values)[4], const gemm::WalkedTile& tile,
                                         int half, int row, int column) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) pair[i] = static_cast<float>(values[2 * half + i]);
    if constexpr (!kIsGated)
      gemm::finish_pair<C.facts, C.facts.d_dtype, is_swapped(C)>(pair, p, alpha, row, tile.row_end,
                                                                 column + lane % 4 * 2, tile.a_matrix, tile.b_matrix);
  }
  // As bits, of fp32 or of integers.
  __device__ __forceinline__ void finish_words(unsigned (&words)[2], const Value (&values)[4],
                                               const gemm::WalkedTile& tile, int half, int row, int column) const {
    if constexpr (stores_sums(C)) {
#pragma unroll
      for (int i = 0; i < 2; ++i) words[i] = static_cast<unsigned>(values[2 * half + i]);
    } else {
      float pair[2];
      finish(pair, values, tile, half, row, column);
#pragma unroll
      for (int i = 0; i < 2; ++i) words[i] = __float_as_uint(pair[i]);
    }
  }

  // D transposed: `row` is a column of it.
  __device__ __forceinline__ void store_transposed(const Value (&values)[4], const gemm::WalkedTile& tile, int half,
                                                   int row, int column) const {
    unsigned words[2];
    finish_words(words, values, tile, half, row, column);
    if (row >= p.m) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int of_d = column + lane % 4 * 2 + i;
      if (of_d >= p.n) continue;
      const long long index = tile.a_matrix * p.d_stride_l + of_d * p.ldd + row;
      if constexpr (kElementBytes == 2) {
        static_cast<unsigned short*>(p.d_pointer)[index] =
            static_cast<unsigned short>(ptx::cvt_pack<C.facts.d_dtype>(__uint_as_float(words[i]), 0.0f));
      } else {
        static_cast<unsigned*>(p.d_pointer)[index] = words[i];
      }
    }
  }

  // A row's blocks: those of a quad's threads in turn, each of which is handed all of its own by the others.
  __device__ __forceinline__ void store_blocks(const Value (&values)[kGroups][4], const gemm::WalkedTile& tile,
                                               int half, int row, int column) const {
    constexpr int kBlockOfD = block_elements(block_format(C.facts.d_format));
    const gemm::Quantizer<C.facts.d_format, C.tile_m, kBlockOfD> quantizer{p, columns_d};
    float row_of_d[kGroups][2];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) finish(row_of_d[g], values[g], tile, half, row, column + 8 * g);
    // c may lie where values go: the others of the quad have read it.
    if constexpr (C.facts.c == Addend::matrix) __syncwarp();
#pragma unroll
    for (int b = 0; b < kGroups * 8 / kBlockOfD; ++b) {
      float block[kBlockOfD];
#pragma unroll
      for (int i = 0; i < kBlockOfD; ++i)
        block[i] = __shfl_sync(0xffffffff, row_of_d[(b * kBlockOfD + i) / 8][i % 2], (lane & ~3) | i % 8 / 2);
      if (lane % 4 == b % 4) quantizer.store(block, tile, row - tile.a_row, column + b * kBlockOfD);
    }
  }

  // kTogether groups from `first` on, of the thread's row `half` of two; of_c: theirs, where there is one.
  __device__ __forceinline__ void store_groups(const Value (&values)[kGroups][4], int first, unsigned (&of_c)[kWords],
                                               const gemm::WalkedTile& tile, int half, int row, int column) const {
    unsigned words[kWords];
    if constexpr (kReadsWords) exchange(of_c);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      float pair[2];
      if constexpr (kReadsWords) {
        finish_with(pair, values[first + i], of_c, i, tile, half, row, column + 8 * i);
      } else if constexpr (kElementBytes != 2) {
        finish_words(words, values[first], tile, half, row, column);
        continue;
      } else {
        finish(pair, values[first + i], tile, half, row, column + 8 * i);
      }
      if constexpr (kElementBytes == 2) {
        words[i] = ptx::cvt_pack<C.facts.d_dtype>(pair[0], pair[1]);
      } else {
        words[0] = __float_as_uint(pair[0]), words[1] = __float_as_uint(pair[1]);
      }
    }
    exchange(words);
    store_words(words, tile, row, column + column_of_words());
  }
  // Two neighbours of group `i` of those that are stored together, with theirs of C.
  __device__ __forceinline__ void finish_with(float (&pair)[2], const Value (&values)[4],
                                              const unsigned (&of_c)[kWords], int i, const gemm::WalkedTile& tile,
                                              int half, int row, int column) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float c;
      if constexpr (kElementBytes == 2) {
        c = ptx::cvt_f32<C.facts.d_dtype>(static_cast<unsigned short>(of_c[i] >> 16 * e));
      } else {
        c = __uint_as_float(of_c[e]);
      }
      pair[e] = static_cast<float>(values[2 * half + e]) * alpha;
      if (p.beta != 0.0f) pair[e] += p.beta * c;
      pair[e] =
          gemm::finish_sum<C.facts, C.facts.d_dtype, false>(pair[e], p, row, column + lane % 4 * 2 + e, tile.b_matrix);
    }
  }

  // 16 rows and some groups to the staged block at `to`, from its column `within` on.
  __device__ __forceinline__ void stage_values(const Value (&values)[kGroups][4], const gemm::WalkedTile& tile,
                                               int first_row, int column, unsigned to, int within) const {
    constexpr int kAtOnce = kElementBytes == 2 ? 2 : 1;  // groups
#pragma unroll
    for (int g = 0; g < kGroups; g += kAtOnce) {
      unsigned packed[4];
#pragma unroll
      for (int i = 0; i < 2 * kAtOnce; ++i) {
        const int group = g + i / 2, half = i % 2, row = first_row + lane / 4 + 8 * half;
        if constexpr (kElementBytes == 2) {
          float pair[2];
          finish(pair, values[group], tile, half, row, column + 8 * group);
          packed[i] = ptx::cvt_pack<C.facts.d_dtype>(pair[0], pair[1]);
        } else {
          unsigned words[2];
          finish_words(words, values[group], tile, half, row, column + 8 * group);
          stage_pair<C>(to, half, within + 8 * group, words);
        }
      }
      if constexpr (kElementBytes == 2) stage_16_bit<C>(to, within + 8 * g, packed);
    }
  }

  // 16 rows and the columns of a unit; `first_row` and `column` are the first, of D. D with a map: to the staged block
  // `to`, whose column `within` the first one is.
  __device__ __forceinline__ void store_unit(const UnitSums<C>& sums, const gemm::WalkedTile& tile, int first_row,
                                             int column, unsigned to = 0, int within = 0) const {
    if constexpr (kIsGated) {
      float values[kGroups][4];
      apply_gate(values, sums, 2 * column, tile.b_matrix);
      store_or_stage(values, tile, first_row, column, to, within);
    } else {
      store_or_stage(sums, tile, first_row, column, to, within);
    }
  }
  __device__ __forceinline__ void store_or_stage(const Value (&values)[kGroups][4], const gemm::WalkedTile& tile,
                                                 int first_row, int column, unsigned to, int within) const {
    if constexpr (has_d_map(C)) {
      stage_values(values, tile, first_row, column, to, within);
    } else {
      store_values(values, tile, first_row, column);
    }
  }
  __device__ __forceinline__ void store_values(const Value (&values)[kGroups][4], const gemm::WalkedTile& tile,
                                               int first_row, int column) const {
    // Both rows' C is on its way together.
    unsigned of_c[2][kGroups / kTogether][kWords];
    if constexpr (kReadsWords) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int g = 0; g < kGroups; g += kTogether)
          load_words(of_c[half][g / kTogether], tile, first_row + lane / 4 + 8 * half,
                     column + 8 * g + column_of_words());
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if constexpr (is_quantized(C)) {
        store_blocks(values, tile, half, row, column);
      } else if constexpr (is_swapped(C)) {
        store_transposed(values[0], tile, half, row, column);
      } else {
#pragma unroll
        for (int g = 0; g < kGroups; g += kTogether)
          store_groups(values, g, of_c[half][g / kTogether], tile, half, row, column + 8 * g);
      }
    }
  }

  // A warp's part of a tile, 16 rows after the other by one copy of the code: what becomes of a sum may be a hundred
  // instructions. Registers cannot be indexed, so the sums move up each time. `staging`: where the warp's blocks go, of
  // a D with a map.
  __device__ __forceinline__ void store(Sums<C>& sums, const gemm::WalkedTile& tile, int row, int column,
                                        unsigned staging) const {
    if constexpr (has_d_map(C)) {
      StagedBlocks<C> staged{p, staging};
      store_blocks_of(sums, [&](const Sum<C>(&of_block)[warp_n(C) / 8][4], int m) {
        const unsigned to = staged.begin();
        store_block(of_block, tile, row + m * kBlock, column, to);
        staged.end(to, tile, row + m * kBlock, column);
      });
    } else {
      store_blocks_of(sums, [&](const Sum<C>(&of_block)[warp_n(C) / 8][4], int m) {
        store_block(of_block, tile, row + m * kBlock, column, 0);
      });
    }
  }

  __device__ __forceinline__ void store_block(const Sum<C> (&sums)[warp_n(C) / 8][4], const gemm::WalkedTile& tile,
                                              int row, int column, unsigned to) const {
#pragma unroll
    for (int n = 0; n < warp_n(C) / 8; n += unit_groups(C)) {
      UnitSums<C> unit;
#pragma unroll
      for (int i = 0; i < unit_groups(C) * 4; ++i) unit[i / 4][i % 4] = sums[n + i / 4][i % 4];
      store_unit(unit, tile, row, column + 8 * n, to, 8 * n);
    }
  }

  template <class Store>
  static __device__ __forceinline__ void store_blocks_of(Sums<C>& sums, Store&& store) {
    constexpr int kBlocks = warp_m(C) / kBlock;
#pragma unroll 1
    for (int m = 0; m < kBlocks; ++m) {
      store(sums[0], m);
#pragma unroll
      for (int i = 1; i < kBlocks; ++i) {
#pragma unroll
        for (int n = 0; n < warp_n(C) / 8; ++n) {
#pragma unroll
          for (int v = 0; v < 4; ++v) sums[i - 1][n][v] = sums[i][n][v];
        }
      }
    }
  }
};

}  // namespace tessera::gemm_mma

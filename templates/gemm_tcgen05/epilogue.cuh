// From sums to D: scale, add, activate, round, and out.
//
// A thread has a lane of Tensor Memory: a row of D, or with operands that have changed places a column of it. Each of
// the four warps works by itself. It stages panels of 32 lanes in shared memory, then one thread starts a panel's TMA
// store; two staging slots in turn, so that a panel is staged while the one before leaves, and the last stores run
// beside the next tile's products.
//
// TMA writes whole units of 16 bytes: it would zero what follows a row that ends inside one, and it takes no pitch that
// is not a multiple of 16 bytes. Such a D the threads store themselves, from the same staged panels; and of every other
// one what is left of a group's rows, in whole units.
#pragma once

#include "gemm/activation.cuh"
#include "gemm/addend_reader.cuh"
#include "gemm/finish.cuh"
#include "gemm_tcgen05/params.cuh"
#include "gemm_tcgen05/schedule.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// C of D's panels, the next one's in registers (gemm/addend_reader.cuh). A block-scaled D has no slots: its threads
// read their own rows of C, element by element.
TESSERA_HD constexpr bool stages_addend(const Config& c) { return c.facts.c == Addend::matrix && !is_quantized(c); }
template <Config C, bool kIsStaged = stages_addend(C)>
struct AddendPanels {
  using Reader = gemm::AddendReader<C.facts.d_dtype, d_span_bytes(C), d_swizzle(C), Params>;

  Reader reader;
  unsigned words[staging_slot_bytes(C) / 512][4];

  __device__ __forceinline__ explicit AddendPanels(const Params& params) : reader(params) {}
};
template <Config C>
struct AddendPanels<C, false> {
  __device__ __forceinline__ explicit AddendPanels(const Params&) {}
};

template <Config C>
struct Epilogue {
  static constexpr int kElementBytes = dtype_bytes(C.facts.d_dtype);
  static constexpr int kPanel = panel_columns(C);  // of Tensor Memory
  static constexpr int kRows = is_swapped(C) ? kPanel : kStoreRows;
  static constexpr int kColumns = is_swapped(C) ? kStoreRows : kPanel;

  const Params& p;
  const int warp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float alpha;
  const float alpha_up;  // of the second product
  const int columns_d;   // of D
  const bool is_by_tma;  // D is
  const unsigned staging;
  int slot = 0;
  int row_end = 0;  // of D, for the tile
  int group = 0;    // whose bias it has
  AddendPanels<C> addend;

  __device__ __forceinline__ Epilogue(const Params& params, unsigned smem, int store_warp)
      : p(params),
        warp(store_warp),
        alpha(gemm::scaled_alpha<has_tensor_scales(C)>(params, params.scale_b)),
        alpha_up(C.facts.gate == Gate::dual ? gemm::scaled_alpha<has_tensor_scales(C)>(params, params.scale_b2)
                                            : alpha),
        columns_d(columns_of_d(C, params.n)),
        is_by_tma(((columns_of_d(C, params.n) | params.ldd | params.d_stride_l) * kElementBytes) % 16 == 0),
        staging(smem + smem_layout(C).d.offset + store_warp * kStagingSlots * staging_slot_bytes(C)),
        addend(params) {}

  __device__ __forceinline__ float bias_of(int column) const {
    return gemm::bias_of<C.facts, C.facts.d_dtype>(p, group, p.n, column);
  }

  // All that happens between the sum and its rounding, at a place in D that may lie outside: nothing is read for it
  // then, and nothing comes of it.
  __device__ __forceinline__ float finish(float sum, int row, int column, int batch) const {
    float x = sum * alpha;
    if constexpr (C.facts.c == Addend::matrix) {
      if (row < row_end && column < p.n && p.beta != 0.0f)
        x += p.beta * gemm::load_element<C.facts.d_dtype>(p.c, batch * p.c_stride_l + row * p.ldc + column);
    }
    return finish_sum(x, column);
  }
  // What follows the addend.
  __device__ __forceinline__ float finish_sum(float x, int column) const {
    if constexpr (C.facts.bias != Bias::none) {
      if (column < p.n) x += bias_of(column);
    }
    return gemm::activate<C.facts.activation>(x);
  }

  // A row of D: 16 bytes at a time.
  __device__ __forceinline__ void stage_row(const float (&v)[kPanel], unsigned to) const {
    constexpr int kUnit = 16 / kElementBytes;
#pragma unroll
    for (int i = 0; i < kPanel / kUnit; ++i) {
      const unsigned address = swizzle_address(d_swizzle(C), to + lane * d_span_bytes(C) + i * 16);
      if constexpr (kElementBytes == 4) {
        ptx::st_shared_v4_f32(address, v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
      } else {
        ptx::st_shared_v4(address, {ptx::cvt_pack<C.facts.d_dtype>(v[8 * i], v[8 * i + 1]),
                                    ptx::cvt_pack<C.facts.d_dtype>(v[8 * i + 2], v[8 * i + 3]),
                                    ptx::cvt_pack<C.facts.d_dtype>(v[8 * i + 4], v[8 * i + 5]),
                                    ptx::cvt_pack<C.facts.d_dtype>(v[8 * i + 6], v[8 * i + 7])});
      }
    }
  }

  // A column of D: the warp writes a row at a time.
  __device__ __forceinline__ void stage_column(const float (&v)[kPanel], unsigned to) const {
#pragma unroll
    for (int i = 0; i < kPanel; ++i) {
      const unsigned address = to + i * d_span_bytes(C) + lane * kElementBytes;
      if constexpr (kElementBytes == 4) {
        ptx::st_shared_f32(address, v[i]);
      } else {
        ptx::st_shared_u16(address, static_cast<unsigned short>(ptx::cvt_pack<C.facts.d_dtype>(v[i], 0.0f)));
      }
    }
  }

  // A staged panel, element by element; neighbouring threads write neighbouring elements. Rarely run: kept small.
  __device__ __forceinline__ void store_directly(unsigned from, int row, int column, int batch) const {
#pragma unroll 1
    for (int i = lane; i < kRows * kColumns; i += 32) {
      const int r = i / kColumns, c = i % kColumns;
      if (row + r >= row_end || column + c >= columns_d) continue;
      const unsigned address = swizzle_address(d_swizzle(C), from + r * d_span_bytes(C) + c * kElementBytes);
      const long long index = batch * p.d_stride_l + (row + r) * p.ldd + column + c;
      if constexpr (kElementBytes == 4) {
        static_cast<float*>(p.d_pointer)[index] = ptx::ld_shared_f32(address);
      } else {
        static_cast<unsigned short*>(p.d_pointer)[index] = ptx::ld_shared_u16(address);
      }
    }
  }

  // The same of a D that fits TMA, in whole units of 16 bytes: of a group's last rows.
  __device__ __forceinline__ void store_units(unsigned from, int row, int column, int batch) const {
    constexpr int kOfUnit = 16 / kElementBytes, kUnits = kColumns / kOfUnit;  // of a row
#pragma unroll 1
    for (int i = lane; i < kRows * kUnits; i += 32) {
      const int r = i / kUnits, unit = i % kUnits;
      if (row + r >= row_end || column + unit * kOfUnit >= columns_d) continue;
      const ptx::Words4 v = ptx::ld_shared_v4(swizzle_address(d_swizzle(C), from + r * d_span_bytes(C) + unit * 16));
      const long long index = batch * p.d_stride_l + (row + r) * p.ldd + column + unit * kOfUnit;
      ptx::st_global_v4(static_cast<char*>(p.d_pointer) + index * kElementBytes, {v.x, v.y, v.z, v.w});
    }
  }

  // `lanes` here and below: the row of the lanes' operand that a panel's first lane has; `first`: the row of the other
  // one that its first column has.
  static __device__ __forceinline__ gemm::AddendPart part_of_addend(int lanes, int first) {
    return is_swapped(C) ? gemm::AddendPart{first, lanes, kPanel, kStoreRows}
                         : gemm::AddendPart{lanes, first, kStoreRows, kPanel};
  }
  // A tile's first panel of C, when row_end is known.
  __device__ __forceinline__ void ask_for_addend(int lanes, int first, int batch) {
    if constexpr (stages_addend(C)) {
      addend.reader.batch = batch, addend.reader.end_of_rows = row_end, addend.reader.end_of_columns = p.n;
      addend.reader.template load<false>(addend.words, lane, part_of_addend(lanes, first));
    }
  }
  // The panel of C that was asked for, times beta, to one of sums, by way of the slot where the finished one will lie:
  // what a lane takes from there it writes. The one that begins at `next` is asked for, if that is not negative.
  __device__ __forceinline__ void add_addend(float (&v)[kPanel], int lanes, int first, int next) {
    using Reader = typename AddendPanels<C>::Reader;
    const gemm::AddendPart of = part_of_addend(lanes, first);
    const unsigned from = staging + slot * staging_slot_bytes(C);
    addend.reader.template put<false>(addend.words, from, lane, of);
    if (next >= 0) addend.reader.template load<false>(addend.words, lane, part_of_addend(lanes, next));
    addend.reader.put_elements(from, lane, of);
    if constexpr (is_swapped(C)) {
#pragma unroll
      for (int i = 0; i < kPanel; ++i) {
        const unsigned address = Reader::staged(from, i, lane * kElementBytes);
        if constexpr (kElementBytes == 4) {
          v[i] += p.beta * ptx::ld_shared_f32(address);
        } else {
          v[i] += p.beta * ptx::cvt_f32<C.facts.d_dtype>(ptx::ld_shared_u16(address));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPanel / Reader::kOfUnit; ++i) {
        const ptx::Words4 unit = ptx::ld_shared_v4(Reader::staged(from, lane, i * 16));
        const unsigned words[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
        for (int j = 0; j < Reader::kOfUnit; ++j) {
          float x;
          if constexpr (kElementBytes == 4) {
            x = __uint_as_float(words[j]);
          } else {
            x = ptx::cvt_f32<C.facts.d_dtype>(static_cast<unsigned short>(words[j / 2] >> j % 2 * 16));
          }
          v[i * Reader::kOfUnit + j] += p.beta * x;
        }
      }
    }
  }

  // A panel of sums, finished; `next`: as above.
  __device__ __forceinline__ void finish_panel(float (&v)[kPanel], int lanes, int first, int next, int batch) {
    if constexpr (stores_sums(C)) return;
    const int row = is_swapped(C) ? first : lanes + lane, column = is_swapped(C) ? lanes + lane : first;
    if constexpr (stages_addend(C)) {
#pragma unroll
      for (int i = 0; i < kPanel; ++i) v[i] *= alpha;
      wait_for_slot();
      if (p.beta != 0.0f) add_addend(v, lanes, first, next);
#pragma unroll
      for (int i = 0; i < kPanel; ++i) v[i] = finish_sum(v[i], is_swapped(C) ? column : column + i);
    } else {
#pragma unroll
      for (int i = 0; i < kPanel; ++i)
        v[i] = is_swapped(C) ? finish(v[i], row + i, column, batch) : finish(v[i], row, column + i, batch);
    }
  }
  // The product of the activated gate and up, into `v`, which holds the gate's sums: columns of D from `first` on.
  __device__ __forceinline__ void apply_gate(float (&v)[kPanel], const float (&up)[kPanel], int first) const {
#pragma unroll
    for (int i = 0; i < kPanel; ++i) {
      float x = v[i] * alpha, y = up[i] * alpha_up;
      if constexpr (C.facts.bias != Bias::none) {  // rows of B of both stand in turn
        const int of_gate = 2 * first + i / C.facts.interleave * 2 * C.facts.interleave + i % C.facts.interleave;
        const int of_up = of_gate + C.facts.interleave;
        if (of_gate < p.n) x += bias_of(of_gate);
        if (of_up < p.n) y += bias_of(of_up);
      }
      v[i] = gemm::gated<C.facts>(x, y);
    }
  }

  // Rounded values of a row of D, two a word.
  template <int kWords>
  __device__ __forceinline__ void stage_words(const unsigned (&words)[kWords], int panel, unsigned to) const {
#pragma unroll
    for (int i = 0; i < kPanel / 8; ++i) {
      const int at = panel * kPanel / 2 + 4 * i;
      ptx::st_shared_v4(swizzle_address(d_swizzle(C), to + lane * d_span_bytes(C) + i * 16),
                        {words[at], words[at + 1], words[at + 2], words[at + 3]});
    }
  }

  __device__ __forceinline__ void store(const float (&v)[kPanel], int lanes, int first, int batch) {
    store_staged(
        [&](unsigned to) {
          if constexpr (is_swapped(C)) {
            stage_column(v, to);
          } else {
            stage_row(v, to);
          }
        },
        lanes, first, batch);
  }

  // The slot's store before last must have read it.
  __device__ __forceinline__ void wait_for_slot() const {
    if (lane == 0) ptx::cp_async_bulk_wait_group_read<kStagingSlots - 1>();
    __syncwarp();
  }

  // A finished panel to its place. `stage` writes it to a slot, whose address it is given.
  template <class Stage>
  __device__ __forceinline__ void store_staged(const Stage& stage, int lanes, int first, int batch) {
    const int row = is_swapped(C) ? first : lanes, column = is_swapped(C) ? lanes : first;
    const unsigned to = staging + slot * staging_slot_bytes(C);
    slot ^= 1;
    if constexpr (!stages_addend(C)) wait_for_slot();
    stage(to);
    ptx::fence_proxy_async_shared();
    __syncwarp();
    // What lies past a group's end belongs to another one: the map would not leave it out.
    const bool is_whole = C.facts.grouping == Grouping::none || row + kRows <= row_end;
    if (!is_by_tma) {
      store_directly(to, row, column, batch);
    } else if (!is_whole) {
      store_units(to, row, column, batch);
      // An empty group: slots are counted by groups, and stores by TMA come before and after this one.
      if (lane == 0) ptx::cp_async_bulk_commit_group();
    } else if (lane == 0) {
      if (row < row_end && column < columns_d) ptx::tma_store_3d(p.d, to, column, row, batch);
      ptx::cp_async_bulk_commit_group();
    }
  }

  // Shared memory must not be given away before it was read.
  __device__ __forceinline__ void finish_stores() const {
    if (lane == 0) ptx::cp_async_bulk_wait_group_read<0>();
  }
};

}  // namespace tessera::gemm_tcgen05

// From accumulators to D: scale, add, activate, round, and out.
//
// A block of 64 rows leaves in panels of one swizzle span. The warpgroup stages a panel in shared memory, then one
// thread starts its TMA store; two staging slots in turn, so that a panel is staged while the one before leaves, and
// the last stores run beside the next tile's products. Columns that are no whole panel (rest_columns) are staged as
// one, and the threads store them. Where there are slots for all panels of a tile, they are staged first, and then
// stored.
//
// TMA writes whole units of 16 bytes: it would zero what follows a row that ends inside one, and it takes no pitch that
// is not a multiple of 16 bytes. Such a D the threads store themselves, from the same staged panels; and a group's last
// rows, behind which another group's may stand.
#pragma once

#include "gemm/addend.cuh"
#include "gemm/finish.cuh"
#include "gemm/matmul.cuh"
#include "gemm/params.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "quantize/block_factor.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// Named barriers: 0 is __syncthreads(); a warpgroup among itself; turns of the warpgroups; all consumers; from 7 on
// those of scales.cuh.
inline constexpr int kBarrierOfWarpgroup = 1;
inline constexpr int kBarrierOfTurn = 4;
inline constexpr int kBarrierOfConsumers = 6;

// Where an epilogue finds the sums of its panels: the warpgroup's own accumulators, panel after panel. Registers cannot
// be indexed, so with one copy of the code the sums move up by a panel each time.
template <Config C>
struct WholeSums {
  static constexpr int kRegisters = panel_columns(C) / 2;
  static constexpr int kOfBlock = C.tile_n / 2;

  Accumulators<C>& accumulators;

  __device__ __forceinline__ void operator*=(float factor) {
#pragma unroll
    for (int i = 0; i < blocks(C); ++i) {
#pragma unroll
      for (int v = 0; v < kOfBlock; ++v) accumulators[i][v] *= factor;
    }
  }
  // Of a rest as many as stmatrix stores, of which the last may stand for no column.
  template <int kOfPanel>
  __device__ __forceinline__ void operator()(float (&sums)[kOfPanel], int block, int panel) {
#pragma unroll
    for (int v = 0; v < kOfPanel; ++v) {
      const int of_block = panel * kRegisters + v;
      sums[v] = shares_code(C) ? accumulators[0][v] : of_block < kOfBlock ? accumulators[block][of_block] : 0.0f;
    }
    if constexpr (shares_code(C)) {
#pragma unroll
      for (int v = kRegisters; v < blocks(C) * kOfBlock; ++v)
        accumulators[(v - kRegisters) / kOfBlock][(v - kRegisters) % kOfBlock] =
            accumulators[v / kOfBlock][v % kOfBlock];
    }
  }
};

template <Config C>
struct Epilogue {
  static constexpr int kElementBytes = dtype_bytes(C.facts.d_dtype);
  static constexpr int kColumns = stored_columns_of_d(C);
  static constexpr int kPanelColumns = panel_columns(C);
  static constexpr int kRest = rest_columns(C);
  // Named, so that they are known when the kernel is compiled: what follows from panels is searched for in a loop.
  static constexpr int kSpanBytes = d_span_bytes(C);
  static constexpr Swizzle kSwizzle = d_swizzle(C);
  static constexpr int kSlotBytes = staging_slot_bytes(C);
  static constexpr int kStagingOffset = smem_layout(C).d.offset;

  const Params& p;
  const int warpgroup;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const float alpha;
  const bool is_by_tma;  // D is
  const unsigned staging;
  int slot = 0;
  int row_end = 0;  // of D, for the tile
  int group = 0;    // whose bias it has
  AddendPanels<C> addend;

  __device__ __forceinline__ Epilogue(const Params& params, unsigned smem, int warpgroup_index)
      : p(params),
        warpgroup(warpgroup_index),
        alpha(scaled_alpha<is_8_bit(a_dtype(C))>(params, params.scale_b)),
        is_by_tma(fits_tma(params)),
        staging(smem + kStagingOffset + warpgroup_index * staging_bytes(C)),
        addend(params) {}

  // Of D, or of its transpose. Asked for each time: groups of rows there have p.n of their own.
  __device__ __forceinline__ int columns() const { return columns_of_d(C, p.n); }

  static __device__ __forceinline__ bool fits_tma(const Params& p) {
    return (((is_swapped(C) ? p.m : columns_of_d(C, p.n)) | p.ldd | p.d_stride_l) * kElementBytes) % 16 == 0;
  }

  // The first of this thread's two rows in a block, and its first column in a group of 8.
  __device__ __forceinline__ int row_of_thread() const { return thread / 32 * 16 + thread % 32 / 4; }
  __device__ __forceinline__ int column_of_thread() const { return thread % 4 * 2; }

  // Before store(), which takes panels of C that were asked for here: the place that it is told, and row_end.
  __device__ __forceinline__ void ask_for_addend(int row, int column, int batch) {
    if constexpr (stages_addend(C))
      addend.begin(row, column, batch, is_swapped(C) ? columns() : row_end, is_swapped(C) ? row_end : columns());
  }

  // kCount here and below: columns of D that a panel has. `slot_of_addend`: where the panel's C lies.
  template <int kCount, int kRegisters>
  __device__ __forceinline__ void finish_panel(float (&panel)[kRegisters], int row, int column, int batch,
                                               unsigned slot_of_addend) const {
    const float of_panel = has_warps_that_store(C) ? 1.0f : alpha;  // see store_joined
    if constexpr (stages_addend(C)) {
#pragma unroll
      for (int v = 0; v < kRegisters; ++v) panel[v] *= of_panel;
      if (p.beta != 0.0f) addend.add(panel, slot_of_addend);
    }
#pragma unroll
    for (int v = 0; v < kCount / 2; v += 2) {
      const int of_row = row + row_of_thread() + v / 2 % 2 * 8, of_column = column + v / 4 * 8 + column_of_thread();
      float pair[2] = {panel[v], panel[v + 1]};
      if constexpr (stages_addend(C)) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          pair[i] = finish_sum<C.facts, c_dtype(C), is_swapped(C)>(pair[i], p, of_row, of_column + i, group);
      } else {
        finish_pair<C.facts, c_dtype(C), is_swapped(C)>(pair, p, of_panel, of_row, row_end, of_column, batch, group);
      }
      panel[v] = pair[0];
      panel[v + 1] = pair[1];
    }
  }

  // 128 columns of D, finished, to numbers that only have to be rounded to e4m3; the factors of this thread's rows go
  // out. Places behind D's last column count as zeros, which nobody stores.
  template <int kRegisters>
  __device__ __forceinline__ void divide_by_factors(float (&panel)[kRegisters], int row, int column, int batch) const {
    const int left = columns() - column;
    if (left < kPanelColumns) {
#pragma unroll
      for (int v = 0; v < kRegisters; ++v)
        if (v / 4 * 8 + column_of_thread() + v % 2 >= left) panel[v] = 0;
    }
    float amax[2] = {0, 0};  // NaN is left out: max returns its other operand
#pragma unroll
    for (int v = 0; v < kRegisters; ++v) amax[v / 2 % 2] = fmaxf(amax[v / 2 % 2], fabsf(panel[v]));
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      amax[i] = fmaxf(amax[i], __shfl_xor_sync(0xffffffff, amax[i], 1));
      amax[i] = fmaxf(amax[i], __shfl_xor_sync(0xffffffff, amax[i], 2));
      const float factor = quantize::block_factor<C.facts.d_scale_values>(amax[i], inverse[i]);
      const int of_d = row + row_of_thread() + 8 * i;
      if (thread % 4 == 0 && of_d < row_end && left > 0)
        p.sfd.data[batch * p.sfd.stride_l + of_d * p.sfd.stride_row + column / kScaleBlock * p.sfd.stride_block] =
            factor;
    }
#pragma unroll
    for (int v = 0; v < kRegisters; ++v) panel[v] = __fmul_rn(panel[v], inverse[v / 2 % 2]);
  }

  // 16-bit D: stmatrix takes the fragment as it is, two 16-byte chunks of 16 rows at a time.
  template <int kRegisters>
  __device__ __forceinline__ void stage_16_bit(const float (&panel)[kRegisters], unsigned to) const {
    const int lane = thread % 32;
    const int row = thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int i = 0; i < kRegisters / 8; ++i) {
      unsigned packed[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        packed[j] = ptx::cvt_pack<C.facts.d_dtype>(panel[8 * i + 2 * j], panel[8 * i + 2 * j + 1]);
      const unsigned address = to + row * kSpanBytes + (2 * i + lane / 16) * 16;
      ptx::stmatrix_x4(swizzle_address(kSwizzle, address), packed[0], packed[1], packed[2], packed[3]);
    }
  }

  // The same, for D transposed: 8 columns of the fragment are as many rows of D, of 64 numbers each.
  template <int kRegisters>
  __device__ __forceinline__ void stage_transposed(const float (&panel)[kRegisters], unsigned to) const {
    const int lane = thread % 32;
    const int chunk = thread / 32 * 2 + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < kRegisters / 8; ++i) {
      unsigned packed[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        packed[j] = ptx::cvt_pack<C.facts.d_dtype>(panel[8 * i + 2 * j], panel[8 * i + 2 * j + 1]);
      const unsigned address = to + (16 * i + lane / 16 * 8 + lane % 8) * kSpanBytes + chunk * 16;
      ptx::stmatrix_x4_trans(swizzle_address(kSwizzle, address), packed[0], packed[1], packed[2], packed[3]);
    }
  }

  // fp32 and 8-bit D: pairs of columns.
  template <int kRegisters>
  __device__ __forceinline__ void stage_pairs(const float (&panel)[kRegisters], unsigned to) const {
#pragma unroll
    for (int v = 0; v < kRegisters; v += 2) {
      const int row = row_of_thread() + v / 2 % 2 * 8;
      const int column = v / 4 * 8 + column_of_thread();
      const unsigned address = swizzle_address(kSwizzle, to + row * kSpanBytes + column * kElementBytes);
      if constexpr (C.facts.d_dtype == DType::f32) {
        ptx::st_shared_v2_f32(address, panel[v], panel[v + 1]);
      } else {
        ptx::st_shared_u16(address, ptx::cvt_pack_8<C.facts.d_dtype>(panel[v], panel[v + 1]));
      }
    }
  }

  // A staged panel, element by element; neighbouring threads write neighbouring elements. Rarely run: kept small.
  __device__ __forceinline__ void store_directly(unsigned from, int row, int column, int count, int batch) const {
    constexpr int kAcross = is_swapped(C) ? kBlockRows : kPanelColumns;
    const int of_n = min(count, columns() - column), of_m = min(kBlockRows, row_end - row);
    const int across = is_swapped(C) ? of_m : of_n, rows = is_swapped(C) ? of_n : of_m;
    const int first_row = is_swapped(C) ? column : row, first_column = is_swapped(C) ? row : column;
    const int c = thread % kAcross;
    if (c >= across) return;
#pragma unroll 1
    for (int r = thread / kAcross; r < rows; r += kWarpgroupThreads / kAcross) {
      const unsigned address = swizzle_address(kSwizzle, from + r * kSpanBytes + c * kElementBytes);
      const long long index = batch * p.d_stride_l + (first_row + r) * p.ldd + first_column + c;
      if constexpr (kElementBytes == 4) {
        static_cast<float*>(p.d_pointer)[index] = ptx::ld_shared_f32(address);
      } else if constexpr (kElementBytes == 2) {
        static_cast<unsigned short*>(p.d_pointer)[index] = ptx::ld_shared_u16(address);
      } else {
        static_cast<unsigned char*>(p.d_pointer)[index] = ptx::ld_shared_u8(address);
      }
    }
  }

  // The same of a D that fits TMA, in whole units of 16 bytes: of a group's last rows, or of columns that are left
  // over.
  template <int kCount>
  __device__ __forceinline__ void store_units(unsigned from, int row, int column, int batch) const {
    constexpr int kOfUnit = 16 / kElementBytes;
    constexpr int kUnits = (is_swapped(C) ? kBlockRows : kCount) / kOfUnit;  // of a row of D
    constexpr int kRows = is_swapped(C) ? kCount : kBlockRows;
    const int first_row = is_swapped(C) ? column : row, last_row = is_swapped(C) ? columns() : row_end;
    const int first_column = is_swapped(C) ? row : column, last_column = is_swapped(C) ? row_end : columns();
#pragma unroll 1
    for (int i = thread; i < kRows * kUnits; i += kWarpgroupThreads) {
      const int r = i / kUnits, unit = i % kUnits;
      if (first_row + r >= last_row || first_column + unit * kOfUnit >= last_column) continue;
      const ptx::Words4 v = ptx::ld_shared_v4(swizzle_address(kSwizzle, from + r * kSpanBytes + unit * 16));
      const long long index = batch * p.d_stride_l + (first_row + r) * p.ldd + first_column + unit * kOfUnit;
      ptx::st_global_v4(static_cast<char*>(p.d_pointer) + index * kElementBytes, {v.x, v.y, v.z, v.w});
    }
  }

  // Starts stores, or one of those that do.
  __device__ __forceinline__ bool is_storing() const {
    return has_warps_that_store(C) ? thread % 32 == 0 : thread == 0;
  }
  // All stores but the newest ones have read their slots.
  template <int kNewest>
  __device__ __forceinline__ void wait_for_slots() const {
    if (is_storing()) ptx::cp_async_bulk_wait_group_read<kNewest>();
    ptx::barrier_sync(kBarrierOfWarpgroup + warpgroup, kWarpgroupThreads);
  }
  // What was staged is there for the stores.
  __device__ __forceinline__ void end_staging() const {
    ptx::fence_proxy_async_shared();
    ptx::barrier_sync(kBarrierOfWarpgroup + warpgroup, kWarpgroupThreads);
  }

  template <int kRegisters>
  __device__ __forceinline__ void stage(const float (&panel)[kRegisters], unsigned to) const {
    if constexpr (is_swapped(C)) {
      stage_transposed(panel, to);
    } else if constexpr (kElementBytes == 2) {
      stage_16_bit(panel, to);
    } else {
      stage_pairs(panel, to);
    }
  }

  // A staged panel to D.
  template <int kCount>
  __device__ __forceinline__ void send(unsigned to, int row, int column, int batch) const {
    // What lies past a group's end belongs to another one: the map would not leave it out.
    const bool is_of_one_group =
        !is_grouped(C) || (is_swapped(C) ? column + kCount <= columns() : row + kBlockRows <= row_end);
    if (!is_by_tma) {
      store_directly(to, row, column, kCount, batch);
    } else if (is_swapped(C) && !is_of_one_group) {
      store_directly(to, row, column, kCount, batch);
      if (thread == 0) ptx::cp_async_bulk_commit_group();
    } else if (kCount < kPanelColumns || !is_of_one_group) {
      store_units<kCount>(to, row, column, batch);
      // An empty group: slots are counted by groups of stores, and those by TMA come before and after this one.
      if (thread == 0) ptx::cp_async_bulk_commit_group();
    } else if (thread == 0) {
      if (row < p.m && column < columns())
        ptx::tma_store_3d(p.d, to, is_swapped(C) ? row : column, is_swapped(C) ? column : row, batch);
      ptx::cp_async_bulk_commit_group();
    }
  }

  // The warpgroup's blocks; `row` and `column` are places in D. sums(out, block, panel) gives a panel's, gated ones.
  template <class Sums>
  __device__ __forceinline__ void store(Sums sums, int row, int column, int batch) {
    if constexpr (has_warps_that_store(C)) {
      store_joined(sums, row, column, batch);
    } else if constexpr (stages_whole_tile(C)) {
      store_whole(sums, row, column, batch);
    } else if constexpr (kRest > 0) {
#pragma unroll
      for (int i = 0; i < blocks(C); ++i) {
#pragma unroll
        for (int j = 0; j < kColumns / kPanelColumns; ++j) store_panel<kPanelColumns>(sums, i, j, row, column, batch);
        store_panel<kRest>(sums, i, kColumns / kPanelColumns, row, column, batch);
      }
    } else {
      constexpr int kPanels = kColumns / kPanelColumns, kCopies = shares_code(C) ? 1 : blocks(C) * kPanels;
#pragma unroll kCopies
      for (int i = 0; i < blocks(C) * kPanels; ++i)
        store_panel<kPanelColumns>(sums, i / kPanels, i % kPanels, row, column, batch);
    }
  }

  // A panel's sums, finished. Its slot, at `to`, is free: C comes there first.
  template <int kCount, class Sums, int kRegisters>
  __device__ __forceinline__ void finish_sums(Sums& sums, float (&out)[kRegisters], int block, int panel, int row,
                                              int column, int batch, unsigned to) {
    sums(out, block, panel);
    if constexpr (stages_addend(C)) {
      if (p.beta != 0.0f) addend.put(to, block * panels_across(C) + panel);
    }
    if constexpr (!is_gated(C)) finish_panel<kCount>(out, row, column, batch, to);
    if constexpr (has_d_factors(C)) divide_by_factors(out, row, column, batch);
  }

  template <int kCount, class Sums>
  __device__ __forceinline__ void store_panel(Sums& sums, int block, int panel, int row, int column, int batch) {
    float out[(kCount + 15) / 16 * 8];
    const int first_row = row + block * kBlockRows, first_column = column + panel * kPanelColumns;
    const unsigned to = staging + slot * kSlotBytes;
    slot ^= 1;
    if constexpr (stages_addend(C)) wait_for_slots<kStagingSlots - 1>();
    finish_sums<kCount>(sums, out, block, panel, first_row, first_column, batch, to);
    if constexpr (!stages_addend(C)) wait_for_slots<kStagingSlots - 1>();
    stage(out, to);
    end_staging();
    send<kCount>(to, first_row, first_column, batch);
  }

  template <class Sums>
  __device__ __forceinline__ void store_whole(Sums& sums, int row, int column, int batch) {
    constexpr int kPanels = kColumns / kPanelColumns, kCopies = shares_code(C) ? 1 : blocks(C) * kPanels;
    wait_for_slots<0>();
#pragma unroll kCopies
    for (int i = 0; i < blocks(C) * kPanels; ++i) {
      float out[kPanelColumns / 2];
      finish_sums<kPanelColumns>(sums, out, i / kPanels, i % kPanels, row + i / kPanels * kBlockRows,
                                 column + i % kPanels * kPanelColumns, batch, staging + i * kSlotBytes);
      stage(out, staging + i * kSlotBytes);
    }
    end_staging();
#pragma unroll 1
    for (int i = 0; i < staging_slots(C); ++i)
      send<kPanelColumns>(staging + i * kSlotBytes, row + i / kPanels * kBlockRows,
                          column + i % kPanels * kPanelColumns, batch);
  }

  // The same of large tiles in fewer instructions: alpha is left out where it is 1, addresses differ by numbers that
  // the compiler knows, and one thread alone stores.
  template <class Sums>
  __device__ __forceinline__ void store_joined(Sums& sums, int row, int column, int batch) {
    constexpr int kPanels = kColumns / kPanelColumns, kCopies = shares_code(C) ? 1 : blocks(C) * kPanels;
    static_assert(kElementBytes == 2 && !is_swapped(C));
    if constexpr (!is_gated(C)) {
      if (alpha != 1.0f) sums *= alpha;
    }
    // Of this thread's first 16 bytes. Made here: the compiler would keep addresses in registers beside the loop.
    int here = thread;
    asm volatile("" : "+r"(here));
    const unsigned first = swizzle_address(
        kSwizzle, staging + (here / 32 * 16 + here / 8 % 2 * 8 + here % 8) * kSpanBytes + here / 16 % 2 * 16);
#pragma unroll kCopies
    for (int i = 0; i < blocks(C) * kPanels; ++i) {
      float out[kPanelColumns / 2];
      finish_sums<kPanelColumns>(sums, out, i / kPanels, i % kPanels, row + i / kPanels * kBlockRows,
                                 column + i % kPanels * kPanelColumns, batch, staging + i * kSlotBytes);
#pragma unroll
      for (int v = 0; v < kPanelColumns / 2; v += 8) {
        unsigned packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) packed[j] = ptx::cvt_pack<C.facts.d_dtype>(out[v + 2 * j], out[v + 2 * j + 1]);
        ptx::stmatrix_x4((first ^ v * 4) + i * kSlotBytes, packed[0], packed[1], packed[2], packed[3]);
      }
    }
    end_staging();
    if (is_by_tma && (!is_grouped(C) || row + blocks(C) * kBlockRows <= row_end)) {
      // A warp each: a store takes its thread 150 cycles.
      static_assert(staging_slots(C) <= kWarpgroupThreads / 32);
      const int i = thread / 32, of_slot = row + i / kPanels * kBlockRows, from = column + i % kPanels * kPanelColumns;
      if (thread % 32 == 0 && i < staging_slots(C) && of_slot < p.m && from < columns()) {
        ptx::tma_store_3d(p.d, staging + i * kSlotBytes, from, of_slot, batch);
        ptx::cp_async_bulk_commit_group();
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < staging_slots(C); ++i)
      send<kPanelColumns>(staging + i * kSlotBytes, row + i / kPanels * kBlockRows,
                          column + i % kPanels * kPanelColumns, batch);
  }

  // While a tile's last products are on their way: the slots of its panels are free.
  __device__ __forceinline__ void get_ready() const {
    if constexpr (has_warps_that_store(C)) wait_for_slots<0>();
  }

  // Shared memory must not be given away before it was read.
  __device__ __forceinline__ void finish() const {
    if (is_storing()) ptx::cp_async_bulk_wait_group_read<0>();
  }
};

}  // namespace tessera::gemm

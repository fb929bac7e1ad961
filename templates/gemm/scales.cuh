// Factors of blocks of 128, which the sums of a step are multiplied by.
//
// They lie in the slot of their step: one for each row, or four for each square, of four steps, of which the step's own
// is read; or products of both operands' (joins_factors), which two warps make. A warp loads them, ahead like the
// operands. (Consumers that read factors of squares from memory themselves, a step ahead, took a fifth longer on an
// H100.)
#pragma once

#include "common/ring.cuh"
#include "gemm/gather.cuh"
#include "gemm/matmul.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// Named barriers, behind those of epilogue.cuh: turns of the warps that join factors.
inline constexpr int kBarrierOfJoiner = 7;

// One operand's factors of a step, for a tile of kExtent rows.
template <ScaleBlock kBlock, int kExtent>
struct ScaleSource {
  static constexpr bool kIsSquare = kBlock == ScaleBlock::square;
  static constexpr int kRows = kIsSquare ? kScaleBlock : 1;  // that share one
  static constexpr int kCount = kIsSquare ? squares_of(kExtent) : kExtent;

  const Scales& of_operand;
  const float* first;  // of the tile
  int left;            // factors that there are from the first one on

  __device__ __forceinline__ ScaleSource(const Scales& scales, int row, int extent, int batch)
      : of_operand(scales),
        first(scales.data + batch * scales.stride_l + row / kRows * scales.stride_row),
        left((extent + kRows - 1) / kRows - row / kRows) {}

  // That bulk copies take in a step: of a tile's last rows those that there are. The others are not stored.
  __device__ __forceinline__ int count() const { return kIsSquare ? kCount : min(left, kCount); }
  // Whether bulk copies can take them, in each of so many steps.
  __device__ __forceinline__ bool is_bulk(int steps) const {
    const long long contiguous = kIsSquare ? of_operand.stride_k : of_operand.stride_row;
    const long long other = kIsSquare ? of_operand.stride_row : of_operand.stride_k;
    return left > 0 && left >= count() && count() % (kIsSquare ? 1 : 4) == 0 && contiguous == 1 && other % 4 == 0 &&
           (!kIsSquare || steps % kStepsOfSquare == 0) && reinterpret_cast<unsigned long long>(first) % 16 == 0;
  }
  __device__ __forceinline__ void load_bulk(unsigned to, unsigned full, int step) const {
    if constexpr (kIsSquare) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        ptx::bulk_load(to + 16 * i, first + i * of_operand.stride_row + step / kStepsOfSquare * kStepsOfSquare, 16,
                       full);
    } else {
      ptx::bulk_load(to, first + step * of_operand.stride_k, 4 * count(), full);
    }
  }
  // Bytes that they bring in a step.
  __device__ __forceinline__ int bulk_bytes() const { return kIsSquare ? 16 * kCount : 4 * count(); }
  // All threads of the warp.
  __device__ __forceinline__ void load(unsigned to, int step, bool is_within_k) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float* from = first + step * of_operand.stride_k + lane * of_operand.stride_row;
#pragma unroll 1
    for (int i = 0; i < kCount; i += 32) {
      const int place = kIsSquare ? kStepsOfSquare * (i + lane) + step % kStepsOfSquare : i + lane;
      if (kCount % 32 == 0 || i + lane < kCount) ptx::cp_async_4(to + 4 * place, from, is_within_k && left > i + lane);
      from += 32 * of_operand.stride_row;
    }
  }
};

// Factors of rows that a list names.
template <int kExtent>
struct ListedScaleSource {
  const Scales& of_operand;
  const ListedRows<kExtent> rows;

  __device__ __forceinline__ ListedScaleSource(const Params& p, const TileIndex& tile)
      : of_operand(p.sfa), rows(p, tile, 0) {}

  // All threads of the warp.
  __device__ __forceinline__ void load(unsigned to, int step, bool is_within_k) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kExtent / 32; ++i) {
      const long long row = max(rows.of_lane[i], 0);
      ptx::cp_async_4(to + 4 * (32 * i + lane),
                      of_operand.data + row * of_operand.stride_row + step * of_operand.stride_k,
                      is_within_k && rows.of_lane[i] >= 0);
    }
  }
};

// Where the factors of a slot are.
template <Config C>
__device__ __forceinline__ unsigned scales_of(unsigned smem, int slot) {
  constexpr int kOffset = smem_layout(C).scales.offset;
  return smem + kOffset + slot * scale_slot_bytes(C);
}

// The warp that loads factors. Where bulk copies take both operands' its first thread starts them. Elsewhere all
// threads copy their share, and one says so for all once the copies of two steps more are on their way: an arrival of
// each took a tenth of the time of products of 4,096 rows on an H100.
template <Config C>
struct ScaleLoader {
  static constexpr int kAhead = C.stages > 2 ? 2 : 1;  // steps on their way behind the one that is waited for
  using SourceOfA = ScaleSource<a_scale_block(C), C.tile_m>;
  using SourceOfB = ScaleSource<b_scale_block(C), C.tile_n>;

  const Params& p;
  const unsigned smem;
  const Barriers barriers = barriers_at<C>(smem);
  TileSchedule<C, Walker::warp> schedule{p};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  common::RingPosition<C.stages> ring{};
  int pending = 0;  // slots before the ring's whose copies nobody has spoken of

  // Of the oldest.
  __device__ __forceinline__ void arrive() {
    const int slot = ring.slot - pending;
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barriers.full[slot < 0 ? slot + C.stages : slot]);
    --pending;
  }
  __device__ __forceinline__ void drain() {
    ptx::cp_async_wait_group<0>();
#pragma unroll 1
    while (pending > 0) arrive();
  }

  __device__ __forceinline__ void load_bulk(const SourceOfA& a, const SourceOfB& b) {
    drain();
    ptx::fence_proxy_async_shared();  // all threads may have written the slots
    __syncwarp();
    if (lane == 0) {
      common::RingPosition<C.stages> own = ring;
#pragma unroll 1
      for (int step = schedule.k_begin, left = schedule.steps(); left > 0; step = schedule.after(step), --left) {
        const unsigned full = barriers.full[own.slot], to = scales_of<C>(smem, own.slot);
        ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), own.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, a.bulk_bytes() + b.bulk_bytes());
        a.load_bulk(to, full, step);
        b.load_bulk(to + 4 * a_scale_floats(C), full, step);
        own.advance();
      }
    }
    __syncwarp();
    ring.advance(schedule.steps());
  }

  template <class AnySourceOfA>
  __device__ __forceinline__ void load(const AnySourceOfA& a, const SourceOfB& b, int steps_of_matrix) {
#pragma unroll 1
    for (int step = schedule.k_begin, left = schedule.steps(); left > 0; step = schedule.after(step), --left) {
      const unsigned empty = barriers.empty[ring.slot], to = scales_of<C>(smem, ring.slot);
      // A consumer may wait for what is pending, before it gives the slot back.
      if (pending > 0 && !__all_sync(0xffffffff, ptx::mbarrier_test_wait_parity(empty, ring.parity ^ 1))) drain();
      ptx::mbarrier_wait_parity(empty, ring.parity ^ 1);
      a.load(to, step, step < steps_of_matrix);
      b.load(to + 4 * a_scale_floats(C), step, step < steps_of_matrix);
      ptx::cp_async_commit_group();
      ring.advance();
      if (++pending > kAhead) {
        ptx::cp_async_wait_group<kAhead>();
        arrive();
      }
    }
  }

  // Places that no copy reaches, of rows behind the matrix: consumers read them too.
  __device__ __forceinline__ void clear() const {
#pragma unroll 1
    for (int i = lane; i < C.stages * scale_slot_bytes(C) / 4; i += 32)
      ptx::st_shared_f32(scales_of<C>(smem, 0) + 4 * i, 0.0f);
    __syncwarp();
  }

  __device__ __forceinline__ void run() {
    const int steps_of_matrix = schedule.steps_of(p.k);
    const bool is_ragged = (a_scale_block(C) == ScaleBlock::of_row && p.m % C.tile_m != 0) ||
                           (b_scale_block(C) == ScaleBlock::of_row && p.n % C.tile_n != 0);
    if (!is_gathered(C) && (is_ragged || C.facts.grouping == Grouping::contiguous)) clear();
#pragma unroll 1
    for (int item = schedule.first(); item < schedule.items_up_to(item); item += schedule.stride()) {
      const TileIndex tile = schedule.at(item);
      if constexpr (is_gathered(C)) {
        load(ListedScaleSource<C.tile_m>(p, tile), SourceOfB(p.sfb, tile.column, p.n, tile.b_batch), steps_of_matrix);
        continue;
      }
      const SourceOfA a(p.sfa, tile.row, p.m, tile.batch);
      const SourceOfB b(p.sfb, tile.column, p.n, tile.b_batch);
      if constexpr (roles_wait(C))
        if (item == schedule.first()) ptx::griddepcontrol_wait();
      if (schedule.k_end <= steps_of_matrix && a.is_bulk(steps_of_matrix) && b.is_bulk(steps_of_matrix)) {
        load_bulk(a, b);
      } else {
        load(a, b, steps_of_matrix);
      }
    }
    drain();
  }
};

// The warps where consumers find products of factors (joins_factors). Their lanes copy those of A, each for the rows of
// four consumer threads, into a ring of their own, four steps ahead of the products, and have those of B for 32 steps
// in registers: once a slot is free they only have to be multiplied and written. Copies into the slot, which begin when
// it is free, took products of 4,096 rows on an H200 several hundredths longer.
//
// Two warps take tiles in turn: one copies the first factors of a tile while the other writes the last of the tile
// before. (Consumers that read factors of a and b as they are, copied in bulk into the slots or a lap ahead of them,
// took 1.01 to 1.3 times as long: beside wgmma each read of shared memory is slow.)
//
// Products of a step: [part of the tile's rows that a warpgroup has][32 lanes' rows][block][square][upper row, lower].
template <Config C>
struct FactorJoiner {
  static constexpr int kSquares = joined_squares(C);
  static constexpr int kOfThread = joined_factors(C);
  static constexpr int kRows = C.tile_m / 32;  // of a lane
  static constexpr int kAheadOffset = smem_layout(C).scales.offset + C.stages * scale_slot_bytes(C);

  const Params& p;
  const unsigned smem;
  const int warp;  // of those that join factors
  const Barriers barriers = barriers_at<C>(smem);
  TileSchedule<C, Walker::warp> schedule{p};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  common::RingPosition<C.stages> ring{};
  unsigned ahead = warp * kStepsAhead;  // place in the own ring

  // Of a row of the lane's at the place in the own ring. With one square lanes lie side by side: conflicts of banks
  // take shared memory from the products, 0.5 to 1.5 % of the time of 4,096 rows on an H200. With two, where more is
  // written than copied, a lane's rows do, which took up to 1 % less.
  static constexpr bool kIsAbreast = kSquares == 1;
  static constexpr int kBytesOfRow = kIsAbreast ? 128 : 4;
  __device__ __forceinline__ unsigned own(int row) const {
    const unsigned of_lane = kIsAbreast ? 32 * (kRows * ahead + row) + lane : kRows * (32 * ahead + lane) + row;
    return smem + kAheadOffset + 4 * of_lane;
  }

  // Of the lane's rows, of which the matrix has `left` from the first one on, to the place in the own ring.
  __device__ __forceinline__ void copy_rows(const float* from, int left) const {
    const unsigned to = own(0);
#pragma unroll
    for (int i = 0; i < kRows; i += 2) {
      const int row = i / 2 * kBlockRows;
      ptx::cp_async_4(to + kBytesOfRow * i, from, left > row);
      ptx::cp_async_4(to + kBytesOfRow * (i + 1), from + 8 * p.sfa.stride_row, left > row + 8);
      from += kBlockRows * p.sfa.stride_row;
      asm volatile("" : "+l"(from));  // not an address for each row, kept in registers
    }
  }

  __device__ __forceinline__ void write(const float (&squares)[kSquares], int lane_of_step) const {
    float of_step[kSquares], rows[kRows];
#pragma unroll
    for (int s = 0; s < kSquares; ++s) of_step[s] = __shfl_sync(0xffffffff, squares[s], lane_of_step);
    ptx::cp_async_wait_group<kStepsAhead - 1>();
#pragma unroll
    for (int i = 0; i < kRows; i += 2) {
      if constexpr (kIsAbreast) {
        rows[i] = ptx::ld_shared_f32(own(i));
        rows[i + 1] = ptx::ld_shared_f32(own(i + 1));
      } else {
        float pair[2];
        ptx::ld_shared_v2_f32(own(i), pair);
        rows[i] = pair[0];
        rows[i + 1] = pair[1];
      }
    }
    const unsigned to = scales_of<C>(smem, ring.slot) + 4 * kOfThread * lane, full = barriers.full[ring.slot];
    ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
    constexpr int kTogether = kIsAbreast && kOfThread % 4 == 0 ? 4 : 2;
#pragma unroll
    for (int i = 0; i < kRows * kSquares; i += kTogether) {
      float products[kTogether];
#pragma unroll
      for (int v = 0; v < kTogether; ++v)
        products[v] = rows[(i + v) / (2 * kSquares) * 2 + v % 2] * of_step[(i + v) / 2 % kSquares];
      const unsigned place = to + 4 * (32 * kOfThread * (i / kOfThread) + i % kOfThread);
      if constexpr (kTogether == 4) {
        ptx::st_shared_v4_f32(place, products[0], products[1], products[2], products[3]);
      } else {
        ptx::st_shared_v2_f32(place, products[0], products[1]);
      }
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(full);
  }

  __device__ __forceinline__ void write_tile(const TileIndex& tile) {
    const int row = tile.row + lane / 8 * 16 + lane % 8, square = tile.column / kScaleBlock;
    int k_begin = schedule.k_begin;
    asm volatile("" : "+r"(k_begin));  // no product of it is kept in registers from tile to tile
    // A part of K is within the matrix, or behind its end: zeros.
    const bool is_within_k = k_begin < schedule.steps_of(p.k);
    const int rows_left = is_within_k ? p.m - row : 0;
    const int squares_left = is_within_k ? (p.n + kScaleBlock - 1) / kScaleBlock - square : 0;
    const float* of_a = p.sfa.data + tile.batch * p.sfa.stride_l + row * p.sfa.stride_row + k_begin * p.sfa.stride_k;
    const float* of_b =
        p.sfb.data + tile.b_batch * p.sfb.stride_l + square * p.sfb.stride_row + (k_begin + lane) * p.sfb.stride_k;
    const int steps = schedule.steps();
    // Behind the tile's last step a group without copies: groups are counted, and no copy is left for the next tile.
    const auto copy_step = [&](int step) {
      if (step < steps) copy_rows(of_a, rows_left);
      ptx::cp_async_commit_group();
      of_a += p.sfa.stride_k;
      ahead = ahead / kStepsAhead * kStepsAhead + (ahead + 1) % kStepsAhead;
    };
#pragma unroll 1
    for (int i = 0; i < kStepsAhead; ++i) copy_step(i);
    float squares[kSquares];
    const auto load_squares = [&](int step) {
#pragma unroll
      for (int s = 0; s < kSquares; ++s)
        squares[s] = step + lane < steps && squares_left > s
                         ? __uint_as_float(ptx::ld_global_u32_stream(of_b + s * p.sfb.stride_row))
                         : 0.0f;
      of_b += 32 * p.sfb.stride_k;
    };
    load_squares(0);
    // The tile before is the other warp's. Slots come back to both, so that only one may wait for them.
    ptx::barrier_sync(kBarrierOfJoiner + warp, 32 * kJoiners);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      if (step % 32 == 0 && step > 0) load_squares(step);
      write(squares, step % 32);
      copy_step(step + kStepsAhead);
      ring.advance();
    }
    ptx::barrier_arrive(kBarrierOfJoiner + 1 - warp, 32 * kJoiners);
  }

  __device__ __forceinline__ void run() {
    if (warp == 1) ptx::barrier_arrive(kBarrierOfJoiner, 32 * kJoiners);  // the other one begins
    if constexpr (roles_wait(C)) ptx::griddepcontrol_wait();
    int turn = 0;
#pragma unroll 1
    for (int item = schedule.first(); item < schedule.items_up_to(item); item += schedule.stride()) {
      if (turn == warp) {
        write_tile(schedule.at(item));
      } else {
        ring.advance(schedule.steps());
      }
      turn ^= 1;
    }
    ptx::cp_async_wait_group<0>();
  }
};

// A consumer thread's products of factors, of a step.
template <Config C>
struct JoinedFactors {
  static constexpr int kOfThread = joined_factors(C);
  float values[kOfThread];

  // `part`: of the tile's rows.
  __device__ __forceinline__ void load(unsigned smem, int slot, int part) {
    const unsigned thread = threadIdx.x % kWarpgroupThreads;
    const unsigned from = scales_of<C>(smem, slot) + 4 * kOfThread * (part * 32 + thread / 4);
    if constexpr (kOfThread % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kOfThread; i += 4) {
        float four[4];
        ptx::ld_shared_v4_f32(from + 4 * i, four);
#pragma unroll
        for (int v = 0; v < 4; ++v) values[i + v] = four[v];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOfThread; i += 2) {
        float two[2];
        ptx::ld_shared_v2_f32(from + 4 * i, two);
        values[i] = two[0];
        values[i + 1] = two[1];
      }
    }
  }
};

// Those of a block. The tile's first column has a place between kFirst and kLast in its square.
template <Config C, int kFirst, int kLast>
struct BlockFactors {
  static constexpr int kSquares = joined_squares(C);
  float values[kSquares][2];

  __device__ __forceinline__ BlockFactors(const JoinedFactors<C>& of_step, int block) {
#pragma unroll
    for (int i = 0; i < 2 * kSquares; ++i) values[i / 2][i % 2] = of_step.values[2 * kSquares * block + i];
  }

  // sums += factors * of_step, of an instruction's columns, in the order of the accumulators. `offset`: of the tile's
  // first column in its square. With kIsFirst sums = factors * of_step.
  template <bool kIsFirst>
  __device__ __forceinline__ void add(Block<C>& sums, const OfInstruction<C>& of_step, int part, int offset) const {
    constexpr int kGroupsOfPart = instruction_columns(C) / 8;
    const auto of_group = [&](int group, int row) {  // of columns 8 * group to 8 * group + 7
      const int column = group / 2 * 16;
      const int first = (kFirst + column) / kScaleBlock, last = (kLast + column) / kScaleBlock;
      if (kSquares == 1 || first == last) return values[kSquares == 1 ? 0 : first][row];
      return offset + column >= last * kScaleBlock ? values[last][row] : values[first][row];
    };
#pragma unroll
    for (int i = 0; i < kGroupsOfPart; ++i) {
      const int group = part * kGroupsOfPart + i;
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        if constexpr (kIsFirst) {
          ptx::mul_in_order(sums[4 * group + v], of_group(group, v / 2), of_step[4 * i + v]);
        } else {
          ptx::fma_in_order(sums[4 * group + v], of_group(group, v / 2), of_step[4 * i + v]);
        }
      }
    }
  }
};

// A consumer thread's factors of its two rows of a block, and of the block's columns. kOffset: of the tile's first
// column in its square, where the loop along k is one of several and knows it; else -1.
template <Config C, int kOffset>
struct BlockScales {
  static constexpr bool kHasColumns = b_scale_block(C) == ScaleBlock::of_row;  // each its own
  static constexpr int kGroups =                                               // of columns, that share one
      kHasColumns    ? 1
      : kOffset >= 0 ? (kOffset + C.tile_n + kScaleBlock - 1) / kScaleBlock
                     : joined_squares(C);

  float rows[2];
  float groups[kGroups];
  unsigned columns;  // where factors of columns begin
  int offset;        // of the tile's first column in its square

  // `block`: of the tile.
  __device__ __forceinline__ BlockScales(const TileIndex& tile, unsigned smem, int slot, int block, unsigned step)
      : offset(tile.column % kScaleBlock) {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    const unsigned of_a = scales_of<C>(smem, slot), of_b = of_a + 4 * a_scale_floats(C);
    const unsigned of_step = 4 * (step % kStepsOfSquare);
    if constexpr (a_scale_block(C) == ScaleBlock::square) {
      const int square = C.tile_m <= kScaleBlock ? 0 : (tile.row % kScaleBlock + block * kBlockRows) / kScaleBlock;
      rows[0] = rows[1] = ptx::ld_shared_f32(of_a + 16 * square + of_step);
    } else {
      const unsigned first = of_a + 4 * (block * kBlockRows + thread / 32 * 16 + thread % 32 / 4);
      rows[0] = ptx::ld_shared_f32(first);
      rows[1] = ptx::ld_shared_f32(first + 32);
    }
    columns = of_b + thread % 4 * 8;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) groups[g] = kHasColumns ? 1.0f : ptx::ld_shared_f32(of_b + 16 * g + of_step);
  }

  // sums += factors * of_step, of an instruction's columns, in the order of the accumulators: sorted by factors, as the
  // compiler would have it, that takes products of 4,096 rows on an H100 5 % longer.
  // kFrom, kTo: groups of eight of the instruction's columns.
  template <int kFrom = 0, int kTo = instruction_columns(C) / 8>
  __device__ __forceinline__ void add(Block<C>& sums, const OfInstruction<C>& of_step, int part) const {
    constexpr int kGroupsOfPart = instruction_columns(C) / 8;
    float factors[kGroups][2];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      factors[g][0] = rows[0] * groups[g];
      factors[g][1] = rows[1] * groups[g];
    }
    const auto of_group = [&](int group, int row) {  // of columns 8 * group to 8 * group + 7
      if constexpr (kGroups == 1) {
        return factors[0][row];
      } else if constexpr (kOffset >= 0) {
        return factors[(kOffset + 8 * group) / kScaleBlock][row];
      } else {
        const int square = (offset + 8 * group) / kScaleBlock;
        const float later = kGroups > 2 && square > 1 ? factors[kGroups - 1][row] : factors[1][row];
        return square == 0 ? factors[0][row] : later;
      }
    };
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) {
      const int group = part * kGroupsOfPart + i;
      float of_columns[2] = {1, 1};
      if constexpr (kHasColumns) ptx::ld_shared_v2_f32(columns + 32 * group, of_columns);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float of_row = of_group(group, v / 2);
        const float factor = kHasColumns ? of_row * of_columns[v % 2] : of_row;
        ptx::fma_in_order(sums[4 * group + v], factor, of_step[4 * i + v]);
      }
    }
  }
};

}  // namespace tessera::gemm

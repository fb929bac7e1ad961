// A row in registers: which columns a thread has, loads and stores of eight neighbours, sums over the row.
#pragma once

#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/global_written.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/narrow.cuh"
#include "spec/rows.h"

namespace tessera::rows {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// What one step is given: operands and results in the order of spec/rows.h.
struct StepParams {
  const void* in;
  const void* in2;
  const void* in3;
  void* out;
  void* out2;
  long long in_stride;   // elements
  long long out_stride;  // likewise; of a cache the bytes of a page
  // Where rows are heads of tokens.
  long long in_stride_token;
  long long out_stride_page;
  long long out_stride_token;
  // Of products.
  const void* in4;
  void* out3;
  int parts;  // of rope's table the rows
};

struct Params {
  const void* x;
  long long x_stride;
  long long x_stride_token;
  const int* indices;
  int x_rows;
  const int* positions;
  int heads;
  const int* slots;
  int placed_rows;
  int cache_slots;
  int page_size;
  float eps;
  int rows;
  StepParams steps[kMaxRowSteps];
};

// Which row a thread works on. Threads behind the last row go through all shuffles and barriers with zeros.
struct Place {
  long long row;
  int thread;  // of the row
  int of_cta;  // the row's number in the CTA
  bool is_live;
  // What stands in memory for the row, loaded before x: the row of x (negative: zeros), its position, its slot.
  int source;
  int position;
  int slot;
  // Where rows are heads: the token's number, and the head's; a slot of pages is the token's.
  int token;
  int head;
  // Of a row in turns: its sums and the one in the making, the turn, and for which sum; behind the last: for values.
  float* sums;
  int turn;
  int pass;
};

template <Config C>
__device__ __forceinline__ Place place_of_thread(const Params& p) {
  const int thread = static_cast<int>(threadIdx.x);
  // CTAs that make mixes stand in front.
  const int cta = static_cast<int>(blockIdx.x) - (begins_with_product(C.chain) ? mix_ctas(C, p.rows) : 0);
  Place place;
  if constexpr (C.ctas_of_row > 1) {
    place.of_cta = 0;
    place.thread = cta % C.ctas_of_row * threads_of_cta(C) + thread;
    place.row = cta / C.ctas_of_row;
  } else {
    place.of_cta = thread / C.threads_of_row;
    place.thread = thread % C.threads_of_row;
    place.row = static_cast<long long>(cta) * C.rows_of_cta + place.of_cta;
  }
  place.is_live = place.row < p.rows;
  const int row = place.is_live ? static_cast<int>(place.row) : -1;
  place.source = place.slot = row;
  place.position = place.token = place.head = 0;
  if (!place.is_live) return place;
  if constexpr (has_part(C.chain, RowPart::gather)) {
    const int index = p.indices[row];
    place.source = index < p.x_rows ? index : -1;
  }
  if constexpr (has_part(C.chain, RowPart::rope) || has_heads(C.chain)) {
    unsigned token = static_cast<unsigned>(row);
    if (p.heads != 1) token /= static_cast<unsigned>(p.heads);  // a division is twenty instructions
    place.token = static_cast<int>(token);
    place.head = row - place.token * p.heads;
    if constexpr (has_part(C.chain, RowPart::rope)) place.position = p.positions[token];
  }
  if constexpr (has_slots(C.chain)) place.slot = p.slots[has_paged_sink(C.chain) ? place.token : row];
  return place;
}

// Where a row of x, or of x2, begins. Precondition: there is one.
template <Config C>
__device__ __forceinline__ long long start_of_row(const Place& place, long long stride, long long stride_token) {
  if constexpr (has_heads(C.chain)) return place.token * stride_token + place.head * stride;
  return place.source * stride;
}

// Where a row of a residual, or one that is stored, begins.
template <Config C, RowStep S>
__device__ __forceinline__ long long start_in_step(const Place& place, long long stride, long long stride_token) {
  if constexpr (has_heads(C.chain, S)) return place.token * stride_token + place.head * stride;
  return place.row * stride;
}

// The first column of a thread's vector.
template <Config C>
__device__ __forceinline__ int column_of(const Place& place, int vector) {
  return (vector * C.threads_of_row + place.thread) * kVector;
}

// From a thread's first vector to another, in columns: a constant of addresses.
template <Config C>
__device__ __forceinline__ constexpr int columns_to(int vector) {
  return vector * C.threads_of_row * kVector;
}

// Whether a step works on a thread's vector. Where all threads' are inside, or outside, the compiler knows.
template <Config C, RowStep S>
__device__ __forceinline__ bool is_in(const Place& place, int vector) {
  constexpr int kLast = last_column(S, C.columns), kTogether = C.threads_of_row * kVector;
  if constexpr (C.turns_of_row > 1)
    return column_of<C>(place, vector) >= S.first && column_of<C>(place, vector) <= kLast;
  const int from = vector * kTogether, to = from + kTogether - 1;
  if (to < S.first || from > kLast) return false;
  const int column = column_of<C>(place, vector);
  return (from >= S.first || column >= S.first) && (to <= kLast || column <= kLast);
}

// Whether any thread's vector is in a step's range.
template <Config C, RowStep S>
__device__ __forceinline__ constexpr bool has_columns_of(int vector) {
  const int from = columns_to<C>(vector);
  return C.turns_of_row > 1 || (from <= last_column(S, C.columns) && from + columns_to<C>(1) > S.first);
}

// Whether a row's values are made now, and written.
template <Config C>
__device__ __forceinline__ bool makes_values(const Place& place) {
  return C.turns_of_row == 1 || place.pass == sums_before(C.chain, kMaxRowSteps);
}

// Whether what is read stays in the L2 longer than what is written: with a residual that is stored as much is written
// as read, and so it goes to memory sooner (16,384 x 7,168 on an H200: 217 us, 224 without).
TESSERA_HD constexpr bool reads_stay(const Config& c) {
  bool has_sum = false;
  for (const RowStep& step : c.chain.steps) has_sum = has_sum || (step.kind == RowPart::residual && step.is_stored);
  return has_sum && c.ctas_of_row == 1 && c.turns_of_row == 1 && c.threads_of_row >= 256;
}

// Eight elements as they are loaded: 4 words of 16-bit pairs, or 8 of fp32.
template <DType kDType>
struct Raw {
  static constexpr int kWords = 2 * dtype_bytes(kDType);
  unsigned words[kWords];
};

// element: a multiple of 8 elements of an aligned row. kStays: other lines leave the L2 first.
template <DType kDType, bool kStays = false>
__device__ __forceinline__ Raw<kDType> load8(const void* from, long long element) {
  const char* const at = static_cast<const char*>(from) + element * dtype_bytes(kDType);
  Raw<kDType> raw;
#pragma unroll
  for (int i = 0; i < Raw<kDType>::kWords / 4; ++i) {
    const ptx::Vector4 v = kStays ? ptx::ld_global_v4_written_with_policy(at + 16 * i, ptx::kEvictLast)
                                  : ptx::ld_global_v4_written(at + 16 * i);
    raw.words[4 * i] = v.x;
    raw.words[4 * i + 1] = v.y;
    raw.words[4 * i + 2] = v.z;
    raw.words[4 * i + 3] = v.w;
  }
  return raw;
}
// A row, and what was loaded before it.
template <Config C>
struct Values {
  static constexpr int kWeights = loads_weights_first(C) ? weights_before(C.chain, kMaxRowSteps) : 0;
  float v[vectors_of_thread(C)][kVector];
  Raw<C.dtype> weights[kWeights + 1][vectors_of_thread(C)];
  Raw<C.dtype> kept[keeps_as_read(C) ? vectors_of_thread(C) : 1];  // x, where v is made of it again
  float given[kMaxRowSteps];                                       // scales of sinks that are given one
};

template <DType kDType>
__device__ __forceinline__ Raw<kDType> zeros8() {
  return {};
}

template <DType kDType>
__device__ __forceinline__ float element(const Raw<kDType>& raw, int i) {
  if constexpr (kDType == DType::f32) {
    return __uint_as_float(raw.words[i]);
  } else {
    const unsigned pair = raw.words[i / 2];
    return ptx::cvt_f32<kDType>(static_cast<unsigned short>(i % 2 == 0 ? pair : pair >> 16));
  }
}

template <DType kDType>
__device__ __forceinline__ void store8(void* to, long long at, const float (&v)[kVector]) {
  char* const address = static_cast<char*>(to) + at * dtype_bytes(kDType);
  unsigned words[Raw<kDType>::kWords];
#pragma unroll
  for (int i = 0; i < Raw<kDType>::kWords; ++i) {
    if constexpr (kDType == DType::f32) {
      words[i] = __float_as_uint(v[i]);
    } else {
      words[i] = ptx::cvt_pack<kDType>(v[2 * i], v[2 * i + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < Raw<kDType>::kWords; i += 4)
    ptx::st_global_v4(address + 4 * i, {words[i], words[i + 1], words[i + 2], words[i + 3]});
}

// Where CTAs share a row: the barrier of a sum.
template <Config C>
__device__ __forceinline__ unsigned barrier_of_sum(int number) {
  extern __shared__ __align__(16) float row_sums[];
  return common::BarrierRow{ptx::shared_address(row_sums), barriers_at(C)}[number];
}

// All threads. The wait is with the first sum: by then the other CTAs must have got so far.
template <Config C>
__device__ __forceinline__ void begin_shared_sums() {
  constexpr int kSums = sums_before(C.chain, kMaxRowSteps);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) ptx::mbarrier_init(barrier_of_sum<C>(i), 1);
    ptx::fence_mbarrier_init();
#pragma unroll
    for (int i = 0; i < kSums; ++i) ptx::mbarrier_arrive_expect_tx(barrier_of_sum<C>(i), 4 * warps_of_row(C));
  }
  __syncwarp();
  ptx::cluster_arrive_relaxed();
}

// A warp's sum to all CTAs of the row, and those of their warps. A barrier of the cluster in its place would wait for
// all stores to memory that are in flight.
template <Config C>
__device__ __forceinline__ void share_sum(int number, float* sum, int lane, float mine) {
  const unsigned barrier = barrier_of_sum<C>(number);
  if (number == 0) ptx::cluster_wait();
  if (lane < C.ctas_of_row)
    ptx::st_async_f32(ptx::mapa(ptx::shared_address(sum), lane), ptx::mapa(barrier, lane), mine);
  ptx::mbarrier_wait_parity(barrier, 0);
}

// What a row's threads have together: their sum, or the largest. kNumber: of the row's sums in the whole chain.
template <Config C, int kNumber, bool kIsMax = false>
__device__ __forceinline__ float over_threads(const Place& place, float mine) {
  constexpr int kLanes = C.threads_of_row < kWarp ? C.threads_of_row : kWarp;
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, mine, distance);
    mine = kIsMax ? fmaxf(mine, other) : mine + other;
  }
  if constexpr (C.threads_of_row > kWarp) {
    extern __shared__ __align__(16) float row_sums[];
    constexpr int kWarps = warps_of_row(C);
    float* const sums = row_sums + (kNumber * C.rows_of_cta + place.of_cta) * kWarps;
    if constexpr (C.ctas_of_row > 1) {
      share_sum<C>(kNumber, sums + place.thread / kWarp, place.thread % kWarp, mine);
    } else {
      if (place.thread % kWarp == 0) sums[place.thread / kWarp] = mine;
      __syncthreads();
    }
    mine = sums[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) mine = kIsMax ? fmaxf(mine, sums[i]) : mine + sums[i];
  }
  return mine;
}

// The same over the row's columns. In turns: of those so far, to be added up behind the last turn, or what is known.
template <Config C, int kNumber, bool kIsMax = false>
__device__ __forceinline__ float over_row(const Place& place, float mine) {
  if constexpr (C.turns_of_row == 1) return over_threads<C, kNumber, kIsMax>(place, mine);
  float& made = place.sums[sums_before(C.chain, kMaxRowSteps)];
  if (place.pass == kNumber) made = place.turn == 0 ? mine : kIsMax ? fmaxf(made, mine) : made + mine;
  return place.sums[kNumber];
}

// The largest of the kLanes lanes that share a block.
template <int kLanes>
__device__ __forceinline__ float over_lanes(float most) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
  return most;
}

}  // namespace tessera::rows

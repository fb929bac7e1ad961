// From a part of a row to keys in shared memory: all of them where they fit, else those that may be among the k
// largest, in the order of j, with their j.
#pragma once

#include "ptx/bulk.cuh"
#include "topk/cut.cuh"

namespace tessera::topk {

inline constexpr int kLoads = 4;  // vectors of a thread on their way

// Keys side by side of a vector, and a count of the first digits of those in `mask`.
template <Config C>
__device__ __forceinline__ void store_keys(const Memory& memory, const ptx::Vector4& vector, unsigned mask, int place) {
  constexpr int kVector = vector_elements(C);
  float x[kVector];
  numbers_of<C>(vector, x);
  unsigned keys[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) keys[j] = key_of<C>(x[j]);
#pragma unroll
  for (int j = 0; j < kVector; j += 4)
    ptx::st_shared_v4(memory.keys + 4 * (place + j), {keys[j], keys[j + 1], keys[j + 2], keys[j + 3]});
  const auto count = [&](unsigned key) {
    ptx::red_shared_add(memory.histogram + 4 * (key >> (key_bits(C) - kDigitBits)), 1);
  };
  if (mask == (1u << kVector) - 1) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) count(keys[j]);
  } else {
#pragma unroll
    for (int j = 0; j < kVector; ++j)
      if ((mask >> j & 1) != 0) count(keys[j]);
  }
}

// All sums of the cluster are zeros from here on.
template <Config C>
__device__ __forceinline__ void wait_for_sums() {
  if constexpr (C.ctas > 1) ptx::cluster_wait();
}

// A key's place is its element's, counted from the part's first vector; the first digit is counted. kWaits: for all
// sums to be zeros.
template <Config C, bool kWaits = true>
__device__ __forceinline__ Places keep_all(const Memory& memory, const Row& row) {
  constexpr int kVector = vector_elements(C);
#pragma unroll 1
  for (int round = row.first; round < row.end; round += kLoads * C.threads) {
    ptx::Vector4 vectors[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (const int vector = round + i * C.threads + thread_of_cta(); vector < row.end)
        vectors[i] = load_vector<C>(row, vector);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int vector = round + i * C.threads + thread_of_cta();
      if (vector >= row.end) break;
      const unsigned mask = is_whole(row, vector) ? (1u << kVector) - 1 : elements_of_row<C>(row, vector);
      store_keys<C>(memory, vectors[i], mask, kVector * (vector - row.first));
    }
  }
  if constexpr (kWaits) wait_for_sums<C>();
  __syncthreads();
  const int begin = row.first * kVector - row.head;  // j of place 0
  const int vectors = row.end - row.first;
  const int first = max(-begin, 0), end = min(row.length - begin, vectors * kVector);
  return {first, max(end, first)};
}

// What is kept of a long part, so far.
struct Kept {
  int count;
  unsigned least;  // smaller keys are not kept from now on
};

// Room again: of more than k pairs those that may be among the k largest, at most `room`.
template <Config C>
__device__ __forceinline__ Kept drop(const Memory& memory, int count, int room) {
  __syncthreads();
  const Cut cut = cut_of<C, false>(memory, {0, count}, count, C.k, false, room);
  const bool is_exact = cut.equals > cut.need && C.k - cut.need + cut.equals > room;
  const Cut kept = is_exact ? cut : Cut{cut.prefix, cut.shift, cut.equals, cut.equals};
  unsigned above = 0, at_limit = 0, turn = 0;  // so far
#pragma unroll 1
  for (int round = 0; round < count; round += kPlaces * C.threads) {
    const int at = round + kPlaces * thread_of_cta();
    const unsigned mask = has_places({0, count}, at);
    unsigned keys[kPlaces], columns[kPlaces];
    load_places(memory.keys, mask, at, keys);
    load_places(memory.columns, mask, at, columns);
    const Taken taken = compare(kept, keys, mask);
    const Sums sums = sums_of_threads<C>(memory.counts + 4 * kWarp * turn,
                                         __popc(taken.above) | static_cast<unsigned>(__popc(taken.at)) << 16);
    unsigned above_before = above + (sums.before & 0xffffu), at_before = at_limit + (sums.before >> 16);
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const bool is_at = (taken.at >> i & 1) != 0, is_above = (taken.above >> i & 1) != 0;
      if (is_above || (is_at && is_taken<C>(kept, static_cast<int>(at_before)))) {
        const unsigned to = above_before + taken_before<C>(kept, static_cast<int>(at_before));
        ptx::st_shared_u32(memory.keys + 4 * to, keys[i]);
        ptx::st_shared_u32(memory.columns + 4 * to, columns[i]);
      }
      above_before += is_above ? 1 : 0;
      at_before += is_at ? 1 : 0;
    }
    above += sums.all & 0xffffu;
    at_limit += sums.all >> 16;
    turn ^= 1;
  }
  __syncthreads();
  // Of equals at the limit, all of which are there, those with the smaller j stay: what comes later is none of them.
  const bool is_over = C.ties == Ties::smaller && is_exact;
  return {static_cast<int>(above) + kept.need, (cut.prefix << cut.shift) + (is_over ? 1 : 0)};
}

// A key that k keys of the row do not fall below: the k-th of a sample, cut off below its second digit. Blocks of a
// warp's vectors from all over the part, each of the cluster's.
template <Config C, bool kWaits>
__device__ __forceinline__ unsigned least_of_sample(const Memory& memory, const Row& row) {
  constexpr int kVector = vector_elements(C), kBlock = kWarp * kVector;
  const int blocks = (row.whole_end - row.whole_first) / kWarp;
  const int sampled = min(blocks / kSampleShare, most_sampled_blocks(C));
#pragma unroll 1
  for (int round = warp_of_cta(); round < sampled; round += kLoads * warps(C)) {
    ptx::Vector4 vectors[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (const int block = round + i * warps(C); block < sampled) {
        const long long from = static_cast<long long>(block) * blocks / sampled * kWarp;
        vectors[i] = ptx::ld_global_v4_stream(row.aligned + (row.whole_first + from + lane_of_thread()) * 16);
      }
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      if (const int block = round + i * warps(C); block < sampled)
        store_keys<C>(memory, vectors[i], (1u << kVector) - 1, block * kBlock + lane_of_thread() * kVector);
  }
  if constexpr (kWaits) wait_for_sums<C>();
  __syncthreads();
  const Cut cut = cut_of<C, true>(memory, {0, sampled * kBlock}, row.length, C.k, true, 0, kSampleDigits, 0);
  return cut.prefix << cut.shift;
}

// Vectors of a chunk: a warp's lanes have neighbouring ones, a thread `vectors_of_thread()`, each 32 behind the last.
template <Config C>
struct Chunk {
  float x[vectors_of_thread(C)][vector_elements(C)];
  unsigned kept;  // a bit for each
};

template <Config C>
__device__ __forceinline__ void load_chunk(const Row& row, int first, unsigned least, Chunk<C>& chunk) {
  constexpr int kVector = vector_elements(C), kVectors = vectors_of_thread(C);
  const int own = first + warp_of_cta() * kVectors * kWarp + lane_of_thread();
  const bool is_whole = first >= row.whole_first && first + kVectors * C.threads <= row.whole_end;
  ptx::Vector4 vectors[kVectors] = {};
  unsigned absent = 0;
  if (is_whole) {
    const unsigned char* const from = row.aligned + static_cast<long long>(own) * 16;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) vectors[i] = ptx::ld_global_v4_stream(from + i * kWarp * 16);
  } else {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = own + i * kWarp;
      const unsigned mask = vector < row.end ? elements_of_row<C>(row, vector) : 0;
      if (mask != 0) vectors[i] = load_vector<C>(row, vector);
      absent |= (mask ^ ((1u << kVector) - 1)) << (i * kVector);
    }
  }
  const float number = least_number<C>(least);
  chunk.kept = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    numbers_of<C>(vectors[i], chunk.x[i]);
#pragma unroll
    for (int j = 0; j < kVector; ++j) chunk.kept |= chunk.x[i][j] >= number ? 1u << (i * kVector + j) : 0;
  }
  if (least == 0) chunk.kept = (1u << (kVectors * kVector)) - 1;
  chunk.kept &= ~absent;
}

// Counts of kept elements, of each of a thread's vectors in a field of its own, say where they stand.
template <Config C, class Least>
__device__ __forceinline__ Places keep_from(const Memory& memory, const Row& row, const Least& least_of) {
  constexpr int kVector = vector_elements(C), kVectors = vectors_of_thread(C), kField = 32 / kVectors;
  constexpr int kStep = chunk(C) / kVector, kRoom = pairs(C) - chunk(C);
  constexpr int kKept = C.k + (kRoom - C.k) / 4;  // the fewer, the fewer come after them
  constexpr int kAhead = 2;                       // chunks on their way to the L2
  const auto prefetch = [&](int first) {
    const int from = max(first, row.whole_first), vectors = min(first + kStep, row.whole_end) - from;
    if (thread_of_cta() == 0 && vectors > 0)
      ptx::bulk_prefetch(row.aligned + static_cast<long long>(from) * 16, vectors * 16);
  };
#pragma unroll 1
  for (int i = 0; i < kAhead; ++i) prefetch(row.first + i * kStep);
  Kept kept{0, least_of()};
  unsigned turn = 0;
#pragma unroll 1
  for (int first = row.first; first < row.end; first += kStep) {
    prefetch(first + kAhead * kStep);
    Chunk<C> now;
    load_chunk<C>(row, first, kept.least, now);
    unsigned counts = 0;  // of a warp a field has at most 32 kVector
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      counts |= static_cast<unsigned>(__popc(now.kept >> (i * kVector) & ((1u << kVector) - 1))) << (i * kField % 32);
    const unsigned before = sum_of_lanes_before(counts);
    const unsigned of_warp = __shfl_sync(kAllLanes, before + counts, kWarp - 1);
    unsigned fields[kVectors], total = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const unsigned kMask = kField == 32 ? ~0u : (1u << (kField % 32)) - 1;
      fields[i] = total + (before >> (i * kField % 32) & kMask);
      total += of_warp >> (i * kField % 32) & kMask;
    }
    const Sums sums = sums_of_warps<C>(memory.counts + 4 * kWarp * turn, total);
    turn ^= 1;
    if (now.kept != 0) {
      const int own = first + warp_of_cta() * kVectors * kWarp + lane_of_thread();
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        unsigned to = 4 * (static_cast<unsigned>(kept.count) + sums.before + fields[i]);
        const int column = (own + i * kWarp) * kVector - row.head;
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          if ((now.kept >> (i * kVector + j) & 1) == 0) continue;
          ptx::st_shared_u32(memory.keys + to, key_of<C>(now.x[i][j]));
          ptx::st_shared_u32(memory.columns + to, static_cast<unsigned>(column + j));
          to += 4;
        }
      }
    }
    kept.count += static_cast<int>(sums.all);
    if (kept.count > kRoom && first + kStep < row.end) {
      const unsigned least = kept.least;
      kept = drop<C>(memory, kept.count, kKept);
      kept.least = max(kept.least, least);
    }
  }
  __syncthreads();
  return {0, kept.count};
}
template <Config C, bool kWaits = true>
__device__ __forceinline__ Places keep_largest(const Memory& memory, const Row& row) {
  return keep_from<C>(memory, row, [&] { return least_of_sample<C, kWaits>(memory, row); });
}

}  // namespace tessera::topk

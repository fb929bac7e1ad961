// The body of topk. In and out: see spec/topk.h.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/griddepcontrol.cuh"
#include "topk/gather.cuh"
#include "topk/write.cuh"

namespace tessera::topk {

template <Config C>
__device__ __forceinline__ void clear(const Memory& memory) {
  constexpr int kWords = kBins + (C.ctas > 1 ? summed_digits(C) * bins_of_cta(C) : 0);  // sums lie behind the histogram
  for (int i = thread_of_cta(); i < kWords; i += C.threads) ptx::st_shared_u32(memory.histogram + 4 * i, 0);
  if (thread_of_cta() < 2) ptx::st_shared_u32(memory.counts + kLimitAt + 4 * thread_of_cta(), 0);
  for (int i = thread_of_cta(); i < sorted_pairs(C); i += C.threads) ptx::st_shared_v2(memory.sorted + 8 * i, 0, 0);
}

// Keys above the limit and at it of the CTAs before this one. All threads of the cluster.
template <Config C>
__device__ __forceinline__ void sums_of_ctas(const Memory& memory, const Places& places, const Cut& cut, int rank,
                                             unsigned& above, unsigned& at_limit) {
  unsigned own_above = 0, own_at = 0;
#pragma unroll 4
  for (int at = places.first + thread_of_cta(); at < places.end; at += C.threads) {
    const unsigned bits = upper_bits(ptx::ld_shared_u32(memory.keys + 4 * at), cut.shift);
    own_above += bits > cut.prefix ? 1 : 0;
    own_at += bits == cut.prefix ? 1 : 0;
  }
  own_above = ptx::redux_add(own_above);
  own_at = ptx::redux_add(own_at);
  if (lane_of_thread() == 0) {
    ptx::red_shared_add(memory.counts + kLimitAt, own_above);
    ptx::red_shared_add(memory.counts + kLimitAt + 4, own_at);
  }
  ptx::cluster_arrive();
  ptx::cluster_wait();
  unsigned of_above = 0, of_at = 0;
  if (lane_of_thread() < rank)
    ptx::ld_cluster_v2(ptx::mapa(memory.counts + kLimitAt, lane_of_thread()), of_above, of_at);
  above = ptx::redux_add(of_above);
  at_limit = ptx::redux_add(of_at);
}

// Those that are taken, in the order of j: to global memory, or, to be sorted, to the cluster's first CTA.
template <Config C>
__device__ __forceinline__ void place_results(const Memory& memory, const Places& places, const Cut& cut,
                                              const Target<C>& target, bool has_columns, int begin, unsigned above,
                                              unsigned at_limit) {
  const unsigned sorted = C.order == ResultOrder::value && C.ctas > 1 ? ptx::mapa(memory.sorted, 0) : memory.sorted;
  unsigned turn = 0;
#pragma unroll 1
  for (int round = places.first / kPlaces * kPlaces; round < places.end; round += kPlaces * C.threads) {
    const int at = round + kPlaces * thread_of_cta();
    const unsigned mask = has_places(places, at);
    unsigned keys[kPlaces];
    load_places(memory.keys, mask, at, keys);
    const Taken taken = compare(cut, keys, mask);
    const Sums sums = sums_of_threads<C>(memory.counts + 4 * kWarp * turn,
                                         __popc(taken.above) | static_cast<unsigned>(__popc(taken.at)) << 16);
    turn ^= 1;
    if ((taken.above | taken.at) != 0) {
      unsigned above_before = above + (sums.before & 0xffffu), at_before = at_limit + (sums.before >> 16);
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        const bool is_at = (taken.at >> i & 1) != 0, is_above = (taken.above >> i & 1) != 0;
        if (is_above || (is_at && is_taken<C>(cut, static_cast<int>(at_before)))) {
          const int place = static_cast<int>(above_before) + taken_before<C>(cut, static_cast<int>(at_before));
          const int column =
              has_columns ? static_cast<int>(ptx::ld_shared_u32(memory.columns + 4 * (at + i))) : begin + at + i;
          if constexpr (C.order == ResultOrder::index) {
            write<C>(target, place, column);
          } else if constexpr (C.ctas > 1) {
            ptx::st_cluster_v2(sorted + 8 * place, rest_of<C>(column), keys[i]);
          } else {
            ptx::st_shared_v2(sorted + 8 * place, rest_of<C>(column), keys[i]);
          }
        }
        above_before += is_above ? 1 : 0;
        at_before += is_at ? 1 : 0;
      }
    }
    above += sums.all & 0xffffu;
    at_limit += sums.all >> 16;
  }
}

// Keys of which the k largest are the row's, and the cut among them.
struct Found {
  Places places;
  Cut cut;
  bool has_columns;  // some keys are gone by now
};
template <Config C>
__device__ __forceinline__ Found find_largest(const Params& p, const Memory& memory, const Row& row, int i, int taken) {
  const bool fits = row.part <= kept_whole(C) / vector_elements(C);  // everybody's, or nobody's
  if constexpr (has_guesses(C)) {
    if (row.part * vector_elements(C) <= kLeastGuessed) {
      const Places all = keep_all<C>(memory, row);
      return {all, cut_of<C, true>(memory, all, row.length, taken, true, 0), false};
    }
    // Where all are taken none may be missing.
    const unsigned least = row.length > C.k ? key_of<C>(ptx::ld_global_f32_written(p.guesses + i)) : 0;
    const Places guessed = keep_from<C>(memory, row, [&] { return least; });
    wait_for_sums<C>();
    const Cut cut = cut_of<C, true>(memory, guessed, row.length, taken, false, 0);
    if (!is_missed(cut)) return {guessed, cut, true};
    constexpr bool kWaits = false;
    const Places places = fits ? keep_all<C, kWaits>(memory, row) : keep_largest<C, kWaits>(memory, row);
    return {places, cut_of<C, true>(memory, places, row.length, taken, fits, 0, digits(C), kSampleDigits + 1), !fits};
  } else {
    const Places places = fits ? keep_all<C>(memory, row) : keep_largest<C>(memory, row);
    return {places, cut_of<C, true>(memory, places, row.length, taken, fits, 0), !fits};
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  const Memory memory = memory_of_cta<C>();
  const int i = static_cast<int>(blockIdx.x / C.ctas), rank = static_cast<int>(blockIdx.x % C.ctas);
  clear<C>(memory);
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const Row row = row_of<C>(p, i, rank);
  const Target<C> target = target_of<C>(p, row, i);
  const int taken = min(row.length, C.k);
  if (C.order == ResultOrder::index && row.length <= C.k - (has_guesses(C) ? 1 : 0)) {
    const int thread = rank * C.threads + thread_of_cta();
    for (int column = thread; column < row.length; column += C.ctas * C.threads) write<C>(target, column, column);
    pad<C>(target, taken, thread, C.ctas * C.threads);
    if (has_guesses(C) && thread == 0) p.kth[i] = ptx::minus_infinity();
    return;
  }
  if constexpr (C.ctas > 1) ptx::cluster_arrive();
  __syncthreads();
  const auto [places, cut, has_columns] = find_largest<C>(p, memory, row, i, taken);
  if (has_guesses(C) && rank == 0 && thread_of_cta() == 0)
    p.kth[i] = row.length < C.k ? ptx::minus_infinity() : number_of_key<C>(cut.prefix);
  unsigned above = 0, at_limit = 0;
  if constexpr (C.ctas > 1) sums_of_ctas<C>(memory, places, cut, rank, above, at_limit);
  if constexpr (C.ctas > 1 && C.order == ResultOrder::index) ptx::cluster_arrive();
  place_results<C>(memory, places, cut, target, has_columns, row.first * vector_elements(C) - row.head, above,
                   at_limit);
  if constexpr (C.ctas > 1 && C.order == ResultOrder::value) ptx::cluster_arrive();
  // A CTA stays until the others have read what they need of its shared memory.
  if constexpr (C.ctas > 1) ptx::cluster_wait();
  if constexpr (C.order == ResultOrder::value) {
    if (rank > 0) return;
    sort_pairs<C>(memory.sorted);
    for (int place = thread_of_cta(); place < taken; place += C.threads)
      write<C>(target, place, column_of<C>(ptx::ld_shared_u32(memory.sorted + 8 * place)));
    pad<C>(target, taken, thread_of_cta(), C.threads);
  }
}

}  // namespace tessera::topk

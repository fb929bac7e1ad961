// Where the k largest end: a digit of keys after the other, by histograms.
#pragma once

#include "ptx/cluster_words.cuh"
#include "topk/scan.cuh"

namespace tessera::topk {

// Of keys, without their `shift` lowest bits: all above `prefix` are taken, and `need` of the `equals` that have it.
struct Cut {
  unsigned prefix;
  int shift;
  int need, equals;
};

// Of keys above a guess there may be fewer than are needed.
__device__ __forceinline__ bool is_missed(const Cut& cut) { return cut.shift < 0; }

// Also for all bits of 32.
__device__ __forceinline__ unsigned upper_bits(unsigned key, int shift) { return __funnelshift_rc(key, 0u, shift); }

template <Config C>
__device__ __forceinline__ unsigned bin_of(unsigned key, int width, int next) {
  return (key >> next) & ((1u << width) - 1);
}

// Of the digit's bins those of this thread, the lower first; they are zeros then. Thread 0 has the largest.
template <Config C, bool kOfCluster>
__device__ __forceinline__ void take_bins(const Memory& memory, int digit, unsigned (&counts)[kBins / C.threads]) {
  constexpr int kOwn = kBins / C.threads;
  const int first = kBins - (thread_of_cta() + 1) * kOwn;
#pragma unroll
  for (int i = 0; i < kOwn; i += 2) {
    const unsigned address = memory.histogram + 4 * (first + i);
    ptx::ld_shared_v2(address, counts[i], counts[i + 1]);
    ptx::st_shared_u32(address, 0);
    ptx::st_shared_u32(address + 4, 0);
  }
  if constexpr (kOfCluster && C.ctas > 1) {
    const int owner = first / bins_of_cta(C);
    const unsigned sums = ptx::mapa(memory.sums + 4 * (digit * bins_of_cta(C) + first % bins_of_cta(C)), owner);
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (counts[i] != 0) ptx::red_cluster_add(sums + 4 * i, counts[i]);
    ptx::cluster_arrive();
    ptx::cluster_wait();
#pragma unroll
    for (int i = 0; i < kOwn; i += 2) ptx::ld_cluster_v2(sums + 4 * i, counts[i], counts[i + 1]);
  }
}

// The limit of the `need` largest of keys, of which there are `all`: of this CTA's, or of the cluster's. A first digit
// that is counted already is not counted again. Of a CTA's own keys it ends where what is above and at the limit fits
// into `room`. At most `most` digits, whose sums begin at that of `area`. All threads; begins with no barrier, ends
// with one.
template <Config C, bool kOfCluster>
__device__ __forceinline__ Cut cut_of(const Memory& memory, const Places& places, int all, int need, bool is_counted,
                                      int room, int most = digits(C), int area = kSampleDigits) {
  constexpr int kOwn = kBins / C.threads;
  Cut cut{0, key_bits(C), need, all};
#pragma unroll 1
  // With guesses the k-th value is written, so all digits are looked at.
  for (int digit = 0; digit < most && cut.shift > 0 && (has_guesses(C) ? need > 0 : cut.equals != cut.need); ++digit) {
    if (!kOfCluster && need - cut.need + cut.equals <= room) break;
    const int width = min(kDigitBits, cut.shift), next = cut.shift - width;
    if (!(digit == 0 && is_counted)) {
#pragma unroll 4
      for (int at = places.first + thread_of_cta(); at < places.end; at += C.threads) {
        const unsigned key = ptx::ld_shared_u32(memory.keys + 4 * at);
        if (upper_bits(key, cut.shift) == cut.prefix)
          ptx::red_shared_add(memory.histogram + 4 * bin_of<C>(key, width, next), 1);
      }
      __syncthreads();
    }
    unsigned counts[kOwn], own = 0;
    take_bins<C, kOfCluster>(memory, area + digit, counts);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own += counts[i];
    unsigned before = sums_of_threads<C>(memory.counts, own).before;
    const unsigned wanted = static_cast<unsigned>(cut.need);
    if (before < wanted && wanted <= before + own) {
      int bin = kBins - thread_of_cta() * kOwn;
      unsigned at_limit = 0;
#pragma unroll
      for (int i = kOwn - 1; i >= 0; --i) {
        if (before < wanted) {
          --bin;
          at_limit = counts[i];
          before += at_limit;
        }
      }
      ptx::st_shared_v4(memory.counts + kFoundAt,
                        {static_cast<unsigned>(bin), wanted - (before - at_limit), at_limit, 0});
    } else if (has_guesses(C) && thread_of_cta() == C.threads - 1 && before + own < wanted) {
      ptx::st_shared_v4(memory.counts + kFoundAt, {0, 0, 0, 1});
    }
    __syncthreads();
    const ptx::Words4 found = ptx::ld_shared_v4(memory.counts + kFoundAt);
    if (has_guesses(C) && found.w != 0) return {0, -1, 0, 0};
    cut = {cut.prefix << width | found.x, next, static_cast<int>(found.y), static_cast<int>(found.z)};
  }
  return cut;
}

// Of four keys side by side those that are above the limit, and at it, as bits.
struct Taken {
  unsigned above, at;
};
__device__ __forceinline__ Taken compare(const Cut& cut, const unsigned (&keys)[kPlaces], unsigned mask) {
  Taken taken{0, 0};
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) {
    const unsigned bits = upper_bits(keys[i], cut.shift);
    taken.above |= bits > cut.prefix ? 1u << i : 0;
    taken.at |= bits == cut.prefix ? 1u << i : 0;
  }
  return {taken.above & mask, taken.at & mask};
}

// Whether the one with `number` others at the limit before it is among those that are taken, and how many before it
// are.
template <Config C>
__device__ __forceinline__ bool is_taken(const Cut& cut, int number) {
  return C.ties == Ties::smaller ? number < cut.need : number >= cut.equals - cut.need;
}
template <Config C>
__device__ __forceinline__ int taken_before(const Cut& cut, int number) {
  return C.ties == Ties::smaller ? min(number, cut.need) : max(number - (cut.equals - cut.need), 0);
}

}  // namespace tessera::topk

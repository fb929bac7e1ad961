// e4m3 keys and values to 16 bits, exactly: from a slot as it was loaded to one that products read. For all families.
//
// To f16 there is an instruction; to bf16 the way goes on through fp32. V becomes f16 whatever the queries are, which
// takes a third of the instructions, and P with it: its numbers are at most 2^8, and f16 has the finer steps.
//
// A thread reads 16 bytes and writes 32. Eight threads that are served at once read a line of banks and write one: of a
// raw panel of 128 bytes they have the first half of one row and the second half of the next.
#pragma once

#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared_words.cuh"
#include "spec/attention_facts.h"

namespace tessera::attention {

// Four e4m3, the lowest byte first, as two pairs.
template <DType kDType>
__device__ __forceinline__ void widen_word(unsigned codes, unsigned& low, unsigned& high) {
  low = ptx::cvt_f16x2_e4m3x2(codes & 0xffff);
  high = ptx::cvt_f16x2_e4m3x2(codes >> 16);
  if constexpr (kDType == DType::bf16) {
    float first[2], second[2];
    ptx::f32_of_f16x2(low, first[0], first[1]);
    ptx::f32_of_f16x2(high, second[0], second[1]);
    low = ptx::cvt_pack<kDType>(first[0], first[1]);
    high = ptx::cvt_pack<kDType>(second[0], second[1]);
  }
}

struct NothingBetween {
  __device__ __forceinline__ void operator()(int) const {}
};

// A slot of tile_n keys of kColumns elements, by kWarps warps, batch by batch in a loop: unrolled, slots of 256 columns
// were a fifth of a kernel's code. `thread`: of theirs. `between`: called when a thread has read what it has of a
// panel, before it writes. `kTakesTwo`: batches of two, where that divides, in place of four. `kRawSwizzle`: of `from`.
template <auto C, DType kDType, int kColumns, int kWarps, class Between = NothingBetween, bool kTakesTwo = false,
          Swizzle kRawSwizzle = Swizzle::none>
__device__ __forceinline__ void widen_slot(unsigned from, unsigned to, int thread, const Between& between = {}) {
  constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, kColumns);  // of a raw panel, bytes
  constexpr int kWideSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kPanelBytes = C.tile_n * kSpan;
  constexpr int kSweepBytes = 32 * kWarps * 16;  // all threads at once; rows of the swizzle's patterns
  constexpr int kSweepsOfPanel = (kPanelBytes + kSweepBytes - 1) / kSweepBytes;
  constexpr int kBatch = kTakesTwo && kSweepsOfPanel % 2 == 0 ? 2
                         : kSweepsOfPanel % 4 == 0            ? 4
                         : kSweepsOfPanel % 5 == 0            ? 5
                         : kSweepsOfPanel % 3 == 0            ? 3
                         : kSweepsOfPanel % 2 == 0            ? 2
                                                              : 1;
  constexpr int kWideSweepBytes = kSweepBytes / kSpan * kWideSpan;
  // Of the two chunks that a thread writes one is the other's neighbour, or in the next panel.
  constexpr unsigned kOtherPanel = kWideSpan == 16 ? C.tile_n * kWideSpan : 0;
  const int turned =
      kSpan == 128 ? thread ^ (thread / 4 % 2 * 8) : thread;  // the second halves of two rows change places
  const int begin = 16 * turned;
  const int row = begin / kSpan;
  static_assert(kRawSwizzle == Swizzle::none || kSweepBytes % 1024 == 0);
  const unsigned raw = from + swizzle_address(kRawSwizzle, static_cast<unsigned>(begin));
#pragma unroll 1
  for (int panel = 0; panel < kColumns / kSpan; ++panel) {
    const int byte = 2 * (panel * kSpan + begin % kSpan);  // of the wide row
    const unsigned place = byte / kWideSpan * C.tile_n * kWideSpan + row * kWideSpan + byte % kWideSpan;
    const unsigned chunk = to + swizzle_address(C.swizzle, place);
    const unsigned other = kWideSpan == 16 ? chunk + kOtherPanel : chunk ^ 16;
#pragma unroll 1
    for (int first = 0; first < kSweepsOfPanel; first += kBatch) {
      const auto is_there = [&](int i) {
        return kPanelBytes % kSweepBytes == 0 || (first + i) * kSweepBytes + begin < kPanelBytes;
      };
      ptx::Words4 codes[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (is_there(i)) codes[i] = ptx::ld_shared_v4(raw + panel * kPanelBytes + (first + i) * kSweepBytes);
      between(panel);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (!is_there(i)) continue;
        ptx::Words4 low, high;
        widen_word<kDType>(codes[i].x, low.x, low.y);
        widen_word<kDType>(codes[i].y, low.z, low.w);
        widen_word<kDType>(codes[i].z, high.x, high.y);
        widen_word<kDType>(codes[i].w, high.z, high.w);
        ptx::st_shared_v4(chunk + (first + i) * kWideSweepBytes, low);
        ptx::st_shared_v4(other + (first + i) * kWideSweepBytes, high);
      }
    }
  }
}

}  // namespace tessera::attention

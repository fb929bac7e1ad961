// Parts that are added where the sequence's first keys are, with no second step.
//
// A range ends with the first keys of a sequence that a cut lies in, and the next range began with the rest, its tail,
// long before. So whoever has the first keys mostly finds the tail in the workspace, adds it to what is in its
// registers and writes O: neither its own part goes to memory nor does the second step read both. It asks once and
// waits for nobody: CTAs need not run at the same time. Where the tail is not there, or is more than one part, the part
// is written, and the second step merges; bits are the same, since both compute alike (attention/merge.cuh).
//
// A CTA has two words in the workspace, which holds anything when a launch begins. The first says that its tail is
// there. Whoever is to read it clears it before: a tail that came earlier still is not seen then, and merged. The
// second says whether the tail behind its own range has been added; who asks writes it in either case.
#pragma once

#include "fmha/softmax.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/epilogue.cuh"
#include "fmha_latent/matmul.cuh"
#include "fmha_latent/params.cuh"
#include "ptx/global_written.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

enum TailWord { kTailIsThere, kTailIsAdded };

__device__ __forceinline__ int* tail_word(const Params& p, int cta, TailWord word) {
  return p.tails + cta * kTailWords + word;
}
// The CTA of the next range that has the same tile.
template <Config C>
__device__ __forceinline__ int cta_behind(const Params& p) {
  return static_cast<int>(blockIdx.x) + tiles_of_sequence<C>(p);
}

// One thread, before all else that the CTA writes, behind all launches before.
template <Config C>
__device__ __forceinline__ void clear_tail(const Params& p) {
  if constexpr (!joins_tails(C)) return;
  const int behind = cta_behind<C>(p);
  if (behind < static_cast<int>(gridDim.x)) ptx::st_global_s32_relaxed(tail_word(p, behind, kTailIsThere), 0);
}

// One thread, once the CTA's part is in the workspace. `is_rest`: it is all that is left of its sequence.
__device__ __forceinline__ void tell_tail(const Params& p, bool is_rest) {
  ptx::st_global_s32_release(tail_word(p, static_cast<int>(blockIdx.x), kTailIsThere), is_rest ? 1 : 0);
}

// One thread that has the first keys of a sequence that the next range has more of.
template <Config C>
__device__ __forceinline__ bool ask_for_tail(const Params& p) {
  const bool is_there = ptx::ld_global_s32_acquire(tail_word(p, cta_behind<C>(p), kTailIsThere)) != 0;
  ptx::st_global_s32_relaxed(tail_word(p, static_cast<int>(blockIdx.x), kTailIsAdded), is_there ? 1 : 0);
  return is_there;
}

// O on its way through the slots of keys, which are free behind a CTA's last part: [row][kHeadDimV], fp32, rows so far
// apart that what a warp writes of eight rows lies in banks of its own.
inline constexpr int kStagedRowBytes = 4 * kHeadDimV + 32;
static_assert(kRows * kStagedRowBytes <= 2 * kSlotBytes);

// Half of the columns of a thread's rows.
template <Config C>
__device__ __forceinline__ void stage_rows(unsigned staged, int first_column, int row) {
  const unsigned at = staged + row * kStagedRowBytes + 4 * (first_column + 2 * (static_cast<int>(threadIdx.x) % 4));
  RegistersOf<C>::stage_rows(at, at + 8 * kStagedRowBytes);
}

// The staged part of a sequence and its tail, for rows of this warp, as attention::merge_row does it. `statistics`: of
// the staged rows, references and behind them sums.
template <Config C>
__device__ __forceinline__ void add_tail(const Params& p, int sequence, int first_row, unsigned staged,
                                         unsigned statistics) {
  constexpr int kRowsOfWarp = kRows / (kConsumers * kWarpsOfConsumer);
  constexpr int kGroups = kHeadDimV / 128;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 - kWarpsOfConsumer;  // behind the producers
  const int begin = warp * kRowsOfWarp;
  const int count = min(min(C.tile_m, rows_of_sequence<C>(p) - first_row) - begin, kRowsOfWarp);
  const long long first = part_row<C>(p, 2 * cta_behind<C>(p), begin);
  ptx::Vector4 tail[kRowsOfWarp][kGroups];
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    if (i >= count) break;
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      tail[i][group] = ptx::ld_global_v4_written(p.partial_o + (first + i) * kHeadDimV + 128 * group + 4 * lane);
  }
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    if (i >= count) break;
    const int row = begin + i;
    unsigned bits[2];
    ptx::ld_global_v2_written(p.partial_sums + 2 * (first + i), bits[0], bits[1]);
    const float reference = ptx::ld_shared_f32(statistics + 4 * row), other_reference = __uint_as_float(bits[0]);
    const float max = fmaxf(reference, other_reference);
    const float subtrahend = max == ptx::minus_infinity() ? 0.0f : max;
    const float own = ptx::ex2(reference - subtrahend), other = ptx::ex2(other_reference - subtrahend);
    const float sum = __fadd_rn(__fmul_rn(ptx::ld_shared_f32(statistics + 4 * (kRows + row)), own),
                                __fmul_rn(__uint_as_float(bits[1]), other));
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    const float weight = own * factor, other_weight = other * factor;
    char* const to = o_row_of<C>(p, sequence, first_row + row);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int column = 128 * group + 4 * lane;
      const ptx::Words4 words = ptx::ld_shared_v4(staged + row * kStagedRowBytes + 4 * column);
      const auto add = [&](unsigned part, unsigned part_behind) {
        return fmaf(__uint_as_float(part_behind), other_weight, fmaf(__uint_as_float(part), weight, 0.0f));
      };
      const ptx::Vector4& behind = tail[i][group];
      ptx::st_global_v2(to + column * o_element_bytes(C.facts),
                        ptx::cvt_pack<C.facts.dtype>(add(words.x, behind.x), add(words.y, behind.y)),
                        ptx::cvt_pack<C.facts.dtype>(add(words.z, behind.z), add(words.w, behind.w)));
    }
    if (lane == 0 && p.lse != nullptr)
      p.lse[statistic_of<C>(p, sequence, first_row + row)] = (subtrahend + ptx::lg2(sum)) * fmha::kLn2;
  }
}

}  // namespace tessera::fmha_latent

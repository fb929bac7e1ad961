// Keys and values that are codes with scales (kv_format) to bf16, exactly: what threads do with a word of codes, and a
// slot as it was loaded becomes one that products read. For all families.
//
//   nvfp4  A code of e2m1 with its bits moved to where bf16 has sign, exponent and mantissa is the number times 2^-126,
//          subnormal ones included; a scale of ue4m3 likewise, times 2^-120. One product with the scale times 2^118
//          gives the number times its scale, over 256, and the factors of scores and of rows of O have the 256
//          (widened_unit). Six significant bits: nothing is rounded. NaN, the scale 0x7F, counts as 480.
//   mxfp8  A code of e4m3 is widened as without a scale, and multiplied with a power of two.
//
// Nibble j of a word's halves is column j of eight and column j + 4. Sums over columns do not ask for their order, so
// mma.sync's operands have these pairs as they are.
#pragma once

#include "attention/widen.cuh"
#include "common/e2m1_bf16.cuh"
#include "ptx/math.cuh"
#include "ptx/pairs.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "spec/attention_facts.h"

namespace tessera::attention {

// Pairs of columns in a word of codes.
template <KvFormat kFormat>
inline constexpr int kPairsOfWord = kFormat == KvFormat::nvfp4 ? 4 : 2;

// Two scales, as what pairs are multiplied with.
template <KvFormat kFormat>
__device__ __forceinline__ unsigned scale_pair(unsigned low, unsigned high) {
  if constexpr (kFormat == KvFormat::nvfp4) {
    const unsigned bits = ((low & 0x7f) | (high & 0x7f) << 16) << 4;
    return ptx::mul_x2<DType::bf16>(ptx::mul_x2<DType::bf16>(bits, 0x7b807b80u), 0x7a807a80u);  // 2^120, 2^118
  } else {
    return common::bf16_of_ue8m0(low) | common::bf16_of_ue8m0(high) << 16;
  }
}

// A word of codes as pairs. nvfp4: columns (j, j + 4); mxfp8: (0, 1) and (2, 3).
template <KvFormat kFormat>
__device__ __forceinline__ void widen_pairs(unsigned word, unsigned scale, unsigned (&pairs)[kPairsOfWord<kFormat>]) {
  if constexpr (kFormat == KvFormat::nvfp4) {
    common::lowered_pairs(word, pairs);
#pragma unroll
    for (unsigned& pair : pairs) pair = ptx::mul_x2<DType::bf16>(pair, scale);
  } else {
    widen_word<DType::bf16>(word, pairs[0], pairs[1]);
#pragma unroll
    for (int j = 0; j < 2; ++j) pairs[j] = ptx::mul_x2<DType::bf16>(pairs[j], scale);
  }
}

// A slot of tile_n keys of kColumns elements, by kWarps warps. Four threads have a row's 64 columns, 16 each: of a
// group of eight threads that are served at once two rows' chunks lie in different banks.
// 64 columns at a time, in a loop: unrolled, a kernel of 128 columns took NVRTC a twelfth longer.
template <auto C, int kColumns, int kWarps>
__device__ __forceinline__ void widen_scaled_slot(unsigned from, unsigned scales, unsigned to, int thread) {
  constexpr KvFormat kFormat = C.facts.kv_format;
  constexpr bool kIsNibbles = has_key_nibbles(C.facts);
  constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, kColumns);  // of a raw panel, bytes
  constexpr int kWideSpan = swizzle_span_bytes(C.swizzle);
  constexpr int kScales = key_scale_bytes(C.facts, kColumns);  // of a key
  constexpr int kUnitBytes = kIsNibbles ? 8 : 16;              // codes of 16 columns
  constexpr int kRowsAtOnce = 32 * kWarps / 4;
  constexpr int kSweeps = (C.tile_n + kRowsAtOnce - 1) / kRowsAtOnce;
  constexpr unsigned kOtherPanel = kWideSpan == 16 ? C.tile_n * kWideSpan : 0;
#pragma unroll 1
  for (int first = 0; first < kColumns; first += 64) {
    const int unit = first / 16 + thread % 4;
    const int raw = unit * kUnitBytes, wide = unit * 32;
    const unsigned codes_at = from + raw / kSpan * C.tile_n * kSpan + raw % kSpan;
    const unsigned place = to + wide / kWideSpan * C.tile_n * kWideSpan + wide % kWideSpan;
    const unsigned scale_at = scales + unit * 16 / columns_of_key_scale(C.facts);
#pragma unroll
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const int row = sweep * kRowsAtOnce + thread / 4;
      if (C.tile_n % kRowsAtOnce != 0 && row >= C.tile_n) continue;
      const unsigned code = ptx::ld_shared_u8(scale_at + row * kScales);
      const unsigned scale = scale_pair<kFormat>(code, code);
      ptx::Words4 low, high;
      if constexpr (kIsNibbles) {
        unsigned words[2], pairs[2][4];
        ptx::ld_shared_v2(codes_at + row * kSpan, words[0], words[1]);
#pragma unroll
        for (int i = 0; i < 2; ++i) widen_pairs<kFormat>(words[i], scale, pairs[i]);
        const auto side_by_side = [&](const unsigned(&of)[4]) {
          return ptx::Words4{ptx::prmt(of[0], of[1], 0x5410), ptx::prmt(of[2], of[3], 0x5410),
                             ptx::prmt(of[0], of[1], 0x7632), ptx::prmt(of[2], of[3], 0x7632)};
        };
        low = side_by_side(pairs[0]);
        high = side_by_side(pairs[1]);
      } else {
        const ptx::Words4 words = ptx::ld_shared_v4(codes_at + row * kSpan);
        unsigned pairs[4][2];
        widen_pairs<kFormat>(words.x, scale, pairs[0]);
        widen_pairs<kFormat>(words.y, scale, pairs[1]);
        widen_pairs<kFormat>(words.z, scale, pairs[2]);
        widen_pairs<kFormat>(words.w, scale, pairs[3]);
        low = {pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]};
        high = {pairs[2][0], pairs[2][1], pairs[3][0], pairs[3][1]};
      }
      const unsigned chunk = swizzle_address(C.swizzle, place + row * kWideSpan);
      ptx::st_shared_v4(chunk, low);
      ptx::st_shared_v4(kWideSpan == 16 ? chunk + kOtherPanel : chunk ^ 16, high);
    }
  }
}

}  // namespace tessera::attention

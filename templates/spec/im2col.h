// Which pixel of a tensor each row of an im2col copy reads. PTX ISA, "Im2col mode"; tests/layout_probes asks a GPU.
//
// The tensor is C, W, H, D, N (rank 5; rank 4 has no D, rank 3 no H and D). A copy takes `pixels` pixels of `channels`
// channels each. Pixels are base positions in a bounding box, which in each spatial dimension reaches from the lower
// corner to the extent - 1 plus the upper corner, both included; from the start on they run along W in steps of the
// traversal stride, then H, then D, then N. The copy's offsets, a filter tap, are added to each base position, and what
// lies outside the tensor then reads as zero.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::layout {

inline constexpr int kIm2colSpatial = 3;

struct Im2colMap {
  int rank = 4;  // 3 to 5
  long long dims[5] = {};
  int lower[kIm2colSpatial] = {};  // of W, H, D
  int upper[kIm2colSpatial] = {};
  int strides[kIm2colSpatial] = {1, 1, 1};
};

struct Im2colPixel {
  long long at[5] = {};  // C, W, ..., N; offsets added
};

// start: C, W, ..., N of the copy; offsets: of W, H, D; index: of the pixel.
TESSERA_HD constexpr Im2colPixel im2col_pixel(const Im2colMap& map, const long long (&start)[5],
                                              const int (&offsets)[kIm2colSpatial], int index) {
  Im2colPixel base;
  for (int d = 0; d < 5; ++d) base.at[d] = start[d];
  const int spatial = map.rank - 2;
  for (int i = 0; i < index; ++i) {
    int d = 0;
    for (; d < spatial; ++d) {
      base.at[1 + d] += map.strides[d];
      if (base.at[1 + d] <= map.dims[1 + d] - 1 + map.upper[d]) break;
      base.at[1 + d] = map.lower[d];
    }
    if (d == spatial) ++base.at[map.rank - 1];
  }
  for (int d = 0; d < spatial; ++d) base.at[1 + d] += offsets[d];
  return base;
}

// What the driver and the instruction take.
enum class Im2colRule { ok, rank, channels, pixels, lower_corner, upper_corner, offset };
TESSERA_HD constexpr Verdict<Im2colRule> why_invalid_im2col(const Im2colMap& map, int channels, int pixels,
                                                            const int (&offsets)[kIm2colSpatial]) {
  if (map.rank < 3 || map.rank > 5) return {Im2colRule::rank, map.rank, 5};
  if (channels < 1 || channels > 256) return {Im2colRule::channels, channels, 256};
  if (pixels < 1 || pixels > 1024) return {Im2colRule::pixels, pixels, 1024};
  // Corners are signed 16, 8 or 5 bits, offsets as many, unsigned.
  const int half = map.rank == 3 ? 1 << 15 : map.rank == 4 ? 1 << 7 : 1 << 4;
  for (int d = 0; d < map.rank - 2; ++d) {
    if (map.lower[d] < -half || map.lower[d] >= half) return {Im2colRule::lower_corner, map.lower[d], half};
    if (map.upper[d] < -half || map.upper[d] >= half) return {Im2colRule::upper_corner, map.upper[d], half};
    if (offsets[d] < 0 || offsets[d] >= 2 * half) return {Im2colRule::offset, offsets[d], 2 * half};
  }
  return {};
}

}  // namespace tessera::layout

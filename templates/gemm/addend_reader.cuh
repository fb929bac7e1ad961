// beta * C on its way to sums: 16 bytes of a row to a lane, by way of the staging slot where the finished part of D
// will lie. A warp's part of a slot is its own, so only the warp waits. Rows of C that begin anywhere, and what follows
// the last whole 16 bytes of a row, come element by element. C may be D: what a warp reads of it, it stores later.
#pragma once

#include "ptx/global_written.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "tessera/spec/types.h"

namespace tessera::gemm {

// A part of D and of C, from `row` and `column` on.
struct AddendPart {
  int row;
  int column;
  int rows;
  int columns;

  // What has a place in the slot: stmatrix and ldmatrix take 16 columns of sums at a time.
  __device__ __forceinline__ int staged_rows() const { return (rows + 15) / 16 * 16; }
  __device__ __forceinline__ int units_across(int of_unit) const { return (columns + 15) / 16 * 16 / of_unit; }
};

// Whether C is read at all, and its rows begin on 16 bytes.
template <DType kDType, class AnyParams>
__device__ __forceinline__ bool reads_units_of_addend(const AnyParams& p) {
  const unsigned long long bytes = (p.ldc | p.c_stride_l) * dtype_bytes(kDType);
  return p.beta != 0.0f && ((reinterpret_cast<unsigned long long>(p.c) | bytes) & 15) == 0;
}

template <DType kDType, class AnyParams>
__device__ __forceinline__ const char* place_in_addend(const AnyParams& p, int batch, int row, int column) {
  return static_cast<const char*>(p.c) + (batch * p.c_stride_l + row * p.ldc + column) * dtype_bytes(kDType);
}

// What parts a warp reads. In the slot a part's row `r` begins at `begin` + r * kSpanBytes.
template <DType kDType, int kSpanBytes, Swizzle kSwizzle, class AnyParams>
struct AddendReader {
  static constexpr int kBytes = dtype_bytes(kDType);
  static constexpr int kOfUnit = 16 / kBytes;

  const AnyParams& p;
  const bool is_in_units;
  // Of D, for the tile.
  int batch = 0;
  int end_of_rows = 0;
  int end_of_columns = 0;

  __device__ __forceinline__ explicit AddendReader(const AnyParams& params)
      : p(params), is_in_units(reads_units_of_addend<kDType>(params)) {}

  static __device__ __forceinline__ unsigned staged(unsigned begin, int r, int byte) {
    return swizzle_address(kSwizzle, begin + r * kSpanBytes + byte);
  }

  // A lane's units where a warp takes whole rows: below each other.
  struct Below {
    int step;    // rows between two of them; 0: they are anywhere
    int row;     // of the first
    int column;  // in elements
  };
  // With `kHasSpare` units that lie so have one address and one bound, in registers beside the sums: on an H200 128 x
  // 224, 4,096 x 8,192 x 4,096 takes 407 us in place of 416, but warpgroups in turn with 128 x 160 sums 183 in place of
  // 169 (4,096 x 7,168 x 2,048).
  template <bool kHasSpare>
  __device__ __forceinline__ static Below below(const AddendPart& of, int lane) {
    const int across = of.units_across(kOfUnit);
    if (!kHasSpare || across > 32 || 32 % across != 0) return {0, 0, 0};
    return {32 / across, lane / across, lane % across * kOfUnit};
  }

  template <bool kHasSpare, int kUnits>
  __device__ __forceinline__ void load(unsigned (&to)[kUnits][4], int lane, const AddendPart& of) const {
    const int across = of.units_across(kOfUnit);
    const Below first = below<kHasSpare>(of, lane);
    const char* from = place_in_addend<kDType>(p, batch, of.row + first.row, of.column + first.column);
    const long long stride = first.step * p.ldc * kBytes;
    const bool is_across =
        is_in_units && first.column < of.columns && of.column + first.column + kOfUnit <= end_of_columns;
    const int left = is_across ? min(of.rows, end_of_rows - of.row) - first.row : 0;
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      ptx::Vector4 v{0, 0, 0, 0};
      if (first.step > 0) {
        if (j * first.step < left) v = ptx::ld_global_v4_written(from);
        from += stride;
      } else {
        const int i = j * 32 + lane, r = i / across, c = i % across * kOfUnit;
        const bool is_inside =
            r < of.rows && c < of.columns && of.row + r < end_of_rows && of.column + c + kOfUnit <= end_of_columns;
        if (is_in_units && is_inside)
          v = ptx::ld_global_v4_written(place_in_addend<kDType>(p, batch, of.row + r, of.column + c));
      }
      to[j][0] = v.x, to[j][1] = v.y, to[j][2] = v.z, to[j][3] = v.w;
    }
  }

  // What load() brought, to the slot; the caller then waits for the warp.
  template <bool kHasSpare, int kUnits>
  __device__ __forceinline__ void put(const unsigned (&from)[kUnits][4], unsigned begin, int lane,
                                      const AddendPart& of) const {
    const int across = of.units_across(kOfUnit), units = of.staged_rows() * across;
    if (kHasSpare && kSwizzle == Swizzle::b128 && across == 8) {  // slots begin on whole patterns
      const unsigned first = staged(begin, lane / 8, lane % 8 * 16);
#pragma unroll
      for (int j = 0; j < kUnits; ++j)
        ptx::st_shared_v4((first ^ j % 2 * 64) + j * 4 * kSpanBytes, {from[j][0], from[j][1], from[j][2], from[j][3]});
      return;
    }
#pragma unroll
    for (int j = 0; j < kUnits; ++j) {
      const int i = j * 32 + lane;
      if (i < units)
        ptx::st_shared_v4(staged(begin, i / across, i % across * 16), {from[j][0], from[j][1], from[j][2], from[j][3]});
    }
  }

  // What is no whole unit, where there may be any; then the warp waits. Eight rows at a time: their loads wait for
  // memory together.
  __device__ __forceinline__ void put_elements(unsigned begin, int lane, const AddendPart& of) const {
    if (!is_in_units || end_of_columns % kOfUnit != 0) {
      __syncwarp();  // over zeros of other lanes
      const int end = min(of.columns, end_of_columns - of.column), rows = min(of.rows, end_of_rows - of.row);
#pragma unroll 1
      for (int c = (is_in_units ? max(end, 0) / kOfUnit * kOfUnit : 0) + lane; c < end; c += 32) {
#pragma unroll 1
        for (int first = 0; first < rows; first += 8) {
          unsigned elements[8];
          const char* const from = place_in_addend<kDType>(p, batch, of.row + first, of.column + c);
#pragma unroll
          for (int r = 0; r < 8; ++r) elements[r] = first + r < rows ? load_bits(from + r * p.ldc * kBytes) : 0;
#pragma unroll
          for (int r = 0; r < 8; ++r) store_bits(staged(begin, first + r, c * kBytes), elements[r]);
        }
      }
    }
    __syncwarp();
  }

 private:
  static __device__ __forceinline__ unsigned load_bits(const char* from) {
    if constexpr (kBytes == 4) {
      return *reinterpret_cast<const unsigned*>(from);
    } else {
      return *reinterpret_cast<const unsigned short*>(from);
    }
  }
  static __device__ __forceinline__ void store_bits(unsigned address, unsigned bits) {
    if constexpr (kBytes == 4) {
      ptx::st_shared_u32(address, bits);
    } else {
      ptx::st_shared_u16(address, static_cast<unsigned short>(bits));
    }
  }
};

}  // namespace tessera::gemm

// Words that host and device share: data types, swizzles, masks, MMA kinds, and the verdict of a Config's rules.
// Included by the planner (g++, clang) and by device code (NVRTC, nvcc): built-in integer types only, nothing from
// outside templates/.
#pragma once

#ifdef __CUDACC__
#define TESSERA_HD __host__ __device__
#else
#define TESSERA_HD
#endif

namespace tessera {

enum class DType : unsigned char { u8, u16, u32, s32, u64, s64, f16, bf16, f32, tf32, f64, e4m3, e5m2 };

/// Bytes of one element.
TESSERA_HD constexpr int dtype_bytes(DType type) {
  switch (type) {
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return 1;
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u32:
    case DType::s32:
    case DType::f32:
    case DType::tf32:
      return 4;
    case DType::u64:
    case DType::s64:
    case DType::f64:
      return 8;
  }
  return 0;
}

/// Shared-memory swizzle of a tile: which address bits are XORed (PTX ISA, "Swizzling Modes").
enum class Swizzle : unsigned char { none, b32, b64, b128 };

/// Bytes after which the swizzle's rows wrap; without a swizzle the 16 bytes of a core matrix row.
TESSERA_HD constexpr int swizzle_span_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 16 : 16 << static_cast<int>(swizzle);
}

enum class Mask : unsigned char { none, causal };
enum class Output : unsigned char { normalized, unnormalized };
enum class MmaKind : unsigned char { wgmma_f16 };

}  // namespace tessera

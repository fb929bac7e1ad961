// The words that every Config shares: element types, swizzles, masks, matrix instructions, and the verdict of a rule.
//
// Compiled by g++, clang, nvcc and NVRTC alike. Included as "tessera/spec/types.h": the folder templates/ is the root
// of all names here, for the host's include path and for the names that NVRTC gets from memory. Nothing outside
// templates/ is included, standard headers neither, so types are the built-in ones: `int` for what fits a coordinate or
// a shape, `long long` for byte counts and products of sizes.
//
// Functions that both sides evaluate are `TESSERA_HD constexpr`: NVRTC refuses to call an unannotated constexpr
// function from device code.
#pragma once

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__
#else
#define TESSERA_HD
#endif

namespace tessera {

// Element types of operands and tensor maps; tf32 is a copy type: fp32 that is rounded on its way to shared memory.
enum class DType { f16, bf16, f32, e4m3, e5m2, u8, u16, u32, s32, u64, s64, f64, tf32, s8 };

TESSERA_HD constexpr int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::e4m3:
    case DType::e5m2:
    case DType::u8:
    case DType::s8:
      return 1;
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return 2;
    case DType::u64:
    case DType::s64:
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::u32:
    case DType::s32:
    case DType::tf32:
      return 4;
  }
  return 0;
}

// How TMA permutes 16-byte chunks of a shared-memory tile, so that neither rows nor columns collide in the banks.
enum class Swizzle { none, b32, b64, b128 };

// Bytes of one row of a swizzled panel. Without swizzle the panel is one 16-byte chunk wide, the matrix descriptor's
// unit.
TESSERA_HD constexpr int swizzle_span_bytes(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return 16;
    case Swizzle::b32:
      return 32;
    case Swizzle::b64:
      return 64;
    case Swizzle::b128:
      return 128;
  }
  return 0;
}

// Bytes after which the pattern repeats; a tile that starts on this boundary starts at row 0 of the pattern.
TESSERA_HD constexpr int swizzle_repeat_bytes(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 16 : 8 * swizzle_span_bytes(swizzle);
}

// Where the byte at `address` (absolute, in shared memory) is found: bits [9:7] xor-ed into the chunk number, as many
// of them as the span has chunks. Its own inverse.
TESSERA_HD constexpr unsigned swizzle_address(Swizzle swizzle, unsigned address) {
  const unsigned chunks = static_cast<unsigned>(swizzle_span_bytes(swizzle)) / 16;
  return address ^ (((address >> 7) & (chunks - 1)) << 4);
}

// Which scores count: all of them, or key j <= query i + seqlen_k - seqlen_q (bottom-right aligned).
enum class Mask { none, causal };

// What attention writes: O in the operands' type, divided by the row sums; or fp32 O = sum exp(s - m) v beside m and
// the row sums, for a caller that merges several key ranges.
enum class Output { normalized, unnormalized };

// Which dimension of an operand is contiguous in memory: K, or the one that the result keeps (M of A, N of B).
enum class Layout { k_major, mn_major };

// 8-bit products on Hopper sum with 13 fraction bits (fast); promoted sums of 128 products each are added up in fp32.
enum class Accumulation { fast, promoted };

// Which operand gives a matrix instruction its rows, of which there are 64 at least: a, or b, so that the tiles are
// those of D transposed.
enum class SwapAb { off, on };

// Whether consumer warpgroups share a tile, or each takes whole tiles in turn.
enum class KernelSchedule { cooperative, ping_pong };

// What a product's epilogue adds and applies: beta * c, a bias for each column (of groups: the same for all, or one of
// each group), an activation.
enum class Addend { none, matrix };
enum class Bias { none, column, group };
enum class Activation { none, relu, gelu, gelu_tanh, silu };

// The matrix instruction: wgmma (sm_90a), tcgen05 (sm_100 and sm_103), or mma.sync (sm_120 and sm_121, and any other by
// pin) by the operands that it takes: of 16 bits, e4m3 and e5m2, s8 and u8, and with scales of blocks those of the PTX
// kinds. On the command line: wgmma.f16, tcgen05.f16, mma.mxf4nvf4.
enum class MmaKind {
  wgmma_f16,
  tcgen05_f16,
  tcgen05_f8f6f4,
  mma_f16,
  mma_f8,
  mma_i8,
  mma_mxf4nvf4,
  mma_mxf4,
  mma_mxf8f6f4
};

// The way of attention's probabilities to the second product on tcgen05: as its A operand in Tensor Memory, or through
// shared memory.
enum class ProbabilityPath { tmem, smem };

// The answer of a why_invalid(): which rule failed and the two numbers that show it. `Rule` is the operator's
// enumeration; its first enumerator is `ok`.
template <class Rule>
struct Verdict {
  Rule rule = Rule::ok;
  long long found = 0;  // the value that the Config asks for
  long long bound = 0;  // the value that the rule allows

  TESSERA_HD constexpr bool ok() const { return rule == Rule::ok; }
};

TESSERA_HD constexpr long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }
TESSERA_HD constexpr long long round_up(long long a, long long b) { return ceil_div(a, b) * b; }

}  // namespace tessera

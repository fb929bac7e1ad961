// nvcc -std=c++20 -arch=sm_90a -cubin -lineinfo -o tessera_copy2d_sm90a_r2_f32_32x128_sw128.cubin tessera_copy2d_sm90a_r2_f32_32x128_sw128.cu

// ---- spec/limits.h ---------------------------------------------------------------------------------------------------

// What a multiprocessor has where these kernels run: Hopper, and Blackwell in data centres; of sm_120 and sm_121 their
// shared memory. The one place with these numbers.

namespace tessera {

inline constexpr int kSmemBytesOfSm = 233472;    // 228 KiB
inline constexpr int kSmemBytesOfSystem = 1024;  // that every CTA takes beside its own
// Most shared memory of a CTA, opted in: 232,448 bytes; and of each of two that shall be resident.
inline constexpr int kMaxSmemBytes = kSmemBytesOfSm - kSmemBytesOfSystem;
inline constexpr int kMaxSmemBytesOfTwo = kSmemBytesOfSm / 2 - kSmemBytesOfSystem;
inline constexpr int kMaxSmemBytesOfSm120 = 101376;  // the most of a CTA on sm_120 and sm_121: 99 KiB

inline constexpr int kTmemColumns = 512;  // of 32 bits, in 128 lanes
inline constexpr int kWarpgroupThreads = 128;

}  // namespace tessera

// ---- tessera/spec/types.h --------------------------------------------------------------------------------------------

// The words that every Config shares: element types, swizzles, masks, matrix instructions, and the verdict of a rule.
//
// Compiled by g++, clang, nvcc and NVRTC alike. Included as "tessera/spec/types.h": the folder templates/ is the root
// of all names here, for the host's include path and for the names that NVRTC gets from memory. Nothing outside
// templates/ is included, standard headers neither, so types are the built-in ones: `int` for what fits a coordinate or
// a shape, `long long` for byte counts and products of sizes.
//
// Functions that both sides evaluate are `TESSERA_HD constexpr`: NVRTC refuses to call an unannotated constexpr
// function from device code.

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

// ---- spec/copy2d.h ---------------------------------------------------------------------------------------------------

// The copy of a tensor of rank 1 to 5 by TMA, tile by tile: y = x. What a Config is, which ones are legal, and what
// follows from one: shared memory, threads, bytes of a copy. Planner and device code evaluate the same functions.
//
// A CTA of one warp copies one tile: load, wait, store. Tile i of the grid is i taken apart by the tile counts of the
// dimensions, innermost first. What a tile has beyond the tensor's end is filled with zeros on the way in and dropped
// on the way out.
//
// Tensor maps x and y, alike but for strides: type of the Config (e4m3 and e5m2 travel as u8), interleave none, element
// strides 1, zero fill, the Config's box and swizzle.
//   dims    {max(dim0, 1), ...}, strides {stride1, ...} in bytes: multiples of 16
// Entry parameters, in this order:
//   const __grid_constant__ TensorMap x, y
//   int tiles0, tiles1, tiles2, tiles3   tiles along dimensions 0 to 3; 1 past the rank
// Launch: grid {product of the tile counts of all dimensions, 1, 1}, block {32, 1, 1}, dynamic shared memory
// smem_layout().total_bytes, no cluster, no workspace. A grid of 0 has nothing to do.
//
// Copied as tf32 an fp32 value is rounded to nearest even on its way in; all other types keep their bits.

namespace tessera::copy2d {

inline constexpr int kMaxRank = 5;
inline constexpr int kNumThreads = 32;

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  int rank = 2;
  DType dtype = DType::f32;
  int box[kMaxRank] = {32, 64, 1, 1, 1};  // a tile's extents in elements, innermost first; 1 past the rank
  Swizzle swizzle = Swizzle::b128;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The limits of sm_90a that the rules use.
inline constexpr int kMaxBoxExtent = 256;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  rank_out_of_range,               // rank; 5
  box_extent_out_of_range,         // the extent; 256
  box_beyond_rank,                 // the extent of a dimension that the tensor doesn't have; 1
  inner_bytes_not_multiple_of_16,  // bytes of a tile's row; 16
  inner_bytes_beyond_span,         // bytes of a tile's row; bytes of the swizzle span
  shared_memory_exceeded,          // bytes; 232,448
};

TESSERA_HD constexpr int inner_bytes(const Config& c) { return c.box[0] * dtype_bytes(c.dtype); }

// Rows of a tile: all its extents but the innermost.
TESSERA_HD constexpr long long num_rows(const Config& c) {
  long long rows = 1;
  for (int d = 1; d < kMaxRank; ++d) rows *= c.box[d];
  return rows;
}

// From one row to the next in shared memory. A swizzled row takes the whole span, however narrow the box is.
TESSERA_HD constexpr int row_pitch_bytes(const Config& c) {
  return c.swizzle == Swizzle::none ? inner_bytes(c) : swizzle_span_bytes(c.swizzle);
}

// What a load credits to its barrier: the box, always whole, without the gaps between narrow rows.
TESSERA_HD constexpr long long transfer_bytes(const Config& c) { return num_rows(c) * inner_bytes(c); }

// Dynamic shared memory: the tile at 0 (a swizzle pattern starts on 1,024 bytes), then the barrier.
struct SmemLayout {
  long long tile_bytes = 0;
  long long barrier_offset = 0;
  long long total_bytes = 0;
};

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.tile_bytes = num_rows(c) * row_pitch_bytes(c);
  layout.barrier_offset = round_up(layout.tile_bytes, 8);
  layout.total_bytes = layout.barrier_offset + 8;
  return layout;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.rank < 1 || c.rank > kMaxRank) return {Rule::rank_out_of_range, c.rank, kMaxRank};
  for (int d = 0; d < kMaxRank; ++d) {
    if (c.box[d] < 1 || c.box[d] > kMaxBoxExtent) return {Rule::box_extent_out_of_range, c.box[d], kMaxBoxExtent};
    if (d >= c.rank && c.box[d] != 1) return {Rule::box_beyond_rank, c.box[d], 1};
  }
  const int inner = inner_bytes(c);
  if (inner % 16 != 0) return {Rule::inner_bytes_not_multiple_of_16, inner, 16};
  const int span = swizzle_span_bytes(c.swizzle);
  if (c.swizzle != Swizzle::none && inner > span) return {Rule::inner_bytes_beyond_span, inner, span};
  const long long bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

}  // namespace tessera::copy2d

// ---- config.cuh ------------------------------------------------------------------------------------------------------

// Generated: the Config of tessera_copy2d_sm90a_r2_f32_32x128_sw128.

namespace tessera::copy2d {

inline constexpr Config kConfig{
    .rank = 2,
    .dtype = DType::f32,
    .box = {32, 128, 1, 1, 1},
    .swizzle = Swizzle::b128,
};

}  // namespace tessera::copy2d

// ---- common/illegal_config.cuh ---------------------------------------------------------------------------------------

// A kernel's first line: a Config that its own rules refuse does not compile, and the compiler's message shows the rule
// and both numbers, as in IllegalConfig<(tessera::gemm::Rule)7, 24LL, 16LL>.

namespace tessera::common {

// Complete for a legal Config's verdict alone.
template <auto kRule, long long kFound, long long kBound>
struct IllegalConfig;
template <auto kRule>
requires(kRule == decltype(kRule)::ok) struct IllegalConfig<kRule, 0, 0> {
};

// kVerdict: why_invalid() of the Config.
template <auto kVerdict>
__device__ __forceinline__ void require_legal() {
  IllegalConfig<kVerdict.rule, kVerdict.found, kVerdict.bound>{};
}

}  // namespace tessera::common

// ---- ptx/address.cuh -------------------------------------------------------------------------------------------------

// Addresses of shared memory as PTX wants them: 32-bit offsets in the shared window.

namespace tessera::ptx {

// PTX ISA "cvta", PTX 1.0, any target. Not volatile: the result depends on the pointer alone.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  unsigned address;
  asm("{\n\t.reg .u64 t;\n\tcvta.to.shared.u64 t, %1;\n\tcvt.u32.u64 %0, t;\n\t}" : "=r"(address) : "l"(pointer));
  return address;
}

// No instruction: the compiler forgets what it knew about the value, so nothing derived from it is computed earlier.
// Used where hoisting addresses out of a loop would keep registers busy through all of it.
__device__ __forceinline__ int forget(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// The same of a pointer: it is kept as it is, and not put together again from its parts at each use.
template <class T>
__device__ __forceinline__ T* forget(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

}  // namespace tessera::ptx

// ---- ptx/fence.cuh ---------------------------------------------------------------------------------------------------

// Fences between the generic proxy (ordinary loads and stores) and the asynchronous one (TMA, wgmma operands), and
// between CTAs of a cluster.

namespace tessera::ptx {

// PTX ISA "fence.proxy.async", PTX 8.0, sm_90. Shared memory written before it is seen by TMA stores and wgmma after
// it.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// PTX ISA "fence", PTX 8.6, sm_90. What was done to this CTA's shared memory comes before what threads of the cluster
// do that see a relaxed arrival behind the fence. It waits for loads of shared memory; unlike a release at cluster
// scope it does not wait for the L2.
__device__ __forceinline__ void fence_release_cluster_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}

// PTX ISA "fence", PTX 8.6, sm_90. Behind a relaxed wait: its counterpart.
__device__ __forceinline__ void fence_acquire_cluster_shared() {
  asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// PTX ISA "fence.mbarrier_init", PTX 8.0, sm_90. Makes initialised barriers visible to the asynchronous proxy and
// peers.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace tessera::ptx

// ---- ptx/mbarrier.cuh ------------------------------------------------------------------------------------------------

// mbarrier: a 64-bit object in shared memory that counts arrivals and bytes of bulk copies.
//
// A phase ends when no arrival is pending and all announced bytes have come; then the arrivals are counted anew and the
// phase's parity flips. Waiting on parity P returns once the phase of parity P is over: on a fresh barrier waiting on 1
// passes at once and waiting on 0 blocks. A consumer of a ring starts with parity 0, a producer that waits for "empty"
// with parity 1. Addresses are those of ptx::shared_address().

namespace tessera::ptx {

// PTX ISA "mbarrier.init", PTX 7.0, sm_80.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// PTX ISA "mbarrier.inval", PTX 7.0, sm_80. Needed before the memory is used for anything else.
__device__ __forceinline__ void mbarrier_inval(unsigned barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. Release at CTA scope.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. Announces `bytes`, then arrives once, as one step.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// PTX ISA "mbarrier.try_wait", PTX 7.8, sm_90. May suspend the thread; false means "not yet". Acquire at CTA scope.
__device__ __forceinline__ bool mbarrier_try_wait_parity(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. On a barrier of any CTA of the cluster (an address from mapa()). Release
// at CTA scope: enough to hand back memory that only wgmma has read and only TMA will write. Release at cluster scope
// is a fence that waits for everything in flight; in a ring it took an H200 1,200 cycles a step.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The retry loop around mbarrier_try_wait_parity.
__device__ __forceinline__ void mbarrier_wait_parity(unsigned barrier, unsigned parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// PTX ISA "mbarrier.test_wait", PTX 7.1, sm_80. Never suspends. Acquire at CTA scope.
__device__ __forceinline__ bool mbarrier_test_wait_parity(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// PTX ISA "mbarrier.arrive", PTX 8.0, sm_90. As many arrivals as one. Release at CTA scope.
__device__ __forceinline__ void mbarrier_arrive_times(unsigned barrier, int count) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

}  // namespace tessera::ptx

// ---- ptx/tma.cuh -----------------------------------------------------------------------------------------------------

// TMA: bulk copies of tensor tiles between global and shared memory, described by a tensor map.
//
// A map reaches the kernel as `const __grid_constant__ TensorMap` and is passed on by reference: the engine reads it at
// its address. Coordinates are elements, innermost first. Facts that were measured on an H200:
// - every box credits its full byte count to the barrier, out-of-bounds parts too (they are filled with zeros);
// - the shared address must be a multiple of 128; swizzling is a function of that absolute address;
// - the innermost coordinate times the element size must be a multiple of 16 bytes, or the instruction faults;
// - a store faults on a negative coordinate; what lies past the upper end is dropped.
// One thread issues each copy: every active lane that executes it would start its own.

namespace tessera::ptx {

// The driver's CUtensorMap: 128 opaque bytes.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// PTX ISA "prefetch.tensormap", PTX 8.0, sm_90. Brings the map into the descriptor cache.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. Completes on `barrier` with the box's bytes.
__device__ __forceinline__ void tma_load_1d(unsigned destination, const TensorMap& map, unsigned barrier, int c0) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. Completes on `barrier` with the box's bytes.
__device__ __forceinline__ void tma_load_2d(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                            int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. Completes on `barrier` with the box's bytes.
__device__ __forceinline__ void tma_load_3d(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                            int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. Completes on `barrier` with the box's bytes.
__device__ __forceinline__ void tma_load_4d(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                            int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. Completes on `barrier` with the box's bytes.
__device__ __forceinline__ void tma_load_5d(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                            int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// What createpolicy makes for a fraction of 1: lines that were read leave the L2 before all others. (The encoding is
// that of createpolicy.fractional.L2::evict_first on sm_90; a policy is a hint, so a wrong one would cost time alone.)
inline constexpr unsigned long long kEvictFirst = 0x12F0000000000000ull;

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. As tma_load_2d, with a policy for the L2.
__device__ __forceinline__ void tma_load_2d_with_policy(unsigned destination, const TensorMap& map, unsigned barrier,
                                                        unsigned long long policy, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(destination),
      "l"(&map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. As tma_load_3d, with a policy for the L2.
__device__ __forceinline__ void tma_load_3d_with_policy(unsigned destination, const TensorMap& map, unsigned barrier,
                                                        unsigned long long policy, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(destination),
      "l"(&map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. Every CTA of the cluster whose rank is a bit of `ctas` gets the box
// at the same offset of its shared memory, and the bytes on its own barrier at the same offset.
__device__ __forceinline__ void tma_load_3d_multicast(unsigned destination, const TensorMap& map, unsigned barrier,
                                                      unsigned short ctas, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(destination),
      "l"(&map), "r"(barrier), "h"(ctas), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. Joins the thread's open bulk group.
__device__ __forceinline__ void tma_store_1d(const TensorMap& map, unsigned source, int c0) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(&map), "r"(source),
               "r"(c0)
               : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. Joins the thread's open bulk group.
__device__ __forceinline__ void tma_store_2d(const TensorMap& map, unsigned source, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(source), "r"(c0), "r"(c1)
               : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. Joins the thread's open bulk group.
__device__ __forceinline__ void tma_store_3d(const TensorMap& map, unsigned source, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. Joins the thread's open bulk group.
__device__ __forceinline__ void tma_store_4d(const TensorMap& map, unsigned source, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. Joins the thread's open bulk group.
__device__ __forceinline__ void tma_store_5d(const TensorMap& map, unsigned source, int c0, int c1, int c2, int c3,
                                             int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// PTX ISA "cp.async.bulk.commit_group", PTX 8.0, sm_90. Closes the thread's open group.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// PTX ISA "cp.async.bulk.wait_group", PTX 8.0, sm_90. At most kPending groups unfinished: global memory is written.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// PTX ISA "cp.async.bulk.wait_group.read", PTX 8.0, sm_90. Shared memory may be overwritten; global may lag.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. As tma_load_3d_multicast, with a policy for the L2.
__device__ __forceinline__ void tma_load_3d_multicast_with_policy(unsigned destination, const TensorMap& map,
                                                                  unsigned barrier, unsigned short ctas,
                                                                  unsigned long long policy, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%5, %6, %7}], [%2], %3, %4;" ::"r"(destination),
      "l"(&map), "r"(barrier), "h"(ctas), "l"(policy), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// What createpolicy makes for L2::evict_normal.
inline constexpr unsigned long long kEvictNormal = 0x1000000000000000ull;

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_90. As tma_load_5d, with a policy for the L2.
__device__ __forceinline__ void tma_load_5d_with_policy(unsigned destination, const TensorMap& map, unsigned barrier,
                                                        unsigned long long policy, int c0, int c1, int c2, int c3,
                                                        int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(destination),
      "l"(&map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.0, sm_90. To the same offset in each CTA of the cluster that `ctas` has a bit
// for; completes on the barrier at that offset there.
__device__ __forceinline__ void tma_load_5d_multicast(unsigned destination, const TensorMap& map, unsigned barrier,
                                                      unsigned short ctas, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(destination),
      "l"(&map), "r"(barrier), "h"(ctas), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

}  // namespace tessera::ptx

// ---- copy2d/kernel.cuh -----------------------------------------------------------------------------------------------

// The body of copy2d: one warp, one tile, one barrier. In: tensor maps x and y and the tile counts (see
// spec/copy2d.h). Out: y's tile. One thread does all of it, since a TMA copy is started by one thread and carries the
// whole tile.

namespace tessera::copy2d {

// A tile's TMA load and store for a rank that is known when the kernel is compiled: one instruction each.
template <int kRank>
__device__ __forceinline__ void load_tile(unsigned to, const ptx::TensorMap& map, unsigned barrier, const int (&c)[5]) {
  if constexpr (kRank == 1) ptx::tma_load_1d(to, map, barrier, c[0]);
  if constexpr (kRank == 2) ptx::tma_load_2d(to, map, barrier, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_load_3d(to, map, barrier, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_load_4d(to, map, barrier, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_load_5d(to, map, barrier, c[0], c[1], c[2], c[3], c[4]);
}

template <int kRank>
__device__ __forceinline__ void store_tile(const ptx::TensorMap& map, unsigned from, const int (&c)[5]) {
  if constexpr (kRank == 1) ptx::tma_store_1d(map, from, c[0]);
  if constexpr (kRank == 2) ptx::tma_store_2d(map, from, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_store_3d(map, from, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_store_4d(map, from, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_store_5d(map, from, c[0], c[1], c[2], c[3], c[4]);
}

template <Config C>
__device__ __forceinline__ void kernel(const ptx::TensorMap& x, const ptx::TensorMap& y, int tiles0, int tiles1,
                                       int tiles2, int tiles3) {
  common::require_legal<why_invalid(C)>();
  constexpr SmemLayout kLayout = smem_layout(C);

  // The only shared memory of the kernel: it starts at the window's first user byte, which is 1,024-byte aligned.
  extern __shared__ __align__(1024) unsigned char smem[];
  if (threadIdx.x != 0) return;
  const unsigned tile = ptx::shared_address(smem);
  const unsigned barrier = tile + static_cast<unsigned>(kLayout.barrier_offset);

  // First coordinates of this CTA's tile: tile counts are at most 2^31 - 1 in product, so the index fits an int.
  const int tiles[4] = {tiles0, tiles1, tiles2, tiles3};
  int coordinates[kMaxRank] = {0, 0, 0, 0, 0};
  int rest = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int d = 0; d < C.rank; ++d) {
    const bool is_last = d == C.rank - 1;
    coordinates[d] = (is_last ? rest : rest % tiles[d < 4 ? d : 3]) * C.box[d];
    if (!is_last) rest /= tiles[d < 4 ? d : 3];
  }

  ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::mbarrier_arrive_expect_tx(barrier, static_cast<int>(transfer_bytes(C)));
  load_tile<C.rank>(tile, x, barrier, coordinates);
  ptx::mbarrier_wait_parity(barrier, 0);

  // Both copies go through the asynchronous proxy and nothing else touches the tile: no fence between them.
  store_tile<C.rank>(y, tile, coordinates);
  ptx::cp_async_bulk_commit_group();
  // The CTA's shared memory may be given away when it exits, so the store must have read it.
  ptx::cp_async_bulk_wait_group_read<0>();
}

}  // namespace tessera::copy2d

// ---- entry.cu --------------------------------------------------------------------------------------------------------

// Generated: the entry of tessera_copy2d_sm90a_r2_f32_32x128_sw128.
// What its parameters mean and how it is launched: spec/copy2d.h.

using tessera::copy2d::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::copy2d::kNumThreads)
    tessera_copy2d_sm90a_r2_f32_32x128_sw128(
        const __grid_constant__ TensorMap x,
        const __grid_constant__ TensorMap y,
        int tiles0,
        int tiles1,
        int tiles2,
        int tiles3) {
  tessera::copy2d::kernel<kConfig>(x, y, tiles0, tiles1, tiles2, tiles3);
}

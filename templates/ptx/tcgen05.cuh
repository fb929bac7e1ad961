// tcgen05: the tensor core of sm_100, which takes operands from shared memory (A from Tensor Memory too) and sums in
// Tensor Memory. tmem.cuh has allocation, loads and stores.
//
// One thread issues products, copies and their commit, all of them in the same thread: a commit tracks what its own
// thread has issued. Nothing is done when an instruction returns. Products with the same accumulator and shape follow
// each other in the order of issue, and so do copies to Tensor Memory and the products after them; all else goes
// through an mbarrier:
//   product -> load     commit, wait for the barrier, fence_after_thread_sync, then tcgen05.ld
//   load -> product     tcgen05.wait::ld, fence_before_thread_sync, arrive; wait, fence_after_thread_sync, product
// Operands in shared memory are read by the asynchronous proxy: ordinary stores to them need
// fence_proxy_async_shared(). Descriptors are those of spec/smem_descriptor.h and
// tessera/spec/instruction_descriptor.h.
//
// kCtas is the cta_group: 1, or 2 for a pair of CTAs (cluster ranks 2 i and 2 i + 1), whose even one issues for both:
// A, B and D are then split over the two, and every instruction of the kernel has the same group.
//
// No Blackwell device has executed this; forms and targets are those that ptxas 13.0 takes and the emulator executes.
#pragma once

#include "ptx/tmem.cuh"
#include "tessera/spec/instruction_descriptor.h"

namespace tessera::ptx {

// The mnemonic's part that a kind is: inserted by the "C" constraint, which takes constant arrays of characters.
template <layout::Tcgen05Kind kKind, int kScaleBlock = 0>
struct Tcgen05KindName;
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::f16> {
  static constexpr char text[] = "kind::f16";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::tf32> {
  static constexpr char text[] = "kind::tf32";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::f8f6f4> {
  static constexpr char text[] = "kind::f8f6f4";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::i8> {
  static constexpr char text[] = "kind::i8";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::mxf8f6f4, 32> {
  static constexpr char text[] = "kind::mxf8f6f4.block_scale.block32";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::mxf4, 32> {
  static constexpr char text[] = "kind::mxf4.block_scale.block32";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::mxf4nvf4, 32> {
  static constexpr char text[] = "kind::mxf4nvf4.block_scale.block32";
};
template <>
struct Tcgen05KindName<layout::Tcgen05Kind::mxf4nvf4, 16> {
  static constexpr char text[] = "kind::mxf4nvf4.block_scale.block16";
};

// PTX ISA "tcgen05.mma", PTX 8.6, sm_100a (kind::i8: sm_100a and sm_110a only). d = a b^T, or d += a b^T with
// `accumulate`; a and b by descriptor, d in Tensor Memory.
template <layout::Tcgen05Kind kKind, int kCtas>
__device__ __forceinline__ void tcgen05_mma(unsigned d, unsigned long long a, unsigned long long b,
                                            unsigned instruction, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::%5.%6 [%0], %1, %2, %3, p;\n\t}" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<unsigned>(accumulate)), "n"(kCtas),
      "C"(Tcgen05KindName<kKind>::text)
      : "memory");
}

// PTX ISA "tcgen05.mma", PTX 8.6, sm_100a. The same with A in Tensor Memory at address `a`: row m in lane m, K along
// columns, 32 bytes of it an instruction.
template <layout::Tcgen05Kind kKind, int kCtas>
__device__ __forceinline__ void tcgen05_mma_from_tmem(unsigned d, unsigned a, unsigned long long b,
                                                      unsigned instruction, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::%5.%6 [%0], [%1], %2, %3, p;\n\t}" ::"r"(d),
      "r"(a), "l"(b), "r"(instruction), "r"(static_cast<unsigned>(accumulate)), "n"(kCtas),
      "C"(Tcgen05KindName<kKind>::text)
      : "memory");
}

// PTX ISA "tcgen05.mma", "block scaling", PTX 8.8 (.block16 and .block32, which family targets take too), sm_100a. A
// block of kScaleBlock elements along K is scaled by one code of `a_scales` and one of `b_scales` in Tensor Memory;
// which byte of a cell is the first one, the instruction descriptor says.
template <layout::Tcgen05Kind kKind, int kScaleBlock, int kCtas>
__device__ __forceinline__ void tcgen05_mma_block_scale(unsigned d, unsigned long long a, unsigned long long b,
                                                        unsigned instruction, unsigned a_scales, unsigned b_scales,
                                                        bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %6, 0;\n\t"
      "tcgen05.mma.cta_group::%7.%8 [%0], %1, %2, %3, [%4], [%5], p;\n\t}" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction), "r"(a_scales), "r"(b_scales), "r"(static_cast<unsigned>(accumulate)),
      "n"(kCtas), "C"((Tcgen05KindName<kKind, kScaleBlock>::text))
      : "memory");
}

// PTX ISA "tcgen05.cp", PTX 8.6, sm_100a. 32 rows of 16 bytes in shared memory to four columns of Tensor Memory, each
// row to lanes r, r + 32, r + 64 and r + 96: how a 512-byte tile of scales becomes what block-scaled products read.
template <int kCtas>
__device__ __forceinline__ void tcgen05_cp_32x128b_warpx4(unsigned address, unsigned long long descriptor) {
  asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(address), "l"(descriptor), "n"(kCtas)
               : "memory");
}

// PTX ISA "tcgen05.commit", PTX 8.6, sm_100a. One arrival at `barrier` (of any CTA of the cluster) when all products
// and copies that this thread has issued are complete. Implies fence_before_thread_sync.
template <int kCtas>
__device__ __forceinline__ void tcgen05_commit(unsigned barrier) {
  asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier), "n"(kCtas)
               : "memory");
}

// PTX ISA "tcgen05.commit", PTX 8.6, sm_100a. The same at the barrier with this offset in every CTA of the cluster
// whose rank is a bit of `ctas`.
template <int kCtas>
__device__ __forceinline__ void tcgen05_commit_multicast(unsigned barrier, unsigned short ctas) {
  asm volatile(
      "tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
          barrier),
      "h"(ctas), "n"(kCtas)
      : "memory");
}

// PTX ISA "tcgen05.fence", PTX 8.6, sm_100a. Orders this thread's earlier tensor operations before the barrier after
// it.
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// PTX ISA "tcgen05.fence", PTX 8.6, sm_100a. Orders this thread's later tensor operations after the barrier before it.
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

}  // namespace tessera::ptx

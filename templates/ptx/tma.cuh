// TMA: bulk copies of tensor tiles between global and shared memory, described by a tensor map.
//
// A map reaches the kernel as `const __grid_constant__ TensorMap` and is passed on by reference: the engine reads it at
// its address. Coordinates are elements, innermost first. Facts that were measured on an H200:
// - every box credits its full byte count to the barrier, out-of-bounds parts too (they are filled with zeros);
// - the shared address must be a multiple of 128; swizzling is a function of that absolute address;
// - the innermost coordinate times the element size must be a multiple of 16 bytes, or the instruction faults;
// - a store faults on a negative coordinate; what lies past the upper end is dropped.
// One thread issues each copy: every active lane that executes it would start its own.
#pragma once

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

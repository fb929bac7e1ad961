// Tensor Memory of sm_100: 128 lanes by 512 columns of 32 bits for each SM; an address is (lane << 16) + column.
//
// Whole warps allocate, free, load and store. Warp w of a CTA reaches lanes 32 (w % 4) to 32 (w % 4) + 31 alone. Loads
// and stores are asynchronous: registers of a load may be touched after tcgen05_wait_ld, and what was stored may be
// announced to others (tcgen05_fence_before_thread_sync, then a barrier) after tcgen05_wait_st.
//
// No Blackwell device has executed this; forms and targets are those that ptxas 13.0 takes and the emulator executes.
#pragma once

namespace tessera::ptx {

// PTX ISA "tcgen05.alloc", PTX 8.6, sm_100a. One warp. Columns: a power of two, 32 to 512. Writes the address of the
// first one to shared memory at `result`; waits until there are so many. With kCtas = 2 a warp in each CTA of the pair
// executes it.
template <int kCtas>
__device__ __forceinline__ void tcgen05_alloc(unsigned result, int columns) {
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(result), "r"(columns),
               "n"(kCtas)
               : "memory");
}

// PTX ISA "tcgen05.dealloc", PTX 8.6, sm_100a. Whole warp; all that was allocated is freed before the kernel ends.
template <int kCtas>
__device__ __forceinline__ void tcgen05_dealloc(unsigned address, int columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns), "n"(kCtas)
               : "memory");
}

// PTX ISA "tcgen05.relinquish_alloc_permit", PTX 8.6, sm_100a. Whole warp; this CTA allocates no more, others may.
template <int kCtas>
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtas) : "memory");
}

// PTX ISA "tcgen05.ld", PTX 8.6, sm_100a. Lane t of the warp gets columns address to address + kColumns - 1 of Tensor
// Memory's lane 32 (w % 4) + t.
template <int kColumns>
__device__ __forceinline__ void tcgen05_ld_32x32b(unsigned (&r)[kColumns], unsigned address) {
  if constexpr (kColumns == 1) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {"
        "%0"
        "}, [%1];"
        : "=r"(r[0])
        : "r"(address)
        : "memory");
  } else if constexpr (kColumns == 2) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x2.b32 {"
        "%0, %1"
        "}, [%2];"
        : "=r"(r[0]), "=r"(r[1])
        : "r"(address)
        : "memory");
  } else if constexpr (kColumns == 4) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x4.b32 {"
        "%0, %1, %2, %3"
        "}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(address)
        : "memory");
  } else if constexpr (kColumns == 8) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x8.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, [%8];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7])
        : "r"(address)
        : "memory");
  } else if constexpr (kColumns == 16) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, [%16];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]), "=r"(r[8]),
          "=r"(r[9]), "=r"(r[10]), "=r"(r[11]), "=r"(r[12]), "=r"(r[13]), "=r"(r[14]), "=r"(r[15])
        : "r"(address)
        : "memory");
  } else {
    static_assert(kColumns == 32);
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, [%32];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]), "=r"(r[8]),
          "=r"(r[9]), "=r"(r[10]), "=r"(r[11]), "=r"(r[12]), "=r"(r[13]), "=r"(r[14]), "=r"(r[15]), "=r"(r[16]),
          "=r"(r[17]), "=r"(r[18]), "=r"(r[19]), "=r"(r[20]), "=r"(r[21]), "=r"(r[22]), "=r"(r[23]), "=r"(r[24]),
          "=r"(r[25]), "=r"(r[26]), "=r"(r[27]), "=r"(r[28]), "=r"(r[29]), "=r"(r[30]), "=r"(r[31])
        : "r"(address)
        : "memory");
  }
}

// PTX ISA "tcgen05.st", PTX 8.6, sm_100a. The inverse.
template <int kColumns>
__device__ __forceinline__ void tcgen05_st_32x32b(unsigned address, const unsigned (&r)[kColumns]) {
  if constexpr (kColumns == 1) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {"
        "%1"
        "};" ::"r"(address),
        "r"(r[0])
        : "memory");
  } else if constexpr (kColumns == 2) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x2.b32 [%0], {"
        "%1, %2"
        "};" ::"r"(address),
        "r"(r[0]), "r"(r[1])
        : "memory");
  } else if constexpr (kColumns == 4) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {"
        "%1, %2, %3, %4"
        "};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
  } else if constexpr (kColumns == 8) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8"
        "};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7])
        : "memory");
  } else if constexpr (kColumns == 16) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16"
        "};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]), "r"(r[8]), "r"(r[9]),
        "r"(r[10]), "r"(r[11]), "r"(r[12]), "r"(r[13]), "r"(r[14]), "r"(r[15])
        : "memory");
  } else {
    static_assert(kColumns == 32);
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, %32"
        "};" ::"r"(address),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]), "r"(r[8]), "r"(r[9]),
        "r"(r[10]), "r"(r[11]), "r"(r[12]), "r"(r[13]), "r"(r[14]), "r"(r[15]), "r"(r[16]), "r"(r[17]), "r"(r[18]),
        "r"(r[19]), "r"(r[20]), "r"(r[21]), "r"(r[22]), "r"(r[23]), "r"(r[24]), "r"(r[25]), "r"(r[26]), "r"(r[27]),
        "r"(r[28]), "r"(r[29]), "r"(r[30]), "r"(r[31])
        : "memory");
  }
}

// No instruction: ties registers to this place, so that nothing which reads them is computed before it.
template <int kCount>
__device__ __forceinline__ void hold(unsigned (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i]));
}

// PTX ISA "tcgen05.wait", PTX 8.6, sm_100a. All loads of this thread have arrived. The compiler takes a load's
// registers for ready at once: hold() those that are read next, or use the form with registers.
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
template <int kCount>
__device__ __forceinline__ void tcgen05_wait_ld(unsigned (&r)[kCount]) {
  tcgen05_wait_ld();
  hold(r);
}

// PTX ISA "tcgen05.wait", PTX 8.6, sm_100a. All stores of this thread have been made.
__device__ __forceinline__ void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

}  // namespace tessera::ptx

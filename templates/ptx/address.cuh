// Addresses of shared memory as PTX wants them: 32-bit offsets in the shared window.
#pragma once

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

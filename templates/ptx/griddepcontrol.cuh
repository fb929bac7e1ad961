// A kernel that is launched while the one before it still runs (programmatic stream serialization).
#pragma once

namespace tessera::ptx {

// PTX ISA "griddepcontrol", PTX 7.8, sm_90. The next kernel of the stream may be scheduled once every CTA of this one
// has said so or is gone. It orders no memory.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// PTX ISA "griddepcontrol", PTX 7.8, sm_90. Waits until the kernel before has ended and its writes are seen.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace tessera::ptx

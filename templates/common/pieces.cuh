// A kernel whose roles are compiled side by side: as pieces, each a kernel with the same name, parameters and bounds.
// The first one has the entry and goes on to every other; whoever compiles them puts the machine code of the others
// behind it, and branches in the place of what go_on_in_piece() left (runtime/kernel_pieces.h). So no value passes from
// one piece to another but in shared memory: a piece reads parameters, thread and block indices again, and nothing is
// under way in registers where it begins. What stands before the roles and not under kIsFirstPiece runs once more in
// each other piece: it may compute, and do nothing else.
#pragma once

#include "common/piece.cuh"

namespace tessera::common {

// What stands before roles part, and the first role: of the whole kernel and of its first piece.
inline constexpr bool kIsFirstPiece = kPiece <= 1;

// What nobody comes to behind the mark is for the assembler: in a kernel without any wgmma instruction it makes every
// second product of 16-bit pairs an HFMA2.MMA, which ran slower beside consumers' products (by 7 to 10 % over NVFP4
// keys, on an H200). In whole kernels, and so here, all are HMUL2.
template <int I, bool kMultipliesPairs>
__device__ __forceinline__ void go_on_in_piece() {
  if constexpr (kMultipliesPairs) {
    asm volatile("nanosleep.u32 %0;\n\texit;\n\twgmma.commit_group.sync.aligned;" ::"n"(0x5e55e00 + I) : "memory");
  } else {
    asm volatile("nanosleep.u32 %0;\n\texit;" ::"n"(0x5e55e00 + I) : "memory");
  }
}

// Work of whole warps that piece I, of 2 and more, has: a class, since a lambda's body would be instantiated in all
// pieces. Of it alone nothing else is compiled, so it asks no warp who it is; the first piece leaves for it.
// `kMultipliesPairs`: whether the first piece multiplies pairs of 16 bits.
template <int I, bool kMultipliesPairs = false, class Work>
__device__ __forceinline__ void in_piece(const Work& work) {
  if constexpr (kPiece == 0 || kPiece == I) {
    work();
  } else {
    go_on_in_piece<I, kMultipliesPairs>();
  }
}

}  // namespace tessera::common

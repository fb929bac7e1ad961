// What one statement of wgmma instructions does: `steps` times m64nNkK, fp32 accumulators. The generator writes one
// small header with the shapes of a kernel (wgmma_shapes.cuh).
#pragma once

#include "tessera/spec/types.h"

namespace tessera {

struct WgmmaShape {
  int n = 0;
  DType dtype = DType::bf16;  // of A, and of B unless that says otherwise
  bool a_in_registers = false;
  bool b_is_mn_major = false;
  int steps = 1;
  bool a_is_mn_major = false;
  DType b_dtype = dtype;   // device code spells it out: its compilers take no initializer from another member
  bool has_begin = false;  // whether there is a statement that overwrites D, beside that which adds

  TESSERA_HD friend constexpr bool operator==(const WgmmaShape&, const WgmmaShape&) = default;
};

}  // namespace tessera

// The Config that the checked-in kernel.cu compiles with; a generated bundle brings its own file of this name.
#pragma once

#include "spec/fmha_tcgen05_tiles.h"

namespace tessera::fmha_tcgen05 {

inline constexpr Config kConfig = default_config(128, 128, Mask::none, DType::bf16, Output::normalized);

}  // namespace tessera::fmha_tcgen05

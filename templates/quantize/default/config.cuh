// The Config that kernel.cu compiles with on its own; a generated bundle brings its own file of this name.
#pragma once

#include "spec/quantize.h"

namespace tessera::quantize {

inline constexpr Config kConfig{.dtype = DType::bf16, .format = BlockFormat::nvfp4, .global_scale = GlobalScale::given};

}  // namespace tessera::quantize

// The Config that kernel.cu compiles with on its own; a generated bundle brings its own file of this name.
#pragma once

#include "spec/gemv.h"

namespace tessera::gemv {

inline constexpr Config kConfig{.dtype = DType::f16, .scale_form = ScaleForm::plain};

}  // namespace tessera::gemv

// The Config that kernel.cu compiles with on its own; a generated bundle brings its own file of this name.
#pragma once

#include "spec/convert_scales.h"

namespace tessera::convert_scales {

inline constexpr Config kConfig{.to = ScaleForm::tile};

}  // namespace tessera::convert_scales

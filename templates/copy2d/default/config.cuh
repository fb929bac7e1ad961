// The Config that kernel.cu compiles with on its own; a generated bundle brings its own file of this name.
#pragma once

#include "spec/copy2d.h"

namespace tessera::copy2d {

inline constexpr Config kConfig{.rank = 2, .dtype = DType::f32, .box = {32, 64, 1, 1, 1}, .swizzle = Swizzle::b128};

}  // namespace tessera::copy2d

// The Config with which kernel.cu compiles by itself; the generator writes its own.
#pragma once

#include "spec/gemm.h"

namespace tessera::gemm {

inline constexpr Config kConfig{};

}  // namespace tessera::gemm

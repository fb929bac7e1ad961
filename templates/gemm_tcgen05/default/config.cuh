// The Config with which kernel.cu compiles by itself; the generator writes its own.
#pragma once

#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

inline constexpr Config kConfig{};

}  // namespace tessera::gemm_tcgen05

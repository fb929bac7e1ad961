// Work as the driver's structures describe it, for streams and for nodes of graphs.
#pragma once

#include <cuda.h>

#include "guest/work.h"

namespace tessera::guest {

/// The kernel, its arguments from a list or a buffer; the launch is checked.
cudaError_t complete(LaunchWork& work, CUfunction function, void** arguments, void** extra);
/// cudaErrorInvalidValue: it leaves an array.
cudaError_t box_of(const CUDA_MEMCPY3D& given, Box& box);

}  // namespace tessera::guest

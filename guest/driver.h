// What the files of the driver's API share.
#pragma once

#include <cuda.h>

#include "guest/session.h"

namespace tessera::guest {

/// What cuGetProcAddress gives for "cuMemAlloc" and a version of CUDA: the newest form of the function that it has;
/// null: there is none.
void* driver_function(const char* name, int version);

/// The context that everything is in.
void* only_context();

/// Runs the work of one call.
inline CUresult drive(const char* function, const std::function<cudaError_t()>& work) {
  return static_cast<CUresult>(guarded(function, work));
}

}  // namespace tessera::guest

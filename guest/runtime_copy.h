// A copy as the runtime's functions ask for it.
#pragma once

#include "guest/work.h"

namespace tessera::guest {

/// What is said to be on the device and is not, hardware refuses.
inline bool agrees(cudaMemcpyKind kind, const void* to, const void* from) {
  const auto reaches = [](const void* pointer) { return is_on_device(pointer) || Blocks::instance().find(pointer); };
  if ((kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) && !reaches(to)) return false;
  return (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice) || reaches(from);
}

inline cudaError_t copy_rows(const char* function, const Box& box, cudaMemcpyKind kind, cudaStream_t stream) {
  return called(function, [&]() -> cudaError_t {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (box.width == 0 || box.height == 0) return cudaSuccess;
    if (box.height > 1 && (box.to_pitch < box.width || box.from_pitch < box.width)) return cudaErrorInvalidPitchValue;
    if (!agrees(kind, box.to, box.from)) return cudaErrorInvalidValue;
    return submit(stream, box);
  });
}

}  // namespace tessera::guest

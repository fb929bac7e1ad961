#include "runtime/cuda_pointers.h"

#include <fmt/format.h>

namespace tessera {
namespace {

/// CUpointer_attribute, CUmemorytype
constexpr int kMemoryType = 2, kDevicePointer = 3;
constexpr unsigned kHost = 1, kArray = 3;
constexpr CuResult kInvalidValue = 1;

}  // namespace

std::string why_unusable(const CudaApi& api, CuPointer pointer, bool reads_pageable) {
  unsigned type = 0;
  const CuResult result = api.pointer_attribute(&type, kMemoryType, pointer);
  if (result == kInvalidValue)
    return reads_pageable ? "" : "the driver knows no memory there: a host pointer, or memory that was freed";
  if (result != 0) return "";  // no context, say: the launch itself will be refused
  if (type == kArray) return "it is an array's, which has no addresses";
  if (type != kHost || reads_pageable) return "";
  CuPointer on_device = 0;
  if (api.pointer_attribute(&on_device, kDevicePointer, pointer) != 0)
    return "it is host memory that is not mapped for devices";
  if (on_device != pointer) return fmt::format("it is host memory, which devices have at {:#x}", on_device);
  return "";
}

}  // namespace tessera

// The emulated CUDA runtime (cuda_runtime.cpp): variables of modules by the host's variable of the same name, copies of
// rectangles, and calls that ask for nothing here.
#include <cuda_runtime_api.h>

#include <cstdlib>

#include "tests/external/cuda_runtime.h"

using tessera::emulator::DeviceVariable;
using tessera::external::copy;
using tessera::external::device;
using tessera::external::variable;

namespace {

/// The first of these bytes of the variable, or an error.
cudaError_t find(const void* symbol, std::size_t bytes, std::size_t offset, void** first) {
  const DeviceVariable found = variable(symbol);
  if (found.address == 0) return cudaErrorInvalidSymbol;
  if (offset > found.bytes || bytes > found.bytes - offset) return cudaErrorInvalidValue;
  *first = reinterpret_cast<void*>(found.address + offset);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind) {
  void* to = nullptr;
  const cudaError_t error = find(symbol, bytes, offset, &to);
  return error != cudaSuccess ? error : copy(to, from, bytes);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset, cudaMemcpyKind) {
  void* from = nullptr;
  const cudaError_t error = find(symbol, bytes, offset, &from);
  return error != cudaSuccess ? error : copy(to, from, bytes);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) { return find(symbol, 0, 0, pointer); }
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  const DeviceVariable found = variable(symbol);
  *bytes = found.bytes;
  return found.address == 0 ? cudaErrorInvalidSymbol : cudaSuccess;
}

// Rectangles: rows of `width` bytes, their first bytes a pitch apart.
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  for (std::size_t row = 0; row < height; ++row)
    copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  if (width > pitch) return cudaErrorInvalidPitchValue;
  const auto first = reinterpret_cast<std::uintptr_t>(to);
  for (std::size_t row = 0; row < height; ++row)
    device().set_bytes(first + row * pitch, static_cast<std::uint8_t>(value), width);
  return cudaSuccess;
}
cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  constexpr std::size_t kPitch = 512;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return cudaMalloc(pointer, *pitch * height);
}

// Work runs inside the call that asks for it, and the host's memory is the host's.
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  function(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"

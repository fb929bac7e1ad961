// The CUDA runtime's memory: allocations, copies and fills of one to three dimensions, variables of modules, pools,
// facts about pointers. Arrays: runtime_array.cpp.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "guest/runtime_copy.h"
#include "guest/turns.h"
#include "guest/work.h"

using namespace tessera::guest;

namespace {

Box row(void* to, const void* from, std::size_t bytes) {
  Box box;
  box.to = to;
  box.from = from;
  box.width = bytes;
  return box;
}
Box rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
         std::size_t height) {
  Box box = row(to, from, width);
  box.to_pitch = to_pitch;
  box.from_pitch = from_pitch;
  box.height = height;
  return box;
}

/// The first of these bytes of the variable, or an error.
cudaError_t find(const void* symbol, std::size_t bytes, std::size_t offset, void** first) {
  const tessera::emulator::DeviceVariable found = Registry::instance().variable(symbol);
  if (found.address == 0) return cudaErrorInvalidSymbol;
  if (offset > found.bytes || bytes > found.bytes - offset) return cudaErrorInvalidValue;
  *first = pointer_of(found.address + offset);
  return cudaSuccess;
}

cudaError_t fill_box(const char* function, cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t stream) {
  return called(function, [&]() -> cudaError_t {
    if (extent.height > 1 && extent.width > to.pitch) return cudaErrorInvalidPitchValue;
    Fill fill;
    fill.to = to.ptr;
    fill.pitch = to.pitch;
    fill.slice = to.pitch * to.ysize;
    fill.value = static_cast<std::uint8_t>(value);
    fill.width = extent.width;
    fill.height = extent.height;
    fill.depth = extent.depth;
    if (!is_on_device(to.ptr) && Blocks::instance().find(to.ptr) == nullptr) return cudaErrorInvalidValue;
    return submit(stream, fill);
  });
}

// A free waits for all that could use the memory.
cudaError_t free_now(const char* function, void* pointer, bool is_host) {
  return called(function, [&]() -> cudaError_t {
    if (pointer == nullptr) return finish_all();
    if (const cudaError_t error = Blocks::instance().begin_free(pointer, is_host); error != cudaSuccess) return error;
    const cudaError_t error = finish_all();
    return error != cudaSuccess ? error : Blocks::instance().free(pointer);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return called(__func__, [&] { return Blocks::instance().allocate(pointer, bytes, BlockKind::device); });
}
cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) return cudaErrorInvalidValue;
    return Blocks::instance().allocate(pointer, bytes, BlockKind::managed);
  });
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if ((flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    const cudaError_t error = Blocks::instance().allocate(pointer, bytes, BlockKind::pinned);
    if (error == cudaSuccess && *pointer != nullptr) Blocks::instance().set_flags(*pointer, flags);
    return error;
  });
}
cudaError_t cudaFree(void* pointer) { return free_now(__func__, pointer, false); }
cudaError_t cudaFreeHost(void* pointer) { return free_now(__func__, pointer, true); }
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return called(__func__, [&] { return submit(stream, FreeWork{pointer}); });
}
cudaError_t cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  pointer->xsize = extent.width;
  pointer->ysize = extent.height;
  pointer->pitch = (extent.width + 511) / 512 * 512;
  return cudaMalloc(&pointer->ptr, pointer->pitch * extent.height * extent.depth);
}
cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  return called(__func__, [&] { return Blocks::instance().register_host(pointer, bytes, flags); });
}
cudaError_t cudaHostUnregister(void* pointer) {
  return called(__func__, [&] {
    const cudaError_t error = finish_all();
    return error != cudaSuccess ? error : Blocks::instance().unregister_host(pointer);
  });
}
cudaError_t cudaHostGetDevicePointer(void** pointer, void* host, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    const Block* const block = Blocks::instance().find(host);
    if (flags != 0 || block == nullptr || block->kind == BlockKind::device) return cudaErrorInvalidValue;
    *pointer = pointer_of(block->on_device + (address_of(host) - block->address));
    return cudaSuccess;
  });
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  return called(__func__, [&]() -> cudaError_t {
    const Block* const block = Blocks::instance().find(host);
    if (block == nullptr || block->kind == BlockKind::device || block->kind == BlockKind::managed)
      return cudaErrorInvalidValue;
    *flags = block->flags | cudaHostAllocMapped;
    return cudaSuccess;
  });
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return called(__func__, [&] {
    *total = static_cast<std::size_t>(Session::instance().gpu().memory_bytes);
    *free = *total - Blocks::instance().used_bytes();
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return called(__func__, [&] {
    std::memset(attributes, 0, sizeof(*attributes));
    attributes->type = cudaMemoryTypeUnregistered;
    const Block* const block = Blocks::instance().find(pointer);
    if (block == nullptr) {
      attributes->hostPointer = const_cast<void*>(pointer);
      return cudaSuccess;
    }
    attributes->type = block->kind == BlockKind::device    ? cudaMemoryTypeDevice
                       : block->kind == BlockKind::managed ? cudaMemoryTypeManaged
                                                           : cudaMemoryTypeHost;
    attributes->devicePointer = pointer_of(block->on_device + (address_of(pointer) - block->address));
    if (block->kind != BlockKind::device) attributes->hostPointer = const_cast<void*>(pointer);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(__func__, row(to, from, bytes), kind, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return copy_rows(__func__, row(to, from, bytes), kind, and_wait());
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
  if (to_device != 0 || from_device != 0) return told(cudaErrorInvalidDevice);
  return copy_rows(__func__, row(to, from, bytes), cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes) {
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, and_wait());
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(__func__, rows(to, to_pitch, from, from_pitch, width, height), kind, stream);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, cudaMemcpyKind kind) {
  return copy_rows(__func__, rows(to, to_pitch, from, from_pitch, width, height), kind, and_wait());
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return fill_box(__func__, {to, bytes, bytes, 1}, value, {bytes, 1, 1}, stream);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return fill_box(__func__, {to, bytes, bytes, 1}, value, {bytes, 1, 1}, and_wait());
}
cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream) {
  return fill_box(__func__, {to, pitch, width, height}, value, {width, height, 1}, stream);
}
cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return fill_box(__func__, {to, pitch, width, height}, value, {width, height, 1}, and_wait());
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, cudaStream_t stream) {
  return fill_box(__func__, to, value, extent, stream);
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  return fill_box(__func__, to, value, extent, and_wait());
}

// Variables of modules, by the host's variable of the same name.
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                                    cudaMemcpyKind, cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    void* to = nullptr;
    const cudaError_t error = find(symbol, bytes, offset, &to);
    return error != cudaSuccess ? error : submit(stream, row(to, from, bytes));
  });
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, and_wait());
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                      cudaMemcpyKind, cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    void* from = nullptr;
    const cudaError_t error = find(symbol, bytes, offset, &from);
    return error != cudaSuccess ? error : submit(stream, row(to, from, bytes));
  });
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                 cudaMemcpyKind kind) {
  return cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, and_wait());
}
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  return called(__func__, [&] { return find(symbol, 0, 0, pointer); });
}
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  return called(__func__, [&]() -> cudaError_t {
    const tessera::emulator::DeviceVariable found = Registry::instance().variable(symbol);
    *bytes = found.bytes;
    return found.address == 0 ? cudaErrorInvalidSymbol : cudaSuccess;
  });
}

}  // extern "C"

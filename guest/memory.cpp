#include "guest/memory.h"

#include <cstring>
#include <vector>

#include "guest/pool.h"

namespace tessera::guest {
namespace {

constexpr std::uint64_t kDeviceBase = 0x7000'0000'0000;  // emulator/memory/memory.h

void copy_row(void* to, const void* from, std::size_t bytes) {
  emulator::EmulatedDevice& device = Session::instance().device();
  if (is_on_device(to) && is_on_device(from)) {
    std::vector<std::byte> aside(bytes);
    device.copy_to_host(aside.data(), address_of(from), bytes);
    device.copy_to_device(address_of(to), aside.data(), bytes);
  } else if (is_on_device(to)) {
    device.copy_to_device(address_of(to), from, bytes);
  } else if (is_on_device(from)) {
    device.copy_to_host(to, address_of(from), bytes);
    Session::instance().note_copy(to, bytes);
  } else {
    std::memmove(to, from, bytes);
  }
}

template <class T>
std::vector<std::byte> repeated(T value, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  return bytes;
}

void fill_row(void* to, const Fill& fill) {
  if (fill.element_bytes == 1 && is_on_device(to)) {
    Session::instance().device().set_bytes(address_of(to), static_cast<std::uint8_t>(fill.value), fill.width);
    return;
  }
  const std::vector<std::byte> bytes =
      fill.element_bytes == 1   ? repeated(static_cast<std::uint8_t>(fill.value), fill.width)
      : fill.element_bytes == 2 ? repeated(static_cast<std::uint16_t>(fill.value), fill.width)
                                : repeated(fill.value, fill.width);
  copy_row(to, bytes.data(), bytes.size());
}

}  // namespace

bool is_on_device(const void* pointer) {
  const std::uint64_t offset = address_of(pointer) - kDeviceBase;
  return offset < static_cast<std::uint64_t>(Session::instance().gpu().memory_bytes);
}

Blocks& Blocks::instance() {
  static Blocks* const made = new Blocks;
  return *made;
}

cudaError_t Blocks::allocate(void** pointer, std::size_t bytes, BlockKind kind) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  if (bytes == 0) {
    *pointer = nullptr;
    return kind == BlockKind::managed ? cudaErrorInvalidValue : cudaSuccess;
  }
  Session& session = Session::instance();
  if (bytes > static_cast<std::size_t>(session.gpu().memory_bytes) - used_) return cudaErrorMemoryAllocation;
  const std::uint64_t address = session.device().allocate(bytes);
  if (kind != BlockKind::device) session.device().share_with_host(address, bytes);
  blocks_[address] = {address, bytes, kind, address};
  used_ += bytes;
  *pointer = pointer_of(address);
  return cudaSuccess;
}

cudaError_t Blocks::free(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const auto it = blocks_.find(address_of(pointer));
  if (it == blocks_.end() || it->second.kind == BlockKind::registered || it->second.is_mapped)
    return cudaErrorInvalidValue;
  if (it->second.is_of_graph) return cudaSuccess;
  forget_in_pools(pointer);
  forget_hints(pointer, it->second.bytes);
  Session::instance().device().free(it->second.on_device);
  used_ -= it->second.bytes;
  blocks_.erase(it);
  return cudaSuccess;
}

cudaError_t Blocks::register_host(void* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
  if (find(pointer) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
  const std::uint64_t address = Session::instance().device().map_host(pointer, bytes);
  blocks_[address_of(pointer)] = {address_of(pointer), bytes, BlockKind::registered, address};
  return cudaSuccess;
}

cudaError_t Blocks::unregister_host(void* pointer) {
  const auto it = blocks_.find(address_of(pointer));
  if (it == blocks_.end() || it->second.kind != BlockKind::registered) return cudaErrorHostMemoryNotRegistered;
  Session::instance().device().free(it->second.on_device);
  blocks_.erase(it);
  return cudaSuccess;
}

bool Blocks::take(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(Session::instance().gpu().memory_bytes) - used_) return false;
  used_ += bytes;
  return true;
}
void Blocks::add_mapped(void* pointer, std::size_t bytes) {
  Block& block = blocks_[address_of(pointer)];
  block = {address_of(pointer), bytes, BlockKind::device, address_of(pointer)};
  block.is_mapped = true;
}

const Block* Blocks::find(const void* pointer) const {
  const auto after = blocks_.upper_bound(address_of(pointer));
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  return address_of(pointer) - block.address < block.bytes ? &block : nullptr;
}

cudaError_t copy(const Box& box) {
  if (box.width == 0 || box.height == 0 || box.depth == 0) return cudaSuccess;
  if (box.to == nullptr || box.from == nullptr) return cudaErrorInvalidValue;
  const bool has_rows = box.height > 1, has_slices = box.depth > 1;
  if (has_rows && (box.to_pitch < box.width || box.from_pitch < box.width)) return cudaErrorInvalidPitchValue;
  auto* const to = static_cast<std::byte*>(box.to);
  const auto* const from = static_cast<const std::byte*>(box.from);
  const bool is_dense = (!has_rows || (box.to_pitch == box.width && box.from_pitch == box.width)) &&
                        (!has_slices || (box.to_slice == box.width * box.height && box.from_slice == box.to_slice));
  if (is_dense) {
    copy_row(to, from, box.width * box.height * box.depth);
    return cudaSuccess;
  }
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y)
      copy_row(to + z * box.to_slice + y * box.to_pitch, from + z * box.from_slice + y * box.from_pitch, box.width);
  return cudaSuccess;
}

cudaError_t fill(const Fill& fill) {
  if (fill.width == 0 || fill.height == 0 || fill.depth == 0) return cudaSuccess;
  if (fill.height > 1 && fill.pitch < fill.width * fill.element_bytes) return cudaErrorInvalidPitchValue;
  auto* const to = static_cast<std::byte*>(fill.to);
  for (std::size_t z = 0; z < fill.depth; ++z)
    for (std::size_t y = 0; y < fill.height; ++y) fill_row(to + z * fill.slice + y * fill.pitch, fill);
  return cudaSuccess;
}

}  // namespace tessera::guest

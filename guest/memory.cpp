#include "guest/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "guest/pool.h"
#include "guest/registered.h"
#include "guest/stream_order.h"

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

bool is_of_device_alone(const void* pointer) {
  const Block* const block = Blocks::instance().find(pointer);
  return block == nullptr ? is_on_device(pointer) : block->kind == BlockKind::device;
}
bool is_pageable(const void* pointer) { return !is_on_device(pointer) && Blocks::instance().find(pointer) == nullptr; }

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
  StreamOrder::instance().made(address, bytes);
  *pointer = pointer_of(address);
  return cudaSuccess;
}

cudaError_t Blocks::begin_free(const void* pointer, bool is_host) {
  if (pointer == nullptr) return cudaSuccess;
  const auto it = blocks_.find(address_of(pointer));
  if (it == blocks_.end()) return cudaErrorInvalidValue;
  Block& block = it->second;
  // Pools of the host's memory give it back as those of the device's do.
  const bool is_of_host = block.kind == BlockKind::pinned && !is_of_pool(pointer);
  if (block.kind == BlockKind::registered || block.is_mapped || block.is_leaving || is_of_host != is_host)
    return cudaErrorInvalidValue;
  block.is_leaving = !block.is_of_graph;
  return cudaSuccess;
}

cudaError_t Blocks::free(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const auto it = blocks_.find(address_of(pointer));
  if (it == blocks_.end()) return cudaErrorInvalidValue;
  if (it->second.is_of_graph) return cudaSuccess;
  forget_in_pools(pointer);
  forget_hints(pointer, it->second.bytes);
  Session::instance().device().free(it->second.on_device);
  used_ -= it->second.bytes;
  blocks_.erase(it);
  return cudaSuccess;
}

cudaError_t Blocks::register_host(void* pointer, std::size_t bytes, unsigned flags) {
  constexpr unsigned kKnown =
      cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  const std::uint64_t begin = address_of(pointer);
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0 || begin + bytes < begin) return cudaErrorInvalidValue;
  const auto next = blocks_.lower_bound(begin);
  const Block* const met = find(pointer) != nullptr
                               ? find(pointer)
                               : (next != blocks_.end() && next->first < begin + bytes ? &next->second : nullptr);
  if (met != nullptr)
    return met->kind == BlockKind::device ? cudaErrorInvalidValue : cudaErrorHostMemoryAlreadyRegistered;
  emulator::EmulatedDevice& device = Session::instance().device();
  const std::uint64_t address = device.map_host(pointer, bytes);
  Block& block = blocks_[begin] = {begin, bytes, BlockKind::registered, address};
  block.flags = flags;
  return cudaSuccess;
}

cudaError_t Blocks::unregister_host(void* pointer) {
  const auto it = blocks_.find(address_of(pointer));
  if (it == blocks_.end() || it->second.kind != BlockKind::registered) return cudaErrorHostMemoryNotRegistered;
  Session::instance().device().free(it->second.on_device);
  blocks_.erase(it);
  return cudaSuccess;
}

namespace {

constexpr std::size_t kMostCompared = std::size_t{256} << 20;

std::uint64_t hash_of_block(const Block& block) {
  // Registered memory is the program's, which may have given it back since.
  const auto page = static_cast<std::uint64_t>(getpagesize());
  const std::uint64_t first = block.address / page * page;
  const bool is_gone = block.kind == BlockKind::registered &&
                       msync(pointer_of(first), block.address + block.bytes - first, MS_ASYNC) != 0;
  if (is_gone) return 0;
  return hash_of(pointer_of(block.address), std::min(block.bytes, kMostCompared));
}

bool is_seen_by_host(const Block& block) { return block.kind != BlockKind::device && !block.is_mapped; }

}  // namespace

void Blocks::add_shared(void* variable, std::size_t bytes) {
  variables_.push_back({address_of(variable), bytes, BlockKind::managed, address_of(variable)});
}

void Blocks::before_launch() {
  if (!Session::instance().options().hashes_copies || std::exchange(has_launched_, true)) return;
  for (auto& [address, block] : blocks_)
    if (is_seen_by_host(block)) block.hash = hash_of_block(block);
  for (Block& variable : variables_) variable.hash = hash_of_block(variable);
}

void Blocks::note_shared() {
  if (!std::exchange(has_launched_, false)) return;
  std::vector<const Block*> changed;
  const auto look = [&](const Block& block) {
    if (block.hash != hash_of_block(block)) changed.push_back(&block);
  };
  for (const auto& [address, block] : blocks_)
    if (is_seen_by_host(block)) look(block);
  for (const Block& variable : variables_) look(variable);
  // Addresses of registered memory are others in each process.
  std::sort(changed.begin(), changed.end(), [](const Block* a, const Block* b) {
    return std::pair(a->bytes, hash_of_block(*a)) < std::pair(b->bytes, hash_of_block(*b));
  });
  for (const Block* const block : changed)
    Session::instance().note_copy(pointer_of(block->address), std::min(block->bytes, kMostCompared), true);
}

void use_device_addresses(std::vector<std::byte>& arguments) {
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, arguments.data() + at, sizeof(word));
    if (word < 4096 || is_on_device(pointer_of(word))) continue;
    const Block* const block = Blocks::instance().find(pointer_of(word));
    if (block == nullptr || block->kind != BlockKind::registered) continue;
    word = block->on_device + (word - block->address);
    std::memcpy(arguments.data() + at, &word, sizeof(word));
  }
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

namespace {

/// The device's memory has all of the rows. Quick where it has what lies between them, too.
bool holds_rows(const void* first, std::size_t pitch, std::size_t slice, std::size_t width, std::size_t height,
                std::size_t depth) {
  if (!is_on_device(first)) return true;
  const emulator::EmulatedDevice& device = Session::instance().device();
  const std::uint64_t begin = address_of(first);
  if (device.is_allocated(begin, (depth - 1) * slice + (height - 1) * pitch + width)) return true;
  for (std::size_t z = 0; z < depth; ++z)
    for (std::size_t y = 0; y < height; ++y)
      if (!device.is_allocated(begin + z * slice + y * pitch, width)) return false;
  return true;
}

cudaError_t check_shape(const Box& box) {
  if (box.to == nullptr || box.from == nullptr) return cudaErrorInvalidValue;
  const bool is_narrow = box.height > 1 && (box.to_pitch < box.width || box.from_pitch < box.width);
  return is_narrow ? cudaErrorInvalidPitchValue : cudaSuccess;
}
cudaError_t check_shape(const Fill& fill) {
  if (fill.to == nullptr || is_pageable(fill.to)) return cudaErrorInvalidValue;
  const bool is_narrow = fill.height > 1 && fill.pitch < fill.width * fill.element_bytes;
  return is_narrow ? cudaErrorInvalidPitchValue : cudaSuccess;
}
template <class Piece>
bool is_empty(const Piece& piece) {
  return piece.width == 0 || piece.height == 0 || piece.depth == 0;
}

}  // namespace

cudaError_t check(const Box& box) {
  if (is_empty(box)) return cudaSuccess;
  if (const cudaError_t error = check_shape(box); error != cudaSuccess) return error;
  const bool is_there = holds_rows(box.to, box.to_pitch, box.to_slice, box.width, box.height, box.depth) &&
                        holds_rows(box.from, box.from_pitch, box.from_slice, box.width, box.height, box.depth);
  return is_there ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t check(const Fill& fill) {
  if (is_empty(fill)) return cudaSuccess;
  if (const cudaError_t error = check_shape(fill); error != cudaSuccess) return error;
  const std::size_t width = fill.width * fill.element_bytes;
  return holds_rows(fill.to, fill.pitch, fill.slice, width, fill.height, fill.depth) ? cudaSuccess
                                                                                     : cudaErrorInvalidValue;
}

void keep_aside(Box& box) {
  if (is_empty(box)) return;
  Box copied = box;
  box.aside = std::make_shared<std::vector<std::byte>>(box.width * box.height * box.depth);
  box.from = copied.to = box.aside->data();
  box.from_pitch = copied.to_pitch = box.width;
  box.from_slice = copied.to_slice = box.width * box.height;
  copy(copied);
}

cudaError_t copy(const Box& box) {
  if (is_empty(box)) return cudaSuccess;
  if (const cudaError_t error = check_shape(box); error != cudaSuccess) return error;
  const bool has_rows = box.height > 1, has_slices = box.depth > 1;
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
  if (is_empty(fill)) return cudaSuccess;
  if (const cudaError_t error = check_shape(fill); error != cudaSuccess) return error;
  auto* const to = static_cast<std::byte*>(fill.to);
  for (std::size_t z = 0; z < fill.depth; ++z)
    for (std::size_t y = 0; y < fill.height; ++y) fill_row(to + z * fill.slice + y * fill.pitch, fill);
  return cudaSuccess;
}

}  // namespace tessera::guest

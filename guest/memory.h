// Where a program's memory is: allocations of the device, those that the host sees at the same address, and the host's
// own; copies between any two of them, told apart by their addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "guest/session.h"

namespace tessera::guest {

enum class BlockKind : std::uint8_t { device, managed, pinned, registered };

struct Block {
  std::uint64_t address = 0;  ///< for the host; of device memory the device's
  std::size_t bytes = 0;
  BlockKind kind = BlockKind::device;
  std::uint64_t on_device = 0;  ///< differs for registered memory alone
  bool is_of_graph = false;     ///< an allocating node's: it has the same address in each launch, whoever frees it
  std::uint64_t hash = 0;       ///< of memory that the host sees: before the launches since it last looked
  bool is_mapped = false;       ///< addresses and memory are apart: cuMemMap
  unsigned flags = 0;           ///< of cudaHostAlloc and cudaHostRegister
  bool is_leaving = false;      ///< begin_free
};

/// Of all that was allocated, by address.
class Blocks {
 public:
  static Blocks& instance();

  cudaError_t allocate(void** pointer, std::size_t bytes, BlockKind kind);
  /// Whether it may be freed, by a call for memory of the host or by one for the device's: not twice.
  cudaError_t begin_free(const void* pointer, bool is_host);
  cudaError_t free(void* pointer);
  /// The block stays when it is freed, for the next launch of the graph that allocates it.
  void keep_for_graph(void* pointer) { blocks_.at(reinterpret_cast<std::uintptr_t>(pointer)).is_of_graph = true; }
  cudaError_t register_host(void* pointer, std::size_t bytes, unsigned flags);
  /// cudaHostAlloc's: kept for those who ask.
  void set_flags(void* pointer, unsigned flags) { blocks_.at(reinterpret_cast<std::uintptr_t>(pointer)).flags = flags; }
  cudaError_t unregister_host(void* pointer);
  /// The block that holds the address; null: none does.
  const Block* find(const void* pointer) const;
  std::size_t used_bytes() const { return used_; }

  // For runs that are compared: memory that the host sees. Once before the first launch since it last waited, and when
  // it waits, which notes what launches have changed.
  void add_shared(void* variable, std::size_t bytes);
  void before_launch();
  void note_shared();

  // Memory without addresses counts as used; where it is mapped is a block, which free() does not take.
  bool take(std::size_t bytes);
  void give_back(std::size_t bytes) { used_ -= bytes; }
  void add_mapped(void* pointer, std::size_t bytes);
  void remove_mapped(void* pointer) { blocks_.erase(reinterpret_cast<std::uintptr_t>(pointer)); }

 private:
  std::map<std::uint64_t, Block> blocks_;
  std::vector<Block> variables_;  ///< __managed__
  bool has_launched_ = false;
  std::size_t used_ = 0;
};

/// A box of bytes: width in bytes, rows and slices a pitch apart. Of one row or one slice the pitches mean nothing.
struct Box {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t to_pitch = 0, from_pitch = 0, to_slice = 0, from_slice = 0;
  std::size_t width = 0, height = 1, depth = 1;
  std::shared_ptr<std::vector<std::byte>> aside{};  ///< what is copied, where the program may change the original
};
/// What is wrong with a copy that does not run yet; the host's pageable memory is not looked at.
cudaError_t check(const Box& box);
cudaError_t copy(const Box& box);
/// The box's source is a copy of what it is now.
void keep_aside(Box& box);

/// Elements of 1, 2 or 4 bytes.
struct Fill {
  void* to = nullptr;
  std::size_t pitch = 0, slice = 0;
  std::uint32_t value = 0;
  std::size_t element_bytes = 1;
  std::size_t width = 0, height = 1, depth = 1;  ///< width in elements
};
cudaError_t check(const Fill& fill);
cudaError_t fill(const Fill& fill);

inline std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
inline void* pointer_of(std::uint64_t address) { return reinterpret_cast<void*>(address); }  // NOLINT: a number
/// An address of the device, also one that the host sees.
bool is_on_device(const void* pointer);
/// The host cannot look at it.
bool is_of_device_alone(const void* pointer);
/// Memory of the host that CUDA does not know.
bool is_pageable(const void* pointer);

}  // namespace tessera::guest

// The device's global memory, with one shadow byte per byte. PTX ISA, "State Spaces".
//
// Of whole pages of it one byte more says that all their bytes are allocated and written (is_known): what loads and
// stores ask first. A page that is known stays so until its bytes are freed or poisoned, and a store there leaves the
// shadow alone, whose pages cost no memory where a large fill made them (lazy_fill.h).
//
// Addresses are the device's own: an arena at kGlobalBase that is reserved once and handed out front to back, 512-byte
// aligned with a gap of 4 KiB behind each allocation (512 bytes for malloc of kernels), so that a step over the end
// lands on bytes that the shadow knows to be nobody's. Pages where nothing lives any more go back to the system at
// once. The addresses of the last kQuarantine allocations that were freed are not handed out again, so that whoever
// uses one still is told of what it was; older ones are, lowest first, so that a long run takes no more than what
// lives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tessera/emulator/virtual_memory.h"

namespace tessera::emulator {

/// Shadow bits. A readable byte has both.
inline constexpr std::uint8_t kAllocated = 1;
inline constexpr std::uint8_t kInitialised = 2;
inline constexpr std::uint8_t kReadable = kAllocated | kInitialised;

/// Generic addresses: global memory has its own addresses, the other spaces are windows (PTX ISA, "Generic
/// Addressing").
inline constexpr std::uint64_t kGlobalBase = 0x7000'0000'0000;
inline constexpr std::uint64_t kSharedWindow = 0x0100'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x0200'0000'0000;
inline constexpr std::uint64_t kParamWindow = 0x0300'0000'0000;
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 32;
/// The first byte of a CTA's own shared memory (measured on H200).
inline constexpr std::uint32_t kSharedBase = 0x400;
/// A shared address holds the CTA's rank in its cluster above this bit (measured on H200).
inline constexpr int kRankShift = 24;

/// What malloc of a kernel may hand out at a time (the default of cudaLimitMallocHeapSize).
inline constexpr std::uint64_t kHeapBytes = std::uint64_t{8} << 20;

class GlobalMemory {
 public:
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{64} << 20;
  /// Reserves that much address space twice, for bytes and their shadow. Where the process may not have it (ulimit -v),
  /// a power of two less, with as much again left for the rest of the process, but not under least_bytes. Throws
  /// Error{device} with the limit, what is needed and what was found.
  explicit GlobalMemory(std::uint64_t capacity_bytes, std::uint64_t least_bytes = kLeastBytes);
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  /// Uninitialised bytes, exactly so many (also none); throws Error{device} when the arena is full.
  std::uint64_t allocate(std::uint64_t bytes);
  /// False when the address is not the start of a live allocation.
  bool free(std::uint64_t address) noexcept;
  /// malloc of a kernel, an allocation like any other; 0 when the heap or the arena is full.
  std::uint64_t heap_allocate(std::uint64_t bytes) noexcept;
  /// free of a kernel. False when heap_allocate did not give the address, or it was freed before.
  bool heap_free(std::uint64_t address) noexcept;
  std::uint64_t capacity() const noexcept { return capacity_; }

  /// The host reads and writes these bytes, too, at the same address: whole pages of the range and, where it ends
  /// inside of pages, of its neighbours (host_memory.cpp). Throws Error{device} where the addresses are taken.
  void share_with_host(std::uint64_t address, std::uint64_t bytes);
  /// An address for bytes that the host has already: both work on the same pages. Contents stay. Throws Error{device}.
  std::uint64_t map_host(void* host, std::uint64_t bytes);
  /// Addresses that name nothing until memory is mapped there (virtual_memory.cpp); free() gives them back.
  std::uint64_t reserve_addresses(std::uint64_t bytes, std::uint64_t alignment);
  void map(std::uint64_t address, const PhysicalMemory& memory);
  void unmap(std::uint64_t address) noexcept;
  /// Some byte of the range is on a page that the host sees, or that other addresses may name.
  bool is_shared(std::uint64_t address, std::uint64_t bytes) const noexcept;

  bool contains(std::uint64_t address, std::uint64_t bytes) const noexcept {
    return address - kGlobalBase < capacity_ && bytes <= capacity_ - (address - kGlobalBase);
  }
  /// Precondition for both: contains(address, 1).
  std::byte* data(std::uint64_t address) const noexcept { return data_ + (address - kGlobalBase); }
  std::uint8_t* shadow(std::uint64_t address) const noexcept { return shadow_ + (address - kGlobalBase); }
  /// The address of a byte that data() gave; 0 for other memory.
  std::uint64_t address_of(const std::byte* byte) const noexcept {
    const auto offset = static_cast<std::uint64_t>(byte - data_);
    return offset < capacity_ ? kGlobalBase + offset : 0;
  }

  /// Every byte of the range belongs to live allocations.
  bool is_allocated(std::uint64_t address, std::uint64_t bytes) const noexcept;
  void mark_initialised(std::uint64_t address, std::uint64_t bytes) noexcept;
  /// As allocated: nobody has written the bytes.
  void mark_unwritten(std::uint64_t address, std::uint64_t bytes) noexcept;
  /// All bytes lie in pages of readable bytes, as far as it is known; false says nothing. Precondition: contains().
  bool is_known(std::uint64_t address, std::uint64_t bytes) const noexcept {
    const std::uint64_t first = (address - kGlobalBase) / kPage;
    const std::uint64_t last = (address - kGlobalBase + bytes - 1) / kPage;
    for (std::uint64_t page = first; page <= last; ++page)
      if (pages_[page].load(std::memory_order_relaxed) != kKnown) return false;
    return true;
  }
  /// The shadow was asked for these bytes, and they are readable: after some times the whole page is looked at.
  void learn(std::uint64_t address) const noexcept {
    std::atomic<std::uint8_t>& page = pages_[(address - kGlobalBase) / kPage];
    const std::uint8_t state = page.load(std::memory_order_relaxed);
    if (state >= kNever) return;
    if (state + 1 < kLooks)
      page.store(static_cast<std::uint8_t>(state + 1), std::memory_order_relaxed);
    else
      look_at(page);
  }
  /// The live allocations: address, bytes.
  std::map<std::uint64_t, std::uint64_t> live() const;
  /// A copy of another memory, which describe() should speak of.
  void describe_as(const GlobalMemory& other) { live_ = other.live(); }
  /// Allocations whose addresses rest after their free, unless the arena is full.
  static constexpr std::size_t kQuarantine = 1024;
  /// "allocation of 256 bytes at 0x7000..., 4 bytes past its end" or the like.
  std::string describe(std::uint64_t address) const;

 private:
  std::uint64_t allocate(std::uint64_t bytes, std::uint64_t gap);
  /// The start of so many bytes of the arena; nothing where there are none.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  void release_oldest();
  void return_pages(std::uint64_t start, std::uint64_t bytes) noexcept;
  void rename(std::uint64_t address, std::uint64_t to, std::uint64_t bytes);
  bool meets_shared(std::uint64_t start, std::uint64_t bytes) const noexcept;
  void share_pages(std::uint64_t first, std::uint64_t bytes, void* host);
  void unshare(std::uint64_t start, std::uint64_t bytes) noexcept;
  void look_at(std::atomic<std::uint8_t>& page) const noexcept;
  /// Pages that the bytes have a share of: nothing is known of them, or (kNever) nothing shall be.
  void forget(std::uint64_t start, std::uint64_t bytes, std::uint8_t state = 0) noexcept;
  void reserve_aliases();
  void release_aliases() noexcept;

  // What pages_ holds: less than kLooks is a count. kNever: the shadow has other addresses, too (virtual_memory.cpp).
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint8_t kLooks = 16, kNever = 254, kKnown = 255;

  std::uint64_t capacity_ = 0;
  std::uint64_t next_ = 0;
  std::byte* data_ = nullptr;
  std::uint8_t* shadow_ = nullptr;
  std::atomic<std::uint8_t>* pages_ = nullptr;
  struct Extent {
    std::uint64_t offset = 0, bytes = 0;  // what it takes of the arena, its gap included
  };
  struct Freed {
    std::uint64_t bytes = 0;
    Extent extent;
  };
  std::map<std::uint64_t, std::uint64_t> live_;  // start -> bytes
  std::map<std::uint64_t, Extent> extents_;      // of the live ones, by start
  std::map<std::uint64_t, Freed> freed_;         // in quarantine or never to be reused, by start
  std::deque<std::uint64_t> quarantine_;         // their starts, the oldest first
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes of the arena below next_, neighbours joined
  std::map<std::uint64_t, std::uint64_t> heap_;  // start -> bytes, of the live ones that kernels made
  std::uint64_t heap_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> shared_;  // page offset -> bytes
  std::map<std::uint64_t, std::uint64_t> mapped_;  // offset -> bytes of PhysicalMemory
  bool owns_aliases_ = false;
  mutable std::mutex mutex_;
};

}  // namespace tessera::emulator

// Addresses and memory of a device apart from each other, as cuMemAddressReserve and cuMemCreate have them.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/device.h"

namespace tessera::emulator {

class GlobalMemory;

/// Memory without an address; its bytes and which of them were written. Throws Error{device} where there is none.
class PhysicalMemory {
 public:
  explicit PhysicalMemory(std::uint64_t bytes);
  ~PhysicalMemory();
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  std::uint64_t bytes() const noexcept { return bytes_; }
  int file() const noexcept { return file_; }

 private:
  std::uint64_t bytes_;
  int file_;
};

/// The address space of one device. Bytes and alignments are multiples of kGranularity.
class VirtualMemory {
 public:
  static constexpr std::uint64_t kGranularity = std::uint64_t{2} << 20;  ///< of an H100

  explicit VirtualMemory(std::shared_ptr<GlobalMemory> memory) : memory_(std::move(memory)) {}
  /// Addresses that name nothing yet. Throws Error{device} where there are none left.
  DevicePointer reserve(std::uint64_t bytes, std::uint64_t alignment);
  /// Precondition: nothing is mapped there.
  void release(DevicePointer address) noexcept;
  /// All of the memory, at reserved addresses where nothing is mapped. It may be mapped elsewhere too.
  void map(DevicePointer address, const PhysicalMemory& memory);
  /// What map() was given this address for.
  void unmap(DevicePointer address) noexcept;

 private:
  std::shared_ptr<GlobalMemory> memory_;
};

}  // namespace tessera::emulator

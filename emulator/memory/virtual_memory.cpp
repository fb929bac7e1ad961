// Addresses apart from memory: ranges that are reserved, and files without a name that are mapped into them, once or
// several times. A file holds bytes and, behind them, their shadow, so that both are the same wherever it is mapped.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "emulator/memory/fork.h"
#include "emulator/memory/memory.h"
#include "tessera/error.h"

namespace tessera::emulator {
namespace {

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;

[[noreturn]] void give_up(const char* what) {
  throw Error(ErrorKind::device, fmt::format("emulator: virtual memory: {}: {}", what, std::strerror(errno)));
}

}  // namespace

PhysicalMemory::PhysicalMemory(std::uint64_t bytes) : bytes_(bytes), file_(memfd_create(kSharedFile, MFD_CLOEXEC)) {
  if (file_ < 0) give_up("memfd_create");
  if (ftruncate(file_, static_cast<off_t>(2 * bytes)) == 0) {
    void* const shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(bytes));
    if (shadow != MAP_FAILED) {
      std::memset(shadow, kAllocated, bytes);
      munmap(shadow, bytes);
      return;
    }
  }
  close(file_);
  give_up("no memory for the bytes' states");
}
PhysicalMemory::~PhysicalMemory() { close(file_); }

std::uint64_t GlobalMemory::reserve_addresses(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t address = allocate(bytes + alignment);
  const std::uint64_t found = (address + alignment - 1) / alignment * alignment;
  const std::lock_guard lock(mutex_);
  // The shadow's pages may be those of a large fill: fresh ones, which say that nothing is there.
  const std::uint64_t page = (address - kGlobalBase + 4095) / 4096 * 4096;
  std::memset(shadow_ + (address - kGlobalBase), 0, page - (address - kGlobalBase));
  const std::uint64_t end = (address - kGlobalBase + bytes + alignment) / 4096 * 4096;
  mmap(shadow_ + page, end - page, PROT_READ | PROT_WRITE, kAnonymous, -1, 0);
  std::memset(shadow_ + end, 0, address - kGlobalBase + bytes + alignment - end);
  rename(address, found, bytes);
  return found;
}

void GlobalMemory::map(std::uint64_t address, const PhysicalMemory& memory) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t start = address - kGlobalBase;
  const auto place = [&](void* at, std::uint64_t offset) {
    const void* const made = mmap(at, memory.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.file(),
                                  static_cast<off_t>(offset));
    madvise(at, memory.bytes(), MADV_DONTFORK);
    return made != MAP_FAILED;
  };
  if (!place(data_ + start, 0) || !place(shadow_ + start, memory.bytes())) give_up("mmap");
  mapped_[start] = memory.bytes();
  forget(start, memory.bytes(), kNever);
}

void GlobalMemory::unmap(std::uint64_t address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = mapped_.find(address - kGlobalBase);
  if (it == mapped_.end()) return;
  mmap(data_ + it->first, it->second, PROT_READ | PROT_WRITE, kAnonymous, -1, 0);
  mmap(shadow_ + it->first, it->second, PROT_READ | PROT_WRITE, kAnonymous, -1, 0);
  forget(it->first, it->second);
  mapped_.erase(it);
}

DevicePointer VirtualMemory::reserve(std::uint64_t bytes, std::uint64_t alignment) {
  return memory_->reserve_addresses(bytes, alignment);
}
void VirtualMemory::release(DevicePointer address) noexcept { memory_->free(address); }
void VirtualMemory::map(DevicePointer address, const PhysicalMemory& memory) { memory_->map(address, memory); }
void VirtualMemory::unmap(DevicePointer address) noexcept { memory_->unmap(address); }

}  // namespace tessera::emulator

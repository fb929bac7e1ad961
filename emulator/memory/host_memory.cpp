// Global memory that the host sees at the same address: what cudaMallocManaged, cudaHostAlloc and cudaHostRegister
// give.
//
// The arena lies at some address of the process, and its bytes have addresses of the device (memory.h). A page that is
// shared is a page of a file without a name, mapped twice: into the arena, and at the device's own address, where the
// host then finds it. Pages that are not shared stay inaccessible there, as a device's memory is: a host that follows
// such a pointer gets its SIGSEGV. Of memory that the host has already the third place is the host's own.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "emulator/memory/fork.h"
#include "emulator/memory/memory.h"
#include "tessera/error.h"

namespace tessera::emulator {
namespace {

constexpr std::uint64_t kHostPage = 4096;
std::atomic<bool> aliases_taken{false};  // the device's addresses are there once in a process

std::uint64_t page_below(std::uint64_t value) { return value / kHostPage * kHostPage; }
std::uint64_t page_above(std::uint64_t value) { return page_below(value + kHostPage - 1); }
void* at_address(std::uint64_t address) { return reinterpret_cast<void*>(address); }  // NOLINT: addresses are numbers

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorKind::device,
              fmt::format("emulator: memory for the host and the device: {}: {}", what, std::strerror(errno)));
}

}  // namespace

void GlobalMemory::reserve_aliases() {
  if (owns_aliases_) return;
  if (aliases_taken.exchange(true)) {
    errno = EBUSY;
    refuse("another device of this process has it");
  }
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* const found = mmap(at_address(kGlobalBase), capacity_, PROT_NONE, kFlags, -1, 0);
  if (found != at_address(kGlobalBase)) {
    if (found != MAP_FAILED) munmap(found, capacity_);  // a kernel before 4.17 takes the address as a hint
    aliases_taken = false;
    refuse("the device's addresses are taken");
  }
  owns_aliases_ = true;
}

void GlobalMemory::release_aliases() noexcept {
  if (!owns_aliases_) return;
  munmap(at_address(kGlobalBase), capacity_);
  aliases_taken = false;
}

// Offsets of whole pages; `host`: a third place of the same bytes, whose contents they keep.
void GlobalMemory::share_pages(std::uint64_t first, std::uint64_t bytes, void* host) {
  reserve_aliases();
  const int file = memfd_create(kSharedFile, MFD_CLOEXEC);
  if (file < 0) refuse("memfd_create");
  const auto map = [&](void* at) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  };
  const auto* const from = host != nullptr ? static_cast<const std::byte*>(host) : data_ + first;
  std::uint64_t written = 0;
  while (written < bytes) {  // whole pages, so with neighbours, which a sanitizer's pwrite would ask about
    const long count = syscall(SYS_pwrite64, file, from + written, bytes - written, static_cast<off_t>(written));
    if (count <= 0) break;
    written += static_cast<std::uint64_t>(count);
  }
  const bool is_done =
      written == bytes && map(data_ + first) && map(at_address(kGlobalBase + first)) && (host == nullptr || map(host));
  close(file);
  if (!is_done) refuse("mmap");
  madvise(data_ + first, bytes, MADV_DONTFORK);
  madvise(at_address(kGlobalBase + first), bytes, MADV_DONTFORK);
  shared_[first] = std::max(shared_[first], bytes);
}

void GlobalMemory::share_with_host(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t first = page_below(address - kGlobalBase);
  share_pages(first, page_above(address - kGlobalBase + std::max<std::uint64_t>(bytes, 1)) - first, nullptr);
}

std::uint64_t GlobalMemory::map_host(void* host, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(host);
  const std::uint64_t pages = page_above(start + std::max<std::uint64_t>(bytes, 1)) - page_below(start);
  const std::uint64_t address = allocate(pages + kHostPage);  // whole pages of its own
  const std::uint64_t first = page_above(address - kGlobalBase);
  const std::uint64_t found = kGlobalBase + first + start % kHostPage;
  share_no_host_pages_with_children();
  const std::lock_guard lock(mutex_);
  share_pages(first, pages, at_address(page_below(start)));
  std::memset(shadow(address), 0, pages + kHostPage);
  std::memset(shadow(found), kReadable, bytes);
  rename(address, found, bytes);
  return found;
}

bool GlobalMemory::is_shared(std::uint64_t address, std::uint64_t bytes) const noexcept {
  if (bytes == 0) return false;
  const std::lock_guard lock(mutex_);
  return meets_shared(address - kGlobalBase, bytes);
}

bool GlobalMemory::meets_shared(std::uint64_t start, std::uint64_t bytes) const noexcept {
  const auto meets = [&](const auto& range) {
    return start < range.first + range.second && range.first < start + bytes;
  };
  return std::any_of(shared_.begin(), shared_.end(), meets) || std::any_of(mapped_.begin(), mapped_.end(), meets);
}

// The whole pages of an allocation that ends; what it has in common with neighbours stays.
void GlobalMemory::unshare(std::uint64_t start, std::uint64_t bytes) noexcept {
  if (shared_.empty()) return;
  const std::uint64_t first = page_above(start), end = page_below(start + bytes);
  if (end <= first) return;
  const bool is_any = std::any_of(shared_.begin(), shared_.end(), [&](const auto& range) {
    return first < range.first + range.second && range.first < end;
  });
  if (!is_any) return;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  mmap(data_ + first, end - first, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  mmap(at_address(kGlobalBase + first), end - first, PROT_NONE, kFlags, -1, 0);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> left;
  for (auto it = shared_.begin(); it != shared_.end();) {
    const auto [at, size] = *it;
    if (at >= end || first >= at + size) {
      ++it;
      continue;
    }
    if (at < first) left.emplace_back(at, first - at);
    if (at + size > end) left.emplace_back(end, at + size - end);
    it = shared_.erase(it);
  }
  for (const auto& [at, size] : left) shared_[at] = size;
}

}  // namespace tessera::emulator

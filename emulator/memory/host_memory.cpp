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
#include <map>
#include <utility>
#include <vector>

#include "emulator/memory/fork.h"
#include "emulator/memory/host_pages.h"
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

/// Pages that go into a file and are mapped from there at three places, their own last.
struct Move {
  int file = -1;
  std::uint64_t from = 0, bytes = 0;
  int protection = 0;
  std::uint64_t places[2] = {};
  bool is_done = false;
};

// It may replace pages of the stack that its argument lies on, so what it has to say is written when they are.
void move_pages(void* given) {
  auto& move = *static_cast<Move*>(given);
  const Move m = move;
  std::uint64_t written = 0;
  while (written < m.bytes) {  // whole pages, so with neighbours, which a sanitizer's pwrite would ask about
    const long count =
        syscall(SYS_pwrite64, m.file, at_address(m.from + written), m.bytes - written, static_cast<off_t>(written));
    if (count <= 0) return;
    written += static_cast<std::uint64_t>(count);
  }
  const auto map = [&](std::uint64_t at, int protection) {
    return mmap(at_address(at), m.bytes, protection, MAP_SHARED | MAP_FIXED, m.file, 0) != MAP_FAILED;
  };
  const bool is_done = map(m.places[0], PROT_READ | PROT_WRITE) && map(m.places[1], PROT_READ | PROT_WRITE) &&
                       (m.from == m.places[0] || map(m.from, m.protection));
  move.is_done = is_done;
}

/// The range is of the calling thread's stack: nothing lies between that is not mapped.
bool is_own_stack(const HostMapping& part) {
  const char here = 0;
  const auto at = reinterpret_cast<std::uintptr_t>(&here);
  const std::uint64_t begin = std::min<std::uint64_t>(at, part.begin), end = std::max<std::uint64_t>(at + 1, part.end);
  std::uint64_t reached = begin;
  for (const HostMapping& mapping : mappings_of(begin, end))
    if (mapping.begin == reached && mapping.is_readable) reached = mapping.end;
  return reached == end;
}

// The kernel lets the first thread's stack grow as long as its lowest pages are its own.
[[gnu::noinline]] void grow_stack() {
  volatile char below[16 * kHostPage];
  for (std::size_t i = 0; i < sizeof(below); i += kHostPage) below[i] = 0;
}

// Of the arena's pages that are a stack's, too: by their place, the stack's, and bytes.
std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>& stacks() {
  static auto* const made = new std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>;
  return *made;
}

void move_into_file(const HostMapping& part, std::uint64_t arena, std::uint64_t alias, bool is_of_host) {
  const int file = memfd_create(kSharedFile, MFD_CLOEXEC);
  if (file < 0) refuse("memfd_create");
  const std::uint64_t bytes = part.end - part.begin;
  Move move{file, part.begin, bytes, part.is_writable ? PROT_READ | PROT_WRITE : PROT_READ, {arena, alias}, false};
  if (!is_of_host) {
    move_pages(&move);
    close(file);
  } else {
    const bool is_of_stack = is_own_stack(part);
    if (part.is_stack) grow_stack();
    replace_host_pages(move_pages, &move);
    if (move.is_done && is_of_stack && keep_stack_pages(part.begin, bytes, file))
      stacks()[arena] = {part.begin, bytes};
    else
      close(file);
  }
  if (!move.is_done) refuse("mmap");
}

/// The mappings that the host has there. Refuses where some byte cannot be read.
std::vector<HostMapping> readable(const HostMapping& range) {
  std::vector<HostMapping> parts = mappings_of(range.begin, range.end);
  std::uint64_t end = range.begin;
  for (const HostMapping& part : parts)
    if (part.begin == end && part.is_readable && !part.is_executable) end = part.end;
  if (end == range.end) return parts;
  errno = EFAULT;
  refuse("the host cannot read some of it");
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

// Offsets of whole pages. `host`: a third place of the same bytes, whose contents they keep. What the host has of its
// own becomes a file's; what it shares, with other processes or with another block here, gets two more places.
void GlobalMemory::share_pages(std::uint64_t first, std::uint64_t bytes, void* host) {
  reserve_aliases();
  HostMapping whole;
  whole.begin = reinterpret_cast<std::uintptr_t>(host != nullptr ? host : data_ + first);
  whole.end = whole.begin + bytes;
  whole.is_writable = true;
  for (const HostMapping& part : host != nullptr ? readable(whole) : std::vector{whole}) {
    const std::uint64_t size = part.end - part.begin, at = first + (part.begin - whole.begin);
    if (part.is_shared && part.is_writable) {
      for (void* const place : {static_cast<void*>(data_ + at), at_address(kGlobalBase + at)})
        if (mremap(at_address(part.begin), 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED)
          refuse("mremap");
    } else {
      move_into_file(part, reinterpret_cast<std::uintptr_t>(data_ + at), kGlobalBase + at, host != nullptr);
    }
    madvise(data_ + at, size, MADV_DONTFORK);
    madvise(at_address(kGlobalBase + at), size, MADV_DONTFORK);
    shared_[at] = std::max(shared_[at], size);
  }
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
  try {
    const std::lock_guard lock(mutex_);
    share_pages(first, pages, at_address(page_below(start)));
  } catch (const Error&) {
    free(address);
    throw;
  }
  const std::lock_guard lock(mutex_);
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
  const std::uint64_t base = reinterpret_cast<std::uintptr_t>(data_);
  for (auto it = stacks().lower_bound(base + first); it != stacks().end() && it->first < base + end;
       it = stacks().erase(it))
    release_stack_pages(it->second.first, it->second.second);
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

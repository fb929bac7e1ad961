#include "emulator/memory/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/memory/lazy_fill.h"
#include "tessera/error.h"

namespace tessera::emulator {
namespace {

constexpr std::uint64_t kAlignment = 512;
constexpr std::uint64_t kGap = 4096;
constexpr std::uint64_t kHeapGap = kAlignment;  // kernels make many small ones

// What an allocation takes of the arena. A step of less than the gap beyond its end is never in the next one.
std::uint64_t padded(std::uint64_t bytes, std::uint64_t gap) {
  return (bytes + gap + kAlignment - 1) / kAlignment * kAlignment;
}

void* reserve(std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// ": address space is limited to 4096000000 bytes (ulimit -v)"; empty: it is not.
std::string limit_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(": address space is limited to {} bytes (ulimit -v)", limit.rlim_cur);
}

}  // namespace

GlobalMemory::GlobalMemory(std::uint64_t capacity_bytes, std::uint64_t least_bytes)
    : capacity_(capacity_bytes / 4096 * 4096) {
  const std::uint64_t wanted = capacity_, least = std::min(least_bytes, wanted);
  const auto both = [&](std::uint64_t bytes) {
    const std::uint64_t all = 2 * bytes + bytes / kPage;
    void* const memory = reserve(all);
    if (memory != nullptr) munmap(memory, all);
    return memory != nullptr;
  };
  while (capacity_ > least && !both(capacity_)) capacity_ = std::max(least, capacity_ / 2 / 4096 * 4096);
  if (capacity_ < wanted) capacity_ = std::max(least, capacity_ / 2 / 4096 * 4096);
  data_ = static_cast<std::byte*>(reserve(capacity_));
  shadow_ = static_cast<std::uint8_t*>(reserve(capacity_));
  pages_ = static_cast<std::atomic<std::uint8_t>*>(reserve(capacity_ / kPage));
  if (data_ != nullptr && shadow_ != nullptr && pages_ != nullptr) return;
  if (data_ != nullptr) munmap(data_, capacity_);
  if (shadow_ != nullptr) munmap(shadow_, capacity_);
  throw Error(
      ErrorKind::device,
      fmt::format("emulator: global memory needs {} bytes of address space at least, which this process does not "
                  "get{}; raise the limit",
                  2 * least, limit_text()));
}

GlobalMemory::~GlobalMemory() {
  release_aliases();
  munmap(data_, capacity_);
  munmap(shadow_, capacity_);
  munmap(static_cast<void*>(pages_), capacity_ / kPage);
}

void GlobalMemory::forget(std::uint64_t start, std::uint64_t bytes, std::uint8_t state) noexcept {
  if (bytes == 0) return;
  for (std::uint64_t page = start / kPage; page <= (start + bytes - 1) / kPage; ++page)
    pages_[page].store(state, std::memory_order_relaxed);
}

void GlobalMemory::look_at(std::atomic<std::uint8_t>& page) const noexcept {
  const std::uint8_t* const shadow = shadow_ + static_cast<std::uint64_t>(&page - pages_) * kPage;
  static_assert(kReadable == 3);
  std::uint64_t all = ~std::uint64_t{0};
  for (std::size_t i = 0; i < kPage; i += 64) {
    std::uint64_t words[8];
    std::memcpy(words, shadow + i, sizeof(words));
    for (const std::uint64_t word : words) all &= word;
  }
  constexpr std::uint64_t kWant = kReadable * 0x0101010101010101u;
  page.store((all & kWant) == kWant ? kKnown : std::uint8_t{0}, std::memory_order_relaxed);
}

std::uint64_t GlobalMemory::allocate(std::uint64_t bytes) { return allocate(bytes, kGap); }

std::uint64_t GlobalMemory::allocate(std::uint64_t bytes, std::uint64_t gap) {
  const std::lock_guard lock(mutex_);
  std::optional<std::uint64_t> start;
  if (bytes <= capacity_) start = take(padded(bytes, gap));
  if (!start)
    throw Error(ErrorKind::device, fmt::format("emulator: out of memory: {} bytes asked for, {} of {} used{}", bytes,
                                               next_, capacity_, limit_text()));
  const std::uint64_t address = kGlobalBase + *start;
  live_[address] = bytes;
  extents_[address] = {*start, padded(bytes, gap)};
  lazy_fill(shadow_ + *start, bytes, std::byte{kAllocated});
  return address;
}

std::optional<std::uint64_t> GlobalMemory::take(std::uint64_t bytes) {
  while (true) {
    const auto fits =
        std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return bytes <= range.second; });
    if (fits != free_.end()) {
      const auto [start, size] = *fits;
      free_.erase(fits);
      if (size > bytes) free_[start + bytes] = size - bytes;
      return start;
    }
    if (bytes <= capacity_ - next_) return std::exchange(next_, next_ + bytes);
    if (quarantine_.empty()) return std::nullopt;
    release_oldest();
  }
}

// What rested longest may be handed out.
void GlobalMemory::release_oldest() {
  const auto it = freed_.find(quarantine_.front());
  quarantine_.pop_front();
  const Extent extent = it->second.extent;
  freed_.erase(it);
  const auto at = free_.emplace(extent.offset, extent.bytes).first;
  if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free_.erase(at);
  }
}

bool GlobalMemory::free(std::uint64_t address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(address);
  if (it == live_.end()) return false;
  const std::uint64_t start = address - kGlobalBase, bytes = it->second;
  unshare(start, bytes);
  forget(start, bytes);
  if (bytes >= kLazyBytes) {
    // Pages that were filled lazily would come back as they were.
    lazy_clear(data_ + start, bytes);
    lazy_clear(shadow_ + start, bytes);
  } else {
    std::memset(shadow_ + start, 0, bytes);
  }
  live_.erase(it);
  const Extent extent = extents_[address];
  extents_.erase(address);
  freed_[address] = {bytes, extent};
  if (meets_shared(extent.offset, extent.bytes)) return true;  // the host has pages of it: they are never another's
  return_pages(start, bytes);
  quarantine_.push_back(address);
  if (quarantine_.size() > kQuarantine) release_oldest();
  return true;
}

// Pages that the bytes had a share of, and nothing that lives. Precondition: they are no more among live_.
void GlobalMemory::return_pages(std::uint64_t start, std::uint64_t bytes) noexcept {
  std::uint64_t first = start / kPage * kPage, end = std::min((start + bytes + kPage - 1) / kPage * kPage, capacity_);
  const auto after = live_.lower_bound(kGlobalBase + start);
  if (after != live_.end()) end = std::min(end, (after->first - kGlobalBase) / kPage * kPage);
  if (after != live_.begin()) {
    const auto& [before, size] = *std::prev(after);
    first = std::max(first, (before - kGlobalBase + size + kPage - 1) / kPage * kPage);
  }
  if (end <= first) return;
  madvise(data_ + first, end - first, MADV_DONTNEED);
  madvise(shadow_ + first, end - first, MADV_DONTNEED);
}

// An allocation is known by another address within it.
void GlobalMemory::rename(std::uint64_t address, std::uint64_t to, std::uint64_t bytes) {
  const Extent extent = extents_[address];
  live_.erase(address);
  extents_.erase(address);
  live_[to] = bytes;
  extents_[to] = extent;
}

std::uint64_t GlobalMemory::heap_allocate(std::uint64_t bytes) noexcept {
  if (bytes == 0 || bytes > kHeapBytes - heap_bytes_) return 0;
  try {
    const std::uint64_t address = allocate(bytes, kHeapGap);
    heap_.emplace(address, bytes);
    heap_bytes_ += bytes;
    return address;
  } catch (const std::exception&) {
    return 0;
  }
}

bool GlobalMemory::heap_free(std::uint64_t address) noexcept {
  const auto it = heap_.find(address);
  if (it == heap_.end()) return false;
  heap_bytes_ -= it->second;
  heap_.erase(it);
  return free(address);
}

std::map<std::uint64_t, std::uint64_t> GlobalMemory::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

bool GlobalMemory::is_allocated(std::uint64_t address, std::uint64_t bytes) const noexcept {
  if (bytes == 0) return true;
  if (!contains(address, bytes)) return false;
  if (bytes >= kLazyBytes) {
    const std::lock_guard lock(mutex_);
    const auto after = live_.upper_bound(address);
    if (after == live_.begin()) return false;
    const auto& [start, size] = *std::prev(after);
    return address - start <= size && bytes <= size - (address - start);
  }
  const std::uint8_t* shadow_bytes = shadow(address);
  return std::all_of(shadow_bytes, shadow_bytes + bytes, [](std::uint8_t s) { return (s & kAllocated) != 0; });
}

void GlobalMemory::mark_initialised(std::uint64_t address, std::uint64_t bytes) noexcept {
  if (bytes >= kLazyBytes && is_shared(address, bytes))
    std::memset(shadow(address), kReadable, bytes);
  else if (bytes != 0)
    lazy_fill(shadow(address), bytes, std::byte{kReadable});
  if (bytes < kPage) return;
  const std::uint64_t end = (address - kGlobalBase + bytes) / kPage;
  for (std::uint64_t page = (address - kGlobalBase + kPage - 1) / kPage; page < end; ++page)
    if (pages_[page].load(std::memory_order_relaxed) != kNever) pages_[page].store(kKnown, std::memory_order_relaxed);
}

void GlobalMemory::mark_unwritten(std::uint64_t address, std::uint64_t bytes) noexcept {
  if (bytes == 0) return;
  for (std::uint64_t page = (address - kGlobalBase) / kPage; page <= (address - kGlobalBase + bytes - 1) / kPage;
       ++page)
    if (pages_[page].load(std::memory_order_relaxed) != kNever) pages_[page].store(0, std::memory_order_relaxed);
  lazy_fill(shadow(address), bytes, std::byte{kAllocated});
}

std::string GlobalMemory::describe(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  if (const auto freed = freed_.upper_bound(address); freed != freed_.begin()) {
    const auto& [start, was] = *std::prev(freed);
    const std::uint64_t bytes = was.bytes;
    if (address - start < bytes)
      return fmt::format("byte {} of an allocation of {} bytes that was freed", address - start, bytes);
  }
  const auto after = live_.upper_bound(address);
  if (after != live_.begin()) {
    const auto& [start, bytes] = *std::prev(after);
    if (address < start + bytes && (*shadow(address) & kAllocated) == 0)
      return fmt::format("byte {} of {} bytes of addresses that are reserved, with no memory mapped here",
                         address - start, bytes);
    if (address < start + bytes) return fmt::format("byte {} of an allocation of {} bytes", address - start, bytes);
    if (address - start - bytes < (std::uint64_t{1} << 30))
      return fmt::format("{} bytes past the end of an allocation of {} bytes at 0x{:x}", address - start - bytes, bytes,
                         start);
  }
  if (after != live_.end() && after->first - address < (std::uint64_t{1} << 30))
    return fmt::format("{} bytes before an allocation of {} bytes at 0x{:x}", after->first - address, after->second,
                       after->first);
  return "far from every allocation";
}

}  // namespace tessera::emulator

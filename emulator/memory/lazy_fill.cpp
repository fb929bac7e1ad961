#include "emulator/memory/lazy_fill.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tessera::emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kWindow = std::size_t{8} << 20;  // at least, of byte fills: few mappings, little memory

void fill_now(std::byte* at, std::size_t first, std::size_t bytes, std::span<const std::byte> pattern) {
  for (std::size_t i = 0; i < bytes;) {
    const std::size_t from = (first + i) % pattern.size(), count = std::min(pattern.size() - from, bytes - i);
    std::memcpy(at + first + i, pattern.data() + from, count);
    i += count;
  }
}

/// A window that begins as byte `first` of the fill, in a file without a name; -1: there is none.
int make_window(std::size_t first, std::size_t bytes, std::span<const std::byte> pattern) {
  const int file = memfd_create("tessera-emulator-fill", MFD_CLOEXEC);
  if (file < 0) return -1;
  void* const window = ftruncate(file, static_cast<off_t>(bytes)) == 0
                           ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                           : MAP_FAILED;
  if (window == MAP_FAILED) {
    close(file);
    return -1;
  }
  for (std::size_t i = 0; i < bytes;) {
    const std::size_t from = (first + i) % pattern.size(), count = std::min(pattern.size() - from, bytes - i);
    std::memcpy(static_cast<std::byte*>(window) + i, pattern.data() + from, count);
    i += count;
  }
  munmap(window, bytes);
  return file;
}

/// The whole pages of a range: the first one's offset in it, and how many bytes they are.
std::pair<std::size_t, std::size_t> pages_of(const void* at, std::size_t bytes) {
  const std::size_t head = std::min((kPage - reinterpret_cast<std::uintptr_t>(at) % kPage) % kPage, bytes);
  return {head, (bytes - head) / kPage * kPage};
}

}  // namespace

void lazy_fill(void* at, std::size_t bytes, std::span<const std::byte> pattern) {
  auto* const to = static_cast<std::byte*>(at);
  const auto [head, whole] = pages_of(at, bytes);
  const std::size_t unit = std::max(pattern.size(), kPage);
  const std::size_t window = std::min((std::max(kWindow, unit) + unit - 1) / unit * unit, std::max(whole, kPage));
  const int file = bytes < kLazyBytes ? -1 : make_window(head, window, pattern);
  std::size_t done = 0;
  while (file >= 0 && done < whole) {
    const std::size_t part = std::min(window, whole - done);
    constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    if (mmap(to + head + done, part, PROT_READ | PROT_WRITE, kFlags, file, 0) == MAP_FAILED) break;
    done += part;
  }
  if (file >= 0) close(file);
  fill_now(to, 0, head, pattern);
  fill_now(to, head + done, bytes - head - done, pattern);
}

void lazy_fill(void* at, std::size_t bytes, std::byte value) {
  if (bytes < kLazyBytes) {
    std::memset(at, static_cast<int>(value), bytes);
    return;
  }
  lazy_fill(at, bytes, std::span<const std::byte>(&value, 1));
}

void lazy_clear(void* at, std::size_t bytes) {
  auto* const to = static_cast<std::byte*>(at);
  const auto [head, whole] = pages_of(at, bytes);
  constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE;
  const bool is_mapped = whole > 0 && mmap(to + head, whole, PROT_READ | PROT_WRITE, kFlags, -1, 0) != MAP_FAILED;
  std::memset(to, 0, is_mapped ? head : bytes);
  if (is_mapped) std::memset(to + head + whole, 0, bytes - head - whole);
}

}  // namespace tessera::emulator

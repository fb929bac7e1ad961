// A fork with memory of the host's that the device shares (host_memory.cpp). Such pages are MAP_SHARED, and the heap's
// lie among them: without more, the child's malloc would write into the parent's heap. So the child gets copies of its
// own, as fork gives of every other page, and the parent waits until it has them. Pages of a stack, where both would
// stand, are the parent's own while it forks. The device's own addresses are not mapped in a child, as with hardware.
//
// Between fork and the copies the child may not touch the heap: system calls and the stack alone.
#include "emulator/memory/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

#include "emulator/memory/host_pages.h"

namespace tessera::emulator {
namespace {

std::atomic<bool> is_host_shared{false};
std::mutex forks;  // one at a time: the pipe is theirs
int pipe_ends[2] = {-1, -1};

bool is_ours(std::string_view line, HostMapping& mapping) {
  return line.find(std::string_view(kSharedFile)) != std::string_view::npos && read_mapping(line, mapping);
}

void make_own(const HostMapping& mapping) {
  const std::size_t bytes = mapping.end - mapping.begin;
  void* const place = reinterpret_cast<void*>(mapping.begin);  // NOLINT: addresses are numbers
  void* const copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return;
  // By the kernel: a sanitizer would ask what neighbours of a registered block these bytes are.
  const int file = static_cast<int>(syscall(SYS_memfd_create, "tessera-emulator-copy", 0u));
  if (file < 0) return;
  bool is_whole = true;
  for (std::size_t done = 0; is_whole && done < bytes;) {
    const long count =
        syscall(SYS_pwrite64, file, static_cast<char*>(place) + done, std::min<std::size_t>(bytes - done, 1 << 20), 0L);
    is_whole = count > 0 && syscall(SYS_pread64, file, static_cast<char*>(copy) + done, count, 0L) == count;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  close(file);
  if (!is_whole) return;
  mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  if (!mapping.is_writable) mprotect(place, bytes, PROT_READ);
}

struct StackPages {
  std::uint64_t host = 0, bytes = 0;  // 0: a free place
  int file = -1;
};
StackPages kept_stacks[32];

// Shared pages become the process's own: all, or of a range. On another stack: the own one may lie on such pages.
void make_own_in(void* given) {
  const auto* const range = static_cast<const StackPages*>(given);
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char buffer[8192];
  std::size_t held = 0;
  for (ssize_t count = 0; maps >= 0 && (count = read(maps, buffer + held, sizeof buffer - held)) > 0;) {
    held += static_cast<std::size_t>(count);
    std::string_view text(buffer, held);
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      HostMapping mapping;
      if (!is_ours(text.substr(0, end), mapping)) continue;
      if (range != nullptr) {
        mapping.begin = std::max(mapping.begin, range->host);
        mapping.end = std::min(mapping.end, range->host + range->bytes);
      }
      if (mapping.begin < mapping.end) make_own(mapping);
    }
    if (text.size() == sizeof buffer) text = {};  // a line that long is none of ours
    std::memmove(buffer, text.data(), text.size());
    held = text.size();
  }
  if (maps >= 0) close(maps);
}

void share_again(void* given) {
  const auto& pages = *static_cast<const StackPages*>(given);
  auto* const host = reinterpret_cast<char*>(pages.host);  // NOLINT: addresses are numbers
  std::uint64_t done = 0;
  while (done < pages.bytes) {
    const long count = syscall(SYS_pwrite64, pages.file, host + done, pages.bytes - done, static_cast<long>(done));
    if (count <= 0) return;
    done += static_cast<std::uint64_t>(count);
  }
  mmap(host, pages.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages.file, 0);
}

void before_fork() {
  forks.lock();
  if (!is_host_shared || pipe2(pipe_ends, O_CLOEXEC) != 0) pipe_ends[0] = pipe_ends[1] = -1;
  for (StackPages& stack : kept_stacks)
    if (stack.bytes != 0) on_other_stack(make_own_in, &stack);
}

void after_fork_in_parent() {
  if (pipe_ends[0] >= 0) {
    close(pipe_ends[1]);
    char nothing = 0;
    while (read(pipe_ends[0], &nothing, 1) < 0 && errno == EINTR) {  // until the child closes its end, or is no more
    }
    close(pipe_ends[0]);
  }
  for (StackPages& stack : kept_stacks)
    if (stack.bytes != 0) on_other_stack(share_again, &stack);
  forks.unlock();
}

void after_fork_in_child() {
  if (is_host_shared) on_other_stack(make_own_in, nullptr);
  if (pipe_ends[0] >= 0) {
    close(pipe_ends[0]);
    close(pipe_ends[1]);
  }
  forks.unlock();
}

}  // namespace

bool follow_forks() {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  return registered == 0;
}

void share_no_host_pages_with_children() {
  if (follow_forks()) is_host_shared = true;
}

void replace_host_pages(void (*work)(void*), void* argument) {
  const std::lock_guard lock(forks);
  on_other_stack(work, argument);
}

bool keep_stack_pages(std::uint64_t host, std::uint64_t bytes, int file) {
  const std::lock_guard lock(forks);
  for (StackPages& stack : kept_stacks) {
    if (stack.bytes != 0) continue;
    stack = {host, bytes, file};
    return true;
  }
  return false;
}

void release_stack_pages(std::uint64_t host, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(forks);
  for (StackPages& stack : kept_stacks) {
    if (stack.host != host || stack.bytes != bytes) continue;
    on_other_stack(make_own_in, &stack);
    close(stack.file);
    stack = {};
  }
}

}  // namespace tessera::emulator

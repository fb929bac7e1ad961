// What fork does with memory of the host's that the device shares.
#pragma once

#include <cstdint>

namespace tessera::emulator {

/// The name of the files behind shared pages, as /proc/self/maps has it.
inline constexpr char kSharedFile[] = "tessera-emulator-shared";

/// Before anything else is registered that a child of fork does on the heap, whose pages may still be the parent's:
/// what is registered first runs first there. False: it could not be.
bool follow_forks();
/// From here on children of fork get copies of the host's pages that are shared; those of vfork, which only exec, none.
void share_no_host_pages_with_children();

/// on_other_stack() with no fork beside it.
void replace_host_pages(void (*work)(void*), void* argument);

/// Pages of the calling thread's stack that are the file's now: a fork must find them private, since parent and child
/// stand on them at once. Keeps the file. False: there are too many.
bool keep_stack_pages(std::uint64_t host, std::uint64_t bytes, int file);
/// They become the thread's own again, where they are still there.
void release_stack_pages(std::uint64_t host, std::uint64_t bytes) noexcept;

}  // namespace tessera::emulator

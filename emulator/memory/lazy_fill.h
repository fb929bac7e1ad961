// Large fills of memory that few will touch. Whole pages become copy-on-write views of one window that holds what is
// filled in: reading them costs no memory, and a page of their own they get when somebody writes there. So buffers of
// many GiB, with their shadow, cost what a launch writes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::emulator {

/// From so many bytes on it is worth it.
inline constexpr std::size_t kLazyBytes = std::size_t{256} << 20;

/// Byte i becomes pattern[i % pattern.size()], whose size divides 4096 or is a multiple of it. Precondition: the pages
/// are of a private mapping. Fills at once where the system does not give the mappings.
void lazy_fill(void* at, std::size_t bytes, std::span<const std::byte> pattern);
/// The same with one byte.
void lazy_fill(void* at, std::size_t bytes, std::byte value);
/// Zeros again, and the memory goes back.
void lazy_clear(void* at, std::size_t bytes);

}  // namespace tessera::emulator

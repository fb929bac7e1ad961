// The GPUs that a program can believe to be on: limits as published (CUDA programming guide, "Technical specifications
// per compute capability"; NVIDIA's data sheets and architecture papers for units, memory, caches and clocks).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::emulator {

struct Gpu {
  std::string_view word;  ///< as the flag names it
  std::string_view name;  ///< as the driver would
  std::string_view arch;  ///< the target with all of its instructions
  int num_sms;
  std::int64_t memory_bytes;
  std::int64_t l2_bytes;
  int smem_per_sm, smem_optin;  ///< bytes
  int threads_per_sm, blocks_per_sm;
  int clock_khz, memory_clock_khz, memory_bus_bits;
  bool is_integrated;
};

std::span<const Gpu> gpus() noexcept;
/// By its word, or without one the first whose architecture has the target's number; null: there is none.
const Gpu* find_gpu(std::string_view word, std::string_view arch) noexcept;

/// What is wrong with the two words of a user, with those that there are; empty: nothing.
std::string contradiction(std::string_view word, std::string_view arch);

}  // namespace tessera::emulator

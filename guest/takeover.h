// A CUDA runtime inside of a program or a library, taken over by its functions' names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::guest {

struct ObjectFacts {
  bool has_device_code = false;
  bool asks_by_linker = false;  ///< it uses a shared runtime
  int taken = 0;                ///< functions that lead here now
  int cuda = 0;                 ///< 12 or 13: of which its runtime is; 0: it uses none
  /// It has device code and a runtime that nothing is known of.
  bool is_out_of_reach() const { return has_device_code && taken == 0 && !asks_by_linker; }
};

/// Of the object that was loaded from this file to this base; ours, likewise, is the library with the functions.
ObjectFacts take_over(const char* path, std::uint64_t base, const char* our_path, std::uint64_t our_base);

/// Writes a jump to `ours` over a function's first bytes.
void redirect(std::uint64_t function, const void* ours);
inline constexpr std::size_t kJumpBytes = 16;

}  // namespace tessera::guest

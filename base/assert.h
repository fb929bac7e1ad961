// TESSERA_ASSERT: for bugs of ours, never for input. Prints the condition and the values that matter, then aborts (exit
// code 134 under a shell; the command's own handler turns a thrown logic error into 70). It stays on in release builds:
// it guards decisions, not inner loops.
#pragma once

#include <string_view>

namespace tessera {
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, std::string_view values);
}  // namespace tessera

/// TESSERA_ASSERT(offset <= size, fmt::format("offset {} size {}", offset, size)): the second argument is evaluated
/// only on failure.
#define TESSERA_ASSERT(condition, values) \
  ((condition) ? static_cast<void>(0) : ::tessera::assertion_failed(#condition, __FILE__, __LINE__, (values)))

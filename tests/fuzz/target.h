// TESSERA_FUZZ_TARGET(name)(const std::uint8_t* data, std::size_t size) { ... }: what libFuzzer calls, or, in the
// program that replays the corpora of all targets, the function that it finds by the name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace tessera::fuzz {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

/// The targets of this program.
inline std::map<std::string_view, Target>& targets() {
  static std::map<std::string_view, Target> all;
  return all;
}

}  // namespace tessera::fuzz

#ifdef TESSERA_LIBFUZZER
#define TESSERA_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput
#else
#define TESSERA_FUZZ_TARGET(name)                                                                              \
  static int fuzz_##name(const std::uint8_t* data, std::size_t size);                                          \
  [[maybe_unused]] static const bool has_##name = tessera::fuzz::targets().emplace(#name, fuzz_##name).second; \
  static int fuzz_##name
#endif

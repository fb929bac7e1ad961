// What an opcode's text says.
#pragma once

#include <initializer_list>
#include <string_view>

namespace tessera::emulator {

/// Whether `opcode`, "add.s32", begins with one of the words, "add.".
inline bool starts_with_any(std::string_view opcode, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    if (opcode.starts_with(word)) return true;
  return false;
}

}  // namespace tessera::emulator

// The functions that one loaded library takes from others, replaced in that library alone.
//
// A shared library calls foreign functions through slots of its own, which the loader fills. A slot that holds another
// address changes what this library calls; every other library, and the program, call what they called. ELF gABI,
// "Dynamic Section" and "Relocation"; x86-64 and AArch64 psABI for the types of relocation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

struct link_map;

namespace tessera {

struct ReplacedImport {
  std::string_view name;
  void* function = nullptr;
};

/// A slot that was filled.
struct FilledSlot {
  std::uintptr_t at = 0;
  void* before = nullptr;
  void* function = nullptr;
};

/// Fills the library's slots for these names; `filled` gets those that held another address. Returns the names that it
/// had slots for and that were filled: none on another kind of machine. Slots that the loader has made read-only are
/// writable meanwhile. May run while other threads call through the slots, and again: it then writes the same.
std::vector<std::string_view> replace_imports(const link_map& library, std::span<const ReplacedImport> imports,
                                              std::vector<FilledSlot>* filled = nullptr);

/// Slots of the library that still hold the function get back what was there before.
void put_imports_back(const link_map& library, std::span<const FilledSlot> filled);

/// Whether the address lies in what the loader mapped for the library.
bool contains_address(const link_map& library, const void* address);

}  // namespace tessera

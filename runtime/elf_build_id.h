// The build id of a shared library: which build of NVRTC compiles enters every cache key, and two builds can share a
// version number.
//
// Reads the ELF header, the program headers and the notes (NT_GNU_BUILD_ID of owner "GNU"), every offset checked
// against the file's size, nothing else of a file of a hundred megabytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace tessera {

/// Fills `out` from an offset of a file of known size; false when that lies outside or cannot be read.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> out)>;

/// Lower-case hexadecimal; empty when this is not a 64-bit little-endian ELF file or has no such note.
std::string elf_build_id(std::uint64_t file_bytes, const ReadAt& read);
/// The same for a file; empty as well when it cannot be read.
std::string elf_build_id(const std::filesystem::path& file);

}  // namespace tessera

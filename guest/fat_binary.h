// Device code in a host program: what nvcc puts behind __cudaRegisterFatBinary, cuModuleLoadFatBinary takes, and a file
// of `nvcc -fatbin` is. A header, then one entry for each target: PTX or machine code, as it is, compressed by LZ4 (a
// block without a frame, nvcc before 12.8 and --compress-mode=speed) or by Zstandard (a frame, the default since).
//
// The format has no documentation. Every offset here was found by looking at what nvcc 12.8 and 13.0 write under each
// of their --compress-mode words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::guest {

struct FatBinary {
  std::vector<std::string> ptx;           ///< decompressed, one for each target
  std::vector<std::string> machine_code;  ///< targets of the others: "sm_90"
  std::vector<std::string> problems;      ///< of entries that cannot be read
};

/// Reads from the header on; the header says how much there is. Throws Error{unsupported} for another format.
FatBinary read_fat_binary(const void* data);
/// Registers of a thread by kernel, as the machine code for this target says; empty where there is none.
std::map<std::string, std::uint32_t> registers_in_fat_binary(const void* data, std::string_view target);
/// The same of one ELF file (a cubin).
std::map<std::string, std::uint32_t> registers_in_machine_code(std::string_view elf);
/// True where the bytes begin as a fat binary does.
bool is_fat_binary(const void* data) noexcept;

/// The text of .target, with its suffix; empty without one.
std::string target_of(std::string_view ptx);
/// The PTX that the driver of a device of this target would take: of those that run there the one with the highest
/// target; null: none runs there.
const std::string* choose_ptx(const FatBinary& binary, std::string_view arch);

/// One block of LZ4. Throws Error{unsupported} where it is damaged.
std::string decompress_lz4(std::string_view block, std::size_t bytes);

}  // namespace tessera::guest

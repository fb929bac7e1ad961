// Arrays in NumPy's .npy files: version 1.0, 2.0 and 3.0 headers, little-endian, C order.
//
// bf16 has no NumPy type: it is stored as its bits in unsigned 16-bit integers, '<u2'. So a reader that expects bf16
// takes an '<u2' array; nothing in the file says which of the two it is. (fp8 likewise: '|u1'.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct NpyArray {
  std::string descr;  ///< "<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  std::int64_t count() const noexcept;  ///< product of shape
};

/// Bytes of one element; 0 for a descr that is not of the list above.
std::size_t npy_element_bytes(std::string_view descr) noexcept;
/// The descr under which an element type of a plan is stored ("bf16" "<u2", "f32" "<f4", "s32" "<i4"); empty: none.
std::string_view npy_descr_of(std::string_view dtype) noexcept;

/// Throws Error{usage} that names the file and what is wrong with it: not .npy, truncated, trailing bytes, Fortran
/// order, big-endian, an unknown type, a shape whose bytes overflow.
NpyArray parse_npy(std::span<const std::byte> file, std::string_view name);
NpyArray read_npy(const std::filesystem::path& path);

/// The file's bytes (version 1.0, data at a multiple of 64). Precondition: data.size() fits shape and descr.
std::vector<std::byte> npy_bytes(const NpyArray& array);
void write_npy(const std::filesystem::path& path, const NpyArray& array);

}  // namespace tessera

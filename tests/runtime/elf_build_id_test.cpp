#include "runtime/elf_build_id.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace tessera {
namespace {

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

/// Header, one note segment of two notes: another owner's, then the build id.
std::vector<std::byte> sample() {
  std::vector<std::byte> file(64 + 56 + 20 + 20);
  const unsigned char magic[6] = {0x7f, 'E', 'L', 'F', 2, 1};
  std::memcpy(file.data(), magic, sizeof magic);
  put<std::uint64_t>(file, 32, 64);  // program headers
  put<std::uint16_t>(file, 54, 56);
  put<std::uint16_t>(file, 56, 1);
  put<std::uint32_t>(file, 64, 4);        // PT_NOTE
  put<std::uint64_t>(file, 64 + 8, 120);  // its offset and size
  put<std::uint64_t>(file, 64 + 32, 40);
  put<std::uint32_t>(file, 120, 4);  // "XYZ", 4 bytes, type 3
  put<std::uint32_t>(file, 124, 4);
  put<std::uint32_t>(file, 128, 3);
  std::memcpy(file.data() + 132, "XYZ", 4);
  put<std::uint32_t>(file, 140, 4);  // "GNU", 4 bytes, type 3
  put<std::uint32_t>(file, 144, 4);
  put<std::uint32_t>(file, 148, 3);
  std::memcpy(file.data() + 152, "GNU", 4);
  put<std::uint32_t>(file, 156, 0xefbeadde);
  return file;
}

std::string id_of(const std::vector<std::byte>& file) {
  return elf_build_id(file.size(), [&](std::uint64_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), file.data() + offset, out.size());
    return true;
  });
}

}  // namespace

TEST_CASE("the build id is the GNU note's, in hexadecimal") { CHECK(id_of(sample()) == "deadbeef"); }

TEST_CASE("what is no ELF file, or has no note, has no build id") {
  CHECK(id_of({}).empty());
  CHECK(id_of(std::vector<std::byte>(4096)).empty());
  std::vector<std::byte> file = sample();
  put<std::uint32_t>(file, 64, 1);
  CHECK(id_of(file).empty());
  CHECK(elf_build_id("/nonexistent/libnvrtc.so").empty());
  CHECK(elf_build_id("/").empty());
}

TEST_CASE("every truncation and every hostile length is refused without a read outside") {
  const std::vector<std::byte> file = sample();
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(bytes));
    CHECK(id_of(cut).empty());
  }
  for (std::size_t at = 6; at < file.size(); ++at) {
    std::vector<std::byte> broken = file;
    broken[at] = std::byte{0xff};
    id_of(broken);  // must neither crash nor read outside (the sanitizers watch)
  }
  std::vector<std::byte> huge = file;
  put<std::uint64_t>(huge, 64 + 8, UINT64_MAX - 8);
  CHECK(id_of(huge).empty());
  put<std::uint64_t>(huge, 32, UINT64_MAX - 8);
  CHECK(id_of(huge).empty());
}

}  // namespace tessera

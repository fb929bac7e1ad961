// zlib's CRC-32, four bytes a step: checksums of outputs that hardware gave.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera::emulator::math::test {

class Crc32 {
 public:
  Crc32() {
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320 ^ (c >> 1) : c >> 1;
      table_[0][i] = c;
    }
    for (std::size_t j = 1; j < 4; ++j)
      for (std::size_t i = 0; i < 256; ++i) table_[j][i] = (table_[j - 1][i] >> 8) ^ table_[0][table_[j - 1][i] & 255];
  }
  /// Four bytes, low one first.
  void word(std::uint32_t w) {
    w ^= state_;
    state_ = table_[3][w & 255] ^ table_[2][w >> 8 & 255] ^ table_[1][w >> 16 & 255] ^ table_[0][w >> 24];
  }
  std::uint32_t value() const { return ~state_; }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> table_{};
  std::uint32_t state_ = ~0u;
};

}  // namespace tessera::emulator::math::test

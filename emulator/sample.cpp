#include "tessera/emulator/sample.h"

#include <algorithm>
#include <cstring>

#include "emulator/memory/memory.h"
#include "emulator/random.h"

namespace tessera::emulator {

std::uint64_t clusters_of(const LaunchShape& shape) {
  const auto product = [](const std::array<std::uint32_t, 3>& x) { return std::uint64_t{x[0]} * x[1] * x[2]; };
  return product(shape.grid) / product(shape.cluster);
}

std::vector<std::uint64_t> chosen_clusters(std::uint64_t of_grid, std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> chosen;
  Random random(seed);
  count = std::min(count, of_grid);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = of_grid / count * i, end = i + 1 == count ? of_grid : of_grid / count * (i + 1);
    chosen.push_back(i == 0 ? 0 : i + 1 == count ? of_grid - 1 : begin + random.below(end - begin));
  }
  return chosen;
}

std::vector<ByteRange> written_ranges(std::span<const std::uint8_t> shadow) {
  constexpr std::size_t kPiece = 4096;
  const std::vector<std::uint8_t> untouched(kPiece, kAllocated);
  std::vector<ByteRange> found;
  for (std::size_t piece = 0; piece < shadow.size(); piece += kPiece) {
    const std::size_t end = std::min(shadow.size(), piece + kPiece);
    if (std::memcmp(shadow.data() + piece, untouched.data(), end - piece) == 0) continue;
    for (std::size_t i = piece; i < end; ++i) {
      if ((shadow[i] & kInitialised) == 0) continue;
      if (!found.empty() && found.back().first + found.back().bytes == i)
        ++found.back().bytes;
      else
        found.push_back({i, 1});
    }
  }
  return found;
}

}  // namespace tessera::emulator

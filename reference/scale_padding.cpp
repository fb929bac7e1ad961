#include "reference/scale_padding.h"

#include "reference/random.h"

namespace tessera::reference {

void fill_scale_padding(Tensor& scales, ScaleType type, std::uint64_t seed, std::uint64_t stream) {
  constexpr std::uint64_t kNan = 0xFF;  // of both types
  const std::uint64_t least = type == ScaleType::ue4m3 ? 0x20 : 120;
  const CounterRandom random(seed, stream + (std::uint64_t{1} << 32));
  if (scales.shape.size() != 6) return;
  const auto k_tiles = static_cast<std::uint64_t>(scales.shape[2]);
  for (std::uint64_t i = 0; i < scales.bytes.size(); ++i) {
    const std::uint64_t row = i / kTileBytes / k_tiles * kTileRows + i % kTileBytes / 16 + i / 4 % 4 * 32;
    const bool is_nan = random.bits(row + (std::uint64_t{1} << 48)) % 2 == 0;
    scales.bytes[i] = static_cast<std::byte>(is_nan ? kNan : least + random.bits(i) % 40);
  }
}

}  // namespace tessera::reference

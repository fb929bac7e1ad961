#include "tests/gpu_fuzz/tensor_map_generator.h"

#include <array>

namespace tessera {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;

std::uint64_t mixed(std::uint64_t z) {  // the finaliser of splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t index) : state_(mixed(mixed(seed + kGolden) + index * kGolden)) {}
  std::uint64_t bits() { return mixed(state_ += kGolden); }
  std::uint64_t below(std::uint64_t n) { return bits() % n; }
  std::uint32_t below32(std::uint32_t n) { return static_cast<std::uint32_t>(bits() % n); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  // A number of a random width of at most `width` bits: small ones as likely as large ones.
  std::uint64_t of_width(std::uint64_t width) { return bits() >> (64 - 1 - below(width)); }
  template <std::size_t N, class T>
  T pick(const std::array<T, N>& values) {
    return values[below(N)];
  }

 private:
  std::uint64_t state_;
};

constexpr std::array<std::uint64_t, 13> kTypeBytes{1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

std::uint64_t type_bytes(int type) { return type >= 0 && type <= 12 ? kTypeBytes[static_cast<std::size_t>(type)] : 1; }

std::uint64_t alignment_of(const RawMap& map) { return map.interleave == 2 ? 32 : 16; }

std::uint64_t legal_multiple(Random& random, std::uint64_t alignment, std::uint64_t end, std::uint64_t width) {
  switch (random.below(6)) {
    case 0:
      return 0;
    case 1:
      return end - alignment;
    case 2:
      return random.bits() % (end / alignment) * alignment;
    default:
      return random.of_width(width) / alignment * alignment;
  }
}

std::uint64_t footprint(const RawMap& map) {
  std::uint64_t bytes = type_bytes(map.type);
  for (std::uint32_t i = 0; i < map.rank; ++i) bytes *= map.box[i] / map.element_strides[i];
  return bytes;
}

void draw_legal_box(Random& random, RawMap& map) {
  const std::uint64_t bytes = type_bytes(map.type);
  const std::uint64_t unit = 16 / std::min<std::uint64_t>(bytes, 16);
  const std::uint64_t span = map.interleave == 0 && map.swizzle != 0 ? 16u << map.swizzle : 256 * bytes;
  const std::uint64_t most = std::min<std::uint64_t>(256, span / bytes) / unit;
  map.box[0] = static_cast<std::uint32_t>(unit * (random.one_in(3) ? most : 1 + random.below(most)));
  for (std::uint32_t i = 1; i < map.rank; ++i)
    map.box[i] = random.one_in(8) ? 256 : 1 + random.below32(1u << random.below(9));
  for (std::uint32_t i = 0; i < map.rank; ++i) map.element_strides[i] = random.one_in(4) ? 1 + random.below32(8) : 1;
  for (std::uint32_t i = map.rank - 1; footprint(map) > kMaxTensorMapFootprint; i = i == 0 ? map.rank - 1 : i - 1)
    if (i > 0) map.box[i] = (map.box[i] + 1) / 2;
}

RawMap legal(Random& random) {
  RawMap map;
  map.type = static_cast<int>(random.below(13));
  map.interleave = random.one_in(3) ? 1 + static_cast<int>(random.below(2)) : 0;
  map.rank = map.interleave != 0 ? 3 + random.below32(3) : 1 + random.below32(5);
  map.swizzle = static_cast<int>(random.below(4));
  map.l2_promotion = static_cast<int>(random.below(4));
  map.fill = map.type >= 6 && random.one_in(3) ? 1 : 0;
  for (std::uint32_t i = 0; i < kRawEntries; ++i) {  // garbage past the rank
    map.dims[i] = random.bits();
    map.strides[i] = random.bits();
    map.box[i] = static_cast<std::uint32_t>(random.bits());
    map.element_strides[i] = static_cast<std::uint32_t>(random.bits());
  }
  const std::uint64_t alignment = alignment_of(map);
  map.address = legal_multiple(random, alignment, kTensorMapAddressEnd, 57);
  for (std::uint32_t i = 0; i < map.rank; ++i) {
    map.dims[i] = random.one_in(6) ? kMaxTensorMapDim : 1 + random.of_width(32);
    if (i + 1 < map.rank) map.strides[i] = legal_multiple(random, alignment, kTensorMapStrideEnd, 40);
  }
  draw_legal_box(random, map);
  return map;
}

int odd_enumerator(Random& random, int count) {
  switch (random.below(4)) {
    case 0:
      return static_cast<int>(random.bits());  // any 32 bits
    case 1:
      return static_cast<int>(random.below(static_cast<std::uint64_t>(count))) | 1 << (5 + random.below(27));
    default:
      return static_cast<int>(random.below(static_cast<std::uint64_t>(count) + 4)) - 2;
  }
}

constexpr std::array<std::uint64_t, 24> kEdges{0,
                                               1,
                                               2,
                                               8,
                                               15,
                                               16,
                                               17,
                                               32,
                                               48,
                                               255,
                                               256,
                                               257,
                                               (1ull << 32) - 1,
                                               1ull << 32,
                                               (1ull << 32) + 1,
                                               (1ull << 40) - 32,
                                               (1ull << 40) - 16,
                                               (1ull << 40) - 1,
                                               1ull << 40,
                                               (1ull << 40) + 16,
                                               (1ull << 57) - 16,
                                               1ull << 57,
                                               (1ull << 57) + 32,
                                               ~0ull - 31};

std::uint64_t odd_number(Random& random, std::uint64_t value) {
  switch (random.below(6)) {
    case 0:
      return value ^ 1ull << random.below(64);
    case 1:
      return value - 1;
    case 2:
      return value + 1;
    case 3:
      return random.of_width(64);
    default:
      return random.pick(kEdges);
  }
}

std::uint32_t odd_number32(Random& random, std::uint32_t value, std::uint32_t bound) {
  switch (random.below(6)) {
    case 0:
      return value ^ 1u << random.below(32);
    case 1:
      return value - 1;
    case 2:
      return value + 1;
    case 3:
      return static_cast<std::uint32_t>(random.of_width(32));
    default:
      return random.one_in(4) ? 0 : bound - 1 + random.below32(3);
  }
}

void mutate(Random& random, RawMap& map) {
  const std::uint32_t used = std::min(std::max(map.rank, 1u), kRawEntries);
  const std::uint32_t i = random.below32(used);
  switch (random.below(13)) {
    case 0:
      map.type = odd_enumerator(random, 16);
      return;
    case 1:
      map.rank = random.below32(kRawEntries + 1);
      return;
    case 2:
      map.address = odd_number(random, map.address);
      return;
    case 3:
      map.dims[i] = odd_number(random, map.dims[i]);
      return;
    case 4:
    case 5:
      map.strides[random.below32(std::max(used - 1, 1u))] = odd_number(random, map.strides[i]);
      return;
    case 6:
      map.box[i] = odd_number32(random, map.box[i], 256);
      return;
    case 7:
      map.box[0] = odd_number32(random, map.box[0], 256);
      return;
    case 8:
      map.element_strides[i] = odd_number32(random, map.element_strides[i], 8);
      return;
    case 9:
      map.interleave = odd_enumerator(random, 3);
      return;
    case 10:
      map.swizzle = odd_enumerator(random, 7);
      return;
    case 11:
      (random.one_in(2) ? map.l2_promotion : map.fill) = odd_enumerator(random, 4);
      return;
    default:
      map.nulls |= 1u << random.below(5);
  }
}

// All boxes but one at random, the last so that the bytes straddle the bound.
RawMap near_footprint(Random& random) {
  RawMap map = legal(random);
  if (map.rank < 3) return map;
  const std::uint32_t last = 1 + random.below32(map.rank - 1);
  for (std::uint32_t i = 1; i < map.rank; ++i) {
    map.element_strides[i] = random.one_in(2) ? 1 : 1 + random.below32(8);
    map.box[i] = 1 + random.below32(random.one_in(2) ? 16 : 256);
  }
  map.box[last] = map.element_strides[last];
  const std::uint64_t others = std::max<std::uint64_t>(footprint(map), 1);
  const std::uint64_t fitting = kMaxTensorMapFootprint / others * map.element_strides[last];
  const std::uint64_t moved = fitting + random.below(2 * map.element_strides[last] + 2) - random.below(2);
  map.box[last] = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max<std::uint64_t>(moved, 1), 256));
  return map;
}

RawMap fully_random(Random& random) {
  RawMap map = legal(random);
  const std::uint64_t mutations = 5 + random.below(20);
  for (std::uint64_t i = 0; i < mutations; ++i) mutate(random, map);
  if (random.one_in(2)) map.nulls = 0;
  return map;
}

}  // namespace

std::string_view to_string(Strategy strategy) {
  static constexpr std::array<std::string_view, kNumStrategies> kNames{"legal", "one", "several", "footprint",
                                                                       "random"};
  return kNames[static_cast<std::size_t>(strategy)];
}

Strategy strategy_of(std::uint64_t index) {
  const std::uint64_t slot = index % 16;
  return slot < 5    ? Strategy::legal
         : slot < 10 ? Strategy::one
         : slot < 13 ? Strategy::several
         : slot < 15 ? Strategy::footprint
                     : Strategy::random;
}

RawMap generate(std::uint64_t seed, std::uint64_t index) {
  Random random(seed, index);
  const Strategy strategy = strategy_of(index);
  if (strategy == Strategy::random) return fully_random(random);
  if (strategy == Strategy::footprint) return near_footprint(random);
  RawMap map = legal(random);
  const std::uint64_t mutations = strategy == Strategy::legal ? 0 : strategy == Strategy::one ? 1 : 2 + random.below(3);
  for (std::uint64_t i = 0; i < mutations; ++i) mutate(random, map);
  return map;
}

}  // namespace tessera

// Tiled tensor copies beyond the plain ones: every rank with element strides, the swizzle in units of 32 bytes, and the
// packed 4- and 6-bit types. What sm_100 adds runs in the emulator only: never on such a device.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "spec/smem_descriptor.h"
#include "tessera/tensor_map.h"
#include "tests/layout_probes/codes.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

std::string copy_text(std::uint32_t rank, const std::array<int, 5>& at, const char* space = "cluster") {
  return fmt::format(
      "cp.async.bulk.tensor.{}d.shared::{}.global.mbarrier::complete_tx::bytes [r159], [d2, {{{}}}], [r10]", rank,
      space, fmt::join(at.begin(), at.begin() + rank, ", "));
}

Probe probe_of(const ResolvedTensorMap& map, const char* arch) {
  Probe probe;
  probe.arch = arch;
  probe.make_map = [map](Device& device, DevicePointer address) {
    ResolvedTensorMap placed = map;
    placed.address = address;
    TensorMapObject object;
    device.encode(placed, object);
    return object;
  };
  return probe;
}

unsigned swizzled(TensorMapSwizzle swizzle, unsigned plain) {
  return plain ^ layout::smem_layout_xor(static_cast<layout::SmemLayout>(swizzle), plain >> 7);
}

/// A map of 32-bit elements, dense but for its dimensions.
ResolvedTensorMap words_map(std::uint32_t rank, const std::array<std::uint64_t, 5>& dims,
                            const std::array<std::uint32_t, 5>& box, const std::array<std::uint32_t, 5>& steps,
                            TensorMapSwizzle swizzle) {
  ResolvedTensorMap map;
  map.type = TensorMapType::u32;
  map.rank = rank;
  map.swizzle = swizzle;
  std::uint64_t stride = 4;
  for (std::uint32_t d = 0; d < rank; ++d) {
    map.dims[d] = dims[d];
    map.box[d] = box[d];
    map.element_strides[d] = steps[d];
    stride *= dims[d];
    if (d + 1 < rank) map.strides_bytes[d] = stride;
  }
  return map;
}

/// Rows in the order of shared memory: dimension 1 runs fastest; steps skip rows and shorten the box.
void check_words(const ResolvedTensorMap& map, const std::array<int, 5>& at, const char* arch) {
  if (!runs(arch)) return;
  CAPTURE(map.rank);
  std::uint64_t elements = 1;
  for (std::uint32_t d = 0; d < map.rank; ++d) elements *= map.dims[d];
  std::vector<std::uint32_t> tensor(elements);
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::uint32_t>(i + 1);
  std::array<int, 5> extents{1, 1, 1, 1, 1};
  int rows = 1;
  for (std::uint32_t d = 1; d < map.rank; ++d) {
    extents[d] = static_cast<int>((map.box[d] + map.element_strides[d] - 1) / map.element_strides[d]);
    rows *= extents[d];
  }
  const int width = static_cast<int>(map.box[0]), pitch = width * 4;
  const auto out = load_tile(probe_of(map, arch), copy_text(map.rank, at), rows * pitch, tensor);
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < width; ++column) {
      int rest = row;
      bool is_inside = at[0] + column >= 0 && static_cast<std::uint64_t>(at[0] + column) < map.dims[0];
      std::int64_t index = at[0] + column, step = static_cast<std::int64_t>(map.dims[0]);
      for (std::uint32_t d = 1; d < map.rank; ++d) {
        const std::int64_t place = at[d] + std::int64_t{rest % extents[d]} * map.element_strides[d];
        rest /= extents[d];
        is_inside = is_inside && place >= 0 && static_cast<std::uint64_t>(place) < map.dims[d];
        index += place * step;
        step *= static_cast<std::int64_t>(map.dims[d]);
      }
      CAPTURE(row);
      CAPTURE(column);
      REQUIRE(out[swizzled(map.swizzle, static_cast<unsigned>(row * pitch + column * 4)) / 4] ==
              (is_inside ? static_cast<std::uint32_t>(index + 1) : 0u));
    }
}

TEST_CASE("probe: a tiled copy of every rank takes the rows that its element strides name") {
  const std::array<std::uint64_t, 5> dims{20, 9, 5, 4, 3};
  for (std::uint32_t rank = 1; rank <= 5; ++rank)
    for (const std::array<std::uint32_t, 5>& steps :
         {std::array<std::uint32_t, 5>{1, 1, 1, 1, 1}, std::array<std::uint32_t, 5>{1, 2, 3, 1, 2}}) {
      const ResolvedTensorMap map = words_map(rank, dims, {16, 7, 4, 3, 2}, steps, TensorMapSwizzle::b64);
      check_words(map, {0, 0, 0, 0, 0}, "sm_90a");
      check_words(map, {8, 4, -1, 2, 1}, "sm_90a");
      check_words(map, {-4, -3, 2, -2, -1}, "sm_90a");
    }
}

TEST_CASE("probe: a copy with the swizzle of 32-byte units puts elements where the map says") {
  const ResolvedTensorMap map =
      words_map(2, {44, 19, 1, 1, 1}, {32, 24, 1, 1, 1}, {1, 1, 1, 1, 1}, TensorMapSwizzle::b128_atom_32b);
  check_words(map, {0, 0, 0, 0, 0}, "sm_100a");
  check_words(map, {40, 7, 0, 0, 0}, "sm_100a");
}

/// 4- and 6-bit elements of 128 a row, whose names are digits; padded types spread 16 elements over 16 bytes.
void check_packed(TensorMapType type, TensorMapSwizzle swizzle, int bits, bool is_padded) {
  if (!runs("sm_100a")) return;
  CAPTURE(static_cast<int>(type));
  CAPTURE(static_cast<int>(swizzle));
  constexpr int kWidth = 256, kHeight = 5, kBox = 128, kRows = 6, kFirst = 128;
  const int base = 1 << bits, row_bytes = kWidth * bits / 8;
  ResolvedTensorMap map;
  map.type = type;
  map.rank = 2;
  map.dims = {kWidth, kHeight};
  map.strides_bytes = {static_cast<std::uint64_t>(row_bytes)};
  map.box = {kBox, kRows};
  map.swizzle = swizzle;
  const int pitch = is_padded ? kBox : kBox * bits / 8, credit = kRows * kBox * bits / 8;
  for (int place = 0; place < digits_for(base, kWidth * kHeight); ++place) {
    const auto name = [&](int row, int column) {
      return static_cast<std::uint32_t>(digit(base, row * kWidth + column, place));
    };
    std::vector<std::uint32_t> tensor(static_cast<std::size_t>(row_bytes * kHeight / 4));
    for (int row = 0; row < kHeight; ++row)
      for (int column = 0; column < kWidth; ++column)
        for (int bit = 0; bit < bits; ++bit) {
          const int at = row * row_bytes * 8 + column * bits + bit;
          tensor[static_cast<std::size_t>(at / 32)] |= (name(row, column) >> bit & 1) << (at % 32);
        }
    const auto out =
        load_tile(probe_of(map, "sm_100a"), copy_text(2, {kFirst, 1, 0, 0, 0}), kRows * pitch, tensor, credit);
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kBox; ++column) {
        const unsigned chunk = is_padded ? static_cast<unsigned>(column / 16 * 16) : 0u;
        const int first = (is_padded ? column % 16 : column) * bits;
        std::uint32_t value = 0;
        for (int bit = 0; bit < bits; ++bit) {
          const auto byte = static_cast<unsigned>(row * pitch) + chunk + static_cast<unsigned>((first + bit) / 8);
          const unsigned address = swizzled(swizzle, byte);
          value |= (out[address / 4] >> (8 * (address % 4) + static_cast<unsigned>((first + bit) % 8)) & 1) << bit;
        }
        CAPTURE(row);
        CAPTURE(column);
        REQUIRE(value == (row + 1 < kHeight ? name(row + 1, kFirst + column) : 0u));
      }
  }
}

TEST_CASE("probe: copies of packed types put elements where the maps say") {
  check_packed(TensorMapType::u4x16_align8b, TensorMapSwizzle::none, 4, false);
  check_packed(TensorMapType::u4x16_align8b, TensorMapSwizzle::b64, 4, false);
  for (const TensorMapSwizzle swizzle : {TensorMapSwizzle::none, TensorMapSwizzle::b128}) {
    check_packed(TensorMapType::u4x16_align16b, swizzle, 4, true);
    check_packed(TensorMapType::u6x16_align16b, swizzle, 6, true);
  }
}

}  // namespace
}  // namespace tessera::probes

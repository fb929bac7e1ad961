#include "emulator/math/convert.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace tessera::emulator::math {
namespace {

constexpr std::size_t kFormats = static_cast<std::size_t>(Format::ue4m3) + 1;

template <std::size_t... I>
constexpr std::array<ConvertFunction, sizeof...(I)> convert_table(std::index_sequence<I...>) {
  return {&convert<static_cast<Format>(I / kFormats), static_cast<Format>(I % kFormats)>...};
}
constexpr auto kConvert = convert_table(std::make_index_sequence<kFormats * kFormats>{});

template <std::size_t... I>
constexpr std::array<double (*)(std::uint64_t), sizeof...(I)> decode_table(std::index_sequence<I...>) {
  return {&decode<static_cast<Format>(I)>...};
}
constexpr auto kDecode = decode_table(std::make_index_sequence<kFormats>{});

}  // namespace

ConvertFunction find_convert(Format destination, Format source) {
  return kConvert[static_cast<std::size_t>(destination) * kFormats + static_cast<std::size_t>(source)];
}

double decode_value(Format format, std::uint64_t code) { return kDecode[static_cast<std::size_t>(format)](code); }

double round_to_integral(double value, Rounding mode) {
  switch (mode) {
    case Rounding::toward_zero:
      return std::trunc(value);
    case Rounding::down:
      return std::floor(value);
    case Rounding::up:
      return std::ceil(value);
    case Rounding::nearest_away:
      return std::round(value);
    case Rounding::nearest_even:
      break;
  }
  const double below = std::floor(value);
  const double rest = value - below;  // exact: below and value share a binade or the value is small
  double nearest = rest < 0.5 ? below : rest > 0.5 ? below + 1 : std::fmod(below, 2.0) == 0 ? below : below + 1;
  if (!(std::fabs(value) < 0x1p52)) nearest = value;  // already an integer, infinite or NaN
  return std::copysign(nearest, value);
}

}  // namespace tessera::emulator::math

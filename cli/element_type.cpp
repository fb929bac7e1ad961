#include "cli/element_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulator/math/convert.h"

namespace tessera::cli {

namespace {

using emulator::math::Format;

constexpr ElementType kElementTypes[] = {{"f64", 64, "<f8", Format::f64},    {"f32", 32, "<f4", Format::f32},
                                         {"tf32", 32, "<f4", Format::tf32},  {"f16", 16, "<f2", Format::f16},
                                         {"bf16", 16, "<u2", Format::bf16},  {"e5m2", 8, "|u1", Format::e5m2},
                                         {"e4m3", 8, "|u1", Format::e4m3},   {"e3m2", 8, "|u1", Format::e3m2},
                                         {"e2m3", 8, "|u1", Format::e2m3},   {"e2m1", 4, "|u1", Format::e2m1},
                                         {"ue8m0", 8, "|u1", Format::ue8m0}, {"ue4m3", 8, "|u1", Format::ue4m3},
                                         {"u4", 4, "|u1", std::nullopt},     {"s4", 4, "|u1", std::nullopt, true},
                                         {"u8", 8, "|u1", std::nullopt},     {"s8", 8, "|i1", std::nullopt, true},
                                         {"u16", 16, "<u2", std::nullopt},   {"s16", 16, "<i2", std::nullopt, true},
                                         {"u32", 32, "<u4", std::nullopt},   {"s32", 32, "<i4", std::nullopt, true},
                                         {"u64", 64, "<u8", std::nullopt},   {"s64", 64, "<i8", std::nullopt, true}};

std::int64_t sign_extended(std::uint64_t bits, int width) {
  const int shift = 64 - width;
  return static_cast<std::int64_t>(bits << shift) >> shift;
}

std::uint64_t integer_bits(const ElementType& type, double value) {
  if (std::isnan(value)) return 0;
  const double low = type.is_signed ? -std::ldexp(1.0, type.bits - 1) : 0.0;
  // The largest integer is one below a power of two, which for 64 bits is no double: so it is compared, not clamped to.
  const double end = std::ldexp(1.0, type.is_signed ? type.bits - 1 : type.bits);
  const double rounded = std::nearbyint(value);
  if (rounded <= low) return static_cast<std::uint64_t>(static_cast<std::int64_t>(low));
  if (rounded >= end)
    return (type.is_signed ? std::uint64_t{1} << (type.bits - 1) : ~std::uint64_t{0}) - (type.is_signed ? 1 : 0);
  return type.is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded))
                        : static_cast<std::uint64_t>(rounded);
}

}  // namespace

const ElementType* find_element_type(std::string_view name) noexcept {
  const auto* const found = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                         [&](const ElementType& type) { return type.name == name; });
  return found == std::end(kElementTypes) ? nullptr : found;
}

std::string element_type_names() {
  std::string names;
  for (const ElementType& type : kElementTypes) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

std::uint64_t element_bits(const ElementType& type, const std::byte* data, std::uint64_t index) noexcept {
  if (type.bits == 4) return (std::to_integer<std::uint64_t>(data[index / 2]) >> (index % 2 * 4)) & 15;
  std::uint64_t bits = 0;
  const auto bytes = static_cast<std::size_t>(type.bits) / 8;
  std::memcpy(&bits, data + index * bytes, bytes);
  return bits;
}

double element_value(const ElementType& type, const std::byte* data, std::uint64_t index) noexcept {
  const std::uint64_t bits = element_bits(type, data, index);
  if (type.format) return emulator::math::decode_value(*type.format, bits);
  return type.is_signed ? static_cast<double>(sign_extended(bits, type.bits)) : static_cast<double>(bits);
}

void set_element_bits(const ElementType& type, std::byte* data, std::uint64_t index, std::uint64_t bits) noexcept {
  if (type.bits == 4) {
    const auto shift = static_cast<int>(index % 2 * 4);
    data[index / 2] =
        (data[index / 2] & static_cast<std::byte>(0xF0 >> shift)) | static_cast<std::byte>((bits & 15) << shift);
    return;
  }
  const auto bytes = static_cast<std::size_t>(type.bits) / 8;
  std::memcpy(data + index * bytes, &bits, bytes);
}

void set_element(const ElementType& type, std::byte* data, std::uint64_t index, double value) noexcept {
  if (!type.format) return set_element_bits(type, data, index, integer_bits(type, value));
  std::uint64_t code = 0;
  std::memcpy(&code, &value, sizeof(value));
  if (*type.format != Format::f64) {
    const bool is_finite = std::isfinite(value);
    code = emulator::math::find_convert(*type.format, Format::f64)(code, {.satfinite = is_finite && type.bits < 16});
  }
  set_element_bits(type, data, index, code);
}

}  // namespace tessera::cli

// The fundamental and alternate types of PTX instructions and registers. PTX ISA, "Types".
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::emulator {

enum class Type : std::uint8_t {
  none,
  pred,
  b1,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f32x2,
  f64,
  tf32,
  e4m3,
  e5m2,
  e2m1,
  e2m3,
  e3m2,
  ue8m0,
  ue4m3,
  e4m3x2,
  e5m2x2,
  e2m1x2,
  e2m3x2,
  e3m2x2,
  ue8m0x2,
  u16x2,
  s16x2,
  s4,
  u4,
  s2,
  u2,
  e4m3x4,
  e5m2x4,
  e2m1x4,
  e2m3x4,
  e3m2x4,
  s2f6x2,
  b1024
};

struct TypeInfo {
  std::string_view name;  ///< without the dot
  Type type;
  int bits;  ///< of a register that holds it; pred: 1
};

inline constexpr TypeInfo kTypes[] = {
    {"pred", Type::pred, 1},      {"b1", Type::b1, 1},          {"b8", Type::b8, 8},
    {"b16", Type::b16, 16},       {"b32", Type::b32, 32},       {"b64", Type::b64, 64},
    {"b128", Type::b128, 128},    {"u8", Type::u8, 8},          {"u16", Type::u16, 16},
    {"u32", Type::u32, 32},       {"u64", Type::u64, 64},       {"s8", Type::s8, 8},
    {"s16", Type::s16, 16},       {"s32", Type::s32, 32},       {"s64", Type::s64, 64},
    {"f16", Type::f16, 16},       {"f16x2", Type::f16x2, 32},   {"bf16", Type::bf16, 16},
    {"bf16x2", Type::bf16x2, 32}, {"f32", Type::f32, 32},       {"f32x2", Type::f32x2, 64},
    {"f64", Type::f64, 64},       {"tf32", Type::tf32, 32},     {"e4m3", Type::e4m3, 8},
    {"e5m2", Type::e5m2, 8},      {"e2m1", Type::e2m1, 8},      {"e2m3", Type::e2m3, 8},
    {"e3m2", Type::e3m2, 8},      {"ue8m0", Type::ue8m0, 8},    {"ue4m3", Type::ue4m3, 8},
    {"e4m3x2", Type::e4m3x2, 16}, {"e5m2x2", Type::e5m2x2, 16}, {"e2m1x2", Type::e2m1x2, 8},
    {"e2m3x2", Type::e2m3x2, 16}, {"e3m2x2", Type::e3m2x2, 16}, {"ue8m0x2", Type::ue8m0x2, 16},
    {"u16x2", Type::u16x2, 32},   {"s16x2", Type::s16x2, 32},   {"s4", Type::s4, 4},
    {"u4", Type::u4, 4},          {"s2", Type::s2, 2},          {"u2", Type::u2, 2},
    {"e4m3x4", Type::e4m3x4, 32}, {"e5m2x4", Type::e5m2x4, 32}, {"e2m1x4", Type::e2m1x4, 16},
    {"e2m3x4", Type::e2m3x4, 32}, {"e3m2x4", Type::e3m2x4, 32}, {"s2f6x2", Type::s2f6x2, 16},
    {"b1024", Type::b1024, 1024},
};

/// Type::none when the name (without its dot) is not a type.
constexpr Type type_of(std::string_view name) noexcept {
  for (const TypeInfo& info : kTypes)
    if (info.name == name) return info.type;
  return Type::none;
}
constexpr const TypeInfo& info_of(Type type) noexcept {
  for (const TypeInfo& info : kTypes)
    if (info.type == type) return info;
  return kTypes[0];
}
constexpr std::string_view name_of(Type type) noexcept { return info_of(type).name; }
constexpr int bits_of(Type type) noexcept { return info_of(type).bits; }
/// Bytes that one lane's register of this width takes: 8-bit registers take 2 so that lanes stay aligned; a predicate
/// is one bit of a mask and has none.
constexpr int register_bytes(Type type) noexcept {
  const int bits = bits_of(type);
  return bits <= 1 ? 0 : bits <= 16 ? 2 : bits / 8;
}
constexpr bool is_signed(Type type) noexcept { return type >= Type::s8 && type <= Type::s64; }
constexpr bool is_float(Type type) noexcept {
  return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64 || type == Type::f16x2 ||
         type == Type::bf16x2 || type == Type::f32x2 || type == Type::tf32;
}

}  // namespace tessera::emulator

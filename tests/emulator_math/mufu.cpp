// The checksums of an H200's outputs (zlib CRC-32 of the little-endian results in order).
#include "emulator/math/mufu.h"

#include <doctest/doctest.h>

#include <cmath>

#include "emulator/math/bits.h"
#include "tests/emulator_math/crc32.h"

namespace tessera::emulator::math {
namespace {

// Every 256th bit pattern, or 2^24 consecutive ones from a start.
constexpr std::uint32_t kDecimated = ~0u;

struct Grid {
  const char* name;
  std::uint32_t (*function)(std::uint32_t);
  std::uint32_t start;
  std::uint32_t crc;
};
constexpr Grid kGrids[] = {
    {"ex2.ftz", ex2_ftz, kDecimated, 0x26e09045},     {"ex2.ftz", ex2_ftz, 0x3F800000, 0x214163b8},
    {"ex2.ftz", ex2_ftz, 0x3E800000, 0x66e29cf1},     {"ex2.ftz", ex2_ftz, 0xBF800000, 0xfc6d4a59},
    {"rcp.ftz", rcp_ftz, kDecimated, 0x9b4eed7c},     {"rcp.ftz", rcp_ftz, 0x3F800000, 0xcdae2699},
    {"rcp.ftz", rcp_ftz, 0x3E800000, 0x2885145f},     {"lg2.ftz", lg2_ftz, kDecimated, 0x0d37fe7a},
    {"lg2.ftz", lg2_ftz, 0x3F800000, 0x40f7b28b},     {"lg2.ftz", lg2_ftz, 0x3E800000, 0x16564198},
    {"rsqrt.ftz", rsqrt_ftz, kDecimated, 0x2733803c}, {"rsqrt.ftz", rsqrt_ftz, 0x3F800000, 0x9d0587e4},
    {"rsqrt.ftz", rsqrt_ftz, 0x3E800000, 0x22f7c4d7}, {"sqrt.ftz", sqrt_ftz, kDecimated, 0xb53f6e23},
    {"sqrt.ftz", sqrt_ftz, 0x3F800000, 0x98891b5d},   {"sqrt.ftz", sqrt_ftz, 0x3E800000, 0xb9ca30cc},
    {"ex2", ex2_full, kDecimated, 0x79422fcc},        {"rcp", rcp_full, kDecimated, 0x2147fa2c},
    {"lg2", lg2_full, kDecimated, 0xd9856fd0},        {"rsqrt", rsqrt_full, kDecimated, 0x54a9c7de},
    {"sqrt", sqrt_full, kDecimated, 0xdfb2d684},      {"tanh", tanh_f32, kDecimated, 0x2f14d180},
    {"tanh", tanh_f32, 0x3F800000, 0xaab8bae0},       {"tanh", tanh_f32, 0x3E800000, 0x13fdafe2},
    {"tanh", tanh_f32, 0x3B800000, 0x29118443},       {"tanh", tanh_f32, 0x3C800000, 0x87fe7075},
    {"tanh", tanh_f32, 0x3D800000, 0x4d5ab41e},       {"tanh", tanh_f32, 0x40800000, 0xf15f22af}};

TEST_CASE("approximate functions: every output of 28 grids as measured on H200") {
  for (const Grid& grid : kGrids) {
    test::Crc32 crc;
    for (std::uint32_t i = 0; i < 1u << 24; ++i)
      crc.word(grid.function(grid.start == kDecimated ? i << 8 : grid.start + i));
    CAPTURE(grid.name);
    CAPTURE(grid.start);
    CHECK(crc.value() == grid.crc);
  }
}

TEST_CASE("approximate functions: all lanes at once as one by one") {
  for (int form = 0; form < 10; ++form) {
    const auto which = static_cast<SpecialForm>(form);
    std::uint32_t state = 1, x[32], result[32];
    int wrong = 0;
    for (std::uint32_t i = 0; i < 1u << 20; ++i) {
      // Random patterns, then those around every 2^23, where exponents change.
      for (std::uint32_t lane = 0; lane < 32; ++lane) {
        state = state * 1664525 + 1013904223;
        x[lane] = i % 4 != 0 ? (i << 12) ^ (state >> 7) : ((state >> 20) << 23) + (state & 7) - 4;
      }
      special_lanes(which, x, result, i % 3 == 0 ? 0x0F0F1234 : ~0u);
      for (int lane = 0; lane < 32; ++lane)
        wrong += (i % 3 == 0 && (0x0F0F1234u >> lane & 1) == 0) || result[lane] == function_of(which)(x[lane]) ? 0 : 1;
    }
    CAPTURE(form);
    CHECK(wrong == 0);
  }
}

TEST_CASE("rcp and rsqrt of f64: all fractions of two exponents, and special values, as measured on H200") {
  struct {
    const char* name;
    std::uint64_t (*function)(std::uint64_t);
    std::uint32_t exponent, crc;
  } constexpr kWide[] = {{"rcp", rcp_f64, 1023, 0x57b8880f},
                         {"rcp", rcp_f64, 1024, 0x806c53d1},
                         {"rsqrt", rsqrt_f64, 1023, 0x92e65fbc},
                         {"rsqrt", rsqrt_f64, 1024, 0xaa565b16}};
  for (const auto& wide : kWide) {
    test::Crc32 crc;
    for (std::uint32_t i = 0; i < 1u << 20; ++i) {
      const std::uint64_t high = static_cast<std::uint64_t>(wide.exponent << 20 | i) << 32;
      const std::uint64_t result = wide.function(high);
      if (static_cast<std::uint32_t>(result) != 0 || wide.function(high | 0xFFFFFFFF) != result) FAIL("at " << i);
      crc.word(static_cast<std::uint32_t>(result >> 32));
    }
    CAPTURE(wide.name);
    CAPTURE(wide.exponent);
    CHECK(crc.value() == wide.crc);
  }
}

TEST_CASE("16-bit forms: all 65,536 outputs as measured on H200") {
  const Grid forms[] = {{"ex2.f16", ex2_f16, 0, 0xd5350e3b},
                        {"ex2.ftz.bf16", ex2_bf16, 0, 0xeab02565},
                        {"tanh.f16", tanh_f16, 0, 0x4fdbebf7},
                        {"tanh.bf16", tanh_bf16, 0, 0xa1373044}};
  for (const Grid& form : forms) {
    test::Crc32 crc;
    for (std::uint32_t i = 0; i < 65536; i += 2) crc.word(form.function(i) | form.function(i + 1) << 16);
    CAPTURE(form.name);
    CHECK(crc.value() == form.crc);
  }
}

TEST_CASE("what is not modelled stays near the real value") {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const float x = 0.01f + 0.003f * static_cast<float>(i);
    const float y = 1.0f + 0.7f * static_cast<float>(i);
    CHECK(std::fabs(float_of(sin_approx(bits_of(x), true)) - std::sin(x)) < 1e-6f);
    CHECK(std::fabs(float_of(cos_approx(bits_of(x), true)) - std::cos(x)) < 1e-6f);
    CHECK(float_of(div_approx(bits_of(x), bits_of(y), true)) == doctest::Approx(x / y).epsilon(3e-7));
    CHECK(float_of(div_full(bits_of(x), bits_of(y), false)) == doctest::Approx(x / y).epsilon(3e-7));
  }
  CHECK(div_approx(bits_of(1.0f), bits_of(0x1p127f), false) == 0);
  CHECK(float_of(div_full(bits_of(0x1p127f), bits_of(0x1p127f), false)) == 1.0f);
  CHECK(div_full(bits_of(0.0f), bits_of(0.0f), true) == kCanonicalNanF32);
}

}  // namespace
}  // namespace tessera::emulator::math

// Block scales of mma.sync (sm_120): each product of one A, one B and two scales tells which scales were taken. Never
// run on such a device: in the emulator only.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "spec/fragment.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;
using layout::FragmentSlot;

// Block-scaled products of sm_120: scales are powers of two, so every product of one A, one B and two scales is exact
// and tells which scales were taken. Bytes and lanes that the selectors do not name hold noise.
struct Scaled {
  const char* spelling;
  int k, bits, vector;
  bool is_ue4m3;
};

constexpr float kE2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

void check_scaled(const Scaled& product, int shift, int thread_a, int byte_a, int thread_b, int byte_b) {
  CAPTURE(product.spelling);
  CAPTURE(shift);
  const FragmentShape a{Fragment::mma_a, 16, product.k, product.bits}, b{Fragment::mma_b, product.k, 8, product.bits};
  const FragmentShape d{Fragment::mma_d, 16, 8, 32};
  const int block = product.k / product.vector;
  const auto name = [&](int row, int k) { return (row * 5 + k * 3 + k / 8) % 8; };
  // e2m1 under mxf8f6f4 sits in bits 5..2 of its byte.
  const auto code = [&](int value) { return static_cast<std::uint32_t>(product.bits == 8 ? value << 2 : value); };
  const auto exponent = [](int index, int vector) { return (index * 3 + vector * 5) % 7 - 3; };
  const auto scale = [&](int e) { return static_cast<std::uint32_t>(product.is_ue4m3 ? (e + 7) << 3 : e + 127); };
  std::vector<std::uint32_t> input(32 * 8, 0);
  const auto fill = [&](const FragmentShape& shape, std::size_t first, auto value) {
    for (int row = 0; row < shape.rows; ++row)
      for (int column = 0; column < shape.columns; ++column) {
        const FragmentSlot slot = fragment_slot(shape, {row, column});
        input[static_cast<std::size_t>(slot.lane) * 8 + first + static_cast<std::size_t>(slot.reg)] |=
            code(value(row, column)) << (slot.index * product.bits);
      }
  };
  fill(a, 0, name);
  fill(b, 4, [&](int k, int n) { return k == n + shift ? 2 : 0; });  // 1.0
  for (std::size_t lane = 0; lane < 32; ++lane) input[lane * 8 + 6] = input[lane * 8 + 7] = 0x7F7F7F7F;
  const auto place = [&](bool is_a, int index, int thread, int byte) {
    for (int v = 0; v < product.vector; ++v) {
      const layout::ScaleSlot slot = layout::mma_scale_slot(is_a, thread, byte, index, v);
      std::uint32_t& word = input[static_cast<std::size_t>(slot.lane) * 8 + (is_a ? 6 : 7)];
      word = (word & ~(0xFFu << (8 * slot.byte))) | scale(exponent(index + (is_a ? 0 : 4), v)) << (8 * slot.byte);
    }
  };
  for (int row = 0; row < 16; ++row) place(true, row, thread_a, byte_a);
  for (int n = 0; n < 8; ++n) place(false, n, thread_b, byte_b);
  const auto out =
      run(fmt::format(
              "mul.wide.u32 d2, r0, 32;\nadd.s64 d3, d0, d2;\nld.global.v4.b32 {{r4, r5, r6, r7}}, [d3];\n"
              "ld.global.v4.b32 {{r8, r9, r10, r11}}, [d3+16];\nmov.f32 f0, 0f00000000;\nmov.f32 f1, f0;\nmov.f32 f2, "
              "f0;\nmov.f32 f3, f0;\nmma.sync.aligned.{} {{f0, f1, f2, f3}}, {{r4, r5, r6, r7}}, {{r8, r9}}, {{f0, f1, "
              "f2, f3}}, {{r10}}, {{{}, {}}}, {{r11}}, {{{}, {}}};\nmul.wide.u32 d2, r0, 16;\nadd.s64 d4, d1, d2;\n"
              "st.global.v4.f32 [d4], {{f0, f1, f2, f3}};",
              product.spelling, byte_a, thread_a, byte_b, thread_b),
          32, input, 128, "sm_120a");
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < 8; ++n) {
      const FragmentSlot slot = fragment_slot(d, {row, n});
      const int k = n + shift, v = k / block;
      const float expected = std::ldexp(kE2m1[name(row, k)], exponent(row, v) + exponent(n + 4, v));
      CAPTURE(row);
      CAPTURE(n);
      REQUIRE(std::bit_cast<float>(out[static_cast<std::size_t>(slot.lane * 4 + slot.reg)]) == expected);
    }
}

TEST_CASE("probe: block-scaled mma.sync takes elements and scales where the maps say") {
  if (!runs("sm_120a")) return;
  const Scaled nvf4{"kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", 64, 4, 4,
                    true};
  const Scaled mxf4{"kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", 64, 4, 2, false};
  const Scaled mxf8{"kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e2m1.f32.ue8m0", 32, 8, 1,
                    false};
  const Scaled mxf4nv{"kind::mxf4nvf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", 64, 4, 2,
                      false};
  for (const Scaled& product : {nvf4, mxf4, mxf4nv, mxf8})
    for (int shift = 0; shift < product.k; shift += 8)
      for (const int thread_a : {0, 1})
        for (int byte = 0; byte + product.vector <= 4; byte += product.vector)
          check_scaled(product, shift, thread_a, byte, (shift / 8 + byte) % 4, 4 - product.vector - byte);
}

}  // namespace
}  // namespace tessera::probes

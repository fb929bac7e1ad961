// Maps of templates/spec proved by execution: a kernel gets data that name their own places, and what comes out stands
// where the map says. PTX by hand, so that no compiler arranges anything.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "emulator/device.h"
#include "emulator/math/convert.h"
#include "spec/fragment.h"
#include "spec/smem_descriptor.h"

namespace tessera::emulator {
namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;
using layout::FragmentSlot;

/// Runs a kernel body on `threads` threads over an input and a poisoned output: d0 and d1 are their addresses, r0 the
/// thread, `smem` 2,048 bytes at a multiple of 1,024.
std::vector<std::uint32_t> run(const std::string& body, std::uint32_t threads, const std::vector<std::uint32_t>& input,
                               std::size_t outputs, const std::string& arch = "sm_90a") {
  const std::string ptx = fmt::format(
      ".version 9.0\n.target {}\n.address_size 64\n.visible .entry test(.param .u64 in, .param .u64 out)\n{{\n"
      ".reg .pred p;\n.reg .b32 r<32>;\n.reg .b64 d<16>;\n.reg .f32 f<8>;\n.shared .align 1024 .b8 smem[2048];\n"
      "ld.param.u64 d0, [in];\nld.param.u64 d1, [out];\nmov.u32 r0, %tid.x;\nmov.u32 r31, smem;\n{}\nret;\n}}\n",
      arch, body);
  DeviceOptions options;
  options.arch = arch;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(ptx, "probe.ptx");
  DevicePointer in = device.allocate(input.size() * 4), out = device.allocate(outputs * 4);
  device.copy_to_device(in, input.data(), input.size() * 4);
  device.set_bytes(out, 0xEE, outputs * 4);
  void* parameters[] = {&in, &out};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {threads, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.name << ": " << finding.message);
  std::vector<std::uint32_t> result(outputs);
  device.copy_to_host(result.data(), out, outputs * 4);
  return result;
}

/// 512 bytes between global and shared memory: 16 bytes a thread.
constexpr const char* kRowIn =
    "mul.wide.u32 d2, r0, 16;\nadd.s64 d3, d0, d2;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r31, r1;\n"
    "ld.global.v4.b32 {r4, r5, r6, r7}, [d3];\nst.shared.v4.b32 [r2], {r4, r5, r6, r7};\nbar.sync 0;\n";
constexpr const char* kRowOut =
    "mul.wide.u32 d2, r0, 16;\nadd.s64 d4, d1, d2;\nst.global.v4.b32 [d4], {r4, r5, r6, r7};";

std::uint32_t half_of(const std::vector<std::uint32_t>& words, std::size_t index) {
  return words[index / 2] >> (16 * (index % 2)) & 0xFFFF;
}

TEST_CASE("probe: ldmatrix and stmatrix move elements where the map says") {
  std::vector<std::uint32_t> names(128);  // 16-bit element i holds i: row i / 8, column i % 8
  for (std::uint32_t i = 0; i < 128; ++i) names[i] = 2 * i | (2 * i + 1) << 16;
  for (const bool is_trans : {false, true}) {
    const FragmentShape shape{is_trans ? Fragment::matrix_trans : Fragment::matrix, 32, 8, 16};
    const std::string suffix = is_trans ? ".trans" : "";
    const auto loaded = run(fmt::format("{}ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{r4, r5, r6, r7}}, [r2];\n{}",
                                        kRowIn, suffix, kRowOut),
                            32, names, 128);
    const auto stored =
        run(fmt::format("mul.wide.u32 d2, r0, 16;\nadd.s64 d3, d0, d2;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r31, "
                        "r1;\nld.global.v4.b32 {{r4, r5, r6, r7}}, [d3];\n"
                        "stmatrix.sync.aligned.m8n8.x4{}.shared.b16 [r2], {{r4, r5, r6, r7}};\nbar.sync "
                        "0;\nld.shared.v4.b32 {{r4, r5, r6, r7}}, [r2];\n{}",
                        suffix, kRowOut),
            32, names, 128);
    for (int lane = 0; lane < 32; ++lane)
      for (int reg = 0; reg < 4; ++reg)
        for (int index = 0; index < 2; ++index) {
          const FragmentElement at = fragment_element(shape, {lane, reg, index});
          const auto in_registers = static_cast<std::size_t>((lane * 4 + reg) * 2 + index);
          const auto in_memory = static_cast<std::size_t>(at.row * 8 + at.column);
          REQUIRE(half_of(loaded, in_registers) == in_memory);
          REQUIRE(half_of(stored, in_memory) == in_registers);
        }
  }
}

/// D = A B with B[k, n] = 1 where k = n + shift: D shows A's columns from shift on, in D's places. A comes from
/// registers, B from shared memory through a descriptor, both laid out by the maps.
void check_wgmma(layout::SmemLayout smem, layout::Major major, int shift) {
  layout::SmemDescriptor d;
  d.layout = smem;
  const int span = layout::smem_layout_span(smem);
  d.leading_bytes = major == layout::Major::k ? 128 : 256;
  d.stride_bytes = smem == layout::SmemLayout::none ? (major == layout::Major::k ? 256 : 512) : 8 * span;
  std::vector<std::uint32_t> input(512 + 512 + 2);
  const FragmentShape a{Fragment::wgmma_a, 64, 16, 16}, product{Fragment::wgmma_d, 64, 8, 32};
  const auto half = [](int value) {
    return static_cast<std::uint32_t>(
        math::convert<math::Format::f16, math::Format::f32>(std::bit_cast<std::uint32_t>(static_cast<float>(value))));
  };
  for (int lane = 0; lane < 128; ++lane)
    for (int reg = 0; reg < 4; ++reg)
      for (int index = 0; index < 2; ++index) {
        const FragmentElement at = fragment_element(a, {lane, reg, index});
        input[static_cast<std::size_t>(lane * 4 + reg)] |= half(at.row * 16 + at.column) << (16 * index);
      }
  for (int n = 0; n < 8; ++n) {
    const int k = n + shift;
    const unsigned address =
        major == layout::Major::k ? smem_operand_address(d, major, n, 2 * k) : smem_operand_address(d, major, k, 2 * n);
    REQUIRE(address < 2048);
    input[512 + address / 4] |= half(1) << (8 * (address % 4));
  }
  const unsigned long long bits = encode_smem_descriptor(layout::DescriptorKind::wgmma, d);
  std::memcpy(&input[1024], &bits, 8);
  const std::string body = fmt::format(
      "mul.wide.u32 d2, r0, 16;\nadd.s64 d3, d0, d2;\nld.global.v4.b32 {{r4, r5, r6, r7}}, [d3];\n"
      "shl.b32 r1, r0, 4;\nadd.u32 r2, r31, r1;\nld.global.v4.b32 {{r8, r9, r10, r11}}, [d3+2048];\n"
      "st.shared.v4.b32 [r2], {{r8, r9, r10, r11}};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
      "ld.global.b64 d5, [d0+4096];\nshr.u32 r3, r31, 4;\ncvt.u64.u32 d6, r3;\nadd.s64 d5, d5, d6;\n"
      "mov.f32 f0, 0f00000000;\nmov.f32 f1, f0;\nmov.f32 f2, f0;\nmov.f32 f3, f0;\nsetp.ne.u32 p, r31, r31;\n"
      "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{f0, f1, f2, f3}}, {{r4, r5, r6, "
      "r7}}, d5, p, 1, 1, {};\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
      "add.s64 d4, d1, d2;\nst.global.v4.f32 [d4], {{f0, f1, f2, f3}};",
      major == layout::Major::mn ? 1 : 0);
  const auto result = run(body, 128, input, 512);
  for (int row = 0; row < 64; ++row)
    for (int n = 0; n < 8; ++n) {
      const FragmentSlot slot = fragment_slot(product, {row, n});
      CAPTURE(row);
      CAPTURE(n);
      REQUIRE(std::bit_cast<float>(result[static_cast<std::size_t>(slot.lane * 4 + slot.reg)]) ==
              static_cast<float>(row * 16 + n + shift));
    }
}

TEST_CASE("probe: wgmma reads A and B and writes D where the maps say") {
  using layout::Major;
  using layout::SmemLayout;
  for (const int shift : {0, 8}) {
    check_wgmma(SmemLayout::none, Major::k, shift);
    check_wgmma(SmemLayout::b128, Major::k, shift);
    check_wgmma(SmemLayout::b64, Major::k, shift);
    check_wgmma(SmemLayout::b32, Major::k, shift);
    check_wgmma(SmemLayout::none, Major::mn, shift);
    check_wgmma(SmemLayout::b32, Major::mn, shift);
  }
}

/// D = A B with B[k, n] = 1 where k = n + shift, all fragments in registers: D shows A's columns from shift on.
struct Product {
  const char* spelling;
  int k, bits;
  bool is_float;
  int modulus;  // values of A are names modulo this: what the type holds exactly
};

std::uint32_t code_of(const Product& product, int value) {
  const float number = static_cast<float>(value);
  if (!product.is_float) return static_cast<std::uint32_t>(value);
  const auto bits = std::bit_cast<std::uint32_t>(number);
  return product.bits == 32 ? bits
                            : static_cast<std::uint32_t>(math::convert<math::Format::f16, math::Format::f32>(bits));
}

void check_mma(const Product& product, int shift) {
  CAPTURE(product.spelling);
  CAPTURE(shift);
  const FragmentShape a{Fragment::mma_a, 16, product.k, product.bits}, b{Fragment::mma_b, product.k, 8, product.bits};
  const FragmentShape d{Fragment::mma_d, 16, 8, 32};
  std::vector<std::uint32_t> input(32 * 8);
  const auto fill = [&](const FragmentShape& shape, std::size_t first, auto value) {
    for (int row = 0; row < shape.rows; ++row)
      for (int column = 0; column < shape.columns; ++column) {
        const FragmentSlot slot = fragment_slot(shape, {row, column});
        input[static_cast<std::size_t>(slot.lane) * 8 + first + static_cast<std::size_t>(slot.reg)] |=
            code_of(product, value(row, column)) << (slot.index * product.bits);
      }
  };
  const auto name = [&](int row, int k) { return (row * product.k + k) % product.modulus; };
  fill(a, 0, name);
  fill(b, 4, [&](int k, int n) { return k == n + shift ? 1 : 0; });
  const int a_registers = fragment_registers(a), b_registers = fragment_registers(b);
  std::string a_text, b_text;
  for (int i = 0; i < a_registers; ++i) a_text += fmt::format("{}r{}", i == 0 ? "" : ", ", 4 + i);
  for (int i = 0; i < b_registers; ++i) b_text += fmt::format("{}r{}", i == 0 ? "" : ", ", 8 + i);
  const char* const result = product.is_float ? "f0, f1, f2, f3" : "r12, r13, r14, r15";
  const auto out = run(
      fmt::format("mul.wide.u32 d2, r0, 32;\nadd.s64 d3, d0, d2;\nld.global.v4.b32 {{r4, r5, r6, r7}}, [d3];\n"
                  "ld.global.v4.b32 {{r8, r9, r10, r11}}, [d3+16];\nmov.b32 r12, 0;\nmov.b32 r13, 0;\nmov.b32 r14, "
                  "0;\nmov.b32 r15, 0;\nmov.f32 f0, 0f00000000;\nmov.f32 f1, f0;\nmov.f32 f2, f0;\nmov.f32 f3, f0;\n"
                  "mma.sync.aligned.{} {{{}}}, {{{}}}, {{{}}}, {{{}}};\nmul.wide.u32 d2, r0, 16;\nadd.s64 d4, d1, "
                  "d2;\nst.global.v4.{} [d4], {{{}}};",
                  product.spelling, result, a_text, b_text, result, product.is_float ? "f32" : "b32", result),
      32, input, 128);
  for (int row = 0; row < 16; ++row)
    for (int n = 0; n < 8; ++n) {
      const FragmentSlot slot = fragment_slot(d, {row, n});
      const std::uint32_t found = out[static_cast<std::size_t>(slot.lane * 4 + slot.reg)];
      const int value = product.is_float ? static_cast<int>(std::bit_cast<float>(found)) : static_cast<int>(found);
      CAPTURE(row);
      CAPTURE(n);
      REQUIRE(value == name(row, n + shift));
    }
}

TEST_CASE("probe: mma.sync takes A and B and gives D where the maps say") {
  for (const Product& product : {Product{"m16n8k8.row.col.f32.f16.f16.f32", 8, 16, true, 2048},
                                 Product{"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, true, 2048},
                                 Product{"m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, true, 1024},
                                 Product{"m16n8k16.row.col.s32.s8.s8.s32", 16, 8, false, 127},
                                 Product{"m16n8k32.row.col.s32.u8.u8.s32", 32, 8, false, 251},
                                 Product{"m16n8k32.row.col.s32.u4.u4.s32", 32, 4, false, 13},
                                 Product{"m16n8k64.row.col.s32.u4.u4.s32", 64, 4, false, 15}})
    for (int shift = 0; shift < product.k; shift += 8) check_mma(product, shift);
}

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
  const Scaled nvf4{"kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", 64, 4, 4,
                    true};
  const Scaled mxf4{"kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", 64, 4, 2, false};
  const Scaled mxf8{"kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e2m1.f32.ue8m0", 32, 8, 1,
                    false};
  for (const Scaled& product : {nvf4, mxf4, mxf8})
    for (int shift = 0; shift < product.k; shift += 8)
      for (const int thread_a : {0, 1})
        for (int byte = 0; byte + product.vector <= 4; byte += product.vector)
          check_scaled(product, shift, thread_a, byte, (shift / 8 + byte) % 4, 4 - product.vector - byte);
}

TEST_CASE("probe: tcgen05.ld and .st move cells where the maps say") {
  struct Shape {
    const char* spelling;
    Fragment fragment;
    int lanes, registers;
  };
  std::vector<std::uint32_t> names(32 * 8);
  for (std::uint32_t i = 0; i < names.size(); ++i) names[i] = i;  // lane i / 8, column i % 8
  // Eight columns: written a lane a thread, read in the shape; then written in the shape and read a lane a thread.
  const std::string head =
      "and.b32 r1, r0, 31;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r31], 32;\nbar.sync 0;\n"
      "ld.shared.b32 r2, [r31];\nmul.wide.u32 d2, r0, 32;\nadd.s64 d3, d0, d2;\nadd.s64 d4, d1, d2;\n"
      "ld.global.v4.b32 {r4, r5, r6, r7}, [d3];\nld.global.v4.b32 {r8, r9, r10, r11}, [d3+16];\n";
  const std::string tail =
      "st.global.v4.b32 [d4], {r4, r5, r6, r7};\nst.global.v4.b32 [d4+16], {r8, r9, r10, r11};\n"
      "tcgen05.dealloc.cta_group::1.sync.aligned.b32 r2, 32;\n";
  const std::string all = "r4, r5, r6, r7, r8, r9, r10, r11", four = "r4, r5, r6, r7";
  const auto move = [](const char* way, const std::string& shape, const std::string& registers) {
    const std::string split = shape.find("32bx2") == std::string::npos ? "" : ", 4";
    return std::string(way) == "ld"
               ? fmt::format("tcgen05.ld.sync.aligned.{}.b32 {{{}}}, [r2]{};\ntcgen05.wait::ld.sync.aligned;\n", shape,
                             registers, split)
               : fmt::format("tcgen05.st.sync.aligned.{}.b32 [r2]{}, {{{}}};\ntcgen05.wait::st.sync.aligned;\n", shape,
                             split, registers);
  };
  for (const Shape& shape :
       {Shape{"32x32b.x8", Fragment::tmem_32x32b, 32, 8}, Shape{"16x64b.x4", Fragment::tmem_16x64b, 16, 4},
        Shape{"16x128b.x2", Fragment::tmem_16x128b, 16, 4}, Shape{"16x256b.x1", Fragment::tmem_16x256b, 16, 4},
        Shape{"16x32bx2.x4", Fragment::tmem_16x32bx2, 16, 4}}) {
    CAPTURE(shape.spelling);
    const FragmentShape map{shape.fragment, shape.lanes, 8, 32};
    const std::string& registers = shape.registers == 8 ? all : four;
    const auto loaded = run(head + move("st", "32x32b.x8", all) + move("ld", shape.spelling, registers) + tail, 32,
                            names, 256, "sm_100a");
    const auto stored = run(head + move("st", "32x32b.x8", all) + move("st", shape.spelling, registers) +
                                move("ld", "32x32b.x8", all) + tail,
                            32, names, 256, "sm_100a");
    for (int lane = 0; lane < 32; ++lane)
      for (int reg = 0; reg < shape.registers; ++reg) {
        const FragmentElement at = fragment_element(map, {lane, reg, 0});
        REQUIRE(loaded[static_cast<std::size_t>(lane * 8 + reg)] == static_cast<std::uint32_t>(at.row * 8 + at.column));
        REQUIRE(stored[static_cast<std::size_t>(at.row * 8 + at.column)] == static_cast<std::uint32_t>(lane * 8 + reg));
      }
  }
}

}  // namespace
}  // namespace tessera::emulator

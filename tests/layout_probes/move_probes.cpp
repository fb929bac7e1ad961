// ldmatrix, stmatrix, tcgen05.ld and .st: elements that are numbers move to where the map says.
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

/// 512 bytes between global and shared memory: 16 bytes a thread.
constexpr const char* kRowIn =
    "mul.wide.u32 d2, r0, 16;\nadd.s64 d3, d0, d2;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r159, r1;\n"
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
        run(fmt::format("mul.wide.u32 d2, r0, 16;\nadd.s64 d3, d0, d2;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r159, "
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

TEST_CASE("probe: tcgen05.ld and .st move cells where the maps say") {
  if (!runs("sm_100a")) return;
  struct Shape {
    const char* spelling;
    Fragment fragment;
    int lanes, registers;
  };
  std::vector<std::uint32_t> names(32 * 8);
  for (std::uint32_t i = 0; i < names.size(); ++i) names[i] = i;  // lane i / 8, column i % 8
  // Eight columns: written a lane a thread, read in the shape; then written in the shape and read a lane a thread.
  const std::string head =
      "and.b32 r1, r0, 31;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r159], 32;\nbar.sync 0;\n"
      "ld.shared.b32 r2, [r159];\nmul.wide.u32 d2, r0, 32;\nadd.s64 d3, d0, d2;\nadd.s64 d4, d1, d2;\n"
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
}  // namespace tessera::probes

// ldmatrix and stmatrix in every form: elements that name their own places move to where the map says. 8-bit and
// narrower elements name theirs by digits, a run for each.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "spec/fragment.h"
#include "tests/layout_probes/codes.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;

struct Move {
  std::string spelling;
  FragmentShape shape;
  int width;  ///< bits of an element in memory: 4 and 6 become bytes in registers
  const char* arch = "sm_90a";
};

/// 512 bytes between global and shared memory: 16 bytes a thread, which are the row whose address it gives.
constexpr const char* kRowIn =
    "mul.wide.u32 d2, r0, 16;\nadd.s64 d3, d0, d2;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r159, r1;\n"
    "ld.global.v4.b32 {r4, r5, r6, r7}, [d3];\n";
constexpr const char* kRowOut =
    "mul.wide.u32 d2, r0, 16;\nadd.s64 d4, d1, d2;\nst.global.v4.b32 [d4], {r4, r5, r6, r7};";

/// `width` bits from bit `first` of four words.
std::uint32_t bits_of(const std::uint32_t* row, int first, int width) {
  std::uint32_t value = 0;
  for (int i = 0; i < width; ++i) value |= (row[(first + i) / 32] >> ((first + i) % 32) & 1) << i;
  return value;
}
void set_bits(std::uint32_t* row, int first, int width, std::uint32_t value) {
  for (int i = 0; i < width; ++i) row[(first + i) / 32] |= (value >> i & 1) << ((first + i) % 32);
}

void check_load(const Move& move) {
  CAPTURE(move.spelling);
  const FragmentShape& s = move.shape;
  const int registers_of_lane = fragment_registers(s), base = 1 << move.width;
  for (int place = 0; place < digits_for(base, s.rows * s.columns); ++place) {
    const auto name = [&](const FragmentElement& at) {
      return static_cast<std::uint32_t>(digit(base, at.row * s.columns + at.column, place));
    };
    std::vector<std::uint32_t> rows(128);
    for (int r = 0; r < s.rows; ++r)
      for (int c = 0; c < s.columns; ++c)
        set_bits(&rows[static_cast<std::size_t>(4 * r)], c * move.width, move.width, name({r, c}));
    const auto out = run(fmt::format("{}st.shared.v4.b32 [r2], {{r4, r5, r6, r7}};\nbar.sync 0;\n{} {{{}}}, [r2];\n{}",
                                     kRowIn, move.spelling, registers('r', 4, registers_of_lane), kRowOut),
                         32, rows, 128, move.arch);
    for (int lane = 0; lane < 32; ++lane)
      for (int reg = 0; reg < registers_of_lane; ++reg)
        for (int index = 0; index < fragment_elements(s); ++index) {
          CAPTURE(lane);
          CAPTURE(reg);
          REQUIRE(bits_of(&out[static_cast<std::size_t>(lane * 4 + reg)], index * s.bits, s.bits) ==
                  name(fragment_element(s, {lane, reg, index})));
        }
  }
}

void check_store(const Move& move) {
  CAPTURE(move.spelling);
  const FragmentShape& s = move.shape;
  const int registers_of_lane = fragment_registers(s), per = fragment_elements(s), base = 1 << s.bits;
  for (int place = 0; place < digits_for(base, 32 * registers_of_lane * per); ++place) {
    const auto name = [&](int lane, int reg, int index) {
      return static_cast<std::uint32_t>(digit(base, (lane * registers_of_lane + reg) * per + index, place));
    };
    std::vector<std::uint32_t> lanes(128);
    for (int lane = 0; lane < 32; ++lane)
      for (int reg = 0; reg < registers_of_lane; ++reg)
        for (int index = 0; index < per; ++index)
          set_bits(&lanes[static_cast<std::size_t>(lane * 4 + reg)], index * s.bits, s.bits, name(lane, reg, index));
    const auto out =
        run(fmt::format("{}mov.b32 r8, 0;\nst.shared.v4.b32 [r2], {{r8, r8, r8, r8}};\nbar.sync 0;\n{} [r2], "
                        "{{{}}};\nbar.sync 0;\nld.shared.v4.b32 {{r4, r5, r6, r7}}, [r2];\n{}",
                        kRowIn, move.spelling, registers('r', 4, registers_of_lane), kRowOut),
            32, lanes, 128, move.arch);
    for (int lane = 0; lane < 32; ++lane)
      for (int reg = 0; reg < registers_of_lane; ++reg)
        for (int index = 0; index < per; ++index) {
          const FragmentElement at = fragment_element(s, {lane, reg, index});
          CAPTURE(lane);
          CAPTURE(reg);
          REQUIRE(bits_of(&out[static_cast<std::size_t>(4 * at.row)], at.column * s.bits, s.bits) ==
                  name(lane, reg, index));
        }
  }
}

TEST_CASE("probe: ldmatrix and stmatrix of 16 bits move elements where the maps say") {
  for (const int count : {1, 2, 4})
    for (const bool is_trans : {false, true}) {
      const std::string name = fmt::format(".sync.aligned.m8n8.x{}{}.shared.b16", count, is_trans ? ".trans" : "");
      const FragmentShape shape{is_trans ? Fragment::matrix_trans : Fragment::matrix, 8 * count, 8, 16};
      check_load({"ldmatrix" + name, shape, 16});
      check_store({"stmatrix" + name, shape, 16});
    }
}

TEST_CASE("probe: ldmatrix and stmatrix of 8 bits and fewer move elements where the maps say") {
  for (const char* arch : {"sm_100a", "sm_120a"}) {
    if (!runs(arch)) continue;
    for (const int count : {1, 2, 4}) {
      check_store({fmt::format("stmatrix.sync.aligned.m16n8.x{}.trans.shared.b8", count),
                   {Fragment::matrix_store_b8, 8 * count, 16, 8},
                   8,
                   arch});
      for (const auto& [format, width] : {std::pair("b6x16_p32", 6), std::pair("b4x16_p64", 4)}) {
        check_load({fmt::format("ldmatrix.sync.aligned.m8n16.x{}.shared.b8x16.{}", count, format),
                    {Fragment::matrix_narrow, 8 * count, 16, 8},
                    width,
                    arch});
        if (count < 4)
          check_load({fmt::format("ldmatrix.sync.aligned.m16n16.x{}.trans.shared.b8x16.{}", count, format),
                      {Fragment::matrix_trans_b8, 16 * count, 16, 8},
                      width,
                      arch});
      }
      if (count < 4)
        check_load({fmt::format("ldmatrix.sync.aligned.m16n16.x{}.trans.shared.b8", count),
                    {Fragment::matrix_trans_b8, 16 * count, 16, 8},
                    8,
                    arch});
    }
  }
}

}  // namespace
}  // namespace tessera::probes

// tcgen05.ld and .st in every shape and count, packed too: cells of Tensor Memory that name their own places move to
// where the maps say. In the emulator only: never run on such a device.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "spec/fragment.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;

constexpr int kChunk = 32;  // columns that one x32 moves

struct Move {
  std::string shape;  ///< "16x64b.x4"
  FragmentShape map;
  bool is_packed = false;
  int columns() const { return std::max(kChunk, map.columns); }
};

std::string move_text(const Move& move, bool is_load, const std::string& values) {
  const std::string pack = !move.is_packed ? "" : is_load ? ".pack::16b" : ".unpack::16b";
  const std::string split =
      move.map.fragment == Fragment::tmem_16x32bx2 ? fmt::format(", {}", move.map.columns / 2) : "";
  return is_load ? fmt::format("tcgen05.ld.sync.aligned.{}{}.b32 {{{}}}, [r2]{};\ntcgen05.wait::ld.sync.aligned;\n",
                               move.shape, pack, values, split)
                 : fmt::format("tcgen05.st.sync.aligned.{}{}.b32 [r2]{}, {{{}}};\ntcgen05.wait::st.sync.aligned;\n",
                               move.shape, pack, split, values);
}

/// All cells of 32 lanes, a lane a thread, between Tensor Memory and memory at d3 (in) or d4 (out).
std::string all_cells(int columns, bool is_in) {
  std::string body;
  for (int first = 0; first < columns; first += kChunk) {
    const std::string values = registers('r', 4, kChunk);
    body += fmt::format("add.u32 r3, r2, {};\n", first);
    std::string words;
    for (int i = 0; i < kChunk; ++i)
      words += is_in ? fmt::format("ld.global.b32 r{}, [d3+{}];\n", 4 + i, 4 * (first + i))
                     : fmt::format("st.global.b32 [d4+{}], r{};\n", 4 * (first + i), 4 + i);
    body +=
        is_in ? fmt::format("{}tcgen05.st.sync.aligned.32x32b.x32.b32 [r3], {{{}}};\ntcgen05.wait::st.sync.aligned;\n",
                            words, values)
              : fmt::format("tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{}}}, [r3];\ntcgen05.wait::ld.sync.aligned;\n{}",
                            values, words);
  }
  return body;
}

std::string body_of(const std::string& middle, int in_words, int out_words) {
  return fmt::format(
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r159], 512;\nbar.sync 0;\nld.shared.b32 r2, [r159];\n"
      "mul.wide.u32 d2, r0, {};\nadd.s64 d3, d0, d2;\nmul.wide.u32 d2, r0, {};\nadd.s64 d4, d1, d2;\n{}"
      "tcgen05.dealloc.cta_group::1.sync.aligned.b32 r2, 512;\n",
      4 * in_words, 4 * out_words, middle);
}

/// Cell names: the lane and the column.
std::vector<std::uint32_t> named_cells(int columns) {
  std::vector<std::uint32_t> cells(static_cast<std::size_t>(32 * columns));
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<std::uint32_t>(i);
  return cells;
}

void check_load(const Move& move) {
  CAPTURE(move.shape);
  const int columns = move.columns(), count = fragment_registers(move.map);
  std::string middle = all_cells(columns, true) + move_text(move, true, registers('r', 4, count));
  for (int i = 0; i < count; ++i) middle += fmt::format("st.global.b32 [d4+{}], r{};\n", 4 * i, 4 + i);
  const auto out =
      run(body_of(middle, columns, count), 32, named_cells(columns), static_cast<std::size_t>(32 * count), "sm_100a");
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < count; ++reg)
      for (int index = 0; index < fragment_elements(move.map); ++index) {
        const FragmentElement at = fragment_element(move.map, {lane, reg, index});
        const std::uint32_t word = out[static_cast<std::size_t>(lane * count + reg)];
        CAPTURE(lane);
        CAPTURE(reg);
        REQUIRE((move.is_packed ? word >> (16 * index) & 0xFFFF : word) ==
                static_cast<std::uint32_t>(at.row * columns + at.column));
      }
}

void check_store(const Move& move) {
  CAPTURE(move.shape);
  const int columns = move.columns(), count = fragment_registers(move.map), in = columns + count;
  std::vector<std::uint32_t> input(static_cast<std::size_t>(32 * in));
  const auto name = [&](int lane, int reg, int index) {
    return static_cast<std::uint32_t>((lane * count + reg) * (move.is_packed ? 2 : 1) + index);
  };
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < count; ++reg)
      input[static_cast<std::size_t>(lane * in + columns + reg)] =
          move.is_packed ? name(lane, reg, 0) | name(lane, reg, 1) << 16 : name(lane, reg, 0);
  std::string middle = all_cells(columns, true);
  for (int i = 0; i < count; ++i) middle += fmt::format("ld.global.b32 r{}, [d3+{}];\n", 4 + i, 4 * (columns + i));
  middle += move_text(move, false, registers('r', 4, count)) + all_cells(columns, false);
  const auto out = run(body_of(middle, in, columns), 32, input, static_cast<std::size_t>(32 * columns), "sm_100a");
  for (int lane = 0; lane < 32; ++lane)
    for (int reg = 0; reg < count; ++reg)
      for (int index = 0; index < fragment_elements(move.map); ++index) {
        const FragmentElement at = fragment_element(move.map, {lane, reg, index});
        const std::uint32_t cell = out[static_cast<std::size_t>(at.row * columns + at.column)];
        CAPTURE(lane);
        CAPTURE(reg);
        REQUIRE((move.is_packed ? cell & 0xFFFF : cell) == name(lane, reg, index));
      }
}

TEST_CASE("probe: tcgen05.ld and .st move cells where the maps say, every shape and count") {
  if (!runs("sm_100a")) return;
  struct Row {
    const char* name;
    Fragment fragment;
    int lanes, columns, most;
  };
  for (const Row& row :
       {Row{"32x32b", Fragment::tmem_32x32b, 32, 1, 128}, Row{"16x64b", Fragment::tmem_16x64b, 16, 2, 128},
        Row{"16x128b", Fragment::tmem_16x128b, 16, 4, 64}, Row{"16x256b", Fragment::tmem_16x256b, 16, 8, 32},
        Row{"16x32bx2", Fragment::tmem_16x32bx2, 16, 2, 128}})
    for (int count = 1; count <= row.most; count *= 2)
      for (const bool is_packed : {false, true}) {
        const int per = is_packed ? 2 : 1;
        const Move move{fmt::format("{}.x{}", row.name, count),
                        {row.fragment, row.lanes, row.columns * count * per, 32 / per},
                        is_packed};
        check_load(move);
        check_store(move);
      }
}

TEST_CASE("probe: tcgen05.ld.red reads its cells where the map says, and their largest") {
  if (!runs("sm_103a")) return;
  const FragmentShape map{Fragment::tmem_32x32b, 32, 8, 32};
  const std::string middle =
      all_cells(kChunk, true) +
      fmt::format("tcgen05.ld.red.sync.aligned.32x32b.x8.max.u32 {{{}}}, r40, [r2];\ntcgen05.wait::ld.sync.aligned;\n",
                  registers('r', 4, 8));
  std::string stores;
  for (int i = 0; i < 8; ++i) stores += fmt::format("st.global.b32 [d4+{}], r{};\n", 4 * i, 4 + i);
  const auto out = run(body_of(middle + stores + "st.global.b32 [d4+32], r40;\n", kChunk, 9), 32, named_cells(kChunk),
                       32 * 9, "sm_103a");
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 8; ++reg) {
      const FragmentElement at = fragment_element(map, {lane, reg, 0});
      REQUIRE(out[static_cast<std::size_t>(lane * 9 + reg)] == static_cast<std::uint32_t>(at.row * kChunk + at.column));
    }
    REQUIRE(out[static_cast<std::size_t>(lane * 9 + 8)] == static_cast<std::uint32_t>(lane * kChunk + 7));
  }
}

}  // namespace
}  // namespace tessera::probes

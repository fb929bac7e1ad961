// Block scales on their way: the byte in global memory, the tile of 512 bytes, its cell in Tensor Memory, and which
// byte of which register feeds mma.sync.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/layout_command.h"
#include "spec/block_scale.h"
#include "spec/fragment.h"

namespace tessera::cli {

namespace {

struct Problem {
  BlockFormat format = BlockFormat::nvfp4;
  std::int64_t rows = 128, k = 256, blocks = 16;
};

void add_element(LayoutPage& page, const Problem& p, std::int64_t row, std::int64_t k) {
  const std::int64_t block = k / block_elements(p.format);
  const layout::TmemScale cell = layout::tmem_scale_place(p.rows, row, block);
  const std::int64_t plain = scale_offset(ScaleForm::plain, p.rows, p.blocks, 0, row, block);
  const std::int64_t tile = scale_offset(ScaleForm::tile, p.rows, p.blocks, 0, row, block);
  const auto fact = [&](const char* name, std::string text) { page.facts.emplace_back(name, std::move(text)); };
  fact("element", fmt::format("row {}, k {}: block {}", row, k, block));
  fact("plain form, byte", fmt::format("{}", plain));
  fact("tile form, byte", fmt::format("{} = tile {} x 512 + line {} x 16 + {}", tile, tile / kTileBytes,
                                      tile % kTileBytes / 16, tile % 16));
  fact("Tensor Memory", fmt::format("lanes {0}, {0} + 32, + 64, + 96; column {1} from the scale address, byte {2}",
                                    cell.lane, cell.column, cell.byte));
  const bool is_four = value_type(p.format) == ValueType::e2m1;
  const int vector = p.format == BlockFormat::nvfp4 ? 4 : is_four ? 2 : 1;
  const auto in_step = static_cast<int>(block % vector),
             byte_id = vector == 4 ? 0 : static_cast<int>(block % 4 / vector * vector);
  fact("tcgen05.mma",
       fmt::format("scale id {} of the instruction descriptor, byte {} of the cell", byte_id, byte_id + in_step));
  const layout::ScaleSlot a = layout::mma_scale_slot(true, 0, byte_id, static_cast<int>(row % 16), in_step);
  const layout::ScaleSlot b = layout::mma_scale_slot(false, 0, byte_id, static_cast<int>(row % 8), in_step);
  fact("mma.sync, as A", fmt::format("row {} of 16: thread {} (thread-id 0) or {} (1), byte {} (byte-id {})", row % 16,
                                     a.lane, a.lane + 2, a.byte, byte_id));
  fact("mma.sync, as B",
       fmt::format("column {} of 8: thread {} + thread-id, byte {} (byte-id {})", row % 8, b.lane, b.byte, byte_id));
}

}  // namespace

LayoutPage layout_scale_factors(const LayoutArguments& arguments) {
  Problem p;
  p.format = static_cast<BlockFormat>(arguments.subject_word({"nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"}));
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  const int block = block_elements(p.format);
  p.rows = arguments.number("rows", 128, 1, kMost);
  p.k = arguments.number("k", 4 * block, 1, kMost);
  if (p.k % block != 0)
    throw Error(ErrorKind::usage, fmt::format("--k = {}: must be a multiple of {}, the elements of a block of {}", p.k,
                                              block, arguments.subject));
  p.blocks = p.k / block;
  LayoutPage page;
  page.title = fmt::format("scale factors of {}, {} rows by {} of K", arguments.subject, p.rows, p.k);
  page.facts = {{"scale", fmt::format("{}, one for {} elements along K: {} a row",
                                      scale_type(p.format) == ScaleType::ue4m3 ? "ue4m3" : "ue8m0", block, p.blocks)},
                {"plain form", fmt::format("{} bytes", scale_bytes(ScaleForm::plain, 1, p.rows, p.blocks))},
                {"tile form", fmt::format("{} bytes: {} x {} tiles of 128 rows by 4 blocks, 512 bytes",
                                          scale_bytes(ScaleForm::tile, 1, p.rows, p.blocks),
                                          ceil_div(p.rows, kTileRows), ceil_div(p.blocks, kTileBlocks))},
                {"columns of Tensor Memory", fmt::format("{} for each 4 blocks of K", ceil_div(p.rows, 128) * 4)}};
  std::int64_t row = 0, k = 0;
  if (arguments.has("element")) {
    const auto at = arguments.list("element", 2, 2, 0, kMost);
    row = at[0];
    k = at[1];
    if (row >= p.rows || k >= p.k)
      throw Error(ErrorKind::usage,
                  fmt::format("--element = {}: there are {} rows and {} of K", arguments.text("element"), p.rows, p.k));
    add_element(page, p, row, k);
  }
  // The tile of the element, as memory holds it.
  const std::int64_t first_row = row / kTileRows * kTileRows, first_block = k / block / kTileBlocks * kTileBlocks;
  LayoutGrid grid = make_grid(
      fmt::format("the tile of rows {} and up, blocks {} and up: row,block of each byte; a line of 16 bytes is a "
                  "lane of Tensor Memory, four bytes a column",
                  first_row, first_block),
      "line", numbers(32), "byte", numbers(16));
  for (int r = 0; r < kTileRows; ++r)
    for (int b = 0; b < kTileBlocks; ++b) {
      const int offset = scale_offset_in_tile(r, b);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(offset / 16), static_cast<std::size_t>(offset % 16));
      const std::int64_t at_row = first_row + r, at_block = first_block + b;
      cell.text = fmt::format("{},{}", at_row, at_block);
      cell.link = cell.text;
      cell.group = r / 32;
      cell.is_outside = at_row >= p.rows || at_block >= p.blocks;
      cell.is_marked = arguments.has("element") && at_row == row && at_block == k / block;
      const layout::TmemScale place = layout::tmem_scale_place(p.rows, at_row, at_block);
      cell.values = {{"row", at_row},           {"block", at_block},           {"byte", offset},
                     {"tmem_lane", place.lane}, {"tmem_column", place.column}, {"tmem_byte", place.byte}};
    }
  page.grids.push_back(std::move(grid));
  page.notes.push_back("bytes of rows and blocks that do not exist may hold anything and must not reach a result");
  page.notes.push_back("tcgen05 and block-scaled mma.sync: from the manual, never run on Blackwell hardware here");
  return page;
}

}  // namespace tessera::cli

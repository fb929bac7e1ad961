// Block scales on their way: the byte in global memory, the tile of 512 bytes,
// its cell in Tensor Memory, and which byte of which register feeds mma.sync.
#include <fmt/format.h>

#include <algorithm>

#include "cli/layout_command.h"
#include "spec/fragment.h"
#include "tessera/error.h"
#include "tessera/spec/block_scale.h"

namespace tessera::cli {

namespace {

struct ScaleProblem {
  BlockFormat format = BlockFormat::nvfp4;
  std::int64_t rows = 128, k = 256, blocks = 16;
};

/// How many scales of a row one product takes, in K: 4X, 2X, 1X.
int scale_vector(BlockFormat format) {
  return format == BlockFormat::nvfp4 ? 4 : value_type(format) == ValueType::e2m1 ? 2 : 1;
}

void add_element(LayoutPage& page, const ScaleProblem& p, std::int64_t row, std::int64_t k) {
  const std::int64_t block = k / block_elements(p.format);
  const layout::TmemScale cell = layout::tmem_scale_place(p.rows, row, block);
  const std::int64_t plain = scale_offset(ScaleForm::plain, p.rows, p.blocks, 0, row, block);
  const std::int64_t tile = scale_offset(ScaleForm::tile, p.rows, p.blocks, 0, row, block);
  const auto fact = [&](const char* name, std::string text) { page.facts.emplace_back(name, std::move(text)); };
  fact("element", fmt::format("row {}, k {}: block {}", row, k, block));
  fact("plain form, byte", fmt::format("{}", plain));
  fact("tile form, byte", fmt::format("{} = tile {} x 512 + line {} x 16 + {}", tile, tile / kTileBytes,
                                      tile % kTileBytes / 16, tile % 16));
  fact("Tensor Memory", fmt::format("lanes {0}, {0} + 32, + 64, + 96; column "
                                    "{1} from the scale address, byte {2}",
                                    cell.lane, cell.column, cell.byte));
  const int vector = scale_vector(p.format);
  const auto in_step = static_cast<int>(block % vector),
             byte_id = vector == 4 ? 0 : static_cast<int>(block % 4 / vector * vector);
  fact("tcgen05.mma",
       fmt::format("scale id {} of the instruction descriptor, byte {} of the cell", byte_id, byte_id + in_step));
  const layout::ScaleSlot a = layout::mma_scale_slot(true, 0, byte_id, static_cast<int>(row % 16), in_step);
  const layout::ScaleSlot b = layout::mma_scale_slot(false, 0, byte_id, static_cast<int>(row % 8), in_step);
  fact("mma.sync, as A", fmt::format("row {} of 16: thread {} (thread-id 0) or {} (1), byte {} "
                                     "(byte-id {})",
                                     row % 16, a.lane, a.lane + 2, a.byte, byte_id));
  fact("mma.sync, as B",
       fmt::format("column {} of 8: thread {} + thread-id, byte {} (byte-id {})", row % 8, b.lane, b.byte, byte_id));
}

/// The tile of 128 rows by 4 blocks that the page shows.
struct ScaleTile {
  std::int64_t first_row = 0, first_block = 0;
};

struct AskedScale {
  std::int64_t row = -1, block = -1;
};

LayoutCell cell_of(const ScaleProblem& p, const AskedScale& asked, std::int64_t row, std::int64_t block) {
  LayoutCell cell;
  const layout::TmemScale place = layout::tmem_scale_place(p.rows, row, block);
  cell.link = fmt::format("{},{}", row, block);
  cell.group = static_cast<int>(row % 128 / 32);
  cell.is_outside = row >= p.rows || block >= p.blocks;
  cell.is_marked = row == asked.row && block == asked.block;
  cell.values = {{"row", row},
                 {"block", block},
                 {"byte", scale_offset_in_tile(static_cast<int>(row % 128), static_cast<int>(block % 4))},
                 {"tmem_lane", place.lane},
                 {"tmem_column", place.column},
                 {"tmem_byte", place.byte}};
  return cell;
}

/// As memory and Tensor Memory hold it: what each byte is.
LayoutGrid tile_grid(const ScaleProblem& p, const ScaleTile& tile, const AskedScale& asked) {
  LayoutGrid grid = make_grid(fmt::format("the tile of rows {} and up, blocks {} and up, in global and "
                                          "shared memory: row,block of each byte; a "
                                          "line of 16 bytes becomes a lane of Tensor Memory, four "
                                          "bytes a column",
                                          tile.first_row, tile.first_block),
                              "line", numbers(32), "byte", numbers(16));
  for (int r = 0; r < kTileRows; ++r)
    for (int b = 0; b < kTileBlocks; ++b) {
      const int offset = scale_offset_in_tile(r, b);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(offset / 16), static_cast<std::size_t>(offset % 16));
      cell = cell_of(p, asked, tile.first_row + r, tile.first_block + b);
      cell.text = cell.is_outside ? "pad" : cell.link;
    }
  return grid;
}

/// The other direction: where each scale is, and what selects it in
/// tcgen05.mma.
LayoutGrid place_grid(const ScaleProblem& p, const ScaleTile& tile, const AskedScale& asked) {
  const int vector = scale_vector(p.format);
  std::vector<std::string> rows, columns;
  for (int b = 0; b < kTileBlocks; ++b) {
    const int id = vector == 4 ? 0 : b / vector * vector;
    columns.push_back(fmt::format("block {}, id {}", tile.first_block + b, id));
  }
  for (int r = 0; r < kTileRows; ++r) rows.push_back(fmt::format("{}", tile.first_row + r));
  LayoutGrid grid = make_grid(
      "where each scale is: byte of its tile; lane (L), column (c) "
      "and byte (b) of Tensor Memory. id: the scale id of "
      "the instruction descriptor with which tcgen05.mma takes it",
      "row", rows, "block", columns);
  for (int r = 0; r < kTileRows; ++r)
    for (int b = 0; b < kTileBlocks; ++b) {
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(b));
      cell = cell_of(p, asked, tile.first_row + r, tile.first_block + b);
      cell.text = cell.is_outside ? "pad"
                                  : fmt::format("{}: L{} c{} b{}", cell.values[2].second, cell.values[3].second,
                                                cell.values[4].second, cell.values[5].second);
    }
  return grid;
}

/// mma.sync: which thread's scale register has which byte. Rows repeat every 16
/// of A, every 8 of B.
LayoutGrid register_grid(const ScaleProblem& p, const ScaleTile& tile, bool is_a) {
  const int vector = scale_vector(p.format), count = is_a ? 16 : 8;
  std::vector<std::string> columns;
  for (int b = 0; b < kTileBlocks; ++b)
    columns.push_back(fmt::format("block {}, byte-id {}", tile.first_block + b, vector == 4 ? 0 : b / vector * vector));
  LayoutGrid grid = make_grid(is_a ? "mma.sync, row of A by its rest of 16: thread (thread-id 0; + 2 "
                                     "with 1) and byte of its scale register"
                                   : "mma.sync, column of B by its rest of 8: thread (+ thread-id) and "
                                     "byte of its scale register",
                              is_a ? "row % 16" : "column % 8", numbers(count), "block", columns);
  for (int r = 0; r < count; ++r)
    for (int b = 0; b < kTileBlocks; ++b) {
      const int byte_id = vector == 4 ? 0 : b / vector * vector;
      const layout::ScaleSlot slot = layout::mma_scale_slot(is_a, 0, byte_id, r, b - byte_id);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(b));
      cell.text = fmt::format("T{} byte {}", slot.lane, slot.byte);
      cell.link = fmt::format("{},{}", tile.first_row + r, tile.first_block + b);
      cell.group = slot.lane % 4;
      cell.values = {
          {is_a ? "row" : "column", r}, {"block", tile.first_block + b}, {"lane", slot.lane}, {"byte", slot.byte}};
    }
  return grid;
}

}  // namespace

LayoutPage layout_scale_factors(const LayoutArguments& arguments) {
  static const std::vector<std::string_view> kFormats = {"nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp8"};
  ScaleProblem p;
  const std::size_t format = arguments.subject_word(kFormats);
  p.format = static_cast<BlockFormat>(format == 4 ? 2 : format);  // the scales of both mxfp8 lie alike
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  const int block = block_elements(p.format);
  p.rows = arguments.number("rows", 128, 1, kMost);
  p.k = arguments.number("k", 4 * block, 1, kMost);
  if (p.k % block != 0)
    throw Error(ErrorKind::usage, fmt::format("--k = {}: must be a multiple of {}, the elements "
                                              "of a block of {}; pad K with zeros",
                                              p.k, block, arguments.subject));
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
  ScaleTile tile;
  AskedScale asked;
  if (arguments.has("element")) {
    const auto at = arguments.list("element", 2, 2, 0, kMost);
    if (at[0] >= p.rows || at[1] >= p.k)
      throw Error(ErrorKind::usage,
                  fmt::format("--element = {}: there are {} rows and {} of K", arguments.text("element"), p.rows, p.k));
    add_element(page, p, at[0], at[1]);
    asked = {at[0], at[1] / block};
    tile = {asked.row / kTileRows * kTileRows, asked.block / kTileBlocks * kTileBlocks};
  }
  page.grids = {tile_grid(p, tile, asked), place_grid(p, tile, asked), register_grid(p, tile, true),
                register_grid(p, tile, false)};
  page.notes.push_back(
      "pad: bytes of rows and blocks that do not exist; they "
      "may hold anything and must not reach a result");
  page.notes.push_back(
      "tcgen05 and block-scaled mma.sync: from the manual, "
      "never run on Blackwell hardware here");
  return page;
}

}  // namespace tessera::cli

// A swizzled tile in shared memory: where each 16-byte chunk lies, in which banks, and how many passes an access takes.
//
// Shared memory has 32 banks of 4 bytes; an access of a warp (or of the 8 lanes that move 16 bytes each in one pass)
// takes as many passes as the fullest bank has different words.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "cli/layout_command.h"
#include "spec/smem_descriptor.h"

namespace tessera::cli {

namespace {

using layout::SmemLayout;

struct Tile {
  SmemLayout mode = SmemLayout::none;
  unsigned base = 0;
  int rows = 8, row_bytes = 128, pitch = 128;

  unsigned address(int row, int byte) const {
    const unsigned plain = base + static_cast<unsigned>(row * pitch + byte);
    return plain ^ layout::smem_layout_xor(mode, plain >> 7);
  }
};

/// Passes for lanes that read `bytes` each from these addresses.
int passes(const std::vector<unsigned>& addresses, unsigned bytes) {
  std::array<std::set<unsigned>, 32> words;
  for (const unsigned address : addresses)
    for (unsigned at = address / 4; at < (address + bytes + 3) / 4; ++at) words[at % 32].insert(at);
  std::size_t most = 1;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return static_cast<int>(most);
}

std::vector<unsigned> column_of_chunks(const Tile& tile, int row, int chunk) {
  std::vector<unsigned> addresses;
  for (int i = 0; i < 8; ++i) addresses.push_back(tile.address(row + i, chunk * 16));
  return addresses;
}

std::vector<unsigned> column_of_words(const Tile& tile, int row, int byte) {
  std::vector<unsigned> addresses;
  for (int i = 0; i < 32; ++i) addresses.push_back(tile.address(row + i, byte));
  return addresses;
}

std::vector<unsigned> row_of_chunks(const Tile& tile, int row, int chunk) {
  std::vector<unsigned> addresses;
  const int chunks = tile.row_bytes / 16;
  for (int i = 0; i < 8; ++i) addresses.push_back(tile.address(row + (chunk + i) / chunks, (chunk + i) % chunks * 16));
  return addresses;
}

std::string conflict_text(const std::vector<int>& found, int bytes, int lanes) {
  const auto [low, high] = std::minmax_element(found.begin(), found.end());
  const int least = std::max(1, lanes * bytes / 128);
  const std::string count = *low == *high ? fmt::format("{}", *high) : fmt::format("{} to {}", *low, *high);
  return fmt::format("{} pass{}{}", count, *high == 1 ? "" : "es", *high <= least ? ": no conflict" : "");
}

void add_conflicts(LayoutPage& page, const Tile& tile) {
  std::vector<int> matrix, words;
  for (int chunk = 0; chunk < tile.row_bytes / 16; ++chunk) {
    matrix.push_back(passes(column_of_chunks(tile, 0, chunk), 16));
    words.push_back(passes(column_of_words(tile, 0, chunk * 16), 4));
  }
  page.facts.emplace_back("ldmatrix: 8 rows, 16 bytes of each", conflict_text(matrix, 16, 8));
  page.facts.emplace_back("column: 32 rows, 4 bytes of each", conflict_text(words, 4, 32));
  page.facts.emplace_back("row: 8 neighbouring chunks", conflict_text({passes(row_of_chunks(tile, 0, 0), 16)}, 16, 8));
}

void mark(LayoutGrid& grid, const Tile& tile, const LayoutArguments& arguments) {
  const std::size_t kind = arguments.word("access", {"ldmatrix", "column", "row"}, 0);
  const std::vector<std::int64_t> at =
      arguments.has("at") ? arguments.list("at", 2, 2, 0, tile.rows - 1) : std::vector<std::int64_t>{0, 0};
  const int row = static_cast<int>(at[0]), chunk = static_cast<int>(at[1]), chunks = tile.row_bytes / 16;
  if (chunk >= chunks) throw Error(ErrorKind::usage, fmt::format("--at: chunk {}: a row has {}", chunk, chunks));
  for (int i = 0; i < (kind == 1 ? 32 : 8); ++i) {
    const int r = kind == 2 ? row + (chunk + i) / chunks : row + i, c = kind == 2 ? (chunk + i) % chunks : chunk;
    if (r < tile.rows) grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(c)).is_marked = true;
  }
}

}  // namespace

LayoutPage layout_swizzle(const LayoutArguments& arguments) {
  static const std::vector<std::string_view> kModes = {"none", "32B", "64B", "128B", "128B_atom_32B"};
  Tile tile;
  tile.mode = static_cast<SmemLayout>(arguments.subject_word(kModes));
  const int span = tile.mode == SmemLayout::none ? 0 : layout::smem_layout_span(tile.mode);
  tile.row_bytes = static_cast<int>(arguments.number("row-bytes", span == 0 ? 128 : span, 16, 4096));
  if (tile.row_bytes % 16 != 0)
    throw Error(ErrorKind::usage, fmt::format("--row-bytes = {}: must be a multiple of 16", tile.row_bytes));
  if (span != 0 && tile.row_bytes > span)
    throw Error(ErrorKind::usage,
                fmt::format("--row-bytes = {}: must be at most the {} bytes that {} spans; a wider tile "
                            "is several panels of {} bytes, each a copy of its own",
                            tile.row_bytes, span, arguments.subject, span));
  tile.pitch = span == 0 ? tile.row_bytes : span;
  tile.rows = static_cast<int>(arguments.number("rows", 8, 1, 256));
  tile.base = static_cast<unsigned>(arguments.number("base", 0, 0, (1 << 18) - 16));
  if (tile.base % 16 != 0)
    throw Error(ErrorKind::usage, fmt::format("--base = {}: must be a multiple of 16", tile.base));

  LayoutPage page;
  page.title = fmt::format("swizzle {}, rows of {} bytes, {} apart", arguments.subject, tile.row_bytes, tile.pitch);
  page.facts.emplace_back("repeats after", fmt::format("{} bytes", layout::smem_layout_repeat(tile.mode)));
  add_conflicts(page, tile);
  const int chunks = tile.row_bytes / 16;
  LayoutGrid grid = make_grid("chunk of a row: shared address, and the first of its four banks", "row",
                              numbers(tile.rows), "chunk", numbers(chunks));
  unsigned low = ~0u, high = 0;
  for (int r = 0; r < tile.rows; ++r)
    for (int c = 0; c < chunks; ++c) {
      const unsigned address = tile.address(r, c * 16);
      low = std::min(low, address / 128);
      high = std::max(high, address / 128);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(c));
      cell.text = fmt::format("{:#06x} b{}", address, address / 4 % 32);
      cell.link = fmt::format("{},{}", r, c);
      cell.group = static_cast<int>(address / 16 % 8);
      cell.values = {{"row", r}, {"chunk", c}, {"address", address}, {"bank", address / 4 % 32}};
    }
  if (arguments.has("access")) mark(grid, tile, arguments);
  std::vector<std::string> lines;
  for (unsigned line = low; line <= high; ++line) lines.push_back(fmt::format("{:#06x}", line * 128));
  LayoutGrid back =
      make_grid("128 bytes of shared memory: row and chunk that lie there", "line", lines, "bank", numbers(8, 0, 4));
  for (LayoutCell& cell : back.cells) cell.is_outside = true;
  for (const LayoutCell& from : grid.cells) {
    const auto address = static_cast<unsigned>(from.values[2].second);
    LayoutCell& cell = back.at(address / 128 - low, address / 16 % 8);
    cell = from;
    cell.text = fmt::format("r{} c{}", from.values[0].second, from.values[1].second);
  }
  page.grids = {std::move(grid), std::move(back)};
  if (tile.base % static_cast<unsigned>(layout::smem_layout_repeat(tile.mode)) != 0)
    page.notes.push_back(
        "the tile starts inside the pattern: the XOR acts on the absolute address, so row 0 has not the "
        "picture of an aligned tile");
  if (span != 0 && tile.row_bytes < span)
    page.notes.push_back(
        fmt::format("rows of {} bytes lie {} apart: a tensor copy keeps the span as its pitch", tile.row_bytes, span));
  return page;
}

}  // namespace tessera::cli

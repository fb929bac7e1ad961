// A swizzled tile in shared memory: where each 16-byte chunk lies, in which
// banks, and how many passes an access takes.
//
// Shared memory has 32 banks of 4 bytes; an access of a warp (or of the 8 lanes
// that move 16 bytes each in one pass) takes as many passes as the fullest bank
// has different words.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "cli/layout_command.h"
#include "spec/smem_descriptor.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

using layout::SmemLayout;

struct SwizzledTile {
  SmemLayout mode = SmemLayout::none;
  unsigned base = 0;
  int rows = 8, row_bytes = 128, pitch = 128;

  unsigned address(int row, int byte) const {
    const unsigned plain = base + static_cast<unsigned>(row * pitch + byte);
    return plain ^ layout::smem_layout_xor(mode, plain >> 7);
  }
};

/// Lanes of one access: `across` neighbours of `bytes` in each of `down` rows,
/// from a row's byte on.
struct Access {
  std::string_view name;
  int down = 1, across = 1, bytes = 4;
  std::string_view what;
  int lanes() const { return down * across; }
};
constexpr Access kAccesses[] = {{"ldmatrix", 8, 1, 16, "8 rows, 16 bytes of each"},
                                {"column", 32, 1, 4, "32 rows, 4 bytes of each"},
                                {"row", 1, 8, 16, "8 neighbouring chunks"},
                                {"fragment", 8, 4, 4, "8 rows, 4 neighbouring words of each"}};

/// One that is typed: "8x4x4", rows by neighbours by bytes; Error{usage} with
/// what there is.
Access parse_access(const std::string& text) {
  for (const Access& known : kAccesses)
    if (known.name == text) return known;
  Access access{text, 0, 0, 0, "rows x neighbours x bytes"};
  int* const parts[] = {&access.down, &access.across, &access.bytes};
  std::size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    const std::size_t end = i < 2 ? text.find('x', at) : text.size();
    if (end == std::string::npos || end == at) break;
    *parts[i] = static_cast<int>(parse_layout_number("--access", text.substr(at, end - at), 1, 256));
    at = end + 1;
  }
  const bool is_width =
      access.bytes == 1 || access.bytes == 2 || access.bytes == 4 || access.bytes == 8 || access.bytes == 16;
  if (!is_width || access.lanes() < 1 || access.lanes() > 32)
    throw Error(ErrorKind::usage, fmt::format("--access = {}: must be ldmatrix, column, row, fragment, "
                                              "or ROWSxNEIGHBOURSxBYTES of at most "
                                              "32 lanes with 1, 2, 4, 8 or 16 bytes each, like 8x4x4",
                                              text));
  return access;
}

/// Addresses lane by lane; a row that ends goes on in the next.
std::vector<unsigned> addresses_of(const SwizzledTile& tile, const Access& access, int row, int byte) {
  std::vector<unsigned> addresses;
  for (int i = 0; i < access.lanes(); ++i) {
    const int at = byte + i % access.across * access.bytes;
    addresses.push_back(tile.address(row + i / access.across + at / tile.row_bytes, at % tile.row_bytes));
  }
  return addresses;
}

/// Passes of lanes that read or write `bytes` each: of 4 bytes or fewer all at
/// once, of 8 in halves, of 16 in quarters.
int passes(const std::vector<unsigned>& addresses, int bytes) {
  const std::size_t together = bytes <= 4 ? 32u : static_cast<std::size_t>(128 / bytes);
  std::size_t all = 0;
  for (std::size_t first = 0; first < addresses.size(); first += together) {
    std::array<std::set<unsigned>, 32> words;
    for (std::size_t i = first; i < std::min(addresses.size(), first + together); ++i)
      for (unsigned at = addresses[i] / 4; at < (addresses[i] + static_cast<unsigned>(bytes) + 3) / 4; ++at)
        words[at % 32].insert(at);
    std::size_t most = 1;
    for (const auto& bank : words) most = std::max(most, bank.size());
    all += most;
  }
  return static_cast<int>(all);
}

/// The fewest that so many bytes can take.
int least_passes(const Access& access) {
  const int together = access.bytes <= 4 ? 32 : 128 / access.bytes;
  return (access.lanes() + together - 1) / together;
}

std::string passes_text(int low, int high, int least) {
  const std::string count = low == high ? fmt::format("{}", high) : fmt::format("{} to {}", low, high);
  return fmt::format("{} pass{}{}", count, high == 1 ? "" : "es",
                     high <= least ? ": no conflict" : fmt::format(", {} without conflicts", least));
}

/// The usual accesses, wherever in a row they begin.
void add_conflicts(LayoutPage& page, const SwizzledTile& tile) {
  for (const Access& access : kAccesses) {
    std::vector<int> found;
    for (int chunk = 0; chunk < (access.down == 1 ? 1 : tile.row_bytes / 16); ++chunk)
      found.push_back(passes(addresses_of(tile, access, 0, chunk * 16), access.bytes));
    const auto [low, high] = std::minmax_element(found.begin(), found.end());
    page.facts.emplace_back(fmt::format("{}: {}", access.name, access.what),
                            passes_text(*low, *high, least_passes(access)));
  }
}

/// The access that was asked about, if one was, and the rows that are to be
/// shown.
struct Request {
  bool is_given = false;
  Access access;
  int row = 0, chunk = 0;
};

/// Marks what one access touches and counts its passes.
void mark(LayoutPage& page, LayoutGrid& grid, const SwizzledTile& tile, const Request& request) {
  const Access& access = request.access;
  const std::vector<unsigned> addresses = addresses_of(tile, access, request.row, request.chunk * 16);
  std::array<int, 32> lanes_of_bank{};
  for (const unsigned address : addresses) {
    ++lanes_of_bank[address / 4 % 32];
    for (LayoutCell& cell : grid.cells)
      cell.is_marked = cell.is_marked || cell.values[2].second == static_cast<std::int64_t>(address & ~15u);
  }
  const auto fullest = std::max_element(lanes_of_bank.begin(), lanes_of_bank.end());
  page.facts.emplace_back(
      fmt::format("{} at row {}, chunk {}", access.name, request.row, request.chunk),
      fmt::format("{} lanes of {} bytes: {}; bank {} begins {} of them", access.lanes(), access.bytes,
                  passes_text(passes(addresses, access.bytes), passes(addresses, access.bytes), least_passes(access)),
                  fullest - lanes_of_bank.begin(), *fullest));
}

Request read_request(const LayoutArguments& arguments, const std::string& text, SwizzledTile& tile) {
  Request request;
  int needed = 8;
  if (!text.empty()) {
    request.is_given = true;
    request.access = parse_access(text);
    const std::vector<std::int64_t> at =
        arguments.has("at") ? arguments.list("at", 2, 2, 0, 255) : std::vector<std::int64_t>{0, 0};
    request.row = static_cast<int>(at[0]);
    request.chunk = static_cast<int>(at[1]);
    if (request.chunk >= tile.row_bytes / 16)
      throw Error(ErrorKind::usage, fmt::format("--at: chunk {}: a row has {}", request.chunk, tile.row_bytes / 16));
    const int last_byte = request.chunk * 16 + request.access.across * request.access.bytes - 1;
    needed = request.row + request.access.down + last_byte / tile.row_bytes;
  }
  tile.rows = static_cast<int>(arguments.number("rows", std::clamp(needed, 8, 256), 1, 256));
  if (request.is_given && needed > tile.rows)
    throw Error(ErrorKind::usage, fmt::format("--at: the access touches rows {} to {}: the tile has {}", request.row,
                                              needed - 1, tile.rows));
  return request;
}

SwizzledTile read_tile(const LayoutArguments& arguments) {
  static const std::vector<std::string_view> kModes = {"none", "32B", "64B", "128B", "128B_atom_32B"};
  SwizzledTile tile;
  tile.mode = static_cast<SmemLayout>(arguments.subject_word(kModes));
  const int span = tile.mode == SmemLayout::none ? 0 : layout::smem_layout_span(tile.mode);
  tile.row_bytes = static_cast<int>(arguments.number("row-bytes", span == 0 ? 128 : span, 16, 4096));
  if (tile.row_bytes % 16 != 0)
    throw Error(ErrorKind::usage, fmt::format("--row-bytes = {}: must be a multiple of 16", tile.row_bytes));
  if (span != 0 && tile.row_bytes > span)
    throw Error(ErrorKind::usage, fmt::format("--row-bytes = {}: must be at most the {} bytes that {} "
                                              "spans; a wider tile "
                                              "is several panels of {} bytes, each a copy of its own",
                                              tile.row_bytes, span, arguments.subject, span));
  tile.pitch = span == 0 ? tile.row_bytes : span;
  tile.base = static_cast<unsigned>(arguments.number("base", 0, 0, (1 << 18) - 16));
  if (tile.base % 16 != 0)
    throw Error(ErrorKind::usage, fmt::format("--base = {}: must be a multiple of 16", tile.base));
  return tile;
}

}  // namespace

LayoutPage layout_swizzle(const LayoutArguments& arguments) {
  SwizzledTile tile = read_tile(arguments);
  const int span = tile.mode == SmemLayout::none ? 0 : layout::smem_layout_span(tile.mode);
  const std::string asked = arguments.text("access");
  const Request request = read_request(arguments, asked, tile);
  LayoutPage page;
  page.title = fmt::format("swizzle {}, rows of {} bytes, {} apart", arguments.subject, tile.row_bytes, tile.pitch);
  page.facts.emplace_back("repeats after", fmt::format("{} bytes", layout::smem_layout_repeat(tile.mode)));
  add_conflicts(page, tile);
  const int chunks = tile.row_bytes / 16;
  LayoutGrid grid = make_grid("chunk of a row: shared address, and the first of its four banks", "row",
                              numbers(tile.rows), "chunk", numbers(chunks));
  for (int r = 0; r < tile.rows; ++r)
    for (int c = 0; c < chunks; ++c) {
      const unsigned address = tile.address(r, c * 16);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(c));
      cell.text = fmt::format("{:#06x} b{}", address, address / 4 % 32);
      cell.link = fmt::format("{},{}", r, c);
      cell.group = static_cast<int>(address / 16 % 8);
      cell.values = {{"row", r}, {"chunk", c}, {"address", address}, {"bank", address / 4 % 32}};
    }
  if (request.is_given) mark(page, grid, tile, request);
  LayoutGrid back = memory_grid(
      grid, "address", "128 bytes of shared memory: row and chunk that lie there",
      [](const LayoutCell& cell) { return fmt::format("r{} c{}", cell.values[0].second, cell.values[1].second); });
  page.grids = {std::move(grid), std::move(back)};
  if (tile.base % static_cast<unsigned>(layout::smem_layout_repeat(tile.mode)) != 0)
    page.notes.push_back(
        "the tile starts inside the pattern: the XOR acts on "
        "the absolute address, so row 0 has not the "
        "picture of an aligned tile");
  if (span != 0 && tile.row_bytes < span)
    page.notes.push_back(
        fmt::format("rows of {} bytes lie {} apart: a tensor "
                    "copy keeps the span as its pitch",
                    tile.row_bytes, span));
  return page;
}

}  // namespace tessera::cli

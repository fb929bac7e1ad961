// What `tessera layout` shows, apart from how: facts, grids of cells, notes, mistakes. One page is printed as text,
// JSON, SVG or HTML.
//
// A grid is one direction of a map (elements of a matrix, say, with the register of each), another grid the other
// direction. Cells of both that stand for the same thing carry the same link, so that a viewer can join them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/launch_json.h"

namespace tessera::cli {

struct LayoutCell {
  std::string text;
  std::string link;                                          ///< the same in every grid for the same thing; empty: none
  int group = -1;                                            ///< cells of a group have a colour; -1: none
  bool is_marked = false;                                    ///< asked for
  bool is_outside = false;                                   ///< stands for nothing: padding, out of bounds
  std::vector<std::pair<std::string, std::int64_t>> values;  ///< for JSON and tooltips: ("lane", 13), ("register", 2)
};

struct LayoutGrid {
  std::string title, row_axis, column_axis;
  std::vector<std::string> rows, columns;
  std::vector<LayoutCell> cells;  ///< row by row
  bool is_prose = false;          ///< words: in text each column has a width of its own
  LayoutCell& at(std::size_t row, std::size_t column) { return cells[row * columns.size() + column]; }
  const LayoutCell& at(std::size_t row, std::size_t column) const { return cells[row * columns.size() + column]; }
};

struct LayoutPage {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<LayoutGrid> grids;
  std::vector<std::string> notes;
  std::vector<std::string> mistakes;  ///< what is wrong with what was given; the page shows it all the same
};

/// A grid of the given labels with empty cells.
LayoutGrid make_grid(std::string title, std::string row_axis, std::vector<std::string> rows, std::string column_axis,
                     std::vector<std::string> columns);
/// "0", "1", ... as labels.
std::vector<std::string> numbers(int count, int first = 0, int step = 1);

/// The other direction of a grid whose cells name a shared address in the value `key`: the lines of 128 bytes in which
/// they lie, 16 bytes a cell. name: what is to stand there for a cell of `from`.
LayoutGrid memory_grid(const LayoutGrid& from, std::string_view key, std::string title,
                       const std::function<std::string(const LayoutCell&)>& name);

/// For a terminal: wide grids are cut into blocks of columns. Marked cells stand in brackets.
std::string layout_text(const LayoutPage& page);
OrderedJson layout_json(const LayoutPage& page);
/// One picture, readable on light and dark ground.
std::string layout_svg(const LayoutPage& page);
/// One page without anything from elsewhere: pointing at a cell, or moving to it with the keyboard, shows its values
/// and marks all cells of its link.
std::string layout_html(const LayoutPage& page);

}  // namespace tessera::cli

// Pages as text and JSON. SVG and HTML are in layout_draw.cpp.
#include "cli/layout_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace tessera::cli {

namespace {

constexpr std::size_t kTextWidth = 118;

std::string shown_cell(const LayoutCell& cell) {
  if (cell.is_outside) return cell.text.empty() ? "." : cell.text;
  return cell.is_marked ? "[" + cell.text + "]" : cell.text;
}

void append_block(std::string& out, const LayoutGrid& grid, std::size_t first, std::size_t last, std::size_t left,
                  std::size_t width) {
  out += fmt::format("  {:>{}} ", grid.row_axis + "\\" + grid.column_axis, left);
  for (std::size_t c = first; c < last; ++c) out += fmt::format(" {:>{}}", grid.columns[c], width);
  out += '\n';
  for (std::size_t r = 0; r < grid.rows.size(); ++r) {
    out += fmt::format("  {:>{}} ", grid.rows[r], left);
    for (std::size_t c = first; c < last; ++c) out += fmt::format(" {:>{}}", shown_cell(grid.at(r, c)), width);
    out += '\n';
  }
}

/// Words stand to the left, each column as wide as it must be.
void append_prose(std::string& out, const LayoutGrid& grid) {
  const auto line = [&](const std::string& label, const auto& cell_of) {
    std::size_t left = grid.row_axis.size();
    for (const std::string& row : grid.rows) left = std::max(left, row.size());
    std::string text = fmt::format("  {:<{}}", label, left);
    for (std::size_t c = 0; c < grid.columns.size(); ++c) {
      std::size_t width = grid.columns[c].size();
      for (std::size_t r = 0; r < grid.rows.size(); ++r) width = std::max(width, shown_cell(grid.at(r, c)).size());
      text += fmt::format("  {:<{}}", cell_of(c), width);
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  line(grid.row_axis, [&](std::size_t c) { return grid.columns[c]; });
  for (std::size_t r = 0; r < grid.rows.size(); ++r)
    line(grid.rows[r], [&](std::size_t c) { return shown_cell(grid.at(r, c)); });
}

void append_grid(std::string& out, const LayoutGrid& grid) {
  out += "\n" + grid.title + "\n";
  if (grid.is_prose) return append_prose(out, grid);
  std::size_t left = grid.row_axis.size() + 1 + grid.column_axis.size(), width = 1;
  for (const std::string& row : grid.rows) left = std::max(left, row.size());
  for (const std::string& column : grid.columns) width = std::max(width, column.size());
  for (const LayoutCell& cell : grid.cells) width = std::max(width, shown_cell(cell).size());
  const std::size_t fit = std::max<std::size_t>(1, (kTextWidth - std::min(kTextWidth, left + 3)) / (width + 1));
  for (std::size_t first = 0; first < grid.columns.size(); first += fit) {
    if (first > 0) out += '\n';
    append_block(out, grid, first, std::min(grid.columns.size(), first + fit), left, width);
  }
}

}  // namespace

LayoutGrid make_grid(std::string title, std::string row_axis, std::vector<std::string> rows, std::string column_axis,
                     std::vector<std::string> columns) {
  LayoutGrid grid{
      std::move(title), std::move(row_axis), std::move(column_axis), std::move(rows), std::move(columns), {}, false};
  grid.cells.resize(grid.rows.size() * grid.columns.size());
  return grid;
}

std::vector<std::string> numbers(int count, int first, int step) {
  std::vector<std::string> labels;
  for (int i = 0; i < count; ++i) labels.push_back(std::to_string(first + i * step));
  return labels;
}

LayoutGrid memory_grid(const LayoutGrid& from, std::string_view key, std::string title,
                       const std::function<std::string(const LayoutCell&)>& name) {
  const auto address_of = [&](const LayoutCell& cell) {
    const auto found =
        std::find_if(cell.values.begin(), cell.values.end(), [&](const auto& value) { return value.first == key; });
    return found->second;
  };
  std::map<std::int64_t, std::size_t> lines;
  for (const LayoutCell& cell : from.cells) lines[address_of(cell) / 128] = 0;
  std::vector<std::string> labels;
  for (auto& [line, index] : lines) {
    index = labels.size();
    labels.push_back(fmt::format("{:#06x}", line * 128));
  }
  LayoutGrid grid = make_grid(std::move(title), "line", labels, "bank", numbers(8, 0, 4));
  for (LayoutCell& cell : grid.cells) cell.is_outside = true;
  for (const LayoutCell& cell : from.cells) {
    const std::int64_t address = address_of(cell);
    LayoutCell& to = grid.at(lines[address / 128], static_cast<std::size_t>(address / 16 % 8));
    const std::string before = to.text;
    to = cell;
    to.text = before.empty() ? name(cell) : before + "+" + name(cell);  // two in one place: a mistake, shown
  }
  return grid;
}

std::string layout_text(const LayoutPage& page) {
  std::string out = page.title + "\n";
  std::size_t left = 0;
  for (const auto& [name, value] : page.facts) left = std::max(left, name.size());
  for (const auto& [name, value] : page.facts) out += fmt::format("  {:<{}}  {}\n", name, left, value);
  for (const LayoutGrid& grid : page.grids) append_grid(out, grid);
  if (!page.notes.empty()) out += '\n';
  for (const std::string& note : page.notes) out += "note: " + note + "\n";
  if (!page.mistakes.empty()) out += '\n';
  for (const std::string& mistake : page.mistakes) out += "mistake: " + mistake + "\n";
  return out;
}

OrderedJson layout_json(const LayoutPage& page) {
  OrderedJson facts = OrderedJson::object(), grids = OrderedJson::array();
  for (const auto& [name, value] : page.facts) facts[name] = value;
  for (const LayoutGrid& grid : page.grids) {
    OrderedJson cells = OrderedJson::array();
    for (std::size_t r = 0; r < grid.rows.size(); ++r) {
      OrderedJson row = OrderedJson::array();
      for (std::size_t c = 0; c < grid.columns.size(); ++c) {
        const LayoutCell& cell = grid.at(r, c);
        OrderedJson one = {{"text", cell.text}};
        for (const auto& [name, value] : cell.values) one[name] = value;
        if (cell.is_marked) one["marked"] = true;
        if (cell.is_outside) one["outside"] = true;
        row.push_back(std::move(one));
      }
      cells.push_back(std::move(row));
    }
    grids.push_back({{"title", grid.title},
                     {"row_axis", grid.row_axis},
                     {"rows", grid.rows},
                     {"column_axis", grid.column_axis},
                     {"columns", grid.columns},
                     {"cells", std::move(cells)}});
  }
  return {
      {"title", page.title}, {"facts", facts}, {"grids", grids}, {"notes", page.notes}, {"mistakes", page.mistakes}};
}

}  // namespace tessera::cli

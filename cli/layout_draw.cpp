// Pages as SVG and as one self-contained HTML page. Colours are given for light
// and dark ground side by side; nothing is fetched from anywhere.
#include <fmt/format.h>

#include <algorithm>

#include "cli/layout_page.h"

namespace tessera::cli {

namespace {

constexpr int kGroups = 8;
// Light and dark fills of the groups: pale enough for text on both grounds.
constexpr const char* kLight[kGroups] = {"#cfe3ff", "#ffe0c2", "#d3f2d3", "#f8d0dc",
                                         "#e3d6f7", "#fff3b8", "#c9f0ee", "#e2ddd5"};
constexpr const char* kDark[kGroups] = {"#1f3a5f", "#5a3a1a", "#1f4a24", "#5a2436",
                                        "#3f2f63", "#544a12", "#154a48", "#46413a"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\xEF\xBF\xBD";  // XML has no control characters
    } else {
      out += c;
    }
  }
  return out;
}

std::string group_class(const LayoutCell& cell) {
  std::string name = cell.is_outside   ? "cell outside"
                     : cell.group >= 0 ? fmt::format("cell g{}", cell.group % kGroups)
                                       : "cell";
  if (cell.is_marked) name += " marked";
  return name;
}

std::string details(const LayoutCell& cell) {
  std::string text;
  for (const auto& [name, value] : cell.values) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

/// Rules for both: `property` is fill in SVG, background in HTML.
std::string colours(std::string_view property) {
  std::string light, dark;
  for (int i = 0; i < kGroups; ++i) {
    light += fmt::format(".g{}{{{}:{}}}", i, property, kLight[i]);
    dark += fmt::format(".g{}{{{}:{}}}", i, property, kDark[i]);
  }
  return light + "@media (prefers-color-scheme:dark){" + dark + "}";
}

/// Grows downwards line by line.
class Canvas {
 public:
  void text(int x, std::string_view content, const char* css = "") {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", x, y_ + 12, css, escaped(content));
    width_ = std::max(width_, x + static_cast<int>(content.size()) * kCharacter + 8);
    y_ += kLine;
  }
  void space(int pixels) { y_ += pixels; }

  void grid(const LayoutGrid& grid) {
    std::size_t left = grid.row_axis.size(), wide = 1;
    for (const std::string& row : grid.rows) left = std::max(left, row.size());
    for (const std::string& column : grid.columns) wide = std::max(wide, column.size());
    for (const LayoutCell& cell : grid.cells) wide = std::max(wide, cell.text.size());
    const int x0 = 8 + static_cast<int>(left) * kCharacter + 10, cell_width = static_cast<int>(wide) * kCharacter + 8;
    text(8, grid.title, "title");
    for (std::size_t c = 0; c < grid.columns.size(); ++c)
      label(x0 + static_cast<int>(c) * cell_width + cell_width / 2, y_ + 11, grid.columns[c], "middle");
    label(x0 - 6, y_ + 11, grid.row_axis + "\\" + grid.column_axis, "end");
    y_ += kLine;
    for (std::size_t r = 0; r < grid.rows.size(); ++r) {
      label(x0 - 6, y_ + 12, grid.rows[r], "end");
      for (std::size_t c = 0; c < grid.columns.size(); ++c)
        cell(x0 + static_cast<int>(c) * cell_width, cell_width, grid.at(r, c));
      y_ += kLine;
    }
    width_ = std::max(width_, x0 + static_cast<int>(grid.columns.size()) * cell_width + 8);
  }

  std::string finish() const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" "
               "width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
               "{1}\">\n<style>"
               "text{{font:12px "
               "ui-monospace,monospace;fill:#222}}.title{{font-weight:"
               "bold}}.wrong{{fill:#b00020}}"
               ".cell{{fill:none;stroke:#8888}}.outside{{fill:#8883}}."
               "marked{{stroke:#d00;stroke-width:2}}"
               "@media "
               "(prefers-color-scheme:dark){{text{{fill:#ddd}}.wrong{{"
               "fill:#ff8a80}}}}",
               width_ + 8, y_ + 8) +
           colours("fill") + "</style>\n" + body_ + "</svg>\n";
  }

 private:
  static constexpr int kCharacter = 8, kLine = 18;
  void label(int x, int y, std::string_view content, const char* anchor) {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(content));
  }
  void cell(int x, int width, const LayoutCell& cell) {
    body_ += fmt::format(
        "<g><title>{}</title><rect x=\"{}\" y=\"{}\" "
        "width=\"{}\" height=\"{}\" class=\"{}\"/>",
        escaped(details(cell)), x, y_, width, kLine, group_class(cell));
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text></g>\n", x + width / 2, y_ + 13,
                         escaped(cell.text));
  }
  std::string body_;
  int y_ = 8, width_ = 200;
};

constexpr const char* kScript = R"js(
const info = document.getElementById('info');
const twins_of = new Map();
for (const cell of document.querySelectorAll('td[data-link]'))
  if (cell.dataset.link) twins_of.set(cell.dataset.link, [...(twins_of.get(cell.dataset.link) || []), cell]);
function show(cell) {
  document.querySelectorAll('.linked').forEach(e => e.classList.remove('linked'));
  if (!cell) { info.textContent = info.dataset.idle; return; }
  (twins_of.get(cell.dataset.link) || []).forEach(e => e.classList.add('linked'));
  info.textContent = cell.textContent + (cell.title ? ': ' + cell.title : '');
}
document.addEventListener('mouseover', e => { const c = e.target.closest('td[data-link]'); if (c) show(c); });
document.addEventListener('focusin', e => { const c = e.target.closest('td[data-link]'); if (c) show(c); });
document.addEventListener('keydown', e => {
  const c = document.activeElement && document.activeElement.closest('td[data-link]');
  if (!c) return;
  const row = c.parentElement, at = c.cellIndex, rows = row.parentElement.rows, r = row.sectionRowIndex;
  let next = null;
  if (e.key === 'ArrowRight') next = row.cells[at + 1];
  else if (e.key === 'ArrowLeft') next = row.cells[at - 1];
  else if (e.key === 'ArrowDown') next = rows[r + 1] && rows[r + 1].cells[at];
  else if (e.key === 'ArrowUp') next = rows[r - 1] && rows[r - 1].cells[at];
  else if (e.key === 'Enter' || e.key === ' ') {
    const twins = twins_of.get(c.dataset.link) || [c];
    next = twins[(twins.indexOf(c) + 1) % twins.length];
  } else return;
  e.preventDefault();
  if (next && next.dataset.link !== undefined) { next.focus(); next.scrollIntoView({block: 'nearest', inline: 'nearest'}); }
});
)js";

std::string html_grid(const LayoutGrid& grid) {
  std::string out = fmt::format(
      "<section><h2>{}</h2><div class=\"scroll\"><table "
      "aria-label=\"{}\"><thead><tr><th>{}</th>",
      escaped(grid.title), escaped(grid.title), escaped(grid.row_axis + "\\" + grid.column_axis));
  for (const std::string& column : grid.columns) out += fmt::format("<th scope=\"col\">{}</th>", escaped(column));
  out += "</tr></thead><tbody>\n";
  bool is_first = true;
  for (std::size_t r = 0; r < grid.rows.size(); ++r) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(grid.rows[r]));
    for (std::size_t c = 0; c < grid.columns.size(); ++c) {
      const LayoutCell& cell = grid.at(r, c);
      // One stop of the tabulator for each grid; arrows go on from there.
      out += fmt::format(
          "<td class=\"{}\" data-link=\"{}\" title=\"{}\" "
          "tabindex=\"{}\">{}</td>",
          group_class(cell), escaped(cell.link), escaped(details(cell)), is_first ? 0 : -1, escaped(cell.text));
      is_first = false;
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div></section>\n";
}

}  // namespace

std::string layout_svg(const LayoutPage& page) {
  Canvas canvas;
  canvas.text(8, page.title, "title");
  for (const auto& [name, value] : page.facts) canvas.text(8, name + ": " + value);
  for (const LayoutGrid& grid : page.grids) {
    canvas.space(10);
    canvas.grid(grid);
  }
  canvas.space(6);
  for (const std::string& note : page.notes) canvas.text(8, "note: " + note);
  for (const std::string& mistake : page.mistakes) canvas.text(8, "mistake: " + mistake, "wrong");
  return canvas.finish();
}

std::string layout_html(const LayoutPage& page) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta "
      "charset=\"utf-8\"><title>{0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"><meta "
      "name=\"color-scheme\" content=\"light dark\">\n"
      "<style>body{{font:14px "
      "system-ui,sans-serif;margin:1rem;background:#fff;color:#222}}"
      "table{{border-collapse:collapse;font:12px "
      "ui-monospace,monospace}}th,td{{border:1px solid #8886;padding:1px "
      "4px;text-align:center;white-space:nowrap}}th{{font-weight:normal;color:#"
      "777}}.scroll{{overflow:auto;max-height:"
      "80vh}}"
      "thead "
      "th{{position:sticky;top:0;background:#eee}}.outside{{opacity:.4}}."
      "marked{{outline:2px solid #d00}}"
      ".linked{{outline:3px solid "
      "#06c;outline-offset:-2px}}td:focus{{outline:3px solid #06c}}"
      "#info{{position:sticky;top:0;background:#eef;padding:.4rem;z-index:1;"
      "min-height:1.2em}}.wrong{{color:#b00020}}"
      "@media "
      "(prefers-color-scheme:dark){{body{{background:#161616;color:#ddd}}thead "
      "th{{background:#262626}}"
      "#info{{background:#223}}.wrong{{color:#ff8a80}}}}",
      escaped(page.title));
  out += colours("background") + "</style></head>\n<body><h1>" + escaped(page.title) + "</h1>\n<dl>";
  for (const auto& [name, value] : page.facts)
    out += fmt::format(
        "<div><dt style=\"display:inline\"><b>{}</b></dt> <dd "
        "style=\"display:inline;margin:0\">{}</dd></div>\n",
        escaped(name), escaped(value));
  const std::string idle =
      "Point at a cell, or go there with Tab and the "
      "arrow keys; Enter visits the cells linked to it.";
  out += fmt::format("</dl>\n<div id=\"info\" role=\"status\" data-idle=\"{0}\">{0}</div>\n", escaped(idle));
  for (const LayoutGrid& grid : page.grids) out += html_grid(grid);
  for (const std::string& note : page.notes) out += "<p>" + escaped(note) + "</p>\n";
  for (const std::string& mistake : page.mistakes) out += "<p class=\"wrong\">mistake: " + escaped(mistake) + "</p>\n";
  return out + "<script>" + kScript + "</script></body></html>\n";
}

}  // namespace tessera::cli

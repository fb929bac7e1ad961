// How the accumulator of one product becomes the A operand of the next, as in attention (P of S = Q K^T, then P V):
// each thread turns the values that it holds into A's registers. Where A wants elements along K that other threads
// hold, K is renamed: a product does not care in which order it runs over K, so V's rows are taken in the order in
// which P stands.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "cli/layout_command.h"
#include "cli/layout_forms.h"

namespace tessera::cli {

namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;
using layout::FragmentSlot;

/// Threads that hold what one register of A wants, when K keeps its order.
std::size_t threads_of_register(const FragmentShape& a, const FragmentShape& d) {
  std::set<int> lanes;
  for (int index = 0; index < fragment_elements(a); ++index)
    lanes.insert(fragment_slot(d, {0, fragment_element(a, {0, 0, index}).column % d.columns}).lane);
  return lanes.size();
}

}  // namespace

LayoutPage layout_repack(const LayoutArguments& arguments) {
  if (arguments.subject != "D-to-A" || arguments.argument.empty())
    throw Error(ErrorKind::usage,
                "layout repack: say D-to-A and the instruction that takes A, like `tessera layout repack D-to-A "
                "mma.m16n8k16.bf16`");
  const ProductForm form = parse_product(arguments.argument);
  if (form.bits == 1 || form.bits == 64 || form.m == 8 || form.k < 8 || form.is_sparse)
    throw Error(
        ErrorKind::usage,
        fmt::format("{}: D-to-A is for dense products of m16 or m64 with elements of 4 to 32 bits and K of at least 8",
                    arguments.argument));
  const FragmentShape a{form.is_wgmma ? Fragment::wgmma_a : Fragment::mma_a, form.m, form.k, form.bits};
  // D of the product before, one tile of 8 columns: wgmma's is a row of such tiles.
  const FragmentShape d{form.is_wgmma ? Fragment::wgmma_d : Fragment::mma_d, form.m, 8, 32};
  std::vector<int> source;
  for (int k = 0; k < form.k; ++k) source.push_back(layout::repack_column(form.bits, k));
  const bool is_identity = std::is_sorted(source.begin(), source.end());
  const int per = fragment_elements(a);

  LayoutPage page;
  page.title = fmt::format("D of m{}n8 tiles as A of {}", form.m, arguments.argument);
  page.facts = {
      {"shuffles", is_identity ? "none: every thread holds what its A registers want"
                               : "none, if B's rows are taken in the order of the table (else see the note)"},
      {"D tiles for one A", fmt::format("{} of 8 columns", form.k / 8)},
      {"conversion",
       per == 1
           ? "each value becomes a register"
           : fmt::format("{} values of fp32 become one register of {} elements, the first in the low bits", per, per)}};
  LayoutGrid grid = make_grid("A's registers of a thread: tile of D and value (v) in it that each element is made of",
                              "register", {}, "element", numbers(per));
  for (int reg = 0; reg < fragment_registers(a); ++reg) grid.rows.push_back(fmt::format("a{}", reg));
  for (int reg = 0; reg < fragment_registers(a); ++reg)
    for (int e = 0; e < per; ++e) {
      const FragmentElement at = fragment_element(a, {0, reg, e});
      const int column = source[static_cast<std::size_t>(at.column)];
      const FragmentSlot from = fragment_slot(d, {at.row, column % 8});
      LayoutCell cell;
      cell.text = fmt::format("tile {} v{}", column / 8, from.reg);
      cell.link = fmt::format("{}", column);
      cell.group = column / 8;
      cell.values = {{"register", reg}, {"element", e}, {"tile", column / 8}, {"value", from.reg}};
      grid.cells.push_back(std::move(cell));
    }
  page.grids.push_back(std::move(grid));
  LayoutGrid order = make_grid("K of the product: column of D, and so row of B, that stands there", "", {"row of B"},
                               "k", numbers(form.k));
  for (int k = 0; k < form.k; ++k) {
    LayoutCell& cell = order.at(0, static_cast<std::size_t>(k));
    cell.text = std::to_string(source[static_cast<std::size_t>(k)]);
    cell.link = cell.text;
    cell.group = source[static_cast<std::size_t>(k)] / 8;
    cell.values = {{"k", k}, {"row_of_b", source[static_cast<std::size_t>(k)]}};
  }
  page.grids.push_back(std::move(order));
  if (!is_identity)
    page.notes.push_back(fmt::format(
        "with B's rows in their natural order instead, a register of A is made of values of {} threads of the quad: "
        "shuffles, or a trip through shared memory",
        threads_of_register(a, d)));
  if (form.scale_vectors != 0) {
    const bool is_half = form.type == "mxf4nvf4";
    page.notes.push_back(fmt::format(
        "block scales follow the renamed K: a block of {} is made of the columns of D that stand there, held by {} "
        "threads of a quad, so its largest magnitude takes {} of one value a row",
        is_half ? 16 : 32, is_half ? 2 : 4, is_half ? "one shuffle" : "two shuffles"));
  }
  if (form.scale_vectors != 0 || !form.container.empty())
    page.notes.push_back("sm_120 family: from the manual, never run on such a device");
  return page;
}

}  // namespace tessera::cli

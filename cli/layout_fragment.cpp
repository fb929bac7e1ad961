// Fragments: the matrix with lane and register of every element, and the
// registers of every lane with their elements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/layout_command.h"
#include "cli/layout_forms.h"
#include "spec/sparse.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;
using layout::FragmentSlot;

struct Asked {
  int lane = -1, reg = -1, row = -1, column = -1;
};

std::string slot_text(const FragmentShape& shape, const FragmentSlot& slot) {
  std::string text = fmt::format("T{} r{}", slot.lane, slot.reg);
  if (fragment_elements(shape) > 1) text += fmt::format(".{}", slot.index);
  return text;
}

int first_bit(const FragmentShape& shape, const FragmentSlot& slot) { return slot.index * shape.bits; }

bool is_asked(const Asked& asked, const FragmentSlot& slot, const FragmentElement& at) {
  return (slot.lane == asked.lane && (asked.reg < 0 || slot.reg == asked.reg)) ||
         (at.row == asked.row && at.column == asked.column);
}

LayoutGrid matrix_grid(const FragmentShape& shape, const Asked& asked, const std::string& row_axis,
                       const std::string& column_axis) {
  LayoutGrid grid = make_grid(fmt::format("the matrix: thread (T), register (r){} of each element",
                                          fragment_elements(shape) > 1 ? ", place from its low bits" : ""),
                              row_axis, numbers(shape.rows), column_axis, numbers(shape.columns));
  for (int r = 0; r < shape.rows; ++r)
    for (int c = 0; c < shape.columns; ++c) {
      const FragmentSlot slot = fragment_slot(shape, {r, c});
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(c));
      cell.text = slot_text(shape, slot);
      cell.link = fmt::format("{},{}", r, c);
      cell.group = slot.lane % 4 + 4 * (slot.reg % 2);
      cell.is_marked = is_asked(asked, slot, {r, c});
      cell.values = {{"row", r},
                     {"column", c},
                     {"lane", slot.lane},
                     {"register", slot.reg},
                     {"first_bit", first_bit(shape, slot)},
                     {"bits", shape.bits}};
    }
  return grid;
}

LayoutGrid register_grid(const FragmentShape& shape, const Asked& asked) {
  const int per = fragment_elements(shape), registers = fragment_registers(shape);
  std::vector<std::string> columns;
  for (int reg = 0; reg < registers; ++reg)
    for (int e = 0; e < per; ++e) columns.push_back(per == 1 ? fmt::format("r{}", reg) : fmt::format("r{}.{}", reg, e));
  std::vector<std::string> rows;
  const int first = asked.lane >= 0 ? asked.lane : 0;
  const int last = asked.lane >= 0 ? asked.lane + 1 : fragment_lanes(shape);
  for (int lane = first; lane < last; ++lane) rows.push_back(fmt::format("T{}", lane));
  LayoutGrid grid =
      make_grid("the registers of each thread: row,column of every element", "thread", rows, "register", columns);
  for (int lane = first; lane < last; ++lane)
    for (int reg = 0; reg < registers; ++reg)
      for (int e = 0; e < per; ++e) {
        const FragmentElement at = fragment_element(shape, {lane, reg, e});
        LayoutCell& cell = grid.at(static_cast<std::size_t>(lane - first), static_cast<std::size_t>(reg * per + e));
        cell.text = fmt::format("{},{}", at.row, at.column);
        cell.link = cell.text;
        cell.group = lane % 4 + 4 * (reg % 2);
        cell.is_marked = (at.row == asked.row && at.column == asked.column) || reg == asked.reg;
        cell.values = {{"lane", lane},       {"register", reg}, {"first_bit", e * shape.bits},
                       {"bits", shape.bits}, {"row", at.row},   {"column", at.column}};
      }
  return grid;
}

Asked asked_of(const LayoutArguments& arguments, int lanes, int rows, int columns) {
  Asked asked;
  asked.lane = static_cast<int>(arguments.number("lane", -1, 0, lanes - 1));
  if (!arguments.has("element")) return asked;
  const auto at = arguments.list("element", 2, 2, 0, 1 << 20);
  if (at[0] >= rows || at[1] >= columns)
    throw Error(ErrorKind::usage, fmt::format("--element = {}: the matrix has {} rows and {} columns",
                                              arguments.text("element"), rows, columns));
  asked.row = static_cast<int>(at[0]);
  asked.column = static_cast<int>(at[1]);
  return asked;
}

void add_fragment(LayoutPage& page, const FragmentShape& shape, const LayoutArguments& arguments,
                  const std::string& row_axis, const std::string& column_axis) {
  Asked asked = asked_of(arguments, fragment_lanes(shape), shape.rows, shape.columns);
  const int registers = fragment_registers(shape), per = fragment_elements(shape);
  asked.reg = static_cast<int>(arguments.number("register", -1, 0, registers - 1));
  if (asked.reg >= 0 && asked.lane < 0) throw Error(ErrorKind::usage, "--register: goes with --lane, whose it is");
  page.facts.emplace_back("matrix", fmt::format("{} x {} ({} x {}), {} bits an element", shape.rows, shape.columns,
                                                row_axis, column_axis, shape.bits));
  page.facts.emplace_back("registers of a thread", fmt::format("{} of {} bits, {} element{} each", registers,
                                                               shape.bits == 64 ? 64 : 32, per, per == 1 ? "" : "s"));
  if (asked.row >= 0) {
    const FragmentSlot slot = fragment_slot(shape, {asked.row, asked.column});
    page.facts.emplace_back(fmt::format("element {},{}", asked.row, asked.column),
                            fmt::format("thread {}, register {}, bits {}..{}", slot.lane, slot.reg,
                                        first_bit(shape, slot) + shape.bits - 1, first_bit(shape, slot)));
  }
  if (asked.reg >= 0) {
    std::vector<std::string> held;
    for (int e = 0; e < per; ++e) {
      const FragmentElement at = fragment_element(shape, {asked.lane, asked.reg, e});
      held.push_back(fmt::format("{},{} in bits {}..{}", at.row, at.column, (e + 1) * shape.bits - 1, e * shape.bits));
    }
    page.facts.emplace_back(fmt::format("thread {}, register {}", asked.lane, asked.reg),
                            fmt::format("{}", fmt::join(held, "; ")));
  }
  page.grids.push_back(matrix_grid(shape, asked, row_axis, column_axis));
  page.grids.push_back(register_grid(shape, asked));
}

bool is_full_spelling(std::string_view name) { return name.find(".sync.aligned") != std::string_view::npos; }

int bits_of_result(std::string_view type) { return type == "f16" ? 16 : type == "f64" ? 64 : 32; }

/// SFA, SFB: the register whose bytes scale the blocks of a row of A or a
/// column of B.
void add_scales(LayoutPage& page, const ProductForm& form, const LayoutArguments& arguments, bool is_a) {
  if (form.scale_vectors == 0)
    throw Error(ErrorKind::usage,
                fmt::format("{} has no block scales: mxf8f6f4, mxf4 and mxf4nvf4 have", arguments.subject));
  const int usual = form.scale_vectors == 6 ? 4 : form.scale_vectors;
  const int usual_vector = form.scale_vector != 0 ? form.scale_vector : usual;
  const int vector =
      arguments.has("scale-vec") ? 1 << arguments.word("scale-vec", {"1X", "2X", "4X"}, 0) : usual_vector;
  if ((form.scale_vectors & vector) == 0)
    throw Error(ErrorKind::usage,
                fmt::format("{} = {}X: {} takes {}", arguments.has("scale-vec") ? "--scale-vec" : "scale_vec", vector,
                            form.type, scale_vectors_text(form)));
  const int thread_id = static_cast<int>(arguments.number("thread-id", 0, 0, 255));
  const int byte_id = static_cast<int>(arguments.number("byte-id", 0, 0, 255));
  const auto verdict = layout::why_bad_selectors(is_a, vector, thread_id, byte_id);
  if (verdict.rule == layout::SelectorRule::thread_id)
    throw Error(ErrorKind::usage, fmt::format("--thread-id = {}: must be from 0 to {} for {}", thread_id, verdict.bound,
                                              is_a ? "SFA" : "SFB"));
  if (!verdict.ok())
    throw Error(ErrorKind::usage, fmt::format("--byte-id = {}: with {}X it must be {}", byte_id, vector,
                                              vector == 4   ? "0"
                                              : vector == 2 ? "0 or 2"
                                                            : "from 0 to 3"));
  const int rows = is_a ? 16 : 8, block = form.k / vector;
  if (!is_full_spelling(arguments.subject))
    page.facts.emplace_back("PTX", ptx_spelling(form, form.results.front(), vector));
  page.facts.emplace_back("scales", fmt::format("scale_vec::{}X: {} of a {}, one for each {} of K", vector, vector,
                                                is_a ? "row of A" : "column of B", block));
  page.facts.emplace_back("selectors", fmt::format("thread-id {}, byte-id {}", thread_id, byte_id));
  std::vector<std::string> columns;
  for (int b = 0; b < vector; ++b) columns.push_back(fmt::format("k {}..{}", b * block, (b + 1) * block - 1));
  // An element as its matrix names it: m,k of A, k,n of B.
  const Asked asked = asked_of(arguments, 32, is_a ? rows : form.k, is_a ? form.k : rows);
  const int asked_row = is_a ? asked.row : asked.column, asked_k = is_a ? asked.column : asked.row;
  LayoutGrid grid =
      make_grid("thread and byte of its 32-bit scale register", is_a ? "m" : "n", numbers(rows), "block", columns);
  LayoutGrid back = make_grid(fmt::format("the scale register of each thread: "
                                          "{},block of every byte that is read",
                                          is_a ? "m" : "n"),
                              "thread", numbers(32), "byte", numbers(4));
  for (LayoutCell& cell : back.cells) cell.is_outside = true;
  for (int r = 0; r < rows; ++r)
    for (int b = 0; b < vector; ++b) {
      const layout::ScaleSlot slot = layout::mma_scale_slot(is_a, thread_id, byte_id, r, b);
      LayoutCell& cell = grid.at(static_cast<std::size_t>(r), static_cast<std::size_t>(b));
      cell.text = fmt::format("T{} byte {}", slot.lane, slot.byte);
      cell.link = fmt::format("{},{}", r, b);
      cell.group = slot.lane % 4;
      cell.is_marked = slot.lane == asked.lane || (r == asked_row && b == asked_k / block);
      cell.values = {{is_a ? "row" : "column", r}, {"block", b}, {"lane", slot.lane}, {"byte", slot.byte}};
      LayoutCell& from = back.at(static_cast<std::size_t>(slot.lane), static_cast<std::size_t>(slot.byte));
      from = cell;
      from.text = cell.link;
    }
  if (asked_row >= 0) {
    const layout::ScaleSlot slot = layout::mma_scale_slot(is_a, thread_id, byte_id, asked_row, asked_k / block);
    page.facts.emplace_back(fmt::format("element {}", arguments.text("element")),
                            fmt::format("block {}: thread {}, byte {}", asked_k / block, slot.lane, slot.byte));
  }
  page.grids.push_back(std::move(grid));
  page.grids.push_back(std::move(back));
  page.notes.push_back(
      "the other threads' scale registers are not read; sm_120 family, from "
      "the manual, never run on such a device");
}

/// E: which thread's metadata register holds the four bits of each row's group.
void add_metadata(LayoutPage& page, const ProductForm& form, const LayoutArguments& arguments) {
  if (!form.is_sparse)
    throw Error(ErrorKind::usage, fmt::format("{} has no metadata: mma.sp and wgmma.sp have", arguments.subject));
  layout::SparseShape shape{form.bits, form.k, form.is_wgmma};
  const int groups = sparse_groups(shape), selectors = sparse_selectors(shape), group = layout::sparse_group(form.bits);
  const int selector = static_cast<int>(arguments.number("selector", 0, 0, selectors - 1));
  const int lanes = form.is_wgmma ? 128 : 32;
  const Asked asked = asked_of(arguments, lanes, form.m, groups);
  if (!is_full_spelling(arguments.subject)) page.facts.emplace_back("PTX", ptx_spelling(form, form.results.front(), 0));
  page.facts.emplace_back("groups", fmt::format("{} of {} elements along K in each row, 4 bits each", groups, group));
  page.facts.emplace_back("selector",
                          selectors == 1 ? "0: every thread's register is read"
                                         : fmt::format("{} of 0 to {}: it picks the threads", selector, selectors - 1));
  LayoutGrid rows = make_grid("the matrix: thread (T) and bits of its metadata register for each group", "m",
                              numbers(form.m), "group", numbers(groups));
  LayoutGrid registers = make_grid(
      "the metadata register of each thread: "
      "row,group of every four bits, from bit 0",
      "thread", {}, "bit", numbers(8, 0, 4));
  std::vector<std::vector<LayoutCell>> of_lane(static_cast<std::size_t>(lanes));
  for (int r = 0; r < form.m; ++r)
    for (int g = 0; g < groups; ++g) {
      const layout::MetadataSlot slot = sparse_metadata_slot(shape, selector, {r, g});
      LayoutCell& cell = rows.at(static_cast<std::size_t>(r), static_cast<std::size_t>(g));
      cell.text = fmt::format("T{} {}..{}", slot.lane, slot.first_bit + 3, slot.first_bit);
      cell.link = fmt::format("{},{}", r, g);
      cell.group = slot.lane % 4;
      cell.is_marked = slot.lane == asked.lane || (r == asked.row && g == asked.column);
      cell.values = {{"row", r}, {"group", g}, {"lane", slot.lane}, {"first_bit", slot.first_bit}, {"bits", 4}};
      std::vector<LayoutCell>& cells = of_lane[static_cast<std::size_t>(slot.lane)];
      cells.resize(8);
      LayoutCell& back = cells[static_cast<std::size_t>(slot.first_bit / 4)];
      back = cell;
      back.text = cell.link;
    }
  for (int lane = 0; lane < lanes; ++lane) {
    const std::vector<LayoutCell>& cells = of_lane[static_cast<std::size_t>(lane)];
    if (cells.empty() || (asked.lane >= 0 && asked.lane != lane)) continue;
    registers.rows.push_back(fmt::format("T{}", lane));
    registers.cells.insert(registers.cells.end(), cells.begin(), cells.end());
  }
  if (asked.row >= 0) {
    const layout::MetadataSlot slot = sparse_metadata_slot(shape, selector, {asked.row, asked.column});
    page.facts.emplace_back(fmt::format("group {},{}", asked.row, asked.column),
                            fmt::format("thread {}, bits {}..{}", slot.lane, slot.first_bit + 3, slot.first_bit));
  }
  page.grids = {std::move(rows), std::move(registers)};
  page.notes.push_back(form.bits == 32  ? "0b0100 keeps the first of the two elements, 0b1110 the second"
                       : form.bits == 4 ? "two indices of two bits, rising, the first in the low bits: which "
                                          "two of the group's four pairs are kept"
                                        : "two indices of two bits, rising, the first in the low bits: which "
                                          "two of the group's four elements are "
                                          "kept");
  if (form.scale_vectors != 0 || form.has_narrow_kind)
    page.notes.push_back(
        "only sm_120 has this product: its metadata is taken to lie as that of the same width on sm_90; never run, in "
        "no "
        "emulator either");
}

/// m8n8k4.f16: A and B lie by rows or by columns, as the instruction's .row and
/// .col say.
Fragment quarter_fragment(const LayoutArguments& arguments, bool is_a) {
  const bool is_k_major = arguments.word("major", {"k", "mn"}, 0) == 0;
  return is_a ? (is_k_major ? Fragment::quarter_a_row : Fragment::quarter_a_col)
              : (is_k_major ? Fragment::quarter_b_col : Fragment::quarter_b_row);
}

FragmentShape result_shape(const ProductForm& form, int bits) {
  if (form.is_quarter) return {Fragment::quarter_d, 4 * form.m, form.n, bits};
  return {form.is_wgmma ? Fragment::wgmma_d : Fragment::mma_d, form.m, form.n, bits};
}

FragmentShape operand_shape(const ProductForm& form, const LayoutArguments& arguments, bool is_a) {
  if (form.is_quarter && is_a) return {quarter_fragment(arguments, true), 4 * form.m, form.k, form.bits};
  if (form.is_quarter) return {quarter_fragment(arguments, false), form.k, 4 * form.n, form.bits};
  if (!is_a) return {Fragment::mma_b, form.k, form.n, form.bits};
  return {form.is_wgmma ? Fragment::wgmma_a : Fragment::mma_a, form.m, form.is_sparse ? form.k / 2 : form.k, form.bits};
}

void add_notes(LayoutPage& page, const ProductForm& form, bool is_a) {
  if (is_a && form.is_sparse)
    page.notes.push_back(
        fmt::format("columns are those of the stored half: {} of each group of {} along K, "
                    "which the metadata places (--operand E)",
                    layout::sparse_group(form.bits) / 2, layout::sparse_group(form.bits)));
  if (form.is_quarter)
    page.notes.push_back(
        "four products: the p-th one's rows of A and D (columns of B) are 8p "
        "to 8p + 7, its threads 4p to 4p + 3 and "
        "4p + 16 to 4p + 19; an instruction of sm_70, which later targets "
        "emulate");
  if (form.scale_vectors != 0 || !form.container.empty())
    page.notes.push_back("sm_120 family: from the manual, never run on such a device");
}

}  // namespace

LayoutPage layout_fragment(const LayoutArguments& arguments) {
  if (arguments.subject.empty())
    throw Error(ErrorKind::usage,
                "layout fragment: name an instruction, like mma.m16n8k16.bf16, "
                "wgmma.m64n128k16.bf16, ldmatrix.m8n8.x4 "
                "or tcgen05.ld.32x32b.x8");
  LayoutPage page;
  if (is_move(arguments.subject)) {
    if (arguments.has("operand")) throw Error(ErrorKind::usage, "--operand: is for mma and wgmma");
    const MoveForm form = parse_move(arguments.subject);
    page.title = arguments.subject;
    if (form.ptx != arguments.subject) page.facts.emplace_back("PTX", form.ptx);
    add_fragment(page, form.shape, arguments, form.row_axis, form.column_axis);
    page.notes.push_back(form.note);
    return page;
  }
  const ProductForm form = parse_product(arguments.subject);
  static const std::vector<std::string_view> kOperands = {"A", "B", "C", "D", "SFA", "SFB", "E"};
  const std::size_t operand = arguments.word("operand", kOperands, 3);
  page.title = fmt::format("{}, operand {}", arguments.subject, kOperands[operand]);
  const auto add_ptx = [&](std::string_view result) {
    if (!is_full_spelling(arguments.subject)) page.facts.emplace_back("PTX", ptx_spelling(form, result, 0));
  };
  if (operand == 6) {
    add_metadata(page, form, arguments);
    return page;
  }
  if (operand >= 4) {
    add_scales(page, form, arguments, operand == 4);
    return page;
  }
  const bool is_result = operand == 2 || operand == 3;
  if (operand == 1 && form.is_wgmma)
    throw Error(ErrorKind::usage,
                "wgmma takes B from shared memory: see "
                "`tessera layout smem-descriptor wgmma`");
  if (operand == 0 && form.is_wgmma && form.bits == 1)
    page.notes.push_back("b1: A's bits lie as 32-bit words of 32 along K");
  FragmentShape shape;
  if (is_result) {
    const std::size_t type = arguments.word("type-d", form.results, 0);
    shape = result_shape(form, bits_of_result(form.results[type]));
    page.facts.emplace_back("type", std::string(form.results[type]));
    add_ptx(form.results[type]);
  } else {
    shape = operand_shape(form, arguments, operand == 0);
    page.facts.emplace_back("type", std::string(form.type));
    add_ptx(form.results.front());
    if (!form.container.empty()) page.facts.emplace_back("container", std::string(form.container));
  }
  add_fragment(page, shape, arguments, operand == 1 ? "k" : "m", is_result || operand == 1 ? "n" : "k");
  add_notes(page, form, operand == 0);
  return page;
}

}  // namespace tessera::cli

// How the accumulator of one product becomes the A operand of the next, as in
// attention (P of S = Q K^T, then P V): each thread turns the values that it
// holds into A's registers. Where A wants elements along K that other threads
// hold, K is renamed: a product does not care in which order it runs over K, so
// V's rows are taken in the order in which P stands. What the natural order
// costs instead is shown too: neighbours along N travel together, so a word of
// a thread's packed values serves all that want a part of it.
#include <fmt/format.h>

#include <algorithm>

#include "cli/layout_command.h"
#include "cli/layout_forms.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;
using layout::FragmentSlot;

/// The value of D (counted over a thread's values, whatever their type) that an
/// element of A is made of.
int value_of(const FragmentShape& d, const FragmentSlot& slot) { return slot.reg * fragment_elements(d) + slot.index; }

/// The instructions that make a register of A of `per` values of D.
std::string conversion_text(const ProductForm& form, std::string_view result, int per) {
  if (result == "f16" && form.type == "f16") return "none: a register of D is a register of A";
  const std::string_view type = form.type;
  if (type == "f16" || type == "bf16")
    return fmt::format("cvt.rn.{}x2.f32 a, v1, v0: two values, the first in the low half", type);
  if (type == "tf32") return "cvt.rna.tf32.f32 a, v0: each value becomes a register";
  if (type == "s8" || type == "u8" || type == "s4" || type == "u4")
    return fmt::format(
        "{} values of s32 saturate and pack two at a time: "
        "cvt.pack.sat.{}.s32.b32",
        per, type);
  const bool is_half = result == "f16";
  if (is_half && form.scale_vectors == 0 && (type == "e4m3" || type == "e5m2"))
    return fmt::format(
        "cvt.rn.satfinite.{}x2.f16x2 h, d0: a register of D "
        "makes 16 bits, two of these a register",
        type);
  const std::string_view narrow = form.scale_vectors != 0 && form.bits == 4 ? "e2m1"
                                  : type == "mxf8f6f4"                      ? "e4m3"
                                                                            : type;
  const std::string scaled = form.scale_vectors != 0 ? ", after the product with 1 / scale" : "";
  if (form.bits == 4)
    return fmt::format(
        "cvt.rn.satfinite.e2m1x2.f32 b, v1, v0: two values a "
        "byte, four bytes a register{}",
        scaled);
  if (narrow == "e2m1")
    return std::string(is_half ? "cvt.f32.f16 of each, then " : "") +
           "cvt.rn.satfinite.e2m1x2.f32 b, v1, v0: two values in a byte, which "
           "are spread to bits 5..2 of two bytes";
  return fmt::format(
      "{}cvt.rn.satfinite.{}x2.f32 h, v1, v0: two values in 16 "
      "bits, two of these a register{}",
      is_half ? "cvt.f32.f16 of each, then " : "", narrow, scaled);
}

/// A's registers of a thread, made of its own values.
LayoutGrid own_grid(const FragmentShape& a, const FragmentShape& d, const std::vector<int>& source) {
  const int per = fragment_elements(a);
  LayoutGrid grid = make_grid(
      "A's registers of a thread: tile of D and value "
      "(v) in it that each element is made of",
      "register", {}, "element", numbers(per));
  for (int reg = 0; reg < fragment_registers(a); ++reg) grid.rows.push_back(fmt::format("a{}", reg));
  for (int reg = 0; reg < fragment_registers(a); ++reg)
    for (int e = 0; e < per; ++e) {
      const FragmentElement at = fragment_element(a, {0, reg, e});
      const int column = source[static_cast<std::size_t>(at.column)];
      const int value = value_of(d, fragment_slot(d, {at.row, column % 8}));
      LayoutCell cell;
      cell.text = fmt::format("tile {} v{}", column / 8, value);
      cell.link = fmt::format("tile {} v{}", column / 8, value);
      cell.group = column / 8;
      cell.values = {{"register", reg}, {"element", e}, {"tile", column / 8}, {"value", value}};
      grid.cells.push_back(std::move(cell));
    }
  return grid;
}

LayoutGrid order_grid(const FragmentShape& d, const std::vector<int>& source) {
  LayoutGrid order = make_grid("K of the product: column of D, and so row of B, that stands there", "", {"row of B"},
                               "k", numbers(static_cast<int>(source.size())));
  for (std::size_t k = 0; k < source.size(); ++k) {
    LayoutCell& cell = order.at(0, k);
    const FragmentSlot from = fragment_slot(d, {0, source[k] % 8});
    cell.text = std::to_string(source[k]);
    cell.link = fmt::format("tile {} v{}", source[k] / 8, value_of(d, from));
    cell.group = source[k] / 8;
    cell.values = {{"k", static_cast<std::int64_t>(k)}, {"row_of_b", source[k]}, {"thread_of_quad", from.lane % 4}};
  }
  return order;
}

/// Without renaming: the thread of the quad that holds what each element of A
/// is made of.
LayoutGrid natural_grid(const FragmentShape& a, const FragmentShape& d) {
  const int per = fragment_elements(a), registers = fragment_registers(a);
  LayoutGrid grid = make_grid(
      "K in its natural order instead: thread of the "
      "quad (q), tile and value that an element wants",
      "thread, register", {}, "element", numbers(per));
  for (int q = 0; q < 4; ++q)
    for (int reg = 0; reg < registers; ++reg) {
      grid.rows.push_back(fmt::format("q{} a{}", q, reg));
      for (int e = 0; e < per; ++e) {
        const FragmentElement at = fragment_element(a, {q, reg, e});
        const FragmentSlot from = fragment_slot(d, {at.row, at.column % 8});
        LayoutCell cell;
        cell.text = fmt::format("q{} t{} v{}", from.lane % 4, at.column / 8, value_of(d, from));
        cell.link = fmt::format("tile {} v{}", at.column / 8, value_of(d, from));
        cell.group = from.lane % 4;
        cell.values = {{"thread_of_quad", q},          {"register", reg},       {"element", e},
                       {"from_thread", from.lane % 4}, {"tile", at.column / 8}, {"value", value_of(d, from)}};
        grid.cells.push_back(std::move(cell));
      }
    }
  return grid;
}

/// What the natural order takes. A word packs the same row's pairs of as many
/// tiles as a register of A spans.
std::string natural_text(int per) {
  if (per == 1)
    return "in natural order each register of A takes two shuffles, "
           "shfl.sync.idx of v0 and of v1 (v2 and v3) from "
           "thread q / 2 (k < 4) or 2 + q / 2 of the quad, and a choice by q % "
           "2";
  if (per == 4)
    return "in natural order each register of A takes two shuffles: the pairs "
           "of two tiles make a word, which "
           "shfl.sync.idx fetches from threads 2 (q % 2) and 2 (q % 2) + 1 of "
           "the quad; prmt then takes the halves of "
           "tile q / 2 of both";
  return "in natural order each register of A takes four shuffles: the pairs "
         "of four tiles make a word of four bytes, "
         "which shfl.sync.idx fetches from each of the quad's threads; prmt "
         "then takes byte q of all four";
}

/// tcgen05.mma's A in Tensor Memory: rows are lanes as D's are, so a thread packs the columns of its own lane.
LayoutPage repack_in_tmem(const std::string& name) {
  struct Row {
    std::string_view kind;
    int bits;
    std::string_view conversion;
  };
  static constexpr std::string_view kEight = "cvt.rn.satfinite.e4m3x2.f32 (e5m2x2) twice: four columns become one";
  static constexpr std::string_view kFour = "cvt.rn.satfinite.e2m1x2.f32 four times: eight columns become one";
  static constexpr Row kRows[] = {{"f16", 16, "cvt.rn.f16x2.f32 or cvt.rn.bf16x2.f32: two columns become one"},
                                  {"tf32", 32, "cvt.rna.tf32.f32: a column stays one"},
                                  {"f8f6f4", 8, kEight},
                                  {"i8", 8, "cvt.pack.sat.s8.s32.b32 (u8) twice: four columns become one"},
                                  {"mxf8f6f4", 8, kEight},
                                  {"mxf4", 4, kFour},
                                  {"mxf4nvf4", 4, kFour}};
  const std::vector<std::string_view> words = words_of(name);
  std::string_view kind = words.back();
  if (kind.starts_with("kind::")) kind.remove_prefix(6);
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.kind == kind; });
  if (words.size() != 3 || words[1] != "mma" || row == std::end(kRows))
    throw Error(
        ErrorKind::usage,
        fmt::format("{}: takes no A that is an accumulator before; there are mma.SHAPE.TYPE, wgmma.SHAPE.TYPE and "
                    "tcgen05.mma.KIND with f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4",
                    name));
  constexpr int kSparseColumns = 8;  // 32 bytes of K: one instruction
  const int per = 32 / row->bits;
  LayoutPage page;
  page.title = fmt::format("D in Tensor Memory as A of {}", name);
  page.facts = {{"shuffles", "none: row m of D is lane m, and so is row m of A (M = 128)"},
                {"columns of D for one A", fmt::format("{}: {} columns of A", kSparseColumns * per, kSparseColumns)},
                {"moves", "tcgen05.ld.32x32b, a lane a thread; tcgen05.st.32x32b of what was packed"},
                {"conversion", std::string(row->conversion)}};
  LayoutGrid a =
      make_grid("A: column of D that each element of a column of Tensor Memory is made of, from its low bits", "column",
                numbers(kSparseColumns), "element", numbers(per));
  LayoutGrid d = make_grid("D: column and bits of A where each column goes", "", {"A"}, "column of D",
                           numbers(kSparseColumns * per));
  for (int column = 0; column < kSparseColumns; ++column)
    for (int e = 0; e < per; ++e) {
      const int of_d = column * per + e;
      LayoutCell& cell = a.at(static_cast<std::size_t>(column), static_cast<std::size_t>(e));
      cell.text = cell.link = std::to_string(of_d);
      cell.group = column;
      cell.values = {{"column", column}, {"first_bit", e * row->bits}, {"bits", row->bits}, {"column_of_d", of_d}};
      d.at(0, static_cast<std::size_t>(of_d)) = cell;
      d.at(0, static_cast<std::size_t>(of_d)).text =
          fmt::format("c{} {}..{}", column, (e + 1) * row->bits - 1, e * row->bits);
    }
  page.grids = {std::move(a), std::move(d)};
  page.notes = {
      "the next instruction's A lies 8 columns further; narrow types of f8f6f4 in their bytes: no source says where",
      "from the manual and public libraries; no Blackwell device was asked, the emulator was"};
  return page;
}

void add_scales(LayoutPage& page, const ProductForm& form) {
  const bool is_half = form.type == "mxf4nvf4" && form.scale_vector != 2;
  page.notes.push_back(
      fmt::format("block scales follow the renamed K: a block of {} is made of "
                  "the columns of D that stand there, held by {} "
                  "threads of a quad, so its largest magnitude takes {} of one "
                  "value a row (shfl.sync.bfly)",
                  is_half ? 16 : 32, is_half ? 2 : 4, is_half ? "one shuffle" : "two shuffles"));
}

}  // namespace

LayoutPage layout_repack(const LayoutArguments& arguments) {
  if (arguments.subject != "D-to-A" || arguments.argument.empty())
    throw Error(ErrorKind::usage,
                "layout repack: say D-to-A and the instruction that takes A, like "
                "`tessera layout repack D-to-A "
                "mma.m16n8k16.bf16`, wgmma.m64n128k32.e4m3, mma.m16n8k64.mxf4nvf4 or tcgen05.mma.f16");
  if (is_move(arguments.argument)) return repack_in_tmem(arguments.argument);
  const ProductForm form = parse_product(arguments.argument);
  if (form.bits == 1 || form.bits == 64 || form.m == 8 || form.k < 8 || form.is_sparse)
    throw Error(ErrorKind::usage, fmt::format("{}: D-to-A is for dense products of m16 or m64 "
                                              "with elements of 4 to 32 bits and K of at least 8",
                                              arguments.argument));
  const std::string_view result = form.results[arguments.word("type-d", form.results, 0)];
  const FragmentShape a{form.is_wgmma ? Fragment::wgmma_a : Fragment::mma_a, form.m, form.k, form.bits};
  // D of the product before, one tile of 8 columns: wgmma's is a row of such
  // tiles.
  const FragmentShape d{form.is_wgmma ? Fragment::wgmma_d : Fragment::mma_d, form.m, 8, result == "f16" ? 16 : 32};
  std::vector<int> source;
  for (int k = 0; k < form.k; ++k) source.push_back(layout::repack_column(form.bits, k));
  const bool is_identity = std::is_sorted(source.begin(), source.end());

  LayoutPage page;
  page.title = fmt::format("D ({}) of m{}n8 tiles as A of {}", result, form.m, arguments.argument);
  page.facts = {{"shuffles", is_identity ? "none: every thread holds what its A registers want"
                                         : "none, if B's rows are taken in the order of the "
                                           "table (else see the note)"},
                {"D tiles for one A", fmt::format("{} of 8 columns", form.k / 8)},
                {"conversion", conversion_text(form, result, fragment_elements(a))}};
  page.grids.push_back(own_grid(a, d, source));
  page.grids.push_back(order_grid(d, source));
  if (!is_identity) {
    page.grids.push_back(natural_grid(a, d));
    page.notes.push_back(natural_text(fragment_elements(a)));
  }
  if (form.scale_vectors != 0) add_scales(page, form);
  if (form.scale_vectors != 0 || !form.container.empty())
    page.notes.push_back("sm_120 family: from the manual, never run on such a device");
  return page;
}

}  // namespace tessera::cli

// The moves between registers and memories whose fragments are drawn: PTX ISA,
// "ldmatrix", "stmatrix", "tcgen05.ld", "tcgen05.st". A name is read leniently,
// and then must be one of the spellings of what was read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "cli/layout_forms.h"
#include "tessera/error.h"

namespace tessera::cli {

using layout::Fragment;

bool is_move(std::string_view name) {
  return name.starts_with("ldmatrix") || name.starts_with("stmatrix") || name.starts_with("tcgen05");
}

namespace {

[[noreturn]] void refuse_move(std::string_view spelling, bool is_tmem) {
  if (is_tmem && !spelling.starts_with("tcgen05.ld") && !spelling.starts_with("tcgen05.st"))
    throw Error(ErrorKind::usage, fmt::format("{}: fills or empties no registers; tcgen05.ld and "
                                              ".st do. What it reads: `tessera layout "
                                              "smem-descriptor tcgen05`, "
                                              "`instruction-descriptor`, `scale-factors`",
                                              spelling));
  throw Error(ErrorKind::usage, fmt::format("{}: there is no such instruction; there are {}", spelling,
                                            is_tmem ? "tcgen05.ld and .st with 32x32b, 16x64b, 16x32bx2 (x1 to "
                                                      "x128), 16x128b (x1 to "
                                                      "x64), 16x256b (x1 to x32), ld also with .pack::16b, st "
                                                      "with .unpack::16b, and "
                                                      "tcgen05.ld.red with 32x32b and 16x32bx2 (x2 to x128)"
                                                    : "ldmatrix.m8n8.x1|x2|x4[.trans] (b16), "
                                                      "ldmatrix.m16n16.x1|x2.trans[.b6x16_p32|.b4x16_p64] (b8), "
                                                      "ldmatrix.m8n16.x1|x2|x4.b6x16_p32|b4x16_p64, "
                                                      "stmatrix.m8n8.x1|x2|x4[.trans] (b16), "
                                                      "stmatrix.m16n8.x1|x2|x4.trans (b8)"));
}

// "x4": 4; 0: no such count.
int count_of(std::string_view times) {
  int count = 0;
  if (times.size() < 2 || times[0] != 'x' || times[1] == '0' ||
      std::from_chars(times.data() + 1, times.data() + times.size(), count).ptr != times.data() + times.size())
    return 0;
  return count > 0 && (count & (count - 1)) == 0 ? count : 0;
}

/// The words of a name without those that PTX adds and no map depends on.
std::vector<std::string_view> bare_words(std::string_view spelling, const std::vector<std::string_view>& added) {
  std::vector<std::string_view> words = words_of(spelling);
  std::erase_if(words,
                [&](std::string_view word) { return std::find(added.begin(), added.end(), word) != added.end(); });
  return words;
}

/// `legal`: every spelling of what was read, PTX's own last.
void check_spelling(std::string_view spelling, const std::vector<std::string>& legal) {
  if (std::find(legal.begin(), legal.end(), spelling) == legal.end())
    throw Error(ErrorKind::usage, fmt::format("{}: PTX spells it {}", spelling, legal.back()));
}

/// tcgen05.ld.red: the operation, its modifiers and type as PTX orders them. A
/// short name may leave all of it out.
std::string reduction_of(std::string_view spelling) {
  const std::vector<std::string_view> words = words_of(spelling);
  const auto has = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const std::string_view type = has("u32") ? "u32" : has("s32") ? "s32" : "f32";
  const bool is_float = type == "f32";
  return fmt::format(".{}{}{}.{}", has("min") ? "min" : "max", is_float && has("abs") ? ".abs" : "",
                     is_float && has("NaN") ? ".NaN" : "", type);
}

MoveForm parse_tmem_move(std::string_view spelling) {
  struct Row {
    std::string_view name;
    Fragment fragment;
    int lanes, columns, most;
  };
  static constexpr Row kRows[] = {{"32x32b", Fragment::tmem_32x32b, 32, 1, 128},
                                  {"16x64b", Fragment::tmem_16x64b, 16, 2, 128},
                                  {"16x128b", Fragment::tmem_16x128b, 16, 4, 64},
                                  {"16x256b", Fragment::tmem_16x256b, 16, 8, 32},
                                  {"16x32bx2", Fragment::tmem_16x32bx2, 16, 2, 128}};
  std::vector<std::string_view> parts = bare_words(spelling, {"sync", "aligned", "b32"});
  const bool is_load = parts.size() > 1 && parts[1] == "ld";
  const bool reduces = is_load && parts.size() > 2 && parts[2] == "red";
  if (reduces)
    parts = bare_words(spelling, {"sync", "aligned", "red", "min", "max", "abs", "NaN", "f32", "u32", "s32"});
  const bool packs = parts.size() == 5 && parts[4] == (is_load ? "pack::16b" : "unpack::16b");
  if (parts.size() != (packs ? 5 : 4) || (!is_load && parts[1] != "st")) refuse_move(spelling, true);
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == parts[2]; });
  const int count = count_of(parts[3]);
  if (row == std::end(kRows) || count == 0 || count > row->most) refuse_move(spelling, true);
  const bool is_reducible = row->fragment == Fragment::tmem_32x32b || row->fragment == Fragment::tmem_16x32bx2;
  if (reduces && (packs || !is_reducible || count < 2)) refuse_move(spelling, true);
  const std::string way = reduces ? "ld.red" : std::string(parts[1]);
  const std::string shape = fmt::format(".{}.{}{}{}", parts[2], parts[3], packs ? "." : "", packs ? parts[4] : "");
  const std::string type = reduces ? reduction_of(spelling) : ".b32";
  MoveForm form;
  form.ptx = fmt::format("tcgen05.{}.sync.aligned{}{}", way, shape, type);
  check_spelling(spelling,
                 {fmt::format("tcgen05.{}{}", way, shape), fmt::format("tcgen05.{}{}{}", way, shape, type), form.ptx});
  form.shape = {row->fragment, row->lanes, row->columns * count * (packs ? 2 : 1), packs ? 16 : 32};
  form.row_axis = "TMEM lane";
  form.column_axis = "column";
  if (row->fragment == Fragment::tmem_16x32bx2)
    form.note = fmt::format("columns {} and up count from the split offset, an immediate; ", form.shape.columns / 2);
  if (packs) form.note += "an element is the low half of its column; ";
  if (reduces)
    form.note +=
        "one more register has the minimum or maximum of the thread's "
        "registers; sm_103a; ";
  form.note +=
      "lanes and columns count from the address; warp w of a CTA "
      "reaches lanes 32 (w % 4) and up; never run on "
      "Blackwell hardware here";
  return form;
}

}  // namespace

MoveForm parse_move(std::string_view spelling) {
  if (words_of(spelling).front() == "tcgen05") return parse_tmem_move(spelling);
  const std::vector<std::string_view> words = words_of(spelling);
  const std::vector<std::string_view> parts =
      bare_words(spelling, {"sync", "aligned", "shared", "shared::cta", "b16", "b8", "b8x16"});
  const bool is_load = parts.front() == "ldmatrix";
  if ((!is_load && parts.front() != "stmatrix") || parts.size() < 3 || parts.size() > 5) refuse_move(spelling, false);
  const std::string_view shape = parts[1];
  const int count = count_of(parts[2]);
  const bool is_trans = parts.size() > 3 && parts[3] == "trans";
  // What stands after .trans, or alone: the narrow formats.
  const std::string_view kind = parts.size() > (is_trans ? 4u : 3u) ? parts.back() : std::string_view{};
  if (count == 0 || count > 4 || (parts.size() == 5 && !is_trans)) refuse_move(spelling, false);
  const auto says = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  // Of the types only the wrong ones are told apart: a short name has none.
  if (shape == "m8n8" ? says("b8") || says("b8x16") : says("b16")) refuse_move(spelling, false);
  MoveForm form;
  form.row_axis = "address lane";
  form.column_axis = "element";
  form.note = "row r is the 16 bytes at the address that lane r gives";
  const bool is_narrow = is_load && (kind == "b6x16_p32" || kind == "b4x16_p64");
  const bool is_large = shape == "m16n16" && is_trans && count <= 2;  // 16 rows a matrix
  if (is_narrow && (is_large || (shape == "m8n16" && !is_trans))) {
    form.shape = {is_large ? Fragment::matrix_trans_b8 : Fragment::matrix_narrow, (is_large ? 16 : 8) * count, 16, 8};
    form.note += kind == "b6x16_p32" ? "; element e is its bits 6e..6e+5, and "
                                       "lands in bits 5..0 of a byte"
                                     : "; element e is its bits 4e..4e+3, and "
                                       "lands in bits 3..0 of a byte";
  } else if (!kind.empty()) {
    refuse_move(spelling, false);
  } else if (shape == "m8n8") {
    form.shape = {is_trans ? Fragment::matrix_trans : Fragment::matrix, 8 * count, 8, 16};
  } else if (is_load && is_large) {
    form.shape = {Fragment::matrix_trans_b8, 16 * count, 16, 8};
  } else if (!is_load && shape == "m16n8" && is_trans) {
    form.shape = {Fragment::matrix_store_b8, 8 * count, 16, 8};
  } else {
    refuse_move(spelling, false);
  }
  const std::string name = fmt::format(".{}.{}{}", shape, parts[2], is_trans ? ".trans" : "");
  const std::string type = shape == "m8n8" ? ".b16" : is_narrow ? fmt::format(".b8x16.{}", kind) : ".b8";
  form.ptx = fmt::format("{}.sync.aligned{}.shared{}", parts.front(), name, type);
  std::vector<std::string> legal = {fmt::format("{}{}{}{}", parts.front(), name, is_narrow ? "." : "", kind),
                                    fmt::format("{}{}{}", parts.front(), name, type)};
  for (const char* space : {"", ".shared::cta"})
    legal.push_back(fmt::format("{}.sync.aligned{}{}{}", parts.front(), name, space, type));
  legal.push_back(form.ptx);
  check_spelling(spelling, legal);
  return form;
}

}  // namespace tessera::cli

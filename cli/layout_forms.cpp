// The tables of legal instructions: PTX ISA, "mma.sync", "wgmma.mma_async", "ldmatrix", "stmatrix", "tcgen05.ld"; what
// ptxas 13.0 accepts decides where the text is open.
#include "cli/layout_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace tessera::cli {

namespace {

using layout::Fragment;

struct TypeRow {
  std::string_view type;
  int bits;
  std::vector<std::string_view> mma;     ///< shapes of mma.sync
  std::vector<std::string_view> sparse;  ///< of mma.sp
  int wgmma_k;                           ///< 0: none; sparse, twice as much
  std::vector<std::string_view> results;
  std::string_view container;
  int scale_vectors;
};

const std::vector<TypeRow>& types() {
  static constexpr std::string_view kNarrow4 = "the 4 bits are bits 5..2 of a byte";
  static constexpr std::string_view kNarrow6 = "the 6 bits are bits 5..0 of a byte";
  static const std::vector<TypeRow> table = {
      {"f16", 16, {"m8n8k4", "m16n8k8", "m16n8k16"}, {"m16n8k16", "m16n8k32"}, 16, {"f32", "f16"}, "", 0},
      {"bf16", 16, {"m16n8k8", "m16n8k16"}, {"m16n8k16", "m16n8k32"}, 16, {"f32"}, "", 0},
      {"tf32", 32, {"m16n8k4", "m16n8k8"}, {"m16n8k8", "m16n8k16"}, 8, {"f32"}, "", 0},
      {"f64", 64, {"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"}, {}, 0, {"f64"}, "", 0},
      {"e4m3", 8, {"m16n8k16", "m16n8k32"}, {"m16n8k64"}, 32, {"f32", "f16"}, "", 0},
      {"e5m2", 8, {"m16n8k16", "m16n8k32"}, {"m16n8k64"}, 32, {"f32", "f16"}, "", 0},
      {"e3m2", 8, {"m16n8k32"}, {"m16n8k64"}, 0, {"f32", "f16"}, kNarrow6, 0},
      {"e2m3", 8, {"m16n8k32"}, {"m16n8k64"}, 0, {"f32", "f16"}, kNarrow6, 0},
      {"e2m1", 8, {"m16n8k32"}, {"m16n8k64"}, 0, {"f32", "f16"}, kNarrow4, 0},
      {"s8", 8, {"m8n8k16", "m16n8k16", "m16n8k32"}, {"m16n8k32", "m16n8k64"}, 32, {"s32"}, "", 0},
      {"u8", 8, {"m8n8k16", "m16n8k16", "m16n8k32"}, {"m16n8k32", "m16n8k64"}, 32, {"s32"}, "", 0},
      {"s4", 4, {"m8n8k32", "m16n8k32", "m16n8k64"}, {"m16n8k64", "m16n8k128"}, 0, {"s32"}, "", 0},
      {"u4", 4, {"m8n8k32", "m16n8k32", "m16n8k64"}, {"m16n8k64", "m16n8k128"}, 0, {"s32"}, "", 0},
      {"b1", 1, {"m8n8k128", "m16n8k128", "m16n8k256"}, {}, 256, {"s32"}, "", 0},
      {"mxf8f6f4",
       8,
       {"m16n8k32"},
       {"m16n8k64"},
       0,
       {"f32"},
       "4-bit elements: bits 5..2 of a byte; 6-bit elements: bits 5..0",
       1},
      {"mxf4", 4, {"m16n8k64"}, {"m16n8k128"}, 0, {"f32"}, "", 2},
      {"mxf4nvf4", 4, {"m16n8k64"}, {"m16n8k128"}, 0, {"f32"}, "", 2 | 4}};
  return table;
}

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t dot = std::min(name.find('.', start), name.size());
    parts.push_back(name.substr(start, dot - start));
    start = dot + 1;
  }
  return parts;
}

/// Numbers of "m64n128k16"; false for another form.
bool parse_shape(std::string_view text, int& m, int& n, int& k) {
  int* const targets[] = {&m, &n, &k};
  std::size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    if (at >= text.size() || text[at] != "mnk"[i]) return false;
    const auto [stop, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), *targets[i]);
    if (error != std::errc()) return false;
    at = static_cast<std::size_t>(stop - text.data());
  }
  return at == text.size();
}

const std::vector<std::string_view>& shapes_of(const TypeRow& row, bool is_sparse) {
  return is_sparse ? row.sparse : row.mma;
}

bool has_shape(const TypeRow& row, bool is_sparse, std::string_view shape) {
  const std::vector<std::string_view>& shapes = shapes_of(row, is_sparse);
  return std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
}

[[noreturn]] void refuse_mma(std::string_view name, const TypeRow* type, std::string_view shape, bool is_sparse) {
  std::vector<std::string_view> with_shape;
  for (const TypeRow& row : types())
    if (has_shape(row, is_sparse, shape)) with_shape.emplace_back(row.type);
  std::string text = fmt::format("{}: there is no such instruction", name);
  if (type != nullptr && shapes_of(*type, is_sparse).empty()) {
    text += fmt::format("; there is no {} product of {}", is_sparse ? "sparse" : "dense", type->type);
  } else if (type != nullptr) {
    text += fmt::format("; {} goes with {}", type->type, fmt::join(shapes_of(*type, is_sparse), ", "));
  }
  if (!with_shape.empty()) text += fmt::format("; {} exists for {}", shape, fmt::join(with_shape, ", "));
  if (type != nullptr && type->type == "mxf8f6f4" && shape == "m16n8k64" && !is_sparse)
    text += "; e2m1 at K = 64 is mxf4 (scale_vec::2X, ue8m0) or mxf4nvf4 (2X ue8m0, 4X ue4m3)";
  if (type == nullptr && with_shape.empty()) {
    std::vector<std::string_view> all;
    for (const TypeRow& row : types()) all.push_back(row.type);
    text += fmt::format("; a name is like mma.m16n8k16.bf16, with one of {}", fmt::join(all, ", "));
  }
  throw Error(ErrorKind::usage, text);
}

const TypeRow* find_type(std::string_view name) {
  const auto found = std::find_if(types().begin(), types().end(), [&](const TypeRow& row) { return row.type == name; });
  return found == types().end() ? nullptr : &*found;
}

ProductForm parse_wgmma(std::string_view name, std::string_view shape, const TypeRow* type, bool is_sparse) {
  ProductForm form;
  const bool is_shape = parse_shape(shape, form.m, form.n, form.k);
  const bool is_type = type != nullptr && type->wgmma_k != 0 && !(is_sparse && type->sparse.empty());
  if (!is_type || !is_shape || form.m != 64 || form.k != type->wgmma_k * (is_sparse ? 2 : 1))
    throw Error(
        ErrorKind::usage,
        fmt::format("{}: there is no such instruction; {}", name,
                    is_sparse ? "wgmma.sp is m64nNk32 for f16, bf16, m64nNk16 for tf32, m64nNk64 for e4m3, e5m2, s8, u8"
                              : "wgmma is m64nNk16 for f16, bf16, m64nNk8 for tf32, m64nNk32 for e4m3, e5m2, s8, u8, "
                                "m64nNk256 for b1"));
  const bool is_integer = type->results.front() == "s32";
  const bool is_n = form.n >= 8 && form.n <= 256 && form.n % 8 == 0 &&
                    (!is_integer || form.n <= 32 || form.n % 16 == 0) &&
                    !(is_integer && form.n > 32 && form.n % 16 != 0);
  if (!is_n)
    throw Error(ErrorKind::usage, fmt::format("{}: N = {}: must be a multiple of 8 from 8 to 256{}", name, form.n,
                                              is_integer ? ", above 32 of 16" : ""));
  form.is_wgmma = true;
  return form;
}

}  // namespace

InstructionName short_name(std::string_view spelling) {
  // What PTX adds around what a map depends on.
  static constexpr std::string_view kIgnored[] = {"sync", "aligned",     "mma_async", "row",    "col", "block_scale",
                                                  "and",  "xor",         "popc",      "shared", "b16", "satfinite",
                                                  "b8",   "shared::cta", "b8x16",     "b32"};
  const std::vector<std::string_view> parts = split(spelling);
  const bool is_product = parts.front() == "mma" || parts.front() == "wgmma";
  InstructionName name;
  std::string_view kind, shape, sparse;
  std::vector<std::string_view> others;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    int m = 0, n = 0, k = 0;
    if (std::find(std::begin(kIgnored), std::end(kIgnored), part) != std::end(kIgnored)) continue;
    if (is_product && part.starts_with("kind::")) {
      kind = part.substr(6);
    } else if (is_product && part.starts_with("scale_vec::") && part.size() == 13 && part[12] == 'X') {
      name.scale_vector = part[11] - '0';
    } else if (is_product && (part == "sp" || part == "sp::ordered_metadata")) {
      sparse = ".sp";
    } else if (is_product && shape.empty() && parse_shape(part, m, n, k)) {
      shape = part;
    } else {
      others.push_back(part);
    }
  }
  if (!is_product || shape.empty()) {
    name.text = fmt::format("{}{}{}", parts.front(), others.empty() ? "" : ".", fmt::join(others, "."));
    return name;
  }
  // D's, A's, B's type and further ones; a short name has A's alone.
  const bool is_short = others.size() < 3;
  std::string_view type = others.empty() ? kind : is_short ? others[0] : others[1];
  if (!is_short) name.result = others[0];
  if (kind.starts_with("mx")) type = kind;
  name.text = fmt::format("{}{}.{}.{}", parts.front(), sparse, shape, type);
  return name;
}

std::string_view scale_vectors_text(const ProductForm& form) {
  return form.scale_vectors == 0   ? "no block scales"
         : form.type == "mxf8f6f4" ? "1X (ue8m0, blocks of 32)"
         : form.type == "mxf4"     ? "2X (ue8m0, blocks of 32)"
                                   : "2X (ue8m0, blocks of 32) and 4X (ue4m3, blocks of 16)";
}

ProductForm parse_product(std::string_view spelling) {
  const InstructionName given = short_name(spelling);
  const std::string_view name = given.text;
  std::vector<std::string_view> parts = split(name);
  const bool is_wgmma = parts.front() == "wgmma";
  const bool is_sparse = parts.size() == 4 && parts[1] == "sp";
  if (is_sparse) parts.erase(parts.begin() + 1);
  if (parts.size() != 3 || (!is_wgmma && parts.front() != "mma"))
    throw Error(
        ErrorKind::usage,
        fmt::format("{}: is no instruction here; there are mma.SHAPE.TYPE, wgmma.SHAPE.TYPE, mma.sp and wgmma.sp, "
                    "ldmatrix.SHAPE.xN[.trans], stmatrix.SHAPE.xN[.trans], tcgen05.ld.SHAPE.xN and tcgen05.st.SHAPE.xN",
                    spelling));
  const TypeRow* type = find_type(parts[2]);
  ProductForm form;
  if (is_wgmma) {
    form = parse_wgmma(spelling, parts[1], type, is_sparse);
  } else if (type == nullptr || !has_shape(*type, is_sparse, parts[1]) ||
             !parse_shape(parts[1], form.m, form.n, form.k)) {
    refuse_mma(spelling, type, parts[1], is_sparse);
  }
  form.is_sparse = is_sparse;
  form.is_quarter = parts[1] == "m8n8k4" && type->type == "f16";
  form.bits = type->bits;
  form.type = type->type;
  form.container = type->container;
  form.scale_vectors = type->scale_vectors;
  form.results = type->results;
  if (!given.result.empty()) {
    const auto result = std::find(form.results.begin(), form.results.end(), given.result);
    if (result == form.results.end())
      throw Error(ErrorKind::usage, fmt::format("{}: {} accumulates in {}, not {}", spelling, form.type,
                                                fmt::join(form.results, " or "), given.result));
    form.results = {*result};
  }
  form.scale_vector = given.scale_vector;
  if (form.scale_vector != 0 && (form.scale_vectors & form.scale_vector) == 0)
    throw Error(ErrorKind::usage, fmt::format("{}: scale_vec::{}X: {} takes {}", spelling, form.scale_vector, form.type,
                                              scale_vectors_text(form)));
  return form;
}

bool is_move(std::string_view name) {
  return name.starts_with("ldmatrix") || name.starts_with("stmatrix") || name.starts_with("tcgen05");
}

namespace {

[[noreturn]] void refuse_move(std::string_view spelling, bool is_tmem) {
  if (is_tmem && !spelling.starts_with("tcgen05.ld") && !spelling.starts_with("tcgen05.st"))
    throw Error(ErrorKind::usage,
                fmt::format("{}: fills or empties no registers; tcgen05.ld and .st do. What it reads: `tessera layout "
                            "smem-descriptor tcgen05`, `instruction-descriptor`, `scale-factors`",
                            spelling));
  throw Error(ErrorKind::usage,
              fmt::format("{}: there is no such instruction; there are {}", spelling,
                          is_tmem ? "tcgen05.ld and .st with 32x32b, 16x64b, 16x32bx2 (x1 to x128), 16x128b (x1 to "
                                    "x64), 16x256b (x1 to x32), ld also with .pack::16b, st with .unpack::16b, and "
                                    "tcgen05.ld.red with 32x32b (x2 to x128)"
                                  : "ldmatrix.m8n8.x1|x2|x4[.trans] (b16), "
                                    "ldmatrix.m16n16.x1|x2.trans[.b6x16_p32|.b4x16_p64] (b8), "
                                    "ldmatrix.m8n16.x1|x2|x4.b6x16_p32|b4x16_p64, "
                                    "stmatrix.m8n8.x1|x2|x4[.trans] (b16), stmatrix.m16n8.x1|x2|x4.trans (b8)"));
}

// "x4": 4; 0: no such count.
int count_of(std::string_view times) {
  int count = 0;
  if (times.size() < 2 || times[0] != 'x' || times[1] == '0' ||
      std::from_chars(times.data() + 1, times.data() + times.size(), count).ptr != times.data() + times.size())
    return 0;
  return count > 0 && (count & (count - 1)) == 0 ? count : 0;
}

MoveForm parse_tmem_move(std::string_view spelling, std::vector<std::string_view> parts) {
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
  const bool is_load = parts.size() > 1 && parts[1] == "ld";
  const bool reduces = is_load && parts.size() > 2 && parts[2] == "red";
  if (reduces) {
    static constexpr std::string_view kWords[] = {"red", "min", "max", "abs", "NaN", "f32", "u32", "s32"};
    std::erase_if(parts, [](std::string_view part) {
      return std::find(std::begin(kWords), std::end(kWords), part) != std::end(kWords);
    });
  }
  const bool packs = parts.size() == 5 && parts[4] == (is_load ? "pack::16b" : "unpack::16b");
  if (parts.size() != (packs ? 5 : 4) || (!is_load && parts[1] != "st")) refuse_move(spelling, true);
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == parts[2]; });
  const int count = count_of(parts[3]);
  if (row == std::end(kRows) || count == 0 || count > row->most) refuse_move(spelling, true);
  if (reduces && (packs || row->fragment != Fragment::tmem_32x32b || count < 2)) refuse_move(spelling, true);
  MoveForm form;
  form.shape = {row->fragment, row->lanes, row->columns * count * (packs ? 2 : 1), packs ? 16 : 32};
  form.row_axis = "TMEM lane";
  form.column_axis = "column";
  if (row->fragment == Fragment::tmem_16x32bx2)
    form.note = fmt::format("columns {} and up count from the split offset, an immediate; ", form.shape.columns / 2);
  if (packs) form.note += "an element is the low half of its column; ";
  if (reduces) form.note += "one more register has the minimum or maximum of the thread's lane; ";
  form.note +=
      "lanes and columns count from the address; warp w of a CTA reaches lanes 32 (w % 4) and up; never run on "
      "Blackwell hardware here";
  return form;
}

}  // namespace

MoveForm parse_move(std::string_view spelling) {
  const InstructionName given = short_name(spelling);
  const std::vector<std::string_view> parts = split(given.text);
  if (parts.front() == "tcgen05") return parse_tmem_move(spelling, parts);
  const bool is_load = parts.front() == "ldmatrix";
  if ((!is_load && parts.front() != "stmatrix") || parts.size() < 3 || parts.size() > 5) refuse_move(spelling, false);
  const std::string_view shape = parts[1];
  const int count = count_of(parts[2]);
  const bool is_trans = parts.size() > 3 && parts[3] == "trans";
  // What stands after .trans, or alone: the narrow formats.
  const std::string_view kind = parts.size() > (is_trans ? 4u : 3u) ? parts.back() : std::string_view{};
  if (count == 0 || count > 4 || (parts.size() == 5 && !is_trans)) refuse_move(spelling, false);
  const auto says = [words = split(spelling)](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
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
    form.note += kind == "b6x16_p32" ? "; element e is its bits 6e..6e+5, and lands in bits 5..0 of a byte"
                                     : "; element e is its bits 4e..4e+3, and lands in bits 3..0 of a byte";
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
  return form;
}

}  // namespace tessera::cli

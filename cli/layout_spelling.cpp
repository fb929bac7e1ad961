// How PTX spells a matrix product, and whether a name that was typed is such a
// spelling. A short name here has the words that a map depends on; a full one
// must have all of PTX's words, in PTX's order, with types that go together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "cli/layout_forms.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

using Words = std::vector<std::string_view>;

bool contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// What a full spelling says beyond shape and kind.
struct Spelling {
  std::string_view sparse = ".sp::ordered_metadata", layouts = ".row.col";
  std::string_view d, a, b, c, scale;
  std::string_view bits;  ///< b1: "and", "xor"
  int vector = 0;         ///< 0: left out
  bool saturates = false;
  bool is_kind_first = false;  ///< before the shape, as libraries write it;
                               ///< PTX's text has it behind
};

std::string spell(const ProductForm& form, const Spelling& s) {
  const std::string shape = fmt::format(".m{}n{}k{}", form.m, form.n, form.k);
  const std::string_view saturates = s.saturates ? ".satfinite" : "";
  const std::string bits = s.bits.empty() ? "" : fmt::format(".{}.popc", s.bits);
  if (form.is_wgmma)
    return fmt::format("wgmma.mma_async{}.sync.aligned{}{}.{}.{}.{}{}", form.is_sparse ? ".sp" : "", shape, saturates,
                       s.d, s.a, s.b, bits);
  std::string kind;
  if (form.scale_vectors != 0) {
    kind = fmt::format(".kind::{}.block_scale", form.type);
    if (s.vector != 0) kind += fmt::format(".scale_vec::{}X", s.vector);
  } else if (form.has_narrow_kind) {
    kind = ".kind::f8f6f4";
  }
  return fmt::format("mma{}.sync.aligned{}{}{}{}{}.{}.{}.{}.{}{}{}{}", form.is_sparse ? s.sparse : "",
                     s.is_kind_first ? kind : "", shape, s.layouts, s.is_kind_first ? "" : kind, saturates, s.d, s.a,
                     s.b, s.c, s.scale.empty() ? "" : ".", s.scale, bits);
}

/// What B may be beside A.
Words partners(const ProductForm& form, std::string_view a) {
  if (form.has_narrow_kind || form.type == "mxf8f6f4") return {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"};
  if (form.scale_vectors != 0) return {"e2m1"};
  for (const Words& family : {Words{"e4m3", "e5m2"}, Words{"s8", "u8"}, Words{"s4", "u4"}})
    if (contains(family, a)) return family;
  return {a};
}

/// ue8m0 everywhere; blocks of 16 have ue4m3, and since PTX 9.1 ue8m0 too.
Words scale_types(const ProductForm& form, int vector) {
  if (form.scale_vectors == 0) return {};
  return vector == 4 ? Words{"ue4m3", "ue8m0"} : Words{"ue8m0"};
}

int usual_vector(const ProductForm& form) { return form.scale_vectors == 6 ? 4 : form.scale_vectors; }

[[noreturn]] void refuse(const ProductName& name, const std::string& why) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", name.spelling, why));
}

[[noreturn]] void refuse_word(std::string_view spelling, std::string_view word) {
  throw Error(ErrorKind::usage, fmt::format("{}: '{}' is no word of a matrix product; a name is like "
                                            "mma.m16n8k16.bf16, "
                                            "mma.m16n8k64.mxf4nvf4, wgmma.m64n128k16.bf16, or PTX's own like "
                                            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
                                            spelling, word));
}

/// Types of a full spelling: D, A, B, C (mma) and the scales'.
void check_types(const ProductName& name, const ProductForm& form) {
  const Words& types = name.types;
  const std::size_t expected = form.is_wgmma ? 3 : form.scale_vectors != 0 ? 5 : 4;
  if (types.size() != expected)
    refuse(name, fmt::format("names {} type{}: {} are due, of D, A, B{}{}: {}", types.size(),
                             types.size() == 1 ? "" : "s", expected, form.is_wgmma ? "" : ", C",
                             form.scale_vectors != 0 ? ", scales" : "", ptx_spelling(form, form.results.front(), 0)));
  const Words of_a = partners(form, types[1]);
  if (!contains(of_a, types[1]))
    refuse(name, fmt::format("A is {}: {} takes {}", types[1], form.type, fmt::join(of_a, ", ")));
  if (!contains(of_a, types[2]))
    refuse(name, fmt::format("B is {}: A's {} goes with {}", types[2], types[1], fmt::join(of_a, ", ")));
  if (form.is_wgmma) return;
  const bool may_be_half = form.is_quarter && types[0] == "f32";
  if (types[3] != types[0] && !(may_be_half && types[3] == "f16"))
    refuse(name, fmt::format("C is {}: it must be D's {}{}", types[3], types[0], may_be_half ? " or f16" : ""));
  const int vector = name.scale_vector != 0 ? name.scale_vector : usual_vector(form);
  if (expected == 5 && !contains(scale_types(form, vector), types[4]))
    refuse(name, fmt::format("scales are {}: {} takes {}", types[4], form.type, scale_vectors_text(form)));
}

/// The full spelling that the words of `name` make, each where PTX has it.
std::string respell(const ProductName& name, const ProductForm& form) {
  const Words words = words_of(name.spelling), &types = name.types;
  const auto place = [&](std::string_view word) { return std::find(words.begin(), words.end(), word); };
  Spelling s;
  // Kinds exist in the ordered form alone.
  if (contains(words, "sp") && form.scale_vectors == 0 && !form.has_narrow_kind) s.sparse = ".sp";
  std::string layouts;
  if (form.is_quarter)
    for (const std::string_view word : words)
      if (word == "row" || word == "col") layouts += fmt::format(".{}", word);
  if (layouts.size() == 8) s.layouts = layouts;
  s.d = types[0];
  s.a = types[1];
  s.b = types[2];
  if (!form.is_wgmma) s.c = types[3];
  if (types.size() == 5) s.scale = types[4];
  if (form.type == "b1") s.bits = contains(words, "xor") && !form.is_wgmma ? "xor" : "and";
  // Where one vector size is legal it may be left out.
  s.vector = name.scale_vector == 0 && form.scale_vectors == 6 ? usual_vector(form) : name.scale_vector;
  s.saturates = types[0] == "s32" && form.type != "b1" && contains(words, "satfinite");
  s.is_kind_first = !name.kind.empty() && place(fmt::format("kind::{}", name.kind)) < place(name.shape);
  return spell(form, s);
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view spelling) {
  Words words;
  for (std::size_t start = 0; start <= spelling.size();) {
    const std::size_t dot = std::min(spelling.find('.', start), spelling.size());
    words.push_back(spelling.substr(start, dot - start));
    start = dot + 1;
  }
  return words;
}

bool parse_shape(std::string_view text, int& m, int& n, int& k) {
  int* const targets[] = {&m, &n, &k};
  std::size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    if (at + 1 >= text.size() || text[at] != "mnk"[i] || text[at + 1] == '0') return false;
    const auto [stop, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), *targets[i]);
    if (error != std::errc()) return false;
    at = static_cast<std::size_t>(stop - text.data());
  }
  return at == text.size();
}

ProductName read_product_name(std::string_view spelling) {
  static const Words kPtxWords = {"sync",        "aligned", "mma_async", "row",  "col",
                                  "block_scale", "and",     "xor",       "popc", "satfinite"};
  static const Words kTypes = {"f16",  "bf16", "f32", "tf32", "f64", "e4m3", "e5m2", "e3m2",  "e2m3",
                               "e2m1", "s8",   "u8",  "s4",   "u4",  "b1",   "s32",  "ue8m0", "ue4m3"};
  const Words words = words_of(spelling);
  ProductName name;
  name.spelling = spelling;
  name.family = words.front();
  if (words.size() < 2 || words[1].empty() || (name.family != "mma" && name.family != "wgmma"))
    throw Error(ErrorKind::usage, fmt::format("{}: is no instruction here; there are mma.SHAPE.TYPE, "
                                              "wgmma.SHAPE.TYPE, mma.sp and wgmma.sp, "
                                              "ldmatrix.SHAPE.xN[.trans], stmatrix.SHAPE.xN[.trans], "
                                              "tcgen05.ld.SHAPE.xN and tcgen05.st.SHAPE.xN",
                                              spelling));
  Words unknown;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    int m = 0, n = 0, k = 0;
    if (contains(kPtxWords, word)) {
      name.is_full = true;
    } else if (word.starts_with("kind::") && name.kind.empty()) {
      name.kind = word.substr(6);
    } else if (word.starts_with("scale_vec::") && name.scale_vector == 0) {
      static const Words kVectors = {"scale_vec::1X", "scale_vec::2X", "scale_vec::4X"};
      if (!contains(kVectors, word)) refuse_word(spelling, word);
      name.scale_vector = word[11] - '0';
    } else if ((word == "sp" || word == "sp::ordered_metadata") && !name.is_sparse) {
      name.is_sparse = true;
    } else if (name.shape.empty() && parse_shape(word, m, n, k)) {
      name.shape = word;
    } else if (contains(kTypes, word)) {
      name.types.push_back(word);
    } else {
      unknown.push_back(word);
    }
  }
  if (name.types.size() > 1) name.is_full = true;
  // A short name's type may be a kind, or one that does not exist: the table
  // answers with those that do.
  const bool is_type = !name.is_full && name.kind.empty() && name.types.empty() && unknown.size() == 1 &&
                       unknown.front() == words.back();
  if (!unknown.empty() && !is_type) refuse_word(spelling, unknown.front());
  name.type = is_type                       ? unknown.front()
              : name.kind.starts_with("mx") ? name.kind
              : name.types.size() > 1       ? name.types[1]
              : !name.types.empty()         ? name.types.front()
                                            : name.kind;
  return name;
}

void check_product_name(const ProductName& name, const ProductForm& form) {
  if (name.kind == "f8f6f4" &&
      (form.k != (form.is_sparse ? 64 : 32) || form.is_wgmma || !contains(partners(form, name.type), name.type)))
    refuse(name, fmt::format("kind::f8f6f4 is {} of e4m3, e5m2, e3m2, e2m3, e2m1",
                             form.is_sparse ? "mma.sp.m16n8k64" : "mma.m16n8k32"));
  if (!name.kind.empty() && name.kind != "f8f6f4" && name.kind != form.type)
    refuse(name, fmt::format("kind::{}: there are f8f6f4, mxf8f6f4, mxf4, mxf4nvf4", name.kind));
  if (name.is_full) {
    check_types(name, form);
    if (const std::string ptx = respell(name, form); ptx != name.spelling)
      refuse(name, fmt::format("PTX spells it {}", ptx));
    return;
  }
  if (form.scale_vectors != 0 && name.types.size() == 1 && !contains(partners(form, {}), name.types.front()))
    refuse(name,
           fmt::format("A is {}: {} takes {}", name.types.front(), form.type, fmt::join(partners(form, {}), ", ")));
}

std::string ptx_spelling(const ProductForm& form, std::string_view result, int vector) {
  Spelling s;
  s.d = s.c = result;
  s.a = s.b = form.type == "mxf8f6f4" ? "e4m3" : form.scale_vectors != 0 ? "e2m1" : form.type;
  if (form.scale_vectors != 0) {
    s.vector = vector != 0 ? vector : form.scale_vector != 0 ? form.scale_vector : usual_vector(form);
    s.scale = scale_types(form, s.vector).front();
  }
  if (form.type == "b1") s.bits = "and";
  return spell(form, s);
}

}  // namespace tessera::cli

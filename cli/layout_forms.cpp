// The tables of legal matrix products: PTX ISA, "mma.sync", "wgmma.mma_async";
// what ptxas 13.0 accepts decides where the text is open.
#include "cli/layout_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/error.h"

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
    text +=
        "; e2m1 at K = 64 is mxf4 (scale_vec::2X, ue8m0) or mxf4nvf4 (2X "
        "ue8m0, 4X ue4m3)";
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
    throw Error(ErrorKind::usage, fmt::format("{}: there is no such instruction; {}", name,
                                              is_sparse ? "wgmma.sp is m64nNk32 for f16, bf16, m64nNk16 "
                                                          "for tf32, m64nNk64 for e4m3, e5m2, s8, u8"
                                                        : "wgmma is m64nNk16 for f16, bf16, m64nNk8 for "
                                                          "tf32, m64nNk32 for e4m3, e5m2, s8, u8, "
                                                          "m64nNk256 for b1"));
  const bool is_integer = type->results.front() == "s32";
  const bool is_n =
      form.n >= 8 && form.n <= 256 && form.n % 8 == 0 && (!is_integer || form.n <= 32 || form.n % 16 == 0);
  if (!is_n)
    throw Error(ErrorKind::usage, fmt::format("{}: N = {}: must be a multiple of 8 from 8 to 256{}", name, form.n,
                                              is_integer ? ", above 32 of 16" : ""));
  form.is_wgmma = true;
  return form;
}

}  // namespace

std::string_view scale_vectors_text(const ProductForm& form) {
  return form.scale_vectors == 0   ? "no block scales"
         : form.type == "mxf8f6f4" ? "1X (ue8m0, blocks of 32)"
         : form.type == "mxf4"     ? "2X (ue8m0, blocks of 32)"
                                   : "2X (ue8m0, blocks of 32) and 4X (ue4m3, "
                                     "blocks of 16; from PTX 9.1 on ue8m0 too)";
}

ProductForm parse_product(std::string_view spelling) {
  const ProductName name = read_product_name(spelling);
  const TypeRow* type = find_type(name.type);
  ProductForm form;
  if (name.family == "wgmma") {
    form = parse_wgmma(spelling, name.shape, type, name.is_sparse);
  } else if (type == nullptr || !has_shape(*type, name.is_sparse, name.shape) ||
             !parse_shape(name.shape, form.m, form.n, form.k)) {
    refuse_mma(spelling, type, name.shape, name.is_sparse);
  }
  form.is_sparse = name.is_sparse;
  form.is_quarter = name.shape == "m8n8k4" && type->type == "f16";
  form.bits = type->bits;
  form.type = type->type;
  form.container = type->container;
  form.scale_vectors = type->scale_vectors;
  form.results = type->results;
  form.has_narrow_kind = name.kind == "f8f6f4" || (!form.container.empty() && form.scale_vectors == 0);
  if (name.types.size() > 1) {
    const auto result = std::find(form.results.begin(), form.results.end(), name.types.front());
    if (result == form.results.end())
      throw Error(ErrorKind::usage, fmt::format("{}: {} accumulates in {}, not {}", spelling, form.type,
                                                fmt::join(form.results, " or "), name.types.front()));
    form.results = {*result};
  }
  form.scale_vector = name.scale_vector;
  if (form.scale_vector != 0 && (form.scale_vectors & form.scale_vector) == 0)
    throw Error(ErrorKind::usage, fmt::format("{}: scale_vec::{}X: {} takes {}", spelling, form.scale_vector, form.type,
                                              scale_vectors_text(form)));
  check_product_name(name, form);
  return form;
}

}  // namespace tessera::cli

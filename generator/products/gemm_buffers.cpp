// Operands of a product in memory: buffers, and tensor maps over them.
//
// Sizes and strides count elements, of packed types of 4 and 6 bits too; buffers of block-scaled types are bytes.
#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/operator_words.h"
#include "generator/products/gemm_launch.h"
#include "generator/words.h"

namespace tessera {

namespace {

std::string buffer_dtype(OperandType type) {
  if (is_block_scaled(type)) return "u8";
  return type == OperandType::tf32 ? "f32" : std::string(to_word(type));
}

constexpr const char* kPaddedColumns = "ceil_div(k, 128) * 128";

// Columns of a K-major operand: those of values that are padded to 8 bits come by 128, which the tensor map wants. What
// lies behind k is not multiplied.
const char* columns_along_k(const GemmLaunch::Operand& operand) { return operand.is_padded ? kPaddedColumns : "k"; }

/// Of c and bias: bf16 where d is an 8-bit type.
DType addend_dtype(const ProductFacts& facts) { return dtype_bytes(facts.d_dtype) == 1 ? DType::bf16 : facts.d_dtype; }

ProductMatrix matrix_of_type(const GemmLaunch& p, const char* name, DType dtype, BufferRole role) {
  return {name,
          "m",
          "n",
          std::string(to_word(dtype)),
          8 * dtype_bytes(dtype),
          role,
          p.facts.grouping == Grouping::contiguous};
}
ProductMatrix matrix_d(const GemmLaunch& p) {
  ProductMatrix matrix = matrix_of_type(p, "d", p.facts.d_dtype, BufferRole::output);
  matrix.columns = columns_of_d(p);
  if (is_quantized(p)) {
    matrix.dtype = "u8";
    matrix.bits = value_bits(block_format(p.facts.d_format));
  }
  return matrix;
}
ProductMatrix matrix_c(const GemmLaunch& p) { return matrix_of_type(p, "c", addend_dtype(p.facts), BufferRole::input); }

void add_buffer(const ProductMatrix& matrix, int alignment, LaunchPlan& launch) {
  launch.buffers.push_back({.name = matrix.name,
                            .role = matrix.role,
                            .dtype = matrix.dtype,
                            .shape = {Expression::parse(matrix.matrices()), Expression::parse(matrix.rows),
                                      Expression::parse(matrix.stored(matrix.columns))},
                            .strides = {Expression::parse(matrix.stored(matrix.stride_l())),
                                        Expression::parse(matrix.stored(matrix.pitch())), Expression(1)},
                            .alignment = alignment});
}

void add_factors(const ScaleBlocks& factors, LaunchPlan& launch) {
  launch.buffers.push_back(
      {.name = factors.name,
       .role = factors.is_output ? BufferRole::output : BufferRole::input,
       .dtype = "f32",
       .shape = {Expression::parse(factors.is_one ? "1" : "l"), Expression::parse(factors.count()),
                 Expression::parse(factors.blocks())},
       .strides = {Expression::parse(factors.is_one ? factors.elements() : factors.stride("l")),
                   Expression::parse(factors.stride(factors.rows)), Expression::parse(factors.stride(factors.along))},
       .alignment = 4});
}

TensorMapRecipe matrix_map(const ProductMatrix& matrix, TensorMapType type, const GemmLaunch::Operand& operand) {
  TensorMapRecipe map;
  map.name = matrix.name;
  map.buffer = matrix.name;
  map.type = type;
  map.swizzle = operand.swizzle;
  map.l2_promotion = operand.promotion;
  // Packed rows have as many elements as their type's rule asks for; where K is 0 nothing inside is read.
  const int least = is_packed(type) && type != TensorMapType::u4x16_align8b ? 128
                    : matrix.bits == 4 && !operand.is_bytes                 ? 2
                                                                            : 1;
  const std::string columns = operand.is_bytes ? matrix.stored(matrix.columns) : matrix.columns;
  map.dims = {expression("max({}, {})", columns, least), expression("max({}, 1)", matrix.rows),
              expression("max({}, 1)", matrix.matrices())};
  for (const std::string& stride : {matrix.pitch(), matrix.stride_l()}) {
    // A pitch of d that no map takes is rounded up: that d is stored without its map.
    map.strides_bytes.push_back(matrix.role == BufferRole::output
                                    ? expression("ceil_div({}, 16) * 16", matrix.bytes(stride))
                                    : Expression::parse(matrix.bytes(stride)));
  }
  map.box = operand.box;
  map.element_strides.assign(map.box.size(), 1);
  return map;
}

TensorMapType value_map_type(OperandType type, const GemmLaunch::Operand& operand) {
  if (operand.is_bytes) return TensorMapType::u8;
  if (operand_bits(type) == 6) return TensorMapType::u6x16_align16b;
  if (operand_bits(type) == 4) return operand.is_padded ? TensorMapType::u4x16_align16b : TensorMapType::u4x16_align8b;
  return type == OperandType::f16    ? TensorMapType::f16
         : type == OperandType::bf16 ? TensorMapType::bf16
         : type == OperandType::tf32 ? TensorMapType::f32
                                     : TensorMapType::u8;
}

// Tiles of 512 bytes as 256 elements: [l * row tiles][tiles along k][256].
TensorMapRecipe scale_map(const GemmLaunch& p, const char* name, const char* rows,
                          const std::vector<std::uint32_t>& box) {
  TensorMapRecipe map;
  map.name = name;
  map.buffer = name;
  map.type = TensorMapType::u16;
  map.swizzle = TensorMapSwizzle::none;
  map.l2_promotion = TensorMapL2Promotion::l2_256b;
  const std::string k_tiles = fmt::format("max(ceil_div(k, {}), 1)", p.scale_block * kTileBlocks);
  const bool is_of_groups = has_group_tiles(p) && std::string_view(name) == "sfa";
  map.dims = {Expression(kTileBytes / 2), Expression::parse(k_tiles),
              is_of_groups ? Expression::parse("max(group_tiles, 1)")
                           : expression("max(l * ceil_div({}, {}), 1)", rows, kTileRows)};
  map.strides_bytes = {Expression(kTileBytes), expression("{} * {}", k_tiles, kTileBytes)};
  map.box = box;
  map.element_strides.assign(map.box.size(), 1);
  return map;
}

// Scales whose row tiles are those of groups, one group after the other.
BufferSpec in_group_tiles(const GemmLaunch& p, BufferSpec buffer) {
  if (!has_group_tiles(p)) return buffer;
  buffer.shape[0] = Expression(1);
  buffer.shape[1] = Expression::parse("group_tiles");
  buffer.strides[0] = expression("group_tiles * {}", buffer.strides[1].text());
  return buffer;
}

BufferSpec of_one_matrix(BufferSpec buffer) {
  buffer.shape[0] = Expression(1);
  return buffer;
}

// Scales of d: of blocks along its columns.
BufferSpec d_scales(const GemmLaunch& p) {
  const int block = block_elements(block_format(p.facts.d_format));
  const std::string row_tiles = fmt::format("ceil_div(m, {})", kTileRows);
  const std::string column_tiles = fmt::format("ceil_div({}, {})", columns_of_d(p), block * kTileBlocks);
  BufferSpec buffer = scales_buffer("sfd", BufferRole::output, block_format(p.facts.d_format), ScaleForm::tile, "m");
  buffer.shape[2] = Expression::parse(column_tiles);
  buffer.strides[0] = expression("{} * {} * {}", row_tiles, column_tiles, kTileBytes);
  buffer.strides[1] = expression("{} * {}", column_tiles, kTileBytes);
  return in_group_tiles(p, std::move(buffer));
}

}  // namespace

std::string ProductMatrix::pitch() const { return fmt::format("ld{}", name); }
std::string ProductMatrix::stride_l() const {
  return is_one ? fmt::format("{} * max({}, 1)", pitch(), rows) : fmt::format("{}_stride_l", name);
}
std::string ProductMatrix::stored(const std::string& elements) const {
  if (bits == 6) return fmt::format("ceil_div({} * 3, 4)", elements);
  return bits == 4 ? fmt::format("ceil_div({}, 2)", elements) : elements;
}
std::string ProductMatrix::bytes(const std::string& elements) const {
  return bits < 8 ? stored(elements) : fmt::format("{} * {}", elements, bits / 8);
}
bool ProductMatrix::has_padded_columns() const { return columns == kPaddedColumns; }

ProductMatrix matrix_a(const GemmLaunch& p) {
  const bool is_k_major = p.facts.a_layout == Layout::k_major;
  return {"a",
          p.is_gathered ? "a_rows"
          : is_k_major  ? "m"
                        : "k",
          is_k_major ? columns_along_k(p.a) : "m",
          buffer_dtype(p.facts.a_type),
          operand_bits(p.facts.a_type),
          BufferRole::input,
          p.facts.grouping == Grouping::contiguous || p.is_gathered};
}
ProductMatrix matrix_b(const GemmLaunch& p) {
  const bool is_k_major = p.facts.b_layout == Layout::k_major;
  return {"b",
          is_k_major ? "n" : "k",
          is_k_major ? columns_along_k(p.b) : "n",
          buffer_dtype(p.facts.b_type),
          operand_bits(p.facts.b_type),
          BufferRole::input};
}
ProductMatrix matrix_b2(const GemmLaunch& p) {
  ProductMatrix matrix = matrix_b(p);
  matrix.name = "b2";
  return matrix;
}
std::vector<ProductMatrix> product_matrices(const GemmLaunch& p) {
  std::vector<ProductMatrix> list{matrix_a(p)};
  if (p.packed_bytes == 0) list.push_back(matrix_b(p));
  if (p.facts.gate == Gate::dual) list.push_back(matrix_b2(p));
  list.push_back(matrix_d(p));
  if (p.facts.c == Addend::matrix) list.push_back(matrix_c(p));
  return list;
}

std::string ScaleBlocks::count() const {
  return block == ScaleBlock::of_row ? extent : fmt::format("ceil_div({}, {})", extent, kScaleBlock);
}
std::string ScaleBlocks::stride(std::string_view dimension) const {
  return fmt::format("{}_stride_{}", name, dimension);
}
std::string ScaleBlocks::elements() const {
  // Whichever of the two is contiguous.
  return fmt::format("max({} * {}, {} * {})", stride(rows), count(), stride(along), blocks());
}
std::string ScaleBlocks::blocks() const { return fmt::format("ceil_div({}, {})", columns, kScaleBlock); }
std::vector<ScaleBlocks> scale_blocks(const GemmLaunch& p) {
  std::vector<ScaleBlocks> list;
  if (p.facts.a_scale_block != ScaleBlock::none)
    list.push_back({"sfa", "m", p.is_gathered ? "a_rows" : "m", p.facts.a_scale_block, matrix_a(p).is_one});
  if (p.facts.b_scale_block != ScaleBlock::none) list.push_back({"sfb", "n", "n", p.facts.b_scale_block});
  return list;
}
std::vector<ScaleBlocks> d_scale_blocks(const GemmLaunch& p) {
  if (p.facts.d_scale_block == ScaleBlock::none) return {};
  return {{.name = "sfd",
           .rows = "m",
           .extent = "m",
           .block = p.facts.d_scale_block,
           .is_one = matrix_d(p).is_one,
           .along = "n",
           .columns = columns_of_d(p),
           .is_output = true}};
}

std::string columns_of_d(const GemmLaunch& p) { return p.facts.gate == Gate::interleaved ? "ceil_div(n, 2)" : "n"; }
bool is_quantized(const GemmLaunch& p) { return p.facts.d_format != OutputFormat::plain; }
bool has_group_tiles(const GemmLaunch& p) {
  const bool has_tiles_of_a = p.scale_block > 0 && p.scale_form == ScaleForm::tile && !p.is_gathered;
  return p.facts.grouping == Grouping::contiguous && (has_tiles_of_a || is_quantized(p));
}

void add_product_maps(const GemmLaunch& p, LaunchPlan& launch) {
  const bool is_dual = p.facts.gate == Gate::dual;
  if (p.has_a_map) launch.tensor_maps.push_back(matrix_map(matrix_a(p), value_map_type(p.facts.a_type, p.a), p.a));
  if (p.packed_bytes == 0)
    launch.tensor_maps.push_back(matrix_map(matrix_b(p), value_map_type(p.facts.b_type, p.b), p.b));
  if (is_dual) launch.tensor_maps.push_back(matrix_map(matrix_b2(p), value_map_type(p.facts.b_type, p.b), p.b));
  if (p.scale_block > 0 && p.scale_form == ScaleForm::tile) {
    if (!p.is_gathered) launch.tensor_maps.push_back(scale_map(p, "sfa", "m", p.sfa_box));
    launch.tensor_maps.push_back(scale_map(p, "sfb", "n", p.sfb_box));
    if (is_dual) launch.tensor_maps.push_back(scale_map(p, "sfb2", "n", p.sfb_box));
  }
  if (!is_quantized(p) && p.has_d_map)
    launch.tensor_maps.push_back(matrix_map(matrix_d(p), tensor_map_type(p.facts.d_dtype), p.d));
}

void add_product_buffers(const GemmLaunch& p, LaunchPlan& launch) {
  const ProductFacts& facts = p.facts;
  const bool is_dual = facts.gate == Gate::dual, is_scaled = p.scale_block > 0;
  const auto alignment_of = [](const GemmLaunch::Operand& operand) { return operand.is_padded ? 32 : 16; };
  const auto scales = [&](const char* name, OperandType type, const char* rows) {
    return scales_buffer(name, BufferRole::input, block_format(type), p.scale_form, rows);
  };
  add_buffer(matrix_a(p), alignment_of(p.a), launch);
  if (p.packed_bytes > 0) {
    launch.buffers.push_back(packed_weights_buffer("b", BufferRole::input, p.packed_bytes));
  } else {
    add_buffer(matrix_b(p), alignment_of(p.b), launch);
  }
  if (is_dual) add_buffer(matrix_b2(p), alignment_of(p.b), launch);
  if (is_scaled) {
    const BufferSpec sfa = scales("sfa", facts.a_type, p.is_gathered ? "a_rows" : "m");
    const bool is_one = p.is_gathered || (facts.grouping == Grouping::contiguous && p.scale_form == ScaleForm::plain);
    launch.buffers.push_back(is_one ? of_one_matrix(sfa) : in_group_tiles(p, sfa));
    launch.buffers.push_back(scales("sfb", facts.b_type, "n"));
    if (is_dual) launch.buffers.push_back(scales("sfb2", facts.b_type, "n"));
  }
  if (facts.grouping != Grouping::none)
    launch.buffers.push_back({.name = "groups",
                              .role = BufferRole::input,
                              .dtype = "s32",
                              .shape = {Expression::parse(facts.grouping == Grouping::contiguous ? "l + 1" : "l")},
                              .strides = {Expression(1)},
                              .alignment = 4});
  if (p.is_gathered) {
    const bool is_one = facts.grouping == Grouping::contiguous;
    launch.buffers.push_back({.name = "indices",
                              .role = BufferRole::input,
                              .dtype = "s32",
                              .shape = {Expression::parse(is_one ? "1" : "l"), Expression::parse("m")},
                              .strides = {Expression::parse("m"), Expression(1)},
                              .alignment = 4});
  }
  add_buffer(matrix_d(p), 16, launch);
  for (const ScaleBlocks& factors : d_scale_blocks(p)) add_factors(factors, launch);
  if (is_quantized(p)) {
    launch.buffers.push_back(d_scales(p));
    if (facts.d_format == OutputFormat::nvfp4)
      launch.buffers.push_back(global_scale_buffer("scale_d", BufferRole::input, true));
  }
  const DType addend = addend_dtype(facts);
  if (facts.c == Addend::matrix) add_buffer(matrix_c(p), dtype_bytes(addend), launch);
  if (facts.bias != Bias::none) {
    BufferSpec bias{.name = "bias",
                    .role = BufferRole::input,
                    .dtype = std::string(to_word(addend)),
                    .shape = {Expression::parse("n")},
                    .strides = {Expression(1)},
                    .alignment = dtype_bytes(addend)};
    if (facts.bias == Bias::group) {
      bias.shape.insert(bias.shape.begin(), Expression::parse("l"));
      bias.strides.insert(bias.strides.begin(), Expression::parse("n"));
    }
    launch.buffers.push_back(std::move(bias));
  }
  for (const ScaleBlocks& factors : scale_blocks(p)) add_factors(factors, launch);
  if (p.has_scale_b) launch.buffers.push_back(global_scale_buffer("scale_b", BufferRole::input, true));
  if (!p.has_tensor_scales) return;
  for (const char* const name : {"scale_a", "scale_b"})
    launch.buffers.push_back(global_scale_buffer(name, BufferRole::input, true));
  if (is_dual) launch.buffers.push_back(global_scale_buffer("scale_b2", BufferRole::input, true));
}

}  // namespace tessera

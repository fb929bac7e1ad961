// The launch of a product on tcgen05 as data: sizes and strides, buffers, domain, tensor maps, the one step. The
// kernel's side of every line stands in the head of spec/gemm_tcgen05.h.
//
// Sizes and strides count elements, of packed 4-bit types too; buffers of block-scaled types are bytes.
#include <fmt/format.h>

#include <cstdint>

#include "generator/block_operator.h"
#include "generator/gemm_tcgen05_operator.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

using gemm_tcgen05::Config;

constexpr std::int64_t kMaxStride = std::int64_t{1} << 40;
constexpr std::int64_t kMaxSms = 1 << 16;

// One operand in memory.
struct Matrix {
  const char* name;
  const char* rows;
  std::string columns;
  std::string dtype;
  int bits;  // of an element
  BufferRole role;
  bool is_one = false;  // groups stand one behind the other: there is no other matrix
  std::string matrices() const { return is_one ? "1" : "l"; }
  std::string pitch() const { return fmt::format("ld{}", name); }
  std::string stride_l() const {
    return is_one ? fmt::format("{} * max({}, 1)", pitch(), rows) : fmt::format("{}_stride_l", name);
  }
  // Elements of the buffer in so many of the operand: bytes that hold two each.
  std::string stored(const std::string& elements) const {
    return bits == 4 ? fmt::format("ceil_div({}, 2)", elements) : elements;
  }
  std::string bytes(const std::string& elements) const {
    return bits == 4 ? stored(elements) : fmt::format("{} * {}", elements, bits / 8);
  }
};

std::string buffer_dtype(OperandType type) {
  if (is_block_scaled(type)) return "u8";
  return type == OperandType::tf32 ? "f32" : std::string(to_word(type));
}

constexpr const char* kPaddedColumns = "ceil_div(k, 128) * 128";

// Columns of a K-major operand: those of values that are padded to 8 bits come by 128, which the tensor map wants. What
// lies behind k is not multiplied.
std::string columns_along_k(const Config& c, OperandType type) {
  return gemm_tcgen05::is_padded(c, type) ? kPaddedColumns : "k";
}

Matrix matrix_a(const Config& c) {
  const bool is_k_major = c.a_layout == Layout::k_major;
  return {"a",
          is_k_major ? "m" : "k",
          is_k_major ? columns_along_k(c, c.a_type) : "m",
          buffer_dtype(c.a_type),
          operand_bits(c.a_type),
          BufferRole::input,
          c.grouping == Grouping::contiguous};
}
Matrix matrix_b(const Config& c) {
  const bool is_k_major = c.b_layout == Layout::k_major;
  return {"b",
          is_k_major ? "n" : "k",
          is_k_major ? columns_along_k(c, c.b_type) : "n",
          buffer_dtype(c.b_type),
          operand_bits(c.b_type),
          BufferRole::input};
}
Matrix matrix_b2(const Config& c) {
  Matrix matrix = matrix_b(c);
  matrix.name = "b2";
  return matrix;
}
std::string columns_of_d(const Config& c) { return c.gate == Gate::interleaved ? "ceil_div(n, 2)" : "n"; }
Matrix matrix_of_d_type(const Config& c, const char* name, BufferRole role) {
  return {name,
          "m",
          "n",
          std::string(to_word(c.d_dtype)),
          8 * dtype_bytes(c.d_dtype),
          role,
          c.grouping == Grouping::contiguous};
}
Matrix matrix_d(const Config& c) {
  Matrix matrix = matrix_of_d_type(c, "d", BufferRole::output);
  matrix.columns = columns_of_d(c);
  if (gemm_tcgen05::is_quantized(c)) {
    matrix.dtype = "u8";
    matrix.bits = value_bits(block_format(c.d_format));
  }
  return matrix;
}

std::vector<Matrix> matrices(const Config& c) {
  std::vector<Matrix> list{matrix_a(c), matrix_b(c)};
  if (c.gate == Gate::dual) list.push_back(matrix_b2(c));
  list.push_back(matrix_d(c));
  if (c.c == Addend::matrix) list.push_back(matrix_of_d_type(c, "c", BufferRole::input));
  return list;
}

// Scales of contiguous groups begin with a tile each: how many there are, the host does not know.
bool has_group_tiles(const Config& c) {
  return c.grouping == Grouping::contiguous && (gemm_tcgen05::is_scaled(c) || gemm_tcgen05::is_quantized(c));
}

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("m", 0, kMaxExtent, {}, "rows of d");
  size("n", 0, kMaxExtent, {}, c.gate == Gate::interleaved ? "rows of b, two for a column of d" : "columns of d");
  size("k", 0, kMaxExtent, {}, "products of a sum");
  size("l", 0, kMaxExtent, Expression(1), c.grouping == Grouping::none ? "matrices" : "groups");
  if (has_group_tiles(c))
    size("group_tiles", 0, kMaxExtent, expression("ceil_div(m, {}) + l", kTileRows),
         "tiles of 128 rows that scales of all groups take, each group rounded up");
  for (const Matrix& matrix : matrices(c)) {
    // What is written must not overlap: a stride of 0 is for inputs only.
    const bool is_output = matrix.role == BufferRole::output;
    size(matrix.pitch(), is_output ? 1 : 0, kMaxStride,
         is_output                          ? expression("max({}, 1)", matrix.columns)
         : matrix.columns == kPaddedColumns ? Expression::parse("k")  // dense, which a rule below may refuse
                                            : Expression::parse(matrix.columns),
         fmt::format("elements of {} from one row to the next", matrix.name));
    if (matrix.is_one) continue;
    size(matrix.stride_l(), is_output ? 1 : 0, kMaxStride, expression("{} * max({}, 1)", matrix.pitch(), matrix.rows),
         fmt::format("elements of {} from one matrix to the next", matrix.name));
  }
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
}

void add_buffer(const Matrix& matrix, int alignment, LaunchPlan& launch) {
  launch.buffers.push_back({.name = matrix.name,
                            .role = matrix.role,
                            .dtype = matrix.dtype,
                            .shape = {Expression::parse(matrix.matrices()), Expression::parse(matrix.rows),
                                      Expression::parse(matrix.stored(matrix.columns))},
                            .strides = {Expression::parse(matrix.stored(matrix.stride_l())),
                                        Expression::parse(matrix.stored(matrix.pitch())), Expression(1)},
                            .alignment = alignment});
}

TensorMapRecipe matrix_map(const Matrix& matrix, TensorMapType type, TensorMapSwizzle swizzle,
                           const gemm_tcgen05::TmaBox& box) {
  TensorMapRecipe map;
  map.name = matrix.name;
  map.buffer = matrix.name;
  map.type = type;
  map.swizzle = swizzle;
  map.l2_promotion = TensorMapL2Promotion::l2_256b;
  // Packed rows have as many elements as their type's rule asks for; where K is 0 nothing inside is read.
  const int least = type == TensorMapType::u4x16_align16b ? 128 : matrix.bits == 4 ? 2 : 1;
  map.dims = {expression("max({}, {})", matrix.columns, least), expression("max({}, 1)", matrix.rows),
              expression("max({}, 1)", matrix.matrices())};
  for (const std::string& stride : {matrix.pitch(), matrix.stride_l()}) {
    // A pitch of d that no map takes is rounded up: that d is stored without its map.
    map.strides_bytes.push_back(matrix.role == BufferRole::output
                                    ? expression("ceil_div({}, 16) * 16", matrix.bytes(stride))
                                    : Expression::parse(matrix.bytes(stride)));
  }
  for (const int extent : box.extents) {
    map.box.push_back(static_cast<std::uint32_t>(extent));
    map.element_strides.push_back(1);
  }
  return map;
}

TensorMapType value_map_type(const Config& c, OperandType type) {
  if (operand_bits(type) == 4)
    return gemm_tcgen05::is_padded(c, type) ? TensorMapType::u4x16_align16b : TensorMapType::u4x16_align8b;
  return type == OperandType::f16    ? TensorMapType::f16
         : type == OperandType::bf16 ? TensorMapType::bf16
         : type == OperandType::tf32 ? TensorMapType::f32
                                     : TensorMapType::u8;
}

// Tiles of 512 bytes as 256 elements: [l * row tiles][tiles along k][256].
TensorMapRecipe scale_map(const Config& c, const char* name, const char* rows, bool is_of_lanes) {
  TensorMapRecipe map;
  map.name = name;
  map.buffer = name;
  map.type = TensorMapType::u16;
  map.swizzle = TensorMapSwizzle::none;
  map.l2_promotion = TensorMapL2Promotion::l2_256b;
  const std::string k_tiles = fmt::format("max(ceil_div(k, {}), 1)", gemm_tcgen05::scale_block(c) * kTileBlocks);
  const bool is_of_groups = has_group_tiles(c) && std::string_view(name) == "sfa";
  map.dims = {Expression(kTileBytes / 2), Expression::parse(k_tiles),
              is_of_groups ? Expression::parse("max(group_tiles, 1)")
                           : expression("max(l * ceil_div({}, {}), 1)", rows, kTileRows)};
  map.strides_bytes = {Expression(kTileBytes), expression("{} * {}", k_tiles, kTileBytes)};
  for (const int extent : gemm_tcgen05::scale_box(c, is_of_lanes).extents) {
    map.box.push_back(static_cast<std::uint32_t>(extent));
    map.element_strides.push_back(1);
  }
  return map;
}

void add_maps(const Config& c, LaunchPlan& launch) {
  const auto swizzle_of = [&](bool is_of_lanes) {
    return gemm_tcgen05::has_wide_atoms(c, is_of_lanes) ? TensorMapSwizzle::b128_atom_32b : TensorMapSwizzle::b128;
  };
  const bool is_swapped = gemm_tcgen05::is_swapped(c);
  const TensorMapSwizzle swizzle = swizzle_of(is_swapped);
  launch.tensor_maps.push_back(
      matrix_map(matrix_a(c), value_map_type(c, c.a_type), swizzle_of(!is_swapped), gemm_tcgen05::a_box(c)));
  launch.tensor_maps.push_back(matrix_map(matrix_b(c), value_map_type(c, c.b_type), swizzle, gemm_tcgen05::b_box(c)));
  if (c.gate == Gate::dual) {
    TensorMapRecipe map = launch.tensor_maps.back();
    map.name = map.buffer = "b2";
    map.strides_bytes = matrix_map(matrix_b2(c), map.type, swizzle, gemm_tcgen05::b_box(c)).strides_bytes;
    launch.tensor_maps.push_back(std::move(map));
  }
  if (gemm_tcgen05::is_scaled(c)) {
    launch.tensor_maps.push_back(scale_map(c, "sfa", "m", !gemm_tcgen05::is_swapped(c)));
    launch.tensor_maps.push_back(scale_map(c, "sfb", "n", gemm_tcgen05::is_swapped(c)));
    if (c.gate == Gate::dual) launch.tensor_maps.push_back(scale_map(c, "sfb2", "n", false));
  }
  if (gemm_tcgen05::is_quantized(c)) return;
  launch.tensor_maps.push_back(matrix_map(matrix_d(c), tensor_map_type(c.d_dtype),
                                          tensor_map_swizzle(gemm_tcgen05::d_swizzle(c)), gemm_tcgen05::d_box(c)));
}

// Scales whose row tiles are those of groups, one group after the other.
BufferSpec in_group_tiles(const Config& c, BufferSpec buffer) {
  if (!has_group_tiles(c)) return buffer;
  buffer.shape[0] = Expression(1);
  buffer.shape[1] = Expression::parse("group_tiles");
  buffer.strides[0] = expression("group_tiles * {}", buffer.strides[1].text());
  return buffer;
}

// Scales of d: of blocks along its columns.
BufferSpec d_scales(const Config& c) {
  const int block = block_elements(block_format(c.d_format));
  const std::string row_tiles = fmt::format("ceil_div(m, {})", kTileRows);
  const std::string column_tiles = fmt::format("ceil_div({}, {})", columns_of_d(c), block * kTileBlocks);
  BufferSpec buffer = scales_buffer("sfd", BufferRole::output, block_format(c.d_format), ScaleForm::tile, "m");
  buffer.shape[2] = Expression::parse(column_tiles);
  buffer.strides[0] = expression("{} * {} * {}", row_tiles, column_tiles, kTileBytes);
  buffer.strides[1] = expression("{} * {}", column_tiles, kTileBytes);
  return in_group_tiles(c, std::move(buffer));
}

void add_buffers(const Config& c, LaunchPlan& launch) {
  add_buffer(matrix_a(c), gemm_tcgen05::is_padded(c, c.a_type) ? 32 : 16, launch);
  add_buffer(matrix_b(c), gemm_tcgen05::is_padded(c, c.b_type) ? 32 : 16, launch);
  if (c.gate == Gate::dual) add_buffer(matrix_b2(c), gemm_tcgen05::is_padded(c, c.b_type) ? 32 : 16, launch);
  if (gemm_tcgen05::is_scaled(c)) {
    launch.buffers.push_back(
        in_group_tiles(c, scales_buffer("sfa", BufferRole::input, block_format(c.a_type), ScaleForm::tile, "m")));
    launch.buffers.push_back(scales_buffer("sfb", BufferRole::input, block_format(c.b_type), ScaleForm::tile, "n"));
  }
  if (gemm_tcgen05::is_scaled(c) && c.gate == Gate::dual)
    launch.buffers.push_back(scales_buffer("sfb2", BufferRole::input, block_format(c.b_type), ScaleForm::tile, "n"));
  if (c.grouping != Grouping::none)
    launch.buffers.push_back({.name = "groups",
                              .role = BufferRole::input,
                              .dtype = "s32",
                              .shape = {Expression::parse(c.grouping == Grouping::contiguous ? "l + 1" : "l")},
                              .strides = {Expression(1)},
                              .alignment = 4});
  add_buffer(matrix_d(c), 16, launch);
  if (gemm_tcgen05::is_quantized(c)) {
    launch.buffers.push_back(d_scales(c));
    if (c.d_format == OutputFormat::nvfp4)
      launch.buffers.push_back(global_scale_buffer("scale_d", BufferRole::input, true));
  }
  if (c.c == Addend::matrix) add_buffer(matrix_of_d_type(c, "c", BufferRole::input), dtype_bytes(c.d_dtype), launch);
  if (c.bias == Bias::column)
    launch.buffers.push_back({.name = "bias",
                              .role = BufferRole::input,
                              .dtype = std::string(to_word(c.d_dtype)),
                              .shape = {Expression::parse("n")},
                              .strides = {Expression(1)},
                              .alignment = dtype_bytes(c.d_dtype)});
  if (gemm_tcgen05::has_tensor_scales(c)) {
    for (const char* const name : {"scale_a", "scale_b"})
      launch.buffers.push_back(global_scale_buffer(name, BufferRole::input, true));
    if (c.gate == Gate::dual) launch.buffers.push_back(global_scale_buffer("scale_b2", BufferRole::input, true));
  }
}

void add_d_rules(const Config& c, LaunchPlan& launch) {
  const auto rule = [&](const char* lhs, Relation relation, Expression rhs, std::string message) {
    launch.domain.push_back(
        {.lhs = Expression::parse(lhs), .relation = relation, .rhs = std::move(rhs), .message = std::move(message)});
  };
  const bool is_interleaved = c.gate == Gate::interleaved;
  const int group = is_interleaved ? 2 * c.interleave : 1;
  if (is_interleaved)
    rule("n", Relation::multiple_of, Expression(group),
         fmt::format("n must be a multiple of {}: {} columns of the gate and as many of up", group, c.interleave));
  if (gemm_tcgen05::is_quantized(c)) {
    const BlockFormat format = block_format(c.d_format);
    const int block = block_elements(format) * (is_interleaved ? 2 : 1), unit = 128 / value_bits(format);
    rule("n", Relation::multiple_of, Expression(block),
         fmt::format("n must be a multiple of {}: d consists of whole blocks of {}, which share a scale", block,
                     block_elements(format)));
    rule("ldd", Relation::multiple_of, Expression(unit),
         fmt::format("ldd must be a multiple of {} (16 bytes): d need not be dense", unit));
    if (c.grouping != Grouping::contiguous)
      rule("d_stride_l", Relation::multiple_of, Expression(unit),
           fmt::format("d_stride_l must be a multiple of {} (16 bytes)", unit));
  }
  rule("ldd", Relation::at_least, Expression::parse(columns_of_d(c)),
       fmt::format("ldd must be at least {}: rows of d must not overlap", is_interleaved ? "n / 2" : "n"));
}

// Each rule keeps the products of the next within 64 bits.
void add_domain(const Config& c, LaunchPlan& launch) {
  const auto rule = [&](const std::string& lhs, Relation relation, Expression rhs, std::string message) {
    launch.domain.push_back(
        {.lhs = Expression::parse(lhs), .relation = relation, .rhs = std::move(rhs), .message = std::move(message)});
  };
  if (gemm_tcgen05::is_scaled(c)) {
    const int block = gemm_tcgen05::scale_block(c);
    rule("k", Relation::multiple_of, Expression(block),
         fmt::format("k must be a multiple of {}, the block of {} that shares a scale: quantize rows that are padded "
                     "with zeros",
                     block, to_word(c.a_type)));
  }
  std::vector<std::pair<Matrix, OperandType>> operands{{matrix_a(c), c.a_type}, {matrix_b(c), c.b_type}};
  if (c.gate == Gate::dual) operands.emplace_back(matrix_b2(c), c.b_type);
  for (const auto& [matrix, type] : operands) {
    const int bytes = gemm_tcgen05::is_padded(c, type) ? 32 : 16;
    const int unit = 8 * bytes / matrix.bits;
    rule(
        matrix.pitch(), Relation::multiple_of, Expression(unit),
        fmt::format("{0} must be a multiple of {1} ({2} bytes, tensor map): copy {3} into rows that are padded to that "
                    "(cudaMemcpy2DAsync, pad_on_host; --pad-rows); they need not be dense",
                    matrix.pitch(), unit, bytes, matrix.name));
    if (gemm_tcgen05::is_padded(c, type))
      rule(matrix.pitch(), Relation::at_least, Expression::parse(matrix.columns),
           fmt::format(
               "{0} must be at least k, rounded up to 128 (tensor map of mxfp4 values that are padded to 8 bits "
               "beside mxfp8): copy {1} into rows that are padded to that (cudaMemcpy2DAsync, pad_on_host; --pad-rows)",
               matrix.pitch(), matrix.name));
    if (matrix.is_one) continue;
    rule(matrix.stride_l(), Relation::multiple_of, Expression(unit),
         fmt::format("{} must be a multiple of {} ({} bytes, tensor map)", matrix.stride_l(), unit, bytes));
  }
  add_d_rules(c, launch);
  const std::string tiles_m = fmt::format("ceil_div(m, {})", c.tile_m * c.cluster_m);
  const std::string tiles_n = fmt::format("ceil_div(n, {})", c.tile_n * c.cluster_n);
  const Expression most(kMaxExtent / gemm_tcgen05::kMaxClusterSize);
  const std::string bound = fmt::format("must be at most {}", kMaxExtent / gemm_tcgen05::kMaxClusterSize);
  if (c.grouping == Grouping::contiguous)
    rule("(" + tiles_m + " + l) * " + tiles_n, Relation::at_most, most, "the number of tiles of all groups " + bound);
  rule(tiles_m + " * " + tiles_n, Relation::at_most, most, "the number of tiles " + bound);
  rule(tiles_m + " * " + tiles_n + " * l", Relation::at_most, most, "the number of tiles of all l matrices " + bound);
}

LaunchStep step_of(const Config& c, const std::string& kernel, const std::vector<TensorMapRecipe>& maps) {
  LaunchStep step;
  step.entry = kernel;
  const int size = gemm_tcgen05::cluster_size(c);
  // Of contiguous groups as many as there can be: the last tile of each may be a part of one.
  const std::string rows_of_tiles = fmt::format("ceil_div(m, {})", c.tile_m * c.cluster_m);
  const std::string tiles_n = fmt::format("ceil_div(n, {})", c.tile_n * c.cluster_n);
  const std::string clusters = c.grouping == Grouping::contiguous ? fmt::format("({} + l) * {}", rows_of_tiles, tiles_n)
                                                                  : fmt::format("{} * {} * l", rows_of_tiles, tiles_n);
  // As many clusters as the device holds at once (num_sms / size, rounded down, at least one), or one for each tile.
  step.grid[0] = size == 1 ? expression("min(num_sms, {})", clusters)
                 : c.split_k == 1
                     ? expression("{} * min(max(ceil_div(num_sms - {}, {}), 1), {})", size, size - 1, size, clusters)
                     : expression("{} * {}", size, clusters);
  step.block[0] = static_cast<std::uint32_t>(gemm_tcgen05::num_threads(c));
  step.cluster[0] = static_cast<std::uint32_t>(size);
  step.dynamic_smem_bytes = gemm_tcgen05::smem_layout(c).total_bytes;
  const auto number = [&](const char* name, ParameterKind kind) {
    step.parameters.push_back(size_parameter(name, kind, Expression::parse(name)));
  };
  const auto from = [&](const char* name, ParameterKind kind, const char* source) {
    step.parameters.push_back({.name = name, .kind = kind, .value = {}, .source = source, .offset_bytes = {}});
  };
  const bool has_c = c.c == Addend::matrix;
  for (const TensorMapRecipe& map : maps) from(map.name.c_str(), ParameterKind::tensor_map, map.name.c_str());
  from("d_pointer", ParameterKind::pointer, "d");
  if (c.grouping != Grouping::none) from("groups", ParameterKind::pointer, "groups");
  if (gemm_tcgen05::is_quantized(c)) from("sfd", ParameterKind::pointer, "sfd");
  if (c.d_format == OutputFormat::nvfp4) from("scale_d", ParameterKind::pointer, "scale_d");
  if (has_c) from("c", ParameterKind::pointer, "c");
  if (c.bias == Bias::column) from("bias", ParameterKind::pointer, "bias");
  if (gemm_tcgen05::has_tensor_scales(c))
    for (const char* const scale : {"scale_a", "scale_b"}) from(scale, ParameterKind::pointer, scale);
  if (gemm_tcgen05::has_tensor_scales(c) && c.gate == Gate::dual) from("scale_b2", ParameterKind::pointer, "scale_b2");
  for (const char* const size_name : {"m", "n", "k", "l"}) number(size_name, ParameterKind::i32);
  number("ldd", ParameterKind::i64);
  const bool is_one = c.grouping == Grouping::contiguous;
  step.parameters.push_back(
      size_parameter("d_stride_l", ParameterKind::i64, is_one ? Expression(0) : Expression::parse("d_stride_l")));
  if (has_c) {
    number("ldc", ParameterKind::i64);
    step.parameters.push_back(
        size_parameter("c_stride_l", ParameterKind::i64, is_one ? Expression(0) : Expression::parse("c_stride_l")));
  }
  if (!gemm_tcgen05::stores_sums(c)) from("alpha", ParameterKind::f32, "alpha");
  if (has_c) from("beta", ParameterKind::f32, "beta");
  return step;
}

}  // namespace

LaunchPlan gemm_tcgen05_launch(const Config& config, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "gemm";
  launch.arch = arch;
  add_sizes(config, launch);
  if (!gemm_tcgen05::stores_sums(config))
    launch.scalars.push_back({.name = "alpha", .default_value = 1, .help = "factor of the product"});
  if (config.c == Addend::matrix)
    launch.scalars.push_back({.name = "beta", .default_value = 1, .help = "factor of c; 0: c is not read"});
  add_buffers(config, launch);
  add_maps(config, launch);
  add_domain(config, launch);
  launch.steps.push_back(step_of(config, kernel, launch.tensor_maps));
  return launch;
}

}  // namespace tessera

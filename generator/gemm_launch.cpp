// The launch of a product as data: sizes and strides, buffers, domain, tensor maps, the one step. The kernel's side of
// every line stands in the head of spec/gemm.h.
#include <fmt/format.h>

#include <cstdint>

#include "generator/gemm_operator.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

using gemm::Config;

constexpr std::int64_t kMaxExtent = (std::int64_t{1} << 31) - (1 << 16);  // coordinates stay in int
constexpr std::int64_t kMaxStride = std::int64_t{1} << 40;
constexpr std::int64_t kMaxSms = 1 << 16;

// One matrix operand: which extents are its rows and its contiguous dimension.
struct Matrix {
  const char* name;
  const char* rows;
  const char* columns;
  DType dtype;
  BufferRole role;
  bool is_copied_by_tma = true;
  std::string pitch() const { return fmt::format("ld{}", name); }
  std::string stride_l() const { return fmt::format("{}_stride_l", name); }
};

// The product's own operands, whichever of the kernel's they are.
Matrix matrix_a(const Config& c) {
  const bool is_k_major = gemm::layout_of(c, false) == Layout::k_major;
  return {"a", is_k_major ? "m" : "k", is_k_major ? "k" : "m", gemm::dtype_of(c, false), BufferRole::input};
}
Matrix matrix_b(const Config& c) {
  const bool is_k_major = gemm::layout_of(c, true) == Layout::k_major;
  return {"b", is_k_major ? "n" : "k", is_k_major ? "k" : "n", gemm::dtype_of(c, true), BufferRole::input};
}
// The sizes that are the kernel's m and n.
const char* rows(const Config& c) { return gemm::is_swapped(c) ? "n" : "m"; }
const char* columns(const Config& c) { return gemm::is_swapped(c) ? "m" : "n"; }
Matrix matrix_c(const Config& c) { return {"c", "m", "n", gemm::c_dtype(c), BufferRole::input, false}; }
Matrix matrix_d(const Config& c) { return {"d", "m", "n", c.d_dtype, BufferRole::output}; }

std::vector<Matrix> matrices(const Config& c) {
  std::vector<Matrix> list{matrix_a(c), matrix_b(c), matrix_d(c)};
  if (c.c == Addend::matrix) list.push_back(matrix_c(c));
  return list;
}

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("m", 0, kMaxExtent, {}, "rows of d");
  size("n", 0, kMaxExtent, {}, "columns of d");
  size("k", 0, kMaxExtent, {}, "products of a sum");
  size("l", 0, kMaxExtent, Expression(1), "matrices");
  for (const Matrix& matrix : matrices(c)) {
    // What is written must not overlap: a stride of 0 is for inputs only.
    const bool is_output = matrix.role == BufferRole::output;
    size(matrix.pitch(), is_output ? 1 : 0, kMaxStride,
         is_output ? expression("max({}, 1)", matrix.columns) : Expression::parse(matrix.columns),
         fmt::format("elements of {} from one row to the next", matrix.name));
    size(matrix.stride_l(), is_output ? 1 : 0, kMaxStride, expression("{} * max({}, 1)", matrix.pitch(), matrix.rows),
         fmt::format("elements of {} from one matrix to the next", matrix.name));
  }
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
}

void add_buffer(const Matrix& matrix, LaunchPlan& launch) {
  const auto alignment = matrix.is_copied_by_tma ? 16 : dtype_bytes(matrix.dtype);
  launch.buffers.push_back(
      {.name = matrix.name,
       .role = matrix.role,
       .dtype = std::string(to_word(matrix.dtype)),
       .shape = {Expression::parse("l"), Expression::parse(matrix.rows), Expression::parse(matrix.columns)},
       .strides = {Expression::parse(matrix.stride_l()), Expression::parse(matrix.pitch()), Expression(1)},
       .alignment = alignment});
}

void add_map(const Matrix& matrix, Swizzle swizzle, const gemm::TmaBox& box, LaunchPlan& launch) {
  const int bytes = dtype_bytes(matrix.dtype);
  TensorMapRecipe map;
  map.name = matrix.name;
  map.buffer = matrix.name;
  map.type = tensor_map_type(matrix.dtype);
  map.swizzle = tensor_map_swizzle(swizzle);
  map.l2_promotion = TensorMapL2Promotion::l2_256b;
  map.dims = {expression("max({}, 1)", matrix.columns), expression("max({}, 1)", matrix.rows),
              Expression::parse("max(l, 1)")};
  for (const std::string& stride : {matrix.pitch(), matrix.stride_l()}) {
    // A pitch of d that no map takes is rounded up: that d is stored without its map.
    map.strides_bytes.push_back(matrix.role == BufferRole::output
                                    ? expression("ceil_div({} * {}, 16) * 16", stride, bytes)
                                    : expression("{} * {}", stride, bytes));
  }
  for (const int extent : box.extents) {
    map.box.push_back(static_cast<std::uint32_t>(extent));
    map.element_strides.push_back(1);
  }
  launch.tensor_maps.push_back(std::move(map));
}

void add_vector(const char* name, std::string_view dtype, const char* extent, int alignment, bool is_optional,
                LaunchPlan& launch) {
  launch.buffers.push_back({.name = name,
                            .role = BufferRole::input,
                            .dtype = std::string(dtype),
                            .shape = {Expression::parse(extent)},
                            .strides = {Expression(1)},
                            .alignment = alignment,
                            .is_optional = is_optional});
}

// Each rule keeps the products of the next within 64 bits.
void add_domain(const Config& c, LaunchPlan& launch) {
  const auto rule = [&](std::string lhs, Relation relation, Expression rhs, std::string message) {
    launch.domain.push_back(
        {.lhs = Expression::parse(lhs), .relation = relation, .rhs = std::move(rhs), .message = std::move(message)});
  };
  for (const Matrix& matrix : {matrix_a(c), matrix_b(c)}) {
    const int unit = 16 / dtype_bytes(matrix.dtype);
    rule(matrix.pitch(), Relation::multiple_of, Expression(unit),
         fmt::format("{0} must be a multiple of {1} (16 bytes, tensor map): pad the rows of {2}, which need not be "
                     "dense",
                     matrix.pitch(), unit, matrix.name));
    rule(matrix.stride_l(), Relation::multiple_of, Expression(unit),
         fmt::format("{} must be a multiple of {} (16 bytes, tensor map)", matrix.stride_l(), unit));
  }
  rule("ldd", Relation::at_least, Expression::parse("n"), "ldd must be at least n: rows of d must not overlap");
  const std::string tiles_m = fmt::format("ceil_div({}, {})", rows(c), c.tile_m * c.cluster_m);
  const std::string tiles_n = fmt::format("ceil_div({}, {})", columns(c), c.tile_n * c.cluster_n);
  const Expression most(kMaxExtent / gemm::kMaxClusterSize);
  const std::string bound = fmt::format("must be at most {}", kMaxExtent / gemm::kMaxClusterSize);
  rule(tiles_m + " * " + tiles_n, Relation::at_most, most, "the number of tiles " + bound);
  rule(tiles_m + " * " + tiles_n + " * l", Relation::at_most, most, "the number of tiles of all l matrices " + bound);
}

/// Clusters of `size` CTAs that run at the same time. A cluster's CTAs share a GPC, and SMs are left over where a GPC's
/// are no multiple of `size`: of 132 SMs an H200 uses 120 for clusters of four, 112 for clusters of eight. A cluster
/// more would begin when the others end, and the launch would take twice as long; on other numbers of SMs the same
/// share may leave some idle.
std::string clusters_at_once(int size) {
  if (size <= 2) return fmt::format("max(ceil_div(num_sms - {}, {}), 1)", size - 1, size);
  const int used = size <= 4 ? 10 : 6, of = size <= 4 ? 11 : 7;
  return fmt::format("max(ceil_div({} * num_sms - {}, {}), 1)", used, of * size - 1, of * size);
}

LaunchStep step_of(const Config& c, const std::string& kernel) {
  LaunchStep step;
  step.entry = kernel;
  const int size = gemm::cluster_size(c);
  const std::string clusters = fmt::format("ceil_div({}, {}) * ceil_div({}, {}) * l", rows(c), c.tile_m * c.cluster_m,
                                           columns(c), c.tile_n * c.cluster_n);
  // As many clusters as the device holds at once, or one for each tile.
  step.grid[0] = size == 1        ? expression("min(num_sms, {})", clusters)
                 : c.split_k == 1 ? expression("{} * min({}, {})", size, clusters_at_once(size), clusters)
                                  : expression("{} * {}", size, clusters);
  step.block[0] = static_cast<std::uint32_t>(gemm::num_threads(c));
  step.cluster[0] = static_cast<std::uint32_t>(size);
  step.dynamic_smem_bytes = gemm::smem_layout(c).total_bytes;
  const auto parameter = [&](const char* name, ParameterKind kind, Expression value, const char* source) {
    step.parameters.push_back(
        {.name = name, .kind = kind, .value = std::move(value), .source = source, .offset_bytes = {}});
  };
  const auto number = [&](const char* name, ParameterKind kind) { parameter(name, kind, Expression::parse(name), ""); };
  const bool has_c = c.c == Addend::matrix;
  const bool is_swapped = gemm::is_swapped(c);
  parameter("a", ParameterKind::tensor_map, {}, is_swapped ? "b" : "a");
  parameter("b", ParameterKind::tensor_map, {}, is_swapped ? "a" : "b");
  parameter("d", ParameterKind::tensor_map, {}, "d");
  parameter("d_pointer", ParameterKind::pointer, {}, "d");
  if (has_c) parameter("c", ParameterKind::pointer, {}, "c");
  if (c.bias == Bias::column) parameter("bias", ParameterKind::pointer, {}, "bias");
  if (gemm::is_8_bit(c.a_dtype)) {
    parameter("scale_a", ParameterKind::pointer, {}, "scale_a");
    parameter("scale_b", ParameterKind::pointer, {}, "scale_b");
  }
  parameter("m", ParameterKind::i32, Expression::parse(rows(c)), "");
  parameter("n", ParameterKind::i32, Expression::parse(columns(c)), "");
  for (const char* const size_name : {"k", "l"}) number(size_name, ParameterKind::i32);
  number("ldd", ParameterKind::i64);
  number("d_stride_l", ParameterKind::i64);
  if (has_c) {
    number("ldc", ParameterKind::i64);
    number("c_stride_l", ParameterKind::i64);
  }
  parameter("alpha", ParameterKind::f32, {}, "alpha");
  if (has_c) parameter("beta", ParameterKind::f32, {}, "beta");
  return step;
}

}  // namespace

LaunchPlan gemm_launch(const Config& config, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "gemm";
  launch.arch = arch;
  add_sizes(config, launch);
  launch.scalars.push_back({.name = "alpha", .default_value = 1, .help = "factor of the product"});
  if (config.c == Addend::matrix)
    launch.scalars.push_back({.name = "beta", .default_value = 1, .help = "factor of c; 0: c is not read"});
  for (const Matrix& matrix : matrices(config)) add_buffer(matrix, launch);
  if (config.bias == Bias::column) {
    const DType dtype = gemm::c_dtype(config);
    add_vector("bias", to_word(dtype), "n", dtype_bytes(dtype), false, launch);
  }
  if (gemm::is_8_bit(config.a_dtype)) {
    for (const char* const name : {"scale_a", "scale_b"}) add_vector(name, "f32", "1", 4, true, launch);
  }
  const bool is_swapped = gemm::is_swapped(config);
  add_map(matrix_a(config), Swizzle::b128, is_swapped ? gemm::b_box(config) : gemm::a_box(config), launch);
  add_map(matrix_b(config), Swizzle::b128, is_swapped ? gemm::a_box(config) : gemm::b_box(config), launch);
  add_map(matrix_d(config), gemm::d_swizzle(config), gemm::d_box(config), launch);
  add_domain(config, launch);
  launch.steps.push_back(step_of(config, kernel));
  return launch;
}

}  // namespace tessera

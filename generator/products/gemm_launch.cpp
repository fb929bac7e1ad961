// The launch of a product as data: sizes and strides, domain, the one step. The kernel's side of every line stands in
// the heads of spec/gemm.h, spec/gemm_mma.h and spec/gemm_tcgen05.h. Buffers and tensor maps:
// generator/products/gemm_buffers.cpp.
#include "generator/products/gemm_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/block_scaled/block_operator.h"
#include "generator/launch_limits.h"
#include "generator/model_device.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

constexpr int kMaxClusterSize = 8;  // that every device grants

void add_sizes(const GemmLaunch& p, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("m", 0, kMaxExtent, {}, "rows of d");
  size("n", 0, kMaxExtent, {}, p.facts.gate == Gate::interleaved ? "rows of b, two for a column of d" : "columns of d");
  size("k", 0, kMaxExtent, {}, "products of a sum");
  size("l", 0, kMaxExtent, Expression(1), p.facts.grouping == Grouping::none ? "matrices" : "groups");
  if (p.is_gathered) size("a_rows", 0, kMaxExtent, Expression::parse("m"), "rows of a, which indices name");
  if (has_group_tiles(p))
    size("group_tiles", 0, kMaxExtent, expression("ceil_div(m, {}) + l", kTileRows),
         "tiles of 128 rows that scales of all groups take, each group rounded up");
  for (const ProductMatrix& matrix : product_matrices(p)) {
    // What is written must not overlap: a stride of 0 is for inputs only.
    const bool is_output = matrix.role == BufferRole::output;
    size(matrix.pitch(), is_output ? 1 : 0, kMaxStride,
         is_output                     ? expression("max({}, 1)", matrix.columns)
         : matrix.has_padded_columns() ? Expression::parse("k")  // dense, which a rule below may refuse
                                       : Expression::parse(matrix.columns),
         fmt::format("elements of {} from one row to the next", matrix.name));
    if (matrix.is_one) continue;
    size(matrix.stride_l(), is_output ? 1 : 0, kMaxStride, expression("{} * max({}, 1)", matrix.pitch(), matrix.rows),
         fmt::format("elements of {} from one matrix to the next", matrix.name));
  }
  std::vector<ScaleBlocks> factors = scale_blocks(p);
  for (const ScaleBlocks& scales : d_scale_blocks(p)) factors.push_back(scales);
  for (const ScaleBlocks& scales : factors) {
    const int least = scales.is_output ? 1 : 0;
    const std::string rows = scales.stride(scales.rows), blocks = scales.blocks();
    size(scales.stride(scales.along), least, kMaxStride, Expression(1),
         fmt::format("numbers from a factor of {} to that of the next 128 of {}", scales.name, scales.along));
    size(rows, least, kMaxStride, scales.is_output ? expression("max({}, 1)", blocks) : Expression::parse(blocks),
         fmt::format("numbers from a factor of {} to that of the next {}", scales.name,
                     scales.block == ScaleBlock::of_row ? "row" : "128 rows"));
    if (scales.is_one) continue;
    size(scales.stride("l"), least, kMaxStride,
         scales.is_output ? expression("max({}, 1)", scales.elements()) : Expression::parse(scales.elements()),
         fmt::format("numbers of {} from one matrix to the next", scales.name));
  }
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
}

void add_d_rules(const GemmLaunch& p, LaunchPlan& launch) {
  const auto rule = [&](const char* lhs, Relation relation, Expression rhs, std::string message) {
    launch.domain.push_back(
        {.lhs = Expression::parse(lhs), .relation = relation, .rhs = std::move(rhs), .message = std::move(message)});
  };
  const bool is_interleaved = p.facts.gate == Gate::interleaved;
  const int group = is_interleaved ? 2 * p.facts.interleave : 1;
  if (is_interleaved)
    rule(
        "n", Relation::multiple_of, Expression(group),
        fmt::format("n must be a multiple of {}: {} columns of the gate and as many of up", group, p.facts.interleave));
  if (is_quantized(p)) {
    const BlockFormat format = block_format(p.facts.d_format);
    const int block = block_elements(format) * (is_interleaved ? 2 : 1), unit = 128 / value_bits(format);
    rule("n", Relation::multiple_of, Expression(block),
         fmt::format("n must be a multiple of {}: d consists of whole blocks of {}, which share a scale", block,
                     block_elements(format)));
    rule("ldd", Relation::multiple_of, Expression(unit),
         fmt::format("ldd must be a multiple of {} (16 bytes): d need not be dense", unit));
    if (p.facts.grouping != Grouping::contiguous)
      rule("d_stride_l", Relation::multiple_of, Expression(unit),
           fmt::format("d_stride_l must be a multiple of {} (16 bytes)", unit));
  }
  rule("ldd", Relation::at_least, Expression::parse(columns_of_d(p)),
       fmt::format("ldd must be at least {}: rows of d must not overlap", is_interleaved ? "n / 2" : "n"));
}

/// Clusters along the product's m and n.
std::string clusters_m(const GemmLaunch& p) {
  return fmt::format("ceil_div(m, {})", p.tiles.tile_m * p.tiles.cluster_m);
}
std::string clusters_n(const GemmLaunch& p) {
  return fmt::format("ceil_div(n, {})", p.tiles.tile_n * p.tiles.cluster_n);
}

// Each rule keeps the products of the next within 64 bits.
void add_domain(const GemmLaunch& p, LaunchPlan& launch) {
  const auto rule = [&](const std::string& lhs, Relation relation, Expression rhs, std::string message) {
    launch.domain.push_back(
        {.lhs = Expression::parse(lhs), .relation = relation, .rhs = std::move(rhs), .message = std::move(message)});
  };
  if (p.scale_block > 0)
    rule("k", Relation::multiple_of, Expression(p.scale_block),
         fmt::format("k must be a multiple of {}, the block of {} that shares a scale: quantize rows that are padded "
                     "with zeros",
                     p.scale_block, to_word(p.facts.a_type)));
  if (p.packed_bytes > 0)
    rule(
        "k", Relation::multiple_of, Expression(p.packed_group),
        fmt::format("k must be a multiple of {}, the group of {} weights that shares a scale: pad the rows of a and of "
                    "the weights with zeros",
                    p.packed_group, to_word(p.facts.b_type)));
  std::vector<std::pair<ProductMatrix, bool>> operands{{matrix_a(p), p.a.is_padded}};
  if (p.packed_bytes == 0) operands.emplace_back(matrix_b(p), p.b.is_padded);
  if (p.facts.gate == Gate::dual) operands.emplace_back(matrix_b2(p), p.b.is_padded);
  const auto beside = [](OperandType other) { return is_mxfp6(other) ? " beside mxfp6" : " beside mxfp8"; };
  const auto loader = [&](const ProductMatrix& matrix) {
    return !p.has_a_map && matrix.name == std::string_view("a") ? "cp.async" : "tensor map";
  };
  for (const auto& [matrix, is_padded] : operands) {
    // Of six bits whole units of bytes are three quarters as many.
    const int bytes = is_padded ? 32 : 16, unit = matrix.bits == 6 ? 4 * bytes : 8 * bytes / matrix.bits;
    rule(matrix.pitch(), Relation::multiple_of, Expression(unit),
         fmt::format("{} must be a multiple of {} ({} bytes, {}): {}", matrix.pitch(), unit, bytes, loader(matrix),
                     fmt::format(fmt::runtime(p.pitch_remedy), matrix.name)));
    if (is_padded)
      rule(
          matrix.pitch(), Relation::at_least, Expression::parse(matrix.columns),
          fmt::format(
              "{0} must be at least k, rounded up to 128 (tensor map of {2} values that are padded to 8 bits{3}): copy "
              "{1} into rows that are padded to that (cudaMemcpy2DAsync, pad_on_host; --pad-rows)",
              matrix.pitch(), matrix.name, matrix.bits == 6 ? "mxfp6" : "mxfp4",
              matrix.bits == 6                       ? ""
              : p.facts.a_type == OperandType::mxfp4 ? beside(p.facts.b_type)
                                                     : beside(p.facts.a_type)));
    if (matrix.is_one) continue;
    rule(matrix.stride_l(), Relation::multiple_of, Expression(unit),
         fmt::format("{} must be a multiple of {} ({} bytes, {})", matrix.stride_l(), unit, bytes, loader(matrix)));
  }
  add_d_rules(p, launch);
  const std::string first = p.is_swapped ? clusters_n(p) : clusters_m(p);
  const std::string second = p.is_swapped ? clusters_m(p) : clusters_n(p);
  const Expression most(kMaxExtent / kMaxClusterSize);
  const std::string bound = fmt::format("must be at most {}", kMaxExtent / kMaxClusterSize);
  if (p.facts.grouping == Grouping::contiguous)
    rule("(" + first + " + l) * " + second, Relation::at_most, most, "the number of tiles of all groups " + bound);
  rule(first + " * " + second, Relation::at_most, most, "the number of tiles " + bound);
  rule(first + " * " + second + " * l", Relation::at_most, most, "the number of tiles of all l matrices " + bound);
}

/// Clusters of `size` CTAs that run at the same time. A cluster's CTAs share a GPC, and SMs are left over where a GPC's
/// are no multiple of `size`: of 132 SMs an H200 uses 117 for clusters of three, 120 for clusters of four. A cluster
/// more would begin when the others end, and the launch would take twice as long (with 40 clusters of three, 4-bit
/// weights of 64 x 10,240 x 8,192 took 66.9 us); on other numbers of SMs the same share may leave some idle.
std::string clusters_at_once(int size) {
  if (size <= 2) return fmt::format("max(ceil_div(num_sms - {}, {}), 1)", size - 1, size);
  const int sms = static_cast<int>(kHopper.sms);
  return fmt::format("max(ceil_div({} * num_sms - {}, {}), 1)", hopper_clusters_at_once(size), sms - 1, sms);
}

/// The entry's parameters, in its order.
void add_parameters(const GemmLaunch& p, const std::vector<TensorMapRecipe>& maps, LaunchStep& step) {
  const auto from = [&](const std::string& name, ParameterKind kind, const std::string& source) {
    step.parameters.push_back({.name = name, .kind = kind, .value = {}, .source = source, .offset_bytes = {}});
  };
  const auto pointer = [&](const char* name) { from(name, ParameterKind::pointer, name); };
  const auto number = [&](const char* name, ParameterKind kind, Expression value) {
    step.parameters.push_back(size_parameter(name, kind, std::move(value)));
  };
  const auto other_of = [&](const std::string& name) {
    return name == "a" ? "b" : name == "b" ? "a" : name == "sfa" ? "sfb" : name == "sfb" ? "sfa" : name;
  };
  for (const TensorMapRecipe& map : maps)
    from(map.name, ParameterKind::tensor_map, p.is_swapped ? other_of(map.name) : map.name);
  if (p.packed_bytes > 0) pointer("b");
  from("d_pointer", ParameterKind::pointer, "d");
  if (p.facts.grouping != Grouping::none) pointer("groups");
  if (is_quantized(p)) pointer("sfd");
  if (p.facts.d_format == OutputFormat::nvfp4) pointer("scale_d");
  const bool has_c = p.facts.c == Addend::matrix;
  if (has_c) pointer("c");
  if (p.facts.bias != Bias::none) pointer("bias");
  if (p.has_tensor_scales) {
    pointer("scale_a");
    pointer("scale_b");
    if (p.facts.gate == Gate::dual) pointer("scale_b2");
  }
  if (p.has_scale_b) pointer("scale_b");
  const auto factors = [&](const ScaleBlocks& scales) {
    pointer(scales.name);
    for (const std::string_view dimension :
         {std::string_view(scales.rows), std::string_view(scales.along), std::string_view("l")}) {
      const std::string stride = scales.stride(dimension);
      number(stride.c_str(), ParameterKind::i64,
             scales.is_one && dimension == "l" ? Expression(0) : Expression::parse(stride));
    }
  };
  std::vector<ScaleBlocks> blocks = scale_blocks(p);
  if (p.is_swapped) std::reverse(blocks.begin(), blocks.end());
  for (const ScaleBlocks& scales : blocks) factors(scales);
  number("m", ParameterKind::i32, Expression::parse(p.is_swapped ? "n" : "m"));
  number("n", ParameterKind::i32, Expression::parse(p.is_swapped ? "m" : "n"));
  for (const char* const size : {"k", "l"}) number(size, ParameterKind::i32, Expression::parse(size));
  const bool is_one = p.facts.grouping == Grouping::contiguous;
  const auto stride_l = [&](const char* name) { return is_one ? Expression(0) : Expression::parse(name); };
  number("ldd", ParameterKind::i64, Expression::parse("ldd"));
  number("d_stride_l", ParameterKind::i64, stride_l("d_stride_l"));
  if (has_c) {
    number("ldc", ParameterKind::i64, Expression::parse("ldc"));
    number("c_stride_l", ParameterKind::i64, stride_l("c_stride_l"));
  }
  if (p.facts.d_dtype != DType::s32) from("alpha", ParameterKind::f32, "alpha");
  if (has_c) from("beta", ParameterKind::f32, "beta");
  const bool is_plain = p.scale_block > 0 && p.scale_form == ScaleForm::plain;
  if (is_plain) {
    for (const char* const name : {"sfa", "sfb"})
      from(name, ParameterKind::pointer, p.is_swapped ? other_of(name) : name);
    if (p.facts.gate == Gate::dual) pointer("sfb2");
  }
  if (!p.has_a_map) {
    pointer("a");
    if (p.is_gathered && p.scale_block > 0 && !is_plain) pointer("sfa");
    if (p.is_gathered) pointer("indices");
    number("lda", ParameterKind::i64, Expression::parse("lda"));
    if (p.is_gathered) {
      number("a_rows", ParameterKind::i32, Expression::parse("a_rows"));
    } else {
      number("a_stride_l", ParameterKind::i64, stride_l("a_stride_l"));
    }
  }
  for (const ScaleBlocks& scales : d_scale_blocks(p)) factors(scales);
}

LaunchStep step_of(const GemmLaunch& p, const std::string& kernel, const std::vector<TensorMapRecipe>& maps) {
  LaunchStep step;
  step.entry = kernel;
  const std::string first = p.is_swapped ? clusters_n(p) : clusters_m(p);
  const std::string second = p.is_swapped ? clusters_m(p) : clusters_n(p);
  // Of contiguous groups as many as there can be: the last tile of each may be a part of one.
  const std::string clusters = p.facts.grouping == Grouping::contiguous ? fmt::format("({} + l) * {}", first, second)
                                                                        : fmt::format("{} * {} * l", first, second);
  // As many clusters as the device holds at once, or one for each tile.
  const int size = p.cluster_size;
  step.grid[0] = size == 1 ? expression("min(num_sms, {})", clusters)
                 : p.tiles.split_k == 1 || p.packed_bytes > 0
                     ? expression("{} * min({}, {})", size, clusters_at_once(size), clusters)
                     : expression("{} * {}", size, clusters);
  step.block[0] = static_cast<std::uint32_t>(p.threads);
  step.cluster[0] = static_cast<std::uint32_t>(size);
  step.dynamic_smem_bytes = p.smem_bytes;
  step.programmatic_stream_serialization = p.packed_bytes > 0 || p.waits_for_prior;
  add_parameters(p, maps, step);
  return step;
}

}  // namespace

LaunchPlan gemm_launch(const GemmLaunch& product, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "gemm";
  launch.arch = arch;
  add_sizes(product, launch);
  if (product.facts.d_dtype != DType::s32)
    launch.scalars.push_back({.name = "alpha", .default_value = 1, .help = "factor of the product"});
  if (product.facts.c == Addend::matrix)
    launch.scalars.push_back({.name = "beta", .default_value = 1, .help = "factor of c; 0: c is not read"});
  add_product_buffers(product, launch);
  add_product_maps(product, launch);
  add_domain(product, launch);
  launch.steps.push_back(step_of(product, kernel, launch.tensor_maps));
  return launch;
}

}  // namespace tessera

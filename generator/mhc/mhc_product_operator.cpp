// Candidates are divisions of a CTA's warps among rows and chunks of k, CTAs of a cluster among parts of k, and rings
// that leave a multiprocessor to one CTA or to two. One wave of CTAs that are alone is what the choice aims at, with as
// many rows each as that leaves: b is read by every CTA of other rows. Of an H200, us, one CTA a multiprocessor or two:
// 8,192 x 7,168 30.7 and 45.7, 4,096 x 28,672 58.0 and 94.7, in 4 parts with 128 rows a CTA and one 58.3, with 64 and
// two 61.8. A short launch is better with two, so that the next one's CTAs begin while it ends: 1,024 x 7,168 12.0 and
// 11.2, one row of 7,168 columns in 16 parts 4.7 and 2.8; not if other multiprocessors are free for them: 137 x 28,672
// 9.8 and 11.8.
#include "generator/mhc/mhc_product_operator.h"

#include <fmt/format.h>

#include <cmath>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

struct Division {
  int warps_m, warps_k;
};
constexpr Division kDivisions[] = {{1, 4}, {2, 4}, {4, 4}};
constexpr int kClusters[] = {1, 2, 4, 8};
constexpr std::int64_t kMultiprocessors = 132, kFewRows = 256, kManyRows = 4096, kManyColumns = 28672;
constexpr std::int64_t kManyChunks = 24;  // of a CTA: then its ring pays
constexpr int kWidestOfMany = 40;         // of 17 warps: with 64, 96 registers spill

constexpr std::int64_t kMhcMaxStride = std::int64_t{1} << 40;

LaunchPlan launch_of(const mhc_product::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "mhc_product";
  launch.arch = arch;
  const auto size = [&](const char* name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        const char* help) {
    launch.sizes.push_back({name, min, max, std::move(value), help});
  };
  size("m", 0, kMaxExtent, {}, "rows of a");
  size("k", 1, kMaxExtent, {}, "elements of a row: of all streams together");
  size("a_stride_m", 0, kMhcMaxStride, Expression::parse("k"), "elements of a from one row to the next");
  size("b_stride_n", 0, kMhcMaxStride, Expression::parse("k"), "elements of b from one row to the next");
  size("d_stride_m", c.n, kMhcMaxStride, Expression(c.n), "elements of d from one row to the next");
  size("d_stride_split", 1, kMhcMaxStride, expression("max(m, 1) * {}", c.n),
       "elements of d from one part to the next");
  size("sum_squares_stride_split", 1, kMhcMaxStride, Expression::parse("max(m, 1)"),
       "elements of sum_squares from one part to the next");
  const auto multiple = [&](const char* name, int of, const std::string& why) {
    launch.domain.push_back({.lhs = Expression::parse(name),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(of),
                             .message = fmt::format("{} must be a multiple of {} ({})", name, of, why)});
  };
  multiple("k", mhc_product::kChunk, "what a warp loads of a row at a time: pad a and b with zeros");
  multiple("a_stride_m", 8, "16 bytes");
  multiple("b_stride_n", 4, "16 bytes");
  const auto buffer = [&](const char* name, BufferRole role, std::string_view dtype, std::vector<Expression> shape,
                          std::vector<Expression> strides, int alignment) {
    launch.buffers.push_back({.name = name,
                              .role = role,
                              .dtype = std::string(dtype),
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .alignment = alignment,
                              .is_optional = false});
  };
  const auto e = [](const char* text) { return Expression::parse(text); };
  buffer("a", BufferRole::input, "bf16", {e("m"), e("k")}, {e("a_stride_m"), Expression(1)}, 16);
  buffer("b", BufferRole::input, "f32", {Expression(c.n), e("k")}, {e("b_stride_n"), Expression(1)}, 16);
  std::vector<Expression> d{e("m"), Expression(c.n)}, d_strides{e("d_stride_m"), Expression(1)};
  std::vector<Expression> squares{e("m")}, squares_strides{Expression(1)};
  if (c.splits > 1) {
    d.insert(d.begin(), Expression(c.splits));
    d_strides.insert(d_strides.begin(), e("d_stride_split"));
    squares.insert(squares.begin(), Expression(c.splits));
    squares_strides.insert(squares_strides.begin(), e("sum_squares_stride_split"));
  }
  buffer("d", BufferRole::output, "f32", std::move(d), std::move(d_strides), 4);
  buffer("sum_squares", BufferRole::output, "f32", std::move(squares), std::move(squares_strides), 4);

  const auto map = [&](const char* name, TensorMapType type, TensorMapSwizzle swizzle, std::vector<Expression> dims,
                       std::vector<Expression> strides, std::vector<std::uint32_t> box) {
    TensorMapRecipe recipe;
    recipe.name = recipe.buffer = name;
    recipe.type = type;
    recipe.swizzle = swizzle;
    recipe.l2_promotion = TensorMapL2Promotion::l2_128b;  // 8,192 x 28,672 on an H200: 116.9 us, with 256 bytes 118.7
    recipe.element_strides.assign(dims.size(), 1);
    recipe.dims = std::move(dims);
    recipe.strides_bytes = std::move(strides);
    recipe.box = std::move(box);
    launch.tensor_maps.push_back(std::move(recipe));
  };
  map("a", TensorMapType::bf16, TensorMapSwizzle::b128, {e("k"), e("max(m, 1)")}, {e("a_stride_m * 2")},
      {mhc_product::kChunk, static_cast<std::uint32_t>(mhc_product::rows_of_cta(c))});
  map("b", TensorMapType::f32, TensorMapSwizzle::b128,
      {Expression(mhc_product::kPanel), Expression(c.n), expression("ceil_div(k, {})", mhc_product::kPanel)},
      {e("b_stride_n * 4"), Expression(4 * mhc_product::kPanel)},
      {mhc_product::kPanel, static_cast<std::uint32_t>(c.n), mhc_product::kPanels});

  LaunchStep step;
  step.entry = kernel;
  const auto pointer = [&](const char* name) {
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::pointer, .value = {}, .source = name, .offset_bytes = {}});
  };
  const auto value = [&](const char* name, ParameterKind kind) {
    step.parameters.push_back(
        {.name = name, .kind = kind, .value = Expression::parse(name), .source = {}, .offset_bytes = {}});
  };
  for (const char* const name : {"a", "b"})
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::tensor_map, .value = {}, .source = name, .offset_bytes = {}});
  pointer("d");
  value("d_stride_m", ParameterKind::i64);
  value("d_stride_split", ParameterKind::i64);
  pointer("sum_squares");
  value("sum_squares_stride_split", ParameterKind::i64);
  value("m", ParameterKind::i32);
  value("k", ParameterKind::i32);
  step.grid[0] = expression("ceil_div(m, {}) * {}", mhc_product::rows_of_cta(c), c.ctas);
  step.grid[1] = Expression(c.splits);
  step.cluster[0] = static_cast<std::uint32_t>(c.ctas);
  step.block[0] = static_cast<std::uint32_t>(mhc_product::threads(c));
  step.dynamic_smem_bytes = mhc_product::smem_bytes(c);
  step.programmatic_stream_serialization = true;
  launch.steps.push_back(std::move(step));
  return launch;
}

OperandPlan operand(const char* name, std::string_view dtype, const char* use) {
  OperandPlan operand;
  operand.name = name;
  operand.dtype = dtype;
  operand.use = use;
  return operand;
}

}  // namespace

void MhcProductOperator::require_facts(const MhcProduct&) {}

std::vector<mhc_product::Config> MhcProductOperator::candidates(const MhcProduct& problem) {
  const bool is_small = problem.arch.compute_major() == 12;
  std::vector<mhc_product::Config> list;
  for (const Division& division : kDivisions)
    for (const int ctas : kClusters)
      for (const int bytes : {is_small ? kMaxSmemBytesOfSm120 : kMaxSmemBytesOfTwo, kMaxSmemBytes}) {
        if (is_small && bytes == kMaxSmemBytes) continue;
        mhc_product::Config c{.n = problem.n,
                              .splits = problem.splits,
                              .warps_m = problem.warps_m.value_or(division.warps_m),
                              .warps_k = problem.warps_k.value_or(division.warps_k),
                              .ctas = problem.ctas.value_or(ctas),
                              .stages = 0};
        const bool is_sound = c.n >= 1 && c.n <= mhc_product::kMaxN && c.warps_m >= 1 && c.warps_k >= 1 &&
                              c.warps_m <= mhc_product::kMaxWarps && c.warps_k <= mhc_product::kMaxWarps &&
                              c.ctas >= 1 && c.ctas <= mhc_product::kMaxCtas;
        if (is_sound) c.stages = mhc_product::stages_within(c, bytes);
        list.push_back(c);
      }
  return list;
}

// Distance from the rows a CTA, the CTAs a cluster and the ring that are best.
double MhcProductOperator::score(const Config& config, const MhcProduct& problem) {
  const std::int64_t rows = problem.m >= 0 ? std::max<std::int64_t>(problem.m, 1) : kManyRows;
  const std::int64_t chunks = (problem.k >= 0 ? problem.k : kManyColumns) / mhc_product::kChunk / problem.splits;
  const auto ctas_of = [&](std::int64_t of_cta) { return (rows + of_cta - 1) / of_cta * problem.splits; };
  const bool is_few = rows <= kFewRows;
  std::int64_t best_rows = mhc_product::kRowsOfWarp * (is_few ? 1 : 2);
  const bool is_more = !is_few && ctas_of(best_rows) > kMultiprocessors && problem.n <= kWidestOfMany;
  if (is_more && ctas_of(2 * best_rows) <= 2 * kMultiprocessors && chunks >= kManyChunks) best_rows *= 2;
  const std::int64_t tiles = ctas_of(mhc_product::rows_of_cta(config));
  int best_ctas = 1;
  for (const int ctas : kClusters)
    if (tiles * ctas <= (is_few && ctas <= 2 ? 2 : 1) * kMultiprocessors) best_ctas = ctas;
  const std::int64_t ctas = tiles * config.ctas;
  const bool is_alone = mhc_product::smem_bytes(config) > kMaxSmemBytesOfTwo;
  const bool has_chunks = chunks / config.ctas >= kManyChunks;
  const bool is_best_alone =
      ctas <= kMultiprocessors / 2 || (has_chunks && (ctas <= kMultiprocessors || config.warps_m > 2));
  const auto distance = [](double x, double y) { return std::abs(std::log2(x / y)); };
  return std::exp2(-distance(mhc_product::rows_of_cta(config), static_cast<double>(best_rows)) -
                   0.5 * distance(config.ctas, best_ctas) - (is_alone == is_best_alone ? 0 : 0.1));
}

std::string MhcProductOperator::merit(const Config& config, const MhcProduct&) {
  return fmt::format("{} rows a CTA, k in {} parts", mhc_product::rows_of_cta(config), config.warps_k * config.ctas);
}

std::string MhcProductOperator::label(const Config& config) {
  return fmt::format("{} by {} warps, {} of a cluster, {}", config.warps_m, config.warps_k, counted(config.ctas, "CTA"),
                     counted(config.stages, "stage"));
}

std::string MhcProductOperator::subject(const Config& config) {
  return fmt::format("mhc_product n {}, {}", config.n, label(config));
}

std::string MhcProductOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case mhc_product::Rule::ok:
      break;
    case mhc_product::Rule::n_out_of_range:
      return fmt::format("n of {}: 8 to {}", found, bound);
    case mhc_product::Rule::n_not_tiles:
      return fmt::format("n of {}, a multiple of {} needed: pad b with rows of zeros", found, bound);
    case mhc_product::Rule::splits_out_of_range:
      return fmt::format("{} splits: 1 to {}", found, bound);
    case mhc_product::Rule::warps_out_of_range:
      return fmt::format("{} warps in a CTA: 1 to {}", found, bound);
    case mhc_product::Rule::ctas_out_of_range:
      return fmt::format("{} CTAs of a cluster: a power of two up to {} needed", found, bound);
    case mhc_product::Rule::stages_missing:
      return fmt::format("shared memory has room for {} stages, and {} warps take them in turn: take fewer warps",
                         found, bound);
    case mhc_product::Rule::stages_not_turns:
      return fmt::format("{} stages: a multiple of the {} warps along k, which take them in turn", found, bound);
    case mhc_product::Rule::stages_out_of_range:
      return fmt::format("{} stages: at most {}", found, bound);
    case mhc_product::Rule::smem_exceeded:
      return fmt::format("{} bytes of shared memory, {} available: take fewer warps", found, bound);
  }
  return fmt::format("{}?", config.n);
}

std::string MhcProductOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_mhc_product_{}_n{}_s{}_w{}x{}_c{}_q{}", arch_name(arch.to_string()), config.n,
                     config.splits, config.warps_m, config.warps_k, config.ctas, config.stages);
}

void MhcProductOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {operand("a", "bf16", "TMA load, ldmatrix"),
                   operand("b", "f32", "TMA load, read as two bf16 numbers"), operand("d", "f32", "written"),
                   operand("sum_squares", "f32", "written")};
  plan.smem_bytes = mhc_product::smem_bytes(config);
  const mhc_product::SmemLayout layout = mhc_product::smem_layout(config);
  const int stages = config.stages;
  plan.smem = {{"a, then sums of warps", layout.a, stages * mhc_product::a_slot_bytes(config), stages, {}},
               {"b", layout.b, stages * mhc_product::b_slot_bytes(config), stages, {}}};
  if (config.ctas > 1)
    plan.smem.push_back({"sums of the cluster", layout.gathered, mhc_product::gathered_bytes(config), 1, {}});
  plan.smem.push_back({"barriers", layout.barriers, mhc_product::smem_bytes(config) - layout.barriers, 1, {}});
  const int products = mhc_product::product_warps(config);
  plan.roles = {{.name = "product", .first_warp = 0, .warps = products, .registers = 0},
                {.name = "load", .first_warp = products, .warps = 1, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string MhcProductOperator::launch_bounds() {
  return "tessera::mhc_product::threads(kConfig), tessera::mhc_product::min_ctas(kConfig)";
}

std::string MhcProductOperator::call(const Config&) {
  return "tessera::mhc_product::kernel<kConfig>(\n      {a, b, static_cast<float*>(d), d_stride_m, d_stride_split, "
         "static_cast<float*>(sum_squares),\n"
         "       sum_squares_stride_split, m, k})";
}

std::vector<SourceFile> MhcProductOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> mhc_product_fields() {
  static const std::vector<Selector> table = {
      field<&MhcProduct::arch>("arch", "arch", kArchHelp),
      field<&MhcProduct::n>("n", "n", "rows of b: a multiple of 8"),
      field<&MhcProduct::splits>("splits", "splits", "parts of k that stay apart in d and sum_squares"),
      field<&MhcProduct::warps_m>("warps-m", "warps_m", "warps of a CTA that have other rows"),
      field<&MhcProduct::warps_k>("warps-k", "warps_k", "warps of a CTA that have other parts of k"),
      field<&MhcProduct::ctas>("ctas", "ctas", "CTAs of a cluster, which have other parts of k"),
      field<&MhcProduct::m>("m", "m", "expected number of rows"),
      field<&MhcProduct::k>("k", "k", "expected length of a row"),
  };
  return table;
}

namespace {

constexpr FamilyRow kMhcFamilies[] = {family_row<MhcProductOperator>("mma", kAllTargets)};
constexpr OperatorType kMhcType = make_operator_type<MhcProduct>(mhc_product_fields, kMhcFamilies);

}  // namespace

template <>
const OperatorType& operator_type<MhcProduct>() noexcept {
  return kMhcType;
}

}  // namespace tessera

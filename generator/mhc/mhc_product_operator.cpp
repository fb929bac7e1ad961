// Candidates are divisions of a CTA's warps among rows and parts of k. a is read once, whatever they are; b is read by
// every CTA of other rows, so many rows take CTAs of many; few rows take parts of k, which put more loads on their way
// (28,672 columns on an H100, us with 4 by 1 warps, 2 by 4, 1 by 7: 4,096 rows 104, 145, 175; 137 rows 59, 26, 19).
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
constexpr Division kDivisions[] = {{4, 1}, {8, 1}, {2, 2}, {4, 2}, {1, 4}, {2, 4}, {1, 7}};
constexpr int kMultiprocessors = 132, kWarpsOfMultiprocessor = 8;
constexpr double kManyRows = 4096;

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
  pointer("a");
  value("a_stride_m", ParameterKind::i64);
  pointer("b");
  value("b_stride_n", ParameterKind::i64);
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
  std::vector<mhc_product::Config> list;
  for (const Division& division : kDivisions)
    list.push_back({.n = problem.n,
                    .splits = problem.splits,
                    .warps_m = problem.warps_m.value_or(division.warps_m),
                    .warps_k = problem.warps_k.value_or(division.warps_k),
                    .ctas = problem.ctas.value_or(mhc_product::kMaxCtas)});
  return list;
}

// Rows a CTA as long as they fill the device; else more parts of k.
double MhcProductOperator::score(const Config& config, const MhcProduct& problem) {
  const double rows = problem.m >= 0 ? static_cast<double>(problem.m) : kManyRows;
  const double tiles = std::ceil(std::max(rows, 1.0) / mhc_product::rows_of_cta(config));
  const double warps = config.warps_m * config.warps_k;
  const double filled = tiles * config.ctas * config.splits * warps / (kWarpsOfMultiprocessor * kMultiprocessors);
  const double covered = std::max(rows, 1.0) / (tiles * mhc_product::rows_of_cta(config));
  // b beside a, through the L2.
  const double extra = 2.0 * config.n / mhc_product::rows_of_cta(config);
  const double few = filled * covered < 0.5 ? 0.15 * config.warps_k : 0;
  return std::min(filled * covered, 1.0) + few - 0.2 * extra - (warps > 4 ? 0.1 : 0);
}

std::string MhcProductOperator::merit(const Config& config, const MhcProduct&) {
  return fmt::format("{} rows a CTA, k in {} parts", mhc_product::rows_of_cta(config), config.warps_k * config.ctas);
}

std::string MhcProductOperator::label(const Config& config) {
  return fmt::format("{} by {} warps, {} of a cluster", config.warps_m, config.warps_k, counted(config.ctas, "CTA"));
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
    case mhc_product::Rule::smem_exceeded:
      return fmt::format("{} bytes of shared memory, {} available: take fewer warps", found, bound);
  }
  return fmt::format("{}?", config.n);
}

std::string MhcProductOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_mhc_product_{}_n{}_s{}_w{}x{}_c{}", arch_name(arch.to_string()), config.n, config.splits,
                     config.warps_m, config.warps_k, config.ctas);
}

void MhcProductOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {operand("a", "bf16", "read, 16 bytes a lane"), operand("b", "f32", "read as two bf16 numbers"),
                   operand("d", "f32", "written"), operand("sum_squares", "f32", "written")};
  plan.smem_bytes = mhc_product::smem_bytes(config);
  plan.smem = {{"b, then sums of warps", 0, mhc_product::ring_bytes(config), 1, {}}};
  if (config.ctas > 1)
    plan.smem.push_back(
        {"sums of the cluster", mhc_product::ring_bytes(config), mhc_product::gathered_bytes(config), 1, {}});
  plan.roles = {{.name = "product", .first_warp = 0, .warps = config.warps_m * config.warps_k, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string MhcProductOperator::launch_bounds() {
  return "tessera::mhc_product::threads(kConfig), tessera::mhc_product::min_ctas(kConfig)";
}

std::string MhcProductOperator::call(const Config&) {
  return "tessera::mhc_product::kernel<kConfig>(\n      {a, a_stride_m, static_cast<const float*>(b), b_stride_n,\n"
         "       static_cast<float*>(d), d_stride_m, d_stride_split, static_cast<float*>(sum_squares),\n"
         "       sum_squares_stride_split, m, k})";
}

std::vector<SourceFile> MhcProductOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> mhc_product_fields() {
  static const std::vector<Selector> table = {
      field<&MhcProduct::arch>("arch", "arch", "target: sm_90a, or sm_100, sm_103, sm_120, sm_121 with a or f"),
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

// Candidates are rows of a warp by warps of a row. What decides is how many warps read at the same time, what is lost
// at the ends of short rows, and how many rows share the work that a CTA has with the vector. The machine is not asked:
// kWantedWarps is what the largest ones take. The constants order what was measured (bench/results/block-scale.md).
#include "generator/products/gemv_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/products/gemv_cost.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr int kWarpRows[] = {4, 2, 1};
constexpr int kKWarps[] = {1, 2, 4, 8};
constexpr int kBytesPanel = 16384, kPanel = 8192;

constexpr double kWantedWarps = 2200;  // below, too few loads are in flight
constexpr double kVectorCost = 2;      // in rows: what a CTA spends on the vector
constexpr double kSplitCost = 0.1;     // of the work, for each doubling of the warps that share a row
constexpr double kFourRows = 0.9;      // on Blackwell: four rows of a warp beside two
constexpr Hint kExampleM = 4096, kExampleK = 4096;

double work_share(const gemv::Config& c, const Gemv& problem) {
  const Hint m = problem.m > 0 ? problem.m : kExampleM;
  const Hint k = problem.k > 0 ? problem.k : kExampleK;
  const Hint l = problem.l > 0 ? problem.l : 1;
  const double fill = static_cast<double>(ceil_div(m, c.warp_rows)) * static_cast<double>(l) * c.k_warps / kWantedWarps;
  const auto steps = static_cast<double>(ceil_div(k, gemv::step_elements(c)));
  const auto rounds = static_cast<double>(ceil_div(ceil_div(k, gemv::step_elements(c)), c.k_warps));
  double share = std::min({1.0, std::sqrt(fill), 1.4 * fill}) * steps / (rounds * c.k_warps);
  for (int split = c.k_warps; split > 1; split /= 2) share /= 1 + kSplitCost;
  // Predicted 16 % slower than two rows on a B200, and on an H200 4 to 7 % (8,192 x 2,048).
  if (problem.arch.compute_major() >= 10 && c.scale_form == ScaleForm::plain && c.warp_rows == 4) share *= kFourRows;
  return share / (1 + kVectorCost / gemv::rows_of_cta(c));
}

/// "nvfp4"; where b's is another, both.
std::string formats_text(const gemv::Config& c, std::string_view between) {
  if (c.b_format == c.format) return std::string(to_word(c.format));
  return fmt::format("{}{}{}", to_word(c.format), between, to_word(c.b_format));
}

LaunchPlan launch_of(const gemv::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "gemv";
  launch.arch = arch;
  add_batch_size(launch);
  add_size(launch, "m", 0, kMaxExtent, "rows of a: elements of c");
  add_size(launch, "k", 0, kMaxExtent, "columns of a: elements of b");
  launch.sizes.push_back({.name = "b_rows",
                          .min = 1,
                          .max = kMaxExtent,
                          .default_value = Expression(1),
                          .help = "rows of b as it is stored, of which row 0 counts: 128 for a padded matrix"});
  launch.scalars.push_back({.name = "alpha", .default_value = 1, .help = "factor of the product"});
  launch.buffers = {values_buffer("a", BufferRole::input, c.format, "m"),
                    scales_buffer("sfa", BufferRole::input, c.format, c.scale_form, "m"),
                    values_buffer("b", BufferRole::input, c.b_format, "b_rows"),
                    scales_buffer("sfb", BufferRole::input, c.b_format, c.scale_form, "b_rows"),
                    {.name = "c",
                     .role = BufferRole::output,
                     .dtype = std::string(to_word(c.dtype)),
                     .shape = {Expression::parse("l"), Expression::parse("m")},
                     .strides = {Expression::parse("m"), Expression(1)},
                     .alignment = dtype_bytes(c.dtype)},
                    global_scale_buffer("a_global_scale", BufferRole::input, true),
                    global_scale_buffer("b_global_scale", BufferRole::input, true)};
  launch.domain.push_back(
      {.lhs = Expression::parse("k"),
       .relation = Relation::multiple_of,
       .rhs = Expression(gemv::kKMultiple),
       .message = fmt::format(
           "k must be a multiple of {}: {}; pad the rows of a and b with zeros (pad_on_host)", gemv::kKMultiple,
           c.format == BlockFormat::nvfp4 ? std::string("a row of packed e2m1 is then whole 16-byte pieces")
                                          : fmt::format("so many elements of {} share a scale", to_word(c.format)))});
  LaunchStep step;
  step.entry = kernel;
  for (const char* const name : {"a", "sfa", "b", "sfb", "c", "a_global_scale", "b_global_scale"})
    step.parameters.push_back(pointer_parameter(name, name));
  step.parameters.push_back(size_parameter("m", ParameterKind::i32, Expression::parse("m")));
  step.parameters.push_back(size_parameter("k", ParameterKind::i32, Expression::parse("k")));
  step.parameters.push_back(
      size_parameter("b_stride", ParameterKind::i64,
                     Expression::parse(value_bits(c.b_format) == 4 ? "b_rows * ceil_div(k, 2)" : "b_rows * k")));
  const bool is_plain = c.scale_form == ScaleForm::plain;
  step.parameters.push_back(size_parameter("sfb_stride", ParameterKind::i64,
                                           is_plain ? expression("b_rows * ceil_div(k, {})", gemv::block(c))
                                                    : expression("ceil_div(b_rows, {}) * ceil_div(k, {}) * {}",
                                                                 kTileRows, gemv::block(c) * kTileBlocks, kTileBytes)));
  step.parameters.push_back(
      {.name = "alpha", .kind = ParameterKind::f32, .value = {}, .source = "alpha", .offset_bytes = {}});
  step.grid[0] = is_plain ? expression("ceil_div(m, {})", gemv::rows_of_cta(c))
                          : expression("ceil_div(m, {}) * {}", kTileRows, kTileRows / gemv::rows_of_cta(c));
  step.grid[1] = Expression::parse("l");
  step.block[0] = gemv::kNumThreads;
  step.dynamic_smem_bytes = gemv::smem_bytes(c);
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void GemvOperator::require_facts(const Gemv& problem) {
  if (problem.dtype != DType::f32 && problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemv has no kernel for dtype {}: there are kernels for f32, f16 and bf16",
                            to_word(problem.dtype)));
  const BlockFormat b = problem.b_format.value_or(problem.format);
  for (const BlockFormat format : {problem.format, b})
    if (is_mxfp6(format))
      throw Error(ErrorKind::unsupported,
                  fmt::format("gemv has no kernel for {}: take gemm with n = 1, which multiplies it on sm_100, sm_103, "
                              "sm_120 and sm_121",
                              to_word(format)));
  if (scale_type(b) != scale_type(problem.format))
    throw Error(
        ErrorKind::unsupported,
        fmt::format("gemv has no kernel for a of {} (scales {}) and b of {} (scales {}): blocks of both must be "
                    "the same elements of k; mxfp4 and mxfp8 go together, nvfp4 with itself",
                    to_word(problem.format), scales_text(problem.format), to_word(b), scales_text(b)));
}

std::vector<gemv::Config> GemvOperator::candidates(const Gemv& problem) {
  std::vector<Config> list;
  const Conversion conversion = conversion_of(problem.arch);
  for (const int warp_rows : kWarpRows)
    for (const int k_warps : kKWarps) {
      Config config{.dtype = problem.dtype,
                    .format = problem.format,
                    .b_format = problem.b_format.value_or(problem.format),
                    .scale_form = problem.scale_form,
                    .conversion = conversion,
                    .warp_rows = problem.warp_rows.value_or(warp_rows),
                    .k_warps = problem.k_warps.value_or(k_warps),
                    .k_panel = kPanel};
      if (products(config) == gemv::Products::bytes) config.k_panel = kBytesPanel;
      list.push_back(config);
    }
  return list;
}

double GemvOperator::score(const Config& config, const Gemv& problem) { return work_share(config, problem); }

std::string GemvOperator::merit(const Config& config, const Gemv& problem) {
  return fmt::format("{} of a row's work on {} of a full machine", counted(config.k_warps, "warp"),
                     fmt::format("{:.0f} %", 100 * work_share(config, problem)));
}

std::vector<CostSheet> GemvOperator::costs(const Config& config, const Gemv& problem) {
  std::vector<CostSheet> sheets;
  if (problem.arch.compute_major() != 12) return sheets;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const gemv::GemvCost cost = gemv::gemv_cost(config, problem, device);
    sheets.push_back(cost_sheet(device, cost.us, cost.work));
  }
  return sheets;
}

std::string GemvOperator::label(const Config& config) {
  return fmt::format("{} a warp, {} a row", counted(config.warp_rows, "row"), counted(config.k_warps, "warp"));
}

std::string GemvOperator::subject(const Config& config) {
  return fmt::format("gemv {}, {} scales, to {}, {}", formats_text(config, " by "), to_word(config.scale_form),
                     to_word(config.dtype), label(config));
}

std::string GemvOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case gemv::Rule::ok:
      break;
    case gemv::Rule::dtype_not_floating:
      return fmt::format("{} elements of {} bytes: f32, f16 or bf16 needed", to_word(config.dtype), found);
    case gemv::Rule::blocks_differ:
      return fmt::format("b has a scale for {} elements, a for {}: the same needed", found, bound);
    case gemv::Rule::warp_rows_not_supported:
      return fmt::format("{} rows of a warp: 1, 2 or {} allowed", found, bound);
    case gemv::Rule::tile_form_needs_4_rows:
      return fmt::format("{} rows of a warp, {} needed: with scales in tiles a warp has four rows that lie 32 apart",
                         found, bound);
    case gemv::Rule::k_warps_not_dividing:
      return fmt::format("{} warps of a row: 1, 2, 4 or {} allowed", found, bound);
    case gemv::Rule::k_panel_not_whole_steps:
      return fmt::format("a panel of {} elements, a multiple of {} needed", found, bound);
    case gemv::Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed", found, bound);
  }
  return "?";
}

std::string GemvOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_gemv_{}_{}_{}_{}_r{}_w{}", arch_name(arch.to_string()), formats_text(config, "_"),
                     scale_form_name(config.scale_form), to_word(config.dtype), config.warp_rows, config.k_warps);
}

void GemvOperator::describe(const Config& config, Plan& plan) {
  const gemv::Products products = gemv::products(config);
  plan.mma_kind = products == gemv::Products::bytes    ? "dp4a"
                  : products == gemv::Products::halves ? "fma.f16x2"
                                                       : "fma.f32";
  plan.operands = {scaled_operand("a", config.format, config.scale_form, "matrix, streamed"),
                   scale_operand("sfa", config.format, fmt::format("of a, {}", to_word(config.scale_form))),
                   scaled_operand("b", config.b_format, config.scale_form, "vector: row 0, through shared memory"),
                   scale_operand("sfb", config.b_format, fmt::format("of b, {}", to_word(config.scale_form))),
                   plain_operand("c", to_word(config.dtype), "written"),
                   plain_operand("a_global_scale", "f32", "factor, read if not null"),
                   plain_operand("b_global_scale", "f32", "factor, read if not null")};
  const std::vector<MemoryPhase> of_panel = {{"panel of b, being converted", "multiply", "barrier of the CTA"},
                                             {"panel of b", "multiply", "barrier of the CTA"}};
  plan.smem = {{"b values", 0, gemv::value_bytes_of_panel(config), 1, of_panel},
               {"b scales", gemv::value_bytes_of_panel(config), gemv::scale_bytes_of_panel(config), 1, of_panel},
               {"sums",
                gemv::value_bytes_of_panel(config) + gemv::scale_bytes_of_panel(config),
                gemv::sum_bytes(config),
                1,
                {{"sums of each warp, being written", "multiply", "barrier of the CTA"},
                 {"sums of each warp", "multiply", "end"}}}};
  plan.smem_bytes = gemv::smem_bytes(config);
  plan.max_registers = registers_of_bounds(gemv::kNumThreads, gemv::min_ctas(config));
  plan.roles = {{.name = "multiply", .first_warp = 0, .warps = gemv::kWarps, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string GemvOperator::launch_bounds() { return "tessera::gemv::kNumThreads, tessera::gemv::min_ctas(kConfig)"; }

std::string GemvOperator::call(const Config&) {
  return "tessera::gemv::kernel<kConfig>(\n      {a, sfa, b, sfb, c, a_global_scale, b_global_scale, m, k, b_stride, "
         "sfb_stride, alpha})";
}

std::vector<SourceFile> GemvOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera

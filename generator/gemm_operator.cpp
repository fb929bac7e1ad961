// Candidates are the tiles that keep two warpgroups' accumulators in registers, and narrower ones for few rows, with
// and without a cluster that shares operands, and with the K of a tile split over a cluster where there are few tiles.
// Pins replace the table's values. The score is a model of the time; see gemm_cost.h.
#include "generator/gemm_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "generator/candidates.h"
#include "generator/gemm_cost.h"
#include "generator/operator_words.h"
#include "generator/wgmma_header.h"
#include "generator/words.h"

namespace tessera {

namespace {

using gemm::Config;
using gemm::Rule;

constexpr int kRasterRows = 2048;     // a group of tiles along m: 132 tiles that run at once form about a square
constexpr int kFewRows[] = {32, 16};  // boxes of A where at most so many rows are expected
constexpr int kColumns[] = {256, 224, 192, 160, 128, 112, 96, 64};

Config facts_of(const Gemm& p) {
  Config c;
  c.a_dtype = p.dtype;
  c.b_dtype = p.b_dtype.value_or(p.dtype);
  c.d_dtype = p.d_dtype;
  c.a_layout = p.a_layout;
  c.b_layout = p.b_layout;
  c.accumulation = p.accumulation.value_or(gemm::is_8_bit(p.dtype) ? Accumulation::promoted : Accumulation::fast);
  c.c = p.c;
  c.bias = p.bias;
  c.activation = p.activation;
  return c;
}

struct Shape {
  int tile_m, tile_n, cluster_m, cluster_n, split_k;
  KernelSchedule kernel_schedule;
};

void add(const Gemm& p, const Shape& shape, std::vector<Config>& list) {
  Config c = facts_of(p);
  c.tile_m = p.tile_m.value_or(shape.tile_m);
  c.tile_n = p.tile_n.value_or(shape.tile_n);
  c.cluster_m = p.cluster_m.value_or(shape.cluster_m);
  c.cluster_n = p.cluster_n.value_or(shape.cluster_n);
  c.split_k = p.split_k.value_or(shape.split_k);
  c.kernel_schedule = p.kernel_schedule.value_or(shape.kernel_schedule);
  const std::int64_t rows = std::int64_t{c.tile_m} * c.cluster_m;  // pins may be any number
  c.raster = p.raster.value_or(rows > 0 ? static_cast<int>(std::max<std::int64_t>(1, kRasterRows / rows)) : 1);
  // MN-major boxes are a swizzle span wide whatever the rows.
  if (c.a_layout == Layout::k_major && p.m >= 0)
    for (const int few : kFewRows) c.box_m = p.m <= few ? few : c.box_m;
  // Only a Config whose extents are sane is completed: completing evaluates products of them.
  const bool is_sane =
      c.tile_m >= 0 && c.tile_n >= 0 && c.tile_m <= 1024 && c.tile_n <= 1024 && c.split_k >= 1 && c.split_k <= 16;
  c.stages = p.stages.value_or(is_sane ? gemm::most_stages(c) : 4);
  list.push_back(c);
}

std::string cluster_text(const Config& c) {
  std::string text = fmt::format("cluster {}x{}", c.cluster_m, c.cluster_n);
  if (c.split_k != 1) text += fmt::format(", k in {} parts", c.split_k);
  return text;
}

std::string types_text(const Config& c) {
  const std::string a(to_word(c.a_dtype));
  return c.b_dtype == c.a_dtype ? a : fmt::format("{} x {}", a, to_word(c.b_dtype));
}

}  // namespace

void GemmOperator::require_facts(const Gemm& problem) {
  if (problem.format || problem.b_format)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: {} has kernels for sm_100 and sm_103 with suffix a or f (tcgen05), none for {}",
                            to_word(problem.format ? *problem.format : *problem.b_format), problem.arch.to_string()));
  if (problem.d_format || problem.gate != Gate::none || problem.interleave || problem.grouping != Grouping::none)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: {} has kernels for sm_100 and sm_103 with suffix a or f (tcgen05), none for {}",
                            problem.d_format                     ? "a block-scaled d"
                            : problem.grouping != Grouping::none ? "a product of groups"
                                                                 : "a gate",
                            problem.arch.to_string()));
  for (const DType dtype : {problem.dtype, problem.b_dtype.value_or(problem.dtype)})
    if (dtype == DType::s8 || dtype == DType::u8)
      throw Error(ErrorKind::unsupported,
                  fmt::format("gemm: {} has kernels for sm_100a (tcgen05 kind::i8), none for {}", to_word(dtype),
                              problem.arch.to_string()));
  if (problem.accumulators)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: accumulators = {} is for Tensor Memory, which {} does not have",
                            *problem.accumulators, problem.arch.to_string()));
  const Config c = facts_of(problem);
  const Verdict verdict = gemm::why_invalid_types(c);
  if (verdict.ok()) return;
  throw Error(ErrorKind::unsupported, fmt::format("gemm {}: {}", types_text(c), explain(c, verdict)));
}

std::vector<Config> GemmOperator::candidates(const Gemm& problem) {
  std::vector<Config> list;
  constexpr KernelSchedule kCooperative = KernelSchedule::cooperative, kPingPong = KernelSchedule::ping_pong;
  for (const int tile_n : kColumns) {
    add(problem, {128, tile_n, 1, 1, 1, kCooperative}, list);
    if (tile_n >= 112) add(problem, {128, tile_n, 2, 1, 1, kCooperative}, list);
    for (const int split_k : {1, 2, 4}) {
      add(problem, {64, tile_n, 1, 1, split_k, kCooperative}, list);
      if (split_k > 1) add(problem, {128, tile_n, 1, 1, split_k, kCooperative}, list);
    }
  }
  // Among equals: clusters only where they were measured to pay.
  add(problem, {256, 128, 1, 2, 1, kCooperative}, list);
  add(problem, {256, 128, 2, 1, 1, kCooperative}, list);
  add(problem, {256, 128, 1, 1, 1, kCooperative}, list);
  for (const int cluster_m : {2, 1}) add(problem, {128, 128, cluster_m, 1, 1, kPingPong}, list);
  return list;
}

double GemmOperator::score(const Config& config, const Gemm& problem) {
  return 1e6 / gemm_cost(config, problem).cycles;
}

std::string GemmOperator::merit(const Config& config, const Gemm& problem) {
  const GemmCost cost = gemm_cost(config, problem);
  return fmt::format("modelled at {:.1f} us in {}, {}", gemm_cost_us(cost), counted(cost.rounds, "round"),
                     cost.is_memory_bound ? std::string("bound by memory")
                                          : fmt::format("{:.0f} % of the tensor cores' rate", 100 * cost.tensor_share));
}

std::string GemmOperator::label(const Config& config) {
  return fmt::format("tile {}x{}{}, {}, {}", config.tile_m, config.tile_n,
                     config.kernel_schedule == KernelSchedule::ping_pong ? " ping-pong" : "",
                     counted(config.stages, "stage"), cluster_text(config));
}

std::string GemmOperator::subject(const Config& config) {
  return fmt::format("gemm {}, {}", types_text(config), label(config));
}

std::string GemmOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::operand_type:
      return fmt::format(
          "a is {}, b is {}: both must be bf16, both f16, or each e4m3 or e5m2 (types of one matrix instruction)",
          to_word(config.a_dtype), to_word(config.b_dtype));
    case Rule::output_type:
      return fmt::format("d is {}: must be f32, bf16, f16, e4m3 or e5m2", to_word(config.d_dtype));
    case Rule::layout_needs_16_bit:
      return fmt::format(
          "an operand of {}-byte elements whose k is not contiguous, {} bytes needed (wgmma): make k contiguous, or "
          "take a 16-bit type",
          found, bound);
    case Rule::promotion_needs_8_bit:
      return fmt::format("promoted sums of elements of {} bytes, {} allowed: 16-bit types sum in fp32", found, bound);
    case Rule::tile_m_not_multiple_of_64:
      return fmt::format("tile_m {}, a multiple of {} needed (wgmma M)", found, bound);
    case Rule::tile_m_out_of_range:
      return fmt::format("tile_m {}, at most {} allowed (rows of the consumer warpgroups)", found, bound);
    case Rule::tile_n_not_multiple_of_16:
      return fmt::format("tile_n {}, a multiple of {} needed (16 bytes of d)", found, bound);
    case Rule::tile_n_out_of_range:
      return fmt::format("tile_n {}, at most {} allowed (wgmma N)", found, bound);
    case Rule::tile_n_not_multiple_of_span:
      return fmt::format("tile_n {}, a multiple of {} needed where b's n is contiguous (swizzle span)", found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 2 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::cluster_too_large:
      return fmt::format("a cluster of {}, a power of two up to {} allowed", counted(verdict.found, "CTA"), bound);
    case Rule::split_k_out_of_range:
      return fmt::format("split_k {}, a power of two up to {} allowed (CTAs of a cluster)", found, bound);
    case Rule::split_k_and_ping_pong:
      return fmt::format("split_k {}, {} allowed with kernel_schedule ping_pong: take cooperative", found, bound);
    case Rule::raster_out_of_range:
      return fmt::format("raster {}, 1 to {} allowed", found, bound);
    case Rule::part_of_a_too_small:
      return fmt::format("{} rows of a for each CTA along n, a multiple of {} needed: take a smaller cluster_n", found,
                         bound);
    case Rule::part_of_b_too_small:
      return fmt::format("{} rows of b for each CTA along m, a multiple of {} needed: take a smaller cluster_m", found,
                         bound);
    case Rule::part_of_d_too_small:
      return fmt::format("{} columns of d for each CTA along k, a multiple of {} needed: take a smaller split_k", found,
                         bound);
    case Rule::accumulators_exceed_registers:
      return fmt::format("{} accumulator registers a thread, {} allowed: take a smaller tile", found, bound);
    case Rule::partial_sums_exceed_ring:
      return fmt::format("partial sums of {} bytes, {} of ring: take more stages", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 2 ? "drop a stage" : "take a smaller tile");
  }
  return "?";
}

std::string GemmOperator::kernel_name(Arch arch, const Config& c) {
  std::string name = fmt::format("tessera_gemm_{}_{}", arch_name(arch.to_string()), to_word(c.a_dtype));
  if (c.b_dtype != c.a_dtype) name += fmt::format("_{}", to_word(c.b_dtype));
  if (c.accumulation == Accumulation::promoted) name += "_promoted";
  if (c.d_dtype != c.a_dtype) name += fmt::format("_to_{}", to_word(c.d_dtype));
  name += fmt::format("_{}{}", c.a_layout == Layout::k_major ? 'k' : 'm', c.b_layout == Layout::k_major ? 'k' : 'n');
  name += fmt::format("_{}x{}{}_s{}_c{}x{}x{}", c.tile_m, c.tile_n,
                      c.kernel_schedule == KernelSchedule::ping_pong ? "pp" : "", c.stages, c.cluster_m, c.cluster_n,
                      c.split_k);
  if (const int rows = c.tile_m * c.cluster_m; c.raster != kRasterRows / rows) name += fmt::format("_r{}", c.raster);
  if (c.box_m != Config{}.box_m) name += fmt::format("_b{}", c.box_m);
  if (c.c == Addend::matrix) name += "_c";
  if (c.bias == Bias::column) name += "_bias";
  if (c.activation != Activation::none) name += fmt::format("_{}", to_word(c.activation));
  return name;
}

namespace {

/// Who owns which bytes when, as templates/gemm hands them on: producer.cuh, consumer.cuh, split.cuh, epilogue.cuh.
void describe_smem(const Config& config, Plan& plan) {
  const gemm::SmemLayout layout = gemm::smem_layout(config);
  const auto ring = [&](const gemm::SmemRegion& region, const char* name) {
    std::vector<MemoryPhase> phases = {{fmt::format("{} on its way", name), "load", "barrier full"},
                                       {fmt::format("{} of a step", name), "consumer", "barrier empty"}};
    // The sums lie over all slots, from those of A on.
    const int sum_bytes = config.tile_m * config.tile_n * 4;
    if (config.split_k > 1 && region.offset < sum_bytes) {
      phases.push_back({"sums of this CTA's part of K, being written", "consumer", "barrier of the cluster"});
      phases.push_back({"sums of this CTA's part of K, being read", "consumer of every CTA of the tile", "end"});
    }
    plan.smem.push_back({region.name, region.offset, region.bytes, config.stages, std::move(phases)});
  };
  ring(layout.a, "A");
  ring(layout.b, "B");
  plan.smem.push_back({layout.d.name,
                       layout.d.offset,
                       layout.d.bytes,
                       gemm::consumer_warpgroups(config) * gemm::kStagingSlots,
                       {{"panel of D, being written", "consumer", "barrier of the warpgroup"},
                        {"panel of D, being stored", "consumer", "the store before last has read it"}}});
  plan.smem.push_back({layout.barriers.name, layout.barriers.offset, layout.barriers.bytes});
  plan.smem_bytes = layout.total_bytes;
}

}  // namespace

void GemmOperator::describe(const Config& config, Plan& plan) {
  const auto operand = [&](const char* name, DType dtype, Swizzle swizzle, std::string use) {
    return OperandPlan{.name = name,
                       .dtype = std::string(to_word(dtype)),
                       .tensor_map_type = std::string(to_string(tensor_map_type(dtype))),
                       .swizzle = std::string(to_word(swizzle)),
                       .use = std::move(use)};
  };
  const auto major = [](Layout layout, const char* other) { return layout == Layout::k_major ? "K" : other; };
  plan.mma_kind = gemm::is_8_bit(config.a_dtype) ? "wgmma.f8" : "wgmma.f16";
  plan.operands = {operand("a", config.a_dtype, Swizzle::b128, fmt::format("A, {}-major", major(config.a_layout, "M"))),
                   operand("b", config.b_dtype, Swizzle::b128, fmt::format("B, {}-major", major(config.b_layout, "N"))),
                   operand("d", config.d_dtype, gemm::d_swizzle(config), "D, stored through shared memory")};
  const std::string addend_type(to_word(gemm::c_dtype(config)));
  const auto read = [&](const char* name, const std::string& type, const char* use) {
    plan.operands.push_back({.name = name, .dtype = type, .tensor_map_type = {}, .swizzle = {}, .use = use});
  };
  if (config.c == Addend::matrix) read("c", addend_type, "added, times beta");
  if (config.bias == Bias::column) read("bias", addend_type, "added to every row");
  if (gemm::is_8_bit(config.a_dtype)) {
    read("scale_a", "f32", "factor of alpha if not null");
    read("scale_b", "f32", "factor of alpha if not null");
  }
  describe_smem(config, plan);
  plan.entry_registers = gemm::register_budget(config).entry;
  for (int i = 0; i < gemm::kNumRoles; ++i) {
    const gemm::Role role = gemm::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = gemm_launch(config, plan.arch.to_string(), plan.kernel);
}

std::string GemmOperator::launch_bounds() { return "tessera::gemm::num_threads(kConfig), 1"; }

std::string GemmOperator::call(const Config& config) {
  const bool has_c = config.c == Addend::matrix;
  return fmt::format(
      "tessera::gemm::kernel<kConfig>(\n      {{a, b, d, d_pointer, {}, {}, {}, m, n, k, l, ldd, d_stride_l, {}, "
      "alpha, "
      "{}}})",
      has_c ? "c" : "nullptr", config.bias == Bias::column ? "bias" : "nullptr",
      gemm::is_8_bit(config.a_dtype) ? "scale_a, scale_b" : "nullptr, nullptr", has_c ? "ldc, c_stride_l" : "0, 0",
      has_c ? "beta" : "0.0f");
}

std::vector<SourceFile> GemmOperator::generated_headers(const Config& config) {
  const WgmmaShape shapes[] = {gemm::wgmma_shape(config)};
  return {{"wgmma_shapes.cuh", wgmma_header(shapes)}};
}

}  // namespace tessera

// Candidates are tiles of 128 rows, by one CTA, a pair or two pairs that share an operand, tiles of fewer rows with
// operands that change places, and the K of a tile split over a cluster where there are few tiles. Pins replace the
// table's values. The score is a model of the time; see gemm_tcgen05_cost.h.
#include "generator/products/gemm_tcgen05_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/products/gemm_launch.h"
#include "generator/products/gemm_tcgen05_cost.h"
#include "generator/products/product_words.h"
#include "generator/words.h"

namespace tessera::gemm_tcgen05 {

namespace {

constexpr int kRasterRows = 2048;  // a group of tiles along m: what runs at once forms about a square
constexpr int kColumns[] = {256, 192, 128, 224, 160, 96, 64, 32};
constexpr int kFewRows[] = {16, 32, 64, 96};

struct Shape {
  int tile_m, tile_n, cluster_m, cluster_n, split_k;
};

void add(const Gemm& p, const Shape& shape, std::vector<Config>& list) {
  Config c{.facts = product_facts(p)};
  c.tile_m = p.tile_m.value_or(shape.tile_m);
  c.tile_n = p.tile_n.value_or(shape.tile_n);
  c.cluster_m = p.cluster_m.value_or(shape.cluster_m);
  c.cluster_n = p.cluster_n.value_or(shape.cluster_n);
  c.split_k = p.split_k.value_or(shape.split_k);
  // Only a Config whose extents are sane is completed: completing evaluates products of them, and divides.
  const auto is_within = [](int value, int most) { return value >= 1 && value <= most; };
  const bool is_sane = is_within(c.tile_m, 1024) && is_within(c.tile_n, 1024) && is_within(c.cluster_m, 8) &&
                       is_within(c.cluster_n, 8) && is_within(c.split_k, 16);
  c.raster = p.raster.value_or(is_sane ? std::max(1, kRasterRows / (c.tile_m * c.cluster_m)) : 1);
  c.accumulators = p.accumulators.value_or(is_sane ? gemm_tcgen05::most_accumulators(c) : 1);
  c.stages = p.stages.value_or(is_sane && is_within(c.accumulators, 16) ? gemm_tcgen05::most_stages(c) : 4);
  list.push_back(c);
}

std::string types_text(const Config& c) {
  const std::string a(to_word(c.facts.a_type));
  std::string text = c.facts.b_type == c.facts.a_type ? a : fmt::format("{} x {}", a, to_word(c.facts.b_type));
  text += gate_and_groups_text(c.facts);
  if (gemm_tcgen05::is_quantized(c)) text += fmt::format(", to {}", to_word(c.facts.d_format));
  return text;
}

// "nvfp4 (e2m1 values, scales ue4m3, one for 16 along k)", "bf16"
std::string type_in_full(OperandType type) {
  if (!is_block_scaled(type)) return std::string(to_word(type));
  const BlockFormat format = block_format(type);
  return fmt::format("{} ({} values, scales {})", to_word(type), to_word(value_type(format)), scales_text(format));
}

std::string cluster_text(const Config& c) {
  if (gemm_tcgen05::pairs(c) == 2)
    return fmt::format(", two pairs that share {}", gemm_tcgen05::sharing_pairs(c, true) == 2 ? 'a' : 'b');
  if (gemm_tcgen05::pair_size(c) == 2) return fmt::format(", pair along {}", gemm_tcgen05::is_swapped(c) ? 'n' : 'm');
  return c.split_k == 1 ? "" : fmt::format(", k in {} parts", c.split_k);
}

}  // namespace

void GemmTcgen05Operator::require_facts(const Gemm& problem) {
  require_no_weights(problem);
  require_no_factors_of_d(problem, problem.arch.to_string());
  require_epilogue_facts(problem);
  const Config c{.facts = product_facts(problem)};
  if (const Verdict verdict = gemm_tcgen05::why_invalid_types(c); !verdict.ok())
    throw Error(ErrorKind::unsupported, fmt::format("gemm {}: {}", types_text(c), explain(c, verdict)));
  if (gemm_tcgen05::is_integer(c) && !(problem.arch.number == 100 && problem.arch.suffix == 'a'))
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm {}: integer products (tcgen05 kind::i8) have kernels for sm_100a, none for {}, whose "
                            "assembler refuses the kind; take e4m3 there",
                            types_text(c), problem.arch.to_string()));
  if (problem.scale_form == ScaleForm::plain && gemm_tcgen05::is_scaled(c))
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm {}: scales in the plain form, tiles needed (tcgen05 reads tiles of 128 rows by 4 "
                            "blocks): convert them with convert_scales, to = tile",
                            types_text(c)));
  require_no_facts_of_wgmma(problem);
  if (problem.interleave.value_or(1) != 1 && problem.gate != Gate::interleaved)
    throw Error(ErrorKind::unsupported, fmt::format("gemm: interleave = {} with gate = {}: it is for interleaved gates",
                                                    *problem.interleave, to_word(problem.gate)));
  if (problem.accumulation == Accumulation::promoted)
    throw Error(ErrorKind::unsupported,
                "gemm: accumulation = promoted is for 8-bit sums of sm_90a: tcgen05 sums in fp32 as it is");
  if (problem.kernel_schedule)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: kernel_schedule = {} is for sm_90a: with tcgen05 no warpgroup multiplies",
                            to_word(*problem.kernel_schedule)));
  if (problem.swap_ab)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: swap_ab = {} is for sm_90a: with tcgen05 tile_m below 128 has b's rows in the lanes",
                            to_word(*problem.swap_ab)));
}

std::vector<Config> GemmTcgen05Operator::candidates(const Gemm& problem) {
  std::vector<Config> list;
  // Of a pinned tile_m the shapes whose lanes lie as its lie: the others' refusals would name what nobody asked for.
  const bool has_many = !problem.tile_m || *problem.tile_m >= 128, has_few = !problem.tile_m || *problem.tile_m < 128;
  if (has_many) {
    for (const int tile_n : kColumns)
      for (const int cluster_m : {2, 1}) add(problem, {128, tile_n, cluster_m, 1, 1}, list);
    for (const int tile_n : {256, 192, 128}) {
      add(problem, {128, tile_n, 4, 1, 1}, list);
      add(problem, {128, tile_n, 2, 2, 1}, list);
    }
    for (const int tile_n : {128, 64, 32})
      for (const int split_k : {2, 4, 8}) add(problem, {128, tile_n, 1, 1, split_k}, list);
  }
  if (has_few) {
    for (const int tile_m : kFewRows) {
      for (const int cluster_n : {2, 1}) add(problem, {tile_m, 128, 1, cluster_n, 1}, list);
      for (const int split_k : {2, 4}) add(problem, {tile_m, 128, 1, 1, split_k}, list);
    }
  }
  return list;
}

double GemmTcgen05Operator::score(const Config& config, const Gemm& problem) {
  return 1e6 / gemm_tcgen05_cost(config, problem).cycles;
}

std::string GemmTcgen05Operator::merit(const Config& config, const Gemm& problem) {
  const GemmTcgen05Cost cost = gemm_tcgen05_cost(config, problem);
  return fmt::format("modelled (never measured) at {:.1f} us in {}, {}", gemm_tcgen05_cost_us(cost),
                     counted(cost.rounds, "round"),
                     cost.is_memory_bound ? std::string("bound by memory")
                                          : fmt::format("{:.0f} % of the tensor cores' rate", 100 * cost.tensor_share));
}

std::string GemmTcgen05Operator::label(const Config& config) {
  return fmt::format("tile {}x{}{}, {}, {}{}", config.tile_m, config.tile_n,
                     gemm_tcgen05::is_swapped(config) ? " transposed" : "", counted(config.stages, "stage"),
                     counted(config.accumulators, "accumulator"), cluster_text(config));
}

std::string GemmTcgen05Operator::subject(const Config& config) {
  return fmt::format("gemm {}, {}", types_text(config), label(config));
}

std::string GemmTcgen05Operator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  const char* const columns = gemm_tcgen05::is_swapped(config) ? "tile_m" : "tile_n";
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::operand_pair:
      return fmt::format(
          "a is {}, b is {}: no instruction multiplies the two; both must be f16, bf16, tf32, nvfp4 or mxfp4, or each "
          "e4m3 or e5m2, or each s8 or u8, or each mxfp8, mxfp6 or mxfp4",
          type_in_full(config.facts.a_type), type_in_full(config.facts.b_type));
    case Rule::output_type:
      return fmt::format("d is {}: must be f32, bf16, f16{} or a block-scaled format", to_word(config.facts.d_dtype),
                         gemm_tcgen05::is_integer(config) ? ", s32" : "");
    case Rule::finished_sums:
      return "d is s32 with c, bias, an activation or a gate: sums of integers are stored as they are; take d of type "
             "f32, bf16 or f16";
    case Rule::layout_of_narrow: {
      const bool is_a = config.facts.a_layout == Layout::mn_major && operand_bits(config.facts.a_type) < 8;
      return fmt::format(
          "{0}_layout mn with {0} of type {1}: k of {2}-bit values must be contiguous (the instruction takes "
          "them K-major only); transpose {0}, or take a type of {3} bits or more",
          is_a ? "a" : "b", to_word(is_a ? config.facts.a_type : config.facts.b_type), found, bound);
    }
    case Rule::layout_of_groups:
      return "a_layout mn with contiguous groups: a copy begins at a multiple of 16 bytes, a group at any row; take "
             "masked "
             "groups, or make k of a contiguous";
    case Rule::gate_and_addend:
      return fmt::format("gate {} with c{} or an activation: a gate{} is all that happens to its sums",
                         to_word(config.facts.gate), config.facts.gate == Gate::dual ? ", bias" : "",
                         config.facts.gate == Gate::dual ? "" : ", with a bias,");
    case Rule::interleave_not_dividing:
      return fmt::format("interleave {}: it must divide {}, the columns of d that are stored at a time", found, bound);
    case Rule::few_rows_of_gate:
      return fmt::format("tile_m {}, {} needed with a gate or a block-scaled d (whole blocks of a row in a thread)",
                         found, bound);
    case Rule::split_k_of_gate:
      return fmt::format("split_k {}, {} allowed with a gate or a block-scaled d", found, bound);
    case Rule::split_k_of_groups:
      return fmt::format("split_k {}, {} allowed with groups: their tiles are counted on the device", found, bound);
    case Rule::part_of_block:
      return fmt::format("{} columns of d a tile, a multiple of {} needed (the block that shares a scale)", found,
                         bound);
    case Rule::tile_m_out_of_range:
      return fmt::format("tile_m {}, 16 to {} allowed (lanes of Tensor Memory): take cluster_m 2 for 256 rows", found,
                         bound);
    case Rule::tile_n_of_few_rows:
      return fmt::format("tile_n {} with tile_m {}, {} needed: one of the two is the lanes of Tensor Memory", found,
                         config.tile_m, bound);
    case Rule::columns_not_multiple:
      return fmt::format(
          "{} {}, a multiple of {} needed ({})", columns, found, bound,
          gemm_tcgen05::is_scaled(config) ? "where an instruction may start to read scales" : "N of the instruction");
    case Rule::columns_out_of_range:
      return fmt::format("{} {}, at most {} allowed (N of the instruction)", columns, found, bound);
    case Rule::part_of_panel:
      return fmt::format(
          "{} rows of an operand with layout mn in a CTA, a multiple of {} needed (128 bytes, swizzle span)", found,
          bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 2 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::accumulators_out_of_range:
      return fmt::format("{}, 1 or {} allowed", counted(verdict.found, "accumulator"), bound);
    case Rule::cluster_m_out_of_range:
      if (!gemm_tcgen05::is_swapped(config))
        return fmt::format("cluster_m {}, 1, 2 or {} allowed (a pair of CTAs, or two that share b)", found, bound);
      return fmt::format("cluster_m {}, at most {} allowed (with few rows a pair lies along n)", found, bound);
    case Rule::cluster_n_out_of_range:
      return fmt::format("cluster_n {}, at most {} allowed ({})", found, bound,
                         gemm_tcgen05::is_swapped(config) ? "a pair of CTAs"
                         : config.cluster_m == 2          ? "two pairs that share a"
                                                          : "with 128 rows a pair lies along m");
    case Rule::split_k_out_of_range:
      return fmt::format("split_k {}, a power of two up to {} allowed (CTAs of a cluster)", found, bound);
    case Rule::split_k_of_pair:
      return fmt::format("split_k {}, {} allowed with a pair of CTAs: take cluster_m and cluster_n 1", found, bound);
    case Rule::part_of_d_too_small:
      return fmt::format(
          "{} columns of Tensor Memory for each CTA along k, a multiple of {} needed: take a smaller "
          "split_k",
          found, bound);
    case Rule::partial_sums_exceed_ring:
      return fmt::format("partial sums of {} bytes, {} of ring: take more stages", found, bound);
    case Rule::raster_out_of_range:
      return fmt::format("raster {}, 1 to {} allowed", found, bound);
    case Rule::tensor_memory_exceeded:
      return fmt::format("{} columns of Tensor Memory for sums and scales, {} allowed: {}", found, bound,
                         config.accumulators > 1 ? "take one accumulator" : "take a smaller tile");
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 2 ? "drop a stage" : "take a smaller tile");
  }
  return "?";
}

std::string GemmTcgen05Operator::kernel_name(Arch arch, const Config& c) {
  std::string name = fmt::format("tessera_gemm_{}_{}", arch_name(arch.to_string()), to_word(c.facts.a_type));
  if (c.facts.b_type != c.facts.a_type) name += fmt::format("_{}", to_word(c.facts.b_type));
  if (c.facts.a_layout != Layout::k_major || c.facts.b_layout != Layout::k_major)
    name += fmt::format("_{}{}", c.facts.a_layout == Layout::k_major ? 'k' : 'm',
                        c.facts.b_layout == Layout::k_major ? 'k' : 'n');
  name += gate_and_groups_name(c.facts);
  const std::string_view d_type = gemm_tcgen05::is_quantized(c) ? to_word(c.facts.d_format) : to_word(c.facts.d_dtype);
  name += fmt::format("_to_{}_{}x{}_s{}_a{}", d_type, c.tile_m, c.tile_n, c.stages, c.accumulators);
  if (c.cluster_m * c.cluster_n != 1) name += fmt::format("_c{}x{}", c.cluster_m, c.cluster_n);
  if (c.split_k != 1) name += fmt::format("_k{}", c.split_k);
  if (c.raster != std::max(1, kRasterRows / (c.tile_m * c.cluster_m))) name += fmt::format("_r{}", c.raster);
  return name + addends_name(c.facts);
}

namespace {

std::string mma_kind_name(const Config& c) {
  using layout::Tcgen05Kind;
  std::string name = "tcgen05.";
  switch (gemm_tcgen05::kind(c)) {
    case Tcgen05Kind::f16:
      name += "f16";
      break;
    case Tcgen05Kind::tf32:
      name += "tf32";
      break;
    case Tcgen05Kind::f8f6f4:
      name += "f8f6f4";
      break;
    case Tcgen05Kind::i8:
      name += "i8";
      break;
    case Tcgen05Kind::mxf8f6f4:
      name += "mxf8f6f4.block32";
      break;
    case Tcgen05Kind::mxf4:
      name += "mxf4.block32";
      break;
    case Tcgen05Kind::mxf4nvf4:
      name += "mxf4nvf4.block16";
      break;
  }
  return gemm_tcgen05::pair_size(c) == 2 ? name + ", cta_group 2" : name;
}

OperandPlan value_operand(const Config& c, const char* name, OperandType type, bool is_of_lanes,
                          const LaunchPlan& launch) {
  OperandPlan operand = is_block_scaled(type)
                            ? scaled_operand(name, block_format(type), ScaleForm::tile, "")
                            : plain_operand(name, type == OperandType::tf32 ? "f32" : to_word(type), "");
  const char* const major = !gemm_tcgen05::is_mn_major(c, is_of_lanes) ? "K" : is_of_lanes ? "M" : "N";
  operand.use = fmt::format("{} of the instruction, {}-major{}", is_of_lanes ? 'A' : 'B', major,
                            gemm_tcgen05::is_padded(c, type) ? ", 8 bits a value in shared memory" : "");
  for (const TensorMapRecipe& map : launch.tensor_maps)
    if (map.name == name) operand.tensor_map_type = std::string(to_string(map.type));
  operand.swizzle = std::string(to_word(Swizzle::b128));
  return operand;
}

void add_operands(const Config& c, Plan& plan) {
  const bool is_swapped = gemm_tcgen05::is_swapped(c);
  plan.operands = {value_operand(c, "a", c.facts.a_type, !is_swapped, plan.launch),
                   value_operand(c, "b", c.facts.b_type, is_swapped, plan.launch)};
  const bool is_dual = c.facts.gate == Gate::dual;
  if (is_dual) plan.operands.push_back(value_operand(c, "b2", c.facts.b_type, false, plan.launch));
  if (gemm_tcgen05::is_scaled(c)) {
    std::vector<std::pair<const char*, OperandType>> all{{"sfa", c.facts.a_type}, {"sfb", c.facts.b_type}};
    if (is_dual) all.emplace_back("sfb2", c.facts.b_type);
    for (const auto& [name, type] : all) {
      OperandPlan scales = scale_operand(name, block_format(type), "tiles, by tcgen05.cp to Tensor Memory");
      scales.tensor_map_type = std::string(to_string(TensorMapType::u16));
      scales.swizzle = std::string(to_word(Swizzle::none));
      plan.operands.push_back(std::move(scales));
    }
  }
  add_groups_operand(c.facts, plan.operands);
  if (gemm_tcgen05::is_quantized(c)) {
    add_quantized_operands(block_format(c.facts.d_format), plan.operands);
  } else {
    plan.operands.push_back({.name = "d",
                             .dtype = std::string(to_word(c.facts.d_dtype)),
                             .tensor_map_type = std::string(to_string(tensor_map_type(c.facts.d_dtype))),
                             .swizzle = std::string(to_word(gemm_tcgen05::d_swizzle(c))),
                             .use = is_swapped ? "D, transposed through shared memory" : "D, through shared memory"});
  }
  add_addend_operands(gemm_tcgen05_launch(c), plan.operands);
}

}  // namespace

void GemmTcgen05Operator::describe(const Config& config, Plan& plan) {
  plan.mma_kind = mma_kind_name(config);
  plan.launch = gemm_launch(gemm_tcgen05_launch(config), plan.arch.to_string(), plan.kernel);
  add_operands(config, plan);
  gemm_tcgen05_memory(config, plan);
  for (const gemm_tcgen05::Role& role : gemm_tcgen05::kRoles)
    plan.roles.push_back({role.name, role.first_warp, role.warps, 0});
}

std::string GemmTcgen05Operator::launch_bounds() { return "tessera::gemm_tcgen05::num_threads(kConfig), 1"; }

std::string GemmTcgen05Operator::call(const Config& config) {
  return fmt::format("tessera::gemm_tcgen05::kernel<kConfig>(\n      {})",
                     product_arguments(gemm_tcgen05_launch(config)));
}

std::vector<SourceFile> GemmTcgen05Operator::generated_headers(const Config&) { return {}; }

}  // namespace tessera::gemm_tcgen05

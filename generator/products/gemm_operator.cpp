// What a product's plan says: why it is refused, names, labels, shared memory. Which tiles are considered is in
// gemm_candidates.cpp; the score is a model of the time, see gemm_cost.h.
#include "generator/products/gemm_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/products/gemm_candidates.h"
#include "generator/products/gemm_cost.h"
#include "generator/products/gemm_launch.h"
#include "generator/products/product_words.h"
#include "generator/wgmma_header.h"
#include "generator/words.h"

namespace tessera::gemm {

namespace {

// Of the product: rows of D first.
std::pair<int, int> tile_of(const Config& c) {
  return gemm::is_swapped(c) ? std::pair(c.tile_n, c.tile_m) : std::pair(c.tile_m, c.tile_n);
}
std::pair<int, int> cluster_of(const Config& c) {
  return gemm::is_swapped(c) ? std::pair(c.cluster_n, c.cluster_m) : std::pair(c.cluster_m, c.cluster_n);
}

std::string cluster_text(const Config& c) {
  const auto [m, n] = cluster_of(c);
  std::string text = fmt::format("cluster {}x{}", m, n);
  if (c.split_k != 1) text += fmt::format(", k in {} parts", c.split_k);
  return text;
}

/// Whether promoted sums alone are what a Config has no room for.
bool is_legal_if_fast(Config c) {
  if (c.facts.accumulation != Accumulation::promoted) return false;
  c.facts.accumulation = Accumulation::fast;
  return why_invalid(c).ok();
}

std::string types_text(std::string_view a, std::string_view b) {
  return a == b ? std::string(a) : fmt::format("{} x {}", a, b);
}
std::string types_text(const Config& c) {
  return types_text(to_word(c.facts.a_type), to_word(c.facts.b_type)) + gate_and_groups_text(c.facts);
}

std::string why_no_instruction(std::string_view a, std::string_view b) {
  return fmt::format(
      "a is {}, b is {}: both must be bf16, both f16, or each e4m3 or e5m2 (types of one matrix instruction)", a, b);
}

/// Types that are no operand's in any family have no facts.
/// With a dual gate two columns of sums for each of d.
Gemm of_sums(const Gemm& problem) {
  Gemm sums = problem;
  if (problem.gate == Gate::dual && problem.n > 0) sums.n = 2 * problem.n;
  return sums;
}

bool is_operand(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::tf32 || gemm::is_8_bit(dtype);
}

}  // namespace

void GemmOperator::require_facts(const Gemm& problem) {
  require_no_weights(problem);
  require_epilogue_facts(problem);
  if (problem.format || problem.b_format)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: {} has kernels for sm_100 and sm_103 with suffix a or f (tcgen05), none for {}",
                            to_word(problem.format ? *problem.format : *problem.b_format), problem.arch.to_string()));
  if (problem.d_format)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("gemm: a block-scaled d has kernels for sm_100 and sm_103 with suffix a or f (tcgen05), none "
                    "for {}",
                    problem.arch.to_string()));
  if (problem.interleave.value_or(1) != 1 && problem.gate != Gate::interleaved)
    throw Error(ErrorKind::unsupported, fmt::format("gemm: interleave = {} with gate = {}: it is for interleaved gates",
                                                    *problem.interleave, to_word(problem.gate)));
  for (const DType dtype : {problem.dtype, problem.b_dtype.value_or(problem.dtype)})
    if (dtype == DType::s8 || dtype == DType::u8)
      throw Error(ErrorKind::unsupported,
                  fmt::format("gemm: {} has kernels for sm_100a (tcgen05 kind::i8), none for {}", to_word(dtype),
                              problem.arch.to_string()));
  if (problem.accumulators)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm: accumulators = {} is for Tensor Memory, which {} does not have",
                            *problem.accumulators, problem.arch.to_string()));
  const DType a = problem.dtype, b = problem.b_dtype.value_or(a);
  if (!is_operand(a) || !is_operand(b))
    throw Error(ErrorKind::unsupported, fmt::format("gemm {}: {}", types_text(to_word(a), to_word(b)),
                                                    why_no_instruction(to_word(a), to_word(b))));
  const Config c = gemm_facts(problem);
  const Verdict verdict = gemm::why_invalid_types(c);
  if (verdict.ok()) return;
  throw Error(ErrorKind::unsupported, fmt::format("gemm {}: {}", types_text(c), explain(c, verdict)));
}

double GemmOperator::score(const Config& config, const Gemm& problem) {
  return 1e6 / gemm_cost(config, of_sums(problem)).cycles;
}

double GemmOperator::most_score(const Config& config, const Gemm& problem) {
  return 1e6 / least_gemm_cycles(config, of_sums(problem));
}

std::string GemmOperator::merit(const Config& config, const Gemm& problem) {
  const GemmCost cost = gemm_cost(config, of_sums(problem));
  return fmt::format("modelled at {:.1f} us in {}, {}", gemm_cost_us(cost), counted(cost.rounds, "round"),
                     cost.is_memory_bound ? std::string("bound by memory")
                                          : fmt::format("{:.0f} % of the tensor cores' rate", 100 * cost.tensor_share));
}

std::string GemmOperator::label(const Config& config) {
  const auto [tile_m, tile_n] = tile_of(config);
  return fmt::format("tile {}x{}{}{}, {}, {}", tile_m, tile_n, gemm::is_swapped(config) ? " swapped" : "",
                     config.kernel_schedule == KernelSchedule::ping_pong ? " ping-pong" : "",
                     counted(config.stages, "stage"), cluster_text(config));
}

std::string GemmOperator::subject(const Config& config) {
  return fmt::format("gemm {}, {}", types_text(config), label(config));
}

std::string GemmOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  const bool is_swapped = gemm::is_swapped(config);
  const char *const m = is_swapped ? "n" : "m", *const n = is_swapped ? "m" : "n";  // the product's
  const char *const a = is_swapped ? "b" : "a", *const b = is_swapped ? "a" : "b";
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::facts_of_tcgen05:
      return "a block-scaled d has kernels for sm_100 and sm_103 alone (tcgen05)";
    case Rule::dual_gate:
      return "gate dual with a bias or factors of blocks: put the rows of gate and up into one b, in turn (gate "
             "interleaved)";
    case Rule::gate_and_addend:
      return fmt::format(
          "gate {} with c or an activation: none of them allowed beside it (gate_activation is the gate's)",
          to_word(config.facts.gate));
    case Rule::interleave_of_gate:
      return fmt::format("interleave {}: a power of two from 8 to {} needed (a thread has gate and up of a column)",
                         found, bound);
    case Rule::swap_of_gate:
      return "swap_ab on with a gate, off allowed: gate and up are columns of the instruction";
    case Rule::split_k_of_gate:
      return fmt::format("split_k {}, {} allowed with a gate", found, bound);
    case Rule::tile_n_of_gate:
      return fmt::format("tile_n {}, a multiple of {} needed (whole turns of gate and up, and 16 columns of d)", found,
                         bound);
    case Rule::columns_of_d_factors:
      return fmt::format(
          "{} columns of d for a CTA, a multiple of {} needed (they share a factor: d_scale_block): take tile_n {}",
          found, bound, gemm::is_gated(config) ? "256" : "128 or 256");
    case Rule::type_of_d_factors:
      return fmt::format("d_scale_block with a d of {}: it is for d_dtype e4m3", to_word(config.facts.d_dtype));
    case Rule::squares_of_d:
      return "d_scale_block 128x128: a thread block has the columns of a square, not its rows; take 1x128";
    case Rule::operand_type:
      return why_no_instruction(to_word(config.facts.a_type), to_word(config.facts.b_type));
    case Rule::output_type:
      return fmt::format("d is {}: must be f32, bf16, f16, e4m3 or e5m2", to_word(config.facts.d_dtype));
    case Rule::layout_needs_16_bit:
      return fmt::format(
          "an operand of {}-byte elements whose k is not contiguous, {} bytes needed (wgmma): make k contiguous, or "
          "take a 16-bit type",
          found, bound);
    case Rule::promotion_needs_8_bit:
      return fmt::format("promoted sums of elements of {} bytes, {} allowed: 16-bit types sum in fp32", found, bound);
    case Rule::scale_blocks_need_8_bit:
      return fmt::format("scale blocks of elements of {} bytes, {} allowed: they are for e4m3 and e5m2", found, bound);
    case Rule::scale_blocks_of_one_operand:
      return "a_scale_block and b_scale_block: one is none; give both operands scale blocks, or neither";
    case Rule::scale_blocks_need_promotion:
      return "accumulation fast with scale blocks: each 128 of k are multiplied by their factors in fp32 (promoted)";
    case Rule::layout_of_groups:
      return "a_layout mn with contiguous groups: a copy begins at a multiple of 16 bytes, a group at any row; take "
             "masked groups, or make k of a contiguous";
    case Rule::squares_of_groups:
      return gemm::is_gathered(config)
                 ? "a_scale_block 128x128 with gather rows: rows by a list share no squares; take 1x128"
                 : "a_scale_block 128x128 with contiguous groups: a square begins at a multiple of 128 rows, a group "
                   "at "
                   "any; take masked groups, or 1x128";
    case Rule::gather_without_groups:
      return "gather rows without groups: it is for rows of groups; gather the rows first (rows, chain gather+same)";
    case Rule::layout_of_gather:
      return "a_layout mn with gather rows: a row's k is copied in units of 16 bytes; make k of a contiguous";
    case Rule::cluster_n_of_gather:
      return fmt::format("cluster_n {}, {} allowed with gather rows: each CTA copies its own rows of a", found, bound);
    case Rule::swap_of_groups:
      return "swap_ab on with groups, off allowed: rows of a group are rows of the instruction";
    case Rule::split_k_of_groups:
      return fmt::format("split_k {}, {} allowed with groups: their tiles are counted on the device", found, bound);
    case Rule::tile_m_not_multiple_of_64:
      return fmt::format("tile_{} {}, a multiple of {} needed (wgmma M)", m, found, bound);
    case Rule::tile_m_out_of_range:
      return fmt::format("tile_{} {}, at most {} allowed (rows of the consumer warpgroups)", m, found, bound);
    case Rule::tile_n_not_multiple:
      return fmt::format("tile_{} {}, a multiple of {} needed ({})", n, found, bound,
                         is_swapped ? "a panel of d" : "16 bytes of d");
    case Rule::tile_n_out_of_range:
      return fmt::format("tile_{} {}, at most {} allowed (wgmma N)", n, found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 2 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::cluster_too_large:
      return verdict.found > verdict.bound
                 ? fmt::format("a cluster of {}, at most {} allowed", counted(verdict.found, "CTA"), bound)
                 : fmt::format("a cluster of {} along m or n, a power of two up to {} allowed",
                               counted(verdict.found, "CTA"), bound);
    case Rule::split_k_out_of_range:
      return fmt::format("split_k {}, 1 to {} allowed (CTAs of a cluster)", found, bound);
    case Rule::split_k_and_ping_pong:
      return fmt::format("split_k {}, {} allowed with kernel_schedule ping_pong: take cooperative", found, bound);
    case Rule::raster_out_of_range:
      return fmt::format("raster {}, 1 to {} allowed", found, bound);
    case Rule::part_of_a_too_small:
      return fmt::format("{} rows of {} for each CTA along {}, a multiple of {} needed: take a smaller cluster_{}",
                         found, a, n, bound, n);
    case Rule::part_of_b_too_small:
      return fmt::format("{} rows of {} for each CTA along {}, a multiple of {} needed: take a smaller cluster_{}",
                         found, b, m, bound, m);
    case Rule::part_of_d_too_small:
      return fmt::format("{} {} of d for each CTA along k, a multiple of {} needed: take a smaller split_k", found,
                         is_swapped ? "rows" : "columns", bound);
    case Rule::swap_needs_16_bit_output:
      return fmt::format("swap_ab with a d of {}-byte elements, {} bytes needed (stmatrix): leave swap_ab off", found,
                         bound);
    case Rule::accumulators_exceed_registers:
      return fmt::format("{} accumulator registers a thread, {} allowed: take a smaller tile{}", found, bound,
                         is_legal_if_fast(config) ? " or accumulation fast" : "");
    case Rule::partial_sums_exceed_ring:
      return fmt::format("partial sums of {} bytes, {} of ring: take more stages", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 2 ? "drop a stage" : "take a smaller tile");
  }
  return "?";
}

std::string GemmOperator::kernel_name(Arch arch, const Config& c) {
  const ProductFacts& facts = c.facts;
  const std::string_view a = to_word(facts.a_type), b = to_word(facts.b_type), d = to_word(facts.d_dtype);
  std::string name = fmt::format("tessera_gemm_{}_{}", arch_name(arch.to_string()), a);
  if (b != a) name += fmt::format("_{}", b);
  if (gemm::has_scale_blocks(c)) {
    name += fmt::format("_{}_{}", to_word(facts.a_scale_block), to_word(facts.b_scale_block));
  } else if (facts.accumulation == Accumulation::promoted) {
    name += "_promoted";
  }
  if (d != a || gemm::has_d_factors(c)) name += fmt::format("_to_{}", d);
  if (gemm::has_d_factors(c)) name += facts.d_scale_values == ScaleValues::pow2 ? "_1x128_pow2" : "_1x128";
  name += fmt::format("_{}{}", facts.a_layout == Layout::k_major ? 'k' : 'm',
                      facts.b_layout == Layout::k_major ? 'k' : 'n');
  name += gate_and_groups_name(c.facts);
  const auto [tile_m, tile_n] = tile_of(c);
  const auto [cluster_m, cluster_n] = cluster_of(c);
  name += fmt::format("_{}x{}{}{}_s{}_c{}x{}x{}", tile_m, tile_n, gemm::is_swapped(c) ? "t" : "",
                      c.kernel_schedule == KernelSchedule::ping_pong ? "pp" : "", c.stages, cluster_m, cluster_n,
                      c.split_k);
  if (const int rows = tile_m * cluster_m; c.raster != kGemmRasterRows / rows) name += fmt::format("_r{}", c.raster);
  if (c.box_m != Config{}.box_m) name += fmt::format("_b{}", c.box_m);
  return name + addends_name(facts);
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
    if (config.split_k > 1 && !gemm::sends_sums(config) && region.offset < sum_bytes) {
      phases.push_back({"sums of this CTA's part of K, being written", "consumer", "barrier of the cluster"});
      phases.push_back({"sums of this CTA's part of K, being read", "consumer of every CTA of the tile", "end"});
    }
    plan.smem.push_back({region.name, region.offset, region.bytes, config.stages, std::move(phases)});
  };
  ring(layout.a, gemm::is_swapped(config) ? "B" : "A");
  ring(layout.b, gemm::is_swapped(config) ? "A" : "B");
  std::vector<MemoryPhase> of_d = {{"panel of D, being written", "consumer", "barrier of the warpgroup"},
                                   {"panel of D, being stored", "consumer",
                                    gemm::stages_whole_tile(config) ? "the last tile's stores have read theirs"
                                                                    : "the store before last has read it"}};
  if (gemm::sends_sums(config))
    of_d.insert(of_d.begin(),
                {{"sums of other parts of K on their way", "consumer of every CTA of the tile", "barrier fetched"},
                 {"sums of other parts of K, being read", "consumer", "barrier of the warpgroup"}});
  plan.smem.push_back({layout.d.name, layout.d.offset, layout.d.bytes,
                       gemm::consumer_warpgroups(config) * gemm::staging_slots(config), std::move(of_d)});
  if (gemm::has_scale_blocks(config))
    plan.smem.push_back({layout.scales.name,
                         layout.scales.offset,
                         layout.scales.bytes,
                         config.stages,
                         {{"factors of a step on their way", "scales", "barrier full"},
                          {"factors of a step", "consumer", "barrier empty"}}});
  plan.smem.push_back({layout.barriers.name, layout.barriers.offset, layout.barriers.bytes});
  plan.smem_bytes = layout.total_bytes;
}

}  // namespace

namespace {

/// One of the product's operands, as the kernel's a or b.
GemmLaunch::Operand operand_of(const Config& c, bool is_b) {
  const gemm::TmaBox box = is_b != gemm::is_swapped(c) ? gemm::b_box(c) : gemm::a_box(c);
  return {.box = {std::begin(box.extents), std::end(box.extents)},
          .promotion = gemm::has_scale_blocks(c) ? TensorMapL2Promotion::l2_128b : TensorMapL2Promotion::l2_256b};
}

GemmLaunch launch_facts(const Config& c) {
  const auto [tile_m, tile_n] = tile_of(c);
  const auto [cluster_m, cluster_n] = cluster_of(c);
  const gemm::TmaBox d_box = gemm::d_box(c);
  return {.facts = c.facts,
          .tiles = {tile_m, gemm::is_dual(c) ? tile_n / 2 : tile_n, cluster_m, cluster_n, c.split_k},  // of d
          .is_swapped = gemm::is_swapped(c),
          .cluster_size = gemm::cluster_size(c),
          .threads = gemm::num_threads(c),
          .smem_bytes = gemm::smem_layout(c).total_bytes,
          .a = operand_of(c, false),
          .b = operand_of(c, true),
          .d = {.box = {std::begin(d_box.extents), std::end(d_box.extents)},
                .swizzle = tensor_map_swizzle(gemm::d_swizzle(c))},
          .has_tensor_scales = gemm::element_bytes(c) == 1,
          .is_gathered = gemm::is_gathered(c),
          .has_a_map = !gemm::is_gathered(c),
          .waits_for_prior = gemm::has_scale_blocks(c),
          .pitch_remedy = "pad the rows of {}, which need not be dense"};
}

}  // namespace

void GemmOperator::describe(const Config& config, Plan& plan) {
  const ProductFacts& facts = config.facts;
  const bool is_8_bit = gemm::element_bytes(config) == 1;
  const auto operand = [&](const char* name, DType dtype, Swizzle swizzle, std::string use) {
    return OperandPlan{.name = name,
                       .dtype = std::string(to_word(dtype)),
                       .tensor_map_type = std::string(to_string(tensor_map_type(dtype))),
                       .swizzle = std::string(to_word(swizzle)),
                       .use = std::move(use)};
  };
  const auto major = [](Layout layout, const char* other) { return layout == Layout::k_major ? "K" : other; };
  plan.mma_kind = is_8_bit ? "wgmma.f8" : "wgmma.f16";
  plan.operands = {
      gemm::is_gathered(config) ? plain_operand("a", to_word(facts.a_type), "A, rows by a list")
                                : operand("a", element_type(facts.a_type), Swizzle::b128,
                                          fmt::format("A, {}-major", major(facts.a_layout, "M"))),
      operand("b", element_type(facts.b_type), Swizzle::b128, fmt::format("B, {}-major", major(facts.b_layout, "N"))),
      operand("d", facts.d_dtype, gemm::d_swizzle(config), "D, stored through shared memory")};
  if (gemm::is_dual(config))
    plan.operands.insert(plan.operands.begin() + 2,
                         operand("b2", element_type(facts.b_type), Swizzle::b128,
                                 fmt::format("B of up, {}-major", major(facts.b_layout, "N"))));
  add_groups_operand(facts, plan.operands);
  const std::string addend_type(to_word(gemm::c_dtype(config)));
  const auto read = [&](const char* name, const std::string& type, const char* use) {
    plan.operands.push_back({.name = name, .dtype = type, .tensor_map_type = {}, .swizzle = {}, .use = use});
  };
  if (gemm::is_gathered(config)) read("indices", "s32", "row of a that each row has");
  if (facts.c == Addend::matrix) read("c", addend_type, "added, times beta");
  if (facts.bias != Bias::none) read("bias", addend_type, bias_note(facts));
  if (is_8_bit) {
    read("scale_a", "f32", "factor of alpha if not null");
    read("scale_b", "f32", "factor of alpha if not null");
    if (gemm::is_dual(config)) read("scale_b2", "f32", "the same of up");
  }
  if (gemm::has_scale_blocks(config)) {
    read("sfa", "f32", facts.a_scale_block == ScaleBlock::of_row ? "of 128 of a's k" : "of 128 x 128 of a");
    read("sfb", "f32", facts.b_scale_block == ScaleBlock::of_row ? "of 128 of b's k" : "of 128 x 128 of b");
  }
  if (gemm::has_d_factors(config)) read("sfd", "f32", "of 128 columns of d, as quantize_blocks has them");
  describe_smem(config, plan);
  plan.entry_registers = gemm::register_budget(config).entry;
  for (int i = 0; i < gemm::num_roles(config); ++i) {
    const gemm::Role role = gemm::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = gemm_launch(launch_facts(config), plan.arch.to_string(), plan.kernel);
  if (gemm::is_dual(config))
    plan.launch.domain.push_back({.lhs = Expression::parse("n"),
                                  .relation = Relation::at_most,
                                  .rhs = Expression(kMaxExtent / 2),
                                  .message = fmt::format("n must be at most {} with a dual gate", kMaxExtent / 2)});
}

std::string GemmOperator::launch_bounds() { return "tessera::gemm::num_threads(kConfig), 1"; }

std::string GemmOperator::call(const Config& config) {
  const bool has_c = config.facts.c == Addend::matrix;
  const std::pair<char, char> of = gemm::is_swapped(config) ? std::pair('b', 'n') : std::pair('a', 'm');
  const std::pair<char, char> other = gemm::is_swapped(config) ? std::pair('a', 'm') : std::pair('b', 'n');
  const auto scales = [](std::pair<char, char> operand) {
    return fmt::format("{{sf{0}, sf{0}_stride_{1}, sf{0}_stride_k, sf{0}_stride_l}}", operand.first, operand.second);
  };
  const bool is_gathered = gemm::is_gathered(config), is_dual = gemm::is_dual(config);
  const bool has_scales = gemm::element_bytes(config) == 1;
  // What stands behind beta, as far as something is given.
  std::string rest;
  const bool has_d_factors = gemm::has_d_factors(config);
  if (is_dual || is_gathered || has_d_factors || gemm::is_grouped(config))
    rest = gemm::is_grouped(config) ? ", static_cast<const int*>(groups)" : ", nullptr";
  if (is_gathered) rest += ", a, static_cast<const int*>(indices), lda, a_rows";
  if ((is_dual || has_d_factors) && !is_gathered) rest += ", nullptr, nullptr, 0, 0";
  if (is_dual) rest += fmt::format(", &b2, {}", has_scales ? "scale_b2" : "nullptr");
  if (has_d_factors && !is_dual) rest += ", nullptr, nullptr";
  if (has_d_factors) rest += ",\n       {sfd, sfd_stride_m, sfd_stride_n, sfd_stride_l}";
  return fmt::format(
      "tessera::gemm::kernel<kConfig>(\n      {{{}, b, d, d_pointer, {}, {}, {}, {}, m, {}, k, l, ldd, d_stride_l, {}, "
      "alpha, "
      "{}{}}})",
      is_gathered ? "b" : "a", has_c ? "c" : "nullptr", config.facts.bias != Bias::none ? "bias" : "nullptr",
      has_scales ? "scale_a, scale_b" : "nullptr, nullptr",
      gemm::has_scale_blocks(config) ? scales(of) + ", " + scales(other) : "{}, {}", is_dual ? "2 * n" : "n",
      has_c ? "ldc, c_stride_l" : "0, 0", has_c ? "beta" : "0.0f", rest);
}

std::vector<SourceFile> GemmOperator::generated_headers(const Config& config) {
  const WgmmaShape shapes[] = {gemm::wgmma_shape(config)};
  return {{"wgmma_shapes.cuh", wgmma_header(shapes)}};
}

}  // namespace tessera::gemm

// Candidates are tiles of 128 and 64 queries by 128 and 64 keys, with two to four slots. Scores order them by shape:
// nothing was measured.
#include "generator/attention/fmha_nvfp4_operator.h"

#include <fmt/format.h>

#include <cmath>

#include "generator/attention/nvfp4_buffers.h"
#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera {

namespace {

using fmha_nvfp4::Config;
using fmha_nvfp4::Rule;

constexpr int kTileRows128[] = {128, 64};
constexpr int kStages[] = {3, 2, 4};
constexpr Hint kFewQueries = 64;
constexpr double kSmallTile = 0.8;    // keys are read twice as often
constexpr double kFewKeys = 0.9;      // barriers and maxima twice as often
constexpr double kOtherSlots = 0.98;  // two wait sooner; four help nobody
constexpr std::int64_t kMaxLength = 2147418112, kMaxHeads = 1 << 16, kMaxStride = std::int64_t{1} << 40;
constexpr std::int64_t kMaxSms = 1 << 16;
constexpr int kStoreElements = 8;  // 16 bytes

bool has_ragged_queries(const Config& c) { return c.q_layout == QueryLayout::ragged; }
bool has_ragged_keys(const Config& c) { return c.kv_layout == KvLayout::ragged; }
Nvfp4Layouts layouts_of(const Config& c) { return {has_ragged_queries(c), has_ragged_keys(c)}; }

std::string tiles_text(const Config& c) {
  return fmt::format("{} * heads_q", nvfp4_query_blocks(layouts_of(c), c.tile_m));
}

/// Of o, the innermost first.
std::vector<const char*> strides_of(const Config& c) {
  std::vector<const char*> strides{"o_stride_head", "o_stride_seqlen"};
  if (!has_ragged_queries(c)) strides.push_back("o_stride_batch");
  return strides;
}

std::vector<BufferSpec> places_of(const Config& c) {
  std::vector<BufferSpec> places;
  if (has_ragged_queries(c)) places.push_back(nvfp4_numbers("cu_seqlens_q", "batch + 1"));
  if (has_ragged_keys(c)) places.push_back(nvfp4_numbers("cu_seqlens_k", "batch + 1"));
  if (c.seqused != UsedLengths::none) places.push_back(nvfp4_numbers("seqused_k", "batch"));
  return places;
}

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("batch", 0, kMaxLength, {}, "sequences");
  size("heads_q", 1, kMaxHeads, {}, "query heads: a multiple of heads_kv");
  size("heads_kv", 1, kMaxHeads, {}, "key and value heads");
  size("seqlen_q", 0, kMaxLength, {}, has_ragged_queries(c) ? "queries of all sequences" : "queries of a sequence");
  if (has_ragged_keys(c)) {
    size("tokens_k", 0, kMaxLength, {}, "keys of all sequences together");
    size("seqlen_k", 0, kMaxLength, Expression::parse("tokens_k"), "most keys of a sequence");
  } else {
    size("seqlen_k", 0, kMaxLength, {}, "keys of a sequence");
  }
  size("o_stride_head", 1, kMaxStride, Expression(c.head_dim), "elements of o from one head to the next");
  size("o_stride_seqlen", 1, kMaxStride, expression("heads_q * {}", c.head_dim),
       "elements of o from one row to the next");
  if (!has_ragged_queries(c))
    size("o_stride_batch", 1, kMaxStride, expression("max(seqlen_q, 1) * heads_q * {}", c.head_dim),
         "elements of o from one sequence to the next");
  if (c.window == Window::sliding) {
    size("window_size_left", -1, kMaxLength, Expression(-1), "keys before a query that it sees; -1: all");
    size("window_size_right", -1, kMaxLength, Expression(-1), "keys behind a query that it sees; -1: all");
  }
  size("num_sms", 1, kMaxSms, {}, "multiprocessors of the device: filled in by the launcher");
}

void add_domain(const Config& c, LaunchPlan& launch) {
  const auto at_most = [&](const std::string& product, const char* what) {
    add_at_most(launch, Expression::parse(product), kMaxLength, fmt::format("{} must be at most {}", what, kMaxLength));
  };
  launch.domain.push_back({.lhs = Expression::parse("heads_q"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression::parse("heads_kv"),
                           .message = "heads_q must be a multiple of heads_kv"});
  at_most("seqlen_q + seqlen_k", "seqlen_q + seqlen_k");
  at_most("heads_q * batch", "heads_q * batch");
  at_most(tiles_text(c), "the number of query tiles");
  for (const char* const stride : strides_of(c))
    launch.domain.push_back({.lhs = Expression::parse(stride),
                             .relation = Relation::multiple_of,
                             .rhs = Expression(kStoreElements),
                             .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride, kStoreElements)});
}

LaunchPlan launch_of(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "fmha";
  launch.arch = arch;
  add_sizes(c, launch);
  launch.scalars.push_back({.name = "softmax_scale",
                            .default_value = 1 / std::sqrt(static_cast<double>(c.head_dim)),
                            .help = "factor of the scores: 1 / sqrt(head_dim) by default"});
  const Nvfp4Layouts layouts = layouts_of(c);
  for (const char* const name : {"q", "k", "v"})
    launch.buffers.push_back(nvfp4_units(name, BufferRole::input, c.head_dim, layouts));
  launch.buffers.push_back(nvfp4_delta_s(BufferRole::input, layouts));
  launch.buffers.push_back(nvfp4_statistic("row_shift", BufferRole::input, layouts));
  BufferSpec o{.name = "o",
               .role = BufferRole::output,
               .dtype = std::string(to_word(c.o_dtype)),
               .shape = {Expression::parse("seqlen_q"), Expression::parse("heads_q"), Expression(c.head_dim)},
               .strides = {Expression::parse("o_stride_seqlen"), Expression::parse("o_stride_head"), Expression(1)}};
  if (!has_ragged_queries(c)) {
    o.shape.insert(o.shape.begin(), Expression::parse("batch"));
    o.strides.insert(o.strides.begin(), Expression::parse("o_stride_batch"));
  }
  launch.buffers.push_back(std::move(o));
  launch.buffers.push_back(nvfp4_statistic("lse", BufferRole::output, layouts));
  launch.buffers.back().is_optional = true;
  for (BufferSpec& place : places_of(c)) launch.buffers.push_back(std::move(place));
  add_domain(c, launch);
  LaunchStep step;
  step.entry = kernel;
  for (const BufferSpec& buffer : launch.buffers)
    step.parameters.push_back(pointer_parameter(buffer.name.c_str(), buffer.name.c_str()));
  const auto size = [&](const char* name, ParameterKind kind) {
    step.parameters.push_back(size_parameter(name, kind, Expression::parse(name)));
  };
  for (const char* const name : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"})
    size(name, ParameterKind::i32);
  if (has_ragged_keys(c)) size("tokens_k", ParameterKind::i32);
  if (c.window == Window::sliding)
    for (const char* const name : {"window_size_left", "window_size_right"}) size(name, ParameterKind::i32);
  for (const char* const name : strides_of(c)) size(name, ParameterKind::i64);
  step.parameters.push_back({.name = "softmax_scale",
                             .kind = ParameterKind::f32,
                             .value = {},
                             .source = "softmax_scale",
                             .offset_bytes = {}});
  step.grid[0] = expression("min({} * num_sms, {})", fmha_nvfp4::ctas_per_sm(c), tiles_text(c));
  step.block[0] = static_cast<std::uint32_t>(fmha_nvfp4::num_threads(c));
  step.dynamic_smem_bytes = fmha_nvfp4::smem_layout(c).total_bytes;
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void FmhaNvfp4Operator::require_facts(const Fmha& problem) {
  if (problem.format != BlockFormat::nvfp4)
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for dtype {}: there are kernels for bf16, f16, e4m3 and nvfp4",
                            to_word(*problem.format)));
  if (has_family(problem.arch, MmaFamily::wgmma) || has_family(problem.arch, MmaFamily::tcgen05))
    throw Error(
        ErrorKind::unsupported,
        fmt::format("fmha has no kernel for dtype nvfp4 on {}: there is one for sm_120 and sm_121 with suffix a "
                    "or f",
                    problem.arch.to_string()));
  const auto refuse = [&](std::string_view field, std::string_view value) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for {} {} with dtype nvfp4", field, value));
  };
  const auto number = [](int value) { return fmt::format("{}", value); };
  if (problem.head_dim_v.value_or(problem.head_dim) != problem.head_dim)
    refuse("head_dim_v", fmt::format("{} beside head_dim {}", *problem.head_dim_v, problem.head_dim));
  if (problem.kv_pools != KvPools::dense) refuse("kv_pools", to_word(problem.kv_pools));
  if (problem.page_size) refuse("page_size", number(*problem.page_size));
  if (problem.v_is_k != VIsK::off) refuse("v_is_k", to_word(problem.v_is_k));
  if (problem.sink != Sink::none) refuse("sink", to_word(problem.sink));
  if (problem.softcap != Softcap::none) refuse("softcap", to_word(problem.softcap));
  if (problem.alibi != Alibi::none) refuse("alibi", to_word(problem.alibi));
  if (problem.tree_mask != TreeMask::none) refuse("tree_mask", to_word(problem.tree_mask));
  if (problem.kv_dtype) refuse("kv_dtype", to_word(*problem.kv_dtype));
  if (problem.split_size != 0) refuse("split_size", number(problem.split_size));
  if (problem.output != Output::normalized) refuse("output", to_word(problem.output));
  if (problem.v_layout != Layout::mn_major) refuse("v_layout", to_word(problem.v_layout));
  if (problem.swizzle) refuse("swizzle", to_word(*problem.swizzle));
  if (problem.mma_kind && *problem.mma_kind != MmaKind::mma_f16) refuse("mma_kind", to_word(*problem.mma_kind));
  if (problem.p_path) refuse("p_path", to_word(*problem.p_path));
  if (problem.cta_group) refuse("cta_group", number(*problem.cta_group));
  if (problem.kv_copy) refuse("kv_copy", to_word(*problem.kv_copy));
  if (problem.split_kv && *problem.split_kv != SplitKv::off) refuse("split_kv", to_word(*problem.split_kv));
  if (problem.promote_every) refuse("promote_every", number(*problem.promote_every));
  if (problem.window == Window::none && (problem.window_size_left >= 0 || problem.window_size_right >= 0))
    throw Error(ErrorKind::unsupported,
                "window_size_left and window_size_right are sizes of a window, and window is none: take sliding");
}

std::vector<Config> FmhaNvfp4Operator::candidates(const Fmha& problem) {
  std::vector<Config> list;
  for (const int tile_m : kTileRows128)
    for (const int tile_n : kTileRows128)
      for (const int stages : kStages)
        list.push_back({.head_dim = problem.head_dim,
                        .dtype = BlockFormat::nvfp4,
                        .o_dtype = problem.o_dtype.value_or(DType::bf16),
                        .mask = problem.mask,
                        .window = problem.window,
                        .q_layout = problem.q_layout,
                        .kv_layout = problem.kv_layout,
                        .seqused = problem.seqused,
                        .tile_m = problem.tile_m.value_or(tile_m),
                        .tile_n = problem.tile_n.value_or(tile_n),
                        .stages = problem.stages.value_or(stages),
                        .pack_gqa = problem.pack_gqa.value_or(1)});
  return list;
}

double FmhaNvfp4Operator::score(const Config& config, const Fmha& problem) {
  const bool has_few = problem.seqlen_q >= 0 && problem.seqlen_q <= kFewQueries;
  double score = 1;
  if ((config.tile_m == 64) != has_few) score *= kSmallTile;
  if (config.tile_n == 64) score *= kFewKeys;
  if (config.stages != kStages[0]) score *= kOtherSlots;
  return score;
}

std::string FmhaNvfp4Operator::merit(const Config& config, const Fmha&) {
  return fmt::format("chosen by shape (never measured): {} of K, V and delta_s, {} rows of a tile",
                     counted(config.stages, "slot"), config.tile_m);
}

std::string FmhaNvfp4Operator::label(const Config& config) {
  std::string text = fmt::format("tile {}x{}, {}", config.tile_m, config.tile_n, counted(config.stages, "stage"));
  if (config.pack_gqa != 1) text += fmt::format(", {} heads packed", config.pack_gqa);
  return text;
}

std::string FmhaNvfp4Operator::subject(const Config& config) {
  return fmt::format("head_dim {}, nvfp4, {}", config.head_dim, label(config));
}

std::string FmhaNvfp4Operator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::format_not_nvfp4:
      return fmt::format("scales for {} elements, {} needed: take nvfp4", found, bound);
    case Rule::head_dim_not_64_or_128:
      return fmt::format("head_dim {}, 64 or {} needed (one or two steps of 64 products)", found, bound);
    case Rule::o_dtype_not_16_bit:
      return fmt::format("o_dtype {}: take bf16 or f16", to_word(config.o_dtype));
    case Rule::window_chunked:
      return "window chunked: there is no kernel for it with dtype nvfp4";
    case Rule::keys_paged:
      return "kv_layout paged: keys in pages become dense where they are quantised (attention_quantize), take dense";
    case Rule::lengths_of_queries:
      return "seqused qk: there is no kernel for it with dtype nvfp4, take k";
    case Rule::lengths_of_ragged_keys:
      return "seqused k with kv_layout ragged: cu_seqlens_k says where keys end, take none";
    case Rule::tile_m_not_64_or_128:
      return fmt::format("tile_m {}, 64 or {} needed (four or eight warps of 16 rows, of one block of queries)", found,
                         bound);
    case Rule::tile_n_not_64_or_128:
      return fmt::format("tile_n {}, 64 or {} needed (units of 64 keys, registers of their scores)", found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 1 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::heads_packed:
      return fmt::format("pack_gqa {}, {} needed: a block of queries with one mean is of one head", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: drop a stage", found, bound);
  }
  return "?";
}

std::string FmhaNvfp4Operator::kernel_name(Arch arch, const Config& config) {
  std::string name =
      fmt::format("tessera_fmha_nvfp4_{}_d{}_{}x{}_s{}_{}", arch_name(arch.to_string()), config.head_dim, config.tile_m,
                  config.tile_n, config.stages, config.mask == Mask::none ? "full" : to_word(config.mask));
  if (config.window != Window::none) name += "_window";
  if (has_ragged_queries(config)) name += "_ragged";
  if (has_ragged_keys(config)) name += "_raggedk";
  if (config.seqused != UsedLengths::none) name += "_usedk";
  return name + fmt::format("_to_{}", to_word(config.o_dtype));
}

void FmhaNvfp4Operator::describe(const Config& config, Plan& plan) {
  plan.mma_kind = to_word(MmaKind::mma_f16);
  const auto units = [](const char* name, const char* use) {
    OperandPlan operand = plain_operand(name, "e2m1", use);
    operand.scale_type = "ue4m3";
    operand.scale_block = nvfp4::kGroup;
    operand.scale_form = "of lanes";
    return operand;
  };
  plan.operands = {units("q", "A of S = Q K^T, from global memory to registers"),
                   units("k", "B of S = Q K^T, keys in the order of P's registers"),
                   units("v", "B of O = P V, scales for 16 keys"),
                   plain_operand("delta_s", "f32", "accumulators of S begin as it"),
                   plain_operand("row_shift", "f32", "read for lse"),
                   plain_operand("o", to_word(config.o_dtype), "D of O = P V, stored from registers"),
                   plain_operand("lse", "f32", "written if not null")};
  for (const BufferSpec& place : places_of(config))
    plan.operands.push_back(plain_operand(place.name, "s32", "where the rows of sequences lie"));
  const fmha_nvfp4::SmemLayout layout = fmha_nvfp4::smem_layout(config);
  const auto add = [&](const fmha_nvfp4::SmemRegion& region, const char* content) {
    plan.smem.push_back({region.name,
                         region.offset,
                         region.bytes,
                         config.stages,
                         {{fmt::format("{} of a step on its way", content), "load", "barrier full"},
                          {fmt::format("{} of a step", content), "consumer", "barrier empty"}}});
  };
  add(layout.k, "K");
  add(layout.v, "V");
  add(layout.delta_s, "delta_s");
  plan.smem.push_back({layout.barriers.name, layout.barriers.offset, layout.barriers.bytes});
  plan.smem_bytes = layout.total_bytes;
  plan.entry_registers = fmha_nvfp4::register_budget(config).entry;
  for (int i = 0; i < fmha_nvfp4::kNumRoles; ++i) {
    const fmha_nvfp4::Role role = fmha_nvfp4::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string FmhaNvfp4Operator::launch_bounds() {
  return "tessera::fmha_nvfp4::num_threads(kConfig), tessera::fmha_nvfp4::ctas_per_sm(kConfig)";
}

std::string FmhaNvfp4Operator::call(const Config& config) {
  const auto place = [](bool is_there, const char* name) {
    return is_there ? fmt::format("static_cast<const int*>({})", name) : "nullptr";
  };
  return fmt::format(
      "tessera::fmha_nvfp4::kernel<kConfig>(\n      {{q, k, v, delta_s, row_shift, o, lse, {}, {}, {},\n       batch, "
      "heads_q, heads_kv, seqlen_q, seqlen_k, {}, {},\n       o_stride_head, o_stride_seqlen, {}, softmax_scale}})",
      place(has_ragged_queries(config), "cu_seqlens_q"), place(has_ragged_keys(config), "cu_seqlens_k"),
      place(config.seqused != UsedLengths::none, "seqused_k"), has_ragged_keys(config) ? "tokens_k" : "0",
      config.window == Window::sliding ? "window_size_left, window_size_right" : "-1, -1",
      has_ragged_queries(config) ? "0" : "o_stride_batch");
}

std::vector<SourceFile> FmhaNvfp4Operator::generated_headers(const Config&) { return {}; }

}  // namespace tessera

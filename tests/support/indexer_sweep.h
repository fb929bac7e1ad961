// Random indexers, their inputs, and two launches with padded rows judged by float64: for the sweep on a GPU and the
// emulator's tests. A case is its seed's.
#pragma once

#include "reference/indexer.h"
#include "tests/support/rows_sweep.h"

namespace tessera::indexer_sweep {

using rows_sweep::Draw;
using rows_sweep::Judged;

/// What the reference needs to know of a problem; sizes are not set.
inline reference::IndexerRun run_of(const Plan& plan) {
  const auto& problem = plan.problem.as<Indexer>();
  reference::IndexerRun run;
  run.heads = problem.heads;
  run.head_dim = problem.head_dim;
  run.format = problem.format;
  run.is_paged = problem.kv_layout == KvLayout::paged;
  run.page_size = problem.page_size;
  run.next_n = problem.next_n;
  run.context_lengths = problem.context_lengths;
  run.score_columns = problem.score_columns;
  run.outside = problem.outside;
  run.score_dtype = problem.score_dtype;
  run.fraction_bits = plan.mma_kind == "wgmma.f16" ? 13 : 24;
  return run;
}

inline std::map<std::string, std::int64_t> sizes_of(const reference::IndexerRun& run) {
  if (run.is_paged)
    return {
        {"batch", run.m / run.next_n}, {"pages", run.pages}, {"max_pages", run.max_pages}, {"columns", run.columns}};
  return {{"m", run.m}, {"n", run.n}, {"columns", run.columns}};
}

inline Indexer drawn_problem(Draw& draw, Arch arch) {
  constexpr int kHeads[] = {64, 48, 40, 32, 24, 16, 56, 8}, kDims[] = {128, 64, 32},
                kPages[] = {64, 8, 16, 32, 128, 256};
  Indexer problem{.arch = arch, .heads = draw.of(kHeads), .head_dim = draw.of(kDims)};
  problem.score_dtype = draw.one_in(3) ? DType::bf16 : DType::f32;
  problem.outside = draw.one_in(3) ? Outside::unwritten : Outside::minus_inf;
  if (draw.one_in(2)) {
    problem.kv_layout = KvLayout::paged;
    problem.page_size = draw.one_in(2) ? 64 : draw.of(kPages);
    problem.next_n = static_cast<int>(draw.pick(1, 4));
    if (draw.one_in(3)) problem.context_lengths = ContextLengths::query;
  } else if (draw.one_in(3)) {
    problem.score_columns = ScoreColumns::compressed;
  }
  if (arch.number == 90 && draw.one_in(4)) problem.mma_kind = MmaKind::mma_f16;
  if (draw.one_in(2)) problem.m = draw.pick(1, 100);
  if (problem.head_dim >= 64 && draw.one_in(3)) problem.format = IndexFormat::mxfp4;
  return problem;
}

/// keys, queries: at most so many.
inline Judged judged_case(const Plan& plan, Device& device, const Launcher& launcher, Draw& draw, std::int64_t keys,
                          std::int64_t queries) {
  reference::IndexerRun run = run_of(plan);
  run.max_multiply_adds = 500'000'000;
  run.m = draw.pick(0, queries);
  if (run.is_paged) {
    run.m = run.m / run.next_n * run.next_n;
    run.max_pages = draw.pick(draw.one_in(8) ? 0 : 1, std::max<std::int64_t>(keys / run.page_size, 1));
    run.pages = draw.pick(draw.one_in(8) ? 0 : 1, run.m / run.next_n * run.max_pages + 1);
    run.columns = draw.pick(0, run.max_pages * run.page_size + 70);
  } else {
    run.n = draw.pick(draw.one_in(8) ? 0 : 1, keys);
    run.columns = draw.one_in(2) ? run.n : draw.pick(0, run.n + 70);
  }
  std::map<std::string, std::int64_t> sizes = sizes_of(run);
  if (draw.one_in(2)) {
    const std::int64_t row = reference::index_row_bytes(run);
    sizes["q_stride_head"] = row + 16 * draw.pick(0, 2);
    sizes["q_stride_m"] = run.heads * sizes["q_stride_head"] + 16 * draw.pick(0, 2);
    sizes["weights_stride_m"] = run.heads + 4 * draw.pick(0, 2);
    sizes["scores_stride_m"] = std::max<std::int64_t>(run.columns, 1) + draw.pick(0, 9);
    if (run.is_paged) {
      sizes["cache_stride_page"] = run.page_size * (row + 4) + 16 * draw.pick(0, 3);
      sizes["block_table_stride_batch"] = run.max_pages + draw.pick(0, 3);
    } else {
      sizes["k_stride_n"] = row + 16 * draw.pick(0, 2);
    }
    if (run.format == IndexFormat::mxfp4) sizes["q_scales_stride_m"] = 4 * run.heads + 16 * draw.pick(0, 2);
  }
  constexpr reference::Fill kFills[] = {reference::Fill::normal, reference::Fill::uniform, reference::Fill::standard};
  const rows_sweep::Tensors inputs =
      reference::indexer_inputs(run, draw.of(kFills), static_cast<std::uint64_t>(draw.pick(0, 1 << 30)));
  Judged judged;
  rows_sweep::Launches launches(device, launcher, draw);
  const rows_sweep::Tensors outputs = launches.run(sizes, {}, inputs, judged.problems);
  const reference::Comparison result = reference::check_indexer(run, inputs, outputs.at("scores").view());
  judged.problems.insert(judged.problems.end(), result.problems.begin(), result.problems.end());
  judged.sizes = launches.sizes();
  judged.rows = result.rows_checked;
  if (result.rel_bound > 0) judged.worst = result.rel_error / result.rel_bound;
  return judged;
}

}  // namespace tessera::indexer_sweep

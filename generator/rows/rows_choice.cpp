// Candidates are threads of a row. A row operator moves bytes: what counts is that enough loads are on their way and
// that few lanes lie behind the row's end. Rows too few for the device get more threads each, and so do rows whose e2m1
// is made by integer arithmetic (SwiGLU and NVFP4 of 4,096 x 2,048 on an H100: 14.6 us with 32 bytes a thread, 15.3
// with 64), unless they are narrow: there a thread's position, slot and addresses cost as much as its vectors (inverse
// RoPE and NVFP4 of 65,536 x 512: 34.7 us with 128 bytes, 35.8 with 64, 38.1 with 32). Of mHC's streams a thread mixes
// one vector while the next is on its way (4,096 x 7,168: 191.5 us with 160 bytes, 201.7 with 80); where their mix is
// made of a product too, it has two on their way while it waits for that (on an H200: 79.4 us with 128 bytes, 85.9 with
// 256, 119.6 with 64). Up to 64 wide rows are shared by CTAs of a cluster (residual + RMSNorm of 7,168 columns, 1 row:
// 1.5 us with 8 CTAs, 2.1 with 1; 64 rows: 3.0 and 3.2; mHC's mix of 1 row: 2.0 and 4.2).
#include <algorithm>
#include <cmath>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/rows/rows_operator.h"

namespace tessera::rows {

namespace {

constexpr int kCtasOfRow[] = {1, 2, 4, 8};
// Threads a row and rows a CTA.
constexpr int kProducts[][2] = {{2, 128}, {2, 64}, {rows::kThreadsOfTile, rows::kRowsOfWarp}};
constexpr int kVectorsOfTurn = 4;
constexpr int kThreadsOfCta = 256, kFewThreadsOfCta = 64, kLeastShared = 512, kLeastOfShare = 128;
constexpr int kWantedBytes = 64;  // of x and of what is added to it, that a thread has on its way
constexpr Hint kFewRows = 512;    // for which a row gets more threads
constexpr Hint kMostShared = 64;  // rows that CTAs share, where that makes them faster
constexpr int kLeastGated = 256, kHalvedThreads = 512;
constexpr Hint kMostGated = 256, kLeastHalved = 265, kMostHalved = 2048;
constexpr int kNarrowBytes = 1024, kWantedOfStreams = 160, kWantedOfProduct = 128;
constexpr int kRegisters = 65536;  // of a multiprocessor

/// Bytes that a thread has under way before it uses the first.
int bytes_under_way(const Config& c) {
  const RowPart source = source_of(c.chain);
  int tensors = source == RowPart::gate ? 2 : source == RowPart::mhc_pre ? kStreams : 1;
  if (source == RowPart::combine) tensors = c.chain.steps[source_step(c.chain)].block;
  if (source == RowPart::compress) tensors = 2 * std::min(compressed_tokens(c.chain.steps[source_step(c.chain)]), 4);
  if (source == RowPart::mhc_post) tensors += kStreams;
  for (const RowStep& step : c.chain.steps) tensors += step.kind == RowPart::residual ? 1 : 0;
  return rows::vectors_of_thread(c) * rows::kVector * dtype_bytes(c.dtype) * tensors;
}

bool stores_sum(const RowChain& chain) {
  return std::any_of(chain.steps, chain.steps + step_count(chain),
                     [](const RowStep& step) { return step.kind == RowPart::residual && step.is_stored; });
}

/// Of those, the bytes that are best.
double wanted_bytes(const Config& c, const Rows& problem) {
  if (source_of(c.chain) == RowPart::mhc_post) return kWantedOfStreams;
  if (begins_with_product(c.chain)) return kWantedOfProduct;
  const bool is_narrow = c.columns * dtype_bytes(c.dtype) <= kNarrowBytes;
  if (problem.rows >= 0 && problem.rows <= kFewRows) {
    // Of CTAs of 1,024 threads a multiprocessor holds one: residual + RMSNorm of 128 / 256 x 7,168 on an H200, 3.70
    // / 6.49 us with them, 3.66 / 4.89 with 512 threads.
    if (problem.rows > kMostShared && c.columns > kHalvedThreads * rows::kVector && stores_sum(c.chain))
      return kWantedBytes;
    // K and V to e4m3 pages, 1 / 16 / 64 tokens on an H200: 1.8 / 2.3 / 2.4 us so, 1.8 / 2.1 / 3.0 with 16 bytes.
    if (is_narrow && has_paged_sink(c.chain) && has_part(c.chain, RowPart::scaled_8)) return kWantedBytes;
    const bool narrows = has_part(c.chain, RowPart::scaled_8) || has_part(c.chain, RowPart::cache);
    return is_narrow && narrows ? kWantedBytes / 4.0 : kWantedBytes / 2.0;
  }
  const bool is_busy = has_part(c.chain, RowPart::quantize) && c.conversion == Conversion::software;
  if (!is_busy) return kWantedBytes;
  return is_narrow ? 2.0 * kWantedBytes : kWantedBytes / 2.0;
}

bool is_shared_hint(const Rows& problem) { return problem.rows >= 0 && problem.rows <= kMostShared; }

bool writes_rows_alone(const RowChain& chain, bool may_have_scales = false) {
  return std::none_of(chain.steps, chain.steps + step_count(chain), [&](const RowStep& step) {
    const bool has_scales = step.kind == RowPart::quantize || step.kind == RowPart::scaled_8;
    const bool is_row = step.kind == RowPart::store || (may_have_scales && has_scales);
    return is_row_sink(step.kind) && (!is_row || step.is_placed || step.is_paged);
  });
}

/// Few rows of a gate: two CTAs of 128 threads have a row's loads on their way sooner than one of 256 (SwiGLU of 1 / 16
/// / 64 / 128 x 2,048 on an H200: 0.70 / 1.16 / 1.39 / 1.52 us, 0.84 / 1.26 / 1.55 / 1.69 with one CTA, FlashInfer 0.89
/// / 1.35 / 1.49 / 1.63; with NVFP4 0.8 / 1.3 / 1.6, 1.0 / 1.4 / 1.9 with one). 512 rows take 2.97 and 2.81 us.
bool is_few_gated(const Config& c, const Rows& problem) {
  return problem.rows >= 0 && problem.rows <= kMostGated && source_of(c.chain) == RowPart::gate &&
         c.threads_of_row == kLeastGated && sums_before(c.chain, kMaxRowSteps) == 0 &&
         writes_rows_alone(c.chain, is_shared_hint(problem));
}

/// Of CTAs of 512 threads and 48 registers two share a multiprocessor, of those of 256 five: 640 rows leave less of it
/// idle at their end (residual + RMSNorm of 640 / 1,280 / 4,096 x 7,168 on an H200: 10.2 / 18.7 / 55.5 us by halves,
/// 11.0 / 19.4 / 55.7 whole, torch.compile 10.4 / 20.3 / 58.1). Rows that are all there at once are faster whole (128 /
/// 256: 3.80 / 5.22 by halves, 3.66 / 4.89 whole).
bool is_halved(const Config& c, const Rows& problem) {
  return problem.rows >= kLeastHalved && problem.rows <= kMostHalved && stores_sum(c.chain) &&
         dtype_bytes(c.dtype) == 2 && c.threads_of_row == kHalvedThreads && rows::vectors_of_thread(c) == 2 &&
         c.ctas_of_row <= 2 && sums_before(c.chain, kMaxRowSteps) > 0 && writes_rows_alone(c.chain);
}

/// Whether CTAs might share a row: one cannot hold it, or rows are so few that multiprocessors are left over.
bool is_worth_sharing(const Config& c, const Rows& problem) {
  if (c.columns <= c.threads_of_row / 2 * rows::kVector) return false;  // most of them would have no column
  if (c.threads_of_row > kMaxThreads || is_few_gated(c, problem) || is_halved(c, problem)) return true;
  return is_shared_hint(problem) && c.threads_of_row >= kLeastShared;
}

}  // namespace

std::vector<Config> RowsOperator::candidates(const Rows& problem) {
  std::vector<Config> list;
  if (ends_in_product(problem.chain)) {
    for (const auto& [threads, rows] : kProducts)
      list.push_back({.dtype = problem.dtype,
                      .columns = problem.columns,
                      .conversion = conversion_of(problem.arch),
                      .threads_of_row = problem.threads_of_row.value_or(threads),
                      .rows_of_cta = problem.rows_of_cta.value_or(rows),
                      .ctas_of_row = problem.ctas_of_row.value_or(1),
                      .chain = problem.chain});
    return list;
  }
  // Few narrow rows: K and V to e4m3 pages, 1 / 16 / 64 tokens on an H200: 1.59 / 1.69 / 2.06 us with 64 threads a CTA,
  // 1.64 / 1.98 / 2.26 with 256; a token's 584 bytes 1.32 / 1.37 / 1.50 and 1.35 / 1.48 / 1.54 to 1.88.
  // K and V of 4,096 tokens to bf16 pages: 10.9 us with 128, 11.1 to 11.5 with 256.
  const bool has_heads = has_paged_sink(problem.chain) && !has_part(problem.chain, RowPart::scaled_8);
  const int of_cta = problem.rows >= 0 && problem.rows <= kFewRows ? kFewThreadsOfCta
                     : has_heads                                   ? kThreadsOfCta / 2
                                                                   : kThreadsOfCta;
  for (const int ctas : kCtasOfRow)
    for (const int threads : kThreadsOfRow) {
      Config c{.dtype = problem.dtype,
               .columns = problem.columns,
               .conversion = conversion_of(problem.arch),
               .chain = problem.chain};
      c.threads_of_row = problem.threads_of_row.value_or(threads);
      c.ctas_of_row = problem.ctas_of_row.value_or(ctas);
      const long long of_turn = static_cast<long long>(std::max(c.threads_of_row, 1)) * rows::kVector * kVectorsOfTurn;
      const long long turns = problem.columns > kMostHeld ? ceil_div(problem.columns, of_turn) : 1;
      c.turns_of_row = problem.turns_of_row.value_or(static_cast<int>(turns));
      // RMSNorm of 16,384 x 7,168 on an H200: 110.9 us with one row, 145.0 with two that wait for each other.
      const int most = rows::keeps_as_read(c) ? 1 : of_cta / std::max(c.threads_of_row, 1);
      c.rows_of_cta = problem.rows_of_cta.value_or(std::max(most, 1));
      if (problem.ctas_of_row && ctas > 1) continue;
      if (!problem.threads_of_row && threads / std::max(c.ctas_of_row, 1) > kMaxThreads) continue;
      if (ctas == 1 || (c.threads_of_row / ctas >= kLeastOfShare && is_worth_sharing(c, problem))) list.push_back(c);
    }
  return list;
}

double RowsOperator::score(const Config& config, const Rows& problem) {
  // Warps without rows help to split the weights alone; those of eight fill a multiprocessor twice.
  if (ends_in_product(config.chain)) {
    if (rows::shares_tiles(config)) return is_shared_hint(problem) ? 1.5 : 0.25;
    return config.rows_of_cta == kProducts[0][1] ? 1 : 0.5;
  }
  const double covered =
      static_cast<double>(config.columns) / (static_cast<double>(rows::vectors_of_thread(config)) *
                                             config.turns_of_row * config.threads_of_row * rows::kVector);
  const double off = std::fabs(std::log2(bytes_under_way(config) / wanted_bytes(config, problem)));
  // What a thread has of its row is in registers, beside some 32 others.
  const int registers = rows::vectors_of_thread(config) * rows::kVector + 32;
  // Of few rows in turns there are threads enough.
  const double turns = is_shared_hint(problem) ? 0.05 * std::log2(config.turns_of_row) : 0;
  const double spilled = registers * rows::threads_of_cta(config) > kRegisters ? 0.3 : 0;
  return covered - spilled - turns - 0.08 * off +
         (is_shared_hint(problem) || is_few_gated(config, problem) || is_halved(config, problem) ? 0.1 : -0.1) *
             std::log2(config.ctas_of_row);
}

}  // namespace tessera::rows

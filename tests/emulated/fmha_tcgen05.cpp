// Attention kernels for tcgen05, planned, compiled by NVRTC, run in the emulator and compared with float64: a pairwise
// cover of everything that a Config can be, the whole product of what every kernel has, and the shapes that each of
// them finds hard. No Blackwell device is asked.
//
// TESSERA_NIGHTLY=1 runs the product instead of the cover: every head_dim, mask, swizzle, way of P and type with twenty
// seeds, each of which draws lengths, heads and inputs, under all four schedules; and beside each another kernel of the
// same head_dim, mask, swizzle, way and type whose other facts (output, layout of V, window, used lengths, packed
// heads, split keys, pools) are drawn. TESSERA_SHARD=2/60 takes the third of sixty parts, TESSERA_SECONDS=400 begins
// nothing new after that time; `scripts/nightly attention` runs the parts side by side and writes down what they say.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "tests/emulated/fmha_cover.h"
#include "tests/emulated/fmha_run.h"
#include "tests/support/sample.h"
#include "tests/support/shard.h"

namespace tessera::fmha_tcgen05_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;
using testing::FmhaCombination;
using testing::FmhaVerdict;

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string() : text;
}
bool is_nightly() { return variable("TESSERA_NIGHTLY") == "1"; }

/// The cover's seeds take turns: on sm_103 no exponential is a polynomial.
const char* target_of_cover(std::uint64_t seed) { return seed % 2 == 1 ? "sm_100a" : "sm_103a"; }

FmhaVerdict run_drawn(const FmhaCombination& at, std::uint64_t seed, Compiler& compiler,
                      std::span<const Schedule> schedules, const char* target) {
  testing::FmhaCase drawn = testing::draw_case(at, seed);
  drawn.problem.arch = Arch::parse(target);
  const std::uint64_t seeds[] = {seed};
  FmhaVerdict verdict = testing::run_fmha(drawn.problem, drawn.sizes, compiler, schedules, seeds, drawn.facts);
  for (std::string& failure : verdict.failures)
    failure = fmt::format("{}, {}, {}", verdict.kernel, testing::text_of(drawn.sizes, drawn.facts), failure);
  return verdict;
}

TEST_CASE("attention on tcgen05: every pair of choices, ragged and grouped") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler || is_nightly()) return;
  const std::vector<FmhaCombination> cover = testing::fmha_cover();
  CHECK(cover.size() >= 55);  // head_dims by kinds of heads
  constexpr Schedule kOfSeeds[][2] = {{Schedule::lazy, Schedule::adversarial},
                                      {Schedule::eager, Schedule::adversarial}};
  const testing::Shard shard = testing::Shard::from_environment();
  double worst = 0;
  std::size_t cases = 0;
  for (std::size_t i = shard.index; i < cover.size(); i += shard.count)
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      // Of a sample each has one seed, and so one target.
      if (!testing::takes_all_cases() && (!testing::is_in_sample(i, 36) || seed != 1 + i % 2)) continue;
      ++cases;
      const FmhaVerdict verdict = run_drawn(cover[i], seed, *compiler, kOfSeeds[seed - 1], target_of_cover(seed));
      for (const std::string& failure : verdict.failures) FAIL_CHECK(failure);
      CHECK(verdict.runs == 2);
      worst = std::max(worst, verdict.error_share);
    }
  MESSAGE(cases, " cases, relative errors up to ", worst, " of what rounding explains");
}

/// The product's cases in the order in which a part takes them.
struct ProductCase {
  FmhaCombination at;
  std::uint64_t seed = 0;
  bool is_of_cover = false;
};

std::vector<ProductCase> product_cases(const testing::Shard& shard) {
  constexpr std::uint64_t kSeeds = 20, kSeedsOfDrawn = 2;
  std::vector<ProductCase> cases;
  const std::vector<FmhaCombination> cover = testing::fmha_cover(), core = testing::fmha_core();
  for (std::size_t i = shard.index; i < cover.size(); i += shard.count)
    for (std::uint64_t seed = 1; seed <= kSeedsOfDrawn; ++seed) cases.push_back({cover[i], seed, true});
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (std::size_t i = shard.index; i < core.size(); i += shard.count) {
      FmhaCombination plain = core[i];
      plain[testing::kAxisShape] = static_cast<int>((i + seed) % 3);
      plain[testing::kAxisHeads] = (i / 3 + seed) % 4 == 0 ? 1 : 0;
      cases.push_back({plain, seed});
      FmhaCombination drawn = testing::with_drawn_facts(core[i], (seed + 1) / kSeedsOfDrawn);
      drawn[testing::kAxisShape] = static_cast<int>((i + seed + 1) % 3);
      cases.push_back({drawn, seed});
    }
  }
  return cases;
}

TEST_CASE("attention on tcgen05: the whole product, in parts") {
  if (!is_nightly()) return;
  // The assembler's opinion is asked of the cover's kernels.
  const std::unique_ptr<Compiler> compiler = find_compiler(), with_assembler = find_compiler(true);
  if (!compiler) return;
  const testing::Shard shard = testing::Shard::from_environment();
  const std::string limit = variable("TESSERA_SECONDS");
  const double seconds = limit.empty() ? 1e9 : std::stod(limit);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const std::vector<ProductCase> cases = product_cases(shard);
  std::set<std::string> kernels;
  std::set<std::string> spilling;
  std::size_t done = 0, failed = 0;
  std::int64_t runs = 0;
  double worst = 0, cosine = 1, run_seconds = 0, reference_seconds = 0;
  for (const ProductCase& one : cases) {
    if (elapsed() > seconds) break;
    const FmhaVerdict verdict = run_drawn(one.at, one.seed, one.is_of_cover ? *with_assembler : *compiler, kSchedules,
                                          one.is_of_cover ? target_of_cover(one.seed) : "sm_100a");
    for (const std::string& failure : verdict.failures) FAIL_CHECK(failure);
    kernels.insert(verdict.kernel);
    if (verdict.spill_bytes > 0) spilling.insert(verdict.kernel);
    ++done;
    failed += verdict.failures.empty() ? 0U : 1U;
    runs += verdict.runs;
    worst = std::max(worst, verdict.error_share);
    cosine = std::min(cosine, verdict.cosine);
    run_seconds += verdict.run_seconds;
    reference_seconds += verdict.reference_seconds;
  }
  CHECK(done > 0);
  // For scripts/nightly, one line a part.
  fmt::print(
      R"(part {{"part": {}, "parts": {}, "cases": {}, "of": {}, "kernels": {}, "spilling": {}, "runs": {}, "failed": {}, )"
      R"("error_share": {:.4f}, "cosine": {:.8f}, "seconds": {:.1f}, "run_seconds": {:.1f}, "reference_seconds": {:.1f}}})"
      "\n",
      shard.index, shard.count, done, cases.size(), kernels.size(), spilling.size(), runs, failed, worst, cosine,
      elapsed(), run_seconds, reference_seconds);
}

TEST_CASE("attention on tcgen05: lengths of 0 and 1, many heads of one key head, all schedules") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha causal;
  causal.arch = Arch::parse("sm_100a");
  causal.head_dim = 64;
  causal.mask = Mask::causal;
  Fmha full = causal;
  full.mask = Mask::none;
  Fmha wide = causal;
  wide.head_dim = 512;
  const auto all = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  for (const Fmha& problem : {causal, full, wide}) {
    const std::int64_t d = problem.head_dim;
    check_runs(problem, {1, 1, 1, 1, 1, d}, *compiler, all, 2);
    check_runs(problem, {2, 2, 1, 5, 0, d}, *compiler, all, 1);
    check_runs(problem, {1, 1, 1, 0, 7, d}, *compiler, all, 1);
    check_runs(problem, {2, 3, 3, 1, 700, d}, *compiler, {Schedule::fair, Schedule::adversarial}, 2);
  }
  // More tiles than the four multiprocessors: every ring and slot is used again by the next tile. Scales that cannot be
  // folded into the exponential.
  check_runs(causal, {2, 2, 1, 600, 400, 64}, *compiler, all, 1, {.softmax_scale = 1.0});
  check_runs(causal, {1, 2, 1, 100, 300, 64}, *compiler, {Schedule::fair}, 1, {.softmax_scale = -0.3});
  check_runs(full, {1, 1, 1, 100, 300, 64}, *compiler, {Schedule::fair}, 1, {.softmax_scale = 0.0});
  check_runs(full, {1, 128, 1, 3, 200, 64}, *compiler, {Schedule::fair}, 1);
}

}  // namespace
}  // namespace tessera::fmha_tcgen05_test

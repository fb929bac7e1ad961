// Attention kernels for tcgen05, planned, compiled by NVRTC, run in the emulator and compared with float64: a pairwise
// cover of everything that a Config can be, and the shapes that each of them finds hard. No Blackwell device is asked.
// TESSERA_FMHA_ALL=1 in the environment runs every combination with twenty seeds (hours) instead of the cover.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <set>

#include "base/error.h"
#include "generator/plan.h"
#include "generator/words.h"
#include "tests/emulated/fmha_run.h"

namespace tessera {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

/// One value of each axis: an index into the lists below.
constexpr std::size_t kAxes = 9;
using Combination = std::array<int, kAxes>;

struct HeadDims {
  int head_dim, head_dim_v, cta_group;
};
constexpr HeadDims kHeadDims[] = {{16, 16, 1},   {32, 32, 1},   {64, 64, 1},   {96, 96, 1},
                                  {128, 128, 1}, {192, 128, 1}, {192, 192, 1}, {256, 256, 1},
                                  {512, 512, 2}, {128, 128, 2}, {256, 256, 2}};
struct Heads {
  int heads_q, heads_kv;
};
constexpr Heads kHeads[] = {{1, 1}, {2, 1}, {8, 1}};
struct Lengths {
  int seqlen_q, seqlen_k;
};
// Ragged in both; several tiles of both; more queries than keys: rows that see no key under the causal mask.
constexpr Lengths kLengths[] = {{70, 600}, {300, 333}, {260, 130}};
constexpr Combination kExtents{std::size(kHeadDims), 2, 4, 2, 2, 2, 2, std::size(kLengths), std::size(kHeads)};

Fmha problem_of(const Combination& at) {
  const HeadDims& dims = kHeadDims[at[0]];
  Fmha problem;
  problem.arch = Arch::parse("sm_100a");
  problem.head_dim = dims.head_dim;
  problem.head_dim_v = dims.head_dim_v;
  problem.cta_group = dims.cta_group;
  problem.mask = at[1] == 0 ? Mask::none : Mask::causal;
  problem.swizzle = static_cast<Swizzle>(at[2]);
  problem.p_path = at[3] == 0 ? ProbabilityPath::tmem : ProbabilityPath::smem;
  problem.dtype = at[4] == 0 ? DType::bf16 : DType::f16;
  problem.output = at[5] == 0 ? Output::normalized : Output::unnormalized;
  problem.v_layout = at[6] == 0 ? Layout::mn_major : Layout::k_major;
  return problem;
}
reference::FmhaSizes sizes_of(const Combination& at) {
  const HeadDims& dims = kHeadDims[at[0]];
  const Lengths& lengths = kLengths[at[7]];
  const Heads& heads = kHeads[at[8]];
  return {1, heads.heads_q, heads.heads_kv, lengths.seqlen_q, lengths.seqlen_k, dims.head_dim, dims.head_dim_v};
}
bool is_legal(const Combination& at) {
  try {
    planned_kernel(problem_of(at));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Combination> every_combination() {
  std::vector<Combination> all;
  Combination at{};
  for (;;) {
    if (is_legal(at)) all.push_back(at);
    std::size_t axis = 0;
    while (axis < kAxes && ++at[axis] == kExtents[axis]) at[axis++] = 0;
    if (axis == kAxes) return all;
  }
}

/// Combinations in which every pair of values of two axes appears that appears in any legal one: each time the one with
/// the most new pairs.
std::vector<Combination> pairwise_cover(const std::vector<Combination>& all) {
  using Pair = std::array<int, 4>;
  const auto pairs_of = [](const Combination& at) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < kAxes; ++a)
      for (std::size_t b = a + 1; b < kAxes; ++b)
        pairs.push_back({static_cast<int>(a), at[a], static_cast<int>(b), at[b]});
    return pairs;
  };
  std::set<Pair> open;
  for (const Combination& at : all)
    for (const Pair& pair : pairs_of(at)) open.insert(pair);
  const std::size_t stride = all.size() > 2000 ? 7 : 1;
  std::vector<Combination> cover;
  while (!open.empty()) {
    std::size_t best = 0, best_new = 0;
    for (std::size_t i = 0; i < all.size(); i += stride) {
      std::size_t fresh = 0;
      for (const Pair& pair : pairs_of(all[i])) fresh += open.contains(pair) ? 1U : 0U;
      if (fresh > best_new) {
        best = i;
        best_new = fresh;
      }
    }
    if (best_new == 0) {  // the steps passed over what is left
      for (std::size_t i = 0; i < all.size() && best_new == 0; ++i)
        for (const Pair& pair : pairs_of(all[i]))
          if (open.count(pair) != 0) best = i, best_new = 1;
    }
    for (const Pair& pair : pairs_of(all[best])) open.erase(pair);
    cover.push_back(all[best]);
  }
  return cover;
}

TEST_CASE("attention on tcgen05: every pair of choices, ragged and grouped") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const char* const all = std::getenv("TESSERA_FMHA_ALL");
  const bool runs_all = all != nullptr && std::string_view(all) == "1";
  const std::vector<Combination> legal = every_combination();
  const std::vector<Combination> chosen = runs_all ? legal : pairwise_cover(legal);
  MESSAGE(chosen.size(), " of ", legal.size(), " legal combinations");
  CHECK(chosen.size() >= 33);
  for (const Combination& at : chosen) {
    const auto schedules = {kSchedules[0], kSchedules[1], kSchedules[2], kSchedules[3]};
    const auto two = {Schedule::lazy, Schedule::adversarial};
    // With a scale of 1 scores differ by dozens: references move and O is rescaled in every few steps.
    const std::optional<double> scale = at[7] == 1 ? std::optional<double>(1.0) : std::nullopt;
    check_runs(problem_of(at), sizes_of(at), *compiler, runs_all ? schedules : two, runs_all ? 20 : 1,
               {.softmax_scale = scale});
  }
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
  const auto all = {kSchedules[0], kSchedules[1], kSchedules[2], kSchedules[3]};
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
}  // namespace tessera

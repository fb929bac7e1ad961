#include "reference/moe_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "reference/moe_route_lists.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

using Tensors = std::map<std::string, Tensor>;
constexpr double kLeastSum = 1e-20;

/// What a person may have done in place of what was asked.
struct Slips {
  bool weighs_biased = false;   ///< weights are of scores with the bias
  bool forgets_bias = false;    ///< experts are chosen without it
  bool takes_larger = false;    ///< of equals the larger index
  bool is_raw = false;          ///< weights are not divided by their sum
  bool forgets_scale = false;   ///< nor multiplied
  bool ignores_groups = false;  ///< experts are chosen from all groups
  bool takes_largest = false;   ///< of a group its largest counts alone
  bool sums_all = false;        ///< divided by the sum over all experts
};

/// A token's experts: what they are chosen by and weighted with, and by how much both may be off.
struct Scores {
  std::vector<double> score, score_error, choice, choice_error;
  std::vector<bool> may_be_taken, must_be_taken;  ///< by the groups of experts
};

bool has_groups(const MoeRouteRun& run, const Slips& slips) { return run.expert_groups > 1 && !slips.ignores_groups; }

/// Of each group of experts: whether it may be, and must be, among those that are taken.
void judge_groups(const MoeRouteRun& run, const Slips& slips, Scores& s) {
  const auto experts = static_cast<std::size_t>(run.experts);
  s.may_be_taken.assign(experts, true);
  s.must_be_taken.assign(experts, true);
  if (!has_groups(run, slips)) return;
  const auto groups = static_cast<std::size_t>(run.expert_groups), width = experts / groups;
  std::vector<double> low(groups), high(groups);
  for (std::size_t group = 0; group < groups; ++group) {
    // The two largest of the least, and of the most, that experts may have.
    for (const int sign : {-1, 1}) {
      std::vector<double> of_group;
      for (std::size_t i = group * width; i < (group + 1) * width; ++i)
        of_group.push_back(s.choice[i] + sign * s.choice_error[i]);
      std::partial_sort(of_group.begin(), of_group.begin() + 2, of_group.end(), std::greater<>());
      const double sum = of_group[0] + (slips.takes_largest ? 0 : of_group[1]);
      (sign < 0 ? low : high)[group] = sum + sign * kU * std::fabs(sum);
    }
  }
  for (std::size_t group = 0; group < groups; ++group) {
    std::int64_t surely_larger = 0, maybe_larger = 0;
    for (std::size_t other = 0; other < groups; ++other) {
      surely_larger += low[other] > high[group] ? 1 : 0;
      maybe_larger += other != group && high[other] >= low[group] ? 1 : 0;
    }
    for (std::size_t i = group * width; i < (group + 1) * width; ++i) {
      s.may_be_taken[i] = surely_larger < run.topk_groups;
      s.must_be_taken[i] = maybe_larger < run.topk_groups;
    }
  }
}

Scores scores_of(const MoeRouteRun& run, const Tensors& in, std::int64_t token, const Slips& slips) {
  const auto n = static_cast<std::size_t>(run.experts);
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = in.at("logits").at(token * run.experts + static_cast<std::int64_t>(i));
  Scores s{std::vector<double>(n), std::vector<double>(n), x, std::vector<double>(n, 0), {}, {}};
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double v : x) most = std::isnan(v) || std::isnan(most) ? v + most : std::max(most, v);
  for (const double v : x) sum += std::exp(v - most);
  for (std::size_t i = 0; i < n; ++i) {
    const double v = x[i];
    double relative = 16 * kU * std::max(1.0, std::fabs(v)), absolute = 0x1p-120;
    if (run.scoring == Scoring::softmax) {
      s.score[i] = std::exp(v - most) / sum;
      relative = 0x1p-20 + (static_cast<double>(run.experts) + 3 * (most - v)) * kU;
    } else if (run.scoring == Scoring::sigmoid) {
      s.score[i] = 1 / (1 + std::exp(-v));
    } else {
      const double softplus = std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v)));
      s.score[i] = std::sqrt(softplus);
      absolute += softplus_root_slack(softplus);
    }
    // Of -inf the score is 0, to the bit.
    s.score_error[i] = std::isfinite(relative) ? relative * s.score[i] + absolute : 0;
    if (run.bias == Bias::none && has_groups(run, slips)) {
      s.choice[i] = s.score[i];
      s.choice_error[i] = s.score_error[i];
    }
    if (run.bias == Bias::none) continue;
    const double biased = s.score[i] + in.at("bias").at(static_cast<std::int64_t>(i));
    if (slips.forgets_bias) continue;
    s.choice[i] = biased;
    s.choice_error[i] = s.score_error[i] + kU * std::fabs(biased);
    if (slips.weighs_biased) s.score[i] = biased;
  }
  judge_groups(run, slips, s);
  return s;
}

/// Whether a stands before b in the order of choice, or may.
bool may_precede(const MoeRouteRun& run, const Tensors& in, const Scores& s, std::int64_t token, std::int64_t a,
                 std::int64_t b, const Slips& slips) {
  const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
  const bool is_first = slips.takes_larger ? a > b : a < b;
  if (std::isnan(s.choice[i]) || std::isnan(s.choice[j]))
    return std::isnan(s.choice[i]) ? std::isnan(s.choice[j]) && is_first : true;
  const bool has_bias = run.bias != Bias::none && !slips.forgets_bias;
  const Tensor& x = in.at("logits");
  if (x.at(token * run.experts + a) == x.at(token * run.experts + b) &&
      (!has_bias || in.at("bias").at(a) == in.at("bias").at(b)))
    return is_first;
  const bool is_exact = !has_bias && !has_groups(run, slips);
  return s.choice[i] + s.choice_error[i] >= s.choice[j] - s.choice_error[j] && (!is_exact || s.choice[i] > s.choice[j]);
}

/// What is wrong with a token's experts: the slot, and the expert that ought to stand there or before; slot < 0:
/// nothing.
struct WrongChoice {
  std::int64_t slot = -1, found = 0, better = 0;
};

WrongChoice wrong_choice(const MoeRouteRun& run, const Tensors& in, const Tensors& out, std::int64_t token,
                         const Scores& s, const Slips& slips) {
  std::vector<bool> is_taken(static_cast<std::size_t>(run.experts), false);
  std::int64_t last = -1;
  for (std::int64_t slot = 0; slot < run.top_k; ++slot) {
    const auto expert = static_cast<std::int64_t>(out.at("topk_experts").at(token * run.top_k + slot));
    if (expert < 0 || expert >= run.experts || is_taken[static_cast<std::size_t>(expert)]) return {slot, expert, -1};
    if (!s.may_be_taken[static_cast<std::size_t>(expert)]) return {slot, expert, expert};
    if (last >= 0 && !may_precede(run, in, s, token, last, expert, slips)) return {slot - 1, last, expert};
    is_taken[static_cast<std::size_t>(expert)] = true;
    last = expert;
  }
  for (std::int64_t other = 0; other < run.experts; ++other)
    if (!is_taken[static_cast<std::size_t>(other)] && s.must_be_taken[static_cast<std::size_t>(other)] &&
        !may_precede(run, in, s, token, last, other, slips))
      return {run.top_k - 1, last, other};
  return {};
}

/// Of one token: weights that follow from the experts that were found.
void add_weights(const MoeRouteRun& run, const Tensors& out, std::int64_t token, const Scores& s, const Slips& slips,
                 ElementSums& sums) {
  double sum = 0, error = 0;
  const auto expert_at = [&](std::int64_t slot) {
    return static_cast<std::size_t>(out.at("topk_experts").at(token * run.top_k + slot));
  };
  if (slips.sums_all) sum = std::accumulate(s.score.begin(), s.score.end(), 0.0);
  for (std::int64_t slot = 0; slot < run.top_k; ++slot) {
    if (!slips.sums_all) sum += s.score[expert_at(slot)];
    error += s.score_error[expert_at(slot)];
  }
  const bool divides = run.renormalize == Renormalize::on && !slips.is_raw;
  const double factor = slips.forgets_scale ? 1 : run.scale;
  for (std::int64_t slot = 0; slot < run.top_k; ++slot) {
    const std::size_t expert = expert_at(slot);
    Element element;
    element.found = out.at("topk_weights").at(token * run.top_k + slot);
    const double weight = divides ? s.score[expert] / (sum + kLeastSum) : s.score[expert];
    const double of_weight =
        divides ? s.score_error[expert] / (sum + kLeastSum) + std::fabs(weight) * (error / (sum + kLeastSum) + 20 * kU)
                : s.score_error[expert];
    element.expected = weight * factor;
    if (std::isnan(element.expected) && std::isnan(element.found)) element = {};
    if (element.found == 0 && element.expected == 0 && element.bound == 0) {
      sums.add(element);
      continue;
    }
    element.bound = std::fabs(factor) * (of_weight * 1.01 + 2 * kU * std::fabs(weight)) + 0x1p-120;
    element.expected_square = element.bound * element.bound;
    element.at = {token, slot, 0, 0, 0};
    sums.add(element);
  }
}

struct Verdicts {
  ElementSums weights;
  std::vector<std::pair<std::int64_t, WrongChoice>> wrong;
};

Verdicts judge_tokens(const MoeRouteRun& run, const Tensors& in, const Tensors& out, const Slips& slips,
                      std::int64_t tokens, int jobs) {
  std::vector<Verdicts> pieces(static_cast<std::size_t>(tokens));
  parallel_for(tokens, jobs, [&](std::int64_t token) {
    Verdicts& piece = pieces[static_cast<std::size_t>(token)];
    const Scores s = scores_of(run, in, token, slips);
    const WrongChoice wrong = wrong_choice(run, in, out, token, s, slips);
    if (wrong.slot >= 0) piece.wrong.emplace_back(token, wrong);
    if (wrong.slot < 0 || wrong.better >= 0) add_weights(run, out, token, s, slips, piece.weights);
  });
  Verdicts all;
  for (const Verdicts& piece : pieces) {
    all.weights.merge(piece.weights);
    all.wrong.insert(all.wrong.end(), piece.wrong.begin(), piece.wrong.end());
  }
  return all;
}

constexpr std::pair<const char*, Slips> kSlips[] = {
    {"weights are of scores with the bias", {.weighs_biased = true}},
    {"experts are chosen without the bias", {.forgets_bias = true}},
    {"of equals the larger expert comes first", {.takes_larger = true}},
    {"weights are not divided by their sum", {.is_raw = true}},
    {"the factor of weights is left out", {.forgets_scale = true}},
    {"experts are chosen from all groups", {.ignores_groups = true}},
    {"groups are taken by their largest alone", {.takes_largest = true}},
    {"weights are divided by the sum over all experts", {.sums_all = true}},
};

std::string cause_of(const MoeRouteRun& run, const Tensors& in, const Tensors& out, int jobs) {
  const std::int64_t tokens = std::min<std::int64_t>(run.m, 256);
  for (const auto& [cause, slips] : kSlips) {
    const Verdicts verdicts = judge_tokens(run, in, out, slips, tokens, jobs);
    if (verdicts.wrong.empty() && verdicts.weights.mismatched == 0)
      return fmt::format("likely cause: {} (explains the {} tokens that were looked at)", cause, tokens);
  }
  const Scoring asked = run.scoring;
  for (const auto& [scoring, word] : {std::pair(Scoring::softmax, "softmax"), std::pair(Scoring::sigmoid, "sigmoid"),
                                      std::pair(Scoring::sqrt_softplus, "sqrt_softplus")}) {
    MoeRouteRun other = run;
    other.scoring = scoring;
    const Verdicts verdicts = judge_tokens(other, in, out, {}, tokens, jobs);
    if (scoring != asked && verdicts.wrong.empty() && verdicts.weights.mismatched == 0)
      return fmt::format("likely cause: scores are made by {} (explains the {} tokens that were looked at)", word,
                         tokens);
  }
  return {};
}

}  // namespace

Tensors moe_route_inputs(const MoeRouteRun& run, Fill kind, std::uint64_t seed) {
  Tensors made;
  Tensor logits(run.dtype, {run.m, run.experts});
  fill(logits, kind == Fill::standard ? Fill::normal : kind, seed, 0);
  const CounterRandom random(seed, 5);
  // Equals for each token, far apart and side by side, at the top as well.
  for (std::int64_t token = 0; token < run.m; ++token) {
    const auto at = static_cast<std::uint64_t>(token) * 4;
    const double high = 3 + random.uniform(at);
    for (int i = 0; i < 3; ++i) {
      const std::int64_t expert = random.integer(at + static_cast<std::uint64_t>(i) + 1, 0, run.experts - 1);
      logits.set(token * run.experts + expert, high);
      if (i == 0) logits.set(token * run.experts + (expert + 1) % run.experts, high);
    }
  }
  made.emplace("logits", std::move(logits));
  if (run.bias != Bias::none) {
    Tensor bias(DType::f32, {run.experts});
    fill(bias, Fill::uniform, seed, 1);
    // Some have the same, so that equal logits stay equals.
    for (std::int64_t i = 0; i < run.experts; i += 2) bias.set(i, 0.125);
    made.emplace("bias", std::move(bias));
  }
  return made;
}

Comparison check_moe_route(const MoeRouteRun& run, const Tensors& in, const Tensors& out, int jobs) {
  for (const char* const name : {"topk_experts", "topk_weights"})
    if (!out.contains(name)) throw Error(ErrorKind::usage, fmt::format("the output {} is missing", name));
  const Verdicts verdicts = judge_tokens(run, in, out, {}, run.m, jobs);
  Comparison result;
  result.rel_error = verdicts.weights.rel_error();
  result.rel_bound = verdicts.weights.rel_bound();
  result.max_abs_error = verdicts.weights.max_abs_error;
  result.cosine = verdicts.weights.cosine();
  result.rows_checked = result.rows_total = run.m;
  result.mismatches = verdicts.weights.mismatches;
  bool is_valid = true;
  if (!verdicts.wrong.empty()) {
    const auto& [token, wrong] = verdicts.wrong.front();
    is_valid =
        std::all_of(verdicts.wrong.begin(), verdicts.wrong.end(), [](const auto& w) { return w.second.better >= 0; });
    result.problems.push_back(
        fmt::format("topk_experts: {} of {} tokens have wrong experts; first token {}, slot {}: found {}, {}",
                    verdicts.wrong.size(), run.m, token, wrong.slot, wrong.found,
                    wrong.better < 0              ? std::string("no expert, or one that it has already")
                    : wrong.better == wrong.found ? std::string("of a group that is not taken")
                                                  : fmt::format("expert {} comes before it", wrong.better)));
  }
  if (verdicts.weights.mismatched > 0)
    result.problems.push_back(
        describe_mismatches("topk_weights", verdicts.weights, {{"token", run.m, {16, 64}}, {"slot", run.top_k, {}}}));
  if (!result.problems.empty()) {
    const std::string cause = cause_of(run, in, out, jobs);
    if (!cause.empty()) result.problems.push_back(cause);
  }
  // Lists follow from the experts that were found, as long as they are experts.
  if (is_valid && run.grouping != Grouping::none) check_route_lists(run, out, result.problems);
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference

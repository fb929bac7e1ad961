// The usual shapes x orders x scopes x places: what the weak schedule shows is allowed by the model's axioms, and what
// they allow it shows, but for what a scope that leaves threads out does not order.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/litmus/program.h"
#include "tests/support/sample.h"

namespace tessera::litmus {
namespace {

constexpr int kSeeds = 40, kMostSeeds = 10000;  // the more threads, the rarer what needs all of them in turn

}  // namespace

TEST_CASE("litmus: what the weak schedule shows is allowed, and what is allowed shows") {
  const auto all = programs();
  CHECK(all.size() >= 150);
  testing::Sample sample(48);
  int tests = 0;
  std::size_t shown = 0, allowed_in_all = 0;
  for (const auto& [program, shows_all] : all) {
    if (!sample.takes()) continue;
    CAPTURE(program.name);
    const Outcomes allowed = allowed_outcomes(program);
    Outcomes observed = observed_outcomes(program, 1, kSeeds);
    for (int last = 2 * kSeeds; shows_all && observed.size() < allowed.size() && last <= kMostSeeds; last += kSeeds)
      observed.merge(observed_outcomes(program, last - kSeeds + 1, last));
    for (const Outcome& outcome : observed) CHECK_MESSAGE(allowed.count(outcome) == 1, "forbidden: ", text_of(outcome));
    if (shows_all)
      for (const Outcome& outcome : allowed)
        CHECK_MESSAGE(observed.count(outcome) == 1, "not seen: ", text_of(outcome));
    ++tests;
    shown += observed.size();
    allowed_in_all += allowed.size();
  }
  fmt::print("{} of {} litmus tests: {} of {} allowed outcomes seen\n", tests, all.size(), shown, allowed_in_all);
}

TEST_CASE("litmus: the model's axioms say of known tests what the manual and the literature say") {
  const auto all = programs();
  const auto allows = [&](const std::string& name, const Outcome& outcome) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first.name == name; });
    REQUIRE_MESSAGE(found != all.end(), name);
    return allowed_outcomes(found->first).count(outcome) == 1;
  };
  CHECK(allows("MP+relaxed.gpu+apart+global", {1, 0, 1, 1}));
  CHECK_FALSE(allows("MP+rel-acq.gpu+apart+global", {1, 0, 1, 1}));
  CHECK(allows("MP+rel-acq.cta+apart+global", {1, 0, 1, 1}));  // the scope leaves the other thread out
  CHECK_FALSE(allows("MP+rel-acq.cta+one-cta+global", {1, 0, 1, 1}));
  CHECK_FALSE(allows("MP+fence.acq_rel.gpu+apart+global", {1, 0, 1, 1}));
  CHECK(allows("MP+one-fence.gpu+apart+global", {1, 0, 1, 1}));
  CHECK(allows("SB+fence.acq_rel.gpu+apart+global", {0, 0, 1, 1}));
  CHECK_FALSE(allows("SB+fence.sc.gpu+apart+global", {0, 0, 1, 1}));
  CHECK(allows("SB+fence.sc.cta+apart+global", {0, 0, 1, 1}));
  CHECK(allows("LB+relaxed.gpu+apart+global", {1, 1, 1, 1}));
  CHECK_FALSE(allows("LB+fence.acq_rel.gpu+apart+global", {1, 1, 1, 1}));
  CHECK(allows("IRIW+rel-acq.gpu+apart+global", {1, 0, 1, 0, 1, 1}));
  CHECK_FALSE(allows("IRIW+fence.sc.gpu+apart+global", {1, 0, 1, 0, 1, 1}));
  CHECK_FALSE(allows("CoRR+relaxed.gpu+apart+global", {1, 0, 1}));
  CHECK_FALSE(allows("WRC+rel-acq.gpu+apart+global", {1, 1, 0, 1, 1}));
  CHECK_FALSE(allows("2+2W+fence.sc.gpu+apart+global", {1, 1}));
}

}  // namespace tessera::litmus

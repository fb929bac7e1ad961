// Jit::warm: what it counts, when it stops, what it keeps.
#include <stdlib.h>

#include <thread>

#include "base/file.h"
#include "runtime/cache_folder.h"
#include "tests/support/jit_fixture.h"

namespace tessera {
namespace {

using jit_test::CountingCompiler, jit_test::Fixture;

TEST_CASE("jit: warm counts distinct kernels, survives a failure, resumes after it") {
  const Fixture fixture;
  std::vector<Problem> problems;
  for (const int head_dim : {64, 128, 256, 40}) {
    for (int copies = 0; copies < 3; ++copies) problems.emplace_back(Fmha{.head_dim = head_dim, .seqlen_q = 0});
  }
  fixture.compiler->fail_on = "d256";
  const WarmReport first = fixture.jit()->warm(problems);
  CHECK(first.problems == 12);
  CHECK(first.kernels == 3);
  CHECK(first.compiled == 2);
  CHECK(first.failed == 1);
  REQUIRE(first.rejected.size() == 3);
  CHECK(first.rejected.front().index == 9);
  CHECK(first.rejected.front().reason.find("head_dim 40") != std::string::npos);
  fixture.compiler->fail_on.clear();
  const WarmReport second = fixture.jit()->warm(problems);
  CHECK(second.hit == 2);
  CHECK(second.compiled == 1);
  CHECK(second.failed == 0);
}

TEST_CASE("jit: warm stops when asked and keeps what is done") {
  const Fixture fixture;
  fixture.compiler->delay_ms = 5;
  std::vector<Problem> problems;
  for (const int head_dim : {64, 128, 256}) {
    for (const DType dtype : {DType::bf16, DType::f16})
      problems.emplace_back(Fmha{.head_dim = head_dim, .dtype = dtype});
  }
  std::stop_source stop;
  WarmOptions options{.jobs = 1,
                      .on_progress =
                          [&](const WarmProgress& p) {
                            if (p.done == 2) stop.request_stop();
                          },
                      .stop = stop.get_token()};
  const WarmReport report = fixture.jit()->warm(problems, options);
  CHECK(report.was_cancelled);
  CHECK(report.compiled == 2);
  CHECK(report.entries.size() == 2);
  CHECK(fixture.jit()->warm(problems).hit == 2);
}

TEST_CASE("jit: warm that waits for another process stops when asked") {
  const Fixture fixture;
  const auto jit = fixture.jit();
  const std::vector<Problem> problems{Problem(Fmha{.head_dim = 64}), Problem(Fmha{.head_dim = 128})};
  CHECK(jit->warm(std::span(problems).first(1)).compiled == 1);  // makes the folders
  const WarmReport asked = jit->warm(std::span(problems).last(1), {.dry_run = true});
  CacheShared shared(jit->cache().options());
  const CacheFolder folder(shared, jit->cache().options().user_folder, true);
  const ProcessLock holder = folder.lock("build " + asked.entries.at(0).keys.entry);
  REQUIRE(holder.outcome() == LockOutcome::held);
  std::stop_source stop;
  const std::jthread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{60});
    stop.request_stop();
  });
  const WarmReport report = jit->warm(problems, {.jobs = 1, .stop = stop.get_token()});
  CHECK(report.was_cancelled);
  CHECK(report.hit == 1);
  CHECK(report.failed == 0);
  CHECK(report.entries.size() == 1);
  CHECK(fixture.compiler->compiles == 1);
}

TEST_CASE("jit: warm counts the distinct kernels before it compiles, and can be stopped while it counts") {
  const Fixture fixture;
  std::vector<Problem> problems;
  for (Hint batch = 1; batch <= 3000; ++batch) problems.emplace_back(Fmha{.head_dim = 64, .batch = batch});
  problems.emplace_back(Fmha{.head_dim = 128});
  std::vector<WarmCount> counts;
  WarmOptions options{.on_count = [&](const WarmCount& count) {
    CHECK(fixture.compiler->compiles == 0);
    counts.push_back(count);
  }};
  const WarmReport whole = fixture.jit()->warm(problems, options);
  REQUIRE(counts.size() == 3);
  CHECK(counts[0].problems == 1024);
  CHECK(counts[1].problems == 2048);
  CHECK(counts[1].total == 3001);
  CHECK(counts[2].problems == 3001);
  CHECK(counts[2].kernels == whole.kernels);
  CHECK(fixture.compiler->compiles == whole.kernels);
  CHECK_FALSE(whole.was_cancelled);

  std::stop_source stop;
  options.stop = stop.get_token();
  options.on_count = [&](const WarmCount& count) {
    CHECK(count.problems == 1024);
    stop.request_stop();
  };
  const WarmReport stopped = fixture.jit()->warm(problems, options);
  CHECK(stopped.was_cancelled);
  CHECK(stopped.kernels < whole.kernels);
  CHECK(stopped.entries.empty());
}

}  // namespace
}  // namespace tessera

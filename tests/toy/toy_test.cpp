// An operator of a stranger's, with a family for each of two targets, goes the whole way by what the library offers to
// everybody: planned, emitted, compiled, kept in the cache, launched in the emulator, and right. Nothing of it stands
// outside of this folder.
#include <doctest/doctest.h>

#include <vector>

#include "generator/selectors.h"
#include "generator/tuning.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/jit.h"
#include "tests/support/temporary_folder.h"
#include "tests/toy/toy_problem.h"

namespace tessera {
namespace {

std::string refusal(const Problem& problem) {
  try {
    make_plan(problem);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

/// y[i] as the reference has it: exact, for these are small whole numbers.
float expected(float x, float alpha, Activation activation) {
  return activation == Activation::relu && alpha * x < 0 ? 0 : alpha * x;
}

}  // namespace

TEST_CASE("toy: a problem of a stranger's operator is a value like the others") {
  Problem problem = ToyScale{};
  const Problem before = problem;
  CHECK(operator_name(problem) == "toy_scale");
  CHECK(problem == before);
  set_field(problem, "activation", "relu");
  set_field(problem, "threads", "64");
  CHECK(problem.as<ToyScale>().activation == Activation::relu);
  CHECK(before.as<ToyScale>().activation == Activation::none);
  CHECK(problem != before);
  CHECK(ProblemHash{}(problem) != ProblemHash{}(before));
  CHECK(problem != Problem(Fmha{}));
  CHECK(problem.get_if<Fmha>() == nullptr);
  CHECK(field_text(problem, "threads") == "64");
  CHECK(field_text(before, "threads") == "auto");
  CHECK_THROWS_WITH_AS(set_field(problem, "thread", "64"),
                       "toy_scale has no field thread: its fields are arch, activation, threads, n, did you mean "
                       "threads?",
                       Error);
}

TEST_CASE("toy: each target's family plans it, others are told which there are") {
  const Plan narrow = make_plan(ToyScale{});
  CHECK(narrow.family == "narrow");
  CHECK(narrow.kernel == "toy_scale_sm90a_none_t256_e1");
  CHECK(narrow.number("elements") == 1);
  CHECK(narrow.reason == "256 threads; the best of 2 legal candidates");
  CHECK(narrow.rejected.size() == 1);
  CHECK(planned_kernel(ToyScale{.n = 5}) == "toy_scale_sm90a_none_t128_e1");
  const Plan wide = make_plan(ToyScale{.arch = Arch::parse("sm_100a"), .threads = 512});
  CHECK(wide.family == "wide");
  CHECK(wide.number("threads") == 512);
  CHECK(wide.reason == "512 threads; the only legal candidate; pinned: threads 512");
  CHECK(refusal(ToyScale{.arch = Arch::parse("sm_120a")}) ==
        "toy_scale has no kernel for arch sm_120a: there is one for sm_90a, and for sm_100a");
  CHECK(refusal(ToyScale{.threads = 33}) == "toy_scale 33 threads: 33 threads, a multiple of 32 up to 1,024 needed");
  const std::vector<Problem> pinned = pinned_candidates(ToyScale{});
  REQUIRE(pinned.size() == 2);
  CHECK(pinned.front().as<ToyScale>().threads == 256);
}

TEST_CASE("toy: emitted, compiled, kept, launched, right") {
  const testing::TemporaryFolder folder;
  const auto open = [&] {
    return std::make_unique<Jit>(
        JitOptions{.cache_dir = folder.path, .templates_dir = TESSERA_SOURCE_DIR "/tests/toy/templates"});
  };
  auto jit = open();
  if (jit->compiler() == nullptr) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  for (const char* const arch : {"sm_90a", "sm_100a"})
    for (const Activation activation : {Activation::none, Activation::relu}) {
      CAPTURE(arch);
      const Problem problem = ToyScale{.arch = Arch::parse(arch), .activation = activation};
      const SourceBundle bundle = jit->bundle(make_plan(problem));
      CHECK(bundle.headers.size() == 4);  // config, kernel, spec/toy_scale, spec/types
      emulator::EmulatedDevice device{{.arch = arch, .detects_races = true}};
      constexpr std::int64_t kN = 1500;
      std::vector<float> x, y(kN);
      for (std::int64_t i = 0; i < kN; ++i) x.push_back(static_cast<float>(i % 17 - 8));
      const DevicePointer from = device.allocate(4 * kN), to = device.allocate(4 * kN);
      device.copy_to_device(from, x.data(), 4 * kN);
      device.poison(to, 0xFF, 4 * kN);
      const std::int64_t sizes[] = {kN};
      const double scalars[] = {3};
      const DevicePointer buffers[] = {from, to};
      jit->kernel(problem)->launch(device, {}, {.sizes = sizes, .scalars = scalars, .buffers = buffers});
      CHECK(device.synchronize().empty());
      device.copy_to_host(y.data(), to, 4 * kN);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) wrong += y[i] == expected(x[i], 3, activation) ? 0 : 1;
      CHECK(wrong == 0);
    }
  CHECK(jit->stats().cache.compiles == 4);
  jit = open();
  jit->kernel(Problem(ToyScale{}));
  CHECK(jit->stats().cache.compiles == 0);
  CHECK(jit->stats().cache.user_hits == 1);
  const std::vector<Problem> list{ToyScale{}, ToyScale{.n = 7}, ToyScale{.arch = Arch::parse("sm_120a")}};
  const WarmReport report = jit->warm(list);
  CHECK(report.kernels == 2);
  CHECK(report.rejected.size() == 1);
}

}  // namespace tessera

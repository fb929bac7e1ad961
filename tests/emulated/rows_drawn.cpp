// The chains that the sweep on a GPU draws, some of them in the emulator for three families.
#include <doctest/doctest.h>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/support/rows_sweep.h"
#include "tests/support/sample.h"

namespace tessera::rows_drawn_test {

TEST_CASE("rows: drawn chains, twice over poison, with padded rows") {
  std::unique_ptr<Compiler> compiler;
  try {
    compiler = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  constexpr const char* kTargets[] = {"sm_90a", "sm_100a", "sm_120a"};
  int refused = 0;
  testing::Sample sample(12);
  for (std::uint64_t seed = 0; seed < 96; ++seed) {
    if (!sample.takes()) continue;
    CAPTURE(seed);
    rows_sweep::Draw draw(seed);
    const Arch arch = Arch::parse(kTargets[seed % 3]);
    const Problem problem = rows_sweep::drawn_problem(draw, arch, 700, refused);
    CAPTURE(planned_kernel(problem));
    emulator::EmulatedDevice device({.arch = arch.to_string(), .detects_races = true});
    const Launcher launcher(device, make_plan(problem).launch, compiler->compile(emit(make_plan(problem))));
    const rows_sweep::Judged judged = rows_sweep::judged_case(problem, device, launcher, draw, 20);
    CAPTURE(judged.sizes);
    for (const std::string& text : judged.problems) FAIL_CHECK(text);
  }
}

}  // namespace tessera::rows_drawn_test

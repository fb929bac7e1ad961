// The checks of a product, apart from what runs it: bench/emulator.cpp runs products too, and links no doctest.
#include <doctest/doctest.h>

#include "tests/emulated/gemm_tcgen05_run.h"

namespace tessera {

void check_product(const ProductCase& test, Compiler& compiler, const std::vector<emulator::Schedule>& schedules) {
  CAPTURE(test.name);
  emulator::DeviceOptions options;
  options.arch = product_arch(test);
  options.detects_races = true;
  emulator::EmulatedDevice device(options);
  ProductRun run(test, compiler, device);
  std::vector<std::byte> first;
  for (const emulator::Schedule schedule : schedules) {
    CAPTURE(static_cast<int>(schedule));
    device.set_schedule(schedule, 3);
    std::vector<Finding> findings;
    const std::vector<std::byte> result = run.run(findings);
    for (const Finding& finding : findings) FAIL_CHECK(finding.message);
    const reference::Comparison comparison = run.compare();
    for (const std::string& problem : comparison.problems) FAIL_CHECK(problem);
    CHECK(comparison.pass);
    CHECK(run.are_gaps_intact());
    if (first.empty()) first = result;
    CHECK(first == result);
  }
}

}  // namespace tessera

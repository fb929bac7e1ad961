// The litmus tests on a GPU: whatever it shows must be among what the axioms allow, and so among what the emulator's
// weak schedule may show. Ends with 1 where it is not.
//
//   litmus_gpu [launches of each test, 200]
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "tessera/cuda_device.h"
#include "tessera/error.h"
#include "tests/litmus/program.h"

using namespace tessera;

int main(int argc, char** argv) {
  const int launches = argc > 1 ? std::atoi(argv[1]) : 200;
  std::unique_ptr<Device> device;
  try {
    device = make_cuda_device();
  } catch (const Error& error) {
    fmt::print(stderr, "skipped: {}\n", error.what());
    return 77;
  }
  if (device->info().compute_major < 9) return 77;
  std::size_t tests = 0, shown = 0, allowed_in_all = 0, forbidden = 0;
  for (const auto& [program, shows_all] : litmus::programs()) {
    const litmus::Outcomes allowed = litmus::allowed_outcomes(program);
    const litmus::Outcomes measured = litmus::measured_outcomes(*device, program, launches);
    for (const litmus::Outcome& outcome : measured)
      if (allowed.count(outcome) == 0)
        fmt::print("{}: forbidden: {}\n", program.name, litmus::text_of(outcome)), ++forbidden;
    fmt::print("{}: {} of {}\n", program.name, measured.size(), allowed.size());
    ++tests;
    shown += measured.size();
    allowed_in_all += allowed.size();
  }
  fmt::print("{}: {} tests, {} launches each: {} of {} allowed outcomes seen, {} forbidden\n", device->info().name,
             tests, launches, shown, allowed_in_all, forbidden);
  return forbidden == 0 ? 0 : 1;
}

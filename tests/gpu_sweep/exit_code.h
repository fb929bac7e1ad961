// How the programs of sweeps end: 0 no failure, 1 failures, 77 no GPU here, 5 an Error, which is printed.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tessera/cuda_device.h"
#include "tessera/error.h"

namespace tessera::gpu_sweep {

constexpr int kSkipped = -1;

/// What sweep(device) gives on the first GPU, the number of its failures; kSkipped, with the reason printed, where
/// there is none.
template <class Sweep>
int on_gpu(Sweep&& sweep) {
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) {
    fmt::print("skipped: {}\n", reason);
    return kSkipped;
  }
  const auto device = make_cuda_device();
  return sweep(*device);
}

/// Of the program whose failures, or kSkipped, run() gives.
template <class Run>
int exit_code(const char* program, Run&& run) {
  try {
    const int failures = run();
    return failures == kSkipped ? 77 : failures == 0 ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    for (const std::string& note : error.notes()) fmt::print(stderr, "  {}\n", note);
    return 5;
  }
}

}  // namespace tessera::gpu_sweep

// Attention kernels for tcgen05 in the emulator: planned, compiled, launched, compared with float64.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "base/compiler.h"
#include "emulator/device.h"
#include "generator/problem.h"
#include "reference/fmha.h"

namespace tessera::testing {

/// What a launch takes besides its lengths. What lies behind used lengths is NaN in memory.
struct FmhaLaunchFacts {
  std::optional<double> softmax_scale{};
  std::int64_t window_size_left = -1, window_size_right = -1;
  std::optional<std::int64_t> num_splits{};
  std::vector<std::int64_t> seqused_q{}, seqused_k{};
};

/// Nothing, with a message, where there is no NVRTC.
std::unique_ptr<Compiler> find_compiler();

/// Under some schedules and seeds, with the race detector: nothing is reported, rows are right, bits are equal.
void check_runs(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                std::initializer_list<emulator::Schedule> schedules, std::uint64_t seeds,
                const FmhaLaunchFacts& facts = {});

}  // namespace tessera::testing

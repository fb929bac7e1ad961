// How long a kernel would take on a described GPU (docs/time.md): what `tune --device emulator` compares and
// `plan --time` shows.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/emulator/device.h"
#include "tessera/jit.h"
#include "tessera/plan.h"
#include "tessera/targets.h"

namespace tessera::cli {

struct PredictedTime {
  std::vector<emulator::LaunchTime> kernels;
  std::map<std::string, std::int64_t> sizes;  ///< of the launch, by name
  std::string fault;                          ///< why the launch failed; empty: it did not
};

/// At the sizes that the plan's problem expects, and those that `run` takes where it expects none. Throws Error{usage}
/// when the GPU does not run the plan's target; `time` is what --time was given, for that message.
PredictedTime predicted_time(Kernel& kernel, const std::shared_ptr<const emulator::GpuTime>& gpu,
                             const std::string& time);
/// Throws as above.
void check_target(const Plan& plan, const emulator::GpuTime& gpu, const std::string& time);

/// The described GPU that a target's default kernels are chosen for by predictions; null where they are by a clock.
std::shared_ptr<const emulator::GpuTime> gpu_of_choices(Arch arch);

/// "not measured; median error of this GPU's predictions 14 %: ...", or that nothing has been compared.
std::string error_text(const emulator::GpuTime& gpu);

}  // namespace tessera::cli

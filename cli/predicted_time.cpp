#include "cli/predicted_time.h"

#include <fmt/format.h>

#include "cli/device_run.h"
#include "cli/run_operator.h"
#include "cli/time_inputs.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::cli {

void check_target(const Plan& plan, const emulator::GpuTime& gpu, const std::string& time) {
  const std::string arch = plan.arch.to_string();
  const auto target = parse_arch(arch), own = parse_arch(emulator::arch_of(gpu));
  if (!target || !own || !runs_on(*target, own->compute_major(), own->compute_minor()))
    throw Error(ErrorKind::usage, fmt::format("--time {}: {} runs {}, and the problem is for {}", time,
                                              emulator::name_of(gpu), emulator::arch_of(gpu), arch));
}

PredictedTime predicted_time(Kernel& kernel, const std::shared_ptr<const emulator::GpuTime>& gpu,
                             const std::string& time) {
  const Plan& plan = kernel.plan();
  check_target(plan, *gpu, time);
  emulator::DeviceOptions options;
  options.arch = emulator::arch_of(*gpu);
  options.time = gpu;
  options.skips_values = true;
  options.num_sms = emulator::sms_of(*gpu);
  emulator::EmulatedDevice device(options);
  const std::unique_ptr<RunOperator> op = make_run_operator(plan.op);
  const LaunchSizes launch(plan.launch);
  RunFlags flags;
  const std::vector<std::int64_t> sizes = sizes_of_run(*op, plan, flags, device.info());
  flags.sizes = launch.by_name(sizes);
  PredictedTime predicted;
  predicted.sizes = flags.sizes;
  const auto inputs = inputs_for_time(*op, plan, launch, sizes, flags);
  DeviceRun run(device, kernel, sizes, op->scalars(plan, flags), inputs);
  run.launch();
  for (const emulator::EmulatorFinding& finding : device.take_findings())
    if (finding.is_failure) predicted.fault = finding.to_string();
  predicted.kernels = device.take_times();
  return predicted;
}

std::shared_ptr<const emulator::GpuTime> gpu_of_choices(Arch arch) {
  if (has_family(arch, MmaFamily::tcgen05)) return emulator::find_gpu_time("b200");  // the B300's kernels are its, too
  if (arch.compute_major() != 12) return nullptr;
  return emulator::find_gpu_time(arch.number == 121 ? "gb10" : "rtx5090");
}

std::string error_text(const emulator::GpuTime& gpu) {
  const emulator::PredictionError error = emulator::error_of(gpu);
  if (error.source.empty())
    return fmt::format("not measured; no prediction for the {} has been compared with a clock", emulator::name_of(gpu));
  return fmt::format("not measured; where predictions were compared their median error was {:g} %: {}",
                     error.median_percent, error.source);
}

}  // namespace tessera::cli

#include "cli/time_inputs.h"

namespace tessera::cli {

std::map<std::string, reference::Tensor> inputs_for_time(const RunOperator& op, const Plan& plan,
                                                         const LaunchSizes& launch,
                                                         const std::vector<std::int64_t>& sizes,
                                                         const RunFlags& flags) {
  RunFlags timed = flags;
  timed.is_timed = true;
  if (op.has_time_by_values()) return op.inputs(plan, launch, sizes, timed);
  std::map<std::string, reference::Tensor> inputs;
  for (const BufferSpec& buffer : plan.launch.buffers) {
    if (buffer.role == BufferRole::output) continue;
    if (buffer.dtype.starts_with("s") || buffer.dtype.starts_with("u")) return op.inputs(plan, launch, sizes, timed);
    std::vector<std::int64_t> shape;
    for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
    inputs.emplace(buffer.name, reference::Tensor(*reference::dtype_from_name(buffer.dtype), shape));
  }
  return inputs;
}

}  // namespace tessera::cli

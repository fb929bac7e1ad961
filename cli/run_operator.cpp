// The operators that `run` and `tune` know, and the sizes of a launch of theirs.
#include "cli/run_operator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tessera::cli {

// Each in a file of its own.
std::unique_ptr<RunOperator> make_run_copy2d();
std::unique_ptr<RunOperator> make_run_fmha();
std::unique_ptr<RunOperator> make_run_gemm();
std::unique_ptr<RunOperator> make_run_block_scale(std::string_view op);

namespace {

struct Row {
  std::string_view op;
  std::unique_ptr<RunOperator> (*make)();
};

/// A row for each operator that has a reference.
constexpr Row kRows[] = {{"copy2d", make_run_copy2d},
                         {"fmha", make_run_fmha},
                         {"gemm", make_run_gemm},
                         {"quantize", [] { return make_run_block_scale("quantize"); }},
                         {"dequantize", [] { return make_run_block_scale("dequantize"); }},
                         {"convert_scales", [] { return make_run_block_scale("convert_scales"); }},
                         {"gemv", [] { return make_run_block_scale("gemv"); }}};

}  // namespace

std::unique_ptr<RunOperator> make_run_operator(std::string_view op) {
  for (const Row& row : kRows)
    if (row.op == op) return row.make();
  throw Error(ErrorKind::unsupported, fmt::format("run has no reference for {}", op));
}

std::vector<std::int64_t> sizes_of_run(const RunOperator& op, const Plan& plan, const RunFlags& flags,
                                       const DeviceInfo& device, ErrorKind refusal) {
  const LaunchSizes launch(plan.launch);
  std::vector<GivenSize> given = with_sizes(op.sizes(plan, flags), flags.given_sizes);
  const auto is_num_sms = [](const auto& size) { return size.name == "num_sms"; };
  if (std::any_of(plan.launch.sizes.begin(), plan.launch.sizes.end(), is_num_sms) &&
      std::none_of(given.begin(), given.end(), is_num_sms))
    given.push_back({"num_sms", device.num_sms});
  if (flags.pads_rows)
    for (const GivenSize& pitch : launch.padded_pitches(given)) given.push_back(pitch);
  std::optional<std::vector<std::int64_t>> sizes = launch.complete(given);
  if (!sizes) throw Error(ErrorKind::usage, fmt::format("not all sizes of {} are known", plan.op));
  if (const auto problems = launch.problems(*sizes); !problems.empty())
    throw Error(refusal, problems.front(), {problems.begin() + 1, problems.end()});
  return std::move(*sizes);
}

}  // namespace tessera::cli

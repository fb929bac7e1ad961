// Times the kernels of a list of problems on the GPU here: bench_candidates LIST.jsonl OUT.jsonl. A line of the list is
// a problem and the pins of its kernels, as candidates.py draws them; a line of the result has their times. Each launch
// is timed as `tessera run` does it, between two events after the L2 was overwritten, with the same inputs; but inputs
// are made once for all kernels of a problem, on all cores and ahead of the GPU, results are not looked at, and all
// kernels are compiled before anything is timed: some hundred kernels a minute.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/call.h"
#include "cli/device_run.h"
#include "cli/run_operator.h"
#include "tessera/cuda_device.h"
#include "tessera/error.h"
#include "tessera/jit.h"

namespace {

using namespace tessera;

constexpr int kRounds = 3, kRepeat = 9;
constexpr std::size_t kAhead = 12;  // problems whose inputs are made before their turn

/// "gemm --m 512 ..." as `tessera run` reads it.
Problem read_problem(const std::string& line) {
  std::istringstream words(line);
  std::string subject, word;
  words >> subject;
  std::vector<std::string> arguments;
  while (words >> word) arguments.push_back(word);
  for (const char* extra : {"--arch", "sm_90a"}) arguments.emplace_back(extra);
  cli::FlagSet flags;
  cli::SelectorFlags selectors;
  selectors.add_to(flags);
  if (!flags.parse("run", arguments).empty()) throw Error(ErrorKind::usage, line + ": one problem a line");
  std::vector<Problem> all;
  cli::read_problems(subject, selectors).for_each([&](const Problem& problem, std::size_t) { all.push_back(problem); });
  if (all.size() != 1) throw Error(ErrorKind::usage, line + ": one problem a line");
  return all.front();
}

struct One {
  std::string problem;
  std::vector<std::string> pins;
  std::vector<Problem> kernels;
};

using Inputs = std::map<std::string, reference::Tensor>;

/// A launch of a kernel, but for its inputs.
struct Setting {
  std::unique_ptr<cli::RunOperator> op;
  cli::RunFlags flags;
  Plan plan;
  std::vector<std::int64_t> sizes;
};

Setting setting_of(const Problem& problem, const DeviceInfo& device) {
  Setting setting{cli::make_run_operator(operator_name(problem)), {}, make_plan(problem), {}};
  setting.flags.inputs = "standard";
  setting.sizes = cli::sizes_of_run(*setting.op, setting.plan, setting.flags, device);
  setting.flags.sizes = LaunchSizes(setting.plan.launch).by_name(setting.sizes);
  return setting;
}

Inputs inputs_of(const One& one, const DeviceInfo& device) {
  const Setting setting = setting_of(one.kernels.front(), device);
  return setting.op->inputs(setting.plan, LaunchSizes(setting.plan.launch), setting.sizes, setting.flags);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Its kernels in turns, so that a clock that drifts does not order them.
nlohmann::json times_of(const One& one, const Inputs& inputs, Jit& jit, Device& device) {
  std::vector<std::vector<double>> rounds(one.kernels.size());
  std::vector<std::string> faults(one.kernels.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < one.kernels.size(); ++i) {
      if (!faults[i].empty()) continue;
      try {
        const Setting setting = setting_of(one.kernels[i], device.info());
        const std::shared_ptr<Kernel> kernel = jit.kernel(one.kernels[i]);
        cli::DeviceRun run(device, *kernel, setting.sizes, setting.op->scalars(setting.plan, setting.flags), inputs);
        rounds[i].push_back(run.time_us(kRepeat));
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::device) throw;
        faults[i] = error.what();
      }
    }
  }
  nlohmann::json runs = nlohmann::json::array();
  for (std::size_t i = 0; i < one.kernels.size(); ++i) {
    nlohmann::json run{{"pins", one.pins[i]}, {"kernel", make_plan(one.kernels[i]).kernel}};
    if (faults[i].empty())
      run["time_us"] = median(rounds[i]), run["rounds"] = rounds[i];
    else
      run["fault"] = faults[i];
    runs.push_back(std::move(run));
  }
  return runs;
}

int run(const char* list, const char* out) {
  std::vector<One> all;
  std::vector<Problem> kernels;
  std::ifstream file(list);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    One one{json["problem"], json["pins"], {}};
    for (const std::string& pins : one.pins) one.kernels.push_back(read_problem(one.problem + " " + pins));
    kernels.insert(kernels.end(), one.kernels.begin(), one.kernels.end());
    all.push_back(std::move(one));
  }
  Jit jit(JitOptions::from_environment());
  const WarmReport report = jit.warm(kernels);
  fmt::print("{} problems, {} kernels in the cache\n", all.size(), report.entries.size());
  std::fflush(stdout);
  if (std::string reason = cuda_unavailable_reason(); !reason.empty()) throw Error(ErrorKind::device, reason);
  const std::unique_ptr<Device> device = make_cuda_device(0, true);
  std::deque<std::future<Inputs>> ahead;
  std::size_t next = 0;
  std::ofstream results(out);
  for (const One& one : all) {
    for (; next < all.size() && ahead.size() < kAhead; ++next)
      ahead.push_back(
          std::async(std::launch::async, [&all, &device, next] { return inputs_of(all[next], device->info()); }));
    const Inputs inputs = ahead.front().get();
    ahead.pop_front();
    results << nlohmann::json{{"problem", one.problem}, {"runs", times_of(one, inputs, jit, *device)}}.dump()
            << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: bench_candidates LIST.jsonl OUT.jsonl\n", stderr);
    return 2;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_candidates: {}\n", error.what());
    return 1;
  }
}

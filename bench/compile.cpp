// What a kernel costs before it runs: cold compile of each default attention kernel, warm-up over 1, 2, 4, ... threads,
// a hit in memory, a hit on disk by a fresh process's Jit. No GPU. Prints Markdown.
//
//   bench_compile [--repeat 5] [--max-threads N] [--head-dim N]
//
// --head-dim: cold compiles of this one alone, nothing else.

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "tessera/jit.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

template <class Function>
double milliseconds(Function&& function) {
  const auto start = Clock::now();
  function();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Of one head_dim, or of all.
std::vector<Problem> default_kernels(int only = 0) {
  std::vector<Problem> problems;
  for (const int head_dim : {64, 128, 256}) {
    if (only != 0 && head_dim != only) continue;
    for (const Mask mask : {Mask::none, Mask::causal}) {
      for (const DType dtype : {DType::bf16, DType::f16}) {
        for (const Output output : {Output::normalized, Output::unnormalized}) {
          problems.emplace_back(Fmha{.head_dim = head_dim, .dtype = dtype, .mask = mask, .output = output});
        }
      }
    }
  }
  return problems;
}

JitOptions in_folder(const std::filesystem::path& folder) {
  JitOptions options;
  options.cache_dir = folder;
  return options;
}

void cold_compiles(int repeat, int only) {
  JitOptions options;
  options.use_disk_cache = false;
  Jit jit(options);
  if (jit.compiler() == nullptr) throw Error(ErrorKind::compile, "no NVRTC here: see tessera doctor");
  jit.compiler()->compile(jit.bundle(make_plan(Copy2d{})));  // the library's own start-up is not a kernel's
  fmt::print(
      "Cold compile, one thread, median of {} (ms):\n\n| kernel | compile | registers | spills |\n|---|---|---|---|\n",
      repeat);
  std::vector<double> of_128;
  for (const Problem& problem : default_kernels(only)) {
    const Plan plan = make_plan(problem);
    const SourceBundle bundle = jit.bundle(plan);
    std::vector<double> times;
    Image image;
    for (int i = 0; i < repeat; ++i) times.push_back(milliseconds([&] { image = jit.compiler()->compile(bundle); }));
    const EntryReport report = image.report.entries.empty() ? EntryReport{} : image.report.entries.front();
    fmt::print("| {} | {:.0f} | {} | {} |\n", plan.kernel, median(times), report.registers,
               report.spill_store_bytes + report.spill_load_bytes);
    if (problem.as<Fmha>().head_dim == 128) of_128.push_back(median(times));
  }
  if (!of_128.empty()) fmt::print("\nMedian at head_dim 128: {:.0f} ms\n\n", median(of_128));
}

void warm_scaling(const std::filesystem::path& folder, int max_threads) {
  const std::vector<Problem> problems = default_kernels();
  fmt::print("warm of {} kernels into an empty folder:\n\n| threads | seconds |\n|---|---|\n", problems.size());
  for (int threads = 1; threads <= max_threads; threads *= 2) {
    Jit jit(in_folder(folder / std::to_string(threads)));
    const WarmReport report = jit.warm(problems, {.jobs = threads});
    fmt::print("| {} | {:.2f}{} |\n", threads, report.seconds, report.failed > 0 ? " (failures)" : "");
  }
}

void hits(const std::filesystem::path& folder) {
  std::vector<double> disk;
  for (int i = 0; i < 50; ++i) {
    Jit jit(in_folder(folder / "1"));
    jit.compiler();
    jit.kernel(Problem(Copy2d{}));  // opens folders, spins up what is lazy
    disk.push_back(1000 * milliseconds([&] { jit.kernel(Fmha{}); }));
  }
  Jit jit(in_folder(folder / "1"));
  jit.kernel(Fmha{});
  constexpr int kCalls = 1'000'000;
  const double total = milliseconds([&] {
    for (int i = 0; i < kCalls; ++i) static_cast<void>(jit.kernel(Fmha{}));
  });
  fmt::print("\nHit on disk by a Jit that does not hold the kernel (plan, keys, read, verify): {:.0f} us\n",
             median(disk));
  fmt::print("Hit in memory: {:.0f} ns\n", 1e6 * total / kCalls);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  int repeat = 5;
  int only = 0;
  int max_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--repeat") == 0) repeat = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--head-dim") == 0) only = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--max-threads") == 0) max_threads = std::atoi(argv[i + 1]);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  try {
    char text[] = "/tmp/tessera-bench-XXXXXX";
    const std::filesystem::path folder = ::mkdtemp(text);
    tessera::cold_compiles(repeat, only);
    if (only == 0) {
      tessera::warm_scaling(folder, max_threads);
      tessera::hits(folder);
    }
    std::filesystem::remove_all(folder);
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "bench_compile: {}\n", error.what());
    return 1;
  }
}

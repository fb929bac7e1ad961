// What the assembler has to say against a planned kernel, for the tests that compile many.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/support/sample.h"

namespace tessera {

/// Without NVRTC the test is reported as skipped.
inline std::unique_ptr<Compiler> nvrtc_or_skip() {
  if (!find_nvrtc()) {
    fmt::print(stderr, "skipped: no NVRTC on this machine\n");
    std::exit(77);
  }
  return make_nvrtc_compiler();
}

/// Bytes of each parameter of the entry in PTX: ".param .align 64 .b8 f_param_0[128]", ".param .u32 f_param_4", ...
inline std::vector<std::size_t> ptx_parameter_bytes(const std::string& ptx, const std::string& entry) {
  std::vector<std::size_t> list;
  const std::size_t start = ptx.find(".entry " + entry + "(");
  if (start == std::string::npos) return list;
  const std::string head = ptx.substr(start, ptx.find("\n)", start) - start);
  for (std::size_t at = head.find(".param "); at != std::string::npos; at = head.find(".param ", at + 1)) {
    const std::string line = head.substr(at, head.find('\n', at) - at);
    const std::size_t array = line.find('[');
    if (array != std::string::npos) {
      list.push_back(std::stoul(line.substr(array + 1)));
    } else {
      list.push_back(line.find("64 ") != std::string::npos ? 8 : line.find("32 ") != std::string::npos ? 4 : 0);
    }
  }
  return list;
}

inline std::vector<std::size_t> planned_parameter_bytes(const LaunchStep& step) {
  std::vector<std::size_t> list;
  for (const KernelParameter& parameter : step.parameters) list.push_back(parameter_bytes(parameter.kind));
  return list;
}

/// What is wrong with a compiled kernel; empty when nothing is. Shared memory is what the plan lists, which is dynamic.
inline std::string complaint(Compiler& compiler, const Problem& problem) {
  try {
    const Plan plan = make_plan(problem);
    const SourceBundle bundle = emit(plan);
    const Image image = compiler.compile(bundle);
    if (image.report.entries.size() != plan.launch.steps.size())
      return fmt::format("{} kernels", image.report.entries.size());
    for (const LaunchStep& step : plan.launch.steps) {
      const auto entry = std::find_if(image.report.entries.begin(), image.report.entries.end(),
                                      [&](const EntryReport& report) { return report.name == step.entry; });
      if (entry == image.report.entries.end()) return "there is no kernel of the name " + step.entry;
      if (entry->spill_load_bytes + entry->spill_store_bytes + entry->stack_bytes != 0)
        return fmt::format("{} bytes of spill stores, {} of loads, {} of stack", entry->spill_store_bytes,
                           entry->spill_load_bytes, entry->stack_bytes);
      if (entry->static_smem_bytes != 0)
        return fmt::format("{} bytes of shared memory that the plan does not list", entry->static_smem_bytes);
      if (ptx_parameter_bytes(step.is_merge ? image.merge.ptx : image.ptx, entry->name) !=
          planned_parameter_bytes(step))
        return "the plan's parameters are not those of the code";
    }
    const std::size_t whole = image.report.log.find("tessera: compiled whole");
    if (whole != std::string::npos && image.report.log.find("a piece spills", whole) == std::string::npos)
      return image.report.log.substr(whole);
    if (!image.report.notes.empty()) return image.report.notes.front();
    if (image.report.log.find("warning") != std::string::npos) return image.report.log;
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// One in `of` of them, on all cores.
inline void check_all(Compiler& compiler, const std::map<std::string, Problem>& kernels, std::uint64_t of = 32) {
  std::vector<std::pair<std::string, Problem>> work;
  testing::Sample sample(of);
  for (const auto& kernel : kernels)
    if (sample.takes()) work.push_back(kernel);
  std::vector<std::string> complaints(work.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < work.size(); at = next++)
        complaints[at] = complaint(compiler, work[at].second);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < work.size(); ++i) {
    CAPTURE(work[i].first);
    CHECK(complaints[i] == "");
  }
}

}  // namespace tessera

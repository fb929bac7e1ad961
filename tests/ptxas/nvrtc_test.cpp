// Default kernels through NVRTC: no spill, no stack, no warning, no note of the assembler that it serialised wgmma or
// ignored setmaxnreg, and the parameters that the plan says. TESSERA_PTXAS_ALL=1 in the environment compiles every
// legal candidate instead (minutes).
#include "runtime/nvrtc.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/error.h"
#include "generator/candidates.h"
#include "generator/copy2d_operator.h"
#include "generator/fmha_operator.h"
#include "tests/generator/problems.h"

using namespace tessera;

namespace {

std::unique_ptr<Compiler> nvrtc_or_skip() {
  if (!find_nvrtc()) {
    fmt::print(stderr, "skipped: no NVRTC on this machine\n");
    std::exit(77);
  }
  return make_nvrtc_compiler();
}

bool compiles_all() {
  const char* const all = std::getenv("TESSERA_PTXAS_ALL");
  return all != nullptr && std::string_view(all) == "1";
}

void add_candidates(const Fmha& facts, std::map<std::string, Problem>& kernels) {
  for (const auto& candidate : choose<FmhaOperator>(facts).candidates) {
    if (!candidate.verdict.ok()) continue;
    Fmha pinned = facts;
    pinned.tile_m = candidate.config.tile_m;
    pinned.tile_n = candidate.config.tile_n;
    pinned.stages = candidate.config.stages;
    pinned.swizzle = candidate.config.swizzle;
    kernels.try_emplace(planned_kernel(pinned), pinned);
  }
}

/// By kernel, so that each is compiled once.
std::map<std::string, Problem> problems_to_compile() {
  std::map<std::string, Problem> kernels;
  for (const Problem& problem : every_fact()) {
    const Fmha* const fmha = std::get_if<Fmha>(&problem);
    if (compiles_all() && fmha != nullptr) {
      add_candidates(*fmha, kernels);
    } else {
      kernels.try_emplace(planned_kernel(problem), problem);
    }
  }
  return kernels;
}

/// Bytes of each parameter of the entry in PTX: ".param .align 64 .b8 f_param_0[128]", ".param .u32 f_param_4", ...
std::vector<std::size_t> ptx_parameter_bytes(const std::string& ptx, const std::string& entry) {
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

std::vector<std::size_t> planned_parameter_bytes(const Plan& plan) {
  std::vector<std::size_t> list;
  for (const KernelParameter& parameter : plan.launch.steps.front().parameters)
    list.push_back(parameter_bytes(parameter.kind));
  return list;
}

/// What is wrong with a compiled kernel; empty when nothing is.
std::string complaint(Compiler& compiler, const Problem& problem) {
  const Plan plan = make_plan(problem);
  const SourceBundle bundle = emit(plan);
  try {
    const Image image = compiler.compile(bundle);
    if (image.report.entries.size() != 1) return fmt::format("{} kernels", image.report.entries.size());
    const EntryReport& entry = image.report.entries.front();
    if (entry.name != bundle.entries.front()) return "the kernel's name is " + entry.name;
    if (entry.spill_load_bytes + entry.spill_store_bytes + entry.stack_bytes != 0)
      return fmt::format("{} bytes of spill stores, {} of loads, {} of stack", entry.spill_store_bytes,
                         entry.spill_load_bytes, entry.stack_bytes);
    if (ptx_parameter_bytes(image.ptx, entry.name) != planned_parameter_bytes(plan))
      return "the plan's parameters are not those of the code";
    if (!image.report.notes.empty()) return image.report.notes.front();
    if (image.report.log.find("warning") != std::string::npos) return image.report.log;
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("nvrtc: planned kernels compile without spill, stack, warning or note") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  const std::map<std::string, Problem> kernels = problems_to_compile();
  std::vector<std::pair<std::string, Problem>> work(kernels.begin(), kernels.end());
  std::vector<std::string> complaints(work.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < work.size(); at = next++)
        complaints[at] = complaint(*compiler, work[at].second);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < work.size(); ++i) {
    CAPTURE(work[i].first);
    CHECK(complaints[i] == "");
  }
  CHECK(work.size() >= 80);
}

TEST_CASE("nvrtc: block-scaled kernels for Blackwell compile without spill, stack, warning or note") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  for (const char* const arch : {"sm_100a", "sm_103a", "sm_120a", "sm_121a", "sm_100f", "sm_120f"}) {
    const Arch target = Arch::parse(arch);
    const Problem problems[] = {
        Quantize{.arch = target, .scale_form = ScaleForm::tile, .global_scale = GlobalScale::given},
        Quantize{.arch = target, .dtype = DType::f32, .format = BlockFormat::mxfp4},
        Quantize{.arch = target, .dtype = DType::f16, .format = BlockFormat::mxfp8_e5m2},
        Dequantize{.arch = target, .dtype = DType::f32},
        Dequantize{.arch = target, .format = BlockFormat::mxfp4, .scale_form = ScaleForm::tile},
        Gemv{.arch = target},
        Gemv{.arch = target, .scale_form = ScaleForm::tile},
        ConvertScales{.arch = target}};
    for (const Problem& problem : problems) {
      CAPTURE(planned_kernel(problem));
      CHECK(complaint(*compiler, problem) == "");
    }
  }
}

TEST_CASE("nvrtc: a single file compiles by itself, with the bundle's options") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  for (const Problem& problem : {Problem(Copy2d{}), Problem(Fmha{.head_dim = 64, .output = Output::unnormalized})}) {
    const Plan plan = make_plan(problem);
    SourceBundle bundle = emit(plan);
    bundle.text = emit_single_file(plan);
    bundle.headers.clear();
    const Image image = compiler->compile(bundle);
    CHECK(image.report.log.find("warning") == std::string::npos);
    CHECK(image.report.entries.at(0).name == plan.kernel);
  }
}

TEST_CASE("nvrtc: an illegal Config fails with its rule and both numbers in the message") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  SourceBundle bundle = emit(make_plan(Copy2d{}));
  for (SourceFile& header : bundle.headers) {
    if (header.path != "config.cuh") continue;
    const std::size_t at = header.text.find("{32, 128, 1, 1, 1}");
    REQUIRE(at != std::string::npos);
    header.text.replace(at, 18, "{30, 128, 1, 1, 1}");
  }
  std::string text;
  try {
    compiler->compile(bundle);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    text = error.what();
    for (const std::string& note : error.notes()) text += "\n" + note;
  }
  CAPTURE(text);
  CHECK(text.find("IllegalConfig") != std::string::npos);
  CHECK(text.find("120LL, 16LL") != std::string::npos);
}

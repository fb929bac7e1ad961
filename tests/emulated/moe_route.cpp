// A router of experts for every target, compiled to PTX by NVRTC and run in the emulator, against float64; and slips
// planted in its templates. Nothing here ran on Blackwell hardware.
#include "reference/moe_route.h"

#include <doctest/doctest.h>

#include <limits>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/block_scale_cases.h"
#include "tests/support/planted_text.h"
#include "tests/support/sample.h"

namespace tessera::moe_route_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

constexpr double kScale = 2.5;

reference::MoeRouteRun run_of(const MoeRoute& problem, std::int64_t m) {
  reference::MoeRouteRun run;
  run.dtype = problem.dtype;
  run.m = m;
  run.experts = problem.experts;
  run.top_k = problem.top_k;
  run.expert_groups = problem.expert_groups;
  run.topk_groups = problem.topk_groups;
  run.scoring = problem.scoring;
  run.bias = problem.bias;
  run.renormalize = problem.renormalize;
  run.grouping = problem.grouping;
  run.alignment = problem.alignment;
  run.scale = kScale;
  // Contiguous: room behind the last group. Masked: fewer rows than the experts at the top have.
  const std::int64_t pairs = m * run.top_k;
  run.rows = problem.grouping == Grouping::contiguous ? pairs + std::min(pairs, run.experts) * (run.alignment - 1) + 19
                                                      : std::max<std::int64_t>(m / 8, 2);
  return run;
}

std::vector<std::string> problems_of(Device& device, const Launcher& launcher, const reference::MoeRouteRun& run,
                                     const reference::Tensors& inputs) {
  NamedSizes sizes{{"m", run.m}};
  for (const SizeSpec& size : launcher.plan().sizes)
    if (size.name == "grouped_rows" || size.name == "rows_of_group") sizes[size.name] = run.rows;
  std::vector<std::string> problems;
  const reference::Tensors outputs = launch_once(device, launcher, sizes, {kScale}, inputs, problems);
  const reference::Comparison result = reference::check_moe_route(run, inputs, outputs, 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

void check(const MoeRoute& problem, Compiler& compiler, std::initializer_list<std::int64_t> tokens,
           std::uint64_t seed) {
  CAPTURE(planned_kernel(problem));
  EmulatedDevice device{{.arch = problem.arch.to_string(), .detects_races = true}};
  const Launcher launcher(device, make_plan(problem).launch, compiler.compile(emit(make_plan(problem))));
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  for (const std::int64_t m : tokens) {
    CAPTURE(m);
    device.set_schedule(kSchedules[seed % 4], seed);
    const reference::MoeRouteRun run = run_of(problem, m);
    const Fill fill = seed % 3 == 0 ? Fill::integer : Fill::normal;
    for (const std::string& text : problems_of(device, launcher, run, moe_route_inputs(run, fill, seed)))
      FAIL_CHECK(text);
    ++seed;
  }
}

}  // namespace

TEST_CASE("moe_route: every target, scoring and grouping; none, few, one chunk, many") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check({.bias = Bias::column}, *compiler, {0, 1, 64, 65, 200}, 1);
  check({.arch = Arch::parse("sm_100a"),
         .dtype = DType::bf16,
         .experts = 384,
         .top_k = 6,
         .scoring = Scoring::softmax,
         .renormalize = Renormalize::off,
         .grouping = Grouping::masked},
        *compiler, {0, 5, 133}, 10);
  check({.arch = Arch::parse("sm_120a"),
         .experts = 256,
         .top_k = 6,
         .scoring = Scoring::sqrt_softplus,
         .bias = Bias::column,
         .alignment = 128},
        *compiler, {3, 129}, 20);
  check({.arch = Arch::parse("sm_103a"), .dtype = DType::f16, .experts = 512, .top_k = 16}, *compiler, {70}, 30);
  check({.arch = Arch::parse("sm_121a"), .experts = 8, .top_k = 2, .scoring = Scoring::softmax, .alignment = 3},
        *compiler, {31, 97}, 40);
  check({.dtype = DType::bf16, .expert_groups = 8, .topk_groups = 4, .bias = Bias::column}, *compiler, {1, 90}, 46);
  check({.arch = Arch::parse("sm_100a"),
         .experts = 512,
         .top_k = 6,
         .expert_groups = 16,
         .topk_groups = 3,
         .scoring = Scoring::softmax,
         .grouping = Grouping::masked},
        *compiler, {77}, 48);
  check({.arch = Arch::parse("sm_120a"), .experts = 64, .top_k = 8, .expert_groups = 8, .topk_groups = 1}, *compiler,
        {40}, 49);
  check({.experts = 72, .top_k = 1, .grouping = Grouping::none}, *compiler, {0, 67}, 50);
}

TEST_CASE("moe_route: chunks of more than 64 tokens") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // 257 rounds of 64 tokens and one of 3 for 256 CTAs: two rounds each.
  check({.dtype = DType::bf16, .experts = 16, .top_k = 2, .bias = Bias::column}, *compiler, {64 * 257 + 3}, 60);
}

TEST_CASE("moe_route: numbers that are none, infinities and zeros of both signs") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Bias bias : {Bias::none, Bias::column}) {
    const MoeRoute problem{.experts = 64, .top_k = 4, .bias = bias, .grouping = Grouping::none};
    EmulatedDevice device{{.arch = "sm_90a"}};
    const Launcher launcher(device, make_plan(problem).launch, compiler->compile(emit(make_plan(problem))));
    const reference::MoeRouteRun run = run_of(problem, 6);
    reference::Tensors inputs = moe_route_inputs(run, Fill::normal, 3);
    const auto nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
    reference::Tensor& x = inputs.at("logits");
    x.set(7, nan);
    for (int i = 0; i < 64; ++i) {
      x.set(64 + i, i < 61 ? nan : 1.0);  // three numbers for four slots
      x.set(128 + i, -infinity);
      x.set(192 + i, i % 2 == 0 ? -0.0 : 0.0);  // equals
    }
    x.set(4 * 64 + 9, -infinity);
    for (const std::string& text : problems_of(device, launcher, run, inputs)) FAIL_CHECK(text);
  }
}

struct RouteFault {
  const char* file;  ///< below templates/
  const char *from, *to;
  const char* cause;
  const char *from2 = nullptr, *to2 = nullptr;
  int expert_groups = 1;
};
constexpr RouteFault kFaults[] = {
    {"moe_route/choose.cuh", "ptx::redux_min(most == of_warp ? static_cast<unsigned>(expert) : kAllLanes)",
     "ptx::redux_max(most == of_warp ? static_cast<unsigned>(expert) : 0u)", "of equals the larger expert comes first",
     "if (keys[j][i] > most) {", "if (keys[j][i] >= most) {"},
    {"moe_route/choose.cuh", "score = scores[j][i];", "score = key_to_score(keys[j][i]);",
     "weights are of scores with the bias"},
    {"moe_route/choose.cuh", "v[j][i] + rows::element<DType::f32>(bias, i)", "v[j][i]",
     "experts are chosen without the bias"},
    {"moe_route/choose.cuh", "if constexpr (C.renormalize == Renormalize::on) {",
     "if constexpr (C.renormalize == Renormalize::off) {", "weights are not divided by their sum"},
    {"moe_route/choose.cuh", "mine.weight *= p.scale;", "", "the factor of weights is left out"},
    {"moe_route/choose.cuh", "if (larger[j] >= C.topk_groups) keys[j][i] = 0;", ";",
     "experts are chosen from all groups", nullptr, nullptr, 4},
    {"moe_route/choose.cuh", "key_of(first + second)", "key_of(first)", "groups are taken by their largest alone",
     nullptr, nullptr, 4},
    {"moe_route/choose.cuh", "RowPart::sigmoid : RowPart::sqrt_softplus", "RowPart::sqrt_softplus : RowPart::sigmoid",
     "scores are made by sqrt_softplus"},
    {"moe_route/lists.cuh", "((1u << token % 32) - 1)", "~((2u << token % 32) - 1)", nullptr},
    {"moe_route/lists.cuh", "(total + C.alignment - 1) / C.alignment * C.alignment", "total", "groups are not padded"},
    {"moe_route/lists.cuh", "if (chunk < own) add(before, counts);", "if (chunk <= own) add(before, counts);", nullptr},
    {"moe_route/lists.cuh", "if (word < token / 32) number += __popc(shared.masks[expert][word]);", ";", nullptr},
};

TEST_CASE("moe_route: planted slips are seen, and named") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 80;
  testing::Sample sample(2);
  for (const RouteFault& fault : kFaults) {
    ++seed;
    CAPTURE(std::string(fault.from));
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / fault.file);
    testing::plant(text, fault.from, fault.to);
    if (fault.from2 != nullptr) testing::plant(text, fault.from2, fault.to2);
    if (!sample.takes()) continue;
    // The number that a key was made of.
    const std::size_t behind = text.find("template <Config C>\n__device__ __forceinline__ void keys_of");
    if (behind != std::string::npos)
      text.insert(behind,
                  "__device__ __forceinline__ float key_to_score(unsigned key) {\n"
                  "  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);\n}\n\n");
    const MoeRoute problem{.experts = 32,
                           .top_k = 4,
                           .expert_groups = fault.expert_groups,
                           .topk_groups = (fault.expert_groups + 1) / 2,
                           .bias = Bias::column,
                           .alignment = 8};
    const Plan plan = make_plan(problem);
    EmulatedDevice device({.arch = "sm_90a"});
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{fault.file, text}})));
    const reference::MoeRouteRun run = run_of(problem, 150);
    std::string all;
    for (const std::string& one : problems_of(device, launcher, run, moe_route_inputs(run, Fill::normal, seed)))
      all += one + "\n";
    CAPTURE(all);
    CHECK_FALSE(all.empty());
    if (fault.cause != nullptr)
      CHECK(all.find(std::string("likely cause: ") + fault.cause + " (explains") != std::string::npos);
  }
}

}  // namespace tessera::moe_route_test

// How long the emulator takes for kernels of ours, one core, all checks: whole launches, PTX loaded before. Each result
// is compared with its reference once, so that no figure comes from a run that went wrong.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "base/bound_expression.h"
#include "generator/selectors.h"
#include "reference/fmha.h"
#include "reference/gemm.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tests/emulated/gemm_tcgen05_run.h"

namespace tessera {
namespace {

using emulator::EmulatedDevice;

/// Attention of one head on an emulated device, ready to launch.
class Attention {
 public:
  Attention(const Fmha& problem, const reference::FmhaSizes& sizes, bool detects_races, Compiler& compiler)
      : device_(emulator::DeviceOptions{.detects_races = detects_races}),
        plan_(make_plan(problem)),
        launcher_(device_, plan_.launch, compiler.compile(emit(plan_))) {
    inputs_ = reference::make_inputs(sizes, problem.dtype, reference::Fill::normal, 1);
    output_ = reference::Tensor(problem.dtype, inputs_.q.shape);
    const std::map<std::string, std::int64_t> given{{"batch", sizes.batch},
                                                    {"heads_q", sizes.heads_q},
                                                    {"heads_kv", sizes.heads_kv},
                                                    {"seqlen_q", sizes.seqlen_q},
                                                    {"seqlen_k", sizes.seqlen_k}};
    for (const SizeSpec& size : plan_.launch.sizes)
      sizes_.push_back(given.count(size.name) != 0 ? given.at(size.name) : kUseDefault);
    scalars_.assign(plan_.launch.scalars.size(), 1 / std::sqrt(static_cast<double>(problem.head_dim)));
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      const reference::Tensor* tensor = buffer.name == "q"   ? &inputs_.q
                                        : buffer.name == "k" ? &inputs_.k
                                        : buffer.name == "v" ? &inputs_.v
                                        : buffer.name == "o" ? &output_
                                                             : nullptr;
      DevicePointer pointer = 0;
      if (tensor != nullptr) {
        pointer = device_.allocate(tensor->bytes.size());
        device_.copy_to_device(pointer, tensor->bytes.data(), tensor->bytes.size());
      }
      if (buffer.name == "o") o_ = pointer;
      buffers_.push_back(pointer);
    }
  }

  /// Throws Error when the launch had a failure.
  void launch() {
    LaunchArguments arguments;
    arguments.sizes = sizes_;
    arguments.scalars = scalars_;
    arguments.buffers = buffers_;
    launcher_.launch({}, arguments);
    for (const Finding& finding : device_.synchronize())
      if (finding.is_failure) throw Error(ErrorKind::device, finding.message);
  }

  /// Empty when the output is right.
  std::string problem() {
    device_.copy_to_host(output_.bytes.data(), o_, output_.bytes.size());
    reference::FmhaCheck check;
    check.facts.mask = plan_.problem.as<Fmha>().mask;
    check.softmax_scale = scalars_.front();
    check.tile_m = plan_.number("tile_m");
    check.tile_n = plan_.number("tile_n");
    check.jobs = 1;
    const reference::Comparison result = reference::check_fmha({inputs_.q.view(), inputs_.k.view(), inputs_.v.view()},
                                                               {output_.view(), {}, {}, {}}, check);
    return result.problems.empty() ? "" : result.problems.front();
  }
  std::uint64_t instructions() const { return device_.statistics().warp_instructions; }

 private:
  EmulatedDevice device_;
  Plan plan_;
  Launcher launcher_;
  reference::FmhaTensors inputs_;
  reference::Tensor output_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<DevicePointer> buffers_;
  DevicePointer o_ = 0;
};

void attention(benchmark::State& state, int head_dim, Mask mask, std::int64_t seqlen_q, std::int64_t seqlen_k,
               bool detects_races = false) {
  try {
    const std::unique_ptr<Compiler> compiler = make_nvrtc_compiler();
    Fmha problem;
    problem.head_dim = head_dim;
    problem.mask = mask;
    Attention run(problem, {1, 1, 1, seqlen_q, seqlen_k, head_dim}, detects_races, *compiler);
    run.launch();
    if (const std::string wrong = run.problem(); !wrong.empty()) return state.SkipWithError(wrong.c_str());
    for (auto _ : state) run.launch();
    state.counters["warp_instructions"] = static_cast<double>(run.instructions());
    state.counters["instructions/s"] =
        benchmark::Counter(static_cast<double>(run.instructions()), benchmark::Counter::kIsIterationInvariantRate);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

BENCHMARK_CAPTURE(attention, d128_full_256x512, 128, Mask::none, 256, 512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, d128_causal_256x512, 128, Mask::causal, 256, 512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, d64_full_256x512, 64, Mask::none, 256, 512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, d128_full_256x512_races, 128, Mask::none, 256, 512, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(attention, d256_full_256x512, 256, Mask::none, 256, 512)->Unit(benchmark::kMillisecond);

/// A product d = a b^T on an emulated device, ready to launch. Fields are the planner's by name.
class Product {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;
  Product(const Fields& fields, std::int64_t m, std::int64_t n, std::int64_t k, bool detects_races, Compiler& compiler)
      : device_(options_of(fields, detects_races)),
        plan_(make_plan(problem_of(fields))),
        launcher_(device_, plan_.launch, compiler.compile(emit(plan_))) {
    const std::map<std::string, std::int64_t> given{{"m", m}, {"n", n}, {"k", k}, {"num_sms", device_.info().num_sms}};
    std::vector<std::string> names;
    for (const SizeSpec& size : plan_.launch.sizes) {
      const auto found = given.find(size.name);
      sizes_.push_back(found != given.end() ? found->second
                                            : BoundExpression(*size.default_value, names).evaluate(sizes_));
      names.push_back(size.name);
    }
    scalars_.assign(plan_.launch.scalars.size(), 1);
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      std::vector<std::int64_t> shape;
      for (const Expression& extent : buffer.shape) shape.push_back(BoundExpression(extent, names).evaluate(sizes_));
      reference::Tensor& tensor =
          tensors_.emplace(buffer.name, reference::Tensor(*reference::dtype_from_name(buffer.dtype), shape))
              .first->second;
      reference::fill(tensor, reference::Fill::normal, 1, tensors_.size());
      const DevicePointer pointer = device_.allocate(tensor.bytes.size());
      device_.copy_to_device(pointer, tensor.bytes.data(), tensor.bytes.size());
      if (buffer.name == "d") d_ = pointer;
      buffers_.push_back(pointer);
    }
  }

  /// Throws Error when the launch had a failure.
  void launch() {
    LaunchArguments arguments;
    arguments.sizes = sizes_;
    arguments.scalars = scalars_;
    arguments.buffers = buffers_;
    launcher_.launch({}, arguments);
    for (const Finding& finding : device_.synchronize())
      if (finding.is_failure) throw Error(ErrorKind::device, finding.message);
  }
  std::string problem() {
    reference::Tensor& d = tensors_.at("d");
    device_.copy_to_host(d.bytes.data(), d_, d.bytes.size());
    reference::GemmCheck check;
    check.jobs = 1;
    const reference::Comparison result =
        reference::check_gemm({tensors_.at("a").view(), tensors_.at("b").view(), {}, {}}, d.view(), check);
    return result.problems.empty() ? "" : result.problems.front();
  }
  std::uint64_t instructions() const { return device_.statistics().warp_instructions; }

 private:
  static Problem problem_of(const Fields& fields) {
    Problem problem = Gemm{};
    for (const auto& [key, text] : fields) set_field(problem, key, text);
    return problem;
  }
  static emulator::DeviceOptions options_of(const Fields& fields, bool detects_races) {
    emulator::DeviceOptions options;
    options.detects_races = detects_races;
    for (const auto& [key, text] : fields)
      if (key == "arch") options.arch = text;
    return options;
  }

  EmulatedDevice device_;
  Plan plan_;
  Launcher launcher_;
  std::map<std::string, reference::Tensor> tensors_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<DevicePointer> buffers_;
  DevicePointer d_ = 0;
};

void product(benchmark::State& state, const Product::Fields& fields, bool detects_races) {
  try {
    const std::unique_ptr<Compiler> compiler = make_nvrtc_compiler();
    Product run(fields, 256, 256, 512, detects_races, *compiler);
    run.launch();
    if (const std::string wrong = run.problem(); !wrong.empty()) return state.SkipWithError(wrong.c_str());
    for (auto _ : state) run.launch();
    state.counters["warp_instructions"] = static_cast<double>(run.instructions());
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

BENCHMARK_CAPTURE(product, wgmma_bf16_256x256x512, Product::Fields{}, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(product, wgmma_bf16_256x256x512_races, Product::Fields{}, true)->Unit(benchmark::kMillisecond);
// Of any kind on tcgen05: poisons D, launches, brings D back.
void tcgen05_product(benchmark::State& state, const Product::Fields& fields, std::int64_t m, std::int64_t n,
                     std::int64_t k, bool detects_races) {
  try {
    const std::unique_ptr<Compiler> compiler = find_product_compiler();
    if (compiler == nullptr) return state.SkipWithError("no NVRTC");
    emulator::DeviceOptions options;
    options.arch = "sm_100a";
    options.detects_races = detects_races;
    emulator::EmulatedDevice device(options);
    ProductRun run({"", fields, {{"m", m}, {"n", n}, {"k", k}}, reference::Fill::normal}, *compiler, device);
    std::vector<Finding> findings;
    run.run(findings);
    const reference::Comparison result = run.compare();
    if (!findings.empty() || !result.problems.empty())
      return state.SkipWithError(findings.empty() ? result.problems.front().c_str() : findings.front().message.c_str());
    for (auto _ : state) run.run(findings);
    state.counters["warp_instructions"] = static_cast<double>(device.statistics().warp_instructions);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

const Product::Fields kBf16Tile{{"dtype", "bf16"}, {"tile_m", "128"}, {"tile_n", "256"}};
const Product::Fields kBf16Pair{{"dtype", "bf16"}, {"tile_m", "128"}, {"tile_n", "256"}, {"cluster_m", "2"}};
BENCHMARK_CAPTURE(tcgen05_product, bf16_256x256x512, Product::Fields{{"dtype", "bf16"}}, 256, 256, 512, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tcgen05_product, bf16_256x256x512_races, Product::Fields{{"dtype", "bf16"}}, 256, 256, 512, true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tcgen05_product, bf16_256x256x512_tile_128x256, kBf16Tile, 256, 256, 512, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tcgen05_product, bf16_256x256x512_pair, kBf16Pair, 256, 256, 512, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tcgen05_product, nvfp4_128x256x512, Product::Fields{{"dtype", "nvfp4"}}, 128, 256, 512, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tcgen05_product, nvfp4_128x256x512_races, Product::Fields{{"dtype", "nvfp4"}}, 128, 256, 512, true)
    ->Unit(benchmark::kMillisecond);

/// A loop in registers, all lanes active: 16 CTAs of 256 threads, the body's instructions and three more a turn.
void plain_code(benchmark::State& state, const char* body) {
  const std::string text = std::string(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry plain(.param .u64 out)
{
.reg .pred p, q;
.reg .b32 i, t, r;
.reg .f32 x, y, z, w, s;
.reg .b64 to;
ld.param.u64 to, [out];
mov.u32 t, %tid.x;
cvt.rn.f32.u32 x, t;
mul.f32 x, x, 0f3B800000;
add.f32 y, x, 0f3F000000;
mov.f32 z, 0f3F800000;
mov.f32 w, 0f00000000;
mov.u32 i, 0;
AGAIN:
)") + body + R"(
add.u32 i, i, 1;
setp.lt.u32 p, i, 1000;
@p bra AGAIN;
add.f32 x, x, y;
add.f32 z, z, w;
add.f32 x, x, z;
mad.wide.u32 to, t, 4, to;
st.global.f32 [to], x;
ret;
}
)";
  try {
    EmulatedDevice device;
    const auto image = device.load_ptx(text, "plain.ptx");
    DevicePointer out = device.allocate(1024);
    std::vector<void*> arguments{&out};
    LaunchRequest request;
    request.entry = image->entry("plain");
    request.grid = {16, 1, 1};
    request.block = {256, 1, 1};
    request.parameters = arguments.data();
    device.launch(request, {});
    const auto instructions = static_cast<double>(device.statistics().warp_instructions);
    for (auto _ : state) device.launch(request, {});
    if (!device.take_findings().empty()) return state.SkipWithError("a finding");
    state.counters["warp_instructions"] = instructions;
    state.counters["instructions/s"] = benchmark::Counter(instructions, benchmark::Counter::kIsIterationInvariantRate);
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

constexpr const char* kFma = R"(fma.rn.f32 x, x, y, z; fma.rn.f32 z, z, 0f3F000000, w; mul.f32 s, w, y; sub.f32 w, s, x;
fma.rn.f32 y, y, 0f3F7D70A4, 0f3C23D70A; fma.rn.f32 x, x, 0f3E800000, y; add.f32 z, z, 0f3C23D70A; mul.f32 w, w, 0f3F000000;)";
constexpr const char* kMixed = R"(fma.rn.f32 s, x, y, z; max.f32 s, s, 0fC0800000; min.f32 s, s, 0f40800000;
fma.rn.f32 z, z, 0f3F666666, s; add.f32 x, x, 0f3C23D70A; setp.gt.f32 q, z, 0f40400000; add.f32 w, z, 0fBF800000;
selp.f32 z, w, z, q; and.b32 r, t, i; @q add.f32 y, y, 0f3C23D70A; mad.lo.u32 r, r, 3, t;)";
BENCHMARK_CAPTURE(plain_code, fma_mul_add, kFma)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plain_code, compare_select_integer, kMixed)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera

BENCHMARK_MAIN();

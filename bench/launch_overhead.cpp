// What Launcher::launch adds to cuLaunchKernelEx: the same empty kernel with four tensor maps and the sizes of an
// attention kernel, launched raw with everything made before, and through the launcher in three ways: again with the
// last launch's sizes and buffers; with its sizes and other buffers (four maps to encode); with other sizes (everything
// to evaluate, check and encode).
//
// Method: batches of 100 launches on one stream, the time of issuing them divided by 100, the stream drained between
// batches (not timed), raw and launcher taking turns; 400 batches of each after 40 that are thrown away. Prints median
// and quartiles, and the cost of the parts. Exit code 77 without a GPU.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "base/tensor_map_resolve.h"
#include "runtime/nvrtc.h"
#include "tessera/cuda_device.h"
#include "tessera/launcher.h"

namespace {

using namespace tessera;

constexpr int kBatch = 100, kBatches = 400, kWarmUp = 40;

constexpr const char* kText = R"cuda(
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void kernel(const __grid_constant__ Map q, const __grid_constant__ Map k,
                                  const __grid_constant__ Map v, const __grid_constant__ Map o, float* lse, int batch,
                                  int heads_q, int heads_kv, int seqlen_q, int seqlen_k, float scale) {}
)cuda";

Expression e(const std::string& text) { return Expression::parse(text); }

void add_tensor(LaunchPlan& plan, const std::string& name, const std::string& heads, const std::string& seqlen) {
  plan.sizes.push_back({name + "_stride_head", 0, std::int64_t{1} << 40, e("128"), ""});
  plan.sizes.push_back({name + "_stride_seqlen", 0, std::int64_t{1} << 40, e(heads + " * 128"), ""});
  plan.sizes.push_back(
      {name + "_stride_batch", 0, std::int64_t{1} << 40, e(fmt::format("{} * {} * 128", seqlen, heads)), ""});
  plan.buffers.push_back({name,
                          BufferRole::input,
                          "bf16",
                          {e("batch"), e(seqlen), e(heads), e("128")},
                          {e(name + "_stride_batch"), e(name + "_stride_seqlen"), e(name + "_stride_head"), e("1")},
                          16,
                          false});
  TensorMapRecipe map;
  map.name = name;
  map.buffer = name;
  map.dims = {e("128"), e(heads), e(fmt::format("max({}, 1)", seqlen)), e("batch")};
  map.strides_bytes = {e(name + "_stride_head * 2"), e(name + "_stride_seqlen * 2"), e(name + "_stride_batch * 2")};
  map.box = {64, 1, 128, 1};
  map.element_strides = {1, 1, 1, 1};
  map.swizzle = TensorMapSwizzle::b128;
  plan.tensor_maps.push_back(map);
}

LaunchPlan attention_plan() {
  LaunchPlan plan;
  plan.op = "attention";
  plan.arch = "sm_90a";
  for (const char* name : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"})
    plan.sizes.push_back({name, 0, 1 << 30, {}, ""});
  plan.sizes.push_back({"num_sms", 1, 1 << 20, {}, ""});
  add_tensor(plan, "q", "heads_q", "seqlen_q");
  add_tensor(plan, "k", "heads_kv", "seqlen_k");
  add_tensor(plan, "v", "heads_kv", "seqlen_k");
  add_tensor(plan, "o", "heads_q", "seqlen_q");
  plan.buffers.push_back({"lse", BufferRole::output, "f32", {e("batch * heads_q * seqlen_q")}, {e("1")}, 4, true});
  plan.scalars = {{"softmax_scale", 0.0883883, ""}};
  plan.domain = {{e("heads_q"), Relation::multiple_of, e("heads_kv"), ""},
                 {e("batch * heads_q"), Relation::at_most, e("1048576"), ""}};
  LaunchStep step;
  step.entry = "kernel";
  step.grid = {e("ceil_div(seqlen_q, 128) * heads_q * batch"), e("1"), e("1")};
  step.block = {128, 1, 1};
  for (const char* name : {"q", "k", "v", "o"})
    step.parameters.push_back({name, ParameterKind::tensor_map, {}, name, {}});
  step.parameters.push_back({"lse", ParameterKind::pointer, {}, "lse", {}});
  for (const char* name : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"})
    step.parameters.push_back({name, ParameterKind::i32, e(name), "", {}});
  step.parameters.push_back({"scale", ParameterKind::f32, {}, "softmax_scale", {}});
  plan.steps = {step};
  return plan;
}

double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Quartiles {
  double low = 0, median = 0, high = 0;
};

Quartiles quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 4], values[values.size() / 2], values[values.size() * 3 / 4]};
}

/// Nanoseconds per call of each function, taking turns.
std::vector<Quartiles> measure(const std::vector<std::function<void()>>& functions,
                               const std::function<void()>& drain) {
  std::vector<std::vector<double>> times(functions.size());
  for (int batch = 0; batch < kWarmUp + kBatches; ++batch) {
    for (std::size_t f = 0; f < functions.size(); ++f) {
      const double start = now_ns();
      for (int i = 0; i < kBatch; ++i) functions[f]();
      const double each = (now_ns() - start) / kBatch;
      drain();
      if (batch >= kWarmUp) times[f].push_back(each);
    }
  }
  std::vector<Quartiles> results;
  for (const std::vector<double>& list : times) results.push_back(quartiles(list));
  return results;
}

int run() {
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) {
    fmt::print("not run: {}\n", reason);
    return 77;
  }
  const auto device = make_cuda_device();
  SourceBundle bundle;
  bundle.program = "/tessera/bench/entry.cu";
  bundle.text = kText;
  bundle.arch = "sm_90a";
  bundle.entries = {"kernel"};
  const Image image = make_nvrtc_compiler()->compile(bundle);
  const Launcher launcher(*device, attention_plan(), image);
  const DevicePointer memory = device->allocate(1 << 26);
  std::vector<std::int64_t> sizes(launcher.plan().sizes.size(), kUseDefault);
  const std::int64_t given[] = {2, 8, 4, 128, 1024};
  std::copy(std::begin(given), std::end(given), sizes.begin());
  const std::vector<double> scalars{0.0883883};
  const std::vector<DevicePointer> buffers{memory, memory, memory, memory, memory};
  const LaunchArguments arguments{sizes, scalars, buffers};
  const Stream stream = device->create_stream();

  // The raw launch: the same kernel, grid and parameter values, all made before.
  const auto loaded = device->load(image);
  TensorMapObject maps[4];
  const auto resolved = launcher.resolve_tensor_maps(arguments);
  for (std::size_t i = 0; i < 4; ++i) device->encode(resolved[i].second, maps[i]);
  DevicePointer lse = memory;
  int numbers[] = {2, 8, 4, 128, 1024};
  float scale = 0.0883883f;
  void* parameters[] = {&maps[0],    &maps[1],    &maps[2],    &maps[3],    &lse,  &numbers[0],
                        &numbers[1], &numbers[2], &numbers[3], &numbers[4], &scale};
  LaunchRequest request{loaded->entry("kernel"), {16, 1, 1}, {128, 1, 1}, {1, 1, 1}, 0, false, parameters};

  TensorMapObject scratch;
  std::vector<std::string> names;
  for (const SizeSpec& size : launcher.plan().sizes) names.push_back(size.name);
  const BoundTensorMap bound(launcher.plan().tensor_maps[0], names);
  const std::vector<std::int64_t> full = launcher.resolve_sizes(arguments);
  std::uint64_t sink = 0;
  // A second set of each, of which every launch takes the other one.
  const std::vector<DevicePointer> other_buffers(5, memory + (1 << 20));
  std::vector<std::int64_t> other_sizes = sizes;
  other_sizes[4] = 1088;
  const LaunchArguments moved{sizes, scalars, other_buffers}, resized{other_sizes, scalars, buffers};
  bool is_other = false;
  const auto in_turns = [&](const LaunchArguments& other) {
    is_other = !is_other;
    launcher.launch(stream, is_other ? other : arguments);
  };
  const std::vector<Quartiles> results = measure(
      {[&] { device->launch(request, stream); }, [&] { launcher.launch(stream, arguments); }, [&] { in_turns(moved); },
       [&] { in_turns(resized); }, [&] { device->encode(resolved[0].second, scratch); },
       [&] { sink += bound.resolve(full, memory).dims[1]; },
       [&] { sink += static_cast<std::uint64_t>(first_broken_rule(resolved[0].second)); },
       [&] { sink += device->current_context(); }},
      [&] { device->synchronize(stream); });
  const char* labels[] = {"cuLaunchKernelEx, 4 maps made before", "Launcher::launch, same sizes and buffers",
                          "Launcher::launch, same sizes",         "Launcher::launch, other sizes",
                          "  one cuTensorMapEncodeTiled, rank 4", "  resolving one map",
                          "  checking the rules of one map",      "  asking for the current context"};
  const DeviceInfo& info = device->info();
  fmt::print("{}, driver {}, {} sizes; ns per call: median (quartiles)\n", info.name, info.driver_version,
             names.size());
  for (std::size_t i = 0; i < results.size(); ++i)
    fmt::print("{:40} {:8.1f}  ({:.1f}, {:.1f})\n", labels[i], results[i].median, results[i].low, results[i].high);
  for (std::size_t i = 1; i <= 3; ++i)
    fmt::print("{:40} {:8.1f}\n", fmt::format("added, {}", labels[i] + std::string_view("Launcher::launch, ").size()),
               results[i].median - results[0].median);
  device->free(memory);
  device->destroy(stream);
  return sink == 1 ? 1 : 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 5;
  }
}

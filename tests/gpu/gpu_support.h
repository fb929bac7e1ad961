// What the tests on a GPU share: one device, one compiler, and the driver calls that only a caller of ours makes
// (contexts, graphs).
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/cuda_driver.h"
#include "runtime/dynamic_library.h"
#include "runtime/nvrtc.h"
#include "tessera/compiler.h"
#include "tessera/cuda_device.h"
#include "tessera/device.h"
#include "tessera/launch.h"

namespace tessera::gpu {

inline Device& device() {
  static const std::unique_ptr<Device> shared = make_cuda_device();
  return *shared;
}

inline Compiler& compiler() {
  static const std::unique_ptr<Compiler> shared = make_nvrtc_compiler();
  return *shared;
}

/// The device's own exact architecture.
inline std::string arch() {
  const DeviceInfo& info = device().info();
  return "sm_" + std::to_string(info.compute_major * 10 + info.compute_minor) + (info.compute_major >= 9 ? "a" : "");
}

inline Image compile(const std::string& text) {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text = text;
  bundle.arch = arch();
  bundle.entries = {"kernel"};
  return compiler().compile(bundle);
}

/// Driver functions that the runtime has no use for.
struct Driver {
  CuResult (*context_create)(CuContext* context, unsigned flags, CuDevice device) = nullptr;
  CuResult (*context_destroy)(CuContext context) = nullptr;
  CuResult (*stream_create)(CuStream* stream, unsigned flags) = nullptr;
  CuResult (*capture_begin)(CuStream stream, int mode) = nullptr;
  CuResult (*capture_end)(CuStream stream, void** graph) = nullptr;
  CuResult (*graph_instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
  CuResult (*graph_launch)(void* executable, CuStream stream) = nullptr;
  CuResult (*executable_destroy)(void* executable) = nullptr;
  CuResult (*graph_destroy)(void* graph) = nullptr;

  Driver() {
    const auto library = DynamicLibrary::open("libcuda.so.1");
    REQUIRE(library.bind(context_create, "cuCtxCreate_v2"));
    REQUIRE(library.bind(context_destroy, "cuCtxDestroy_v2"));
    REQUIRE(library.bind(stream_create, "cuStreamCreate"));
    REQUIRE(library.bind(capture_begin, "cuStreamBeginCapture_v2"));
    REQUIRE(library.bind(capture_end, "cuStreamEndCapture"));
    REQUIRE(library.bind(graph_instantiate, "cuGraphInstantiateWithFlags"));
    REQUIRE(library.bind(graph_launch, "cuGraphLaunch"));
    REQUIRE(library.bind(executable_destroy, "cuGraphExecDestroy"));
    REQUIRE(library.bind(graph_destroy, "cuGraphDestroy"));
  }
};

/// Device memory with a host value: what tests copy in and out.
template <class T>
class Array {
 public:
  explicit Array(std::vector<T> values, Device& on = device())
      : device_(on), count_(values.size()), pointer_(on.allocate(values.size() * sizeof(T))) {
    device_.copy_to_device(pointer_, values.data(), values.size() * sizeof(T));
  }
  ~Array() { device_.free(pointer_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  DevicePointer pointer() const { return pointer_; }
  std::vector<T> host(Stream stream = {}) const {
    std::vector<T> values(count_);
    device_.copy_to_host(values.data(), pointer_, count_ * sizeof(T), stream);
    return values;
  }

 private:
  Device& device_;
  std::size_t count_;
  DevicePointer pointer_;
};

/// y[i] = x[i] * factor + shift + (sum of the workspace, which must be zero), then counts the launch in y[count].
inline constexpr const char* kScaleText = R"cuda(
extern "C" __global__ void kernel(const float* x, float* y, unsigned* zeroed, int count, long long shift, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned seen = i < count ? zeroed[i] : 0;
  if (i < count) {
    y[i] = x[i] * factor + (float)shift + (float)seen;
    zeroed[i] = 1000;
  }
  if (i == 0) y[count] += 1;
}
)cuda";

inline LaunchPlan scale_plan() {
  const auto e = [](std::string_view text) { return Expression::parse(text); };
  LaunchPlan plan;
  plan.op = "scale";
  plan.arch = arch();
  plan.sizes = {{"count", 0, 1 << 30, {}, ""}, {"shift", INT64_MIN + 1, INT64_MAX, e("3"), ""}};
  plan.scalars = {{"factor", 2.0, ""}};
  plan.buffers = {{"x", BufferRole::input, "f32", {e("count")}, {e("1")}, 4, false},
                  {"y", BufferRole::in_out, "f32", {e("count + 1")}, {e("1")}, 4, false}};
  plan.workspace = {e("count * 4"), 256, true};
  LaunchStep step;
  step.entry = "kernel";
  step.grid[0] = e("ceil_div(count, 128)");
  step.block[0] = 128;
  step.parameters = {
      {"x", ParameterKind::pointer, {}, "x", {}},         {"y", ParameterKind::pointer, {}, "y", {}},
      {"z", ParameterKind::pointer, {}, "workspace", {}}, {"count", ParameterKind::i32, e("count"), "", {}},
      {"shift", ParameterKind::i64, e("shift"), "", {}},  {"factor", ParameterKind::f32, {}, "factor", {}}};
  plan.steps = {step};
  return plan;
}

}  // namespace tessera::gpu

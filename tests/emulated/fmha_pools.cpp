// Attention on tcgen05 over two pools of keys, rows by a list and a window, in the emulator against float64.
#include "reference/fmha_pools.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"
#include "generator/plan.h"
#include "runtime/launcher.h"
#include "tests/emulated/fmha_run.h"

namespace tessera {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Tensor;
using testing::find_compiler;

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};

struct Pools {
  std::int64_t topk = 0, seqlen_swa = 0;
  bool has_sink = true;
  double sink = 0;  ///< instead of random ones where it is not 0
};

/// Bytes of the outputs after one launch with poisoned outputs.
void check(const Fmha& problem, const reference::FmhaSizes& sizes, const Pools& pools, Compiler& compiler) {
  emulator::DeviceOptions options;
  options.detects_races = true;
  options.arch = "sm_100a";
  EmulatedDevice device(options);
  const Plan plan = make_plan(problem);
  CAPTURE(plan.kernel);
  CAPTURE(fmt::format("batch {}, queries {}, pool {}, topk {}, window {}", sizes.batch, sizes.seqlen_q, sizes.seqlen_k,
                      pools.topk, pools.seqlen_swa));
  const Launcher launcher(device, plan.launch, compiler.compile(emit(plan)));
  reference::FmhaPoolTensors made =
      reference::make_pool_inputs(sizes, pools.topk, pools.seqlen_swa, problem.dtype, reference::Fill::normal, 7);
  // NaNs behind the valid keys of each window: nobody may read them.
  for (Tensor* const tensor : {&made.swa_k, &made.swa_v}) {
    const auto row_bytes = static_cast<std::size_t>(tensor->shape[3] * dtype_bytes(tensor->dtype));
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (auto row = static_cast<std::int64_t>(made.swa_lens.at(b)); row < pools.seqlen_swa; ++row)
        std::memset(tensor->bytes.data() + static_cast<std::size_t>(b * pools.seqlen_swa + row) * row_bytes, 0xFF,
                    row_bytes);
  }
  if (pools.sink != 0)
    for (std::int64_t h = 0; h < sizes.heads_q; ++h) made.sink.set(h, pools.sink);
  std::map<std::string, Tensor> tensors{
      {"q", made.q},
      {"k", made.k},
      {"v", made.v},
      {"swa_k", made.swa_k},
      {"swa_v", made.swa_v},
      {"indices", made.indices},
      {"swa_lens", made.swa_lens},
      {"sink", made.sink},
      {"o", Tensor(problem.dtype, {sizes.batch, sizes.seqlen_q, sizes.heads_q, sizes.v_columns()})},
      {"lse", Tensor(DType::f32, {sizes.batch, sizes.heads_q, sizes.seqlen_q})}};
  std::vector<DevicePointer> buffers;
  for (const BufferSpec& buffer : plan.launch.buffers) {
    const Tensor& tensor = tensors.at(buffer.name);
    const bool is_absent = buffer.name == "sink" && !pools.has_sink;
    buffers.push_back(is_absent ? 0 : device.allocate(std::max<std::size_t>(tensor.bytes.size(), 16)));
    if (!is_absent && buffer.role == BufferRole::input && !tensor.bytes.empty())
      device.copy_to_device(buffers.back(), tensor.bytes.data(), tensor.bytes.size());
  }
  const std::map<std::string, std::int64_t> given{
      {"batch", sizes.batch},       {"heads_q", sizes.heads_q},       {"heads_kv", 1},     {"seqlen_q", sizes.seqlen_q},
      {"seqlen_k", sizes.seqlen_k}, {"seqlen_swa", pools.seqlen_swa}, {"topk", pools.topk}};
  LaunchArguments arguments;
  std::vector<std::int64_t> values;
  for (const SizeSpec& size : plan.launch.sizes)
    values.push_back(given.count(size.name) != 0 ? given.at(size.name) : kUseDefault);
  const double scale = *plan.launch.scalars.at(0).default_value;
  arguments.sizes = values;
  arguments.scalars = std::span(&scale, 1);
  arguments.buffers = buffers;
  std::vector<std::byte> first;
  for (const Schedule schedule : kTwo) {
    CAPTURE(static_cast<int>(schedule));
    device.set_schedule(schedule, 1);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (plan.launch.buffers[i].role == BufferRole::output)
        device.set_bytes(buffers[i], 0xFF, tensors.at(plan.launch.buffers[i].name).bytes.size());
    launcher.launch({}, arguments);
    for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.message);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (Tensor& tensor = tensors.at(plan.launch.buffers[i].name);
          plan.launch.buffers[i].role == BufferRole::output && !tensor.bytes.empty())
        device.copy_to_host(tensor.bytes.data(), buffers[i], tensor.bytes.size());
    std::vector<std::byte> bytes = tensors.at("o").bytes;
    bytes.insert(bytes.end(), tensors.at("lse").bytes.begin(), tensors.at("lse").bytes.end());
    if (first.empty()) {
      first = bytes;
      reference::FmhaCheck check;
      check.mask = problem.mask;
      check.softmax_scale = scale;
      check.tile_n = std::get<fmha_tcgen05::Config>(plan.config).tile_n;
      check.jobs = 1;
      if (pools.has_sink) check.sink = made.sink.view();
      const reference::Comparison comparison =
          reference::check_fmha_pools({made.q.view(), made.k.view(), made.v.view(), made.swa_k.view(),
                                       made.swa_v.view(), made.indices.view(), made.swa_lens.view()},
                                      {tensors.at("o").view(), tensors.at("lse").view(), {}, {}}, check);
      for (const std::string& line : comparison.problems) FAIL_CHECK(line);
      CHECK(comparison.pass);
      CHECK(comparison.rows_checked == sizes.batch * sizes.seqlen_q * sizes.heads_q);
      CHECK(comparison.cosine >= 0.999995);
    }
    CHECK(bytes == first);
  }
  for (const DevicePointer buffer : buffers)
    if (buffer != 0) device.free(buffer);
}

Fmha problem_of(int head_dim, int heads, Mask mask) {
  Fmha problem;
  problem.arch = Arch::parse("sm_100a");
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.pack_gqa = heads;
  problem.kv_pools = KvPools::sparse_window;
  return problem;
}

TEST_CASE("attention on tcgen05: listed rows and a window in one softmax, with a sink") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    // As models have it: 128 heads of 512, a thousand listed rows, 128 keys of the window.
    check(problem_of(512, 128, mask), {1, 128, 1, 2, 3000, 512}, {.topk = 1024, .seqlen_swa = 128}, *compiler);
    check(problem_of(512, 64, mask), {2, 64, 1, 3, 500, 512}, {.topk = 200, .seqlen_swa = 77}, *compiler);
    check(problem_of(128, 128, mask), {2, 128, 1, 3, 500, 128}, {.topk = 300, .seqlen_swa = 150}, *compiler);
    check(problem_of(128, 128, mask), {2, 128, 1, 5, 400, 128}, {.topk = 130, .seqlen_swa = 3}, *compiler);
    check(problem_of(64, 10, mask), {3, 10, 1, 4, 90, 64}, {.topk = 60, .seqlen_swa = 300}, *compiler);
    check(problem_of(64, 256, mask), {1, 256, 1, 2, 300, 64}, {.topk = 129, .seqlen_swa = 20}, *compiler);
  }
  Fmha half = problem_of(256, 16, Mask::causal);
  half.dtype = DType::f16;
  check(half, {2, 16, 1, 3, 300, 256}, {.topk = 100, .seqlen_swa = 100}, *compiler);
  Fmha narrow = problem_of(64, 32, Mask::none);
  narrow.swizzle = Swizzle::b32;
  check(narrow, {1, 32, 1, 3, 300, 64}, {.topk = 140, .seqlen_swa = 100}, *compiler);
}

TEST_CASE("attention on tcgen05: pools that are empty, and sinks beyond all scores") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Fmha problem = problem_of(64, 16, Mask::none);
  check(problem, {2, 16, 1, 3, 200, 64}, {.topk = 0, .seqlen_swa = 150}, *compiler);
  check(problem, {2, 16, 1, 3, 200, 64}, {.topk = 150, .seqlen_swa = 0}, *compiler);
  check(problem, {1, 16, 1, 3, 0, 64}, {.topk = 50, .seqlen_swa = 0}, *compiler);
  check(problem, {1, 16, 1, 3, 0, 64}, {.topk = 0, .seqlen_swa = 0}, *compiler);
  check(problem, {1, 16, 1, 0, 10, 64}, {.topk = 5, .seqlen_swa = 5}, *compiler);
  check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .has_sink = false}, *compiler);
  check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .sink = -1e30}, *compiler);
  check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .sink = 9.5}, *compiler);
}

}  // namespace
}  // namespace tessera

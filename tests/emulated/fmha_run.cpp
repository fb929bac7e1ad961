#include "tests/emulated/fmha_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "generator/plan.h"
#include "runtime/launcher.h"
#include "runtime/nvrtc.h"

namespace tessera::testing {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Tensor;
using reference::TensorView;

namespace {

/// One kernel and one shape: inputs in device memory, outputs poisoned before each run.
class Run {
 public:
  Run(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler, EmulatedDevice& device,
      const FmhaLaunchFacts& facts)
      : problem_(problem), sizes_(sizes), facts_(facts), plan_(make_plan(problem)), device_(device) {
    softmax_scale_ = facts.softmax_scale.value_or(*plan_.launch.scalars.at(0).default_value);
    launcher_ = std::make_unique<Launcher>(device, plan_.launch, compiler.compile(emit(plan_)));
    reference::FmhaTensors made = reference::make_inputs(sizes, problem.dtype, reference::Fill::normal, 11);
    if (!facts.seqused_q.empty()) hide_behind(made.q, facts.seqused_q);
    if (!facts.seqused_k.empty()) {
      hide_behind(made.k, facts.seqused_k);
      hide_behind(made.v, facts.seqused_k);
    }
    for (const auto& [name, lengths] :
         {std::pair("seqused_q", &facts.seqused_q), std::pair("seqused_k", &facts.seqused_k)})
      if (!lengths->empty()) tensors_.emplace(name, tensor_of(*lengths));
    if (problem.v_layout == Layout::k_major) made.v = transposed(made.v);
    const DType o_type = problem.output == Output::unnormalized ? DType::f32 : problem.dtype;
    const std::vector<std::int64_t> rows{sizes.batch, sizes.heads_q, sizes.seqlen_q};
    tensors_.emplace("q", std::move(made.q));
    tensors_.emplace("k", std::move(made.k));
    tensors_.emplace("v", std::move(made.v));
    tensors_.emplace("o", Tensor(o_type, {sizes.batch, sizes.seqlen_q, sizes.heads_q, sizes.v_columns()}));
    for (const char* const name : {"lse", "row_max", "row_sum"}) tensors_.emplace(name, Tensor(DType::f32, rows));
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      const Tensor& tensor = tensors_.at(buffer.name);
      buffers_.push_back(device.allocate(std::max<std::size_t>(tensor.bytes.size(), 16)));
      if (buffer.role == BufferRole::input && !tensor.bytes.empty())
        device.copy_to_device(buffers_.back(), tensor.bytes.data(), tensor.bytes.size());
    }
  }
  ~Run() {
    for (const DevicePointer buffer : buffers_) device_.free(buffer);
    if (workspace_ != 0) device_.free(workspace_);
  }

  std::vector<Finding> run() {
    std::map<std::string, std::int64_t> given{{"batch", sizes_.batch},
                                              {"heads_q", sizes_.heads_q},
                                              {"heads_kv", sizes_.heads_kv},
                                              {"seqlen_q", sizes_.seqlen_q},
                                              {"seqlen_k", sizes_.seqlen_k},
                                              {"v_stride_dim", padded_keys()},
                                              {"window_size_left", facts_.window_size_left},
                                              {"window_size_right", facts_.window_size_right}};
    if (facts_.num_splits) given.emplace("num_splits", *facts_.num_splits);
    LaunchArguments arguments;
    std::vector<std::int64_t> sizes;
    for (const SizeSpec& size : plan_.launch.sizes)
      sizes.push_back(given.count(size.name) != 0 ? given.at(size.name) : kUseDefault);
    const std::vector<double> scalars{softmax_scale_};
    arguments.sizes = sizes;
    arguments.scalars = scalars;
    arguments.buffers = buffers_;
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (const BufferSpec& buffer = plan_.launch.buffers[i]; buffer.role == BufferRole::output)
        device_.set_bytes(buffers_[i], 0xFF, tensors_.at(buffer.name).bytes.size());
    const std::int64_t workspace_bytes = launcher_->workspace_bytes(arguments);
    if (workspace_bytes > 0) {
      if (workspace_ == 0) workspace_ = device_.allocate(static_cast<std::size_t>(workspace_bytes));
      device_.set_bytes(workspace_, 0xFF, static_cast<std::size_t>(workspace_bytes));
      arguments.workspace = workspace_;
      arguments.workspace_bytes = workspace_bytes;
    }
    launcher_->launch({}, arguments);
    std::vector<Finding> findings = device_.synchronize();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      Tensor& tensor = tensors_.at(plan_.launch.buffers[i].name);
      if (plan_.launch.buffers[i].role == BufferRole::output && !tensor.bytes.empty())
        device_.copy_to_host(tensor.bytes.data(), buffers_[i], tensor.bytes.size());
    }
    return findings;
  }

  reference::Comparison compare() const {
    const auto& config = std::get<fmha_tcgen05::Config>(plan_.config);
    reference::FmhaCheck check;
    check.mask = config.mask;
    check.window_size_left = facts_.window_size_left;
    check.window_size_right = facts_.window_size_right;
    check.num_splits = facts_.num_splits.value_or(1);
    check.is_normalized = config.output == Output::normalized;
    check.softmax_scale = softmax_scale_;
    check.tile_m = config.tile_m;
    check.tile_n = config.tile_n;
    check.jobs = 1;
    reference::FmhaOutputs outputs{tensors_.at("o").view(), tensors_.at("lse").view(), {}, {}};
    if (!check.is_normalized) {
      outputs.row_max = tensors_.at("row_max").view();
      outputs.row_sum = tensors_.at("row_sum").view();
    }
    reference::FmhaInputs inputs{tensors_.at("q").view(), tensors_.at("k").view(), v_view()};
    if (!facts_.seqused_q.empty()) inputs.seqused_q = tensors_.at("seqused_q").view();
    if (!facts_.seqused_k.empty()) inputs.seqused_k = tensors_.at("seqused_k").view();
    return reference::check_fmha(inputs, outputs, check);
  }

  const std::string& kernel() const { return plan_.kernel; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = tensors_.at("o").bytes;
    const std::vector<std::byte>& lse = tensors_.at("lse").bytes;
    all.insert(all.end(), lse.begin(), lse.end());
    return all;
  }

 private:
  /// NaNs in the rows [lengths[b], end) of tensor [batch, rows, ...].
  static void hide_behind(Tensor& tensor, const std::vector<std::int64_t>& lengths) {
    const std::int64_t columns = tensor.shape[2] * tensor.shape[3], rows = tensor.shape[1];
    const auto row_bytes = static_cast<std::size_t>(columns * dtype_bytes(tensor.dtype));
    for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
      for (std::int64_t row = lengths[static_cast<std::size_t>(b)]; row < rows; ++row)
        std::memset(tensor.bytes.data() + static_cast<std::size_t>(b * rows + row) * row_bytes, 0xFF, row_bytes);
  }
  static Tensor tensor_of(const std::vector<std::int64_t>& values) {
    Tensor tensor(DType::s32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i)
      tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
    return tensor;
  }

  std::int64_t padded_keys() const { return std::max<std::int64_t>((sizes_.seqlen_k + 7) / 8 * 8, 8); }

  /// [batch, heads, head_dim, keys], rows padded to 16 bytes with NaNs that nobody may read.
  Tensor transposed(const Tensor& v) const {
    const std::int64_t rows = v.shape[2] * v.shape[3], keys = v.shape[1];
    Tensor result(v.dtype, {v.shape[0], v.shape[2], v.shape[3], padded_keys()});
    std::memset(result.bytes.data(), 0xFF, result.bytes.size());
    for (std::int64_t batch = 0; batch < v.shape[0]; ++batch)
      for (std::int64_t key = 0; key < keys; ++key)
        for (std::int64_t row = 0; row < rows; ++row)
          result.set((batch * rows + row) * padded_keys() + key, v.at((batch * keys + key) * rows + row));
    return result;
  }
  TensorView v_view() const {
    const Tensor& v = tensors_.at("v");
    if (problem_.v_layout == Layout::mn_major) return v.view();
    const std::int64_t heads = v.shape[1], head_dim = v.shape[2];
    return {v.bytes.data(),
            v.dtype,
            {v.shape[0], sizes_.seqlen_k, heads, head_dim},
            {heads * head_dim * padded_keys(), 1, head_dim * padded_keys(), padded_keys()}};
  }

  Fmha problem_;
  reference::FmhaSizes sizes_;
  FmhaLaunchFacts facts_;
  Plan plan_;
  double softmax_scale_ = 0;
  EmulatedDevice& device_;
  std::unique_ptr<Launcher> launcher_;
  std::map<std::string, Tensor> tensors_;
  std::vector<DevicePointer> buffers_;
  DevicePointer workspace_ = 0;
};

}  // namespace

std::unique_ptr<Compiler> find_compiler() {
  try {
    return make_nvrtc_compiler();
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return nullptr;
  }
}

void check_runs(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                std::initializer_list<Schedule> schedules, std::uint64_t seeds, const FmhaLaunchFacts& facts) {
  emulator::DeviceOptions options;
  options.detects_races = true;
  options.arch = "sm_100a";
  EmulatedDevice device(options);
  Run run(problem, sizes, compiler, device, facts);
  CAPTURE(run.kernel());
  CAPTURE(fmt::format("batch {}, heads {}/{}, lengths {} {}", sizes.batch, sizes.heads_q, sizes.heads_kv,
                      sizes.seqlen_q, sizes.seqlen_k));
  std::vector<std::byte> first;
  for (const Schedule schedule : schedules) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      CAPTURE(static_cast<int>(schedule));
      CAPTURE(seed);
      device.set_schedule(schedule, seed);
      for (const Finding& finding : run.run()) FAIL_CHECK(finding.message);
      if (first.empty()) {
        const reference::Comparison comparison = run.compare();
        for (const std::string& line : comparison.problems) FAIL_CHECK(line);
        CHECK(comparison.pass);
        CHECK(comparison.cosine >= 0.999995);
        first = run.bytes();
      }
      CHECK(first == run.bytes());
    }
  }
}

}  // namespace tessera::testing

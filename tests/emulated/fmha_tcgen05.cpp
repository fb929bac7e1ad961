// Attention kernels for tcgen05, planned, compiled by NVRTC, run in the emulator and compared with float64: a pairwise
// cover of everything that a Config can be, and the shapes that each of them finds hard. No Blackwell device is asked.
// TESSERA_FMHA_ALL=1 in the environment runs every combination with twenty seeds (hours) instead of the cover.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "emulator/device.h"
#include "generator/plan.h"
#include "generator/words.h"
#include "reference/fmha.h"
#include "runtime/launcher.h"
#include "runtime/nvrtc.h"

namespace tessera {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Tensor;
using reference::TensorView;

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

/// One kernel and one shape: inputs in device memory, outputs poisoned before each run.
class Run {
 public:
  Run(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler, EmulatedDevice& device,
      std::optional<double> softmax_scale)
      : problem_(problem), sizes_(sizes), plan_(make_plan(problem)), device_(device) {
    softmax_scale_ = softmax_scale.value_or(*plan_.launch.scalars.at(0).default_value);
    launcher_ = std::make_unique<Launcher>(device, plan_.launch, compiler.compile(emit(plan_)));
    reference::FmhaTensors made = reference::make_inputs(sizes, problem.dtype, reference::Fill::normal, 11);
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
  }

  std::vector<Finding> run() {
    const std::map<std::string, std::int64_t> given{{"batch", sizes_.batch},       {"heads_q", sizes_.heads_q},
                                                    {"heads_kv", sizes_.heads_kv}, {"seqlen_q", sizes_.seqlen_q},
                                                    {"seqlen_k", sizes_.seqlen_k}, {"v_stride_dim", padded_keys()}};
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
    return reference::check_fmha({tensors_.at("q").view(), tensors_.at("k").view(), v_view()}, outputs, check);
  }

  const std::string& kernel() const { return plan_.kernel; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = tensors_.at("o").bytes;
    const std::vector<std::byte>& lse = tensors_.at("lse").bytes;
    all.insert(all.end(), lse.begin(), lse.end());
    return all;
  }

 private:
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
  Plan plan_;
  double softmax_scale_ = 0;
  EmulatedDevice& device_;
  std::unique_ptr<Launcher> launcher_;
  std::map<std::string, Tensor> tensors_;
  std::vector<DevicePointer> buffers_;
};

std::unique_ptr<Compiler> find_compiler() {
  try {
    return make_nvrtc_compiler();
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return nullptr;
  }
}

/// Under some schedules and seeds, with the race detector: nothing is reported, rows are right, bits are equal.
void check_runs(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                std::initializer_list<Schedule> schedules, std::uint64_t seeds,
                std::optional<double> softmax_scale = {}) {
  emulator::DeviceOptions options;
  options.detects_races = true;
  options.arch = "sm_100a";
  EmulatedDevice device(options);
  Run run(problem, sizes, compiler, device, softmax_scale);
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

/// One value of each axis: an index into the lists below.
constexpr std::size_t kAxes = 9;
using Combination = std::array<int, kAxes>;

struct HeadDims {
  int head_dim, head_dim_v, cta_group;
};
constexpr HeadDims kHeadDims[] = {{16, 16, 1},   {32, 32, 1},   {64, 64, 1},   {96, 96, 1},
                                  {128, 128, 1}, {192, 128, 1}, {192, 192, 1}, {256, 256, 1},
                                  {512, 512, 2}, {128, 128, 2}, {256, 256, 2}};
struct Heads {
  int heads_q, heads_kv;
};
constexpr Heads kHeads[] = {{1, 1}, {2, 1}, {8, 1}};
struct Lengths {
  int seqlen_q, seqlen_k;
};
// Ragged in both; several tiles of both; more queries than keys: rows that see no key under the causal mask.
constexpr Lengths kLengths[] = {{70, 600}, {300, 333}, {260, 130}};
constexpr Combination kExtents{std::size(kHeadDims), 2, 4, 2, 2, 2, 2, std::size(kLengths), std::size(kHeads)};

Fmha problem_of(const Combination& at) {
  const HeadDims& dims = kHeadDims[at[0]];
  Fmha problem;
  problem.arch = Arch::parse("sm_100a");
  problem.head_dim = dims.head_dim;
  problem.head_dim_v = dims.head_dim_v;
  problem.cta_group = dims.cta_group;
  problem.mask = at[1] == 0 ? Mask::none : Mask::causal;
  problem.swizzle = static_cast<Swizzle>(at[2]);
  problem.p_path = at[3] == 0 ? ProbabilityPath::tmem : ProbabilityPath::smem;
  problem.dtype = at[4] == 0 ? DType::bf16 : DType::f16;
  problem.output = at[5] == 0 ? Output::normalized : Output::unnormalized;
  problem.v_layout = at[6] == 0 ? Layout::mn_major : Layout::k_major;
  return problem;
}
reference::FmhaSizes sizes_of(const Combination& at) {
  const HeadDims& dims = kHeadDims[at[0]];
  const Lengths& lengths = kLengths[at[7]];
  const Heads& heads = kHeads[at[8]];
  return {1, heads.heads_q, heads.heads_kv, lengths.seqlen_q, lengths.seqlen_k, dims.head_dim, dims.head_dim_v};
}
bool is_legal(const Combination& at) {
  try {
    planned_kernel(problem_of(at));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Combination> every_combination() {
  std::vector<Combination> all;
  Combination at{};
  for (;;) {
    if (is_legal(at)) all.push_back(at);
    std::size_t axis = 0;
    while (axis < kAxes && ++at[axis] == kExtents[axis]) at[axis++] = 0;
    if (axis == kAxes) return all;
  }
}

/// Combinations in which every pair of values of two axes appears that appears in any legal one: each time the one with
/// the most new pairs.
std::vector<Combination> pairwise_cover(const std::vector<Combination>& all) {
  using Pair = std::array<int, 4>;
  const auto pairs_of = [](const Combination& at) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < kAxes; ++a)
      for (std::size_t b = a + 1; b < kAxes; ++b)
        pairs.push_back({static_cast<int>(a), at[a], static_cast<int>(b), at[b]});
    return pairs;
  };
  std::set<Pair> open;
  for (const Combination& at : all)
    for (const Pair& pair : pairs_of(at)) open.insert(pair);
  const std::size_t stride = all.size() > 2000 ? 7 : 1;
  std::vector<Combination> cover;
  while (!open.empty()) {
    std::size_t best = 0, best_new = 0;
    for (std::size_t i = 0; i < all.size(); i += stride) {
      std::size_t fresh = 0;
      for (const Pair& pair : pairs_of(all[i])) fresh += open.contains(pair) ? 1U : 0U;
      if (fresh > best_new) {
        best = i;
        best_new = fresh;
      }
    }
    if (best_new == 0) {  // the steps passed over what is left
      for (std::size_t i = 0; i < all.size() && best_new == 0; ++i)
        for (const Pair& pair : pairs_of(all[i]))
          if (open.count(pair) != 0) best = i, best_new = 1;
    }
    for (const Pair& pair : pairs_of(all[best])) open.erase(pair);
    cover.push_back(all[best]);
  }
  return cover;
}

TEST_CASE("attention on tcgen05: every pair of choices, ragged and grouped") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const char* const all = std::getenv("TESSERA_FMHA_ALL");
  const bool runs_all = all != nullptr && std::string_view(all) == "1";
  const std::vector<Combination> legal = every_combination();
  const std::vector<Combination> chosen = runs_all ? legal : pairwise_cover(legal);
  MESSAGE(chosen.size(), " of ", legal.size(), " legal combinations");
  CHECK(chosen.size() >= 33);
  for (const Combination& at : chosen) {
    const auto schedules = {kSchedules[0], kSchedules[1], kSchedules[2], kSchedules[3]};
    const auto two = {Schedule::lazy, Schedule::adversarial};
    // With a scale of 1 scores differ by dozens: references move and O is rescaled in every few steps.
    const std::optional<double> scale = at[7] == 1 ? std::optional<double>(1.0) : std::nullopt;
    check_runs(problem_of(at), sizes_of(at), *compiler, runs_all ? schedules : two, runs_all ? 20 : 1, scale);
  }
}

TEST_CASE("attention on tcgen05: lengths of 0 and 1, many heads of one key head, all schedules") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha causal;
  causal.arch = Arch::parse("sm_100a");
  causal.head_dim = 64;
  causal.mask = Mask::causal;
  Fmha full = causal;
  full.mask = Mask::none;
  Fmha wide = causal;
  wide.head_dim = 512;
  const auto all = {kSchedules[0], kSchedules[1], kSchedules[2], kSchedules[3]};
  for (const Fmha& problem : {causal, full, wide}) {
    const std::int64_t d = problem.head_dim;
    check_runs(problem, {1, 1, 1, 1, 1, d}, *compiler, all, 2);
    check_runs(problem, {2, 2, 1, 5, 0, d}, *compiler, all, 1);
    check_runs(problem, {1, 1, 1, 0, 7, d}, *compiler, all, 1);
    check_runs(problem, {2, 3, 3, 1, 700, d}, *compiler, {Schedule::fair, Schedule::adversarial}, 2);
  }
  // More tiles than the four multiprocessors: every ring and slot is used again by the next tile. Scales that cannot be
  // folded into the exponential.
  check_runs(causal, {2, 2, 1, 600, 400, 64}, *compiler, all, 1, 1.0);
  check_runs(causal, {1, 2, 1, 100, 300, 64}, *compiler, {Schedule::fair}, 1, -0.3);
  check_runs(full, {1, 1, 1, 100, 300, 64}, *compiler, {Schedule::fair}, 1, 0.0);
  check_runs(full, {1, 128, 1, 3, 200, 64}, *compiler, {Schedule::fair}, 1);
}

}  // namespace
}  // namespace tessera

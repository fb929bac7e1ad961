// Planned attention kernels, compiled by NVRTC, run in the emulator under every schedule and compared with float64.
#include "reference/fmha.h"

#include <doctest/doctest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <numbers>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tests/emulated/compiler.h"
#include "tests/support/sample.h"

namespace tessera::fmha_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using testing::find_compiler;

struct Case {
  const char* name;
  Fmha problem;
  reference::FmhaSizes sizes;
};

/// Everything about one kernel that does not change from run to run.
class FmhaRun {
 public:
  FmhaRun(const Case& test, Compiler& compiler, EmulatedDevice& device)
      : test_(test), plan_(make_plan(test.problem)), device_(device) {
    launcher_ = std::make_unique<Launcher>(device, plan_.launch, compiler.compile(emit(plan_)));
    inputs_ = reference::make_integer_inputs(test.sizes, test.problem.dtype, 7);
    const std::map<std::string, std::int64_t> given{{"batch", test.sizes.batch},
                                                    {"heads_q", test.sizes.heads_q},
                                                    {"heads_kv", test.sizes.heads_kv},
                                                    {"seqlen_q", test.sizes.seqlen_q},
                                                    {"seqlen_k", test.sizes.seqlen_k}};
    for (const SizeSpec& size : plan_.launch.sizes)
      sizes_.push_back(given.count(size.name) != 0 ? given.at(size.name) : kUseDefault);
    for (const ScalarSpec& scalar : plan_.launch.scalars)
      scalars_.push_back(scalar.name == "softmax_scale" ? std::numbers::ln2 : std::numeric_limits<double>::quiet_NaN());
    output_ = reference::Tensor(test.problem.dtype,
                                {test.sizes.batch, test.sizes.seqlen_q, test.sizes.heads_q, test.sizes.v_columns()});
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      const reference::Tensor* tensor = buffer.name == "q"   ? &inputs_.q
                                        : buffer.name == "k" ? &inputs_.k
                                        : buffer.name == "v" ? &inputs_.v
                                        : buffer.name == "o" ? &output_
                                                             : nullptr;
      DevicePointer pointer = 0;
      if (tensor != nullptr) {
        pointer = device.allocate(tensor->bytes.size());
        device.copy_to_device(pointer, tensor->bytes.data(), tensor->bytes.size());
      } else {
        REQUIRE(buffer.is_optional);
      }
      if (buffer.name == "o") o_ = pointer;
      buffers_.push_back(pointer);
    }
  }

  reference::Tensor run(std::vector<Finding>& findings) {
    device_.poison(o_, 0xFF, output_.bytes.size());
    LaunchArguments arguments;
    arguments.sizes = sizes_;
    arguments.scalars = scalars_;
    arguments.buffers = buffers_;
    launcher_->launch({}, arguments);
    findings = device_.synchronize();
    device_.copy_to_host(output_.bytes.data(), o_, output_.bytes.size());
    return output_;
  }

  /// With two slots for Q a tile's first scores run beside a product that may have nothing to do.

  reference::Comparison compare() const {
    reference::FmhaCheck check;
    check.facts.mask = test_.problem.mask;
    check.softmax_scale = std::numbers::ln2;
    check.is_exact = true;
    check.tile_m = plan_.number("tile_m");
    check.tile_n = plan_.number("tile_n");
    check.jobs = 1;
    return reference::check_fmha({inputs_.q.view(), inputs_.k.view(), inputs_.v.view()}, {output_.view(), {}, {}, {}},
                                 check);
  }

 private:
  Case test_;
  Plan plan_;
  EmulatedDevice& device_;
  std::unique_ptr<Launcher> launcher_;
  reference::FmhaTensors inputs_;
  reference::Tensor output_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<DevicePointer> buffers_;
  DevicePointer o_ = 0;
};

TEST_CASE("attention kernels under every schedule") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha causal;
  causal.head_dim = 64;
  causal.mask = Mask::causal;
  Fmha f16;
  f16.head_dim = 64;
  f16.dtype = DType::f16;
  const Case cases[] = {
      {"head_dim 128, ring wraps, ragged", Fmha{}, {1, 2, 1, 200, 500, 128}},
      {"causal, several batches and heads", causal, {2, 2, 1, 150, 150, 64}},
      {"f16", f16, {1, 1, 1, 130, 260, 64}},
      {"head_dim 96, 64-byte swizzle", Fmha{.head_dim = 96}, {1, 2, 1, 100, 230, 96}},
      {"head_dim_v of its own",
       Fmha{.head_dim = 192, .head_dim_v = 128, .mask = Mask::causal},
       {1, 1, 1, 140, 300, 192, 128}},
      {"a pair of CTAs", Fmha{.head_dim = 512}, {1, 2, 1, 70, 100, 512}},
      {"a pair of CTAs, causal", Fmha{.head_dim = 512, .mask = Mask::causal}, {1, 1, 1, 200, 150, 512}},
      {"packed heads, causal", Fmha{.head_dim = 64, .mask = Mask::causal, .pack_gqa = 4}, {2, 8, 2, 70, 140, 64}},
      {"packed heads, fewer queries than rows", Fmha{.pack_gqa = 8}, {3, 16, 2, 3, 300, 128}},
      {"packed heads, one query", Fmha{.head_dim = 256, .mask = Mask::causal, .pack_gqa = 64}, {2, 64, 1, 1, 150, 256}},
      {"packed heads, a pair of CTAs", Fmha{.head_dim = 512, .pack_gqa = 2}, {1, 4, 2, 90, 100, 512}},
      {"no swizzle", Fmha{.head_dim = 64, .swizzle = Swizzle::none}, {1, 1, 1, 70, 140, 64}},
      {"32-byte swizzle", Fmha{.head_dim = 96, .swizzle = Swizzle::b32}, {1, 1, 1, 70, 140, 96}},
  };
  testing::Sample sample(24);
  for (const Case& test : cases) {
    if (!sample.takes()) continue;
    CAPTURE(test.name);
    EmulatedDevice device;
    FmhaRun run(test, *compiler, device);
    std::vector<std::byte> first;
    for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        CAPTURE(static_cast<int>(schedule));
        CAPTURE(seed);
        device.set_schedule(schedule, seed);
        std::vector<Finding> findings;
        const reference::Tensor result = run.run(findings);
        for (const Finding& finding : findings) FAIL_CHECK(finding.message);
        const reference::Comparison comparison = run.compare();
        for (const std::string& problem : comparison.problems) FAIL_CHECK(problem);
        CHECK(comparison.pass);
        if (first.empty()) first = result.bytes;
        CHECK(first == result.bytes);
        CHECK(device.statistics().warp_instructions > 10000);
      }
    }
  }
}

TEST_CASE("attention kernels have no races") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha causal;
  causal.head_dim = 64;
  causal.mask = Mask::causal;
  Fmha large;
  large.head_dim = 256;
  const Case cases[] = {
      {"head_dim 128", Fmha{}, {1, 2, 1, 200, 500, 128}},
      {"causal, several batches and heads", causal, {2, 2, 1, 150, 150, 64}},
      {"head_dim 256", large, {1, 1, 1, 200, 300, 256}},
      {"a pair of CTAs", Fmha{.head_dim = 512, .mask = Mask::causal}, {1, 1, 1, 150, 200, 512}},
  };
  for (const Case& test : cases) {
    CAPTURE(test.name);
    emulator::DeviceOptions options;
    options.detects_races = true;
    EmulatedDevice device(options);
    FmhaRun run(test, *compiler, device);
    for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
      CAPTURE(static_cast<int>(schedule));
      device.set_schedule(schedule, 3);
      std::vector<Finding> findings;
      run.run(findings);
      for (const Finding& finding : findings) FAIL_CHECK(finding.message);
      CHECK(run.compare().pass);
    }
  }
}

// On attention over 256 x 512. Both in turns, by the CPU time of this process, until the least of each tell: what else
// runs on the machine takes caches away from one or the other.
TEST_CASE("the race detector costs less than four times the launch without it") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Case test{"", Fmha{}, {1, 1, 1, 256, 512, 128}};
  emulator::DeviceOptions options;
  EmulatedDevice plain_device(options);
  options.detects_races = true;
  EmulatedDevice races_device(options);
  FmhaRun plain(test, *compiler, plain_device), races(test, *compiler, races_device);
  const auto least = [](FmhaRun& run, double& seconds) {
    std::vector<Finding> findings;
    const std::clock_t start = std::clock();
    run.run(findings);
    seconds = std::min(seconds, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  };
  double without = 1e9, with = 1e9;
  for (int round = 0; round < 20 && (round < 3 || with >= 4 * without); ++round) {
    least(plain, without);
    least(races, with);
  }
  MESSAGE("attention 256 x 512, head_dim 128: ", 1e3 * without, " ms, with the race detector ", 1e3 * with);
  CHECK(with < 4 * without);
}

}  // namespace
}  // namespace tessera::fmha_test

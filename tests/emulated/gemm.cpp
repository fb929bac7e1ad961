// Planned matrix products, compiled by NVRTC, run in the emulator under every schedule, followed by its race detector,
// and compared with float64.
#include "reference/gemm.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>

#include "base/bound_expression.h"
#include "generator/facts.h"
#include "generator/selectors.h"
#include "reference/poison.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tests/support/sample.h"

namespace tessera {
namespace {

using emulator::EmulatedDevice;
using EmulatorSchedule = emulator::Schedule;
using reference::Fill;
using reference::Tensor;
using reference::TensorView;

struct Case {
  const char* name;
  std::vector<std::pair<std::string, std::string>> fields;
  std::map<std::string, std::int64_t> sizes;
  Fill fill = Fill::integer;  // of a; whole numbers are compared exactly
  bool is_in_place = false;   // c is d's memory
};

Gemm problem_of(const Case& test) {
  Problem problem = Gemm{};
  for (const auto& [key, text] : test.fields) set_field(problem, key, text);
  return problem.as<Gemm>();
}

/// One kernel, its inputs in rows that are padded where the sizes say so, and its output.
class GemmRun {
 public:
  GemmRun(const Case& test, Compiler& compiler, EmulatedDevice& device)
      : test_(test), plan_(make_plan(problem_of(test))), device_(device) {
    launcher_ = std::make_unique<Launcher>(device, plan_.launch, compiler.compile(emit(plan_)));
    std::vector<std::string> names;
    for (const SizeSpec& size : plan_.launch.sizes) {
      const auto given = test.sizes.find(size.name);
      const std::int64_t value = given != test.sizes.end() ? given->second
                                 : size.name == "num_sms"  ? device.info().num_sms
                                                           : evaluate(*size.default_value, names);
      names.push_back(size.name);
      sizes_.push_back(value);
    }
    names_ = names;
    std::uint64_t stream = 0;
    for (const BufferSpec& buffer : plan_.launch.buffers) add_buffer(buffer, ++stream);
    if (test_.is_in_place)
      for (std::size_t i = 0; i < pointers_.size(); ++i)
        if (plan_.launch.buffers[i].name == "c") pointers_[i] = buffers_.at("d").pointer;
    for (const ScalarSpec& scalar : plan_.launch.scalars) scalars_.push_back(scalar.name == "beta" ? 2 : 1);
  }

  std::vector<std::byte> run(std::vector<Finding>& findings) {
    Buffer& d = buffers_.at("d");
    device_.poison(d.pointer, reference::kPoisonByte, d.memory.bytes.size());
    if (test_.is_in_place) {
      const Buffer& c = buffers_.at("c");
      device_.copy_to_device(d.pointer, c.memory.bytes.data(), c.memory.bytes.size());
    }
    LaunchArguments arguments;
    arguments.sizes = sizes_;
    arguments.scalars = scalars_;
    arguments.buffers = pointers_;
    launcher_->launch({}, arguments);
    findings = device_.synchronize();
    device_.copy_to_host(d.memory.bytes.data(), d.pointer, d.memory.bytes.size());
    return d.memory.bytes;
  }

  reference::Comparison compare() const {
    const ProductFacts facts = product_facts(plan_.problem.as<Gemm>());
    const ProductTiles tiles = product_tiles(plan_);
    reference::GemmCheck check;
    check.beta = 2;
    for (const char* const scale : {"scale_a", "scale_b"})
      if (const auto found = buffers_.find(scale); found != buffers_.end()) check.alpha *= found->second.memory.at(0);
    check.accumulation = facts.accumulation;
    check.activation = facts.activation;
    check.split_k = tiles.split_k;
    check.is_exact = test_.fill != Fill::standard;
    check.tile_m = tiles.tile_m;
    check.tile_n = tiles.tile_n;
    check.jobs = 1;
    reference::GemmInputs in{operand("a", facts.a_layout), operand("b", facts.b_layout), {}, {}};
    if (buffers_.count("c") != 0) in.c = buffers_.at("c").view;
    if (buffers_.count("bias") != 0) in.bias = buffers_.at("bias").view;
    return reference::check_gemm(in, buffers_.at("d").view, check);
  }

  /// What lies between the rows of d, which must stay poisoned.
  bool are_gaps_intact() const {
    const Buffer& d = buffers_.at("d");
    std::vector<bool> is_element(d.memory.bytes.size());
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(d.memory.dtype));
    for (std::int64_t i = 0; i < d.view.shape[0]; ++i)
      for (std::int64_t r = 0; r < d.view.shape[1]; ++r)
        for (std::int64_t b = 0; b < d.view.shape[2] * bytes; ++b)
          is_element[static_cast<std::size_t>((i * d.view.strides[0] + r * d.view.strides[1]) * bytes + b)] = true;
    for (std::size_t i = 0; i < is_element.size(); ++i)
      if (!is_element[i] && d.memory.bytes[i] != gap_byte(i)) return false;
    return true;
  }

 private:
  struct Buffer {
    Tensor memory;  // with the gaps between rows
    TensorView view;
    DevicePointer pointer = 0;
  };

  /// What a byte that belongs to no element of d held before the launch.
  std::byte gap_byte(std::size_t i) const {
    return test_.is_in_place ? buffers_.at("c").memory.bytes[i] : std::byte{reference::kPoisonByte};
  }

  std::int64_t evaluate(const Expression& expression, const std::vector<std::string>& names) const {
    return BoundExpression(expression, names).evaluate(sizes_);
  }

  void add_buffer(const BufferSpec& spec, std::uint64_t stream) {
    std::vector<std::int64_t> shape, strides;
    for (const Expression& extent : spec.shape) shape.push_back(evaluate(extent, names_));
    for (const Expression& stride : spec.strides) strides.push_back(evaluate(stride, names_));
    const std::int64_t elements = shape[0] * strides[0];
    Buffer& buffer = buffers_[spec.name];
    buffer.memory = Tensor(*reference::dtype_from_name(spec.dtype), {elements});
    if (spec.name.starts_with("scale")) {
      buffer.memory.set(0, spec.name == "scale_a" ? 0.5 : 4);
    } else {
      // Gaps are filled too: what is read from them shows.
      const Fill fill = test_.fill == Fill::integer || spec.name == "a" ? test_.fill
                        : test_.fill == Fill::standard                  ? Fill::standard
                                                                        : Fill::sign;
      reference::fill(buffer.memory, fill == Fill::sparse_integer ? Fill::sign : fill, 11, stream);
    }
    buffer.pointer = device_.allocate(buffer.memory.bytes.size());
    device_.copy_to_device(buffer.pointer, buffer.memory.bytes.data(), buffer.memory.bytes.size());
    buffer.view = {buffer.memory.bytes.data(), buffer.memory.dtype, shape, strides};
    pointers_.push_back(buffer.pointer);
  }

  TensorView operand(const char* name, Layout layout) const {
    TensorView view = buffers_.at(name).view;
    if (layout == Layout::mn_major) {
      std::swap(view.shape[1], view.shape[2]);
      std::swap(view.strides[1], view.strides[2]);
    }
    return view;
  }

  Case test_;
  Plan plan_;
  EmulatedDevice& device_;
  std::unique_ptr<Launcher> launcher_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<DevicePointer> pointers_;
  std::map<std::string, Buffer> buffers_;
};

std::unique_ptr<Compiler> find_compiler() {
  try {
    return make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    return nullptr;
  }
}

const Case kCases[] = {
    {"cluster along m, two rounds, ragged",
     {{"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 300}, {"n", 200}, {"k", 200}}},
    {"cluster along n, f16, fp32 out, c and bias, padded rows",
     {{"dtype", "f16"},
      {"d_dtype", "f32"},
      {"c", "matrix"},
      {"bias", "column"},
      {"activation", "relu"},
      {"tile_m", "64"},
      {"tile_n", "96"},
      {"cluster_m", "1"},
      {"cluster_n", "2"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 70}, {"n", 130}, {"k", 120}, {"l", 2}, {"lda", 136}, {"ldb", 128}, {"ldc", 131}, {"ldd", 140}}},
    {"ping-pong, rows of d that tma cannot store",
     {{"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "4"},
      {"kernel_schedule", "ping_pong"}},
     {{"m", 190}, {"n", 77}, {"k", 136}, {"ldd", 81}}},
    {"copies behind the edges left out, CTAs of the cluster with neither rows nor columns",
     {{"tile_m", "64"},
      {"tile_n", "240"},
      {"cluster_m", "2"},
      {"cluster_n", "2"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "ping_pong"}},
     {{"m", 40}, {"n", 65}, {"k", 904}}},
    {"copies of 16 rows of a, most of them left out, many laps of the ring",
     {{"m", "5"},
      {"swap_ab", "off"},
      {"tile_m", "64"},
      {"tile_n", "64"},
      {"split_k", "1"},
      {"stages", "2"},
      {"cluster_m", "1"}},
     {{"m", 5}, {"n", 70}, {"k", 712}}},
    {"the same kernel with more rows than it was chosen for, tiles that end in turn",
     {{"m", "20"},
      {"swap_ab", "off"},
      {"tile_m", "128"},
      {"tile_n", "112"},
      {"split_k", "1"},
      {"stages", "2"},
      {"cluster_m", "1"}},
     {{"m", 260}, {"n", 120}, {"k", 456}, {"num_sms", 3}}},
    {"six rows of tiles: the lines of b stay in the L2",
     {{"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 330}, {"n", 70}, {"k", 328}, {"num_sms", 5}}},
    {"tiles of d transposed, clusters that share a, five rows of them: the lines of b stay in the L2",
     {{"swap_ab", "on"},
      {"tile_m", "16"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "2"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 75}, {"n", 200}, {"k", 200}}},
    {"k in four parts, one of them empty",
     {{"tile_m", "64"},
      {"tile_n", "128"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "4"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 64}, {"n", 150}, {"k", 192}}},
    {"k in two parts, two warpgroups and a cluster that shares b",
     {{"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "2"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 256}, {"n", 64}, {"k", 320}}},
    {"both operands mn-major",
     {{"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "128"},
      {"tile_n", "128"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 136}, {"n", 104}, {"k", 100}}},
    {"both operands mn-major, a tile that ends within a panel, a cluster that shares b",
     {{"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "80"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 136}, {"n", 248}, {"k", 100}, {"num_sms", 4}}},
    {"both operands mn-major, a part of b behind an edge that is no multiple of 16 bytes",
     {{"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "80"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 139}, {"n", 203}, {"k", 100}, {"lda", 144}, {"ldb", 208}, {"num_sms", 4}}},
    {"mn-major, a tile that ends within a panel, k in three parts",
     {{"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "48"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "3"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 70}, {"n", 104}, {"k", 712}}},
    {"transposed tiles that end within a panel of a",
     {{"tile_m", "144"},
      {"tile_n", "128"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "ping_pong"},
      {"swap_ab", "on"},
      {"a_layout", "mn"},
      {"b_layout", "mn"}},
     {{"m", 296}, {"n", 200}, {"k", 100}}},
    {"e4m3, promoted, scales, e4m3 out",
     {{"dtype", "e4m3"},
      {"d_dtype", "e4m3"},
      {"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 80}, {"n", 96}, {"k", 272}},
     Fill::sparse_integer},
    {"e4m3 by e5m2, fast, random",
     {{"dtype", "e4m3"},
      {"b_dtype", "e5m2"},
      {"accumulation", "fast"},
      {"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "2"},
      {"stages", "4"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 64}, {"n", 64}, {"k", 256}},
     Fill::standard},
    {"k in four parts, a cluster that shares a, more parts than steps",
     {{"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "2"},
      {"split_k", "4"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 70}, {"n", 250}, {"k", 136}}},
    {"ping-pong, a cluster, fewer steps than slots: warpgroups leave out phases",
     {{"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "8"},
      {"kernel_schedule", "ping_pong"}},
     {{"m", 200}, {"n", 128}, {"k", 368}, {"l", 4}}},
    {"ping-pong, promoted, one step a tile",
     {{"dtype", "e4m3"},
      {"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "ping_pong"}},
     {{"m", 500}, {"n", 300}, {"k", 96}},
     Fill::sparse_integer},
    {"d over c, rows that tma stores",
     {{"c", "matrix"},
      {"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 200}, {"n", 136}, {"k", 72}, {"ldc", 144}, {"ldd", 144}, {"l", 2}},
     Fill::integer,
     true},
    {"d over c, rows that threads store, k in two parts",
     {{"c", "matrix"},
      {"d_dtype", "f32"},
      {"tile_m", "64"},
      {"tile_n", "96"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "2"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 130}, {"n", 99}, {"k", 200}, {"ldc", 101}, {"ldd", 101}},
     Fill::integer,
     true},
    {"nothing to add up",
     {{"bias", "column"},
      {"activation", "gelu"},
      {"tile_m", "64"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 40}, {"n", 64}, {"k", 0}}},
    {"k in five parts, a part without a step",
     {{"tile_m", "64"},
      {"tile_n", "80"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "5"},
      {"stages", "4"},
      {"kernel_schedule", "cooperative"}},
     {{"m", 70}, {"n", 170}, {"k", 248}}},
    {"k in three parts, promoted",
     {{"tile_m", "128"},
      {"tile_n", "96"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "3"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"},
      {"dtype", "e4m3"}},
     {{"m", 140}, {"n", 100}, {"k", 1040}},
     Fill::sparse_integer},
    {"transposed tiles, ragged, two matrices, c, bias and an activation, padded rows",
     {{"tile_m", "48"},
      {"tile_n", "128"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"},
      {"swap_ab", "on"},
      {"c", "matrix"},
      {"bias", "column"},
      {"activation", "silu"}},
     {{"m", 50}, {"n", 264}, {"k", 136}, {"l", 2}, {"lda", 144}, {"ldb", 136}, {"ldc", 267}, {"ldd", 272}},
     Fill::standard},
    {"transposed tiles in turn, rows of d that tma cannot store",
     {{"tile_m", "80"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "4"},
      {"kernel_schedule", "ping_pong"},
      {"swap_ab", "on"},
      {"dtype", "f16"},
      {"d_dtype", "f16"},
      {"bias", "column"}},
     {{"m", 170}, {"n", 203}, {"k", 136}, {"ldd", 207}, {"num_sms", 2}}},
    {"transposed tiles of mn-major operands, a cluster that shares a",
     {{"tile_m", "128"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "2"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"},
      {"swap_ab", "on"},
      {"a_layout", "mn"},
      {"b_layout", "mn"}},
     {{"m", 136}, {"n", 200}, {"k", 100}}},
    {"transposed tiles, a cluster that shares b, many rounds",
     {{"tile_m", "96"},
      {"tile_n", "192"},
      {"cluster_m", "2"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "2"},
      {"kernel_schedule", "cooperative"},
      {"swap_ab", "on"}},
     {{"m", 700}, {"n", 400}, {"k", 72}, {"num_sms", 4}}},
    {"transposed tiles, k in three parts",
     {{"tile_m", "48"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "3"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"},
      {"swap_ab", "on"}},
     {{"m", 33}, {"n", 130}, {"k", 712}}},
    {"transposed tiles, promoted, f16 out, scales",
     {{"tile_m", "32"},
      {"tile_n", "256"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"},
      {"swap_ab", "on"},
      {"dtype", "e4m3"},
      {"b_dtype", "e5m2"},
      {"d_dtype", "f16"}},
     {{"m", 20}, {"n", 300}, {"k", 272}},
     Fill::sparse_integer},
    {"transposed tiles, d over c",
     {{"tile_m", "16"},
      {"tile_n", "64"},
      {"cluster_m", "1"},
      {"cluster_n", "1"},
      {"split_k", "1"},
      {"stages", "3"},
      {"kernel_schedule", "cooperative"},
      {"swap_ab", "on"},
      {"c", "matrix"}},
     {{"m", 19}, {"n", 136}, {"k", 72}, {"ldc", 144}, {"ldd", 144}, {"l", 2}},
     Fill::integer,
     true},
};

TEST_CASE("products under every schedule") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  testing::Sample sample(4);
  for (const Case& test : kCases) {
    if (!sample.takes()) continue;
    CAPTURE(test.name);
    emulator::DeviceOptions options;
    options.detects_races = true;
    EmulatedDevice device(options);
    GemmRun run(test, *compiler, device);
    std::vector<std::byte> first;
    for (const EmulatorSchedule schedule :
         {EmulatorSchedule::fair, EmulatorSchedule::eager, EmulatorSchedule::lazy, EmulatorSchedule::adversarial}) {
      CAPTURE(static_cast<int>(schedule));
      device.set_schedule(schedule, 3);
      std::vector<Finding> findings;
      const std::vector<std::byte> result = run.run(findings);
      for (const Finding& finding : findings) FAIL_CHECK(finding.message);
      const reference::Comparison comparison = run.compare();
      for (const std::string& problem : comparison.problems) FAIL_CHECK(problem);
      CHECK(comparison.pass);
      CHECK(run.are_gaps_intact());
      if (first.empty()) first = result;
      CHECK(first == result);
    }
  }
}

}  // namespace
}  // namespace tessera

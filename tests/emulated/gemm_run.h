// A planned matrix product in the emulator: compiled by NVRTC, run under several schedules with the race detector,
// compared with float64.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bound_expression.h"
#include "generator/facts.h"
#include "generator/selectors.h"
#include "reference/gemm_gated.h"
#include "reference/groups.h"
#include "reference/packed_weights.h"
#include "reference/poison.h"
#include "reference/random.h"
#include "tessera/emulator/device.h"
#include "tessera/launcher.h"
#include "tests/emulated/compiler.h"
#include "tests/support/sample.h"

namespace tessera::gemm_run {

using emulator::EmulatedDevice;
using EmulatorSchedule = emulator::Schedule;
using reference::Fill;
using reference::Tensor;
using reference::TensorView;
using testing::find_compiler;

using Fields = std::vector<std::pair<std::string, std::string>>;

struct Case {
  const char* name;
  Fields fields;
  std::map<std::string, std::int64_t> sizes;
  Fill fill = Fill::integer;               // of a; whole numbers are compared exactly
  bool is_in_place = false;                // c is d's memory
  std::vector<std::int64_t> group_rows{};  // with a grouping
};

/// `all` with the fields of a case, and of `pins` those that the case does not give itself.
inline Fields with_pins(Fields all, const Fields& pins, const Fields& others) {
  for (const auto& pin : pins) {
    const auto is_same = [&](const auto& field) { return field.first == pin.first; };
    if (std::none_of(others.begin(), others.end(), is_same)) all.push_back(pin);
  }
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

/// Operands in e4m3 with factors of blocks, which the case may have others of.
inline Fields with_factors(const Fields& others) {
  Fields all{{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "128x128"}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

inline Gemm problem_of(const Case& test) {
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

  /// Whether a launch may begin before the one in front of it has ended, whose results it then writes anew.
  bool overlaps_itself() const {
    return !test_.is_in_place && plan_.launch.steps.front().programmatic_stream_serialization;
  }

  /// So many launches, one behind the other.
  std::vector<std::byte> run(std::vector<Finding>& findings, int launches = 1) {
    Buffer& d = buffers_.at("d");
    for (const char* const name : kOutputs)
      if (const auto found = buffers_.find(name); found != buffers_.end())
        device_.poison(found->second.pointer, reference::kPoisonByte, found->second.memory.bytes.size());
    if (test_.is_in_place) {
      const Buffer& c = buffers_.at("c");
      device_.copy_to_device(d.pointer, c.memory.bytes.data(), c.memory.bytes.size());
    }
    LaunchArguments arguments;
    arguments.sizes = sizes_;
    arguments.scalars = scalars_;
    arguments.buffers = pointers_;
    if (const std::int64_t bytes = launcher_->workspace_bytes(arguments); bytes > 0) {
      if (workspace_ == 0) workspace_ = device_.allocate(static_cast<std::size_t>(bytes));
      device_.poison(workspace_, reference::kPoisonByte, static_cast<std::size_t>(bytes));
      arguments.workspace = workspace_;
      arguments.workspace_bytes = bytes;
    }
    for (int i = 0; i < launches; ++i) launcher_->launch({}, arguments);
    findings = device_.synchronize();
    std::vector<std::byte> all;
    for (const char* const name : kOutputs) {
      const auto found = buffers_.find(name);
      if (found == buffers_.end()) continue;
      std::vector<std::byte>& bytes = found->second.memory.bytes;
      device_.copy_to_host(bytes.data(), found->second.pointer, bytes.size());
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  reference::Comparison compare() const {
    const ProductFacts facts = product_facts(plan_.problem.as<Gemm>());
    const ProductTiles tiles = product_tiles(plan_);
    reference::GemmCheck check;
    check.beta = 2;
    for (const char* const scale : {"scale_a", "scale_b"})
      if (const auto found = buffers_.find(scale); found != buffers_.end()) check.alpha *= found->second.memory.at(0);
    check.facts = facts;
    if (facts.d_scale_block != ScaleBlock::none) check.sfd = buffers_.at("sfd").view;
    check.split_k = tiles.split_k;
    check.is_exact = test_.fill != Fill::standard;
    check.tile_m = tiles.tile_m;
    check.tile_n = tiles.tile_n;
    check.jobs = 1;
    Tensor weights;
    if (has_packed_weights()) {
      const std::int64_t n = evaluate(Expression::parse("n"), names_), k = evaluate(Expression::parse("k"), names_);
      const auto bytes_of = [&](const char* name) {
        const auto found = buffers_.find(name);
        return found == buffers_.end() ? std::span<const std::byte>() : std::span(found->second.memory.bytes);
      };
      weights = is_plain()
                    ? reference::decode_weight_rows({weights_of(), bytes_of("b"), bytes_of("sfb"), bytes_of("zeros"),
                                                     ScaleForm::plain, evaluate(Expression::parse("l"), names_), n, k})
                    : reference::decode_packed_weights(weights_of(), buffers_.at("b").view, n, k);
      check.sums = reference::TensorSums{};
      check.sums->step = kWeightDepth;
      check.k_groups = tiles.k_groups;
    }
    reference::GemmInputs in{
        operand("a", facts.a_layout), has_packed_weights() ? weights.view() : operand("b", facts.b_layout), {}, {}};
    if (facts.gate == Gate::dual) {
      const auto factor = [&](const char* name) {
        const auto found = buffers_.find(name);
        return found == buffers_.end() ? 1 : found->second.memory.at(0);
      };
      weights = reference::rows_of_dual(in.b, operand("b2", facts.b_layout), factor("scale_b2") / factor("scale_b"));
      in.b = weights.view();
    }
    if (buffers_.count("c") != 0) in.c = buffers_.at("c").view;
    if (buffers_.count("bias") != 0) in.bias = buffers_.at("bias").view;
    const auto factors = [&](const char* name, ScaleBlock block) -> std::optional<reference::BlockFactors> {
      if (block == ScaleBlock::none) return {};
      return reference::BlockFactors{buffers_.at(name).view, block == ScaleBlock::square ? kScaleBlock : 1};
    };
    in.sfa = factors("sfa", facts.a_scale_block);
    in.sfb = factors("sfb", facts.b_scale_block);
    if (facts.grouping != Grouping::none)
      return reference::check_grouped_gemm(
          facts.grouping, buffers_.at("groups").view, in, buffers_.at("d").view, check,
          facts.gather == Gather::none ? std::nullopt : std::optional(buffers_.at("indices").view));
    return reference::check_plain_or_gated(in, buffers_.at("d").view, check);
  }

  /// What lies between the rows of d, and of its factors, which must stay poisoned.
  bool are_gaps_intact() const {
    bool are_intact = true;
    for (const char* const name : kOutputs)
      if (const auto found = buffers_.find(name); found != buffers_.end())
        are_intact = are_intact && are_gaps_intact(found->second);
    return are_intact;
  }

 private:
  static constexpr const char* kOutputs[] = {"d", "sfd"};

  struct Buffer {
    Tensor memory;  // with the gaps between rows
    TensorView view;
    DevicePointer pointer = 0;
  };

  bool are_gaps_intact(const Buffer& d) const {
    std::vector<bool> is_element(d.memory.bytes.size());
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(d.memory.dtype));
    for (std::int64_t i = 0; i < d.view.shape[0]; ++i)
      for (std::int64_t r = 0; r < d.view.shape[1]; ++r)
        for (std::int64_t b = 0; b < d.view.shape[2] * bytes; ++b) {
          const std::int64_t at = i * d.view.strides[0] + r * d.view.strides[1] + b / bytes * d.view.strides[2];
          is_element[static_cast<std::size_t>(at * bytes + b % bytes)] = true;
        }
    for (std::size_t i = 0; i < is_element.size(); ++i)
      if (!is_element[i] && d.memory.bytes[i] != gap_byte(i)) return false;
    return true;
  }

  /// What a byte that belongs to no element of d held before the launch.
  std::byte gap_byte(std::size_t i) const {
    return test_.is_in_place ? buffers_.at("c").memory.bytes[i] : std::byte{reference::kPoisonByte};
  }

  bool has_packed_weights() const { return plan_.family == "weights"; }
  bool is_plain() const { return plan_.problem.as<Gemm>().scale_form == ScaleForm::plain; }
  reference::WeightFacts weights_of() const {
    const Gemm& facts = plan_.problem.as<Gemm>();
    return reference::weight_facts(product_facts(facts).b_type, facts.b_group, facts.zero_points, facts.dtype);
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
    const bool is_of_rows = spec.name == "b" || spec.name == "sfb" || spec.name == "zeros";
    if (has_packed_weights() && is_plain() && is_of_rows) {
      const auto size = [&](const char* name) { return evaluate(Expression::parse(name), names_); };
      reference::WeightTensors rows =
          reference::random_weight_rows(weights_of(), size("l"), size("n"), size("k"), test_.fill, 11, 0);
      buffer.memory = std::move(spec.name == "b" ? rows.values : spec.name == "sfb" ? rows.scales : rows.zeros);
    } else if (spec.name == "b" && has_packed_weights()) {
      const auto size = [&](const char* name) { return evaluate(Expression::parse(name), names_); };
      buffer.memory =
          reference::random_packed_weights(weights_of(), size("l"), size("n"), size("k"), test_.fill, 11, stream);
    } else if (spec.name == "groups") {
      buffer.memory = reference::groups_of(product_facts(plan_.problem.as<Gemm>()).grouping, test_.group_rows);
    } else if (spec.name == "indices") {
      const reference::CounterRandom random(11, stream);  // any row of a, and some of none
      const std::int64_t rows = evaluate(Expression::parse("a_rows"), names_);
      for (std::int64_t i = 0; i < elements; ++i)
        buffer.memory.set(i, static_cast<double>(random.integer(static_cast<std::uint64_t>(i), -1, rows)));
    } else if (spec.name.starts_with("scale")) {
      buffer.memory.set(0, spec.name == "scale_a" ? 0.5 : spec.name == "scale_b" ? 4 : 2);
    } else if (spec.name == "sfa" || spec.name == "sfb") {
      const reference::CounterRandom random(11, stream);
      for (std::int64_t i = 0; i < elements; ++i)
        buffer.memory.set(i, test_.fill == Fill::standard ? 0.5 + random.uniform(static_cast<std::uint64_t>(i))
                                                          : std::ldexp(1, static_cast<int>(i % 5) - 2));
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
  DevicePointer workspace_ = 0;
  std::map<std::string, Buffer> buffers_;
};

/// Whatever a case shows is said; all schedules give the same bytes.
inline void check(const Case& test, Compiler& compiler, const std::vector<EmulatorSchedule>& schedules) {
  CAPTURE(test.name);
  emulator::DeviceOptions options;
  options.arch = problem_of(test).arch.to_string();
  options.detects_races = true;
  EmulatedDevice device(options);
  GemmRun run(test, compiler, device);
  std::vector<std::byte> first;
  for (const EmulatorSchedule schedule : schedules) {
    CAPTURE(static_cast<int>(schedule));
    device.set_schedule(schedule, 3);
    std::vector<Finding> findings;
    const int launches = schedule == EmulatorSchedule::fair && run.overlaps_itself() ? 2 : 1;
    const std::vector<std::byte> result = run.run(findings, launches);
    for (const Finding& finding : findings) FAIL_CHECK(finding.message);
    const reference::Comparison comparison = run.compare();
    for (const std::string& problem : comparison.problems) FAIL_CHECK(problem);
    CHECK(comparison.pass);
    CHECK(run.are_gaps_intact());
    if (first.empty()) first = result;
    CHECK(first == result);
  }
}

/// One of `of` cases, all of them where that is asked for. Nothing without NVRTC.
template <class Cases>
void check_under_every_schedule(const Cases& cases, std::uint64_t of) {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(of);
  for (const Case& test : cases)
    if (sample.takes())
      check(test, *compiler,
            {EmulatorSchedule::fair, EmulatorSchedule::eager, EmulatorSchedule::lazy, EmulatorSchedule::adversarial});
}

}  // namespace tessera::gemm_run

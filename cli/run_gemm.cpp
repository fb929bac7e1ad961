// How `run` feeds and judges matrix products.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/example_sizes.h"
#include "cli/run_gemm_tcgen05.h"
#include "cli/run_operator.h"
#include "generator/facts.h"
#include "reference/gemm_gated.h"
#include "reference/groups.h"
#include "reference/packed_weights.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

/// An operand as [l, rows, k], whichever dimension is contiguous.
reference::TensorView operand_view(const reference::Tensor& tensor, Layout layout) {
  reference::TensorView view = tensor.view();
  if (layout == Layout::mn_major) {
    std::swap(view.shape.at(1), view.shape.at(2));
    std::swap(view.strides.at(1), view.strides.at(2));
  }
  return view;
}

double value_or(const std::map<std::string, reference::Tensor>& inputs, const char* name, double otherwise) {
  const auto found = inputs.find(name);
  return found == inputs.end() ? otherwise : found->second.at(0);
}

/// m and l of the groups that were named, unless they were given too: m may be more than the groups need.
void add_group_sizes(Grouping grouping, const RunFlags& flags, std::vector<GivenSize>& given) {
  if (grouping == Grouping::none)
    throw Error(ErrorKind::usage, "--group-rows goes with --grouping contiguous or masked");
  if (flags.arrays.contains("groups"))
    throw Error(
        ErrorKind::usage,
        fmt::format("the groups are given twice (--group-rows {}, --input groups): give them once", flags.group_rows));
  const std::vector<std::int64_t> rows = group_rows_of(flags);
  std::int64_t sum = 0, most = 0;
  for (const std::int64_t count : rows) {
    sum += count;
    most = std::max(most, count);
  }
  const std::int64_t least = grouping == Grouping::contiguous ? sum : most;
  const auto groups = static_cast<std::int64_t>(rows.size());
  const auto find = [&](const char* name) {
    return std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
  };
  if (const auto l = find("l"); l != given.end() && l->value != groups)
    throw Error(ErrorKind::usage, fmt::format("--l {} with {} numbers in --group-rows", l->value, groups));
  if (find("l") == given.end()) given.push_back({"l", groups});
  if (const auto m = find("m"); m != given.end() && m->value < least)
    throw Error(ErrorKind::usage, fmt::format("--m {}: the groups of --group-rows need {} rows", m->value, least));
  if (find("m") == given.end()) given.push_back({"m", least});
}

class RunGemm final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    const Gemm& facts = plan.problem.as<Gemm>();
    std::vector<GivenSize> given = with_sizes(expected_sizes(plan.problem), flags.given_sizes);
    const auto complete = [&](const char* name, std::int64_t value) {
      const bool is_given = std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
      if (!is_given) given.push_back({name, value});
    };
    if (!flags.group_rows.empty()) add_group_sizes(facts.grouping, flags, given);
    // Arrays bring their sizes along; else a problem that a CPU can check in seconds, or multiply where it must.
    const auto dimension = [&](const char* array, std::size_t d, Layout layout) -> std::int64_t {
      const auto found = flags.arrays.find(array);
      if (found == flags.arrays.end() || found->second.shape.size() != 3) return -1;
      const std::int64_t extent = found->second.shape[d > 0 && layout == Layout::mn_major ? 3 - d : d];
      return d == 2 ? extent * 8 / bits_of_packed(facts, *array == 'b') : extent;
    };
    for (const auto& [name, array, d, layout] :
         {std::tuple("l", "a", 0U, facts.a_layout), std::tuple("m", "a", 1U, facts.a_layout),
          std::tuple("k", "a", 2U, facts.a_layout), std::tuple("n", "b", 1U, facts.b_layout)}) {
      if (*array == 'b' && has_packed_weights(plan)) continue;  // its shape tells blocks
      if (const std::int64_t value = dimension(array, d, layout); value >= 0) complete(name, value);
    }
    const std::int64_t extent = has_family(facts.arch, MmaFamily::tcgen05) && flags.is_emulated ? 384 : 1024;
    complete("k", extent);
    add_rows_and_columns(plan, extent, given);
    return given;
  }

  std::vector<double> scalars(const Plan& plan, const RunFlags& flags) const override {
    std::vector<double> values;
    const auto has = [&](std::string_view name) {
      return std::any_of(plan.launch.scalars.begin(), plan.launch.scalars.end(),
                         [&](const ScalarSpec& scalar) { return scalar.name == name; });
    };
    if (flags.alpha != 1 && !has("alpha"))
      throw Error(ErrorKind::usage,
                  fmt::format("--alpha {}: sums of integers leave as they are: take --d-dtype f32", flags.alpha));
    if (flags.beta != 1 && !has("beta"))
      throw Error(ErrorKind::usage, fmt::format("--beta {}: there is no c to multiply: give --c matrix", flags.beta));
    for (const ScalarSpec& scalar : plan.launch.scalars)
      values.push_back(scalar.name == "beta" ? flags.beta : flags.alpha);
    return values;
  }

  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    if (is_tcgen05_product(plan)) return tcgen05_product_inputs(plan, launch, sizes, flags);
    std::map<std::string, reference::Tensor> all;
    std::uint64_t stream = 0;
    for (const BufferSpec& buffer : plan.launch.buffers) {
      ++stream;
      if (buffer.role == BufferRole::output) continue;
      std::vector<std::int64_t> shape;
      for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
      reference::Tensor tensor(*reference::dtype_from_name(buffer.dtype), shape);
      if (buffer.name.starts_with("scale_")) {
        tensor.set(0, buffer.name == "scale_a" ? 0.5 : buffer.name == "scale_b" ? 2 : 1);
      } else if (has_packed_weights(plan) && is_of_weights(buffer.name)) {
        const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
        const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                     : flags.inputs == "standard" ? reference::Fill::standard
                                                                  : reference::Fill::normal;
        const auto seed = static_cast<std::uint64_t>(flags.seed);
        if (is_plain(plan)) {
          reference::WeightTensors rows =
              reference::random_weight_rows(weights_of(plan), size("l"), size("n"), size("k"), fill, seed, 0);
          tensor = std::move(buffer.name == "b" ? rows.values : buffer.name == "sfb" ? rows.scales : rows.zeros);
        } else {
          tensor =
              reference::random_packed_weights(weights_of(plan), size("l"), size("n"), size("k"), fill, seed, stream);
        }
      } else if (buffer.name == "sfa" || buffer.name == "sfb") {
        fill_factors(tensor, flags, stream);
      } else if (buffer.name == "indices") {
        // Any row of a, and some of none.
        const std::int64_t rows = launch.evaluate(Expression::parse("a_rows"), sizes);
        const reference::CounterRandom random(static_cast<std::uint64_t>(flags.seed), stream);
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
          tensor.set(i, static_cast<double>(random.integer(static_cast<std::uint64_t>(i), -1, rows)));
      } else if (buffer.name == "groups") {
        const Grouping grouping = plan.problem.as<Gemm>().grouping;
        const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
        tensor = groups_of_run(grouping, size("l"), size("m"), flags);
      } else {
        reference::fill(tensor, fill_of(buffer.name, flags), static_cast<std::uint64_t>(flags.seed), stream);
      }
      all.emplace(buffer.name, std::move(tensor));
    }
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int jobs) const override {
    if (is_tcgen05_product(plan)) return compare_tcgen05_product(plan, inputs, outputs, flags, jobs);
    const ProductFacts facts = product_facts(plan.problem.as<Gemm>());
    const ProductTiles tiles = product_tiles(plan);
    reference::GemmCheck check;
    check.alpha = flags.alpha * value_or(inputs, "scale_a", 1) * value_or(inputs, "scale_b", 1);
    check.beta = flags.beta;
    check.facts = facts;
    if (facts.d_scale_block != ScaleBlock::none) check.sfd = outputs.at("sfd").view();
    check.split_k = tiles.split_k;
    check.is_exact = is_exact(flags);
    check.judges_rel_error = flags.arrays.empty();
    check.tile_m = tiles.tile_m;
    check.tile_n = tiles.tile_n;
    check.jobs = jobs;
    reference::Tensor weights;
    if (has_packed_weights(plan)) {
      weights = decoded_weights(plan, inputs, flags);
      check.sums = reference::TensorSums{};
      check.sums->step = kWeightDepth;
      check.k_groups = tiles.k_groups;
    }
    reference::GemmInputs views{
        operand_view(inputs.at("a"), facts.a_layout),
        has_packed_weights(plan) ? weights.view() : operand_view(inputs.at("b"), facts.b_layout),
        {},
        {}};
    if (facts.gate == Gate::dual) {
      weights = reference::rows_of_dual(views.b, operand_view(inputs.at("b2"), facts.b_layout),
                                        value_or(inputs, "scale_b2", 1) / value_or(inputs, "scale_b", 1));
      views.b = weights.view();
    }
    if (const auto found = inputs.find("c"); found != inputs.end()) views.c = found->second.view();
    if (const auto found = inputs.find("bias"); found != inputs.end()) views.bias = found->second.view();
    const auto factors = [&](const char* name, ScaleBlock block) -> std::optional<reference::BlockFactors> {
      if (block == ScaleBlock::none) return {};
      return reference::BlockFactors{inputs.at(name).view(), block == ScaleBlock::square ? kScaleBlock : 1};
    };
    views.sfa = factors("sfa", facts.a_scale_block);
    views.sfb = factors("sfb", facts.b_scale_block);
    const reference::TensorView d = outputs.at("d").view();
    if (facts.grouping == Grouping::none) return reference::check_plain_or_gated(views, d, check);
    std::optional<reference::TensorView> indices;
    if (const auto found = inputs.find("indices"); found != inputs.end()) indices = found->second.view();
    return reference::check_grouped_gemm(facts.grouping, inputs.at("groups").view(), views, d, check, indices);
  }

 private:
  static bool has_packed_weights(const Plan& plan) { return plan.family == "weights"; }
  static reference::WeightFacts weights_of(const Plan& plan) {
    const Gemm& facts = plan.problem.as<Gemm>();
    return reference::weight_facts(product_facts(facts).b_type, facts.b_group, facts.zero_points, facts.dtype);
  }

  static bool is_plain(const Plan& plan) { return plan.problem.as<Gemm>().scale_form == ScaleForm::plain; }
  static bool is_of_weights(std::string_view buffer) { return buffer == "b" || buffer == "sfb" || buffer == "zeros"; }
  static reference::Tensor decoded_weights(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                           const RunFlags& flags) {
    const std::int64_t n = flags.sizes.at("n"), k = flags.sizes.at("k");
    if (!is_plain(plan)) return reference::decode_packed_weights(weights_of(plan), inputs.at("b").view(), n, k);
    reference::WeightRows rows{weights_of(plan), inputs.at("b").bytes, inputs.at("sfb").bytes};
    if (const auto found = inputs.find("zeros"); found != inputs.end()) rows.zeros = found->second.bytes;
    rows.l = flags.sizes.at("l");
    rows.n = n;
    rows.k = k;
    return reference::decode_weight_rows(rows);
  }

  /// Bits of an operand's values in bytes that hold several; 8 of any other operand.
  static int bits_of_packed(const Gemm& facts, bool is_b) {
    const std::optional<BlockFormat> format = is_b && (facts.b_format || facts.b_dtype) ? facts.b_format : facts.format;
    return format ? value_bits(*format) : 8;
  }

  /// No two neighbours alike; of whole numbers powers of two.
  static void fill_factors(reference::Tensor& tensor, const RunFlags& flags, std::uint64_t stream) {
    const reference::CounterRandom random(static_cast<std::uint64_t>(flags.seed), stream);
    for (std::int64_t i = 0; i < reference::element_count(tensor.shape); ++i) {
      const double power = std::ldexp(1, static_cast<int>(random.integer(2 * static_cast<std::uint64_t>(i), -2, 2)));
      const auto at = 2 * static_cast<std::uint64_t>(i) + 1;
      tensor.set(i, is_exact(flags) ? power : power * (1 + random.uniform(at)));
    }
  }

  /// Whole numbers: few products of a sum are not 0, so that 8-bit sums with 13 fraction bits hold them too.
  static reference::Fill fill_of(const std::string& buffer, const RunFlags& flags) {
    using reference::Fill;
    if (flags.inputs == "uniform") return Fill::uniform;
    if (flags.inputs == "standard") return Fill::standard;
    if (flags.inputs != "integer") return Fill::normal;
    return buffer == "a" ? Fill::sparse_integer : Fill::sign;
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_gemm() { return std::make_unique<RunGemm>(); }

}  // namespace tessera::cli

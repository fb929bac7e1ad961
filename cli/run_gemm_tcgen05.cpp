#include "cli/run_gemm_tcgen05.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "generator/facts.h"
#include "reference/gemm_tcgen05.h"
#include "reference/tcgen05_product.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kMaxGroupRows = (std::int64_t{1} << 31) - 1;

using reference::Fill;
using reference::Tensor;

ProductFacts product_facts_of(const Plan& plan) { return product_facts(plan.problem.as<Gemm>()); }

Fill fill_of(const RunFlags& flags) {
  return flags.inputs == "standard"  ? Fill::standard
         : flags.inputs == "uniform" ? Fill::uniform
         : flags.inputs == "integer" ? Fill::integer
                                     : Fill::normal;
}

bool is_small_integer(double value) { return value == std::floor(value) && std::abs(value) <= 16; }

/// Groups that overlap would both write the rows that they share.
void require_ascending(const Tensor& groups, std::int64_t m) {
  const auto offset = [&](std::int64_t i) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(groups.at(i)), 0, m);
  };
  for (std::int64_t i = 1; i < groups.elements(); ++i)
    if (offset(i) < offset(i - 1))
      throw Error(
          ErrorKind::usage,
          fmt::format("--input groups: groups[{}] = {} behind groups[{}] = {}: offsets of contiguous groups must "
                      "ascend (an empty group ends where it begins)",
                      i, groups.at(i), i - 1, groups.at(i - 1)));
}

}  // namespace

bool is_exact(const RunFlags& flags) {
  return flags.inputs == "integer" && flags.arrays.empty() && is_small_integer(flags.alpha) &&
         is_small_integer(flags.beta);
}

std::vector<std::int64_t> group_rows_of(const RunFlags& flags) {
  std::vector<std::int64_t> rows;
  const char* at = flags.group_rows.data();
  const char* const end = at + flags.group_rows.size();
  while (true) {
    std::int64_t value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value > kMaxGroupRows || (stop != end && *stop != ','))
      throw Error(ErrorKind::usage, fmt::format("--group-rows = {}: must be numbers of rows, 0 to {}, like 80,176,0",
                                                flags.group_rows, kMaxGroupRows));
    rows.push_back(value);
    if (stop == end) return rows;
    at = stop + 1;
  }
}

Tensor groups_of_run(Grouping grouping, std::int64_t l, std::int64_t m, const RunFlags& flags) {
  const auto given = flags.arrays.find("groups");
  Tensor tensor = given != flags.arrays.end() ? given->second
                  : flags.group_rows.empty()
                      ? reference::random_groups(grouping, l, m, static_cast<std::uint64_t>(flags.seed))
                      : reference::groups_of(grouping, group_rows_of(flags));
  if (grouping == Grouping::contiguous) require_ascending(tensor, m);
  return tensor;
}

bool is_tcgen05_product(const Plan& plan) {
  const ProductFacts facts = product_facts_of(plan);
  const bool is_plain =
      facts.gate == Gate::none && facts.grouping == Grouping::none && facts.d_format == OutputFormat::plain;
  return plan.family == "tcgen05" || (plan.family == "mma" && (operand_bits(facts.a_type) != 16 || !is_plain));
}

std::map<std::string, Tensor> tcgen05_product_inputs(const Plan& plan, const LaunchSizes& launch,
                                                     const std::vector<std::int64_t>& sizes, const RunFlags& flags) {
  const ProductFacts c = product_facts_of(plan);
  const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
  const std::int64_t l = size("l"), k = size("k");
  const auto seed = static_cast<std::uint64_t>(flags.seed);
  const Fill fill = fill_of(flags);
  std::map<std::string, Tensor> all;
  std::vector<reference::GroupRows> groups;
  if (c.grouping != Grouping::none) {
    Tensor tensor = groups_of_run(c.grouping, l, size("m"), flags);
    groups = reference::group_rows(c.grouping, tensor.view(), size("m"));
    all.emplace("groups", std::move(tensor));
  }
  const bool is_contiguous = c.grouping == Grouping::contiguous, is_gathered = c.gather != Gather::none;
  const bool is_a_one = is_contiguous || is_gathered;
  std::uint64_t stream = 0;
  for (const BufferSpec& buffer : plan.launch.buffers) {
    ++stream;
    if (buffer.role == BufferRole::output || buffer.name == "groups") continue;
    const bool is_of_b = product_operand(buffer.name) == ProductOperand::b;
    const OperandType type = is_of_b ? c.b_type : c.a_type;
    const std::int64_t rows = size(is_of_b ? "n" : is_gathered ? "a_rows" : "m");
    if (buffer.name == "a" || buffer.name == "b" || buffer.name == "b2") {
      const bool is_k_major = (is_of_b ? c.b_layout : c.a_layout) == Layout::k_major;
      // Values that are padded to 8 bits have more columns than k.
      const int bits = operand_bits(type);
      const std::int64_t stored = launch.evaluate(buffer.shape.back(), sizes),
                         columns = bits < 8 ? stored * 8 / bits : stored;
      all.emplace(buffer.name, reference::random_operand(type, is_a_one && !is_of_b ? 1 : l, is_k_major ? rows : k,
                                                         columns, fill, seed, stream));
    } else if (buffer.name.starts_with("sf") && buffer.shape.size() == 3) {
      all.emplace(buffer.name,
                  reference::random_plain_scales(type, is_a_one && !is_of_b ? 1 : l, rows, k, fill, seed, stream));
    } else if (is_gathered && buffer.name == "sfa") {
      all.emplace("sfa", reference::random_operand_scales(type, 1, rows, k, fill, seed, stream));
    } else if (buffer.name == "indices") {
      // Any row of a, and some of none.
      Tensor tensor(DType::s32, {is_contiguous ? 1 : l, size("m")});
      const reference::CounterRandom random(seed, stream);
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, static_cast<double>(random.integer(static_cast<std::uint64_t>(i), -1, rows)));
      all.emplace("indices", std::move(tensor));
    } else if (is_contiguous && buffer.name == "sfa") {
      all.emplace("sfa", reference::random_group_scales(type, groups, size("group_tiles"), k, fill, seed, stream));
    } else if (buffer.name.starts_with("sf")) {
      all.emplace(buffer.name, reference::random_operand_scales(type, l, rows, k, fill, seed, stream));
    } else {
      std::vector<std::int64_t> shape;
      for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
      Tensor tensor(*reference::dtype_from_name(buffer.dtype), shape);
      if (buffer.name.starts_with("scale_")) {
        tensor.set(0, buffer.name == "scale_a"    ? 0.5
                      : buffer.name == "scale_d"  ? 0.25
                      : buffer.name == "scale_b2" ? 4
                                                  : 2);
      } else {
        reference::fill(tensor, fill, seed, stream);
      }
      all.emplace(buffer.name, std::move(tensor));
    }
  }
  for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
  return all;
}

reference::Comparison compare_tcgen05_product(const Plan& plan, const std::map<std::string, Tensor>& inputs,
                                              const std::map<std::string, Tensor>& outputs, const RunFlags& flags,
                                              int jobs) {
  reference::GemmCheck check;
  check.alpha = flags.alpha;
  check.beta = flags.beta;
  check.is_exact = is_exact(flags);
  check.judges_rel_error = flags.arrays.empty();
  // Hopper widens what it has no instruction for, and sums as it does 16-bit types.
  const bool is_widened = plan.family == "mma" && has_family(plan.arch, MmaFamily::wgmma);
  if (is_widened && plan.mma_kind == "mma.f8") check.sums = reference::TensorSums{};
  check.seed = static_cast<std::uint64_t>(flags.seed);
  check.jobs = jobs;
  reference::Buffers buffers;
  for (const auto* const list : {&inputs, &outputs})
    for (const auto& [name, tensor] : *list) buffers[name] = tensor.view();
  return reference::check_tcgen05_product(product_facts_of(plan), product_tiles(plan), buffers, flags.sizes.at("k"),
                                          check);
}

}  // namespace tessera::cli

// How `run` feeds and judges row operators.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/rows.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;

reference::RowsRun facts_of(const Plan& plan, const std::map<std::string, std::int64_t>& sizes, double eps) {
  const auto& facts = plan.problem.as<Rows>();
  reference::RowsRun run;
  run.chain = facts.chain;
  run.dtype = facts.dtype;
  run.columns = facts.columns;
  run.eps = static_cast<double>(static_cast<float>(eps));
  const auto size = [&](const char* name, std::int64_t otherwise) {
    const auto found = sizes.find(name);
    return found == sizes.end() ? otherwise : found->second;
  };
  run.rows = size("rows", 0);
  run.x_rows = size("x_rows", run.rows);
  run.heads = size("heads", 1);
  run.placed_rows = size("placed_rows", run.rows);
  run.pages = size("pages", 0);
  run.page_size = size("page_size", 64);
  run.table_rows = size("table_rows", 0);
  run.parts = size("parts", 1);
  return run;
}

constexpr double kEps = 1e-6;

class RunRows final : public RunOperator {
 public:
  /// Arrays bring their sizes along; else a CTA's last rows are some that do not exist.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto is_given = [&](const char* name) {
      return std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; }) ||
             std::any_of(flags.given_sizes.begin(), flags.given_sizes.end(),
                         [&](const GivenSize& g) { return g.name == name; });
    };
    const RowChain& chain = plan.problem.as<Rows>().chain;
    const bool is_paged = has_paged_sink(chain), are_heads = has_heads(chain);
    const auto length = [&](const char* name, std::size_t dimension, std::int64_t otherwise) {
      const auto array = flags.arrays.find(name);
      return array == flags.arrays.end() || array->second.shape.size() <= dimension ? otherwise
                                                                                    : array->second.shape[dimension];
    };
    const auto complete = [&](const char* name, std::int64_t value) {
      if (!is_given(name)) given.push_back({name, value});
    };
    const auto size = [&](const char* name, std::int64_t otherwise) {
      for (const std::vector<GivenSize>* const list :
           std::initializer_list<const std::vector<GivenSize>*>{&given, &flags.given_sizes})
        for (const GivenSize& one : *list)
          if (one.name == name) otherwise = one.value;
      return otherwise;
    };
    const bool has_list =
        has_part(chain, RowPart::gather) || has_part(chain, RowPart::combine) || has_part(chain, RowPart::compress);
    const std::int64_t usual = flags.is_emulated ? (are_heads ? 39 : 37) : 1029;
    const std::int64_t of_x =
        are_heads && length("x", 2, 0) > 0 ? length("x", 0, 0) * length("x", 1, 0) : length("x", 0, usual);
    complete("rows", has_list ? length(has_part(chain, RowPart::compress) ? "tokens" : "indices", 0, usual) : of_x);
    if (has_list && flags.arrays.contains("x")) complete("x_rows", length("x", 0, 0));
    if (are_heads || has_part(chain, RowPart::rope)) {
      const std::int64_t tokens = length("positions", 0, 0), rows = size("rows", 0);
      complete("heads", are_heads && length("x", 2, 0) > 0 ? length("x", 1, 1)
                        : tokens > 0                       ? std::max<std::int64_t>((rows + tokens - 1) / tokens, 1)
                                                           : 3);
    }
    if (has_rope_table(chain) && !is_given("table_rows")) {
      const auto table = flags.arrays.find("rope_table");
      given.push_back({"table_rows", table != flags.arrays.end() ? table->second.shape[0] : 128});
    }
    // Room for all rows and a page that nobody writes.
    if ((is_paged || has_part(chain, RowPart::cache)) && !is_given("pages")) {
      const std::int64_t page_size = std::max<std::int64_t>(size("page_size", 64), 1);
      given.push_back({"pages", (size("rows", 0) + page_size - 1) / page_size + 1});
    }
    return given;
  }

  std::vector<double> scalars(const Plan& plan, const RunFlags&) const override {
    return plan.launch.scalars.empty() ? std::vector<double>{} : std::vector<double>{kEps};
  }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                 : flags.inputs == "uniform"  ? reference::Fill::uniform
                                 : flags.inputs == "standard" ? reference::Fill::standard
                                                              : reference::Fill::normal;
    Tensors made = reference::rows_inputs(facts_of(plan, launch.by_name(sizes), kEps), fill,
                                          static_cast<std::uint64_t>(flags.seed));
    for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
    return made;
  }

  reference::Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags& flags,
                                int jobs) const override {
    return reference::check_rows(facts_of(plan, flags.sizes, kEps), inputs, outputs, jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_rows() { return std::make_unique<RunRows>(); }

}  // namespace tessera::cli

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
    if (!is_given("rows")) {
      const auto x = flags.arrays.find("x");
      const bool has_rows = x != flags.arrays.end() && x->second.shape.size() == (are_heads ? 3 : 2);
      given.push_back({"rows", !has_rows   ? (flags.is_emulated ? (are_heads ? 39 : 37) : 1029)
                               : are_heads ? x->second.shape[0] * x->second.shape[1]
                                           : x->second.shape[0]});
      if (has_rows && are_heads && !is_given("heads")) given.push_back({"heads", x->second.shape[1]});
    }
    if ((are_heads || has_part(chain, RowPart::rope)) && !is_given("heads")) given.push_back({"heads", 3});
    if (has_rope_table(chain) && !is_given("table_rows")) {
      const auto table = flags.arrays.find("rope_table");
      given.push_back({"table_rows", table != flags.arrays.end() ? table->second.shape[0] : 128});
    }
    // Room for all rows and a page that nobody writes.
    if ((is_paged || has_part(chain, RowPart::cache)) && !is_given("pages")) {
      const auto of = [&](const char* name, std::int64_t otherwise) {
        for (const std::vector<GivenSize>* const list :
             std::initializer_list<const std::vector<GivenSize>*>{&given, &flags.given_sizes})
          for (const GivenSize& size : *list)
            if (size.name == name) otherwise = size.value;
        return otherwise;
      };
      const std::int64_t page_size = std::max<std::int64_t>(of("page_size", 64), 1);
      given.push_back({"pages", (of("rows", 0) + page_size - 1) / page_size + 1});
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

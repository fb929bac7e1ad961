// How `run` feeds and judges an indexer's scores.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/indexer.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;

/// The most multiply-adds that the reference does on a machine of one or two cores in some seconds.
constexpr std::int64_t kFewMultiplyAdds = 2'000'000'000;

reference::IndexerRun indexer_run(const Plan& plan, const std::map<std::string, std::int64_t>& sizes) {
  const auto& facts = plan.problem.as<Indexer>();
  reference::IndexerRun run;
  run.heads = facts.heads;
  run.head_dim = facts.head_dim;
  run.format = facts.format;
  run.is_paged = facts.kv_layout == KvLayout::paged;
  run.page_size = facts.page_size;
  run.next_n = facts.next_n;
  run.context_lengths = facts.context_lengths;
  run.score_columns = facts.score_columns;
  run.outside = facts.outside;
  run.score_dtype = facts.score_dtype;
  run.fraction_bits = plan.mma_kind == "wgmma.f16" ? 13 : 24;
  run.columns = sizes.at("columns");
  if (run.is_paged) {
    run.m = sizes.at("batch") * run.next_n;
    run.pages = sizes.at("pages");
    run.max_pages = sizes.at("max_pages");
  } else {
    run.m = sizes.at("m");
    run.n = sizes.at("n");
  }
  return run;
}

class RunIndexer final : public RunOperator {
 public:
  /// Arrays bring their sizes along; else tiles of queries and of keys have some that do not exist.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto find = [&](std::string_view name) {
      return std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
    };
    const auto complete = [&](const char* name, std::int64_t value) {
      if (find(name) == given.end()) given.push_back({name, value});
    };
    const auto of_array = [&](const char* array, std::size_t dimension, const char* name) {
      if (const auto found = flags.arrays.find(array);
          found != flags.arrays.end() && found->second.shape.size() > dimension)
        complete(name, found->second.shape[dimension]);
    };
    const auto& facts = plan.problem.as<Indexer>();
    if (facts.kv_layout == KvLayout::paged) {
      of_array("q", 0, "batch");
      of_array("block_table", 1, "max_pages");
      of_array("cache", 0, "pages");
      complete("batch", flags.is_emulated ? 5 : 67);
      complete("max_pages", ((flags.is_emulated ? 300 : 6000) + facts.page_size - 1) / facts.page_size);
      complete("pages", find("batch")->value * find("max_pages")->value);
    } else {
      of_array("q", 0, "m");
      of_array("k", 0, "n");
      complete("m", flags.is_emulated ? 13 : 517);
      complete("n", flags.is_emulated ? 331 : 6001);
    }
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                 : flags.inputs == "uniform"  ? reference::Fill::uniform
                                 : flags.inputs == "standard" ? reference::Fill::standard
                                                              : reference::Fill::normal;
    reference::IndexerRun run = indexer_run(plan, launch.by_name(sizes));
    run.is_usual = flags.is_timed;
    Tensors made = reference::indexer_inputs(run, fill, static_cast<std::uint64_t>(flags.seed));
    for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
    return made;
  }

  reference::Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags& flags,
                                int jobs) const override {
    reference::IndexerRun run = indexer_run(plan, flags.sizes);
    run.max_multiply_adds = kFewMultiplyAdds;
    return reference::check_indexer(run, inputs, outputs.at("scores").view(), jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_indexer() { return std::make_unique<RunIndexer>(); }

}  // namespace tessera::cli

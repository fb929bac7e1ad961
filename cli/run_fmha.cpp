// How `run` feeds and judges attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "cli/run_keys.h"
#include "cli/run_lengths.h"
#include "cli/run_nvfp4.h"
#include "cli/run_operator.h"
#include "generator/facts.h"
#include "reference/attention_cache.h"
#include "reference/fmha.h"
#include "reference/fmha_pool_causes.h"
#include "reference/fmha_pools.h"
#include "reference/ragged.h"
#include "reference/standard_attention.h"
#include "spec/attention_facts.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr double kSoftcap = 30;  // unless --softcap-value says another

AttentionFacts facts_of(const Plan& plan) { return attention_facts(plan.problem.as<Fmha>()); }

/// v [batch, seqlen_k, heads, head_dim] as [batch, heads, head_dim, seqlen_k], and a view of that with v's shape.
reference::Tensor with_keys_innermost(const reference::Tensor& v) {
  const std::int64_t keys = v.shape[1], rows = v.shape[2] * v.shape[3];
  reference::Tensor result(v.dtype, {v.shape[0], v.shape[2], v.shape[3], keys});
  for (std::int64_t batch = 0; batch < v.shape[0]; ++batch)
    for (std::int64_t key = 0; key < keys; ++key)
      for (std::int64_t row = 0; row < rows; ++row)
        result.set((batch * rows + row) * keys + key, v.at((batch * keys + key) * rows + row));
  return result;
}
reference::TensorView with_head_dim_innermost(const reference::Tensor& v) {
  const std::int64_t heads = v.shape[1], head_dim = v.shape[2], keys = v.shape[3];
  return {v.bytes.data(),
          v.dtype,
          {v.shape[0], keys, heads, head_dim},
          {heads * head_dim * keys, 1, head_dim * keys, keys}};
}

/// int32 [lengths + 1]: where each begins, and the end.
reference::Tensor cumulated(const std::vector<std::int64_t>& lengths) {
  const std::vector<std::int64_t> starts = reference::starts_of(lengths);
  reference::Tensor tensor(DType::s32, {static_cast<std::int64_t>(starts.size())});
  for (std::size_t i = 0; i < starts.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(starts[i]));
  return tensor;
}

/// NaNs in the rows of [batch, rows, ...] behind each sequence's valid ones: nobody may read them.
void hide_behind(const reference::Tensor& lengths, reference::Tensor& tensor) {
  const std::int64_t rows = tensor.shape[1];
  if (tensor.bytes.empty()) return;  // no sequence, or no row
  const auto row_bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0] * rows);
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b) {
    const std::int64_t used = std::clamp<std::int64_t>(std::llround(lengths.at(b)), 0, rows);
    std::memset(tensor.bytes.data() + static_cast<std::size_t>(b * rows + used) * row_bytes, 0xFF,
                static_cast<std::size_t>(rows - used) * row_bytes);
  }
}

/// Multiplies the rows of k [batch, keys, heads, head_dim] by 16 at the first key down to 1 at the last. Kernels go
/// through the keys from the last to the first.
void let_scores_rise(reference::Tensor& k) {
  const std::int64_t keys = k.shape[1], of_key = k.shape[2] * k.shape[3];
  for (std::int64_t i = 0; i < k.shape[0] * keys * of_key; ++i) {
    const std::int64_t key = i / of_key % keys;
    const double distance = static_cast<double>(keys - 1 - key) / static_cast<double>(std::max<std::int64_t>(keys, 2));
    k.set(i, k.at(i) * (1 + 15 * distance));
  }
}

class RunFmha final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto is_known = [&](const char* name) {
      return std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
    };
    const auto complete = [&](const char* name, std::int64_t value) {
      if (!is_known(name)) given.push_back({name, value});
    };
    const auto value_of = [&](const char* name) {
      return std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; })->value;
    };
    // Lengths and arrays bring their sizes along; else a problem that a CPU can check in seconds.
    const AttentionFacts facts = facts_of(plan);
    if (flags.softcap && facts.softcap == Softcap::none)
      throw Error(ErrorKind::usage, "--softcap-value: this kernel caps no scores: give --softcap tanh too");
    if (!flags.lengths.empty())
      for (const GivenSize& size : sizes_of(flags.lengths, facts)) complete(size.name.c_str(), size.value);
    for (const char* const starts : {"cu_seqlens_q", "cu_seqlens_k"})
      if (const auto array = flags.arrays.find(starts); array != flags.arrays.end() && array->second.shape.size() == 1)
        complete("batch", array->second.shape[0] - 1);
    for (const BufferSpec& buffer : plan.launch.buffers) {
      const auto array = flags.arrays.find(buffer.name);
      if (array == flags.arrays.end() || array->second.shape.size() != buffer.shape.size()) continue;
      for (std::size_t d = 0; d < buffer.shape.size(); ++d)
        if (has_size(plan, buffer.shape[d].text())) complete(buffer.shape[d].text().c_str(), array->second.shape[d]);
    }
    complete("batch", facts.q_layout == QueryLayout::ragged ? 4 : flags.is_emulated ? 1 : 2);
    // A kernel that packs heads takes launches with as many to a key head only.
    const int packed = plan.number("pack_gqa");
    if (packed > 1 || facts.kv_pools != KvPools::dense || facts.v_is_k == VIsK::on) {
      complete("heads_kv", 1);
      complete("heads_q", packed * value_of("heads_kv"));
    }
    complete("heads_q", flags.is_emulated ? 2 : 8);
    complete("heads_kv", value_of("heads_q"));
    if (facts.kv_pools == KvPools::sparse_window) {
      complete("seqlen_q", flags.is_emulated ? 3 : 128);
      complete("seqlen_k", flags.is_emulated ? 1000 : 16384);
      complete("topk", flags.is_emulated ? 200 : 1024);
      complete("seqlen_swa", flags.is_emulated ? 100 : 128);
    }
    // One key more than whole tiles, and as many keys as queries only where one of the lengths was given.
    const bool has_lengths = is_known("seqlen_q") || is_known("seqlen_k");
    complete("seqlen_q", flags.is_emulated ? 200 : 1024);
    const std::int64_t tile_n = plan.number("tile_n"), least = facts.window != Window::none ? 2 : 1;
    if (facts.kv_layout == KvLayout::paged && is_known("max_pages"))
      complete("seqlen_k", value_of("max_pages") * facts.page_size);
    complete("seqlen_k",
             has_lengths ? value_of("seqlen_q") : std::max(value_of("seqlen_q") / tile_n, least) * tile_n + 1);
    // Some pages more than the longest sequences need: nobody may use them.
    if (facts.kv_layout == KvLayout::paged) {
      complete("max_pages", ceil_div(value_of("seqlen_k"), facts.page_size));
      complete("pages", value_of("batch") * value_of("max_pages") + 3);
    }
    if (facts.kv_layout == KvLayout::ragged) complete("tokens_k", value_of("batch") * value_of("seqlen_k"));
    if (facts.window == Window::chunked) complete("attention_chunk", value_of("seqlen_k") / 4 + 3);
    if (facts.window == Window::sliding) {
      complete("window_size_left", value_of("seqlen_k") / 4);
      complete("window_size_right", value_of("seqlen_k") / 16);
    }
    return given;
  }

  std::vector<double> scalars(const Plan& plan, const RunFlags& flags) const override {
    std::vector<double> values{softmax_scale(plan, flags)};
    if (facts_of(plan).softcap != Softcap::none) values.push_back(flags.softcap.value_or(kSoftcap));
    return values;
  }

  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
    const AttentionFacts config = facts_of(plan);
    const reference::FmhaSizes s{size("batch"),    size("heads_q"), size("heads_kv"), size("seqlen_q"),
                                 size("seqlen_k"), config.head_dim, config.head_dim_v};
    const DType dtype = config.dtype;
    const auto seed = static_cast<std::uint64_t>(flags.seed);
    check_query_ends(flags);
    if (config.kv_pools == KvPools::sparse_window) {
      // Rows of the window that queries list, where there are more or fewer of them than places.
      const std::int64_t places = size("seqlen_swa"), rows = has_size(plan, "swa_rows") ? size("swa_rows") : places;
      const bool has_second_list = rows != places || flags.arrays.count("swa_indices") != 0;
      reference::FmhaPoolTensors made = reference::make_pool_inputs(s, size("topk"), rows, dtype, fill_of(flags), seed);
      // The window comes first: listed keys have larger scores than its.
      if (flags.inputs == "rising")
        for (std::int64_t i = 0; i < s.seqlen_k * s.head_dim; ++i) made.k.set(i, 16 * made.k.at(i));
      if (flags.inputs == "standard") {
        reference::set_query_kinds(made.q, softmax_scale(plan, flags), seed);
        for (reference::Tensor* const keys : {&made.k, &made.swa_k}) reference::set_key_columns(*keys, 0, seed);
      }
      if (has_cache(config)) {
        made.k = reference::make_cache(config, s.seqlen_k, fill_of(flags), seed, 21);
        if (has_second_list)
          for (std::int64_t b = 0; b < s.batch; ++b) made.swa_lens.set(b, static_cast<double>(rows));
        made.swa_k = reference::make_window_cache(config, made.swa_lens, rows, fill_of(flags), seed, 22);
      }
      auto all = of_pools(std::move(made));
      if (has_second_list) {
        all.emplace("swa_indices", reference::make_row_lists(s, places, rows, seed, 32));
        all["swa_lens"] = key_lengths(flags, s.batch, places);
      }
      if (!flags.lengths_file.empty()) all.emplace("topk_lens", reference::make_list_lengths(s, size("topk"), seed));
      if (config.v_is_k == VIsK::on)
        for (const char* const values : {"v", "swa_v"}) all.erase(values);
      for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
      if (has_second_list) return all;
      if (!has_cache(config)) hide_unused(flags, "swa_lens", {"swa_k"}, all);
      if (config.v_is_k == VIsK::off) hide_unused(flags, "swa_lens", {"swa_v"}, all);
      return all;
    }
    const auto made_of = [&](const reference::FmhaSizes& of) {
      return flags.inputs == "integer" ? reference::make_integer_inputs(of, dtype, seed)
             : flags.inputs == "standard"
                 ? reference::make_standard_inputs(of, dtype, softmax_scale(plan, flags), plan.number("tile_n"), seed)
                 : reference::make_inputs(of, dtype, fill_of(flags), seed);
    };
    const bool is_ragged = config.q_layout == QueryLayout::ragged;
    reference::FmhaSizes of_keys = s, of_queries = s;
    if (is_ragged) of_keys.seqlen_q = of_queries.batch = of_queries.seqlen_k = 1;
    reference::FmhaTensors made = made_of(of_keys);
    if (is_nvfp4_attention(plan)) {
      if (is_ragged) made.q = made_of(of_queries).q;
      auto all = nvfp4_inputs(plan, launch, sizes, made, flags);
      add_fact_inputs(config, s, flags, is_ragged, has_size(plan, "tree_words") ? size("tree_words") : 0, all);
      for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
      return all;
    }
    if (is_ragged) {
      made.q = made_of(of_queries).q;
      made.q.shape.erase(made.q.shape.begin());
    }
    if (flags.inputs == "rising") let_scores_rise(made.k);
    std::map<std::string, reference::Tensor> all;
    narrow_keys(plan, seed, flags.inputs == "integer", made, all);
    all.emplace("q", std::move(made.q));
    if (is_ragged) {
      const std::vector<std::int64_t> queries = query_lengths(flags, s.batch, s.seqlen_q);
      hide_rows(reference::starts_of(queries).back(), all.at("q"));
      all.emplace("cu_seqlens_q", cumulated(queries));
    }
    add_fact_inputs(config, s, flags, is_ragged, has_size(plan, "tree_words") ? size("tree_words") : 0, all);
    if (config.kv_layout != KvLayout::dense) {
      for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
      place_keys(plan, launch, sizes, flags, made, all);
      hide_unused(flags, "seqused_q", {"q"}, all);
      return all;
    }
    all.emplace("k", std::move(made.k));
    const bool has_v = config.v_is_k == VIsK::off;
    if (has_v) all.emplace("v", config.v_layout == Layout::k_major ? with_keys_innermost(made.v) : std::move(made.v));
    for (const BufferSpec& buffer : plan.launch.buffers) {
      const bool is_of_q = buffer.name == "seqused_q";
      if (is_of_q || buffer.name == "seqused_k")
        all.emplace(buffer.name,
                    is_of_q ? used_queries(flags, s.batch, s.seqlen_q) : key_lengths(flags, s.batch, s.seqlen_k));
    }
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    hide_unused(flags, "seqused_q", {"q"}, all);
    hide_unused(flags, "seqused_k", {"k"}, all);
    if (has_v) hide_unused(flags, "seqused_k", {"v"}, all);
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int jobs) const override {
    if (is_nvfp4_attention(plan)) {
      const double softcap = facts_of(plan).softcap == Softcap::none ? 0 : flags.softcap.value_or(kSoftcap);
      return compare_nvfp4(plan, inputs, outputs, flags, softmax_scale(plan, flags), softcap, jobs);
    }
    reference::Comparison result = compare_rows(plan, inputs, outputs, flags, jobs);
    if (const auto starts = inputs.find("cu_seqlens_q"); starts != inputs.end()) {
      const auto ranges = reference::ranges_of(starts->second.view(), flags.sizes.at("seqlen_q"));
      for (std::string& problem : writes_beyond(ranges, outputs)) result.problems.push_back(std::move(problem));
      result.pass = result.problems.empty();
    }
    return result;
  }

 private:
  static reference::Comparison compare_rows(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                            const std::map<std::string, reference::Tensor>& outputs,
                                            const RunFlags& flags, int jobs) {
    const AttentionFacts config = facts_of(plan);
    reference::FmhaCheck check;
    check.facts = config;
    for (const auto& [name, size] :
         {std::pair("window_size_left", &check.window_size_left),
          std::pair("window_size_right", &check.window_size_right), std::pair("num_splits", &check.num_splits),
          std::pair("attention_chunk", &check.attention_chunk)})
      if (const auto found = flags.sizes.find(name); found != flags.sizes.end()) *size = found->second;
    // Of dealt keys each block can be a part of its own.
    const std::int64_t tile_n = plan.number("tile_n");
    if (plan.problem.as<Fmha>().split_kv == SplitKv::dealt)
      check.num_splits = std::max<std::int64_t>(ceil_div(flags.sizes.at("seqlen_k"), tile_n), 1);
    if (config.split_size > 0)
      check.num_splits = std::max<std::int64_t>(ceil_div(flags.sizes.at("seqlen_k"), config.split_size), 1);
    check.softmax_scale = softmax_scale(plan, flags);
    if (config.softcap != Softcap::none) check.softcap = flags.softcap.value_or(kSoftcap);
    if (config.tree_mask != TreeMask::none) check.tree_mask = inputs.at("tree_mask").view();
    if (config.alibi != Alibi::none) check.alibi_slopes = inputs.at("alibi_slopes").view();
    const bool is_plain = config.softcap == Softcap::none && config.alibi == Alibi::none;
    check.is_exact = is_plain && flags.inputs == "integer" && flags.arrays.empty() && !flags.softmax_scale;
    check.judges_rel_error = flags.arrays.empty();
    check.tile_m = plan.number("tile_m");
    check.tile_n = plan.number("tile_n");
    check.has_long_sums = has_family(plan.arch, MmaFamily::tcgen05);
    check.widens_to_queries = check.has_long_sums && config.v_is_k == VIsK::on;
    check.lowered = reference::lowered_beside(plan.mma_kind);
    if (is_8_bit(config) && !check.has_long_sums) check.promote_every = plan.number("promote_every");
    check.jobs = jobs;
    reference::FmhaOutputs views{outputs.at("o").view(), {}, {}, {}};
    for (const auto& [name, slot] :
         {std::pair("lse", &views.lse), std::pair("row_max", &views.row_max), std::pair("row_sum", &views.row_sum)})
      if (const auto found = outputs.find(name); found != outputs.end()) *slot = found->second.view();
    if (const auto sink = inputs.find("sink"); sink != inputs.end()) check.sink = sink->second.view();
    if (config.kv_pools == KvPools::sparse_window) {
      const auto of = [&](const char* name) { return inputs.at(name).view(); };
      reference::FmhaPools in{of("q"), of("k"), {}, of("swa_k"), {}, of("indices"), of("swa_lens"), {}, {}};
      for (const auto& [name, slot] :
           {std::pair("topk_lens", &in.topk_lens), std::pair("swa_indices", &in.swa_indices)})
        if (const auto found = inputs.find(name); found != inputs.end()) *slot = found->second.view();
      reference::Tensor k, swa_k;
      if (has_cache(config)) {
        k = reference::rows_of_cache(config, in.k.data, flags.sizes.at("seqlen_k"));
        swa_k = reference::rows_of_window_cache(config, in.swa_k, flags.sizes.at("swa_rows"));
        in.k = k.view();
        in.swa_k = swa_k.view();
      }
      const bool is_latent = config.v_is_k == VIsK::on;
      in.v = is_latent ? reference::first_columns(in.k, config.head_dim_v) : of("v");
      in.swa_v = is_latent ? reference::first_columns(in.swa_k, config.head_dim_v) : of("swa_v");
      reference::Comparison result = reference::check_fmha_pools(in, views, check);
      if (result.pass) return result;
      std::optional<reference::FmhaPoolCaches> caches;
      if (has_cache(config))
        caches = {config, of("k"), of("swa_k"), flags.sizes.at("seqlen_k"), flags.sizes.at("swa_rows")};
      if (std::string cause = reference::cause_of_pools(in, caches, views, check); !cause.empty())
        result.problems.push_back(std::move(cause));
      return result;
    }
    if (config.kv_layout != KvLayout::dense) return check_placed_keys(config, inputs, views, flags, check);
    reference::FmhaInputs in{inputs.at("q").view(), inputs.at("k").view(), {}};
    for (const auto& [name, slot] : {std::pair("seqused_q", &in.seqused_q), std::pair("seqused_k", &in.seqused_k)})
      if (const auto found = inputs.find(name); found != inputs.end()) *slot = found->second.view();
    give_descales(config, inputs, in);
    if (config.v_is_k == VIsK::on) {
      in.v = reference::first_columns(in.k, config.head_dim_v);
      return reference::check_fmha(in, views, check);
    }
    const reference::Tensor& v = inputs.at("v");
    in.v = config.v_layout == Layout::k_major ? with_head_dim_innermost(v) : v.view();
    if (config.q_layout == QueryLayout::ragged)
      return reference::check_ragged_fmha(in, inputs.at("cu_seqlens_q").view(), views, check);
    return reference::check_fmha(in, views, check);
  }

  /// A head's sinks and slopes, a sequence's tree.
  static void add_fact_inputs(const AttentionFacts& config, const reference::FmhaSizes& s, const RunFlags& flags,
                              bool is_ragged, std::int64_t tree_words, std::map<std::string, reference::Tensor>& all) {
    if (config.sink != Sink::none) {
      reference::Tensor sink(DType::f32, {s.heads_q});
      if (flags.inputs != "integer")
        reference::fill(sink, reference::Fill::normal, static_cast<std::uint64_t>(flags.seed), 5);
      all.emplace("sink", std::move(sink));
    }
    if (config.tree_mask != TreeMask::none) {
      std::vector<std::int64_t> queries(static_cast<std::size_t>(s.batch), s.seqlen_q);
      if (is_ragged) queries = query_lengths(flags, s.batch, s.seqlen_q);
      reference::Tensor tree = reference::make_tree_mask(queries, tree_words, static_cast<std::uint64_t>(flags.seed));
      tree.shape[0] = s.seqlen_q;
      if (!is_ragged) tree.shape.insert(tree.shape.begin(), s.batch);
      tree.bytes.resize(static_cast<std::size_t>(tree.elements()) * 4);
      all.emplace("tree_mask", std::move(tree));
    }
    if (config.alibi != Alibi::none) {
      // The usual ones, which halve from head to head or faster.
      reference::Tensor slopes(DType::f32, {s.heads_q});
      for (std::int64_t h = 0; h < s.heads_q; ++h)
        slopes.set(h, std::exp2(-8.0 * static_cast<double>(h + 1) /
                                static_cast<double>(std::max<std::int64_t>(s.heads_q, 8))));
      all.emplace("alibi_slopes", std::move(slopes));
    }
  }

  static bool has_size(const Plan& plan, const std::string& name) {
    return std::any_of(plan.launch.sizes.begin(), plan.launch.sizes.end(),
                       [&](const SizeSpec& size) { return size.name == name; });
  }
  /// Of tensors that no file brought.
  static void hide_unused(const RunFlags& flags, const std::string& lengths, std::initializer_list<const char*> tensors,
                          std::map<std::string, reference::Tensor>& all) {
    const auto of = all.find(lengths);
    if (of == all.end()) return;
    for (const char* const name : tensors)
      if (flags.arrays.count(name) == 0) hide_behind(of->second, all.at(name));
  }
  static reference::Fill fill_of(const RunFlags& flags) {
    return flags.inputs == "integer"   ? reference::Fill::integer
           : flags.inputs == "uniform" ? reference::Fill::uniform
                                       : reference::Fill::normal;
  }
  static std::map<std::string, reference::Tensor> of_pools(reference::FmhaPoolTensors made) {
    std::map<std::string, reference::Tensor> all;
    for (auto& [name, tensor] :
         {std::pair("q", &made.q), std::pair("k", &made.k), std::pair("v", &made.v), std::pair("swa_k", &made.swa_k),
          std::pair("swa_v", &made.swa_v), std::pair("indices", &made.indices), std::pair("swa_lens", &made.swa_lens),
          std::pair("sink", &made.sink)})
      all.emplace(name, std::move(*tensor));
    return all;
  }
  static double softmax_scale(const Plan& plan, const RunFlags& flags) {
    if (flags.softmax_scale) return *flags.softmax_scale;
    if (flags.inputs == "integer" && flags.arrays.empty()) return std::numbers::ln2;
    return 1 / std::sqrt(static_cast<double>(facts_of(plan).head_dim));
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_fmha() { return std::make_unique<RunFmha>(); }

}  // namespace tessera::cli

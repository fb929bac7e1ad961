#include "tests/emulated/fmha_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "reference/fmha_pools.h"
#include "reference/ragged.h"
#include "spec/attention_facts.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tests/emulated/fmha_run_tensors.h"
#include "tests/support/sample.h"

namespace tessera::testing {

using emulator::EmulatedDevice;
using emulator::Schedule;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// One kernel and one shape: inputs in device memory, outputs poisoned before each run.
class Run {
 public:
  Run(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler, EmulatedDevice& device,
      const FmhaLaunchFacts& facts)
      : in_{problem, sizes, facts}, plan_(make_plan(problem)), device_(device) {
    in_.softmax_scale = facts.softmax_scale.value_or(*plan_.launch.scalars.at(0).default_value);
    in_.tile_n = plan_.number("tile_n");
    SourceBundle bundle = emit(plan_);
    if (facts.edit) plant(*facts.edit, bundle);
    const Image image = compiler.compile(bundle);
    for (const EntryReport& entry : image.report.entries)
      spill_bytes_ += entry.spill_store_bytes + entry.spill_load_bytes;
    launcher_ = std::make_unique<Launcher>(device, plan_.launch, image);
    in_.make();
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      const bool is_descale = buffer.name.ends_with("_descale");
      if ((buffer.name == "sink" && !facts.has_sink) ||
          (is_descale && facts.descales == FmhaLaunchFacts::Descales::none)) {
        buffers_.push_back(0);
        continue;
      }
      if (in_.is_in_one_pool(buffer.name)) {
        buffers_.push_back(buffers_.at(static_cast<std::size_t>(launcher_->buffer_index("k"))) + in_.v_offset);
        continue;
      }
      if (buffer.is_optional && in_.tensors.count(buffer.name) == 0) {
        buffers_.push_back(0);
        continue;
      }
      const Tensor& tensor = in_.tensors.at(buffer.name);
      // One without elements is null, as frameworks give it.
      buffers_.push_back(tensor.bytes.empty() ? 0 : device.allocate(tensor.bytes.size()));
      if (buffer.role == BufferRole::input && !tensor.bytes.empty())
        device.copy_to_device(buffers_.back(), tensor.bytes.data(), tensor.bytes.size());
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i] != 0 && !in_.is_in_one_pool(plan_.launch.buffers[i].name)) device_.free(buffers_[i]);
    if (workspace_ != 0) device_.free(workspace_);
  }

  std::vector<Finding> run() {
    std::map<std::string, std::int64_t> given{{"batch", in_.sizes.batch},
                                              {"heads_q", in_.sizes.heads_q},
                                              {"heads_kv", in_.sizes.heads_kv},
                                              {"seqlen_q", in_.sizes.seqlen_q},
                                              {"seqlen_k", in_.sizes.seqlen_k},
                                              {"v_stride_dim", in_.padded_keys()},
                                              {"window_size_left", in_.facts.window_size_left},
                                              {"window_size_right", in_.facts.window_size_right},
                                              {"attention_chunk", in_.facts.attention_chunk},
                                              {"tree_words", in_.tree_words()},
                                              {"topk", in_.facts.topk},
                                              {"seqlen_swa", in_.facts.seqlen_swa},
                                              {"swa_rows", in_.has_pools() ? in_.window_rows() : 0}};
    given.insert(in_.places.begin(), in_.places.end());
    if (in_.facts.descales == FmhaLaunchFacts::Descales::one)
      for (const std::string name : {"q_descale", "k_descale", "v_descale"})
        for (const char* const stride : {"_stride_batch", "_stride_head"}) given.emplace(name + stride, 0);
    if (in_.facts.num_splits) given.emplace("num_splits", *in_.facts.num_splits);
    LaunchArguments arguments;
    std::vector<std::int64_t> sizes;
    for (const SizeSpec& size : plan_.launch.sizes)
      sizes.push_back(given.count(size.name) != 0 ? given.at(size.name) : kUseDefault);
    std::vector<double> scalars{in_.softmax_scale};
    if (in_.problem.softcap != Softcap::none) scalars.push_back(in_.facts.softcap);
    arguments.sizes = sizes;
    arguments.scalars = scalars;
    arguments.buffers = buffers_;
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (const BufferSpec& buffer = plan_.launch.buffers[i]; buffer.role == BufferRole::output && buffers_[i] != 0)
        device_.poison(buffers_[i], 0xFF, in_.tensors.at(buffer.name).bytes.size());
    const std::int64_t workspace_bytes = launcher_->workspace_bytes(arguments);
    if (workspace_bytes > 0) {
      if (workspace_ == 0) workspace_ = device_.allocate(static_cast<std::size_t>(workspace_bytes));
      device_.poison(workspace_, 0xFF, static_cast<std::size_t>(workspace_bytes));
      arguments.workspace = workspace_;
      arguments.workspace_bytes = workspace_bytes;
    }
    std::vector<Finding> findings;
    if (!in_.facts.earlier_k.empty()) {
      set_lengths(in_.facts.earlier_k);
      findings = launch(arguments);
      set_lengths(in_.facts.seqused_k);
    }
    for (Finding& finding : launch(arguments)) findings.push_back(std::move(finding));
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (plan_.launch.buffers[i].role != BufferRole::output) continue;
      Tensor& tensor = in_.tensors.at(plan_.launch.buffers[i].name);
      if (!tensor.bytes.empty()) device_.copy_to_host(tensor.bytes.data(), buffers_[i], tensor.bytes.size());
    }
    return findings;
  }

  const std::vector<std::vector<std::byte>>& watched() const { return watched_; }

  reference::Comparison compare() const {
    reference::FmhaCheck check;
    check.facts = attention_facts(in_.problem);
    check.window_size_left = in_.facts.window_size_left;
    check.window_size_right = in_.facts.window_size_right;
    if (in_.problem.window == Window::chunked) check.attention_chunk = in_.facts.attention_chunk;
    if (in_.problem.softcap != Softcap::none) check.softcap = in_.facts.softcap;
    if (in_.problem.tree_mask != TreeMask::none) check.tree_mask = in_.tensors.at("tree_mask").view();
    if (in_.problem.alibi != Alibi::none) check.alibi_slopes = in_.tensors.at("alibi_slopes").view();
    // Of dealt keys each CTA, of which two may share a multiprocessor, can have a part of the same tile.
    check.num_splits =
        in_.facts.num_splits.value_or(in_.problem.split_kv == SplitKv::dealt ? 2 * in_.facts.num_sms : 1);
    if (in_.problem.split_size > 0) check.num_splits = in_.sizes.seqlen_k / in_.problem.split_size + 1;
    check.softmax_scale = in_.softmax_scale;
    check.tile_m = plan_.number("tile_m");
    check.tile_n = plan_.number("tile_n");
    check.has_long_sums = has_family(plan_.arch, MmaFamily::tcgen05);
    check.widens_to_queries = check.has_long_sums && in_.problem.v_is_k == VIsK::on;
    check.lowered = reference::lowered_beside(plan_.mma_kind);
    if (in_.is_8_bit() && !check.has_long_sums) check.promote_every = plan_.number("promote_every");
    check.jobs = 1;
    reference::FmhaOutputs outputs{in_.tensors.at("o").view(), in_.tensors.at("lse").view(), {}, {}};
    if (!check.is_normalized()) {
      outputs.row_max = in_.tensors.at("row_max").view();
      outputs.row_sum = in_.tensors.at("row_sum").view();
    }
    if (in_.facts.has_sink && in_.tensors.count("sink") != 0) check.sink = in_.tensors.at("sink").view();
    if (in_.has_pools()) {
      const auto of = [&](const char* name) { return in_.tensors.at(name).view(); };
      reference::FmhaPools in{of("q"),       of("k"),        of("v"), of("swa_k"), of("swa_v"),
                              of("indices"), of("swa_lens"), {},      {}};
      for (const auto& [name, slot] :
           {std::pair("topk_lens", &in.topk_lens), std::pair("swa_indices", &in.swa_indices)})
        if (const auto found = in_.tensors.find(name); found != in_.tensors.end()) *slot = found->second.view();
      const AttentionFacts& facts = check.facts;
      Tensor k, swa_k;
      if (has_cache(facts)) {
        k = reference::rows_of_cache(facts, in.k.data, in_.sizes.seqlen_k);
        swa_k = reference::rows_of_window_cache(facts, in.swa_k, in_.window_rows());
        in.k = k.view();
        in.swa_k = swa_k.view();
      }
      if (in_.is_latent()) {
        in.v = reference::first_columns(in.k, in_.sizes.v_columns());
        in.swa_v = reference::first_columns(in.swa_k, in_.sizes.v_columns());
      }
      return reference::check_fmha_pools(in, outputs, check);
    }
    if (in_.problem.kv_layout != KvLayout::dense) {
      const Tensor k = in_.dense_keys("k"), v = in_.is_latent() ? Tensor() : in_.dense_keys("v");
      const Tensor lengths = tensor_of(in_.facts.seqused_k);
      reference::FmhaInputs inputs{in_.tensors.at("q").view(), k.view(), {}, {}, lengths.view()};
      inputs.v = in_.is_latent() ? reference::first_columns(k.view(), in_.sizes.v_columns()) : v.view();
      if (!in_.facts.seqused_q.empty()) inputs.seqused_q = in_.tensors.at("seqused_q").view();
      in_.give_descales(inputs);
      if (in_.is_ragged())
        return reference::check_ragged_fmha(inputs, in_.tensors.at("cu_seqlens_q").view(), outputs, check);
      return reference::check_fmha(inputs, outputs, check);
    }
    reference::FmhaInputs inputs{in_.tensors.at("q").view(), in_.tensors.at("k").view(), in_.v_view()};
    if (!in_.facts.seqused_q.empty()) inputs.seqused_q = in_.tensors.at("seqused_q").view();
    if (!in_.facts.seqused_k.empty()) inputs.seqused_k = in_.tensors.at("seqused_k").view();
    in_.give_descales(inputs);
    if (in_.is_ragged())
      return reference::check_ragged_fmha(inputs, in_.tensors.at("cu_seqlens_q").view(), outputs, check);
    return reference::check_fmha(inputs, outputs, check);
  }
  /// Whether what no sequence has is as it was: rows of o behind the last sequence's.
  bool has_clean_end() const {
    if (!in_.is_ragged()) return true;
    const Tensor& o = in_.tensors.at("o");
    const std::int64_t last = reference::starts_of(in_.facts.query_lengths).back();
    const auto row_bytes = static_cast<std::size_t>(o.shape[1] * o.shape[2] * dtype_bytes(o.dtype));
    return std::all_of(o.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(last) * row_bytes),
                       o.bytes.end(), [](std::byte byte) { return byte == std::byte{0xFF}; });
  }

  /// What each sequence's valid queries have of all outputs.
  std::vector<std::vector<std::byte>> sequences() const {
    std::vector<std::vector<std::byte>> result(static_cast<std::size_t>(in_.sizes.batch));
    const std::vector<std::int64_t> starts = reference::starts_of(in_.facts.query_lengths);
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      if (buffer.role != BufferRole::output) continue;
      const Tensor& tensor = in_.tensors.at(buffer.name);
      const bool is_o = buffer.name == "o";
      // Of the statistics each head has rows of its own.
      const std::int64_t heads = is_o ? 1 : in_.sizes.heads_q;
      const std::int64_t row = (is_o ? in_.sizes.heads_q * in_.sizes.v_columns() : 1) * dtype_bytes(tensor.dtype);
      for (std::int64_t b = 0; b < in_.sizes.batch; ++b)
        for (std::int64_t h = 0; h < heads; ++h) {
          const auto i = static_cast<std::size_t>(b);
          const std::int64_t all = in_.sizes.seqlen_q;
          const std::int64_t first = in_.is_ragged() ? h * all + starts[i] : (b * heads + h) * all;
          const std::int64_t rows = in_.is_ragged()               ? starts[i + 1] - starts[i]
                                    : in_.facts.seqused_q.empty() ? all
                                                                  : std::min(in_.facts.seqused_q[i], all);
          const auto begin = tensor.bytes.begin() + first * row;
          result[i].insert(result[i].end(), begin, begin + rows * row);
        }
    }
    return result;
  }

  const std::string& kernel() const { return plan_.kernel; }
  int spill_bytes() const { return spill_bytes_; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = in_.tensors.at("o").bytes;
    for (const char* const name : {"lse", "row_max", "row_sum"}) {
      if (name != std::string_view("lse") && in_.problem.output == Output::normalized) continue;
      const std::vector<std::byte>& rows = in_.tensors.at(name).bytes;
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

 private:
  static void plant(const FmhaLaunchFacts::Edit& edit, SourceBundle& bundle) {
    for (auto& [path, text] : bundle.headers) {
      const std::size_t at = path == edit.file ? text.find(edit.from) : std::string::npos;
      if (at == std::string::npos) continue;
      text.replace(at, edit.from.size(), edit.to);
      return;
    }
    throw std::logic_error(fmt::format("{} has no text {}", edit.file, edit.from));
  }
  void set_lengths(const std::vector<std::int64_t>& lengths) const {
    const Tensor used = tensor_of(lengths);
    device_.copy_to_device(buffers_.at(static_cast<std::size_t>(launcher_->buffer_index("seqused_k"))),
                           used.bytes.data(), used.bytes.size());
  }
  std::vector<Finding> launch(const LaunchArguments& arguments) {
    launcher_->launch({}, arguments);
    std::vector<Finding> findings = device_.synchronize();
    if (in_.facts.watched_bytes == 0) return findings;
    std::vector<std::byte>& kept = watched_.emplace_back(static_cast<std::size_t>(in_.facts.watched_bytes));
    device_.copy_to_host(kept.data(), workspace_ + static_cast<DevicePointer>(arguments.workspace_bytes) - kept.size(),
                         kept.size());
    return findings;
  }

  FmhaRunTensors in_;
  Plan plan_;
  int spill_bytes_ = 0;
  EmulatedDevice& device_;
  std::unique_ptr<Launcher> launcher_;
  std::vector<DevicePointer> buffers_;
  DevicePointer workspace_ = 0;
  std::vector<std::vector<std::byte>> watched_;
};

}  // namespace

std::string text_of(const reference::FmhaSizes& sizes, const FmhaLaunchFacts& facts) {
  std::string text =
      fmt::format("batch {}, heads {}/{}, lengths {} {}, inputs {}, num_sms {}", sizes.batch, sizes.heads_q,
                  sizes.heads_kv, sizes.seqlen_q, sizes.seqlen_k, facts.input_seed, facts.num_sms);
  if (facts.softmax_scale) text += fmt::format(", scale {}", *facts.softmax_scale);
  if (facts.window_size_left >= 0 || facts.window_size_right >= 0)
    text += fmt::format(", window {} {}", facts.window_size_left, facts.window_size_right);
  if (facts.num_splits) text += fmt::format(", parts {}", *facts.num_splits);
  if (!facts.query_lengths.empty()) text += fmt::format(", queries {}", fmt::join(facts.query_lengths, ","));
  if (!facts.seqused_q.empty()) text += fmt::format(", used queries {}", fmt::join(facts.seqused_q, ","));
  if (!facts.seqused_k.empty()) text += fmt::format(", used keys {}", fmt::join(facts.seqused_k, ","));
  if (facts.pool_layout != FmhaLaunchFacts::PoolLayout::token_major)
    text += fmt::format(", pools {}", static_cast<int>(facts.pool_layout));
  if (facts.has_foreign_pages) text += ", foreign pages";
  if (facts.descales != FmhaLaunchFacts::Descales::none)
    text += fmt::format(", descales {}", static_cast<int>(facts.descales));
  if (facts.topk > 0 || facts.seqlen_swa > 0)
    text += fmt::format(", topk {}, window of {}", facts.topk, facts.seqlen_swa);
  if (!facts.has_sink || facts.sink != 0) text += fmt::format(", sink {} {}", facts.has_sink, facts.sink);
  return text;
}

FmhaVerdict run_fmha(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                     std::span<const Schedule> schedules, std::span<const std::uint64_t> seeds,
                     const FmhaLaunchFacts& facts) {
  emulator::DeviceOptions options;
  options.detects_races = true;
  options.arch = problem.arch.to_string();
  options.num_sms = facts.num_sms;
  EmulatedDevice device(options);
  Run run(problem, sizes, compiler, device, facts);
  FmhaVerdict verdict;
  verdict.kernel = run.kernel();
  verdict.spill_bytes = run.spill_bytes();
  std::vector<std::byte> first;
  for (const Schedule schedule : schedules) {
    for (const std::uint64_t seed : seeds) {
      const auto fail = [&](const std::string& what) {
        verdict.failures.push_back(fmt::format("schedule {}, seed {}: {}", static_cast<int>(schedule), seed, what));
      };
      device.set_schedule(schedule, seed);
      auto begin = std::chrono::steady_clock::now();
      for (const Finding& finding : run.run()) fail(finding.message);
      verdict.run_seconds += seconds_since(begin);
      ++verdict.runs;
      if (first.empty()) {
        begin = std::chrono::steady_clock::now();
        const reference::Comparison comparison = run.compare();
        verdict.reference_seconds += seconds_since(begin);
        for (const std::string& line : comparison.problems) fail(line);
        if (comparison.rows_checked != comparison.rows_total)
          fail(fmt::format("{} of {} rows were checked", comparison.rows_checked, comparison.rows_total));
        // P of 8 bits errs by a part of 2^-4, evenly spread; of 16 bits by 2^-9.
        const double least = problem.dtype == DType::e4m3 ? 0.999 : 0.999995;
        if (!(comparison.cosine >= least)) fail(fmt::format("cosine {:.7f}", comparison.cosine));
        verdict.cosine = comparison.cosine;
        if (comparison.rel_bound > 0) verdict.error_share = comparison.rel_error / comparison.rel_bound;
        first = run.bytes();
        verdict.sequences = run.sequences();
      }
      if (first != run.bytes()) fail("other bits than before");
      if (!run.has_clean_end()) fail("rows behind the last sequence were written");
    }
  }
  verdict.watched = run.watched();
  return verdict;
}

void check_runs(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                std::initializer_list<Schedule> schedules, std::uint64_t seeds, const FmhaLaunchFacts& facts) {
  if (!takes_next_case(48)) return;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) numbers.push_back(seed);
  const FmhaVerdict verdict = run_fmha(problem, sizes, compiler, schedules, numbers, facts);
  CAPTURE(verdict.kernel);
  CAPTURE(text_of(sizes, facts));
  for (const std::string& failure : verdict.failures) FAIL_CHECK(failure);
  CHECK(verdict.runs == static_cast<std::int64_t>(schedules.size() * numbers.size()));
}

}  // namespace tessera::testing

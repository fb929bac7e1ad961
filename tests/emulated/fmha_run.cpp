// Longer than most files for one class: what a launch reads (dense, ragged, in pages, by lists, with scales) lies in
// the tensors of a Run, and so does what it wrote; each way of laying keys out has its part of both.
#include "tests/emulated/fmha_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "generator/facts.h"
#include "reference/attention_cache.h"
#include "reference/fmha_pools.h"
#include "reference/key_places.h"
#include "reference/narrow_keys.h"
#include "reference/ragged.h"
#include "reference/scaled_keys.h"
#include "reference/standard_attention.h"
#include "spec/attention_facts.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tests/support/sample.h"

namespace tessera::testing {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Tensor;
using reference::TensorView;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// NaNs in the rows [lengths[b], end) of a tensor [batch, rows, ...].
void hide_behind(Tensor& tensor, const std::vector<std::int64_t>& lengths) {
  const std::int64_t columns = tensor.shape[2] * tensor.shape[3], rows = tensor.shape[1];
  const auto row_bytes = static_cast<std::size_t>(columns * dtype_bytes(tensor.dtype));
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
    for (std::int64_t row = lengths[static_cast<std::size_t>(b)]; row < rows; ++row)
      std::memset(tensor.bytes.data() + static_cast<std::size_t>(b * rows + row) * row_bytes, 0xFF, row_bytes);
}

Tensor tensor_of(const std::vector<std::int64_t>& values) {
  Tensor tensor(DType::s32, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return tensor;
}

/// One kernel and one shape: inputs in device memory, outputs poisoned before each run.
class Run {
 public:
  Run(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler, EmulatedDevice& device,
      const FmhaLaunchFacts& facts)
      : problem_(problem), sizes_(sizes), facts_(facts), plan_(make_plan(problem)), device_(device) {
    softmax_scale_ = facts.softmax_scale.value_or(*plan_.launch.scalars.at(0).default_value);
    SourceBundle bundle = emit(plan_);
    if (facts.edit) plant(*facts.edit, bundle);
    const Image image = compiler.compile(bundle);
    for (const EntryReport& entry : image.report.entries)
      spill_bytes_ += entry.spill_store_bytes + entry.spill_load_bytes;
    launcher_ = std::make_unique<Launcher>(device, plan_.launch, image);
    if (has_pools()) {
      make_pools();
    } else {
      make_dense();
    }
    const DType o_type = problem.output == Output::unnormalized ? DType::f32 : o_dtype(attention_facts(problem));
    std::vector<std::int64_t> rows{sizes.batch, sizes.heads_q, sizes.seqlen_q};
    std::vector<std::int64_t> o_shape{sizes.batch, sizes.seqlen_q, sizes.heads_q, sizes.v_columns()};
    if (is_ragged())
      for (std::vector<std::int64_t>* const shape : {&rows, &o_shape}) shape->erase(shape->begin());
    tensors_.emplace("o", Tensor(o_type, std::move(o_shape)));
    for (const char* const name : {"lse", "row_max", "row_sum"}) tensors_.emplace(name, Tensor(DType::f32, rows));
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      const bool is_descale = buffer.name.ends_with("_descale");
      if ((buffer.name == "sink" && !facts.has_sink) ||
          (is_descale && facts.descales == FmhaLaunchFacts::Descales::none)) {
        buffers_.push_back(0);
        continue;
      }
      if (is_in_one_pool(buffer.name)) {
        buffers_.push_back(buffers_.at(static_cast<std::size_t>(launcher_->buffer_index("k"))) + v_offset_);
        continue;
      }
      if (buffer.is_optional && tensors_.count(buffer.name) == 0) {
        buffers_.push_back(0);
        continue;
      }
      const Tensor& tensor = tensors_.at(buffer.name);
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
      if (buffers_[i] != 0 && !is_in_one_pool(plan_.launch.buffers[i].name)) device_.free(buffers_[i]);
    if (workspace_ != 0) device_.free(workspace_);
  }

  std::vector<Finding> run() {
    std::map<std::string, std::int64_t> given{{"batch", sizes_.batch},
                                              {"heads_q", sizes_.heads_q},
                                              {"heads_kv", sizes_.heads_kv},
                                              {"seqlen_q", sizes_.seqlen_q},
                                              {"seqlen_k", sizes_.seqlen_k},
                                              {"v_stride_dim", padded_keys()},
                                              {"window_size_left", facts_.window_size_left},
                                              {"window_size_right", facts_.window_size_right},
                                              {"attention_chunk", facts_.attention_chunk},
                                              {"tree_words", tree_words()},
                                              {"topk", facts_.topk},
                                              {"seqlen_swa", facts_.seqlen_swa},
                                              {"swa_rows", has_pools() ? window_rows() : 0}};
    given.insert(places_.begin(), places_.end());
    if (facts_.descales == FmhaLaunchFacts::Descales::one)
      for (const std::string name : {"q_descale", "k_descale", "v_descale"})
        for (const char* const stride : {"_stride_batch", "_stride_head"}) given.emplace(name + stride, 0);
    if (facts_.num_splits) given.emplace("num_splits", *facts_.num_splits);
    LaunchArguments arguments;
    std::vector<std::int64_t> sizes;
    for (const SizeSpec& size : plan_.launch.sizes)
      sizes.push_back(given.count(size.name) != 0 ? given.at(size.name) : kUseDefault);
    std::vector<double> scalars{softmax_scale_};
    if (problem_.softcap != Softcap::none) scalars.push_back(facts_.softcap);
    arguments.sizes = sizes;
    arguments.scalars = scalars;
    arguments.buffers = buffers_;
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      if (const BufferSpec& buffer = plan_.launch.buffers[i]; buffer.role == BufferRole::output && buffers_[i] != 0)
        device_.poison(buffers_[i], 0xFF, tensors_.at(buffer.name).bytes.size());
    const std::int64_t workspace_bytes = launcher_->workspace_bytes(arguments);
    if (workspace_bytes > 0) {
      if (workspace_ == 0) workspace_ = device_.allocate(static_cast<std::size_t>(workspace_bytes));
      device_.poison(workspace_, 0xFF, static_cast<std::size_t>(workspace_bytes));
      arguments.workspace = workspace_;
      arguments.workspace_bytes = workspace_bytes;
    }
    std::vector<Finding> findings;
    if (!facts_.earlier_k.empty()) {
      set_lengths(facts_.earlier_k);
      findings = launch(arguments);
      set_lengths(facts_.seqused_k);
    }
    for (Finding& finding : launch(arguments)) findings.push_back(std::move(finding));
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (plan_.launch.buffers[i].role != BufferRole::output) continue;
      Tensor& tensor = tensors_.at(plan_.launch.buffers[i].name);
      if (!tensor.bytes.empty()) device_.copy_to_host(tensor.bytes.data(), buffers_[i], tensor.bytes.size());
    }
    return findings;
  }

  const std::vector<std::vector<std::byte>>& watched() const { return watched_; }

  reference::Comparison compare() const {
    reference::FmhaCheck check;
    check.facts = attention_facts(problem_);
    check.window_size_left = facts_.window_size_left;
    check.window_size_right = facts_.window_size_right;
    if (problem_.window == Window::chunked) check.attention_chunk = facts_.attention_chunk;
    if (problem_.softcap != Softcap::none) check.softcap = facts_.softcap;
    if (problem_.tree_mask != TreeMask::none) check.tree_mask = tensors_.at("tree_mask").view();
    if (problem_.alibi != Alibi::none) check.alibi_slopes = tensors_.at("alibi_slopes").view();
    // Of dealt keys each CTA, of which two may share a multiprocessor, can have a part of the same tile.
    check.num_splits = facts_.num_splits.value_or(problem_.split_kv == SplitKv::dealt ? 2 * facts_.num_sms : 1);
    if (problem_.split_size > 0) check.num_splits = sizes_.seqlen_k / problem_.split_size + 1;
    check.softmax_scale = softmax_scale_;
    check.tile_m = plan_.number("tile_m");
    check.tile_n = plan_.number("tile_n");
    check.has_long_sums = has_family(plan_.arch, MmaFamily::tcgen05);
    check.widens_to_queries = check.has_long_sums && problem_.v_is_k == VIsK::on;
    check.lowered = reference::lowered_beside(plan_.mma_kind);
    if (is_8_bit() && !check.has_long_sums) check.promote_every = plan_.number("promote_every");
    check.jobs = 1;
    reference::FmhaOutputs outputs{tensors_.at("o").view(), tensors_.at("lse").view(), {}, {}};
    if (!check.is_normalized()) {
      outputs.row_max = tensors_.at("row_max").view();
      outputs.row_sum = tensors_.at("row_sum").view();
    }
    if (facts_.has_sink && tensors_.count("sink") != 0) check.sink = tensors_.at("sink").view();
    if (has_pools()) {
      const auto of = [&](const char* name) { return tensors_.at(name).view(); };
      reference::FmhaPools in{of("q"),       of("k"),        of("v"), of("swa_k"), of("swa_v"),
                              of("indices"), of("swa_lens"), {},      {}};
      for (const auto& [name, slot] :
           {std::pair("topk_lens", &in.topk_lens), std::pair("swa_indices", &in.swa_indices)})
        if (const auto found = tensors_.find(name); found != tensors_.end()) *slot = found->second.view();
      const AttentionFacts& facts = check.facts;
      Tensor k, swa_k;
      if (has_cache(facts)) {
        k = reference::rows_of_cache(facts, in.k.data, sizes_.seqlen_k);
        swa_k = reference::rows_of_window_cache(facts, in.swa_k, window_rows());
        in.k = k.view();
        in.swa_k = swa_k.view();
      }
      if (is_latent()) {
        in.v = reference::first_columns(in.k, sizes_.v_columns());
        in.swa_v = reference::first_columns(in.swa_k, sizes_.v_columns());
      }
      return reference::check_fmha_pools(in, outputs, check);
    }
    if (problem_.kv_layout != KvLayout::dense) {
      const Tensor k = dense_keys("k"), v = is_latent() ? Tensor() : dense_keys("v");
      const Tensor lengths = tensor_of(facts_.seqused_k);
      reference::FmhaInputs inputs{tensors_.at("q").view(), k.view(), {}, {}, lengths.view()};
      inputs.v = is_latent() ? reference::first_columns(k.view(), sizes_.v_columns()) : v.view();
      if (!facts_.seqused_q.empty()) inputs.seqused_q = tensors_.at("seqused_q").view();
      give_descales(inputs);
      if (is_ragged()) return reference::check_ragged_fmha(inputs, tensors_.at("cu_seqlens_q").view(), outputs, check);
      return reference::check_fmha(inputs, outputs, check);
    }
    reference::FmhaInputs inputs{tensors_.at("q").view(), tensors_.at("k").view(), v_view()};
    if (!facts_.seqused_q.empty()) inputs.seqused_q = tensors_.at("seqused_q").view();
    if (!facts_.seqused_k.empty()) inputs.seqused_k = tensors_.at("seqused_k").view();
    give_descales(inputs);
    if (is_ragged()) return reference::check_ragged_fmha(inputs, tensors_.at("cu_seqlens_q").view(), outputs, check);
    return reference::check_fmha(inputs, outputs, check);
  }
  /// Whether what no sequence has is as it was: rows of o behind the last sequence's.
  bool has_clean_end() const {
    if (!is_ragged()) return true;
    const Tensor& o = tensors_.at("o");
    const std::int64_t last = reference::starts_of(facts_.query_lengths).back();
    const auto row_bytes = static_cast<std::size_t>(o.shape[1] * o.shape[2] * dtype_bytes(o.dtype));
    return std::all_of(o.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(last) * row_bytes),
                       o.bytes.end(), [](std::byte byte) { return byte == std::byte{0xFF}; });
  }

  /// What each sequence's valid queries have of all outputs.
  std::vector<std::vector<std::byte>> sequences() const {
    std::vector<std::vector<std::byte>> result(static_cast<std::size_t>(sizes_.batch));
    const std::vector<std::int64_t> starts = reference::starts_of(facts_.query_lengths);
    for (const BufferSpec& buffer : plan_.launch.buffers) {
      if (buffer.role != BufferRole::output) continue;
      const Tensor& tensor = tensors_.at(buffer.name);
      const bool is_o = buffer.name == "o";
      // Of the statistics each head has rows of its own.
      const std::int64_t heads = is_o ? 1 : sizes_.heads_q;
      const std::int64_t row = (is_o ? sizes_.heads_q * sizes_.v_columns() : 1) * dtype_bytes(tensor.dtype);
      for (std::int64_t b = 0; b < sizes_.batch; ++b)
        for (std::int64_t h = 0; h < heads; ++h) {
          const auto i = static_cast<std::size_t>(b);
          const std::int64_t all = sizes_.seqlen_q;
          const std::int64_t first = is_ragged() ? h * all + starts[i] : (b * heads + h) * all;
          const std::int64_t rows = is_ragged()                ? starts[i + 1] - starts[i]
                                    : facts_.seqused_q.empty() ? all
                                                               : std::min(facts_.seqused_q[i], all);
          const auto begin = tensor.bytes.begin() + first * row;
          result[i].insert(result[i].end(), begin, begin + rows * row);
        }
    }
    return result;
  }

  const std::string& kernel() const { return plan_.kernel; }
  int spill_bytes() const { return spill_bytes_; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = tensors_.at("o").bytes;
    for (const char* const name : {"lse", "row_max", "row_sum"}) {
      if (name != std::string_view("lse") && problem_.output == Output::normalized) continue;
      const std::vector<std::byte>& rows = tensors_.at(name).bytes;
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

 private:
  std::int64_t tree_words() const { return facts_.tree_words < 0 ? (sizes_.seqlen_q + 31) / 32 : facts_.tree_words; }
  bool is_ragged() const { return problem_.q_layout == QueryLayout::ragged; }
  DType key_type() const { return attention_facts(problem_).kv_dtype; }
  bool is_scaled() const { return problem_.kv_format != KvFormat::plain; }
  bool is_8_bit() const { return problem_.dtype == DType::e4m3; }
  bool has_pools() const { return problem_.kv_pools != KvPools::dense; }
  bool is_latent() const { return problem_.v_is_k == VIsK::on; }

  reference::FmhaTensors made_inputs(const reference::FmhaSizes& sizes) const {
    // Ordinary ones too: what is explained by roundings is less there.
    return facts_.input_seed % 2 == 0
               ? reference::make_inputs(sizes, problem_.dtype, reference::Fill::normal, facts_.input_seed)
               : reference::make_standard_inputs(sizes, problem_.dtype, softmax_scale_, plan_.number("tile_n"),
                                                 facts_.input_seed);
  }
  /// Rows of each sequence's source, `begins[i]` rows from the first of all on.
  Tensor rows_of_sources(const Tensor& from, std::vector<std::int64_t> shape, const std::vector<std::int64_t>& begins,
                         const std::vector<std::int64_t>& counts) const {
    Tensor taken(from.dtype, std::move(shape));
    const std::int64_t row = from.shape[2] * from.shape[3] * dtype_bytes(from.dtype);
    for (std::size_t b = 0; b < facts_.sources.size(); ++b)
      std::memcpy(taken.bytes.data() + begins[b] * row, from.bytes.data() + facts_.sources[b] * from.shape[1] * row,
                  static_cast<std::size_t>(counts[b] * row));
    return taken;
  }
  reference::FmhaTensors inputs_of_sources() const {
    reference::FmhaSizes all = sizes_;
    all.batch = *std::max_element(facts_.sources.begin(), facts_.sources.end()) + 1;
    all.seqlen_q = facts_.source_queries;
    all.seqlen_k = facts_.source_keys;
    reference::FmhaTensors made = made_inputs(all);
    const auto take = [&](Tensor& tensor, std::int64_t rows) {
      std::vector<std::int64_t> begins, counts(facts_.sources.size(), rows);
      for (std::int64_t b = 0; b < sizes_.batch; ++b) begins.push_back(b * rows);
      tensor = rows_of_sources(tensor, {sizes_.batch, rows, tensor.shape[2], tensor.shape[3]}, begins, counts);
    };
    for (Tensor* const keys : {&made.k, &made.v}) take(*keys, sizes_.seqlen_k);
    if (is_ragged()) {
      made.q = rows_of_sources(made.q, {sizes_.seqlen_q, made.q.shape[2], made.q.shape[3]},
                               reference::starts_of(facts_.query_lengths), facts_.query_lengths);
    } else {
      take(made.q, sizes_.seqlen_q);
    }
    return made;
  }
  reference::FmhaTensors inputs_of_sequences() const {
    if (!facts_.sources.empty()) return inputs_of_sources();
    reference::FmhaTensors made = made_inputs(sizes_);
    if (is_ragged()) {
      reference::FmhaSizes one = sizes_;
      one.batch = 1;
      made.q = made_inputs(one).q;
      made.q.shape.erase(made.q.shape.begin());
    }
    return made;
  }
  void make_dense() {
    reference::FmhaTensors made = inputs_of_sequences();
    if (is_ragged()) {
      tensors_.emplace("cu_seqlens_q", tensor_of(reference::starts_of(facts_.query_lengths)));
    }
    reference::ScaledKeys scales_of_k, scales_of_v;
    for (const auto& [keys, scaled] : {std::pair(&made.k, &scales_of_k), std::pair(&made.v, &scales_of_v)}) {
      if (is_scaled()) {
        *scaled = reference::scaled_keys(problem_.kv_format, *keys);
        *keys = scaled->codes;
      } else if (facts_.rounded_to != KvFormat::plain) {
        *keys = reference::widened_keys(facts_.rounded_to, reference::scaled_keys(facts_.rounded_to, *keys));
      } else if (key_type() != problem_.dtype) {
        *keys = reference::narrowed(*keys);
      }
    }
    if (has_descales(attention_facts(problem_))) make_descales();
    if (!facts_.seqused_q.empty()) hide_behind(made.q, facts_.seqused_q);
    if (!facts_.seqused_k.empty()) {
      hide_behind(made.k, facts_.seqused_k);
      hide_behind(made.v, facts_.seqused_k);
    }
    for (const auto& [name, lengths] :
         {std::pair("seqused_q", &facts_.seqused_q), std::pair("seqused_k", &facts_.seqused_k)})
      if (!lengths->empty()) tensors_.emplace(name, tensor_of(*lengths));
    if (problem_.sink != Sink::none) {
      Tensor sink(DType::f32, {sizes_.heads_q});
      reference::fill(sink, reference::Fill::normal, facts_.input_seed, 7);
      tensors_.emplace("sink", std::move(sink));
      set_sink(tensors_.at("sink"));
    }
    if (problem_.tree_mask != TreeMask::none) {
      std::vector<std::int64_t> queries(static_cast<std::size_t>(sizes_.batch), sizes_.seqlen_q);
      if (is_ragged()) queries = facts_.query_lengths;
      Tensor tree = reference::make_tree_mask(queries, tree_words(), facts_.input_seed);
      tree.shape[0] = sizes_.seqlen_q;
      if (!is_ragged()) tree.shape.insert(tree.shape.begin(), sizes_.batch);
      tree.bytes.resize(static_cast<std::size_t>(tree.elements()) * 4);
      tensors_.emplace("tree_mask", std::move(tree));
    }
    if (problem_.alibi != Alibi::none) {
      Tensor slopes(DType::f32, {sizes_.heads_q});
      reference::fill(slopes, reference::Fill::normal, facts_.input_seed, 8);
      tensors_.emplace("alibi_slopes", std::move(slopes));
    }
    if (problem_.v_layout == Layout::k_major) made.v = transposed(made.v);
    tensors_.emplace("q", std::move(made.q));
    if (problem_.kv_layout == KvLayout::paged) {
      make_pages(made.k, made.v);
      if (is_scaled()) {
        put_scales("k_scale", scales_of_k.scales);
        put_scales("v_scale", scales_of_v.scales);
      }
    } else if (problem_.kv_layout == KvLayout::ragged) {
      make_ragged(made.k, made.v);
    } else {
      tensors_.emplace("k", std::move(made.k));
      if (!is_latent()) tensors_.emplace("v", std::move(made.v));
    }
  }

  /// Factors of every kind: powers of two and others, of either sign for K.
  void make_descales() {
    const bool is_one = facts_.descales == FmhaLaunchFacts::Descales::one;
    const std::vector<std::int64_t> shape{is_one ? 1 : sizes_.batch, is_one ? 1 : sizes_.heads_kv};
    Tensor of_k(DType::f32, shape), of_v(DType::f32, shape), of_q(DType::f32, shape);
    for (std::int64_t place = 0; place < of_k.elements(); ++place) {
      std::int64_t i = place;
      if (!facts_.sources.empty() && !is_one)
        i = facts_.sources[static_cast<std::size_t>(place / sizes_.heads_kv)] * sizes_.heads_kv +
            place % sizes_.heads_kv;
      of_k.set(place, (i % 5 == 3 ? -1 : 1) * (0.7 + 0.3 * static_cast<double>(i % 4)));
      of_v.set(place, 1.9 - 0.4 * static_cast<double>(i % 7));
      of_q.set(place, 0.6 + 0.25 * static_cast<double>(i % 3));
    }
    if (is_8_bit()) tensors_.emplace("q_descale", std::move(of_q));
    tensors_.emplace("k_descale", std::move(of_k));
    tensors_.emplace("v_descale", std::move(of_v));
  }
  void give_descales(reference::FmhaInputs& inputs) const {
    if (facts_.descales == FmhaLaunchFacts::Descales::none) return;
    const std::vector<std::int64_t> strides = facts_.descales == FmhaLaunchFacts::Descales::one
                                                  ? std::vector<std::int64_t>{0, 0}
                                                  : std::vector<std::int64_t>{sizes_.heads_kv, 1};
    const auto view = [&](const char* name) {
      const Tensor& tensor = tensors_.at(name);
      return TensorView{tensor.bytes.data(), DType::f32, {sizes_.batch, sizes_.heads_kv}, strides};
    };
    inputs.k_descale = view("k_descale");
    inputs.v_descale = view(is_latent() ? "k_descale" : "v_descale");
    if (is_8_bit()) inputs.q_descale = view("q_descale");
  }

  bool is_in_one_pool(const std::string& name) const {
    return name == "v" && problem_.kv_layout == KvLayout::paged &&
           facts_.pool_layout == FmhaLaunchFacts::PoolLayout::one_pool;
  }
  void make_pages(const Tensor& k, const Tensor& v) {
    const std::int64_t page_size = *problem_.page_size, max_pages = (sizes_.seqlen_k + page_size - 1) / page_size;
    const Tensor lengths = tensor_of(facts_.seqused_k);
    std::int64_t pages = facts_.spare_pages;
    for (const std::int64_t length : facts_.seqused_k)
      pages += (std::min(length, max_pages * page_size) + page_size - 1) / page_size;
    Tensor table = reference::draw_block_table(lengths, page_size, pages, max_pages, facts_.input_seed);
    if (facts_.has_foreign_pages)
      for (std::int64_t i = 0; i < table.elements(); i += 2)
        table.set(i, static_cast<double>(i % 3 == 0 ? -1 : i % 3 == 1 ? pages : INT32_MIN));
    const bool is_one = facts_.pool_layout == FmhaLaunchFacts::PoolLayout::one_pool;
    const auto page_of = [&](const Tensor& keys) { return page_size * keys.shape[2] * keys.shape[3]; };
    places_ = {{"pages", pages}, {"max_pages", max_pages}};
    for (const auto& [name, keys] : {std::pair("k", &k), std::pair("v", &v)}) {
      if (is_latent() && name == std::string_view("v")) continue;
      const std::int64_t columns = keys->shape[3], heads = keys->shape[2];
      const bool is_head_major = facts_.pool_layout == FmhaLaunchFacts::PoolLayout::head_major;
      const std::string prefix = std::string(name) + "_stride_";
      places_[prefix + "page"] = is_one ? page_of(k) + page_of(v) : page_of(*keys);
      places_[prefix + "seqlen"] = is_head_major ? columns : heads * columns;
      places_[prefix + "head"] = is_head_major ? page_size * columns : columns;
      if (is_in_one_pool(name)) continue;
      Tensor pool(key_type(), {pages, is_one ? page_of(k) + page_of(v) : page_of(*keys)});
      std::memset(pool.bytes.data(), 0xFF, pool.bytes.size());
      tensors_.emplace(name, std::move(pool));
    }
    v_offset_ = is_one ? static_cast<std::size_t>(page_of(k) * dtype_bytes(key_type())) : 0;
    tensors_.emplace("block_table", std::move(table));
    for (const auto& [name, keys] : {std::pair("k", &k), std::pair("v", &v)})
      if (!is_latent() || name == std::string_view("k"))
        reference::put_pages(*keys, lengths, tensors_.at("block_table"), pool_of(name));
  }
  /// A page's scales of a head side by side; between heads and pages gaps that nobody may read.
  reference::PoolView pool_of_scales(const std::string& name) const {
    Tensor& pool = const_cast<Tensor&>(tensors_.at(name));
    const std::int64_t scales = key_scale_bytes(attention_facts(problem_), problem_.head_dim);
    const std::int64_t head = places_.at(name + "_stride_head");
    return {pool.bytes.data(),
            DType::u8,
            {places_.at("pages"), *problem_.page_size, sizes_.heads_kv, scales},
            {places_.at(name + "_stride_page"), scales, head, 1}};
  }
  void put_scales(const std::string& name, const Tensor& scales) {
    const std::int64_t of_page = *problem_.page_size * scales.shape[3];
    const std::int64_t head = of_page + (facts_.input_seed % 3 == 0 ? 16 : 0), page = head * sizes_.heads_kv + 32;
    places_[name + "_stride_head"] = head;
    places_[name + "_stride_page"] = page;
    Tensor pool(DType::u8, {places_.at("pages") * page});
    std::memset(pool.bytes.data(), 0xFF, pool.bytes.size());
    tensors_.emplace(name, std::move(pool));
    reference::put_pages(scales, tensor_of(facts_.seqused_k), tensors_.at("block_table"), pool_of_scales(name));
  }
  void make_ragged(const Tensor& k, const Tensor& v) {
    const Tensor ends = reference::ends_of(tensor_of(facts_.seqused_k));
    const std::int64_t tokens = static_cast<std::int64_t>(ends.at(sizes_.batch)) + facts_.spare_pages;
    places_ = {{"tokens_k", tokens}};
    for (const auto& [name, keys] : {std::pair("k", &k), std::pair("v", &v)})
      tensors_.emplace(name, reference::pack_keys(*keys, ends, tokens));
    tensors_.emplace("cu_seqlens_k", ends);
  }
  reference::PoolView pool_of(const std::string& name) const {
    Tensor& pool = const_cast<Tensor&>(tensors_.at(is_in_one_pool(name) ? "k" : name));
    const auto stride = [&](const char* of) { return places_.at(name + "_stride_" + of); };
    return {pool.bytes.data() + (is_in_one_pool(name) ? v_offset_ : 0),
            key_type(),
            {places_.at("pages"), *problem_.page_size, sizes_.heads_kv,
             is_scaled()   ? key_elements(attention_facts(problem_), problem_.head_dim)
             : name == "k" ? sizes_.head_dim
                           : sizes_.v_columns()},
            {stride("page"), stride("seqlen"), stride("head"), 1}};
  }
  /// What stands in the pool, as a dense tensor.
  Tensor dense_keys(const char* name) const {
    if (problem_.kv_layout == KvLayout::ragged)
      return reference::unpack_keys(tensors_.at(name), tensors_.at("cu_seqlens_k"), sizes_.seqlen_k);
    const auto take = [&](const reference::PoolView& pool) {
      return reference::take_pages(pool, tensor_of(facts_.seqused_k), tensors_.at("block_table"), sizes_.seqlen_k);
    };
    if (!is_scaled()) return take(pool_of(name));
    return reference::widened_keys(problem_.kv_format,
                                   {take(pool_of(name)), take(pool_of_scales(std::string(name) + "_scale"))});
  }
  /// Of listed keys whose window's rows are listed too: with every other even length of a window.
  bool has_second_list() const { return has_pools() && is_latent() && facts_.seqlen_swa % 4 == 2; }
  /// Rows of swa_k: more than places there.
  std::int64_t window_rows() const { return has_second_list() ? 2 * facts_.seqlen_swa + 5 : facts_.seqlen_swa; }
  /// Lists have lengths of their own with topk = 2, 3, 6, 7, ...; what lies behind these are rows too.
  void make_pools() {
    reference::FmhaPoolTensors made = reference::make_pool_inputs(sizes_, facts_.topk, window_rows(), problem_.dtype,
                                                                  reference::Fill::normal, facts_.input_seed);
    if (facts_.topk % 4 >= 2)
      tensors_.emplace("topk_lens", reference::make_list_lengths(sizes_, facts_.topk, facts_.input_seed));
    if (has_second_list()) {
      // All rows are valid: a query's places end, not the pool.
      for (std::int64_t b = 0; b < sizes_.batch; ++b) made.swa_lens.set(b, static_cast<double>(window_rows()));
      tensors_.emplace("swa_indices",
                       reference::make_row_lists(sizes_, facts_.seqlen_swa, window_rows(), facts_.input_seed, 32));
    }
    reference::set_query_kinds(made.q, softmax_scale_, facts_.input_seed);
    for (Tensor* const keys : {&made.k, &made.swa_k}) reference::set_key_columns(*keys, 0, facts_.input_seed);
    // NaNs behind the valid keys of each window: nobody may read them.
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < sizes_.batch; ++b) lengths.push_back(static_cast<std::int64_t>(made.swa_lens.at(b)));
    hide_behind(made.swa_k, lengths);
    hide_behind(made.swa_v, lengths);
    set_sink(made.sink);
    if (const AttentionFacts facts = attention_facts(problem_); has_cache(facts)) {
      made.k = reference::make_cache(facts, sizes_.seqlen_k, reference::Fill::normal, facts_.input_seed, 21);
      made.swa_k = reference::make_window_cache(facts, made.swa_lens, window_rows(), reference::Fill::normal,
                                                facts_.input_seed, 22);
    }
    for (std::int64_t b = 0; has_second_list() && b < sizes_.batch; ++b)
      made.swa_lens.set(b, static_cast<double>(facts_.seqlen_swa - (b + 1) % 3 * (facts_.seqlen_swa / 3)));
    for (const auto& [name, tensor] :
         {std::pair("q", &made.q), std::pair("k", &made.k), std::pair("v", &made.v), std::pair("swa_k", &made.swa_k),
          std::pair("swa_v", &made.swa_v), std::pair("indices", &made.indices), std::pair("swa_lens", &made.swa_lens),
          std::pair("sink", &made.sink)})
      tensors_.emplace(name, std::move(*tensor));
  }

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
    if (facts_.watched_bytes == 0) return findings;
    std::vector<std::byte>& kept = watched_.emplace_back(static_cast<std::size_t>(facts_.watched_bytes));
    device_.copy_to_host(kept.data(), workspace_ + static_cast<DevicePointer>(arguments.workspace_bytes) - kept.size(),
                         kept.size());
    return findings;
  }

  void set_sink(Tensor& sink) const {
    for (std::int64_t h = 0; facts_.sink != 0 && h < sizes_.heads_q; ++h) sink.set(h, facts_.sink);
  }

  std::int64_t padded_keys() const { return std::max<std::int64_t>((sizes_.seqlen_k + 7) / 8 * 8, 8); }

  /// [batch, heads, head_dim, keys], rows padded to 16 bytes with NaNs that nobody may read.
  Tensor transposed(const Tensor& v) const {
    const std::int64_t rows = v.shape[2] * v.shape[3], keys = v.shape[1];
    Tensor result(v.dtype, {v.shape[0], v.shape[2], v.shape[3], padded_keys()});
    std::memset(result.bytes.data(), 0xFF, result.bytes.size());
    for (std::int64_t batch = 0; batch < v.shape[0]; ++batch)
      for (std::int64_t key = 0; key < keys; ++key)
        for (std::int64_t row = 0; row < rows; ++row)
          result.set((batch * rows + row) * padded_keys() + key, v.at((batch * keys + key) * rows + row));
    return result;
  }
  TensorView v_view() const {
    if (is_latent()) return reference::first_columns(tensors_.at("k").view(), sizes_.v_columns());
    const Tensor& v = tensors_.at("v");
    if (problem_.v_layout == Layout::mn_major) return v.view();
    const std::int64_t heads = v.shape[1], head_dim = v.shape[2];
    return {v.bytes.data(),
            v.dtype,
            {v.shape[0], sizes_.seqlen_k, heads, head_dim},
            {heads * head_dim * padded_keys(), 1, head_dim * padded_keys(), padded_keys()}};
  }

  Fmha problem_;
  reference::FmhaSizes sizes_;
  FmhaLaunchFacts facts_;
  Plan plan_;
  double softmax_scale_ = 0;
  int spill_bytes_ = 0;
  EmulatedDevice& device_;
  std::unique_ptr<Launcher> launcher_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::int64_t> places_;  // sizes of launches whose keys do not lie dense
  std::size_t v_offset_ = 0;                    // of V in a pool of both
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

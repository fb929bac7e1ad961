// What a launch of attention reads, and what it wrote: tensors by the names of buffers, dense, ragged, in pages, by
// lists, with scales. Each way of laying keys out has its part of making them and of reading them back.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "generator/facts.h"
#include "reference/attention_cache.h"
#include "reference/fmha_pools.h"
#include "reference/key_places.h"
#include "reference/narrow_keys.h"
#include "reference/ragged.h"
#include "reference/scaled_keys.h"
#include "reference/standard_attention.h"
#include "spec/attention_facts.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::testing {

using reference::Tensor;
using reference::TensorView;

/// NaNs in the rows [lengths[b], end) of a tensor [batch, rows, ...].
inline void hide_behind(Tensor& tensor, const std::vector<std::int64_t>& lengths) {
  const std::int64_t columns = tensor.shape[2] * tensor.shape[3], rows = tensor.shape[1];
  const auto row_bytes = static_cast<std::size_t>(columns * dtype_bytes(tensor.dtype));
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
    for (std::int64_t row = lengths[static_cast<std::size_t>(b)]; row < rows; ++row)
      std::memset(tensor.bytes.data() + static_cast<std::size_t>(b * rows + row) * row_bytes, 0xFF, row_bytes);
}

inline Tensor tensor_of(const std::vector<std::int64_t>& values) {
  Tensor tensor(DType::s32, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return tensor;
}

struct FmhaRunTensors {
  Fmha problem;
  reference::FmhaSizes sizes;
  FmhaLaunchFacts facts;
  double softmax_scale = 0;
  int tile_n = 0;
  std::map<std::string, Tensor> tensors{};
  std::map<std::string, std::int64_t> places{};  ///< sizes of launches whose keys do not lie dense
  std::size_t v_offset = 0;                      ///< of V in a pool of both

  /// Inputs; of outputs what has to be there.
  void make() {
    if (has_pools()) {
      make_pools();
    } else {
      make_dense();
    }
    make_outputs();
  }
  void make_outputs() {
    const DType o_type = problem.output == Output::unnormalized ? DType::f32 : o_dtype(attention_facts(problem));
    std::vector<std::int64_t> rows{sizes.batch, sizes.heads_q, sizes.seqlen_q};
    std::vector<std::int64_t> o_shape{sizes.batch, sizes.seqlen_q, sizes.heads_q, sizes.v_columns()};
    if (is_ragged())
      for (std::vector<std::int64_t>* const shape : {&rows, &o_shape}) shape->erase(shape->begin());
    tensors.emplace("o", Tensor(o_type, std::move(o_shape)));
    for (const char* const name : {"lse", "row_max", "row_sum"}) tensors.emplace(name, Tensor(DType::f32, rows));
  }

  std::int64_t tree_words() const { return facts.tree_words < 0 ? (sizes.seqlen_q + 31) / 32 : facts.tree_words; }
  bool is_ragged() const { return problem.q_layout == QueryLayout::ragged; }
  DType key_type() const { return attention_facts(problem).kv_dtype; }
  bool is_scaled() const { return problem.kv_format != KvFormat::plain; }
  bool is_8_bit() const { return problem.dtype == DType::e4m3; }
  bool has_pools() const { return problem.kv_pools != KvPools::dense; }
  bool is_latent() const { return problem.v_is_k == VIsK::on; }

  reference::FmhaTensors made_inputs(const reference::FmhaSizes& of) const {
    // Ordinary ones too: what is explained by roundings is less there.
    return facts.input_seed % 2 == 0
               ? reference::make_inputs(of, problem.dtype, reference::Fill::normal, facts.input_seed)
               : reference::make_standard_inputs(of, problem.dtype, softmax_scale, tile_n, facts.input_seed);
  }
  /// Rows of each sequence's source, `begins[i]` rows from the first of all on.
  Tensor rows_of_sources(const Tensor& from, std::vector<std::int64_t> shape, const std::vector<std::int64_t>& begins,
                         const std::vector<std::int64_t>& counts) const {
    Tensor taken(from.dtype, std::move(shape));
    const std::int64_t row = from.shape[2] * from.shape[3] * dtype_bytes(from.dtype);
    for (std::size_t b = 0; b < facts.sources.size(); ++b)
      std::memcpy(taken.bytes.data() + begins[b] * row, from.bytes.data() + facts.sources[b] * from.shape[1] * row,
                  static_cast<std::size_t>(counts[b] * row));
    return taken;
  }
  reference::FmhaTensors inputs_of_sources() const {
    reference::FmhaSizes all = sizes;
    all.batch = *std::max_element(facts.sources.begin(), facts.sources.end()) + 1;
    all.seqlen_q = facts.source_queries;
    all.seqlen_k = facts.source_keys;
    reference::FmhaTensors made = made_inputs(all);
    const auto take = [&](Tensor& tensor, std::int64_t rows) {
      std::vector<std::int64_t> begins, counts(facts.sources.size(), rows);
      for (std::int64_t b = 0; b < sizes.batch; ++b) begins.push_back(b * rows);
      tensor = rows_of_sources(tensor, {sizes.batch, rows, tensor.shape[2], tensor.shape[3]}, begins, counts);
    };
    for (Tensor* const keys : {&made.k, &made.v}) take(*keys, sizes.seqlen_k);
    if (is_ragged()) {
      made.q = rows_of_sources(made.q, {sizes.seqlen_q, made.q.shape[2], made.q.shape[3]},
                               reference::starts_of(facts.query_lengths), facts.query_lengths);
    } else {
      take(made.q, sizes.seqlen_q);
    }
    return made;
  }
  reference::FmhaTensors inputs_of_sequences() const {
    if (!facts.sources.empty()) return inputs_of_sources();
    reference::FmhaTensors made = made_inputs(sizes);
    if (is_ragged()) {
      reference::FmhaSizes one = sizes;
      one.batch = 1;
      made.q = made_inputs(one).q;
      made.q.shape.erase(made.q.shape.begin());
    }
    return made;
  }
  void make_dense() {
    reference::FmhaTensors made = inputs_of_sequences();
    if (is_ragged()) {
      tensors.emplace("cu_seqlens_q", tensor_of(reference::starts_of(facts.query_lengths)));
    }
    reference::ScaledKeys scales_of_k, scales_of_v;
    for (const auto& [keys, scaled] : {std::pair(&made.k, &scales_of_k), std::pair(&made.v, &scales_of_v)}) {
      if (is_scaled()) {
        *scaled = reference::scaled_keys(problem.kv_format, *keys);
        *keys = scaled->codes;
      } else if (facts.rounded_to != KvFormat::plain) {
        *keys = reference::widened_keys(facts.rounded_to, reference::scaled_keys(facts.rounded_to, *keys));
      } else if (key_type() != problem.dtype) {
        *keys = reference::narrowed(*keys);
      }
    }
    if (has_descales(attention_facts(problem))) make_descales();
    if (!facts.seqused_q.empty()) hide_behind(made.q, facts.seqused_q);
    if (!facts.seqused_k.empty()) {
      hide_behind(made.k, facts.seqused_k);
      hide_behind(made.v, facts.seqused_k);
    }
    for (const auto& [name, lengths] :
         {std::pair("seqused_q", &facts.seqused_q), std::pair("seqused_k", &facts.seqused_k)})
      if (!lengths->empty()) tensors.emplace(name, tensor_of(*lengths));
    if (problem.sink != Sink::none) {
      Tensor sink(DType::f32, {sizes.heads_q});
      reference::fill(sink, reference::Fill::normal, facts.input_seed, 7);
      tensors.emplace("sink", std::move(sink));
      set_sink(tensors.at("sink"));
    }
    if (problem.tree_mask != TreeMask::none) {
      std::vector<std::int64_t> queries(static_cast<std::size_t>(sizes.batch), sizes.seqlen_q);
      if (is_ragged()) queries = facts.query_lengths;
      Tensor tree = reference::make_tree_mask(queries, tree_words(), facts.input_seed);
      tree.shape[0] = sizes.seqlen_q;
      if (!is_ragged()) tree.shape.insert(tree.shape.begin(), sizes.batch);
      tree.bytes.resize(static_cast<std::size_t>(tree.elements()) * 4);
      tensors.emplace("tree_mask", std::move(tree));
    }
    if (problem.alibi != Alibi::none) {
      Tensor slopes(DType::f32, {sizes.heads_q});
      reference::fill(slopes, reference::Fill::normal, facts.input_seed, 8);
      tensors.emplace("alibi_slopes", std::move(slopes));
    }
    if (problem.v_layout == Layout::k_major) made.v = transposed(made.v);
    tensors.emplace("q", std::move(made.q));
    if (problem.kv_layout == KvLayout::paged) {
      make_pages(made.k, made.v);
      if (is_scaled()) {
        put_scales("k_scale", scales_of_k.scales);
        put_scales("v_scale", scales_of_v.scales);
      }
    } else if (problem.kv_layout == KvLayout::ragged) {
      make_ragged(made.k, made.v);
    } else {
      tensors.emplace("k", std::move(made.k));
      if (!is_latent()) tensors.emplace("v", std::move(made.v));
    }
  }

  /// Factors of every kind: powers of two and others, of either sign for K.
  void make_descales() {
    const bool is_one = facts.descales == FmhaLaunchFacts::Descales::one;
    const std::vector<std::int64_t> shape{is_one ? 1 : sizes.batch, is_one ? 1 : sizes.heads_kv};
    Tensor of_k(DType::f32, shape), of_v(DType::f32, shape), of_q(DType::f32, shape);
    for (std::int64_t place = 0; place < of_k.elements(); ++place) {
      std::int64_t i = place;
      if (!facts.sources.empty() && !is_one)
        i = facts.sources[static_cast<std::size_t>(place / sizes.heads_kv)] * sizes.heads_kv + place % sizes.heads_kv;
      of_k.set(place, (i % 5 == 3 ? -1 : 1) * (0.7 + 0.3 * static_cast<double>(i % 4)));
      of_v.set(place, 1.9 - 0.4 * static_cast<double>(i % 7));
      of_q.set(place, 0.6 + 0.25 * static_cast<double>(i % 3));
    }
    if (is_8_bit()) tensors.emplace("q_descale", std::move(of_q));
    tensors.emplace("k_descale", std::move(of_k));
    tensors.emplace("v_descale", std::move(of_v));
  }
  void give_descales(reference::FmhaInputs& inputs) const {
    if (facts.descales == FmhaLaunchFacts::Descales::none) return;
    const std::vector<std::int64_t> strides = facts.descales == FmhaLaunchFacts::Descales::one
                                                  ? std::vector<std::int64_t>{0, 0}
                                                  : std::vector<std::int64_t>{sizes.heads_kv, 1};
    const auto view = [&](const char* name) {
      const Tensor& tensor = tensors.at(name);
      return TensorView{tensor.bytes.data(), DType::f32, {sizes.batch, sizes.heads_kv}, strides};
    };
    inputs.k_descale = view("k_descale");
    inputs.v_descale = view(is_latent() ? "k_descale" : "v_descale");
    if (is_8_bit()) inputs.q_descale = view("q_descale");
  }

  bool is_in_one_pool(const std::string& name) const {
    return name == "v" && problem.kv_layout == KvLayout::paged &&
           facts.pool_layout == FmhaLaunchFacts::PoolLayout::one_pool;
  }
  void make_pages(const Tensor& k, const Tensor& v) {
    const std::int64_t page_size = *problem.page_size, max_pages = (sizes.seqlen_k + page_size - 1) / page_size;
    const Tensor lengths = tensor_of(facts.seqused_k);
    std::int64_t pages = facts.spare_pages;
    for (const std::int64_t length : facts.seqused_k)
      pages += (std::min(length, max_pages * page_size) + page_size - 1) / page_size;
    Tensor table = reference::draw_block_table(lengths, page_size, pages, max_pages, facts.input_seed);
    if (facts.has_foreign_pages)
      for (std::int64_t i = 0; i < table.elements(); i += 2)
        table.set(i, static_cast<double>(i % 3 == 0 ? -1 : i % 3 == 1 ? pages : INT32_MIN));
    const bool is_one = facts.pool_layout == FmhaLaunchFacts::PoolLayout::one_pool;
    const auto page_of = [&](const Tensor& keys) { return page_size * keys.shape[2] * keys.shape[3]; };
    places = {{"pages", pages}, {"max_pages", max_pages}};
    for (const auto& [name, keys] : {std::pair("k", &k), std::pair("v", &v)}) {
      if (is_latent() && name == std::string_view("v")) continue;
      const std::int64_t columns = keys->shape[3], heads = keys->shape[2];
      const bool is_head_major = facts.pool_layout == FmhaLaunchFacts::PoolLayout::head_major;
      const std::string prefix = std::string(name) + "_stride_";
      places[prefix + "page"] = is_one ? page_of(k) + page_of(v) : page_of(*keys);
      places[prefix + "seqlen"] = is_head_major ? columns : heads * columns;
      places[prefix + "head"] = is_head_major ? page_size * columns : columns;
      if (is_in_one_pool(name)) continue;
      Tensor pool(key_type(), {pages, is_one ? page_of(k) + page_of(v) : page_of(*keys)});
      std::memset(pool.bytes.data(), 0xFF, pool.bytes.size());
      tensors.emplace(name, std::move(pool));
    }
    v_offset = is_one ? static_cast<std::size_t>(page_of(k) * dtype_bytes(key_type())) : 0;
    tensors.emplace("block_table", std::move(table));
    for (const auto& [name, keys] : {std::pair("k", &k), std::pair("v", &v)})
      if (!is_latent() || name == std::string_view("k"))
        reference::put_pages(*keys, lengths, tensors.at("block_table"), pool_of(name));
  }
  /// A page's scales of a head side by side; between heads and pages gaps that nobody may read.
  reference::PoolView pool_of_scales(const std::string& name) const {
    Tensor& pool = const_cast<Tensor&>(tensors.at(name));
    const std::int64_t scales = key_scale_bytes(attention_facts(problem), problem.head_dim);
    const std::int64_t head = places.at(name + "_stride_head");
    return {pool.bytes.data(),
            DType::u8,
            {places.at("pages"), *problem.page_size, sizes.heads_kv, scales},
            {places.at(name + "_stride_page"), scales, head, 1}};
  }
  void put_scales(const std::string& name, const Tensor& scales) {
    const std::int64_t of_page = *problem.page_size * scales.shape[3];
    const std::int64_t head = of_page + (facts.input_seed % 3 == 0 ? 16 : 0), page = head * sizes.heads_kv + 32;
    places[name + "_stride_head"] = head;
    places[name + "_stride_page"] = page;
    Tensor pool(DType::u8, {places.at("pages") * page});
    std::memset(pool.bytes.data(), 0xFF, pool.bytes.size());
    tensors.emplace(name, std::move(pool));
    reference::put_pages(scales, tensor_of(facts.seqused_k), tensors.at("block_table"), pool_of_scales(name));
  }
  void make_ragged(const Tensor& k, const Tensor& v) {
    const Tensor ends = reference::ends_of(tensor_of(facts.seqused_k));
    const std::int64_t tokens = static_cast<std::int64_t>(ends.at(sizes.batch)) + facts.spare_pages;
    places = {{"tokens_k", tokens}};
    for (const auto& [name, keys] : {std::pair("k", &k), std::pair("v", &v)})
      tensors.emplace(name, reference::pack_keys(*keys, ends, tokens));
    tensors.emplace("cu_seqlens_k", ends);
  }
  reference::PoolView pool_of(const std::string& name) const {
    Tensor& pool = const_cast<Tensor&>(tensors.at(is_in_one_pool(name) ? "k" : name));
    const auto stride = [&](const char* of) { return places.at(name + "_stride_" + of); };
    return {pool.bytes.data() + (is_in_one_pool(name) ? v_offset : 0),
            key_type(),
            {places.at("pages"), *problem.page_size, sizes.heads_kv,
             is_scaled()   ? key_elements(attention_facts(problem), problem.head_dim)
             : name == "k" ? sizes.head_dim
                           : sizes.v_columns()},
            {stride("page"), stride("seqlen"), stride("head"), 1}};
  }
  /// What stands in the pool, as a dense tensor.
  Tensor dense_keys(const char* name) const {
    if (problem.kv_layout == KvLayout::ragged)
      return reference::unpack_keys(tensors.at(name), tensors.at("cu_seqlens_k"), sizes.seqlen_k);
    const auto take = [&](const reference::PoolView& pool) {
      return reference::take_pages(pool, tensor_of(facts.seqused_k), tensors.at("block_table"), sizes.seqlen_k);
    };
    if (!is_scaled()) return take(pool_of(name));
    return reference::widened_keys(problem.kv_format,
                                   {take(pool_of(name)), take(pool_of_scales(std::string(name) + "_scale"))});
  }
  /// Of listed keys whose window's rows are listed too: with every other even length of a window.
  bool has_second_list() const { return has_pools() && is_latent() && facts.seqlen_swa % 4 == 2; }
  /// Rows of swa_k: more than places there.
  std::int64_t window_rows() const { return has_second_list() ? 2 * facts.seqlen_swa + 5 : facts.seqlen_swa; }
  /// Lists have lengths of their own with topk = 2, 3, 6, 7, ...; what lies behind these are rows too.
  void make_pools() {
    reference::FmhaPoolTensors made = reference::make_pool_inputs(sizes, facts.topk, window_rows(), problem.dtype,
                                                                  reference::Fill::normal, facts.input_seed);
    if (facts.topk % 4 >= 2)
      tensors.emplace("topk_lens", reference::make_list_lengths(sizes, facts.topk, facts.input_seed));
    if (has_second_list()) {
      // All rows are valid: a query's places end, not the pool.
      for (std::int64_t b = 0; b < sizes.batch; ++b) made.swa_lens.set(b, static_cast<double>(window_rows()));
      tensors.emplace("swa_indices",
                      reference::make_row_lists(sizes, facts.seqlen_swa, window_rows(), facts.input_seed, 32));
    }
    reference::set_query_kinds(made.q, softmax_scale, facts.input_seed);
    for (Tensor* const keys : {&made.k, &made.swa_k}) reference::set_key_columns(*keys, 0, facts.input_seed);
    // NaNs behind the valid keys of each window: nobody may read them.
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < sizes.batch; ++b) lengths.push_back(static_cast<std::int64_t>(made.swa_lens.at(b)));
    hide_behind(made.swa_k, lengths);
    hide_behind(made.swa_v, lengths);
    set_sink(made.sink);
    if (const AttentionFacts attention = attention_facts(problem); has_cache(attention)) {
      made.k = reference::make_cache(attention, sizes.seqlen_k, reference::Fill::normal, facts.input_seed, 21);
      made.swa_k = reference::make_window_cache(attention, made.swa_lens, window_rows(), reference::Fill::normal,
                                                facts.input_seed, 22);
    }
    for (std::int64_t b = 0; has_second_list() && b < sizes.batch; ++b)
      made.swa_lens.set(b, static_cast<double>(facts.seqlen_swa - (b + 1) % 3 * (facts.seqlen_swa / 3)));
    for (const auto& [name, tensor] :
         {std::pair("q", &made.q), std::pair("k", &made.k), std::pair("v", &made.v), std::pair("swa_k", &made.swa_k),
          std::pair("swa_v", &made.swa_v), std::pair("indices", &made.indices), std::pair("swa_lens", &made.swa_lens),
          std::pair("sink", &made.sink)})
      tensors.emplace(name, std::move(*tensor));
  }

  void set_sink(Tensor& sink) const {
    for (std::int64_t h = 0; facts.sink != 0 && h < sizes.heads_q; ++h) sink.set(h, facts.sink);
  }

  std::int64_t padded_keys() const { return std::max<std::int64_t>((sizes.seqlen_k + 7) / 8 * 8, 8); }

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
    if (is_latent()) return reference::first_columns(tensors.at("k").view(), sizes.v_columns());
    const Tensor& v = tensors.at("v");
    if (problem.v_layout == Layout::mn_major) return v.view();
    const std::int64_t heads = v.shape[1], head_dim = v.shape[2];
    return {v.bytes.data(),
            v.dtype,
            {v.shape[0], sizes.seqlen_k, heads, head_dim},
            {heads * head_dim * padded_keys(), 1, head_dim * padded_keys(), padded_keys()}};
  }
};

}  // namespace tessera::testing

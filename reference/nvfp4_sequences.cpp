#include "reference/nvfp4_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "reference/poison.h"

namespace tessera::reference {

namespace {

constexpr std::int64_t kBlock = 128;

std::int64_t whole(const TensorView& t, std::int64_t at) { return std::llround(t.at(at * t.strides.back())); }

/// `count` of an axis, from `first` on.
TensorView crop(TensorView t, std::size_t axis, std::int64_t first, std::int64_t count) {
  if (count > 0) t.data += first * t.strides[axis] * dtype_bytes(t.dtype);
  t.shape[axis] = count;
  return t;
}
/// With an axis of one outside.
TensorView as_batch(TensorView t) {
  t.shape.insert(t.shape.begin(), 1);
  t.strides.insert(t.strides.begin(), 0);
  return t;
}

/// visit(element's offset in the view): in the order of a dense tensor.
template <class Visit>
void for_each(const TensorView& t, const Visit& visit) {
  const std::int64_t elements = element_count(t.shape);
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t offset = 0, left = i;
    for (std::size_t axis = t.shape.size(); axis-- > 0;) {
      offset += left % t.shape[axis] * t.strides[axis];
      left /= t.shape[axis];
    }
    visit(offset);
  }
}

Tensor dense_of(const TensorView& t) {
  Tensor dense(t.dtype, t.shape);
  const auto bytes = static_cast<std::size_t>(dtype_bytes(t.dtype));
  std::byte* to = dense.bytes.data();
  for_each(t, [&](std::int64_t offset) {
    std::memcpy(to, t.data + static_cast<std::size_t>(offset) * bytes, bytes);
    to += bytes;
  });
  return dense;
}
/// The view is of a tensor that may be written.
void put(const Tensor& from, const TensorView& to) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(to.dtype));
  const std::byte* next = from.bytes.data();
  for_each(to, [&](std::int64_t offset) {
    std::memcpy(const_cast<std::byte*>(to.data) + static_cast<std::size_t>(offset) * bytes, next, bytes);
    next += bytes;
  });
}

SequencePlace ragged_place(const TensorView& starts, std::int64_t sequence, std::int64_t all, std::int64_t most) {
  const std::int64_t first = std::clamp<std::int64_t>(whole(starts, sequence), 0, all);
  const std::int64_t end = std::clamp<std::int64_t>(whole(starts, sequence + 1), 0, all);
  return {first, std::clamp<std::int64_t>(end - first, 0, most), first / kBlock + sequence};
}

/// One sequence's rows of q, k or v: [1, rows, heads, head_dim].
TensorView rows_of(const TensorView& t, const SequencePlace& place, std::int64_t sequence) {
  if (t.shape.size() == 3) return as_batch(crop(t, 0, place.first, place.rows));
  return crop(crop(t, 0, sequence, 1), 1, 0, place.rows);
}

/// The same of a pool; a page that is none of it has zeros.
Tensor gathered(const TensorView& pool, const Nvfp4Layout& layout, const SequencePlace& place, std::int64_t sequence) {
  Tensor rows(pool.dtype, {1, place.rows, pool.shape[2], pool.shape[3]});
  const TensorView& table = *layout.block_table;
  for (std::int64_t key = 0; key < place.rows; ++key) {
    const std::int64_t page =
        std::llround(table.at(sequence * table.strides[0] + key / layout.page_size * table.strides[1]));
    if (page < 0 || page >= pool.shape[0]) continue;
    const TensorView row = crop(crop(pool, 0, page, 1), 1, key % layout.page_size, 1);
    put(dense_of(row), crop(rows.view(), 1, key, 1));
  }
  return rows;
}

struct SequenceTensors {
  Tensor k, v;
  AttentionTensors x;
};
SequenceTensors tensors_of(const AttentionTensors& x, const Nvfp4Layout& layout, const Nvfp4Sequence& of,
                           std::int64_t sequence) {
  SequenceTensors one;
  one.x.q = rows_of(x.q, of.q, sequence);
  if (layout.block_table) {
    one.k = gathered(x.k, layout, of.k, sequence);
    one.v = gathered(x.v, layout, of.k, sequence);
    one.x.k = one.k.view();
    one.x.v = one.v.view();
  } else {
    one.x.k = rows_of(x.k, of.k, sequence);
    one.x.v = rows_of(x.v, of.k, sequence);
  }
  return one;
}

/// What a sequence has of an output of attention_quantize, or of a statistic of attention.
TensorView part_of(const std::string& name, const TensorView& t, const Nvfp4Sequence& of, std::int64_t sequence) {
  if (name == "row_shift" || name == "lse" || name == "row_max" || name == "row_sum") {
    if (t.shape.size() == 2) return as_batch(crop(t, 1, of.q.first, of.q.rows));
    return crop(crop(t, 0, sequence, 1), 2, 0, of.q.rows);
  }
  if (name == "k_mean") return crop(t, 1, sequence, 1);
  if (name == "k_units" || name == "v_units") return crop(t, 1, of.k.block, of.k.blocks());
  const TensorView rows = crop(t, 1, of.q.block, of.q.blocks());
  return name == "delta_s" ? crop(rows, 2, 0, kBlock * of.k.blocks()) : rows;
}

/// The first element behind a sequence's queries that is not `wanted`.
void check_behind(const char* name, const TensorView& t, std::size_t axis, const SequencePlace& place,
                  std::int64_t sequence, double wanted, Comparison& all) {
  const TensorView behind = crop(crop(t, 0, sequence, 1), axis, place.rows, t.shape[axis] - place.rows);
  std::int64_t row = -1;
  double found = 0;
  for_each(behind, [&](std::int64_t offset) {
    const double value = behind.at(offset);
    if (row >= 0 || value == wanted) return;
    row = offset / behind.strides[axis] % behind.shape[axis];
    found = value;
  });
  if (row < 0) return;
  all.pass = false;
  all.problems.push_back(fmt::format("sequence {}: {} is {} {} rows behind its last query, {} needed", sequence, name,
                                     found, row, wanted));
}
void check_behind(const Nvfp4Outputs& out, const SequencePlace& place, std::int64_t sequence, Comparison& all) {
  constexpr double kNoBound = std::numeric_limits<double>::infinity();
  check_behind("o", out.o, 1, place, sequence, 0, all);
  if (out.lse) check_behind("lse", *out.lse, 2, place, sequence, -kNoBound, all);
  if (out.row_max) check_behind("row_max", *out.row_max, 2, place, sequence, -kNoBound, all);
  if (out.row_sum) check_behind("row_sum", *out.row_sum, 2, place, sequence, 0, all);
}

/// Joins verdicts of sequences.
void add(const Comparison& one, std::int64_t sequence, Comparison& all) {
  all.pass = all.pass && one.pass;
  all.rel_error = std::max(all.rel_error, one.rel_error);
  all.rel_bound = std::max(all.rel_bound, one.rel_bound);
  all.max_abs_error = std::max(all.max_abs_error, one.max_abs_error);
  all.cosine = std::min(all.cosine, one.cosine);
  all.rows_checked += one.rows_checked;
  all.rows_total += one.rows_total;
  for (const std::string& problem : one.problems)
    all.problems.push_back(fmt::format("sequence {}: {}", sequence, problem));
}

}  // namespace

std::vector<Nvfp4Sequence> sequences_of(const Nvfp4Layout& layout) {
  std::vector<Nvfp4Sequence> sequences;
  for (std::int64_t i = 0; i < layout.batch; ++i) {
    Nvfp4Sequence one{{0, layout.seqlen_q, i * ceil_div(layout.seqlen_q, kBlock)},
                      {0, layout.seqlen_k, i * ceil_div(layout.seqlen_k, kBlock)}};
    if (layout.cu_seqlens_q) one.q = ragged_place(*layout.cu_seqlens_q, i, layout.seqlen_q, layout.seqlen_q);
    if (layout.cu_seqlens_k) one.k = ragged_place(*layout.cu_seqlens_k, i, layout.tokens_k, layout.seqlen_k);
    if (layout.seqused_q) one.q.rows = std::clamp<std::int64_t>(whole(*layout.seqused_q, i), 0, one.q.rows);
    if (layout.seqused_k) one.k.rows = std::clamp<std::int64_t>(whole(*layout.seqused_k, i), 0, one.k.rows);
    sequences.push_back(one);
  }
  return sequences;
}

std::int64_t query_blocks_of(const Nvfp4Layout& layout) {
  const std::int64_t blocks = ceil_div(layout.seqlen_q, kBlock);
  return layout.cu_seqlens_q ? blocks + layout.batch : blocks * layout.batch;
}
std::int64_t key_blocks_of(const Nvfp4Layout& layout) {
  return layout.cu_seqlens_k ? ceil_div(layout.tokens_k, kBlock) + layout.batch
                             : ceil_div(layout.seqlen_k, kBlock) * layout.batch;
}

QuantizedAttention quantize_sequences(const AttentionTensors& x, const Nvfp4Layout& layout) {
  const std::int64_t head_dim = x.q.shape.back(), heads_q = x.q.shape[x.q.shape.size() - 2];
  const std::int64_t heads_kv = x.k.shape[x.k.shape.size() - 2], bytes = 72 * head_dim;
  const std::int64_t q_blocks = query_blocks_of(layout), key_blocks = key_blocks_of(layout);
  std::vector<std::int64_t> statistic{layout.batch, heads_q, layout.seqlen_q};
  if (layout.cu_seqlens_q) statistic.erase(statistic.begin());
  QuantizedAttention all;
  all.emplace("q_units", Tensor(DType::u8, {heads_q, q_blocks, bytes}));
  all.emplace("k_units", Tensor(DType::u8, {heads_kv, key_blocks, bytes}));
  all.emplace("v_units", Tensor(DType::u8, {heads_kv, key_blocks, bytes}));
  all.emplace("q_mean", Tensor(DType::f32, {heads_q, q_blocks, head_dim}));
  all.emplace("k_mean", Tensor(DType::f32, {heads_kv, layout.batch, head_dim}));
  all.emplace("delta_s", Tensor(DType::f32, {heads_q, q_blocks, ceil_div(layout.seqlen_k, kBlock) * kBlock}));
  all.emplace("row_shift", Tensor(DType::f32, statistic));
  for (auto& [name, tensor] : all)
    std::fill(tensor.bytes.begin(), tensor.bytes.end(), static_cast<std::byte>(kPoisonByte));
  const std::vector<Nvfp4Sequence> sequences = sequences_of(layout);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto sequence = static_cast<std::int64_t>(i);
    const SequenceTensors one = tensors_of(x, layout, sequences[i], sequence);
    for (const auto& [name, tensor] : quantize_attention(one.x))
      put(tensor, part_of(name, all.at(name).view(), sequences[i], sequence));
  }
  return all;
}

Comparison check_quantized_sequences(const AttentionTensors& x, const Nvfp4Layout& layout,
                                     const QuantizedAttention& found, int jobs) {
  Comparison all;
  const std::vector<Nvfp4Sequence> sequences = sequences_of(layout);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto sequence = static_cast<std::int64_t>(i);
    const SequenceTensors one = tensors_of(x, layout, sequences[i], sequence);
    QuantizedAttention part;
    for (const auto& [name, tensor] : found)
      part.emplace(name, dense_of(part_of(name, tensor.view(), sequences[i], sequence)));
    add(check_attention_quantize(one.x, part, jobs), sequence, all);
  }
  return all;
}

Comparison check_nvfp4_sequences(const Nvfp4Inputs& in, const Nvfp4Layout& layout, const Nvfp4Outputs& out,
                                 const Nvfp4Check& check) {
  Comparison all;
  const std::vector<Nvfp4Sequence> sequences = sequences_of(layout);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto sequence = static_cast<std::int64_t>(i);
    const Nvfp4Sequence& of = sequences[i];
    const auto part = [&](const char* name, const TensorView& t) { return dense_of(part_of(name, t, of, sequence)); };
    const Tensor q = part("q_units", in.q), k = part("k_units", in.k), v = part("v_units", in.v),
                 delta_s = part("delta_s", in.delta_s), row_shift = part("row_shift", in.row_shift);
    Nvfp4Outputs one{rows_of(out.o, of.q, sequence), {}};
    if (out.lse) one.lse = part_of("lse", *out.lse, of, sequence);
    if (out.row_max) one.row_max = part_of("row_max", *out.row_max, of, sequence);
    if (out.row_sum) one.row_sum = part_of("row_sum", *out.row_sum, of, sequence);
    Nvfp4Check of_one = check;
    if (check.tree_mask)
      of_one.tree_mask = check.tree_mask->shape.size() == 2 ? as_batch(crop(*check.tree_mask, 0, of.q.first, of.q.rows))
                                                            : crop(*check.tree_mask, 0, sequence, 1);
    of_one.seqlen_k = of.k.rows;
    add(check_fmha_nvfp4({q.view(), k.view(), v.view(), delta_s.view(), row_shift.view()}, one, of_one), sequence, all);
    if (layout.seqused_q) check_behind(out, of.q, sequence, all);
  }
  return all;
}

}  // namespace tessera::reference

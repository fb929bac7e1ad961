// Each query is a problem of its own: its keys are gathered side by side, and the dense reference does the rest.
#include "reference/fmha_pools.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace tessera::reference {

namespace {

std::int64_t number(const TensorView& view, std::int64_t index) { return std::llround(view.at(index)); }

/// The columns that begin `offset` elements behind the first.
void append_row(const TensorView& from, std::int64_t offset, std::int64_t columns, std::vector<std::byte>& to) {
  const std::int64_t element = dtype_bytes(from.dtype);
  const std::byte* const first = from.data + static_cast<std::size_t>(offset * element);
  to.insert(to.end(), first, first + static_cast<std::size_t>(columns * element));
}

/// One query of [batch, seqlen_q, heads, columns].
TensorView one_query(TensorView view, std::int64_t batch, std::int64_t query) {
  const std::int64_t offset = batch * view.strides[0] + query * view.strides[1];
  view.data += static_cast<std::size_t>(offset * dtype_bytes(view.dtype));
  view.shape[0] = view.shape[1] = 1;
  return view;
}
/// One query of [batch, heads, seqlen_q].
TensorView one_statistic(TensorView view, std::int64_t batch, std::int64_t query) {
  const std::int64_t offset = batch * view.strides[0] + query * view.strides[2];
  view.data += static_cast<std::size_t>(offset * dtype_bytes(view.dtype));
  view.shape[0] = view.shape[2] = 1;
  return view;
}

void merge(const Comparison& one, Comparison& all) {
  all.pass = all.pass && one.pass;
  all.rel_error = std::max(all.rel_error, one.rel_error);
  all.rel_bound = std::max(all.rel_bound, one.rel_bound);
  all.max_abs_error = std::max(all.max_abs_error, one.max_abs_error);
  all.cosine = std::min(all.cosine, one.cosine);
  all.rows_checked += one.rows_checked;
  all.rows_total += one.rows_total;
}

}  // namespace

std::vector<Comparison> check_pool_queries(const FmhaPools& in, const FmhaOutputs& outputs, const FmhaCheck& check,
                                           const std::vector<std::int64_t>& of) {
  const std::int64_t queries = in.q.shape[1], topk = in.indices.shape[2];
  const std::int64_t rows = in.k.shape[0], rows_of_window = in.swa_k.shape[1];
  const std::int64_t window = in.swa_indices ? in.swa_indices->shape[2] : rows_of_window;
  const std::int64_t columns = in.k.shape[1], v_columns = in.v.shape[1];
  std::vector<Comparison> all;
  for (const std::int64_t list : of) {
    const std::int64_t batch = list / queries, query = list % queries;
    const std::int64_t used = std::clamp<std::int64_t>(number(in.swa_lens, batch), 0, window);
    std::vector<std::byte> k, v;
    std::int64_t keys = 0;
    const std::int64_t listed = in.topk_lens ? std::clamp<std::int64_t>(number(*in.topk_lens, list), 0, topk) : topk;
    for (std::int64_t i = 0; i < listed; ++i) {
      const std::int64_t row = number(in.indices, list * topk + i);
      if (row < 0 || row >= rows) continue;
      append_row(in.k, row * in.k.strides[0], columns, k);
      append_row(in.v, row * in.v.strides[0], v_columns, v);
      ++keys;
    }
    const std::int64_t end = check.facts.mask == Mask::causal ? std::min(used, query + used - queries + 1) : used;
    for (std::int64_t i = 0; i < end; ++i) {
      const std::int64_t key = in.swa_indices ? number(*in.swa_indices, list * window + i) : i;
      if (key < 0 || key >= rows_of_window) continue;
      ++keys;
      append_row(in.swa_k, batch * in.swa_k.strides[0] + key * in.swa_k.strides[1], columns, k);
      append_row(in.swa_v, batch * in.swa_v.strides[0] + key * in.swa_v.strides[1], v_columns, v);
    }
    FmhaCheck of_query = check;
    of_query.facts.mask = Mask::none;
    FmhaOutputs found{one_query(outputs.o, batch, query), {}, {}, {}};
    if (outputs.lse) found.lse = one_statistic(*outputs.lse, batch, query);
    all.push_back(
        check_fmha({one_query(in.q, batch, query),
                    {k.data(), in.k.dtype, {1, keys, 1, columns}, {keys * columns, columns, columns, 1}},
                    {v.data(), in.v.dtype, {1, keys, 1, v_columns}, {keys * v_columns, v_columns, v_columns, 1}}},
                   found, of_query));
  }
  return all;
}

Comparison check_fmha_pools(const FmhaPools& in, const FmhaOutputs& outputs, const FmhaCheck& check) {
  Comparison all;
  const std::int64_t batches = in.q.shape[0], queries = in.q.shape[1];
  for (std::int64_t list = 0; list < batches * queries; ++list) {
    const Comparison one = check_pool_queries(in, outputs, check, {list}).front();
    for (const std::string& problem : one.problems)
      all.problems.push_back("batch " + std::to_string(list / queries) + ", query " + std::to_string(list % queries) +
                             ": " + problem);
    merge(one, all);
  }
  return all;
}

namespace {

void draw_lists(Tensor& lists, std::int64_t rows, const CounterRandom& random, std::uint64_t& turn) {
  const std::int64_t places = lists.shape[2];
  for (std::int64_t list = 0; list < lists.shape[0] * lists.shape[1]; ++list) {
    // Steps of a number that has no divisor in common with the pool visit every row once.
    const std::int64_t first = rows > 0 ? random.integer(turn++, 0, rows - 1) : 0;
    std::int64_t step = random.integer(turn++, 1, 1000) * 2 + 1;
    while (rows > 0 && std::gcd(step, rows) != 1) ++step;
    for (std::int64_t i = 0; i < places; ++i) {
      const bool is_none = rows == 0 || random.integer(turn++, 0, 7) == 0;
      // On either side of the pool's rows.
      const std::int64_t none = i % 2 == 0 ? -1 : rows + i / 2;
      lists.set(list * places + i, static_cast<double>(is_none ? none : (first + i * step) % rows));
    }
  }
}

}  // namespace

Tensor make_row_lists(const FmhaSizes& sizes, std::int64_t places, std::int64_t rows, std::uint64_t seed,
                      std::uint64_t stream) {
  Tensor lists(DType::s32, {sizes.batch, sizes.seqlen_q, places});
  std::uint64_t turn = 0;
  draw_lists(lists, rows, CounterRandom(seed, stream), turn);
  return lists;
}

Tensor make_list_lengths(const FmhaSizes& sizes, std::int64_t places, std::uint64_t seed) {
  Tensor lengths(DType::s32, {sizes.batch, sizes.seqlen_q});
  const CounterRandom random(seed, 31);
  for (std::int64_t i = 0; i < lengths.elements(); ++i) {
    const std::int64_t drawn = random.integer(static_cast<std::uint64_t>(i), 0, places);
    lengths.set(i, static_cast<double>(i % 5 == 1 ? -3 : i % 5 == 2 ? places + 7 : i % 5 == 3 ? places : drawn));
  }
  return lengths;
}

FmhaPoolTensors make_pool_inputs(const FmhaSizes& s, std::int64_t topk, std::int64_t seqlen_swa, DType dtype, Fill kind,
                                 std::uint64_t seed) {
  FmhaPoolTensors t{Tensor(dtype, {s.batch, s.seqlen_q, s.heads_q, s.head_dim}),
                    Tensor(dtype, {s.seqlen_k, s.head_dim}),
                    Tensor(dtype, {s.seqlen_k, s.v_columns()}),
                    Tensor(dtype, {s.batch, seqlen_swa, 1, s.head_dim}),
                    Tensor(dtype, {s.batch, seqlen_swa, 1, s.v_columns()}),
                    Tensor(DType::s32, {s.batch, s.seqlen_q, topk}),
                    Tensor(DType::s32, {s.batch}),
                    Tensor(DType::f32, {s.heads_q})};
  std::uint64_t stream = 0;
  // As make_integer_inputs(): whole numbers whose scores, and a sink whose share, are exact.
  const bool is_exact = kind == Fill::integer;
  fill(t.q, is_exact ? Fill::sparse_integer : kind, seed, stream++);
  for (Tensor* const tensor : {&t.k, &t.swa_k}) fill(*tensor, is_exact ? Fill::sign : kind, seed, stream++);
  for (Tensor* const tensor : {&t.v, &t.swa_v}) fill(*tensor, kind, seed, stream++);
  if (!is_exact) fill(t.sink, Fill::normal, seed, stream);
  ++stream;
  const CounterRandom random(seed, stream);
  std::uint64_t turn = 0;
  draw_lists(t.indices, s.seqlen_k, random, turn);
  for (std::int64_t b = 0; b < s.batch; ++b)
    t.swa_lens.set(b, static_cast<double>(b == 0 ? seqlen_swa : random.integer(turn++, 0, seqlen_swa)));
  return t;
}

}  // namespace tessera::reference

// Inputs of row operators: fresh ones for every seed, lists with what is outside of their ranges.
#include <algorithm>

#include "reference/mhc_coefficients.h"
#include "reference/quantize.h"
#include "reference/rows.h"
#include "reference/rows_product.h"
#include "spec/row_facts.h"
#include "tessera/row_chain.h"

namespace tessera::reference {

namespace {

Tensor tensor_of(DType dtype, std::vector<std::int64_t> shape, Fill kind, std::uint64_t seed, std::uint64_t stream) {
  Tensor tensor(dtype, std::move(shape));
  fill(tensor, kind, seed, stream);
  return tensor;
}

/// Different slots for most rows (with pages: tokens), in no order; every fifth has none, one has one that is outside.
Tensor slots_of(const RowsRun& run, std::uint64_t seed) {
  const bool is_paged = has_paged_sink(run.chain);
  const std::int64_t count = is_paged ? run.rows / run.heads : run.rows;
  const CounterRandom random(seed, 90);
  // Of both kinds of sinks: a slot of the cache may be none of the placed rows.
  const std::int64_t most = is_paged || has_part(run.chain, RowPart::cache)
                                ? std::max(run.pages * run.page_size, has_placed_sink(run.chain) ? run.placed_rows : 0)
                                : run.placed_rows;
  std::vector<std::int64_t> slots(static_cast<std::size_t>(std::max<std::int64_t>(most, 0)));
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = slots.size(); i > 1; --i)
    std::swap(slots[i - 1], slots[static_cast<std::size_t>(random.integer(i, 0, static_cast<std::int64_t>(i) - 1))]);
  Tensor tensor(DType::s32, {count});
  if (shares_slots(run.chain)) {
    // Some slots have several rows, some none.
    for (std::int64_t row = 0; row < count; ++row)
      tensor.set(row, static_cast<double>(random.integer(static_cast<std::uint64_t>(row) + 7, -1, most * 2 / 3)));
    return tensor;
  }
  for (std::int64_t row = 0; row < count; ++row) {
    const bool is_none = row % 5 == 3 || row >= most;
    tensor.set(row, is_none ? (row % 2 == 0 ? -1.0 : static_cast<double>(most))
                            : static_cast<double>(slots[static_cast<std::size_t>(row)]));
  }
  return tensor;
}

/// Any values and scales; bytes of scales that belong to no block are a NaN's.
void add_values_of_x(const RowsRun& run, const RowStep& s, std::int64_t rows, std::uint64_t seed,
                     std::map<std::string, Tensor>& made) {
  const CounterRandom random(seed, 93);
  const std::int64_t of_scale = !s.is_e4m3 ? block_elements(s.format) : s.block > 0 ? s.block : run.columns;
  const std::int64_t blocks = run.columns / of_scale;
  const RowStepNames names = row_step_names(run.chain)[static_cast<std::size_t>(source_step(run.chain))];
  if (s.is_e4m3) {
    made.emplace("x", tensor_of(DType::e4m3, {rows, run.columns}, Fill::normal, seed, 0));
    Tensor scales = s.block <= 0        ? Tensor(DType::f32, {s.block < 0 ? 1 : rows})
                    : s.is_column_major ? Tensor(DType::f32, {blocks, scale_rows(s, rows)})
                                        : Tensor(DType::f32, {rows, blocks});
    for (std::int64_t i = 0; i < scales.elements(); ++i)
      scales.set(i, 0.01 + random.uniform(static_cast<std::uint64_t>(i)));
    made.emplace(names.in, std::move(scales));
    return;
  }
  Tensor x(DType::u8, {rows, source_columns(run.chain, run.columns)});
  for (std::size_t i = 0; i < x.bytes.size(); ++i) {
    const auto number = static_cast<float>(4 * random.normal(2 * i));
    const auto second = static_cast<float>(4 * random.normal(2 * i + 1));
    const std::uint8_t code = encode_value(value_type(s.format), number);
    x.bytes[i] = std::byte{value_bits(s.format) == 8
                               ? code
                               : static_cast<std::uint8_t>(code | encode_value(value_type(s.format), second) << 4)};
  }
  const bool is_tile = s.form == ScaleForm::tile;
  Tensor scales(DType::u8,
                is_tile ? std::vector<std::int64_t>{ceil_div(rows, kTileRows), ceil_div(blocks, kTileBlocks), 32, 4, 4}
                        : std::vector<std::int64_t>{rows, blocks});
  std::fill(scales.bytes.begin(), scales.bytes.end(), std::byte{0xFF});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < blocks; ++j) {
      const std::uint64_t at = (1ULL << 42) + static_cast<std::uint64_t>(row * blocks + j);
      const std::int64_t code =
          scale_type(s.format) == ScaleType::ue8m0 ? random.integer(at, 110, 140) : random.integer(at, 0, 0x7E);
      scales.bytes[static_cast<std::size_t>(scale_offset(s.form, rows, blocks, 0, row, j))] =
          std::byte{static_cast<std::uint8_t>(code)};
    }
  made.emplace("x", std::move(x));
  made.emplace(names.in, std::move(scales));
  if (s.has_global) {
    Tensor global(DType::f32, {1});
    global.set(0, 0.37);
    made.emplace(names.in2, std::move(global));
  }
}

/// Lists of rows of x, within and outside; of some rows of the result the list is empty.
void add_lists_of_x(const RowsRun& run, const RowStep& s, const RowStepNames& names, Fill kind, std::uint64_t seed,
                    std::map<std::string, Tensor>& made) {
  const CounterRandom random(seed, 94);
  const bool is_combined = s.kind == RowPart::combine;
  const std::int64_t of_row = is_combined ? s.block : compressed_tokens(s);
  Tensor list(DType::s32, {run.rows, of_row});
  for (std::int64_t i = 0; i < list.elements(); ++i)
    list.set(i, static_cast<double>(
                    i / of_row % 7 == 5 ? -1 : random.integer(static_cast<std::uint64_t>(i), -1, run.x_rows)));
  made.emplace(is_combined ? names.in : names.in3, std::move(list));
  if (is_combined) {
    if (s.has_weight) made.emplace(names.in2, tensor_of(DType::f32, {run.rows, s.block}, Fill::uniform, seed, 60));
    return;
  }
  const std::int64_t columns = source_columns(run.chain, run.columns);
  made.emplace(names.in, tensor_of(run.dtype, {run.x_rows, columns}, kind, seed, 61));
  made.emplace(names.in2, tensor_of(DType::f32, {s.block, columns}, Fill::normal, seed, 62));
}

}  // namespace

std::map<std::string, Tensor> rows_inputs(const RowsRun& run, Fill kind, std::uint64_t seed) {
  std::map<std::string, Tensor> made;
  const bool is_gathered = has_part(run.chain, RowPart::gather);
  const std::int64_t x_rows = rows::has_named_rows(run.chain) ? run.x_rows : run.rows;
  // Rows of tokens' heads have an extent more, and the same elements.
  const auto rows_of_x = [&](std::int64_t columns, std::uint64_t stream) {
    Tensor tensor = tensor_of(run.dtype, {x_rows, columns}, kind, seed, stream);
    if (has_heads(run.chain)) tensor.shape = {x_rows / run.heads, run.heads, columns};
    return tensor;
  };
  const RowStep& source = run.chain.steps[source_step(run.chain)];
  if (source.kind == RowPart::dequant) {
    add_values_of_x(run, source, x_rows, seed, made);
  } else {
    made.emplace("x", rows_of_x(source_columns(run.chain, run.columns), 0));
  }
  const CounterRandom random(seed, 91);
  if (is_gathered) {
    Tensor indices(DType::s32, {run.rows});
    for (std::int64_t row = 0; row < run.rows; ++row)
      indices.set(row, static_cast<double>(random.integer(static_cast<std::uint64_t>(row), -1, run.x_rows)));
    made.emplace("indices", std::move(indices));
  }
  if (has_part(run.chain, RowPart::rope)) {
    const std::int64_t tokens = (run.rows + run.heads - 1) / run.heads;
    Tensor positions(DType::s32, {tokens});
    for (std::int64_t i = 0; i < tokens; ++i) {
      // Near, far, and farther than any context.
      if (has_rope_table(run.chain)) {
        positions.set(i, static_cast<double>(
                             random.integer(static_cast<std::uint64_t>(i) + (1ULL << 40), -1, run.table_rows + 1)));
        continue;
      }
      const std::int64_t most = i % 3 == 0 ? 100 : i % 3 == 1 ? 1 << 17 : 1 << 30;
      positions.set(i, static_cast<double>(random.integer(static_cast<std::uint64_t>(i) + (1ULL << 40), 0, most)));
    }
    made.emplace("positions", std::move(positions));
  }
  if (has_slots(run.chain)) made.emplace("slots", slots_of(run, seed));
  const std::vector<RowStepNames> names = row_step_names(run.chain);
  const Fill of_parts = kind == Fill::standard ? Fill::normal : kind;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const RowStep& s = run.chain.steps[i];
    const std::int64_t columns = width(s, static_cast<int>(run.columns));
    const std::uint64_t stream = 10 + i;
    if (s.kind == RowPart::combine || s.kind == RowPart::compress) add_lists_of_x(run, s, names[i], kind, seed, made);
    if (s.kind == RowPart::join) made.emplace(names[i].in, rows_of_x(columns, stream));
    const bool is_mixed = s.kind == RowPart::mhc_pre || s.kind == RowPart::mhc_post;
    if (s.has_product) add_product_inputs(run, s, names[i], seed, made);
    if (is_mixed && !(s.has_product && s.kind == RowPart::mhc_pre))
      made.emplace(s.kind == RowPart::mhc_pre ? names[i].in : names[i].in2,
                   tensor_of(DType::f32, {run.rows, kMixColumns}, Fill::uniform, seed, stream));
    if (s.kind == RowPart::mhc_post) {
      if (!s.has_product)
        made.emplace(names[i].in3, tensor_of(DType::f32, {run.rows, kMixColumns}, Fill::uniform, seed, stream + 40));
      made.emplace(names[i].in, tensor_of(run.dtype, {run.rows, kStreams * run.columns}, kind, seed, stream + 20));
    }
    if (s.kind == RowPart::mhc_mix) {
      Tensor squares(DType::f32, {run.rows});
      for (std::int64_t row = 0; row < run.rows; ++row)
        squares.set(row, s.hidden * (0.1 + random.uniform(static_cast<std::uint64_t>(row) + (1ULL << 41))));
      made.emplace(names[i].in, std::move(squares));
      Tensor base = tensor_of(DType::f32, {kMixColumns}, of_parts, seed, stream);
      slow_sinkhorn(base, s.iterations, seed);
      made.emplace(names[i].in2, std::move(base));
      made.emplace(names[i].in3, tensor_of(DType::f32, {3}, of_parts, seed, stream + 20));
    }
    if (s.has_table)
      made.emplace(names[i].in, tensor_of(DType::f32, {run.table_rows, columns}, of_parts, seed, stream));
    if (s.is_added)
      made.emplace(names[i].out, tensor_of(stored_type(s, run.dtype), {run.placed_rows, columns}, kind, seed, stream));
    if (s.kind == RowPart::residual) {
      Tensor residual = tensor_of(run.dtype, {run.rows, columns}, kind, seed, stream);
      if (has_heads(run.chain, s)) residual.shape = {run.rows / run.heads, run.heads, columns};
      made.emplace(names[i].in, std::move(residual));
    }
    if (s.kind == RowPart::factor) made.emplace(names[i].in, tensor_of(DType::f32, {run.rows}, of_parts, seed, stream));
    if ((s.kind == RowPart::rmsnorm || s.kind == RowPart::layernorm) && s.has_weight)
      made.emplace(names[i].in, tensor_of(run.dtype, {columns}, of_parts, seed, stream));
    if (s.kind == RowPart::layernorm)
      made.emplace(names[i].in2, tensor_of(run.dtype, {columns}, of_parts, seed, stream + 20));
    if (is_row_sink(s.kind) && !names[i].in.empty()) {
      Tensor scale(DType::f32, {1});
      scale.set(0, s.kind == RowPart::quantize ? 0.013 : 0.021);
      made.emplace(names[i].in, std::move(scale));
    }
  }
  return made;
}

}  // namespace tessera::reference

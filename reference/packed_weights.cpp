#include "reference/packed_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/gemm_tcgen05.h"
#include "reference/quantize.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

std::int64_t blocks_of(std::int64_t n) { return ceil_div(n, kWeightRows); }
std::int64_t steps_of(std::int64_t k) { return ceil_div(k, kWeightDepth); }

/// Where a block begins, bytes.
std::int64_t block_begin(const PackedWeights& w, std::int64_t n, std::int64_t k, std::int64_t batch, std::int64_t row,
                         std::int64_t column) {
  return ((batch * blocks_of(n) + row / kWeightRows) * steps_of(k) + column / kWeightDepth) * weight_block_bytes(w);
}

double packed_ue8m0_value(unsigned exponent) {
  return exponent == 0xff ? std::numeric_limits<double>::infinity()
                          : std::ldexp(1.0, static_cast<int>(exponent) - kPackedUe8m0Bias - 127);
}
double packed_ue4m3_value(unsigned code) {
  const int exponent = static_cast<int>(code >> 3);
  if (exponent == 31) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1 + (code & 7) / 8.0, exponent - kPackedUe4m3Bias);
}

std::uint32_t word_at(const std::byte* block, int word) {
  std::uint32_t value = 0;
  std::memcpy(&value, block + 4 * word, 4);
  return value;
}
unsigned code_at(OperandType type, const std::byte* block, const WeightPlace& place) {
  const bool is_second = place.word % 2 != 0;
  const int first = place.word - (is_second ? 1 : 0);
  WordPair pair{word_at(block, first), word_at(block, first + 1)};
  if (is_e2m1(type)) pair = pair_of_sum(pair.first, pair.second);
  unsigned code = 0;
  for (int bit = 0; bit < 4; ++bit) {
    const PlacedCode placed = placed_code(type, 1u << bit, is_second, place.reg, place.half);
    if (((pair.first & placed.first) | (pair.second & placed.second)) != 0) code |= 1u << bit;
  }
  return code;
}
void set_word(std::byte* block, int word, std::uint32_t value) { std::memcpy(block + 4 * word, &value, 4); }
void add_to_word(std::byte* block, int word, std::uint32_t bits) { set_word(block, word, word_at(block, word) | bits); }
/// All codes of a block of e2m1 are there.
void finish_pairs(std::byte* block) {
  for (int word = 0; word < kWeightCodeBytes / 4; word += 2) {
    const WordPair pair = pair_with_sum(word_at(block, word), word_at(block, word + 1));
    set_word(block, word, pair.first);
    set_word(block, word + 1, pair.second);
  }
}
std::uint16_t half_at(const std::byte* at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at, 2);
  return value;
}

std::byte* scales_of(std::byte* block) { return block + kWeightCodeBytes; }
const std::byte* scales_of(const std::byte* block) { return block + kWeightCodeBytes; }

/// The scale of a weight of e2m1.
double scale_at(const PackedWeights& w, const std::byte* scales, int row, int i) {
  const int at = scale_place(w, row, i);
  if (w.type == OperandType::nvfp4) return packed_ue4m3_value(static_cast<unsigned>(scales[at]));
  unsigned exponent = 0;
  for (unsigned bit = 0; bit < 8; ++bit)
    if ((word_at(scales, at) & placed_exponent(1u << bit, row_in_pair(row), i % 2)) != 0) exponent |= 1u << bit;
  return packed_ue8m0_value(exponent);
}

/// A weight of a block in float64.
double weight_at(const WeightFacts& facts, const std::byte* block, int row, int column) {
  const PackedWeights& w = facts.weights;
  const WeightPlace place = weight_place(row, column);
  const unsigned code = code_at(w.type, block, place);
  const int i = column / w.group;
  if (w.type != OperandType::int4)
    return static_cast<double>(decode_value(ValueType::e2m1, static_cast<std::uint8_t>(code))) *
           scale_at(w, scales_of(block), row, i);
  const std::byte* const scale = scales_of(block) + 2 * scale_place(w, row, i);
  const double zero =
      w.has_zeros ? half_at(scale + pair_scale_bytes(w)) - static_cast<int>(int4_magic(facts.dtype)) : kMiddleOfInt4;
  const double weight = (code - zero) * to_double(facts.dtype, half_at(scale));
  return to_double(facts.dtype, from_double(facts.dtype, weight));
}

/// Rows of a source, and what stands behind them.
struct Rows {
  const WeightRows& rows;

  bool is_inside(std::int64_t row, std::int64_t column) const { return row < rows.n && column < rows.k; }
  std::int64_t group_of(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const int group = rows.facts.weights.group;
    return (batch * rows.n + row) * (rows.k / group) + column / group;
  }
  std::uint8_t scale_code(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const PackedWeights& w = rows.facts.weights;
    if (!is_inside(row, column)) return w.type == OperandType::nvfp4 ? 0x38 : 127;
    return static_cast<std::uint8_t>(rows.scales[static_cast<std::size_t>(
        scale_offset(rows.form, rows.n, rows.k / w.group, batch, row, column / w.group))]);
  }
  unsigned code(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const PackedWeights& w = rows.facts.weights;
    const auto pair =
        static_cast<unsigned>(rows.values[static_cast<std::size_t>(((batch * rows.n + row) * rows.k + column) / 2)]);
    const unsigned code = pair >> (column % 2 * 4) & 15;
    if (w.type == OperandType::int4) return w.has_zeros ? code : code ^ 8;
    return w.type == OperandType::nvfp4 && (scale_code(batch, row, column) & 0x7f) == 0 ? code & 8 : code;
  }
  void place_scale(std::byte* block, std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const PackedWeights& w = rows.facts.weights;
    const int of_block = static_cast<int>(row % kWeightRows), i = static_cast<int>(column % kWeightDepth) / w.group;
    const int at = scale_place(w, of_block, i);
    if (w.type == OperandType::mxfp4) {
      const unsigned code = scale_code(batch, row, column);
      add_to_word(scales_of(block), at, placed_exponent(packed_ue8m0(code), row_in_pair(of_block), i % 2));
      return;
    }
    if (w.type == OperandType::nvfp4) {
      scales_of(block)[at] = static_cast<std::byte>(packed_ue4m3(scale_code(batch, row, column)));
      return;
    }
    std::byte* const scale = scales_of(block) + 2 * at;
    const auto group = static_cast<std::size_t>(is_inside(row, column) ? group_of(batch, row, column) : 0);
    if (is_inside(row, column)) std::memcpy(scale, rows.scales.data() + 2 * group, 2);
    if (!w.has_zeros) return;
    const auto zero = static_cast<std::uint16_t>(
        int4_magic(rows.facts.dtype) + (is_inside(row, column) ? static_cast<unsigned>(rows.zeros[group]) & 15 : 0));
    std::memcpy(scale + pair_scale_bytes(w), &zero, 2);
  }
};

}  // namespace

WeightFacts weight_facts(OperandType type, int group, ZeroPoints zero_points, DType dtype) {
  // Beside 8-bit activations, which become bf16, scales of int4 are bf16 too.
  return {{type, is_e2m1(type) ? block_elements(block_format(type)) : group, zero_points == ZeroPoints::given},
          dtype_bytes(dtype) == 1 ? DType::bf16 : dtype};
}

Tensor pack_weights(const WeightRows& rows) {
  const PackedWeights& w = rows.facts.weights;
  const auto demand = [](std::size_t found, std::int64_t wanted, const char* name) {
    if (static_cast<std::int64_t>(found) != wanted)
      throw Error(ErrorKind::usage, fmt::format("{} of {} bytes, {} needed", name, found, wanted));
  };
  const std::int64_t groups = rows.l * rows.n * (rows.k / w.group);
  demand(rows.values.size(), rows.l * rows.n * rows.k / 2, "values");
  demand(rows.scales.size(),
         w.type == OperandType::int4 ? 2 * groups : scale_bytes(rows.form, rows.l, rows.n, rows.k / w.group), "scales");
  if (w.has_zeros) demand(rows.zeros.size(), groups, "zeros");
  Tensor packed(DType::u8, {rows.l, blocks_of(rows.n), steps_of(rows.k), weight_block_bytes(w)});
  const Rows source{rows};
  for (std::int64_t batch = 0; batch < rows.l; ++batch)
    for (std::int64_t row = 0; row < blocks_of(rows.n) * kWeightRows; ++row)
      for (std::int64_t column = 0; column < steps_of(rows.k) * kWeightDepth; ++column) {
        std::byte* const block = packed.bytes.data() + block_begin(w, rows.n, rows.k, batch, row, column);
        if (column % w.group == 0) source.place_scale(block, batch, row, column);
        if (!source.is_inside(row, column)) continue;
        const WeightPlace place =
            weight_place(static_cast<int>(row % kWeightRows), static_cast<int>(column % kWeightDepth));
        const bool is_second = place.word % 2 != 0;
        const PlacedCode placed =
            placed_code(w.type, source.code(batch, row, column), is_second, place.reg, place.half);
        add_to_word(block, place.word - (is_second ? 1 : 0), placed.first);
        add_to_word(block, place.word + (is_second ? 0 : 1), placed.second);
      }
  if (is_e2m1(w.type))
    for (std::size_t at = 0; at < packed.bytes.size(); at += static_cast<std::size_t>(weight_block_bytes(w)))
      finish_pairs(packed.bytes.data() + at);
  return packed;
}

WeightTensors random_weight_rows(const WeightFacts& facts, std::int64_t l, std::int64_t n, std::int64_t k, Fill fill,
                                 std::uint64_t seed, std::uint64_t stream) {
  const PackedWeights& w = facts.weights;
  const std::int64_t groups = k / w.group;
  if (w.type != OperandType::int4) {
    WeightTensors rows{random_operand(w.type, l, n, k, fill, seed, stream), Tensor(DType::u8, {l, n, groups}),
                       Tensor(DType::u8, {0})};
    const Tensor in_tiles = random_operand_scales(w.type, l, n, k, fill, seed, stream + 1000);
    for (std::int64_t i = 0; i < rows.scales.elements(); ++i)
      rows.scales.bytes[static_cast<std::size_t>(i)] = in_tiles.bytes[static_cast<std::size_t>(
          scale_offset(ScaleForm::tile, n, groups, i / groups / n, i / groups % n, i % groups))];
    return rows;
  }
  WeightTensors rows{Tensor(DType::u8, {l, n, k / 2}), Tensor(facts.dtype, {l, n, groups}),
                     Tensor(DType::u8, {l, n, w.has_zeros ? groups : 0})};
  const CounterRandom of_values(seed, stream), of_scales(seed, stream + 1000), of_zeros(seed, stream + 2000);
  for (std::size_t i = 0; i < rows.values.bytes.size(); ++i)
    rows.values.bytes[i] = static_cast<std::byte>(of_values.bits(i));
  for (std::size_t i = 0; i < rows.zeros.bytes.size(); ++i)
    rows.zeros.bytes[i] = static_cast<std::byte>(of_zeros.bits(i) % 16);
  for (std::int64_t i = 0; i < rows.scales.elements(); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    rows.scales.set(
        i, fill == Fill::integer ? static_cast<double>(of_scales.integer(at, 1, 2)) : 0.01 + of_scales.uniform(at));
  }
  return rows;
}

Tensor random_packed_weights(const WeightFacts& facts, std::int64_t l, std::int64_t n, std::int64_t k, Fill fill,
                             std::uint64_t seed, std::uint64_t stream) {
  const WeightTensors rows = random_weight_rows(facts, l, n, k, fill, seed, stream);
  return pack_weights({facts, rows.values.bytes, rows.scales.bytes, rows.zeros.bytes, ScaleForm::plain, l, n, k});
}

Tensor decode_packed_weights(const WeightFacts& facts, const TensorView& packed, std::int64_t n, std::int64_t k) {
  const PackedWeights& w = facts.weights;
  const std::int64_t l = packed.shape.empty() ? 0 : packed.shape[0];
  const std::vector<std::int64_t> wanted{l, blocks_of(n), steps_of(k), weight_block_bytes(w)};
  if (packed.shape != wanted)
    throw Error(ErrorKind::usage, fmt::format("packed weights of shape [{}], [{}] needed for {} x {}",
                                              fmt::join(packed.shape, ", "), fmt::join(wanted, ", "), n, k));
  Tensor decoded(DType::f64, {l, n, k});
  auto* const out = reinterpret_cast<double*>(decoded.bytes.data());
  for (std::int64_t batch = 0; batch < l; ++batch)
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t column = 0; column < k; ++column)
        out[(batch * n + row) * k + column] =
            weight_at(facts, packed.data + block_begin(w, n, k, batch, row, column),
                      static_cast<int>(row % kWeightRows), static_cast<int>(column % kWeightDepth));
  return decoded;
}

Tensor decode_weight_rows(const WeightRows& rows) {
  return decode_packed_weights(rows.facts, pack_weights(rows).view(), rows.n, rows.k);
}

Comparison check_pack_weights(const WeightRows& rows, const TensorView& packed) {
  const Tensor expected = pack_weights(rows);
  Comparison result;
  result.rows_checked = result.rows_total = rows.l * rows.n;
  ElementSums sums;
  const std::int64_t bytes = expected.elements(), of_block = expected.shape[3];
  for (std::int64_t i = 0; i < bytes; ++i) {
    const std::int64_t block = i / of_block;
    Element element;
    element.found = packed.at(i);
    element.expected = expected.at(i);
    element.at = {block / (expected.shape[1] * expected.shape[2]), block / expected.shape[2] % expected.shape[1],
                  block % expected.shape[2], i % of_block};
    sums.add(element);
  }
  result.rel_error = sums.rel_error();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = sums.cosine();
  if (sums.mismatched > 0)
    result.problems.push_back(describe_mismatches("packed", sums,
                                                  {{"l", rows.l, {}},
                                                   {"rows", expected.shape[1], {}},
                                                   {"steps", expected.shape[2], {}},
                                                   {"byte", of_block, {16, kWeightCodeBytes}}}));
  result.mismatches = sums.mismatches;
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference

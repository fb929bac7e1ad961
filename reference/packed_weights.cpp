#include "reference/packed_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
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

std::uint8_t packed_scale(OperandType type, std::uint8_t code) {
  if (type == OperandType::nvfp4) return static_cast<std::uint8_t>(packed_ue4m3(code));
  return code > kLargestPackedUe8m0 ? kLargestPackedUe8m0 + 1 : code;
}

double packed_scale_value(OperandType type, std::uint8_t code) {
  if (type == OperandType::mxfp4)
    return code > kLargestPackedUe8m0 ? std::numeric_limits<double>::infinity() : std::ldexp(1.0, code - 127);
  const int exponent = code >> 3;
  if (exponent == 31) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1 + (code & 7) / 8.0, exponent - kPackedUe4m3Bias);
}

unsigned code_at(std::uint32_t word, const WeightPlace& place) {
  unsigned code = 0;
  for (int bit = 0; bit < 4; ++bit) code |= (word >> code_bit(place.reg, place.half, bit) & 1) << bit;
  return code;
}

std::uint32_t word_at(const std::byte* block, int word) {
  std::uint32_t value = 0;
  std::memcpy(&value, block + 4 * word, 4);
  return value;
}
void add_to_word(std::byte* block, int word, std::uint32_t bits) {
  const std::uint32_t value = word_at(block, word) | bits;
  std::memcpy(block + 4 * word, &value, 4);
}

}  // namespace

PackedWeights packed_weights(OperandType type) { return {type, block_elements(block_format(type)), false}; }

Tensor pack_weights(const WeightRows& rows) {
  const PackedWeights w = packed_weights(rows.type);
  const auto demand = [](std::size_t found, std::int64_t wanted, const char* name) {
    if (static_cast<std::int64_t>(found) != wanted)
      throw Error(ErrorKind::usage, fmt::format("{} of {} bytes, {} needed", name, found, wanted));
  };
  demand(rows.values.size(), rows.l * rows.n * rows.k / 2, "values");
  demand(rows.scales.size(), scale_bytes(rows.form, rows.l, rows.n, rows.k / w.group), "scales");
  Tensor packed(DType::u8, {rows.l, blocks_of(rows.n), steps_of(rows.k), weight_block_bytes(w)});
  const auto scale_code = [&](std::int64_t batch, std::int64_t row, std::int64_t column) {
    if (row >= rows.n || column >= rows.k) return static_cast<std::uint8_t>(w.type == OperandType::nvfp4 ? 0x38 : 127);
    return static_cast<std::uint8_t>(
        rows.scales[static_cast<std::size_t>(scale_offset(rows.form, rows.n, rows.k / w.group, batch, row, column / w.group))]);
  };
  for (std::int64_t batch = 0; batch < rows.l; ++batch)
    for (std::int64_t row = 0; row < blocks_of(rows.n) * kWeightRows; ++row)
      for (std::int64_t column = 0; column < steps_of(rows.k) * kWeightDepth; ++column) {
        std::byte* const block = packed.bytes.data() + block_begin(w, rows.n, rows.k, batch, row, column);
        const int in_block = static_cast<int>(row % kWeightRows), k = static_cast<int>(column % kWeightDepth);
        const std::uint8_t scale = scale_code(batch, row, column);
        if (column % w.group == 0)
          block[kWeightCodeBytes + scale_place(w, in_block, k / w.group)] =
              static_cast<std::byte>(packed_scale(w.type, scale));
        if (row >= rows.n || column >= rows.k) continue;
        const auto pair = static_cast<unsigned>(
            rows.values[static_cast<std::size_t>(((batch * rows.n + row) * rows.k + column) / 2)]);
        unsigned code = pair >> (column % 2 * 4) & 15;
        if (w.type == OperandType::nvfp4 && (scale & 0x7f) == 0) code &= 8;
        const WeightPlace place = weight_place(in_block, k);
        add_to_word(block, place.word, placed_code(code, place.reg, place.half));
      }
  return packed;
}

Tensor random_packed_weights(OperandType type, std::int64_t l, std::int64_t n, std::int64_t k, Fill fill,
                             std::uint64_t seed, std::uint64_t stream) {
  const Tensor values = random_operand(type, l, n, k, fill, seed, stream);
  const Tensor scales = random_operand_scales(type, l, n, k, fill, seed, stream + 1000);
  return pack_weights({type, values.bytes, scales.bytes, ScaleForm::tile, l, n, k});
}

Tensor decode_packed_weights(OperandType type, const TensorView& packed, std::int64_t n, std::int64_t k) {
  const PackedWeights w = packed_weights(type);
  const std::int64_t l = packed.shape.empty() ? 0 : packed.shape[0];
  const std::vector<std::int64_t> wanted{l, blocks_of(n), steps_of(k), weight_block_bytes(w)};
  if (packed.shape != wanted)
    throw Error(ErrorKind::usage, fmt::format("packed weights of shape [{}], [{}] needed for {} x {}",
                                              fmt::join(packed.shape, ", "), fmt::join(wanted, ", "), n, k));
  Tensor decoded(DType::f64, {l, n, k});
  auto* const out = reinterpret_cast<double*>(decoded.bytes.data());
  for (std::int64_t batch = 0; batch < l; ++batch)
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t column = 0; column < k; ++column) {
        const std::byte* const block = packed.data + block_begin(w, n, k, batch, row, column);
        const int in_block = static_cast<int>(row % kWeightRows), of_block = static_cast<int>(column % kWeightDepth);
        const WeightPlace place = weight_place(in_block, of_block);
        const auto code = static_cast<std::uint8_t>(code_at(word_at(block, place.word), place));
        const auto scale =
            static_cast<std::uint8_t>(block[kWeightCodeBytes + scale_place(w, in_block, of_block / w.group)]);
        out[(batch * n + row) * k + column] =
            static_cast<double>(decode_value(ValueType::e2m1, code)) * packed_scale_value(type, scale);
      }
  return decoded;
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

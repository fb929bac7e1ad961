#include "reference/operand_source.h"

#include <cstring>
#include <limits>

#include "reference/quantize.h"

namespace tessera::reference {

namespace {

double truncated_to_tf32(double value) {
  auto number = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, 4);
  bits &= ~0x1FFFu;
  std::memcpy(&number, &bits, 4);
  return static_cast<double>(number);
}

}  // namespace

double OperandSource::value(std::int64_t matrix, std::int64_t row, std::int64_t element) const {
  const std::int64_t offset = matrix * values.strides[0] + row * values.strides[1];
  if (!is_block_scaled(type)) {
    const double number = values.at(offset + element * values.strides[2]);
    return type == OperandType::tf32 ? truncated_to_tf32(number) : number;
  }
  const ValueType kind = value_type(block_format(type));
  if (value_bits(kind) == 8)
    return static_cast<double>(
        decode_value(kind, static_cast<std::uint8_t>(values.bits_at(offset + element * values.strides[2]))));
  return static_cast<double>(decode_value(kind, code_at(matrix, row, element * value_bits(kind))));
}

std::uint8_t OperandSource::code_at(std::int64_t matrix, std::int64_t row, std::int64_t bit) const {
  const int bits = operand_bits(type);
  if (bit < 0 || bit + bits > 8 * values.shape[2]) return 0;
  const std::int64_t offset = matrix * values.strides[0] + row * values.strides[1] + bit / 8;
  std::uint64_t two = values.bits_at(offset);
  if (bit % 8 + bits > 8) two |= values.bits_at(offset + 1) << 8;
  return static_cast<std::uint8_t>(two >> (bit % 8) & ((1U << bits) - 1));
}

double OperandSource::scale_at(std::int64_t place, ScaleType as) const {
  const std::int64_t byte = scales_begin + place;
  if (byte < 0 || byte >= static_cast<std::int64_t>(scales.size())) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(decode_scale(as, static_cast<std::uint8_t>(scales[static_cast<std::size_t>(byte)])));
}

}  // namespace tessera::reference

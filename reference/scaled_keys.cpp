#include "reference/scaled_keys.h"

#include <cstring>
#include <utility>
#include <vector>

#include "reference/quantize.h"

namespace tessera::reference {

namespace {

BlockFormat block_format(KvFormat format) {
  return format == KvFormat::nvfp4 ? BlockFormat::nvfp4 : BlockFormat::mxfp8_e4m3;
}

std::uint8_t code_at(KvFormat format, const Tensor& codes, std::int64_t i) {
  if (format != KvFormat::nvfp4) return static_cast<std::uint8_t>(codes.bytes[static_cast<std::size_t>(i)]);
  const auto both = static_cast<unsigned>(codes.bytes[static_cast<std::size_t>(i / 2)]);
  return static_cast<std::uint8_t>(both >> (i % 2 * 4) & 15);
}

double scale_of(KvFormat format, std::uint8_t code) {
  if (format == KvFormat::nvfp4 && (code & 0x7f) == 0x7f) return 480;
  return decode_scale(scale_type(block_format(format)), code);
}

}  // namespace

ScaledKeys scaled_keys(KvFormat format, const Tensor& keys, bool is_exact) {
  const BlockFormat blocks = block_format(format);
  std::vector<std::int64_t> codes = keys.shape, scales = keys.shape;
  scales.back() /= block_elements(blocks);
  if (format == KvFormat::nvfp4) codes.back() /= 2;
  ScaledKeys result{Tensor(format == KvFormat::nvfp4 ? DType::u8 : DType::e4m3, std::move(codes)),
                    Tensor(DType::u8, std::move(scales))};
  if (result.codes.bytes.empty()) return result;
  if (!is_exact) {
    const std::int64_t columns = keys.shape.back();
    const TensorView rows{
        keys.bytes.data(), keys.dtype, {1, keys.elements() / columns, columns}, {keys.elements(), columns, 1}};
    const Quantized made = quantize(rows, {.format = blocks});
    std::memcpy(result.codes.bytes.data(), made.values.data(), result.codes.bytes.size());
    std::memcpy(result.scales.bytes.data(), made.scales.data(), result.scales.bytes.size());
    return result;
  }
  const std::uint8_t one = format == KvFormat::nvfp4 ? 0x38 : 127;
  std::memset(result.scales.bytes.data(), one, result.scales.bytes.size());
  for (std::int64_t i = 0; i < keys.elements(); ++i) {
    const auto code = static_cast<unsigned>(encode_value(value_type(blocks), static_cast<float>(keys.at(i))));
    if (format == KvFormat::nvfp4) {
      result.codes.bytes[static_cast<std::size_t>(i / 2)] |= static_cast<std::byte>(code << (i % 2 * 4));
    } else {
      result.codes.bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(code);
    }
  }
  return result;
}

Tensor widened_keys(KvFormat format, const ScaledKeys& keys) {
  const BlockFormat blocks = block_format(format);
  std::vector<std::int64_t> shape = keys.scales.shape;
  shape.back() *= block_elements(blocks);
  Tensor wide(DType::bf16, std::move(shape));
  for (std::int64_t i = 0; i < wide.elements(); ++i) {
    const auto scale =
        static_cast<std::uint8_t>(keys.scales.bytes[static_cast<std::size_t>(i / block_elements(blocks))]);
    wide.set(i, decode_value(value_type(blocks), code_at(format, keys.codes, i)) * scale_of(format, scale));
  }
  return wide;
}

}  // namespace tessera::reference

#include "reference/gemm_tcgen05.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/operand_source.h"
#include "reference/quantize.h"
#include "reference/scale_padding.h"
#include "spec/gemm_tcgen05_facts.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

std::int64_t scale_index(BlockFormat format, std::int64_t rows, std::int64_t k, std::int64_t batch, std::int64_t row,
                         std::int64_t element) {
  const int block = block_elements(format);
  return scale_offset(ScaleForm::tile, rows, k / block, batch, row, element / block);
}

/// A scale's code under a factor of 0, 1/16, 1 or 16. ue8m0 has no 0.
std::uint64_t standard_scale(bool is_ue4m3, std::uint64_t code, double factor) {
  if (factor == 0) return is_ue4m3 ? 0 : 100;
  const std::uint64_t octaves = factor == 1 ? 0 : is_ue4m3 ? 3 : 4, step = octaves * (is_ue4m3 ? 8 : 1);
  return factor < 1 ? code - step : code + step;
}

DType element_dtype(OperandType type) {
  switch (type) {
    case OperandType::f16:
      return DType::f16;
    case OperandType::bf16:
      return DType::bf16;
    case OperandType::tf32:
      return DType::f32;
    case OperandType::s8:
      return DType::s8;
    case OperandType::e4m3:
    case OperandType::mxfp8_e4m3:
      return DType::e4m3;
    case OperandType::e5m2:
    case OperandType::mxfp8_e5m2:
      return DType::e5m2;
    default:
      return DType::u8;
  }
}

}  // namespace

TensorSums tensor_sums(const ProductFacts& facts) {
  using layout::Tcgen05Kind;
  TensorSums sums;
  sums.step = gemm_tcgen05::tile_k(facts);
  const Tcgen05Kind kind = gemm_tcgen05::kind(facts);
  sums.group = layout::tcgen05_k(kind);
  sums.terms = sums.group + 1;
  sums.term = 0x1p-25;
  if (layout::is_four_bit(kind)) {
    // Four sums of 16 and the accumulator; a sum is at most 16 times its largest product.
    sums.terms = 5 * 16;
    sums.term = 0x1p-35;
  }
  sums.sum = 0x1p-23;
  sums.is_integer = kind == Tcgen05Kind::i8;
  return sums;
}

Tensor decode_operand(OperandType type, const TensorView& values, std::span<const std::byte> scales, std::int64_t k) {
  const std::int64_t l = values.shape[0], rows = values.shape[1];
  Tensor decoded(DType::f64, {l, rows, k});
  const bool is_scaled = is_block_scaled(type);
  const BlockFormat format = is_scaled ? block_format(type) : BlockFormat::nvfp4;
  if (is_scaled) {
    const std::int64_t wanted = scale_bytes(ScaleForm::tile, l, rows, k / block_elements(format));
    if (static_cast<std::int64_t>(scales.size()) != wanted)
      throw Error(ErrorKind::usage, fmt::format("scales of {} bytes: [{}, {}, {}] in tiles takes {}", scales.size(), l,
                                                rows, k / block_elements(format), wanted));
  }
  const OperandSource source{type, values, scales, ScaleForm::tile, k};
  auto* const out = reinterpret_cast<double*>(decoded.bytes.data());
  for (std::int64_t b = 0; b < l; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < k; ++i) {
        double value = source.value(b, r, i);
        if (is_scaled) {
          const auto code =
              static_cast<std::uint8_t>(scales[static_cast<std::size_t>(scale_index(format, rows, k, b, r, i))]);
          value *= static_cast<double>(decode_scale(scale_type(format), code));
        }
        out[(b * rows + r) * k + i] = value;
      }
  return decoded;
}

Tensor random_operand(OperandType type, std::int64_t l, std::int64_t rows, std::int64_t k, Fill kind,
                      std::uint64_t seed, std::uint64_t stream) {
  const int width = operand_bits(type);
  Tensor typed(element_dtype(type), {l, rows, width < 8 ? k * width / 8 : k});
  if (width == 6) {
    // Any code; of whole numbers those up to 4.
    const CounterRandom random(seed, stream);
    const std::span<std::uint8_t> codes{reinterpret_cast<std::uint8_t*>(typed.bytes.data()), typed.bytes.size()};
    for (std::int64_t i = 0; i < l * rows * k; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      std::uint8_t code = kind == Fill::integer ? encode_value(value_type(block_format(type)),
                                                               static_cast<float>(random.integer(at, -4, 4)))
                                                : static_cast<std::uint8_t>(random.bits(at) & 63);
      if (kind == Fill::standard && standard_factor(random, i / k, i % k) == 0) code = 0;
      store_code(codes, width, i, code);
    }
    return typed;
  }
  if (width == 4) {
    // Any code; of whole numbers those that have no half.
    static constexpr std::uint8_t kWhole[] = {0, 2, 4, 5, 6, 7, 10, 12, 13, 14, 15};
    const CounterRandom random(seed, stream);
    for (std::size_t i = 0; i < typed.bytes.size(); ++i) {
      const std::uint64_t bits = random.bits(i);
      const std::uint64_t whole = std::uint64_t{kWhole[bits % 11]} | std::uint64_t{kWhole[(bits >> 32) % 11]} << 4;
      typed.bytes[i] = static_cast<std::byte>(kind == Fill::integer ? whole : bits & 0xFF);
      const auto byte = static_cast<std::int64_t>(i), row_bytes = typed.shape.back();
      if (kind == Fill::standard && standard_factor(random, byte / row_bytes, byte % row_bytes * 2) == 0)
        typed.bytes[i] = std::byte{0};
    }
    return typed;
  }
  fill(typed, kind, seed, stream);
  if (is_integer(type) && kind == Fill::integer) {
    // Small ones, so that fp32 holds the sums; s8 -4 to 4, u8 0 to 8.
    const CounterRandom random(seed, stream);
    for (std::size_t i = 0; i < typed.bytes.size(); ++i)
      typed.bytes[i] = static_cast<std::byte>(random.integer(i, 0, 8) - (type == OperandType::s8 ? 4 : 0));
  }
  if (!is_block_scaled(type)) return typed;
  Tensor bytes(DType::u8, typed.shape);
  bytes.bytes = typed.bytes;
  return bytes;
}

Tensor random_operand_scales(OperandType type, std::int64_t l, std::int64_t rows, std::int64_t k, Fill kind,
                             std::uint64_t seed, std::uint64_t stream) {
  const BlockFormat format = block_format(type);
  const std::int64_t blocks = k / block_elements(format);
  Tensor scales(DType::u8, {l, ceil_div(rows, kTileRows), ceil_div(blocks, kTileBlocks), 32, 4, 4});
  fill_scale_padding(scales, scale_type(format), seed, stream);
  const CounterRandom random(seed, stream);
  const bool is_ue4m3 = scale_type(format) == ScaleType::ue4m3;
  std::uint64_t index = 0;
  for (std::int64_t b = 0; b < l; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < blocks; ++j) {
        const std::uint64_t bits = random.bits(index++);
        std::uint64_t code = kind == Fill::integer ? (is_ue4m3 ? 0x38 + bits % 2 * 8 : 127 + bits % 2)
                                                   : (is_ue4m3 ? 0x20 + bits % 40 : 120 + bits % 12);
        if (kind == Fill::standard) code = standard_scale(is_ue4m3, code, standard_factor(random, r, j * 64));
        scales.bytes[static_cast<std::size_t>(scale_offset(ScaleForm::tile, rows, blocks, b, r, j))] =
            static_cast<std::byte>(code);
      }
  return scales;
}

Tensor random_plain_scales(OperandType type, std::int64_t l, std::int64_t rows, std::int64_t k, Fill kind,
                           std::uint64_t seed, std::uint64_t stream) {
  const std::int64_t blocks = k / block_elements(block_format(type));
  const Tensor tiles = random_operand_scales(type, l, rows, k, kind, seed, stream);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(tiles.bytes.data());
  const std::vector<std::uint8_t> plain =
      convert_scales({bytes, tiles.bytes.size()}, ScaleForm::tile, ScaleForm::plain, l, rows, blocks);
  Tensor scales(DType::u8, {l, rows, blocks});
  std::copy(plain.begin(), plain.end(), reinterpret_cast<std::uint8_t*>(scales.bytes.data()));
  return scales;
}

}  // namespace tessera::reference

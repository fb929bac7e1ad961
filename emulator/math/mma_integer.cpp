#include "emulator/math/mma_integer.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tessera::emulator::math {
namespace {

std::int16_t element(IntegerFormat format, const std::byte* packed, int i) {
  if (format == IntegerFormat::u8) return static_cast<std::uint8_t>(packed[i]);
  if (format == IntegerFormat::s8) return static_cast<std::int8_t>(packed[i]);
  const int nibble = static_cast<int>(packed[i / 2]) >> (i % 2 * 4) & 15;
  return static_cast<std::int16_t>(format == IntegerFormat::s4 && nibble >= 8 ? nibble - 16 : nibble);
}

std::int32_t wrap(std::int64_t sum) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum)); }

std::int32_t clamp(std::int64_t sum) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(sum, Limits::min(), Limits::max()));
}

}  // namespace

void IntegerOperand::resize(int count, int k) {
  count_ = count;
  k_ = k;
  stride_ = static_cast<std::size_t>(count);
  value_.assign(static_cast<std::size_t>(k) * stride_, 0);
}

void IntegerOperand::decode(IntegerFormat format, const std::byte* packed, int elements, int index, int k, Run run) {
  std::int16_t* to = value_.data() + static_cast<std::size_t>(k) * stride_ + static_cast<std::size_t>(index);
  const std::size_t step = run == Run::along_k ? stride_ : 1;
  for (int i = 0; i < elements; ++i) to[static_cast<std::size_t>(i) * step] = element(format, packed, i);
}

void integer_tile(const IntegerOperand& rows, const IntegerOperand& columns, std::int32_t* d, int pitch, bool saturate,
                  int step) {
  constexpr int kBlock = 256;  // columns at a time: the largest N
  std::int32_t sums[kBlock];   // at most 256 products of 16 bits: no overflow
  for (int first = 0; first < rows.k(); first += step) {
    for (int row = 0; row < rows.count(); ++row) {
      for (int column = 0; column < columns.count(); column += kBlock) {
        const int lanes = std::min(kBlock, columns.count() - column);
        std::fill_n(sums, lanes, 0);
        for (int k = first; k < std::min(first + step, rows.k()); ++k) {
          const std::int32_t a = rows.plane(k)[row];
          const std::int16_t* b = columns.plane(k) + column;
          for (int lane = 0; lane < lanes; ++lane) sums[lane] += a * b[lane];
        }
        std::int32_t* out = d + static_cast<std::ptrdiff_t>(row) * pitch + column;
        for (int lane = 0; lane < lanes; ++lane) {
          const std::int64_t sum = std::int64_t{out[lane]} + sums[lane];
          out[lane] = saturate ? clamp(sum) : wrap(sum);
        }
      }
    }
  }
}

std::int32_t bit_dot(BitOperation operation, const std::uint32_t* a, const std::uint32_t* b, int words,
                     std::int32_t d) {
  std::int64_t sum = d;
  for (int i = 0; i < words; ++i) sum += std::popcount(operation == BitOperation::and_popc ? a[i] & b[i] : a[i] ^ b[i]);
  return wrap(sum);
}

}  // namespace tessera::emulator::math

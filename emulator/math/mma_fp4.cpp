// Decoding and the loop over lanes; the header says why nothing is lost before the last step.
#include "emulator/math/mma_fp4.h"

#include <algorithm>
#include <array>

#include "emulator/math/mma_operand.h"
#include "emulator/math/mma_tile.h"

namespace tessera::emulator::math {
namespace {

constexpr int kStepK = 64;
constexpr int kSums = kStepK / 16;
constexpr int kBlock = 64;  // columns at a time

[[gnu::always_inline]] inline double two_to(int exponent) {
  return double_of(static_cast<std::uint64_t>(std::max(exponent, -1000) + 1023) << 52);
}

// A finite double, cut to f32. Zero and what underflows to it is +0, from 2^128 on infinity.
[[gnu::always_inline]] inline std::uint32_t cut_to_f32(double value) {
  const std::uint64_t bits = bits_of(value);
  const std::uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFF;
  std::uint32_t code = 0;
  if (magnitude >= bits_of(0x1p128))
    code = kInfinityF32;
  else if (magnitude >= bits_of(0x1p-126))
    code = static_cast<std::uint32_t>((magnitude >> 29) - (std::uint64_t{1023 - 127} << 23));
  else
    code = static_cast<std::uint32_t>(double_of(magnitude) * 0x1p149);
  return code == 0 ? 0 : code | static_cast<std::uint32_t>(bits >> 63) << 31;
}

// What one row gives with a block of columns: the four scaled sums of every output.
struct Sums {
  std::array<std::array<float, kBlock>, kSums> value;
  std::array<std::array<std::int32_t, kBlock>, kSums> exponent;
};

[[gnu::always_inline]] inline void scaled_sums(const Fp4Operand& rows, const Fp4Operand& columns, int row, int column,
                                               int lanes, int k, Sums& out) {
  for (int g = 0; g < kSums; ++g) {
    auto& value = out.value[static_cast<std::size_t>(g)];
    auto& exponent = out.exponent[static_cast<std::size_t>(g)];
    value.fill(0.0f);
    for (int i = 0; i < 16; ++i) {
      const float a = rows.values(k + 16 * g + i)[row];
      const float* b = columns.values(k + 16 * g + i) + column;
      for (int lane = 0; lane < lanes; ++lane) value[static_cast<std::size_t>(lane)] += a * b[lane];
    }
    const float a_scale = rows.scale_significands(k + 16 * g)[row];
    const std::int32_t a_exponent = rows.scale_exponents(k + 16 * g)[row];
    const float* b_scale = columns.scale_significands(k + 16 * g) + column;
    const std::int32_t* b_exponent = columns.scale_exponents(k + 16 * g) + column;
    for (int lane = 0; lane < lanes; ++lane) {
      value[static_cast<std::size_t>(lane)] *= a_scale * b_scale[lane];
      exponent[static_cast<std::size_t>(lane)] = a_exponent + b_exponent[lane];
    }
  }
}

// One step of one output: align to the largest exponent, cut each term, add, cut.
[[gnu::always_inline]] inline std::uint32_t add_sums(const Fp4Path& path, const Sums& sums, std::size_t lane,
                                                     std::uint32_t c) {
  const Unpacked start = unpack(info_of(Format::f32), c);
  if (start.kind == NumberClass::nan) return kCanonicalNanF32;
  int largest = start.kind == NumberClass::finite ? start.exponent : kZeroExponent;
  for (std::size_t g = 0; g < kSums; ++g) {
    if (sums.exponent[g][lane] >= kSpecialExponent) return kCanonicalNanF32;
    if (sums.value[g][lane] != 0.0f) largest = std::max(largest, sums.exponent[g][lane]);
  }
  if (start.kind == NumberClass::infinity) return c;
  if (largest == kZeroExponent) return 0;
  const auto cut = [&](double value, int exponent) {
    return static_cast<std::int64_t>(value * two_to(path.fraction_bits + exponent - largest));
  };
  std::int64_t sum = 0;
  for (std::size_t g = 0; g < kSums; ++g)
    if (sums.value[g][lane] != 0.0f) sum += cut(static_cast<double>(sums.value[g][lane]), sums.exponent[g][lane]);
  if (start.kind == NumberClass::finite) {
    const double significand = static_cast<double>(start.significand) * 0x1p-23;
    sum += cut(start.negative ? -significand : significand, start.exponent);
  }
  return cut_to_f32(static_cast<double>(sum) * two_to(largest - path.fraction_bits));
}

constexpr std::array<float, 16> kValues = [] {
  std::array<float, 16> values{};
  for (std::uint32_t code = 0; code < 16; ++code) values[code] = static_cast<float>(decode<Format::e2m1>(code));
  return values;
}();

}  // namespace

void Fp4Operand::resize(int count, int k) {
  count_ = count;
  k_ = k;
  stride_ = static_cast<std::size_t>(count);
  value_.assign(static_cast<std::size_t>(k) * stride_, 0.0f);
  significand_.assign(static_cast<std::size_t>(k / 16) * stride_, 1.0f);
  exponent_.assign(static_cast<std::size_t>(k / 16) * stride_, 0);
}

void Fp4Operand::decode(const std::byte* packed, int elements, int index, int k, bool negate) {
  float* to = value_.data() + static_cast<std::size_t>(k) * stride_ + static_cast<std::size_t>(index);
  const std::uint32_t flip = negate ? 8 : 0;
  for (int i = 0; i < elements / 2; ++i) {
    const auto both = static_cast<std::uint32_t>(packed[i]);
    to[static_cast<std::size_t>(2 * i) * stride_] = kValues[(both & 15) ^ flip];
    to[static_cast<std::size_t>(2 * i + 1) * stride_] = kValues[both >> 4 ^ flip];
  }
}

void Fp4Operand::scale(Format format, std::uint8_t code, int index, int k, int block) {
  float significand = 1.0f;
  std::int32_t exponent = code - 127;
  if (format == Format::ue4m3) {
    const Unpacked u = unpack(info_of(Format::ue4m3), code);
    significand = static_cast<float>(u.significand) / 8.0f;
    exponent = u.exponent;
    if (u.kind == NumberClass::nan) exponent = kNanExponent;
  } else if (code == 0xFF) {
    exponent = kNanExponent;
  }
  for (int at = k / 16; at < (k + block) / 16; ++at) {
    significand_[static_cast<std::size_t>(at) * stride_ + static_cast<std::size_t>(index)] = significand;
    exponent_[static_cast<std::size_t>(at) * stride_ + static_cast<std::size_t>(index)] = exponent;
  }
}

namespace {

[[gnu::always_inline]] inline void tile_body(const Fp4Path& path, const Fp4Operand& rows, const Fp4Operand& columns,
                                             std::uint32_t* d, int pitch) {
  Sums sums;
  for (int k = 0; k < rows.k(); k += kStepK) {
    for (int row = 0; row < rows.count(); ++row) {
      for (int column = 0; column < columns.count(); column += kBlock) {
        const int lanes = std::min(kBlock, columns.count() - column);
        scaled_sums(rows, columns, row, column, lanes, k, sums);
        std::uint32_t* out = d + static_cast<std::ptrdiff_t>(row) * pitch + column;
        for (int lane = 0; lane < lanes; ++lane)
          out[lane] = add_sums(path, sums, static_cast<std::size_t>(lane), out[lane]);
      }
    }
  }
}

// Compiled for what the host may have, as mma_tile.cpp does.
using TileBody = void (*)(const Fp4Path&, const Fp4Operand&, const Fp4Operand&, std::uint32_t*, int);
void tile_baseline(const Fp4Path& path, const Fp4Operand& rows, const Fp4Operand& columns, std::uint32_t* d,
                   int pitch) {
  tile_body(path, rows, columns, d, pitch);
}
#if defined(__x86_64__)
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void tile_avx512(const Fp4Path& path, const Fp4Operand& rows,
                                                                       const Fp4Operand& columns, std::uint32_t* d,
                                                                       int pitch) {
  tile_body(path, rows, columns, d, pitch);
}
#endif

TileBody best_tile() {
#if defined(__x86_64__)
  if (mma_variant_available(MmaVariant::avx512)) return tile_avx512;
#endif
  return tile_baseline;
}

}  // namespace

void fp4_tile(const Fp4Path& path, const Fp4Operand& rows, const Fp4Operand& columns, std::uint32_t* d, int pitch) {
  static const TileBody best = best_tile();
  best(path, rows, columns, d, pitch);
}

}  // namespace tessera::emulator::math

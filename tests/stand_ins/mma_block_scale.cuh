// Stands in for ptx/mma_block_scale.cuh's mma_block_scale on targets without mma.sync of block-scaled types: the same
// lanes, registers and selectors, in integer arithmetic.
//
// What a step computes is the emulator's model (emulator/math/mma_fp4.h, mma_path.h): sums of 16 products of e2m1 with
// both their scales, or single products of types of 8 bits with their scales' exponents, are terms; with C they are
// aligned to the largest exponent among those that are not zero, cut to kFraction bits below it, added, and the sum is
// cut to fp32.
namespace tessera::ptx {
namespace stand_in {

inline constexpr unsigned kNan = 0x7fffffffu, kInfinity = 0x7f800000u;

// A number as eighths * 2^exponent.
struct Number {
  int eighths;
  int exponent;
  bool is_nan, is_infinite;
};

// Twice a value of e2m1.
__device__ __forceinline__ int doubled_e2m1(unsigned code) {
  const int magnitude = static_cast<int>(0xc8643210u >> (4 * (code & 7)) & 15);
  return code & 8 ? -magnitude : magnitude;
}

// A value in a byte; e2m1 stands in bits 2 to 5 there.
template <ValueType kType>
__device__ __forceinline__ Number value_of(unsigned byte) {
  constexpr int kMantissa = kType == ValueType::e4m3 ? 3 : kType == ValueType::e5m2 ? 2 : 1;
  constexpr int kBias = kType == ValueType::e4m3 ? 7 : kType == ValueType::e5m2 ? 15 : 1;
  const unsigned code = kType == ValueType::e2m1 ? (byte >> 2 & 7) | (byte << 2 & 0x80) : byte;
  const int field = static_cast<int>(code & 0x7f) >> kMantissa;
  const int mantissa = static_cast<int>(code & ((1u << kMantissa) - 1)) << (3 - kMantissa);
  Number n{field == 0 ? mantissa : 8 + mantissa, (field == 0 ? 1 : field) - kBias, false, false};
  if (code & 0x80) n.eighths = -n.eighths;
  if (kType == ValueType::e4m3) n.is_nan = (code & 0x7f) == 0x7f;
  if (kType == ValueType::e5m2) {
    n.is_nan = (code & 0x7f) > 0x7c;
    n.is_infinite = (code & 0x7f) == 0x7c;
  }
  return n;
}

template <ScaleType kType>
__device__ __forceinline__ Number scale_of(unsigned byte) {
  if (kType == ScaleType::ue8m0) return {8, static_cast<int>(byte) - 127, byte == 0xff, false};
  const int field = static_cast<int>(byte & 0x7f) >> 3, mantissa = static_cast<int>(byte & 7);
  return {field == 0 ? mantissa : 8 + mantissa, (field == 0 ? 1 : field) - 7, (byte & 0x7f) == 0x7f, false};
}

// magnitude * 2^exponent, cut.
__device__ __forceinline__ unsigned cut_to_f32(long long sum, int exponent) {
  const unsigned sign = sum < 0 ? 0x80000000u : 0u;
  const unsigned long long magnitude = static_cast<unsigned long long>(sum < 0 ? -sum : sum);
  if (magnitude == 0) return 0;
  const int top = 63 - __clzll(static_cast<long long>(magnitude)), place = top + exponent;
  if (place >= 128) return sign | kInfinity;
  const int shift = place >= -126 ? top - 23 : -149 - exponent;
  const unsigned long long kept = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (kept == 0) return 0;
  if (place < -126) return sign | static_cast<unsigned>(kept);
  return sign | static_cast<unsigned>(place + 127) << 23 | (static_cast<unsigned>(kept) & 0x7fffffu);
}

// value * 2^(exponent - kUnit), cut to a multiple of 2^(largest - kFraction), in such units.
template <int kFraction, int kUnit>
__device__ __forceinline__ long long cut(long long value, int exponent, int largest) {
  const int shift = largest - exponent;
  const unsigned long long magnitude = static_cast<unsigned long long>(value < 0 ? -value : value);
  const unsigned long long kept = shift >= 64 ? 0 : magnitude << (kFraction - kUnit) >> shift;
  return value < 0 ? -static_cast<long long>(kept) : static_cast<long long>(kept);
}

// The step of one output. values: of kUnit bits behind the point, exponents: of those that are not zero.
template <int kFraction, int kUnit, int kTerms>
__device__ __forceinline__ float add_terms(const int (&values)[kTerms], const int (&exponents)[kTerms], float c,
                                           bool is_nan, bool has_plus, bool has_minus) {
  const unsigned bits = __float_as_uint(c);
  const int field = static_cast<int>(bits >> 23 & 0xff);
  const unsigned fraction = bits & 0x7fffffu;
  if (field == 255 && fraction == 0) (bits >> 31 ? has_minus : has_plus) = true;
  if (is_nan || (field == 255 && fraction != 0) || (has_plus && has_minus)) return __uint_as_float(kNan);
  if (has_plus || has_minus) return __uint_as_float(has_minus ? 0x80000000u | kInfinity : kInfinity);
  const long long significand = field == 0 ? fraction : fraction | 0x800000u;
  const int of_c = (field == 0 ? 1 : field) - 127;
  int largest = significand == 0 ? -100000 : of_c;
  for (int i = 0; i < kTerms; ++i)
    if (values[i] != 0) largest = max(largest, exponents[i]);
  if (largest == -100000) return 0;
  long long sum = significand == 0 ? 0 : cut<kFraction, 23>(bits >> 31 ? -significand : significand, of_c, largest);
  for (int i = 0; i < kTerms; ++i)
    if (values[i] != 0) sum += cut<kFraction, kUnit>(values[i], exponents[i], largest);
  return __uint_as_float(cut_to_f32(sum, largest - kFraction));
}

// e2m1 by e2m1: 64 of each, in eight words. Scales of 16, or of 32.
template <OperandType kType>
__device__ __forceinline__ float output_of_fp4(const unsigned (&a)[8], const unsigned (&b)[8], unsigned sfa,
                                               unsigned sfb, float c) {
  constexpr BlockFormat kFormat = block_format(kType);
  constexpr int kGroups = block_elements(kFormat) / 16;
  int values[4], exponents[4];
  bool is_nan = false;
  for (int group = 0; group < 4; ++group) {
    int quarters = 0;
    for (int e = 0; e < 16; ++e) {
      const int word = 2 * group + e / 8, shift = e % 8 * 4;
      quarters += doubled_e2m1(a[word] >> shift) * doubled_e2m1(b[word] >> shift);
    }
    const Number of_a = scale_of<scale_type(kFormat)>(sfa >> group / kGroups * 8 & 0xff);
    const Number of_b = scale_of<scale_type(kFormat)>(sfb >> group / kGroups * 8 & 0xff);
    is_nan |= of_a.is_nan || of_b.is_nan;
    values[group] = quarters * of_a.eighths * of_b.eighths;  // two bits and six behind the point
    exponents[group] = of_a.exponent + of_b.exponent;
  }
  return add_terms<35, 8>(values, exponents, c, is_nan, false, false);
}

// 32 values in bytes of each, under one scale.
template <OperandType kA, OperandType kB>
__device__ __forceinline__ float output_of_bytes(const unsigned (&a)[8], const unsigned (&b)[8], unsigned sfa,
                                                 unsigned sfb, float c) {
  const Number of_a = scale_of<ScaleType::ue8m0>(sfa & 0xff), of_b = scale_of<ScaleType::ue8m0>(sfb & 0xff);
  int values[32], exponents[32];
  bool is_nan = of_a.is_nan || of_b.is_nan, has_plus = false, has_minus = false;
  for (int k = 0; k < 32; ++k) {
    const Number x = value_of<value_type(block_format(kA))>(a[k / 4] >> k % 4 * 8 & 0xff);
    const Number y = value_of<value_type(block_format(kB))>(b[k / 4] >> k % 4 * 8 & 0xff);
    values[k] = x.eighths * y.eighths;
    exponents[k] = x.exponent + y.exponent + of_a.exponent + of_b.exponent;
    is_nan |= x.is_nan || y.is_nan;
    if (x.is_infinite || y.is_infinite) {
      is_nan |= values[k] == 0;
      (values[k] < 0 ? has_minus : has_plus) = true;
    }
  }
  return add_terms<25, 6>(values, exponents, c, is_nan, has_plus, has_minus);
}

}  // namespace stand_in

template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
__device__ __noinline__ void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa,
                                             unsigned sfb) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % 32, quad = lane / 4 * 4, column = lane % 4 * 2;
  unsigned rows[2][8], columns[2][8], scales[2][2];
  for (int i = 0; i < 2; ++i) {
    for (int t = 0; t < 4; ++t) {
      rows[i][t] = __shfl_sync(kAll, a[i], quad + t);
      rows[i][4 + t] = __shfl_sync(kAll, a[2 + i], quad + t);
      columns[i][t] = __shfl_sync(kAll, b0, (column + i) * 4 + t);
      columns[i][4 + t] = __shfl_sync(kAll, b1, (column + i) * 4 + t);
    }
    scales[0][i] = __shfl_sync(kAll, sfa, quad + 2 * kThreadOfA + i) >> 8 * kByte;
    scales[1][i] = __shfl_sync(kAll, sfb, (column + i) * 4 + kThreadOfB) >> 8 * kByte;
  }
  for (int i = 0; i < 4; ++i) {
    const int row = i / 2, of_b = i % 2;
    if constexpr (operand_bits(kA) == 4 && operand_bits(kB) == 4) {
      d[i] = stand_in::output_of_fp4<kA>(rows[row], columns[of_b], scales[0][row], scales[1][of_b], d[i]);
    } else {
      d[i] = stand_in::output_of_bytes<kA, kB>(rows[row], columns[of_b], scales[0][row], scales[1][of_b], d[i]);
    }
  }
}

}  // namespace tessera::ptx

#include "emulator/math/mma_operand.h"

#include <array>
#include <cstring>

#include "emulator/math/mma_tile.h"

namespace tessera::emulator::math {
namespace {

struct Element {
  float significand;
  std::int32_t exponent;
};

template <Format F>
constexpr Element element_of(std::uint32_t code) {
  constexpr FormatInfo kInfo = info_of(F);
  const Unpacked u = unpack(kInfo, code >> container_shift(F));
  const float sign = u.negative ? -1.0f : 1.0f;
  if (u.kind == NumberClass::zero) return {0.0f, kZeroExponent};
  if (u.kind == NumberClass::infinity) return {sign, kInfinityExponent};
  if (u.kind == NumberClass::nan) return {sign, kNanExponent};
  constexpr float kUnit = 1.0f / (1 << kInfo.fraction_bits);
  return {sign * (static_cast<float>(u.significand) * kUnit), u.exponent};
}

// Formats of a byte or less: all codes in a table.
template <Format F>
constexpr std::array<Element, 256> element_table() {
  constexpr FormatInfo kInfo = info_of(F);
  constexpr std::uint32_t kMask = (1u << (kInfo.exponent_bits + kInfo.fraction_bits + 1)) - 1;
  std::array<Element, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) table[code] = element_of<F>(code & kMask);
  return table;
}

// The same without branches, for the IEEE formats: infinity and NaN keep a nonzero significand.
template <Format F>
Element ieee_element(std::uint32_t code) {
  constexpr FormatInfo kInfo = info_of(F);
  constexpr int kTop = (1 << kInfo.exponent_bits) - 1;
  const auto field = static_cast<std::int32_t>(code >> kInfo.fraction_bits & kTop);
  const auto fraction = static_cast<std::int32_t>(code & ((1u << kInfo.fraction_bits) - 1));
  const std::int32_t significand = fraction | (field != 0 ? 1 << kInfo.fraction_bits : 0);
  const float magnitude = static_cast<float>(significand) * (1.0f / (1 << kInfo.fraction_bits));
  const std::uint32_t sign = (code >> (kInfo.exponent_bits + kInfo.fraction_bits) & 1) << 31;
  std::int32_t exponent = (field > 1 ? field : 1) - kInfo.bias;
  exponent = significand == 0 ? kZeroExponent : exponent;
  exponent = field == kTop ? (fraction != 0 ? kNanExponent : kInfinityExponent) : exponent;
  return {float_of(bits_of(magnitude) | sign), exponent};
}

template <Format F>
Element fast_element(const std::byte* packed) {
  if constexpr (F == Format::tf32) {
    std::uint32_t code = 0;
    std::memcpy(&code, packed, 4);
    return ieee_element<F>(code >> container_shift(F));
  } else if constexpr (F == Format::f16 || F == Format::bf16) {
    std::uint16_t code = 0;
    std::memcpy(&code, packed, 2);
    return ieee_element<F>(code);
  } else {
    static constexpr std::array<Element, 256> kTable = element_table<F>();
    return kTable[static_cast<std::uint8_t>(*packed)];
  }
}

constexpr std::size_t container_bytes(Format f) {
  return f == Format::tf32 ? 4 : f == Format::f16 || f == Format::bf16 ? 2 : 1;
}

template <Format F>
void decode_run(const std::byte* packed, int elements, float* significand, std::int32_t* exponent, std::size_t step,
                float sign) {
  if constexpr (F == Format::f16 || F == Format::bf16) {
    if (elements == 8) {  // a piece of 16 bytes: decoded side by side, then spread
      std::uint16_t codes[8];
      float s[8];
      std::int32_t e[8];
      std::memcpy(codes, packed, sizeof(codes));
      for (int i = 0; i < 8; ++i) {
        const Element element = ieee_element<F>(codes[i]);
        s[i] = element.significand * sign;
        e[i] = element.exponent;
      }
      for (std::size_t i = 0; i < 8; ++i) {
        significand[i * step] = s[i];
        exponent[i * step] = e[i];
      }
      return;
    }
  }
  for (int i = 0; i < elements; ++i) {
    const Element e = fast_element<F>(packed + static_cast<std::size_t>(i) * container_bytes(F));
    significand[static_cast<std::size_t>(i) * step] = e.significand * sign;
    exponent[static_cast<std::size_t>(i) * step] = e.exponent;
  }
}

// Eight rows of eight codes, transposed: to[i * to_stride + j] = from[j * from_stride + i].
void transpose_codes(const std::uint16_t* from, std::size_t from_stride, std::uint16_t* to, std::size_t to_stride) {
  typedef std::uint16_t Codes __attribute__((vector_size(16)));
  Codes rows[8];
  for (std::size_t i = 0; i < 8; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(Codes));
  // Three times rows i and i + 4 are interleaved: element j of row i moves to bit-reversed places, and all is turned.
  for (int step = 0; step < 3; ++step) {
    Codes mixed[8];
    for (std::size_t i = 0; i < 4; ++i) {
      mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      mixed[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::memcpy(rows, mixed, sizeof(rows));
  }
  for (std::size_t i = 0; i < 8; ++i) std::memcpy(to + i * to_stride, &rows[i], sizeof(Codes));
}

}  // namespace

std::array<std::byte, 16> unpack_padded(Format format, const std::byte* packed) {
  std::array<std::byte, 16> out{};
  const std::size_t width = format == Format::e2m1 ? 4 : format == Format::e2m3 || format == Format::e3m2 ? 6 : 8;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t bit = i * width;
    std::uint32_t bits = static_cast<std::uint32_t>(packed[bit / 8]) >> bit % 8;
    if (bit % 8 + width > 8) bits |= static_cast<std::uint32_t>(packed[bit / 8 + 1]) << (8 - bit % 8);
    out[i] = static_cast<std::byte>(bits & ((1u << width) - 1));
  }
  return out;
}

void MmaOperand::resize(int count, int k) {
  count_ = count;
  k_ = k;
  has_codes_ = false;
  stride_ = static_cast<std::size_t>((count + kMmaLanes - 1) / kMmaLanes * kMmaLanes);
  significand_.assign(offset(k), 0.0f);
  exponent_.assign(offset(k), kZeroExponent);
}

void MmaOperand::decode(Format format, const std::byte* packed, int elements, int index, int k, Run run, bool negate) {
  const std::size_t at = offset(k) + static_cast<std::size_t>(index);
  const std::size_t step = run == Run::along_k ? stride_ : 1;
  const float sign = negate ? -1.0f : 1.0f;
  float* s = significand_.data() + at;
  std::int32_t* e = exponent_.data() + at;
  switch (format) {
    case Format::f16:
      return decode_run<Format::f16>(packed, elements, s, e, step, sign);
    case Format::bf16:
      return decode_run<Format::bf16>(packed, elements, s, e, step, sign);
    case Format::tf32:
      return decode_run<Format::tf32>(packed, elements, s, e, step, sign);
    case Format::e5m2:
      return decode_run<Format::e5m2>(packed, elements, s, e, step, sign);
    case Format::e4m3:
      return decode_run<Format::e4m3>(packed, elements, s, e, step, sign);
    case Format::e3m2:
      return decode_run<Format::e3m2>(packed, elements, s, e, step, sign);
    case Format::e2m3:
      return decode_run<Format::e2m3>(packed, elements, s, e, step, sign);
    case Format::e2m1:
      return decode_run<Format::e2m1>(packed, elements, s, e, step, sign);
    default:
      break;  // f32, f64 and the scale formats are no operands: the instruction table has no such row
  }
}

void MmaOperand::expect_codes(Format format, int count, int k, Run run) {
  format_ = format;
  run_ = run;
  if (has_codes_ && count == count_ && k == k_) return;
  has_codes_ = true;
  count_ = count;
  k_ = k;
  stride_ = static_cast<std::size_t>((count + kMmaLanes - 1) / kMmaLanes * kMmaLanes);
  code_rows_.resize(static_cast<std::size_t>(count * k));
  code_planes_.assign(offset(k), 0);  // what is behind count stays zero
}

void MmaOperand::take_codes(const std::byte* eight, int index, int k, bool negate) {
  std::uint64_t codes[2];
  std::memcpy(codes, eight, sizeof(codes));
  const std::uint64_t sign = negate ? 0x8000800080008000 : 0;
  codes[0] ^= sign;
  codes[1] ^= sign;
  std::uint16_t* to =
      run_ == Run::along_k ? code_rows_.data() + index * k_ + k : code_planes_.data() + offset(k) + index;
  std::memcpy(to, codes, sizeof(codes));
}

void MmaOperand::order_codes() const {
  if (run_ != Run::along_k) return;
  for (int index = 0; index < count_; index += 8)
    for (int k = 0; k < k_; k += 8)
      transpose_codes(code_rows_.data() + index * k_ + k, static_cast<std::size_t>(k_),
                      code_planes_.data() + offset(k) + index, stride_);
}

void MmaOperand::decode_codes() const {
  if (!has_codes_) return;
  order_codes();
  significand_.resize(code_planes_.size());
  exponent_.resize(code_planes_.size());
  for (std::size_t i = 0; i < code_planes_.size(); ++i) {
    const Element e = format_ == Format::f16 ? ieee_element<Format::f16>(code_planes_[i])
                                             : ieee_element<Format::bf16>(code_planes_[i]);
    significand_[i] = e.significand;
    exponent_[i] = e.exponent;
  }
}

void MmaOperand::set(Format format, std::uint32_t code, int index, int k, bool negate) {
  std::array<std::byte, 4> bytes{};
  std::memcpy(bytes.data(), &code, sizeof(code));
  decode(format, bytes.data(), 1, index, k, Run::along_index, negate);
}

void MmaOperand::scale(std::uint8_t ue8m0, int index, int k, int length) {
  const std::int32_t shift = ue8m0 == 0xFF ? kNanExponent : ue8m0 - 127;
  for (int i = k; i < k + length; ++i) {
    std::int32_t& exponent = exponent_[offset(i) + static_cast<std::size_t>(index)];
    exponent = ue8m0 == 0xFF ? kNanExponent : exponent + shift;
  }
}

}  // namespace tessera::emulator::math

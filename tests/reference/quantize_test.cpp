#include "reference/quantize.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/random.h"
#include "tessera/error.h"

using namespace tessera;
using namespace tessera::reference;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string refusal(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

Tensor row_of(const std::vector<float>& values) {
  Tensor x(DType::f32, {1, static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(x.bytes.data() + 4 * i, &values[i], 4);
  return x;
}

}  // namespace

TEST_CASE("e2m1 rounds to nearest even, saturates, and has no NaN") {
  const std::pair<float, int> cases[] = {
      {0.0F, 0}, {0.25F, 0}, {0.2501F, 1}, {0.5F, 1}, {0.75F, 2},  {0.7499F, 1}, {1.25F, 2}, {1.2501F, 3},  {1.75F, 4},
      {2.5F, 4}, {2.51F, 5}, {3.5F, 6},    {5.0F, 6}, {5.001F, 7}, {6.0F, 7},    {1e30F, 7}, {kInfinity, 7}};
  for (const auto& [value, code] : cases) {
    CAPTURE(value);
    CHECK(encode_value(ValueType::e2m1, value) == code);
    CHECK(encode_value(ValueType::e2m1, -value) == (code | 8));
  }
  CHECK(encode_value(ValueType::e2m1, kNan) == 7);
  for (int code = 0; code < 16; ++code)
    CHECK(encode_value(ValueType::e2m1, decode_value(ValueType::e2m1, static_cast<std::uint8_t>(code))) == code);
}

TEST_CASE("fp8 values saturate, NaN loses its sign") {
  for (const ValueType type : {ValueType::e4m3, ValueType::e5m2}) {
    const std::uint8_t most = type == ValueType::e4m3 ? 0x7E : 0x7B;
    CHECK(encode_value(type, kInfinity) == most);
    CHECK(encode_value(type, -1e30F) == (most | 0x80));
    CHECK(encode_value(type, -kNan) == 0x7F);
    for (int code = 0; code < 256; ++code) {
      const float value = decode_value(type, static_cast<std::uint8_t>(code));
      if (std::isfinite(value)) CHECK(encode_value(type, value) == code);
    }
  }
}

TEST_CASE("six bits round to nearest even, saturate, and have no NaN") {
  struct Type {
    ValueType type;
    float least, most, least_normal;
    int mantissa_bits;
  };
  for (const Type& t : {Type{ValueType::e3m2, 0.0625F, 28, 0.25F, 2}, Type{ValueType::e2m3, 0.125F, 7.5F, 1, 3}}) {
    CHECK(decode_value(t.type, 1) == t.least);
    CHECK(decode_value(t.type, 0x1F) == t.most);
    CHECK(decode_value(t.type, 0x3F) == -t.most);
    CHECK(decode_value(t.type, static_cast<std::uint8_t>(1 << t.mantissa_bits)) == t.least_normal);
    CHECK(encode_value(t.type, kNan) == 0x1F);
    CHECK(encode_value(t.type, -kInfinity) == 0x3F);
    CHECK(encode_value(t.type, 1e30F) == 0x1F);
    CHECK(encode_value(t.type, -0.0F) == 0x20);
    for (int code = 0; code < 64; ++code)
      CHECK(encode_value(t.type, decode_value(t.type, static_cast<std::uint8_t>(code))) == code);
    // By its definition: multiples of a step that a number's exponent gives, at least that of the subnormal ones.
    for (int i = 0; i < 4000; ++i) {
      const double x = static_cast<double>(i) / 2000.0 * static_cast<double>(t.most);
      const int exponent = std::max(x == 0 ? -100 : std::ilogb(x), std::ilogb(static_cast<double>(t.least_normal)));
      const double step = std::ldexp(1.0, exponent - t.mantissa_bits);
      const double wanted = std::min(std::nearbyint(x / step) * step, static_cast<double>(t.most));
      CHECK(static_cast<double>(decode_value(t.type, encode_value(t.type, static_cast<float>(x)))) == wanted);
    }
  }
}

TEST_CASE("values of six bits follow each other without gaps, the lowest bit first") {
  // 63, 0, 42, 21 are 111111 000000 101010 010101 from the low end on.
  std::vector<std::uint8_t> bytes(6, 0xFF);
  for (const auto& [index, code] : {std::pair(0, 63), {1, 0}, {2, 42}, {3, 21}, {4, 1}})
    store_code(bytes, 6, index, static_cast<std::uint8_t>(code));
  CHECK(bytes == std::vector<std::uint8_t>{0x3F, 0xA0, 0x56, 0xC1, 0xFF, 0xFF});
  for (const auto& [index, code] : {std::pair(0, 63), {1, 0}, {2, 42}, {3, 21}, {4, 1}, {5, 63}})
    CHECK(load_code(bytes, 6, index) == code);
  CHECK(value_bytes(BlockFormat::mxfp6_e3m2, 16) == 12);
}

TEST_CASE("ue8m0: rounded up, nothing overflows; floor as the OCP rule has it") {
  using enum ScaleRounding;
  CHECK(encode_ue8m0(6.0F, BlockFormat::mxfp4, up) == 127);
  CHECK(encode_ue8m0(6.001F, BlockFormat::mxfp4, up) == 128);
  CHECK(encode_ue8m0(6.001F, BlockFormat::mxfp4, floor) == 127);
  CHECK(encode_ue8m0(7.99F, BlockFormat::mxfp4, floor) == 127);
  CHECK(encode_ue8m0(8.0F, BlockFormat::mxfp4, floor) == 128);
  CHECK(encode_ue8m0(448.0F, BlockFormat::mxfp8_e4m3, up) == 127);
  CHECK(encode_ue8m0(28.0F, BlockFormat::mxfp6_e3m2, up) == 127);
  CHECK(encode_ue8m0(28.01F, BlockFormat::mxfp6_e3m2, up) == 128);
  CHECK(encode_ue8m0(31.9F, BlockFormat::mxfp6_e3m2, floor) == 127);
  CHECK(encode_ue8m0(7.5F, BlockFormat::mxfp6_e2m3, up) == 127);
  CHECK(encode_ue8m0(7.51F, BlockFormat::mxfp6_e2m3, up) == 128);
  CHECK(encode_ue8m0(7.99F, BlockFormat::mxfp6_e2m3, floor) == 127);
  CHECK(encode_ue8m0(0.0F, BlockFormat::mxfp4, up) == 0);
  CHECK(encode_ue8m0(1e-45F, BlockFormat::mxfp4, up) == 0);
  CHECK(encode_ue8m0(1e-45F, BlockFormat::mxfp4, floor) == 0);
  CHECK(encode_ue8m0(std::numeric_limits<float>::max(), BlockFormat::mxfp4, up) == 253);
  for (const BlockFormat format : {BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3, BlockFormat::mxfp8_e5m2,
                                   BlockFormat::mxfp6_e3m2, BlockFormat::mxfp6_e2m3})
    for (int i = 0; i < 2000; ++i) {
      const float amax = std::exp2(static_cast<float>(i) / 8.0F - 122.0F);
      const float scale = decode_scale(ScaleType::ue8m0, encode_ue8m0(amax, format, up));
      CHECK(amax / scale <= largest_value(format));
      if (scale > 1e-37F) CHECK(amax / scale > largest_value(format) / 2);
    }
}

TEST_CASE("nvfp4: scale and values of a block worked by hand") {
  std::vector<float> values(32, 0.0F);
  values[0] = 12;    // amax 12: scale 2
  values[1] = -2;    // -1
  values[2] = 0.5F;  // 0.25: down to 0
  values[3] = 1.5F;  // 0.75: up to 1
  values[5] = kNan;
  values[6] = -0.0F;
  values[16] = 1e-6F;  // the second block's scale underflows
  const Quantized q = quantize(row_of(values).view(), {});
  CHECK(decode_scale(ScaleType::ue4m3, q.scales.at(0)) == 2);
  CHECK(q.scales.at(1) == 0);
  CHECK(q.values.at(0) == 0xA7);
  CHECK(q.values.at(1) == 0x20);
  CHECK(q.values.at(2) == 0x70);
  CHECK(q.values.at(3) == 0x08);
  for (std::size_t i = 8; i < 16; ++i) CHECK(q.values.at(i) == 0);
}

TEST_CASE("infinities do not make a scale infinite") {
  std::vector<float> values(32, 1.0F);
  values[3] = -kInfinity;
  for (const BlockFormat format : {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e5m2}) {
    const Quantized q = quantize(row_of(values).view(), {format});
    const float scale = decode_scale(scale_type(format), q.scales.at(0));
    CHECK(std::isfinite(scale));
    const Tensor y = dequantize(q.values, q.scales, {format}, DType::f32, 1, 1, 32);
    CHECK(y.at(3) == static_cast<double>(-largest_value(format) * scale));
  }
  CHECK(global_scale_of(row_of(values).view()) == std::numeric_limits<float>::max() / 2688.0F);
}

TEST_CASE("a global scale: of all zeros, and of a tensor's largest magnitude") {
  const Tensor zeros(DType::bf16, {2, 3, 32});
  CHECK(global_scale_of(zeros.view()) == 0);
  const Quantized q = quantize(zeros.view(), {.global_scale = 0});
  CHECK(q.values == std::vector<std::uint8_t>(96, 0));
  CHECK(q.scales == std::vector<std::uint8_t>(12, 0));
  Tensor x(DType::f16, {2, 5, 64});
  fill(x, Fill::normal, 3, 0);
  const float g = global_scale_of(x.view());
  const Quantized scaled = quantize(x.view(), {.global_scale = g});
  CHECK(*std::max_element(scaled.scales.begin(), scaled.scales.end()) == 0x7E);  // the largest block's scale is 448
}

TEST_CASE("a global scale that is none") {
  const Tensor x(DType::bf16, {1, 2, 32});
  for (const float g : {-0.5F, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(refusal([&] { quantize(x.view(), {.global_scale = g}); }).starts_with("global_scale = "));
    const std::vector<std::uint8_t> values(32), scales(4);
    CHECK(refusal([&] {
            dequantize(values, scales, {.global_scale = g}, DType::f32, 1, 2, 32);
          }).starts_with("global_scale = "));
  }
  CHECK(refusal([&] { quantize(x.view(), {.global_scale = -0.5F}); }) ==
        "global_scale = -0.5: must be finite and not negative, being part of every block's scale: give the largest "
        "magnitude of the tensor / 2,688, or any positive number");
}

TEST_CASE("dequantised values are within half a step") {
  Tensor x(DType::bf16, {2, 7, 96});
  fill(x, Fill::normal, 11, 0);
  for (const BlockFormat format : {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3,
                                   BlockFormat::mxfp8_e5m2, BlockFormat::mxfp6_e3m2, BlockFormat::mxfp6_e2m3}) {
    const Quantized q = quantize(x.view(), {format, ScaleForm::tile});
    const Tensor y = dequantize(q.values, q.scales, {format, ScaleForm::tile}, DType::f32, 2, 7, 96);
    const int block = block_elements(format);
    // Half the gap between neighbours: relative to the number, and at least that of the subnormal ones.
    const ValueType type = value_type(format);
    const bool has_three = type == ValueType::e4m3 || type == ValueType::e2m3;
    const double relative = type == ValueType::e2m1 ? 0.25 : has_three ? 1.0 / 16 : 1.0 / 8;
    const double absolute = type == ValueType::e2m1   ? 0.25
                            : type == ValueType::e4m3 ? 0x1p-10
                            : type == ValueType::e2m3 ? 0x1p-4
                            : type == ValueType::e3m2 ? 0x1p-5
                                                      : 0x1p-17;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const std::int64_t row = i / 96 % 7;
      const auto at =
          static_cast<std::size_t>(scale_offset(ScaleForm::tile, 7, 96 / block, i / 96 / 7, row, i % 96 / block));
      const double scale = static_cast<double>(decode_scale(scale_type(format), q.scales[at]));
      CHECK(std::fabs(y.at(i) - x.at(i)) <= 1.000001 * std::max(absolute * scale, relative * std::fabs(x.at(i))));
    }
  }
}

TEST_CASE("the tile form: addresses by hand, there and back, padding 0") {
  CHECK(scale_bytes(ScaleForm::tile, 2, 129, 5) == 2 * 2 * 2 * 512);
  CHECK(scale_offset(ScaleForm::tile, 129, 5, 0, 0, 0) == 0);
  CHECK(scale_offset(ScaleForm::tile, 129, 5, 0, 1, 3) == 19);
  CHECK(scale_offset(ScaleForm::tile, 129, 5, 0, 32, 0) == 4);
  CHECK(scale_offset(ScaleForm::tile, 129, 5, 0, 127, 3) == 511);
  CHECK(scale_offset(ScaleForm::tile, 129, 5, 0, 0, 4) == 512);
  CHECK(scale_offset(ScaleForm::tile, 129, 5, 1, 128, 4) == 2048 + 1024 + 512);
  std::vector<std::uint8_t> plain(2 * 129 * 5);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::uint8_t>(1 + i % 120);
  const std::vector<std::uint8_t> tiles = convert_scales(plain, ScaleForm::plain, ScaleForm::tile, 2, 129, 5);
  CHECK(convert_scales(tiles, ScaleForm::tile, ScaleForm::plain, 2, 129, 5) == plain);
  CHECK(std::count(tiles.begin(), tiles.end(), 0) == static_cast<std::ptrdiff_t>(tiles.size() - plain.size()));
}

TEST_CASE("what does not fit is refused with both sides") {
  const Tensor x(DType::f32, {4, 40});
  CHECK(refusal([&] { quantize(x.view(), {}); }) == "k = 40: must be a multiple of 16, the block that shares a scale");
  CHECK(refusal([&] {
          quantize(Tensor(DType::u8, {4, 32}).view(), {});
        }) == "elements of type u8: f32, f16 or bf16 needed");
  const std::vector<std::uint8_t> bytes(10);
  CHECK(refusal([&] { convert_scales(bytes, ScaleForm::plain, ScaleForm::tile, 1, 3, 4); }) ==
        "plain scales: 10 bytes given, 12 needed");
  CHECK(refusal([&] { dequantize(bytes, bytes, {}, DType::f32, 1, 1, 32); }) == "values: 10 bytes given, 16 needed");
}

// Block-scaled tensors as arguments: what the compiler refuses, what a run refuses and in which words, and that names
// reach the launch in the plan's order.
#include "tessera/block_scale.h"

#include <doctest/doctest.h>

#include <type_traits>

#include "tessera/error.h"

using namespace tessera;

namespace {

using Nvfp4Tiles = ScaledTensor<BlockFormat::nvfp4, ScaleForm::tile>;
using Nvfp4Plain = ScaledTensor<BlockFormat::nvfp4, ScaleForm::plain>;
using Mxfp4Tiles = ScaledTensor<BlockFormat::mxfp4, ScaleForm::tile>;
using Quantizer = QuantizeKernel<DType::bf16, BlockFormat::nvfp4, ScaleForm::tile>;

template <class Kernel, class In, class Out>
concept Launches = requires(const Kernel& kernel, Device& device, const In& in, const Out& out) {
  kernel.launch(device, Stream{}, in, out);
};

static_assert(Launches<Quantizer, DenseTensor<DType::bf16>, Nvfp4Tiles>);
static_assert(!Launches<Quantizer, DenseTensor<DType::bf16>, Mxfp4Tiles>, "another format");
static_assert(!Launches<Quantizer, DenseTensor<DType::bf16>, Nvfp4Plain>, "another form of scales");
static_assert(!Launches<Quantizer, DenseTensor<DType::f16>, Nvfp4Tiles>, "another source type");

std::string refusal(const ScaledDescription& given, BlockFormat format, ScaleForm form) {
  try {
    require_scaled(given, format, form);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

ScaledDescription nvfp4_tiles() {
  return {ValueType::e2m1, ScaleType::ue4m3, 16, ScaleForm::tile, 129 * 40, 2 * 2 * 512, 1, 129, 80};
}

}  // namespace

TEST_CASE("a wrong pairing is refused with both sides") {
  constexpr BlockFormat kNvfp4 = BlockFormat::nvfp4, kMxfp4 = BlockFormat::mxfp4;
  CHECK(refusal(nvfp4_tiles(), kNvfp4, ScaleForm::tile) == "accepted");
  ScaledDescription given = nvfp4_tiles();
  given.scale_type = ScaleType::ue8m0;
  CHECK(refusal(given, kNvfp4, ScaleForm::tile) == "scales ue8m0, one for 16: ue8m0 goes with blocks of 32");
  given = nvfp4_tiles();
  given.block = 32;
  CHECK(refusal(given, kNvfp4, ScaleForm::tile) == "scales ue4m3, one for 32: ue4m3 goes with blocks of 16");
  given = nvfp4_tiles();
  given.value_type = ValueType::e4m3;
  CHECK(refusal(given, kNvfp4, ScaleForm::tile) == "values e4m3 under scales ue4m3: ue4m3 scales go with e2m1 values");
  CHECK(refusal(nvfp4_tiles(), kMxfp4, ScaleForm::tile) ==
        "values e2m1 under scales ue4m3 where mxfp4 is declared, which has e2m1 under ue8m0");
  CHECK(refusal(nvfp4_tiles(), kNvfp4, ScaleForm::plain) ==
        "scales in tiles where plain ones are declared: convert_scales makes them");
  given = nvfp4_tiles();
  given.scales_bytes = 129 * 5;
  CHECK(refusal(given, kNvfp4, ScaleForm::tile) == "scales of 645 bytes: [1, 129, 5] in tiles takes 2048");
  given = nvfp4_tiles();
  given.values_bytes = 129 * 80;
  CHECK(refusal(given, kNvfp4, ScaleForm::tile) == "values of 10320 bytes: [1, 129, 80] of nvfp4 takes 5160");
  given = nvfp4_tiles();
  given.k = 72;
  CHECK(refusal(given, kNvfp4, ScaleForm::tile) ==
        "[1, 129, 72]: extents of at least 0, the last a multiple of 16, needed");
}

TEST_CASE("rows that lie apart: sizes of buffers follow, and kernels without a pitch refuse them") {
  ScaledDescription given = nvfp4_tiles();
  given.pitch = 96;
  CHECK(refusal(given, BlockFormat::nvfp4, ScaleForm::tile) ==
        "values of 5160 bytes: [1, 129, 80] of nvfp4, rows 96 elements apart, takes 6192");
  given.values_bytes = 6192;
  CHECK(refusal(given, BlockFormat::nvfp4, ScaleForm::tile) == "accepted");
  CHECK(scaled_tensor<BlockFormat::nvfp4, ScaleForm::tile>(given, 16, 32).pitch == 96);
  given.pitch = 64;
  CHECK(refusal(given, BlockFormat::nvfp4, ScaleForm::tile) ==
        "rows that lie 64 elements apart: at least k = 80 and whole bytes needed");
  block_scale::require_no_pitch("out", 80, 80);
  CHECK_THROWS_WITH_AS(block_scale::require_no_pitch("out", 80, 96),
                       "out has rows 96 elements apart: this kernel takes dense ones, 80 apart", Error);
}

TEST_CASE("on the host: the padding copy adds nothing but zeros") {
  using enum BlockFormat;
  CHECK(padded_pitch(nvfp4, nvfp4, 80) == 96);
  CHECK(padded_pitch(mxfp4, mxfp4, 96) == 96);
  CHECK(padded_pitch(mxfp4, mxfp8_e4m3, 96) == 128);
  CHECK(padded_pitch(mxfp8_e4m3, mxfp4, 96) == 96);
  CHECK(padded_pitch(mxfp6_e3m2, mxfp8_e4m3, 96) == 128);
  CHECK(padded_pitch(mxfp4, mxfp6_e3m2, 96) == 128);
  constexpr std::int64_t kL = 2, kRows = 130, kK = 48;
  std::vector<float> x(kL * kRows * kK);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i % 11) - 5);
  for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
    const HostScaled scaled = quantize_on_host(x, kL, kRows, kK, nvfp4, form);
    const HostScaled apart = pad_on_host(scaled, kL, kRows, kK, nvfp4, form, kK, 64);
    CHECK(apart.scales == scaled.scales);
    // The second block of what is new begins a tile of scales of its own.
    const HostScaled longer = pad_on_host(scaled, kL, kRows, kK, nvfp4, form, 80, 80);
    const std::vector<float> before = dequantize_on_host(scaled, kL, kRows, kK, nvfp4, form);
    const std::vector<float> after = dequantize_on_host(longer, kL, kRows, 80, nvfp4, form);
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < kL * kRows; ++row)
      for (std::int64_t i = 0; i < 80; ++i) {
        const float expected = i < kK ? before[static_cast<std::size_t>(row * kK + i)] : 0.0F;
        wrong += after[static_cast<std::size_t>(row * 80 + i)] == expected ? 0 : 1;
        const std::uint8_t byte = apart.values[static_cast<std::size_t>(row * 32 + i / 2 % 32)];
        if (i < 64) wrong += byte == (i < kK ? scaled.values[static_cast<std::size_t>(row * 24 + i / 2)] : 0) ? 0 : 1;
      }
    CHECK(wrong == 0);
    CHECK_THROWS_AS(pad_on_host(scaled, kL, kRows, kK, nvfp4, form, 72, 96), Error);
    CHECK_THROWS_AS(pad_on_host(scaled, kL, kRows, kK, nvfp4, form, 48, 32), Error);
  }
}

TEST_CASE("on the host: rows of six bits, padded") {
  std::vector<float> x(3 * 96);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i % 13) - 6);
  constexpr BlockFormat kFormat = BlockFormat::mxfp6_e2m3;
  const HostScaled scaled = quantize_on_host(x, 1, 3, 96, kFormat, ScaleForm::plain);
  CHECK(scaled.values.size() == 3 * 72);
  CHECK(dequantize_on_host(scaled, 1, 3, 96, kFormat, ScaleForm::plain) == x);  // small whole numbers: exact
  const HostScaled padded = pad_on_host(scaled, 1, 3, 96, kFormat, ScaleForm::plain, 128, 128);
  const std::vector<float> longer = dequantize_on_host(padded, 1, 3, 128, kFormat, ScaleForm::plain);
  for (std::size_t i = 0; i < longer.size(); ++i) CHECK(longer[i] == (i % 128 < 96 ? x[i / 128 * 96 + i % 128] : 0.0F));
}

TEST_CASE("on the host: there and back") {
  std::vector<float> x(2 * 3 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i % 13) - 6);
  for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
    const HostScaled scaled = quantize_on_host(x, 2, 3, 64, BlockFormat::mxfp8_e4m3, form);
    CHECK(dequantize_on_host(scaled, 2, 3, 64, BlockFormat::mxfp8_e4m3, form) == x);  // small whole numbers: exact
    const ScaleForm other = form == ScaleForm::plain ? ScaleForm::tile : ScaleForm::plain;
    CHECK(convert_scales_on_host(scaled.scales, form, other, 2, 3, 2) ==
          quantize_on_host(x, 2, 3, 64, BlockFormat::mxfp8_e4m3, other).scales);
  }
  CHECK(global_scale_on_host(x) == 6.0F / 2688.0F);
  CHECK_THROWS_AS(quantize_on_host(x, 2, 3, 63, BlockFormat::nvfp4, ScaleForm::plain), Error);
}

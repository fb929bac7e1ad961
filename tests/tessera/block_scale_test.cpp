// Block-scaled tensors as arguments: what the compiler refuses, what a run refuses and in which words, and that names
// reach the launch in the plan's order.
#include "tessera/block_scale.h"

#include <doctest/doctest.h>

#include <type_traits>

#include "base/error.h"

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

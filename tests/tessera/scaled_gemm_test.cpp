// Products of block-scaled tensors by type: what the compiler refuses, and what a launch refuses before it plans one.
#include "tessera/scaled_gemm.h"

#include <doctest/doctest.h>

#include "tessera/error.h"

using namespace tessera;

namespace {

using Nvfp4 = ScaledTensor<BlockFormat::nvfp4, ScaleForm::tile>;
using Nvfp4Plain = ScaledTensor<BlockFormat::nvfp4, ScaleForm::plain>;
using Mxfp8 = ScaledTensor<BlockFormat::mxfp8_e4m3, ScaleForm::tile>;
using Mxfp4 = ScaledTensor<BlockFormat::mxfp4, ScaleForm::tile>;
using Nvfp4Gemm = ScaledGemmKernel<BlockFormat::nvfp4, BlockFormat::nvfp4, DType::f16>;
using MixedGemm = ScaledGemmKernel<BlockFormat::mxfp8_e4m3, BlockFormat::mxfp4, DType::bf16>;

template <class Kernel, class A, class B, class D>
concept Launches = requires(const Kernel& kernel, Device& device, const A& a, const B& b, const D& d) {
  kernel.launch(device, Stream{}, a, b, d);
};

static_assert(Launches<Nvfp4Gemm, Nvfp4, Nvfp4, DenseTensor<DType::f16>>);
static_assert(!Launches<Nvfp4Gemm, Nvfp4Plain, Nvfp4, DenseTensor<DType::f16>>, "plain scales");
static_assert(!Launches<Nvfp4Gemm, Nvfp4, Mxfp4, DenseTensor<DType::f16>>, "another format");
static_assert(!Launches<Nvfp4Gemm, Nvfp4, Nvfp4, DenseTensor<DType::bf16>>, "another output");
static_assert(Launches<MixedGemm, Mxfp8, Mxfp4, DenseTensor<DType::bf16>>);
static_assert(!Launches<MixedGemm, Mxfp4, Mxfp8, DenseTensor<DType::bf16>>, "a and b exchanged");

}  // namespace

TEST_CASE("which block-scaled formats go together") {
  using enum BlockFormat;
  CHECK(can_multiply(nvfp4, nvfp4));
  CHECK(!can_multiply(nvfp4, mxfp4));
  CHECK(!can_multiply(mxfp8_e4m3, nvfp4));
  CHECK(can_multiply(mxfp4, mxfp4));
  CHECK(can_multiply(mxfp4, mxfp8_e5m2));
  CHECK(can_multiply(mxfp8_e4m3, mxfp8_e5m2));
  CHECK(can_multiply(mxfp6_e3m2, mxfp6_e2m3));
  CHECK(can_multiply(mxfp4, mxfp6_e2m3));
  CHECK(!can_multiply(mxfp6_e3m2, nvfp4));
}

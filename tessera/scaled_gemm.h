// Products of block-scaled matrices for callers: formats are part of the kernel's and the arguments' types, so that the
// compiler refuses a pair that no instruction multiplies, scales in the plain form, and tensors of another format.
//
//   tessera::ScaledGemmKernel<BlockFormat::nvfp4, BlockFormat::nvfp4, DType::f16> gemm(jit);
//   gemm.launch(device, stream, a, b, {.data = d, .bytes = d_bytes, .l = 1, .rows = m, .k = n});
//
// For targets with tcgen05; no Blackwell hardware has run these kernels. What is computed: docs/operators.md.
#pragma once

#include "spec/operand_type.h"
#include "tessera/block_scale.h"

namespace tessera {

/// Whether some instruction multiplies the two.
constexpr bool can_multiply(BlockFormat a, BlockFormat b) {
  layout::Tcgen05Kind kind{};
  return find_kind(operand_type(a), operand_type(b), kind);
}

/// d [l, m, n] = alpha * g_a * g_b * a b^T, a [l, m, k] and b [l, n, k] with scales in tiles.
template <BlockFormat kA, BlockFormat kB, DType kD>
class ScaledGemmKernel {
 public:
  static_assert(can_multiply(kA, kB),
                "nvfp4 goes with nvfp4 (ue4m3 scales of 16), mxfp4 and mxfp8 with each other (ue8m0 scales of 32)");

  /// expected: sizes that steer the choice; any are right.
  explicit ScaledGemmKernel(Jit& jit, Arch arch = {.number = 100, .suffix = 'a'}, Hint m = kUnknownHint,
                            Hint n = kUnknownHint, Hint k = kUnknownHint)
      : kernel_(jit.kernel(Gemm{.arch = arch, .format = kA, .b_format = kB, .d_dtype = kD, .m = m, .n = n, .k = k})) {}

  /// a_global_scale, b_global_scale: nvfp4's fp32 factors, or 0 for 1. Throws Error{usage} for sizes that do not fit
  /// each other, naming both.
  void launch(Device& device, Stream stream, const ScaledTensor<kA, ScaleForm::tile>& a,
              const ScaledTensor<kB, ScaleForm::tile>& b, const DenseTensor<kD>& d, double alpha = 1,
              DevicePointer a_global_scale = 0, DevicePointer b_global_scale = 0) const {
    block_scale::require(a);
    block_scale::require(b);
    block_scale::require_dense("d", d.bytes, d.l, d.rows, d.k, kD);
    block_scale::require_same("l", a.l, b.l);
    block_scale::require_same("l", a.l, d.l);
    block_scale::require_same("k", a.k, b.k);
    block_scale::require_same("rows of a and of d", a.rows, d.rows);
    block_scale::require_same("rows of b and columns of d", b.rows, d.k);
    kernel_.launch(device, stream,
                   {.a = a.values,
                    .b = b.values,
                    .d = d.data,
                    .scale_a = a_global_scale,
                    .scale_b = b_global_scale,
                    .sfa = a.scales,
                    .sfb = b.scales,
                    .m = a.rows,
                    .n = b.rows,
                    .k = a.k,
                    .l = a.l,
                    .alpha = alpha});
  }
  Kernel& kernel() const noexcept { return kernel_.kernel(); }

 private:
  GemmKernel kernel_;
};

}  // namespace tessera

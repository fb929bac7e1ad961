// Products of block-scaled matrices for callers: formats are part of the kernel's and the arguments' types, so that the
// compiler refuses a pair that no instruction multiplies, scales in the plain form, and tensors of another format.
//
//   tessera::ScaledGemmKernel<BlockFormat::nvfp4, BlockFormat::nvfp4, DType::f16> gemm(jit);
//   gemm.launch(device, stream, a, b, {.data = d, .bytes = d_bytes, .l = 1, .rows = m, .k = n});
//
// ScaledDualGemmKernel multiplies with two matrices and stores silu(gate) * up; ScaledGroupedGemmKernel has a b for
// each group of rows; QuantizedGemmKernel stores the next product's a.
//
// For targets with tcgen05; no Blackwell hardware has run these kernels. What is computed: docs/operators.md.
#pragma once

#include "tessera/block_scale.h"
#include "tessera/spec/operand_type.h"

namespace tessera {

/// Whether some instruction multiplies the two.
constexpr bool can_multiply(BlockFormat a, BlockFormat b) {
  layout::Tcgen05Kind kind{};
  return find_kind(operand_type(a), operand_type(b), kind);
}

/// nvfp4's fp32 factors in device memory, one number each, or 0 for 1.
struct GlobalScales {
  DevicePointer a = 0, b = 0, b2 = 0, d = 0;
};

/// Rows of all groups, one group behind the other, [rows, k]. The scales of each group begin with a tile of 128 rows of
/// their own. Rows lie `pitch` elements apart; 0: k.
template <BlockFormat kFormat>
struct GroupedScaledTensor {
  DevicePointer values = 0, scales = 0;
  std::int64_t values_bytes = 0, scales_bytes = 0;  ///< of the buffers; scales: whole tiles, as many as groups need
  std::int64_t rows = 0, k = 0;
  std::int64_t pitch = 0;
};

/// The groups of a product, in device memory: s32 numbers.
struct GroupRows {
  DevicePointer data = 0;
  std::int64_t bytes = 0;   ///< of the buffer; a wrong size is refused
  std::int64_t groups = 0;  ///< contiguous: the first row of each and the end, groups + 1 numbers; masked: rows of each
};

namespace block_scale {

/// What a launch takes for a pitch that may be left out.
constexpr std::int64_t pitch_of(std::int64_t pitch) { return pitch == 0 ? kUseDefault : pitch; }

/// Row tiles that the scales hold. Throws Error{usage} for a part of one, and for values of a wrong size.
std::int64_t require_group_tiles(BlockFormat format, std::int64_t values_bytes, std::int64_t scales_bytes,
                                 std::int64_t rows, std::int64_t k, std::int64_t pitch);
void require_groups(const GroupRows& groups, Grouping grouping);

}  // namespace block_scale

/// d [l, m, n] = alpha * g_a * g_b * a b^T, a [l, m, k] and b [l, n, k] with scales in tiles.
template <BlockFormat kA, BlockFormat kB, DType kD>
class ScaledGemmKernel {
 public:
  static_assert(
      can_multiply(kA, kB),
      "nvfp4 goes with nvfp4 (ue4m3 scales of 16), mxfp4, mxfp6 and mxfp8 with each other (ue8m0 scales of 32)");

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
                    .alpha = alpha,
                    .lda = block_scale::pitch_of(a.pitch),
                    .ldb = block_scale::pitch_of(b.pitch)});
  }
  Kernel& kernel() const noexcept { return kernel_.kernel(); }

 private:
  GemmKernel kernel_;
};

/// d [l, m, n] = silu(gate) * up with gate = alpha * g_a * g_b * a b^T and up = alpha * g_a * g_b2 * a b2^T.
template <BlockFormat kA, BlockFormat kB, DType kD>
class ScaledDualGemmKernel {
 public:
  static_assert(can_multiply(kA, kB), "no instruction multiplies the two: see ScaledGemmKernel");

  explicit ScaledDualGemmKernel(Jit& jit, Arch arch = {.number = 100, .suffix = 'a'}, Hint m = kUnknownHint,
                                Hint n = kUnknownHint, Hint k = kUnknownHint)
      : kernel_(jit.kernel(Gemm{
            .arch = arch, .format = kA, .b_format = kB, .d_dtype = kD, .gate = Gate::dual, .m = m, .n = n, .k = k})) {}

  /// Throws Error{usage} for sizes that do not fit each other, naming both.
  void launch(Device& device, Stream stream, const ScaledTensor<kA, ScaleForm::tile>& a,
              const ScaledTensor<kB, ScaleForm::tile>& b, const ScaledTensor<kB, ScaleForm::tile>& b2,
              const DenseTensor<kD>& d, double alpha = 1, const GlobalScales& g = {}) const {
    block_scale::require(a);
    block_scale::require(b);
    block_scale::require(b2);
    block_scale::require_dense("d", d.bytes, d.l, d.rows, d.k, kD);
    block_scale::require_same("l", a.l, b.l);
    block_scale::require_same("l of b and of b2", b.l, b2.l);
    block_scale::require_same("l", a.l, d.l);
    block_scale::require_same("k", a.k, b.k);
    block_scale::require_same("k of b and of b2", b.k, b2.k);
    block_scale::require_same("rows of b and of b2", b.rows, b2.rows);
    block_scale::require_same("rows of a and of d", a.rows, d.rows);
    block_scale::require_same("rows of b and columns of d", b.rows, d.k);
    kernel_.launch(device, stream,
                   {.a = a.values,
                    .b = b.values,
                    .d = d.data,
                    .scale_a = g.a,
                    .scale_b = g.b,
                    .b2 = b2.values,
                    .sfa = a.scales,
                    .sfb = b.scales,
                    .sfb2 = b2.scales,
                    .scale_b2 = g.b2,
                    .m = a.rows,
                    .n = b.rows,
                    .k = a.k,
                    .l = a.l,
                    .alpha = alpha,
                    .lda = block_scale::pitch_of(a.pitch),
                    .ldb = block_scale::pitch_of(b.pitch),
                    .ldb2 = block_scale::pitch_of(b2.pitch)});
  }
  Kernel& kernel() const noexcept { return kernel_.kernel(); }

 private:
  GemmKernel kernel_;
};

/// Each group of rows times a b of its own, b [groups, n, k]. Rows of no group are left as they were.
template <BlockFormat kA, BlockFormat kB, DType kD, Grouping kGrouping>
class ScaledGroupedGemmKernel {
 public:
  static_assert(can_multiply(kA, kB), "no instruction multiplies the two: see ScaledGemmKernel");
  static_assert(kGrouping != Grouping::none, "groups are contiguous or masked");

  explicit ScaledGroupedGemmKernel(Jit& jit, Arch arch = {.number = 100, .suffix = 'a'}, Hint m = kUnknownHint,
                                   Hint n = kUnknownHint, Hint k = kUnknownHint)
      : kernel_(jit.kernel(Gemm{.arch = arch,
                                .format = kA,
                                .b_format = kB,
                                .d_dtype = kD,
                                .grouping = kGrouping,
                                .m = m,
                                .n = n,
                                .k = k})) {}

  /// Contiguous groups: a and d [rows, ...] (d.l is 1). Throws Error{usage} for sizes that do not fit each other.
  void launch(Device& device, Stream stream, const GroupedScaledTensor<kA>& a,
              const ScaledTensor<kB, ScaleForm::tile>& b, const DenseTensor<kD>& d, const GroupRows& groups,
              double alpha = 1, const GlobalScales& g = {}) const requires(kGrouping == Grouping::contiguous) {
    const std::int64_t tiles =
        block_scale::require_group_tiles(kA, a.values_bytes, a.scales_bytes, a.rows, a.k, a.pitch);
    block_scale::require_same("l of d and the one matrix of contiguous groups", d.l, 1);
    launch_any(device, stream, a.values, a.scales, a.rows, a.k, a.pitch, tiles, b, d, groups, alpha, g);
  }
  /// Masked groups: group i has the first rows of matrix i of a and d [groups, rows, ...].
  void launch(Device& device, Stream stream, const ScaledTensor<kA, ScaleForm::tile>& a,
              const ScaledTensor<kB, ScaleForm::tile>& b, const DenseTensor<kD>& d, const GroupRows& groups,
              double alpha = 1, const GlobalScales& g = {}) const requires(kGrouping == Grouping::masked) {
    block_scale::require(a);
    block_scale::require_same("l of a and the number of groups", a.l, groups.groups);
    block_scale::require_same("l of a and of d", a.l, d.l);
    launch_any(device, stream, a.values, a.scales, a.rows, a.k, a.pitch, kUseDefault, b, d, groups, alpha, g);
  }
  Kernel& kernel() const noexcept { return kernel_.kernel(); }

 private:
  void launch_any(Device& device, Stream stream, DevicePointer values, DevicePointer scales, std::int64_t rows,
                  std::int64_t k, std::int64_t pitch, std::int64_t tiles, const ScaledTensor<kB, ScaleForm::tile>& b,
                  const DenseTensor<kD>& d, const GroupRows& groups, double alpha, const GlobalScales& g) const {
    block_scale::require(b);
    block_scale::require_groups(groups, kGrouping);
    block_scale::require_dense("d", d.bytes, d.l, d.rows, d.k, kD);
    block_scale::require_same("l of b and the number of groups", b.l, groups.groups);
    block_scale::require_same("k", k, b.k);
    block_scale::require_same("rows of a and of d", rows, d.rows);
    block_scale::require_same("rows of b and columns of d", b.rows, d.k);
    kernel_.launch(device, stream,
                   {.a = values,
                    .b = b.values,
                    .d = d.data,
                    .scale_a = g.a,
                    .scale_b = g.b,
                    .sfa = scales,
                    .sfb = b.scales,
                    .groups = groups.data,
                    .m = rows,
                    .n = b.rows,
                    .k = k,
                    .l = groups.groups,
                    .alpha = alpha,
                    .lda = block_scale::pitch_of(pitch),
                    .ldb = block_scale::pitch_of(b.pitch),
                    .group_tiles = tiles});
  }
  GemmKernel kernel_;
};

/// d = alpha * g_a * g_b * a b^T in a block-scaled format with scales in tiles, ready to be the a of another product;
/// with Gate::interleaved, silu(gate) * up of b's rows in turn, and n / 2 columns.
template <BlockFormat kA, BlockFormat kB, BlockFormat kD, Gate kGate = Gate::none>
class QuantizedGemmKernel {
 public:
  static_assert(can_multiply(kA, kB), "no instruction multiplies the two: see ScaledGemmKernel");
  static_assert(kGate != Gate::dual, "for two matrices b see Gemm::gate");

  explicit QuantizedGemmKernel(Jit& jit, Arch arch = {.number = 100, .suffix = 'a'}, Hint m = kUnknownHint,
                               Hint n = kUnknownHint, Hint k = kUnknownHint)
      : kernel_(jit.kernel(
            Gemm{.arch = arch, .format = kA, .b_format = kB, .d_format = kD, .gate = kGate, .m = m, .n = n, .k = k})) {}

  /// Throws Error{usage} for sizes that do not fit each other, naming both.
  void launch(Device& device, Stream stream, const ScaledTensor<kA, ScaleForm::tile>& a,
              const ScaledTensor<kB, ScaleForm::tile>& b, const ScaledTensor<kD, ScaleForm::tile>& d, double alpha = 1,
              const GlobalScales& g = {}) const {
    block_scale::require(a);
    block_scale::require(b);
    block_scale::require(d);
    block_scale::require_same("l", a.l, b.l);
    block_scale::require_same("l", a.l, d.l);
    block_scale::require_same("k", a.k, b.k);
    block_scale::require_same("rows of a and of d", a.rows, d.rows);
    block_scale::require_same("rows of b and columns of d", kGate == Gate::interleaved ? b.rows / 2 : b.rows, d.k);
    kernel_.launch(device, stream,
                   {.a = a.values,
                    .b = b.values,
                    .d = d.values,
                    .scale_a = g.a,
                    .scale_b = g.b,
                    .sfa = a.scales,
                    .sfb = b.scales,
                    .sfd = d.scales,
                    .scale_d = g.d,
                    .m = a.rows,
                    .n = b.rows,
                    .k = a.k,
                    .l = a.l,
                    .alpha = alpha,
                    .lda = block_scale::pitch_of(a.pitch),
                    .ldb = block_scale::pitch_of(b.pitch),
                    .ldd = block_scale::pitch_of(d.pitch)});
  }
  Kernel& kernel() const noexcept { return kernel_.kernel(); }

 private:
  GemmKernel kernel_;
};

}  // namespace tessera

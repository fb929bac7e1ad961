// Block-scaled tensors for callers: the format is part of an argument's type, so that the compiler refuses most wrong
// pairings; what is known at run time only (a file, another framework's tensor) passes require_scaled first.
// Quantising, dequantising and converting scales, on the host and by kernels; the product of a matrix and a vector.
//
//   tessera::QuantizeKernel<DType::bf16, BlockFormat::nvfp4, ScaleForm::tile> quantize(jit);
//   quantize.launch(device, stream, x, out);                   // out: ScaledTensor<BlockFormat::nvfp4,
//   ScaleForm::tile>
//
// The formats: tessera/spec/block_scale.h; what is computed, to the bit: docs/operators.md. All is thread-safe;
// failures are tessera::Error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/device.h"
#include "tessera/jit.h"
#include "tessera/spec/block_scale.h"

namespace tessera {

/// [l, rows, k] of fp32, fp16 or bf16 in device memory, dense.
template <DType kDType>
struct DenseTensor {
  static_assert(kDType == DType::f32 || kDType == DType::f16 || kDType == DType::bf16,
                "block-scaled formats are made from f32, f16 and bf16");
  DevicePointer data = 0;
  std::int64_t bytes = 0;  ///< of the buffer; what is too small is refused
  std::int64_t l = 1, rows = 0, k = 0;
};

/// [l, rows, k] of a block-scaled format in device memory: packed values, and scales in one form.
template <BlockFormat kFormat, ScaleForm kForm>
struct ScaledTensor {
  DevicePointer values = 0, scales = 0;
  std::int64_t values_bytes = 0, scales_bytes = 0;  ///< of the buffers; a wrong size is refused
  std::int64_t l = 1, rows = 0, k = 0;
  std::int64_t pitch = 0;  ///< elements from one row of values to the next, those of a product alone; 0: k
};

/// What a block-scaled tensor claims to be, where only the run knows.
struct ScaledDescription {
  ValueType value_type = ValueType::e2m1;
  ScaleType scale_type = ScaleType::ue4m3;
  int block = 16;
  ScaleForm form = ScaleForm::plain;
  std::int64_t values_bytes = 0, scales_bytes = 0;
  std::int64_t l = 1, rows = 0, k = 0;
  std::int64_t pitch = 0;  ///< of rows of values, in elements; 0: k
};

/// Throws Error{usage} that names both sides unless the description is one of this format and form: "scales ue8m0, one
/// for 16: ue8m0 goes with blocks of 32", "scales in the plain form where tiles are declared", "scales of 12 bytes: [2,
/// 129, 5] in tiles takes 4096".
void require_scaled(const ScaledDescription& given, BlockFormat format, ScaleForm form);

/// A description's tensor, checked.
template <BlockFormat kFormat, ScaleForm kForm>
ScaledTensor<kFormat, kForm> scaled_tensor(const ScaledDescription& given, DevicePointer values, DevicePointer scales) {
  require_scaled(given, kFormat, kForm);
  return {values, scales, given.values_bytes, given.scales_bytes, given.l, given.rows, given.k, given.pitch};
}

/// Values and scales in host memory.
struct HostScaled {
  std::vector<std::uint8_t> values, scales;
};

/// On the host, bit for bit what the kernels compute. x: [l, rows, k], dense. g: nvfp4's factor, 1 for the others.
/// Throws Error{usage} when k is no multiple of the block, a span has a wrong size or g is negative, infinite or NaN.
HostScaled quantize_on_host(std::span<const float> x, std::int64_t l, std::int64_t rows, std::int64_t k,
                            BlockFormat format, ScaleForm form, float g = 1,
                            ScaleRounding rounding = ScaleRounding::up);
std::vector<float> dequantize_on_host(const HostScaled& scaled, std::int64_t l, std::int64_t rows, std::int64_t k,
                                      BlockFormat format, ScaleForm form, float g = 1);
/// The g of GlobalScale::amax.
float global_scale_on_host(std::span<const float> x);
/// Scales of [l, rows, blocks] from one form to the other; padding becomes 0.
std::vector<std::uint8_t> convert_scales_on_host(std::span<const std::uint8_t> scales, ScaleForm from, ScaleForm to,
                                                 std::int64_t l, std::int64_t rows, std::int64_t blocks);

/// Elements from one row of values to the next that a product with `other` takes (tensor maps): k, but for packed e2m1
/// a multiple of 32, for it beside mxfp8 or mxfp6, and for mxfp6, of 128.
std::int64_t padded_pitch(BlockFormat format, BlockFormat other, std::int64_t k);
/// The padding copy of [l, rows, k]: values in rows that lie `pitch` elements apart, and as many blocks as `new_k` has,
/// zeros behind k under scales of code 0, which add nothing to a product. Scales of the old blocks stay as they are.
/// Throws Error{usage} unless k <= new_k <= pitch, new_k whole blocks and pitch whole bytes.
HostScaled pad_on_host(const HostScaled& scaled, std::int64_t l, std::int64_t rows, std::int64_t k, BlockFormat format,
                       ScaleForm form, std::int64_t new_k, std::int64_t pitch);

namespace block_scale {

/// What is launched, without types: sizes and buffers by the names of the plan.
struct Argument {
  const char* name;
  std::int64_t size;
};
struct Buffer {
  const char* name;
  DevicePointer pointer;
};
/// Puts them into the plan's order and launches. workspace: as many bytes as the plan says, or 0.
void launch(Kernel& kernel, Device& device, Stream stream, std::span<const Argument> sizes,
            std::span<const Buffer> buffers, double alpha, DevicePointer workspace);
void require_dense(const char* what, std::int64_t found, std::int64_t l, std::int64_t rows, std::int64_t k,
                   DType dtype);
void require_same(const char* what, std::int64_t a, std::int64_t b);

template <BlockFormat kFormat, ScaleForm kForm>
void require(const ScaledTensor<kFormat, kForm>& t) {
  require_scaled({value_type(kFormat), scale_type(kFormat), block_elements(kFormat), kForm, t.values_bytes,
                  t.scales_bytes, t.l, t.rows, t.k, t.pitch},
                 kFormat, kForm);
}
/// What a kernel that knows no pitch takes. Throws Error{usage} with the remedy.
void require_no_pitch(const char* what, std::int64_t k, std::int64_t pitch);

}  // namespace block_scale

/// Bytes of workspace that GlobalScale::amax needs.
inline constexpr std::int64_t kAmaxWorkspaceBytes = 4;

template <DType kDType, BlockFormat kFormat, ScaleForm kForm>
class QuantizeKernel {
 public:
  explicit QuantizeKernel(Jit& jit, Arch arch = {}, GlobalScale global_scale = GlobalScale::none,
                          ScaleRounding rounding = ScaleRounding::up)
      : kernel_(jit.kernel(Problem(Quantize{.arch = arch,
                                            .dtype = kDType,
                                            .format = kFormat,
                                            .scale_form = kForm,
                                            .scale_rounding = rounding,
                                            .global_scale = global_scale}))) {}

  /// global_scale: one fp32 number, read (given) or written (amax). workspace: kAmaxWorkspaceBytes for amax.
  void launch(Device& device, Stream stream, const DenseTensor<kDType>& x, const ScaledTensor<kFormat, kForm>& out,
              DevicePointer global_scale = 0, DevicePointer workspace = 0) const {
    block_scale::require_dense("x", x.bytes, x.l, x.rows, x.k, kDType);
    block_scale::require(out);
    block_scale::require_no_pitch("out", out.k, out.pitch);
    block_scale::require_same("l", x.l, out.l);
    block_scale::require_same("rows", x.rows, out.rows);
    block_scale::require_same("k", x.k, out.k);
    const block_scale::Argument sizes[] = {{"l", x.l}, {"rows", x.rows}, {"k", x.k}};
    const block_scale::Buffer buffers[] = {
        {"x", x.data}, {"values", out.values}, {"scales", out.scales}, {"global_scale", global_scale}};
    block_scale::launch(*kernel_, device, stream, sizes, buffers, 1, workspace);
  }
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  std::shared_ptr<Kernel> kernel_;
};

template <BlockFormat kFormat, ScaleForm kForm, DType kDType>
class DequantizeKernel {
 public:
  explicit DequantizeKernel(Jit& jit, Arch arch = {}, GlobalScale global_scale = GlobalScale::none)
      : kernel_(jit.kernel(Problem(Dequantize{
            .arch = arch, .dtype = kDType, .format = kFormat, .scale_form = kForm, .global_scale = global_scale}))) {}

  void launch(Device& device, Stream stream, const ScaledTensor<kFormat, kForm>& in, const DenseTensor<kDType>& y,
              DevicePointer global_scale = 0) const {
    block_scale::require_dense("y", y.bytes, y.l, y.rows, y.k, kDType);
    block_scale::require(in);
    block_scale::require_no_pitch("in", in.k, in.pitch);
    block_scale::require_same("l", in.l, y.l);
    block_scale::require_same("rows", in.rows, y.rows);
    block_scale::require_same("k", in.k, y.k);
    const block_scale::Argument sizes[] = {{"l", y.l}, {"rows", y.rows}, {"k", y.k}};
    const block_scale::Buffer buffers[] = {
        {"values", in.values}, {"scales", in.scales}, {"y", y.data}, {"global_scale", global_scale}};
    block_scale::launch(*kernel_, device, stream, sizes, buffers, 1, 0);
  }
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  std::shared_ptr<Kernel> kernel_;
};

/// c [l, m] = alpha * g_a * g_b * A b. Only formats that a kernel exists for compile: b's may be another than A's.
template <BlockFormat kFormat, ScaleForm kForm, DType kDType, BlockFormat kBFormat = kFormat>
class GemvKernel {
 public:
  static_assert(scale_type(kFormat) == scale_type(kBFormat) && !is_mxfp6(kFormat) && !is_mxfp6(kBFormat),
                "gemv has kernels for nvfp4 with itself, and for mxfp4 and mxfp8 with each other");

  /// expected: sizes that steer the choice; any are right.
  explicit GemvKernel(Jit& jit, Arch arch = {}, Hint l = kUnknownHint, Hint m = kUnknownHint, Hint k = kUnknownHint)
      : kernel_(jit.kernel(Problem(Gemv{.arch = arch,
                                        .dtype = kDType,
                                        .format = kFormat,
                                        .b_format = kBFormat,
                                        .scale_form = kForm,
                                        .l = l,
                                        .m = m,
                                        .k = k}))) {}

  /// Row 0 of each matrix of b counts. c: l * m elements. a_global_scale, b_global_scale: an fp32 number, or 0 for 1.
  void launch(Device& device, Stream stream, const ScaledTensor<kFormat, kForm>& a,
              const ScaledTensor<kBFormat, kForm>& b, DevicePointer c, std::int64_t c_bytes, double alpha = 1,
              DevicePointer a_global_scale = 0, DevicePointer b_global_scale = 0) const {
    block_scale::require(a);
    block_scale::require(b);
    block_scale::require_no_pitch("a", a.k, a.pitch);
    block_scale::require_no_pitch("b", b.k, b.pitch);
    block_scale::require_dense("c", c_bytes, a.l, a.rows, 1, kDType);
    block_scale::require_same("l", a.l, b.l);
    block_scale::require_same("k", a.k, b.k);
    const block_scale::Argument sizes[] = {{"l", a.l}, {"m", a.rows}, {"k", a.k}, {"b_rows", b.rows}};
    const block_scale::Buffer buffers[] = {{"a", a.values},
                                           {"sfa", a.scales},
                                           {"b", b.values},
                                           {"sfb", b.scales},
                                           {"c", c},
                                           {"a_global_scale", a_global_scale},
                                           {"b_global_scale", b_global_scale}};
    block_scale::launch(*kernel_, device, stream, sizes, buffers, alpha, 0);
  }
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  std::shared_ptr<Kernel> kernel_;
};

}  // namespace tessera

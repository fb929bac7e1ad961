// What the planners of block-scaled operators share: targets, texts, the buffers of values and scales.
#pragma once

#include <string>
#include <string_view>

#include "tessera/launch.h"
#include "tessera/plan.h"
#include "tessera/spec/block_scale.h"

namespace tessera {

inline constexpr std::int64_t kMaxBatch = 65535;  // a dimension of the grid
inline constexpr std::int64_t kMaxExtent = (std::int64_t{1} << 31) - 65536;
inline constexpr std::int64_t kMaxGridX = (std::int64_t{1} << 31) - 1;

/// Threads of a CTA of quantize and dequantize, the default first.
inline constexpr int kBlockThreads[] = {256, 128, 512};

/// cvt from and to e2m1 exists from sm_100a on.
Conversion conversion_of(Arch arch) noexcept;

/// "ue4m3, one for 16 along k": a format's scales in words.
std::string scales_text(BlockFormat format);
/// "plain", "tile": in a kernel's name.
std::string_view scale_form_name(ScaleForm form) noexcept;

/// A size with its bounds; no default: the caller gives it.
void add_size(LaunchPlan& launch, std::string name, std::int64_t min, std::int64_t max, std::string help);
/// l, 1 by default.
void add_batch_size(LaunchPlan& launch);
void add_at_most(LaunchPlan& launch, const Expression& lhs, std::int64_t most, std::string message);

/// [l, rows, k] elements of a format, as bytes.
BufferSpec values_buffer(const char* name, BufferRole role, BlockFormat format, const char* rows);
/// The scales of [l, rows, k] elements in a form, as bytes.
BufferSpec scales_buffer(const char* name, BufferRole role, BlockFormat format, ScaleForm form, const char* rows);
/// [l, rows, k] elements of a floating-point type, dense.
BufferSpec dense_buffer(const char* name, BufferRole role, DType dtype);
/// Weights as pack_weights leaves them, in blocks of so many bytes (spec/packed_weights.h).
BufferSpec packed_weights_buffer(const char* name, BufferRole role, int block_bytes);
/// One fp32 number.
BufferSpec global_scale_buffer(const char* name, BufferRole role, bool is_optional);

/// The operand of a format as plans print it.
OperandPlan scaled_operand(std::string name, BlockFormat format, ScaleForm form, std::string use);
OperandPlan scale_operand(std::string name, BlockFormat format, std::string use);
OperandPlan plain_operand(std::string name, std::string_view dtype, std::string use);

/// The sizes that quantize and dequantize take, and their domain; and their launch, which divides the tensor alike.
void add_block_domain(LaunchPlan& launch, BlockFormat format, ScaleForm form, int threads, int visits);
/// grid and the parameters groups or rows and k. visits: groups of a thread. least: of grid[0].
void add_block_grid(LaunchStep& step, BlockFormat format, ScaleForm form, int threads, int visits, int least);

KernelParameter pointer_parameter(const char* name, const char* source);
KernelParameter size_parameter(const char* name, ParameterKind kind, Expression value);

}  // namespace tessera

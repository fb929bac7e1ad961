// Attention's q, k and v to NVFP4 with named arguments (docs/operators.md#attention_quantize), for attention of dtype
// nvfp4:
//
//   tessera::AttentionQuantizeKernel quantize{jit.kernel(tessera::AttentionQuantize{.arch = arch, .head_dim = 128})};
//   quantize.launch(stream, {.q = q, .k = k, .v = v, .q_units = q4, .k_units = k4, .v_units = v4, .q_mean = q_mean,
//   .k_mean = k_mean, .delta_s = delta_s, .row_shift = row_shift, .batch = 2, ...});
//   attention.launch(stream, {.q = q4, .k = k4, .v = v4, .o = o, .delta_s = delta_s, .row_shift = row_shift, ...});
#pragma once

#include "tessera/jit.h"

namespace tessera {

/// Pointers are device addresses; strides in elements, kUseDefault for dense tensors. q [batch, seqlen_q, heads_q,
/// head_dim], k and v [batch, seqlen_k, heads_kv, head_dim]. With blocks of 128, q_blocks = batch * ceil(seqlen_q /
/// 128), key_blocks = batch * ceil(seqlen_k / 128): q_units u8 [heads_q, q_blocks, 72 * head_dim], k_units and v_units
/// u8 [heads_kv, key_blocks, 72 * head_dim], q_mean fp32 [heads_q, q_blocks, head_dim], k_mean fp32 [heads_kv, batch,
/// head_dim], delta_s fp32 [heads_q, q_blocks, 128 * ceil(seqlen_k / 128)], row_shift fp32 [batch, heads_q, seqlen_q].
struct AttentionQuantizeArguments {
  DevicePointer q = 0, k = 0, v = 0;
  DevicePointer q_units = 0, k_units = 0, v_units = 0;
  DevicePointer cu_seqlens_q = 0, cu_seqlens_k = 0, seqused_q = 0, seqused_k = 0, block_table = 0;
  DevicePointer q_mean = 0, k_mean = 0, delta_s = 0, row_shift = 0;
  std::int64_t batch = 1, heads_q = 0, heads_kv = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t tokens_k = 0, pages = 0, max_pages = 0;
  std::int64_t k_stride_page = kUseDefault, v_stride_page = kUseDefault;
  std::int64_t q_stride_batch = kUseDefault, q_stride_seqlen = kUseDefault, q_stride_head = kUseDefault;
  std::int64_t k_stride_batch = kUseDefault, k_stride_seqlen = kUseDefault, k_stride_head = kUseDefault;
  std::int64_t v_stride_batch = kUseDefault, v_stride_seqlen = kUseDefault, v_stride_head = kUseDefault;
  DevicePointer workspace = 0;
  std::int64_t workspace_bytes = 0;
};

class AttentionQuantizeKernel {
 public:
  /// Of a Problem that is an AttentionQuantize.
  explicit AttentionQuantizeKernel(std::shared_ptr<Kernel> kernel);
  /// On the GPU whose context is current on this thread; stream is a CUstream. See Kernel::launch.
  void launch(Stream stream, const AttentionQuantizeArguments& arguments) const;
  void launch(Device& device, Stream stream, const AttentionQuantizeArguments& arguments) const;
  /// Scratch memory that a launch of these sizes needs.
  std::int64_t workspace_bytes(const AttentionQuantizeArguments& arguments) const;
  std::int64_t workspace_bytes(Device& device, const AttentionQuantizeArguments& arguments) const;
  void prepare() const;
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  struct Slots;
  std::shared_ptr<Kernel> kernel_{};
  std::shared_ptr<const Slots> slots_{};
};

}  // namespace tessera

// The merge of parts of attention with named arguments: shared prefixes, cascades and keys on several devices are
// launches of attention over their keys, and one of this (docs/operators.md#merge).
//
//   tessera::MergeKernel merge{jit.kernel(tessera::Merge{.head_dim_v = 128, .parts = 2})};
//   merge.launch(stream, {.o_parts = o_parts, .lse_parts = lse_parts, .o = o, .parts = 2, .heads_q = 32, .seqlen_q =
//   tokens});
#pragma once

#include "tessera/jit.h"

namespace tessera {

/// Pointers are device addresses; strides in elements, kUseDefault for dense tensors. o_parts [parts, batch, seqlen_q,
/// heads_q, head_dim_v], lse_parts fp32 [parts, batch, heads_q, seqlen_q], natural logarithms: as attention writes o
/// and lse, part behind part. Ragged queries: batch is 1, seqlen_q those of all sequences. o [batch, seqlen_q, heads_q,
/// head_dim_v]; lse fp32 [batch, heads_q, seqlen_q], may be null. sink fp32 [heads_q], of kernels that have it, may be
/// null.
struct MergeArguments {
  DevicePointer o_parts = 0, lse_parts = 0, o = 0, lse = 0, sink = 0;
  std::int64_t parts = 0, batch = 1, heads_q = 0, seqlen_q = 0;
  std::int64_t o_parts_stride_part = kUseDefault, o_parts_stride_batch = kUseDefault;
  std::int64_t o_parts_stride_seqlen = kUseDefault, o_parts_stride_head = kUseDefault;
  std::int64_t lse_parts_stride_part = kUseDefault, lse_parts_stride_batch = kUseDefault;
  std::int64_t lse_parts_stride_head = kUseDefault;
  std::int64_t o_stride_batch = kUseDefault, o_stride_seqlen = kUseDefault, o_stride_head = kUseDefault;
  DevicePointer workspace = 0;  ///< none is needed
  std::int64_t workspace_bytes = 0;
};

class MergeKernel {
 public:
  /// Of a Problem that is a Merge.
  explicit MergeKernel(std::shared_ptr<Kernel> kernel);
  /// On the GPU whose context is current on this thread; stream is a CUstream. See Kernel::launch.
  void launch(Stream stream, const MergeArguments& arguments) const;
  void launch(Device& device, Stream stream, const MergeArguments& arguments) const;
  void prepare() const;
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  struct Slots;
  std::shared_ptr<Kernel> kernel_{};
  std::shared_ptr<const Slots> slots_{};
};

}  // namespace tessera

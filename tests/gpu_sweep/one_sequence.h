// The arguments of a launch of attention as those of one of its sequences alone, in the same memory: with parts of a
// size its outputs are the same bits.
#pragma once

#include <cstdint>

#include "tessera/jit.h"
#include "tessera/spec/types.h"

namespace tessera {

inline FmhaArguments arguments_of_sequence(const Fmha& problem, FmhaArguments a, std::int64_t sequence) {
  const auto or_dense = [](std::int64_t given, std::int64_t dense) { return given == kUseDefault ? dense : given; };
  const auto move = [&](DevicePointer& pointer, std::int64_t elements, int bytes) {
    if (pointer != 0) pointer += static_cast<DevicePointer>(sequence * elements * bytes);
  };
  const std::int64_t columns_v = problem.head_dim_v.value_or(problem.head_dim);
  const int bytes = dtype_bytes(problem.dtype), key_bytes = dtype_bytes(problem.kv_dtype.value_or(problem.dtype));
  const int o_bytes = bytes == 1 ? 2 : bytes;  // of e4m3 bf16 or f16
  if (problem.q_layout == QueryLayout::ragged) {
    move(a.cu_seqlens_q, 1, 4);
  } else {
    move(a.q, or_dense(a.q_stride_batch, a.seqlen_q * a.heads_q * problem.head_dim), bytes);
    move(a.o, or_dense(a.o_stride_batch, a.seqlen_q * a.heads_q * columns_v),
         problem.output == Output::normalized ? o_bytes : 4);
    for (DevicePointer* const rows : {&a.lse, &a.row_max, &a.row_sum}) move(*rows, a.heads_q * a.seqlen_q, 4);
    move(a.tree_mask, a.seqlen_q * or_dense(a.tree_words, ceil_div(a.seqlen_q, 32)), 4);
  }
  if (problem.kv_layout == KvLayout::dense) {
    move(a.k, or_dense(a.k_stride_batch, a.seqlen_k * a.heads_kv * problem.head_dim), key_bytes);
    move(a.v, or_dense(a.v_stride_batch, a.seqlen_k * a.heads_kv * columns_v), key_bytes);
  }
  move(a.block_table, a.max_pages, 4);
  for (DevicePointer* const lengths : {&a.cu_seqlens_k, &a.seqused_q, &a.seqused_k}) move(*lengths, 1, 4);
  move(a.q_descale, or_dense(a.q_descale_stride_batch, a.heads_kv), 4);
  move(a.k_descale, or_dense(a.k_descale_stride_batch, a.heads_kv), 4);
  move(a.v_descale, or_dense(a.v_descale_stride_batch, a.heads_kv), 4);
  a.batch = 1;
  return a;
}

}  // namespace tessera

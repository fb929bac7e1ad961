// Buffers that attention_quantize writes and attention with dtype nvfp4 reads: both launches describe them by these.
#pragma once

#include <string>

#include "tessera/launch.h"
#include "tessera/spec/attention_types.h"

namespace tessera {

/// Whose rows follow each other.
struct Nvfp4Layouts {
  bool has_ragged_queries = false, has_ragged_keys = false;
};

/// As text over sizes: blocks of so many queries, or of 128 keys, of all sequences.
std::string nvfp4_query_blocks(Nvfp4Layouts layouts, int rows);
std::string nvfp4_key_blocks(Nvfp4Layouts layouts);

/// q, k or v in units: u8.
BufferSpec nvfp4_units(const char* name, BufferRole role, int head_dim, Nvfp4Layouts layouts);
/// f32 [heads_q, blocks of 128 queries, 128 * ceil(seqlen_k / 128)].
BufferSpec nvfp4_delta_s(BufferRole role, Nvfp4Layouts layouts);
/// f32 [batch, heads_q, seqlen_q], ragged [heads_q, seqlen_q].
BufferSpec nvfp4_statistic(const char* name, BufferRole role, Nvfp4Layouts layouts);
/// s32 [batch] or [batch + 1].
BufferSpec nvfp4_numbers(const char* name, const char* count);

}  // namespace tessera
